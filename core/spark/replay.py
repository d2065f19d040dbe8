"""Replays ranges of offsets into a folder of files, exactly once, whatever crashes on the way.

    URL/_plog/lock-<N>.json    the driver that writes (replay_lock.py)
    URL/_plog/writing-<N>/..   what it and its tasks are writing; readers don't see it
    URL/_plog/plan.json        which ranges, and what becomes of them; written first, and frozen: a rerun uses it
    URL/_plog/receipts/..      of every unit that is whole: a `Receipt`, which says which files count
    URL/<unit>.parquet         its files in their places, by renaming them
    URL/_plog/groups.json      to which consumer groups its end offsets were committed (group_commit.py)
    URL/_plog/manifest.json    all files, rows and gaps; written last: the replay is done then
    URL/_plog/manifests/..     of an output that grows: <n>.json is the manifest of its n-th plan, if another follows

A unit is a range, whose records this module writes as they are, as Parquet; or a round of Spark's writer, which writes
all else (lake_replay.py). From its receipt on a unit is done: what is left to rename is renamed by whoever has the
lock. A rerun does the units that have no receipt and touches nothing else; a third run does nothing. Readers of the
output trust the manifest. Reading, planning and the proof take no lock.

All files of state are written by the driver that has the lock. The driver after it first completes the units with
receipts, then removes what the former one and its tasks were writing. A receipt that came too late, of files that are
neither here nor there, is void.

A replay that is done goes on in three steps: its manifest is copied to manifests/, the next plan takes the place of its
plan, and when that is done, the next manifest takes the place of the manifest. So a manifest with the id of another
plan than plan.json is not yet that plan's. Ranges of several plans don't overlap, and other units and files have names
with the number of the plan: what one plan wrote and noted stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from core.common.errors import AccessError, PlogError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.forensics.gap_ledger import LOSING_REASONS, GapLedger
from core.forensics.missing_offsets import offsets_are
from core.forensics.partition_reader import PartitionReader
from core.spark.group_commit import CommitNote, Notes
from core.spark.lake_folder import LakeFolder, PlainFolder
from core.spark.offset_range import OffsetRange, ensure_allowed, read_columns
from core.spark.range_output import Gaps, Receipt, WrittenFile, write_files
from core.spark.record_schema import schema_of, to_arrow
from core.spark.replay_lock import STATE, LockOwner, ReplayLock, encode
from core.spark.replay_plan import WHOLE, ReplayPlan
from core.spark.spark_session import run_interruptibly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EMPTY = "part-00000"
"""The file of a replay of nothing."""

T = TypeVar("T")

MANIFEST = "manifest.json"
_MANIFESTS = "manifests"
_OF_MANIFEST = ("files", "records", "gaps", "left_out", "proof")
"""Fields that a manifest has beside the plan's."""

DELTA_LOG = "_delta_log"

_AT_ONCE = 16
"""The most files that are renamed at once."""


class Proof(NamedTuple):
    """`problem`: of the files of these ranges, "" if they are exact; `could_compare`: with the log."""

    ranges: Sequence[OffsetRange]
    problem: str
    could_compare: bool = True


Prove = Callable[[Receipt, Sequence[OffsetRange]], Proof]
"""Looks at the files of a unit, which are all there."""


