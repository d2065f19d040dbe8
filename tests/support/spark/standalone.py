"""A standalone cluster of Spark's on this machine: a master and a worker, from the pyspark wheel."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pyspark

from core.spark.java_home import java_environment
from tests.support.kafka_server import free_ports

_SECONDS = 60


class StandaloneCluster:
    """Started by `with`; `url` is its master's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "cluster.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        self._directory.mkdir(parents=True, exist_ok=True)
        port, ui = free_ports()
        self.url = f"spark://127.0.0.1:{port}"
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui))
        self._wait_for("I have been elected leader")
        self._start("worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "--webui-port", "0",
                    "--work-dir", str(self._directory / "work"), self.url)  # fmt: skip
        self._wait_for("Successfully registered with master")
        return self

    def _start(self, name: str, *arguments: str) -> None:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        environment = {**os.environ, **java_environment(self._directory / "java"), "SPARK_NO_DAEMONIZE": "1"}
        with self._log.open("ab") as log:
            self._processes.append(
                subprocess.Popen([*command, *arguments], stdout=log, stderr=log, env=environment, cwd=self._directory)
            )

    def _wait_for(self, text: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while text not in self._log.read_text():
            assert all(process.poll() is None for process in self._processes), self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
