"""The protocol of replays by Spark's writer: killed before and after each step, taken over, and proven. No Spark here;
tests/interop/test_spark_lake.py has real jobs.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from core.common.errors import AccessError, DirectoryLockedError, PlogError
from core.spark.lake_folder import PlainFolder, explain, find_untried
from core.spark.lake_replay import prove_round, write_rounds
from core.spark.offset_range import OffsetRange
from core.spark.partition_expression import parse_partitions
from core.spark.range_output import Gaps, Measure, OutputFormat
from core.spark.replay import Replay
from core.spark.replay_lock import LockOwner, encode
from core.spark.replay_plan import ReplayPlan
from tests.support.for_each import for_each

UUID = "51f64cdc-8152-4b31-98c3-d5dd6e64ce6b"
ROWS = {n: f"{n}\n" for n in range(96)}
"""The records of the log, one of each range."""


class Killed(BaseException):
    """The driver is gone: nothing runs after it."""


class FailingFolder(PlainFolder):
    """Dies at the step of a number, before or after the operation."""

    def __init__(self, directory: Path, step: int, *, is_after: bool = False) -> None:
        super().__init__(directory)
        self._left = step
        self._is_after = is_after
        self.is_dead = False

    def _step(self, operation: Any, *names: Any) -> Any:
        if self.is_dead:
            raise Killed
        self._left -= 1
        self.is_dead = self._left < 0
        if self.is_dead and not self._is_after:
            raise Killed
        found = operation(*names)
        if self.is_dead:
            self.let_go()
            raise Killed
        return found

    def create(self, name: str, content: bytes, **options: Any) -> bool:
        return bool(self._step(partial(super().create, **options), name, content))

    def replace(self, name: str, content: bytes) -> None:
        self._step(super().replace, name, content)

    def rename(self, source: str, target: str) -> bool:
        return bool(self._step(super().rename, source, target))

    def delete(self, name: str) -> None:
        self._step(super().delete, name)


class FakeWriter:
    """Has the methods of a `SparkWriter`. Writes a file of lines for each two ranges, in folders if there are any; the
    first `mixed` times another too.
    """

    def __init__(self, out: Path, *, mixed: int = 0, is_partitioned: bool = False) -> None:
        self._out = out
        self._mixed = mixed
        self._is_partitioned = is_partitioned
        self.written: list[str] = []
        self.plan_id = ""

    def write(self, ranges: Sequence[OffsetRange], name: str) -> Measure:
        self.written.append(name)
        for task in range(0, len(ranges), 2):
            folder = self._out / name / (f"k={task % 4}" if self._is_partitioned else "")
            folder.mkdir(parents=True, exist_ok=True)
            text = "".join(ROWS[range_.start_offset] for range_ in ranges[task : task + 2])
            (folder / f"part-{task // 2:05d}-{UUID}-c000.zstd.parquet").write_text(text)
        (self._out / name / "_SUCCESS").write_text("")
        (self._out / name / f".part-00000-{UUID}-c000.zstd.parquet.crc").write_text("")
        if self._mixed:
            self._mixed -= 1
            (self._out / name / f"part-00099-{UUID}-c000.zstd.parquet").write_text("0\n")
        return self.measure_log(ranges)

    def append(self, ranges: Sequence[OffsetRange], version: int, tag: str) -> Callable[[], Measure]:
        """As Delta: a version of an id that the log has is passed over, without a word."""
        log = self._out / "_delta_log"
        log.mkdir(exist_ok=True)
        commits = sorted(log.iterdir())
        if any(f'"appId": "{self.plan_id}", "version": {version}' in path.read_text() for path in commits):
            return lambda: pytest.fail("nothing was handed over")
        self.written.append(f"{len(commits)}")
        name = f"part-{len(commits)} {version}.parquet"
        (self._out / name).write_text("".join(ROWS[range_.start_offset] for range_ in ranges))
        add = {"path": quote(name), "size": (self._out / name).stat().st_size}
        txn = {"appId": self.plan_id, "version": version}
        lines = [{"commitInfo": {"userMetadata": tag}}, {"metaData": {}}, {"txn": txn}, {"add": add}]
        (log / f"{len(commits):020d}.json").write_text("\n".join(map(json.dumps, lines)))
        return lambda: self.measure_log(ranges)

    def measure(self, names: Sequence[str]) -> Measure:
        paths = [self._out / name for name in names]
        files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("part-*"))]
        return _measure([line for file in files for line in file.read_text().splitlines()])

    def measure_log(self, ranges: Sequence[OffsetRange]) -> Measure:
        return _measure([ROWS[range_.start_offset].strip() for range_ in ranges])

    def account(self, ranges: Sequence[OffsetRange]) -> tuple[int, Gaps, tuple[str, ...]]:
        return len(ranges), (), ()

    def write_dead_letters(self, ranges: Sequence[OffsetRange], unit: str) -> tuple[str, ...]:
        return ()


def _measure(lines: Sequence[str]) -> Measure:
    return Measure(len(lines), str(sum(int(line) * 7919 + 1 for line in lines)))


def plan_of(*, by: str = "", count: int = 96, rounds: int = 6, kind: str = "parquet") -> ReplayPlan:
    ranges = tuple(OffsetRange("t", 0, n, n + 1, 1) for n in range(count))
    output = OutputFormat(kind, "binary", "binary", parse_partitions([by]))
    return ReplayPlan({"x": 1}, ranges, output, rounds=rounds)


def finish(
    folder: PlainFolder, writer: FakeWriter, plan: ReplayPlan, *, take_over: bool = False
) -> tuple[Replay, ReplayPlan]:
    replay = Replay(folder)
    with replay.locked(take_over=take_over):
        plan = replay.freeze(plan.request, lambda: plan)
        if lost := replay.find_lost_files(plan):
            replay.reopen(lost)
        writer.plan_id = plan.id
        write_rounds(replay, writer, plan, lambda _: None)
        if not replay.is_done:
            replay.commit(plan)
    return replay, plan


def rows(out: Path) -> list[int]:
    """What a reader finds that passes over names with _ and ., as all do."""
    files = [p for p in out.rglob("*") if p.is_file() and not any(n[0] in "_." for n in p.relative_to(out).parts)]
    return sorted(int(line) for file in files for line in file.read_text().splitlines())


def is_exact(out: Path, count: int = 96) -> bool:
    return rows(out) == list(range(count))


def test_a_replay_from_plan_to_proof(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path)
    replay, plan = finish(PlainFolder(tmp_path), writer, plan_of())
    assert len(writer.written) == 6
    assert is_exact(tmp_path)
    assert sorted(path.name for path in (tmp_path / "_plog").iterdir()) == [
        "lock-2.json", "manifest.json", "plan.json", "receipts",
    ]  # fmt: skip
    assert (tmp_path / f"{plan.id[:8]}-00000-00000.zstd.parquet").read_text() == "0\n1\n"
    assert replay.totals(plan) == (96, 48)
    assert replay.manifest()["records"] == 96
    assert [
        problem for _, problem, _ in replay.verify(plan, replay.manifest(), partial(prove_round, writer, plan))
    ] == [""] * 6
    finish(PlainFolder(tmp_path), writer, plan_of())
    assert len(writer.written) == 6

    (tmp_path / f"{plan.id[:8]}-00000-00000.zstd.parquet").write_text("0\n2\n")
    (tmp_path / f"{plan.id[:8]}-00001-00000.zstd.parquet").unlink()
    (tmp_path / "stranger.parquet").write_text("7\n")
    assert [
        problem
        for _, problem, _ in replay.verify(plan, replay.manifest(), partial(prove_round, writer, plan))
        if problem
    ] == [
        "the files of round 00000 have other rows than were written",
        f"{plan.id[:8]}-00001-00000.zstd.parquet is missing",
    ]
    assert replay.unknown_files(plan) == ["stranger.parquet"]


@pytest.mark.parametrize("is_after", [False, True])
def test_rounds_of_a_delta_table_killed_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    """A commit that is there without its receipt is found by its id and version; the next plan has another id."""
    monkeypatch.setattr("core.spark.replay_lock.is_running", lambda *_: False)
    for step in range(20):
        out = tmp_path / f"out-{step}"
        folder, writer = FailingFolder(out, step, is_after=is_after), FakeWriter(out)
        with suppress(Killed):
            finish(folder, writer, plan_of(count=8, rounds=2, kind="delta"))
        replay, plan = finish(PlainFolder(out), writer, plan_of(count=8, rounds=2, kind="delta"))
        assert is_exact(out, 8), step
        assert writer.written == ["0", "1"]
        assert {
            problem for _, problem, _ in replay.verify(plan, replay.manifest(), partial(prove_round, writer, plan))
        } == {""}
        if not folder.is_dead:
            break
    assert 5 < step < 19
    with replay.locked():
        replay.go_on(replace(plan_of(count=4, rounds=1, kind="delta"), number=2))
    finish(PlainFolder(out), writer, plan)
    assert rows(out) == sorted([*range(8), *range(4)])
    (out / "part-0 0.parquet").unlink()
    found = [
        problem
        for _, problem, _ in replay.verify(
            plan, replay.earlier_manifests(replay.plan)[0], partial(prove_round, writer, plan)
        )
    ]  # type: ignore[arg-type]
    assert found == ["part-0 0.parquet is not in the Delta table any more: others rewrote its rows", ""]


@pytest.mark.parametrize("is_after", [False, pytest.param(True, marks=pytest.mark.longer)])
def test_killed_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool) -> None:
    """The dead driver's process is gone; the same command goes on, whatever step was the last one."""
    monkeypatch.setattr("core.spark.replay_lock.is_running", lambda *_: False)
    monkeypatch.setattr("core.spark.replay._AT_ONCE", 1)
    step, kills = 0, 0
    while True:
        out = tmp_path / f"out-{step}"
        folder = FailingFolder(out, step, is_after=is_after)
        writer = FakeWriter(out, is_partitioned=True)
        try:
            finish(folder, writer, plan_of(by="k", count=8, rounds=2))
        except Killed:
            kills += 1
        if not folder.is_dead:
            break
        replay, plan = finish(PlainFolder(out), writer, plan_of(by="k", count=8, rounds=2))
        assert is_exact(out, 8), step
        assert list((out / "_plog").glob("writing-*")) == []
        assert {
            problem for _, problem, _ in replay.verify(plan, replay.manifest(), partial(prove_round, writer, plan))
        } == {""}
        assert len(writer.written) <= 3  # only what was open is written again
        step += 1
    assert kills == step > 12
    assert is_exact(out, 8)


