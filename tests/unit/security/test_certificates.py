"""Certificates made and read, held against the openssl command and OpenSSL's own checks in Python's ssl."""

from __future__ import annotations

import datetime
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from core.security.certificates import Certificate, CertificateError, Validity, describe_certificate, make_ca, sign
from tests.support.golden import GOLDEN

NOW = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
KEYTOOLS = ssl.PEM_cert_to_DER_cert((GOLDEN.parent / "keystores" / "client.pem").read_text())


@pytest.fixture(scope="module")
def ca() -> Certificate:
    return make_ca("a CA", Validity.of_days(NOW, -1, 365))


def der(one: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(one.pem)


def test_what_a_certificate_of_keytool_says() -> None:
    """Expected: what `openssl x509` prints of it."""
    found = describe_certificate(KEYTOOLS)
    assert (found.subject, found.issuer, found.names) == ("CN=alice,OU=eng,O=plog",) * 2 + ((),)
    assert found.start == datetime.datetime(2026, 11, 25, 3, 10, 4, tzinfo=datetime.UTC)
    assert found.end == datetime.datetime(2126, 11, 1, 3, 10, 4, tzinfo=datetime.UTC)
    assert not found.is_ca
    assert found.serial.upper() == "C66A467511258457"
    assert found.sha256 == "85d703209a2e2e7c3325e4d29a2e0758a82ff240f90cedd68ba6de00b98fc922"
    assert found.key == "EC secp256r1"


def test_a_subject_is_as_a_broker_has_it(ca: Certificate) -> None:
    """Java writes a part for which RFC 2253 has no keyword in hex, and so do Kafka's principals (principals.json)."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "c"), x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b")])
    key, validity = ec.generate_private_key(ec.SECP256R1()), Validity.of_days(NOW, 0, 1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(validity.start).not_valid_after(validity.end)
    found = describe_certificate(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER))
    assert (found.subject, found.issuer) == ("1.2.840.113549.1.9.1=#1603614062,CN=c",) * 2


def test_what_is_signed_has_its_names_and_days(ca: Certificate) -> None:
    signed = sign(ca, "server", Validity.of_days(NOW, -1, 90), names=("a.example", "10.0.0.1", "::1"))
    found = describe_certificate(der(signed))
    assert found.names == ("a.example", "10.0.0.1", "::1")
    assert (found.subject, found.issuer) == ("CN=server", "CN=a CA")
    assert [found.days_left(NOW + datetime.timedelta(days=n)) for n in (0, 89, 90, 91)] == [90, 1, 0, -1]
    assert not found.is_ca
    assert describe_certificate(der(ca)).is_ca


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
def test_openssl_finds_nothing_wrong_however_strict(ca: Certificate, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(ca.pem)
    (tmp_path / "one.pem").write_text(sign(ca, "server", Validity.of_days(NOW, -1, 365), names=("a.example",)).pem)
    at = str(int(NOW.timestamp()))
    for purpose in ("sslserver", "sslclient"):
        done = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-attime", at, "-verify_hostname", "a.example",
             "-CAfile", "ca.pem", "one.pem"],
            cwd=tmp_path, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()


def test_every_cut_is_refused() -> None:
    for size in range(len(KEYTOOLS)):
        with pytest.raises(CertificateError):
            describe_certificate(KEYTOOLS[:size])


def test_every_flipped_byte_is_read_or_refused() -> None:
    for position in range(len(KEYTOOLS)):
        damaged = bytearray(KEYTOOLS)
        damaged[position] ^= 0xFF
        try:
            describe_certificate(bytes(damaged))
        except CertificateError:
            continue
