"""Checks one `.log` in one pass, its indexes beside it.

An `OffsetIndexCheck` and a `TimeIndexCheck` are fed the batches where entries are due, and say in the end which entries
are wrong: entries and batches come in the same order, so that a finger on each is enough. What an entry says of damaged
bytes does not count as wrong.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Container, Generator, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.common.errors import CorruptRecordError, UnreadableFileError
from core.common.filesystem import access_error
from core.common.salvaging_file import SalvagingFile, is_of_the_file, open_salvaging, unreadable_error
from core.files.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from core.forensics.batch_scanner import BatchScanner, SoundRun
from core.forensics.damage import Damage, DamageKind
from core.forensics.missing_offsets import LOSSES
from core.forensics.truncated_segments import find_truncated_segment
from core.index.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from core.index.time_index import TimeIndex
from core.index.transaction_index import iter_transaction_index
from core.inspector.check.findings import Code, Finding, Severity, batch_finding, corrupt_finding, unreadable_finding
from core.inspector.check.producer_check import ProducerCheck
from core.records.batches import Batch, inner_offsets, refused_frame, stated_offset
from core.records.checksum import crc32c_by_table
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record_batch import (
    ATTRIBUTES_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER,
    NO_TIMESTAMP,
    RecordBatch,
    is_thinned,
)

if TYPE_CHECKING:
    from core.forensics.log_map import LogMap


_MOST_FINDINGS = 5
"""The most of one index: when it is wrong, it is usually wrong from somewhere on."""

_MOST_STRETCH = 3
"""The widest gap: a restart counts bytes again from 0, which makes one twice as wide; three times is damage."""

_NEVER = 1 << 63


_PAGE_ENTRIES = 4096
_FEW_ENTRIES = 64
_MOST_HELD_ENTRIES = 1 << 18
"""The most entries that are held: as many as a log of 1 GiB has at Kafka's distance between entries: 30 MB."""


