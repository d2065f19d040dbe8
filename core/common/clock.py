"""Time, from one place, so that tests control the clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and how much of it goes by."""

    def now_ms(self) -> int:
        """Gives milliseconds since the Unix epoch."""

    def monotonic_us(self) -> int:
        """Gives microseconds since some moment; nobody sets it."""

    def monotonic_ms(self) -> int:
        """Gives the same in milliseconds: what is due, or has been idle, goes by it."""


class SystemClock:
    """The machine's clocks; immutable."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when it is moved; for tests."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_us = now_ms * 1000
        self._set_by_us = 0

    def now_ms(self) -> int:
        return (self._now_us + self._set_by_us) // 1000

    def monotonic_us(self) -> int:
        return self._now_us

    def monotonic_ms(self) -> int:
        return self._now_us // 1000

    def set_wall_by(self, ms: int) -> None:
        """Acts as if somebody sets the machine's clock, forwards or back; no time goes by."""
        self._set_by_us += ms * 1000

    def advance(self, ms: float) -> None:
        self._now_us += round(ms * 1000)
