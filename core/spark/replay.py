"""Replays ranges of offsets with Spark into a folder of files, exactly once, whatever crashes on the way.

    DIR/_plog/plan.json      which ranges; written first, and frozen: a rerun uses it whatever the log has become
    DIR/<range>.parquet      one file a range; written under _plog/, synced, then renamed to its name
    DIR/_plog/manifest.json  every file with its rows and its SHA-256; written last: with it the replay is done

A rerun finishes what is missing and touches nothing else; a third does nothing. Who reads the output trusts the
manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.common.errors import AccessError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.spark.offset_range import OffsetRange, read_range
from core.spark.record_schema import COLUMNS, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = 1
_STATE = "_plog"
_ENDING = ".parquet"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """`digest`: SHA-256 of the file, in hex."""

    name: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    columns: tuple[str, ...]
    ranges: tuple[OffsetRange, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "columns": list(self.columns),
            "ranges": [range_.to_json() for range_ in self.ranges],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ReplayPlan:
        return cls(tuple(fields["columns"]), tuple(OffsetRange(**r) for r in fields["ranges"]))


class Replay:
    """One output folder; owned by one task."""

    def __init__(self, directory: Path, filesystem: FileSystem | None = None) -> None:
        self.directory = directory
        self._state = directory / _STATE
        self._filesystem = filesystem or FileSystem()

    # --- the plan

    def freeze(self, plan: ReplayPlan) -> ReplayPlan:
        """Writes the plan down, or gives the one that was written here before. PlogError where that is of another job.

        The ends of the ranges may differ: a log grows between two runs, and the first plan holds.
        """
        frozen = self._read("plan.json")
        if frozen is None:
            self._ensure_empty()
            self._write("plan.json", plan.to_json())
            return plan
        known = ReplayPlan.from_json(frozen)
        if known.columns != plan.columns or _starts(known.ranges) != _starts(plan.ranges):
            raise PlogError(
                f"{self.directory} holds another replay: other topics, starts or columns",
                hint="replay to a new folder, or repeat the first command",
            )
        return known

    def _ensure_empty(self) -> None:
        try:
            self._state.mkdir(parents=True, exist_ok=True)
            others = [path.name for path in self.directory.iterdir() if path.name != _STATE]
        except OSError as error:
            raise access_error(error, self.directory, "write to") from error
        if others:
            raise PlogError(
                f"{self.directory} is not empty ({others[0]}, ...) and holds no replay", hint="replay to a new folder"
            )

    # --- the work

    @property
    def is_done(self) -> bool:
        return (self._state / "manifest.json").exists()

    def missing(self, plan: ReplayPlan) -> list[OffsetRange]:
        """The ranges whose files are not there yet."""
        return [range_ for range_ in plan.ranges if not self._path(range_).exists()]

    def _path(self, range_: OffsetRange) -> Path:
        return self.directory / (range_.name + _ENDING)

    def run(self, session: SparkSession, plan: ReplayPlan, on_rows: Callable[[OffsetRange, int], None]) -> None:
        """Writes every missing file, one task a range, and tells `on_rows` of each as it is done."""
        todo = self.missing(plan)
        if not todo:
            return
        directory, columns = str(self.directory.resolve()), plan.columns

        def write(ranges: Iterable[OffsetRange]) -> Iterator[tuple[OffsetRange, int]]:
            for range_ in ranges:
                yield range_, write_range(Path(directory), range_, columns)

        parts = session.sparkContext.parallelize(todo, len(todo)).mapPartitions(write)
        for range_, rows in parts.toLocalIterator(prefetchPartitions=True):
            on_rows(range_, rows)

    def commit(self, plan: ReplayPlan) -> list[WrittenFile]:
        """Writes the manifest: the replay is done then. PlogError where a file is missing."""
        files = [self._describe(self._path(range_)) for range_ in plan.ranges]
        manifest = plan.to_json() | {"files": [{"name": f.name, "rows": f.rows, "sha256": f.digest} for f in files]}
        self._write("manifest.json", manifest)
        return files

    def _describe(self, path: Path) -> WrittenFile:
        import pyarrow.parquet as pq

        try:
            rows = pq.read_metadata(path).num_rows
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise access_error(error, path, "read") from error
        return WrittenFile(path.name, rows, digest)

    # --- the proof

    def verify(self) -> tuple[list[WrittenFile], list[str]]:
        """The files that the manifest promises, and what is wrong with them now: missing, changed, or strangers."""
        manifest = self._read("manifest.json")
        if manifest is None:
            raise AccessError(
                f"{self.directory} holds no finished replay",
                where=str(self.directory),
                hint="run plog spark-replay again: it finishes what is missing",
            )
        promised = [WrittenFile(f["name"], f["rows"], f["sha256"]) for f in manifest["files"]]
        problems = []
        for file in promised:
            path = self.directory / file.name
            if not path.exists():
                problems.append(f"{file.name} is missing")
            elif hashlib.sha256(path.read_bytes()).hexdigest() != file.digest:
                problems.append(f"{file.name} is not what was written")
        names = {file.name for file in promised}
        strangers = sorted(p.name for p in self.directory.glob(f"*{_ENDING}") if p.name not in names)
        problems += [f"{name} is not of this replay" for name in strangers]
        return promised, problems

    # --- state files

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._state / name
        try:
            fields: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise AccessError(f"could not read {path}: {error}", where=str(path)) from error
        if fields.get("version") != _VERSION:
            raise AccessError(f"{path} is of version {fields.get('version')}, expected {_VERSION}", where=str(path))
        return fields

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        path = self._state / name
        try:
            self._filesystem.write_atomic(path, json.dumps(fields, indent=1).encode() + b"\n")
        except OSError as error:
            raise access_error(error, path, "write") from error


def write_range(directory: Path, range_: OffsetRange, columns: Sequence[str] = COLUMNS) -> int:
    """Writes one range's file in the folder, whole or not at all; gives its rows. Runs in a Spark task."""
    import pyarrow.parquet as pq

    target = directory / (range_.name + _ENDING)
    beside = directory / _STATE / f"{target.name}.{os.getpid()}.tmp"
    rows = 0
    with pq.ParquetWriter(beside, schema_of(columns), compression="zstd") as writer:
        for batch in read_range(range_, columns):
            writer.write_batch(batch)
            rows += batch.num_rows
    filesystem = FileSystem()
    file = filesystem.open_append(beside)
    try:
        os.fsync(file.fd)
    finally:
        file.close()
    filesystem.rename(beside, target)
    filesystem.sync_directory(directory)
    return rows


def _starts(ranges: Sequence[OffsetRange]) -> dict[tuple[str, int], int]:
    starts: dict[tuple[str, int], int] = {}
    for range_ in ranges:
        key = (range_.topic, range_.partition)
        starts[key] = min(starts.get(key, range_.start_offset), range_.start_offset)
    return starts