class Replay:
    """One output folder; owned by one task. Methods raise the folder's errors; those that write, AccessError outside of
    `locked`, and DirectoryLockedError if another driver has the folder now.
    """

    def __init__(self, folder: LakeFolder, *, single_writer: bool = False, takes_table: bool = False) -> None:
        """`takes_table`: the folder may be a Delta table that others made."""
        self._takes_table = takes_table
        self.folder = folder
        self.where = folder.where
        self.lock = ReplayLock(folder, single_writer=single_writer)

    @contextlib.contextmanager
    def locked(self, *, take_over: bool = False) -> Iterator[LockOwner | None]:
        """Locks the folder for writing; returns the former owner. Raises what `ReplayLock.acquire` raises."""
        former = self.lock.acquire(take_over=take_over)
        try:
            yield former
        finally:
            self.lock.release()

    @property
    def directory(self) -> Path:
        """Returns the path of a plain folder."""
        assert isinstance(self.folder, PlainFolder)
        return self.folder.directory

    @property
    def beside(self) -> Path:
        """Returns where tasks write into a plain folder."""
        return self.directory / self.lock.beside

    # --- state files

    def _read(self, name: str, parse: Callable[[Any], T], hint: str | None = None) -> T | None:
        """Returns what `parse` makes of a file's JSON, or None if there is no file. Raises AccessError, with `hint`, if
        `parse` refuses it: the file may be damaged, or written by another program.
        """
        content = self.folder.read(f"{STATE}/{name}")
        path = f"{self.where}/{STATE}/{name}"
        try:
            return None if content is None else parse(json.loads(content))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise AccessError(f"{path} is damaged: {type(error).__name__}: {error}", where=path, hint=hint) from error

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        self.lock.ensure_held()
        self.folder.replace(f"{STATE}/{name}", encode(fields))

    # --- the plan

    @property
    def plan(self) -> ReplayPlan | None:
        """Reads the frozen plan, or returns None."""
        hint = "replay to a new folder: without the plan it is not known what is in this one"
        return self._read("plan.json", ReplayPlan.from_json, hint)

    def find_plan(self, request: Mapping[str, Any]) -> ReplayPlan | None:
        """Reads the plan that was written here before; returns None if the folder is free for one. Raises PlogError if
        that plan is for another request, or if the folder holds other files.
        """
        frozen = self.plan
        if frozen is None:
            strangers = [name for name in self.folder.names() or () if name != STATE]
            if strangers and not (self._takes_table and self._is_table):
                raise PlogError(
                    f"{self.where} is not empty: {strangers[0]} is in it, and no replay", hint="replay to a new folder"
                )
            return None
        now, then = (one | {"to": str(one.get("to")).partition(":")[0]} for one in (dict(request), frozen.request))
        differing = sorted(k for k in {**now, **then} if now.get(k) != then.get(k))
        if differing:
            were = ", ".join(f"{k.rstrip('_')} was {then.get(k)!r}, not {now.get(k)!r}" for k in differing)
            raise PlogError(
                f"{self.where} holds another replay, of another {', '.join(differing)}",
                hint=f"replay to a new folder, or repeat the first command: {were}",
            )
        return frozen

    def freeze(self, request: Mapping[str, Any], make_plan: Callable[[], ReplayPlan]) -> ReplayPlan:
        """Returns the plan written here before, else writes a new one; and ends what a former owner began. Raises what
        `find_plan` raises.
        """
        if (frozen := self.find_plan(request)) is not None:
            self._complete(frozen)
        self.lock.remove_former()
        frozen = self.find_plan(request)  # the former owner may have come first
        if frozen is not None:
            self._complete(frozen)
            return frozen
        plan = make_plan()
        self._write("plan.json", plan.to_json())
        return plan

    def withdraw(self, plan: ReplayPlan) -> None:
        """Removes the frozen plan, before any of its units was written, because the request can't be carried out. When
        the lock is released, the folder is as it was before.
        """
        if self.receipts(plan) or self.is_done or plan.number > 1:
            return
        self.folder.delete(f"{STATE}/plan.json")
        self.lock.leave_nothing()

    def go_on(self, following: ReplayPlan) -> None:
        """Freezes the plan that follows the one that is done. A run that finds only a part of this done does it again,
        or finds the following plan. Raises what `manifest` and the folder raise.
        """
        finished = self.manifest()
        self._write(f"{_MANIFESTS}/{finished.get('number', 1)}.json", finished)
        self._write("plan.json", following.to_json())

    @property
    def _is_table(self) -> bool:
        return self.folder.names(DELTA_LOG) is not None

    # --- how far it is

    @property
    def is_done(self) -> bool:
        if self.folder.read(f"{STATE}/{MANIFEST}") is None:
            return False
        plan = self.plan
        return plan is None or plan.number == 1 or self._find_manifest() is not None

    def has_nothing_to_do(self, plan: ReplayPlan) -> bool:
        """Returns whether all is done. A Delta table's log knows its files: Delta may have removed old ones."""
        return self.is_done and (plan.is_of_table or not (self.missing(plan) or self.find_lost_files(plan)))

    def find_receipt(self, unit: str) -> Receipt | None:
        hint = "remove it, and the same command replays its records again"
        return self._read(f"receipts/{unit}.json", partial(msgspec.convert, type=Receipt), hint)

    def units(self, plan: ReplayPlan) -> Mapping[str, Sequence[OffsetRange]]:
        """Returns the units of the plan. Earlier releases wrote jobs that shuffle as one unit."""
        if plan.is_of_older_release and self.find_receipt(plan.prefix + WHOLE) is not None:
            return {plan.prefix + WHOLE: plan.ranges}
        return plan.units

    def receipts(self, plan: ReplayPlan) -> list[Receipt]:
        """Returns the receipts of the units that are done."""
        return [receipt for unit in self.units(plan) if (receipt := self.find_receipt(unit)) is not None]

    def missing_units(self, plan: ReplayPlan) -> dict[str, Sequence[OffsetRange]]:
        """Returns the units that have no receipt yet."""
        done = set(self.folder.names(f"{STATE}/receipts") or ())
        return {unit: ranges for unit, ranges in self.units(plan).items() if f"{unit}.json" not in done}

    def missing(self, plan: ReplayPlan) -> list[OffsetRange]:
        """Returns the ranges that are in no receipt yet."""
        return [range_ for ranges in self.missing_units(plan).values() for range_ in ranges]

    def find_lost_files(self, plan: ReplayPlan) -> dict[str, list[str]]:
        """Finds, by unit, files that the receipts name and that are no longer in the folder. Raises PlogError for a
        file with another size: a replay does not replace a file that was changed.
        """
        receipts = self.receipts(plan)
        sizes = self.folder.sizes() if receipts else {}
        lost: dict[str, list[str]] = {}
        for receipt in receipts:
            for file in receipt.files:
                size_bytes = sizes.get(file.name)
                if size_bytes is None:
                    lost.setdefault(receipt.unit, []).append(file.name)
                elif size_bytes != file.size_bytes >= 0:
                    raise PlogError(
                        f"{self.where}/{file.name} has {size_bytes} bytes and was written with {file.size_bytes}: it "
                        "was changed since",
                        hint="move it out of the folder, and the same command writes it again",
                    )
        return lost

    def files(self, plan: ReplayPlan) -> list[WrittenFile]:
        """Returns all files of the replay. Raises PlogError if a unit is missing."""
        missing = [*self.missing_units(plan)]
        if missing:
            raise PlogError(
                f"{self.where}: {len(missing)} ranges have no receipt, {missing[0]} first",
                hint="the same command again writes them",
            )
        return [file for receipt in self.receipts(plan) for file in receipt.files]

    def totals(self, plan: ReplayPlan) -> tuple[int, int]:
        """Returns the rows and the files of the units that are done."""
        receipts = self.receipts(plan)
        return sum(receipt.row_count for receipt in receipts), sum(len(receipt.files) for receipt in receipts)

    def left_out(self, plan: ReplayPlan) -> list[str]:
        """Describes what the log has lost of the units that are done."""
        return list(dict.fromkeys(text for receipt in self.receipts(plan) for text in receipt.left_out))

    def unknown_files(self, plan: ReplayPlan) -> list[str]:
        """Returns the names of files that readers see, and neither a receipt nor an earlier manifest names. Of a Delta
        table its own log says which files are its: they may be anyone's.
        """
        if self._is_table:
            return []
        earlier = {file["name"] for manifest in self.earlier_manifests(plan) for file in manifest["files"]}
        return [name for name in self._files_without_receipt(plan) if name not in earlier]

    def _files_without_receipt(self, plan: ReplayPlan) -> list[str]:
        known = {file.name for receipt in self.receipts(plan) for file in receipt.files}
        return sorted(n for n in self.folder.sizes() if n not in known and not any(p[0] in "_." for p in n.split("/")))

    def commit(self, plan: ReplayPlan) -> None:
        """Removes rounds' files that are of no receipt; the manifest ends the replay. Raises PlogError if a unit is
        missing, or one of its files.
        """
        for name in self._files_without_receipt(plan):
            if name.rpartition("/")[2].startswith(f"{plan.id[:8]}-"):  # of a driver that was taken over from
                self.folder.delete(name)
        files, receipts = self.files(plan), self.receipts(plan)
        for unit, names in {} if self._is_table else self.find_lost_files(plan).items():
            raise PlogError(f"{self.where}: {names[0]} of {unit} is gone", hint="the same command again writes it")
        counts = [receipt.records for receipt in receipts]  # -1 where that was not counted: of servers' logs
        fields = {
            "files": [msgspec.to_builtins(msgspec.structs.replace(file, source="")) for file in files],
            "records": None if any(count < 0 for count in counts) else sum(counts),
            "gaps": {receipt.unit: receipt.gaps for receipt in receipts if receipt.gaps},
            "left_out": {receipt.unit: receipt.left_out for receipt in receipts if receipt.left_out},
        }
        if plan.rounds:
            fields["proof"] = [
                {"unit": one.unit, "files": len(one.files), "rows": one.rows, "digest": one.digest} for one in receipts
            ]
        self._write(MANIFEST, plan.to_json() | fields)

    def manifest(self) -> dict[str, Any]:
        """Reads the manifest; raises AccessError if the replay is not done, and for a damaged one."""
        manifest = self._find_manifest()
        if manifest is None:
            raise AccessError(
                f"{self.where} {'holds no finished replay' if self.folder.names() is not None else 'is not there'}",
                where=self.where,
                hint="run plog spark-replay again: it finishes what is missing",
            )
        return manifest

    def _find_manifest(self) -> dict[str, Any] | None:
        """Returns the manifest; None if there is none, or if it is that of the plan before."""
        manifest = self._read_manifest(MANIFEST, "remove it, and the replay's command writes it again")
        with contextlib.suppress(AccessError):  # a damaged plan says nothing against it
            if manifest is not None and (plan := self.plan) is not None and manifest["id"] != plan.id:
                return None
        return manifest

    def earlier_manifests(self, plan: ReplayPlan) -> list[dict[str, Any]]:
        """Reads the manifests of the plans before this one. Raises AccessError if one is missing or damaged."""
        found = []
        for number in range(1, plan.number):
            name = f"{_MANIFESTS}/{number}.json"
            hint = "bring it back from a copy, or replay to a new folder: nothing else says what that night wrote"
            manifest = self._read_manifest(name, hint)
            if manifest is None:
                raise AccessError(f"{self.where}/{STATE}/{name} is missing", where=self.where, hint=hint)
            found.append(manifest)
        return found

    def _read_manifest(self, name: str, hint: str | None = None) -> dict[str, Any] | None:
        def parse(fields: dict[str, Any]) -> dict[str, Any]:
            msgspec.convert(fields["files"], list[WrittenFile])
            msgspec.convert(fields.get("left_out", {}), dict[str, list[str]])
            msgspec.convert(fields["id"], str)
            plan_of_manifest(fields)
            return fields

        return self._read(name, parse, hint)

    # --- the units

    def finish(self, receipt: Receipt) -> None:
        """Writes the receipt of a unit, and brings its files to their places."""
        self.lock.ensure_held()
        while not self.folder.create(_receipt_name(receipt.unit), msgspec.json.encode(receipt)):
            self.lock.ensure_held()
            self._make_void(receipt.unit)  # it is of a driver that was taken over from, and came late
        self._place(receipt.files)

    def _place(self, files: Iterable[WrittenFile]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda file: self.folder.rename(file.source, file.name), filter(_is_placed_by_us, files)))

    def _complete(self, plan: ReplayPlan) -> None:
        """Brings to their places the files of receipts that are not there yet."""
        for unit in plan.units:
            if self.folder.read(_receipt_name(unit)) == b"":  # the driver died while it wrote it
                self._make_void(unit)
        receipts = self.receipts(plan)
        sizes = self.folder.sizes() if receipts else {}
        self._place([file for receipt in receipts for file in receipt.files if file.source in sizes])

    def reopen(self, units: Iterable[str]) -> None:
        """Removes these units' files and receipts, and the manifest: they are written again."""
        self.lock.ensure_held()
        self.folder.delete(f"{STATE}/{MANIFEST}")
        for unit in units:
            self._make_void(unit)

    def _make_void(self, unit: str) -> None:
        with contextlib.suppress(AccessError):
            receipt = self.find_receipt(unit)
            for file in filter(_is_placed_by_us, receipt.files if receipt is not None else ()):
                self.folder.delete(file.name)
        self.folder.delete(_receipt_name(unit))

    def write_nothing(self, plan: ReplayPlan) -> None:
        """Writes one file without rows, for a plan without ranges: readers find the columns in it, as with Spark's own
        writer. Partitioned output gets no such file, nor does a table that is there. Raises what `write_files` raises.
        """
        files: tuple[WrittenFile, ...] = ()
        if not (plan.output.partition_by or self._is_table):
            files = write_files(self.beside, plan.prefix + _EMPTY, plan.output, [], schema_of(plan.columns))
        self.finish(Receipt(plan.prefix + WHOLE, files, records=0))

    # --- groups that its end offsets are committed to

    def commit_notes(self, group: str) -> dict[TopicPartition, CommitNote]:
        """Reads the notes of earlier runs about their commits to the group."""
        return self._groups().get(group, {})

    def _groups(self) -> dict[str, dict[TopicPartition, CommitNote]]:
        def parse(fields: Any) -> dict[str, dict[TopicPartition, CommitNote]]:
            groups = msgspec.convert(fields, dict[str, list[tuple[str, int, CommitNote]]])
            return {
                group: {TopicPartition(topic, number): note for topic, number, note in notes}
                for group, notes in groups.items()
            }

        return self._read(self._groups_name, parse) or {}

    @property
    def _groups_name(self) -> str:
        """Each plan has notes of its own."""
        plan = self.plan
        return "groups.json" if plan is None or plan.number == 1 else f"groups-{plan.number}.json"

    def note_commits(self, group: str, notes: Notes) -> None:
        """Adds notes about commits to the group."""
        groups = self._groups()
        groups[group] = {**groups.get(group, {}), **notes}
        found = {name: [[*place, asdict(note)] for place, note in sorted(one.items())] for name, one in groups.items()}
        self._write(self._groups_name, found)

    # --- the proof

    def verify(self, plan: ReplayPlan, manifest: Mapping[str, Any], prove: Prove) -> Iterator[Proof]:
        """Proves each unit of a plan's manifest. Raises what `prove` raises."""
        promised = {file.name: file.content for file in msgspec.convert(manifest["files"], list[WrittenFile])}
        if promised and plan.is_of_table and not self._is_table:
            yield Proof((), f"{DELTA_LOG} is missing: it is no Delta table any more")
        sizes, is_replaced = self.folder.sizes(), self._find_replaced(plan)
        for unit, ranges in self.units(plan).items():
            receipt = self.find_receipt(unit)
            if receipt is None:
                said = f"{_receipt_name(unit)} is missing: its files can't be told from others"
                yield Proof(ranges, said, could_compare=False)
                continue
            names = [file.name for file in receipt.files]
            if replaced := [name for name in names if is_replaced(name)]:
                said = f"{replaced[0]} is not in the Delta table any more: others rewrote its rows"
                yield Proof(ranges, said, could_compare=False)
            elif missing := [name for name in names if name not in sizes]:
                yield Proof(ranges, f"{missing[0]} is missing")
            elif list(map(promised.get, names)) != [file.content for file in receipt.files]:
                yield Proof(ranges, f"the manifest says otherwise than {_receipt_name(unit)}")
            else:
                yield prove(receipt, ranges)

    def _find_replaced(self, plan: ReplayPlan) -> Callable[[str], bool]:
        """Returns a function that tells whether the log of a Delta table has removed a file."""
        if plan.output.kind == "delta":
            there = set(self.folder.sizes())
        elif self._is_table:
            from core.spark.delta_table import active_files, ensure_delta

            ensure_delta()
            there = active_files(self.directory)
        else:
            return lambda _: False
        return lambda name: name not in there


