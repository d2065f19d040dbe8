"""A power cut while a replay writes its files: what has its name is whole, and what has a receipt is there, at its
place or where the receipt says that it was written.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from core.spark.lake_folder import PlainFolder
from core.spark.partition_expression import parse_partitions
from core.spark.range_output import OutputFormat, Receipt, write_files
from core.spark.replay import Replay
from tests.support.disk import Disk, RecordingFileSystem, crash_states

SCHEMA = pa.schema([pa.field("city", pa.string()), pa.field("value", pa.binary())])
ROWS = [{"city": city, "value": (city * 400).encode()} for city in ("rome", "oslo", "rome", "bern")]
MANIFEST = "_plog/manifest.json"
UNITS = {"first": ROWS, "second": ROWS[1:]}


def files_of(state: Disk) -> dict[str, bytes]:
    """By path in the folder."""
    return {
        str(path.relative_to(state.root)): bytes(state.files[inode])
        for path, inode in state.names.items()
        if inode and all(state.names.get(parent) == 0 for parent in path.parents if state.root in parent.parents)
    }


def ensure_kept(files: dict[str, bytes], whole: dict[str, bytes]) -> None:
    for name, content in files.items():
        assert name.endswith(".tmp") or content == whole.get(name, content), f"{name} is there in part"
        if name.endswith(".json") and "/receipts/" in name:
            for file in json.loads(content)["files"]:
                places = [file["name"], *([] if MANIFEST in files else [file["from"]])]
                there = [files[at] for at in places if at in files]
                assert [hashlib.sha256(one).hexdigest() for one in there[:1]] == [file["sha256"]], file["name"]


@pytest.mark.first
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("partition_by", ["", "city"])
def test_files_and_receipts_are_on_the_disk_before_they_have_their_names(
    scratch: Path, kind: str, partition_by: str
) -> None:
    out = scratch / "out"
    out.mkdir()
    disk = RecordingFileSystem()
    replay = Replay(PlainFolder(out, filesystem=disk))
    replay.lock.acquire()
    done = {}
    for unit, rows in UNITS.items():
        batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
        output = OutputFormat(kind, "string", "string", parse_partitions([partition_by]))
        files = write_files(replay.beside, unit, output, [batch], SCHEMA, disk)
        replay.finish(Receipt(unit, files, len(rows)))
        done[unit] = len(disk.operations)
    replay.folder.replace(MANIFEST, b"{}")
    whole = {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name != "lock-1.json"
    }
    assert len(whole) == 3 + (2 if not partition_by else 6)
    rng, states = random.Random(3), 0
    for end in range(len(disk.operations) + 1):
        for state in crash_states(out, disk.operations[:end], rng, subsets_up_to=4, samples=4):
            files = files_of(state)
            ensure_kept(files, whole)
            for unit, when in done.items():
                assert end < when or f"_plog/receipts/{unit}.json" in files, "a unit that was done is there"
            states += 1
    assert states > 100
