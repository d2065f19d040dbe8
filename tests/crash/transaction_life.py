"""Transactions on a recording disk whose logs are flushed with every record, and what must hold of what a power cut
leaves: each transaction whole or not there, the acknowledged ones as they were answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.broker.config.broker_config import BrokerConfig
from core.cluster.partition.partition import READ_COMMITTED, READ_UNCOMMITTED
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import PartitionReader
from core.protocol.message import Api
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.group_offsets import TXN_OFFSET_COMMIT
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.support.broker import Background, SteeredNode, Timers, add_topic, decode, send
from tests.support.disk import RecordingFileSystem
from tests.support.given_log_start import GivenLogStart
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.requests import transactional_commit_of

ID = "tx"
GROUP = "g"
_SETTINGS = {
    "log.flush.interval.messages": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


@dataclass
class TransactionLife:
    """Operations of the disk by number: `acknowledged[n]` when the end of transaction n was."""

    directory: Path
    version: int
    disk: RecordingFileSystem = field(default_factory=RecordingFileSystem)
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    begun: list[int] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._open()
        add_topic(self.broker, "out", 2)
        add_topic(self.broker, "source")
        for key_type, key in ((0, GROUP), (1, ID)):
            self._ask(FIND_COORDINATOR, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))

    def _open(self) -> None:
        config = BrokerConfig.parse(_SETTINGS)
        self.broker = SteeredNode(self.directory, config, clock=self.clock, filesystem=self.disk)
        self._flushing = Background()
        self.broker.runtime.use(run_flush=self._flushing)
        self.broker.runtime.schedule = self._timers = Timers()
        self.broker.services.transaction_log.load_all()
        self._sequences = [0, 0]

    def _ask(self, api: Api[Any, Any], request: Any, version: int | None = None) -> Any:
        """As of `tests.support.broker.ask`; flushes are done one after the other until there is an answer."""
        version = api.versions.last if version is None else version
        answer = send(self.broker, api, request, version)
        if isinstance(answer, Pending):
            answers: list[Any] = []
            answer.on_value = answers.append
            while not answers:
                self._go_on()
            answer = answers[0]
        return decode(api, answer, version)

    def _go_on(self) -> None:
        """The next flush is done; or begins, which waits a little for others to ask for it too."""
        if self._flushing.waiting:
            self._flushing.run()
        else:
            self._timers.fire(within_ms=100)

    def init(self) -> None:
        """A producer comes, after one that is gone or not."""
        answer = self._ask(INIT_PRODUCER_ID, InitProducerIdRequest(ID, 60_000))
        while answer.error_code:  # the one before is still being fenced
            self._go_on()
            answer = self._ask(INIT_PRODUCER_ID, InitProducerIdRequest(ID, 60_000))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences = [0, 0]

    def write(self, records: int = 1) -> None:
        """Of the next transaction, all but its end."""
        number = len(self.begun)
        self.begun.append(len(self.disk.operations))
        producer = self.producer_id, self.epoch
        if self.version == 1:
            topics = [AddPartitionsToTxnTopic("out", [0, 1])]
            self._ask(ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest([], ID, *producer, topics), 3)
        for partition in (0, 1):
            for _ in range(records):
                batch = make_batch(
                    b"%d" % number,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    base_sequence=self._sequences[partition],
                    is_transactional=True,
                )
                self._sequences[partition] += 1
                data = [TopicProduceData("out", partition_data=[PartitionProduceData(partition, bytes(batch.buffer))])]
                answer = self._ask(PRODUCE, ProduceRequest(ID, -1, 1000, data), 12 if self.version > 1 else 11)
                assert answer.responses[0].partition_responses[0].error_code == 0
        if self.version == 1:
            assert self._ask(ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(ID, *producer, GROUP)).error_code == 0
        commit = transactional_commit_of(ID, GROUP, producer, number + 1, "source")
        answer = self._ask(TXN_OFFSET_COMMIT, commit, 5 if self.version > 1 else 3)
        assert answer.topics[0].partitions[0].error_code == 0

    def end(self, *, is_commit: bool) -> None:
        number = len(self.begun) - 1
        if is_commit:
            self.commits.add(number)
        request = EndTxnRequest(ID, self.producer_id, self.epoch, is_commit)
        answer = self._ask(END_TXN, request, 5 if self.version > 1 else 4)
        assert answer.error_code == 0
        if self.version > 1:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences = [0, 0]
        self.acknowledged[number] = len(self.disk.operations)

    def die(self) -> None:
        self.broker._lock.release()

    def restart(self) -> None:
        self.die()
        self._open()

    # --- what must hold afterwards

    def check(self, directory: Path, at: int) -> None:
        broker = SteeredNode(directory, BrokerConfig.parse(_SETTINGS), clock=self.clock)
        try:
            broker.services.transaction_log.load_all()
            if broker.services.transaction_log.numbers:
                broker.services.transactions.init_producer_id(ID, 60_000)
            if "out" not in broker.services.image.topics or len(broker.services.image.topics["out"].partitions) < 2:
                assert not self.begun or at < self.begun[0]
                return
            seen = [self._committed(broker, directory, number) for number in (0, 1)]
            assert seen[0] == seen[1], "a transaction is torn"
            for number, when in self.acknowledged.items():
                if when <= at:
                    assert (number in seen[0]) == (number in self.commits), f"transaction {number}"
            assert set(seen[0]) <= self.commits, "what was never committed is there"
            assert seen[0] == sorted(seen[0])
            if "__consumer_offsets" in broker.services.image.topics:
                self._ensure_nothing_open(broker, "__consumer_offsets", 0)
                offsets = broker.services.groups.offsets(GROUP)
                found = offsets.get(TopicPartition("source", 0))
                assert (found.offset if found else 0) == (seen[0][-1] + 1 if seen[0] else 0)
        finally:
            broker.close()

    def _committed(self, broker: SteeredNode, directory: Path, number: int) -> list[int]:
        self._ensure_nothing_open(broker, "out", number)
        reader = PartitionReader(directory / f"out-{number}", evidence=GivenLogStart(directory / f"out-{number}", 0))
        values = [int(r.value or b"") for batch in reader.read(0, reader.end_offset) for r in batch.records()]
        return list(dict.fromkeys(values))

    def _ensure_nothing_open(self, broker: SteeredNode, topic: str, number: int) -> None:
        partition = broker.services.replicas.find(topic, number)
        assert partition.end_offset(READ_COMMITTED) == partition.end_offset(READ_UNCOMMITTED), "it is stuck"


def transaction_life(directory: Path, version: int) -> TransactionLife:
    life = TransactionLife(directory, version)
    life.init()
    for turn in range(4):
        life.write(1 + turn % 2)
        life.end(is_commit=turn != 1)
    life.write()
    life.init()  # and fences it
    life.write(2)
    life.end(is_commit=True)
    life.write()
    life.restart()
    life.init()
    life.write()
    life.end(is_commit=True)
    life.die()
    return life