def plan_of_manifest(manifest: dict[str, Any]) -> ReplayPlan:
    """Makes the plan; raises what `ReplayPlan.from_json` raises."""
    return ReplayPlan.from_json({key: value for key, value in manifest.items() if key not in _OF_MANIFEST})


def _receipt_name(unit: str) -> str:
    return f"{STATE}/receipts/{unit}.json"


def _is_placed_by_us(file: WrittenFile) -> bool:
    return file.source != DELTA_LOG  # whose files are where Delta wrote them


# --- plog's own writer


def write_ranges(session: SparkSession, replay: Replay, plan: ReplayPlan, on_done: Callable[[Receipt], None]) -> None:
    """Writes the missing ranges, a task for each, through which nothing passes into the JVM. Calls `on_done` with each
    one. Raises PySparkException if a task fails, and what `Replay.finish` raises. The caller holds the lock.
    """
    from pyspark.accumulators import AccumulatorParam

    class Receipts(AccumulatorParam[list[Receipt]]):
        def zero(self, value: list[Receipt]) -> list[Receipt]:  # noqa: ARG002 - as PySpark calls it
            return []

        def addInPlace(self, value1: list[Receipt], value2: list[Receipt]) -> list[Receipt]:  # noqa: N802
            return value1 + value2

    todo = replay.missing(plan)
    beside, count = replay.beside, 0
    # of several attempts at a task Spark takes one, and brings what that one adds, as soon as it has ended
    receipts = session.sparkContext.accumulator([], Receipts())

    def look() -> None:
        nonlocal count
        for receipt in receipts.value[count:]:
            replay.finish(receipt)
            count += 1
            on_done(receipt)

    def write(range_: OffsetRange) -> None:
        receipts.add([write_range(beside, range_, plan)])

    def work() -> None:
        session.sparkContext.parallelize(todo, len(todo)).foreach(write)

    if todo:
        run_interruptibly(session, work, look)


