"""A line on stderr that says how far a long job has come; nothing where nobody looks."""

from __future__ import annotations

import sys
import time

_EVERY_SECONDS = 0.2


class Progress:
    """Counts things and bytes; owned by one task. Silent unless stderr is a terminal."""

    def __init__(self, verb: str, things: str, total_bytes: int | None = None) -> None:
        self._verb = verb
        self._things = things
        self._total_bytes = total_bytes
        self._started_s = time.monotonic()
        self._shown_s = self._started_s
        self._is_shown = False
        self._is_terminal = sys.stderr.isatty()
        self.count = 0
        self.bytes = 0

    def add(self, count: int, size_bytes: int = 0) -> None:
        self.count += count
        self.bytes += size_bytes
        if self._is_terminal and time.monotonic() - self._shown_s >= _EVERY_SECONDS:
            self._show()

    def _show(self) -> None:
        self._shown_s = time.monotonic()
        self._is_shown = True
        elapsed = max(self._shown_s - self._started_s, 1e-9)
        sizes = f"{size_text(self.bytes)}, {size_text(self.bytes / elapsed)}/s"
        if self._things == "bytes":
            parts = [f"{self._verb} {sizes}"]
        else:
            parts = [f"{self._verb} {self.count:,} {self._things}", f"{self.count / elapsed:,.0f}/s"]
            if self.bytes:
                parts.append(sizes)
        if self._total_bytes:
            parts.append(f"{100 * self.bytes / self._total_bytes:.0f} %")
        sys.stderr.write("\r\x1b[K" + ", ".join(parts))
        sys.stderr.flush()

    def done(self) -> None:
        """Takes the line away."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def size_text(size_bytes: float) -> str:
    """1536 -> 1.5 KB; powers of 1000 would say 1.54."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(size_bytes) < 1024 or unit == "TB":
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError
