"""What a reader of committed records gets of a log's transactions, batch after batch.

A transaction's marker follows its records. It is looked for ahead of the reader, once for all: what is read on the way
waits to be given (`ReadAhead`), and after some megabytes the files are gone through in headers alone. If the marker is
found and nothing is missing before it, it decides. If something is missing or damaged, the whole log is weighed
(`core.log.transaction_fates`).
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from core.common.errors import CorruptRecordError
from core.log.file_records import FileRecords
from core.log.hole import Hole, HoleReason
from core.log.transaction_marker import FateKind, Marker, read_marker
from core.records.batches import CURRENT_MAGIC, Batch
from core.records.control_record import LARGEST_MARKER, is_plain_commit
from core.records.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch

if TYPE_CHECKING:
    from core.log.transaction_fates import TransactionFate

_MOST_WAITING_BYTES = 8 * 1024 * 1024
_HEADER = struct.Struct(">qi4xB4xHi30xi")  # base offset, length, magic, attributes, last offset delta, count


Page = Sequence[Batch | Hole]
"""Of a log, in order, without a gap between; never empty."""


class Outcome(NamedTuple):
    """`whole` is what was found out where the log alone does not tell; `marker_offset` is that of an aborted one, None
    if it is not known.
    """

    fate: FateKind
    marker_offset: int | None
    whole: TransactionFate | None = None


_COMMITTED = Outcome(FateKind.COMMITTED, None)
_OF_TRANSACTION = TRANSACTIONAL_FLAG | CONTROL_FLAG


class ReadAhead:
    """Gives the items of a log in order, page by page, and the markers of transactions that follow the page that was
    given last; owned by one task.
    """

    def __init__(self, pages: Iterator[Page], markers_from: Callable[[int], Iterator[Marker]]) -> None:
        """`markers_from` gives the markers from an offset on without reading what is between, as of `markers_in`."""
        self._pages = pages
        self._markers_from = markers_from
        self._waiting: deque[Page] = deque()
        self._waiting_bytes = 0

    def __iter__(self) -> Iterator[Page]:
        waiting = self._waiting
        while True:
            while waiting:
                page = waiting.popleft()
                self._waiting_bytes -= _size_of(page)
                yield page
            following = next(self._pages, None)
            if following is None:
                return
            yield following

    def markers(self) -> Iterator[Marker]:
        """In order, from the page on that follows the one that was given last; asked for once. Ends before anything
        that is damaged or missing, but for what a cleaner took.
        """
        for page in self._pages:
            self._waiting.append(page)
            self._waiting_bytes += _size_of(page)
            for item in page:
                if isinstance(item, Hole):
                    if item.reason is not HoleReason.COMPACTED:
                        return
                elif isinstance(item, RecordBatch) and item.is_control and item.is_transactional:
                    try:
                        marker = read_marker(item)
                    except CorruptRecordError:
                        return
                    if marker is not None:
                        yield marker
            if self._waiting_bytes > _MOST_WAITING_BYTES:
                yield from self._markers_after(page[-1])
                return

    def _markers_after(self, last: Batch | Hole) -> Iterator[Marker]:
        offset = last.end - 1 if isinstance(last, Hole) else last.last_offset
        return (marker for marker in self._markers_from(offset) if marker.offset > offset)


def _size_of(page: Page) -> int:
    return sum(item.size_bytes for item in page if not isinstance(item, Hole))


class TransactionOutcomes:
    """Owned by one task; asked for batches in order of offsets."""

    def __init__(self, markers: Iterator[Marker], find_fates: Callable[[], list[TransactionFate]]) -> None:
        """`markers`: those that follow the first batch that will be asked for, or that and others before it, up to
        anything that is missing. `find_fates` is called when the markers do not tell.
        """
        self._ahead = markers
        self._find_fates = find_fates
        self._found = deque[Marker]()
        """Those that lie ahead of the last batch, as far as was read: a transaction that stays open keeps them all."""
        self._markers = defaultdict[int, deque[Marker]](deque)
        """The same by producer id."""
        self._fates: dict[int, TransactionFate] | None = None

    def in_page(self, page: Page) -> list[Outcome | None]:
        """Of each batch of records of a transaction what the page itself tells of it, if it does: its marker is there,
        or something is missing before any marker could come. Else None; `of` tells then, by the markers after the page.
        """
        outcomes: list[Outcome | None] = [None] * len(page)
        ends: dict[int, Outcome] = {}
        is_certain = True
        for number in range(len(page) - 1, -1, -1):
            item = page[number]
            if isinstance(item, RecordBatch):
                kind = item.attributes & _OF_TRANSACTION
                if kind == TRANSACTIONAL_FLAG:
                    outcomes[number] = ends.get(item.producer_id) or (None if is_certain else self._weighed(item))
                elif kind == _OF_TRANSACTION:
                    if is_plain_commit(item):
                        ends[item.producer_id] = _COMMITTED
                        continue
                    try:
                        marker = read_marker(item)
                    except CorruptRecordError:
                        ends, is_certain = {}, False
                        continue
                    if marker is not None:
                        ends[marker.producer_id] = _outcome_by(marker)
            elif isinstance(item, Hole) and item.reason is not HoleReason.COMPACTED:
                ends, is_certain = {}, False
        return outcomes

    def of(self, batch: Batch) -> Outcome:
        """Of a batch of records of a transaction."""
        marker = self.find_marker(batch)
        return self._weighed(batch) if marker is None else _outcome_by(marker)

    def _weighed(self, batch: Batch) -> Outcome:
        """The same by all that is known of the log."""
        if self._fates is None:
            self._fates = {base: fate for fate in self._find_fates() for base, _ in fate.batches}
        fate = self._fates.get(batch.base_offset)
        return Outcome(FateKind.OPEN, None) if fate is None else Outcome(fate.fate, fate.marker_offset, fate)

    def find_marker(self, batch: Batch) -> Marker | None:
        """The marker that follows, if nothing is missing up to there."""
        producer_id, base_offset = batch.producer_id, batch.base_offset
        while self._found and self._found[0].offset < base_offset:
            passed = self._found.popleft().producer_id
            self._markers[passed].popleft()
            if not self._markers[passed]:
                del self._markers[passed]
        if producer_id in self._markers:
            return self._markers[producer_id][0]
        for marker in self._ahead:
            self._found.append(marker)
            self._markers[marker.producer_id].append(marker)
            if marker.producer_id == producer_id and marker.offset > base_offset:
                return marker
        return None


def _outcome_by(marker: Marker) -> Outcome:
    return _COMMITTED if marker.is_commit else Outcome(FateKind.ABORTED, marker.offset)


def markers_in(ahead: Iterable[tuple[FileRecords, int, int]], start_offset: int) -> Iterator[Marker]:
    """The markers in (records, position, end position) of segments. Ends before anything that is damaged or missing,
    but for what a cleaner took; at once, if the first batch there neither holds `start_offset` nor begins right after
    it or before it. Looks at what `checked_headers` looks at, faster.
    """
    unpack = _HEADER.unpack_from
    is_thinned = is_begun = False
    next_offset: int | None = None
    for records, position, end in ahead:
        try:
            for data, data_position, starts in records.iter_pieces(position, end):
                for start in starts:
                    base_offset, length, magic, attributes, delta, count = unpack(data, start)
                    if not is_begun and base_offset > start_offset + 1:
                        return
                    is_begun = True
                    if magic != CURRENT_MAGIC:
                        next_offset = None
                        continue
                    if count <= delta:
                        is_thinned = True
                    if base_offset != next_offset and next_offset is not None and not is_thinned:
                        return
                    if delta < 0:
                        return
                    next_offset = base_offset + delta + 1
                    if attributes & CONTROL_FLAG or length <= LARGEST_MARKER:
                        batch = RecordBatch(memoryview(data), start, data_position + start)
                        batch.ensure_valid()
                        marker = read_marker(batch) if batch.is_control and batch.is_transactional else None
                        if marker is not None:
                            yield marker
        except CorruptRecordError:
            return


def checked_headers(records: FileRecords, position: int, end: int) -> Iterator[Batch]:
    """Headers from `position` on, markers checked: CorruptRecordError at the first that is damaged, or may be a damaged
    marker. Other batches' checksums are not looked at: what is wrong in their records hides no marker.
    """
    for header in records.iter_headers(position, end, whole_bytes=LARGEST_MARKER):
        if isinstance(header, RecordBatch):
            if header.size_bytes <= LARGEST_MARKER:
                header.ensure_valid()
            elif header.is_control:
                records.read_batch(header.position).ensure_valid()
            elif header.last_offset_delta < 0:
                raise header.corrupt(f"last offset delta {header.last_offset_delta}")
        yield header
