"""Reports a delay to the user once it has lasted for a while: most are shorter."""

from __future__ import annotations

import time
from collections.abc import Callable

_QUIET_SECONDS = 3.0
"""Leader changes usually take less."""


class SlowNotice:
    """Owned by one task."""

    def __init__(self, report: Callable[[str], None], seconds: float) -> None:
        """`report` is called with the reason of the delay, and again at its end. `seconds` is the limit of all
        tries.
        """
        self._report = report
        self._seconds = seconds
        self._began_s: float | None = None
        self._is_reported = False

    def note(self, error: Exception, since_s: float | None = None) -> None:
        """Notes a failed try that will be repeated. `since_s` is the start of the delay, by `time.monotonic`; default
        now.
        """
        now = time.monotonic()
        if self._began_s is None:
            self._began_s = now if since_s is None else since_s
        if not self._is_reported and now - self._began_s >= _QUIET_SECONDS:
            self._is_reported = True
            self._report(f"{error}; it is tried again for {self._seconds:g} s")

    def end(self) -> None:
        """Notes a success."""
        if self._is_reported and self._began_s is not None:
            self._report(f"it goes on, after {time.monotonic() - self._began_s:.1f} s")
        self._began_s, self._is_reported = None, False
