"""PLAIN (RFC 4616): the client sends `authzid NUL name NUL password`, the server answers with nothing.

Kafka takes an authorization id only if it is empty or the name.
"""

from __future__ import annotations

from core.common.errors import UsageError
from core.security.sasl.sasl_steps import wrong_message

MECHANISM = "PLAIN"


class PlainClient:
    """Owned by one task."""

    def __init__(self, name: str, password: str) -> None:
        """Raises UsageError if either holds a NUL, which separates the two."""
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