def write_range(beside: Path, range_: OffsetRange, plan: ReplayPlan, filesystem: FileSystem | None = None) -> Receipt:
    """Writes one range's files, whole or not at all, into the folder `beside`. Runs in a task. Raises what
    `read_columns` and `write_files` raise, and PlogError if offsets are lost without a reason that a log may have.
    """
    records = 0
    gaps: Gaps = ()
    left_out: dict[str, None] = {}

    def batches() -> Iterator[Any]:
        nonlocal records
        for found in read_columns(range_, left_out.setdefault):
            records += len(found)
            yield to_arrow(
                range_.topic_partition, found, plan.columns, nulls_bad_timestamps=range_.nulls_bad_timestamps
            )

    files = write_files(beside, range_.name, plan.output, batches(), schema_of(plan.columns), filesystem)
    if records < range_.end_offset - range_.start_offset:
        _, gaps = find_gaps(range_)
    ensure_allowed(range_, left_out)
    return Receipt(range_.name, files, records, gaps, tuple(left_out))


def prove_range(replay: Replay, plan: ReplayPlan, receipt: Receipt, ranges: Sequence[OffsetRange]) -> Proof:
    """Looks whether the files of a range are as they were written, and as the log is: it is written again elsewhere."""
    for file in receipt.files:
        with (replay.directory / file.name).open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != file.digest:
                return Proof(ranges, f"{file.name} is not what was written")
    if plan.is_of_older_release:
        said = "an older release of plog wrote it, and this one can't write it again to compare it"
        return Proof(ranges, f"{receipt.unit}: {said}", could_compare=False)
    if not ranges:  # of a replay of nothing
        return Proof(ranges, "")
    (range_,) = ranges
    with tempfile.TemporaryDirectory(prefix="plog-verify-") as beside:
        try:
            again = write_range(Path(beside), range_, plan)
        except PlogError as error:
            return Proof(ranges, f"the log can't be compared: {error}", could_compare=False)
        return Proof(ranges, _difference(replay.directory, receipt, Path(beside), again))


