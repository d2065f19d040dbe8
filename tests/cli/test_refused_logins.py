"""What a user is told whom a broker of plog's does not let in, or who does not trust it; and what its log says."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from core.security.certificates import Validity, sign
from core.security.certificates import make_ca as make_ca_of
from plog.testing import RunningBroker, running_broker
from tests.support.certificates import make_ca
from tests.support.secured_commands import plog
from tests.support.waiting import PROMPT_SECONDS, wait_until

pytestmark = pytest.mark.longer

SECRET = "marked-wrong"
PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": SECRET}
SCRAM = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"}


@pytest.fixture(scope="module")
def doors() -> Iterator[dict[str, RunningBroker]]:
    with (
        running_broker(ssl_client_auth="required", security="ssl") as ssl,
        running_broker(security="sasl_ssl") as sasl_ssl,
        running_broker(security="sasl_plaintext") as sasl_plaintext,
        running_broker() as plaintext,
    ):
        yield {"ssl": ssl, "sasl_ssl": sasl_ssl, "sasl_plaintext": sasl_plaintext, "plaintext": plaintext}


class Refusal(NamedTuple):
    """`settings`: the client's, beside whom it trusts; `told`: what it prints; `log`: what the broker logs."""

    door: str
    settings: dict[str, str]
    code: int
    told: str
    hint: str
    log: str = ""


