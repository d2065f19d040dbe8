"""Decides, batch after batch, which of a log's transactional records a read_committed consumer gets.

A transaction's marker follows its records. It is searched ahead of the reader, once for all: batches read on the way
wait for the reader, and after some megabytes only headers are read. If the marker is found and nothing is
missing before it, it decides. If something is missing or damaged, the whole log is weighed
(`core.forensics.transaction_resolution`).

`find_open_transactions` finds those open at a log's end, by its newest snapshot and the batches after it, without
reading all of a sound log. A snapshot's open transactions are compared with the log, as it may be another log's under a
wrong name: each must begin with a batch of its producer, and have no marker up to the snapshot. An earlier snapshot, if
it agrees, stands for the batches before it.

A server sends parts of files as they lie, and with them the aborted transactions in them: a consumer leaves out a
producer's records from the first offset of one on, up to that producer's next marker of an abort. If that marker is
lost, it would leave out records that were committed later. But a consumer keeps nothing of this from one answer to the
next (`CompletedFetch` of Kafka's clients, `rd_kafka_aborted_txns_t` of librdkafka, `core.client.read.consumer`). So an
answer ends after the last record of such a transaction, and the list of the next answer is without it
(`ServedTransactions`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.common.errors import CorruptRecordError
from core.files.file_records import FileRecords
from core.files.producer_snapshot import believable_snapshots
from core.forensics.log_scanner import SegmentReader
from core.forensics.missing_offsets import Hole, HoleReason, Tail
from core.index.transaction_index import AbortedTransaction
from core.records.batches import CURRENT_MAGIC, Batch
from core.records.control_record import LARGEST_MARKER, FateKind, Marker, is_plain_commit, read_marker
from core.records.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch

if TYPE_CHECKING:
    from core.forensics.transaction_resolution import TransactionFate


_MOST_WAITING_BYTES = 8 * 1024 * 1024
_HEADER = struct.Struct(">qi4xB4xHi16xqh4xi")
"""Base offset, length, magic, attributes, last offset delta, producer id and epoch, count."""


Page = Sequence[Batch | Hole]
"""Part of a log, in order, without a gap between; never empty."""


class Outcome(NamedTuple):
    """`whole` is the resolved transaction if the log alone does not decide; `marker_offset` is that of an aborted one,
    or None if unknown.
    """

    fate: FateKind
    marker_offset: int | None
    whole: TransactionFate | None = None


_COMMITTED = Outcome(FateKind.COMMITTED, None)
_UNCERTAIN = Outcome(FateKind.UNKNOWN, None)
_OF_TRANSACTION = TRANSACTIONAL_FLAG | CONTROL_FLAG


class _OpenEpochs:
    """Finds markers missing from offsets that a cleaner seems to have taken. It takes no marker of a transaction that
    still has records; but if the next batch of the producer has a higher epoch, the transaction had ended.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int]] = {}  # by producer id: the last batch's epoch, holes up to there
        self._holes = 0

    @property
    def have_holes(self) -> bool:
        """Whether something is missing after the last batch of a transaction that is open."""
        return any(holes != self._holes for _, holes in self._open.values())

    def meet_hole(self) -> None:
        self._holes += 1

    def goes_on(self, producer_id: int, epoch: int, attributes: int) -> bool:
        """Takes the next batch of a transaction, or a marker; says whether no marker is missing before it."""
        if attributes & CONTROL_FLAG:
            self._open.pop(producer_id, None)
            return True
        before, holes = self._open.get(producer_id, (epoch, self._holes))
        self._open[producer_id] = epoch, self._holes
        return epoch <= before or holes == self._holes

    def take(self, ended: Iterable[int], still_open: Mapping[int, int]) -> None:
        """Takes batches among which nothing is missing: the producers of their markers; and by producer the epoch of
        its last batch, if no marker of the producer follows it.
        """
        if self._open:
            for producer_id in ended:
                self._open.pop(producer_id, None)
        self._open.update({producer_id: (epoch, self._holes) for producer_id, epoch in still_open.items()})


