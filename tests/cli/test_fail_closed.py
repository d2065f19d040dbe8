"""What asks for security is not served as if it did not."""

from __future__ import annotations

from pathlib import Path

from tests.support.server import Server, call_plog, run_plog
from tests.support.server_properties import STOCK

SECURED = """\
listeners=SASL_PLAINTEXT://127.0.0.1:0
sasl.enabled.mechanisms=PLAIN
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
listener.name.sasl_plaintext.plain.sasl.jaas.config=PlainLoginModule required user_alice="s3cret";
"""


def test_a_configuration_that_asks_for_security_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SECURED)
    done = run_plog("serve", "--config", str(file), "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 2
    message = done.stderr.decode()
    for key in ("listeners (SASL_PLAINTEXT is", "sasl.enabled.mechanisms", "authorizer.class.name"):
        assert key in message
    assert "--insecure-ignore-security" in message
    assert "s3cret" not in message
    assert not (tmp_path / "data").exists()


def test_settings_of_the_command_line_count_as_well(tmp_path: Path) -> None:
    done = run_plog("serve", "--set", "authorizer.class.name=A", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert (done.returncode, b"authorizer.class.name" in done.stderr) == (2, True)


def test_it_is_served_open_where_somebody_says_so(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SECURED)
    with Server(tmp_path / "data", "--config", str(file), "--insecure-ignore-security") as server:
        assert call_plog("topic", "list", "--bootstrap-server", server.address).returncode == 0
    log = server.log.read_text()
    assert "warning: authorizer.class.name (not everybody may do everything) is ignored" in log
    assert "s3cret" not in log


def test_kafkas_stock_file_goes_on_working(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK)
    with Server(tmp_path / "data", "--config", str(file), "--advertise", "127.0.0.1:0") as server:
        done = call_plog("topic", "create", "t", "--bootstrap-server", server.address)
        assert done.returncode == 0, done.stderr
    assert "security" not in server.log.read_text()
