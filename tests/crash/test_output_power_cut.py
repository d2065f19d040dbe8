"""A power cut while a replay writes its files: what has its name is whole, and what has a receipt is there."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from core.spark.partition_expression import parse_partitions
from core.spark.range_output import OutputFormat, Receipt, claim_unshared, write_files, write_receipt
from tests.support.disk import Disk, RecordingFileSystem, crash_states

SCHEMA = pa.schema([pa.field("city", pa.string()), pa.field("value", pa.binary())])
ROWS = [{"city": city, "value": (city * 400).encode()} for city in ("rome", "oslo", "rome", "bern")]
UNITS = {"first": ROWS, "second": ROWS[1:]}


def files_of(state: Disk) -> dict[str, bytes]:
    """By path in the folder."""
    found = {
        str(path.relative_to(state.root)): bytes(state.files[inode])
        for path, inode in state.names.items()
        if inode and all(state.names.get(parent) == 0 for parent in path.parents if state.root in parent.parents)
    }
    return {name: content for name, content in found.items() if "/lock-1/" not in name}


def ensure_kept(files: dict[str, bytes], whole: dict[str, bytes]) -> None:
    for name, content in files.items():
        assert content == whole[name], f"{name} is there in part"
        if name.endswith(".json") and "/receipts/" in name:
            for file in json.loads(content)["files"]:
                assert hashlib.sha256(files.get(file["name"], b"")).hexdigest() == file["sha256"], file["name"]


@pytest.mark.first
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("partition_by", ["", "city"])
def test_files_and_receipts_are_on_the_disk_before_they_have_their_names(
    scratch: Path, kind: str, partition_by: str
) -> None:
    out = scratch / "out"
    out.mkdir()
    disk = RecordingFileSystem()
    claim = claim_unshared(out, disk)
    done = {}
    for unit, rows in UNITS.items():
        batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
        files = write_files(
            claim, unit, OutputFormat(kind, "string", "string", parse_partitions([partition_by])), [batch], SCHEMA
        )
        write_receipt(claim, Receipt(unit, files, len(rows)))
        done[unit] = len(disk.operations)
    whole = {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.parent.name != "lock-1"
    }
    assert len(whole) == 2 + (2 if not partition_by else 6)
    rng, states = random.Random(3), 0
    for end in range(len(disk.operations) + 1):
        for state in crash_states(out, disk.operations[:end], rng, subsets_up_to=4, samples=4):
            files = files_of(state)
            ensure_kept(files, whole)
            for unit, when in done.items():
                assert end < when or f"_plog/receipts/{unit}.json" in files, "a unit that was done is there"
            states += 1
    assert states > 100
