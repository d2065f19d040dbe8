"""Every byte of a file with the name and value of the field that it belongs to.

A log's batches and records, and the entries of indexes and producer snapshots; of a file of text, its lines.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

from core.common.bad_sectors import open_salvaging, read_small_file
from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError, UnreadableFileError
from core.common.filesystem import access_error
from core.common.varint import read_varlong
from core.inspector.file_kind import FileKind
from core.inspector.findings import Finding, claimed_finding
from core.inspector.value_format import as_utf8
from core.log.damage import Damage
from core.log.file_names import base_offset_of, find_following
from core.log.segment_walk import FIELDS, SegmentWalk
from core.records.batches import Batch
from core.records.compression import CompressionType
from core.records.record_batch import HEADER, HEADER_SIZE, RecordBatch

_CODEC_MASK = 0x07
_SHOWN = 4096
"""The most bytes of a key or value that are shown as text, too; all of them are shown in hex."""


HasSecrets = Callable[[bytes], bool]


class HexField(NamedTuple):
    """`data` lies at `position` of the file; -1 for what is compressed there. `depth`: 0 of a batch or entry, 1 of a
    record.
    """

    position: int
    data: bytes
    name: str
    value: Any
    depth: int = 0


def hex_fields(
    path: Path, kind: FileKind, findings: list[Finding], has_secrets: HasSecrets | None = None
) -> Iterator[HexField]:
    """Gives those of the whole file, in order; damage goes to `findings`. Raises AccessError if it can't be read.

    `has_secrets` says of the value of a record whether it is to be hidden; what can't be told apart is hidden with it.
    """
    if kind in (FileKind.LOG, FileKind.METADATA_SNAPSHOT):
        fields = _log_fields(path, findings)
        yield from fields if has_secrets is None else (_without_secrets(field, has_secrets) for field in fields)
    elif kind in _ENTRIES:
        yield from _entry_fields(path, kind)
    else:
        position = 0
        for line in read_small_file(path).splitlines(keepends=True):
            yield HexField(position, line, "line", line.decode("utf-8", "replace").rstrip("\r\n"))
            position += len(line)


_MAY_HOLD_RECORDS = ("records", "damaged")


def _without_secrets(field: HexField, has_secrets: HasSecrets) -> HexField:
    if field.name in _MAY_HOLD_RECORDS or (field.name == "value" and has_secrets(field.data)):
        return field._replace(data=b"", value=HIDDEN if field.name == "value" else f"{HIDDEN} ({field.value})")
    return field


# --- logs


def _log_fields(path: Path, findings: list[Finding]) -> Iterator[HexField]:
    walk = SegmentWalk(path, base_offset_of(path), find_following(path))
    try:
        for item in walk:
            if isinstance(item, Damage):
                findings.append(claimed_finding(item, path))
                yield HexField(item.position, walk.head(item.position, item.end_position), "damaged", item.message)
            elif isinstance(item, RecordBatch):
                yield from _batch_fields(item)
            else:
                yield from _legacy_fields(item)
    finally:
        walk.close()


def _batch_fields(batch: RecordBatch) -> Iterator[HexField]:
    start = 0
    for (end, name), value in zip(FIELDS, HEADER.unpack_from(batch.buffer, batch.start), strict=True):
        data = bytes(batch.buffer[batch.start + start : batch.start + end])
        yield HexField(batch.position + start, data, name, _shown(name, value))
        start = end
    section = bytes(batch.buffer[batch.start + HEADER_SIZE : batch.start + batch.size_bytes])
    position = batch.position + HEADER_SIZE
    codec = batch.attributes & _CODEC_MASK
    if codec:
        name = CompressionType(codec).text if codec < len(CompressionType) else f"codec {codec}"
        yield HexField(position, section, "records", f"compressed with {name}")
        position = -1
        try:
            section = bytes(batch.records_section())
        except CorruptRecordError as error:
            yield HexField(-1, b"", "records", error.cause)
            return
    yield from _record_fields(section, batch, position)


def _record_fields(section: bytes, batch: RecordBatch, position: int) -> Iterator[HexField]:
    """Gives those of each record; positions are -1 if `position` is: they are in no file then."""
    reader = _Reader(section, position)
    try:
        for _ in range(batch.count):
            yield reader.number("record length")
            yield reader.bytes_("attributes", 1)
            yield reader.number("timestamp delta", batch.base_timestamp)
            yield reader.number("offset delta", batch.base_offset)
            yield from reader.sized("key")
            yield from reader.sized("value")
            count = reader.number("header count")
            yield count
            for _ in range(count.value):
                yield from reader.sized("header key")
                yield from reader.sized("header value")
    except (IndexError, ValueError, CorruptRecordError):
        yield HexField(reader.where(), section[reader.at :], "records", "do not decode from here on", 1)
        return
    if reader.at < len(section):
        yield HexField(reader.where(), section[reader.at :], "records", "bytes after the last record", 1)


class _Reader:
    """Hops over a records section; owned by one task."""

    def __init__(self, section: bytes, position: int) -> None:
        self._section = section
        self._position = position
        self.at = 0

    def where(self) -> int:
        return -1 if self._position < 0 else self._position + self.at

    def number(self, name: str, base: int | None = None) -> HexField:
        """Reads a varint or varlong; with `base`, shows what it stands for too."""
        where, start = self.where(), self.at
        value, self.at = read_varlong(self._section, start)
        shown = value if base is None else f"{value} ({base + value})"
        return HexField(where, self._section[start : self.at], name, shown, 1)

    def bytes_(self, name: str, size: int) -> HexField:
        if size > len(self._section) - self.at:
            raise IndexError
        where, start = self.where(), self.at
        self.at += size
        data = self._section[start : self.at]
        return HexField(where, data, name, data[0] if name == "attributes" else as_utf8(data[:_SHOWN]), 1)

    def sized(self, name: str) -> Iterator[HexField]:
        length = self.number(f"{name} length")
        if length.value < 0:
            yield length._replace(value=f"{length.value} (null)")
            return
        yield length
        if length.value:
            yield self.bytes_(name, length.value)


def _legacy_fields(batch: Batch) -> Iterator[HexField]:
    """Gives those of a message of magic 0 or 1."""
    data = bytes(batch.buffer[batch.start : batch.start + batch.size_bytes])
    layout = [("offset", ">q"), ("message size", ">i"), ("crc", ">I"), ("magic", ">b"), ("attributes", ">b")]
    if batch.magic == 1:
        layout.append(("timestamp", ">q"))
    at = 0
    for name, format_ in layout:
        size = struct.calcsize(format_)
        (value,) = struct.unpack_from(format_, data, at)
        yield HexField(batch.position + at, data[at : at + size], name, _shown(name, value))
        at += size
    for name in ("key", "value"):
        (length,) = struct.unpack_from(">i", data, at)
        yield HexField(batch.position + at, data[at : at + 4], f"{name} length", length)
        at += 4
        if length > 0:
            codec = batch.attributes & _CODEC_MASK if name == "value" else 0
            content = data[at : at + length]
            shown = f"messages, compressed with {CompressionType(codec).text}" if codec else as_utf8(content[:_SHOWN])
            yield HexField(batch.position + at, content, name, shown)
            at += length


def _shown(name: str, value: int) -> Any:
    if name == "crc":
        return f"{value:08x}"
    if name != "attributes":
        return value
    codec = value & _CODEC_MASK
    words = [CompressionType(codec).text if codec < len(CompressionType) else f"codec {codec}"]
    for bit, word in ((3, "LogAppendTime"), (4, "transactional"), (5, "control"), (6, "delete horizon")):
        if value >> bit & 1:
            words.append(word)
    return f"{value} ({', '.join(words)})"


# --- entries

_ENTRIES: dict[FileKind, tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]] = {
    FileKind.OFFSET_INDEX: ((), (("relative offset", ">i"), ("position", ">i"))),
    FileKind.TIME_INDEX: ((), (("timestamp", ">q"), ("relative offset", ">i"))),
    FileKind.TRANSACTION_INDEX: (
        (),
        (
            ("version", ">h"),
            ("producer id", ">q"),
            ("first offset", ">q"),
            ("last offset", ">q"),
            ("last stable offset", ">q"),
        ),
    ),
    FileKind.PRODUCER_SNAPSHOT: (
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
"""The fields of a file's head and of each entry after it."""


