"""Replays on a cluster of two hosts whose executors don't have plog: a worker is killed, the broker is started again, a
task stands still. What a reader of librdkafka's gets of the log is in the output once.

`scripts/torture --spark-cluster` kills each of its processes, for each target, from plog and from Kafka.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

import pyarrow.dataset
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.support.kafka_server import KafkaServer
from tests.support.server import PLOG, Server, call_plog, run_plog
from tests.support.spark.standalone import StandaloneCluster
from tests.support.topic_reader import read_topic
from tests.support.waiting import FLUSH_SECONDS, wait_for_exit, wait_until

ROUNDS = int(os.environ.get("PLOG_TORTURE_SPARK_CLUSTER", "0"))
TARGETS = ("parquet", "json", "delta", "topic") if ROUNDS else ("parquet",)
SOURCES = ("plog", "kafka") if ROUNDS else ("plog",)
LOST = ("executor", "worker", "driver", "broker") if ROUNDS else ("worker", "broker")
"""A worker is lost with its executor. The longer tier kills drivers without a cluster, in `test_spark_replay.py`."""
PARTITIONS = 2
RECORDS = 6000
Rows = list[tuple[int, int, bytes]]
"""Partition, offset, value; of a topic as a target the offset is 0."""


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(ROUNDS or 1))
def test_a_replay_on_a_cluster_survives_the_loss_of_each_of_its_processes(
    tmp_path: Path, target: str, source: str, seed: int
) -> None:
    random = Random(seed)
    deeds = [*random.sample(LOST, len(LOST)), "driver", "task"]  # a new job, of which no host has failed a task
    with (
        served(source, tmp_path) as server,
        StandaloneCluster(
            tmp_path / "cluster", workers=2, cores=1, has_hosts=True, python=bare_python(tmp_path / "venv")
        ) as cluster,
    ):
        fill(server.address)
        replay = ClusterReplay(server, cluster, target, tmp_path / "out")
        for deed in deeds:
            replay.start()
            replay.wait_for_files(random.randint(2, 9))
            replay.lose(deed)
        replay.finish()
        expected = rows_of_log(server.address, "t", has_offsets=target != "topic")
        assert len(expected) == PARTITIONS * RECORDS
        assert replay.rows() == expected, deeds
        if target != "topic":
            verified = call_plog("spark-replay", "--verify", str(replay.out))
            assert verified.returncode == 0, verified.stderr.decode()


def served(source: str, tmp_path: Path) -> Server | KafkaServer:
    if source == "plog":
        return Server(tmp_path / "data")
    server = KafkaServer(tmp_path / "data")
    server.format()
    return server


def bare_python(folder: Path) -> Path:
    """A Python that finds every package that this one has, and not plog: a line of `.pth` can't bring in another."""
    (folder / "bin").mkdir(parents=True)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (packages / "of-this-one.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    found = subprocess.run([python, "-c", "import pyarrow, plog"], cwd=folder, capture_output=True, text=True)
    assert "No module named 'plog'" in found.stderr
    return python


def fill(address: str) -> None:
    """Topic t, in transactions, each fourth of which is aborted."""
    assert (
        run_plog("topic", "create", "t", "--partitions", str(PARTITIONS), "--bootstrap-server", address).returncode == 0
    )
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": "f", "batch.num.messages": 10, "linger.ms": 5}
    )
    producer.init_transactions(FLUSH_SECONDS)
    for turn in range(8):
        is_kept = turn % 4 != 3
        producer.begin_transaction()
        for n in range(RECORDS // 6 if is_kept else 100):
            for partition in range(PARTITIONS):
                producer.produce("t", b"%d-%d" % (turn, n), b"k%d" % (n % 70), partition)
            producer.poll(0)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(FLUSH_SECONDS)


def rows_of_log(address: str, topic: str, *, has_offsets: bool) -> Rows:
    messages = read_topic(address, topic, PARTITIONS)
    return sorted((m.partition() or 0, (m.offset() or 0) * has_offsets, m.value() or b"") for m in messages)


class ClusterReplay:
    """`start`, `wait_for_files` and a loss, again and again; then `finish`. Owned by one thread."""

    def __init__(self, server: Server | KafkaServer, cluster: StandaloneCluster, target: str, out: Path) -> None:
        self.out = out
        self._server = server
        self._cluster = cluster
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None
        self._log = out.with_suffix(".txt")
        to = f"topic:copy@{server.address}" if target == "topic" else f"{target}:{out}"
        self._command = [str(PLOG), "spark-replay", "t", "--to", to, "--bootstrap-server", server.address, "--master",
                         cluster.url, "--range-size", "2000", "--conf", "spark.speculation=true", "--conf",
                         "spark.speculation.quantile=0.1", "--conf", "spark.speculation.interval=50ms"]  # fmt: skip
        if target == "topic":
            created = run_plog("topic", "create", "copy", "--partitions", str(PARTITIONS), "--bootstrap-server",
                               server.address)  # fmt: skip
            assert created.returncode == 0, created.stderr

    def start(self) -> None:
        """Begins, or goes on with, the replay; does nothing while it runs."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                environment = {**os.environ, "PYSPARK_PYTHON": str(self._cluster.python)}
                self._process = subprocess.Popen(
                    self._command, stdout=log, stderr=log, env=environment, start_new_session=True
                )

    def wait_for_files(self, more: int) -> None:
        """Returns when so much more is written, or all."""
        enough = self._progress() + more
        wait_until(lambda: self._progress() >= enough or self._has_ended(), self._log.read_text)

    def _progress(self) -> int:
        """Counts files, or about the ranges that are in the target's log."""
        if self._target == "topic":
            return sum(path.stat().st_size for path in self._server.data_dir.rglob("copy-*/*.log")) // 2000
        return sum(len(files) for _, _, files in os.walk(self.out))

    def _has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def lose(self, deed: str) -> None:
        with self._log.open("a") as log:
            log.write(f"--- lose {deed}\n")
        getattr(self, f"lose_{deed}")()

    def lose_executor(self) -> None:
        self._kill(b"CoarseGrainedExecutorBackend")

    def lose_worker(self) -> None:
        self._cluster.kill_worker()
        self._cluster.start_worker(is_waited_for=False)

    def lose_driver(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def lose_broker(self) -> None:
        """It is there again at once, and its clients ask again."""
        if isinstance(self._server, Server):
            self._server.pin(self._server.address)
        self._server.kill()
        self._server.start()

    def lose_task(self) -> None:
        """It stands still; a second attempt, on the other host, ends the replay. Spark makes none on a host where an
        attempt has failed.
        """
        stopped = self._signal(b"pyspark.daemon", signal.SIGSTOP)
        try:
            wait_until(self._has_ended, self._log.read_text)
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _kill(self, name: bytes) -> None:
        self._signal(name, signal.SIGKILL)

    def _signal(self, name: bytes, number: int) -> Sequence[int]:
        """To the processes of the last worker's executor that have this in their command."""
        pids = [pid for pid, command in self._cluster.processes_of_worker() if name in command]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def finish(self) -> None:
        """The same command until it is done: after one more at the latest, as nothing is lost any more."""
        self.start()
        assert self._process is not None
        code = wait_for_exit(self._process)
        if code:
            self.start()
            code = wait_for_exit(self._process)
        assert code == 0, self._log.read_text()

    def rows(self) -> Rows:
        if self._target == "topic":
            return rows_of_log(self._server.address, "copy", has_offsets=False)
        names = ["partition", "offset", "value"]
        if self._target == "delta":
            table = DeltaTable(self.out).to_pyarrow_table(columns=names)
        else:
            files = [str(path) for path in self.out.glob(f"*.{self._target}*")]
            table = pyarrow.dataset.dataset(files, format=self._target).to_table(columns=names)
        rows = table.to_pylist()
        return sorted((row["partition"], row["offset"], _bytes(row["value"])) for row in rows)


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
