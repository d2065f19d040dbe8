"""Certificates for tests, made in a moment: a CA, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A key and its certificate; `issuer` is None for one that signed itself."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuer: Certificate | None

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()

    def pkcs12(self, password: str) -> bytes:
        chain = [self.issuer.certificate] if self.issuer else []
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, chain, encryption)

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """(certificate, key) as PEM files."""
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        paths[0].write_text(self.pem)
        paths[1].write_text(self.key_pem())
        return paths


def make_ca(name: str = "plog test CA") -> Certificate:
    return _make(name, None, is_ca=True, days=(-1, 30), names=())


def sign(
    ca: Certificate,
    name: str = "server",
    *,
    names: tuple[str, ...] = ("localhost", "127.0.0.1"),
    days: tuple[int, int] = (-1, 30),
    organisation: tuple[str, ...] = (),
) -> Certificate:
    """`names` are hosts and addresses; `days` from when to when it is good, from now on."""
    return _make(name, ca, is_ca=False, days=days, names=names, organisation=organisation)


def _make(
    name: str,
    issuer: Certificate | None,
    *,
    is_ca: bool,
    days: tuple[int, int],
    names: tuple[str, ...],
    organisation: tuple[str, ...] = (),
) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    kinds = (NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME)
    parts = [x509.NameAttribute(kind, text) for kind, text in zip(kinds, organisation, strict=False)]
    subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * _DAY)
        .not_valid_after(now + days[1] * _DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
    signed = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    return Certificate(signed, key, issuer)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
