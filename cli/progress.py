"""The progress of a long job, on stderr: a line that changes on a terminal; elsewhere a line every 10 s."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from cli.terminal import cut, find_width

_EVERY_SECONDS = 0.2
_EVERY_SECONDS_IN_A_PIPE = 10.0


class Progress:
    """Counts things and bytes; owned by one task. Shows nothing for work that is shorter than its interval."""

    def __init__(
        self,
        verb: str,
        things: str,
        total_bytes: int | None = None,
        *,
        more: Callable[[], list[str]] = list,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`more` is called when the line is shown, and returns what it says besides."""
        self._more = more
        self._now_s = now_s
        self._verb = verb
        self._things = things
        self._total_bytes = total_bytes
        self._started_s = self._now_s()
        self._shown_s = self._started_s
        self._is_shown = False
        self._width = find_width(sys.stderr)
        self._every_s = _EVERY_SECONDS_IN_A_PIPE if self._width is None else _EVERY_SECONDS
        self.count = 0
        self.bytes = 0

    def add(self, count: int, size_bytes: int = 0) -> None:
        self.count += count
        self.bytes += size_bytes
        now_s = self._now_s()
        if now_s - self._shown_s < self._every_s:
            return
        self._shown_s = now_s
        if self._width is None:
            print(f"{self._text()}, {now_s - self._started_s:.0f} s", file=sys.stderr, flush=True)
            return
        self._is_shown = True
        sys.stderr.write("\r\x1b[K" + cut(self._text(), self._width - 1))
        sys.stderr.flush()

    def _text(self) -> str:
        elapsed = max(self._shown_s - self._started_s, 1e-9)
        done = size_text(self.bytes)
        if self._total_bytes:
            done += f" of {size_text(self._total_bytes)}"
        sizes = f"{done}, {size_text(self.bytes / elapsed)}/s"
        if self._things == "bytes":
            parts = [f"{self._verb} {sizes}"]
        else:
            parts = [f"{self._verb} {self.count:,} {self._things}", f"{self.count / elapsed:,.0f}/s"]
            if self.bytes:
                parts.append(sizes)
        if self._total_bytes:
            parts.append(f"{100 * self.bytes / self._total_bytes:.0f} %")
        return ", ".join(parts + self._more())

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    def done(self) -> None:
        """Clears the line; the end of a block does so, too."""
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