class ReadCommitted:
    """Yields the items of a log in order, page by page, with the outcomes of its transactions; owned by one task.

    With each item comes its outcome, if it is a batch of records of a transaction and the page shows the outcome. For
    None, `of` decides while the page is the last one, by the markers after it.
    """

    def __init__(
        self,
        pages: Iterator[Page],
        markers_from: Callable[[int], Iterator[Marker]],
        find_fates: Callable[[], list[TransactionFate]],
    ) -> None:
        """`markers_from` yields the markers from an offset on without reading the records, as `markers_in` does.
        `find_fates` is called when the markers do not decide.
        """
        self._pages = pages
        self._markers_from = markers_from
        self._find_fates = find_fates
        self._waiting: deque[tuple[Page, list[Outcome | None]]] = deque()
        self._waiting_bytes = 0
        self._epochs = _OpenEpochs()
        self._has_holes = False  # since the last batch of a transaction that is open
        self._following = self._read_markers()
        self._found = deque[Marker]()
        """The markers ahead of the last batch, as far as was read: a transaction that stays open keeps them all."""
        self._markers = defaultdict[int, deque[Marker]](deque)
        """The same markers by producer id."""
        self._fates: dict[int, TransactionFate] | None = None

    def __iter__(self) -> Iterator[tuple[Page, list[Outcome | None]]]:
        while True:
            if self._waiting:
                page, outcomes = self._waiting.popleft()
                self._waiting_bytes -= _size_of(page)
            else:
                following = next(self._pages, None)
                if following is None:
                    return
                page, (outcomes, _) = following, self._judge(following)
            if _UNCERTAIN in outcomes:
                outcomes = [
                    self._weighed(item) if one is _UNCERTAIN and not isinstance(item, Hole) else one
                    for item, one in zip(page, outcomes, strict=True)
                ]
            yield page, outcomes

    def of(self, batch: Batch) -> Outcome:
        """Returns the outcome of a batch of records of a transaction."""
        marker = self._find_marker(batch)
        return self._weighed(batch) if marker is None else _outcome_by(marker)

    def _weighed(self, batch: Batch) -> Outcome:
        if self._fates is None:
            self._fates = {base: fate for fate in self._find_fates() for base, _ in fate.batches}
        fate = self._fates.get(batch.base_offset)
        return Outcome(FateKind.OPEN, None) if fate is None else Outcome(fate.fate, fate.marker_offset, fate)

    def _find_marker(self, batch: Batch) -> Marker | None:
        """Finds the marker that follows after the page, if nothing is missing up to there."""
        producer_id, base_offset = batch.producer_id, batch.base_offset
        while self._found and self._found[0].offset < base_offset:
            passed = self._found.popleft().producer_id
            self._markers[passed].popleft()
            if not self._markers[passed]:
                del self._markers[passed]
        if producer_id in self._markers:
            return self._markers[producer_id][0]
        for marker in self._following:
            self._found.append(marker)
            self._markers[marker.producer_id].append(marker)
            if marker.producer_id == producer_id and marker.offset > base_offset:
                return marker
        return None

    def _read_markers(self) -> Iterator[Marker]:
        """Yields the markers in order, from the page on that follows the last one. Ends before anything damaged or
        missing, except what a cleaner took, and ends there too if a marker must have been in it.
        """
        for page in self._pages:
            outcomes, end = self._judge(page)
            self._waiting.append((page, outcomes))
            self._waiting_bytes += _size_of(page)
            for item in page[:end]:
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
            if end is not None:
                return
            if self._waiting_bytes > _MOST_WAITING_BYTES:
                yield from self._markers_after(page[-1])
                return

    def _markers_after(self, last: Batch | Hole) -> Iterator[Marker]:
        offset = last.end - 1 if isinstance(last, Hole) else last.last_offset
        return (marker for marker in self._markers_from(offset) if marker.offset > offset)

    def _judge(self, page: Page) -> tuple[list[Outcome | None], int | None]:
        """Returns the outcome of each batch of records of a transaction whose marker is in the page too, else None; or
        `_UNCERTAIN`, as something is missing before any marker could come. Returns also the number of the first batch
        before which a marker must be missing.
        """
        has_holes = self._has_holes or Hole in map(type, page)
        end = None
        if has_holes:
            end = self._find_missing_marker(page)
            self._has_holes = self._epochs.have_holes
        outcomes: list[Outcome | None] = [None] * len(page)
        ends: dict[int, Outcome] = {}
        still_open: dict[int, int] = {}
        otherwise: Outcome | None = None
        for number in range(len(page) - 1, -1, -1):
            item = page[number]
            is_passable = number != end
            if isinstance(item, RecordBatch):
                kind = item.attributes & _OF_TRANSACTION
                if kind == TRANSACTIONAL_FLAG:
                    outcome = outcomes[number] = ends.get(item.producer_id) or otherwise
                    if outcome is None:
                        still_open.setdefault(item.producer_id, item.producer_epoch)
                elif kind == _OF_TRANSACTION:
                    is_passable = _note_end(item, ends)
            elif isinstance(item, Hole):
                is_passable = item.reason is HoleReason.COMPACTED
            if not is_passable:
                ends, otherwise = {}, _UNCERTAIN
        if not has_holes:
            self._epochs.take(ends, still_open)
        return outcomes, end

    def _find_missing_marker(self, page: Page) -> int | None:
        found = None
        for number, item in enumerate(page):
            if isinstance(item, Hole):
                self._epochs.meet_hole()
            elif isinstance(item, RecordBatch) and item.is_transactional:
                goes_on = self._epochs.goes_on(item.producer_id, item.producer_epoch, item.attributes)
                found = number if not goes_on and found is None else found
        return found


