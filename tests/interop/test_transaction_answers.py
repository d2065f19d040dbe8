"""Offsets in transactions, of members and others, and records whose sequences come again, put to a real Kafka and to
`plog serve`: they answer the same. So do the calls of Kafka's Java clients in tests/support/kafka/Calls.java.

test_answers compares all other requests with recorded answers.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.client.admin.admin import Admin
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import CoordinatorType, KafkaClient, find_coordinator
from core.client.net.retry import RETRIABLE, Retry
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.protocol.message import Api
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
from core.protocol.schema.group_offsets import (
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from core.protocol.schema.groups import (
    JOIN_GROUP,
    SYNC_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema.transaction_states import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
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
from tests.support.kafka_server import KafkaServer
from tests.support.logs import make_batch
from tests.support.oracle import CALLS, java_command, requires_kafka
from tests.support.requests import committed_of
from tests.support.server import Server
from tests.support.waiting import machine_seconds

pytestmark = [requires_kafka, pytest.mark.java]

PASSING = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, *RETRIABLE})
"""Kafka writes markers after its answer: it is asked again until they are there."""

NOT_SERVED = {
    "unregisterBroker, an unknown one": "UnsupportedVersionException",
    "share poll": "UnsupportedVersionException",
    "share describeShareGroups": "UnsupportedVersionException",
    "share listShareGroupOffsets": "UnsupportedVersionException",
    "share deleteShareGroups": "GroupIdNotFoundException",
}
"""Calls of APIs that docs/protocol.md names as not served, and what plog's clients are told."""

_PATIENCE_S = 20
"""How many of the machine's seconds an error that goes away by itself may be answered."""


