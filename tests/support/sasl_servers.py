"""What the product's server of SASL lacks, for clients that authenticate: OAUTHBEARER's steps, and a user's credential
of a password. `tests/support/secured_door.py` is a door that has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from core.security.sasl.scram import ScramCredential, ScramMechanism
from core.security.sasl.server_steps import Continue, Done, Failed


def credential_of(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Makes what a server keeps of a user."""
    salted = mechanism.salted_password(password, salt, iterations)
    return ScramCredential(salt, mechanism.stored_key(salted), mechanism.server_key(salted), iterations)


@dataclass(frozen=True, slots=True)
class BearerDone(Done):
    extensions: dict[str, str] = field(default_factory=dict)
    expires_at_ms: int | None = None


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
        return BearerDone(bearer.name, extensions=found.extensions, expires_at_ms=bearer.expires_at_ms)


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
