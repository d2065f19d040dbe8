"""`plog cert dev` and `plog cert show`: what they write, and what they say of files and servers."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.client.net.client_config_files import read_settings_file
from core.common.properties_file import parse_properties
from core.security.client_security import PasswordLogin
from core.security.client_settings import parse_client_settings
from core.security.jaas import parse_jaas
from core.security.secret import Secret
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.secured_door import secured_door, server_context
from tests.support.server import Server, call_plog

STORES = GOLDEN.parent / "keystores"
FILES = [
    *("ca.key", "ca.pem", "client.key", "client.p12", "client.pem", "client.properties", "kcat.conf"),
    *("server.key", "server.p12", "server.pem", "server.properties"),
]


def plog(*arguments: str | Path, code: int = 0) -> tuple[str, str]:
    done = call_plog(*map(str, arguments))
    told = done.stderr.decode()
    assert done.returncode == code, (done.stdout, told)
    assert "Traceback" not in told
    return done.stdout.decode(), told


def rows(*arguments: str | Path, code: int = 0) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(plog("cert", "show", "--output", "json", *arguments, code=code)[0])
    return found


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dev") / "of my own" / "certs"
    plog("cert", "dev", "--out", folder, "--name", "kafka.test")
    return folder


# --- dev


def test_keys_are_ours_alone(certs: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in certs.iterdir()}
    assert sorted(modes) == FILES
    assert {name for name, mode in modes.items() if mode != 0o600} == {
        "ca.pem",
        "client.pem",
        "server.pem",
        "kcat.conf",
    }
    secrets = [path.name for path in certs.iterdir() if b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(secrets) == ["ca.key", "client.key", "server.key"]


def test_nothing_is_replaced_that_is_there(certs: Path, tmp_path: Path) -> None:
    shutil.copytree(certs, tmp_path / "copy")
    before = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    for name in FILES[1:]:
        (tmp_path / "copy" / name).unlink()
    _, told = plog("cert", "dev", "--out", tmp_path / "copy", code=1)
    assert f"error: {tmp_path / 'copy'} has ca.key already" in told
    assert "hint: --force" in told
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["ca.key"]
    plog("cert", "dev", "--out", tmp_path / "copy", "--force")
    assert (tmp_path / "copy" / "ca.key").read_bytes() != before["ca.key"]
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == FILES


@for_each(
    "name",
    [
        "bücher.example",
        "",
        "a,b",
        "a b",
        "localhost:9093",
        "https://a",
        "10.0.0.300",
        "-a",
        "a..b",
        "*",
        "a.*.b",
        "a" * 64,
    ],
)
def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    _, told = plog("cert", "dev", "--out", tmp_path / "certs", "--name", name, code=2)
    assert f"error: --name {name}: " in told
    assert not (tmp_path / "certs").exists()


def test_names_and_addresses(tmp_path: Path) -> None:
    names = ["*.kafka.test", "broker_1", "a-b.c3", "3com.example", "10.0.0.30", "fe80::1"]
    plog("cert", "dev", "--out", tmp_path / "certs", *(word for name in names for word in ("--name", name)))
    (row,) = rows(tmp_path / "certs" / "server.pem")
    assert row["names"] == ["localhost", "127.0.0.1", "::1", *names]


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _, told = plog("cert", "dev", "--out", tmp_path / "file" / "certs", code=3)
    assert f"could not make {tmp_path / 'file' / 'certs'}" in told


@for_each("protocol", ["sasl_ssl", "SASL_PLAINTEXT"])
def test_users_and_their_passwords(protocol: str, tmp_path: Path) -> None:
    """Each is in the broker's settings and in a client's; nobody else can read them, and nothing prints them."""
    shown, told = plog("cert", "dev", "--out", tmp_path, "--protocol", protocol, "--user", "alice", "--user", "b.ob-2")
    settings = parse_properties((tmp_path / "server.properties").read_text())
    name = protocol.upper()
    assert settings["listeners"] == f"{name}://localhost:9093,CONTROLLER://localhost:9094"
    login = parse_jaas(settings[f"listener.name.{name.lower()}.plain.sasl.jaas.config"]).options
    assert login["username"] == "alice"
    assert login["password"] == login["user_alice"] != login["user_b.ob-2"]
    users = {"client.properties": "alice", "kcat.conf": "alice", "client-b.ob-2.properties": "b.ob-2"}
    for file, user in users.items():
        security = parse_client_settings(read_settings_file(tmp_path / file)[0]).security
        assert security.protocol == name
        assert security.login == PasswordLogin("PLAIN", user, Secret(login[f"user_{user}"]))
        assert login[f"user_{user}"] not in shown + told
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    has_tls = name == "SASL_SSL"
    assert {file for file, mode in modes.items() if mode != 0o600} == ({"ca.pem", "server.pem"} if has_tls else set())
    stores = {"ca.key", "ca.pem", "server.key", "server.p12", "server.pem"} if has_tls else set()
    assert modes.keys() == {"server.properties", *users, *stores}
    assert ("in clear" in told) is not has_tls


@for_each(
    "arguments, message",
    [
        (("--user", "alice"), "--user makes a user of SASL, and --protocol is ssl"),
        (("--protocol", "sasl_ssl", "--user", 'a"b'), '--user a"b: expected letters'),
        (("--protocol", "sasl_ssl", "--user", ""), "--user : expected letters"),
        (("--protocol", "sasl_plaintext", "--name", "x"), "--name is for the server's certificate"),
        (("--protocol", "tls"), "--protocol"),
    ],
)
def test_options_that_do_not_fit(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in plog("cert", "dev", "--out", tmp_path / "certs", *arguments, code=2)[1]
    assert not (tmp_path / "certs").exists()


@for_each("file", ["client.properties", "kcat.conf"])
def test_both_settings_reach_a_server_that_wants_certificates(file: str, certs: Path) -> None:
    context = server_context(str(certs / "server.pem"), str(certs / "server.key"), ca=str(certs / "ca.pem"))
    with secured_door(context=context) as door:
        address = f"localhost:{door.port}"
        told = plog("topic", "list", "--command-config", certs / file, "--bootstrap-server", address)[1]
    assert told == ""


def test_settings_of_a_folder_with_any_name(tmp_path: Path) -> None:
    """Java reads Latin-1 with escapes, librdkafka UTF-8."""
    folder = tmp_path / "größe \\ 文 𝄞"
    plog("cert", "dev", "--out", folder)
    (folder / "client.properties").read_bytes().decode("ascii")
    for file, name in (("client.properties", "ssl.truststore.location"), ("kcat.conf", "ssl.ca.location")):
        settings, _ = read_settings_file(folder / file)
        assert settings[name] == str(folder / "ca.pem")
        assert parse_client_settings(settings).security.tls is not None


# --- show, files


def test_a_table_of_80_columns(certs: Path) -> None:
    shown, told = plog("cert", "show", certs / "server.p12", code=2)
    assert shown == ""
    assert "needs a password" in told
    assert "plog cert show --password" in told
    many = [word for n in range(20) for word in ("--name", f"broker-{n}.kafka.svc.cluster.local")]
    folder = certs.parent / "many"
    plog("cert", "dev", "--out", folder, *many)
    shown, told = plog("cert", "show", folder / "server.pem")
    assert told == ""
    assert max(map(len, shown.splitlines())) <= 80
    assert "certificate 1 of 1 (no CA)\n  subject  CN=server,O=plog dev\n  issuer   CN=plog dev CA\n" in shown
    assert "broker-19.kafka.svc.cluster.local" in shown
    assert "364 days left: good\n" in shown


@for_each("file", ["client.pem", "client.jks", "trust.jks", "client.der"])
def test_files_of_keytool(file: str, tmp_path: Path) -> None:
    """One certificate in each form; the fingerprint is as openssl prints it."""
    path = STORES / file
    if file == "client.der":
        path = tmp_path / file
        path.write_bytes(ssl.PEM_cert_to_DER_cert((STORES / "client.pem").read_text()))
    (row,) = rows(path)
    assert row["sha256"] == "85d703209a2e2e7c3325e4d29a2e0758a82ff240f90cedd68ba6de00b98fc922"
    assert (row["subject"], row["state"], row["trusted"]) == ("CN=alice,OU=eng,O=plog", "good", None)


@for_each("file", ["client.p12", "trust.p12"])
def test_passwords_of_pkcs12(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "changeit")
    monkeypatch.setenv("WRONG", "marked")
    (row,) = rows(STORES / file, "--password", "${env:STORE_PASSWORD}")
    assert row["subject"] == "CN=alice,OU=eng,O=plog"
    settings = ("-X", f"ssl.truststore.location={STORES / file}")
    (row,) = rows(STORES / file, *settings, "-X", "ssl.truststore.password=${env:STORE_PASSWORD}")
    assert row["subject"] == "CN=alice,OU=eng,O=plog"
    _, told = plog("cert", "show", STORES / file, "--password", "${env:WRONG}", code=2)
    assert "the password is wrong" in told
    assert "marked" not in told
    _, told = plog("cert", "show", STORES / file, "--password", "marked", code=2)
    assert "other users can see a secret on the command line" in told
    assert "error: --password: " in told


def test_a_password_is_asked_for_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(name: str) -> str:
        asked.append(name)
        return "changeit"

    monkeypatch.setattr("cli.commands.cert.ask_password", answer)
    assert len(rows(STORES / "client.p12")) == 1
    assert asked == [str(STORES / "client.p12")]
    rows(STORES / "client.jks")
    assert len(asked) == 1  # Java's own form shows certificates without one


def test_names_that_would_drive_a_terminal(tmp_path: Path) -> None:
    """Whoever makes a certificate chooses its names."""
    ca = make_ca("\x1b[2J\x1b[31mtrust me\n")
    path, _ = sign(ca, "\x1b]0;owned\x07", days=(-9, -2)).write(tmp_path, "evil")
    shown, told = plog("cert", "show", path, code=1)
    assert all(character.isprintable() or character == "\n" for character in shown + told)
    assert "  issuer   CN=\\x1b[2J\\x1b[31mtrust me\\n\n" in shown
    with listening(server_context(*map(str, sign(ca).write(tmp_path, "server")))) as address:
        shown, told = plog("cert", "show", address)
    assert all(character.isprintable() or character == "\n" for character in shown + told)
    assert "of a CA that is not trusted, \\x1b[2J" in told
    with listening(server_context(*map(str, sign(ca).write(tmp_path, "server")))) as address:
        _, told = plog("topic", "list", "--bootstrap-server", address, "-X", "security.protocol=SSL", code=3)
    assert "of a CA that is not trusted, \\x1b[2J" in told


def test_days_that_are_left(tmp_path: Path) -> None:
    ca = make_ca()
    for name, days, state, code in (
        ("good", (-1, 31), "good", 0),
        ("soon", (-1, 30), "expires soon", 0),
        ("expired", (-9, -2), "expired", 1),
        ("future", (2, 9), "not yet good", 1),
    ):
        path, _ = sign(ca, name, days=days).write(tmp_path, name)
        (row,) = rows(path, code=code)
        assert row["state"] == state
        _, told = plog("cert", "show", path, code=code)
        assert told == "" if name == "good" else f"warning: certificate 1, CN={name}: {state}, " in told
    assert plog("cert", "show", tmp_path / "expired.pem", code=1)[1].endswith("expired, 2 days ago\n")


@for_each(
    "content, code, message",
    [
        (b"", 2, "is empty"),
        (b"hello", 2, "is nothing that plog knows, expected PEM, PKCS12 or JKS"),
        (b"\xce\xce\xce\xce", 2, "is a JCEKS key store, which plog does not read"),
        (b"0", 2, "can't be read as PKCS12"),
        (b"0\x84", 2, "can't be read as PKCS12"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 2, "holds no certificate, but private key"),
        (b"-----BEGIN CERTIFICATE-----\n", 2, "holds no certificate"),
        (b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", 1, "certificate 1 of"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 1, "does not decode"),
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x09", 2, "cut off"),
    ],
)
def test_what_is_no_certificate(content: bytes, code: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert message in plog("cert", "show", path, code=code)[1]


def test_what_is_not_there(tmp_path: Path) -> None:
    _, told = plog("cert", "show", tmp_path / "none.pem", code=3)
    assert told == f"error: could not read {tmp_path / 'none.pem'}: no such file\nhint: a server is HOST:PORT\n"
    assert "no such file" in plog("cert", "show", "none.pem", code=3)[1]
    assert "is a directory" in plog("cert", "show", tmp_path, code=3)[1]


# --- show, servers


@contextlib.contextmanager
def listening(context: ssl.SSLContext) -> Iterator[str]:
    """A server that does TLS's handshake, and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
                        connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield f"localhost:{listener.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def chain_context(certs: Path, folder: Path) -> ssl.SSLContext:
    """The server's certificate, with its CA's after it."""
    (folder / "chain.pem").write_text((certs / "server.pem").read_text() + (certs / "ca.pem").read_text())
    return server_context(str(folder / "chain.pem"), str(certs / "server.key"))


