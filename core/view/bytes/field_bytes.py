"""The bytes of a file, or of a compressed batch, with the field of each: the hex view of `plog inspect`.

`FieldSource` reads bytes, searches them and walks over their fields, from any source. Names and values are those of
`plog dump-segment --hex` (core.inspector.dump.byte_fields). Secrets are hidden as there, and their bytes with them.
`parse_needles` parses a search: a text, or bytes in hex.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from core.broker.config.config_sources import is_secret_config
from core.common.errors import AccessError, UnreadableFileError, UsageError
from core.common.filesystem import access_error, accessing
from core.common.salvaging_file import SalvagingFile, open_readable
from core.files.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, base_offset_of
from core.forensics.cut_off_tails import is_set_aside_log
from core.inspector.check.file_kind import FileKind, ensure_regular, kind_of
from core.inspector.dump.byte_fields import uncompressed_section
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.field_span import HasSecrets
from core.inspector.dump.internal_records import has_secrets
from core.records.batches import Batch
from core.view.bytes.batch_lookup import LogItem
from core.view.bytes.field_groups import Field, FieldGroup, LineGroups, LogGroups, RecordGroups, batch_text, groups_of

Needles = Sequence[bytes]
"""Alternatives of a search."""

Unit = Literal["field", "item", "batch"]
"""What a key goes on by; an item is a record, an entry or a line."""

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

    def following(self, unit: Unit, position: int) -> int | None:
        """Returns the start of the unit after the one that holds a byte, or None; raises as `group_at` does."""
        _, end = self._bounds(unit, position)
        return end if end < self.size_bytes else None

    def preceding(self, unit: Unit, position: int) -> int:
        """Returns the start of the unit that holds a byte, or, if it starts there, of the one before."""
        start, _ = self._bounds(unit, position)
        return start if start < position or not start else self._bounds(unit, start - 1)[0]

    def _bounds(self, unit: Unit, position: int) -> tuple[int, int]:
        if unit == "field":
            field = self.field_at(position)
            return field.start, field.end
        group = self.group_at(position)
        return (group.start, group.end) if unit == "item" else (group.outer_start, group.outer_end)

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


_LOGS = (FileKind.LOG, FileKind.METADATA_SNAPSHOT)
_RENAMED = (DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX, ".part")
_WITHOUT_SECRETS = ("quorum-state",)
"""Files in the folder of the metadata log without a kind, and without secrets."""

_MOST_UNCOMPRESSED_BYTES = 32 * 1024 * 1024


class Lead(NamedTuple):
    """The target of an entry: a position in a log, or an offset."""

    path: Path
    position: int | None
    offset: int | None


class FieldBytes(FieldSource):
    """The fields of a file of any kind; opened for reading, past bad sectors."""

    def __init__(self, path: Path) -> None:
        """Finds the kind by the name. Raises AccessError if the file can't be opened."""
        self.path = path
        self.title = str(path)
        self.kind = kind_of_bytes(path)
        try:
            with accessing(path):
                ensure_regular(path)
                self._file: SalvagingFile = open_readable(path)
        except UnreadableFileError as error:
            raise AccessError(error.message, where=str(path)) from error
        hides = DumpOptions().hides_secrets_of(path) or self.kind is FileKind.METADATA_SNAPSHOT
        self._has_secrets = _has_secrets if hides and path.name not in _WITHOUT_SECRETS else None
        try:
            is_log = self.kind in _LOGS
            base_offset = base_offset_of(path.with_name(_old_name(path.name)))
            self._groups = groups_of(self._file, self.kind, base_offset, self._has_secrets, is_log=is_log)
            self._size_bytes = self._file.size()
        except OSError as error:
            self._file.close()
            raise access_error(error, path, "read") from error

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def _has_hidden(self) -> bool:
        return self._has_secrets is not None and (self.kind in _LOGS or self.kind is None)

    @property
    def is_dumped(self) -> bool:
        """Whether `plog dump-segment` shows such a file."""
        return kind_of(self.path) is not None or is_set_aside_log(self.path.name)

    def look_again(self) -> None:
        """Notices bytes that were appended since, or cut off, and whether the file still exists."""
        with accessing(self.path):
            if not isinstance(self._groups, LineGroups):
                self._groups.look_again()
                self._size_bytes = self._file.size()
            self.note = self._find_note()

    def _find_note(self) -> str:
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return "the file was deleted since; this is what was in it"
        if now.st_ino != os.fstat(self._file.fd).st_ino:
            return "the file was replaced since; this is what was in it before"
        return ""

    def approach(self, position: int) -> Iterator[Step]:
        if 0 <= position < self.size_bytes:
            for found in self._groups.find(position):
                yield Step(found)

    def _group_at(self, position: int) -> FieldGroup:
        with accessing(self.path):
            group = self._groups.at(position)
        if not self._file.unreadable_in(group.start, group.end):
            return group
        return group._replace(fields=tuple(map(self._known, group.fields)))

    def _known(self, field: Field) -> Field:
        bad = self._file.unreadable_in(field.start, field.end)
        if not bad or field.is_damage:
            return field
        return field._replace(value=f"could not be read: {bad[0].reason}", meaning="")

    def _raw(self, position: int, size: int) -> ReadBytes:
        with accessing(self.path):
            data = self._file.read_at(size, position) if size else b""
        unreadable = self._file.unreadable_in(position, position + len(data))
        return ReadBytes(data, tuple((bad.position, bad.end) for bad in unreadable))

    # --- logs

    def find_offset(self, offset: int) -> Iterator[Step]:
        if not isinstance(self._groups, LogGroups):
            yield from super().find_offset(offset)
            return
        for found in self._groups.items.find_offset(offset):
            if not isinstance(found, LogItem):
                yield Step(found)
            elif found.damage is not None:
                yield Step(found.start, (found.start, found.end))
            else:
                group = self._record_group(self._groups, found, offset)
                yield Step(group[0], group)

    def _record_group(self, groups: LogGroups, item: LogItem, offset: int) -> tuple[int, int]:
        """Returns the bounds of the record, or those of the batch if the record is compressed or missing."""
        opened = groups.batch(item)
        if opened.records is None:
            return item.start, item.end
        return opened.records.find(offset) or (item.start, item.end)

    def _compressed_at(self, position: int) -> Batch | None:
        if not isinstance(self._groups, LogGroups) or not 0 <= position < self.size_bytes:
            return None
        item = self._groups.items.at(position)
        opened = None if item.damage is not None else self._groups.batch(item)
        return opened.batch if opened is not None and opened.is_compressed else None

    def uncompressed(self, position: int) -> Uncompressed | None:
        """Opens the compressed records of the batch at a position, or returns None. Raises CorruptRecordError if they
        do not decompress.
        """
        batch = self._compressed_at(position)
        return None if batch is None else Uncompressed(batch, self._has_secrets)

    def lead_at(self, position: int) -> Lead | None:
        """Returns the target of the entry at a position of an index or snapshot, or None."""
        if self.kind not in _LEADS or position >= self.size_bytes:
            return None
        group = self.group_at(position)
        if group.offset is None or self._file.unreadable_in(group.start, group.end):
            return None
        log = self.path.with_suffix(LOG_SUFFIX)
        if self.kind is FileKind.OFFSET_INDEX:
            return Lead(log, max(int(group.fields[-1].value), 0), None)
        return Lead(log, None, group.offset)

    def close(self) -> None:
        self._groups.close()
        self._file.close()


