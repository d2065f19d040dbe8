"""Work that reads all logs under a path, which may take minutes: its progress, and how to stop it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from core.common.clock import Clock, SystemClock
from core.inspector.check.verify import size_to_check


class CheckState(Enum):
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


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


class Checking(ABC):
    """One run of the work: a thread does it, and any other looks at it meanwhile, and may stop it. A stopped run ends
    within some milliseconds; to begin again, make another.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        self.state = CheckState.RUNNING
        self._clock = clock or SystemClock()
        self.checked_bytes = self.total_bytes = 0
        self._started_ms = self._clock.monotonic_ms()
        self._ended_ms: int | None = None

    @abstractmethod
    def _work(self) -> None:
        """Does the work, and calls `add_bytes` as it goes along."""

    def run(self) -> None:
        """Does the work, to its end or until it is stopped. Raises PlogError or OSError if it fails."""
        end = CheckState.FAILED
        try:
            self.ensure_wanted()
            self.total_bytes = size_to_check(self.path)
            self._work()
            end = CheckState.FINISHED
        except _StoppedError:
            pass
        finally:
            self._end(end)

    def add_bytes(self, size_bytes: int) -> None:
        """Counts checked bytes; ends the work by an error of its own if it was stopped."""
        self.ensure_wanted()
        self.checked_bytes += size_bytes

    def ensure_wanted(self) -> None:
        if self.state is CheckState.STOPPED:
            raise _StoppedError

    def stop(self) -> None:
        """Stops it, if it has not ended; its findings until then stay."""
        self._end(CheckState.STOPPED)

    def _end(self, state: CheckState) -> None:
        if self.state is CheckState.RUNNING:
            self.state, self._ended_ms = state, self._clock.monotonic_ms()

    @property
    def progress(self) -> CheckProgress:
        ended_ms = self._clock.monotonic_ms() if self._ended_ms is None else self._ended_ms
        return CheckProgress(self.checked_bytes, self.total_bytes, ended_ms - self._started_ms)
