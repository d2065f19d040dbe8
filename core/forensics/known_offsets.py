"""The facts about one partition's log in other files than the log's; `known_offsets_of_directory.py` gathers them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from core.common.errors import UnreadableFileError
from core.forensics.truncated_segments import TruncatedSegment, find_truncated_segment


class WrongLine(NamedTuple):
    """A partition's line in a checkpoint of the root, bytes [position, end_position), that is not believed. Its number
    should be `right`; 0 if there should be no line.
    """

    path: Path
    line: int
    position: int
    end_position: int
    right: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}: it is not believed"


@dataclass(frozen=True, slots=True)
class KnownOffsets:
    """The offsets of one partition that files other than its logs state.

    Records below `known_end` were in the log, by the file `source`. The cleaner worked below `cleaned_below`.
    `lone_indexes` are the base offsets of segments of which an index is left and no log. `known_start` is where the log
    began before its first segments were lost; None if nothing says that any were. `first_base_offset` is that of the
    first log that is there, by its name.
    """

    log_start_offset: int = 0
    known_end: int = 0
    source: str = ""
    cleaned_below: int = 0
    newest_snapshot: int = 0
    lone_indexes: tuple[int, ...] = ()
    known_start: int | None = None
    first_base_offset: int = 0
    was_stopped_cleanly: bool = False
    directory: Path = Path()
    unreadable: tuple[UnreadableFileError, ...] = ()
    """Log files that can't be opened; `offset` is where such a segment begins."""
    wrong_start: WrongLine | None = None
    """The log start that is not believed; `log_start_offset` is that of the leader epochs instead, or 0."""
    wrong_watermark: WrongLine | None = None
    """The high watermark that is not believed; `known_end` is without it then."""
    contradicted_start: int | None = None
    """After a crash, which may leave it so: where the leader epochs let the log begin, below `log_start_offset`."""
    base_offsets: tuple[int, ...] = ()
    """The base offsets of the existing logs, in order; none while they are being cleaned."""
    given_up: Sequence[tuple[int, int]] = ()
    """The offsets [start, end) that recoveries gave up, in order."""
    origin: Path = Path()
    """The partition's folder as its owner left it, of which `directory` may be a shadow."""

    def start_of(self, first_base_offset: int | None) -> int:
        """Returns where a log begins whose first readable segment, if not None, begins at that offset."""
        known = [first_base_offset, self.known_start, *(error.offset for error in self.unreadable)]
        return max(min((offset for offset in known if offset is not None), default=0), self.log_start_offset)

    def find_truncated_segment(self, start: int, end: int) -> TruncatedSegment | None:
        """Finds a segment after which offsets [start, end) are missing, and whose own indexes say that it held some."""
        bases = self.base_offsets
        for following in range(max(bisect_right(bases, start), 1), bisect_right(bases, end)):
            cut = find_truncated_segment(self.origin, bases[following - 1], bases[following])
            if cut is not None:
                return cut
        return None

    def compacted_below(self, sizes: Iterable[tuple[int, int]], *, is_thinned: bool) -> int:
        """Returns the offset below which holes are the cleaner's: by its checkpoint, and if `is_thinned`, as batches
        show that it was at this log, up to the last segment, which it never touches. `sizes` are the segments' base
        offsets and sizes; the name of an empty one at the log's end, which nothing else knows of, proves nothing.
        """
        if not is_thinned:
            return self.cleaned_below
        known = (base for base, size in sizes if size or base <= self.known_end)
        return max([self.cleaned_below, *known])
