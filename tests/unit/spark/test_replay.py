"""A replay's plan, files and manifest, without Spark; tests/interop/test_spark.py has a real job."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from core.common.errors import AccessError, PlogError
from core.common.topic_partition import TopicPartition
from core.log.partition_reader import PartitionReader
from core.spark.offset_range import OffsetRange, split
from core.spark.record_schema import COLUMNS
from core.spark.replay import Replay, ReplayPlan, write_range
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, append, append_marker, make_batch, open_log

T = TopicPartition("t", 0)


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """600 records in several segments."""
    directory = tmp_path / "log" / "t-0"
    log = open_log(directory, segment_bytes=4000, index_interval_bytes=200)
    for n in range(0, 600, 3):
        append(log, make_batch(*(b"%d" % (n + i) for i in range(3)), timestamp=NOW + n))
    log.close()
    return directory


def ranges_of(directory: Path, start: int, end: int, target_bytes: int) -> list[OffsetRange]:
    reader = PartitionReader(directory)
    ranges = split(reader, T, start, end, target_bytes)
    reader.close()
    return ranges


def rows(directory: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path in sorted(directory.glob("*.parquet")):
        found += pq.read_table(path).to_pylist()
    return found


# --- ranges


@pytest.mark.parametrize(("start", "end"), [(0, 600), (0, 1), (7, 8), (100, 500), (599, 600)])
@pytest.mark.parametrize("target_bytes", [1, 1000, 5000, 1 << 30])
def test_ranges_lie_end_to_end(log_directory: Path, start: int, end: int, target_bytes: int) -> None:
    ranges = ranges_of(log_directory, start, end, target_bytes)
    assert [r.start_offset for r in ranges] == [start, *(r.end_offset for r in ranges[:-1])]
    assert ranges[-1].end_offset == end
    if target_bytes == 1 << 30:
        assert len(ranges) == 1


def test_nothing_is_no_range(log_directory: Path) -> None:
    assert ranges_of(log_directory, 5, 5, 1000) == []


def test_ranges_are_about_as_large_as_wanted(log_directory: Path) -> None:
    ranges = ranges_of(log_directory, 0, 600, 3000)
    sizes = [r.size_bytes for r in ranges]
    assert sum(sizes) == sum(p.stat().st_size for p in log_directory.glob("*.log"))
    assert all(3000 <= size < 8000 for size in sizes[:-1])


# --- files


def test_every_offset_is_written_once(log_directory: Path, tmp_path: Path) -> None:
    replay = Replay(tmp_path / "out")
    plan = replay.freeze(ReplayPlan(COLUMNS, tuple(ranges_of(log_directory, 10, 590, 2000))))
    assert len(plan.ranges) > 3
    for range_ in plan.ranges:
        assert write_range(replay.directory, range_) == range_.end_offset - range_.start_offset
    files = replay.commit(plan)
    found = rows(replay.directory)
    assert [r["offset"] for r in found] == list(range(10, 590))
    assert [r["value"] for r in found] == [b"%d" % n for n in range(10, 590)]
    assert {(r["topic"], r["partition"], r["key"]) for r in found} == {("t", 0, b"k")}
    assert sum(f.rows for f in files) == 580
    assert replay.verify() == (files, [])


def test_only_the_columns_that_are_wanted(log_directory: Path, tmp_path: Path) -> None:
    replay = Replay(tmp_path / "out")
    replay.freeze(ReplayPlan(("offset", "value"), ()))
    (range_,) = ranges_of(log_directory, 0, 5, 1 << 30)
    write_range(replay.directory, range_, ("offset", "value"))
    assert rows(replay.directory)[0] == {"offset": 0, "value": b"0"}


def test_aborted_records_are_left_out(tmp_path: Path) -> None:
    directory = tmp_path / "log" / "t-0"
    log = open_log(directory)
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    append(log, make_batch(b"aborted", base_sequence=0, **fields))
    append_marker(log, 1, is_commit=False)
    append(log, make_batch(b"committed", base_sequence=1, **fields))
    append_marker(log, 1, is_commit=True)
    log.close()
    replay = Replay(tmp_path / "out")
    replay.freeze(ReplayPlan(COLUMNS, ()))
    (range_,) = ranges_of(directory, 0, 4, 1 << 30)
    assert write_range(replay.directory, range_) == 1
    assert [r["value"] for r in rows(replay.directory)] == [b"committed"]


def test_a_damaged_batch_fails_its_range_and_leaves_no_file(tmp_path: Path) -> None:
    replay = Replay(tmp_path / "out")
    replay.freeze(ReplayPlan(COLUMNS, ()))
    (source,) = (p for p in GOLDEN.glob("c_bitflip_middle.corrupt") if p.is_dir())
    range_ = OffsetRange("t", 0, str(source), 0, 10_000, 1)
    with pytest.raises(PlogError, match="position"):
        write_range(replay.directory, range_)
    assert list(replay.directory.glob("*.parquet")) == []


# --- running it again


def test_the_first_plan_holds(log_directory: Path, tmp_path: Path) -> None:
    """The log grew since; the frozen plan is finished as it was."""
    replay = Replay(tmp_path / "out")
    first = replay.freeze(ReplayPlan(COLUMNS, tuple(ranges_of(log_directory, 0, 300, 1 << 30))))
    again = Replay(tmp_path / "out").freeze(ReplayPlan(COLUMNS, tuple(ranges_of(log_directory, 0, 600, 1 << 30))))
    assert again == first


def test_another_job_does_not_mix_with_it(log_directory: Path, tmp_path: Path) -> None:
    replay = Replay(tmp_path / "out")
    replay.freeze(ReplayPlan(COLUMNS, tuple(ranges_of(log_directory, 0, 300, 1 << 30))))
    for plan in (
        ReplayPlan(COLUMNS, tuple(ranges_of(log_directory, 5, 300, 1 << 30))),
        ReplayPlan(("offset",), tuple(ranges_of(log_directory, 0, 300, 1 << 30))),
    ):
        with pytest.raises(PlogError, match="holds another replay"):
            replay.freeze(plan)


def test_a_folder_with_other_things_in_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PlogError, match="is not empty"):
        Replay(tmp_path).freeze(ReplayPlan(COLUMNS, ()))


def test_what_is_missing_is_done_and_the_rest_left_alone(log_directory: Path, tmp_path: Path) -> None:
    replay = Replay(tmp_path / "out")
    plan = replay.freeze(ReplayPlan(COLUMNS, tuple(ranges_of(log_directory, 0, 600, 3000))))
    write_range(replay.directory, plan.ranges[1])
    (done,) = replay.directory.glob("*.parquet")
    before = done.stat().st_mtime_ns
    assert replay.missing(plan) == [plan.ranges[0], *plan.ranges[2:]]
    assert not replay.is_done
    with pytest.raises(AccessError):
        replay.commit(plan)
    for range_ in replay.missing(plan):
        write_range(replay.directory, range_)
    replay.commit(plan)
    assert replay.is_done
    assert done.stat().st_mtime_ns == before
    assert [r["offset"] for r in rows(replay.directory)] == list(range(600))


def test_verify_finds_what_changed(log_directory: Path, tmp_path: Path) -> None:
    replay = Replay(tmp_path / "out")
    plan = replay.freeze(ReplayPlan(COLUMNS, tuple(ranges_of(log_directory, 0, 600, 3000))))
    with pytest.raises(AccessError, match="holds no finished replay"):
        replay.verify()
    for range_ in plan.ranges:
        write_range(replay.directory, range_)
    replay.commit(plan)
    first, second, *_ = sorted(replay.directory.glob("*.parquet"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    (replay.directory / "stranger.parquet").write_bytes(b"")
    _, problems = replay.verify()
    assert problems == [
        f"{first.name} is missing",
        f"{second.name} is not what was written",
        "stranger.parquet is not of this replay",
    ]
