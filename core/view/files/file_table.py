"""A file beside a log as a table: its entries, each compared with the log.

An entry *does not fit* only if `plog verify` has a finding about it, or about damage that explains it. Slow comparisons
are *not compared* here; `plog verify` makes them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from core.common.errors import CorruptRecordError, UnreadableFileError
from core.common.filesystem import accessing
from core.inspector.check.file_kind import FileKind
from core.inspector.dump.side_file_dump import dump_rows


class Fit(Enum):
    YES = "fits"
    NO = "does not fit"
    UNKNOWN = "not compared"


class LogPlace(NamedTuple):
    """Where a batch begins."""

    path: Path
    position: int


class Comparison(NamedTuple):
    """Whether an entry fits the log, and the explanation; `place` is the batch that it is about."""

    fit: Fit
    log: str
    place: LogPlace | None = None
    offset: int | None = None
    """An offset in that batch, or the expected place of one."""


class FileRow(NamedTuple):
    """One entry: `cells` are those of `plog dump-segment`, `position` is where it begins in the file."""

    number: int
    cells: Mapping[str, Any]
    comparison: Comparison
    position: int | None = None


NOTHING_TO_COMPARE = Comparison(Fit.UNKNOWN, "")


class FileTable(ABC):
    """Owned by one task."""

    is_compared = True
    """Whether the entries of such a file can be compared with the log."""

    def __init__(self, path: Path, kind: FileKind, columns: Sequence[str]) -> None:
        self.path = path
        self.kind = kind
        self.columns = columns
        self.problems: list[str] = []
        """Problems of the file as a whole, missing parts included, in words."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of entries."""

    def rows(self, start: int, end: int) -> list[FileRow]:
        """Reads and compares entries [start, end), as far as there are any. Raises AccessError if the file is gone."""
        with accessing(self.path):
            return [self._row(number) for number in range(max(start, 0), min(end, self.count))]

    @abstractmethod
    def _row(self, number: int) -> FileRow: ...

    def find(self, text: str, after: int) -> int | None:  # noqa: ARG002 - for subclasses
        """Returns the number of the entry that the user's text names while looking at entry `after`, or None; by
        default the text is that number.
        """
        return int(text) if text.isdecimal() and int(text) < self.count else None

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Closes open files."""


class ListedTable(FileTable):
    """The table of a small file, which is read whole; it shows the entries before its first error."""

    is_compared = False

    def __init__(self, path: Path, kind: FileKind, columns: Sequence[str]) -> None:
        super().__init__(path, kind, columns)
        self._cells, problem = read_cells(path, kind)
        if problem is not None:
            self.problems.append(problem)
        self._known: dict[int, FileRow] = {}

    @property
    def count(self) -> int:
        return len(self._cells)

    @property
    def cells(self) -> Sequence[Mapping[str, Any]]:
        return self._cells

    def _row(self, number: int) -> FileRow:
        if number not in self._known:
            cells = self._cells[number]
            self._known[number] = FileRow(number, cells, self._compare(number, cells))
        return self._known[number]

    def find(self, text: str, after: int) -> int | None:
        """Finds the next entry that has the text in one of its cells; after the last one comes the first."""
        numbers = [*range(after + 1, self.count), *range(min(after + 1, self.count))]
        has_it = (number for number in numbers if any(text in str(cell) for cell in self._cells[number].values()))
        return next(has_it, None)

    def _compare(self, number: int, cells: Mapping[str, Any]) -> Comparison:  # noqa: ARG002 - for subclasses
        """Compares an entry with the log; by default there is nothing to compare."""
        return NOTHING_TO_COMPARE


def read_cells(path: Path, kind: FileKind) -> tuple[list[Mapping[str, Any]], str | None]:
    """Returns a file's entries up to its first error, and the error or None. Raises AccessError if it is gone."""
    found: list[Mapping[str, Any]] = []
    try:
        found.extend(dump_rows(path, kind))
    except UnreadableFileError as error:
        return found, error.message
    except CorruptRecordError as error:
        return found, error.cause
    return found, None
