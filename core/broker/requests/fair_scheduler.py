"""Takes turns between connections that have more requests than one turn is worth; other requests are served in between.

A client may send thousands of requests without waiting for a response. A connection handles its requests for about
`TURN_SECONDS`, then stands in line; the line moves for at most `ROUND_SECONDS` before the loop looks at all other
sockets again. So one peer's queue, or two hundred queues, delay another peer's next request by one round at most.

A single request that takes longer is processed in steps (`stepped_answer.py`), turn by turn, too: a few such requests
at a time, because each holds its data in memory; the others wait until one of them is done. Work that holds nothing,
such as creating the logs of a topic, which may take a minute, does not wait for a place, and takes none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic  # noqa: TID251  how long a turn takes

from core.common.task import Task

TURN_SECONDS = 0.002
ROUND_SECONDS = 0.002
MOST_AT_WORK = 4


class FairScheduler:
    """The line of one server; owned by the loop's task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[Callable[[], None]] = deque()
        self._is_moving = False
        self._at_work = 0
        self._work: deque[Callable[[], bool]] = deque()
        self._queue: deque[Callable[[], None]] = deque()

    def wait(self, take_turn: Callable[[], None]) -> None:
        """Calls `take_turn` once, in its turn."""
        self._line.append(take_turn)
        self._move()

    def take(self, take_turn: Callable[[], bool]) -> None:
        """Calls `take_turn`, turn by turn, as long as it returns True: it has more to do."""

        def go_on() -> None:
            if take_turn():
                self.wait(go_on)

        self.wait(go_on)

    def queue(self, take_turn: Callable[[], None]) -> None:
        """Calls `take_turn` once. Each round calls one of this queue, and does not make it wait for those in line: a
        thousand handshakes of TLS at once delay others by one turn each, and a client that is not known has little
        time.
        """
        self._queue.append(take_turn)
        self._move()

    def work(self, take_turn: Callable[[], bool]) -> None:
        """As `take`, for work that holds memory: it starts when one of `MOST_AT_WORK` places is free."""
        if self._at_work == MOST_AT_WORK:
            self._work.append(take_turn)
            return
        self._at_work += 1

        def take_turn_in_place() -> bool:
            has_more = False
            try:
                has_more = take_turn()
            finally:
                if not has_more:
                    self._at_work -= 1
                    if self._work:
                        self.work(self._work.popleft())
            return has_more

        self.take(take_turn_in_place)

    @property
    def has_enough_work(self) -> bool:
        """Whether more such work would have to wait."""
        return self._at_work == MOST_AT_WORK

    def go_through(self, steps: Task[None]) -> None:
        """Does the broker's own work, a turn's worth at a time, besides all other work in the line."""

        def take_turn() -> bool:
            end_s = monotonic() + TURN_SECONDS
            return any(monotonic() >= end_s for _ in steps)

        self.take(take_turn)

    def _move(self) -> None:
        if (self._line or self._queue) and not self._is_moving:
            self._is_moving = True
            self._loop.call_soon(self._go_round)

    def _go_round(self) -> None:
        """Calls the first that is queued, and those in line now until the round is over."""
        end_s = monotonic() + ROUND_SECONDS
        try:
            if self._queue:
                self._queue.popleft()()
            for _ in range(len(self._line)):
                self._line.popleft()()
                if monotonic() >= end_s:
                    break
        finally:
            self._is_moving = False
            self._move()
