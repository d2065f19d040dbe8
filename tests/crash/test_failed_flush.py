"""Flushes that fail under a real idempotent producer: nothing is there twice, nothing acknowledged is lost.

PLOG_FLUSH_ROUNDS=50 does so at length.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.socket_server import SocketServer
from core.cluster.partition.partition import Partition
from core.common.clock import SystemClock
from core.common.endpoint import Endpoint
from core.log.partition_log import AppendResult
from core.records.record_batch import RecordBatch
from tests.support.asking_disk import FailingSync
from tests.support.broker import SteeredNode, add_topic
from tests.support.logs import read_all
from tests.support.oracle import java_command, requires_kafka
from tests.support.waiting import FLUSH_SECONDS

ROUNDS = int(os.environ.get("PLOG_FLUSH_ROUNDS", "12"))


class ThreadedServer:
    """A broker on a socket in a thread of this process; `kill` leaves its directory as kill -9 does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._endpoint = Endpoint("127.0.0.1", 0)
        self.start(FailingSync())

    def start(self, disk: FailingSync) -> None:
        self.disk = disk
        self.broker = SteeredNode(self._directory, BrokerConfig(), clock=SystemClock(), filesystem=disk)
        if "t" not in self.broker.services.image.topics:
            add_topic(self.broker, flush_messages="1")
        is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(is_ready)))
        self._thread.start()
        is_ready.wait()

    async def _serve(self, is_ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        runtime = self.broker.runtime.follow(LoopRuntime(self._loop, self._directory))
        self._server = SocketServer(self.broker, runtime, self._endpoint)
        await self._server.start()
        self._endpoint = self._server.endpoint
        is_ready.set()
        await self._server.run()

    @property
    def address(self) -> str:
        return str(self._endpoint)

    def kill(self) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join()
        self.broker._lock.release()


Sequence = tuple[int, int, int]
"""Producer id, epoch and sequence."""


def note_arrivals(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, list[Sequence]]:
    """From now on: the records that come to be appended, each time that they do, and as what."""
    arrivals: dict[bytes, list[Sequence]] = defaultdict(list)
    append = Partition.append

    def note(partition: Partition, batch: RecordBatch, **options: Any) -> AppendResult:
        for number, record in enumerate(batch.records()):
            sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence + number
            arrivals[record.value or b""].append(sequence)
        return append(partition, batch, **options)

    monkeypatch.setattr(Partition, "append", note)
    return arrivals


@pytest.mark.first
def test_an_idempotent_producer_and_flushes_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = note_arrivals(monkeypatch)
    server = ThreadedServer(tmp_path)
    acknowledged: list[bytes] = []
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(message.value() or b"")
        else:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 2,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 20,
            "log_level": 0,
            "on_delivery": on_delivery,
        }
    )
    sent = []
    for round_number in range(ROUNDS):
        server.disk.good = round_number % 4
        while not server.disk.has_failed.wait(0.001):  # until the next flush that fails, whatever is shared by one
            assert len(sent) < 100_000
            sent.append(b"%d" % len(sent))
            producer.produce("t", sent[-1])
            producer.poll(0)
        if round_number % 3:
            for _ in range(3):
                sent.append(b"%d" % len(sent))
                producer.produce("t", sent[-1])
            producer.poll(0.02)  # some are refused by the partition that is offline
        server.kill()
        server.start(FailingSync())
        assert producer.flush(FLUSH_SECONDS) == 0
    server.kill()
    broker = SteeredNode(tmp_path, BrokerConfig(), clock=SystemClock())
    values = [record.value for record in read_all(broker.services.replicas.find("t", 0).log)]
    broker.close()
    assert not failed
    assert acknowledged == sent
    assert values == sent
    assert any(len(sequences) > 1 for sequences in arrivals.values())  # what was perhaps kept was sent again
    assert all(len(set(sequences)) == 1 for sequences in arrivals.values())


@requires_kafka
@pytest.mark.java
def test_javas_producer_and_flushes_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is idempotent unless told otherwise, and takes the error of a batch that is perhaps kept for one to retry."""
    arrivals = note_arrivals(monkeypatch)
    server = ThreadedServer(tmp_path)
    properties = ("batch.size=100", "retry.backoff.ms=20", "retry.backoff.max.ms=50", "reconnect.backoff.ms=20")
    options = [option for text in properties for option in ("--producer-property", text)]
    producer = subprocess.Popen(
        java_command(
            "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", server.address, "--topic", "t", *options
        ),
        stdin=subprocess.PIPE,
    )
    sent: list[bytes] = []
    try:
        assert producer.stdin is not None
        for _ in range(3):
            server.disk.good = 2
            while not server.disk.has_failed.wait(0.001):
                assert producer.poll() is None
                assert len(sent) < 100_000
                sent.append(b"%d" % len(sent))
                producer.stdin.write(sent[-1] + b"\n")
                producer.stdin.flush()
            server.kill()
            server.start(FailingSync())
        producer.stdin.close()
        assert producer.wait() == 0
    finally:
        producer.kill()
    server.kill()
    broker = SteeredNode(tmp_path, BrokerConfig(), clock=SystemClock())
    values = [record.value for record in read_all(broker.services.replicas.find("t", 0).log)]
    broker.close()
    assert values == sent
    assert any(len(sequences) > 1 for sequences in arrivals.values())
    assert all(len(set(sequences)) == 1 for sequences in arrivals.values())
