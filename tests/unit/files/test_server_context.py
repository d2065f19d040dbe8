"""The context of a listener: its stores in each form, what of TLS it speaks, and what is said of bad stores."""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from core.common.errors import UsageError
from core.files.tls_context import find_files, load_server_context
from core.security.client_security import KeyStore, Tls, TrustStore
from core.security.client_settings import parse_tls
from core.security.secret import Secret
from core.security.server_security import ClientAuth, ServerTls
from tests.support.certificates import Certificate, make_ca, sign
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.tls_peer import shaken

STORES = GOLDEN.parent / "keystores"
MARKED = "m4rked-pa55word"
CA = make_ca()
SERVER = sign(CA, "server")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The server's files: as certbot has them, as one PEM, and as a PKCS12; the CA's certificate."""
    (tmp_path / "privkey.pem").write_text(SERVER.key_pem())
    (tmp_path / "fullchain.pem").write_text(SERVER.pem + CA.pem)
    (tmp_path / "server.pem").write_text(SERVER.key_pem() + SERVER.pem + CA.pem)
    (tmp_path / "server.p12").write_bytes(SERVER.pkcs12(MARKED))
    (tmp_path / "ca.pem").write_text(CA.pem)
    return tmp_path


def server(settings: dict[str, str], client_auth: ClientAuth = ClientAuth.NONE) -> ServerTls:
    return ServerTls(parse_tls(settings), client_auth)


def of_pem(**settings: str) -> ServerTls:
    given = {"ssl.keystore.certificate.chain": SERVER.pem + CA.pem, "ssl.keystore.key": SERVER.key_pem()}
    return server(given | {name.replace("_", "."): value for name, value in settings.items()})


def make_server_context(server: ServerTls) -> ssl.SSLContext:
    return load_server_context(server).context


def client(trusted: str = CA.pem, own: Certificate | None = None, folder: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted)
    if own is not None and folder is not None:
        context.load_cert_chain(*own.write(folder, "own"))
    return context


FORMS = {
    "one PEM": {"ssl.keystore.location": "server.pem", "ssl.keystore.type": "PEM"},
    "certbot's": {"ssl.certificate.location": "fullchain.pem", "ssl.key.location": "privkey.pem"},
    "PKCS12": {"ssl.keystore.location": "server.p12", "ssl.keystore.password": MARKED},
    "PKCS12, said to be JKS": {
        "ssl.keystore.location": "server.p12",
        "ssl.keystore.type": "JKS",
        "ssl.keystore.password": MARKED,
    },
}


@for_each("form", FORMS)
def test_each_form_of_store(folder: Path, form: str) -> None:
    settings = FORMS[form]
    named = {name: str(folder / value) if name.endswith("location") else value for name, value in settings.items()}
    loaded = load_server_context(server(named))
    ends = shaken(client(), loaded.context)
    assert ends[0].getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(SERVER.pem)
    assert [one.subject for one in loaded.chain] == ["CN=server", "CN=plog test CA"]
    assert list(find_files(parse_tls(named))) == [text for name, text in named.items() if name.endswith("location")]


def test_a_java_key_store() -> None:
    given = {"ssl.keystore.location": str(STORES / "client.jks"), "ssl.keystore.password": "changeit"}
    loaded = load_server_context(server(given | {"ssl.key.password": "keypass"}))
    assert [one.subject for one in loaded.chain] == ["CN=alice,OU=eng,O=plog"]


def test_a_pkcs12_with_its_certificates_in_any_order_and_those_of_others(tmp_path: Path) -> None:
    path, others = tmp_path / "server.p12", [sign(CA, "other").certificate, CA.certificate, make_ca("x").certificate]
    encryption = BestAvailableEncryption(b"x")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"a", SERVER.key, SERVER.certificate, others, encryption))
    loaded = load_server_context(server({"ssl.keystore.location": str(path), "ssl.keystore.password": "x"}))
    assert [one.subject for one in loaded.chain] == ["CN=server", "CN=plog test CA"]


def test_pem_of_the_settings_with_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_bytes(("\ufeff" + SERVER.pem + CA.pem + SERVER.key_pem()).replace("\n", "\r\n").encode())
    assert shaken(client(), make_server_context(server({"ssl.keystore.location": str(path)})))
    assert shaken(client(), make_server_context(of_pem()))


# --- certificates of clients


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_certificates_of_clients(folder: Path, version: str) -> None:
    def shown(auth: ClientAuth, own: Certificate | None) -> bytes | None:
        settings = {
            "ssl.keystore.location": str(folder / "server.pem"),
            "ssl.truststore.location": str(folder / "ca.pem"),
            "ssl.enabled.protocols": version,
        }
        ends = shaken(client(own=own, folder=folder), make_server_context(server(settings, auth)))
        assert ends[1].version() == version
        return ends[1].getpeercert(binary_form=True)

    alice = sign(CA, "alice")
    bad = [sign(make_ca(), "mallory"), sign(CA, "old", days=(-9, -2)), sign(CA, "young", days=(2, 9))]
    assert shown(ClientAuth.NONE, alice) is None
    assert shown(ClientAuth.NONE, bad[0]) is None
    assert shown(ClientAuth.REQUESTED, None) is None
    for auth in (ClientAuth.REQUESTED, ClientAuth.REQUIRED):
        assert shown(auth, alice) == ssl.PEM_cert_to_DER_cert(alice.pem)
        for one in bad:
            with pytest.raises(ssl.SSLError, match=r"certificate verify failed|unknown ca|expired|bad cert"):
                shown(auth, one)
    with pytest.raises(ssl.SSLError, match=r"did not return a certificate|certificate required|handshake fail"):
        shown(ClientAuth.REQUIRED, None)


def test_a_certificate_that_is_trusted_itself_need_not_be_a_ca(tmp_path: Path) -> None:
    (tmp_path / "trusted.pem").write_text(sign(CA, "alice").pem)
    alice = sign(CA, "alice")
    (tmp_path / "trusted.pem").write_text(alice.pem)
    tls = of_pem(ssl_truststore_location=str(tmp_path / "trusted.pem")).tls
    ends = shaken(client(own=alice, folder=tmp_path), make_server_context(ServerTls(tls, ClientAuth.REQUIRED)))
    assert ends[1].getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(alice.pem)


@pytest.mark.parametrize("auth", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_without_a_trust_store_nobody_vouches_for_clients(auth: ClientAuth) -> None:
    with pytest.raises(UsageError, match=f"ssl.client.auth={auth} needs the CAs of clients"):
        make_server_context(ServerTls(of_pem().tls, auth))


@pytest.mark.parametrize(("version", "resumes"), [("TLSv1.2", True), ("TLSv1.3", False)])
def test_sessions_go_on_within_a_context_alone(folder: Path, version: str, *, resumes: bool) -> None:
    """TLS 1.2 has sessions by id, which Python can't switch off: within a context, whose trust is the same."""
    tls = of_pem(ssl_truststore_location=str(folder / "ca.pem"), ssl_enabled_protocols=version).tls
    ours, other = (make_server_context(ServerTls(tls, ClientAuth.REQUIRED)) for _ in range(2))
    context = client(own=sign(CA, "alice"), folder=folder)
    first = shaken(context, ours)
    session = first[0].session
    assert shaken(context, ours, session)[1].session_reused is resumes
    assert not shaken(context, other, session)[1].session_reused


