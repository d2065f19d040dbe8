"""Replays ranges of offsets by Spark's batch writer, exactly once, into any folder that Hadoop's file systems reach.

    URL/_plog/plan.json             which ranges, and what becomes of them; written first: a rerun goes by it
    URL/_plog/lock-<N>.json         the driver that writes, as a `LockOwner`; the greatest number is valid
    URL/_plog/writing-<N>/<round>/  what Spark writes for that driver, by whatever committer; readers don't see it
    URL/_plog/receipts/<round>.json made when a round is whole, and checked; it says which files count:
                                    a `Receipt` whose files have the field "from"
    URL/<k=v>/<plan>-<round>-<task>.parquet    its files in their places, by renaming them
    URL/_plog/manifest.json         everything together; written last: the replay is done then

A round is a batch of ranges, written by one job of Spark's. On a store whose renames are copies, two attempts at a task
may mix their files. So the rows of a round are counted and digested as they are handed to the writer, and again as the
files are read back; if both are equal, the receipt is written. From then on the round is done: what is left to rename
is renamed by whoever has the lock.

All files of state are written by the driver that has the lock. A driver that was taken over from, and still runs, has
nothing to rename: the next one first completes the rounds with receipts, then removes the `writing-` folders of smaller
numbers. A receipt that came too late, of files that are neither here nor there, is void.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from core.common.errors import AccessError, PlogError
from core.spark.lake_folder import LakeFolder
from core.spark.offset_range import OffsetRange
from core.spark.range_output import Receipt, WrittenFile
from core.spark.replay import DELTA_LOG, MANIFEST, Gaps, ReplayState, RoundProof
from core.spark.replay_lock import STATE, UNKNOWN_OWNER, LockOwner, encode, is_running, locked_by, taken_over
from core.spark.replay_plan import ReplayPlan

_ATTEMPTS = 2
_AT_ONCE = 16
"""The most files that are renamed at once."""

_HINTS = {
    "csv": "CSV holds no NUL characters, and no null in files of a single column: parquet, orc and json do",
    "orc": "ORC holds no time within the second before 1970, such as the timestamp -1 of records without one: "
    "parquet, json and csv do; or --columns without timestamp",
}
"""What a kind of files does not hold."""

_WRITTEN = re.compile(r"part-(\d+)-[0-9a-f-]{36}[-.]c(\d+)\.([\w.]+)")
"""A file of Spark's: task, number of the task's file in a folder, ending."""


class Measure(NamedTuple):
    """What is compared: how many rows, and a digest of them that does not depend on their order."""

    rows: int
    digest: str


NOTHING = Measure(0, "0")


class RoundWriter(Protocol):
    """What Spark does in a replay. Raises PySparkException if a job fails."""

    def write(self, ranges: Sequence[OffsetRange], name: str) -> Measure:
        """Writes the records of the ranges to files in a new folder, and measures what it hands to the writer."""

    def append(self, ranges: Sequence[OffsetRange], version: int, tag: str) -> Callable[[], Measure]:
        """Appends the records to the folder's Delta table, in one commit with the tag, under the plan's id and that
        version. Delta skips a version that the table has. The returned function measures the records that were given.
        """

    def measure(self, names: Sequence[str]) -> Measure:
        """Reads files, or a folder."""

    def measure_log(self, ranges: Sequence[OffsetRange]) -> Measure:
        """Reads the records of the ranges, and measures what would be written."""

    def account(self, ranges: Sequence[OffsetRange]) -> tuple[int, Gaps, tuple[str, ...]]:
        """Returns records, gaps and what was left out, of all ranges, as `core.spark.replay.account` does."""

    def write_dead_letters(self, ranges: Sequence[OffsetRange], unit: str) -> tuple[str, ...]:
        """Writes the bad records of the ranges to the plan's `dead_letter`, if it has one; returns what the receipt
        says of them.
        """


class LakeReplay(ReplayState):
    """One output folder; owned by one task. Raises what the folder raises."""

    def __init__(self, folder: LakeFolder, *, single_writer: bool = False, takes_table: bool = False) -> None:
        super().__init__(folder, takes_table=takes_table)
        self._single_writer = single_writer
        self._number = 0
        self._leaves_nothing = False

    def units(self, plan: ReplayPlan) -> dict[str, Sequence[OffsetRange]]:
        """Divides the plan's ranges, in order, into rounds."""
        cuts = [len(plan.ranges) * n // plan.rounds for n in range(plan.rounds + 1)]
        return {f"{plan.prefix}{n:05d}": plan.ranges[cuts[n] : cuts[n + 1]] for n in range(plan.rounds)}

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        self.ensure_held()
        self.folder.replace(f"{STATE}/{name}", encode(fields))

    # --- the lock

    @contextmanager
    def locked(self, *, take_over: bool = False) -> Iterator[LockOwner | None]:
        """Locks the folder for writing; returns the former owner, if it did not release the lock. Raises
        DirectoryLockedError, with nothing written, if an owner lives, or may live and `take_over` is not set;
        AccessError for a store that can't keep two drivers apart.
        """
        if not (self.folder.is_exclusive or self._single_writer):
            raise AccessError(
                f"{self.where} can't keep two replays apart: the store does not create a file only if it is absent",
                where=self.where,
                hint="if no other replay writes there: the same command with --single-writer",
            )
        existed = self.folder.names() is not None
        owner = LockOwner.here()
        former = self._acquire(owner, take_over=take_over)
        try:
            yield former
        finally:
            self._release(owner, existed=existed)

    def _acquire(self, own: LockOwner, *, take_over: bool) -> LockOwner | None:
        while True:
            number, owner = self._find_lock()
            former = None if owner is None or owner.is_released else owner
            if former is not None:
                runs = is_running(former.pid, former.started) if former.is_here else None
                if runs or (runs is None and not take_over):
                    raise locked_by(former, number, self.where, lives=bool(runs))
            if not self.folder.create(_lock_name(number + 1), encode(own.to_json())):
                continue
            numbers = self._lock_numbers()
            if numbers[-1] > number + 1:  # it was given and removed meanwhile
                self.folder.delete(_lock_name(number + 1))
                continue
            self._number = number + 1
            for older in numbers[:-1]:
                self.folder.delete(_lock_name(older))
            return former

    def _lock_numbers(self) -> list[int]:
        found = (re.fullmatch(r"lock-(\d+)\.json", name) for name in self.folder.names(STATE) or ())
        return sorted(int(match[1]) for match in found if match)

    def _find_lock(self) -> tuple[int, LockOwner | None]:
        numbers = self._lock_numbers()
        if not numbers:
            return 0, None
        content = self.folder.read(_lock_name(numbers[-1]))
        try:
            return numbers[-1], msgspec.json.decode(content or b"", type=LockOwner)
        except ValueError:
            return numbers[-1], UNKNOWN_OWNER

    def ensure_held(self) -> None:
        number, owner = self._find_lock()
        if not self._number or number != self._number:
            raise taken_over(owner, self._number, self.where)

    def _release(self, owner: LockOwner, *, existed: bool) -> None:
        """Gives the folder back, if it is still held."""
        with suppress(PlogError):  # it was taken over; or the next owner sees that this one is gone
            self.ensure_held()
            number, self._number = self._number, 0
            if self._leaves_nothing and number == 1:
                self.folder.delete(STATE)
                if not existed and not self.folder.names():
                    self.folder.delete("")
            elif self.folder.create(_lock_name(number + 1), encode(replace(owner, is_released=True).to_json())):
                self.folder.delete(_lock_name(number))

    # --- the plan

    def freeze(self, request: Mapping[str, Any], make_plan: Callable[[], ReplayPlan]) -> ReplayPlan:
        """Freezes the plan as `ReplayState.freeze`, and renames the files that a former owner did not rename."""
        plan = self.find_plan(request)
        if plan is None:
            self.ensure_held()
            self.folder.create(f"{STATE}/plan.json", encode(make_plan().to_json()))
            plan = self.find_plan(request)  # a driver that this one took over from may have come first
            assert plan is not None
        self._complete(plan)
        if self._remove_writing(keeps_own=True):
            self._complete(plan)  # a receipt may have come meanwhile
        return plan

    def withdraw(self, plan: ReplayPlan) -> None:
        """Removes the frozen plan, if none of its rounds is written, because the request can't be carried out."""
        if self.receipts(plan) or self.is_done or plan.number > 1:
            return
        self.folder.delete(f"{STATE}/plan.json")
        self._remove_writing()
        self._leaves_nothing = True

    def reopen(self, units: Iterable[str]) -> None:
        """Removes these rounds' files and receipts, and the manifest: they are written again."""
        self.ensure_held()
        self.folder.delete(f"{STATE}/{MANIFEST}")
        for unit in units:
            self._make_void(unit)

    # --- the work

    def run(self, writer: RoundWriter, plan: ReplayPlan, on_done: Callable[[Receipt], None]) -> None:
        """Writes the missing rounds, and calls `on_done` with each range of them. Raises what `RoundWriter` raises."""
        for unit, ranges in self.missing_units(plan).items():
            receipt = self._write_round(writer, plan, unit, ranges)
            self._place(receipt.files)
            for number, range_ in enumerate(ranges):
                on_done(Receipt(range_.name, (), receipt.rows if number == 0 else 0))
        self._remove_writing()

    def _write_round(self, writer: RoundWriter, plan: ReplayPlan, unit: str, ranges: Sequence[OffsetRange]) -> Receipt:
        write = self._append if plan.output.kind == "delta" else self._write_beside
        handed, files = write(writer, plan, unit, ranges)
        gaps: Gaps = ()
        left_out: tuple[str, ...] = ()
        records = handed.rows
        if plan.transform or records != sum(range_.end_offset - range_.start_offset for range_ in ranges):
            records, gaps, left_out = writer.account(ranges)
        left_out += writer.write_dead_letters(ranges, unit)
        receipt = Receipt(unit, tuple(files), records, gaps, left_out, **handed._asdict())
        content = json.dumps(receipt.to_json()).encode()
        while not self.folder.create(f"{STATE}/receipts/{unit}.json", content):
            self.ensure_held()
            self._make_void(unit)  # it is of a driver that was taken over from, and came late
        return receipt

    def _write_beside(
        self, writer: RoundWriter, plan: ReplayPlan, unit: str, ranges: Sequence[OffsetRange]
    ) -> tuple[Measure, list[WrittenFile]]:
        beside = f"{STATE}/writing-{self._number}/{unit}"
        for _ in range(_ATTEMPTS):
            self.ensure_held()
            self.folder.delete(beside)
            handed = writer.write(ranges, beside)
            sizes = {name: size for name, size in self.folder.sizes(beside).items() if _is_written(name)}
            found = writer.measure([beside]) if sizes else NOTHING
            if handed == found:
                break
        else:
            raise self._differ(handed, found, plan)
        return handed, [
            WrittenFile(_final_name(plan, unit, name), -1, "", size, source=f"{beside}/{name}")
            for name, size in sorted(sizes.items())
        ]

    def _differ(self, handed: Measure, found: Measure, plan: ReplayPlan) -> PlogError:
        return PlogError(
            f"{self.where}: {handed.rows} rows were written, and Spark reads {found.rows} in the files"
            f"{'' if handed.rows != found.rows else ', not the same ones'}",
            hint=_HINTS.get(plan.output.kind),
        )

    # --- a Delta table, whose log says what counts

    def _append(
        self, writer: RoundWriter, plan: ReplayPlan, unit: str, ranges: Sequence[OffsetRange]
    ) -> tuple[Measure, list[WrittenFile]]:
        """Commits the round, if the table's log does not have it. The commit may be one of a driver before."""
        version, tag = [*self.units(plan)].index(unit), f"plog, lock {self._number}"
        self.ensure_held()
        handed: Callable[[], Measure] | None = None
        found = self._find_commit(plan.id, version)
        if found is None:
            handed = writer.append(ranges, version, tag)
            found = self._find_commit(plan.id, version)
        if found is None:
            raise PlogError(f"{self.where}: the commit of round {unit} is not in the table's log")
        measure = writer.measure_log(ranges) if handed is None or found[0] != tag else handed()
        files = found[1]
        there = writer.measure([file.name for file in files]) if files else NOTHING
        if measure != there:
            raise self._differ(measure, there, plan)
        return measure, files

    def _find_commit(self, plan_id: str, version: int) -> tuple[str, list[WrittenFile]] | None:
        """Finds the commit with this application transaction, as the Delta protocol writes it; returns its tag, and
        the files that it adds.
        """
        for name in reversed(self.folder.names(DELTA_LOG) or ()):
            content = self.folder.read(f"{DELTA_LOG}/{name}") if re.fullmatch(r"\d{20}\.json", name) else None
            if content is None or plan_id.encode() not in content:
                continue
            actions = {kind: [] for kind in ("txn", "commitInfo", "add")}  # type: dict[str, list[dict[str, Any]]]
            for line in content.splitlines():
                for kind, fields in json.loads(line).items():
                    actions.setdefault(kind, []).append(fields)
            if any(txn["appId"] == plan_id and txn["version"] == version for txn in actions["txn"]):
                tags = [info.get("userMetadata", "") for info in actions["commitInfo"]]
                adds = [(unquote(add["path"]), add["size"]) for add in actions["add"]]
                return "".join(tags), [WrittenFile(name, -1, "", size, source=DELTA_LOG) for name, size in adds]
        return None

    def _place(self, files: Iterable[WrittenFile]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda file: self.folder.rename(file.source, file.name), filter(_is_placed_by_us, files)))

    def _complete(self, plan: ReplayPlan) -> None:
        """Brings to their places the files of receipts that are not there yet."""
        for unit in self.units(plan):
            if self.folder.read(f"{STATE}/receipts/{unit}.json") == b"":  # the driver died while it wrote it
                self._make_void(unit)
        receipts = self.receipts(plan)
        sizes = self.folder.sizes() if receipts else {}
        self._place([file for receipt in receipts for file in receipt.files if file.source in sizes])

    def _make_void(self, unit: str) -> None:
        with suppress(AccessError):
            receipt = self.find_receipt(unit)
            for file in filter(_is_placed_by_us, receipt.files if receipt is not None else ()):
                self.folder.delete(file.name)
        self.folder.delete(f"{STATE}/receipts/{unit}.json")

    def _remove_writing(self, *, keeps_own: bool = False) -> bool:
        folders = [name for name in self.folder.names(STATE) or () if re.fullmatch(r"writing-\d+", name)]
        folders = [name for name in folders if not keeps_own or name != f"writing-{self._number}"]
        for name in folders:
            self.folder.delete(f"{STATE}/{name}")
        return bool(folders)

    def clear(self, plan: ReplayPlan) -> None:
        """Removes files of drivers that were taken over from."""
        for name in self._files_without_receipt(plan):
            if name.rpartition("/")[2].startswith(f"{plan.id[:8]}-"):
                self.folder.delete(name)

    # --- the proof

    def verify(
        self, writer: RoundWriter, plan: ReplayPlan, manifest: Mapping[str, Any]
    ) -> Iterator[tuple[Sequence[OffsetRange], str, bool]]:
        """Yields the ranges of each round of a plan's manifest, the problem of its files ("" if they are exact), and
        whether they could be compared with the log.
        """
        is_replaced = (lambda _: False) if plan.output.kind == "delta" else self._find_replaced()
        sizes, names = self.folder.sizes(), [file["name"] for file in manifest["files"]]
        proofs = msgspec.convert(manifest["proof"], list[RoundProof])
        for proof, ranges in zip(proofs, self.units(plan).values(), strict=True):
            files, names = names[: proof.files], names[proof.files :]
            missing = [name for name in files if name not in sizes]
            if replaced := missing if plan.output.kind == "delta" else [name for name in files if is_replaced(name)]:
                yield ranges, f"{replaced[0]} is not in the Delta table any more: others rewrote its rows", False
            elif missing:
                yield ranges, f"{missing[0]} is missing", True
            elif (writer.measure(files) if files else NOTHING) != (proof.rows, proof.digest):
                yield ranges, f"the files of round {proof.unit} have other rows than were written", True
            else:
                yield ranges, *self._compare_with_log(writer, plan, ranges, proof)

    def _compare_with_log(
        self, writer: RoundWriter, plan: ReplayPlan, ranges: Sequence[OffsetRange], proof: RoundProof
    ) -> tuple[str, bool]:
        try:
            found = writer.measure_log(ranges)
        except PlogError as error:
            return f"the log can't be compared: {error}", False
        if found == (proof.rows, proof.digest):
            return "", True
        by = f"{plan.transform} makes of the log" if plan.transform else "the log has"
        return f"round {proof.unit} has {proof.rows} rows, and {by} {found.rows} other ones", True


def _is_placed_by_us(file: WrittenFile) -> bool:
    return file.source != DELTA_LOG  # whose files are where Delta wrote them


def _is_written(name: str) -> bool:
    return _WRITTEN.fullmatch(name.rpartition("/")[2]) is not None


def _final_name(plan: ReplayPlan, unit: str, name: str) -> str:
    folder, slash, file = name.rpartition("/")
    match = _WRITTEN.fullmatch(file)
    assert match is not None
    number = f"-{int(match[2])}" if int(match[2]) else ""
    return f"{folder}{slash}{plan.id[:8]}-{unit}-{match[1]}{number}.{match[3]}"


def _lock_name(number: int) -> str:
    return f"{STATE}/lock-{number}.json"
