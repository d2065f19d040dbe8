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
