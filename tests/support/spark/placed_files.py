"""What a task of a replay writes, brought to its places, without a lock."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.spark.lake_folder import PlainFolder
from core.spark.range_output import OutputFormat, WrittenFile, write_files


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
