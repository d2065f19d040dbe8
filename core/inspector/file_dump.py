"""Dumps whatever it is given: finds out what a path is, and hands it to the dump of its kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.common.errors import AccessError, CorruptRecordError
from core.common.filesystem import access_error
from core.inspector.file_kind import FileKind, ensure_regular, kind_of
from core.inspector.findings import Finding, Severity, corrupt_code
from core.inspector.index_dump import Row, dump_rows, kafka_text
from core.inspector.output import write_all
from core.inspector.segment_dump import DumpOptions, SegmentDump
from core.log.file_names import LOG_SUFFIX, parse_offset_file_name, parse_partition_directory_name

_LOGS = (FileKind.LOG, FileKind.METADATA_SNAPSHOT)


if TYPE_CHECKING:
    from core.inspector.hex_dump import HexField


@dataclass(slots=True)
class FileDump:
    """One file to dump, and what was found wrong with it once it is dumped."""

    path: Path
    kind: FileKind
    options: DumpOptions
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_log(self) -> bool:
        return self.kind in _LOGS

    def kafka_text(self) -> Iterator[bytes]:
        """The text of Kafka's tool, headed by the file's name."""
        yield f"Dumping {self.path}\n".encode()
        if self.is_log:
            yield from self._follow(SegmentDump(self.path, self.options), SegmentDump.kafka_text)
        else:
            yield kafka_text(self.path, self.kind, self._small_rows()).encode("utf-8", "replace")

    def write_kafka_text(self, fd: int) -> None:
        """The same to a descriptor; of a large log on several CPUs."""
        if not self.is_log:
            for piece in self.kafka_text():
                write_all(fd, [piece])
            return
        write_all(fd, [f"Dumping {self.path}\n".encode()])
        dump = SegmentDump(self.path, self.options)
        dump.write_kafka_text(fd)
        self.findings += dump.findings

    def hex_fields(self) -> Iterator[HexField]:
        """Every byte, field by field."""
        from core.inspector.hex_dump import hex_fields

        return hex_fields(self.path, self.kind, self.findings)

    def rows(self) -> Iterator[Row]:
        if self.is_log:
            yield from self._follow(SegmentDump(self.path, self.options), SegmentDump.rows)
        else:
            yield from self._small_rows()

    def arrow(self) -> Iterator[Any]:  # pyarrow.RecordBatch
        """AccessError for a file that holds no records."""
        if not self.is_log:
            raise AccessError(
                f"{self.path} holds no records, which is what --format arrow is for", where=str(self.path)
            )
        yield from self._follow(SegmentDump(self.path, self.options), SegmentDump.arrow)

    def _follow(self, dump: SegmentDump, read: Any) -> Iterator[Any]:  # read: one of SegmentDump's methods
        yield from read(dump)
        self.findings += dump.findings

    def _small_rows(self) -> list[Row]:
        try:
            return dump_rows(self.path, self.kind)
        except CorruptRecordError as error:
            code = corrupt_code(self.kind)
            self.findings.append(Finding(Severity.ERROR, code, str(self.path), error.cause, error.position))
            return []


def find_dumps(path: Path, options: DumpOptions) -> Iterator[FileDump]:
    """The file, or the files of a partition's folder or data directory, in order of their names.

    AccessError where there is none, or where the file is none that Kafka or plog writes.
    """
    if not path.exists():
        raise AccessError(f"no such file or directory: {path}", where=str(path))
    if path.is_dir():
        yield from _find_in_directory(path, options)
        return
    kind = kind_of(path)
    ensure_regular(path)
    if kind is None:
        raise AccessError(
            f"{path} is no file that Kafka or plog writes",
            where=str(path),
            hint="a .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint, or a directory of them",
        )
    yield FileDump(path, kind, options)


def _find_in_directory(path: Path, options: DumpOptions) -> Iterator[FileDump]:
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise access_error(error, path, "read") from error
    passed_over = _before(options.start_offset, [entry.name for entry in entries])
    for entry in entries:
        inner = path / entry.name
        if entry.name in passed_over:
            continue
        if entry.is_dir(follow_symlinks=False) and parse_partition_directory_name(entry.name) is not None:
            yield from _find_in_directory(inner, options)
        elif entry.is_file() and (kind := kind_of(inner)) is not None:
            yield FileDump(inner, kind, options)


def _before(offset: int, names: list[str]) -> set[str]:
    """The names of segments that end before the offset."""
    logs = [(parsed[0], name) for name in names if (parsed := parse_offset_file_name(name)) and parsed[1] == LOG_SUFFIX]
    return {name for (_, name), (following, _) in pairwise(logs) if following <= offset}
