"""Finds records in a damaged batch: those that their lengths still chain together.

Each record begins with its length (record.py), so where one ends the next one begins. The chain is followed from the
first record to where it breaks. After that, a beginning is looked for at every byte: one from which records that make
sense, with rising offset deltas, follow each other exactly to the end of the batch. A value may look like records (a
copy of a log), but it does not end where its batch does.

Nothing that is found is proven, as the checksum is that of the whole batch. No record is given of which a byte lies in
a hole: zeros as long as a sector, or what the disk does not give.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from core.common.varint import read_varint, read_varlong
from core.records.record import SMALLEST_RECORD_BYTES, Headers, read_headers

SECTOR_BYTES = 512
"""The least that a disk loses."""

_FEWEST = 3
"""So many records make a chain plausible that ends in a hole, and not with the batch."""

_LENGTH_BYTES = 5
"""The most that a length takes."""

_BEGINNING = re.compile(rb"(?s)(?=(?:[\x0c-\x7e]|[\x80-\xff][\x01-\x7f]|[\x80-\xff]{2}[\x01-\x7f]|[\x80-\xff]{3}.)\0)")
"""A record's length, and its attributes, which nobody sets."""


class FoundRecord(NamedTuple):
    """A record at bytes [start, end) of the data. The deltas are to be added to the base offset and timestamp."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Section(NamedTuple):
    """Says where the records of one batch lie: bytes [start, end) of `data`, less the holes [start, end), which rise.

    `has_start`: the first record begins at `start`. `is_cut`: more may have followed `end`. `last_delta` is the offset
    delta of the last record if it is known. `is_thinned`: a cleaner may have taken records out.
    """

    data: bytes
    start: int
    end: int
    holes: Sequence[tuple[int, int]] = ()
    has_start: bool = True
    is_cut: bool = False
    last_delta: int | None = None
    is_thinned: bool = False


def find_holes(data: bytes) -> list[tuple[int, int]]:
    """Finds zeros that are as long as a sector, or longer."""
    return [match.span() for match in re.finditer(rb"\0{%d,}" % SECTOR_BYTES, data)]


def find_records(section: Section) -> Iterator[FoundRecord]:
    """Gives the records that can be read, in order."""
    search = _Search(section)
    position = section.start if section.has_start else search.find_chain(section.start, 0)
    least_delta = 0
    while position is not None and position < section.end:
        record = search.read(position)
        if record is None or record.offset_delta < least_delta or search.is_lossy(record):
            position = search.find_chain(position + 1, least_delta, search.find_end(position))
            continue
        yield record
        least_delta, position = record.offset_delta + 1, record.end


class _Search:
    def __init__(self, section: Section) -> None:
        self._section = section
        self._dead: set[int] = set()  # chains from there lead nowhere
        self._ends = [end for _, end in section.holes]

    def find_end(self, position: int) -> int | None:
        """Finds where a record ends by its length; None if that can't be right, or lies in a hole."""
        try:
            length, start = read_varint(self._section.data, position)
        except (ValueError, IndexError):
            return None
        return None if self._is_lost(position, start) or length < SMALLEST_RECORD_BYTES - 1 else start + length

    def read(self, position: int) -> FoundRecord | None:
        """Reads the record that begins there; None if none does, or its length is lost."""
        data, last_delta = self._section.data, self._section.last_delta
        end = self.find_end(position)
        if end is None or end > self._section.end:
            return None
        try:
            _, at = read_varint(data, position)
            attributes = data[at]
            timestamp_delta, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
            key, at = _read_bytes(data, at, end)
            value, at = _read_bytes(data, at, end)
            count, _ = read_varint(data, at)
            if attributes or offset_delta < 0 or count > end - at:
                return None
            headers, at = read_headers(data, at)
        except (ValueError, IndexError):
            return None
        if at != end or (last_delta is not None and offset_delta > last_delta):
            return None
        return FoundRecord(
            start=position,
            end=end,
            offset_delta=offset_delta,
            timestamp_delta=timestamp_delta,
            key=key,
            value=value,
            headers=headers,
        )

    def is_lossy(self, record: FoundRecord) -> bool:
        """Says whether bytes of it are lost. The last one is no loss: it says that no headers follow, as the length
        does.
        """
        return self._is_lost(record.start, record.end - 1)

    def _is_lost(self, start: int, end: int) -> bool:
        """Says whether one of the bytes [start, end) lies in a hole."""
        number = bisect_right(self._ends, start)
        return number < len(self._ends) and self._section.holes[number][0] < end

    def find_chain(self, start: int, least_delta: int, guess: int | None = None) -> int | None:
        """Finds where records begin that lead somewhere; `guess` is tried first."""
        if guess is not None and start <= guess < self._section.end and self._leads_on(guess, least_delta):
            return guess
        for match in _BEGINNING.finditer(self._section.data, start, self._section.end):
            if self._leads_on(match.start(), least_delta):
                return match.start()
        return None

    def _leads_on(self, start: int, least_delta: int) -> bool:
        """Says whether records from there on follow each other to the batch's end, or some of them into a hole."""
        section, visited, deltas = self._section, list[int](), list[int]()
        position = start
        while position not in self._dead:
            if position == section.end:
                is_free = section.is_cut or section.is_thinned or section.last_delta is None
                if len(deltas) > is_free and (is_free or deltas[-1] == section.last_delta):
                    return True
                break
            record = self.read(position)
            if record is None or self.is_lossy(record):
                if len(deltas) >= _FEWEST and self._runs_into_hole(position):
                    return True
                break
            if record.offset_delta < least_delta:
                return False
            is_next = section.is_thinned or not deltas or record.offset_delta == deltas[-1] + 1
            if not is_next:
                break
            visited.append(position)
            deltas.append(record.offset_delta)
            least_delta, position = record.offset_delta + 1, record.end
        self._dead.update(visited)
        return False

    def _runs_into_hole(self, position: int) -> bool:
        """Says whether a record that begins there has bytes in a hole, or beyond the end of a batch that is cut off."""
        end = self.find_end(position) or position + _LENGTH_BYTES
        return (self._section.is_cut and end > self._section.end) or self._is_lost(position, end)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise ValueError(f"field of {length} bytes where {end - position} are left")
    return data[position : position + length], position + length
