"""A clock that tests move."""

from __future__ import annotations


class ManualClock:
    """A `Clock` that moves only when it is moved."""

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


class ManualTime:
    """Stands for the module `time` where someone waits: a sleep takes no time, and moves the clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
