"""How many files of sealed segments are open at once: those used last.

The active segment of every partition is open; of the others, which may be many, only so many as the process may afford.
A file that an answer still points into stays open until the answer is sent, whatever is let go of here.
"""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from typing import Protocol

_MOST = 10_000


class HasFiles(Protocol):
    def release_files(self) -> None:
        """Lets go of what can be opened again."""


class OpenFiles:
    """Safe from any thread."""

    def __init__(self, limit: int | None = None) -> None:
        """At most `limit` segments; without one, so many that half of the process's descriptors are left: a segment
        takes up to three.
        """
        self._limit = limit or max(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 6, _MOST), 1)
        self._lock = threading.Lock()
        self._used: OrderedDict[HasFiles, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, segment: HasFiles) -> None:
        """The segment's files are open, and wanted just now."""
        released = []
        with self._lock:
            self._used[segment] = None
            self._used.move_to_end(segment)
            while len(self._used) > self._limit:
                released.append(self._used.popitem(last=False)[0])
        for other in released:
            other.release_files()

    def forget(self, segment: HasFiles) -> None:
        """The segment is no more."""
        with self._lock:
            self._used.pop(segment, None)
