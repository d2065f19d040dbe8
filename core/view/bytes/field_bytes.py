"""The bytes of a file, or of a compressed batch, with the field of each: the hex view of `plog inspect`.

Names and values are those of `plog dump-segment --hex` (core.inspector.dump.byte_fields). Secrets are hidden as there,
and their bytes with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.broker.config.config_sources import is_secret_config
from core.common.errors import AccessError, UnreadableFileError
from core.common.filesystem import access_error
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
from core.view.bytes.byte_field import Field, FieldGroup
from core.view.bytes.field_groups import LineGroups, LogGroups, RecordGroups, batch_text, groups_of
from core.view.bytes.field_source import FieldSource, ReadBytes, Step

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

    def __init__(self, path: Path, kind: FileKind | None = None) -> None:
        """Finds the kind by the name if `kind` is None. Raises AccessError if the file can't be opened."""
        self.path = path
        self.title = str(path)
        self.kind = kind or kind_of_bytes(path)
        try:
            ensure_regular(path)
            self._file: SalvagingFile = open_readable(path)
        except OSError as error:
            raise access_error(error, path, "read") from error
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

    def __enter__(self) -> FieldBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        try:
            if not isinstance(self._groups, LineGroups):
                self._groups.look_again()
                self._size_bytes = self._file.size()
            self.note = self._find_note()
        except OSError as error:
            raise access_error(error, self.path, "read") from error

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
        try:
            group = self._groups.at(position)
        except OSError as error:
            raise access_error(error, self.path, "read") from error
        if not self._file.unreadable_in(group.start, group.end):
            return group
        return group._replace(fields=tuple(map(self._known, group.fields)))

    def _known(self, field: Field) -> Field:
        bad = self._file.unreadable_in(field.start, field.end)
        if not bad or field.is_damage:
            return field
        return field._replace(value=f"could not be read: {bad[0].reason}", meaning="")

    def _raw(self, position: int, size: int) -> ReadBytes:
        try:
            data = self._file.read_at(size, position) if size else b""
        except OSError as error:
            raise access_error(error, self.path, "read") from error
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
