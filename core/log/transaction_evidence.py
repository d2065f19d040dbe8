"""Reads what a partition's files tell of its transactions, for `find_fates`: the whole log, its transaction indexes and
its snapshots. Reads only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import parse_transaction_index
from core.log.damage import MAX_BATCH_BYTES, checked_batches, measure_gap
from core.log.file_names import (
    CLEAN_SHUTDOWN,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_offset_files,
)
from core.log.file_records import FileRecords
from core.log.producer_snapshot import parse_producer_snapshot
from core.log.recovery_journal import read_lost_offsets
from core.log.transaction_fates import (
    Marker,
    MissingRange,
    ProducerSnapshotAt,
    SegmentIndex,
    TransactionalBatch,
    TransactionFate,
    find_fates,
)
from core.records.batches import Batch
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import RecordBatch

LARGEST_MARKER = 100
"""Bytes; a transaction's marker has 78."""
_UNLIMITED = 1 << 62


class SegmentFile(NamedTuple):
    """A segment's log, open, and the path of its transaction index, which need not be there."""

    base_offset: int
    records: FileRecords
    index_path: Path


@dataclass(slots=True)
class _LogContents:
    events: list[TransactionalBatch | Marker] = field(default_factory=list)
    damage: list[MissingRange] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0
    is_thinned: bool = False


class TransactionEvidence(NamedTuple):
    """What `find_fates` needs."""

    events: list[TransactionalBatch | Marker]
    missing: list[MissingRange]
    indexes: list[SegmentIndex]
    snapshots: list[ProducerSnapshotAt]

    def fates(self) -> list[TransactionFate]:
        return find_fates(*self)

    def with_batches(self, batches: Sequence[RecordBatch]) -> TransactionEvidence:
        """With batches that were damaged, and of which it is known what they were."""
        contents = _LogContents(events=list(self.events))
        missing = list(self.missing)
        for batch in batches:
            contents.next_offset = batch.base_offset
            _take(contents, batch)
            missing = [rest for gap in missing for rest in _without(gap, batch.base_offset, batch.last_offset + 1)]
        events = sorted(contents.events, key=lambda e: e.offset if isinstance(e, Marker) else e.base_offset)
        return self._replace(events=events, missing=missing)


def _without(gap: MissingRange, start: int, end: int) -> Iterator[MissingRange]:
    """What of a missing range lies outside [start, end)."""
    for rest in (gap._replace(end=min(gap.end, start)), gap._replace(start=max(gap.start, end))):
        if rest.start < rest.end:
            yield rest


def read_evidence(
    directory: Path, segments: Sequence[SegmentFile], *, limit: int = _UNLIMITED, is_compacted: bool = False
) -> TransactionEvidence:
    """Of a partition. Every batch is read and checked.

    `limit`: what begins there or above is not looked at. `is_compacted`: the directory says that a cleaner was here, so
    that holes between batches are its work.
    """
    if not segments:
        return TransactionEvidence([], [], [], [])
    contents = _read_log(segments, limit)
    snapshots = _read_snapshots(directory, limit)
    proven_end = max((snapshot.offset for snapshot in snapshots), default=0)
    is_clean = proven_end == contents.next_offset or _is_stopped_cleanly(directory)
    if proven_end > contents.next_offset:
        contents.holes.append((contents.next_offset, proven_end))
    indexes = list(_read_indexes(directory, segments, is_clean=is_clean))
    bases_without_log = {index.base_offset for index in indexes} - {segment.base_offset for segment in segments}
    lost = read_lost_offsets(directory)
    missing = list(contents.damage)
    for start, end in contents.holes:
        is_cleaners = (
            (is_compacted or contents.is_thinned)
            and end <= segments[-1].base_offset
            and not _is_touched(lost, start, end)
            and not any(start <= base < end for base in bases_without_log)
        )
        missing.append(MissingRange(start, end, may_hold_marker=not is_cleaners))
    return TransactionEvidence(contents.events, missing, indexes, snapshots)


def read_evidence_of_directory(directory: Path, *, is_compacted: bool = False) -> TransactionEvidence:
    """As `read_evidence`, of a folder that nobody has open. OSError as the disk says."""
    filesystem = FileSystem()
    with contextlib.ExitStack() as opened:
        segments = []
        for base, path in find_offset_files(directory, LOG_SUFFIX):
            records = FileRecords(path, filesystem.open_read)
            opened.callback(records.close)
            segments.append(SegmentFile(base, records, path.with_suffix(TRANSACTION_INDEX_SUFFIX)))
        return read_evidence(directory, segments, is_compacted=is_compacted)


# --- the log


def _read_log(segments: Sequence[SegmentFile], limit: int) -> _LogContents:
    contents = _LogContents(next_offset=segments[0].base_offset)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        for item in _batches_and_damage(segment, following):
            if isinstance(item, MissingRange):
                contents.damage.append(item)
                contents.next_offset = max(contents.next_offset, item.end)
                continue
            if item.base_offset >= limit:
                return contents
            _take(contents, item)
    return contents


