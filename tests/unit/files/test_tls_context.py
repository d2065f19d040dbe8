"""Key stores and trust stores in each form, by keytool (tests/golden/keystores) and by cryptography."""

from __future__ import annotations

import contextlib
import os
import ssl
import warnings
from pathlib import Path

import pytest

from core.common.errors import UsageError
from core.files.tls_context import make_context, read_certificates
from core.security.client_security import Tls
from core.security.client_settings import parse_client_settings
from core.security.jks import KeyStoreError, parse_jks
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.tls_peer import shaken

STORES = GOLDEN.parent / "keystores"
CERTIFICATE = ssl.PEM_cert_to_DER_cert((STORES / "client.pem").read_text())


def tls(**settings: str | Path) -> Tls:
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    found = parse_client_settings({"security.protocol": "SSL", **named}).security.tls
    assert found is not None
    return found


def shown_by(client: ssl.SSLContext, server: ssl.SSLContext, name: str | None = None) -> bytes | None:
    """The certificate that the client showed."""
    return shaken(client, server, name=name)[1].getpeercert(binary_form=True)


def asking_server() -> ssl.SSLContext:
    """Shows alice's certificate, and wants the same."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(STORES / "client.pem", STORES / "key.pem")
    context.load_verify_locations(STORES / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


TRUST = {
    "PEM": {"ssl.truststore.location": "client.pem", "ssl.truststore.type": "PEM"},
    "JKS": {"ssl.truststore.location": "trust.jks", "ssl.truststore.password": "changeit"},
    "JKS without a password": {"ssl.truststore.location": "trust.jks", "ssl.truststore.type": "JKS"},
    "JKS with a key": {"ssl.truststore.location": "client.jks", "ssl.truststore.password": "changeit"},
    "PKCS12": {"ssl.truststore.location": "trust.p12", "ssl.truststore.password": "changeit"},
    "PKCS12, said to be JKS": {
        "ssl.truststore.location": "trust.p12",
        "ssl.truststore.type": "JKS",
        "ssl.truststore.password": "changeit",
    },
    "librdkafka": {"ssl.ca.location": "client.pem"},
}
KEYS = {
    "JKS": {
        "ssl.keystore.location": "client.jks",
        "ssl.keystore.password": "changeit",
        "ssl.key.password": "keypass",
    },
    "PKCS12": {"ssl.keystore.location": "client.p12", "ssl.keystore.password": "changeit"},
    "librdkafka": {"ssl.certificate.location": "client.pem", "ssl.key.location": "key.pem"},
}


def settings_in_store(settings: dict[str, str]) -> dict[str, str]:
    return {name: str(STORES / value) if name.endswith("location") else value for name, value in settings.items()}


@for_each("trust", TRUST)
@for_each("key", KEYS)
def test_each_form_of_trust_and_of_keys(trust: str, key: str) -> None:
    named = settings_in_store({**TRUST[trust], **KEYS[key], "ssl.endpoint.identification.algorithm": ""})
    context = make_context(parse_client_settings({"security.protocol": "SSL", **named}).security.tls or Tls())
    assert shown_by(context, asking_server()) == CERTIFICATE


def on_a_line(pem: str) -> str:
    return pem.strip().replace("\n", " ")


def test_pem_in_the_settings() -> None:
    pem, key = (STORES / "client.pem").read_text(), (STORES / "key.pem").read_text()
    for form in (str, on_a_line, lambda text: text.replace("\n", "\\n")):
        settings = tls(
            ssl_truststore_certificates=form(pem),
            ssl_keystore_certificate_chain=form(pem),
            ssl_keystore_key=form(key),
            ssl_endpoint_identification_algorithm="",
        )
        assert shown_by(make_context(settings), asking_server()) == CERTIFICATE


def test_pem_in_one_file_with_a_password(tmp_path: Path) -> None:
    ca = make_ca()
    alice = sign(ca, "alice")
    path = tmp_path / "alice.pem"
    path.write_text(alice.encrypted_key_pem("pw") + "Größe in latin\n" + alice.pem + ca.pem)
    (tmp_path / "ca.pem").write_text(ca.pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*sign(ca).write(tmp_path, "server"))
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    settings = tls(ssl_keystore_location=path, ssl_key_password="pw", ssl_truststore_location=tmp_path / "ca.pem")
    shown = shown_by(make_context(settings), server, "localhost")
    assert shown == ssl.PEM_cert_to_DER_cert(alice.pem)
    with pytest.raises(ssl.SSLCertVerificationError, match="example"):
        shown_by(make_context(settings), server, "example.com")


@for_each(
    "settings, message",
    [
        ({"ssl.truststore.location": "/no/such"}, "could not read /no/such: no such file"),
        ({"ssl.truststore.location": "README.md"}, "nothing that plog knows"),
        ({"ssl.truststore.location": "key.pem"}, "holds no certificate"),
        ({"ssl.truststore.location": "client.pem", "ssl.truststore.type": "JKS"}, "is PEM, expected JKS"),
        ({"ssl.truststore.location": "trust.jks", "ssl.truststore.type": "PEM"}, "JKS or PKCS12, expected PEM"),
        ({"ssl.truststore.location": "trust.jks", "ssl.truststore.password": "marked"}, "password is wrong"),
        ({"ssl.truststore.location": "trust.p12", "ssl.truststore.password": "marked"}, "password is wrong"),
        ({"ssl.truststore.location": "trust.p12"}, "needs a password"),
        ({"ssl.keystore.location": "trust.jks", "ssl.keystore.password": "changeit"}, "no private key"),
        ({"ssl.keystore.location": "trust.p12", "ssl.keystore.password": "changeit"}, "no private key"),
        ({"ssl.keystore.location": "client.jks"}, "no password"),
        ({"ssl.keystore.location": "client.jks", "ssl.keystore.password": "changeit"}, "password of the private key"),
        ({"ssl.keystore.location": "client.pem"}, "holds no private key, but certificate"),
        ({"ssl.truststore.certificates": "-----BEGIN CERTIFICATE----- AAAA -----END CERTIFICATE-----"}, "not decode"),
        ({"ssl.truststore.certificates": "-----BEGIN CERTIFICATE----- AA\xe9A -----END CERTIFICATE-----"}, "no base64"),
        ({"ssl.truststore.certificates": "nothing"}, "holds no certificate"),
        ({"ssl.cipher.suites": "NOTHING"}, "OpenSSL knows none"),
    ],
)
def test_what_is_wrong_is_told(settings: dict[str, str], message: str) -> None:
    named = {
        name: str(STORES / value) if name.endswith("location") and not value.startswith("/") else value
        for name, value in settings.items()
    }
    wanted = parse_client_settings({"security.protocol": "SSL", **named}).security.tls
    assert wanted is not None
    with pytest.raises(UsageError, match=message) as raised:
        make_context(wanted)
    assert "marked" not in f"{raised.value.message} {raised.value.hint}"


@for_each("damaged", ["M\xe9II", "MI"])
def test_a_certificate_that_is_no_base64(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.pem"
    pem = (STORES / "client.pem").read_text().replace("MII", damaged, 1)
    path.write_text(pem, "latin-1")
    with pytest.raises(UsageError, match=f"{path} holds a certificate that does not decode"):
        read_certificates(path, lambda: None)


def test_a_store_with_bytes_after_its_end_is_read_without_a_warning_of_pythons(tmp_path: Path) -> None:
    path = tmp_path / "trust.p12"
    path.write_bytes((STORES / "trust.p12").read_bytes() + b"more")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make_context(tls(ssl_truststore_location=path, ssl_truststore_password="changeit"))
    assert found == []


def test_a_directory_of_certificates(tmp_path: Path) -> None:
    def context(**more: str) -> ssl.SSLContext:
        return make_context(tls(ssl_truststore_location=tmp_path, **more))

    with pytest.raises(UsageError, match=f"the directory {tmp_path} holds no certificate"):
        context()
    (tmp_path / "ca.pem").write_text(make_ca().pem)
    assert len(context().get_ca_certs()) == 1
    with pytest.raises(UsageError, match=f"{tmp_path} is a directory, expected JKS"):
        context(ssl_truststore_type="JKS")
    (tmp_path / "ca.pem").rename(tmp_path / "0123abcd.0")  # as `openssl rehash` names them; read when one is needed
    assert context().get_ca_certs() == []


def test_keys_that_are_wrong(tmp_path: Path) -> None:
    ca = make_ca()
    alice, bob = sign(ca, "alice"), sign(ca, "bob")
    (tmp_path / "alice.pem").write_text(alice.pem)
    (tmp_path / "bob.key").write_text(bob.key_pem())
    (tmp_path / "alice.key").write_text(alice.encrypted_key_pem("pw"))
    for key, password, message in [
        ("bob.key", None, "does not belong to its certificate"),
        ("alice.key", None, "is encrypted, and there is no ssl.key.password"),
        ("alice.key", "marked", "the password is wrong"),
    ]:
        said = {"ssl_key_password": password} if password else {}
        settings = tls(ssl_certificate_location=tmp_path / "alice.pem", ssl_key_location=tmp_path / key, **said)
        with pytest.raises(UsageError, match=message) as raised:
            make_context(settings)
        assert "marked" not in raised.value.message


def test_java_names_of_cipher_suites() -> None:
    settings = tls(ssl_cipher_suites="TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    names = {cipher["name"] for cipher in make_context(settings).get_ciphers()}
    assert "ECDHE-RSA-AES128-GCM-SHA256" in names
    assert "ECDHE-RSA-AES256-GCM-SHA384" not in names


def test_versions() -> None:
    context = make_context(tls(ssl_enabled_protocols="TLSv1.1,TLSv1.2"))
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    context = make_context(tls())
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def test_no_key_stays_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make_context(tls(ssl_keystore_location=STORES / "client.p12", ssl_keystore_password="changeit"))
    assert list(tmp_path.iterdir()) == []


@for_each("name", ["client.jks", "trust.jks"])
def test_a_java_key_store_cut_anywhere_is_refused(name: str) -> None:
    data = (STORES / name).read_bytes()
    for size in range(len(data)):
        with pytest.raises(KeyStoreError):
            parse_jks(data[:size], "changeit", "keypass")
        with contextlib.suppress(KeyStoreError):
            parse_jks(data[:size], None, "keypass", wants_keys=False)


@for_each("name", ["client.jks", "trust.jks"])
def test_a_java_key_store_with_any_byte_changed_is_refused(name: str) -> None:
    data = bytearray((STORES / name).read_bytes())
    for position in range(len(data)):
        data[position] ^= 0x41
        with pytest.raises(KeyStoreError):
            parse_jks(bytes(data), "changeit", "keypass")
        with contextlib.suppress(KeyStoreError):
            parse_jks(bytes(data), None, "keypass")
        data[position] ^= 0x41
