"""Waits for what nobody tells of: another process has read a line, a file has grown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_SECONDS = 120
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.3
_WORTH = 2


def wait_until(is_so: Callable[[], object], what: str | Callable[[], str] = "", *, seconds: float = _SECONDS) -> None:
    """Asks again and again until the answer is yes; fails the test, with `what` was waited for, if it never is. Between
    two questions the machine is left to whoever is waited for: the longer, the more a question takes of it.
    """
    deadline = time.monotonic() + seconds
    while True:
        before = _cpu_seconds()
        if is_so():
            return
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        pause = _WORTH * (_cpu_seconds() - before)
        time.sleep(min(max(pause, _PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))


def _cpu_seconds() -> float:
    """What this process, and those that it has waited for, have used."""
    return sum(os.times()[:4])
