"""What a reader of committed records gets of a log's transactions, batch after batch.

A transaction's marker follows its records. It is looked for ahead of the reader, once for all: what is read on the way
waits to be given (`ReadAhead`), and after some megabytes the files are gone through in headers alone. If the marker is
found and nothing is missing before it, it decides. If something is missing or damaged, the whole log is weighed
(`core.log.transaction_fates`).
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from core.common.errors import CorruptRecordError
from core.log.file_records import FileRecords
from core.log.hole import Hole, HoleReason
from core.log.transaction_marker import FateKind, Marker, read_marker
from core.records.batches import CURRENT_MAGIC, Batch
from core.records.control_record import LARGEST_MARKER
from core.records.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch

if TYPE_CHECKING:
    from core.log.transaction_fates import TransactionFate

_MOST_WAITING_BYTES = 8 * 1024 * 1024
_HEADER = struct.Struct(">qi4xB4xHi16xqh4xi")
"""Base offset, length, magic, attributes, last offset delta, producer id and epoch, count."""


class Outcome(NamedTuple):
    """`whole` is what was found out where the log alone does not tell; `marker_offset` None if that is not known."""

    fate: FateKind
    marker_offset: int | None
    whole: TransactionFate | None = None


class _OpenEpochs:
    """Tells of markers that are missing from what a cleaner seems to have taken. It takes none of a transaction that
    still has records; but where the next batch of the producer has a higher epoch, the transaction had ended.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int]] = {}  # by producer id: the last batch's epoch, holes up to there
        self._holes = 0

    def meet_hole(self) -> None:
        self._holes += 1

    def goes_on(self, producer_id: int, epoch: int, attributes: int) -> bool:
        """Takes the next batch of a transaction, or the marker of one: whether no marker is missing before it."""
        if attributes & CONTROL_FLAG:
            self._open.pop(producer_id, None)
            return True
        before, holes = self._open.get(producer_id, (epoch, self._holes))
        self._open[producer_id] = epoch, self._holes
        return epoch <= before or holes == self._holes


class ReadAhead:
    """Gives the items of a log in order, and the markers of transactions that follow; owned by one task."""

    def __init__(self, items: Iterator[Batch | Hole], markers_from: Callable[[int], Iterator[Marker]]) -> None:
        """`markers_from` gives the markers from an offset on without reading what is between, as of `markers_in`."""
        self._items = items
        self._markers_from = markers_from
        self._waiting: deque[Batch | Hole] = deque()
        self._waiting_bytes = 0
        self._epochs = _OpenEpochs()

    def __iter__(self) -> Iterator[Batch | Hole]:
        waiting = self._waiting
        while True:
            while waiting:
                item = waiting.popleft()
                if not isinstance(item, Hole):
                    self._waiting_bytes -= item.size_bytes
                yield item
            following = next(self._items, None)
            if following is None:
                return
            self._goes_on(following)
            yield following

    def markers(self) -> Iterator[Marker]:
        """In order, from what was given last on; asked for once. Ends before anything that is damaged or missing, but
        for what a cleaner took, and where that must have been a marker.
        """
        waiting = self._waiting
        for item in self._items:
            waiting.append(item)
            goes_on = self._goes_on(item)
            if isinstance(item, Hole):
                if item.reason is not HoleReason.COMPACTED:
                    return
                continue
            self._waiting_bytes += item.size_bytes
            if not goes_on:
                return
            if isinstance(item, RecordBatch) and item.is_control and item.is_transactional:
                try:
                    marker = read_marker(item)
                except CorruptRecordError:
                    return
                if marker is not None:
                    yield marker
            if self._waiting_bytes > _MOST_WAITING_BYTES:
                yield from self._markers_from(item.last_offset)
                return

    def _goes_on(self, item: Batch | Hole) -> bool:
        """Whether the item may follow what came before, without a marker that is missing."""
        if isinstance(item, Hole):
            self._epochs.meet_hole()
        elif isinstance(item, RecordBatch) and item.is_transactional:
            return self._epochs.goes_on(item.producer_id, item.producer_epoch, item.attributes)
        return True


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

    def of(self, batch: Batch) -> Outcome:
        """Of a batch of records of a transaction."""
        marker = self.find_marker(batch)
        if marker is not None:
            return Outcome(FateKind.COMMITTED if marker.is_commit else FateKind.ABORTED, marker.offset)
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


def markers_in(ahead: Iterable[tuple[FileRecords, int, int]], next_offset: int | None) -> Iterator[Marker]:
    """The markers in (records, position, end position) of segments. `next_offset`: the offset of the first batch there;
    None if it may be any. Ends before anything that is damaged or missing, but for what a cleaner took, and where that
    must have been a marker. Looks at what `checked_headers` looks at, faster.
    """
    unpack = _HEADER.unpack_from
    epochs = _OpenEpochs()
    is_thinned = False
    for records, position, end in ahead:
        try:
            for data, data_position, starts in records.iter_pieces(position, end):
                for start in starts:
                    base_offset, length, magic, attributes, delta, producer_id, epoch, count = unpack(data, start)
                    if magic != CURRENT_MAGIC:
                        next_offset = None
                        continue
                    if count <= delta:
                        is_thinned = True
                    if base_offset != next_offset and next_offset is not None:
                        if not is_thinned or base_offset < next_offset:
                            return
                        epochs.meet_hole()
                    if delta < 0:
                        return
                    next_offset = base_offset + delta + 1
                    if attributes & TRANSACTIONAL_FLAG and not epochs.goes_on(producer_id, epoch, attributes):
                        return
                    if attributes & CONTROL_FLAG or length <= LARGEST_MARKER:
                        yield from _checked_marker(RecordBatch(memoryview(data), start, data_position + start))
        except CorruptRecordError:
            return


def _checked_marker(batch: RecordBatch) -> Iterator[Marker]:
    """The marker that the batch is, if it is one."""
    batch.ensure_valid()
    marker = read_marker(batch) if batch.is_control and batch.is_transactional else None
    if marker is not None:
        yield marker


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
