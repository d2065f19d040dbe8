"""The rounds of a replay whose files Spark's batch writer writes, into any folder that Hadoop's file systems reach.

    URL/_plog/writing-<N>/<round>/  what Spark writes, by whatever committer
    URL/_plog/receipts/<round>.json a `Receipt` of the whole round, made when it is checked
    URL/<k=v>/<plan>-<round>-<task>.parquet    its files in their places

A round is a batch of ranges, written by one job of Spark's. On a store whose renames are copies, two attempts at a task
may mix their files. So the rows of a round are counted and digested as they are handed to the writer, and again as the
files are read back; if both are equal, the receipt is written (replay.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from core.common.errors import PlogError
from core.spark.delta_table import ensure_table_takes
from core.spark.lake_folder import LakeFolder
from core.spark.offset_range import OffsetRange
from core.spark.range_output import Gaps, Measure, Receipt, WrittenFile
from core.spark.replay import DELTA_LOG, Proof, Replay
from core.spark.replay_plan import ReplayPlan
from core.spark.spark_session import run_interruptibly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from core.spark.lake_writer import SparkWriter

_ATTEMPTS = 2

_HINTS = {
    "csv": "CSV holds no NUL characters, and no null in files of a single column: parquet, orc and json do",
    "orc": "ORC holds no time within the second before 1970, such as the timestamp -1 of records without one: "
    "parquet, json and csv do; or --columns without timestamp",
}
"""What a kind of files does not hold."""

_WRITTEN = re.compile(r"part-(\d+)-[0-9a-f-]{36}[-.]c(\d+)\.([\w.]+)")
"""A file of Spark's: task, number of the task's file in a folder, ending."""


NOTHING = Measure(0, "0")


def run_lake_replay(
    session: SparkSession, replay: Replay, plan: ReplayPlan, on_done: Callable[[Receipt], None]
) -> None:
    """Writes the missing rounds, as `write_rounds` does; Ctrl-C ends it. Raises TableMisfitError if a Delta table in
    a plain folder does not take the files.
    """
    from core.spark.lake_writer import SparkWriter

    writer = SparkWriter(session, replay.folder, plan)
    if plan.is_committed_at_end:
        ensure_table_takes(Path(replay.where), writer.find_columns(), plan.output.partition_by)
    run_interruptibly(session, lambda: write_rounds(replay, writer, plan, on_done))


def write_rounds(replay: Replay, writer: SparkWriter, plan: ReplayPlan, on_done: Callable[[Receipt], None]) -> None:
    """Writes the missing rounds, and calls `on_done` with each range of them. Raises what `SparkWriter` raises, and
    what `Replay.finish` raises. The caller holds the lock.
    """
    write = _append if plan.output.kind == "delta" else _write_beside
    for unit, ranges in replay.missing_units(plan).items():
        handed, files = write(replay, writer, plan, unit, ranges)
        gaps: Gaps = ()
        left_out: tuple[str, ...] = ()
        records = handed.rows
        if plan.transform or records != sum(range_.end_offset - range_.start_offset for range_ in ranges):
            records, gaps, left_out = writer.account(ranges)
        left_out += writer.write_dead_letters(ranges, unit)
        receipt = Receipt(unit, tuple(files), records, gaps, left_out, **handed._asdict())
        replay.finish(receipt)
        for number, range_ in enumerate(ranges):
            on_done(Receipt(range_.name, (), receipt.rows if number == 0 else 0))


def _write_beside(
    replay: Replay, writer: SparkWriter, plan: ReplayPlan, unit: str, ranges: Sequence[OffsetRange]
) -> tuple[Measure, list[WrittenFile]]:
    beside = f"{replay.lock.beside}/{unit}"
    for _ in range(_ATTEMPTS):
        replay.lock.ensure_held()
        replay.folder.delete(beside)
        handed = writer.write(ranges, beside)
        sizes = {name: size for name, size in replay.folder.sizes(beside).items() if _is_written(name)}
        found = writer.measure([beside]) if sizes else NOTHING
        if handed == found:
            break
    else:
        raise _differ(replay, handed, found, plan)
    return handed, [
        WrittenFile(_final_name(plan, unit, name), size_bytes=size, source=f"{beside}/{name}")
        for name, size in sorted(sizes.items())
    ]


def _differ(replay: Replay, handed: Measure, found: Measure, plan: ReplayPlan) -> PlogError:
    return PlogError(
        f"{replay.where}: {handed.rows} rows were written, and Spark reads {found.rows} in the files"
        f"{'' if handed.rows != found.rows else ', not the same ones'}",
        hint=_HINTS.get(plan.output.kind),
    )


# --- a Delta table, whose log says what counts


def _append(
    replay: Replay, writer: SparkWriter, plan: ReplayPlan, unit: str, ranges: Sequence[OffsetRange]
) -> tuple[Measure, list[WrittenFile]]:
    """Commits the round, if the table's log does not have it. The commit may be one of a driver before."""
    version, tag = [*plan.units].index(unit), f"plog, lock {replay.lock.number}"
    replay.lock.ensure_held()
    handed: Callable[[], Measure] | None = None
    found = _find_commit(replay.folder, plan.id, version)
    if found is None:
        handed = writer.append(ranges, version, tag)
        found = _find_commit(replay.folder, plan.id, version)
    if found is None:
        raise PlogError(f"{replay.where}: the commit of round {unit} is not in the table's log")
    measure = writer.measure_log(ranges) if handed is None or found[0] != tag else handed()
    files = found[1]
    there = writer.measure([file.name for file in files]) if files else NOTHING
    if measure != there:
        raise _differ(replay, measure, there, plan)
    return measure, files