# --- what is spoken


def test_versions_and_safety() -> None:
    context = make_server_context(of_pem())
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION, ssl.OP_NO_TICKET):
        assert context.options & option
    old = client()
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match=r"protocol version|unsupported protocol"):
        shaken(old, context)


_OF_12 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
_OF_13 = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"


@for_each(
    "suites, versions, cipher",
    [
        (_OF_12, ("TLSv1.2", "TLSv1.2"), "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (f"{_OF_12},TLS_EMPTY_RENEGOTIATION_INFO_SCSV", ("TLSv1.2", "TLSv1.2"), "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", ("TLSv1.2", "TLSv1.2"), "ECDHE-ECDSA-AES128-SHA"),
        (_OF_13, ("TLSv1.3", "TLSv1.3"), "TLS_AES_256_GCM_SHA384"),
        (f"{_OF_12},{_OF_13}", ("TLSv1.2", "TLSv1.3"), "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_cipher_suites_by_javas_names(suites: str, versions: tuple[str, str], cipher: str) -> None:
    context = make_server_context(of_pem(ssl_cipher_suites=suites))
    named = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    assert (context.minimum_version, context.maximum_version) == tuple(named[version] for version in versions)
    asking = client()
    asking.set_ciphers("ALL")
    found = shaken(asking, context)[1].cipher()
    assert found is not None
    assert found[0] == cipher
    asking.maximum_version = ssl.TLSVersion.TLSv1_2
    asking.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with pytest.raises(ssl.SSLError):
        shaken(asking, context)


@for_each(
    "suites, protocols, message",
    [
        (
            "TLS_AES_256_GCM_SHA384",
            "",
            "leaves out TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256, which",
        ),
        (f"{_OF_12},NO_SUCH", "", "NO_SUCH is no suite that plog offers"),
        ("HIGH", "", "HIGH is no suite that plog offers"),
        (f"{_OF_12},A\0B", "", "is no suite that plog offers"),
        ("TLS_DH_anon_WITH_AES_128_CBC_SHA", "", "TLS_DH_anon_WITH_AES_128_CBC_SHA is no suite"),
        ("TLS_RSA_WITH_NULL_SHA256", "", "TLS_RSA_WITH_NULL_SHA256 is no suite"),
        (_OF_12, "TLSv1.3", "has none for the versions of ssl.enabled.protocols"),
        (_OF_13, "TLSv1.2", "has none for the versions of ssl.enabled.protocols"),
    ],
)
def test_cipher_suites_that_are_refused(suites: str, protocols: str, message: str) -> None:
    if "leaves out" in message and hasattr(ssl.SSLContext, "set_ciphersuites"):
        pytest.skip("this Python can restrict them")
    with pytest.raises(UsageError, match=message) as error:
        make_server_context(of_pem(ssl_cipher_suites=suites, ssl_enabled_protocols=protocols))
    assert error.value.message.startswith(f"ssl.cipher.suites={suites}")


# --- bad stores


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (lambda _: None, "could not read {}: no such file or directory"),
    "a directory": (lambda path: path.mkdir(), "could not read {}: is a directory"),
    "empty": (lambda path: path.touch(), "{} is empty"),
    "16 MB of zeros": (lambda path: path.write_bytes(bytes(16 << 20)), "{} is nothing that plog knows, expected"),
    "17 MB of zeros": (lambda path: path.write_bytes(bytes(17 << 20)), "{} is no key store: it has more than 16777216"),
    "JCEKS": (lambda path: path.write_bytes(b"\xce\xce\xce\xce" + bytes(99)), "{} is a JCEKS key store, which plog"),
    "no key": (lambda path: path.write_text(SERVER.pem + CA.pem), "{} holds no private key, but certificate, cert"),
    "no certificate": (lambda path: path.write_text(SERVER.key_pem()), "{} holds no certificate, but private key"),
    "encrypted": (
        lambda path: path.write_text(SERVER.encrypted_key_pem("x") + SERVER.pem),
        "the key in {} is encrypted, and there is no ssl.key.password",
    ),
    "of another key": (
        lambda path: path.write_text(sign(CA).key_pem() + SERVER.pem),
        "the key in {} does not belong to its certificate",
    ),
    "root first": (
        lambda path: path.write_text(CA.pem + SERVER.pem + SERVER.key_pem()),
        "the key in {} does not belong to its certificate",
    ),
    "half of it": (
        lambda path: path.write_text((SERVER.pem + SERVER.key_pem())[:-80]),
        "{} holds no private key, but certificate",
    ),
    "damaged": (
        lambda path: path.write_text(SERVER.pem + SERVER.key_pem().replace("M", "N")),
        "the key in {} can't be read: it is damaged",
    ),
}


def slow_key(iterations: int, header: str = "") -> str:
    """PEM of an EncryptedPrivateKeyInfo (RFC 5958) of PBES2, by hand: as much of it as is read before a password."""

    def sized(tag: int, *parts: bytes) -> bytes:
        data = b"".join(parts)
        return bytes([tag, len(data)]) + data

    pbes2, pbkdf2, aes = (
        bytes.fromhex(oid) for oid in ("2a864886f70d01050d", "2a864886f70d01050c", "60864801650304012a")
    )
    derived = sized(0x30, sized(4, bytes(8)), sized(2, iterations.to_bytes(5)))
    encrypted = sized(0x30, sized(6, aes), sized(4, bytes(16)))
    methods = sized(0x30, sized(0x30, sized(6, pbkdf2), derived), encrypted)
    der = sized(0x30, sized(0x30, sized(6, pbes2), methods), sized(4, bytes(48)))
    kind = "ENCRYPTED PRIVATE KEY-----"
    return f"-----BEGIN {kind}\n{header}{base64.b64encode(der).decode()}\n-----END {kind}\n"


@for_each(
    "key, why",
    [
        (slow_key(2**31 - 1), "its password takes 2147483647 iterations, expected at most 1048576"),
        (slow_key(2**31 - 1, "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n"), "it is damaged"),
        (slow_key(2048), "the password is wrong, or it is damaged"),
    ],
)
def test_a_key_can_not_keep_the_broker_busy(key: str, why: str) -> None:
    """A client may set one while the broker serves; OpenSSL would try its password for twenty minutes."""
    with pytest.raises(UsageError, match=why):
        make_server_context(
            server(
                {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.key": key,
                    "ssl.keystore.certificate.chain": SERVER.pem,
                    "ssl.key.password": "pw",
                }
            )
        )


def test_a_trust_store_that_is_no_ascii() -> None:
    trust = CA.pem.replace("M", "\u041c")
    with pytest.raises(UsageError, match=r"ssl\.truststore\.certificates holds a certificate that does not decode"):
        make_server_context(of_pem(ssl_truststore_type="PEM", ssl_truststore_certificates=trust))


@for_each("what", BAD)
def test_what_is_wrong_with_a_store_is_said(tmp_path: Path, what: str) -> None:
    make, message = BAD[what]
    path = tmp_path / "store"
    make(path)
    with pytest.raises(UsageError, match=re.escape(f"ssl.keystore.location: {message.format(path)}")) as error:
        make_server_context(server({"ssl.keystore.location": str(path)}))
    assert error.value.exit_code == 2


@for_each(
    "settings, message",
    [
        ({"ssl.keystore.location": "client.jks", "ssl.keystore.password": MARKED}, "the password is wrong, or the key"),
        ({"ssl.keystore.location": "client.jks"}, "holds a private key, and no password is given"),
        (
            {
                "ssl.keystore.location": "client.jks",
                "ssl.keystore.password": "changeit",
                "ssl.key.password": MARKED,
            },
            "the password of the private key is wrong",
        ),
        ({"ssl.keystore.location": "client.p12", "ssl.keystore.password": MARKED}, "the password is wrong, or it is"),
        (
            {"ssl.keystore.location": "client.p12", "ssl.keystore.password": f"{MARKED}\0"},
            "the password is wrong, or it is",
        ),
        ({"ssl.keystore.location": "trust.p12", "ssl.keystore.password": "changeit"}, "holds no private key"),
    ],
)
def test_wrong_passwords(settings: dict[str, str], message: str) -> None:
    path = STORES / settings["ssl.keystore.location"]
    with pytest.raises(UsageError, match=f"ssl.keystore.location: {path}.* {message}") as error:
        make_server_context(server({**settings, "ssl.keystore.location": str(path)}))
    assert MARKED not in f"{error.value.message} {error.value.hint}"
    assert "ssl.keystore.password" in settings or error.value.hint == "ssl.keystore.password"


def test_a_key_with_a_wrong_password_and_a_trust_store_that_is_bad(folder: Path) -> None:
    path = folder / "encrypted.pem"
    path.write_text(SERVER.pem + SERVER.encrypted_key_pem("right"))
    keys = {"ssl.keystore.location": str(path), "ssl.key.password": MARKED}
    with pytest.raises(
        UsageError, match=f"ssl.keystore.location: the key in {path} can't be read: the password"
    ) as error:
        make_server_context(server(keys))
    assert MARKED not in error.value.message
    trust = {"ssl.truststore.location": str(folder / "privkey.pem")}
    with pytest.raises(UsageError, match=f"ssl.truststore.location: {folder}/privkey.pem holds no certificate"):
        make_server_context(of_pem(**{name.replace(".", "_"): value for name, value in trust.items()}))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_store_that_may_not_be_read(folder: Path) -> None:
    (folder / "server.pem").chmod(0)
    with pytest.raises(UsageError, match=r"could not read .*: permission denied"):
        make_server_context(server({"ssl.keystore.location": str(folder / "server.pem")}))


def test_a_store_of_an_unknown_form_shows_no_secret() -> None:
    tls = Tls(TrustStore("/no/such"), KeyStore(location="/no/such", password=Secret(MARKED)))
    assert MARKED not in repr(tls)
