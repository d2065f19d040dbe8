"""What is read of a certificate without cryptography: Java's text of names (tests/golden/security/principals.json), and
the rest as cryptography reads it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from core.security.certificate_fields import distinguished_name, parse_certificate
from tests.support.certificates import make_ca, sign
from tests.support.principals import CN, RECORDED, UTF8, der, make_name

_NAMES: dict[str, str] = json.loads(RECORDED.read_text())["names"]


@pytest.mark.parametrize(("name", "text"), _NAMES.items(), ids=[ascii(text)[:40] for text in _NAMES.values()])
def test_a_name_has_javas_text(name: str, text: str) -> None:
    assert distinguished_name(bytes.fromhex(name)) == text


def test_a_certificate_is_read_as_cryptography_reads_it() -> None:
    made = sign(make_ca(), "alice", names=("localhost", "127.0.0.1"), organisation=("plog", "eng")).certificate
    found = parse_certificate(made.public_bytes(Encoding.DER))
    assert (found.serial, found.subject) == (made.serial_number, "CN=alice,OU=eng,O=plog")
    assert found.issuer == "CN=plog test CA"
    assert (found.start, found.end) == (made.not_valid_before_utc, made.not_valid_after_utc)
    assert found.names == (b"\x82\x09localhost", b"\x87\x04\x7f\0\0\x01")
    assert parse_certificate(make_ca().certificate.public_bytes(Encoding.DER)).names == ()


@pytest.mark.parametrize(
    ("times", "years"), [((b"491231235959Z", b"500101000000Z"), (2049, 1950)), ((b"680101000000Z",) * 2, (1968, 1968))]
)
def test_two_digits_of_a_year_are_of_1950_to_2049(times: tuple[bytes, bytes], years: tuple[int, int]) -> None:
    found = parse_certificate(_certificate(b"".join(der(0x17, time) for time in times)))
    assert (found.start.year, found.end.year) == years


def test_a_year_of_four_digits() -> None:
    found = parse_certificate(_certificate(der(0x18, b"20500101000000Z") + der(0x18, b"99991231235959Z")))
    assert found.end == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert found.subject == "CN=a"


def _certificate(times: bytes) -> bytes:
    """One of the first version, which says none, and has no extensions."""
    empty, name = der(0x30, b""), make_name((CN, "a", UTF8))
    return der(0x30, der(0x30, der(2, b"\1") + empty + name + der(0x30, times) + name + empty))


@pytest.mark.parametrize("oid", [b"", b"\x81", b"\xff" * 60_000 + b"\x01"])
def test_a_kind_of_a_part_that_is_none_is_refused_at_once(oid: bytes) -> None:
    part = der(0x30, der(6, oid) + der(UTF8, b"x"))
    with pytest.raises(ValueError, match="an object identifier"):
        distinguished_name(der(0x30, der(0x31, part)))


def test_cut_and_other_bytes_are_refused() -> None:
    whole = sign(make_ca()).certificate.public_bytes(Encoding.DER)
    for size in range(len(whole) - 1):
        with pytest.raises(ValueError, match=r"DER is cut off|it is no certificate"):
            parse_certificate(whole[:size])
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0x41
        try:
            parse_certificate(bytes(flipped))
        except ValueError:
            continue
    assert isinstance(x509.load_der_x509_certificate(whole), x509.Certificate)
