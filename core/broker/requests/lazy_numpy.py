"""Has another thread load the libraries that go through records by columns, before the broker's first such work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from core.common.background import RunInBackground
from core.records.record_walk import load_libraries


class LazyNumpy:
    """Knows whether the libraries are there, and who waits for them; owned by the broker's task."""

    def __init__(self, run_in_background: RunInBackground) -> None:
        self.are_loaded = False
        self._run_in_background = run_in_background
        self._waiting: list[Callable[[], None]] = []

    def when_loaded(self, work: Callable[[], None]) -> None:
        """Calls `work` once: now if they are loaded, else later; also if they can't be loaded, as it meets the error
        then.
        """
        if self.are_loaded:
            work()
            return
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._run_in_background(self._load, self._go_on)

    def _load(self) -> None:
        with suppress(Exception):  # whoever walks then meets it
            load_libraries()
            self.are_loaded = True

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()
