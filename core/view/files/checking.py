"""Work that reads all logs under a path, which may take minutes: its progress, and how to stop it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from core.common.clock import Clock, SystemClock
from core.common.errors import PlogError
from core.common.filesystem import access_error
from core.inspector.check.verify import size_to_check


class CheckState(Enum):
    READY = "not begun"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


_FOLLOWING = {
    CheckState.READY: {CheckState.RUNNING},
    CheckState.RUNNING: {CheckState.FINISHED, CheckState.STOPPED, CheckState.FAILED},
    CheckState.FINISHED: {CheckState.RUNNING},
    CheckState.STOPPED: {CheckState.RUNNING},
    CheckState.FAILED: {CheckState.RUNNING},
}


class CheckProgress(NamedTuple):
    """The bytes checked, the total (0 if unknown), and the time taken."""

    checked_bytes: int
    total_bytes: int
    elapsed_ms: int

    @property
    def bytes_per_second(self) -> float:
        return self.checked_bytes * 1000 / self.elapsed_ms if self.elapsed_ms else 0.0

    @property
    def left_bytes(self) -> int:
        return max(self.total_bytes - self.checked_bytes, 0)

    @property
    def left_seconds(self) -> float | None:
        """Returns how long the rest takes at this rate, or None if that is not known."""
        rate = self.bytes_per_second
        return self.left_bytes / rate if rate and self.total_bytes else None


class _StoppedError(Exception):
    """Ends the work from within after a stop."""


class CheckRun:
    """One run of the work: its thread writes the numbers, and any thread reads them."""

    def __init__(self, now_ms: int) -> None:
        self.is_stopped = False
        self.checked_bytes = 0
        self.total_bytes = 0
        self.started_ms = now_ms
        self.ended_ms: int | None = None

    def add_bytes(self, size_bytes: int) -> None:
        """Counts checked bytes; ends the work by an error of its own if it was stopped."""
        self.ensure_wanted()
        self.checked_bytes += size_bytes

    def ensure_wanted(self) -> None:
        if self.is_stopped:
            raise _StoppedError


class Checking(ABC):
    """Guarded by its lock. `start` returns the work, which the caller runs in a thread; all other methods may be called
    meanwhile. A stopped run ends within some milliseconds, and changes nothing any more: the next may begin at once.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        self.state = CheckState.READY
        self.error: PlogError | None = None
        """Why it failed."""
        self._clock = clock or SystemClock()
        self._run = CheckRun(0)
        self._lock = threading.Lock()

    @abstractmethod
    def _begin(self) -> None:
        """Forgets the results of the run before."""

    @abstractmethod
    def _work(self, run: CheckRun) -> Callable[[], None]:
        """Does the work, and calls `run.add_bytes` as it goes along. Returns a function that records the outcome,
        called unless the run was stopped.
        """

    def start(self) -> Callable[[], None]:
        """Begins, or begins again. Returns the work as a function, which returns when the work is over; errors about
        the files are recorded, not raised.
        """
        with self._lock:
            self._change(CheckState.RUNNING)
            self.error = None
            run = self._run = CheckRun(self._clock.monotonic_ms())
            self._begin()
        return lambda: self._do(run)

    def stop(self) -> None:
        """Stops it, if it is running; its findings until then stay."""
        with self._lock:
            if self.state is CheckState.RUNNING:
                self._run.is_stopped = True
                self._end(CheckState.STOPPED)

    @property
    def progress(self) -> CheckProgress:
        run = self._run
        if self.state is CheckState.READY:
            return CheckProgress(0, 0, 0)
        ended_ms = self._clock.monotonic_ms() if run.ended_ms is None else run.ended_ms
        return CheckProgress(run.checked_bytes, run.total_bytes, ended_ms - run.started_ms)

    def _do(self, run: CheckRun) -> None:
        try:
            run.ensure_wanted()
            run.total_bytes = size_to_check(self.path)
            note = self._work(run)
        except _StoppedError:
            return
        except PlogError as error:
            self._fail(run, error)
        except OSError as error:
            self._fail(run, access_error(error, error.filename or self.path, "read"))
        else:
            self._finish(run, CheckState.FINISHED, note)

    def _fail(self, run: CheckRun, error: PlogError) -> None:
        def note() -> None:
            self.error = error

        self._finish(run, CheckState.FAILED, note)

    def _finish(self, run: CheckRun, state: CheckState, note: Callable[[], None]) -> None:
        with self._lock:
            if not run.is_stopped:
                note()
                self._end(state)

    def _end(self, state: CheckState) -> None:
        self._run.ended_ms = self._clock.monotonic_ms()
        self._change(state)

    def _change(self, state: CheckState) -> None:
        assert state in _FOLLOWING[self.state], f"{self.state} -> {state}"
        self.state = state
