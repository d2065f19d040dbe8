"""`plog spark-replay --continue`: a folder and a Delta table that grow each night, and what happens in between.

Spark is left out: what its tasks do is done in this process. What befalls the nights is what befell others' jobs.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

import pyarrow as pa
import pyarrow.dataset as ds

from core.common.filesystem import FileSystem
from core.spark.lake_folder import PlainFolder
from core.spark.lake_replay import write_rounds
from core.spark.replay import Replay
from core.spark.replay_plan import ReplayPlan
from tests.crash.test_replay_faults import run_here
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.server import call_plog
from tests.support.spark.readers import read_by_all
from tests.unit.spark.test_lake_replay import FakeWriter

pytestmark = pytest.mark.longer

DAYS = 24 * 3600_000


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.commands.spark_replay._run_with_spark", run_here)


class Nights:
    """A topic, and the command of each night."""

    def __init__(self, directory: Path) -> None:
        self.data, self.out, self.kind = directory / "data", directory / "out", "parquet"
        self._counts: dict[int, int] = {}

    def came(self, count: int, partition: int = 0) -> None:
        """Appends records whose values count on from the last one's."""
        log = open_log(self.data / f"t-{partition}", segment_bytes=400)
        first = self._counts.get(partition, 0)
        for n in range(first, first + count):
            append(log, make_batch(b"%d" % n, timestamp=NOW + (n - 99) * DAYS, key=b"k%d" % (n % 3)))
        log.close()
        self._counts[partition] = first + count

    def trim(self) -> int:
        """Deletes all segments but the last, as retention does; returns the log's new start."""
        log = self.data / "t-0"
        *older, last = sorted(int(path.stem) for path in log.glob("*.log"))
        for base in older:
            for path in log.glob(f"{base:020d}.*"):
                path.unlink()
        (log / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {last}\n")
        return last

    def make_topic(self, topic_id: str) -> None:
        """Makes the topic again, with nothing in it."""
        shutil.rmtree(self.data, ignore_errors=True)
        self._counts.clear()
        self.came(0)
        (self.data / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")

    def run(self, *options: str, code: int = 0) -> str:
        where = ["--to", f"{self.kind}:{self.out}", "--range-size", "700", "--data-dir", str(self.data)]
        done = call_plog("spark-replay", "t", *where, *options)
        assert done.returncode == code, done.stderr.decode()
        return done.stderr.decode() + done.stdout.decode()

    def night(self, *options: str, code: int = 0) -> str:
        return self.run("--continue", *options, code=code)

    def verify(self, code: int = 0) -> str:
        done = call_plog("spark-replay", "--verify", str(self.out))
        assert done.returncode == code, done.stderr
        return done.stderr.decode()

    def offsets(self, partition: int = 0) -> list[int]:
        return sorted(row["offset"] for row in self.rows() if row["partition"] == partition)

    def rows(self) -> list[dict[str, Any]]:
        if self.kind != "delta":
            return ds.dataset(self.out, format=self.kind, partitioning="hive").to_table().to_pylist()
        import deltalake

        return deltalake.DeltaTable(self.out).to_pyarrow_table().to_pylist()

    @property
    def state(self) -> Path:
        return self.out / "_plog"

    def all_files(self) -> Mapping[str, int]:
        """Every file, but those of the lock, and when it was written."""
        found = (path for path in self.out.rglob("*") if path.is_file() and not path.name.startswith("lock-"))
        return {str(path): path.stat().st_mtime_ns for path in found}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    nights = Nights(tmp_path)
    nights.came(6)
    return nights


# --- what others met


def test_a_night_without_news_leaves_no_file(nights: Nights) -> None:
    """Hudi's DeltaStreamer: "no new data, nothing to commit"; other jobs leave an empty file each night."""
    nights.night()
    before = nights.all_files()
    said = nights.night()
    assert said == f"{nights.out} has all of it already: the log has nothing new\n"
    assert nights.all_files() == before


def test_what_came_while_no_job_ran_is_read(nights: Nights) -> None:
    """Spark with startingOffsets=latest, and Kafka Connect's auto.offset.reset=latest, pass over it."""
    nights.night("--from", "end")
    nights.came(4)
    nights.night("--from", "end")
    assert nights.offsets() == [6, 7, 8, 9]


def test_partitions_that_came_since_are_read_from_their_beginning(nights: Nights) -> None:
    """Spark's batch source wants a start for each partition, and onetl's had none for new ones. What a partition had
    when the first night began at its end stays out.
    """
    nights.came(4, partition=1)
    nights.night("--from", "0=0,1=end")
    assert (nights.offsets(0), nights.offsets(1)) == (list(range(6)), [])
    nights.came(2, partition=1)
    nights.came(3, partition=2)
    nights.night("--from", "0=0,1=end")
    assert (nights.offsets(0), nights.offsets(1), nights.offsets(2)) == (list(range(6)), [4, 5], [0, 1, 2])
    nights.verify()


@pytest.mark.parametrize("count", [2, 6, 9])
def test_a_topic_that_was_made_again_is_refused(nights: Nights, count: int) -> None:
    """Spark notices only if it ends before the last offset; if it is longer, its first records are passed over."""
    nights.make_topic("G0fpkTIoSrm35pn5auABdQ")
    nights.came(6)
    nights.night()
    nights.make_topic("AAfpkTIoSrm35pn5auABdQ")
    nights.came(count)
    said = nights.night(code=1)
    assert "topic t was made again since the replay was planned: its id was G0fpkTIoSrm35pn5auABdQ" in said
    assert nights.offsets() == list(range(6))


def test_a_log_that_ends_before_the_last_offset_is_refused(nights: Nights) -> None:
    """librdkafka begins again at the log's start then, and rows come twice."""
    nights.night()
    shutil.rmtree(nights.data)
    Nights(nights.data.parent).came(2)
    assert "t-0 ends at offset 2, and was replayed up to 6" in nights.night(code=3)
    shutil.rmtree(nights.data / "t-0")
    Nights(nights.data.parent).came(2, partition=1)
    assert "t-0 is not there any more, and was replayed up to 6" in nights.night(code=3)


def test_retention_that_ran_ahead_of_the_job_is_refused(nights: Nights) -> None:
    """Mozilla's telemetry-streaming stood still one weekend."""
    nights.night()
    nights.came(20)
    start = nights.trim()
    said = nights.night(code=1)
    assert f"t-0: offsets from 6 on come next, and are deleted already: the log begins at {start}" in said
    assert nights.offsets() == list(range(6))


def test_retention_that_ran_ahead_may_be_allowed_and_is_told(nights: Nights) -> None:
    """failOnDataLoss=false says nothing of it in the result."""
    nights.night("--allow-loss")
    nights.came(20)
    start = nights.trim()
    lost = f"left out: t-0: offsets 6 to {start - 1} are gone, deleted since"
    assert lost in nights.night("--allow-loss", code=1)
    assert nights.offsets() == [*range(6), *range(start, 26)]
    nights.came(1)
    nights.night("--allow-loss")
    assert lost in nights.verify(code=1)


def test_two_nights_of_a_delta_table_both_arrive(nights: Nights) -> None:
    """Jobs whose txnAppId is their name: both count their batches from 0, and Delta skips those of the second."""
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    nights.kind = "delta"
    for count in 0, 3, 0, 2:
        nights.came(count)
        nights.night("--partition-by", "key")
    assert nights.offsets() == list(range(11))
    table = deltalake.DeltaTable(nights.out)
    assert table.version() == 2
    assert sorted(table.file_uris()) == sorted(map(str, nights.out.rglob("*.parquet")))
    for rows in read_by_all(nights.out, "parquet", ["offset"]):
        assert sorted(offset for (offset,) in rows) == list(range(11))
    assert "exact" in nights.verify()


def test_a_table_that_was_compacted_and_vacuumed_between_two_nights(nights: Nights) -> None:
    """OPTIMIZE each morning: the files of the last night are gone."""
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    nights.kind = "delta"
    nights.night()
    nights.came(3)
    nights.night()
    table = deltalake.DeltaTable(nights.out)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert "the log has nothing new" in nights.night()
    nights.came(2)
    nights.night()
    assert nights.offsets() == list(range(11))
    said = nights.verify(code=1)
    assert "is not in the Delta table any more: others rewrote its rows" in said
    assert "as the manifest says; 2 of 3 ranges were not compared with the log" in said


def test_a_vacuum_before_the_commit_takes_files_that_are_written_again(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs #3645: a full vacuum takes files that no commit names yet, and the commit named them all the same."""
    pytest.importorskip("deltalake", reason="the extra delta is not installed")
    nights.kind = "delta"
    nights.night()
    nights.came(3)

    def vacuum(*arguments: Any) -> None:
        run_here(*arguments)
        for path in nights.out.glob("*-00000000000000000006-*.parquet"):
            path.unlink()

    with monkeypatch.context() as patch:
        patch.setattr("cli.commands.spark_replay._run_with_spark", vacuum)
        nights.night(code=3)
    assert "written before, and gone" in nights.night()
    assert nights.offsets() == list(range(9))


COLUMNS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "another type": (pa.schema({"offset": pa.string(), "value": pa.binary()}), {}, "has the column offset of type"),
    "no such column": (pa.schema({"offset": pa.int64()}), {}, "has no column value"),
    "one that is needed": (
        pa.schema([("offset", pa.int64()), ("value", pa.binary()), pa.field("n", pa.int64(), nullable=False)]), {},
        "needs the column n, which the replay does not have",
    ),
    "other folders": (
        pa.schema({"offset": pa.int64(), "value": pa.binary(), "day": pa.string()}), {"partition_by": ["day"]},
        "is partitioned by day, and the replay by no column",
    ),
    "rules": (
        pa.schema({"offset": pa.int64(), "value": pa.binary()}), {},
        "has rules for rows, and a replay does not check them: delta.constraints.positive",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_whose_columns_do_not_fit_is_refused_before_anything_is_written(nights: Nights, name: str) -> None:
    """delta-rs's create_write_transaction takes files of any columns (#3934)."""
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    schema, options, said = COLUMNS[name]
    deltalake.DeltaTable.create(str(nights.out), schema=deltalake.Schema.from_arrow(schema), **options)
    if name == "rules":
        deltalake.DeltaTable(nights.out).alter.add_constraint({"positive": "offset > 0"})
    nights.kind = "delta"
    assert "is not empty" in nights.run("--columns", "offset,value", code=1)
    assert said in nights.night("--columns", "offset,value", code=1)
    assert [path.name for path in nights.out.iterdir()] == ["_delta_log"]  # so that other options may be tried


@pytest.mark.parametrize("commit", [b"garbage\n", b'{"protocol":{"minReaderVersion":9,"minWriterVersion":9}}\n'])
def test_a_table_that_the_package_does_not_read_is_told_of(nights: Nights, commit: bytes) -> None:
    """The errors of delta-rs are classes of its own, with stacks of Rust in their texts."""
    pytest.importorskip("deltalake", reason="the extra delta is not installed")
    nights.kind = "delta"
    nights.night()
    nights.came(3)
    before = nights.all_files()
    (path := nights.out / "_delta_log" / f"{1:020d}.json").write_bytes(commit)
    said = nights.night(code=3)
    assert f"the Delta table {nights.out} can't be used: " in said
    assert "unknown" not in said
    path.unlink()
    assert nights.all_files() == before
    nights.night()
    assert nights.offsets() == list(range(9))


def test_a_table_whose_log_is_gone_is_not_made_again(nights: Nights) -> None:
    """It would have the last night alone."""
    pytest.importorskip("deltalake", reason="the extra delta is not installed")
    nights.kind = "delta"
    nights.night()
    nights.came(3)
    log, away = nights.out / "_delta_log", nights.out.with_name("away")
    log.rename(away)
    assert "is no Delta table any more" in nights.night(code=3)
    assert "_delta_log is missing" in nights.verify(code=1)
    away.rename(log)
    nights.night()
    assert nights.offsets() == list(range(9))


def test_a_table_that_others_made_is_appended_to(nights: Nights) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    nights.kind = "delta"
    schema = {"offset": pa.int64(), "value": pa.binary(), "timestamp": pa.timestamp("us", "UTC"), "theirs": pa.string()}
    row = {"offset": -1, "value": b"theirs", "theirs": "x", "day": date(2013, 1, 15)}
    rows = pa.Table.from_pylist([row], pa.schema(schema | {"day": pa.date32()}))
    deltalake.write_deltalake(nights.out, rows, partition_by=["day"])
    options = ("--columns", "offset,value,timestamp", "--partition-by", "day")
    assert "warning" not in nights.night(*options)
    nights.came(1)
    nights.night(*options)
    assert sorted((row["offset"], row["value"], row["theirs"]) for row in nights.rows()) == [
        (-1, b"theirs", "x"), *((n, b"%d" % n, None) for n in range(7))
    ]  # fmt: skip
    nights.verify()


# --- a folder


@pytest.mark.parametrize("options", [[], ["--partition-by", "key,hour"]])
def test_each_night_adds_what_came_since(nights: Nights, options: list[str]) -> None:
    assert "6 records" in nights.night(*options)
    kept = {path: path.stat().st_mtime_ns for path in nights.out.rglob("*.parquet")}
    nights.came(4)
    assert "the log has 4 records more by now; --continue replays them" in nights.run(*options)
    assert "4 records" in nights.night(*options)
    nights.came(1)
    assert "1 records in 1 files" in nights.night(*options)
    assert nights.offsets() == list(range(11))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert sorted(path.name for path in (nights.state / "manifests").iterdir()) == ["1.json", "2.json"]
    assert f"{nights.out}: 11 records in" in nights.verify()
    said = nights.run(*options)
    assert "is done already" in said
    assert "warning" not in said


def test_the_proof_goes_through_all_nights(nights: Nights) -> None:
    for _ in range(3):
        nights.night()
        nights.came(1)
    for name in "manifests/1.json", "manifests/2.json", "manifest.json":
        manifest = json.loads((nights.state / name).read_bytes())
        file = nights.out / manifest["files"][0]["name"]
        content = file.read_bytes()
        file.write_bytes(content[:-1])
        assert f"{file.relative_to(nights.out)} is not what was written" in nights.verify(code=1)
        file.write_bytes(content)
    assert "exact" in nights.verify()
    (nights.state / "manifests" / "1.json").unlink()
    assert f"{nights.state / 'manifests' / '1.json'} is missing" in nights.verify(code=3)
    before = nights.all_files()
    assert "bring it back from a copy" in nights.night(code=3)
    assert nights.all_files() == before


def test_state_files_that_are_none(nights: Nights) -> None:
    """A pipe would be waited for."""
    nights.night()
    nights.came(1)
    plan, manifest = nights.state / "plan.json", nights.state / "manifest.json"
    content = plan.read_bytes()
    plan.unlink()
    os.mkfifo(plan)
    assert f"could not read {plan}: is a named pipe" in nights.night(code=3)
    plan.unlink()
    plan.write_bytes(content)
    fields = json.loads(manifest.read_bytes())
    del fields["id"]
    manifest.write_text(json.dumps(fields))
    assert f"{manifest} is damaged: KeyError: 'id'" in nights.night(code=3)


def test_an_empty_first_night(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.came(0)
    nights.night()
    before = nights.all_files()
    nights.night()
    assert nights.all_files() == before
    nights.came(2)
    nights.night()
    nights.came(1)
    nights.night()
    assert nights.offsets() == [0, 1, 2]
    nights.verify()


def test_nights_of_sparks_writer(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and receipts are no range's: a night's have its plan's id or number."""

    def write(replay: Replay, plan: ReplayPlan, *_: object) -> None:
        write_rounds(replay, FakeWriter(nights.out), plan, lambda _: None)

    monkeypatch.setattr("cli.commands.spark_replay._run_with_spark", write)
    for _ in range(3):
        nights.night("--transform", "json:loads")
        nights.came(2)
    receipts = sorted(path.name for path in nights.out.glob("_plog/receipts/*"))
    assert receipts == ["00000.json", "2-00000.json", "3-00000.json"]
    files = sorted(nights.out.glob("*.parquet"))
    assert len(files) == 3
    assert "2 records more" in nights.run("--transform", "json:loads")
    next(path for path in files if "-3-00000-" in path.name).unlink()
    assert "written before, and gone" in nights.run("--transform", "json:loads")
    assert sorted(nights.out.glob("*.parquet")) == files


def test_a_dry_run_shows_what_a_night_would_read(nights: Nights) -> None:
    def planned() -> list[tuple[str, int, int, int]]:
        shown = nights.night("--dry-run", "--output", "json")
        rows = json.loads(shown[shown.index("[\n" if "[\n" in shown else "[]") :])
        return [(row["partition"], row["start_offset"], row["end_offset"], row["records"]) for row in rows]

    assert planned() == [("t-0", 0, 6, 6)]
    assert not nights.out.exists()
    nights.night()
    assert planned() == []
    nights.came(3)
    nights.came(2, partition=1)
    assert planned() == [("t-0", 6, 9, 3), ("t-1", 0, 2, 2)]
    nothing = call_plog("spark-replay", "t", "--continue", "--dry-run", "--data-dir", str(nights.data))
    assert "--continue: of which folder?" in nothing.stderr.decode()


def test_a_group_is_committed_each_night(nights: Nights) -> None:
    def committed() -> list[int]:
        shown = call_plog("group", "describe", "g", "--output", "json", "--data-dir", str(nights.data))
        return [row["offset"] for row in json.loads(shown.stdout)] if shown.returncode == 0 else []

    for count in 0, 2, 0:
        nights.came(count)
        nights.night("--commit-group", "g")
    assert committed() == [8]
    assert nights.offsets() == list(range(8))


def test_another_request_does_not_go_on(nights: Nights, tmp_path: Path) -> None:
    nights.night()
    nights.came(2)
    for name, options in (
        ("from_", ["--from", "3"]),
        ("partition_by", ["--partition-by", "day"]),
        ("value_format", ["--value-format", "string"]),
        ("topics", ["u"]),
    ):
        assert f"holds another replay, of another {name}" in nights.night(*options, code=1)
    shutil.copytree(nights.data, tmp_path / "elsewhere")
    nights.data = tmp_path / "elsewhere"
    assert "holds another replay, of another source" in nights.night(code=1)
    said = nights.night("--latest-per-key", code=2)
    assert "--latest-per-key is of the whole topic: not with --continue" in said
    assert nights.offsets() == list(range(6))


def test_a_folder_goes_on_under_another_name(nights: Nights) -> None:
    """It has its plan with it: a slash at its end, a link to it, or a move say nothing of another replay."""
    nights.night()
    nights.came(2)
    nights.out = nights.out.rename(nights.out.with_name("moved"))
    nights.night()
    assert nights.offsets() == list(range(8))
    assert "from was 'beginning', not '3'" in nights.night("--from", "3", code=1)


def test_bad_records_are_not_among_the_others(nights: Nights) -> None:
    for where in nights.out, f"json:{nights.out}/bad", f"file://{nights.out}/bad":
        said = nights.night("--value-format", "json", "--dead-letter", str(where), code=2)
        assert "bad records can't be in the folder of the others" in said
    assert not nights.out.exists()


def test_a_folder_of_an_earlier_release_goes_on(nights: Nights) -> None:
    nights.run("--partition-by", "hour")
    for name in "plan.json", "manifest.json":
        path = nights.state / name
        fields = json.loads(path.read_bytes())
        for new in "ends", "number":
            del fields[new]
        for new in "compression", "file_size", "timezone":
            del fields["output"][new]
        fields |= {"version": 2}
        fields["output"] |= {"partition_by": "hour"}
        path.write_text(json.dumps(fields))
    assert "done already" in nights.run("--partition-by", "hour")
    nights.came(2)
    nights.came(1, partition=1)
    nights.night("--partition-by", "hour")
    assert (nights.offsets(), nights.offsets(1)) == (list(range(8)), [0])
    nights.verify()


# --- crashes


def test_a_night_that_was_not_done_is_done_first(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    nights.night()
    nights.came(5)
    with monkeypatch.context() as patch:
        patch.setattr("cli.commands.spark_replay._run_with_spark", fail)
        nights.night(code=3)
    nights.came(2)
    plan = Replay(PlainFolder(nights.out)).plan
    assert plan is not None
    assert {tuple(end) for end in plan.ends} == {("t", 0, 11)}
    assert "holds no finished replay" in nights.verify(code=3)
    said = nights.night()
    assert said.index("5 records") < said.index("2 records")
    assert nights.offsets() == list(range(13))
    nights.verify()


def test_two_nights_at_once_are_refused(nights: Nights) -> None:
    nights.night()
    nights.came(2)
    with Replay(PlainFolder(nights.out)).locked():
        assert "is being replayed into by" in nights.night(code=3)
    nights.night()
    assert nights.offsets() == list(range(8))


@contextmanager
def failing_from(number: int) -> Iterator[list[str]]:
    """In the block the machine is off from this operation on; yields what was done before."""
    done: list[str] = []

    def count(name: str, original: Any) -> Any:
        def operate(*args: Any) -> Any:
            if len(done) >= number:
                raise OSError(5, "Input/output error")
            done.append(name)
            return original(*args)

        return operate

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "sync_file", "sync_directory", "make_directory", "unlink", "link"):
            patch.setattr(FileSystem, name, count(name, getattr(FileSystem, name)))
        yield done


SAMPLES = int(os.environ.get("PLOG_CRASH_SAMPLES", "12"))
"""Of the operations that may be the last, spread over the run."""


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_each_operation_between_two_nights_may_be_the_last(nights: Nights, kind: str) -> None:
    """The next run finds everything once."""
    if kind == "delta":
        pytest.importorskip("deltalake", reason="the extra delta is not installed")
    nights.kind = kind
    nights.night()
    nights.came(3)
    clean = nights.out.with_name("clean")
    shutil.copytree(nights.out, clean)
    with failing_from(1 << 30) as done:
        nights.night()
    shutil.rmtree(nights.out)
    assert len(done) > 20
    for number in sorted({n * len(done) // SAMPLES for n in range(SAMPLES)}):
        shutil.copytree(clean, nights.out)
        where = ["--to", f"{kind}:{nights.out}", "--range-size", "700", "--data-dir", str(nights.data)]
        with failing_from(number):
            call_plog("spark-replay", "t", *where, "--continue")
        nights.night()
        assert nights.offsets() == list(range(9)), number
        assert [path.name for path in (nights.state / "manifests").iterdir()] == ["1.json"]
        shutil.rmtree(nights.out)
