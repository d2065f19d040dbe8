"""Names the field of each byte of batches, their records, and old messages.

This and entry_fields.py are the one place that knows the fields' names. `plog dump-segment --hex` goes over a whole
file with them (hex_dump.py), `plog inspect` looks at the bytes on the screen (core.view.bytes.field_bytes): so a
section of records is walked only as far as its caller asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterator

from core.common.varint import read_varint, read_varlong
from core.forensics.batch_scanner import FIELDS
from core.inspector.dump.field_span import FieldCursor, Span, codec_name, shown_number
from core.records.batches import Batch
from core.records.compression import CompressionType, decompressed_pieces
from core.records.legacy_message_set import MIN_MESSAGE_SIZE, LegacyRecordBatch
from core.records.record_batch import CODEC_MASK, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION, RecordBatch

UNDECODED = "do not decode from here on"
AFTER_LAST_RECORD = "bytes after the last record"
AFTER_LAST_FIELD = "bytes after the record's last field"

_MOST_COPIED_BYTES = 8 * 1024 * 1024
"""Fields of a copy are read faster than those of a view."""

# --- batches


class BatchFields:
    """The fields of one batch, or of one message of magic 0 or 1.

    `spans` are its own, from its first byte on. `section` holds its records, which begin at `section_start` of it; None
    if they are compressed, or a message's, whose spans say all.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.section: Section | None = None
        self.section_start = batch.size_bytes
        self.is_compressed = bool(batch.attributes & CODEC_MASK)
        if isinstance(batch, LegacyRecordBatch):
            data = batch.buffer[batch.start : batch.start + batch.size_bytes]
            self.spans = list(_message_spans(data, 0, len(data), 0))
            return
        self.spans = list(_header_spans(batch))
        if self.is_compressed:
            shown = f"compressed with {codec_name(batch.attributes)}"
            self.spans.append(Span(HEADER_SIZE, batch.size_bytes, "records", shown))
            return
        view = batch.buffer[batch.start + HEADER_SIZE : batch.start + batch.size_bytes]
        section: bytes | memoryview = bytes(view) if len(view) < _MOST_COPIED_BYTES else view
        self.section, self.section_start = RecordsSection(section, batch), HEADER_SIZE

    def data(self, span: Span) -> bytes:
        start = self.batch.start
        return bytes(self.batch.buffer[start + span.start : start + span.end])


def _header_spans(batch: RecordBatch) -> Iterator[Span]:
    start = 0
    for (end, name), value in zip(FIELDS, HEADER.unpack_from(batch.buffer, batch.start), strict=True):
        number = batch.base_offset + value if name == "last offset delta" else value
        yield Span(start, end, name, shown_number(name, value), 0, number)
        start = end


_MESSAGE = (("offset", ">q"), ("message size", ">i"), ("crc", ">I"), ("magic", ">b"), ("attributes", ">b"))
"""The first fields of a message of magic 0 or 1; in magic 1 a timestamp follows."""


def _message_spans(data: bytes | memoryview, start: int, end: int, depth: int) -> Iterator[Span]:
    cursor = FieldCursor(data, start, end, depth)
    try:
        for name, format_ in _MESSAGE:
            yield cursor.fixed(name, format_)
        codec = data[cursor.at - 1] & CODEC_MASK
        if data[start + MAGIC_POSITION] == 1:
            yield cursor.fixed("timestamp", ">q")
        for name in ("key", "value"):
            length = cursor.fixed(f"{name} length", ">i")
            yield length
            if length.number is not None and length.number > 0:
                span = cursor.raw(name, length.number)
                if codec and name == "value":
                    span = span._replace(value=f"messages, compressed with {codec_name(codec)}")
                yield span
    except IndexError:
        pass
    if cursor.at < end:
        yield Span(cursor.at, end, "records", UNDECODED, depth)


# --- sections of records


class Section(ABC):
    """Parts one after the other: records or messages, and the bytes after the last one that decodes. They are found as
    far as the caller asks; owned by one task.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self._ends = array("q", [0])
        """Where the parts end that were found, after the start of the first."""
        self._rest = ""

    @abstractmethod
    def _end_of(self, number: int, start: int) -> int | None:
        """Returns where that record ends, or None."""

    @abstractmethod
    def _spans(self, start: int, end: int) -> Iterator[Span]:
        """Returns the fields of a record."""

    @property
    def _reason(self) -> str:
        """Says why there is no record where one was looked for."""
        return UNDECODED

    def _grow(self) -> bool:
        """Finds the end of the next part; returns False at the end."""
        start = self._ends[-1]
        if start >= len(self.data):
            return False
        end = self._end_of(len(self._ends) - 1, start)
        if end is None:
            self._rest = self._reason
            end = len(self.data)
        self._ends.append(end)
        return True

    def number_at(self, at: int) -> int:
        """Returns the number of the part that holds a byte of the section."""
        while self._ends[-1] <= at and self._grow():
            pass
        return bisect_right(self._ends, at) - 1

    def bounds(self, number: int) -> tuple[int, int] | None:
        """Returns where a part begins and ends, or None if there are fewer parts."""
        while len(self._ends) < number + 2:
            if not self._grow():
                return None
        return self._ends[number], self._ends[number + 1]

    def is_rest(self, number: int) -> bool:
        """Says whether a part that was found is no record."""
        return bool(self._rest) and number == len(self._ends) - 2

    def spans(self, number: int) -> list[Span]:
        """Returns the fields of a part, which must exist."""
        bounds = self.bounds(number)
        assert bounds is not None, number
        if self.is_rest(number):
            return [Span(*bounds, "records", self._rest, 1)]
        return list(self._spans(*bounds))

    def parts(self) -> Iterator[list[Span]]:
        """Yields the fields of one part after the other."""
        number = 0
        while self.bounds(number) is not None:
            yield self.spans(number)
            number += 1

    def offset_of(self, number: int) -> int | None:
        """Returns the offset of a record, or None if the number is no record's, or it does not decode."""
        bounds = self.bounds(number)
        return None if bounds is None or self.is_rest(number) else self._offset_at(bounds[0])

    @abstractmethod
    def _offset_at(self, start: int) -> int | None:
        """Returns the offset of the record that begins there, or None."""


