"""The server's steps of SASL mechanisms, bytes in, values out, no I/O: PLAIN's and SCRAM's.

A server answers each message of a client with one of three: `Continue` with a message to send, after which another one
must come; `Done` with a last message to send and who the client is; `Failed` with what the client may know. After the
last two nothing more may come. The caller adds Kafka's frames around the messages (SaslAuthenticate).

What a client can't tell apart: a name that nobody has, and a wrong password. Both take the same messages, the same
hashes and the same comparisons, none of which ends early.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from core.security.sasl.scram import (
    KAFKAS_SALT,
    KAFKAS_SALT_BITS,
    LEAST_ITERATIONS,
    MOST_MESSAGE_BYTES,
    NONCE,
    VALUE,
    ScramCredential,
    ScramMechanism,
    decoded,
    encoded,
    make_nonce,
)
from core.security.secret import Secret


@dataclass(frozen=True, slots=True)
class Continue:
    token: bytes


@dataclass(frozen=True, slots=True)
class Done:
    name: str
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """The login failed; the message says no more than the client may know, and holds nothing that it sent."""

    message: str


class ServerSteps(Protocol):
    """One authentication of one client; owned by one task."""

    def step(self, token: bytes) -> Continue | Done | Failed: ...


_OTHER_ID = Failed("Authentication failed: Client requested an authorization id that is different from username")


# --- PLAIN


class PlainUsers:
    """The users of PLAIN and their passwords; immutable. A login is compared with all of them, by hashes that a key of
    this process makes: how long that takes depends neither on the users nor on their passwords.
    """

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self._key = secrets.token_bytes(32)
        self._known = [self._digest(name, password.reveal()) for name, password in users.items()]

    def _digest(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{name}\0{password}".encode(), "sha256")

    def has(self, name: str, password: str) -> bool:
        """Returns whether there is that user with that password; neither may hold a NUL."""
        asked = self._digest(name, password)
        return sum(hmac.compare_digest(known, asked) for known in self._known) > 0


class PlainServer:
    """PLAIN (RFC 4616), see `PlainClient`; the texts are Kafka's (PlainSaslServer). Owned by one task."""

    def __init__(self, has_user: Callable[[str, str], bool]) -> None:
        """`has_user` returns whether a name and a password belong together."""
        self._has_user = has_user

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
        if not self._has_user(name, password):
            return Failed("Authentication failed: Invalid username or password")
        return Done(name) if authorization_id in ("", name) else _OTHER_ID


# --- SCRAM

_EXTENSIONS = rf"((?:,[A-Za-z]+={VALUE}*)*)"
_CLIENT_FIRST = re.compile(rf"(n,(?:a=({VALUE}+))?,)(n=({VALUE}+),r=({NONCE}){_EXTENSIONS})")
_CLIENT_FINAL = re.compile(rf"(c=([A-Za-z0-9+/]+=*),r=({NONCE})(?:,[A-Za-z]+={VALUE}*)*),p=([A-Za-z0-9+/]+=*)")

FindCredential = Callable[[str, bool], ScramCredential | None]
"""(name, whether it is that of a delegation token) -> what is kept of the user, or None."""


