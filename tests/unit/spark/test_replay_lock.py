"""One replay at a time in a folder: who has the lock, who gets it, and what those that lost it can't do any more.

Owners that were killed are real processes; those of other machines are files that say so. tests/crash has real drivers.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.commands import spark_replay
from core.common.errors import AccessError, DirectoryLockedError, PlogError
from core.common.filesystem import FileSystem
from core.spark import range_output, replay_lock
from core.spark.lake_folder import PlainFolder
from core.spark.offset_range import OffsetRange
from core.spark.range_output import OutputFormat, Receipt, write_files
from core.spark.replay import Replay, write_range
from core.spark.replay_lock import LockOwner, ReplayLock, encode, is_running, process_start
from core.spark.replay_plan import ReplayPlan
from tests.support.for_each import for_each
from tests.support.logs import append, make_batch, open_log
from tests.support.server import call_plog
from tests.support.spark.placed_files import problems_of

PARQUET = OutputFormat("parquet", "binary", "binary")
ELSEWHERE = LockOwner("another-machine", 4711, 99, "2026-11-23T10:00:00Z")
SCHEMA = pa.schema([pa.field("n", pa.int64())])


@pytest.fixture
def plan(tmp_path: Path) -> ReplayPlan:
    """Two ranges of 30 records."""
    log = open_log(tmp_path / "log" / "t-0")
    for n in range(0, 60, 3):
        append(log, make_batch(*(b"%d" % (n + i) for i in range(3))))
    log.close()
    source = str(tmp_path / "log" / "t-0")
    ranges = (OffsetRange("t", 0, 0, 30, 1000, directory=source), OffsetRange("t", 0, 30, 60, 1000, directory=source))
    return ReplayPlan({"topics": ["t"]}, ranges, PARQUET)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def begun(out: Path, plan: ReplayPlan, *, take_over: bool = False) -> Replay:
    replay = Replay(PlainFolder(out))
    replay.lock.acquire(take_over=take_over)
    replay.freeze(plan.request, lambda: plan)
    return replay


def set_owner(out: Path, owner: LockOwner) -> None:
    """Whoever has the lock is this one."""
    (out / find_lock(out)[1]).write_bytes(encode(asdict(owner)))


def find_lock(out: Path) -> tuple[int, str, LockOwner | None]:
    return ReplayLock(PlainFolder(out)).find()


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def offsets(out: Path) -> list[int]:
    tables = [pq.read_table(path, partitioning=None) for path in sorted(out.glob("*.parquet"))]
    return sorted(offset for table in tables for offset in table["offset"].to_pylist())


_OWNER = """
import sys
from pathlib import Path
from core.spark.lake_folder import PlainFolder
from core.spark.replay_lock import ReplayLock
lock = ReplayLock(PlainFolder(Path(sys.argv[1])))
lock.acquire()
print(flush=True)
input()
"""


def killed_owner(out: Path, process: Callable[[subprocess.Popen[bytes]], None] = lambda _: None) -> int:
    """The number of a lock that a process took, which was killed then."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    root = str(Path(replay_lock.__file__).parents[2])
    with subprocess.Popen([sys.executable, "-c", _OWNER, str(out)], cwd=root, **pipes) as owner:  # type: ignore[call-overload]
        assert owner.stdout.readline() == b"\n"
        with pytest.raises(DirectoryLockedError, match=f"process {owner.pid} on "):
            ReplayLock(PlainFolder(out)).acquire()
        with pytest.raises(DirectoryLockedError, match=f"process {owner.pid} on "):
            ReplayLock(PlainFolder(out)).acquire(take_over=True)  # it lives, and can be stopped
        owner.kill()
        process(owner)
        return find_lock(out)[0]


# --- one at a time


def test_the_second_is_refused_and_writes_nothing(out: Path, plan: ReplayPlan) -> None:
    first = begun(out, plan)
    before = tree(out)
    with pytest.raises(DirectoryLockedError) as caught, Replay(PlainFolder(out)).locked():
        pass
    assert caught.value.exit_code == 3
    here = f"process {os.getpid()} on {socket.gethostname()}, which began at 20"
    assert caught.value.message.startswith(f"{out} is being replayed into by {here}")
    assert caught.value.hint == "wait for it to end, or stop it: the same command goes on from there"
    assert tree(out) == before
    first.lock.release()
    with Replay(PlainFolder(out)).locked() as former:
        assert former is None


