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
from collections.abc import Callable
from dataclasses import dataclass

from core.common.errors import AuthenticationError
from core.security.sasl.sasl_steps import Continue, Done, Failed, wrong_message

LEAST_ITERATIONS = 4096  # RFC 7677; Kafka's users have at least as many
MOST_ITERATIONS = 1 << 20
"""A server that asks for more only wants us to work: this takes half a second to a second."""

_NO_BINDING = "n,"
_MOST_BYTES = 4096
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE = r"[^,\0]"
_EXTENSIONS = rf"((?:,[A-Za-z]+={_VALUE}*)*)"
_CLIENT_FIRST = re.compile(rf"([^,]*),(?:a=({_VALUE}+))?,(m={_VALUE}*,)?n=({_VALUE}+),r=({_NONCE}){_EXTENSIONS}")
_SERVER_FIRST = re.compile(rf"(m={_VALUE}*,)?r=({_NONCE}),s=([A-Za-z0-9+/]+=*),i=([0-9]{{1,10}})(?:,.*)?", re.DOTALL)
_CLIENT_FINAL = re.compile(rf"(c=([A-Za-z0-9+/]+=*),r=({_NONCE})(?:,[A-Za-z]+={_VALUE}*)*),p=([A-Za-z0-9+/]+=*)")
_SERVER_FINAL = re.compile(rf"(?:e=({_VALUE}+)|v=([A-Za-z0-9+/]+=*))(?:,.*)?", re.DOTALL)
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

    def credential(self, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """Makes what a server keeps of a user."""
        salted = self.salted_password(password, salt, iterations)
        stored_key = self.hash(self.hmac(salted, b"Client Key"))
        return ScramCredential(salt, stored_key, self.hmac(salted, b"Server Key"), iterations)


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", "sha256")
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", "sha512")
MECHANISMS = {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}


@dataclass(frozen=True, slots=True)
class ScramCredential:
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
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        *,
        is_token: bool = False,
        nonce: str | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce or make_nonce()
        extension = f",{_TOKEN_EXTENSION}=true" if is_token else ""
        self._first_bare = f"n={_escape(name)},r={self._nonce}{extension}"
        self._signature: bytes | None = None  # which the server must show

    def first(self) -> bytes:
        return f"{_NO_BINDING},{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Gives the proof to the server's first message; None to its last one, whose signature was right."""
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
        nonce, salt, iterations = found[2], _decoded(found[3]), int(found[4])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._wrong("its nonce does not go on from ours")
        if salt is None:
            raise self._wrong("its salt is no base64")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise self._wrong(f"{iterations} iterations, expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
        without_proof = f"c={_encoded(f'{_NO_BINDING},'.encode())},r={nonce}"
        message = ",".join((self._first_bare, server_first, without_proof)).encode()
        salted = self._mechanism.salted_password(self._password, salt, iterations)
        client_key = self._mechanism.hmac(salted, b"Client Key")
        proof = _xor(client_key, self._mechanism.hmac(self._mechanism.hash(client_key), message))
        self._signature = self._mechanism.hmac(self._mechanism.hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={_encoded(proof)}".encode()

    def _check(self, server_final: str) -> None:
        assert self._signature is not None
        found = _SERVER_FINAL.fullmatch(server_final)
        if found is None:
            raise self._wrong("it is no server-final-message")
        if found[1]:
            raise AuthenticationError(f"the server refuses the proof: {found[1]!r}")
        signature = _decoded(found[2])
        if signature is None or not hmac.compare_digest(signature, self._signature):
            raise AuthenticationError(
                "the server does not know the password: its signature is wrong",
                hint="somebody may stand between you and the server; the password was not sent",
            )

    def _text(self, challenge: bytes) -> str:
        if len(challenge) > _MOST_BYTES:
            raise self._wrong(f"{len(challenge)} bytes, expected at most {_MOST_BYTES}")
        try:
            return challenge.decode()
        except UnicodeDecodeError:
            raise self._wrong("it is no UTF-8") from None

    def _wrong(self, what: str) -> AuthenticationError:
        return wrong_message(self._mechanism.name, what)


FindCredential = Callable[[str, bool], ScramCredential | None]
"""(name, whether it is that of a delegation token) -> what is kept of the user."""


class ScramServer:
    """Owned by one task. Stricter than Kafka, which takes a wrong `c=` and passes over `m=`.

    A name that nobody has fails at the last step, as a wrong password does, so that users can't be guessed: its salt
    comes of `secret`, and is the same each time.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: FindCredential,
        *,
        secret: bytes,
        nonce: str | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._find_credential = find_credential
        self._secret = secret
        self._nonce = nonce or make_nonce()
        self._failed = Failed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + mechanism.name
        )
        self._begun: _Begun | None = None

    def step(self, token: bytes) -> Continue | Done | Failed:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return self._failed
        if len(token) > _MOST_BYTES:
            return self._failed
        return self._begin(text) if self._begun is None else self._end(text, self._begun)

    def _begin(self, client_first: str) -> Continue | Failed:
        found = _CLIENT_FIRST.fullmatch(client_first)
        name = _unescape(found[4]) if found else None
        if found is None or found[1] != "n" or found[3] or name is None:
            return self._failed
        if found[2] is not None and _unescape(found[2]) != name:
            return Failed("Authentication failed: Client requested an authorization id that is different from username")
        is_token = f"{_TOKEN_EXTENSION}=true" in found[6].split(",")
        credential = self._find_credential(name, is_token)
        known = credential or self._nobody(name)
        nonce = found[5] + self._nonce
        server_first = f"r={nonce},s={_encoded(known.salt)},i={known.iterations}"
        bare = client_first[len(found[1]) + len(f",a={found[2]}" if found[2] else ",") + 1 :]
        binding = client_first[: len(client_first) - len(bare)]
        self._begun = _Begun(
            name=name,
            is_token=is_token,
            credential=known,
            nonce=nonce,
            binding=binding,
            messages=f"{bare},{server_first}",
            is_known=credential is not None,
        )
        return Continue(server_first.encode())

    def _nobody(self, name: str) -> ScramCredential:
        salt = hmac.digest(self._secret, name.encode(), "sha256")[:20]
        return ScramCredential(salt, bytes(32), bytes(32), LEAST_ITERATIONS)

    def _end(self, client_final: str, begun: _Begun) -> Done | Failed:
        found = _CLIENT_FINAL.fullmatch(client_final)
        if found is None or found[3] != begun.nonce or _decoded(found[2]) != begun.binding.encode():
            return self._failed
        proof = _decoded(found[4]) or b""
        message = f"{begun.messages},{found[1]}".encode()
        signature = self._mechanism.hmac(begun.credential.stored_key, message)
        if len(proof) != len(signature):
            return self._failed
        stored_key = self._mechanism.hash(_xor(proof, signature))
        if not hmac.compare_digest(stored_key, begun.credential.stored_key) or not begun.is_known:
            return self._failed
        server_signature = self._mechanism.hmac(begun.credential.server_key, message)
        return Done(begun.name, f"v={_encoded(server_signature)}".encode(), is_token=begun.is_token)


@dataclass(frozen=True, slots=True)
class _Begun:
    name: str
    is_token: bool
    credential: ScramCredential
    nonce: str
    binding: str
    messages: str
    is_known: bool


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(text: str) -> str | None:
    """Reads it; None if an equals sign begins no escape."""
    if re.search("=(?!2C|3D)", text):
        return None
    return text.replace("=2C", ",").replace("=3D", "=")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
