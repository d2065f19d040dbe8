"""The indexes beside one segment's log: every operation on them is here, for all three.

`.index` leads from an offset into the log, `.timeindex` from a timestamp to an offset: both get an entry for the first
batch that follows `index.interval.bytes` of others. `.txnindex` lists the aborted transactions, and exists only if
there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.filesystem import FileSystem
from core.files.file_names import INDEX_SUFFIX, INDEX_SUFFIXES, TIME_INDEX_SUFFIX, offset_file_name
from core.index.abstract_index import AbstractIndex
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex, TimestampOffset
from core.index.transaction_index import TransactionIndex
from core.records.batches import Batch
from core.records.record_batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from core.files.log_config import LogConfig

SPARSE_INDEXES: dict[str, type[AbstractIndex]] = {INDEX_SUFFIX: OffsetIndex, TIME_INDEX_SUFFIX: TimeIndex}
"""The kinds with entries for some of the batches, by the suffix of their files."""


class SegmentIndexes:
    """Owned by one task (the partition log's), but for `sync`, which any thread may call once they are sealed.

    I1 no entry leads beyond the end of the log
    I2 no timestamp in the time index is above `newest`
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        filesystem: FileSystem,
        *,
        may_map: bool = True,
        is_new: bool = False,
        is_without_aborted: bool = False,
        suffix: str = "",
    ) -> None:
        """`may_map` is passed to `AbstractIndex`. `is_new`: the log has no batches yet. With `is_without_aborted` the
        caller knows that there is no transaction index. `suffix` follows the files' names, as `.cleaned` does.
        """
        names = [offset_file_name(base_offset, kind) + suffix for kind in INDEX_SUFFIXES]
        offset, time, transaction = (directory / name for name in names)
        maximum = config.segment_index_bytes
        self.offset = OffsetIndex(offset, base_offset, maximum, filesystem, may_map=may_map)
        self.time = TimeIndex(time, base_offset, maximum, filesystem, may_map=may_map)
        self.transaction = TransactionIndex(transaction, filesystem, is_missing=is_without_aborted)
        self._sparse: tuple[AbstractIndex, ...] = self.offset, self.time
        self._all: tuple[AbstractIndex | TransactionIndex, ...] = *self._sparse, self.transaction
        self._nothing = TimestampOffset(NO_TIMESTAMP, base_offset)
        self.newest = self._nothing if is_new else None
        """The largest timestamp of the batches and the last offset of its batch; None if it is not known."""
        self._since_entry = 0  # bytes of batches
        self._is_full: bool | None = None  # known from its first use until an entry comes or goes

    # --- append

    @property
    def is_full(self) -> bool:
        """Whether one of them takes no more entries. Each append asks."""
        is_full = self._is_full
        if is_full is None:
            is_full = self._is_full = self.offset.is_full or self.time.is_full
        return is_full

    @property
    def room(self) -> int:
        """Returns how many batches may certainly be added before `is_full`."""
        return min(self.offset.room, self.time.room)

    def add(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int, interval_bytes: int) -> None:
        """Takes the log's next batch, which gets entries if more than `interval_bytes` came since the last ones.
        `newest` is known.
        """
        newest = self.newest
        assert newest is not None
        if max_timestamp > newest.timestamp:
            newest = self.newest = TimestampOffset(max_timestamp, last_offset)
        if self._since_entry > interval_bytes:
            if not self.is_full:  # they may be made again, under another limit
                self.offset.append(last_offset, position)
                self.time.maybe_append(newest.timestamp, newest.offset)
                self._is_full = None
            self._since_entry = 0
        self._since_entry += size_bytes

    def make_again(self, batches: Iterable[Batch], interval_bytes: int, *, is_sealed: bool) -> None:
        """Makes the sparse ones by all batches of the log, and writes them; appends go on as if nothing had been."""
        known = self.newest
        self._forget()
        for batch in batches:
            self.add(batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp, interval_bytes)
        if is_sealed:
            self._append_newest()
        self.flush()
        self.newest = known

    def _append_newest(self) -> None:
        assert self.newest is not None
        self.time.maybe_append(*self.newest, at_roll=True)
        self._is_full = None

    # --- to the disk

    def create(self) -> None:
        """Creates, empty, the files that every segment has."""
        self._forget()
        self.flush()
        self.transaction.reset()

    def reset(self) -> None:
        """Drops every entry, to rebuild the indexes; aborted transactions are dropped on the disk as well."""
        self._forget()
        self.transaction.reset()

    def _forget(self) -> None:
        for index in self._sparse:
            index.reset()
        self.newest = self._nothing
        self._since_entry = 0
        self._is_full = None

    def truncate_to(self, offset: int) -> None:
        """Drops the entries for `offset` and above; `newest` is unknown then."""
        for index in self._all:
            index.truncate_to(offset)
        self.newest = None
        self._since_entry = 0
        self._is_full = None

    def flush(self) -> None:
        """Writes the entries that the files lack."""
        for index in self._sparse:
            index.flush()

    def seal(self, *, is_empty: bool) -> None:
        """Writes the files, trimmed, with the largest timestamp of a log that is not empty. Appends may follow."""
        if not is_empty:
            self._append_newest()
        for index in self._sparse:
            index.seal()

    def set_may_map(self, *, may_map: bool) -> None:
        """See `AbstractIndex.may_map`."""
        for index in self._sparse:
            index.may_map = may_map

    def release(self) -> None:
        """Frees the entries that the files have; they are read again at the next use."""
        for index in self._sparse:
            index.release()

    def sync(self) -> None:
        """Returns when the files, as they are, are on the disk."""
        for index in self._all:
            index.sync()

    # --- their entries

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Returns the sizes of the offset and time indexes."""
        return tuple(index.size_bytes for index in self._sparse)

    def sanity_check(self, *, is_empty: bool) -> bool:
        """Says whether the files of a log exist; `is_empty` says whether it has batches. Raises CorruptRecordError if a
        file can't be an index of this segment, by its form.
        """
        is_there = self.offset.sanity_check() and (self.time.sanity_check() or is_empty)
        self.transaction.sanity_check()
        return is_there

    def check_invariants(self, size_bytes: int) -> None:
        """Checks the entries against the size of the log."""
        for number in range(len(self.offset)):
            assert 0 <= self.offset.entry(number)[1] < size_bytes, f"{self.offset.path}: entry {number}"
        assert self.newest is None or self.time.last_entry().timestamp <= self.newest.timestamp, str(self.time.path)
        for index in self._sparse:
            index.check_invariants()
        assert self._is_full in (None, self.offset.is_full or self.time.is_full), str(self.offset.path)
