"""Reads what a partition's files show of its transactions, for `find_fates`: the whole log, its transaction indexes and
its snapshots. Reads only.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.salvaging_file import open_salvaging
from core.files.file_names import CLEAN_SHUTDOWN, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, find_offset_files
from core.files.producer_snapshot import read_producer_snapshot
from core.files.transaction_marker import Marker, read_marker
from core.forensics.log_scanner import AFTER_ALL_OFFSETS, LogScanner
from core.forensics.missing_offsets import Hole, HoleReason
from core.forensics.recovery_journal import read_rebuilt
from core.forensics.transaction_resolution import (
    MissingRange,
    ProducerSnapshotAt,
    SegmentIndex,
    TransactionalBatch,
    TransactionFate,
    find_fates,
    find_proven,
)
from core.index.transaction_index import AbortedTransaction, read_transaction_index
from core.records.batches import CURRENT_MAGIC, Batch
from core.records.control_record import LARGEST_MARKER
from core.records.record_batch import HEADER_SIZE, RecordBatch


@dataclass(slots=True)
class LogContents:
    """Collects what a log, or part of one, holds of transactions: it gets batches and holes in order of offsets."""

    events: list[TransactionalBatch | Marker] = field(default_factory=list)
    missing: list[MissingRange] = field(default_factory=list)
    mended: list[RecordBatch] = field(default_factory=list)
    """Damaged batches, of which it is known what they were."""

    def take(self, batch: Batch) -> None:
        if not isinstance(batch, RecordBatch) or not batch.is_transactional or not batch.has_producer_id:
            return
        if batch.is_control:
            try:
                marker = read_marker(batch)
            except CorruptRecordError:
                self.missing.append(MissingRange(batch.base_offset, batch.last_offset + 1))
            else:
                self.events += [] if marker is None else [marker]
            return
        last_sequence = batch.last_sequence if batch.base_sequence >= 0 else -1
        self.events.append(
            TransactionalBatch(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_offset,
                batch.last_offset,
                batch.base_sequence,
                last_sequence,
            )
        )

    def pass_over(self, hole: Hole) -> None:
        self.missing.append(_missing_range(hole))
        self.mended += _mended(hole)


class TransactionEvidence(NamedTuple):
    """What `find_fates` needs."""

    events: list[TransactionalBatch | Marker]
    missing: list[MissingRange]
    indexes: list[SegmentIndex]
    snapshots: list[ProducerSnapshotAt]

    def fates(self) -> list[TransactionFate]:
        return find_fates(*self)

    def proven_aborted(self) -> list[AbortedTransaction]:
        """Gives the entries of the transaction indexes that agree with the log."""
        return find_proven(self.events, self.missing, self.indexes)

    def with_mended(self, batches: Iterable[RecordBatch]) -> TransactionEvidence:
        """Adds batches that are damaged, and of which it is known what they were."""
        contents = LogContents()
        offsets = []
        for batch in batches:
            contents.take(batch)
            offsets.append((batch.base_offset, batch.last_offset + 1))
        offsets.sort()
        ends = accumulate((end for _, end in offsets), max)
        known = [(start, end) for (start, _), end in zip(offsets, ends, strict=True)]
        missing = [rest for gap in self.missing for rest in _without(gap, known)] if known else self.missing
        mended = [e._replace(is_mended=True) if isinstance(e, Marker) else e for e in contents.events]
        events = sorted([*self.events, *mended], key=lambda e: e.offset if isinstance(e, Marker) else e.base_offset)
        return self._replace(events=events, missing=missing)

    def with_appended(self, contents: LogContents, log_end: int) -> TransactionEvidence:
        """Adds what will be appended to the log, which ends at `log_end`. The indexes know nothing of that."""
        evidence = self._replace(
            events=self.events + contents.events,
            missing=self.missing + contents.missing,
            indexes=[index._replace(end_offset=min(index.end_offset, log_end)) for index in self.indexes],
        )
        return evidence.with_mended(contents.mended) if contents.mended else evidence


def _without(gap: MissingRange, known: Sequence[tuple[int, int]]) -> Iterator[MissingRange]:
    """Gives what of a missing range lies outside the ranges [start, end), which are in order, as are their ends."""
    first = bisect_right(known, gap.start, key=itemgetter(1))
    for start, end in known[first : bisect_left(known, (gap.end,))]:
        if gap.start < start:
            yield gap._replace(end=start)
        gap = gap._replace(start=max(gap.start, end))
    if gap.start < gap.end:
        yield gap


def read_evidence(
    directory: Path, reading: LogScanner, index_paths: Mapping[int, Path], *, limit: int = AFTER_ALL_OFFSETS
) -> TransactionEvidence:
    """Reads that of a partition. Every batch is read and checked. `index_paths` are those of the transaction indexes of
    the log's segments, by base offset; they need not be there. What begins at `limit` or above is not looked at.
    """
    if not index_paths:
        return TransactionEvidence([], [], [], [])
    contents = LogContents()
    given_up: list[MissingRange] = []
    holes_without_bytes: list[tuple[int, int]] = []
    for item in reading.items(reading.start_offset):
        if isinstance(item, Hole):
            if item.reason not in (HoleReason.COMPACTED, HoleReason.DAMAGED):
                holes_without_bytes.append((item.start, item.end))
            if item.reason is HoleReason.TRUNCATED:
                given_up.append(_missing_range(item))
            else:
                contents.pass_over(item)
        elif item.base_offset >= limit:
            break
        else:
            contents.take(item)
    tail = reading.tail
    if tail is not None and tail.damage.end_offset is not None and tail.damage.offset >= reading.end_offset:
        # what is cut was not written whole, and counts for nothing
        contents.missing.append(MissingRange(tail.damage.offset, tail.damage.end_offset))
    snapshots = _read_snapshots(directory, limit)
    newest = max((snapshot.offset for snapshot in snapshots), default=0)
    is_clean = newest == reading.sound_end or _is_stopped_cleanly(directory)
    indexes = [
        index._replace(end_offset=_end_of_index(index, holes_without_bytes, reading.end_offset))
        for index in _read_indexes(directory, index_paths, is_clean=is_clean)
    ]
    missing = [*contents.missing, *_without_doubt(given_up, indexes)]
    evidence = TransactionEvidence(contents.events, missing, indexes, snapshots)
    return evidence.with_mended(contents.mended) if contents.mended else evidence


def _missing_range(hole: Hole) -> MissingRange:
    may_hold_marker = hole.reason is not HoleReason.COMPACTED and not _is_of_records(hole)
    return MissingRange(hole.start, hole.end, may_hold_marker)


def _without_doubt(given_up: Iterable[MissingRange], indexes: Iterable[SegmentIndex]) -> Iterator[MissingRange]:
    """Leaves out what a recovery gave up: it holds no marker that matters but those that an index lists. The recovery
    wrote each other one again, unless the producer's next marker stands for it.
    """
    ends = sorted(entry.last_offset for index in indexes for entry in index.entries or ())
    for gap in given_up:
        yield gap._replace(may_hold_marker=bisect_left(ends, gap.start) < bisect_left(ends, gap.end))


def _mended(hole: Hole) -> Iterator[RecordBatch]:
    """Gives the batch that a damaged one was, if one known byte makes it sound."""
    fix = None if hole.damage is None else hole.damage.fix
    if fix is None:
        return
    try:
        with contextlib.closing(open_salvaging(hole.path)) as file:
            data = bytearray(file.read_at(hole.end_position - hole.position, hole.position))
    except OSError:
        return
    at = fix.position - hole.position
    if 0 <= at < len(data) and len(data) >= HEADER_SIZE:
        data[at] = fix.expected
        batch = RecordBatch(memoryview(data), 0, hole.position)
        if batch.magic == CURRENT_MAGIC and batch.size_bytes == len(data) and batch.computed_crc() == batch.crc:
            yield batch


def _is_of_records(hole: Hole) -> bool:
    """Says whether one damaged batch, larger than any marker, held all of these offsets."""
    damage = hole.damage
    return (
        damage is not None
        and damage.batch is not None
        and (damage.offset, damage.end_offset) == (hole.start, hole.end)
        and damage.batch.size_bytes > LARGEST_MARKER
    )


# --- what stands beside it


def _read_indexes(directory: Path, index_paths: Mapping[int, Path], *, is_clean: bool) -> Iterator[SegmentIndex]:
    paths = dict(index_paths)
    paths |= {base: path for base, path in find_offset_files(directory, TRANSACTION_INDEX_SUFFIX) if base not in paths}
    bases = sorted(paths)
    last_log, rebuilt = max(index_paths), read_rebuilt(directory)
    for base, end in zip(bases, [*bases[1:], AFTER_ALL_OFFSETS], strict=True):
        entries = None
        with contextlib.suppress(CorruptRecordError, OSError):
            entries = tuple(read_transaction_index(paths[base]))
        name = paths[base].name
        yield SegmentIndex(base, end, entries, base < last_log or is_clean, name, is_rebuilt=name in rebuilt)


def _end_of_index(index: SegmentIndex, holes: Iterable[tuple[int, int]], log_end: int) -> int:
    """Gives the offset from which it can't be relied on: what is missing before the next segment or the log's end,
    without a damaged byte, may be a whole segment with an index of its own.
    """
    ends = (index.end_offset, log_end if index.end_offset == AFTER_ALL_OFFSETS else index.end_offset)
    return min((start for start, end in holes if index.base_offset < end and end in ends), default=index.end_offset)


def _read_snapshots(directory: Path, limit: int) -> list[ProducerSnapshotAt]:
    """Reads those that are sound, and say nothing of offsets that were not there yet."""
    found = []
    for offset, path in find_offset_files(directory, SNAPSHOT_SUFFIX):
        with contextlib.suppress(CorruptRecordError, OSError):
            entries = read_producer_snapshot(path)
            if offset <= limit and all(max(e.last_offset, e.current_txn_first_offset) < offset for e in entries):
                open_from = {entry.producer_id: entry.current_txn_first_offset for entry in entries}
                epochs = {entry.producer_id: entry.producer_epoch for entry in entries}
                found.append(ProducerSnapshotAt(offset, open_from, epochs))
    return found


def _is_stopped_cleanly(directory: Path) -> bool:
    return (directory.resolve().parent / CLEAN_SHUTDOWN).exists()
