"""How far a segment reached, by an index of it whose `.log` is gone.

An index has no entry before the log has its batch, and no crash takes a file away that has a name. So the offset of the
last entry was in the log. A file in which anything is out of order proves nothing but its name.
"""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

from core.common.bad_sectors import read_small_file
from core.common.errors import CorruptRecordError
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.index.transaction_index import parse_transaction_index
from core.log.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, offset_file_name

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def indexed_end(directory: Path, base_offset: int) -> int:
    """The offset after the last one that the indexes of a segment name; its base offset if they name none."""
    return max(
        index_end(directory / offset_file_name(base_offset, suffix), suffix, base_offset) for suffix in INDEX_SUFFIXES
    )


def index_end(path: Path, suffix: str, base_offset: int) -> int:
    """The same by one file, whatever it is called; `suffix` says which index it is."""
    with contextlib.suppress(OSError, CorruptRecordError):
        return _end_of(read_small_file(path), suffix, base_offset)
    return base_offset


def _end_of(data: bytes, suffix: str, base_offset: int) -> int:
    if suffix == TRANSACTION_INDEX_SUFFIX:
        return max((entry.last_offset + 1 for entry in parse_transaction_index(data)), default=base_offset)
    if suffix == INDEX_SUFFIX:
        offsets = _rising(OffsetIndex.ENTRY, data, offset_at=0)
    else:
        offsets = _rising(TimeIndex.ENTRY, data, offset_at=1)
    return base_offset + offsets[-1] + 1 if offsets else base_offset


def _rising(entry: struct.Struct, data: bytes, offset_at: int) -> list[int]:
    """The relative offsets of all entries before the zeros at the file's end; none if both numbers of an entry do not
    rise from one to the next.
    """
    if len(data) % entry.size:
        return []
    used = len(data.rstrip(b"\0"))
    before, offsets = (-1, -1), list[int]()
    for pair in entry.iter_unpack(data[: -(-used // entry.size) * entry.size]):
        if pair[0] <= before[0] or pair[1] <= before[1]:
            return []
        before = pair
        offsets.append(pair[offset_at])
    return offsets
