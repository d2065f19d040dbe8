"""A whole Apache Kafka, broker and controller in one process, on a directory of its own or of plog's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from tests.support.class_archives import kafka_options
from tests.support.free_ports import free_ports
from tests.support.oracle import fetched_libs, run_tool
from tests.support.waiting import wait_for_exit, wait_until

_ASKED_S = 2.0
"""How long it is asked before it is asked again."""
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class KafkaServer:
    """Started by `with`, stopped cleanly at its end; `address` is what clients connect to.

    `java_options`: those of a test, which takes little memory and little time, unless others are given. `joins`: this
    is a broker alone, in the cluster of which that one is the controller. `properties` by Kafka's names, with _ for a
    dot.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        java_options: tuple[str, ...] = ("-Xmx512M", *kafka_options()),
        node_id: int = 1,
        joins: KafkaServer | None = None,
        **properties: str,
    ) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_name(data_dir.name + ".kafka.log")
        self._properties = data_dir.with_name(data_dir.name + ".properties")
        self._java_options = java_options
        self.node_id = node_id
        self._joins = joins
        directories = properties.get("log_dirs", "").split(",")
        self._more_directories = [Path(path) for path in directories if path and Path(path) != data_dir]
        self._settings = "".join(f"{name.replace('_', '.')}={value}\n" for name, value in properties.items())
        self._port, self._controller_port = free_ports()
        self.address = f"127.0.0.1:{self._port}"
        self.process: subprocess.Popen[bytes] | None = None

    def format(self) -> None:
        """Makes an empty directory one that Kafka starts on, and those of its `log.dirs` beside it."""
        for directory in (self.data_dir, *self._more_directories):
            directory.mkdir(parents=True)
        if self._joins is not None:  # a broker alone needs to know who it is, and nothing else
            for directory in (self.data_dir, *self._more_directories):
                text = f"version=1\ncluster.id={_CLUSTER_ID}\nnode.id={self.node_id}\n"
                (directory / "meta.properties").write_text(text)
            return
        self._write_properties()
        run_tool("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._properties)).check_returncode()

    def _write_properties(self) -> None:
        controller = self._joins or self
        listeners, roles = f"PLAINTEXT://{self.address}", "broker"
        if controller is self:
            listeners, roles = f"{listeners},CONTROLLER://127.0.0.1:{self._controller_port}", "broker,controller"
        self._properties.write_text(
            f"process.roles={roles}\nnode.id={self.node_id}\nlisteners={listeners}\n"
            f"controller.quorum.voters={controller.node_id}@127.0.0.1:{controller._controller_port}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            f"log.dirs={self.data_dir}\noffsets.topic.replication.factor=1\nlog.retention.ms=-1\n"
            "log.flush.start.offset.checkpoint.interval.ms=200\ngroup.initial.rebalance.delay.ms=0\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            "share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n"
            f"{self._settings}"
        )

    def start(self) -> None:
        """Returns when clients are answered."""
        self.start_without_waiting()
        self.wait_until_ready()

    def start_without_waiting(self) -> None:
        self._write_properties()
        command = ["java", *self._java_options, "-Djava.awt.headless=true", "-cp", f"{fetched_libs()}/*"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*command, "kafka.Kafka", str(self._properties)], stdout=log, stderr=log)

    def wait_until_ready(self) -> None:
        wait_until(self._answers, self.log.read_text)

    def _answers(self) -> bool:
        """Also for each partition: for a moment after a start Kafka is the leader of none."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
            client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            topics = client.list_topics(timeout=_ASKED_S).topics
            asked = {TopicPartition(n, p): OffsetSpec.latest() for n, topic in topics.items() for p in topic.partitions}
            for answer in client.list_offsets(asked, request_timeout=_ASKED_S).values() if asked else ():
                answer.result()
        except (KafkaException, OSError):
            return False
        return True

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self) -> None:
        """A clean stop."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            wait_for_exit(self.process)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> KafkaServer:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
