"""A delay of which a person hears once it has lasted for a while: most are over before anybody would ask."""

from __future__ import annotations

import time
from collections.abc import Callable

_QUIET_SECONDS = 3.0
"""Leaders change in less, usually."""


class SlowNotice:
    """Owned by one task."""

    def __init__(self, report: Callable[[str], None], seconds: float) -> None:
        """`report` is called with what keeps somebody waiting, and again when it is over. `seconds` is how long it is
        tried in all.
        """
        self._report = report
        self._seconds = seconds
        self._began_s: float | None = None
        self._is_reported = False

    def note(self, error: Exception, since_s: float | None = None) -> None:
        """Notes that it failed, and is tried again. `since_s` is when the delay began, by `time.monotonic`; now, if it
        is not given.
        """
        now = time.monotonic()
        if self._began_s is None:
            self._began_s = now if since_s is None else since_s
        if not self._is_reported and now - self._began_s >= _QUIET_SECONDS:
            self._is_reported = True
            self._report(f"{error}; it is tried again for {self._seconds:g} s")

    def end(self) -> None:
        """Notes that it went well."""
        if self._is_reported and self._began_s is not None:
            self._report(f"it goes on, after {time.monotonic() - self._began_s:.1f} s")
        self._began_s, self._is_reported = None, False