def _entry_fields(path: Path, kind: FileKind) -> Iterator[HexField]:
    head, entry = _ENTRIES[kind]
    try:
        file = open_salvaging(path)
    except OSError as error:
        raise access_error(error, path, "read") from error
    try:
        position, size_bytes = 0, file.size()
        for fields in chain([head], repeat(entry)):
            size = sum(struct.calcsize(format_) for _, format_ in fields)
            if size_bytes - position < size:
                break
            yield from _fields_of(fields, file.read_at(size, position), position)
            position += size
        yield from _fields_of(fields, file.read_at(size_bytes - position, position), position)
    finally:
        file.close()
    if file.unreadable:
        bad = file.unreadable[0]
        raise UnreadableFileError(bad.reason, errno=bad.errno, path=str(path), position=bad.position)


def _fields_of(fields: Sequence[tuple[str, str]], data: bytes, position: int) -> Iterator[HexField]:
    """Gives those of one entry, as far as its bytes go."""
    at = 0
    for name, format_ in fields:
        size = struct.calcsize(format_)
        if at + size > len(data):
            if at < len(data):
                yield HexField(position + at, data[at:], "rest", "too few bytes for an entry")
            return
        (value,) = struct.unpack_from(format_, data, at)
        yield HexField(position + at, data[at : at + size], name, _shown(name, value))
        at += size
