"""Timers for requests that wait: many are started, nearly all cancelled.

All that come due in the same tick share its place in a heap, and all ticks share one timer of the loop's, that of the
first: to start or cancel one costs a dict entry, and the loop does not wake for ticks of which all were cancelled. The
idea is Kafka's (org.apache.kafka.server.util.timer.TimingWheel), without its levels: the heap keeps the ticks in order.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from core.common.pending import TimerHandle

_TICK_MS = 10
_FINE_MS = 10 * _TICK_MS


class TimingWheel:
    """Owned by the loop's task. A delay of 100 ms and more may take up to 10 ms longer; smaller ones are exact.

    I1 the timer is set for the first tick of the heap, and there is none if that is empty
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticks: dict[int, dict[_Task, None]] = {}
        self._heap: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, delay_ms: int, function: Callable[[], None]) -> TimerHandle:
        """Calls the function after that time, unless the handle is cancelled before."""
        if delay_ms < _FINE_MS:
            return self._loop.call_later(delay_ms / 1000, function)
        number = (int(self._loop.time() * 1000) + delay_ms) // _TICK_MS + 1
        tick = self._ticks.get(number)
        if tick is None:
            tick = self._ticks[number] = {}
            heapq.heappush(self._heap, number)
            if self._heap[0] == number:
                self._set_timer()
        task = _Task(tick, function)
        tick[task] = None
        return task

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0] * _TICK_MS / 1000, self._fire) if self._heap else None

    def _fire(self) -> None:
        tick = self._ticks[self._heap[0]]
        try:
            while tick:
                task = next(iter(tick))
                task.cancel()
                task.function()
        finally:  # if one failed, the others have their turn all the same
            while self._heap and not self._ticks[self._heap[0]]:
                del self._ticks[heapq.heappop(self._heap)]
            self._set_timer()

    def check_invariants(self) -> None:
        assert sorted(self._heap) == sorted(self._ticks), "each tick is in the heap once"
        first = self._heap[0] * _TICK_MS / 1000 if self._heap else None
        assert (self._timer.when() if self._timer is not None else None) == first, "the timer is set for another tick"


class _Task:
    __slots__ = ("_tick", "function")

    def __init__(self, tick: dict[_Task, None], function: Callable[[], None]) -> None:
        self._tick = tick
        self.function = function

    def cancel(self) -> None:
        self._tick.pop(self, None)
