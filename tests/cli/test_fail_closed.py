"""What asks for security is not served as if it did not."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from core.cluster.image.metadata_log import MetadataLog
from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.errors import UsageError
from core.common.filesystem import FileSystem
from core.protocol.schema.metadata_records import (
    AccessControlEntryRecord,
    ConfigRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from plog.testing import running_broker
from tests.support.for_each import for_each
from tests.support.server import Server, call_plog
from tests.support.server_properties import STOCK

SECURED = """\
listeners=SASL_PLAINTEXT://127.0.0.1:0
sasl.enabled.mechanisms=PLAIN
authorizer.class.name=a.KafkaDoesNotHave
listener.name.sasl_plaintext.plain.sasl.jaas.config=PlainLoginModule required user_alice="s3cret";
"""


def test_a_configuration_that_asks_for_security_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SECURED)
    done = call_plog("serve", "--config", str(file), "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 2
    message = done.stderr.decode()
    assert "plog does not have: authorizer.class.name (" in message
    assert "--insecure-ignore-security" in message
    known = f"authorizer.class.name={STANDARD_AUTHORIZER}"
    done = call_plog("serve", "--config", str(file), "--data-dir", str(tmp_path / "data"), "--set", known)
    assert done.returncode == 2
    assert b"plain.sasl.jaas.config: PlainLoginModule is not of PLAIN, expected org.apache.kafka.comm" in done.stderr
    assert "s3cret" not in message + done.stderr.decode()
    assert not (tmp_path / "data").exists()


def test_settings_of_the_command_line_count_as_well(tmp_path: Path) -> None:
    done = call_plog(
        "serve", "--set", "authorizer.class.name=A", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"
    )
    assert (done.returncode, b"authorizer.class.name" in done.stderr) == (2, True)


def test_settings_of_a_fixture_count_as_well(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"create\.topic\.policy\.class\.name \(not every topic may be made\)"):
        running_broker(tmp_path / "data", create_topic_policy_class_name="a.Policy").__enter__()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("node", ["", "1"])
def test_settings_that_kafka_made_while_it_ran_count_as_well(tmp_path: Path, node: str) -> None:
    directory = tmp_path / "data"
    assert call_plog("topic", "create", "t", "--data-dir", str(directory)).returncode == 0
    log = MetadataLog(directory, 1, SystemClock(), FileSystem())
    log.append([ConfigRecord(ConfigResourceType.BROKER, node, "max.connection.creation.rate", "10")])
    log.close()
    done = call_plog("serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0")
    assert (done.returncode, b"max.connection.creation.rate (new connections have a limit)" in done.stderr) == (2, True)


@pytest.mark.longer
def test_it_is_served_open_where_somebody_says_so(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SECURED)
    with Server(tmp_path / "data", "--config", str(file), "--insecure-ignore-security") as server:
        assert call_plog("topic", "list", "--bootstrap-server", server.address).returncode == 0
    log = server.log.read_text()
    assert "warning: authorizer.class.name (not everybody may do everything) is ignored" in log
    assert "s3cret" not in log


@pytest.mark.longer
def test_kafkas_stock_file_goes_on_working(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK)
    with Server(tmp_path / "data", "--config", str(file), "--advertise", "127.0.0.1:0") as server:
        done = call_plog("topic", "create", "t", "--bootstrap-server", server.address)
        assert done.returncode == 0, done.stderr
    assert "security" not in server.log.read_text()


@pytest.fixture
def secured_directory(tmp_path: Path) -> Path:
    """A data directory whose metadata hold a delegation token and a user."""
    directory = tmp_path / "data"
    assert call_plog("topic", "create", "t", "--data-dir", str(directory)).returncode == 0
    log = MetadataLog(directory, 1, SystemClock(), FileSystem())
    log.append([DelegationTokenRecord(token_id="t"), UserScramCredentialRecord("alice", 1)])
    log.close()
    return directory


@for_each("read_only", [(), ("--read-only",)])
def test_metadata_with_users_are_not_served_beyond_this_machine(
    secured_directory: Path, read_only: tuple[str, ...]
) -> None:
    log = secured_directory / "__cluster_metadata-0" / "00000000000000000000.log"
    before = log.read_bytes()
    done = call_plog("serve", "--data-dir", str(secured_directory), "--listen", "0.0.0.0:0", *read_only)
    assert done.returncode == 2
    message = done.stderr.decode()
    assert (
        "the metadata hold 1 SCRAM user and 1 delegation token, and plog obeys none of them: not served on 0.0.0.0:0"
        in message
    )
    assert "--insecure-ignore-security" in message
    assert (done.stdout, log.read_bytes()) == (b"", before)


@pytest.mark.longer
def test_metadata_with_users_are_served_to_this_machine_with_a_warning(secured_directory: Path) -> None:
    with Server(secured_directory) as server:
        assert call_plog("topic", "list", "--bootstrap-server", server.address).returncode == 0
    log = server.log.read_text()
    assert "warning: the metadata hold 1 SCRAM user and 1 delegation token, and plog obeys none of them" in log
    assert "without authentication" not in log


@pytest.mark.longer
@for_each(
    "options, warning",
    [
        (("--set", f"authorizer.class.name={STANDARD_AUTHORIZER}"), "on 0.0.0.0:0 without authentication: everybody"),
        ((), "the metadata hold 1 ACL, which are obeyed, also without authorizer.class.name=org."),
    ],
)
def test_acls_are_obeyed(secured_directory: Path, options: tuple[str, ...], warning: str) -> None:
    log = MetadataLog(secured_directory, 1, SystemClock(), FileSystem())
    log.append([AccessControlEntryRecord(b"a" * 16, 2, "t", 3, "User:ANONYMOUS", "*", 8, 3)])
    log.close()
    everywhere = ["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:0"]
    with Server(secured_directory, *everywhere, *options) as server:
        address = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        assert call_plog("topic", "list", "--bootstrap-server", address).returncode == 0
        refused = call_plog("cluster", "reassign", "--status", "--dry-run", "--bootstrap-server", address)
        assert (refused.returncode, b"CLUSTER_AUTHORIZATION_FAILED" in refused.stderr) == (1, True), refused
    text = server.log.read_text()
    assert f"warning: {warning}" in text
    unheeded = "the metadata hold 1 SCRAM user and 1 delegation token, and plog obeys none of them"
    assert f"{unheeded}: a client that does not log in is User:ANONYMOUS" in text


@pytest.mark.longer
def test_users_that_log_in_are_no_reason_to_refuse(secured_directory: Path) -> None:
    """Nobody is let in at that address who does not log in."""
    login = ["--listener", "SASL_PLAINTEXT://0.0.0.0:0", "--set", "sasl.enabled.mechanisms=SCRAM-SHA-256,PLAIN"]
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret";'
    login += ["--set", f"{key}=${{env:PLOG_TESTS_USERS}}", "--advertise", "127.0.0.1:0"]
    with Server(secured_directory, *login, environment={"PLOG_TESTS_USERS": users}) as server:
        assert call_plog("topic", "list", "--data-dir", str(secured_directory)).returncode == 0
    text = server.log.read_text()
    assert "warning: the metadata hold 1 delegation token, and plog obeys none of them: anybody" in text
    assert "without authentication" not in text
    assert "on 0.0.0.0:0 with PLAIN and without TLS: passwords of clients are in the clear there" in text
    assert " protocols SASL_PLAINTEXT:SASL_PLAINTEXT" in text
    assert "s3cret" not in text


@pytest.mark.longer
def test_an_address_that_others_reach_is_warned_of(secured_directory: Path) -> None:
    arguments = ["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:0", "--insecure-ignore-security"]
    with Server(secured_directory, *arguments) as server:
        pass
    log = server.log.read_text()
    assert "warning: the metadata hold 1 SCRAM user and 1 delegation token" in log
    assert "warning: on 0.0.0.0:0 without authentication: everybody who reaches this address may read" in log