def _find_commit(folder: LakeFolder, plan_id: str, version: int) -> tuple[str, list[WrittenFile]] | None:
    """Finds the commit with this application transaction, as the Delta protocol writes it; returns its tag, and
    the files that it adds.
    """
    for name in reversed(folder.names(DELTA_LOG) or ()):
        content = folder.read(f"{DELTA_LOG}/{name}") if re.fullmatch(r"\d{20}\.json", name) else None
        if content is None or plan_id.encode() not in content:
            continue
        actions: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ("txn", "commitInfo", "add")}
        for line in content.splitlines():
            for kind, fields in json.loads(line).items():
                actions.setdefault(kind, []).append(fields)
        if any(txn["appId"] == plan_id and txn["version"] == version for txn in actions["txn"]):
            tags = [info.get("userMetadata", "") for info in actions["commitInfo"]]
            adds = [(unquote(add["path"]), add["size"]) for add in actions["add"]]
            return "".join(tags), [WrittenFile(name, size_bytes=size, source=DELTA_LOG) for name, size in adds]
    return None


# --- the proof


def prove_round(writer: SparkWriter, plan: ReplayPlan, receipt: Receipt, ranges: Sequence[OffsetRange]) -> Proof:
    """Looks whether the files of a round have the rows that were written, and the log."""
    names, written = [file.name for file in receipt.files], Measure(receipt.rows, receipt.digest)
    if (writer.measure(names) if names else NOTHING) != written:
        return Proof(ranges, f"the files of round {receipt.unit} have other rows than were written")
    try:
        found = writer.measure_log(ranges)
    except PlogError as error:
        return Proof(ranges, f"the log can't be compared: {error}", could_compare=False)
    by = f"{plan.transform} makes of the log" if plan.transform else "the log has"
    said = f"round {receipt.unit} has {written.rows} rows, and {by} {found.rows} other ones"
    return Proof(ranges, "" if found == written else said)


def _is_written(name: str) -> bool:
    return _WRITTEN.fullmatch(name.rpartition("/")[2]) is not None


def _final_name(plan: ReplayPlan, unit: str, name: str) -> str:
    folder, slash, file = name.rpartition("/")
    match = _WRITTEN.fullmatch(file)
    assert match is not None
    number = f"-{int(match[2])}" if int(match[2]) else ""
    return f"{folder}{slash}{plan.id[:8]}-{unit}-{match[1]}{number}.{match[3]}"