_LEADS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


def kind_of_bytes(path: Path) -> FileKind | None:
    """Returns the kind of a file, even if a start, a recovery or a compaction has renamed it."""
    if is_set_aside_log(path.name):
        return FileKind.LOG
    return kind_of(path.with_name(_old_name(path.name)))


def _old_name(name: str) -> str:
    ending = next((suffix for suffix in _RENAMED if name.endswith(suffix) and name != suffix), "")
    return name.removesuffix(ending)


def _has_secrets(value: bytes) -> bool:
    return has_secrets(value, is_secret_config)


class Uncompressed(FieldSource):
    """The uncompressed records, or messages, of one batch: they are in no file."""

    def __init__(self, batch: Batch, hides: HasSecrets | None) -> None:
        """Raises CorruptRecordError if they do not decompress."""
        section, is_cut = uncompressed_section(batch, _MOST_UNCOMPRESSED_BYTES)
        self.title = f"uncompressed, {batch_text(batch)}"
        self.batch_position = batch.position
        self._data = section.data
        self._hides = hides
        self._records = RecordGroups(section, batch, 0, (f"{batch_text(batch)}, uncompressed",), hides)
        self.note = f"only the first {len(section.data)} bytes are shown; there are more" if is_cut else ""

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    @property
    def _has_hidden(self) -> bool:
        return self._hides is not None

    def _group_at(self, position: int) -> FieldGroup:
        return self._records.group(position)

    def _raw(self, position: int, size: int) -> ReadBytes:
        return ReadBytes(bytes(self._data[position : position + size]))

    def find_offset(self, offset: int) -> Iterator[Step]:
        found = self._records.find(offset)
        if found is not None:
            yield Step(found[0], found)
