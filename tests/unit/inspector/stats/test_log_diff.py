"""Two copies of a partition against what was done to one of them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from core.common.errors import AccessError
from core.inspector.stats.log_diff import Difference, DifferenceKind, LogDiff
from tests.support.damage import places
from tests.support.golden import GOLDEN, case
from tests.support.log_frames import crc32c
from tests.support.logs import append, make_batch, open_log


def write(directory: Path, *values: bytes, per_batch: int = 2) -> Path:
    log = open_log(directory, segment_bytes=500)
    for start in range(0, len(values), per_batch):
        append(log, make_batch(*values[start : start + per_batch]))
    log.close()
    return directory


def diff(a: Path, b: Path) -> tuple[list[Difference], LogDiff]:
    found = LogDiff(a, b)
    return list(found), found


VALUES = [b"%d" % n * 30 for n in range(12)]


def test_a_record_that_differs(tmp_path: Path) -> None:
    a = write(tmp_path / "a-0", *VALUES)
    b = write(tmp_path / "b-0", *VALUES[:5], b"other", *VALUES[6:])
    differences, found = diff(a, b)
    assert [(d.kind, d.offset, d.last_offset, d.detail) for d in differences] == [
        (DifferenceKind.RECORD, 5, 5, "value differs")
    ]
    assert (found.same_records, found.first_divergent_offset) == (11, 5)


def test_one_goes_on(tmp_path: Path) -> None:
    a = write(tmp_path / "a-0", *VALUES)
    b = write(tmp_path / "b-0", *VALUES[:8])
    differences, found = diff(a, b)
    assert [(d.kind, d.offset, d.last_offset) for d in differences] == [(DifferenceKind.ONLY_IN_A, 8, 11)]
    assert found.first_divergent_offset == 8
    assert [(d.kind, d.detail) for d in diff(b, a)[0]] == [(DifferenceKind.ONLY_IN_B, "after the other's last record")]


def test_one_begins_later(tmp_path: Path) -> None:
    a = write(tmp_path / "a-0", *VALUES)
    shutil.copytree(a, tmp_path / "b-0")
    first = min((tmp_path / "b-0").glob("*.log"))
    first.unlink()
    differences, found = diff(a, tmp_path / "b-0")
    (only,) = differences
    assert (only.kind, only.offset, only.detail) == (DifferenceKind.ONLY_IN_A, 0, "before the other's first record")
    assert found.same_records == 12 - 1 - only.last_offset


def test_batches_may_be_cut_otherwise(tmp_path: Path) -> None:
    a = write(tmp_path / "a-0", *VALUES, per_batch=1)
    b = write(tmp_path / "b-0", *VALUES, per_batch=1)
    differences, found = diff(a, b)
    assert (differences, found.same_records, found.first_divergent_offset) == ([], len(VALUES), None)
    c = write(tmp_path / "c-0", *VALUES, per_batch=3)
    differences, _ = diff(a, c)  # the batches' timestamps are their records'
    assert {d.detail for d in differences} == {"timestamp differs"}


def test_another_leader_epoch(tmp_path: Path) -> None:
    a = write(tmp_path / "a-0", *VALUES)
    shutil.copytree(a, tmp_path / "b-0")
    place = places(tmp_path / "b-0")[1]
    with place.path.open("r+b") as file:
        file.seek(place.position + 12)
        file.write(struct.pack(">i", 3))
    differences, found = diff(a, tmp_path / "b-0")
    assert [(d.kind, d.offset, d.detail) for d in differences] == [(DifferenceKind.BATCH, 2, "leader epoch 0 and 3")]
    assert found.first_divergent_offset is None


def test_what_compaction_took(tmp_path: Path) -> None:
    """Of Kafka's own cleaner: the copy of before has every record."""
    name = "compacted_zstd"
    kept = {record.offset for record in case(name).records()}
    differences, found = diff(GOLDEN / name, GOLDEN / name)
    assert differences == []
    assert found.same_records == len(kept)


def test_damage_is_passed_over_and_told(tmp_path: Path) -> None:
    differences, found = diff(GOLDEN / "c_bitflip_middle", GOLDEN / "c_bitflip_middle.corrupt")
    assert [(d.kind, d.offset, d.last_offset) for d in differences] == [(DifferenceKind.ONLY_IN_A, 21, 22)]
    assert [f.position for f in found.findings or []] == [2533]
    with pytest.raises(AccessError, match="no segments"):
        diff(tmp_path, tmp_path)


@pytest.mark.parametrize("is_changed", [False, True], ids=["whole batches", "record by record"])
def test_markers_are_compared_and_are_no_records(tmp_path: Path, *, is_changed: bool) -> None:
    """Kafka's consumer says how many records there are."""
    golden = case("txn_interleaved")
    copy = shutil.copytree(golden.directory, tmp_path / "copy-0")
    if is_changed:  # with another epoch of the producer, so that no batch has the bytes of the other
        log = copy / f"{0:020}.log"
        data = bytearray(log.read_bytes())
        for place in places(copy):
            data[place.position + 51] ^= 1
            data[place.position + 17 : place.position + 21] = struct.pack(
                ">I", crc32c(bytes(data[place.position + 21 : place.end]))
            )
        log.write_bytes(data)
    found = LogDiff(golden.directory, copy)
    assert [difference for difference in found if difference.kind is not DifferenceKind.BATCH] == []
    assert found.same_records == len(golden.records())
