"""How far replicas have moved, on stderr: a line that changes on a terminal; elsewhere a line every 10 s."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cli.progress import size_text
from cli.terminal import cut, find_width, say
from core.common.time_text import duration_text

if TYPE_CHECKING:
    from core.client.cluster_admin.reassignment_watch import MovedSoFar

_EVERY_SECONDS_IN_A_PIPE = 10.0


class MoveProgress:
    """Owned by one task."""

    def __init__(self) -> None:
        self._width = find_width(sys.stderr)
        self._started_s = time.monotonic()
        self._shown_s = self._started_s
        self._moved_before: int | None = None
        self.is_stopped = False
        """Whether the user was told after Ctrl-C that the moves go on."""

    def say(self, text: str) -> None:
        """Shows a message beside the line."""
        self.done()
        say(text)

    def show(self, state: MovedSoFar) -> None:
        now_s = time.monotonic()
        if self._moved_before is None:
            self._moved_before = state.moved_bytes  # by others, or before we looked
        if self._width is not None:
            sys.stderr.write("\r\x1b[K" + self._text(state, now_s, self._width - 1))
            sys.stderr.flush()
        elif now_s - self._shown_s >= _EVERY_SECONDS_IN_A_PIPE:
            self._shown_s = now_s
            print(self._text(state, now_s), file=sys.stderr, flush=True)

    def _text(self, state: MovedSoFar, now_s: float, width: int | None = None) -> str:
        """Shortens the text to the room there is; the rest and its time come first."""
        count = f"{state.done:,} of {state.partitions:,}"
        sizes, rate, left = self._of_bytes(state, now_s)
        unknown = f"{state.of_unknown_size:,} of unknown size" if sizes and state.of_unknown_size else ""
        texts = [
            ", ".join(filter(None, parts))
            for parts in (
                (f"{count} partitions are moved", sizes, unknown, rate, left),
                (f"{count} moved", sizes, rate, left),
                (sizes or f"{count} moved", rate, left),
                (sizes or f"{count} moved", left),
            )
        ]
        if width is None:
            return texts[0]
        return next((text for text in texts if len(text) <= width), cut(texts[-1], width))

    def _of_bytes(self, state: MovedSoFar, now_s: float) -> tuple[str, str, str]:
        """Returns bytes moved, rate and time left; unknown ones are empty."""
        if state.bytes_left is None:
            return "", "", ""
        sizes = f"{size_text(state.moved_bytes)} of {size_text(state.moved_bytes + state.bytes_left)}"
        per_s = (state.moved_bytes - (self._moved_before or 0)) / max(now_s - self._started_s, 1e-9)
        if per_s < 1:
            return sizes, "", ""
        time_left = f"{duration_text(round(state.bytes_left / per_s) * 1000)} left" if state.bytes_left else ""
        return sizes, f"{size_text(per_s)}/s", time_left

    def done(self) -> None:
        """Clears the line."""
        if self._width is not None:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