def _difference(directory: Path, receipt: Receipt, beside: Path, again: Receipt) -> str:
    """Returns how the files of a range differ from those that were written again, or ""."""
    if [file.content for file in receipt.files] == [file.content for file in again.files]:
        return ""
    written, wanted = _by_folder(receipt.files), _by_folder(again.files)
    for folder in sorted(wanted.keys() | written.keys()):
        place = (written.get(folder) or wanted[folder])[0].name
        if folder not in written or folder not in wanted:
            return f"{place} is {'missing' if folder in wanted else 'too much'}"
        counts = [sum(file.rows for file in files) for files in (written[folder], wanted[folder])]
        if counts[0] != counts[1]:
            return f"{place} has {counts[0]} records, the log {counts[1]}"
        # other versions of the library may write the same records as other bytes, and to more or fewer files
        rows = _rows(directory / file.name for file in written[folder])
        if not rows.equals(_rows(beside / Path(file.source).name for file in wanted[folder])):
            return f"{place} has other records than the log"
    return ""


def _by_folder(files: Iterable[WrittenFile]) -> dict[str, list[WrittenFile]]:
    """Returns the files of a range in the order in which they were written."""
    found: dict[str, list[WrittenFile]] = {}
    for file in sorted(files, key=lambda file: (len(file.name), file.name)):
        found.setdefault(file.name.rpartition("/")[0], []).append(file)
    return found


