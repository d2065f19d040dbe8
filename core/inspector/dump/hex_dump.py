"""Every byte of a file with the name and value of the field that it belongs to.

A log's batches and records, and the entries of indexes and producer snapshots; of a file of text, its lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple

from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError
from core.common.filesystem import accessing
from core.common.salvaging_file import open_salvaging, read_small_file
from core.files.file_names import base_offset_of, find_following
from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage
from core.inspector.check.file_kind import FileKind
from core.inspector.check.findings import Finding, claimed_finding
from core.inspector.dump.byte_fields import BatchFields, Section, uncompressed_section
from core.inspector.dump.entry_fields import ENTRY_LAYOUTS, entry_spans, line_spans, line_starts
from core.inspector.dump.field_span import HasSecrets, Span, is_secret
from core.records.batches import Batch


class HexField(NamedTuple):
    """`data` lies at `position` of the file; -1 for compressed data. `depth`: 0 of a batch or entry, 1 of a record."""

    position: int
    data: bytes
    name: str
    value: Any
    depth: int = 0


def hex_fields(
    path: Path, kind: FileKind, findings: list[Finding], has_secrets: HasSecrets | None = None
) -> Iterator[HexField]:
    """Yields the fields of the whole file, in order; damage goes to `findings`. Raises AccessError if it can't be read.

    `has_secrets` says whether to hide the value of a record; bytes that can't be told apart are hidden with it.
    """
    if kind in (FileKind.LOG, FileKind.METADATA_SNAPSHOT):
        fields = _log_fields(path, findings)
        yield from fields if has_secrets is None else (_without_secrets(field, has_secrets) for field in fields)
    elif kind in ENTRY_LAYOUTS:
        yield from _entry_fields(path, kind)
    else:
        data = read_small_file(path)
        for number, (start, end) in enumerate(pairwise(line_starts(data))):
            line = data[start:end]
            yield from (_field(start, line, span) for span in line_spans(kind, number, line))


def _without_secrets(field: HexField, has_secrets: HasSecrets) -> HexField:
    if is_secret(field.name, field.data, has_secrets):
        return field._replace(data=b"", value=HIDDEN if field.name == "value" else f"{HIDDEN} ({field.value})")
    return field


def _field(position: int, data: bytes | memoryview, span: Span) -> HexField:
    """Makes a field of a span of `data`, which lies at a position of the file, or in no file: -1."""
    where = -1 if position < 0 else position + span.start
    return HexField(where, bytes(data[span.start : span.end]), span.name, span.value, span.depth)


# --- logs


def _log_fields(path: Path, findings: list[Finding]) -> Iterator[HexField]:
    with contextlib.closing(BatchScanner(path, base_offset_of(path), partial(find_following, path))) as walk:
        for item in walk:
            if isinstance(item, Damage):
                findings.append(claimed_finding(item, path))
                yield HexField(item.position, walk.head(item.position, item.end_position), "damaged", item.message)
            else:
                yield from _batch_fields(item)


def _batch_fields(batch: Batch) -> Iterator[HexField]:
    fields = BatchFields(batch)
    yield from (_field(batch.position, batch.buffer[batch.start :], span) for span in fields.spans)
    if fields.section is not None:
        yield from _record_fields(fields.section, batch.position + fields.section_start)
    elif fields.is_compressed:
        try:
            section, _ = uncompressed_section(batch)
        except CorruptRecordError as error:
            yield HexField(-1, b"", "records", error.cause)
            return
        yield from _record_fields(section, -1)


def _record_fields(section: Section, position: int) -> Iterator[HexField]:
    """Yields the fields of each record; positions are -1 if `position` is: the bytes are in no file then."""
    for spans in section.parts():
        yield from (_field(position, section.data, span) for span in spans)


# --- entries


def _entry_fields(path: Path, kind: FileKind) -> Iterator[HexField]:
    layout = ENTRY_LAYOUTS[kind]
    with accessing(path):
        file = open_salvaging(path)
    with contextlib.closing(file):
        position, size_bytes = 0, file.size()
        sizes = chain([(layout.head, layout.head_bytes)], repeat((layout.entry, layout.entry_bytes)))
        for fields, size in sizes:
            data = file.read_at(min(size, size_bytes - position), position)
            yield from (_field(position, data, span) for span in entry_spans(fields, data))
            position += size
            if position >= size_bytes:
                break
    file.ensure_whole()
