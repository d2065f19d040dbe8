"""Holds an index against its log: fed batch after batch of the log, it says in the end which entries are wrong.

Entries and batches come in the same order, so that one pass with a finger on each is enough.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from core.common.filesystem import access_error
from core.index.offset_index import OffsetIndex
from core.index.time_index import TimeIndex
from core.inspector.findings import Code, Finding, Severity
from core.records.batches import Batch
from core.records.record_batch import NO_TIMESTAMP

_MOST_FINDINGS = 5
"""Of one index: when it is wrong, it is usually wrong from somewhere on."""

_ENOUGH_ENTRIES = 3
_MOST_STRETCH = 3
"""A restart begins to count bytes anew, which stretches one gap to twice its width; three times is damage."""


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
        self._next = 0
        try:
            data = path.read_bytes()
            self._is_there = True
        except FileNotFoundError:
            data = b""
            self._is_there = False
        except OSError as error:
            raise access_error(error, path, "read") from error
        size = self.ENTRY.size
        if len(data) % size and any(data[len(data) - len(data) % size :]):
            self._complain(self.CORRUPT, f"{len(data)} bytes, expected a multiple of {size}", len(data) // size)
        self._entries = [self.ENTRY.unpack_from(data, at) for at in range(0, len(data) - size + 1, size)]
        while len(self._entries) > 1 and not any(self._entries[-1]):
            self._entries.pop()  # a file that is in use is zeros behind its last entry
        if self._entries and not any(self._entries[-1]) and len(data) > size:
            self._entries.pop()

    def _complain(self, code: Code, message: str, number: int, offset: int = -1) -> None:
        if len(self._problems) < _MOST_FINDINGS:
            position = number * self.ENTRY.size
            self._problems.append(Finding(Severity.WARNING, code, str(self._path), message, position, offset))
        else:
            self._left_out += 1

    def findings(self, *, has_batches: bool, may_lag: bool = False) -> Iterator[Finding]:
        """After the last batch: everything wrong with the index. `may_lag`: the log is written to just now."""
        if not self._is_there:
            if has_batches and not may_lag:
                yield Finding(Severity.WARNING, self.MISSING, str(self._path), "there is a .log, but not this index")
            return
        for number in range(self._next, len(self._entries)):
            self._complain(self.MISMATCH, f"{self._entry_text(number)} points at no batch of the log", number)
        yield from self._problems
        if self._left_out:
            message = f"{self._left_out} more entries are wrong"
            yield Finding(Severity.WARNING, self.MISMATCH, str(self._path), message)

    @abstractmethod
    def _entry_text(self, number: int) -> str: ...


class OffsetIndexCheck(_IndexCheck):
    """Every entry: a batch begins at its position, and one there or behind it ends with its offset."""

    ENTRY = OffsetIndex.ENTRY
    MISSING, CORRUPT, MISMATCH = Code.INDEX_MISSING, Code.INDEX_CORRUPT, Code.INDEX_MISMATCH

    _log_end = 0
    _unseen_end: tuple[int, int] | None = None
    """(number, offset) of the entry whose batch was seen to begin, but none to end with its offset yet."""

    def see(self, batch: Batch) -> None:
        self._log_end = batch.position
        self._see_entries(batch)
        if self._unseen_end is not None and batch.last_offset >= self._unseen_end[1]:
            number, offset = self._unseen_end
            if batch.last_offset > offset:
                self._complain(
                    self.MISMATCH,
                    f"{self._entry_text(number)}: no batch ends with that offset, one ends with {batch.last_offset}",
                    number,
                    offset,
                )
            self._unseen_end = None

    def _see_entries(self, batch: Batch) -> None:
        while self._next < len(self._entries):
            relative, position = self._entries[self._next]
            if position > batch.position:
                return
            offset = self._base_offset + relative
            if position < batch.position:
                self._complain(
                    self.MISMATCH, f"{self._entry_text(self._next)}: no batch begins there", self._next, offset
                )
            else:
                self._unseen_end = self._next, offset
            self._next += 1

    def findings(self, *, has_batches: bool, may_lag: bool = False) -> Iterator[Finding]:
        """Besides wrong entries, an end that comes much too early: zeros where entries were."""
        positions = [0, *(position for _, position in self._entries)]
        widest = max((after - before for before, after in pairwise(positions)), default=0)
        if (
            not may_lag
            and len(positions) > _ENOUGH_ENTRIES
            and self._log_end - positions[-1] > _MOST_STRETCH * widest > 0
        ):
            self._complain(
                self.MISMATCH,
                f"the last entry is at position {positions[-1]} of a log of {self._log_end} bytes, "
                f"where entries are at most {widest} apart",
                len(self._entries),
            )
        yield from super().findings(has_batches=has_batches, may_lag=may_lag)

    def _entry_text(self, number: int) -> str:
        relative, position = self._entries[number]
        return f"entry {number} (offset {self._base_offset + relative}, position {position})"


class TimeIndexCheck(_IndexCheck):
    """Every entry: no timestamp up to the batch that holds its offset is larger than its own, which occurs there."""

    ENTRY = TimeIndex.ENTRY
    MISSING, CORRUPT, MISMATCH = Code.TIME_INDEX_MISSING, Code.TIME_INDEX_CORRUPT, Code.TIME_INDEX_MISMATCH

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, base_offset)
        self._largest = NO_TIMESTAMP

    def see(self, batch: Batch) -> None:
        self._largest = max(self._largest, batch.max_timestamp)
        while self._next < len(self._entries):
            timestamp, relative = self._entries[self._next]
            offset = self._base_offset + relative
            if offset > batch.last_offset:
                return
            text = self._entry_text(self._next)
            if timestamp != self._largest:
                self._complain(
                    self.MISMATCH, f"{text}: the largest timestamp up to there is {self._largest}", self._next, offset
                )
            self._next += 1

    def _entry_text(self, number: int) -> str:
        timestamp, relative = self._entries[number]
        return f"entry {number} (timestamp {timestamp}, offset {self._base_offset + relative})"