@pytest.mark.longer
def test_taken_over_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver stands still; another takes the folder over and ends the replay; the first goes on, and is refused."""
    monkeypatch.setattr(PlainFolder, "is_held", lambda *_: None)
    monkeypatch.setattr("core.spark.replay._AT_ONCE", 1)

    class Paused(FailingFolder):
        def _step(self, operation: Any, *names: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                finish(PlainFolder(out), FakeWriter(out), plan_of(count=8, rounds=2), take_over=True)
                self.is_dead = True
            return operation(*names)

    refused, step = 0, 1  # at step 0 the lock is not taken yet
    while True:
        out = tmp_path / f"out-{step}"
        folder = Paused(out, step)
        try:
            finish(folder, FakeWriter(out), plan_of(count=8, rounds=2))
        except (DirectoryLockedError, AccessError):
            refused += 1
        if not folder.is_dead:
            break
        assert is_exact(out, 8), step
        again, plan = finish(PlainFolder(out), FakeWriter(out), plan_of(count=8, rounds=2), take_over=True)
        assert is_exact(out, 8), step
        assert {
            problem
            for _, problem, _ in again.verify(plan, again.manifest(), partial(prove_round, FakeWriter(out), plan))
        } == {""}
        step += 1
    assert refused > step / 3


def test_a_round_whose_files_are_not_its_rows_is_written_again(tmp_path: Path) -> None:
    """As when attempts at a task mix their files, on a store whose renames are copies."""
    writer = FakeWriter(tmp_path, mixed=1)
    finish(PlainFolder(tmp_path), writer, plan_of())
    assert len(writer.written) == 7
    assert is_exact(tmp_path)
    with pytest.raises(PlogError, match="16 rows were written, and Spark reads 17 in the files"):
        finish(PlainFolder(tmp_path / "x"), FakeWriter(tmp_path / "x", mixed=2), plan_of())
    assert rows(tmp_path / "x") == []


def test_a_file_that_is_gone_is_written_again_and_one_that_was_changed_stays(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path)
    replay, plan = finish(PlainFolder(tmp_path), writer, plan_of())
    name = f"{plan.id[:8]}-00002-00003.zstd.parquet"
    (tmp_path / name).unlink()
    assert replay.find_lost_files(plan) == {"00002": [name]}
    with replay.locked():
        replay.reopen(["00002"])
        assert [range_.start_offset for range_ in replay.missing(plan)] == list(range(32, 48))
        write_rounds(replay, writer, plan, lambda _: None)
        replay.commit(plan)
    assert is_exact(tmp_path)
    (tmp_path / name).write_text("1")
    with pytest.raises(PlogError, match="has 1 bytes and was written with 6: it was changed since"):
        replay.find_lost_files(plan)


def test_the_ranges_of_rounds() -> None:
    assert {unit: len(ranges) for unit, ranges in plan_of().units.items()} == {f"{n:05d}": 16 for n in range(6)}
    assert list(map(len, plan_of(count=9, rounds=2).units.values())) == [4, 5]
    assert plan_of(count=0, rounds=1).units == {"00000": ()}


# --- the lock


def test_two_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Replay(PlainFolder(tmp_path)), Replay(PlainFolder(tmp_path))
    with first.locked():
        with pytest.raises(DirectoryLockedError, match="is being replayed into by process") as caught, second.locked():
            pass
        assert "wait for it to end" in (caught.value.hint or "")
        monkeypatch.setattr(PlainFolder, "is_held", lambda *_: None)
        with second.locked(take_over=True) as former:
            assert former is not None
            assert former.host == socket.gethostname()
            with pytest.raises(DirectoryLockedError, match="was taken over by process"):
                first.lock.ensure_held()
    assert max(path.name for path in (tmp_path / "_plog").glob("lock-*")) == "lock-3.json"


@for_each("content", [b"", b"{", encode(asdict(LockOwner("far", 1, 2, "")))])
def test_an_owner_that_may_live_elsewhere(tmp_path: Path, content: bytes) -> None:
    folder = PlainFolder(tmp_path)
    folder.replace("_plog/lock-7.json", content)
    replay = Replay(folder)
    with pytest.raises(DirectoryLockedError, match=r"\(lock 7\)") as caught, replay.locked():
        pass
    assert "--take-over" in (caught.value.hint or "")
    with replay.locked(take_over=True):
        replay.lock.ensure_held()


def test_a_store_that_can_not_keep_two_apart(tmp_path: Path) -> None:
    folder = PlainFolder(tmp_path)
    folder.is_exclusive = False
    with pytest.raises(AccessError, match="can't keep two replays apart") as caught, Replay(folder).locked():
        pass
    assert "--single-writer" in (caught.value.hint or "")
    with Replay(folder, single_writer=True).locked():
        pass


@for_each("is_there", [False, True])
def test_a_plan_that_is_withdrawn_leaves_the_folder_as_it_was(tmp_path: Path, is_there: bool) -> None:
    out = tmp_path / "out"
    if is_there:
        out.mkdir()
    replay = Replay(PlainFolder(out))
    with replay.locked():
        replay.withdraw(replay.freeze({"x": 1}, plan_of))
    assert out.exists() is is_there
    assert list(tmp_path.glob("out/*")) == []


# --- folders


def test_a_plain_folder_does_what_it_promises(tmp_path: Path) -> None:
    folder = PlainFolder(tmp_path / "a b")
    assert folder.url.endswith("/a b")
    assert (folder.read("x"), folder.names(), folder.sizes(), folder.rename("x", "y")) == (None, None, {}, False)
    assert folder.create("s/x", b"1")
    assert not folder.create("s/x", b"2")
    folder.replace("s/y", b"234")
    assert (folder.read("s/x"), folder.sizes(), folder.names("s")) == (b"1", {"s/x": 1, "s/y": 3}, ["x", "y"])
    assert folder.rename("s/y", "k=1/z")
    folder.delete("s")
    folder.delete("s")
    assert folder.sizes() == {"k=1/z": 3}
    with pytest.raises(AccessError, match="file exists"):
        folder.create("k=1/z/x", b"")


@for_each(
    "url, causes, said, hint",
    [
        ("s3a://b/x", "RuntimeException: ClassNotFound: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
         "Spark lacks the file system s3a", "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0"),
        ("s4://b/x", 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s4"',
         "Spark lacks the file system s4", "expected one of abfs, abfss, file, gs, hdfs, s3a"),
        ("s3a://b/x", "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://b/': Bucket does not exist",
         "there is no such bucket (UnknownStoreException: ", "make the bucket first"),
        ("s3://b/x", 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
         "Spark lacks the file system s3", "s3a is what Spark calls S3"),
        ("hdfs://h/x", "org.apache.hadoop.security.AccessControlException: Permission denied: user=a, access=WRITE",
         "permission denied", "must be allowed to list"),
        ("hdfs://h/x", "IllegalArgumentException: java.net.UnknownHostException: h", "the host is not known", "URL"),
        ("hdfs://h/x", "java.net.ConnectException: Call From a to h:1 failed\nConnectException: Connection refused",
         "no connection", "is the server there"),
        ("s3a://b/x", "java.nio.file.AccessDeniedException: b: NoAuthWithAWSException: No AWS Credentials provided",
         "the credentials are missing or refused", "access.key"),
        ("s3a://b/x", "java.io.IOException: odd", "could not use s3a://b/x: IOException: odd", ""),
    ],
)  # fmt: skip
def test_what_hadoop_refuses_is_told_in_words(url: str, causes: str, said: str, hint: str) -> None:
    """Java's own words, of Hadoop 3.5."""
    error = explain(url, causes, "3.5.0")
    assert said in error.message
    assert hint in (error.hint or "")


@for_each(
    "url, kind, pyspark, untried",
    [
        ("file:///lake", "json", "4.2.0", ""),
        ("hdfs://name/lake", "parquet", "4.3.0", ""),
        ("hdfs://name/lake", "parquet", "4.30.0", "hdfs"),
        ("abfss://a@b/lake", "orc", "4.3.0", "abfss"),
        ("file:///lake", "delta", "4.2.0", ""),
        ("file:///lake", "delta", "4.3.0", "delta:file"),
        ("S3A://bucket/lake", "delta", "4.2.0", "delta:s3a"),
    ],
)
def test_what_was_not_tried_is_named(url: str, kind: str, pyspark: str, untried: str) -> None:
    found = find_untried(url, kind, pyspark)
    assert (found or "").partition(": ")[0] == untried
