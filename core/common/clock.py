"""Time, from one place, so that tests control the clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Returns the time, and its differences."""

    def now_ms(self) -> int:
        """Returns milliseconds since the Unix epoch."""

    def monotonic_us(self) -> int:
        """Returns microseconds since a fixed moment; unlike the time of day, it can't be set."""

    def monotonic_ms(self) -> int:
        """Returns the same in milliseconds, for timeouts and idle times."""


class SystemClock:
    """The machine's clocks; immutable."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
