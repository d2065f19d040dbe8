"""Writes the output of a replay's task: the files of its unit.

    DIR/_plog/writing-7/<random>.tmp        each file, until the driver renames it to its place
    DIR/<unit>.parquet                      its place, or DIR/day=2013-01-15/<unit>.parquet, if it is partitioned
    DIR/_plog/receipts/<unit>.json          {"files": [{"name", "rows", "bytes", "sha256", "from"}], "records": 9,
                                            "gaps": [..], "left_out": [..]}

Files are written in the folder of the lock's owner (replay_lock.py), and brought to the disk. Written again from the
same records, a file has the same bytes.

A unit has several files of a folder, `<unit>-1.parquet` and so on, where a file would become larger than is wanted, or
where rows came for more folders than one unit may have files open: then all of them are ended.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.common.errors import PlogError, UsageError
from core.common.filesystem import FileSystem, access_error
from core.common.out_file import open_sink
from core.spark.partition_expression import DATE, Partition
from core.spark.partition_folder import ensure_names_folders, folder_name, partition_texts, time_texts

_TIME_UNITS = {"day": "D", "hour": "h", DATE: "D"}

_MOST_OPEN_FILES = 256
"""The most open files of one unit; when another one is needed, all of them are ended."""

_AT_ONCE = 16
"""The most files that are synced to the disk at once: disks combine such requests."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """`kind`: parquet, json, csv, orc or delta. `partition_by`: the columns of the folders. `compression`: zstd,
    snappy, gzip, lz4 or none. `file_size`: bytes after which a unit's next file begins; 0 for never. `timezone`: of
    days and hours.
    """

    kind: str
    key_format: str
    value_format: str
    partition_by: tuple[Partition, ...] = ()
    compression: str = "zstd"
    file_size: int = 0
    timezone: str = "UTC"

    @property
    def ending(self) -> str:
        return f".{self.kind}"


class WrittenFile(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"size_bytes": "bytes", "digest": "sha256", "source": "from"},
):
    """`name`: its path in the output folder. `digest`: SHA-256, in hex. `size_bytes`: -1 if the receipt does not say,
    as older ones do not. -1 and "" stand for the rows and the digest of a file by Spark's writer. `source`: where in
    the folder it was written.
    """

    name: str
    rows: int = -1
    digest: str = ""
    size_bytes: int = -1
    source: str = ""

    @property
    def content(self) -> tuple[str, int, str]:
        """Returns what two writings of the same records have in common."""
        return self.name, self.rows, self.digest


class Measure(NamedTuple):
    """What is compared of a round: how many rows, and a digest of them that does not depend on their order."""

    rows: int
    digest: str


Gaps = tuple[tuple[int, int, str, str], ...]
"""(start, end, reason, evidence) of offsets without a record."""


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """`records`: how many were read of the log. `left_out`: descriptions of the range's records that the log has lost.
    `rows` and `digest` of a round of Spark's writer: of all its files together.
    """

    unit: str
    files: tuple[WrittenFile, ...]
    records: int
    gaps: Gaps = ()
    left_out: tuple[str, ...] = ()
    rows: int = -1
    digest: str = ""

    @property
    def row_count(self) -> int:
        return self.rows if self.digest else sum(file.rows for file in self.files)


# --- files


def write_files(
    beside: Path,
    unit: str,
    format_: OutputFormat,
    batches: Iterable[Any],
    schema: Any,
    filesystem: FileSystem | None = None,
) -> tuple[WrittenFile, ...]:
    """Writes the batches (of pyarrow.RecordBatch, of `schema`), in their order, into the folder `beside`; without
    batches, an empty file. Raises UsageError for a column that the format can't hold, and AccessError if the disk
    refuses, or if the folder is gone, because another driver took over; then no file stays.
    """
    output: _Output | None = None
    try:
        output = _Output(beside, unit, format_, schema, filesystem or FileSystem())
        for batch in batches:
            output.write(batch)
        return output.finish()
    except BaseException as error:
        if output is not None:
            output.discard()
        if isinstance(error, OSError):
            named = OSError(error.errno, os.strerror(error.errno)) if error.errno else error  # instead of Arrow's words
            raise access_error(named, beside.parent.parent, "write") from error
        raise


class _OpenFile(NamedTuple):
    path: Path
    sink: BufferedWriter
    parquet: Any  # pyarrow.parquet.ParquetWriter

    def close(self) -> None:
        """Ends the file, and closes it also if that fails; may be called again."""
        if not self.sink.closed:
            with self.sink:
                self.parquet.close()


class _Output:
    """Writes one unit: a writer for each folder of the output, `_MOST_OPEN_FILES` of them at a time."""

    def __init__(self, beside: Path, unit: str, format_: OutputFormat, schema: Any, filesystem: FileSystem) -> None:
        self._beside = beside
        self._filesystem = filesystem
        self._unit = unit
        self._format = format_
        self._partitions = partition_columns(format_, schema)
        self._schema = written_schema(format_, schema)
        self._writers: dict[str, _OpenFile] = {}
        self._rows: dict[str, int] = {}
        self._numbers: Counter[str] = Counter()  # of the files that a folder has already
        self._ended: list[WrittenFile] = []
        if not self._partitions:
            self._writer("")

    def _writer(self, folder: str) -> _OpenFile:
        known = self._writers.get(folder)
        if known is None:
            if len(self._writers) >= _MOST_OPEN_FILES:
                self._end_files(list(self._writers))
            path = self._beside / f"{uuid.uuid4().hex}.tmp"  # several attempts may run one task at once
            sink = open_sink(self._filesystem, path)
            try:
                parquet = pq.ParquetWriter(sink, self._schema, compression=self._format.compression)
            except BaseException:
                sink.close()
                raise
            known = self._writers[folder] = _OpenFile(path, sink, parquet)
            self._rows[folder] = 0
        return known

    def write(self, batch: Any) -> None:
        for folder, rows in self._split(batch):
            written = to_written(self._format, rows, self._schema)
            for some in self._cut(written):
                file = self._writer(folder)
                file.parquet.write_batch(some)
                self._rows[folder] += some.num_rows
                if 0 < self._format.file_size <= file.sink.tell():
                    self._end_files([folder])

    def _cut(self, rows: Any) -> Iterator[Any]:
        """Yields rows that are about as large as a file, before they are compressed, or all at once."""
        most = self._format.file_size or rows.nbytes
        step = rows.num_rows if rows.nbytes <= most else max(1, rows.num_rows * most // rows.nbytes)
        for start in range(0, rows.num_rows, step or 1):
            yield rows.slice(start, step)

    def _split(self, batch: Any) -> Iterator[tuple[str, Any]]:
        if not self._partitions:
            yield "", batch
            return
        names = []
        for name, texts in self._partitions:
            values = texts(batch).dictionary_encode(null_encoding="encode")
            folders = [folder_name(name, value) for value in values.dictionary.to_pylist()]
            names.append(pa.array(folders, pa.string()).take(values.indices))
        values = pc.binary_join_element_wise(*names, "/").dictionary_encode()
        numbers = values.indices.to_numpy()
        in_order = batch.take(pa.array(np.argsort(numbers, kind="stable")))
        ends = np.cumsum(np.bincount(numbers, minlength=len(values.dictionary))).tolist()
        for folder, start, end in zip(values.dictionary.to_pylist(), [0, *ends], ends, strict=False):
            yield folder, in_order.slice(start, end - start)

    def finish(self) -> tuple[WrittenFile, ...]:
        self._end_files(list(self._writers))
        paths = [self._beside / Path(file.source).name for file in self._ended]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._filesystem.sync_file, paths))
        self._filesystem.sync_directory(self._beside)
        return tuple(sorted(self._ended, key=lambda file: file.name))

    def _end_files(self, folders: Iterable[str]) -> None:
        for folder in folders:
            path = self._writers[folder].path
            self._writers[folder].close()
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size_bytes = file.tell()
            number = f"-{self._numbers[folder]}" if self._numbers[folder] else ""
            name = str(Path(folder, f"{self._unit}{number}{self._format.ending}"))
            source = f"{self._beside.parent.name}/{self._beside.name}/{path.name}"
            self._ended.append(WrittenFile(name, self._rows[folder], digest, size_bytes, source))
            self._numbers[folder] += 1
            del self._writers[folder]

    def discard(self) -> None:
        for file in self._writers.values():
            with contextlib.suppress(OSError):  # a file on a full disk can't be ended
                file.close()
            self._filesystem.unlink(file.path)
        for ended in self._ended:
            self._filesystem.unlink(self._beside / Path(ended.source).name)


def partition_columns(format_: OutputFormat, schema: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    """Returns the name of each column of the folders, and a function that computes a batch's texts for it. Raises
    UsageError if there is no such column.
    """
    return [(one.name, _partition_column(one, format_, schema)) for one in format_.partition_by]


def _partition_column(partition: Partition, format_: OutputFormat, schema: Any) -> Callable[[Any], Any]:
    by = partition.column
    unit = None if by in schema.names else _TIME_UNITS.get(partition.expression)
    needed = "timestamp" if unit else by
    if needed not in schema.names:
        raise UsageError(f"--partition-by {partition}: there is no column {needed}, only {', '.join(schema.names)}")
    ensure_names_folders(partition.name, pa.string() if unit else schema.field(by).type)
    if unit:
        zone = format_.timezone
        return lambda batch: pc.replace_substring(time_texts(_local(batch.column("timestamp"), zone), unit), "T", "-")
    if pa.types.is_binary(schema.field(by).type):
        return lambda batch: partition_texts(_to_text(batch.column(by), _bytes_format(format_, by), by, batch))
    return lambda batch: partition_texts(batch.column(by))


def _local(times: Any, zone: str) -> Any:  # pyarrow.TimestampArray
    """Returns the times that clocks of the zone show."""
    return times if zone == "UTC" else pc.local_timestamp(times.cast(pa.timestamp("us", zone)))


def ensure_writable(format_: OutputFormat, schema: Any) -> None:
    """Raises UsageError if the format can't hold rows of the schema, or other programs would not read them."""
    partition_columns(format_, schema)
    written_schema(format_, schema)