class IndexEntries(Sequence[tuple[int, int]]):
    """The entries of an index file, a page at a time: a file may be of any size. Bytes that can't be read are zeros."""

    def __init__(self, file: SalvagingFile, entry: struct.Struct, page_entries: int = _FEW_ENTRIES) -> None:
        """A reader of all entries has larger pages than one who looks for some."""
        self.file = file
        self._entry = entry
        self._page_entries = page_entries
        self._page: list[tuple[int, int]] = []
        self._page_start = 0
        self._count = file.size() // entry.size
        self._drop_padding()

    def _drop_padding(self) -> None:
        """Counts no zeros after the last entry, which a file in use has; one entry of zeros alone may be the first."""
        end = min(self._count, -(-self.file.data_end() // self._entry.size)) * self._entry.size
        while end:
            start = max(end - _PAGE_ENTRIES * self._entry.size, 0)
            data = self.file.read_at(end - start, start).rstrip(b"\0")
            if data:
                self._count = -(-(start + len(data)) // self._entry.size)
                return
            end = start
        self._count = min(self._count, 1) if self.file.size() == self._entry.size else 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:  # of Sequence: a number or a slice, which nobody asks for
        if number < 0:
            number += self._count
        if not 0 <= number < self._count:
            raise IndexError(number)
        if not self._page_start <= number < self._page_start + len(self._page):
            self._page_start = number - number % self._page_entries
            self._page = self._read_page(self._page_start)
        return self._page[number - self._page_start]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self._count, self._page_entries):
            yield from self._read_page(start)[: self._count - start]

    def _read_page(self, start: int) -> list[tuple[int, int]]:
        size = self._entry.size
        data = self.file.read_at(self._page_entries * size, start * size)
        return list(self._entry.iter_unpack(data[: len(data) // size * size]))


def open_offset_index(log: Path) -> IndexEntries | None:
    """Opens the offset index beside a log, or returns None if it can't be read."""
    file: SalvagingFile | None = None
    with suppress(OSError):
        file = open_salvaging(log.with_suffix(INDEX_SUFFIX))
        return IndexEntries(file, OffsetIndex.ENTRY)
    if file is not None:
        file.close()
    return None


class _IndexCheck(ABC):
    """The common part of both indexes' checks: the file's entries, and complaints about them."""

    ENTRY: struct.Struct
    MISSING: Code
    CORRUPT: Code
    MISMATCH: Code

    def __init__(self, path: Path, base_offset: int) -> None:
        self._path = path
        self._base_offset = base_offset
        self._problems: list[Finding] = []
        self._left_out = 0
        self._not_looked_at = 0
        self._next = 0
        self._right = 0
        self._entries: Sequence[tuple[int, int]] = ()
        self._file: SalvagingFile | None = None
        self._unreadable: UnreadableFileError | None = None
        self.is_there = True
        try:
            self._file = open_salvaging(path)
        except OSError as error:
            if not is_of_the_file(error) and not isinstance(error, FileNotFoundError):
                raise access_error(error, path, "read") from error
            if is_of_the_file(error) or path.is_symlink():
                self._unreadable = unreadable_error(error, path)
            else:
                self.is_there = False
        else:
            self._read(self._file)
        self.due = self._due()
        """Batches before this need not be shown."""

    def _read(self, file: SalvagingFile) -> None:
        size_bytes, size = file.size(), self.ENTRY.size
        if size_bytes % size and any(file.read_at(size_bytes % size, size_bytes - size_bytes % size)):
            self._complain(self.CORRUPT, f"{size_bytes} bytes, expected a multiple of {size}", size_bytes // size)
        entries = IndexEntries(file, self.ENTRY, _PAGE_ENTRIES)
        if len(entries) <= _MOST_HELD_ENTRIES:
            self._entries = list(entries)  # a list is faster
            return
        for number in range(1, _PAGE_ENTRIES):
            if entries[number][0] <= entries[number - 1][0]:
                self._complain(self.CORRUPT, f"entry {number} is not above the one before it", number)
                self._not_looked_at = len(entries) - number - 1
                return
        self._entries = entries

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _maybe_give_up(self) -> bool:
        """Stops checking a file that is too large for any log, and begins with wrong entries; says whether it did."""
        is_hopeless = len(self._problems) >= _MOST_FINDINGS and isinstance(self._entries, IndexEntries)
        if is_hopeless:
            self._not_looked_at += len(self._entries) - self._next
            self._next = len(self._entries)
            self.due = _NEVER
        return is_hopeless

    def _complain(self, code: Code, message: str, number: int, offset: int = -1) -> None:
        if len(self._problems) < _MOST_FINDINGS:
            position = number * self.ENTRY.size
            self._problems.append(Finding(Severity.WARNING, code, str(self._path), message, position, offset))
        else:
            self._left_out += 1

    def findings(self, *, has_batches: bool, may_lag: bool = False) -> Iterator[Finding]:
        """Yields, after the last batch, everything wrong with the index. `may_lag`: somebody is writing to the log."""
        if not self.is_there:
            is_deleted = not self._path.with_suffix(LOG_SUFFIX).exists()  # meanwhile: the .log goes first
            if has_batches and not may_lag and not is_deleted:
                yield Finding(Severity.WARNING, self.MISSING, str(self._path), "there is a .log, but not this index")
            return
        for number in range(self._next, len(self._entries)):
            if self._maybe_give_up():
                break
            self._complain(self.MISMATCH, f"{self._entry_text(number)} points at no batch of the log", number)
        if self._file is not None and self._file.unreadable:
            bad = self._file.unreadable[0]
            self._unreadable = UnreadableFileError(
                bad.reason, errno=bad.errno, path=str(self._path), position=bad.position
            )
        if self._unreadable is not None:  # the other findings are its zeros
            yield unreadable_finding(self._unreadable)
            return
        yield from self._problems
        if self._left_out:
            message = f"{self._left_out} more entries are wrong"
            yield Finding(Severity.WARNING, self.MISMATCH, str(self._path), message)
        if self._not_looked_at:
            message = f"{self._not_looked_at} more entries, which were not looked at"
            yield Finding(Severity.WARNING, self.MISMATCH, str(self._path), message)

    @property
    def count(self) -> int:
        return len(self._entries)

    def is_of_another_log(self) -> bool:
        """Says, after `findings`, whether the entries are in order, as in any index, and not one of them is right."""
        if self._right or not self._entries or self._not_looked_at or self._unreadable is not None:
            return False
        rises = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(self._entries))
        return rises and len(self._problems) + self._left_out >= len(self._entries)

    def take_entries_after(self) -> int | None:
        """Returns the largest offset of the entries after the log's last batch, which are then not reported; None
        without such entries, or if they do not rise, and are reported.
        """
        last: int | None = None
        for number in range(self._next, len(self._entries)):
            offset = self._offset(number)
            if last is not None and offset <= last:
                return None  # no entries of any log
            last = offset
        self._next = len(self._entries)
        return last

    @abstractmethod
    def _due(self) -> int: ...

    def _next_due(self, field: int) -> int:
        """Returns the smaller of that field of the next two entries: one wrong entry must not hide those after it."""
        following = range(self._next, min(self._next + 2, len(self._entries)))
        return min((self._entries[number][field] for number in following), default=_NEVER)

    def _is_following(self, entry: tuple[int, int]) -> bool:
        """Says whether the entry after the next one is that: then the next one, which is beyond it, is wrong."""
        number = self._next + 1
        return number < len(self._entries) and self._entries[number] == entry

    @abstractmethod
    def _offset(self, number: int) -> int: ...

    def _offset_text(self, number: int) -> str:
        offset = self._offset(number)
        return str(offset) if offset >= self._base_offset else "below its segment's"

    @abstractmethod
    def _entry_text(self, number: int) -> str: ...


class OffsetIndexCheck(_IndexCheck):
    """Checks every entry: a batch begins at its position, and one there or after it ends with its offset. `due` is a
    position.
    """

    ENTRY = OffsetIndex.ENTRY
    MISSING, CORRUPT, MISMATCH = Code.INDEX_MISSING, Code.INDEX_CORRUPT, Code.INDEX_MISMATCH

    _unseen_end: tuple[int, int] | None = None
    """(number, offset) of the entry whose batch was seen to begin, while no batch yet ended with its offset."""

    def _due(self) -> int:
        return -1 if self._unseen_end is not None else self._next_due(1)

    def take_entries_after(self) -> int | None:
        self._unseen_end = None  # its batch was written with others, the last of which are lost
        return super().take_entries_after()

    def findings(self, *, has_batches: bool, may_lag: bool = False) -> Iterator[Finding]:
        self._complain_of_unseen_end("none of the log is as high")
        yield from super().findings(has_batches=has_batches, may_lag=may_lag)

    def see(self, batch_position: int, last_offset: int) -> None:
        """Takes the batch at `due`, or the first after it."""
        if batch_position == self.due and self._entries[self._next] == (last_offset - self._base_offset, self.due):
            self._next += 1  # as it should be
            self._right += 1
            self.due = self._due()
            return
        while self._next < len(self._entries) and not self._maybe_give_up():
            relative, position = self._entries[self._next]
            if position > batch_position and not self._is_following((last_offset - self._base_offset, batch_position)):
                break
            offset = self._base_offset + relative
            if position != batch_position:
                self._complain(
                    self.MISMATCH, f"{self._entry_text(self._next)}: no batch begins there", self._next, offset
                )
            else:
                self._complain_of_unseen_end("none up to the next entry")
                self._unseen_end = self._next, offset
            self._next += 1
        if self._unseen_end is not None and last_offset >= self._unseen_end[1]:
            number, offset = self._unseen_end
            if last_offset > offset:
                self._complain(
                    self.MISMATCH,
                    f"{self._entry_text(number)}: no batch ends with that offset, one ends with {last_offset}",
                    number,
                    offset,
                )
            self._unseen_end = None
        self.due = self._due()

    def _complain_of_unseen_end(self, why: str) -> None:
        if self._unseen_end is not None:
            number, offset = self._unseen_end
            text = f"{self._entry_text(number)}: no batch ends with that offset, {why}"
            self._complain(self.MISMATCH, text, number, offset)
            self._unseen_end = None

    def see_damage(self, damage: Damage) -> None:
        """Passes over the entries of damaged bytes, which can't be told right from wrong."""
        self._unseen_end = None
        while self._next < len(self._entries) and self._entries[self._next][1] < damage.end_position:
            if self._entries[self._next][1] < damage.position:
                text = f"{self._entry_text(self._next)}: no batch begins there"
                self._complain(self.MISMATCH, text, self._next, self._offset(self._next))
            self._next += 1
        self.due = self._due()

    def check_reach(self, log_end: int) -> None:
        """Finds an end that comes much too early: zeros where entries were. `log_end`: where the last batch begins."""
        count = len(self._entries)
        last = self._entries[-1][1] if count else 0
        if last < 0 or self._not_looked_at:
            return
        if count < _ENOUGH_ENTRIES or (log_end - last) * count <= _MOST_STRETCH * last:
            return  # even if they are all as far apart as on average
        positions = chain([0], (self._entries[number][1] for number in range(count)))
        widest = max(after - before for before, after in pairwise(positions))
        if log_end - last > _MOST_STRETCH * widest > 0:
            self._complain(
                self.MISMATCH,
                f"the last entry is at position {last} of a log of {log_end} bytes, "
                f"where entries are at most {widest} apart",
                count,
            )

    def _offset(self, number: int) -> int:
        return self._base_offset + self._entries[number][0]

    def _entry_text(self, number: int) -> str:
        position = self._entries[number][1]
        where = f"position {position}" if position >= 0 else "a position below zero"
        return f"entry {number} (offset {self._offset_text(number)}, {where})"


class TimeIndexCheck(_IndexCheck):
    """Checks every entry: no timestamp up to the batch with its offset is larger than its own, which occurs there.
    `due` is an offset.
    """

    ENTRY = TimeIndex.ENTRY
    MISSING, CORRUPT, MISMATCH = Code.TIME_INDEX_MISSING, Code.TIME_INDEX_CORRUPT, Code.TIME_INDEX_MISMATCH

    _is_certain = True
    """False while the largest timestamp may have been that of a damaged batch."""

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, base_offset)
        self.largest = NO_TIMESTAMP
        """The largest timestamp of all batches so far; the caller that reads batches updates it."""

    def _due(self) -> int:
        due = self._next_due(1)
        return due if due == _NEVER else self._base_offset + due

    def see(self, last_offset: int) -> None:
        """Takes a batch that ends with `due`, or the first after it; `largest` has its timestamp."""
        if last_offset == self.due and self._entries[self._next] == (self.largest, self.due - self._base_offset):
            self._next += 1  # as it should be
            self._right += 1
            self.due = self._due()
            if self.due > last_offset:
                return
        while self._next < len(self._entries) and not self._maybe_give_up():
            timestamp, relative = self._entries[self._next]
            offset = self._base_offset + relative
            if offset > last_offset:
                if not self._is_following((self.largest, last_offset - self._base_offset)):
                    break
                text = f"{self._entry_text(self._next)}: the entry after it is of a lower offset"
                self._complain(self.MISMATCH, text, self._next, offset)
                self._next += 1
                continue
            if timestamp < self.largest or (timestamp > self.largest and self._is_certain):
                text = f"{self._entry_text(self._next)}: the largest timestamp up to there is {self.largest}"
                self._complain(self.MISMATCH, text, self._next, offset)
            elif timestamp > self.largest:
                self.largest, self._is_certain = timestamp, True
            self._next += 1
        self.due = self._due()

    def see_damage(self, damage: Damage) -> None:
        """Passes over the entries of damaged bytes, as `OffsetIndexCheck.see_damage` does."""
        self._is_certain = False
        end = _NEVER if damage.end_offset is None else damage.end_offset
        while self._next < len(self._entries) and self._offset(self._next) < end:
            self._next += 1
        self.due = self._due()

    def _offset(self, number: int) -> int:
        return self._base_offset + self._entries[number][1]

    def _entry_text(self, number: int) -> str:
        return f"entry {number} (timestamp {self._entries[number][0]}, offset {self._offset_text(number)})"


OnBytes = Callable[[int], None]
"""Called, now and then, with how many bytes more were checked."""

Check = Callable[[OnBytes], Iterator[Finding]]

_ENOUGH_ENTRIES = 3
"""Enough of indexes that contradict their log: fewer may be wrong by chance."""
_REPORT_BYTES = 8 * 1024 * 1024
_GROUP_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """`is_deep`: records are decoded. `is_paranoid`: every checksum is computed a second time, by another library.
    `is_locked`: the caller holds the directory's lock, so that nobody writes to it.
    """

    is_deep: bool = False
    is_paranoid: bool = False
    is_locked: bool = False


class OddLogError(Exception):
    """Something in a segment needs a look at the whole partition."""


class EpochRun(NamedTuple):
    """Batches of one leader epoch from `first_offset` on; `offset_before` is the last offset of the batch before, and
    `batches_before` counts the batches before.
    """

    epoch: int
    first_offset: int
    offset_before: int
    path: Path
    position: int
    batches_before: int


def _as_damage(batch: Batch) -> Damage:
    end_position = batch.position + batch.size_bytes
    return Damage(DamageKind.OFFSETS_NOT_RISING, "", batch.position, end_position, offset=-1)


def check_again_if_odd(check: Check, by_map: Check, on_bytes: OnBytes) -> Iterator[Finding]:
    """Yields the findings of `check`, or of `by_map` if that raises OddLogError; bytes that were read before are not
    reported once more.
    """
    told = 0

    def tell(size_bytes: int) -> None:
        nonlocal told
        told += size_bytes
        on_bytes(size_bytes)

    def count_more(size_bytes: int) -> None:
        nonlocal told
        on_bytes(max(size_bytes - told, 0))
        told = max(told - size_bytes, 0)

    try:
        findings = list(check(tell))
    except OddLogError:
        yield from by_map(count_more)
    else:
        yield from findings


@dataclass(slots=True)
class SegmentCheck:
    """Checks one segment; owned by one task. Run it, then read its results."""

    path: Path
    base_offset: int
    options: VerifyOptions
    producers: ProducerCheck
    on_epoch: Callable[[EpochRun], None] = lambda _run: None
    """Called with each run of batches of one leader epoch, when its first batch is met."""
    has_indexes: bool = True
    is_active: bool = False
    """Whether somebody is writing to it."""
    is_last: bool = False
    limit_offset: int | None = None
    """Where the next segment begins."""
    known_ends: Container[int] = ()
    """Where the log ended at some time, by other files: an index with more after one of them is wrong."""
    log_start_offset: int = 0
    """Records below it were deleted: none of them is lost."""
    last_epoch: int = -1
    batches: int = 0
    """How many batches of the partition come before the segment; in the end, with this segment."""
    end_offset: int = 0
    log_map: LogMap | None = None
    """The map of all files of the partition. None as long as this one makes sense by itself: OddLogError is raised when
    it does not.
    """
    number: int = 0
    """The number of the segment in the map."""
    has_damage: bool = False
    is_compacted: bool = False
    """Whether batches lack records, as only compaction leaves them."""
    holes: list[tuple[int, int, int]] = field(default_factory=list)
    """(start offset, end offset, position) if a batch begins beyond the end of the one before."""
    _group: list[Batch] = field(default_factory=list)
    _first_offsets: dict[int, int] = field(default_factory=dict)
    """By position, where compressed messages may begin whose inner offsets can't be read, without a map."""
    _offset_index: OffsetIndexCheck = field(init=False)
    _time_index: TimeIndexCheck = field(init=False)

    def run(self, on_bytes: OnBytes) -> Iterator[Finding]:
        walk = BatchScanner(self.path, self.base_offset, self.limit_offset)
        self._offset_index = OffsetIndexCheck(self.path.with_suffix(INDEX_SUFFIX), self.base_offset)
        self._time_index = TimeIndexCheck(self.path.with_suffix(TIME_INDEX_SUFFIX), self.base_offset)
        try:
            yield from self._run(walk, on_bytes)
        finally:
            walk.close()
            for index in (self._offset_index, self._time_index):
                index.close()

    def _run(self, walk: BatchScanner, on_bytes: OnBytes) -> Iterator[Finding]:
        next_offset, last_position, reported = self.base_offset, -1, 0
        out_of_place = self._find_out_of_place()
        for item in walk.runs_from(0):
            for run in self._parts(item, out_of_place) if out_of_place else [item]:
                if isinstance(run, SoundRun):
                    next_offset = yield from self._see_run(run, next_offset)
                    last_position = run.position + run.starts[-1]
                elif isinstance(run, LegacyRecordBatch):
                    yield from self._see_legacy(run, next_offset)
                    next_offset, last_position = run.last_offset + 1, run.position
                elif not (self.is_active and run.end_position >= walk.size_bytes):
                    self._see_damage(run)
            if last_position - reported > _REPORT_BYTES:
                on_bytes(last_position - reported)
                reported = last_position
        yield from self._look_into_group()
        for batches in self._placed():
            yield from self._look_into(batches)
            yield from self._look_into_group()
        on_bytes(walk.size_bytes - reported)
        self.end_offset = next_offset
        if self.log_map is None and next_offset > (self.limit_offset or next_offset):
            raise OddLogError
        if self.has_indexes:
            yield from self._check_indexes(last_position, next_offset)

    def _find_out_of_place(self) -> Set[int]:
        if self.log_map is None:
            return frozenset()
        found: set[int] = {one.damage.position for one in self.log_map.damage if one.number == self.number}
        for one in self.log_map.displaced:
            if one.piece.file == self.number:
                found |= {batch.position for batch in self.log_map.read(one.piece)}
        return found

    def _placed(self) -> Iterator[list[Batch]]:
        """Yields the sound batches of this file that belong to the log elsewhere, if `is_deep`."""
        if self.log_map is None or not self.options.is_deep:
            return
        for piece in self.log_map.placed:
            if piece.file == self.number:
                yield list(self.log_map.read(piece))

    def _parts(
        self, item: SoundRun | LegacyRecordBatch | Damage, out_of_place: Set[int]
    ) -> Iterator[SoundRun | LegacyRecordBatch | Damage]:
        """Yields the same, with damage in the place of batches that are not the log's where they stand."""
        if isinstance(item, LegacyRecordBatch) and item.position in out_of_place:
            item = _as_damage(item)
        if not isinstance(item, SoundRun):
            yield item
            return
        position = item.position
        for is_out, starts in groupby(item.starts, lambda start: position + start in out_of_place):
            run = item._replace(starts=list(starts))
            yield from map(_as_damage, run.batches()) if is_out else [run]

    def _see_run(self, run: SoundRun, next_offset: int) -> Generator[Finding, None, int]:
        """Checks a run; returns the next offset after it. As this runs for each batch of a log, fields are read into
        locals, and only a batch that needs a second look becomes a `RecordBatch`.
        """
        producers, offset_index, time_index = self.producers, self._offset_index, self._time_index
        data, run_position, starts = run
        for start in starts:
            (
                base_offset, _, epoch, _, _, attributes, last_offset_delta, _, max_timestamp,
                producer_id, producer_epoch, base_sequence, count,
            ) = HEADER.unpack_from(data, start)  # fmt: skip
            last_offset = base_offset + last_offset_delta
            if (
                base_offset != next_offset
                or count != last_offset_delta + 1
                or epoch != self.last_epoch
                or attributes & DELETE_HORIZON_FLAG
            ):
                yield from self._see_unlike(run, start, next_offset)
            if producer_id >= 0 and not producers.goes_on(
                producer_id, producer_epoch, base_sequence, last_offset_delta, last_offset, attributes
            ):
                yield from producers.see(run.batch(start), self.path)
            position, next_offset = run_position + start, last_offset + 1
            if max_timestamp > time_index.largest:
                time_index.largest = max_timestamp
            if position >= offset_index.due:
                offset_index.see(position, last_offset)
            if last_offset >= time_index.due:
                time_index.see(last_offset)
        self.batches += len(starts)
        if self.options.is_deep or self.options.is_paranoid:
            yield from self._look_into([run.batch(start) for start in starts])
        return next_offset

    def _see_damage(self, damage: Damage) -> None:
        """Notes damage, which the map reports: entries beside it can't be compared with the other files."""
        if self.log_map is None:
            raise OddLogError
        self.has_damage = True
        self.producers.forget()
        self._offset_index.see_damage(damage)
        self._time_index.see_damage(damage)

    def _check_indexes(self, last_position: int, next_offset: int) -> Iterator[Finding]:
        offset_index, time_index = self._offset_index, self._time_index
        if self.is_last and not self.is_active and next_offset not in self.known_ends:
            offset_index.take_entries_after()  # a crash may keep an index and lose the batches
            time_index.take_entries_after()
        if not self.is_active:
            offset_index.check_reach(last_position)
        has_batches = last_position >= 0
        findings = [
            finding
            for index in (offset_index, time_index)
            for finding in index.findings(has_batches=has_batches, may_lag=self.is_active)
        ]
        is_lost = self._is_cut_short() if has_batches else self._is_lost()
        is_explained = self.has_damage or self._stands_elsewhere() or is_lost
        if has_batches and not is_explained and self._has_anothers_indexes():
            yield self._anothers_finding()
            return
        for finding in findings:
            # where the log is damaged, swapped, empty or cut short, entries that do not fit are a part of that
            if not is_explained or finding.code not in (Code.INDEX_MISMATCH, Code.TIME_INDEX_MISMATCH):
                yield finding

    def _stands_elsewhere(self) -> bool:
        """Says whether batches that belong here stand in another file, as when two `.log` changed names: the indexes
        are theirs.
        """
        return self.log_map is not None and any(
            piece.file != self.number
            and self.base_offset <= piece.base_offset < (self.limit_offset or piece.end_offset)
            for piece in self.log_map.placed
        )

    def _has_anothers_indexes(self) -> bool:
        indexes = (self._offset_index, self._time_index)
        has_enough = sum(index.count for index in indexes) >= _ENOUGH_ENTRIES
        return has_enough and all(index.is_of_another_log() for index in indexes)

    def _anothers_finding(self) -> Finding:
        """Replaces the findings about another log's indexes: rebuilt from this log, they would lose their evidence."""
        count = self._offset_index.count + self._time_index.count
        message = (
            f"not one of the {count} entries of its .index and .timeindex, which are in order, fits it: "
            "this .log may belong to another partition, or they may"
        )
        return Finding(Severity.ERROR, Code.LOG_MISMATCH, str(self.path), message, offset=self.base_offset)

    def _is_lost(self) -> bool:
        holes = () if self.log_map is None else self.log_map.holes
        return any(hole.reason in LOSSES and hole.start <= self.base_offset < hole.end for hole in holes)

    def _is_cut_short(self) -> bool:
        """Says whether the indexes show that the offsets missing after the segment may be lost. They stay until those
        are given up.
        """
        if self.log_map is None or self.limit_offset is None:
            return False
        is_reported = any(h.reason in LOSSES and h.start < self.limit_offset == h.end for h in self.log_map.holes)
        return is_reported and find_truncated_segment(self.path.parent, self.base_offset, self.limit_offset) is not None

    def check_transaction_index(self, *, is_complete: bool) -> Iterator[Finding]:
        """Checks the segment's transactions after it was read; `is_complete` as in `ProducerCheck`."""
        path = self.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        try:
            entries = list(iter_transaction_index(path))
        except FileNotFoundError:
            entries = []
        except OSError as error:
            raise access_error(error, path, "read") from error
        except CorruptRecordError as error:
            yield corrupt_finding(Code.TRANSACTION_INDEX_CORRUPT, error, path)
            list(self.producers.check_transaction_index([], path, 0, is_complete=False))
            return
        is_end_known = self.end_offset in self.known_ends  # an entry after it is wrong then
        limit = _NEVER if is_end_known else self.end_offset
        yield from self.producers.check_transaction_index(entries, path, limit, is_complete=is_complete)

    # --- batches

    def _see_legacy(self, batch: LegacyRecordBatch, next_offset: int) -> Iterator[Finding]:
        offsets = inner_offsets(batch)
        first_offset = offsets[0] if offsets else min(next_offset, batch.last_offset)
        if not offsets:
            self._first_offsets[batch.position] = first_offset
        self._ensure_in_turn(min(first_offset, batch.last_offset), batch, next_offset)
        if offsets and offsets[-1] != batch.last_offset and self.log_map is None:
            raise OddLogError
        if first_offset > next_offset:
            self.holes.append((next_offset, first_offset, batch.position))
        offset_index, time_index = self._offset_index, self._time_index
        time_index.largest = max(time_index.largest, batch.max_timestamp)
        if batch.position >= offset_index.due:
            offset_index.see(batch.position, batch.last_offset)
        if batch.last_offset >= time_index.due:
            time_index.see(batch.last_offset)
        yield from self._look_into([batch])

    def _see_unlike(self, run: SoundRun, start: int, next_offset: int) -> Iterator[Finding]:
        batch = run.batch(start)
        self._ensure_in_turn(batch.base_offset, batch, next_offset)
        if batch.base_offset > next_offset:
            self.producers.meet_hole()
            if self.log_map is not None or not self.producers.is_certain:
                self.producers.forget()
            self.holes.append((next_offset, batch.base_offset, batch.position))
        if is_thinned(batch.count, batch.last_offset_delta, batch.attributes):
            self.is_compacted = True
        if batch.partition_leader_epoch != self.last_epoch:
            self.last_epoch = batch.partition_leader_epoch
            before = self.batches + bisect_left(run.starts, start)
            self.on_epoch(
                EpochRun(self.last_epoch, batch.base_offset, next_offset - 1, self.path, batch.position, before)
            )
        if batch.count < 0 or batch.count > batch.last_offset_delta + 1:
            yield self._finding(
                Code.BAD_COUNT, f"{batch.count} records with a last offset delta of {batch.last_offset_delta}", batch
            )

    def _ensure_in_turn(self, first_offset: int, batch: Batch, next_offset: int) -> None:
        """Raises OddLogError for offsets that do not rise, or that no index of this file can hold."""
        is_odd = first_offset < next_offset or batch.last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        if is_odd and self.log_map is None:
            raise OddLogError

    def _look_into(self, batches: Sequence[Batch]) -> Iterator[Finding]:
        """Makes the checks beyond a first look, in groups."""
        if self.options.is_deep or self.options.is_paranoid:
            self._group += batches
            if self._group[-1].position - self._group[0].position > _GROUP_BYTES:
                yield from self._look_into_group()

    def _look_into_group(self) -> Iterator[Finding]:
        batches, self._group = self._group, []
        if self.options.is_paranoid:
            for batch in batches:
                if isinstance(batch, RecordBatch):
                    data = batch.buffer[batch.start + ATTRIBUTES_POSITION : batch.start + batch.size_bytes]
                    computed = crc32c_by_table(data)
                    if computed != batch.crc:
                        message = f"stored crc {batch.crc:08x}, crcmod computes {computed:08x}"
                        yield self._finding(Code.CRC_MISMATCH, message, batch)
        if self.options.is_deep and batches:
            from core.inspector.check.record_check import check_records

            bad = set[int]()
            for batch, cause in check_records(batches):
                bad.add(batch.position)
                if (self.path, batch.position) not in self.producers.bad_batches:
                    yield self._finding(Code.BAD_BATCH, cause, batch)
            for batch in batches:
                if batch.position not in bad and (refusal := refused_frame(batch)) is not None:
                    yield replace(self._finding(Code.BAD_BATCH, refusal, batch), records=0)  # they are read here

    def _finding(self, code: Code, message: str, batch: Batch) -> Finding:
        count = batch.count if isinstance(batch, RecordBatch) else 1  # how many a compressed one holds is not known
        first_offset = self._first_offset_of(batch)
        if first_offset < self.log_start_offset:
            first_offset = min(self.log_start_offset, batch.last_offset)
            count = min(count, max(batch.last_offset + 1 - self.log_start_offset, 0))
        return batch_finding(code, batch, self.path, message, first_offset, count)

    def _first_offset_of(self, batch: Batch) -> int:
        """Returns the batch's first offset. Offsets before a message that can't be opened may be lost with it."""
        if isinstance(batch, RecordBatch) or inner_offsets(batch):
            return stated_offset(batch)
        if self.log_map is not None:
            return min(self.log_map.end_before(batch.last_offset), batch.last_offset)
        return self._first_offsets[batch.position]
