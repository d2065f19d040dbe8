"""A replay's plan, files, receipts and manifest, without Spark; tests/interop/test_spark.py has real jobs."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from core.client.admin.admin import Admin
from core.client.net.kafka_client import KafkaClient
from core.client.write.producer import Producer, RecordsToSend
from core.common.endpoint import parse_bootstrap
from core.common.errors import AccessError, PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import PartitionReader
from core.records.byte_strings import ByteStrings
from core.spark.delta_table import commit_delta_table
from core.spark.lake_folder import PlainFolder
from core.spark.offset_range import OffsetRange
from core.spark.partition_expression import parse_partitions
from core.spark.range_output import OutputFormat
from core.spark.record_schema import COLUMNS
from core.spark.replay import Replay, find_gaps, prove_range, write_range
from core.spark.replay_plan import ReplayPlan, ensure_source_is_the_same, find_topic_ids
from core.spark.source import split_by_index
from plog.testing import running_broker
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.spark.placed_files import problems_of
from tests.support.spark.readers import counts_by_all

T = TopicPartition("t", 0)
PARQUET = OutputFormat("parquet", "binary", "binary")
MINUTES = 10 * 60_000
REQUEST = {"topics": ["t"], "to": "parquet:x", "from": "beginning"}


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """600 records in several segments, over some days."""
    directory = tmp_path / "log" / "t-0"
    log = open_log(directory, segment_bytes=4000, index_interval_bytes=200)
    for n in range(0, 600, 3):
        append(
            log,
            make_batch(*(b"%d" % (n + i) for i in range(3)), timestamp=NOW - (600 - n) * MINUTES, key=b"k%d" % (n % 9)),
        )
    log.close()
    return directory


def ranges_of(directory: Path, start: int, end: int, target_bytes: int = 1 << 30) -> list[OffsetRange]:
    reader = PartitionReader(directory)
    pieces = split_by_index(reader, start, end, target_bytes)
    reader.close()
    return [OffsetRange("t", 0, *piece, directory=str(directory)) for piece in pieces]


def plan_of(ranges: list[OffsetRange], output: OutputFormat = PARQUET, **fields: Any) -> ReplayPlan:
    return ReplayPlan(REQUEST, tuple(ranges), output, **fields)


def begin(directory: Path, plan: ReplayPlan) -> Replay:
    """Locked, until it is dropped or released."""
    replay = Replay(PlainFolder(directory))
    replay.lock.acquire()
    assert replay.freeze(plan.request, lambda: plan) == plan
    return replay


def done(directory: Path, plan: ReplayPlan) -> Replay:
    replay = begin(directory, plan)
    for range_ in plan.ranges:
        replay.finish(write_range(replay.beside, range_, plan))
    replay.commit(plan)
    assert set(counts_by_all(directory, plan.output.kind)) == {sum(file.rows for file in replay.files(plan))}
    replay.lock.release()
    return replay


def rows(directory: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path in sorted(directory.rglob("*.parquet")):
        found += pq.read_table(path, partitioning=None).to_pylist()
    return found


# --- ranges


@for_each("start, end", [(0, 600), (0, 1), (7, 8), (100, 500), (599, 600), (5, 5)])
@for_each("target_bytes", [1, 1000, 5000, 1 << 30])
def test_ranges_lie_end_to_end(log_directory: Path, start: int, end: int, target_bytes: int) -> None:
    ranges = ranges_of(log_directory, start, end, target_bytes)
    if start == end:
        assert ranges == []
        return
    assert [r.start_offset for r in ranges] == [start, *(r.end_offset for r in ranges[:-1])]
    assert ranges[-1].end_offset == end
    if target_bytes == 1 << 30:
        assert len(ranges) == 1


def test_ranges_are_about_as_large_as_wanted(log_directory: Path) -> None:
    ranges = ranges_of(log_directory, 0, 600, 3000)
    sizes = [r.size_bytes for r in ranges]
    assert sum(sizes) == sum(p.stat().st_size for p in log_directory.glob("*.log"))
    assert all(3000 <= size < 8000 for size in sizes[:-1])


# --- files


def test_a_topic_of_the_longest_name(log_directory: Path, tmp_path: Path) -> None:
    ranges = [replace(range_, topic=letter * 249) for range_ in ranges_of(log_directory, 0, 9) for letter in "xy"]
    ranges.append(replace(ranges[0], topic="x" * 248 + "z"))
    plan = plan_of(ranges)
    replay = done(tmp_path / "out", plan)
    assert len(rows(replay.directory)) == 27
    assert problems_of(replay, plan) == []


def test_every_offset_is_written_once(log_directory: Path, tmp_path: Path) -> None:
    plan = plan_of(ranges_of(log_directory, 10, 590, 2000))
    assert len(plan.ranges) > 3
    replay = done(tmp_path / "out", plan)
    found = rows(replay.directory)
    assert [r["offset"] for r in found] == list(range(10, 590))
    assert [r["value"] for r in found] == [b"%d" % n for n in range(10, 590)]
    manifest = replay.manifest()
    assert manifest["records"] == sum(f["rows"] for f in manifest["files"]) == 580
    assert manifest["gaps"] == {}
    assert (len(manifest["files"]), problems_of(replay, plan)) == (len(plan.ranges), [])


def test_only_the_columns_that_are_wanted(log_directory: Path, tmp_path: Path) -> None:
    replay = done(tmp_path / "out", plan_of(ranges_of(log_directory, 0, 5), columns=("offset", "value")))
    assert rows(replay.directory)[0] == {"offset": 0, "value": b"0"}


def test_the_last_record_of_each_key(log_directory: Path, tmp_path: Path) -> None:
    (range_,) = ranges_of(log_directory, 0, 600)
    replay = done(tmp_path / "out", plan_of([replace(range_, latest_per_key=True)]))
    found = [(r["key"], r["offset"]) for r in rows(replay.directory)]
    assert found == [(b"k6", 593), (b"k0", 596), (b"k3", 599)]


@for_each("by", ["", "day", "hour", "key"])
def test_files_and_folders(log_directory: Path, tmp_path: Path, by: str) -> None:
    end = 90 if by == "hour" else 300  # a folder for each six records
    plan = plan_of(
        ranges_of(log_directory, 0, end, 3000), OutputFormat("parquet", "string", "string", parse_partitions([by]))
    )
    replay = done(tmp_path / "out", plan)
    found = []
    for path in sorted(replay.directory.rglob("*.parquet")):
        folder = path.parent.name if by else None
        lines = pq.read_table(path, partitioning=None).to_pylist()
        found += [(int(line["offset"]), line["value"], folder, str(line["timestamp"])) for line in lines]
        assert by == "" or (folder or "").startswith(f"{by}=")
        assert by != "key" or all("key" not in line for line in lines)
    assert sorted((offset, value) for offset, value, _, _ in found) == [(n, str(n)) for n in range(end)]
    for offset, _, folder, timestamp in found:
        if by in ("day", "hour"):
            day = timestamp[: 10 if by == "day" else 13].replace("T", "-").replace(" ", "-")
            assert folder == f"{by}={day}"
        if by == "key":
            assert folder == f"key=k{offset // 3 * 3 % 9}"
    assert problems_of(replay, plan) == []


def test_partitions_are_what_others_read(log_directory: Path, tmp_path: Path) -> None:
    plan = plan_of(
        ranges_of(log_directory, 0, 600), OutputFormat("parquet", "binary", "binary", parse_partitions(["day"]))
    )
    replay = done(tmp_path / "out", plan)
    table = ds.dataset(replay.directory, format="parquet", partitioning="hive").to_table()
    assert table.num_rows == 600
    assert len(table["day"].unique()) > 1


def test_bytes_that_are_no_text_are_refused_or_made_base64(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"text"))
    append(log, make_batch(b"\xff\xfe", None))  # type: ignore[arg-type]
    log.close()
    plan = plan_of(ranges_of(tmp_path / "t-0", 0, 3), OutputFormat("parquet", "string", "string"))
    replay = begin(tmp_path / "out", plan)
    with pytest.raises(PlogError, match="value, topic t partition 0 offset 1: the bytes are no UTF-8 text") as caught:
        replay.finish(write_range(replay.beside, plan.ranges[0], plan))
    assert "--value-format base64" in (caught.value.hint or "")
    assert list(replay.directory.glob("*.parquet")) == []
    assert list((replay.directory / "_plog").rglob("*.tmp")) == []
    plan = plan_of(list(plan.ranges), OutputFormat("parquet", "string", "base64"))
    replay = done(tmp_path / "other", plan)
    assert [row["value"] for row in rows(replay.directory)] == ["dGV4dA==", "//4=", None]


def test_a_column_to_partition_by_that_is_not_there(log_directory: Path, tmp_path: Path) -> None:
    plan = plan_of(
        ranges_of(log_directory, 0, 5),
        OutputFormat("parquet", "string", "string", parse_partitions(["hour"])),
        columns=("key",),
    )
    with pytest.raises(UsageError, match="--partition-by hour: there is no column timestamp"):
        write_range(tmp_path, plan.ranges[0], plan)


# --- what is not there


def test_aborted_records_are_left_out_and_accounted_for(tmp_path: Path) -> None:
    directory = tmp_path / "log" / "t-0"
    log = open_log(directory)
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    append(log, make_batch(b"aborted", base_sequence=0, **fields))
    append_marker(log, 1, is_commit=False)
    append(log, make_batch(b"committed", base_sequence=1, **fields))
    append_marker(log, 1, is_commit=True)
    log.close()
    plan = plan_of(ranges_of(directory, 0, 4))
    replay = done(tmp_path / "out", plan)
    assert [r["value"] for r in rows(replay.directory)] == [b"committed"]
    manifest = replay.manifest()
    assert manifest["records"] == 1
    ((unit, gaps),) = manifest["gaps"].items()
    assert unit == plan.ranges[0].name
    assert [gap[:3] for gap in gaps] == [[0, 1, "aborted"], [1, 2, "control record"], [3, 4, "control record"]]


def test_a_damaged_batch_fails_its_range_and_leaves_no_file(tmp_path: Path) -> None:
    (source,) = (p for p in GOLDEN.glob("c_bitflip_middle.corrupt") if p.is_dir())
    range_ = OffsetRange("t", 0, 0, 10_000, 1, directory=str(source))
    replay = begin(tmp_path / "out", plan_of([range_]))
    with pytest.raises(PlogError, match="position"):
        replay.finish(write_range(replay.beside, range_, plan_of([range_])))
    assert list(replay.directory.rglob("*.parquet")) == []


def test_lost_offsets_fail_their_range_or_are_noted(tmp_path: Path) -> None:
    """A segment is gone from the middle, and nothing tells of compaction."""
    log = open_log(tmp_path / "t-0", segment_bytes=500)
    for n in range(60):
        append(log, make_batch(b"%d" % n))
    log.close()
    logs = sorted((tmp_path / "t-0").glob("*.log"))
    first, end = (int(path.stem) for path in logs[2:4])
    logs[2].unlink()
    (range_,) = ranges_of(tmp_path / "t-0", 0, 60)
    replay = begin(tmp_path / "out", plan_of([range_]))
    with pytest.raises(PlogError, match=f"offsets {first} to {end - 1}: segment {first} is missing"):
        replay.finish(write_range(replay.beside, range_, plan_of([range_])))
    assert replay.missing(plan_of([range_])) == [range_]
    allowed = plan_of([replace(range_, fails_if_gone=False)])
    receipt = write_range(replay.beside, allowed.ranges[0], allowed)
    assert receipt.records == 60 - (end - first)
    assert [gap[:3] for gap in receipt.gaps] == [(first, end, "missing")]
    assert find_gaps(range_, fails=False) == (receipt.records, receipt.gaps)


# --- running it again


def test_the_first_plan_holds(log_directory: Path, tmp_path: Path) -> None:
    """The log grew since; the frozen plan is finished as it was."""
    first = plan_of(ranges_of(log_directory, 0, 300))
    replay = begin(tmp_path / "out", first)
    again = replay.freeze(REQUEST, lambda: plan_of(ranges_of(log_directory, 0, 600)))
    assert again == first


def test_another_job_does_not_mix_with_it(log_directory: Path, tmp_path: Path) -> None:
    replay = begin(tmp_path / "out", plan_of(ranges_of(log_directory, 0, 300)))
    with pytest.raises(PlogError, match="holds another replay, of another from, until"):
        replay.freeze(REQUEST | {"from": "5", "until": "end"}, lambda: plan_of([]))


def test_a_folder_with_other_things_in_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PlogError, match="is not empty"):
        Replay(PlainFolder(tmp_path)).freeze(REQUEST, lambda: plan_of([]))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_is_missing_is_done_and_the_rest_left_alone(log_directory: Path, tmp_path: Path) -> None:
    plan = plan_of(ranges_of(log_directory, 0, 600, 3000))
    replay = begin(tmp_path / "out", plan)
    replay.finish(write_range(replay.beside, plan.ranges[1], plan))
    (kept,) = replay.directory.glob("*.parquet")
    before = kept.stat().st_mtime_ns
    (replay.directory / f"{plan.ranges[0].name}.parquet").write_bytes(b"half")  # of a release that placed it first
    assert replay.missing(plan) == [plan.ranges[0], *plan.ranges[2:]]
    assert not replay.is_done
    with pytest.raises(PlogError, match=f"{len(plan.ranges) - 1} ranges have no receipt"):
        replay.commit(plan)
    for range_ in replay.missing(plan):
        replay.finish(write_range(replay.beside, range_, plan))
    (replay.beside / "y.tmp").write_bytes(b"of a task that was killed, and done by another")
    replay.commit(plan)
    assert replay.is_done
    replay.lock.release()
    assert not list((replay.directory / "_plog").rglob("*.tmp"))
    assert kept.stat().st_mtime_ns == before
    assert [r["offset"] for r in rows(replay.directory)] == list(range(600))


def test_a_servers_log_that_was_trimmed_is_refused_with_what_can_be_done() -> None:
    with running_broker() as broker, closing(KafkaClient(parse_bootstrap(broker.bootstrap_servers))) as client:
        broker.create_topic("t")
        producer = Producer(client, "t")
        producer.send(RecordsToSend(0, np.full(3, NOW), None, ByteStrings.repeat(b"x", 3), None, np.arange(3)))
        producer.flush()
        range_ = OffsetRange("t", 0, 0, 3, 1, servers=broker.bootstrap_servers)
        plan = plan_of([range_])
        ensure_source_is_the_same(plan, [range_])
        Admin(client).delete_records({TopicPartition("t", 0): 2})
        with pytest.raises(PlogError, match=r"t-0: offsets from 0 on were planned .*: the log begins at 2") as caught:
            ensure_source_is_the_same(plan, [range_])
        assert caught.value.hint == "replay what is left to a new folder, with --from beginning"
        ensure_source_is_the_same(plan, [replace(range_, start_offset=2), replace(range_, fails_if_gone=False)])
        with pytest.raises(AccessError, match="t-0 ends at offset 3, and was planned to be replayed up to 4"):
            ensure_source_is_the_same(plan, [replace(range_, start_offset=2, end_offset=4)])


def test_servers_that_know_no_topic_ids_do_not_contradict_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata before version 10 has zeros for an id."""
    find_topic = KafkaClient.topic
    with running_broker() as broker:
        broker.create_topic("t")
        range_ = OffsetRange("t", 0, 0, 0, 1, servers=broker.bootstrap_servers)
        plan = plan_of([range_], topic_ids=find_topic_ids([range_]))
        assert plan.topic_ids
        monkeypatch.setattr(KafkaClient, "topic", lambda *given: replace(find_topic(*given), topic_id=bytes(16)))
        ensure_source_is_the_same(plan, [range_])


