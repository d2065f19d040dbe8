"""A standalone cluster of Spark's on this machine: a master and its workers, from the pyspark wheel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from core.spark.java_home import java_environment
from tests.support.class_archives import spark_options
from tests.support.free_ports import free_ports
from tests.support.spark.kills import processes_of
from tests.support.waiting import wait_until


class StandaloneCluster:
    """Started by `with`; `url` is its master's. `has_hosts`: each worker has a host name of its own, without which
    Spark starts no speculative attempt. `python` runs the tasks of drivers that say so.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 1,
        cores: int = 2,
        has_hosts: bool = False,
        python: Path = Path(sys.executable),
    ) -> None:
        self._directory = directory
        self._workers = workers
        self._cores = cores
        self._has_hosts = has_hosts
        self._started = 0
        self.python = python
        self._log = directory / "cluster.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        self._directory.mkdir(parents=True, exist_ok=True)
        port, ui = free_ports()
        self.url = f"spark://127.0.0.1:{port}"
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui))
        self._wait_for("I have been elected leader")
        for _ in range(self._workers):
            self.start_worker()
        return self

    def start_worker(self, *, is_waited_for: bool = True) -> None:
        """One more, on the host of the one that was killed if there was such."""
        self._started += 1
        work = str(self._directory / f"work-{self._started}")
        host = f"127.0.0.{len(self._processes) if self._has_hosts else 1}"
        self._start("worker.Worker", "--host", host, "--cores", str(self._cores), "--memory", "1g",
                    "--webui-port", "0", "--work-dir", work, self.url)  # fmt: skip
        if is_waited_for:
            self._wait_for("Successfully registered with master", self._started)

    def processes_of_worker(self) -> Iterator[tuple[int, bytes]]:
        """Those of the last one and of its executors, each with its command."""
        yield from processes_of(self._processes[-1].pid).items()

    def kill_worker(self) -> None:
        """The last one, with the executor that it started."""
        worker = self._processes.pop()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def _start(self, name: str, *arguments: str) -> None:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        environment = {
            **os.environ,
            **java_environment(self._directory / "java"),
            "SPARK_NO_DAEMONIZE": "1",
            "JDK_JAVA_OPTIONS": " ".join(spark_options()),  # of the executors as well
        }
        with self._log.open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, *arguments],
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self._directory,
                    start_new_session=True,
                )
            )

    def _wait_for(self, text: str, times: int = 1) -> None:
        def is_there() -> bool:
            assert all(process.poll() is None for process in self._processes), self._log.read_text()
            return self._log.read_text().count(text) >= times

        wait_until(is_there, self._log.read_text)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