def test_the_chain_of_a_server_and_whether_it_is_trusted(certs: Path, tmp_path: Path) -> None:
    with listening(chain_context(certs, tmp_path)) as address:
        first, second = rows(address, "--command-config", certs / "client.properties")
        assert (first["subject"], second["subject"]) == ("CN=server,O=plog dev", "CN=plog dev CA")
        assert (first["is_ca"], second["is_ca"]) == (False, True)
        assert (first["trusted"], first["why_not"], second["trusted"]) == (True, None, None)
        _, told = plog("cert", "show", address, "--command-config", certs / "kcat.conf")
        assert told == f"{address} is trusted by the settings given, and speaks TLSv1.3\n"


def test_a_server_that_the_system_does_not_trust(certs: Path, tmp_path: Path) -> None:
    """That is said; it was not asked for anything that could fail."""
    with listening(chain_context(certs, tmp_path)) as address:
        assert rows(address)[0]["trusted"] is False
        _, told = plog("cert", "show", address)
    assert "not trusted by what this system trusts: the certificate of" in told
    assert "of a CA that is not trusted, plog dev CA" in told
    assert "hint: ssl.truststore.location" in told


def test_a_server_that_the_settings_refuse(certs: Path, tmp_path: Path) -> None:
    with listening(server_context(*map(str, sign(make_ca()).write(tmp_path, "server")))) as address:
        _, told = plog("cert", "show", address, "--command-config", certs / "client.properties", code=1)
        assert "not trusted by the settings given: the certificate of" in told
    wrong_name = sign(ca := make_ca(), names=("other.example",))
    (tmp_path / "ca.pem").write_text(ca.pem)
    with listening(server_context(*map(str, wrong_name.write(tmp_path, "server")))) as address:
        settings = ("-X", f"ssl.ca.location={tmp_path / 'ca.pem'}")
        _, told = plog("cert", "show", address, *settings, code=1)
        assert "it is not for localhost, but for other.example" in told