def _rows(paths: Iterable[Path]) -> Any:  # pyarrow.Table
    return pa.concat_tables(pq.read_table(path, partitioning=None) for path in paths)


def account(range_: OffsetRange) -> tuple[int, Gaps, tuple[str, ...]]:
    """Returns the records, gaps and left-out offsets for the receipt of a range that another task reads: reads the log
    again if its headers alone don't show them. Raises what `find_gaps` raises.
    """
    records, gaps = find_gaps(range_)
    left_out: dict[str, None] = {}
    if range_.latest_per_key or not range_.fails_if_gone:
        records = sum(map(len, read_columns(range_, left_out.setdefault)))
    return records, gaps, tuple(left_out)


def find_gaps(range_: OffsetRange, *, fails: bool = True) -> tuple[int, Gaps]:
    """Counts the range's records, and finds why the other offsets have none; returns (-1, nothing) for servers, which
    do not tell. Raises PlogError if records are lost, the range `fails_if_gone`, and `fails` is set.
    """
    if not range_.directory:
        return -1, ()
    reader = PartitionReader(Path(range_.directory))
    try:
        ledger = GapLedger(reader, range_.start_offset, range_.end_offset, read_committed=range_.read_committed)
        gaps = list(ledger)
    finally:
        reader.close()
    for gap in gaps:
        if fails and range_.fails_if_gone and gap.reason in LOSING_REASONS:
            lost = f"{offsets_are(gap.start, gap.end)} lost ({gap.reason}): {gap.evidence}"
            ensure_allowed(range_, [f"{range_.topic_partition}: {lost}"])
    return ledger.records, tuple((gap.start, gap.end, str(gap.reason), gap.evidence) for gap in gaps)
