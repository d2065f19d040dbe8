"""A broker that is killed at every step of its transactions, and a checker with a model of its own.

A transaction is a number n: records n:0, n:1 .. to both partitions of `out`, and n + 1 as the group's offset. It is
committed or aborted; where the broker died before it said so, the group's offset says which, as it does to anybody who
copies from topic to topic. The model is the list of the numbers that must be there, in order.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from core.client.admin.admin import LATEST, Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer
from core.client.write.producer import RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings
from tests.support.server import Server
from tests.support.waiting import wait_until

OUT = [TopicPartition("out", 0), TopicPartition("out", 1)]
SOURCE = TopicPartition("source", 0)
GROUP = "g"
STEPS = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "marker __consumer_offsets-0",
    "marker out-0",
    "marker out-1",
    "CompleteCommit",
    "CompleteAbort",
)
_TRANSACTIONS_A_LIFE = 30
_TIMEOUT_MS = 3000
_TIMED_OUT = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
_SETTINGS = (
    "transaction.state.log.num.partitions=1",
    "offsets.topic.num.partitions=1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
)


@dataclass
class TransactionKills:
    directory: Path
    random: Random
    transaction_version: int
    settings: tuple[str, ...] = ()
    wanted: list[int] = field(default_factory=list)
    in_doubt: int | None = None
    number: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    left_to_time: int = 0
    """Lives after which nobody came back under the transactional id: its transaction had to time out."""

    def run(self, kills: int) -> None:
        transactional_id = "tx-0"
        for life in range(kills):
            step = STEPS[life % len(STEPS)]
            server = self._server(step, 1 if step == "Empty" else self.random.randint(1, 4))
            if self._lives_on(server, transactional_id):
                step = "at any moment"
                server.kill()
            assert server.process is not None
            server.process.wait()
            self.kills[step] = self.kills.get(step, 0) + 1
            if self.random.random() < 0.2:
                transactional_id = f"tx-{life + 1}"
                self.left_to_time += 1
        server = self._server("never", 1)
        server.start()
        self._check(server, f"tx-{kills}")
        server.stop()

    def _server(self, step: str, count: int) -> Server:
        options = [option for setting in (*_SETTINGS, *self.settings) for option in ("--set", setting)]
        return Server(
            self.directory / "data",
            *options,
            command=(sys.executable, "-m", "tests.support.step_server", step, str(count), "serve"),
        )

    # --- a life

    def _lives_on(self, server: Server, transactional_id: str) -> bool:
        """Whether it never came to its step: it may do so while it starts, and ends what an earlier life began."""
        try:
            server.start()
        except AssertionError:
            if server.process is None or server.process.poll() != -signal.SIGKILL:
                raise
            return False
        try:
            self._live(server, transactional_id)
        except ConnectionFailedError:  # it is dying
            return False
        return True

    def _live(self, server: Server, transactional_id: str) -> None:
        with self._producer(server, transactional_id) as producer:
            self._check(server, transactional_id)
            for _ in range(_TRANSACTIONS_A_LIFE):
                until = time.monotonic() + _TIMEOUT_MS / 1000
                try:
                    self._transact(producer)
                except KafkaError as error:  # on a slow machine, a transaction may have timed out
                    if error.code in _TIMED_OUT and time.monotonic() >= until:
                        return
                    raise

    @contextlib.contextmanager
    def _producer(self, server: Server, transactional_id: str) -> Iterator[TransactionalProducer]:
        self._ensure_topics(server)
        producer = TransactionalProducer(
            lambda: connect(server),
            transactional_id,
            timeout_ms=_TIMEOUT_MS,
            transaction_version=self.transaction_version,
            delivery_timeout_s=0.05,
        )
        with contextlib.closing(producer):
            yield producer

    def _ensure_topics(self, server: Server) -> None:
        with contextlib.closing(connect(server)) as client:
            for name, partitions in (("out", 2), ("source", 1)):
                with contextlib.suppress(KafkaError):  # it is there
                    Admin(client).create_topic(name, partitions=partitions)

    def _transact(self, producer: TransactionalProducer) -> None:
        number, self.number = self.number, self.number + 1
        is_commit = self.random.random() < 0.7
        self.in_doubt = number if is_commit else None
        for partition in OUT:
            producer.send(rows(partition.partition, number, self.random.randint(1, 3)), "out")
        producer.send_offsets(GROUP, {SOURCE: number + 1})
        producer.prepare()
        if is_commit:
            producer.commit()
            self.wanted.append(number)
        else:
            producer.abort()
        self.in_doubt = None

    # --- the proof

    def _check(self, server: Server, transactional_id: str) -> None:
        """Nothing is open any more, and what is there is what the model says."""
        with contextlib.closing(connect(server)) as client:
            ends = self._wait_until_nothing_is_open(client, transactional_id)
            offset = self._group_offset(client)
            if self.in_doubt is not None and offset == self.in_doubt + 1:
                self.wanted.append(self.in_doubt)
            self.in_doubt = None
            assert offset == (self.wanted[-1] + 1 if self.wanted else None)
            read = Consumer(client)
            starts = dict.fromkeys(OUT, 0)
            found: dict[TopicPartition, list[int]] = {partition: [] for partition in OUT}
            for partition, batches in read.read(starts, ends):
                for batch in batches:
                    found[partition] += [int((record.value or b"").split(b":")[0]) for record in batch.records()]
            for partition in OUT:
                assert list(dict.fromkeys(found[partition])) == self.wanted, partition

    def _wait_until_nothing_is_open(self, client: KafkaClient, transactional_id: str) -> dict[TopicPartition, int]:
        """The ends of `out`, once the last stable offset is there: at once where the id's next producer came."""
        wanted = dict.fromkeys(OUT, LATEST)
        if "__consumer_offsets" in client.refresh():  # from the first transaction on
            wanted[TopicPartition("__consumer_offsets", 0)] = LATEST
        stable: dict[TopicPartition, int] = {}

        def is_stable() -> bool:
            stable.update(Admin(client).list_offsets(wanted, isolation_level=READ_COMMITTED))
            return stable == Admin(client).list_offsets(wanted, isolation_level=READ_UNCOMMITTED)

        wait_until(is_stable, lambda: f"the last stable offset of {stable} is stuck")
        return {partition: stable[partition] for partition in OUT}

    def _group_offset(self, client: KafkaClient) -> int | None:
        found = GroupAdmin(client).offsets(GROUP).get(SOURCE) if self.number else None
        return None if found is None else found.offset


def connect(server: Server) -> KafkaClient:
    return KafkaClient(parse_bootstrap(server.address))


def rows(partition: int, number: int, count: int) -> RecordsToSend:
    values = ByteStrings.of_list([b"%d:%d" % (number, i) for i in range(count)])
    return RecordsToSend(
        partition, np.full(count, 1_700_000_000_000), None, values, None, np.arange(count, dtype=np.int64)
    )
