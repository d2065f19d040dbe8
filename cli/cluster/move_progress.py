"""How far replicas have moved, on stderr: a line that changes on a terminal; elsewhere a line every 10 s."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cli.options import say
from cli.progress import size_text
from cli.terminal import cut, find_width
from core.common.time_text import duration_text

if TYPE_CHECKING:
    from core.client.reassignment_watch import MovedSoFar

_EVERY_SECONDS_IN_A_PIPE = 10.0


class MoveProgress:
    """Owned by one task."""

    def __init__(self) -> None:
        self._width = find_width(sys.stderr)
        self._started_s = time.monotonic()
        self._shown_s = self._started_s
        self._moved_before: int | None = None
        self.is_stopped = False
        """Whether the user has been told what becomes of it after Ctrl-C."""

    def say(self, text: str) -> None:
        """Says something beside the line."""
        self.done()
        say(text)

    def show(self, state: MovedSoFar) -> None:
        now_s = time.monotonic()
        if self._moved_before is None:
            self._moved_before = state.moved_bytes  # by others, or before we looked
        if self._width is not None:
            sys.stderr.write("\r\x1b[K" + cut(self._text(state, now_s), self._width - 1))
            sys.stderr.flush()
        elif now_s - self._shown_s >= _EVERY_SECONDS_IN_A_PIPE:
            self._shown_s = now_s
            print(self._text(state, now_s), file=sys.stderr, flush=True)

    def _text(self, state: MovedSoFar, now_s: float) -> str:
        parts = [f"{state.done:,} of {state.partitions:,} partitions are moved"]
        if state.bytes_left is not None:
            parts.append(f"{size_text(state.moved_bytes)} of {size_text(state.moved_bytes + state.bytes_left)}")
            per_s = (state.moved_bytes - (self._moved_before or 0)) / max(now_s - self._started_s, 1e-9)
            if per_s >= 1:
                parts.append(f"{size_text(per_s)}/s")
                if state.bytes_left:
                    parts.append(f"{duration_text(round(state.bytes_left / per_s) * 1000)} left")
        return ", ".join(parts)

    def done(self) -> None:
        """Takes the line away."""
        if self._width is not None:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
