"""`.snapshot`: the state of a partition's producers at the offset in the file's name.

    0   int16   version 1
    2   uint32  crc          CRC-32C of everything from position 6 on
    6   int32   count, then per producer 46 bytes:
    0   int64   producer id
    8   int16   producer epoch
    10  int32   last sequence         -1 if no batch is remembered
    14  int64   last offset           -1 likewise
    22  int32   offset delta          last offset - first offset of the last batch
    26  int64   timestamp             of the last batch or marker, ms
    34  int32   coordinator epoch     of the last marker, -1 where none was seen
    38  int64   current transaction's first offset, -1 where none is open

(org.apache.kafka.storage.internals.log.ProducerStateManager, ProducerSnapshot.json)
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import File
from core.common.salvaging_file import SalvagingFile, open_readable
from core.files.file_names import SNAPSHOT_SUFFIX, find_offset_files
from core.records.checksum import crc32c_of_parts

_HEADER = struct.Struct(">hIi")
_CRC_END = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
ENTRY_BYTES = _ENTRY.size
_PIECE_BYTES = _ENTRY.size * 4096


class ProducerSnapshotEntry(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def believable_snapshots(directory: Path, end_offset: int) -> Iterator[tuple[int, list[ProducerSnapshotEntry]]]:
    """Yields the sound snapshots of a folder up to that offset, the newest first, each with its own offset; not one
    that states an offset of its own or above.
    """
    for offset, path in reversed(find_offset_files(directory, SNAPSHOT_SUFFIX)):
        if offset > end_offset:
            continue
        try:
            entries = list(iter_producer_snapshot(path))
        except (CorruptRecordError, OSError):
            continue
        if all(max(entry.last_offset, entry.current_txn_first_offset) < offset for entry in entries):
            yield offset, entries


def iter_producer_snapshot(path: Path) -> Iterator[ProducerSnapshotEntry]:
    """Yields the entries of a file, read in pieces, after the whole file was checked. Raises FileNotFoundError;
    CorruptRecordError if the file can't be read, for another version, a wrong checksum, or a size unlike the count.
    """
    with contextlib.closing(open_readable(path)) as file:
        _ensure_sound(file, str(path))
        for data in _pieces(file, _HEADER.size):
            yield from (ProducerSnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(data))


def _ensure_sound(file: SalvagingFile, path: str) -> None:
    size, header = file.size(), file.read_at(_HEADER.size, 0)
    file.ensure_whole()
    if len(header) < _HEADER.size:
        raise CorruptRecordError(f"producer snapshot of {size} bytes, expected {_HEADER.size} or more", path=path)
    version, crc, count = _HEADER.unpack(header)
    if version != _VERSION:
        raise CorruptRecordError(f"producer snapshot of version {version}, expected {_VERSION}", path=path)
    if count < 0 or size != _HEADER.size + count * _ENTRY.size:  # checked first: a file may be of any size
        raise CorruptRecordError(f"producer snapshot of {size} bytes says it holds {count} producers", path=path)
    computed = crc32c_of_parts(_pieces(file, _CRC_END))
    file.ensure_whole()
    if computed != crc:
        raise CorruptRecordError(
            f"producer snapshot crc mismatch: stored {crc:08x}, computed {computed:08x}", path=path
        )


def _pieces(file: SalvagingFile, position: int) -> Iterator[bytes]:
    size = file.size()
    for start in range(position, size, _PIECE_BYTES):
        yield file.read_at(min(_PIECE_BYTES, size - start), start)


def count_producers(size_bytes: int) -> int:
    """Counts the entries of a file of that size."""
    return max(size_bytes - _HEADER.size, 0) // _ENTRY.size


def read_producer(file: File, number: int) -> ProducerSnapshotEntry | None:
    """Reads one entry of a file that was found to be sound; None if the file ends before it."""
    data = file.read_at(_ENTRY.size, position_of_producer(number))
    return ProducerSnapshotEntry(*_ENTRY.unpack(data)) if len(data) == _ENTRY.size else None


def position_of_producer(number: int) -> int:
    """Says where an entry begins in the file."""
    return _HEADER.size + number * _ENTRY.size


def pack_producer(entry: ProducerSnapshotEntry, into: bytearray, position: int) -> None:
    """Writes the entry's `ENTRY_BYTES` there."""
    _ENTRY.pack_into(into, position, *entry)


def format_producer_snapshot(packed: bytes | bytearray) -> bytes:
    """Returns the content of a file with the entries that are packed there, one after the other."""
    count = struct.pack(">i", len(packed) // ENTRY_BYTES)
    return b"".join([struct.pack(">hI", _VERSION, crc32c_of_parts([count, packed])), count, packed])
