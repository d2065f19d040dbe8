"""The transactions of a partition that its indexes of aborted ones, and its newest snapshot, know of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from core.common.errors import CorruptRecordError, PlogError
from core.common.filesystem import FileSystem
from core.files.file_names import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, find_offset_files
from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage
from core.forensics.missing_offsets import Tail, TailKind, offsets_text
from core.forensics.read_committed import find_open_transactions
from core.forensics.segment_reader import SegmentReader
from core.index.transaction_index import AbortedTransaction, read_transaction_index
from core.view.map.map_cell import Fate
from core.view.map.map_intervals import Intervals
from core.view.map.map_segments import MapSegment

_MOST_INDEX_BYTES = 1024 * 1024
"""The most that is read of all transaction indexes: those of 30,000 transactions."""
_MOST_OPEN_BYTES = 64 * 1024 * 1024
"""How much of the log may follow its newest snapshot, for a look at what is open."""
_MOST_TAIL_BYTES = 1024 * 1024
_MOST_EARLIER = 64
"""How many segments before the newest snapshot are opened, for transactions that began there."""


class MapTransactions:
    """What is known of one listing's transactions; owned by one task."""

    def __init__(self, directory: Path, segments: Sequence[MapSegment]) -> None:
        """Reads the indexes of aborted transactions; of a log that has very many, the first."""
        self.notes: list[str] = []
        self.open: dict[int, int] | None = None
        """The first offsets of open transactions, by producer id; None while that is not known."""
        self._directory = directory
        self._segments = segments
        self._unread: set[int] = set()
        self._aborted = Intervals((one.first_offset, one.last_offset + 1, one) for one in self._read_indexes())

    def _read_indexes(self) -> Iterator[AbortedTransaction]:
        left = _MOST_INDEX_BYTES
        for number, segment in enumerate(self._segments):
            size_bytes = segment.transaction_index_bytes or 0
            left -= size_bytes
            if left < 0:
                self._unread.add(number)
            elif size_bytes:
                try:
                    yield from read_transaction_index(segment.file(TRANSACTION_INDEX_SUFFIX))
                except (CorruptRecordError, OSError) as error:
                    self._unread.add(number)
                    self.notes.append(str(error))

    def look_for_open(self, end_offset: int, position_after: int, sound_end: int) -> None:
        """Finds those that are open at the log's end, if little of the log follows its newest snapshot: the bytes from
        `position_after` on do, which is on the map's axis, as is `sound_end`, where the last sound batch ends.
        """
        size_bytes = self._segments[-1].end if self._segments else 0
        if size_bytes - position_after > _MOST_OPEN_BYTES:
            return
        numbers = [number for number, one in enumerate(self._segments) if one.end > position_after]
        first = max((numbers[0] if numbers else len(self._segments)) - _MOST_EARLIER, 0)
        wanted = [one for one in self._segments[first:] if one.size_bytes]
        with ExitStack() as opened:
            try:
                readers = [SegmentReader(one.path, one.base_offset, FileSystem()) for one in wanted]
            except OSError:
                return
            for reader in readers:
                opened.callback(reader.close)
            start_offset = wanted[0].base_offset if wanted else 0
            try:
                self.open = find_open_transactions(
                    self._directory, readers, start_offset, end_offset, lambda: self._find_tail(sound_end)
                )
            except (PlogError, OSError):
                self.open = None

    def _find_tail(self, sound_end: int) -> Tail | None:
        """Finds what follows the last sound batch, if that is damage alone, and little."""
        last = self._segments[-1]
        position = sound_end - last.start
        if not 0 <= position < last.size_bytes <= position + _MOST_TAIL_BYTES:
            return None
        found = list(BatchScanner(last.path, last.base_offset, None).walk_from(position))
        if len(found) != 1 or not isinstance(found[0], Damage):
            return None
        return Tail(TailKind.TORN, last.path, found[0])

    def newest_snapshot(self, end_offset: int) -> int | None:
        """Gives the offset of the newest snapshot that is not beyond the log's end; None if there is none."""
        try:
            found = find_offset_files(self._directory, SNAPSHOT_SUFFIX)
        except OSError:
            return None
        return max((offset for offset, _ in found if offset <= end_offset), default=None)

    def fates(self, start: int, end: int, first: int) -> tuple[frozenset[Fate], bool]:
        """Says what covers offsets [start, end), which begin in segment number `first`; and whether
        that is all.
        """
        found = set()
        if next(self._aborted.touching(start, end), None) is not None:
            found.add(Fate.ABORTED)
        if self.open and min(self.open.values()) < end:
            found.add(Fate.OPEN)
        is_all = self.open is not None and not any(number >= first for number in self._unread)
        return frozenset(found), is_all

    def texts(self, start: int, end: int) -> Iterator[str]:
        """Says which transactions cover offsets [start, end)."""
        for one in self._aborted.touching(start, end):
            offsets = offsets_text(one.first_offset, one.last_offset + 1)
            yield f"aborted: {offsets} of producer {one.producer_id}"
        for producer_id, first in (self.open or {}).items():
            if first < end:
                yield f"open: from offset {first} on, of producer {producer_id}"