class ScramServer:
    """SCRAM, see scram.py; owned by one task. Stricter than Kafka, and as RFC 5802 has it: `c=` must be what the client
    began with, and an extension that must be understood (`m=`) is not.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: FindCredential,
        *,
        secret: bytes,
        find_usual: Callable[[], ScramCredential | None] = lambda: None,
        is_again: bool = False,
        nonce: str | None = None,
    ) -> None:
        """`find_usual` returns a credential such as most users have, if there are users: a name that nobody has gets
        its iterations, and a salt that looks like its own. That salt is made of `secret`, which is the same in all
        brokers of a cluster. `is_again` says that the client has authenticated before on its connection.
        """
        self._mechanism = mechanism
        self._find_credential = find_credential
        self._find_usual = find_usual
        self._secret = secret
        self._nonce = nonce or make_nonce()
        during = "re-authentication" if is_again else "authentication"
        reason = f"due to invalid credentials with SASL mechanism {mechanism.name}"
        self._failed = Failed(f"Authentication failed during {during} {reason}")
        self._begun: _Begun | None = None

    def step(self, token: bytes) -> Continue | Done | Failed:
        if len(token) > MOST_MESSAGE_BYTES:
            return self._failed
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return self._failed
        return self._begin(text) if self._begun is None else self._end(text, self._begun)

    def _begin(self, client_first: str) -> Continue | Failed:
        found = _CLIENT_FIRST.fullmatch(client_first)
        name = None if found is None else _unescape(found[4])
        if found is None or name is None:
            return self._failed
        if found[2] is not None and _unescape(found[2]) != name:
            return _OTHER_ID
        made_up = self._make_up(name)
        kept = self._find_credential(name, "tokenauth=true" in found[6].split(","))
        credential = kept or made_up
        nonce = found[5] + self._nonce
        nonces = nonce, found[5] + nonce
        server_first = f"r={nonce},s={encoded(credential.salt)},i={credential.iterations}"
        self._begun = _Begun(
            name, credential, nonces, found[1].encode(), f"{found[3]},{server_first}", is_known=kept is not None
        )
        return Continue(server_first.encode())

    def _make_up(self, name: str) -> ScramCredential:
        """Makes a credential that nobody has; always the same one for a name, as long as most users' look the same."""
        usual = self._find_usual()
        seed = hmac.digest(self._secret, f"{self._mechanism.name}\0{name}".encode(), "sha512")
        nothing = bytes(len(self._mechanism.hash(b"")))
        if usual is None:
            return ScramCredential(_salt_in_base_36(seed), nothing, nothing, LEAST_ITERATIONS)
        is_kafkas = KAFKAS_SALT.fullmatch(usual.salt)
        salt = _salt_in_base_36(seed) if is_kafkas else hashlib.shake_256(seed).digest(len(usual.salt))
        return ScramCredential(salt, nothing, nothing, usual.iterations)

    def _end(self, client_final: str, begun: _Begun) -> Done | Failed:
        found = _CLIENT_FINAL.fullmatch(client_final)
        if found is None or found[3] not in begun.nonces or decoded(found[2]) != begun.binding:
            return self._failed
        proof = decoded(found[4]) or b""
        message = f"{begun.messages},{found[1]}".encode()
        signature = self._mechanism.hmac(begun.credential.stored_key, message)
        if len(proof) != len(signature):
            return self._failed
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(self._mechanism.hash(client_key), begun.credential.stored_key)
        server_signature = self._mechanism.hmac(begun.credential.server_key, message)
        if not (is_right and begun.is_known):
            return self._failed
        return Done(begun.name, f"v={encoded(server_signature)}".encode())


@dataclass(frozen=True, slots=True)
class _Begun:
    """`binding` is how the client began, `messages` the first two without that. `nonces` may come back: the right one,
    and with the client's own before it once more, as librdkafka before 2.6.1 has it. Kafka 4 refuses that; a replay
    needs a nonce that this login did not give.
    """

    name: str
    credential: ScramCredential
    nonces: tuple[str, str]
    binding: bytes
    messages: str
    is_known: bool


def _salt_in_base_36(seed: bytes) -> bytes:
    number = int.from_bytes(seed) >> (8 * len(seed) - KAFKAS_SALT_BITS)
    digits = b""
    while number:
        number, digit = divmod(number, 36)
        digits = b"0123456789abcdefghijklmnopqrstuvwxyz"[digit : digit + 1] + digits
    return digits


def _unescape(text: str) -> str | None:
    """Returns the name, or None if an equals sign begins no escape."""
    if re.search("=(?!2C|3D)", text):
        return None
    return text.replace("=2C", ",").replace("=3D", "=")
