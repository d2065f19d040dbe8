"""Checks an index against its log: it is fed the batches where entries are due, and says in the end which are wrong.

Entries and batches come in the same order, so that one pass with a finger on each is enough. What an entry says of
damaged bytes does not count as wrong.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from core.common.errors import UnreadableFileError
from core.common.filesystem import access_error
from core.common.salvaging_file import SalvagingFile, is_of_the_file, open_salvaging, unreadable_error
from core.files.file_names import LOG_SUFFIX
from core.forensics.damage import Damage
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.inspector.check.findings import Code, Finding, Severity, unreadable_finding
from core.records.record_batch import NO_TIMESTAMP

_MOST_FINDINGS = 5
"""The most of one index: when it is wrong, it is usually wrong from somewhere on."""

_ENOUGH_ENTRIES = 3
_MOST_STRETCH = 3
"""The widest gap: a restart counts bytes again from 0, which makes one twice as wide; three times is damage."""

_NEVER = 1 << 63


_PAGE_ENTRIES = 4096
_MOST_HELD_ENTRIES = 1 << 18
"""The most entries that are held: as many as a log of 1 GiB has at Kafka's distance between entries: 30 MB."""


class IndexEntries(Sequence[tuple[int, int]]):
    """The entries of an index file, a page at a time: a file may be of any size. What can't be read is zeros."""

    def __init__(self, file: SalvagingFile, entry: struct.Struct, page_entries: int = _PAGE_ENTRIES) -> None:
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


class _IndexCheck(ABC):
    """What both kinds share: the file's entries, and complaints about them."""

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
        entries = IndexEntries(file, self.ENTRY)
        if len(entries) <= _MOST_HELD_ENTRIES:
            self._entries = list(entries)  # which is faster
            return
        for number in range(1, _PAGE_ENTRIES):
            if entries[number][0] <= entries[number - 1][0]:
                self._complain(self.CORRUPT, f"entry {number} is not above the one before it", number)
                self._not_looked_at = len(entries) - number - 1
                return
        self._entries = entries

    def close(self) -> None:
        """Closes the file: the entries are needed no more."""
        if self._file is not None:
            self._file.close()

    def _maybe_give_up(self) -> bool:
        """Gives up a file that is too large for any log, and whose first entries are wrong; says whether it did."""
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
        """Gives, after the last batch, everything wrong with the index. `may_lag`: the log is written to just now."""
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
        if self._unreadable is not None:  # what else there was to complain of are its zeros
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
        """Says whether the entries are in order, as in any index, and not one of them is right. After `findings`."""
        if self._right or not self._entries or self._not_looked_at or self._unreadable is not None:
            return False
        rises = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(self._entries))
        return rises and len(self._problems) + self._left_out >= len(self._entries)

    def take_entries_after(self) -> int | None:
        """Gives the largest offset of the entries that no batch was due for, None if there are none; they are not
        complained of then.
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
        """Gives the smaller one of that field of the next two entries: one wrong entry must not hide those after it."""
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
    """(number, offset) of the entry whose batch was seen to begin, but none to end with its offset yet."""

    def _due(self) -> int:
        return -1 if self._unseen_end is not None else self._next_due(1)

    def take_entries_after(self) -> int | None:
        self._unseen_end = None  # its batch is written with others, of which the last are lost
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
        """Passes over the entries of what is damaged, which can't be told right from wrong."""
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
        """Of all batches so far; whoever shows them keeps it."""

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
        """Passes over the entries of what is damaged, as `OffsetIndexCheck.see_damage` does."""
        self._is_certain = False
        end = _NEVER if damage.end_offset is None else damage.end_offset
        while self._next < len(self._entries) and self._offset(self._next) < end:
            self._next += 1
        self.due = self._due()

    def _offset(self, number: int) -> int:
        return self._base_offset + self._entries[number][1]

    def _entry_text(self, number: int) -> str:
        return f"entry {number} (timestamp {self._entries[number][0]}, offset {self._offset_text(number)})"
