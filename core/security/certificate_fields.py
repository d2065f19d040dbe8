"""Reads a certificate's subject, dates and hosts, without the package cryptography.

    Certificate     SEQUENCE { TBSCertificate, .. }
    TBSCertificate  SEQUENCE { [0] version?, serial, signature, issuer, Validity, subject, key, .., [3] extensions? }
    Validity        SEQUENCE { Time, Time }         (UTCTime YYMMDDHHMMSSZ, GeneralizedTime YYYYMMDDHHMMSSZ)
    Name            SEQUENCE OF SET OF SEQUENCE { OBJECT IDENTIFIER, value }
    extensions      SEQUENCE OF SEQUENCE { OBJECT IDENTIFIER, BOOLEAN?, OCTET STRING }                (RFC 5280, 4.1)

A name's text is Java's, because ACLs and mapping rules are written for Kafka's principals: RFC 2253 as
`sun.security.x509.AVA.toRFC2253String` has it. Parts come last first; a part has its keyword only if RFC 2253 names
one; values of other parts, and those that are no text, are DER in hex. (Of some bytes that are no UTF-8, Java makes one
U+FFFD and Python two.) Line breaks and control characters stay as they are: make a name printable before you print it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

SEQUENCE, _SET, _INTEGER, _OID, _OCTETS = 0x30, 0x31, 0x02, 0x06, 0x04
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_TIME_FORMATS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_TEXTS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java reads each of them as UTF-8."""

_MOST_OID_BYTES = 128
"""Work for a number grows with the square of its bytes."""

_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}


class CertificateFields(NamedTuple):
    """`start` and `end` bound its validity. `names` are its SubjectAltNames, each with its tag, as DER."""

    serial: int
    issuer: str
    subject: str
    start: datetime
    end: datetime
    names: tuple[bytes, ...]


def parse_certificate(der: bytes) -> CertificateFields:
    """Reads a certificate. Raises ValueError for other bytes."""
    fields = list(elements(only_element(only_element(der, SEQUENCE), SEQUENCE, is_first=True)))
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    if len(fields) < 6 or any(tag != SEQUENCE for tag, _, _ in fields[2:5]):
        raise ValueError("it is no certificate")
    start, end = map(_time, elements(fields[3][1]))
    extensions = next((value for tag, value, _ in fields[6:] if tag == _EXTENSIONS), None)
    names = () if extensions is None else _alternative_names(only_element(extensions, SEQUENCE))
    issuer, subject = _name_text(fields[2][1]), _name_text(fields[4][1])
    return CertificateFields(int.from_bytes(fields[0][1]), issuer, subject, start, end, names)


def distinguished_name(der: bytes) -> str:
    """Returns the text of a name, as Java gives it. Raises ValueError for other bytes."""
    return _name_text(only_element(der, SEQUENCE))


def find_numbers(der: bytes) -> Iterator[int]:
    """Yields each INTEGER in these elements and in their sequences. Raises ValueError where one is cut off."""
    for tag, value, _ in elements(der):
        if tag == _INTEGER:
            yield int.from_bytes(value)
        elif tag == SEQUENCE:
            yield from find_numbers(value)


def _name_text(name: bytes) -> str:
    parts = ["+".join(_part_text(part) for _, part, _ in elements(rdn)) for _, rdn, _ in elements(name)]
    return ",".join(reversed(parts))


def _part_text(part: bytes) -> str:
    (kind, oid, _), (tag, value, whole) = elements(part)
    if kind != _OID:
        raise ValueError("a part of a name has no kind")
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or dotted}=#{whole.hex()}"
    text = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", value.decode("utf-8", "replace")).replace("\0", "\\00")
    lead = len(text) - len(text.lstrip(" \r"))
    trail = max(lead, len(text.rstrip(" \r")))
    blanks = (re.sub(".", r"\\\g<0>", end, flags=re.DOTALL) for end in (text[:lead], text[trail:]))
    return f"{keyword}={next(blanks)}{text[lead:trail]}{next(blanks)}"


def _dotted(oid: bytes) -> str:
    if not 0 < len(oid) <= _MOST_OID_BYTES:
        raise ValueError(f"an object identifier has {len(oid)} bytes")
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if number or not numbers:
        raise ValueError("an object identifier is cut off")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time(element: tuple[int, bytes, bytes]) -> datetime:
    tag, value, _ = element
    if tag not in _TIME_FORMATS:
        raise ValueError("its validity is not in times")
    time = datetime.strptime(value.decode("ascii"), _TIME_FORMATS[tag]).replace(tzinfo=UTC)
    if tag == 0x17 and time.year >= 2050:  # strptime's century begins in 1969, X.509's in 1950
        time = time.replace(year=time.year - 100)
    return time


def _alternative_names(extensions: bytes) -> tuple[bytes, ...]:
    for _, extension, _ in elements(extensions):
        (_, oid, _), *rest = elements(extension)
        if oid == _ALTERNATIVE_NAMES and rest and rest[-1][0] == _OCTETS:
            return tuple(whole for _, _, whole in elements(only_element(rest[-1][1], SEQUENCE)))
    return ()


# --- DER


def only_element(data: bytes, tag: int, *, is_first: bool = False) -> bytes:
    """Returns the contents of the only element, or of the first one, which must have that tag."""
    found = next(elements(data), None)
    if found is None or found[0] != tag or not (is_first or len(found[2]) == len(data)):
        raise ValueError("it is no certificate")
    return found[1]


def elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the tag, the contents and the whole of each element. Raises ValueError where one is cut off."""
    at = 0
    while at < len(data):
        tag, start = data[at], at + 2
        size = data[at + 1] if start <= len(data) else -1
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(data[at + 2 : start])
        if tag & 0x1F == 0x1F or not 0 <= size <= len(data) - start:
            raise ValueError(f"DER is cut off at position {at}")
        yield tag, data[start : start + size], data[at : start + size]
        at = start + size
