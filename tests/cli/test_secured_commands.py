"""`--command-config` and `-X`: every command reaches a cluster with TLS and SASL, and no output shows a secret."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from cli.inspect.screen import InspectApp
from core.security.sasl.scram import SCRAM_SHA_512
from core.security.sasl.server_steps import ScramServer
from plog.testing import running_broker
from tests.cli.inspect.support import press, screen_text, settled
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.sasl_servers import credential_of
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.secured_commands import commands_with_a_server, lines, plog
from tests.support.secured_door import Door, secured_door, server_context

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
    credential = credential_of(SCRAM_SHA_512, PASSWORD, b"0123456789abcdef", 4096)

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


def test_every_command_with_a_server_is_tried(door: Door, folder: Path) -> None:
    tried = {line.path for line in lines("t", door.address, folder, has_tls=True)}
    assert tried == commands_with_a_server()


def test_every_command(config: Path, door: Door, tmp_path: Path) -> None:
    secured = ("--command-config", config)
    for line in lines("life", door.address, tmp_path, has_tls=True):
        shown, told = plog(*line.path, *line.arguments, *secured, stdin=line.stdin, code=line.code)
        assert line.shows in shown, (line, told)
    assert json.loads(plog("cluster", "status", "--output", "json", *secured)[0])[0]["listeners"] == [door.address]
    assert door.wrongs == []
    assert set(door.names) == {"alice"}


@pytest.mark.longer
@pytest.mark.parametrize("security", ["ssl", "sasl_plaintext", "sasl_ssl"])
def test_every_command_at_a_broker_of_plogs(security: str, tmp_path: Path) -> None:
    """And beside it, where its owner needs no login, and may see and change ACLs."""
    has_tls = security in ("ssl", "sasl_ssl")
    with running_broker(tmp_path / "data", security=security) as broker:
        config = broker.write_client_properties(tmp_path / "client.properties")
        places = {"client": ("--command-config", str(config)), "owner": ("--data-dir", str(broker.data_dir))}
        for name, where in places.items():
            for line in lines(name, broker.bootstrap_servers, tmp_path, has_tls=has_tls):
                if name == "client" or line.path[0] not in ("acl", "cert"):
                    shown, told = plog(*line.path, *line.arguments, *where, stdin=line.stdin, code=line.code)
                    assert line.shows in shown, (line, told)


def test_the_screens_of_inspect(config: Path, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def look(app: InspectApp) -> None:
        async with app.run_test(size=(120, 24)) as pilot:
            await settled(pilot)
            seen.append(screen_text(app))
            await press(pilot, "g")
            seen.append(screen_text(app))

    monkeypatch.setattr(InspectApp, "run", lambda app: asyncio.run(look(app)))
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    plog("topic", "create", "seen", "--command-config", config)
    try:
        plog("inspect", "--command-config", config)
    finally:
        plog("topic", "delete", "seen", "--command-config", config)
    assert "seen" in seen[0]
    assert PASSWORD not in "".join(seen)
    assert "!" not in seen[1], "groups are asked as well"


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


@for_each("name", ["sasl.password", "ssl.key.password", "sasl.jaas.config", "sasl.oauthbearer.token"])
def test_a_secret_on_the_command_line_is_refused(name: str) -> None:
    _, told = plog("topic", "list", "-X", f"{name}=marked", code=2)
    assert f"error: -X {name}: other users can see a secret on the command line" in told
    assert "${env:NAME}" in told


@for_each(
    "arguments, message, hint",
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


@pytest.mark.longer
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


STORE_PASSWORD = "marked-store"


def java_key_store(certificate: bytes) -> bytes:
    """A trust store as keytool writes it: entries, then a digest with the password."""
    text = [part.encode() for part in ("ca", "X.509")]
    entry = struct.pack(">IH", 2, len(text[0])) + text[0] + bytes(8)
    entry += struct.pack(">H", len(text[1])) + text[1] + struct.pack(">I", len(certificate)) + certificate
    data = struct.pack(">III", 0xFEEDFEED, 2, 1) + entry
    secret = STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    return data + hashlib.sha1(secret + data, usedforsecurity=False).digest()


def stores(form: str, folder: Path) -> dict[str, str]:
    """Settings that trust the registry's CA, and have a certificate to show it, from files of that form."""
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    encrypted = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    if form == "PEM":
        both = folder / "both.pem"
        both.write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())
        return {"ssl.truststore.location": str(folder / "ca.pem"), "ssl.keystore.location": str(both)}
    if form == "librdkafka":
        files = {"ssl.ca": "ca.pem", "ssl.certificate": "server.pem", "ssl.key": "server.key"}
        return {f"{name}.location": str(folder / file) for name, file in files.items()}
    paths = folder / f"trust.{form}", folder / "client.p12"
    if form == "JKS":
        paths[0].write_bytes(java_key_store(ca.public_bytes(serialization.Encoding.DER)))
    else:
        trusted = pkcs12.PKCS12Certificate(ca, b"ca")
        paths[0].write_bytes(pkcs12.serialize_java_truststore([trusted], encrypted))
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    paths[1].write_bytes(pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encrypted))
    return {
        "ssl.truststore.location": str(paths[0]),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.location": str(paths[1]),
        "ssl.keystore.password": STORE_PASSWORD,
    }