def _note_end(batch: RecordBatch, ends: dict[int, Outcome]) -> bool:
    """Notes a marker; returns False if it can't be read."""
    if is_plain_commit(batch):
        ends[batch.producer_id] = _COMMITTED
        return True
    try:
        marker = read_marker(batch)
    except CorruptRecordError:
        return False
    if marker is not None:
        ends[marker.producer_id] = _outcome_by(marker)
    return True


def _size_of(page: Page) -> int:
    return sum(item.size_bytes for item in page if not isinstance(item, Hole))


def _outcome_by(marker: Marker) -> Outcome:
    return _COMMITTED if marker.is_commit else Outcome(FateKind.ABORTED, marker.offset)


def markers_in(ahead: Iterable[tuple[FileRecords, int, int]], start_offset: int) -> Iterator[Marker]:
    """Yields the markers in (records, position, end position) of segments. Ends before anything damaged or missing,
    except what a cleaner took, and ends there too if a marker must have been in it; at once, if the first batch there
    neither holds `start_offset` nor begins beside it. Makes the checks of `checked_headers`, faster.
    """
    unpack = _HEADER.unpack_from
    epochs = _OpenEpochs()
    is_thinned = is_begun = False
    next_offset: int | None = None
    for records, position, end in ahead:
        try:
            for data, data_position, starts in records.iter_pieces(position, end):
                for start in starts:
                    base_offset, length, magic, attributes, delta, producer_id, epoch, count = unpack(data, start)
                    if not is_begun and base_offset > start_offset + 1:
                        return
                    is_begun = True
                    if magic != CURRENT_MAGIC:
                        next_offset = None
                        continue
                    is_thinned = is_thinned or count <= delta
                    expected = base_offset if next_offset is None else next_offset
                    if delta < 0 or base_offset < expected or (base_offset > expected and not is_thinned):
                        return
                    if base_offset > expected:
                        epochs.meet_hole()
                    next_offset = base_offset + delta + 1
                    if attributes & TRANSACTIONAL_FLAG and not epochs.goes_on(producer_id, epoch, attributes):
                        return
                    if attributes & CONTROL_FLAG or length <= LARGEST_MARKER:
                        yield from _checked_marker(RecordBatch(memoryview(data), start, data_position + start))
        except CorruptRecordError:
            return


def _checked_marker(batch: RecordBatch) -> Iterator[Marker]:
    batch.ensure_valid()
    marker = read_marker(batch) if batch.is_control and batch.is_transactional else None
    if marker is not None:
        yield marker


def checked_headers(segments: Sequence[SegmentReader], start_offset: int) -> Iterator[Batch]:
    """Yields the headers of a log's batches from the one that holds `start_offset` on, markers checked: raises
    CorruptRecordError at the first that is damaged, or may be a damaged marker. Other batches' checksums are not
    checked: damage in their records hides no marker.
    """
    following = [segment.base_offset for segment in segments[1:]]
    for number, segment in enumerate(segments):
        if number == len(following) or following[number] > start_offset:
            yield from _checked_from(segment.records, segment.position_of(start_offset))


def _checked_from(records: FileRecords, position: int) -> Iterator[Batch]:
    for header in records.iter_headers(position, whole_bytes=LARGEST_MARKER):
        if isinstance(header, RecordBatch):
            if header.size_bytes <= LARGEST_MARKER:
                header.ensure_valid()
            elif header.is_control:
                records.read_batch(header.position).ensure_valid()
            elif header.last_offset_delta < 0:
                raise header.corrupt(f"last offset delta {header.last_offset_delta}")
        yield header


class _Snapshot(NamedTuple):
    offset: int
    ongoing: dict[int, int]
    """The first offsets of open transactions, by producer id."""


def find_open_transactions(
    directory: Path,
    segments: Sequence[SegmentReader],
    start_offset: int,
    end_offset: int,
    find_tail: Callable[[], Tail | None],
) -> dict[int, int] | None:
    """Returns the first offsets of the transactions open at `end_offset`, by producer id. None if something is missing
    or contradictory, so that the whole log must be read. `find_tail` is called for bytes that are no batch: after the
    log's last batch they are no damage to it.
    """
    snapshots = _sound_snapshots(directory, end_offset) if segments else iter(())
    offset, ongoing = next(snapshots, _Snapshot(0, {}))
    next_offset, is_read = offset, True
    is_whole = not ongoing or _are_open(segments, ongoing, next(snapshots, _Snapshot(0, {})), start_offset, offset)
    try:
        for batch in _batches(segments, offset):
            is_whole = is_whole and batch.base_offset == next_offset  # else it is missing, or stands there again
            if batch.base_offset >= end_offset:
                is_read = is_read and is_whole
                break
            next_offset = batch.next_offset
            if not batch.is_transactional or not batch.has_producer_id:
                continue
            if batch.is_control:
                ongoing.pop(batch.producer_id, None)
            else:
                ongoing.setdefault(batch.producer_id, batch.base_offset)
    except CorruptRecordError as error:
        is_whole, tail = False, find_tail()
        is_read = tail is not None and (str(tail.path), tail.damage.position) == (error.path, error.position)
    return ongoing if is_whole or (is_read and not ongoing) else None


