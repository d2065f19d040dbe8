"""`.txnindex`: the aborted transactions that ended in a segment. The file exists only if one did.

    0   int16  version               0
    2   int64  producer id
    10  int64  first offset          of the transaction
    18  int64  last offset           that of its abort marker
    26  int64  last stable offset    of the partition when the marker was written

(org.apache.kafka.storage.internals.log.TransactionIndex, AbortedTxn)
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.salvaging_file import open_readable

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_PIECE_BYTES = ENTRY.size * 4096


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_transaction_index(data: bytes, path: str = "") -> list[AbortedTransaction]:
    """Reads all entries; raises CorruptRecordError for an unknown version, a torn entry, or impossible offsets."""
    _ensure_whole(len(data), path)
    return list(_parse_entries(data, 0, -1, path))


def iter_transaction_index(path: Path) -> Iterator[AbortedTransaction]:
    """Yields the entries of a file, in pieces, so that a large file of another kind is not read whole. Raises
    FileNotFoundError; CorruptRecordError if the file can't be read, and as `parse_transaction_index` does.
    """
    with contextlib.closing(open_readable(path)) as file:
        size, last_offset = file.size(), -1
        _ensure_whole(size, str(path))
        for position in range(0, size, _PIECE_BYTES):
            data = file.read_at(min(_PIECE_BYTES, size - position), position)
            file.ensure_whole()
            for entry in _parse_entries(data, position, last_offset, str(path)):
                yield entry
                last_offset = entry.last_offset


def _ensure_whole(size_bytes: int, path: str) -> None:
    if size_bytes % ENTRY.size:
        raise CorruptRecordError(
            f"transaction index of {size_bytes} bytes, expected a multiple of {ENTRY.size}", path=path
        )


def _parse_entries(data: bytes, position: int, last_offset: int, path: str) -> Iterator[AbortedTransaction]:
    """Parses `data`, which lies at `position` in its file, after an entry that ends with `last_offset`."""
    for start in range(0, len(data), ENTRY.size):
        version, *fields = ENTRY.unpack_from(data, start)
        at = position + start
        if version != _VERSION:
            raise CorruptRecordError(f"aborted transaction of version {version}", position=at, path=path)
        entry = AbortedTransaction(*fields)
        if entry.first_offset > entry.last_offset:
            message = f"aborted transaction from offset {entry.first_offset} to {entry.last_offset}"
            raise CorruptRecordError(message, position=at, path=path)
        if entry.last_offset <= last_offset:
            message = f"aborted transaction that ends at offset {entry.last_offset}, the one before at {last_offset}"
            raise CorruptRecordError(message, position=at, path=path)
        yield entry
        last_offset = entry.last_offset


class TransactionIndex:
    """Aborted transactions of one segment, sorted by last offset; owned by one task. Read at first use."""

    def __init__(self, path: Path, filesystem: FileSystem, *, is_missing: bool = False) -> None:
        """With `is_missing` the caller knows that there is no file, and the disk is not asked."""
        self.path = path
        self._filesystem = filesystem
        self._entries: list[AbortedTransaction] | None = [] if is_missing else None
        self._written = 0  # entries that are in the file

    def entries(self) -> list[AbortedTransaction]:
        """Raises CorruptRecordError if the file does not parse, unless it was read before."""
        if self._entries is None:
            try:
                self._entries = list(iter_transaction_index(self.path))
            except FileNotFoundError:
                self._entries = []
            self._written = len(self._entries)
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        """Appends and writes at once, as aborts are rare. A disk that refuses is asked again by the next append or
        `sync`: the marker is in the log already, and the entry is kept in memory.
        """
        entries = self.entries()
        assert not entries or entries[-1].last_offset < aborted.last_offset
        entries.append(aborted)
        with contextlib.suppress(OSError):
            self._write()

    def _write(self) -> None:
        assert self._entries is not None
        if self._written == len(self._entries):
            return
        with contextlib.closing(self._filesystem.open_append(self.path)) as file:
            data = b"".join(ENTRY.pack(_VERSION, *aborted) for aborted in self._entries[self._written :])
            file.write_at(data, self._written * ENTRY.size)
        self._written = len(self._entries)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions that ended at `offset` or above."""
        entries = self.entries()
        kept = [e for e in entries if e.last_offset < offset]
        if len(kept) < len(entries):
            with contextlib.closing(self._filesystem.open_append(self.path)) as file:
                file.truncate(min(self._written, len(kept)) * ENTRY.size)
            self._entries = kept
            self._written = min(self._written, len(kept))

    def reset(self) -> None:
        """Forgets every entry, in memory and on the disk, for a rebuild."""
        self._filesystem.unlink(self.path)
        self._entries = []
        self._written = 0

    def sync(self) -> None:
        """Syncs the file if there is one. Safe from any thread once its segment is sealed."""
        if self._entries is not None:
            self._write()
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.sync_file(self.path)
