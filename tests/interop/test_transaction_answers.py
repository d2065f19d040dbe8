"""Each request of transactions, good and bad, put to a real Kafka and to `plog serve`: they answer the same."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.client.admin import Admin
from core.client.client_connection import ClientConnection
from core.client.coordinator import CoordinatorType, find_coordinator, patiently
from core.client.kafka_client import RETRIABLE, KafkaClient
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.protocol.api import Api
from core.protocol.schema.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from core.protocol.schema.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
from core.protocol.schema.describe_producers import DESCRIBE_PRODUCERS, DescribeProducersRequest, TopicRequest
from core.protocol.schema.describe_transactions import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from core.protocol.schema.end_txn import END_TXN, EndTxnRequest
from core.protocol.schema.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from core.protocol.schema.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.schema.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from core.protocol.schema.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from core.protocol.schema.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from core.protocol.schema.update_features import UPDATE_FEATURES, FeatureUpdateKey, UpdateFeaturesRequest
from core.protocol.schema.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.kafka_server import KafkaServer
from tests.support.logs import make_batch
from tests.support.oracle import requires_kafka
from tests.support.server import Server
from tests.support.waiting import machine_seconds, wait_until

pytestmark = [requires_kafka, pytest.mark.java]

PASSING = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, *RETRIABLE})
"""Kafka writes markers after its answer: it is asked again until they are there."""

_PATIENCE_S = 20
"""How many of the machine's seconds an error that goes away by itself may be answered."""


