"""Runs the broker's work: its clock, its timers, the threads of its slow work, and the turns that connections take.

A broker gets its runtime when it is opened, and keeps it. `ImmediateRuntime` is for commands that work on a data
directory without a server: it does everything at once. `core.broker.serving.loop_runtime` has that of a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from core.broker.requests.fair_scheduler import FairScheduler
from core.common.background import run_now
from core.common.clock import Clock, SystemClock
from core.common.pending import TimerHandle
from core.common.task import Task, finish


class Runtime(Protocol):
    """Owned by the broker's task. Each `run_` method is a `RunInBackground` with a thread, or a pool, of its own."""

    @property
    def clock(self) -> Clock: ...

    @property
    def turns(self) -> FairScheduler | None:
        """The line in which long work waits for its turns, or None if no other requests need turns meanwhile."""

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        """Calls the function after that time, as `core.common.pending.Schedule` says."""
        ...

    def run_in_background(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Does disk work that may take long: checkpoints, the deletion of files."""

    def run_flush(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Flushes logs."""

    def run_cleaning(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Waits for the processes that clean compacted logs."""

    def run_loading(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Reads a log that is opened on first use, one at a time."""


class ImmediateRuntime:
    """Does all work before the call returns. Timers never run: deleted topics' folders go at the next start."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        self.turns: FairScheduler | None = None
        self.run_in_background = self.run_flush = self.run_cleaning = self.run_loading = run_now

    def schedule(self, _delay_ms: int, _function: Callable[[], None], /) -> TimerHandle:
        return _NoTimer()


class _NoTimer:
    def cancel(self) -> None:
        pass


def go_through(runtime: Runtime, steps: Task[None]) -> None:
    """Does the broker's own work: in turns with other requests, or at once if there are no turns."""
    if runtime.turns is None:
        finish(steps)
    else:
        runtime.turns.go_through(steps)
