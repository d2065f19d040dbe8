"""PLAIN (RFC 4616): the client sends `authzid NUL name NUL password`, the server answers with nothing.

Kafka takes an authorization id only if it is empty or the name.
"""

from __future__ import annotations

from collections.abc import Callable

from core.common.errors import UsageError
from core.security.sasl.sasl_steps import Continue, Done, Failed, wrong_message

MECHANISM = "PLAIN"


class PlainClient:
    """Owned by one task."""

    def __init__(self, name: str, password: str) -> None:
        """Raises UsageError if the two can't be told apart."""
        if "\0" in name or "\0" in password:
            raise UsageError("a name or password of PLAIN can't hold a NUL")
        self._name = name
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._name}\0{self._password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise wrong_message(MECHANISM, f"{len(challenge)} bytes where none are due")
        return None


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
