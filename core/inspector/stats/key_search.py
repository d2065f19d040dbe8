"""Looks for records by their keys, by columns: no Python object is made of a record that has another key."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from core.common.errors import CorruptRecordError
from core.forensics.missing_offsets import Hole
from core.forensics.partition_reader import PartitionReader
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_whole_batches

OnHole = Callable[[Hole], None]
OnUndecodable = Callable[[Batch, CorruptRecordError], None]


def find_last(
    log: PartitionReader,
    key: bytes,
    start_offset: int,
    end_offset: int,
    *,
    on_undecodable: OnUndecodable,
    on_hole: OnHole | None = None,
    on_doubt: OnHole | None = None,
    read_committed: bool = False,
) -> int | None:
    """Gives the offset of the last record in [start_offset, end_offset) that has the key; None if there is none.

    It is looked for from the end backwards, one segment at a time, so that damage and what it may hide matter only if
    they come later. Raises CorruptRecordError for damage if `on_hole` is not given, and what `on_undecodable` raises.
    `on_doubt` is called with offsets that are missing for no known reason.
    """
    bounds = {segment.base_offset for segment in log.segments if start_offset < segment.base_offset < end_offset}
    stop = end_offset
    for start in sorted(bounds | {start_offset}, reverse=True):
        found = None
        batches = log.read(start, stop, read_committed=read_committed, on_hole=on_hole, on_doubt=on_doubt)
        for columns in with_key(batches, key, on_undecodable, is_whole=True):
            inside = columns.offsets[(columns.offsets >= start) & (columns.offsets < stop)]
            if len(inside):
                found = int(inside[-1])
        if found is not None:
            return found
        stop = start
    return None


def with_key(
    batches: Iterator[Batch], key: bytes, on_undecodable: OnUndecodable, *, is_whole: bool
) -> Iterator[RecordColumns]:
    """Gives the records of the batches whose key is that one or, if it is not the whole of it, ends with it."""
    for group in group_batches(batches):
        for columns in decode_whole_batches(group, on_undecodable):
            rows = _rows_ending_with(columns, key, is_whole=is_whole)
            if len(rows):
                yield columns.select(rows)


def _rows_ending_with(columns: RecordColumns, ending: bytes, *, is_whole: bool) -> npt.NDArray[np.int64]:
    lengths = columns.key_lengths
    rows = np.flatnonzero(lengths == len(ending) if is_whole else lengths >= len(ending))
    data = np.frombuffer(columns.buffer, np.uint8)
    ends = (columns.key_positions + lengths)[rows]
    for number, byte in enumerate(reversed(ending), 1):  # keys differ in their last bytes as a rule
        same = data[ends - number] == byte
        rows, ends = rows[same], ends[same]
        if not len(rows):
            break
    return rows