@pytest.mark.parametrize("form", ["PEM", "librdkafka", "JKS", "PKCS12"])
def test_a_schema_registry_over_tls_with_a_user(form: str, config: Path, folder: Path) -> None:
    secured = folder / "registry.properties"
    settings = stores(form, folder)
    secured.write_text(
        config.read_text()
        + "".join(f"schema.registry.{name}={value}\n" for name, value in settings.items())
        + "basic.auth.credentials.source=USER_INFO\nbasic.auth.user.info=me:marked-too\n"
    )
    secured.chmod(0o600)
    schema = folder / "s.avsc"
    schema.write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    context = server_context(str(folder / "server.pem"), str(folder / "server.key"), ca=str(folder / "ca.pem"))
    with SchemaRegistryServer(context, "me:marked-too") as registry:
        where = ("--command-config", secured, "--schema-registry", registry.url)
        topic = f"typed-{form}"
        plog("topic", "create", topic, "--command-config", secured)
        plog("produce", topic, "--value-schema", schema, *where, stdin=b'{"a": 1}\n')
        assert plog("consume", topic, *where)[0] == b'{"a": 1}\n'
        secured.write_text(secured.read_text().replace("basic.auth.user.info", "# "))
        wrong = ("--schema-registry", registry.url.replace("//", "//me:marked-wrong@"))
        _, told = plog("consume", topic, "--command-config", secured, *wrong, code=1)
        assert f"{registry.url}: " in told
        _, told = plog("consume", topic, "--command-config", config, *wrong, code=3)
        assert "certificate verify failed" in told
        if form in ("JKS", "PKCS12"):
            secured.write_text(secured.read_text().replace(STORE_PASSWORD, "marked-wrong"))
            _, told = plog("consume", topic, *where, code=2)
            assert "password is wrong" in told


@for_each(
    "name, hint",
    [
        ("ssl.trustore.location", "did you mean schema.registry.ssl.truststore.location?"),
        ("enable.ssl.certificate.verification", None),
        ("ssl.enabled.protocols", None),
    ],
)
def test_settings_of_a_registry_that_would_do_nothing(name: str, hint: str | None, config: Path, folder: Path) -> None:
    secured = folder / "registry.properties"
    secured.write_text(f"{config.read_text()}schema.registry.{name}=x\n")
    secured.chmod(0o600)
    _, told = plog("topic", "list", "--command-config", secured, code=2)
    assert f"schema.registry.{name}: plog does not support this setting" in told
    if hint is not None:
        assert hint in told
