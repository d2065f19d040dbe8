"""Creates certificates, by a CA of our own, and describes certificates in words.

Needs the extra `security` (cryptography), so only modules about certificates import this one. All keys are of the curve
P-256, which every TLS library of the last ten years accepts and which is generated in a moment.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.security.certificate_fields import parse_certificate

_USES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
"""Brokers are each other's clients, and use the same certificate as clients and servers."""


class CertificateError(ValueError):
    """The bytes are not a certificate."""


# --- made


@dataclass(frozen=True, slots=True)
class Certificate:
    """A key and its certificate; `issuer` is None for a self-signed one."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuer: Certificate | None

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self) -> str:
        """Writes PKCS 8, the form that Java reads."""
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()

    def pkcs12(self, password: str) -> bytes:
        """Writes the key, its certificate and that of its CA."""
        chain = [self.issuer.certificate] if self.issuer else []
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, chain, encryption)


@dataclass(frozen=True, slots=True)
class Validity:
    start: datetime.datetime
    end: datetime.datetime

    @classmethod
    def of_days(cls, now: datetime.datetime, start: int, end: int) -> Validity:
        """Makes one of days from now on."""
        return cls(now + datetime.timedelta(days=start), now + datetime.timedelta(days=end))


def make_ca(name: str, validity: Validity) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, ())
    builder = (
        _builder(subject, subject, key, key, validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_ca=True), critical=True)
    )
    return Certificate(builder.sign(key, hashes.SHA256()), key, None)


def sign(
    ca: Certificate, name: str, validity: Validity, *, names: Sequence[str] = (), organisation: Sequence[str] = ()
) -> Certificate:
    """Makes a new key, and its certificate. `names` are the hosts and addresses that it is for; `organisation` is the
    organisation and its unit.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_subject(name, organisation), ca.certificate.subject, key, ca.key, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca=False), critical=True)
        .add_extension(_USES, critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
    return Certificate(builder.sign(ca.key, hashes.SHA256()), key, ca)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    validity: Validity,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.start)
        .not_valid_after(validity.end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _subject(name: str, organisation: Sequence[str]) -> x509.Name:
    kinds = (NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME)
    parts = [x509.NameAttribute(kind, text) for kind, text in zip(kinds, organisation, strict=False)]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name or address of a host") from None
        return x509.DNSName(name)


_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(\*\.)?({_LABEL}\.)*(?![0-9]+$){_LABEL}")
"""The last label must not be a number: the name would be an invalid address (RFC 3696, 2)."""


# --- read


@dataclass(frozen=True, slots=True)
class CertificateDescription:
    """The contents of a certificate. Names are as a broker has them in principals (certificate_fields.py)."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    """Its hosts and addresses."""

    start: datetime.datetime
    end: datetime.datetime
    is_ca: bool
    key: str
    signature: str
    serial: str
    sha256: str

    def days_left(self, now: datetime.datetime) -> int:
        """Returns the whole days until it expires; below 0 those since then."""
        return int((self.end - now) / datetime.timedelta(days=1))


def describe_certificate(der: bytes) -> CertificateDescription:
    """Describes a certificate. Raises CertificateError for other bytes."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        fields = parse_certificate(der)
        return CertificateDescription(
            subject=fields.subject,
            issuer=fields.issuer,
            names=_names(certificate),
            start=fields.start,
            end=fields.end,
            is_ca=_is_ca(certificate),
            key=_key_text(certificate),
            signature=_signature_text(certificate),
            serial=f"{certificate.serial_number:x}",
            sha256=certificate.fingerprint(hashes.SHA256()).hex(),
        )
    except (ValueError, TypeError) as error:
        raise CertificateError(str(error)) from error


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(
        name.value.rfc4514_string() if isinstance(name.value, x509.Name) else str(name.value) for name in found
    )


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _key_text(certificate: x509.Certificate) -> str:
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "of a kind that is not known"
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    return type(key).__name__.strip("_").removesuffix("PublicKey")


def _signature_text(certificate: x509.Certificate) -> str:
    try:
        algorithm = certificate.signature_hash_algorithm
    except UnsupportedAlgorithm:
        algorithm = None
    return algorithm.name if algorithm is not None else certificate.signature_algorithm_oid.dotted_string