def _batches_and_damage(segment: SegmentFile, following: int | None) -> Iterator[Batch | MissingRange]:
    """The sound batches of a segment and what is missing as its bytes are damaged, in order."""
    records, base_offset = segment.records, segment.base_offset
    end = OffsetPosition(_UNLIMITED if following is None else following, records.size_bytes)
    position, last_offset = 0, base_offset - 1
    while position < end.position:
        try:
            for batch in checked_batches(
                records, base_offset, position, last_offset, end, max_batch_bytes=MAX_BATCH_BYTES
            ):
                yield batch
                position, last_offset = batch.position + batch.size_bytes, batch.last_offset
            return
        except CorruptRecordError as error:
            gap = measure_gap(records, base_offset, error.position, last_offset + 1, end)
            frame = _find_frame(records, gap.position, gap.end_position, last_offset + 1)
            if gap.end_offset < _UNLIMITED:
                is_records = (
                    frame is not None
                    and frame.position + frame.size_bytes == gap.end_position
                    and frame.last_offset == gap.end_offset - 1
                    and frame.size_bytes > LARGEST_MARKER
                )
                yield MissingRange(last_offset + 1, gap.end_offset, may_hold_marker=not is_records)
                last_offset = gap.end_offset - 1
            elif frame is not None:  # at the log's end: what is cut was not written whole, and counts for nothing
                yield MissingRange(last_offset + 1, frame.last_offset + 1)
                last_offset = frame.last_offset
            position = gap.end_position


def _find_frame(records: FileRecords, position: int, end: int, offset: int) -> RecordBatch | None:
    """A damaged batch whose header is as it must be: it lies whole in these bytes and begins at that offset."""
    with contextlib.suppress(CorruptRecordError):
        header = records.read_header(position, end)
        if isinstance(header, RecordBatch) and header.base_offset == offset <= header.last_offset:
            return header
    return None


def _take(contents: _LogContents, batch: Batch) -> None:
    if not isinstance(batch, RecordBatch):
        contents.next_offset = max(contents.next_offset, batch.last_offset + 1)
        return
    if batch.count <= batch.last_offset_delta or batch.delete_horizon_ms is not None:
        contents.is_thinned = True
    if batch.base_offset > contents.next_offset:
        contents.holes.append((contents.next_offset, batch.base_offset))
    contents.next_offset = max(contents.next_offset, batch.last_offset + 1)
    if not batch.is_transactional or not batch.has_producer_id:
        return
    if batch.is_control:
        with contextlib.suppress(CorruptRecordError):
            marker = read_marker(batch)
            if marker is not None:
                contents.events.append(marker)
            return
        contents.damage.append(MissingRange(batch.base_offset, batch.last_offset + 1))
        return
    last_sequence = batch.last_sequence if batch.base_sequence >= 0 else -1
    contents.events.append(
        TransactionalBatch(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_offset,
            batch.last_offset,
            batch.base_sequence,
            last_sequence,
        )
    )


def read_marker(batch: RecordBatch) -> Marker | None:
    """What a control batch says, None if it ends no transaction. CorruptRecordError if it can't be decoded."""
    records = batch.records()
    marker = read_end_transaction_marker(records[0]) if records else None
    if marker is None:
        return None
    return Marker(
        batch.producer_id,
        batch.producer_epoch,
        batch.last_offset,
        marker.is_commit,
        marker.coordinator_epoch,
        batch.max_timestamp,
    )


# --- what stands beside it


def _read_indexes(directory: Path, segments: Sequence[SegmentFile], *, is_clean: bool) -> Iterator[SegmentIndex]:
    paths = {segment.base_offset: segment.index_path for segment in segments}
    paths |= {base: path for base, path in find_offset_files(directory, TRANSACTION_INDEX_SUFFIX) if base not in paths}
    bases = sorted(paths)
    last_log = segments[-1].base_offset
    for base, end in zip(bases, [*bases[1:], _UNLIMITED], strict=True):
        entries = None
        with contextlib.suppress(CorruptRecordError, OSError):
            entries = tuple(parse_transaction_index(paths[base].read_bytes(), str(paths[base])))
        yield SegmentIndex(base, end, entries, base < last_log or is_clean, paths[base].name)


def _read_snapshots(directory: Path, limit: int) -> list[ProducerSnapshotAt]:
    """Those that are sound, and say nothing of offsets that were not there yet."""
    found = []
    for offset, path in find_offset_files(directory, SNAPSHOT_SUFFIX):
        with contextlib.suppress(CorruptRecordError, OSError):
            entries = parse_producer_snapshot(path.read_bytes(), str(path))
            if offset <= limit and all(max(e.last_offset, e.current_txn_first_offset) < offset for e in entries):
                open_from = {entry.producer_id: entry.current_txn_first_offset for entry in entries}
                epochs = {entry.producer_id: entry.producer_epoch for entry in entries}
                found.append(ProducerSnapshotAt(offset, open_from, epochs))
    return found


def _is_touched(ranges: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    return any(first < end and start < last for first, last in ranges)


def _is_stopped_cleanly(directory: Path) -> bool:
    return (directory.resolve().parent / CLEAN_SHUTDOWN).exists()