def test_a_source_that_is_another_is_refused(log_directory: Path, tmp_path: Path) -> None:
    (log_directory / "partition.metadata").write_text("version: 0\ntopic_id: G0fpkTIoSrm35pn5auABdQ")
    ranges = ranges_of(log_directory, 0, 600, 3000)
    plan = plan_of(ranges, topic_ids=find_topic_ids(ranges))
    assert plan.topic_ids == {"t": "G0fpkTIoSrm35pn5auABdQ"}
    ensure_source_is_the_same(plan, ranges)
    (log_directory / "partition.metadata").write_text("version: 0\ntopic_id: AAfpkTIoSrm35pn5auABdQ")
    with pytest.raises(PlogError, match="topic t was made again since"):
        ensure_source_is_the_same(plan, ranges)
    (log_directory / "partition.metadata").unlink()
    first, second, *_ = sorted(log_directory.glob("*.log"))
    epochs = log_directory / "leader-epoch-checkpoint"
    kept = {path: path.read_bytes() for path in (epochs, *log_directory.glob(f"{first.stem}.*"))}
    for path in log_directory.glob(f"{first.stem}.*"):
        path.unlink()
    epochs.write_text(f"0\n1\n0 {int(second.stem)}\n")  # as a deletion leaves it
    with pytest.raises(PlogError, match="t-0: offsets from 0 on were planned to be replayed, and are deleted since"):
        ensure_source_is_the_same(plan, ranges)
    ensure_source_is_the_same(plan, ranges[-1:])  # what is done needs no source
    for path, content in kept.items():
        path.write_bytes(content)
    *_, last = sorted(log_directory.glob("*.log"))
    for path in {*log_directory.glob(f"{last.stem}.*"), *log_directory.glob("*.snapshot")}:
        path.unlink()
    with pytest.raises(AccessError, match="was planned to be replayed up to"):
        ensure_source_is_the_same(plan, ranges)


