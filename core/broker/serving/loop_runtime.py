"""The runtime of a server: the timers of its event loop, and its threads.

`TimingWheel` has the timers of waiting requests: many are started, nearly all cancelled. All that are due in the same
tick share its place in a heap, and all ticks share one timer of the loop, that of the first: starting or cancelling one
costs a dict entry, and the loop does not wake for ticks whose timers were all cancelled. The idea is Kafka's
(org.apache.kafka.server.util.timer.TimingWheel), without its levels: the heap keeps the ticks in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from core.broker.requests.fair_scheduler import FairScheduler
from core.common.clock import Clock, SystemClock
from core.common.filesystem import access_error
from core.common.pending import TimerHandle

_TICK_MS = 10
_FINE_MS = 10 * _TICK_MS


class TimingWheel:
    """Owned by the loop's task. A delay of 100 ms and more may take up to 10 ms longer; smaller ones are exact.

    I1 the timer is set for the first tick of the heap, and not set if the heap is empty
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
        finally:  # if one failed, the others are called all the same
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


_log = logging.getLogger("plog.server")


class LoopRuntime:
    """A `Runtime`; owned by the loop's task. It may be made, and get work, before the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path) -> None:
        """`directory` is logged if an OSError does not say where it happened."""
        self.clock: Clock = SystemClock()
        self.turns = FairScheduler(loop)
        self.schedule = TimingWheel(loop).schedule
        self._loop = loop
        self._directory = directory
        self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plog-background")
        self._flushing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plog-flusher")
        self._cleaning = ThreadPoolExecutor(thread_name_prefix="plog-cleaner")
        self.run_in_background = partial(self._submit, self._background)
        self.run_flush = partial(self._submit, self._flushing)
        self.run_cleaning = partial(self._submit, self._cleaning)
        self._loading: threading.Thread | None = None
        self._is_stopped = False

    def _submit(
        self, thread: ThreadPoolExecutor, work: Callable[[], None], then: Callable[[], None] | None = None
    ) -> None:
        if self._is_stopped:
            return  # the broker's close does the rest

        def run() -> None:
            try:
                work()
            except OSError as error:  # for example of a checkpoint, which is written again when it is due
                _log.error("%s", access_error(error, error.filename or self._directory, "write to"))
                return
            except Exception:  # noqa: BLE001 - the door of the background thread
                _log.exception("background work failed")
                return
            if then is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(then)

        thread.submit(run)

    def run_loading(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Works in a thread of its own, which a read-only broker need not wait for at its end."""

        def run() -> None:
            work()
            if then is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(then)

        self._loading = threading.Thread(target=run, name="plog-load", daemon=True)
        self._loading.start()

    def stop_taking(self) -> None:
        """Takes no further work."""
        self._is_stopped = True

    def stop(self, *, waits_for_loading: bool) -> None:
        """Takes no further work, and returns when the running work is done. A running load is abandoned unless
        `waits_for_loading`: a read-only broker loses nothing by that, and it may take minutes.
        """
        self._is_stopped = True
        if self._loading is not None and waits_for_loading:
            self._loading.join()
        for pool in (self._cleaning, self._background, self._flushing):
            pool.shutdown(wait=True)
