"""Bytes in fields, from any source: reading, searching, and walking over them.

`parse_needles` parses a search: a text, or bytes in hex.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from core.common.errors import AccessError, UsageError
from core.view.bytes.byte_field import Field, FieldGroup

Needles = Sequence[bytes]
"""Alternatives of a search."""

_HEX = re.compile(r"(0[xX])?((?:\s*[0-9a-fA-F]{2})+)\s*")
_QUOTED = re.compile(r"([\"'])(.+)\1")


def parse_needles(text: str) -> Needles:
    """Parses the text of a search: `"in quotes"` is text, `0x6b31` is hex, and ambiguous text is searched for as both:
    `6b 31`, `6b31`. Raises UsageError for an empty search.
    """
    quoted = _QUOTED.fullmatch(text.strip())
    if quoted is not None:
        return (quoted[2].encode("utf-8", "surrogateescape"),)
    if not text.strip():
        raise UsageError("nothing to look for", hint='a text, "a text in quotes", or hex as 6b 31 or 0x6b31')
    as_text = text.encode("utf-8", "surrogateescape")
    found = _HEX.fullmatch(text)
    if found is None:
        return (as_text,)
    as_hex = bytes.fromhex("".join(found[2].split()))
    return (as_hex,) if found[1] else (as_hex, as_text)


def find_first(needles: Needles, data: bytes, start: int = 0) -> tuple[int, int] | None:
    """Returns the bounds of the first match, or None."""
    found = ((data.find(needle, start), len(needle)) for needle in needles)
    first = min((one for one in found if one[0] >= 0), default=None)
    return None if first is None else (first[0], first[0] + first[1])


_SEARCH_BYTES = 1024 * 1024
_SEARCH_BYTES_OF_SECRETS = 64 * 1024


class ReadBytes(NamedTuple):
    """`data` has zeros for unreadable bytes (`unreadable`), and for bytes that may be secret (`hidden`): ranges of
    positions.
    """

    data: bytes
    unreadable: tuple[tuple[int, int], ...] = ()
    hidden: tuple[tuple[int, int], ...] = ()


class Step(NamedTuple):
    """The progress of slow work; the last one has the bytes [start, end) that were `found`, or None."""

    position: int
    found: tuple[int, int] | None = None


class FieldSource(ABC):
    """Bytes [0, size_bytes) in fields; owned by one task. Its methods read as little as possible."""

    title: str
    note: str = ""
    """A remark about the whole source; "" if there is none to make."""

    @property
    @abstractmethod
    def size_bytes(self) -> int: ...

    @abstractmethod
    def _group_at(self, position: int) -> FieldGroup: ...

    @abstractmethod
    def _raw(self, position: int, size: int) -> ReadBytes:
        """Returns bytes with nothing hidden."""

    @property
    @abstractmethod
    def _has_hidden(self) -> bool:
        """Whether some of the bytes may be secret."""

    def approach(self, position: int) -> Iterator[Step]:  # noqa: ARG002 - most are near
        """Does slow work before the first call about a position, in steps."""
        return iter(())

    # --- fields

    def group_at(self, position: int) -> FieldGroup:
        """Returns the fields around a byte. Raises IndexError beyond the end, AccessError if the disk refuses."""
        if not 0 <= position < self.size_bytes:
            raise IndexError(position)
        return self._group_at(position)

    def field_at(self, position: int) -> Field:
        """Returns the field that holds a byte; raises as `group_at` does."""
        return next(field for field in self.group_at(position).fields if field.start <= position < field.end)

    def fields_in(self, start: int, end: int) -> Iterator[Field]:
        """Yields the fields of which a byte lies at [start, end), in order."""
        position = max(start, 0)
        end = min(end, self.size_bytes)
        while position < end:
            group = self._group_at(position)
            yield from (field for field in group.fields if field.end > start and field.start < end)
            position = group.end

    # --- bytes

    def read(self, position: int, size: int) -> ReadBytes:
        """Returns bytes, fewer at the end. Raises AccessError if the disk refuses."""
        found = self._raw(position, max(min(size, self.size_bytes - position), 0))
        if not self._has_hidden or not found.data:
            return found
        end = position + len(found.data)
        hidden = tuple(
            (max(field.start, position), min(field.end, end))
            for field in self.fields_in(position, end)
            if field.is_hidden
        )
        data = bytearray(found.data)
        for first, after in hidden:
            data[first - position : after - position] = bytes(after - first)
        return ReadBytes(bytes(data), found.unreadable, hidden)

    # --- moving

    def next_item(self, position: int) -> int | None:
        """Returns the start of the next record, entry or batch, or None."""
        end = self.group_at(position).end
        return end if end < self.size_bytes else None

    def previous_item(self, position: int) -> int | None:
        """Returns the start of the item at the position, or, if it starts there, of the one before; None at byte 0."""
        start = self.group_at(position).start
        return start if start < position or not start else self._group_at(start - 1).start

    def next_batch(self, position: int) -> int | None:
        """As `next_item`, past the records of a batch."""
        end = self.group_at(position).outer_end
        return end if end < self.size_bytes else None

    def previous_batch(self, position: int) -> int | None:
        """As `previous_item`, past the records of a batch."""
        start = self.group_at(position).outer_start
        return start if start < position or not start else self._group_at(start - 1).outer_start

    def next_field(self, position: int) -> int | None:
        """Returns the start of the next field, or None."""
        end = self.field_at(position).end
        return end if end < self.size_bytes else None

    def previous_field(self, position: int) -> int | None:
        """Returns the start of the field at the position, or, if it starts there, of the one before."""
        start = self.field_at(position).start
        return start if start < position or not start else self.field_at(start - 1).start

    # --- finding

    def find_offset(self, offset: int) -> Iterator[Step]:  # noqa: ARG002 - few have offsets
        """Finds the record with an offset, or the batch that it would be in, in steps. Raises AccessError if the
        bytes have no offsets.
        """
        raise AccessError(f"{self.title} holds no records, so it has no offsets", where=self.title)

    def position_of(self, offset: int) -> int | None:
        """Returns the position that `find_offset` finds, or None."""
        for step in self.find_offset(offset):
            if step.found is not None:
                return step.found[0]
        return None

    def find(self, needles: Needles, position: int = 0) -> Iterator[Step]:
        """Searches for bytes from a position on, then from the first byte on, in steps. Hidden or unreadable bytes
        never match, and compressed records are searched as they are in the file.
        """
        overlap = max(map(len, needles)) - 1
        piece = _SEARCH_BYTES_OF_SECRETS if self._has_hidden else _SEARCH_BYTES
        for start, stop in ((position, self.size_bytes), (0, min(position + overlap, self.size_bytes))):
            while start < stop:
                yield from self.approach(start) if self._has_hidden else ()
                found = self._find_in(needles, start, min(piece, stop - start) + overlap)
                start = min(start + piece, stop)
                yield Step(start, found)
                if found is not None:
                    return

    def _find_in(self, needles: Needles, start: int, size: int) -> tuple[int, int] | None:
        read = self.read(start, size)
        found = find_first(needles, read.data)
        while found is not None:
            first, after = start + found[0], start + found[1]
            if not any(bad < after and first < end for bad, end in (*read.unreadable, *read.hidden)):
                return first, after
            found = find_first(needles, read.data, found[0] + 1)
        return None

    def close(self) -> None:  # noqa: B027 - not all have something open
        """Closes open files."""