def written_schema(format_: OutputFormat, schema: Any) -> Any:
    """Returns the schema of the files; raises UsageError as `columns_in_folders` does."""
    in_folders = columns_in_folders(format_.partition_by, schema.names)
    fields = []
    for column in schema:
        if column.name in in_folders:
            continue  # its value is in the folder's name
        kind = column.type
        if pa.types.is_binary(kind) and _bytes_format(format_, column.name) != "binary":
            kind = pa.string()
        fields.append(pa.field(column.name, kind, column.nullable))
    return pa.schema(fields)


def columns_in_folders(partition_by: Sequence[Partition], names: Sequence[str]) -> set[str]:
    """Returns those of the columns whose values are in the folders' names alone. Raises UsageError for columns that the
    files can't hold: two with one name, if case is ignored, or one with the name of the folders' column; and if no
    column is left.
    """
    found = {one.name for one in partition_by if one.name == one.column and one.name in names}
    seen: dict[str, str] = {}
    for name in [*names, *(one.name for one in partition_by if one.name not in found)]:
        if name.lower() in seen:
            raise UsageError(
                f"two columns of the output are one to Spark and others: {seen[name.lower()]} and {name}",
                hint="--columns leaves columns out; --schema and --transform can name them otherwise",
            )
        seen[name.lower()] = name
    if found.issuperset(names):
        raise UsageError(f"--partition-by {', '.join(map(str, partition_by))}: the files would have no column")
    return found