class Asked:
    """One server, one topic and one transactional id of each test's own; `said` is what it answered."""

    def __init__(self, client: KafkaClient, name: str) -> None:
        self.client = client
        self.name = name
        self.said: list[Any] = []
        self.producer_id = -1
        self.epoch = -1
        Admin(client).create_topic(name, partitions=2)
        Retry().call(lambda: find_coordinator(client, CoordinatorType.TRANSACTION, name))
        Retry().call(lambda: find_coordinator(client, CoordinatorType.GROUP, name))

    @property
    def connection(self) -> ClientConnection:
        return self.client.any_connection()

    def call(self, api: Api[Any, Any], request: Any, version: int, code: Callable[[Any], int]) -> Any:
        """The answer, once it is none that goes away by itself."""
        deadline = machine_seconds() + _PATIENCE_S
        while True:
            answer = self.connection.call(api, request, at_most=version)
            if code(answer) not in PASSING or machine_seconds() > deadline:
                return answer
            time.sleep(0.02)

    # --- requests; each adds what was answered to `said`

    def init(self) -> None:
        answer = self.call(INIT_PRODUCER_ID, InitProducerIdRequest(self.name, 60_000), 5, lambda a: a.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.said.append(("init", answer.error_code, answer.producer_epoch))

    def end(self, version: int = 5, *, is_commit: bool = True) -> None:
        """Ends the transaction, and waits until its markers are written: Kafka writes them after its answer, and
        answers what comes before them by whether the log knows the transaction still.
        """
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, is_commit)
        answer = self.call(END_TXN, request, version, lambda a: a.error_code)
        if not answer.error_code and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.said.append(("end", answer.error_code, answer.producer_id == self.producer_id, answer.producer_epoch))
        deadline = machine_seconds() + _PATIENCE_S
        while self._state().startswith("Prepare") and machine_seconds() < deadline:
            time.sleep(0.02)

    def _state(self) -> str:
        """Where the coordinator has the transaction."""
        request = DescribeTransactionsRequest([self.name])
        (found,) = self.connection.call(DESCRIBE_TRANSACTIONS, request).transaction_states
        return found.transaction_state

    def add_partition(self) -> None:
        topics = [AddPartitionsToTxnTopic(self.name, [0])]
        request = AddPartitionsToTxnRequest([], self.name, self.producer_id, self.epoch, topics)
        answer = self.call(
            ADD_PARTITIONS_TO_TXN,
            request,
            0,
            lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        self.said.append(("add partition", result.partition_error_code))

    def produce(self, sequence: int, *values: bytes, version: int = 10) -> None:
        """What librdkafka sends at version 10."""
        batch = make_batch(
            *values,
            timestamp=time.time_ns() // 1_000_000,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        topic = TopicProduceData(self.name, partition_data=[PartitionProduceData(0, batch.buffer)])
        request = ProduceRequest(self.name, -1, 10_000, [topic])
        answer = self.call(PRODUCE, request, version, lambda a: a.responses[0].partition_responses[0].error_code)
        result = answer.responses[0].partition_responses[0]
        self.said.append(("produce", result.error_code, result.base_offset))

    def add_offsets(self, version: int = 4, *, epoch: int | None = None) -> None:
        epoch = self.epoch if epoch is None else epoch
        request = AddOffsetsToTxnRequest(self.name, self.producer_id, epoch, self.name)
        answer = self.call(ADD_OFFSETS_TO_TXN, request, version, lambda a: a.error_code)
        self.said.append(("add offsets", answer.error_code))

    def commit_offset(
        self,
        offset: int,
        version: int,
        *,
        topic: str | None = None,
        generation: int = -1,
        member: str = "",
        epoch: int | None = None,
        metadata: str = "",
    ) -> None:
        topics = [
            TxnOffsetCommitRequestTopic(
                topic or self.name, partitions=[TxnOffsetCommitRequestPartition(0, offset, -1, metadata)]
            )
        ]
        epoch = self.epoch if epoch is None else epoch
        request = TxnOffsetCommitRequest(
            self.name, self.name, self.producer_id, epoch, generation, member, None, topics
        )
        answer = self.call(TXN_OFFSET_COMMIT, request, version, lambda a: a.topics[0].partitions[0].error_code)
        self.said.append(("commit offset", answer.topics[0].partitions[0].error_code))

    def join(self, member: str = "") -> tuple[str, int]:
        """The only member of the group: its id, and the generation."""
        protocols = [JoinGroupRequestProtocol("range", b"")]
        while True:
            request = JoinGroupRequest(self.name, 30_000, 30_000, member, None, "consumer", protocols)
            answer = self.call(JOIN_GROUP, request, 5, lambda a: a.error_code)
            member = answer.member_id
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        shares = [SyncGroupRequestAssignment(member, b"")]
        sync = SyncGroupRequest(self.name, answer.generation_id, member, None, assignments=shares)
        synced = self.call(SYNC_GROUP, sync, 3, lambda a: a.error_code)
        self.said.append(("join", answer.error_code, synced.error_code))
        return member, answer.generation_id

    def heartbeat(self, member: str, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            self.name, member, epoch, rebalance_timeout_ms=30_000, subscribed_topic_names=[], topic_partitions=[]
        )
        answer = self.call(CONSUMER_GROUP_HEARTBEAT, request, 1, lambda a: a.error_code)
        self.said.append(("heartbeat", answer.error_code, answer.member_epoch))

    def fetch_offset(self, *, is_stable: bool) -> None:
        request = committed_of(self.name, self.name, is_stable=is_stable)
        answer = self.call(OFFSET_FETCH, request, 9, lambda a: a.groups[0].error_code)
        found = answer.groups[0].topics[0].partitions[0]
        self.said.append(("fetch offset", found.error_code, found.committed_offset))


# --- the tellings


def offsets_with_it(asked: Asked) -> None:
    asked.init()
    asked.commit_offset(3, 3)
    asked.commit_offset(3, 4)
    asked.add_offsets(epoch=9)
    asked.add_offsets(1, epoch=9)
    asked.add_offsets()
    asked.commit_offset(3, 3)
    asked.commit_offset(3, 3, topic="nothing")
    asked.commit_offset(3, 3, generation=1)
    asked.commit_offset(3, 3, member="nobody")
    asked.commit_offset(3, 3, epoch=9)
    asked.commit_offset(3, 3, metadata="x" * 5000)
    asked.fetch_offset(is_stable=True)
    asked.fetch_offset(is_stable=False)
    asked.end(4, is_commit=False)
    asked.fetch_offset(is_stable=True)
    asked.commit_offset(7, 5)
    asked.end()
    asked.fetch_offset(is_stable=True)
    asked.commit_offset(9, 5)
    asked.commit_offset(8, 5)
    asked.end(is_commit=False)
    asked.fetch_offset(is_stable=True)
    asked.commit_offset(9, 5, epoch=asked.epoch - 1)


def offsets_of_members(asked: Asked) -> None:
    """KIP-447: who is no member any more, or of a generation that is over, moves no offset."""
    asked.init()
    member, generation = asked.join()
    asked.commit_offset(1, 5, generation=generation, member=member)
    asked.commit_offset(1, 5, generation=generation + 1, member=member)
    asked.commit_offset(1, 5, generation=generation - 1, member=member)
    asked.commit_offset(1, 5, generation=generation, member="nobody")
    asked.commit_offset(1, 5, generation=generation)
    asked.commit_offset(1, 5, member=member)
    asked.commit_offset(1, 5)
    again, newer = asked.join(member)
    asked.commit_offset(2, 5, generation=generation, member=member)
    asked.commit_offset(2, 5, generation=newer, member=again)
    asked.end()
    asked.fetch_offset(is_stable=True)


def offsets_of_members_of_a_consumer_group(asked: Asked) -> None:
    asked.init()
    asked.heartbeat("me", 0)
    asked.commit_offset(1, 5, generation=1, member="me")
    asked.commit_offset(1, 5, generation=7, member="me")
    asked.commit_offset(1, 5, generation=0, member="me")
    asked.commit_offset(1, 5, generation=1, member="nobody")
    asked.commit_offset(1, 5, generation=1)
    asked.commit_offset(1, 5, member="me")
    asked.commit_offset(1, 5)
    asked.end()
    asked.fetch_offset(is_stable=True)


def sequences_again(asked: Asked) -> None:
    """librdkafka aborts a record that was sent and not answered, and gives its number to another one, in the same
    epoch: at versions of EndTxn before 5 no epoch follows, and a marker takes no number back.
    """
    asked.init()
    asked.add_partition()
    asked.produce(0, b"aborted")
    asked.end(1, is_commit=False)
    asked.add_partition()
    asked.produce(0, b"another")
    asked.produce(0, b"another", b"more")
    asked.produce(1, b"next")
    asked.end(1)
    asked.add_partition()
    asked.produce(0, b"the first again")
    asked.produce(1, b"of the last transaction")
    asked.produce(2, b"new")
    asked.end(1, is_commit=False)
    asked.produce(3, b"by version 2", version=12)
    asked.end(is_commit=False)
    asked.produce(3, b"number of the epoch before", version=12)
    asked.produce(0, b"first of its epoch", version=12)
    asked.end()


@pytest.fixture(scope="module")
def servers(transactional_kafka: KafkaServer, transactional_plog: Server) -> Iterator[list[KafkaClient]]:
    clients = [KafkaClient(parse_bootstrap(server.address)) for server in (transactional_kafka, transactional_plog)]
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        yield clients


@pytest.mark.parametrize(
    "telling", [offsets_with_it, offsets_of_members, offsets_of_members_of_a_consumer_group, sequences_again]
)
def test_plog_answers_as_kafka_does(servers: list[KafkaClient], telling: Callable[[Asked], None]) -> None:
    kafka, plog = (Asked(client, telling.__name__.replace("_", "-")) for client in servers)
    telling(kafka)
    telling(plog)
    assert plog.said == kafka.said
    assert len(kafka.said) > 4


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a compiler of Java")
def test_calls_of_javas_clients_come_to_the_same(transactional_kafka: KafkaServer, transactional_plog: Server) -> None:
    """Of admin, producer, consumer and share consumer."""
    calling = [
        subprocess.Popen(java_command(str(CALLS), server.address), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for server in (transactional_kafka, transactional_plog)
    ]
    said = [process.communicate() for process in calling]
    kafka, plog = (dict(line.split(": ", 1) for line in out.decode().splitlines()) for out, _ in said)
    assert len(kafka) > 70, said[0][1].decode()
    assert plog == {**kafka, **NOT_SERVED}
    assert not set(NOT_SERVED.items()) & set(kafka.items())