def test_settings_with_a_login_do_not_ask_for_its_password(certs: Path, tmp_path: Path) -> None:
    """Nobody logs in, and what the settings say of TLS counts, though their protocol has none."""
    config = tmp_path / "client.properties"
    for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
        login = "sasl.mechanism=PLAIN\nsasl.username=alice\n"
        config.write_text(f"security.protocol={protocol}\n{login}ssl.ca.location={certs / 'ca.pem'}\n")
        with listening(chain_context(certs, tmp_path)) as address:
            _, told = plog("cert", "show", address, "--command-config", config)
        assert told == f"{address} is trusted by the settings given, and speaks TLSv1.3\n"


def test_a_server_whose_certificate_expired(tmp_path: Path) -> None:
    expired = sign(make_ca(), days=(-9, -2))
    with listening(server_context(*map(str, expired.write(tmp_path, "server")))) as address:
        (row,) = rows(address, code=1)
    assert (row["state"], row["trusted"]) == ("expired", False)


@pytest.mark.longer
def test_a_server_without_tls(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        _, told = plog("cert", "show", server.address, code=3)
    assert f"could not connect to {server.address}" in told
    assert "it speaks Kafka's protocol without TLS" in told
    assert "connection refused" in plog("cert", "show", server.address, code=3)[1]


# --- without the extra


def test_a_clear_word_without_cryptography(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    for command in (("dev", "--out", str(tmp_path)), ("show", str(STORES / "client.pem"))):
        _, told = plog("cert", *command, code=2)
        assert (
            told == "error: certificates need more packages: cryptography\nhint: pip install 'plog-kafka[security]'\n"
        )


@pytest.mark.longer
@pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool")
def test_keytool_reads_our_key_stores(certs: Path) -> None:
    for name in ("server", "client"):
        command = ["keytool", "-list", "-v", "-keystore", str(certs / f"{name}.p12"), "-storepass", "changeit"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "Entry type: PrivateKeyEntry\nCertificate chain length: 2\n" in done.stdout