def _bytes_format(format_: OutputFormat, name: str) -> str:
    return {"key": format_.key_format, "value": format_.value_format}.get(name, "binary")


def to_written(format_: OutputFormat, batch: Any, schema: Any) -> Any:
    """Converts the batch; raises PlogError for bytes that should be text and are not."""
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = batch.column(name)
        if pa.types.is_binary(column.type) and pa.types.is_string(kind):
            column = _to_text(column, _bytes_format(format_, name), name, batch)
        columns.append(column.cast(kind))
    return pa.record_batch(columns, schema=schema)


def _to_text(column: Any, bytes_format: str, name: str, batch: Any) -> Any:
    if bytes_format == "base64":
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()], pa.string())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = enumerate(column.to_pylist())
        row = next(n for n, value in values if value is not None and value.decode(errors="ignore").encode() != value)
        where = {c: batch.column(c)[row].as_py() for c in ("topic", "partition", "offset") if c in batch.schema.names}
        place = " ".join(f"{key} {value}" for key, value in where.items()) or "of a record"
        raise PlogError(
            f"{name}, {place}: the bytes are no UTF-8 text",
            hint=f"--{name}-format base64 writes them, or --to parquet:DIR, to a folder of its own"
            if name in ("key", "value")
            else None,
        ) from None
