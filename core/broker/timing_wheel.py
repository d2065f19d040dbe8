"""Timers for requests that wait: many are started, nearly all cancelled.

All that come due in the same tick share one timer of the loop's: to start or cancel one costs a dict entry.
The idea is Kafka's (org.apache.kafka.server.util.timer.TimingWheel), without its levels: the loop's heap keeps the
ticks in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.common.pending import TimerHandle

_TICK_MS = 10
_FINE_MS = 10 * _TICK_MS


class TimingWheel:
    """Owned by the loop's task. A delay of 100 ms and more may take up to 10 ms longer; smaller ones are exact."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticks: dict[int, dict[_Task, None]] = {}

    def schedule(self, delay_ms: int, function: Callable[[], None]) -> TimerHandle:
        """Calls the function after that time, unless the handle is cancelled before."""
        if delay_ms < _FINE_MS:
            return self._loop.call_later(delay_ms / 1000, function)
        number = (int(self._loop.time() * 1000) + delay_ms) // _TICK_MS + 1
        tick = self._ticks.get(number)
        if tick is None:
            tick = self._ticks[number] = {}
            self._loop.call_at(number * _TICK_MS / 1000, self._fire, number)
        task = _Task(tick, function)
        tick[task] = None
        return task

    def _fire(self, number: int) -> None:
        tick = self._ticks.pop(number)
        try:
            while tick:
                task = next(iter(tick))
                task.cancel()
                task.function()
        finally:
            if tick:  # one failed: the others have their turn all the same
                self._ticks[number] = tick
                self._loop.call_later(0, self._fire, number)


class _Task:
    __slots__ = ("_tick", "function")

    def __init__(self, tick: dict[_Task, None], function: Callable[[], None]) -> None:
        self._tick = tick
        self.function = function

    def cancel(self) -> None:
        self._tick.pop(self, None)
