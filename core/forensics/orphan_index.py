"""Finds the indexes of segments whose `.log` is gone, and how far such a segment reached.

An index has no entry before the log has its batch, and no crash takes a file away that has a name. So the offset of the
last entry was in the log. A file in which anything is out of order proves nothing but its name.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Collection, Container, Iterable
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.salvaging_file import read_small_file
from core.files.file_names import INDEX_SUFFIXES, find_offset_files, offset_file_name
from core.files.segment_indexes import SPARSE_INDEXES
from core.index.transaction_index import parse_transaction_index


def find_orphan_indexes(directory: Path, logs: Container[int]) -> list[tuple[int, Path]]:
    """Returns the index files of segments that have no log; `logs` are the base offsets of the segments with one."""
    found = (one for suffix in INDEX_SUFFIXES for one in find_offset_files(directory, suffix))
    return [(offset, path) for offset, path in found if offset not in logs]


def find_traces(directory: Path, bases: Iterable[int], logs: Collection[int]) -> set[int]:
    """Returns the base offsets of lone indexes that are traces of a segment. Between existing segments, indexes without
    any entry may have been made for a segment whose `.log` the disk then refused.
    """
    between = range(min(logs, default=0) + 1, max(logs, default=0))
    return {base for base in bases if base not in between or _holds_anything(directory, base)}


def _holds_anything(directory: Path, base_offset: int) -> bool:
    """Says whether one of the segment's indexes has entries, or can't be read."""
    for suffix in INDEX_SUFFIXES:
        try:
            if any(read_small_file(directory / offset_file_name(base_offset, suffix))):
                return True
        except FileNotFoundError:
            continue
        except (OSError, CorruptRecordError):
            return True
    return False


def indexed_end(directory: Path, base_offset: int) -> int:
    """Returns the offset after the last one that a segment's indexes name, or its base offset."""
    return max(
        index_end(directory / offset_file_name(base_offset, suffix), suffix, base_offset) for suffix in INDEX_SUFFIXES
    )


def index_end(path: Path, suffix: str, base_offset: int) -> int:
    """Returns the same for one file, of any name; `suffix` says which index it is."""
    with contextlib.suppress(OSError, CorruptRecordError):
        return _end_of(read_small_file(path), suffix, base_offset)
    return base_offset


def _end_of(data: bytes, suffix: str, base_offset: int) -> int:
    kind = SPARSE_INDEXES.get(suffix)
    if kind is None:
        return max((entry.last_offset + 1 for entry in parse_transaction_index(data)), default=base_offset)
    entries = rising_entries(kind.ENTRY, data)
    return base_offset + entries[-1][kind.OFFSET_FIELD] + 1 if entries else base_offset


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
