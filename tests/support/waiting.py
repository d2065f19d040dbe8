"""Waits for what nobody tells of: another process has read a line, a file has grown."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 120
_PAUSE_SECONDS = 0.01


def wait_until(is_so: Callable[[], object], what: str | Callable[[], str] = "", *, seconds: float = _SECONDS) -> None:
    """Asks again and again until the answer is yes; fails the test, with `what` was waited for, if it never is."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(_PAUSE_SECONDS)
