"""SASL at a listener: handles the frames of a connection whose client has not said who it is, in place of the
dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from core.broker.requests.client_session import Session
from core.broker.requests.request_dispatcher import Answer
from core.broker.serving.door import Door
from core.common.errors import MalformedMessageError
from core.security.principal import Principal


class FrameHandler(Protocol):
    """What answers the frames of a connection: see `RequestDispatcher.handle`."""

    def handle(self, frame: memoryview, session: Session | None = None) -> Answer: ...


class SaslAuthenticator:
    """One for each connection; owned by the broker's task."""

    def __init__(self, door: Door, dispatcher: FrameHandler, admit: Callable[[Principal, FrameHandler], None]) -> None:
        """`admit` is called with the client's principal once it is known, and with what handles its further frames."""
        self._door = door
        self._dispatcher = dispatcher
        self._admit = admit

    def handle(self, frame: memoryview, session: Session | None = None) -> Answer:  # noqa: ARG002 - as others have it
        """Raises MalformedMessageError for what a client may not send now: the connection is closed then."""
        raise MalformedMessageError("no mechanism of SASL is there yet")
