"""Says which field each byte belongs to, of the entries of indexes and snapshots, and of the lines of small files."""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from core.inspector.check.file_kind import FileKind
from core.inspector.dump.field_span import FieldCursor, Span


class EntryLayout(NamedTuple):
    """(name, struct format) of the fields of a file's head, and of each entry after it."""

    head: tuple[tuple[str, str], ...]
    entry: tuple[tuple[str, str], ...]

    @property
    def head_bytes(self) -> int:
        return sum(struct.calcsize(format_) for _, format_ in self.head)

    @property
    def entry_bytes(self) -> int:
        return sum(struct.calcsize(format_) for _, format_ in self.entry)


ENTRY_LAYOUTS: Mapping[FileKind, EntryLayout] = {
    FileKind.OFFSET_INDEX: EntryLayout((), (("relative offset", ">i"), ("position", ">i"))),
    FileKind.TIME_INDEX: EntryLayout((), (("timestamp", ">q"), ("relative offset", ">i"))),
    FileKind.TRANSACTION_INDEX: EntryLayout(
        (),
        (
            ("version", ">h"),
            ("producer id", ">q"),
            ("first offset", ">q"),
            ("last offset", ">q"),
            ("last stable offset", ">q"),
        ),
    ),
    FileKind.PRODUCER_SNAPSHOT: EntryLayout(
        (("version", ">h"), ("crc", ">I"), ("count", ">i")),
        (
            ("producer id", ">q"),
            ("producer epoch", ">h"),
            ("last sequence", ">i"),
            ("last offset", ">q"),
            ("offset delta", ">i"),
            ("timestamp", ">q"),
            ("coordinator epoch", ">i"),
            ("current transaction's first offset", ">q"),
        ),
    ),
}


def entry_spans(fields: Sequence[tuple[str, str]], data: bytes) -> Iterator[Span]:
    """Yields the spans of one entry, or of a header, as far as its bytes go."""
    cursor = FieldCursor(data, 0, len(data), 0)
    for name, format_ in fields:
        try:
            yield cursor.fixed(name, format_)
        except IndexError:
            if cursor.at < len(data):
                yield Span(cursor.at, len(data), "rest", "too few bytes for an entry")
            return


# --- lines

_COLUMNS: Mapping[FileKind, tuple[str, ...]] = {
    FileKind.OFFSET_CHECKPOINT: ("topic", "partition", "offset"),
    FileKind.LEADER_EPOCHS: ("leader epoch", "start offset"),
    FileKind.DAMAGED_RANGES: ("start offset", "end offset", "segment base offset", "position", "end position"),
}
"""The words of an entry's line in the files that Kafka calls checkpoints; a version and a count come before those."""

_HEAD_LINES = ("version", "entry count")


def line_starts(data: bytes) -> array[int]:
    """Returns where each line of a text begins, and the end of the last."""
    starts = array("q", [0])
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def line_spans(kind: FileKind, number: int, line: bytes) -> Iterable[Span]:
    """Returns the fields of one line, counted from 0: its words, if the lines of that kind of file have some."""
    columns = _COLUMNS.get(kind, ())
    words = [match.span() for match in re.finditer(rb"\S+\s*", line)]
    if columns and number < len(_HEAD_LINES) and len(words) == 1:
        columns = (_HEAD_LINES[number],)
    if len(words) != len(columns) or not words or words[0][0]:
        return [Span(0, len(line), "line", line.decode("utf-8", "replace").rstrip("\r\n"))]
    return [
        Span(start, end, name, line[start:end].decode("utf-8", "replace").rstrip())
        for (start, end), name in zip(words, columns, strict=True)
    ]
