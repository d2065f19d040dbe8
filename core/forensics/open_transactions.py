"""Finds which transactions are open at a log's end, by its newest snapshot and the batches after it.

Nobody who reads a sound log wants to read all of it for that. What a snapshot says of open transactions is compared
with the log, as it may be another one's under a wrong name: each must begin with a batch of its producer, and have no
marker up to the snapshot. An earlier snapshot, if it agrees, stands for what lies before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.files.file_names import SNAPSHOT_SUFFIX, find_offset_files
from core.files.producer_snapshot import read_producer_snapshot
from core.forensics.missing_offsets import Tail
from core.forensics.read_committed import checked_headers
from core.forensics.segment_reader import SegmentReader
from core.records.record_batch import RecordBatch


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
    """Gives the first offsets of those below `end_offset`, by producer id. None if something is missing or contradicts
    something, so that the whole log must be read. `find_tail` is called for bytes that are no batch: those after the
    log's last batch are no damage to it.
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
    """Gives the newest first; without those that know offsets which were not there yet."""
    for offset, path in reversed(find_offset_files(directory, SNAPSHOT_SUFFIX)):
        if offset > end_offset:
            continue
        try:
            entries = read_producer_snapshot(path)
        except (CorruptRecordError, OSError):
            continue
        if all(max(entry.last_offset, entry.current_txn_first_offset) < offset for entry in entries):
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
        return False  # what stands there under such an offset is no batch of the log
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
    """Gives headers of the batches from the one that holds `start_offset` on, as `checked_headers` does; those of old
    formats know no transactions.
    """
    following = [segment.base_offset for segment in segments[1:]]
    for number, segment in enumerate(segments):
        if number < len(following) and following[number] <= start_offset:
            continue
        for batch in checked_headers(segment.records, segment.position_of(start_offset), segment.records.size_bytes):
            if isinstance(batch, RecordBatch):
                yield batch
