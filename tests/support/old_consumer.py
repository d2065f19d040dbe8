"""Members of groups that ZooKeeper keeps: Apache Kafka's own consumer, as of 1.1, and `plog consume --zookeeper`.

Tests that start the former carry `requires_kafka11` (`tests/support/oracle.py`).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.class_archives import quick_options
from tests.support.oracle import KAFKA11_VERSION, fetched_libs
from tests.support.server import PLOG
from tests.support.waiting import wait_for_exit, wait_until


class GroupReader:
    """A process that prints the values of a topic, as a member of a group; started by `with`, killed at its end."""

    def __init__(self, output: Path, command: Sequence[str | Path]) -> None:
        self.output = output
        self.messages = output.with_suffix(".messages")
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.output.open("wb") as output, self.messages.open("wb") as messages:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=messages)
        return self

    def values(self) -> list[str]:
        """What it has printed, in order."""
        return self.output.read_text().splitlines()

    def wait_for(self, *values: str) -> None:
        """Until it has printed all of these."""

        def are_there() -> bool:
            assert self.is_running, self.messages.read_text()
            return set(values) <= set(self.values())

        wait_until(are_there, lambda: f"{self.output.name}: {self.messages.read_text()}")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> int:
        """Stops it cleanly; gives its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> int:
        self._send(number)
        assert self._process is not None
        return wait_for_exit(self._process)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def __exit__(self, *exception: object) -> None:
        if self.is_running:
            self.kill()


class OldConsumer(GroupReader):
    """Kafka 1.1's console consumer, on its ZookeeperConsumerConnector. It begins at the beginning, so that the tool
    refuses a group that has committed something already.
    """

    def __init__(self, output: Path, zookeeper: str, group: str, topic: str) -> None:
        properties = {
            "group.id": group,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "1000",
            "rebalance.backoff.ms": "500",
            "rebalance.max.retries": "20",
            "zookeeper.connection.timeout.ms": "60000",
        }
        command = ["java", "-Xmx64M", *quick_options(), "-cp", f"{fetched_libs(KAFKA11_VERSION)}/*"]
        command += ["kafka.tools.ConsoleConsumer", "--zookeeper", zookeeper, "--topic", topic]
        for name, value in properties.items():
            command += ["--consumer-property", f"{name}={value}"]
        super().__init__(output, command)


class PlogConsumer(GroupReader):
    """`plog consume --zookeeper --group`."""

    def __init__(self, output: Path, zookeeper: str, group: str, topic: str) -> None:
        super().__init__(output, [PLOG, "consume", topic, "--zookeeper", zookeeper, "--group", group])
