"""Sends requests to a broker in this process: no sockets, the same dispatcher.

`LoopTransport` does it from another thread, to a broker whose event loop runs.

`EmbeddedBrokerLog` shows that broker's log: each line once, or only lines about topics that an answer rests on.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from core.broker.requests.handlers.produce import UnacknowledgedError
from core.broker.requests.request_dispatcher import RequestDispatcher
from core.common.errors import ConnectionFailedError
from core.common.pending import Pending
from core.files.file_names import parse_partition_directory_name
from core.files.file_records import FileRegion
from core.pipeline.frontend import SILENT, Undivided
from core.protocol.frame import SIZE
from core.protocol.primitives import Piece

if TYPE_CHECKING:
    from core.broker.broker_server import BrokerServer


@contextmanager
def each_line_once() -> Iterator[None]:
    """Passes each line of the engine's log once, unless logging was configured: a request that is repeated for a minute
    fails in the same way each time.
    """
    handler, seen = logging.lastResort, set[str]()
    assert handler is not None

    def once(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message not in seen
        seen.add(message)
        return is_new

    handler.addFilter(once)
    try:
        yield
    finally:
        handler.removeFilter(once)


_NAME = re.compile(r"(?:^|/)([A-Za-z0-9._-]+-\d+)(?=[:/ ]|$)")
"""The partition in a message: at its beginning, or in a path in its folder."""


class EmbeddedBrokerLog(logging.Handler):
    """Keeps the lines that a broker in this process logs about partitions, and shows all others at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._kept: list[tuple[str, str]] = []
        self.damaged: set[str] = set()
        """Topics with a logged error."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        partition = next(filter(None, map(parse_partition_directory_name, _NAME.findall(message))), None)
        if partition is None:
            self._say(message)
            return
        self._kept.append((partition.topic, message))
        if record.levelno >= logging.ERROR:
            self.damaged.add(partition.topic)

    def note_damage(self, node: BrokerServer) -> None:
        """Adds the topics with damage, though their logs are open."""
        losses, logs = node.services.losses, node.services.log_manager
        for partitions in (logs.offline, logs.with_wrong_tail, losses.unexplained, losses.undecided):
            self.damaged.update(partition.topic for partition in partitions)

    def say_of(self, rests_on: Callable[[str], bool]) -> None:
        for topic, message in self._kept:
            if rests_on(topic):
                self._say(message)


@contextmanager
def kept_talk(say: Callable[[str], None], rests_on: Callable[[str], bool]) -> Iterator[EmbeddedBrokerLog]:
    """Keeps lines about partitions during the block; at its end shows those of topics that `rests_on` names."""
    talk = EmbeddedBrokerLog(say)
    logging.getLogger("plog").addHandler(talk)
    try:
        yield talk
    finally:
        logging.getLogger("plog").removeHandler(talk)
        talk.say_of(rests_on)


class EmbeddedTransport:
    """A `core.client` transport; owned by one task. It never waits, because nobody else could act meanwhile. So a
    signal that ends the command does not come between a batch and its bookkeeping.
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
        """Does nothing: the answer is there when `send` returns."""

    def receive(self) -> memoryview:
        return self._answers.popleft()

    def close(self) -> None:
        """Does nothing: the opener of the broker closes it."""


class LoopTransport(EmbeddedTransport):
    """A transport from a thread to a broker that the loop's thread owns; owned by the former. `send` waits for the
    answer. Once `is_stopped` is set, it raises KeyboardInterrupt, as a signal does in the main thread.
    """

    def __init__(self, dispatcher: RequestDispatcher, call_in_loop: Callable[..., object], is_stopped: Event) -> None:
        """`call_in_loop` has the loop call a function with arguments, and does not wait for it."""
        super().__init__(dispatcher)
        self._call_in_loop = call_in_loop
        self._is_stopped = is_stopped

    def send(self, frame: bytearray) -> None:
        if self._is_stopped.is_set():
            raise KeyboardInterrupt
        answered: Future[list[Piece]] = Future()
        self._call_in_loop(self._handle, frame, answered)
        self._keep(answered.result())

    def _handle(self, frame: bytearray, answered: Future[list[Piece]]) -> None:
        try:
            answer = self._dispatcher.handle(memoryview(frame)[SIZE.size :])
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits
            answered.set_exception(error)
            return
        if isinstance(answer, Pending):
            answer.on_value, answer.on_failure = answered.set_result, answered.set_exception
        else:
            answered.set_result(answer or [])
