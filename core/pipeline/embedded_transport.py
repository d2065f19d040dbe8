"""Sends requests to a broker in this process: no sockets, the same dispatcher."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from core.broker.requests.handlers.produce import UnacknowledgedError
from core.broker.requests.request_dispatcher import RequestDispatcher
from core.common.errors import ConnectionFailedError
from core.common.pending import Pending
from core.files.file_records import FileRegion
from core.pipeline.frontend import SILENT, Undivided
from core.protocol.frame import SIZE
from core.protocol.primitives import Piece


class EmbeddedTransport:
    """Is a `core.client` transport; owned by one task. Nothing waits, for nobody else could act meanwhile. So a signal
    that ends the command does not come between a batch and what is noted of it, either.
    """

    def __init__(self, dispatcher: RequestDispatcher, undivided: Undivided = SILENT.undivided) -> None:
        self._dispatcher = dispatcher
        self._undivided = undivided
        self._answers: deque[memoryview] = deque()

    def send(self, frame: bytearray) -> None:
        with self._undivided(limit_s=float("inf")):
            self._send(frame)

    def _send(self, frame: bytearray) -> None:
        try:
            answer = self._dispatcher.handle(memoryview(frame)[SIZE.size :])
        except UnacknowledgedError:
            raise ConnectionFailedError("the broker refused a record that was sent with acks=0") from None
        if isinstance(answer, Pending):
            answer.on_value = self._keep
            answer.complete_now()
        elif answer is not None:
            self._keep(answer)

    def _keep(self, pieces: list[Piece]) -> None:
        whole = b"".join(p.read() if isinstance(p, FileRegion) else p for p in pieces)  # type: ignore[misc]
        self._answers.append(memoryview(whole)[SIZE.size :])

    def await_answer(self, on_silence: Callable[[str], None]) -> None:
        """Does nothing: the answer is there once the request is sent."""

    def receive(self) -> memoryview:
        return self._answers.popleft()

    def close(self) -> None:
        """Does nothing: the broker is closed by whoever opened it."""
