"""What the mechanisms of SASL have in common: the client's steps and the server's, bytes in, bytes out, no I/O.

A client gives `first`, and then the answer to each message of the server's, until an answer is None: the server is
satisfied then, and has proven itself if the mechanism lets it. AuthenticationError says that the server's message is
wrong. Kafka's frames around the messages (SaslAuthenticate) are others' business.

A server answers each message of a client's with one of three: `Continue` with a message to send, after which another
one must come; `Done` with a last message to send and who the client is; `Failed` with what the client may know.
After the last two nothing more may come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from core.common.errors import AuthenticationError


class ClientSteps(Protocol):
    """One authentication of one client; owned by one task."""

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Answers; None if nothing is left to say. Raises AuthenticationError for a message no server should send."""


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


def wrong_message(mechanism: str, what: str) -> AuthenticationError:
    return AuthenticationError(f"the server's {mechanism} message is wrong: {what}")
