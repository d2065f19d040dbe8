"""Certificates for tests, made in a moment by the code of `plog cert dev`: a CA, and what it signs."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from core.security import certificates
from core.security.certificates import Validity


class Certificate(certificates.Certificate):
    """One that goes into files."""

    @classmethod
    def of(cls, made: certificates.Certificate) -> Certificate:
        return cls(made.certificate, made.key, made.issuer)

    def encrypted_key_pem(self, password: str) -> str:
        encryption = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """(certificate, key) as PEM files."""
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        paths[0].write_text(self.pem)
        paths[1].write_text(self.key_pem())
        return paths


def make_ca(name: str = "plog test CA") -> Certificate:
    return Certificate.of(certificates.make_ca(name, _validity((-1, 30))))


def sign(
    ca: Certificate,
    name: str = "server",
    *,
    names: tuple[str, ...] = ("localhost", "127.0.0.1"),
    days: tuple[int, int] = (-1, 30),
    organisation: tuple[str, ...] = (),
) -> Certificate:
    """`names` are hosts and addresses; `days` from when to when it is good, from now on."""
    return Certificate.of(certificates.sign(ca, name, _validity(days), names=names, organisation=organisation))


def _validity(days: tuple[int, int]) -> Validity:
    return Validity.of_days(datetime.datetime.now(datetime.UTC), *days)
