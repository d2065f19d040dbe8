"""The servers of SASL, for clients that authenticate: `tests/support/secured_door.py` is a door that has them.

A server answers each message of a client's with one of three: `Continue` with a message to send, after which another
one must come; `Done` with a last message to send and who the client is; `Failed` with what the client may know.
After the last two nothing more may come.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from core.security.sasl.scram import LEAST_ITERATIONS, ScramMechanism, make_nonce


@dataclass(frozen=True, slots=True)
class Continue:
    token: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """`is_token`: the name is that of a delegation token, whose owner is the principal."""

    name: str
    token: bytes = b""
    extensions: dict[str, str] = field(default_factory=dict)
    is_token: bool = False
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The login failed; the text says no more than the client may know."""

    message: str


class ServerSteps(Protocol):
    """One authentication of one client; owned by one task."""

    def step(self, token: bytes) -> Continue | Done | Failed: ...


# --- PLAIN


class PlainServer:
    """`is_right` says of a name and a password whether they belong together; owned by one task."""

    def __init__(self, is_right: Callable[[str, str], bool]) -> None:
        self._is_right = is_right

    def step(self, token: bytes) -> Continue | Done | Failed:
        parts = token.split(b"\0")
        if len(parts) != 3:
            return Failed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        try:
            authorization_id, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            return Failed("Authentication failed: Invalid username or password")
        if not name or not password:
            return Failed(f"Authentication failed: {'password' if name else 'username'} not specified")
        if not self._is_right(name, password):
            return Failed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            return Failed("Authentication failed: Client requested an authorization id that is different from username")
        return Done(name)


# --- SCRAM

_MOST_BYTES = 4096
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE = r"[^,\0]"
_EXTENSIONS = rf"((?:,[A-Za-z]+={_VALUE}*)*)"
_CLIENT_FIRST = re.compile(rf"([^,]*),(?:a=({_VALUE}+))?,(m={_VALUE}*,)?n=({_VALUE}+),r=({_NONCE}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(rf"(c=([A-Za-z0-9+/]+=*),r=({_NONCE})(?:,[A-Za-z]+={_VALUE}*)*),p=([A-Za-z0-9+/]+=*)")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential([hidden], iterations={self.iterations})"


def credential_of(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Makes what a server keeps of a user."""
    salted = mechanism.salted_password(password, salt, iterations)
    stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
    return ScramCredential(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)


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
        is_token = "tokenauth=true" in found[6].split(",")
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


# --- OAUTHBEARER

_SEPARATOR = "\x01"
_CLIENT = re.compile(r"n,(?:a=([^,\0]*))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)+)\x01")
_AUTHORIZATION = re.compile(r"bearer +([-._~+/A-Za-z0-9]+=*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bearer:
    """The owner of a token that was checked, and until when it is good."""

    name: str
    expires_at_ms: int


class OAuthBearerServer:
    """Owned by one task. `check` gives None for a token that is not good."""

    def __init__(self, check: Callable[[str], Bearer | None]) -> None:
        self._check = check
        self._refused = False

    def step(self, token: bytes) -> Continue | Done | Failed:
        if self._refused:
            return Failed(_INVALID_TOKEN)
        found = _parse(token)
        if found is None:
            return Failed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
            )
        bearer = self._check(found.token)
        if bearer is None:
            self._refused = True
            return Continue(_INVALID_TOKEN.encode())
        if found.authorization_id not in ("", bearer.name):
            return Failed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        return Done(bearer.name, extensions=found.extensions, expires_at_ms=bearer.expires_at_ms)


@dataclass(frozen=True, slots=True)
class _ClientMessage:
    authorization_id: str
    token: str
    extensions: dict[str, str]


def _parse(message: bytes) -> _ClientMessage | None:
    """Gives None for bytes that are no client's message: unlike a refused token, that fails the login at once."""
    try:
        found = _CLIENT.fullmatch(message.decode())
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    pairs = [pair.split("=", 1) for pair in found[2].split(_SEPARATOR)[:-1]]
    extensions = dict(pairs)
    authorization = _AUTHORIZATION.fullmatch(extensions.pop("auth", ""))
    if authorization is None or len(extensions) + 1 != len(pairs):
        return None
    return _ClientMessage(found[1] or "", authorization[1], extensions)


_INVALID_TOKEN = '{"status":"invalid_token"}'