class RecordsSection(Section):
    """The records of a batch of magic 2, uncompressed."""

    def __init__(self, data: bytes | memoryview, batch: RecordBatch) -> None:
        super().__init__(data)
        self._count = batch.count
        self._base_offset = batch.base_offset
        self._base_timestamp = batch.base_timestamp

    @property
    def _reason(self) -> str:
        return AFTER_LAST_RECORD if len(self._ends) > self._count else UNDECODED

    def _end_of(self, number: int, start: int) -> int | None:
        if number >= self._count:
            return None
        try:
            length, at = read_varint(self.data, start)
        except (IndexError, ValueError):
            return None
        return at + length if 0 <= length <= len(self.data) - at else None

    def _spans(self, start: int, end: int) -> Iterator[Span]:
        cursor, rest = FieldCursor(self.data, start, end, 1), AFTER_LAST_FIELD
        try:
            yield cursor.varint("record length")
            attributes = cursor.fixed("attributes", ">B")
            yield attributes._replace(value=attributes.number)
            yield cursor.varint("timestamp delta", self._base_timestamp)
            yield cursor.varint("offset delta", self._base_offset)
            yield from cursor.sized("key")
            yield from cursor.sized("value")
            count = cursor.varint("header count")
            yield count
            for _ in range(count.number or 0):
                yield from cursor.sized("header key")
                yield from cursor.sized("header value")
        except (IndexError, ValueError):
            rest = UNDECODED
        if cursor.at < end:
            yield Span(cursor.at, end, "records", rest, 1)

    def _offset_at(self, start: int) -> int | None:
        try:
            _, at = read_varint(self.data, start)
            _, at = read_varlong(self.data, at + 1)
            delta, _ = read_varint(self.data, at)
        except (IndexError, ValueError):
            return None
        return self._base_offset + delta


class MessagesSection(Section):
    """The messages of magic 0 or 1 that were compressed in another. Magic 1 counts their offsets from the first, so
    that the last one's is the other's: `last_offset`.
    """

    def __init__(self, data: bytes | memoryview, last_offset: int, magic: int) -> None:
        super().__init__(data)
        self._last_offset = last_offset
        self._is_relative = magic == 1
        self._shift: int | None = None

    def _end_of(self, number: int, start: int) -> int | None:  # noqa: ARG002 - they are not counted
        if len(self.data) - start < LOG_OVERHEAD + MIN_MESSAGE_SIZE:
            return None
        size = LOG_OVERHEAD + int.from_bytes(self.data[start + 8 : start + 12], "big", signed=True)
        return start + size if LOG_OVERHEAD + MIN_MESSAGE_SIZE <= size <= len(self.data) - start else None

    def _spans(self, start: int, end: int) -> Iterator[Span]:
        for span in _message_spans(self.data, start, end, 1):
            yield span._replace(number=self._offset_at(start)) if span.name == "offset" else span

    def _stored_offset(self, start: int) -> int:
        return int.from_bytes(self.data[start : start + 8], "big", signed=True)

    def _found_shift(self) -> int:
        if self._shift is None:
            while self._grow():
                pass
            records = len(self._ends) - 1 - bool(self._rest)
            last = self._stored_offset(self._ends[records - 1]) if records else 0
            self._shift = self._last_offset - last if self._is_relative and records else 0
        return self._shift

    def _offset_at(self, start: int) -> int:
        return self._stored_offset(start) + self._found_shift()


def find_record(section: Section, offset: int, first_offset: int) -> int | None:
    """Finds the number of the record with an offset, or None, as after compaction."""
    guess = offset - first_offset
    if guess >= 0 and section.offset_of(guess) == offset:
        return guess
    number = 0
    while (found := section.offset_of(number)) is not None and found < offset:
        number += 1
    return number if found == offset else None


def uncompressed_section(batch: Batch, most_bytes: int | None = None) -> tuple[Section, bool]:
    """Decompresses a batch's records, or the messages in a message; says whether bytes after the first `most_bytes`
    were left out. Raises CorruptRecordError if they do not decompress.
    """
    if isinstance(batch, RecordBatch):
        pieces = batch.section_pieces()
    else:
        value = batch.key_and_value()[1]
        if value is None or batch.compression is CompressionType.ZSTD:
            raise batch.corrupt("magic 0 and 1 know no zstd" if value else "a compressed message has no value")
        pieces = decompressed_pieces(batch.compression, value, magic=batch.magic)
    data = bytearray()
    for piece in pieces:
        data += piece
        if most_bytes is not None and len(data) > most_bytes:
            break
    is_cut = most_bytes is not None and len(data) > most_bytes
    whole = bytes(data[:most_bytes])
    if isinstance(batch, RecordBatch):
        return RecordsSection(whole, batch), is_cut
    return MessagesSection(whole, batch.last_offset, batch.magic), is_cut
