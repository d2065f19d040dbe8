"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677) without channel binding, with Kafka's extension for delegation tokens.

    client first   n,[a=name],n=name,r=nonce[,tokenauth=true]
    server first   r=nonce and the server's,s=salt,i=iterations
    client final   c=base64 of `n,[a=name],`,r=both nonces,p=proof
    server final   v=server's signature, or e=error

The password never goes over the wire, and a server that has only StoredKey and ServerKey can't pretend to be the
client elsewhere:

    SaltedPassword = PBKDF2(password, salt, iterations)      ServerKey = HMAC(SaltedPassword, "Server Key")
    ClientKey = HMAC(SaltedPassword, "Client Key")           StoredKey = H(ClientKey)
    AuthMessage = client first without `n,,` , server first , client final without the proof
    proof = ClientKey XOR HMAC(StoredKey, AuthMessage)       signature = HMAC(ServerKey, AuthMessage)

Names and passwords are taken as they are, in UTF-8: Kafka does not prepare them (SASLprep) either.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from core.common.errors import AuthenticationError
from core.security.sasl.sasl_steps import wrong_message

LEAST_ITERATIONS = 4096  # RFC 7677; Kafka's users have at least as many
MOST_ITERATIONS = 1 << 20
"""The limit of iterations, which take half a second to a second: more would only keep us busy."""
KAFKAS_SALT_BITS = 130
KAFKAS_SALT = re.compile(rb"[0-9a-z]{20,26}")
"""A salt of Kafka's tools: so many random bits, as a number in base 36 (ScramFormatter.secureRandomString)."""

_NO_BINDING = "n,"
MOST_MESSAGE_BYTES = 4096
NONCE = r"[\x21-\x2b\x2d-\x7e]+"
"""A pattern, as is `VALUE`, for one character of a value (RFC 5802, 7)."""
VALUE = r"[^,\0]"
_SERVER_FIRST = re.compile(rf"(m={VALUE}*,)?r=({NONCE}),s=([A-Za-z0-9+/]+=*),i=([0-9]{{1,10}})(?:,.*)?", re.DOTALL)
_SERVER_FINAL = re.compile(rf"(?:e=({VALUE}+)|v=([A-Za-z0-9+/]+=*))(?:,.*)?", re.DOTALL)
_TOKEN_EXTENSION = "tokenauth"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    name: str
    digest: str
    """Its name in hashlib."""

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.digest, data).digest()

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.digest)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(self.digest, password.encode(), salt, iterations)

    def stored_key(self, salted_password: bytes) -> bytes:
        return self.hash(self.hmac(salted_password, b"Client Key"))

    def server_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Server Key")


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", "sha256")
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", "sha512")
MECHANISMS = {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a user: nobody can log in with it, but whoever has it can try passwords at home."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential([hidden], iterations={self.iterations})"


def make_nonce() -> str:
    return secrets.token_urlsafe(24)


class ScramClient:
    """Owned by one task. `is_token`: the name and password are the id and the HMAC of a delegation token."""

    def __init__(
        self, mechanism: ScramMechanism, name: str, password: str, *, is_token: bool = False, nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce or make_nonce()
        extension = f",{_TOKEN_EXTENSION}=true" if is_token else ""
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}{extension}"
        self._signature: bytes | None = None  # the server must show it

    def first(self) -> bytes:
        return f"{_NO_BINDING},{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Returns the proof for the server's first message, or None for its last one, whose signature it checks."""
        if self._signature is None:
            return self._prove(self._text(challenge))
        self._check(self._text(challenge))
        return None

    def _prove(self, server_first: str) -> bytes:
        found = _SERVER_FIRST.fullmatch(server_first)
        if found is None:
            raise self._wrong("it is no server-first-message")
        if found[1]:
            raise self._wrong("it asks for an extension that is not known")
        nonce, salt, iterations = found[2], decoded(found[3]), int(found[4])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._wrong("its nonce does not go on from ours")
        if salt is None:
            raise self._wrong("its salt is no base64")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise self._wrong(f"{iterations} iterations, expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
        without_proof = f"c={encoded(f'{_NO_BINDING},'.encode())},r={nonce}"
        message = ",".join((self._first_bare, server_first, without_proof)).encode()
        salted = self._mechanism.salted_password(self._password, salt, iterations)
        client_key = self._mechanism.hmac(salted, b"Client Key")
        proof = _xor(client_key, self._mechanism.hmac(self._mechanism.hash(client_key), message))
        self._signature = self._mechanism.hmac(self._mechanism.server_key(salted), message)
        return f"{without_proof},p={encoded(proof)}".encode()

    def _check(self, server_final: str) -> None:
        assert self._signature is not None
        found = _SERVER_FINAL.fullmatch(server_final)
        if found is None:
            raise self._wrong("it is no server-final-message")
        if found[1]:
            raise AuthenticationError(f"the server refuses the proof: {found[1]!r}")
        signature = decoded(found[2])
        if signature is None or not hmac.compare_digest(signature, self._signature):
            raise AuthenticationError(
                "the server does not know the password: its signature is wrong",
                hint="somebody may stand between you and the server; the password was not sent",
            )

    def _text(self, challenge: bytes) -> str:
        if len(challenge) > MOST_MESSAGE_BYTES:
            raise self._wrong(f"{len(challenge)} bytes, expected at most {MOST_MESSAGE_BYTES}")
        try:
            return challenge.decode()
        except UnicodeDecodeError:
            raise self._wrong("it is no UTF-8") from None

    def _wrong(self, what: str) -> AuthenticationError:
        return wrong_message(self._mechanism.name, what)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes | None:
    """Returns None for text that is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
