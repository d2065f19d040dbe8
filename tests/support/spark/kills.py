"""A replay whose processes are killed again and again, and the proof that it is exact in the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.server import PLOG, call_plog, run_plog
from tests.support.waiting import machine_seconds

RECORDS = {0: 6000, 1: 3000}
_LAST_WORK_S = 20
"""How many of the machine's seconds tasks without a driver go on before they are killed."""


def fill(data_dir: Path) -> None:
    """Topic t, two partitions, with transactions that were aborted."""
    for number, count in RECORDS.items():
        log = open_log(data_dir / f"t-{number}", segment_bytes=30_000, index_interval_bytes=300)
        for n in range(0, count, 10):
            append(log, make_batch(*(b"%d" % (n + i) for i in range(10)), timestamp=NOW + n, key=b"k%d" % (n % 70)))
            if n % 1000 == 0:
                fields = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
                append(log, make_batch(b"aborted", base_sequence=n // 1000, **fields))
                append_marker(log, 9, is_commit=False)
        log.close()


class KilledReplay:
    """`run_and_kill` until `is_done`, then `prove`."""

    def __init__(self, data_dir: Path, out: Path, random: Random) -> None:
        self.out = out
        self.kills = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._random = random
        self._command = ["spark-replay", "t", "--to", f"parquet:{out}", "--master", "local[2]", "--range-size", "2000",
                         "--data-dir", str(data_dir)]  # fmt: skip

    @property
    def receipts(self) -> int:
        return len(list(self.out.glob("_plog/receipts/*.json")))

    @property
    def is_done(self) -> bool:
        return (self.out / "_plog" / "manifest.json").exists()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [PLOG, *self._command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def _kill_when(self, is_time: Callable[[], bool]) -> None:
        """The driver and all that it started."""
        process = self._process = self._start()
        while process.poll() is None and not is_time():
            time.sleep(0.002)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            self.kills += 1
        process.wait()

    def kill_among_files(self) -> None:
        """After some more files."""
        enough = self.receipts + self._random.randint(1, 40)
        self._kill_when(lambda: self.receipts >= enough)

    def interrupt(self) -> None:
        """Ctrl-C, among the files: it ends at once, says how to go on, and nothing else."""
        process = subprocess.Popen([PLOG, *self._command], stderr=subprocess.PIPE, start_new_session=True)
        enough = self.receipts + 10  # a worker whose driver was killed may still be at its last
        while self.receipts < enough:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 130
        assert b"stopped; the same command again goes on from there" in said
        assert b"Traceback" not in said

    def kill_worker(self) -> None:
        """A Python process of a task, while the driver goes on: Spark does its task again. Then all of it, some files
        later.
        """
        before, enough = self.receipts, 0

        def is_time() -> bool:
            nonlocal enough
            if not enough and self.receipts > before and self._kill_worker():
                enough = self.receipts + self._random.randint(3, 10)
            return bool(enough) and self.receipts >= enough

        self._kill_when(is_time)
        assert enough

    def kill_before_manifest(self) -> None:
        """When the last file is written, and the manifest is not."""
        ranges = len(json.loads((self.out / "_plog" / "plan.json").read_bytes())["ranges"])
        self._kill_when(lambda: self.receipts == ranges)

    def _kill_worker(self) -> bool:
        assert self._process is not None
        for pid in _workers_of(self._process.pid)[-1:]:
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
            return True
        return False

    def kill_any_time(self) -> None:
        until = time.monotonic() + self._random.uniform(1, 8)
        self._kill_when(lambda: time.monotonic() > until)

    def kill_driver_while_tasks_stand_still(self) -> FrozenTasks:
        """Its JVM and its tasks, one at least in the middle of a file. It has won a race for the folder; another driver
        that comes while it is at work is refused, and leaves nothing there.
        """
        process = self._race()
        tasks = FrozenTasks(process.pid)
        enough = self.receipts + 5
        while self.receipts < enough or not self._is_writing(tasks):
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)  # it may be bringing files to their places
        before = sorted(self.out.rglob("*"))
        refused = call_plog(*self._command)
        assert refused.returncode == 3
        assert f"is being replayed into by process {process.pid} on {socket.gethostname()}".encode() in refused.stderr
        assert sorted(self.out.rglob("*")) == before
        process.kill()
        process.wait()
        self.kills += 1
        return tasks

    def _race(self) -> subprocess.Popen[bytes]:
        """Of two drivers that start at once, the one that is not refused."""
        drivers = [self._start(), self._start()]
        while all(driver.poll() is None for driver in drivers):
            time.sleep(0.002)
        (refused,) = (driver for driver in drivers if driver.poll() is not None)
        assert refused.returncode == 3
        drivers.remove(refused)
        return drivers[0]

    def _is_writing(self, tasks: FrozenTasks) -> bool:
        """Stops the tasks, and lets them go on if none of them has begun a file."""
        tasks.stop()
        if any("/_plog/writing-" in name for name in tasks.open_files()):
            return True
        tasks.go_on()
        return False

    def take_over(self, tasks: FrozenTasks) -> None:
        """The same command goes on at once, to the end, and what is left of the first changes nothing after that."""
        done = run_plog(*self._command)
        assert done.returncode == 0, done.stderr
        assert f"taken over from process {tasks.session} on ".encode() in done.stderr
        before = {path: path.stat().st_mtime_ns for path in self.out.rglob("*")}
        tasks.end()
        assert {path: path.stat().st_mtime_ns for path in self.out.rglob("*")} == before

    def prove(self) -> None:
        """One run more is enough, one after that does nothing, and every record is there once."""
        assert run_plog(*self._command).returncode == 0
        assert self.is_done
        before = {path: path.stat().st_mtime_ns for path in self.out.rglob("*") if path.is_file()}
        again = call_plog(*self._command)
        assert again.returncode == 0
        assert b"is done already" in again.stderr
        assert {path: path.stat().st_mtime_ns for path in self.out.rglob("*") if path.is_file()} == before
        verified = call_plog("spark-replay", "--verify", str(self.out))
        assert verified.returncode == 0, verified.stderr
        assert b"exact: as the manifest and the log say" in verified.stderr
        rows = pq.read_table(sorted(self.out.glob("*.parquet")), columns=["partition", "offset", "value"]).to_pylist()
        places = [(row["partition"], row["offset"]) for row in rows]
        assert len(set(places)) == len(places)
        for number, count in RECORDS.items():
            assert [int(r["value"]) for r in rows if r["partition"] == number] == list(range(count))
        assert not list(self.out.glob("_plog/**/*.tmp"))


class FrozenTasks:
    """What a driver started; `session` is its process id."""

    def __init__(self, session: int) -> None:
        self.session = session

    def stop(self) -> None:
        """Returns when all stand still."""
        while moving := [pid for pid in self._all() if _state(pid) not in ("T", "Z", "")]:
            for pid in moving:
                _signal(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in self._all():
            _signal(pid, signal.SIGCONT)

    def open_files(self) -> Iterator[str]:
        for pid in _workers_of(self.session):
            for path in Path(f"/proc/{pid}/fd").glob("*"):
                with contextlib.suppress(OSError):
                    yield str(path.readlink())

    def end(self) -> None:
        """First the tasks go on alone, up to where they want something of the JVM; then everything ends."""
        workers = _workers_of(self.session)
        for pid in workers:
            _signal(pid, signal.SIGCONT)
        quiet = 0
        while quiet < 20:
            quiet = quiet + 1 if all(_state(pid) in ("S", "Z", "") for pid in workers) else 0
            time.sleep(0.01)
        self.go_on()
        deadline = machine_seconds() + _LAST_WORK_S
        while self._all() and machine_seconds() < deadline:
            time.sleep(0.02)
        for pid in self._all():
            _signal(pid, signal.SIGKILL)

    def _all(self) -> list[int]:
        return [pid for pid in processes_of(self.session) if pid != self.session]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _state(pid: int) -> str:
    """As `ps` says it; "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _workers_of(session: int) -> list[int]:
    """Processes of a session that run tasks of PySpark's."""
    return sorted(pid for pid, command in processes_of(session).items() if b"pyspark.daemon" in command)


def processes_of(session: int) -> dict[int, bytes]:
    """Each with its command."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            of_session = int((path / "stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError):
            continue
        if of_session == session and command:
            found[int(path.name)] = command
    return found
