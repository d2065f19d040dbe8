"""The segment that replaces cleaned ones: its files end in `.cleaned` until then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.common.filesystem import Buffer, FileSystem
from core.files.file_names import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, offset_file_name
from core.files.log_config import LogConfig
from core.index.transaction_index import AbortedTransaction
from core.log.log_segment import SegmentIndexes

_WRITE_BYTES = 1024 * 1024


class CleanedSegment:
    """Owned by one task. Index entries follow the rules of `LogSegment`.

    `replaced`: base offsets of the segments that it replaces; its own is the first of them. Without a `filesystem`
    nothing is written, only counted.
    """

    def __init__(
        self, directory: Path, replaced: Sequence[int], config: LogConfig, filesystem: FileSystem | None
    ) -> None:
        self.replaced = tuple(replaced)
        self.base_offset = self.replaced[0]
        self.size_bytes = 0
        self.is_changed = True
        """Whether its bytes differ from the replaced segment's, or it replaces several."""
        self._config = config
        self._filesystem = filesystem
        self._pieces: list[Buffer] = []
        self._pending_bytes = 0
        self._directory = directory
        if filesystem is None:
            return
        for suffix in SEGMENT_SUFFIXES:
            filesystem.unlink(self._path(suffix))
        self._file = filesystem.open_append(self._path(LOG_SUFFIX))
        self._indexes = SegmentIndexes(
            directory, self.base_offset, config, filesystem, is_new=True, suffix=CLEANED_SUFFIX
        )

    def _path(self, suffix: str) -> Path:
        return self._directory / (offset_file_name(self.base_offset, suffix) + CLEANED_SUFFIX)

    @property
    def paths(self) -> list[Path]:
        """The files that exist, the log first."""
        return [path for path in map(self._path, SEGMENT_SUFFIXES) if path.exists()]

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Appends a whole batch. Raises the disk's OSError."""
        if self._filesystem is not None:
            interval = self._config.index_interval_bytes
            self._indexes.add(self.size_bytes, len(batch), last_offset, max_timestamp, interval)
            self._pieces.append(batch)
            self._pending_bytes += len(batch)
            if self._pending_bytes >= _WRITE_BYTES:
                self._write()
        self.size_bytes += len(batch)

    def _write(self) -> None:
        self._file.write_at(b"".join(self._pieces), self._file.size())
        self._pieces.clear()
        self._pending_bytes = 0

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        if self._filesystem is not None:
            self._indexes.transaction.append(aborted)

    def finish(self, modified_ms: int) -> None:
        """Writes what is pending, and fsyncs all files. The log gets the modification time `modified_ms`, that of the
        last segment that it replaces. Raises the disk's OSError.
        """
        if self._filesystem is None:
            return
        self._write()
        self._indexes.seal(is_empty=not self.size_bytes)
        self._file.set_modified_ms(modified_ms)
        self._file.sync()
        self._file.close()
        self._indexes.sync()

    def discard(self) -> None:
        """Deletes its files."""
        if self._filesystem is not None:
            self._file.close()
            for path in self.paths:
                self._filesystem.unlink(path)
