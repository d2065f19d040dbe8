"""Connections with more requests than one turn is worth: they take turns, and everybody else is served in between.

A client may send thousands of requests without waiting for an answer. A connection handles what came for about
`TURN_SECONDS`, then stands in line; the line moves for at most `ROUND_SECONDS` before the loop looks at all the other
sockets again. So what one peer has in the queue, or two hundred, costs another's next request no more than a round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

TURN_SECONDS = 0.002
ROUND_SECONDS = 0.005


class Turns:
    """The line of one server; owned by the loop's task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[Callable[[], None]] = deque()
        self._is_moving = False

    def wait(self, take_turn: Callable[[], None]) -> None:
        """Calls back once, when the turn comes."""
        self._line.append(take_turn)
        self._move()

    def _move(self) -> None:
        if self._line and not self._is_moving:
            self._is_moving = True
            self._loop.call_soon(self._go_round)

    def _go_round(self) -> None:
        """Those who stand in line now, as long as the round lasts."""
        end_s = monotonic() + ROUND_SECONDS
        for _ in range(len(self._line)):
            self._line.popleft()()
            if monotonic() >= end_s:
                break
        self._is_moving = False
        self._move()
