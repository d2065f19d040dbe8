"""`--command-config` and `-X`: every command reaches a cluster with TLS and SASL, and no output shows a secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.main import COMMANDS, app
from core.security.sasl.scram import SCRAM_SHA_512, ScramServer
from tests.support.certificates import make_ca, sign
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.secured_door import Door, secured_door, server_context
from tests.support.server import call_plog

PASSWORD = "marked-password"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def door(folder: Path) -> Iterator[Door]:
    """SASL_SSL with SCRAM-SHA-512."""
    ca = make_ca()
    (folder / "ca.pem").write_text(ca.pem)
    context = server_context(*map(str, sign(ca).write(folder, "server")))
    credential = SCRAM_SHA_512.credential(PASSWORD, b"0123456789abcdef", 4096)

    def steps() -> ScramServer:
        return ScramServer(SCRAM_SHA_512, lambda name, _: credential if name == "alice" else None, secret=b"s")

    with secured_door({"SCRAM-SHA-512": steps}, context) as door:
        yield door


@pytest.fixture(scope="module")
def config(door: Door, folder: Path) -> Path:
    path = folder / "client.properties"
    path.write_text(
        f"bootstrap.servers={door.address}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="alice" password="{PASSWORD}";\n'
        f"ssl.truststore.location={folder / 'ca.pem'}\nssl.truststore.type=PEM\nacks=all\n"
    )
    path.chmod(0o600)
    return path


def plog(*arguments: str | Path, stdin: bytes = b"", code: int = 0) -> tuple[bytes, str]:
    done = call_plog(*map(str, arguments), stdin=stdin)
    told = done.stderr.decode()
    assert done.returncode == code, told
    assert b"marked" not in done.stdout
    assert "marked" not in told
    assert "Traceback" not in told
    return done.stdout, told


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def test_every_command_with_a_server_takes_both_options() -> None:
    root = typer.main.get_command(app)
    context = root.make_context("plog", [], resilient_parsing=True)
    with_server = []
    for name in COMMANDS:
        for path, command in commands(root.get_command(context, name), (name,)):  # type: ignore[attr-defined]
            options = {option for parameter in command.params for option in parameter.opts}
            has_server = "--bootstrap-server" in options or path == ("cert", "show")
            assert has_server is ("--command-config" in options) is ("-X" in options), path
            with_server += [path] if has_server else []
    assert len(with_server) >= 22


def test_a_life_of_a_topic(config: Path, door: Door) -> None:
    secured = ("--command-config", config)
    plog("topic", "create", "life", "--partitions", "2", *secured)
    assert b"life" in plog("topic", "list", *secured)[0]
    plog("produce", "life", *secured, stdin=b"a\nb\nc\n")
    plog("produce", "life", "--transactional-id", "t", *secured, stdin=b"d\n")
    assert sorted(plog("consume", "life", *secured)[0].split()) == [b"a", b"b", b"c", b"d"]
    for protocol in ("classic", "consumer"):
        group = ("--group", protocol, "--group-protocol", protocol, "--from", "earliest", "--max-messages", "4")
        found, _ = plog("consume", "life", *group, *secured)
        assert sorted(found.split()) == [b"a", b"b", b"c", b"d"]
        rows = json.loads(plog("group", "describe", protocol, "--output", "json", *secured)[0])
        assert rows
    assert b"classic" in plog("group", "list", *secured)[0]
    plog("group", "reset-offsets", "classic", "--topic", "life", "--to-earliest", "--execute", *secured)
    plog("group", "delete", "classic", *secured)
    plog("config", "alter", "topic", "life", "--set", "retention.ms=-1", *secured)
    assert b"retention.ms" in plog("config", "describe", "topic", "life", *secured)[0]
    plog("topic", "describe", "life", *secured)
    assert b"t" in plog("transaction", "list", *secured)[0]
    plog("perf", "consume", "life", *secured)
    plog("topic", "delete", "life", *secured)
    assert json.loads(plog("cluster", "status", "--output", "json", *secured)[0])[0]["listeners"] == [door.address]
    assert door.wrongs == []
    assert set(door.names) == {"alice"}


def test_settings_one_by_one(door: Door, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "${env:KAFKA_PASSWORD}",
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    plog("topic", "list", "--bootstrap-server", door.address, *options)


def test_a_setting_wins_over_the_file(config: Path) -> None:
    _, told = plog("topic", "list", "--command-config", config, "-X", "sasl.mechanism=SCRAM-SHA-256", code=1)
    assert "does not take SCRAM-SHA-256 on this listener; it takes SCRAM-SHA-512" in told
    assert "hint: sasl.mechanism=SCRAM-SHA-512" in told


def test_a_profile(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = tmp_path / "config.toml"
    toml.write_text(
        f'[profile.prod.default]\ncommand-config = "{config}"\n'
        f'[profile.wrong.default]\ncommand-config = "{config}"\ncommand-property = ["sasl.mechanism=PLAIN"]\n'
        f'[profile.leak.default]\ncommand-property = ["sasl.password=marked"]\n'
    )
    monkeypatch.setenv("PLOG_CONFIG", str(toml))
    plog("--profile", "prod", "topic", "list")
    assert "is not of PLAIN" in plog("--profile", "wrong", "topic", "list", code=2)[1]
    assert "a secret on the command line" in plog("--profile", "leak", "topic", "list", code=2)[1]


def test_a_directory_that_was_typed_is_meant(config: Path, tmp_path: Path) -> None:
    """And not the bootstrap.servers of the file."""
    directory = ("--data-dir", tmp_path / "data")
    plog("topic", "create", "here", *directory)
    found, _ = plog("topic", "list", *directory, "--command-config", config)
    assert b"here" in found


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.password", "sasl.jaas.config", "sasl.oauthbearer.token"])
def test_a_secret_on_the_command_line_is_refused(name: str) -> None:
    _, told = plog("topic", "list", "-X", f"{name}=marked", code=2)
    assert f"error: -X {name}: a secret on the command line is seen by others" in told
    assert "${env:NAME}" in told


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("-X", "sasl.mechanim=PLAIN"), "'sasl.mechanim' is no setting", "did you mean sasl.mechanism?"),
        (("-X", "nothing"), "-X nothing: expected KEY=VALUE", None),
        (("--command-config", "/no/such"), "could not read /no/such: no such file or directory", None),
        (("-X", "ssl.ca.location=${env:PLOG_NONE}"), "the environment has no PLOG_NONE", "export PLOG_NONE=.."),
    ],
)
def test_what_is_wrong_is_told(arguments: tuple[str, ...], message: str, hint: str | None) -> None:
    _, told = plog("topic", "list", "--bootstrap-server", "127.0.0.1:1", *arguments, code=2)
    assert message in told
    if hint is not None:
        assert f"hint: {hint}" in told


def test_failures_have_their_exit_codes(config: Path, door: Door, folder: Path) -> None:
    wrong = folder / "wrong.properties"
    wrong.write_text(config.read_text().replace(PASSWORD, "marked-wrong"))
    wrong.chmod(0o600)
    _, told = plog("topic", "list", "--command-config", wrong, code=1)
    assert "error: SASL_AUTHENTICATION_FAILED: SCRAM-SHA-512 for 'alice'" in told
    _, told = plog("topic", "list", "--command-config", config, "-X", "ssl.truststore.location=", code=3)
    assert "is of a CA that is not trusted, plog test CA" in told


def test_a_file_that_others_can_read_is_told_of(config: Path, folder: Path) -> None:
    open_ = folder / "open.properties"
    open_.write_text(config.read_text())
    open_.chmod(0o644)
    _, told = plog("topic", "list", "--command-config", open_)
    assert told == f"warning: {open_} holds a secret, and others can read it: chmod 600 {open_}\n"


def test_a_password_is_not_asked_for_where_nobody_can_answer(door: Door, config: Path) -> None:
    settings = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=alice"]
    options = [word for setting in settings for word in ("-X", setting)]
    _, told = plog("topic", "list", "--bootstrap-server", door.address, *options, code=2)
    assert "the password of alice is missing" in told


def test_a_password_is_asked_for_at_a_terminal(door: Door, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(prompt: str, _stream: object) -> str:
        asked.append(prompt)
        return PASSWORD

    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr("cli.security_options._has_terminal", lambda: True)
    monkeypatch.setattr("cli.security_options.sys", _Terminal())
    settings = ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=alice"]
    settings.append(f"ssl.ca.location={folder / 'ca.pem'}")
    options = [word for setting in settings for word in ("-X", setting)]
    plog("topic", "list", "--bootstrap-server", door.address, *options)
    assert asked == ["password of alice: "]


class _Terminal:
    """Stands in the place of `sys`, with a stderr at which somebody sits."""

    @property
    def stderr(self) -> _Terminal:
        return self

    def isatty(self) -> bool:
        return True


def test_debugging_shows_no_secret_either(config: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = folder / "wrong2.properties"
    wrong.write_text(config.read_text().replace(PASSWORD, "marked-wrong"))
    done = subprocess.run(
        [sys.executable, "-m", "plog", "--debug", "topic", "list", "--command-config", str(wrong)],
        capture_output=True,
        check=False,
        env={**os.environ},
    )
    assert b"Traceback" in done.stderr
    assert b"marked" not in done.stderr


def test_a_schema_registry_over_tls_with_a_user(config: Path, folder: Path) -> None:
    secured = folder / "registry.properties"
    secured.write_text(
        config.read_text()
        + f"schema.registry.ssl.ca.location={folder / 'ca.pem'}\nbasic.auth.credentials.source=USER_INFO\n"
        + "basic.auth.user.info=me:marked-too\n"
    )
    secured.chmod(0o600)
    schema = folder / "s.avsc"
    schema.write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    context = server_context(str(folder / "server.pem"), str(folder / "server.key"))
    with SchemaRegistryServer(context, "me:marked-too") as registry:
        where = ("--command-config", secured, "--schema-registry", registry.url)
        plog("topic", "create", "typed", "--command-config", secured)
        plog("produce", "typed", "--value-schema", schema, *where, stdin=b'{"a": 1}\n')
        assert plog("consume", "typed", *where)[0] == b'{"a": 1}\n'
        secured.write_text(secured.read_text().replace("basic.auth.user.info", "# "))
        wrong = ("--schema-registry", registry.url.replace("//", "//me:marked-wrong@"))
        _, told = plog("consume", "typed", "--command-config", secured, *wrong, code=1)
        assert f"{registry.url}: " in told
        _, told = plog("consume", "typed", "--command-config", config, *wrong, code=3)
        assert "certificate verify failed" in told