def _sound_snapshots(directory: Path, end_offset: int) -> Iterator[_Snapshot]:
    for offset, entries in believable_snapshots(directory, end_offset):
        ongoing = {e.producer_id: e.current_txn_first_offset for e in entries if e.current_txn_first_offset >= 0}
        yield _Snapshot(offset, ongoing)


def _are_open(
    segments: Sequence[SegmentReader], ongoing: dict[int, int], earlier: _Snapshot, start_offset: int, end_offset: int
) -> bool:
    """Says whether the log bears out that these transactions were open at `end_offset`."""
    unseen = {first: producer_id for producer_id, first in ongoing.items() if first >= start_offset}
    if any(earlier.ongoing.get(p) != first for p, first in ongoing.items() if first < earlier.offset):
        return False
    if any(first < segments[0].base_offset for first in unseen):
        return False  # a batch there with such an offset is none of the log's
    try:
        for first in list(unseen):
            batch = next(_batches(segments, first), None)
            if batch is not None and (batch.base_offset, batch.producer_id) == (first, unseen[first]):
                _ensure_valid(segments, batch)
                del unseen[first]
        next_offset = start = max(earlier.offset, min(ongoing.values()))
        for batch in _batches(segments, start):
            if batch.base_offset >= end_offset:
                break
            is_end = batch.is_control and ongoing.get(batch.producer_id, end_offset) < batch.base_offset
            if is_end or batch.base_offset != next_offset:
                return False
            next_offset = batch.next_offset
    except CorruptRecordError:
        return False
    return not unseen


def _ensure_valid(segments: Sequence[SegmentReader], header: RecordBatch) -> None:
    segment = next(one for one in reversed(segments) if one.base_offset <= header.base_offset)
    segment.records.read_batch(header.position).ensure_valid()


def _batches(segments: Sequence[SegmentReader], start_offset: int) -> Iterator[RecordBatch]:
    """Yields headers of the batches of magic 2 from the one that holds `start_offset` on, as `checked_headers` does;
    older formats have no transactions.
    """
    return (batch for batch in checked_headers(segments, start_offset) if isinstance(batch, RecordBatch))


class ServedTransactions:
    """Judges one log, by the fates of its transactions (`core.forensics.transaction_resolution`); immutable. A
    transaction that is not proven to be committed counts as aborted.
    """

    def __init__(self, fates: Iterable[TransactionFate], last_stable_offset: int) -> None:
        """Takes as `last_stable_offset` where the first transaction begins that is not proven to have ended."""
        self.last_stable_offset = last_stable_offset
        hidden = [fate for fate in fates if fate.fate is not FateKind.COMMITTED]
        self._aborted = sorted(map(_as_aborted, hidden), key=attrgetter("last_offset"))
        firsts = (entry.first_offset for entry in reversed(self._aborted))
        self._first_after = list(accumulate(firsts, min))[::-1]
        """The smallest first offset of each entry and those after it."""
        self._ends = sorted({fate.last_offset + 1 for fate in hidden if not _has_abort_marker(fate)})

    def end_of_answer(self, offset: int, end_offset: int) -> int:
        """Returns where an answer from `offset` on must end, at `end_offset` at the latest; batches end there."""
        number = bisect_left(self._ends, offset + 1)
        return min(end_offset, self._ends[number]) if number < len(self._ends) else end_offset

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that an answer with records of [start_offset, end_offset) must name."""
        found = []
        number = bisect_left(self._aborted, start_offset, key=attrgetter("last_offset"))
        while number < len(self._aborted) and self._first_after[number] < end_offset:
            if self._aborted[number].first_offset < end_offset:
                found.append(self._aborted[number])
            number += 1
        return found


def _as_aborted(fate: TransactionFate) -> AbortedTransaction:
    has_marker = fate.marker is not None and not fate.marker.is_mended
    last_offset = fate.marker.offset if fate.marker is not None and has_marker else fate.last_offset
    return AbortedTransaction(fate.producer_id, fate.first_offset, last_offset, -1)


def _has_abort_marker(fate: TransactionFate) -> bool:
    return fate.marker is not None and not fate.marker.is_commit and not fate.marker.is_mended
