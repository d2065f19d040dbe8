"""Sealed segments that end too early, by their own indexes.

A file that is cut where a batch ends is a sound file. If a cleaner changed the log, the offsets between its end and the
next segment look like those of records that it took. The segment's indexes show it: an entry is made only for a batch
that is there, and the indexes of a cleaned segment are made together with it. An entry of `.index` names an offset and
a position, one of `.timeindex` a timestamp and an offset; the last one is made when the segment is sealed, for its
largest timestamp.

Nothing protects an index, so one is believed only as far as the log confirms it. Its entries have to rise. Entries for
batches that are there have to fit them. Those after them have to name offsets that the segment may have had, and a
position that the file does not reach, or a timestamp that none of its batches reaches. One flipped bit makes no such
entry. If no entry fits a batch, the file may be another segment's: the other index has to say the same then, but for an
`.index` that has no entry, as that of a small segment. A believed index shows that something may be lost, not that it
is.

The owner of the log rebuilds such an index, and keeps the old one beside it before, as `<base
offset>.index.beyond-<size of the log>`. From then on that file is the proof, as long as the log has that size.

It costs a look at the ends of both indexes and of the log, unless one of the indexes reaches further.
"""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.salvaging_file import open_salvaging, read_small_file
from core.files.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SPARSE_INDEXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_file_name,
)
from core.files.file_records import FileRecords, rising_headers
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.records.record_batch import NO_TIMESTAMP


class TruncatedSegment(NamedTuple):
    """A segment whose log ends before an entry of its index: `path` is the log, `position` its end."""

    path: Path
    position: int
    evidence: str


def find_truncated_segment(directory: Path, base_offset: int, limit: int) -> TruncatedSegment | None:
    """Looks at the segment of that base offset, after which the next one begins at `limit`. None if its indexes name
    nothing after the log's last batch, or can't be believed, and if a file can't be read, or changes just now.
    """
    path = directory / offset_file_name(base_offset, LOG_SUFFIX)
    try:
        with contextlib.closing(FileRecords(path, open_salvaging)) as records:
            return _find(records, base_offset, limit)
    except (OSError, CorruptRecordError):
        return None


def keep_proof(cut: TruncatedSegment, filesystem: FileSystem) -> None:
    """Keeps the indexes that say so beside themselves, before they are made again. Raises the disk's OSError."""
    for suffix in SPARSE_INDEXES:
        path = cut.path.with_suffix(suffix)
        kept = _kept_path(path, cut.position)
        if path.exists() and not kept.exists():
            filesystem.write_atomic(kept, read_small_file(path))


def _kept_path(index: Path, log_size: int) -> Path:
    return index.with_name(f"{index.name}.beyond-{log_size}")


def _find(records: FileRecords, base_offset: int, limit: int) -> TruncatedSegment | None:
    offset_index, time_index = _read(records, INDEX_SUFFIX), _read(records, TIME_INDEX_SUFFIX)
    if not _reaches_further(records, base_offset, offset_index, time_index):
        return None
    by_offset = rising_entries(OffsetIndex.ENTRY, offset_index)
    by_time = rising_entries(TimeIndex.ENTRY, time_index)
    next_offset, largest = base_offset, NO_TIMESTAMP
    offset_at = time_at = 0  # the entries before are for batches that are there
    fits_offset = fits_time = True
    for batch in rising_headers(records.iter_headers(0), base_offset, limit):
        next_offset, largest = batch.last_offset + 1, max(largest, batch.max_timestamp)
        while offset_at < len(by_offset) and by_offset[offset_at][1] <= batch.position:
            relative, position = by_offset[offset_at]  # of several batches: where they begin, and their last offset
            fits_offset = fits_offset and position == batch.position and batch.last_offset <= base_offset + relative
            offset_at += 1
        while time_at < len(by_time) and base_offset + by_time[time_at][1] <= batch.last_offset:
            fits_time = fits_time and by_time[time_at][0] == largest
            time_at += 1
    lost = [(base_offset + relative, position) for relative, position in by_offset[offset_at:]]
    proves_offset = fits_offset and all(next_offset <= o < limit and p >= records.size_bytes for o, p in lost)
    times = [(base_offset + relative, timestamp) for timestamp, relative in by_time[time_at:]]
    proves_time = fits_time and all(o < limit and timestamp > largest for o, timestamp in times)
    cut = TruncatedSegment(records.path, records.size_bytes, "")
    where = f"{records.path.name} ends at position {records.size_bytes}, before offset {next_offset}"
    if lost and proves_offset and (offset_at or (times and proves_time)):
        offset, position = lost[-1]
        return cut._replace(evidence=f"its {INDEX_SUFFIX} names offset {offset} at position {position}, and {where}")
    if times and proves_time and (time_at or not by_offset):
        return cut._replace(evidence=f"its {TIME_INDEX_SUFFIX} names offset {times[-1][0]}, and {where}")
    return None


def _reaches_further(records: FileRecords, base_offset: int, offset_index: bytes, time_index: bytes) -> bool:
    """Says whether an index may name more than the log has, by the last entries, and the headers after the last one."""
    _, last_position = _last_entry(OffsetIndex.ENTRY, offset_index)
    _, last_offset = _last_entry(TimeIndex.ENTRY, time_index)
    if last_position >= records.size_bytes:
        return bool(offset_index or time_index)
    next_offset = base_offset
    try:
        for batch in records.iter_headers(last_position):
            next_offset = batch.last_offset + 1
    except CorruptRecordError:
        return True  # the entry may be wrong: all headers must be read
    return bool(time_index) and base_offset + last_offset >= next_offset


def rising_entries(entry: struct.Struct, data: bytes) -> list[tuple[int, int]]:
    """Returns all entries of an index before the zeros at the file's end; none unless both numbers rise from each entry
    to the next.
    """
    if len(data) % entry.size:
        return []
    used = len(data.rstrip(b"\0"))
    before, entries = (-1, -1), list[tuple[int, int]]()
    for first, second in entry.iter_unpack(data[: -(-used // entry.size) * entry.size]):
        if first <= before[0] or second <= before[1]:
            return []
        before = first, second
        entries.append(before)
    return entries


def _last_entry(entry: struct.Struct, data: bytes) -> tuple[int, int]:
    """Returns the last entry, its second number at least 0, or zeros."""
    first, second = entry.unpack_from(data, len(data) - entry.size) if data else (0, 0)
    return first, max(second, 0)


def _read(records: FileRecords, suffix: str) -> bytes:
    """Returns an index without the zeros at its end, the kept one if there is one. Empty if it does not exist, if it
    ends within an entry, or if a cleaned one is about to take its place: the log may be the cleaned one already.
    """
    path, entry = records.path.with_suffix(suffix), SPARSE_INDEXES[suffix].ENTRY
    if path.with_name(path.name + SWAP_SUFFIX).exists():
        return b""
    kept = _kept_path(path, records.size_bytes)
    path = kept if kept.exists() else path
    with contextlib.suppress(OSError, CorruptRecordError):
        data = read_small_file(path)
        used = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
        return data[:used] if len(data) % entry.size == 0 else b""
    return b""