# --- the proof


def test_verify_finds_what_changed(log_directory: Path, tmp_path: Path) -> None:
    plan = plan_of(ranges_of(log_directory, 0, 600, 3000))
    replay = begin(tmp_path / "out", plan)
    with pytest.raises(AccessError, match="holds no finished replay"):
        problems_of(replay, plan)
    replay.lock.release()
    done(tmp_path / "out", plan)
    first, second, *_ = sorted(replay.directory.glob("*.parquet"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    (replay.directory / "stranger.parquet").write_bytes(b"")
    assert problems_of(replay, plan) == [f"{first.name} is missing", f"{second.name} is not what was written"]
    assert replay.unknown_files(plan) == ["stranger.parquet"]
    path = replay.directory / "_plog" / "manifest.json"
    fields = json.loads(path.read_bytes())
    fields["files"][2]["rows"] += 1
    path.write_text(json.dumps(fields))
    assert f"the manifest says otherwise than _plog/receipts/{plan.ranges[2].name}.json" in problems_of(replay, plan)


def test_verify_finds_what_the_log_says_otherwise(log_directory: Path, tmp_path: Path) -> None:
    """Files and manifest agree with each other, and not with the log."""
    plan = plan_of(ranges_of(log_directory, 0, 600, 3000))
    replay = done(tmp_path / "out", plan)
    other = open_log(tmp_path / "other" / "t-0", segment_bytes=4000, index_interval_bytes=200)
    for n in range(0, 600, 3):
        values = (b"%d" % (n + i) if n != 300 else b"???" for i in range(3))
        append(other, make_batch(*values, timestamp=NOW - (600 - n) * MINUTES, key=b"k%d" % (n % 9)))
    other.close()
    moved = replace(plan, ranges=tuple(replace(r, directory=str(tmp_path / "other" / "t-0")) for r in plan.ranges))
    proofs = [*replay.verify(moved, replay.manifest(), partial(prove_range, replay, moved))]
    (((range_,), problem, _),) = (proof for proof in proofs if proof.problem)
    assert range_.start_offset <= 300 < range_.end_offset
    assert problem.endswith("has other records than the log")
    gone = replace(plan, ranges=tuple(replace(r, directory=str(tmp_path / "nowhere")) for r in plan.ranges))
    proofs = [*replay.verify(gone, replay.manifest(), partial(prove_range, replay, gone))]
    assert {(problem[:26], could) for _, problem, could in proofs} == {("the log can't be compared:", False)}


def test_a_plan_survives_its_json() -> None:
    plan = plan_of([OffsetRange("t", 0, 0, 9, 100, directory="/x")], columns=COLUMNS[:3], transform="a:b")
    assert ReplayPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    plan = plan_of(list(plan.ranges), OutputFormat("parquet", "binary", "binary", parse_partitions(["day,d=key"])))
    assert ReplayPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    with pytest.raises(PlogError, match="version 1, expected 4") as refused:
        ReplayPlan.from_json({"version": 1})
    assert refused.value.hint == "another release of plog began it: finish it with that one, or replay to a new folder"


def test_a_plan_of_an_earlier_release_goes_on_if_its_records_are_as_they_are() -> None:
    output = {"kind": "parquet", "key_format": "binary", "value_format": "binary", "partition_by": "hour"}
    plan = {"version": 2, "request": {}, "ranges": [], "output": output, "columns": [], "schema": "", "transform": "",
            "topic_ids": {}, "id": "x"}  # fmt: skip
    assert ReplayPlan.from_json(plan).output == OutputFormat(
        "parquet", "binary", "binary", parse_partitions(["hour"]), "zstd", 0
    )
    for fields in {"transform": "a:b"}, {"schema": "a INT"}, {"output": output | {"kind": "csv"}}:
        assert ReplayPlan.from_json(plan | fields).is_of_older_release


# --- a Delta table


@pytest.mark.longer
@for_each("by", ["", "day", "key"])
def test_a_delta_table_of_a_replays_files(log_directory: Path, tmp_path: Path, by: str) -> None:
    import deltalake

    plan = plan_of(
        ranges_of(log_directory, 0, 600, 3000), OutputFormat("parquet", "string", "binary", parse_partitions([by]))
    )
    replay = begin(tmp_path / "out", plan)
    for range_ in plan.ranges:
        replay.finish(write_range(replay.beside, range_, plan))
    for _ in range(2):  # a rerun that does not know that it was done
        commit_delta_table(replay.directory, replay.files(plan), plan.output.partition_by, plan.id)
    replay.commit(plan)
    table = deltalake.DeltaTable(str(replay.directory))
    assert table.version() == 0
    found = table.to_pyarrow_table()
    assert sorted(found["offset"].to_pylist()) == list(range(600))
    if by == "key":
        by_offset = dict(zip(found["offset"].to_pylist(), found["key"].to_pylist(), strict=True))
        assert all(key == f"k{offset // 3 * 3 % 9}" for offset, key in by_offset.items())
    assert problems_of(replay, plan) == []
    assert len(deltalake.DeltaTable(str(replay.directory)).file_uris()) == len(replay.files(plan))
