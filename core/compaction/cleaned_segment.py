"""The segment that takes the place of those that were cleaned: its files end in `.cleaned` until they do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.common.filesystem import Buffer, FileSystem
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex, TimestampOffset
from core.index.transaction_index import AbortedTransaction, TransactionIndex
from core.log.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from core.log.log_config import LogConfig
from core.records.record_batch import NO_TIMESTAMP

_WRITE_BYTES = 1024 * 1024


class CleanedSegment:
    """Owned by one task. Index entries follow the rules of `LogSegment`.

    `replaced`: base offsets of the segments that it stands for; its own is the first of them. Without a `filesystem`
    nothing is written, only counted.
    """

    def __init__(
        self, directory: Path, replaced: Sequence[int], config: LogConfig, filesystem: FileSystem | None
    ) -> None:
        self.replaced = tuple(replaced)
        self.base_offset = self.replaced[0]
        self.size_bytes = 0
        self._config = config
        self._filesystem = filesystem
        self._pieces: list[Buffer] = []
        self._pending_bytes = 0
        self._since_entry = 0
        self._newest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._directory = directory
        if filesystem is None:
            return
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            filesystem.unlink(self._path(suffix))
        self._file = filesystem.open_append(self._path(LOG_SUFFIX))
        maximum = config.segment_index_bytes
        self._offset_index = OffsetIndex(self._path(INDEX_SUFFIX), self.base_offset, maximum, filesystem)
        self._time_index = TimeIndex(self._path(TIME_INDEX_SUFFIX), self.base_offset, maximum, filesystem)
        self._transaction_index = TransactionIndex(self._path(TRANSACTION_INDEX_SUFFIX), filesystem)

    def _path(self, suffix: str) -> Path:
        return self._directory / (offset_file_name(self.base_offset, suffix) + CLEANED_SUFFIX)

    @property
    def paths(self) -> list[Path]:
        """Its files that are there, the log first."""
        suffixes = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        return [path for path in map(self._path, suffixes) if path.exists()]

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """A whole batch; OSError as the disk says."""
        if self._filesystem is not None:
            self._index(self.size_bytes, len(batch), last_offset, max_timestamp)
            self._pieces.append(batch)
            self._pending_bytes += len(batch)
            if self._pending_bytes >= _WRITE_BYTES:
                self._write()
        self.size_bytes += len(batch)

    def _index(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self._newest.timestamp:
            self._newest = TimestampOffset(max_timestamp, last_offset)
        if self._since_entry > self._config.index_interval_bytes:
            if not self._offset_index.is_full and not self._time_index.is_full:
                self._offset_index.append(last_offset, position)
                self._time_index.maybe_append(*self._newest)
            self._since_entry = 0
        self._since_entry += size

    def _write(self) -> None:
        self._file.write_at(b"".join(self._pieces), self._file.size())
        self._pieces.clear()
        self._pending_bytes = 0

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        if self._filesystem is not None:
            self._transaction_index.append(aborted)

    def finish(self, modified_ms: int) -> None:
        """Brings everything to the disk, dated as the last of the segments it replaces; OSError as the disk says."""
        if self._filesystem is None:
            return
        self._write()
        if self.size_bytes:
            self._time_index.maybe_append(*self._newest, at_roll=True)
        self._offset_index.seal()
        self._time_index.seal()
        self._file.set_modified_ms(modified_ms)
        self._file.sync()
        self._file.close()
        self._offset_index.sync()
        self._time_index.sync()
        self._transaction_index.sync()

    def discard(self) -> None:
        """Takes its files away."""
        if self._filesystem is not None:
            self._file.close()
            for path in self.paths:
                self._filesystem.unlink(path)