CASES = {
    "a wrong password by PLAIN": Refusal(
        "sasl_ssl", {"security.protocol": "SASL_SSL", **PLAIN}, 1,
        "SASL_AUTHENTICATION_FAILED: PLAIN for 'admin': Authentication failed: Invalid username or password",
        "are the user, the password and the mechanism right?",
        "failed to authenticate at SASL_SSL by PLAIN: Authentication failed: Invalid username or password",
    ),
    "a wrong password by SCRAM": Refusal(
        "sasl_ssl", {"security.protocol": "SASL_SSL", **SCRAM}, 1,
        "SASL_AUTHENTICATION_FAILED: SCRAM-SHA-512 for 'admin': Authentication failed during authentication due to "
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
        "are the user, the password and the mechanism right?",
        "failed to authenticate at SASL_SSL by SCRAM-SHA-512",
    ),
    "no such user of SCRAM": Refusal(
        "sasl_plaintext", {"security.protocol": "SASL_PLAINTEXT", **SCRAM, "sasl.username": "nobody"}, 1,
        "SASL_AUTHENTICATION_FAILED: SCRAM-SHA-512 for 'nobody': Authentication failed during authentication due to "
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
        "are the user, the password and the mechanism right?",
        "failed to authenticate at SASL_PLAINTEXT by SCRAM-SHA-512",
    ),
    "a mechanism that is not offered": Refusal(
        "sasl_ssl",
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": SECRET}, 1,
        "the broker does not take OAUTHBEARER on this listener; it takes ",
        "sasl.mechanism=SCRAM-SHA-512",
        "failed to authenticate at SASL_SSL",
    ),
    "a CA that is not trusted": Refusal(
        "sasl_ssl", {"security.protocol": "SASL_SSL", **PLAIN, "ssl.truststore.location": "other-ca.pem"}, 3,
        "is of a CA that is not trusted, plog dev CA", "ssl.truststore.location or ssl.ca.location",
        "it refuses this broker (alert: unknown ca)",
    ),
    "plaintext at a port of TLS": Refusal(
        "ssl", {}, 3, "it speaks TLS", "security.protocol=SSL or SASL_SSL", "a request without TLS",
    ),
    "SASL in plaintext at a port of TLS": Refusal(
        "sasl_ssl", {"security.protocol": "SASL_PLAINTEXT", **SCRAM}, 3,
        "it speaks TLS", "security.protocol=SSL or SASL_SSL", "a request without TLS",
    ),
    "TLS at a port of plaintext": Refusal(
        "plaintext", {"security.protocol": "SSL"}, 3,
        "it speaks Kafka's protocol without TLS", "security.protocol=PLAINTEXT or SASL_PLAINTEXT",
        "a client speaks TLS here",
    ),
    "TLS at a port of SASL in plaintext": Refusal(
        "sasl_plaintext", {"security.protocol": "SASL_SSL", **SCRAM}, 3,
        "it speaks Kafka's protocol without TLS", "security.protocol=PLAINTEXT or SASL_PLAINTEXT",
        "a client speaks TLS here",
    ),
    "no login where one is wanted": Refusal(
        "sasl_plaintext", {}, 3, "it was closed", "with SASL closes connections like this",
        "a request that may not come before authentication",
    ),
    "TLS alone where a login is wanted": Refusal(
        "sasl_ssl", {"security.protocol": "SSL"}, 3, "it was closed", "with SASL closes connections like this",
        "a request that may not come before authentication",
    ),
    "a login where none is wanted": Refusal(
        "plaintext", {"security.protocol": "SASL_PLAINTEXT", **SCRAM}, 1,
        "the listener does not authenticate", "security.protocol=PLAINTEXT or SSL",
    ),
    "no certificate": Refusal(
        "ssl", {"security.protocol": "SSL"}, 3, "certificate", "certificate", "it shows no certificate",
    ),
    "a certificate of another CA": Refusal(
        "ssl", {"security.protocol": "SSL", "ssl.keystore.location": "other.pem"}, 3, "certificate", "",
        "its certificate is not good: it is of a CA that is not trusted",
    ),
    "a certificate that has expired": Refusal(
        "ssl", {"security.protocol": "SSL", "ssl.keystore.location": "expired.pem"}, 3, "certificate", "",
        "its certificate is not good",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_a_client_that_is_not_let_in(
    what: str, doors: dict[str, RunningBroker], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = CASES[what]
    broker = doors[case.door]
    settings = {"bootstrap.servers": broker.bootstrap_servers, **case.settings}
    if "SSL" in settings.get("security.protocol", "").split("_"):
        trusted = doors["ssl" if case.door == "ssl" else "sasl_ssl"].client_settings["ssl.truststore.location"]
        settings = {"ssl.truststore.location": trusted, **settings}
    write_certificates(tmp_path)
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        if name in settings:
            settings[name] = str(tmp_path / settings[name])
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    config.chmod(0o600)
    with caplog.at_level("INFO", "plog.connection"):
        shown, told = plog("topic", "list", "--command-config", config, code=case.code)
        assert shown == b""
        assert case.told in told
        assert case.hint in told.partition("hint: ")[2]
        wait_until(lambda: case.log in caplog.text, lambda: caplog.text, seconds=PROMPT_SECONDS)
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


def write_certificates(folder: Path) -> None:
    """Of a CA that the broker does not know: one that is good, and one that is not any more."""
    now = datetime.datetime.now(datetime.UTC)
    ca = make_ca()
    (folder / "other-ca.pem").write_text(ca.pem)
    for name, validity in (("other", Validity.of_days(now, -1, 1)), ("expired", Validity.of_days(now, -9, -1))):
        one = sign(ca, "client", validity)
        (folder / f"{name}.pem").write_text(one.key_pem() + one.pem)


def test_a_certificate_for_another_name(doors: dict[str, RunningBroker], tmp_path: Path) -> None:
    """The address is right, and not in the certificate."""
    broker = doors["sasl_ssl"]
    config = broker.write_client_properties(tmp_path / "client.properties")
    port = broker.bootstrap_servers.rpartition(":")[2]
    name = socket.gethostname()
    where = ("--bootstrap-server", f"{name}:9", "--resolve", f"{name}:9=127.0.0.1:{port}")
    _, told = plog("topic", "list", "--command-config", config, *where, code=3)
    assert f"it is not for {name}, but for localhost, 127.0.0.1, " in told


def test_the_brokers_certificate_has_expired(tmp_path: Path) -> None:
    """A client says so, with the time here."""
    now = datetime.datetime.now(datetime.UTC)
    ca = make_ca_of("old CA", Validity.of_days(now, -9, 9))
    one = sign(ca, "server", Validity.of_days(now, -9, -1), names=["127.0.0.1"])
    (tmp_path / "ca.pem").write_text(ca.pem)
    (tmp_path / "server.pem").write_text(one.key_pem() + one.pem)
    settings = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(tmp_path / "server.pem")}
    with running_broker(listeners="SSL://127.0.0.1:0", inter_broker_listener_name="SSL", **settings) as broker:
        where = ("--bootstrap-server", broker.bootstrap_servers, "-X", f"ssl.ca.location={tmp_path / 'ca.pem'}")
        _, told = plog("topic", "list", *where, "-X", "security.protocol=SSL", code=3)
    assert "it expired " in told
    assert "and the clock here says " in told