def test_numbers_rise(out: Path) -> None:
    numbers = []
    for _ in range(3):
        replay = Replay(PlainFolder(out))
        with replay.locked():
            numbers.append(replay.lock.number)
            replay.lock.remove_former()
            assert find_lock(out)[0] == replay.lock.number
        number, _, owner = find_lock(out)
        assert number > numbers[-1]
        assert owner is not None
        assert owner.is_released
    assert numbers == sorted(set(numbers))
    assert len(list((out / "_plog").iterdir())) == 1


def test_what_writes_holds_the_lock(out: Path, plan: ReplayPlan) -> None:
    replay = begun(out, plan)
    replay.finish(write_range(replay.beside, plan.ranges[0], plan))
    replay.lock.release()
    before = tree(out)
    other = Replay(PlainFolder(out))
    for write in (
        lambda: other.finish(Receipt("u", (), 0)),
        lambda: other.reopen([]),
        lambda: other.note_commits("g", {}),
        lambda: replay.beside,
    ):
        with pytest.raises(AccessError, match="is not locked: a replay writes into its folder only while it holds"):
            write()
    assert tree(out) == before


def test_reading_takes_no_lock(out: Path, plan: ReplayPlan) -> None:
    replay = begun(out, plan)
    for range_ in plan.ranges:
        replay.finish(write_range(replay.beside, range_, plan))
    replay.commit(plan)
    replay.lock.release()
    before = tree(out)
    reader = Replay(PlainFolder(out))
    assert reader.find_plan(plan.request) == plan
    assert reader.is_done
    assert problems_of(reader, plan) == []
    assert reader.unknown_files(plan) == []
    assert tree(out) == before


