"""Dumps any path: finds its kind, and hands it to the dump of that kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.common.errors import AccessError, CorruptRecordError, UnreadableFileError
from core.common.filesystem import accessing
from core.common.salvaging_file import unreadable_error
from core.files.file_names import LOG_SUFFIX, find_partition_folders, find_unreadable, is_folder, parse_offset_file_name
from core.forensics.cut_off_tails import is_set_aside_log
from core.inspector.check.file_kind import (
    FileKind,
    ensure_regular,
    ensure_there,
    foreign_file_error,
    is_named_by_kafka,
    kind_of,
)
from core.inspector.check.findings import Finding, corrupt_code, corrupt_finding, unreadable_finding
from core.inspector.dump.dump_options import DumpOptions
from core.inspector.dump.segment_dump import SegmentDump
from core.inspector.dump.segment_text import SegmentText
from core.inspector.dump.side_file_dump import Row, dump_rows, kafka_text

_LOGS = (FileKind.LOG, FileKind.METADATA_SNAPSHOT)
_LINES_TOGETHER = 1000


if TYPE_CHECKING:
    from core.inspector.dump.hex_dump import HexField


@dataclass(slots=True)
class FileDump:
    """One file to dump, and the findings about it once it is dumped."""

    path: Path
    kind: FileKind
    options: DumpOptions
    findings: list[Finding] = field(default_factory=list)
    is_readable: bool = True
    """Whether it can be read; else it is here for its finding alone."""

    @property
    def is_log(self) -> bool:
        return self.kind in _LOGS

    def kafka_text(self) -> Iterator[bytes]:
        """Yields the text of Kafka's tool, headed by the file's name."""
        yield f"Dumping {self.path}\n".encode()
        if self.is_log:
            yield from SegmentText(self.path, self.options, self.findings).pieces()
        else:
            lines = kafka_text(self.path, self.kind, self._small_rows())
            while piece := "".join(islice(lines, _LINES_TOGETHER)):
                yield piece.encode("utf-8", "replace")

    def hex_fields(self) -> Iterator[HexField]:
        """Yields every byte, field by field."""
        from core.inspector.dump.hex_dump import hex_fields

        try:
            yield from hex_fields(self.path, self.kind, self.findings, self.options.find_secrets(self.path))
        except UnreadableFileError as error:
            self.findings.append(unreadable_finding(error))

    def rows(self) -> Iterator[Row]:
        if self.is_log:
            yield from SegmentDump(self.path, self.options, self.findings).rows()
        else:
            yield from self._small_rows()

    def arrow(self) -> Iterator[Any]:  # pyarrow.RecordBatch
        """Yields Arrow batches; raises AccessError for a file that holds no records."""
        if not self.is_log:
            raise AccessError(
                f"{self.path} holds no records, which is what --format arrow is for", where=str(self.path)
            )
        yield from SegmentDump(self.path, self.options, self.findings).arrow()

    def _small_rows(self) -> Iterator[Row]:
        try:
            yield from dump_rows(self.path, self.kind)
        except CorruptRecordError as error:
            self.findings.append(corrupt_finding(corrupt_code(self.kind), error, self.path))


def find_dumps(path: Path, options: DumpOptions) -> Iterator[FileDump]:
    """Yields the file, or the files of a partition's folder or data directory, in order of their names.

    Raises AccessError if there is no file, or if neither Kafka nor plog writes such a file.
    """
    ensure_there(path)
    if path.is_dir():
        yield from _find_in_directory(path, options)
        return
    kind = kind_of(path)
    if kind is None and is_set_aside_log(path.name):
        kind = FileKind.LOG
    ensure_regular(path)
    if kind is None:
        raise foreign_file_error(path)
    yield FileDump(path, kind, options)


def _find_in_directory(path: Path, options: DumpOptions, *, depth: int = 1) -> Iterator[FileDump]:
    with accessing(path):
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        folders = {folder.name for folder in find_partition_folders(path).values()} if depth else set()
    passed_over = _before(options.start_offset, [entry.name for entry in entries])
    for entry in entries:
        inner = path / entry.name
        if entry.name in passed_over:
            continue
        if entry.name in folders:
            yield from _find_in_folder(inner, options)
        elif (kind := kind_of(inner)) is not None and (is_named_by_kafka(inner) or not (folders or is_folder(entry))):
            error = find_unreadable(inner)
            findings = [] if error is None else [unreadable_finding(error)]
            yield FileDump(inner, kind, options, findings, is_readable=error is None)


def _find_in_folder(path: Path, options: DumpOptions) -> Iterator[FileDump]:
    """Yields the files of a partition's folder in a data directory; a folder that can't be read is a finding."""
    try:
        os.scandir(path).close()
    except OSError as error:
        if os.path.lexists(path):
            finding = unreadable_finding(unreadable_error(error, path))
            yield FileDump(path, FileKind.LOG, options, [finding], is_readable=False)
        return
    yield from _find_in_directory(path, options, depth=0)


def _before(offset: int, names: list[str]) -> set[str]:
    logs = [(parsed[0], name) for name in names if (parsed := parse_offset_file_name(name)) and parsed[1] == LOG_SUFFIX]
    return {name for (_, name), (following, _) in pairwise(logs) if following <= offset}
