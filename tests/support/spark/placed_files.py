"""What a task of a replay writes, brought to its places, without a lock."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.spark.lake_folder import PlainFolder
from core.spark.lake_replay import prove_round
from core.spark.range_output import OutputFormat, WrittenFile, write_files
from core.spark.replay import Replay, prove_range
from core.spark.replay_plan import ReplayPlan

if TYPE_CHECKING:
    from core.spark.lake_writer import SparkWriter


def make_beside(directory: Path) -> Path:
    """Makes the folder that a task writes into."""
    beside = directory / "_plog" / "writing-1"
    beside.mkdir(parents=True, exist_ok=True)
    return beside


def write_placed(
    directory: Path, unit: str, format_: OutputFormat, batches: Iterable[Any], schema: Any
) -> tuple[WrittenFile, ...]:
    files = write_files(make_beside(directory), unit, format_, batches, schema)
    place(directory, files)
    return files


def place(directory: Path, files: Iterable[WrittenFile]) -> None:
    for file in files:
        assert PlainFolder(directory).rename(file.source, file.name)


def problems_of(replay: Replay, plan: ReplayPlan, writer: SparkWriter | None = None) -> list[str]:
    """What the proof finds wrong with a replay by the own writer, or by this one."""
    prove = partial(prove_range, replay, plan) if writer is None else partial(prove_round, writer, plan)
    return [proof.problem for proof in replay.verify(plan, replay.manifest(), prove) if proof.problem]
