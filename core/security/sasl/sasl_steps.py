"""What the mechanisms of SASL have in common: the client's steps, bytes in, bytes out, no I/O.

A client gives `first`, and then the answer to each message of the server's, until an answer is None: the server is
satisfied then, and has proven itself if the mechanism lets it. AuthenticationError says that the server's message is
wrong. Kafka's frames around the messages (SaslAuthenticate) are others' business.
"""

from __future__ import annotations

from typing import Protocol

from core.common.errors import AuthenticationError


class ClientSteps(Protocol):
    """One authentication of one client; owned by one task."""

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Answers; None if nothing is left to say. Raises AuthenticationError for a message no server should send."""


def wrong_message(mechanism: str, what: str) -> AuthenticationError:
    return AuthenticationError(f"the server's {mechanism} message is wrong: {what}")