class Asked:
    """One server, one topic of two partitions and one transactional id of each test's own; `said` is what it
    answered, producer ids as the number of those that were met before.
    """

    def __init__(self, client: KafkaClient, name: str) -> None:
        self.client = client
        self.name = name
        self.said: list[Any] = []
        self.producer_id = -1
        self.epoch = -1
        self._ids: dict[int, int] = {-1: -1}
        Admin(client).create_topic(name, partitions=2)
        patiently(lambda: find_coordinator(client, CoordinatorType.TRANSACTION, name))
        patiently(lambda: find_coordinator(client, CoordinatorType.GROUP, name))

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

    def id_of(self, producer_id: int) -> int:
        return self._ids.setdefault(producer_id, len(self._ids) - 1)

    # --- requests; each adds what was answered to `said`

    def init(self, version: int = 5, *, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1)) -> None:
        request = InitProducerIdRequest(self.name, timeout_ms, *producer)
        answer = self.call(INIT_PRODUCER_ID, request, version, lambda a: a.error_code)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.said.append(("init", answer.error_code, self.id_of(answer.producer_id), answer.producer_epoch))

    def init_idempotent(self) -> None:
        answer = self.call(INIT_PRODUCER_ID, InitProducerIdRequest(None, 60_000), 5, lambda a: a.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.said.append(("init", answer.error_code, self.id_of(answer.producer_id), answer.producer_epoch))

    def add(
        self, version: int = 3, *, epoch: int | None = None, producer_id: int | None = None, **topics: list[int]
    ) -> None:
        pid = self.producer_id if producer_id is None else producer_id
        wanted = [AddPartitionsToTxnTopic(n.replace("t_", self.name), p) for n, p in (topics or {"t_": [0]}).items()]
        request = AddPartitionsToTxnRequest([], self.name, pid, self.epoch if epoch is None else epoch, wanted)

        def codes(answer: Any) -> list[int]:
            topics = answer.results_by_topic_v3_and_below
            return [p.partition_error_code for t in topics for p in t.results_by_partition]

        answer = self.call(ADD_PARTITIONS_TO_TXN, request, version, lambda a: codes(a)[0])
        self.said.append(("add", sorted(codes(answer))))

    def verify(self, partition: int) -> None:
        topics = [AddPartitionsToTxnTopic(self.name, [partition])]
        transaction = AddPartitionsToTxnTransaction(self.name, self.producer_id, self.epoch, True, topics)
        request = AddPartitionsToTxnRequest([transaction])

        def code(answer: Any) -> int:
            topics = answer.results_by_transaction[0].topic_results
            return int(topics[0].results_by_partition[0].partition_error_code)

        self.said.append(("verify", code(self.call(ADD_PARTITIONS_TO_TXN, request, 5, code))))

    def produce(
        self,
        sequence: int,
        version: int = 12,
        *,
        epoch: int | None = None,
        partition: int = 0,
        is_transactional: bool = True,
        transactional_id: str | None = "",
    ) -> None:
        batch = make_batch(
            b"v",
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        data = TopicProduceData(self.name, partition_data=[PartitionProduceData(partition, bytes(batch.buffer))])
        request = ProduceRequest(self.name if transactional_id == "" else transactional_id, -1, 10_000, [data])
        answer = self.call(PRODUCE, request, version, lambda a: a.responses[0].partition_responses[0].error_code)
        found = answer.responses[0].partition_responses[0]
        self.said.append(("produce", found.error_code, found.base_offset))

    def end(
        self,
        version: int = 5,
        *,
        is_commit: bool = True,
        epoch: int | None = None,
        producer_id: int | None = None,
        transactional_id: str | None = None,
    ) -> None:
        pid = self.producer_id if producer_id is None else producer_id
        name = self.name if transactional_id is None else transactional_id
        request = EndTxnRequest(name, pid, self.epoch if epoch is None else epoch, is_commit)
        answer = self.call(END_TXN, request, version, lambda a: a.error_code)
        if not answer.error_code and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.said.append(("end", answer.error_code, self.id_of(answer.producer_id), answer.producer_epoch))

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
            TxnOffsetCommitRequestTopic(topic or self.name, [TxnOffsetCommitRequestPartition(0, offset, -1, metadata)])
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

    def fetch_offset(self, *, is_stable: bool, until_stable: bool = False) -> None:
        topics = [OffsetFetchRequestTopics(self.name, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(self.name, topics=topics)], require_stable=is_stable
        )
        passing = {ErrorCode.UNSTABLE_OFFSET_COMMIT} if until_stable else set()
        deadline = machine_seconds() + _PATIENCE_S
        while True:
            answer = self.call(OFFSET_FETCH, request, 9, lambda a: a.groups[0].error_code)
            found = answer.groups[0].topics[0].partitions[0]
            if found.error_code not in passing or machine_seconds() > deadline:
                break
        self.said.append(("fetch offset", found.error_code, found.committed_offset))

    def mark(
        self, version: int, *, epoch: int, coordinator_epoch: int = 0, level: int = 0, topic: str | None = None
    ) -> None:
        topics = [WritableTxnMarkerTopic(topic or self.name, [0])]
        marker = WritableTxnMarker(self.producer_id, epoch, False, topics, coordinator_epoch, level)
        request = WriteTxnMarkersRequest([marker])
        answer = self.call(
            WRITE_TXN_MARKERS, request, version, lambda a: a.markers[0].topics[0].partitions[0].error_code
        )
        self.said.append(("mark", answer.markers[0].topics[0].partitions[0].error_code))

    def describe(self, *names: str) -> None:
        request = DescribeTransactionsRequest([name if name != "own" else self.name for name in names])
        for t in self.connection.call(DESCRIBE_TRANSACTIONS, request).transaction_states:
            topics = sorted((topic.topic.replace(self.name, "t"), sorted(topic.partitions)) for topic in t.topics)
            has_begun = t.transaction_start_time_ms > 0
            said = t.error_code, t.transaction_state, t.transaction_timeout_ms, has_begun, t.producer_epoch, topics
            self.said.append(("describe", *said))

    def list_all(self, *states: str, longer_than_ms: int = -1, pattern: str | None = None, is_own: bool = True) -> None:
        producer_ids = [self.producer_id] if is_own else [1 << 50]
        request = ListTransactionsRequest(list(states), producer_ids, longer_than_ms, pattern)
        answer = self.connection.call(LIST_TRANSACTIONS, request)
        found = [(t.transactional_id == self.name, t.transaction_state) for t in answer.transaction_states]
        self.said.append(("list", answer.error_code, sorted(answer.unknown_state_filters), found))

    def producers(self) -> None:
        """Once nothing is being ended."""
        request = DescribeTransactionsRequest([self.name])

        def is_ended() -> bool:
            (found,) = self.connection.call(DESCRIBE_TRANSACTIONS, request).transaction_states
            return not found.transaction_state.startswith("Prep")

        wait_until(is_ended, "nothing is being ended")
        answer = self.connection.call(
            DESCRIBE_PRODUCERS, DescribeProducersRequest([TopicRequest(self.name, [0, 1, 7])])
        )
        for partition in answer.topics[0].partitions:
            found = [
                (self.id_of(p.producer_id), p.producer_epoch, p.last_sequence, p.coordinator_epoch >= 0,
                 p.current_txn_start_offset)
                for p in partition.active_producers
            ]  # fmt: skip
            self.said.append(("producers", partition.error_code, sorted(found)))  # Kafka keeps them in a hash map

    def set_feature(self, name: str, level: int, version: int = 2, *, upgrade_type: int = 1) -> None:
        update = FeatureUpdateKey(name, level, upgrade_type=upgrade_type)
        answer = self.connection.call(UPDATE_FEATURES, UpdateFeaturesRequest(10_000, [update], True), at_most=version)
        self.said.append(("feature", answer.error_code, [result.error_code for result in answer.results]))


# --- the tellings


def ends_that_raise_the_epoch(asked: Asked) -> None:
    asked.init()
    asked.init()
    asked.produce(0, epoch=0)
    asked.produce(5)
    asked.produce(0)
    asked.produce(0)
    asked.produce(3)
    asked.produce(1, is_transactional=False)
    asked.produce(1, transactional_id=None)
    asked.produce(1)
    asked.describe("own")
    asked.producers()
    before = asked.epoch
    asked.end()
    asked.end(epoch=before)
    asked.end(epoch=before, is_commit=False)
    asked.end()
    asked.produce(2, epoch=before)
    asked.produce(2)
    asked.produce(0, partition=1)
    asked.end(is_commit=False)
    asked.end(is_commit=False)
    asked.end(epoch=0)
    asked.end(epoch=asked.epoch + 2)
    asked.end(producer_id=asked.producer_id + 1000)
    asked.end(transactional_id="nobody")
    asked.end(transactional_id="")
    asked.producers()
    asked.describe("own", "nobody", "")


def ends_as_of_old(asked: Asked) -> None:
    asked.init()
    asked.end(4)
    asked.end(4, is_commit=False)
    asked.produce(0, 11)
    asked.produce(0, 10)
    asked.add()
    asked.add(t_=[0, 1])
    asked.produce(0, 11)
    asked.produce(1, 9)
    asked.add(epoch=asked.epoch + 1)
    asked.add(1, epoch=asked.epoch + 1)
    asked.add(producer_id=asked.producer_id + 1000)
    asked.add(t_=[0, 9])
    asked.add(t_=[0], nothing=[0])
    asked.verify(0)
    asked.end(4)
    asked.end(4)
    asked.end(4, is_commit=False)
    asked.end(4, epoch=asked.epoch + 1)
    asked.end(1, epoch=asked.epoch + 1)
    asked.produce(2, 11)
    asked.verify(0)
    asked.add()
    asked.produce(2, 11)
    asked.produce(3, 11, partition=1)
    asked.end(4, is_commit=False)
    asked.producers()
    asked.describe("own")


def producers_that_come_and_go(asked: Asked) -> None:
    asked.init(timeout_ms=0)
    asked.init(timeout_ms=900_001)
    asked.init(producer=(5, -1))
    asked.init(producer=(5, 0))
    first = asked.producer_id, asked.epoch
    asked.init(producer=first)
    asked.init(producer=first)
    asked.init(producer=(first[0], first[1] + 7))
    asked.init(producer=(first[0] + 1000, 0))
    asked.init(3, producer=(first[0] + 1000, 0))
    asked.add()
    asked.produce(0, 11)
    asked.describe("own")
    asked.init()
    asked.init(producer=first)
    asked.end(4, epoch=first[1])
    asked.produce(0)
    asked.init(producer=(asked.producer_id, asked.epoch))
    asked.add()
    asked.init(producer=(asked.producer_id, asked.epoch))
    asked.add_offsets()
    asked.init(producer=(asked.producer_id, asked.epoch - 1))
    asked.init()
    asked.producers()


def sequences_without_transactions(asked: Asked) -> None:
    asked.init_idempotent()
    for sequence in (0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 2, 3, 7, 8, 100, 9):
        asked.produce(sequence, is_transactional=False, transactional_id=None)
    asked.produce(5, epoch=1, is_transactional=False, transactional_id=None)
    asked.produce(0, epoch=1, is_transactional=False, transactional_id=None)
    asked.produce(10, epoch=0, is_transactional=False, transactional_id=None)
    asked.produce(7, partition=1, is_transactional=False, transactional_id=None)
    asked.produce(0x7FFFFFFF, epoch=2, partition=1, is_transactional=False, transactional_id=None)
    asked.init_idempotent()
    asked.produce(0x7FFFFFFF, partition=1, is_transactional=False, transactional_id=None)
    asked.produce(0, partition=1, is_transactional=False, transactional_id=None)
    asked.produce(1, partition=1, is_transactional=False, transactional_id=None)
    asked.produce(0x7FFFFFFF, partition=1, is_transactional=False, transactional_id=None)
    asked.produce(-1, partition=1, is_transactional=False, transactional_id=None)
    asked.produce(2, partition=1, epoch=-1, is_transactional=False, transactional_id=None)
    asked.init()
    asked.producers()


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
    asked.fetch_offset(is_stable=True, until_stable=True)
    asked.commit_offset(7, 5)
    asked.describe("own")
    asked.end()
    asked.fetch_offset(is_stable=True, until_stable=True)
    asked.commit_offset(9, 5)
    asked.commit_offset(8, 5)
    asked.end(is_commit=False)
    asked.fetch_offset(is_stable=True, until_stable=True)
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
    asked.fetch_offset(is_stable=True, until_stable=True)


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
    asked.fetch_offset(is_stable=True, until_stable=True)


def markers_from_outside(asked: Asked) -> None:
    asked.init()
    asked.init()
    asked.produce(0)
    asked.mark(1, epoch=asked.epoch, topic="nothing")
    asked.mark(1, epoch=asked.epoch - 1)
    asked.mark(2, epoch=asked.epoch, level=2)
    asked.mark(2, epoch=asked.epoch, coordinator_epoch=5)
    asked.producers()
    asked.mark(2, epoch=asked.epoch, coordinator_epoch=4)
    asked.mark(1, epoch=asked.epoch, coordinator_epoch=5)


def reports(asked: Asked) -> None:
    asked.init()
    asked.list_all()
    asked.list_all("Ongoing")
    asked.produce(0)
    asked.list_all("Ongoing")
    asked.list_all("Ongoing", "Sleeping")
    asked.list_all(longer_than_ms=1_000_000)
    asked.list_all(pattern=asked.name)
    asked.list_all(pattern=asked.name[:-1])
    asked.list_all(pattern=asked.name[:-1] + ".")
    asked.list_all(pattern="[")
    asked.list_all(is_own=False)


def features(asked: Asked) -> None:
    asked.set_feature("transaction.version", 2)
    asked.set_feature("transaction.version", 1)
    asked.set_feature("transaction.version", 1, upgrade_type=2)
    asked.set_feature("transaction.version", 3)
    asked.set_feature("transaction.version", 3, 1)
    asked.set_feature("transaction.version", 2, 1)
    asked.set_feature("no.such.feature", 1)


@pytest.fixture(scope="module")
def servers(transactional_kafka: KafkaServer, transactional_plog: Server) -> Iterator[list[KafkaClient]]:
    clients = [KafkaClient(parse_bootstrap(server.address)) for server in (transactional_kafka, transactional_plog)]
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        yield clients


@pytest.mark.parametrize(
    "telling",
    [
        ends_that_raise_the_epoch,
        ends_as_of_old,
        producers_that_come_and_go,
        sequences_without_transactions,
        offsets_with_it,
        offsets_of_members,
        offsets_of_members_of_a_consumer_group,
        markers_from_outside,
        reports,
        features,
    ],
)
def test_plog_answers_as_kafka_does(servers: list[KafkaClient], telling: Callable[[Asked], None]) -> None:
    kafka, plog = (Asked(client, telling.__name__.replace("_", "-")) for client in servers)
    telling(kafka)
    telling(plog)
    assert plog.said == kafka.said
    assert len(kafka.said) > 4
