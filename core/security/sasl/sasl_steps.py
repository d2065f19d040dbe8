"""The common part of SASL mechanisms: the client's steps, bytes in, bytes out, no I/O.

A client sends `first`, and then the answer to each message of the server, until an answer is None: then the server is
satisfied, and has proven itself if the mechanism lets it. AuthenticationError means that the server's message is wrong.
The caller adds Kafka's frames around the messages (SaslAuthenticate).
"""

from __future__ import annotations

from typing import Protocol

from core.common.errors import AuthenticationError


class ClientSteps(Protocol):
    """One authentication of one client; owned by one task."""

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Returns the answer, or None if the exchange is over. Raises AuthenticationError for an invalid message."""


def wrong_message(mechanism: str, what: str) -> AuthenticationError:
    return AuthenticationError(f"the server's {mechanism} message is wrong: {what}")
