"""Java's key stores (JKS): trusted certificates, and private keys with their chains.

    u32 0xfeedfeed, u32 version (1 or 2), u32 count of entries, then each:
      u32 1: utf alias, i64 made at (ms), u32 + protected key, u32 count of certificates, each: utf type, u32 + DER
      u32 2: utf alias, i64 made at (ms), utf type (version 2 only), u32 + DER
    and SHA-1 of (password in UTF-16BE, "Mighty Aphrodite", all bytes before)            (utf: u16 length, bytes)

A protected key is DER `SEQUENCE { SEQUENCE { OID 1.3.6.1.4.1.42.2.17.1.1, NULL }, OCTET STRING }`, whose octets are a
salt of 20 bytes, the PKCS 8 key XORed with a stream, and SHA-1 of (password, key); the stream is SHA-1 of (password,
salt), of (password, that), and so on. It is weak, and Java has made PKCS12 since 9; such files are still about.

Source: `sun.security.provider.JavaKeyStore` and `KeyProtector`, as described by their own comments.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

from core.common.errors import PlogError
from core.security.certificate_fields import SEQUENCE, elements, only_element

MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"

_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_OID = bytes.fromhex("060a2b060104012a02110101")
_PRIVATE_KEY, _CERTIFICATE = 1, 2


class KeyStoreError(PlogError):
    """The bytes are not a key store, or the password is wrong."""

    exit_code = 2


@dataclass(slots=True)
class JavaKeyStore:
    """A key store; DER throughout; keys are PKCS 8."""

    certificates: list[bytes] = field(default_factory=list)
    keys: list[tuple[bytes, list[bytes]]] = field(default_factory=list)
    """(key, chain) of each."""


def parse_jks(
    data: bytes, password: str | None, key_password: str | None = None, *, wants_keys: bool = True
) -> JavaKeyStore:
    """Parses a key store; without a password nothing is checked, as in Java. Keys are left out unless `wants_keys`;
    they need a password. Raises KeyStoreError.
    """
    encoded = None if password is None else password.encode("utf-16-be")
    body = data[:-_DIGEST_BYTES]
    if encoded is not None:
        digest = hashlib.sha1(encoded + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise KeyStoreError("the password is wrong, or the key store is damaged")
    reader = _Reader(body)
    if reader.take(4) != MAGIC:
        raise KeyStoreError("no Java key store: it does not begin with feedfeed")
    version, count = reader.u32(), reader.u32()
    if version not in (1, 2):
        raise KeyStoreError(f"a Java key store of version {version}, expected 1 or 2")
    store = JavaKeyStore()
    for _ in range(count):
        chosen = key_password if key_password is not None else password
        _read_entry(reader, version, store, chosen, wants_keys=wants_keys)
    return store


def _read_entry(reader: _Reader, version: int, store: JavaKeyStore, password: str | None, *, wants_keys: bool) -> None:
    kind = reader.u32()
    reader.utf()  # the alias
    reader.take(8)
    if kind == _CERTIFICATE:
        store.certificates.append(_read_certificate(reader, version))
    elif kind == _PRIVATE_KEY:
        protected = reader.take(reader.u32())
        chain = [_read_certificate(reader, version) for _ in range(reader.u32())]
        if wants_keys and password is None:
            raise KeyStoreError(
                "the key store holds a private key, and no password is given", hint="ssl.keystore.password"
            )
        key = _unprotect(protected, password.encode("utf-16-be")) if wants_keys and password is not None else b""
        store.keys.append((key, chain))
    else:
        raise KeyStoreError(f"the key store holds an entry of kind {kind}, expected 1 or 2")


def _read_certificate(reader: _Reader, version: int) -> bytes:
    if version == 2:
        kind = reader.utf()
        if kind != b"X.509":
            raise KeyStoreError(f"the key store holds a certificate of type {kind!r}, expected X.509")
    return reader.take(reader.u32())


def _unprotect(protected: bytes, password: bytes) -> bytes:
    octets = _octets(protected)
    salt, hidden, digest = octets[:_DIGEST_BYTES], octets[_DIGEST_BYTES:-_DIGEST_BYTES], octets[-_DIGEST_BYTES:]
    stream = bytearray()
    block = salt
    while len(stream) < len(hidden):
        block = hashlib.sha1(password + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(password + key, usedforsecurity=False).digest(), digest):
        raise KeyStoreError("the password of the private key is wrong")
    return key


def _octets(protected: bytes) -> bytes:
    try:
        (_, algorithm, _), (_, octets, _), *_ = elements(only_element(protected, SEQUENCE, is_first=True))
    except ValueError:
        raise KeyStoreError("the private key is no DER, or is cut off") from None
    if not algorithm.startswith(_OID):
        raise KeyStoreError("the private key is protected in a way that is not Java's own")
    if len(octets) < 2 * _DIGEST_BYTES:
        raise KeyStoreError("the private key is cut off")
    return octets


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._position:
            raise KeyStoreError(f"the key store is cut off at position {self._position}")
        self._position += size
        return self._data[self._position - size : self._position]

    def u32(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def utf(self) -> bytes:
        return self.take(int.from_bytes(self.take(2)))
