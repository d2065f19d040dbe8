"""Makes a damaged log servable as the one reader reads it, in a folder whose files may be changed at will (a shadow).

A broker sends parts of files as they lie. That is right if the batches of the log stand in order in the segments that
their offsets belong to, and everything else is a known gap. `arrange` brings a folder there: segments whose batches
stand out of order are written again, segments that hold only copies of other segments' batches go, and bytes between
batches of the log become gaps. A sound log costs a look at its batches' headers: a wrong checksum alone needs nothing
here, since its batch is in its place, and the client that gets it checks it.

The server sends `.txnindex` entries to its readers as they are, and no checksum covers them. The batches prove that one
is wrong (`TransactionIndexCheck`), but not by first records that lie before the batches read, or that a cleaner took.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, copy_bytes
from core.common.salvaging_file import open_salvaging
from core.files.file_names import (
    LOG_SUFFIX,
    SPARSE_INDEXES,
    TRANSACTION_INDEX_SUFFIX,
    find_offset_files,
    offset_file_name,
)
from core.files.file_records import FileRecords, rising_headers
from core.forensics.batch_scanner import BatchScanner
from core.forensics.bit_flip import is_odd_end
from core.forensics.damage import Damage, DamagedRange
from core.forensics.known_offsets import KnownOffsets
from core.forensics.log_map import LogFile, LogMap
from core.forensics.log_scanner import open_reading
from core.forensics.missing_offsets import PROVEN_LOSSES, Hole, HoleReason, Tail, find_lost_start
from core.forensics.recovered_layout import Stretch, lay_out
from core.index.offset_index import MAX_RELATIVE_OFFSET
from core.index.transaction_index import AbortedTransaction, iter_transaction_index
from core.records.batches import Batch, contradicts, stated_offset
from core.records.control_record import LARGEST_MARKER, read_marker
from core.records.record_batch import RecordBatch

_ARRANGED = ".arranged"

OpenTransactions = dict[int, int]
"""First offsets of open transactions, by producer id."""


@dataclass(slots=True)
class ShadowLayout:
    """How to read the files of a log: past `gaps`, by segment, and up to `end_position` in the last one.

    Gaps may have no offsets (bytes that are not the log's) or no bytes (offsets that nothing holds). Segments in
    `rewritten` hold other bytes than before.
    """

    end_offset: int
    gaps: dict[int, list[DamagedRange]] = field(default_factory=dict)
    end_position: int | None = None
    rewritten: set[int] = field(default_factory=set)
    tail: Tail | None = None
    unexplained: list[tuple[int, int]] = field(default_factory=list)
    """Offsets [start, end) that are missing for no known reason, in order."""


class _Place(NamedTuple):
    """Batches of the log in bytes [position, end_position) of a file, of offsets [base_offset, end_offset)."""

    position: int
    end_position: int
    base_offset: int
    end_offset: int


def arrange(
    directory: Path, evidence: KnownOffsets, filesystem: FileSystem, checked_from: int | None
) -> ShadowLayout | OpenTransactions:
    """Makes the log in the folder servable. A sound log is not changed, and the transactions that are open at its end
    are returned. Checksums are checked in segments that hold offsets from `checked_from` on, in others the headers
    alone.
    """
    if not find_offset_files(directory, LOG_SUFFIX) and evidence.known_end > evidence.log_start_offset:
        first = min(
            evidence.lone_indexes, default=evidence.log_start_offset
        )  # an empty one stands for all that are gone
        filesystem.open_append(directory / offset_file_name(first, LOG_SUFFIX)).close()
    files = find_offset_files(directory, LOG_SUFFIX)
    if not files:
        return {}
    with contextlib.ExitStack() as opened:
        logs = []
        for base_offset, path in files:
            records = FileRecords(path, open_salvaging)
            opened.callback(records.close)
            logs.append((base_offset, records))
        has_start = find_lost_start(evidence, files[0][1]) is None
        follower = TransactionIndexCheck()
        if has_start and _is_straight(logs, evidence, checked_from, follower):
            return follower.open_transactions
        with open_reading(files, evidence, is_locked=True) as reading:
            return _Arranger(reading.map, filesystem).arrange()


# --- a log that is as it should be


def _is_straight(
    logs: Sequence[tuple[int, FileRecords]],
    evidence: KnownOffsets,
    checked_from: int | None,
    follower: TransactionIndexCheck,
) -> bool:
    """Says whether the offsets in the batches' headers rise through all segments, up to the proven end, and the
    transaction indexes agree with the markers. `follower` has followed the log then. A hole may be anywhere: without a
    lone index no loss explains it.
    """
    if evidence.lone_indexes:  # a segment's missing offsets may lie in no hole between headers
        return False
    limits = [*(base for base, _ in logs[1:]), logs[-1][0] + MAX_RELATIVE_OFFSET + 1]  # the map looks at any beyond
    next_offset, is_after_hole = logs[0][0], False
    for (base_offset, records), limit in zip(logs, limits, strict=True):
        if next_offset > base_offset:
            return False
        next_offset = base_offset
        try:
            entries = _listed_aborts(records.path)  # before the log, to which somebody may be writing
            for batch in rising_headers(records.iter_headers(0, whole_bytes=LARGEST_MARKER), base_offset, limit):
                is_after_hole = stated_offset(batch) > next_offset
                if isinstance(batch, RecordBatch):
                    _follow(batch, records, follower)
                    if batch.count < 0 or batch.last_offset_delta < 0:
                        return False
                next_offset = batch.next_offset
            if not follower.end_segment(entries):
                return False
        except (CorruptRecordError, OSError):
            return False
        if checked_from is not None and limit > checked_from and not _is_sound(base_offset, records, limit):
            return False
    known_end = evidence.known_end
    return next_offset >= known_end and not is_odd_end(next_offset, known_end, is_after_hole=is_after_hole)


def _listed_aborts(log: Path) -> list[AbortedTransaction]:
    """Reads the entries of the segment's transaction index, which are sent to consumers."""
    try:
        return list(iter_transaction_index(log.with_suffix(TRANSACTION_INDEX_SUFFIX)))
    except FileNotFoundError:
        return []


def _follow(batch: RecordBatch, records: FileRecords, follower: TransactionIndexCheck) -> None:
    """Raises CorruptRecordError for a damaged batch that may end a transaction. `batch` is whole unless it is larger
    than a marker.
    """
    may_be_marker = batch.is_control or (follower.open_transactions and batch.size_bytes <= LARGEST_MARKER)
    if may_be_marker:
        whole = records.read_batch(batch.position) if batch.size_bytes > LARGEST_MARKER else batch
        assert isinstance(whole, RecordBatch)
        whole.ensure_valid()
        batch = whole
    follower.see(batch)


def _is_sound(base_offset: int, records: FileRecords, limit: int) -> bool:
    next_offset = base_offset
    for item in BatchScanner(records.path, base_offset, limit, file=records.file):
        if isinstance(item, Damage) or contradicts(item, next_offset):
            return False
        next_offset = item.last_offset + 1
    return True


class _End(NamedTuple):
    """A marker in this segment, and the facts that the batches before it prove of its transaction."""

    producer_id: int
    is_commit: bool
    first_offset: int | None
    """None if no record of the transaction was seen."""

    previous_end: int
    """The offset of the producer's marker before it, if one was seen; else -1."""

    stable_end: int
    """Up to where every transaction has ended with this one, at most."""


class TransactionIndexCheck:
    """Follows one log, segment after segment; owned by one task, in any thread."""

    def __init__(self) -> None:
        self.open_transactions: OpenTransactions = {}
        """The first offsets of open transactions, by producer id, in order of offsets."""
        self._last_ends: dict[int, int] = {}
        """The offset of each producer's last marker."""
        self._ends: dict[int, _End] = {}
        """The ends of transactions in this segment, by the offset of the marker."""

    def see(self, batch: Batch) -> None:
        """Takes the next batch; of a batch of records, the header is enough."""
        if not isinstance(batch, RecordBatch) or not batch.is_transactional:
            return
        if not batch.is_control:
            if batch.count:
                self.open_transactions.setdefault(batch.producer_id, batch.base_offset)
            return
        try:
            marker = read_marker(batch)
        except CorruptRecordError:
            marker = None
        first_offset = self.open_transactions.pop(batch.producer_id, None)
        if marker is not None:
            stable_end = next(iter(self.open_transactions.values()), marker.offset + 1)
            previous_end = self._last_ends.get(marker.producer_id, -1)
            self._last_ends[marker.producer_id] = marker.offset
            end = _End(marker.producer_id, marker.is_commit, first_offset, previous_end, stable_end)
            self._ends[marker.offset] = end

    def end_segment(self, entries: Iterable[AbortedTransaction]) -> bool:
        """Says whether the transaction index of the segment that was read to its end agrees with the batches."""
        indexed = {entry.last_offset: entry for entry in entries}
        ends, self._ends = self._ends, {}
        return all(_is_listed(end, indexed.get(offset)) for offset, end in ends.items()) and all(
            _is_proven(entry, ends.get(offset)) for offset, entry in indexed.items()
        )


def _is_listed(end: _End, entry: AbortedTransaction | None) -> bool:
    """Says whether the entry has all that was seen of the transaction, if the marker aborts it."""
    if end.is_commit or end.first_offset is None:
        return True
    return entry is not None and entry.producer_id == end.producer_id and entry.first_offset <= end.first_offset


def _is_proven(entry: AbortedTransaction, end: _End | None) -> bool:
    """Says whether the marker aborts that transaction, and nothing older of its producer or of others."""
    return (
        end is not None
        and end.producer_id == entry.producer_id
        and not end.is_commit
        and entry.first_offset > end.previous_end
        and entry.last_stable_offset <= end.stable_end
    )


# --- one that is not


class _Arranger:
    def __init__(self, log_map: LogMap, filesystem: FileSystem) -> None:
        self._map = log_map
        self._filesystem = filesystem
        self._end_offset = log_map.end_offset
        # A hole that nothing explains is passed over, as Kafka does: old compacted logs have them, and clients would
        # stick.
        self._losses = [hole for hole in log_map.holes if hole.reason in PROVEN_LOSSES]
        unexplained = [(hole.start, hole.end) for hole in log_map.holes if hole.reason is HoleReason.UNKNOWN]
        self._plan = ShadowLayout(self._end_offset, tail=log_map.tail, unexplained=unexplained)

    def arrange(self) -> ShadowLayout:
        files = self._map.files
        layout = lay_out(self._map, fixes_bits=False)
        sizes = {number: file.file.size() for number, file in enumerate(files)}
        places = self._places(layout)
        for number in places.keys() & {n for n, file in enumerate(files) if file.path in layout}:
            sizes[number] = sum(stretch.end - stretch.start for stretch in layout[files[number].path])
            self._plan.rewritten.add(files[number].base_offset)
        self._add_gaps(places, sizes)
        self._write(layout)
        for number in range(len(files)):
            if number not in places:
                self._drop(files[number])
        self._add_lost_start()
        return self._plan

    def _add_lost_start(self) -> None:
        """Adds an empty segment for those that are missing before the first one, as the log began with them."""
        start, first = self._map.start_offset, self._map.files[0]
        if start >= first.base_offset:
            return
        end = _Place(0, 0, first.base_offset, first.base_offset)
        gap = _gap_between(start, 0, start, end, self._losses)
        self._plan.gaps[start] = [] if gap is None else [gap]
        self._filesystem.open_append(first.path.with_name(offset_file_name(start, LOG_SUFFIX))).close()

    def _places(self, layout: dict[Path, list[Stretch]]) -> dict[int, list[_Place]]:
        """Returns, by the numbers of the files that stay, where the log's batches will stand in them, in order."""
        places: dict[int, list[_Place]] = {n: [] for n in range(len(self._map.files)) if n not in self._map.unused}
        for piece in self._map.log:
            number = self._map.file_of(piece.base_offset)
            position, end_position = piece.position, piece.end_position
            if self._map.files[number].path in layout:
                position = places[number][-1].end_position if places[number] else 0
                end_position = position + piece.end_position - piece.position
            places[number].append(_Place(position, end_position, piece.base_offset, piece.end_offset))
        return places

    def _add_gaps(self, places: dict[int, list[_Place]], sizes: dict[int, int]) -> None:
        numbers = sorted(places)
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            base_offset = self._map.files[number].base_offset
            limit = self._end_offset if following is None else self._map.files[following].base_offset
            size = sizes[number]
            end = _Place(size, size, max(limit, base_offset), limit)
            gaps = []
            position, next_offset = 0, base_offset
            for place in [*places[number], end]:
                gap = _gap_between(base_offset, position, next_offset, place, self._losses)
                if gap is not None:
                    gaps.append(gap)
                position, next_offset = place.end_position, place.end_offset
            if (
                following is None
                and gaps
                and gaps[-1].end_position == size
                and gaps[-1].end_offset == gaps[-1].start_offset
            ):
                self._plan.end_position = gaps.pop().position
            self._plan.gaps[base_offset] = gaps

    def _write(self, layout: dict[Path, list[Stretch]]) -> None:
        """Writes each new file beside the old one first, from which others may still take."""
        files = {file.path: file.file for file in self._map.files}
        for path, stretches in layout.items():
            with contextlib.closing(self._filesystem.open_append(path.with_name(path.name + _ARRANGED))) as out:
                written = 0
                for stretch in stretches:
                    written = copy_bytes(files[stretch.path], stretch.start, stretch.end, out, written)
        for path in layout:
            self._filesystem.rename(path.with_name(path.name + _ARRANGED), path)
            for suffix in SPARSE_INDEXES:
                self._filesystem.unlink(path.with_suffix(suffix))

    def _drop(self, file: LogFile) -> None:
        for suffix in (LOG_SUFFIX, *SPARSE_INDEXES):
            self._filesystem.unlink(file.path.with_suffix(suffix))


def _gap_between(
    base_offset: int, position: int, next_offset: int, place: _Place, holes: Sequence[Hole]
) -> DamagedRange | None:
    first = bisect_right(holes, next_offset, key=attrgetter("end"))
    after = bisect_left(holes, place.base_offset, key=attrgetter("start"))
    if position == place.position and first >= after:
        return None
    start = end = next_offset
    if first < after:
        start, end = max(holes[first].start, next_offset), min(holes[after - 1].end, place.base_offset)
    return DamagedRange(start, end, base_offset, position, place.position)