def test_of_many_at_once_one_gets_it(out: Path) -> None:
    """Each that gets it finds nobody else in the folder; all get it once."""
    inside: list[int] = []
    most: list[int] = []
    refused = 0

    def take_turns() -> None:
        nonlocal refused
        turns = 0
        while turns < 5:
            replay = Replay(PlainFolder(out))
            try:
                with replay.locked():
                    inside.append(replay.lock.number)
                    most.append(len(inside))
                    replay.lock.ensure_held()
                    inside.remove(replay.lock.number)
                    turns += 1
            except DirectoryLockedError:
                refused += 1

    threads = [threading.Thread(target=take_turns) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(most) == 20
    assert refused > 0


def test_a_lock_that_comes_too_late(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its look at the number and its file, others had the folder, and one has it now."""
    slow = ReplayLock(PlainFolder(out))
    link = FileSystem.link
    others: list[ReplayLock] = []

    def wait(self: FileSystem, old: Path, new: Path) -> None:
        if not others:
            others.extend(ReplayLock(PlainFolder(out)) for _ in range(3))
            for other in others:
                other.acquire()
                other.remove_former()
                if other is not others[-1]:
                    other.release()
        link(self, old, new)

    monkeypatch.setattr(FileSystem, "link", wait)
    with pytest.raises(DirectoryLockedError, match="is being replayed into by"):
        slow.acquire()
    others[-1].ensure_held()
    assert [path.name for path in (out / "_plog").glob("lock-*")] == [f"lock-{others[-1].number}.json"]


# --- taking over


def test_the_lock_of_a_killed_process_goes_to_the_next(out: Path) -> None:
    number = killed_owner(out)
    replay = Replay(PlainFolder(out))
    with replay.locked() as former:
        assert former is not None
        assert former.host == socket.gethostname()
        assert replay.lock.number == number + 1
        lost = ReplayLock(PlainFolder(out))
        lost.number = number
        with pytest.raises(DirectoryLockedError, match=f"was taken over by process {os.getpid()} on "):
            lost.ensure_held()


def test_a_killed_process_that_nobody_waited_for(out: Path) -> None:
    """Its flock is free, and the system still lists it."""

    def look(process: subprocess.Popen[bytes]) -> None:
        while process_start(process.pid):
            pass
        assert Path(f"/proc/{process.pid}").exists()
        with Replay(PlainFolder(out)).locked() as former:
            assert former is not None
            assert former.pid == process.pid

    killed_owner(out, look)


@pytest.mark.parametrize(
    ("owner", "hint"),
    [
        (ELSEWHERE, "--take-over"),
        (replace(ELSEWHERE, host=socket.gethostname(), pid=os.getppid(), started=process_start(os.getppid())), "stop"),
    ],
)
def test_an_owner_that_may_live(out: Path, plan: ReplayPlan, owner: LockOwner, hint: str) -> None:
    """On another machine, or on one without flock, it is taken over by a word; on this machine only when it is gone."""
    lost = begun(out, plan)
    set_owner(out, owner)
    lost.folder.let_go()
    before = tree(out)
    with pytest.raises(DirectoryLockedError, match=f"process {owner.pid} on {owner.host}") as caught:
        Replay(PlainFolder(out)).lock.acquire()
    assert hint in (caught.value.hint or "")
    assert tree(out) == before
    if hint == "stop":
        with pytest.raises(DirectoryLockedError):
            Replay(PlainFolder(out)).lock.acquire(take_over=True)
        return
    replay = Replay(PlainFolder(out))
    with replay.locked(take_over=True) as former:
        assert former == owner
        replay.freeze(plan.request, lambda: plan)


@for_each("content", ["", "[]", "{}", '{"host": 1}'])
def test_an_owner_that_is_not_known(tmp_path: Path, content: str) -> None:
    out = tmp_path / "out"
    ReplayLock(PlainFolder(out)).acquire()
    (out / "_plog" / "lock-1.json").write_text(content)
    with pytest.raises(DirectoryLockedError, match="is being replayed into by an unknown process"):
        ReplayLock(PlainFolder(out)).acquire()
    with Replay(PlainFolder(out)).locked(take_over=True):
        pass


def test_where_there_is_no_flock(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file says who it is; whether a process of this machine lives is known still."""

    def no_locks(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    lock = ReplayLock(PlainFolder(out))
    lock.acquire()
    set_owner(out, replace(LockOwner.here(), pid=os.getppid(), started=process_start(os.getppid())))
    with pytest.raises(DirectoryLockedError, match=f"process {os.getppid()} on"):
        ReplayLock(PlainFolder(out)).acquire(take_over=True)
    set_owner(out, replace(LockOwner.here(), pid=os.getppid(), started=1))
    with pytest.raises(DirectoryLockedError) as caught:
        ReplayLock(PlainFolder(out)).acquire()
    assert "--take-over" in (caught.value.hint or "")
    with Replay(PlainFolder(out)).locked(take_over=True):
        pass


def test_a_folder_that_can_not_be_locked(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(AccessError, match=f"could not read {tmp_path / 'out'}.*: not a directory"):
        ReplayLock(PlainFolder(tmp_path / "out")).acquire()


def test_whether_a_process_runs() -> None:
    own = os.getpid()
    assert is_running(own, process_start(own)) is True
    assert is_running(own, process_start(own) + 1) is False
    assert is_running(1 << 22, 5) is False
    assert is_running(own, 0) is None


# --- what was taken over writes no more


@pytest.fixture
def lost(out: Path, plan: ReplayPlan) -> Replay:
    """A driver that was taken over, by `winner`, and does not know it."""
    lost = begun(out, plan)
    set_owner(out, ELSEWHERE)
    return lost


def batch(*numbers: int) -> Any:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def test_nothing_of_an_older_number(out: Path, plan: ReplayPlan, lost: Replay) -> None:
    old = pickle.loads(pickle.dumps(lost.beside))  # as a task has it
    written = write_range(old, plan.ranges[1], plan)  # the driver does not know it yet
    winner = begun(out, plan, take_over=True)
    before = tree(out)
    for write in (
        lambda: write_range(old, plan.ranges[0], plan),
        lambda: write_files(old, "part-00000", PARQUET, [batch(1)], SCHEMA),
        lambda: lost.folder.create("_plog/receipts/x.json", b""),
        lambda: lost.folder.replace("_plog/plan.json", b""),
        lambda: lost.folder.delete("_plog/plan.json"),
    ):
        with pytest.raises(AccessError, match="no such file or directory"):
            write()
    for write in (lambda: lost.note_commits("g", {}), lambda: lost.reopen([]), lambda: lost.finish(written)):
        with pytest.raises(
            DirectoryLockedError, match=f"{out} was taken over by process {os.getpid()} on .*: lock 1 is"
        ):
            write()
    assert tree(out) == before
    assert winner.missing(plan) == list(plan.ranges)
    for range_ in plan.ranges:
        winner.finish(write_range(winner.beside, range_, plan))
    winner.commit(plan)
    with pytest.raises(DirectoryLockedError):
        lost.commit(plan)
    lost.lock.release()
    winner.lock.ensure_held()
    assert offsets(out) == list(range(60))


@pytest.mark.parametrize("step", range(30))
def test_taken_over_at_every_step(
    out: Path, plan: ReplayPlan, lost: Replay, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task or its driver stands still before a rename of its own, or while it writes; somebody takes the folder over,
    and finishes it; the first goes on. Its file counts if its receipt was there before that, and not otherwise.
    """
    steps = 0
    winners: list[Replay] = []

    def finish() -> None:
        winner = begun(out, plan, take_over=True)
        winners.append(winner)
        for range_ in winner.missing(plan):
            winner.finish(write_range(winner.beside, range_, plan))
        winner.commit(plan)

    def stop() -> None:
        nonlocal steps
        if not winners:
            steps += 1
            if steps - 1 == step:
                finish()

    for kind, name in (
        (FileSystem, "rename"), (FileSystem, "link"), (FileSystem, "sync_directory"), (os, "fsync"),
        (pq.ParquetWriter, "write_batch"), (range_output._OpenFile, "close"),
    ):  # fmt: skip
        original = getattr(kind, name)

        def halting(*args: Any, original: Any = original) -> Any:
            stop()
            return original(*args)

        monkeypatch.setattr(kind, name, halting)
    try:
        lost.finish(write_range(lost.beside, plan.ranges[0], plan))
    except AccessError:
        assert winners
    if not winners:
        monkeypatch.undo()
        finish()
        assert step > 12
    assert offsets(out) == list(range(60))
    (winner,) = winners
    assert problems_of(winner, plan) == []
    receipt = winner.find_receipt(plan.ranges[0].name)
    assert receipt is not None
    assert receipt.records == 30
    names = sorted(path.name for path in (out / "_plog").glob("*-*"))
    assert names == [f"lock-{winner.lock.number}.json", f"writing-{winner.lock.number}"]


# --- files of others


def test_files_that_nobody_knows_are_told_and_stay(out: Path, plan: ReplayPlan) -> None:
    replay = begun(out, plan)
    replay.finish(write_range(replay.beside, plan.ranges[0], plan))
    strangers = ["mine.parquet", "notes.txt", "sub/part-00000.parquet", "part-00000.parquet", "day=1/x.parquet"]
    for name in strangers:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(b"mine")
    assert replay.unknown_files(plan) == sorted(strangers)
    replay.finish(write_range(replay.beside, plan.ranges[1], plan))
    replay.commit(plan)
    assert all((out / name).read_bytes() == b"mine" for name in strangers)
    assert replay.unknown_files(plan) == sorted(strangers)
    assert problems_of(replay, plan) == []


def test_another_replay_gets_nothing_written(out: Path, plan: ReplayPlan) -> None:
    begun(out, plan).lock.release()
    before = tree(out)
    with pytest.raises(PlogError, match="holds another replay"):
        Replay(PlainFolder(out)).find_plan({"topics": ["u"]})
    assert tree(out) == before


def test_killed_while_it_takes_over(out: Path, plan: ReplayPlan) -> None:
    """It had got its number, and not removed what was before."""
    begun(out, plan)
    number, _, owner = find_lock(out)
    assert owner is not None
    (out / "_plog" / f"lock-{number + 1}.json").write_bytes(encode(asdict(replace(owner, pid=1 << 22))))
    replay = Replay(PlainFolder(out))
    with replay.locked() as former:
        assert former is not None
        replay.freeze(plan.request, lambda: plan)
        names = sorted(path.name for path in (out / "_plog").glob("*-*"))
        assert names == [f"lock-{number + 2}.json", f"writing-{number + 2}"]


def test_a_receipt_whose_files_have_no_place_yet(out: Path, plan: ReplayPlan) -> None:
    """Its driver died after it; the next one brings them there, and the range is not written again."""
    lost = begun(out, plan)
    receipt = write_range(lost.beside, plan.ranges[0], plan)
    lost.folder.create(f"_plog/receipts/{receipt.unit}.json", msgspec.json.encode(receipt))
    lost.folder.let_go()
    set_owner(out, ELSEWHERE)
    winner = begun(out, plan, take_over=True)
    assert offsets(out) == list(range(30))
    assert winner.missing(plan) == [plan.ranges[1]]


def test_attempts_at_one_range(out: Path, plan: ReplayPlan) -> None:
    """The files of the one that Spark takes are there, and nothing of the other stays."""
    replay = begun(out, plan)
    first, second = (write_range(replay.beside, plan.ranges[0], plan) for _ in range(2))
    assert first.files[0].source != second.files[0].source
    replay.finish(second)
    assert offsets(out) == list(range(30))
    replay.lock.release()
    assert not list(out.rglob("*.tmp"))


# --- a folder that an earlier release locked


def test_a_lock_of_an_earlier_release(out: Path, plan: ReplayPlan) -> None:
    """Its file was in the folder of what it wrote; its receipts said nothing of where files were before."""
    folder = out / "_plog" / "lock-7"
    folder.mkdir(parents=True)
    owner = asdict(ELSEWHERE) | {"holds_flock": True}
    (folder / "owner.json").write_bytes(encode(owner))
    with pytest.raises(DirectoryLockedError, match=r"process 4711 on another-machine.* \(lock 7\)"):
        Replay(PlainFolder(out)).lock.acquire()
    replay = begun(out, plan, take_over=True)
    assert replay.lock.number == 8
    assert not folder.exists()
    replay.lock.release()
    (folder.with_name("lock-9.json")).unlink()
    folder.mkdir()
    (folder / "owner.json").write_bytes(encode(owner | {"is_released": True}))
    begun(out, plan)


# --- the command, with tasks that run here


class Command:
    """`plog spark-replay` of 30 records into `out`."""

    def __init__(self, directory: Path) -> None:
        self.out = directory / "out"
        self.kind = "parquet"
        self._data = directory / "data"
        log = open_log(self._data / "t-0")
        for n in range(0, 30, 3):
            append(log, make_batch(*(b"%d" % (n + i) for i in range(3))))
        log.close()

    def run(self, *options: str) -> tuple[int, str]:
        done = call_plog(
            "spark-replay", "t", "--to", f"{self.kind}:{self.out}", "--data-dir", str(self._data), *options
        )
        return done.returncode, done.stderr.decode()


def write_here(replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange], _: str) -> None:
    for range_ in todo:
        replay.finish(write_range(replay.beside, range_, plan))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setattr(spark_replay, "_run_with_spark", write_here)
    return Command(tmp_path)


@pytest.mark.longer
def test_the_command_refuses_and_takes_over(job: Command) -> None:
    ReplayLock(PlainFolder(job.out)).acquire()
    set_owner(job.out, ELSEWHERE)
    before = tree(job.out)
    code, said = job.run()
    assert code == 3
    owner = "process 4711 on another-machine, which began at 2026-11-23T10:00:00Z"
    assert said.splitlines() == [
        f"error: {job.out} is being replayed into by {owner} (lock 1)",
        "hint: if it is not there any more: the same command with --take-over goes on from there",
    ]
    assert job.run("--dry-run")[0] == 0
    assert tree(job.out) == before
    code, said = job.run("--take-over")
    assert code == 0, said
    assert said.startswith(f"taken over from {owner}: its replay goes on here, and it can't write there any more\n")
    assert offsets(job.out) == list(range(30))


@pytest.mark.longer
def test_the_command_tells_of_files_that_are_not_its_own(job: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(replay: Replay, *arguments: Any) -> None:
        write_here(replay, *arguments)
        for n in range(7):
            (replay.directory / f"mine-{n}.parquet").write_bytes(b"mine")

    monkeypatch.setattr(spark_replay, "_run_with_spark", write)
    warning = f"warning: {job.out} has files that are not of this replay, and stay: mine-0.parquet, "
    code, said = job.run()
    assert (code, said.splitlines()[-1][: len(warning)]) == (0, warning)
    assert said.endswith("mine-4.parquet and 2 more\n")
    before = tree(job.out)
    code, said = job.run()
    assert code == 0
    assert "is done already" in said
    assert warning in said
    assert tree(job.out) == before
    assert len(list(job.out.glob("mine-*"))) == 7


@pytest.mark.longer
def test_a_delta_table_is_locked_as_other_folders_are(job: Command) -> None:
    job.kind = "delta"
    lock = ReplayLock(PlainFolder(job.out))
    lock.acquire()
    assert job.run()[0] == 3
    lock.release()
    for _ in range(2):
        code, said = job.run()
        assert (code, "warning" in said) == (0, False)
    assert offsets(job.out) == list(range(30))


@pytest.mark.longer
def test_the_command_that_is_taken_over_says_so(job: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its tasks' failures are not what it says."""

    def lose(replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange], master: str) -> None:
        set_owner(job.out, ELSEWHERE)
        monkeypatch.setattr(spark_replay, "_run_with_spark", write_here)
        assert job.run("--take-over")[0] == 0
        with pytest.raises(DirectoryLockedError):
            write_here(replay, plan, todo, master)
        raise PlogError("the Spark job failed: something of a task")

    monkeypatch.setattr(spark_replay, "_run_with_spark", lose)
    code, said = job.run()
    assert code == 3
    assert "was taken over by another replay: lock 1 is not valid any more" in said
    assert offsets(job.out) == list(range(30))
    assert call_plog("spark-replay", "--verify", str(job.out)).returncode == 0


@pytest.mark.longer
def test_what_can_not_be_planned_leaves_no_folder(job: Command) -> None:
    assert job.run("--take-over", "--from-group", "nobody")[0] != 0
    assert job.run("--columns", "nothing")[0] == 2
    assert not job.out.exists()
