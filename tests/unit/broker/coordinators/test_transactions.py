"""Transactions as clients see them, with the logs behind them: what is visible when, what waits, what is refused."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path

import pytest

from core.cluster.image.metadata_log import MetadataLog
from core.cluster.partition.partition import READ_COMMITTED
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.cluster_nodes import UPDATE_FEATURES, FeatureUpdateKey, UpdateFeaturesRequest
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema.transaction_states import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from core.protocol.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support.broker import (
    Background,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    ask_later,
    delete_topic,
    fetch,
    open_broker,
    produce,
    send,
    values_of,
)
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.requests import commit_of, committed_of, transactional_commit_of

ID, GROUP = "x", "g"
SETTINGS = {"transaction_state_log_num_partitions": "1", "offsets_topic_num_partitions": "1"}


@pytest.fixture
def broker(tmp_path: Path) -> SteeredNode:
    """With a topic `t` of two partitions."""
    broker = open_broker(tmp_path / "data", ManualClock(NOW), **SETTINGS)
    add_topic(broker, partitions=2)
    for key_type, key in ((0, GROUP), (1, ID)):
        ask(broker, FIND_COORDINATOR, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
    return broker


def reopened(broker: SteeredNode, *, is_clean: bool = False) -> SteeredNode:
    if is_clean:
        broker.close()
    else:
        broker._lock.release()
    return open_broker(broker.directory, ManualClock(NOW), **SETTINGS)


class Client:
    """A transactional producer that says each request by itself."""

    def __init__(self, broker: SteeredNode, name: str = ID, begun: InitProducerIdResponse | None = None) -> None:
        self.broker = broker
        self.name = name
        answer = begun or ask(broker, INIT_PRODUCER_ID, InitProducerIdRequest(name, 60_000))
        assert answer.error_code == 0
        self.producer = answer.producer_id, answer.producer_epoch
        self._sequences: dict[int, int] = {}

    def produce_request(self, value: bytes, partition: int, sequence: int | None) -> ProduceRequest:
        if sequence is None:
            sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        producer_id, epoch = self.producer
        batch = make_batch(
            value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(partition, bytes(batch.buffer))])]
        return ProduceRequest(self.name, -1, 1000, data)

    def produce(self, value: bytes, partition: int = 0, version: int = 12, sequence: int | None = None) -> ErrorCode:
        answer = ask(self.broker, PRODUCE, self.produce_request(value, partition, sequence), version)
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    def add(self, *partitions: int) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic("t", list(partitions))]
        answer = ask(
            self.broker, ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest([], self.name, *self.producer, topics), 3
        )
        return ErrorCode.of(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def offset_request(self, offset: int, group: str = GROUP) -> TxnOffsetCommitRequest:
        return transactional_commit_of(self.name, group, self.producer, offset)

    def commit_offset(self, offset: int, version: int = 5, group: str = GROUP) -> ErrorCode:
        answer = ask(self.broker, TXN_OFFSET_COMMIT, self.offset_request(offset, group), version)
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    def end(self, *, is_commit: bool = True, version: int = 5) -> ErrorCode:
        answer = ask(self.broker, END_TXN, EndTxnRequest(self.name, *self.producer, is_commit), version)
        if not answer.error_code and version > 4:
            self.producer = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return ErrorCode.of(answer.error_code)


def test_offsets_of_topics_by_id(broker: SteeredNode) -> None:
    """KIP-1319: and the errors of members and groups that are not there are told from an old generation."""
    client = Client(broker)
    request = client.offset_request(7)
    (topic,) = request.topics
    topic.name, topic.topic_id = "", broker.services.image.topics["t"].topic_id
    topic.partitions.append(TxnOffsetCommitRequestPartition(99, 7))
    unknown = TxnOffsetCommitRequestTopic(topic_id=bytes(15) + b"9", partitions=[TxnOffsetCommitRequestPartition(0, 7)])
    request.topics.append(unknown)
    answer = ask(broker, TXN_OFFSET_COMMIT, request, 6)
    assert [(one.topic_id, [p.error_code for p in one.partitions]) for one in answer.topics] == [
        (topic.topic_id, [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (unknown.topic_id, [ErrorCode.UNKNOWN_TOPIC_ID]),
    ]
    assert client.end() == 0
    assert offset_of(broker) == (7, 0)
    by_name = client.offset_request(8, "new")
    by_id = client.offset_request(8, "new")
    by_id.topics[0].topic_id = topic.topic_id
    for version, request, code in (
        (5, by_name, ErrorCode.ILLEGAL_GENERATION),
        (6, by_id, ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        request.generation_id_or_member_epoch, request.member_id = 1, "m"
        assert ask(broker, TXN_OFFSET_COMMIT, request, version).topics[0].partitions[0].error_code == code


def test_refused_offsets_are_refused_as_often_as_a_partition_is_named(broker: SteeredNode) -> None:
    request = Client(broker).offset_request(7)
    request.producer_epoch += 1
    request.topics[0].partitions *= 2
    (topic,) = ask(broker, TXN_OFFSET_COMMIT, request, 5).topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2


def committed(broker: SteeredNode, partition: int = 0) -> list[bytes | None]:
    """What a consumer of committed records gets, who leaves out what it is told was aborted."""
    data = fetch(broker, 0, partition=partition, isolation_level=READ_COMMITTED)
    reader_skips = {a.producer_id: a.first_offset for a in data.aborted_transactions or ()}
    assert not reader_skips or len(reader_skips) == 1
    return values_of(data) if not reader_skips else [value for value in values_of(data) if value != b"aborted"]


def stable(broker: SteeredNode, partition: int = 0) -> tuple[int, int]:
    log = broker.services.replicas.find("t", partition).log
    return log.last_stable_offset, log.high_watermark


def offset_of(broker: SteeredNode, group: str = GROUP, *, is_stable: bool = False) -> tuple[int, ErrorCode]:
    found = ask(broker, OFFSET_FETCH, committed_of(group, is_stable=is_stable), 9).groups[0]
    if found.error_code:
        return -1, ErrorCode.of(found.error_code)
    partition = found.topics[0].partitions[0]
    return partition.committed_offset, ErrorCode.of(partition.error_code)


def state_of(broker: SteeredNode, name: str = ID) -> str:
    answer = ask(broker, DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest([name]))
    return answer.transaction_states[0].transaction_state


# --- visible with it


def test_records_and_offsets_are_visible_when_the_transaction_is_committed(broker: SteeredNode) -> None:
    client = Client(broker)
    assert client.produce(b"a") == client.produce(b"b", 1) == client.commit_offset(7) == 0
    assert stable(broker) == (0, 1)
    assert offset_of(broker) == (-1, ErrorCode.NONE)
    assert offset_of(broker, is_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert client.end() == ErrorCode.NONE
    assert stable(broker) == stable(broker, 1) == (2, 2)
    assert offset_of(broker, is_stable=True) == (7, ErrorCode.NONE)


def test_what_is_aborted_is_never_seen(broker: SteeredNode) -> None:
    client = Client(broker)
    client.produce(b"aborted")
    client.commit_offset(7)
    assert client.end(is_commit=False) == ErrorCode.NONE
    client.produce(b"b")
    assert client.end() == ErrorCode.NONE
    assert [value for value in committed(broker) if value and value.isalpha()] == [b"b"]
    assert offset_of(broker, is_stable=True) == (-1, ErrorCode.NONE)


def test_all_partitions_of_a_request_join_by_one_record(broker: SteeredNode) -> None:
    client = Client(broker)
    state = broker.services.transaction_log.partition(ID).log
    before = state.log_end_offset
    first, second = client.produce_request(b"a", 0, None), client.produce_request(b"b", 1, None)
    first.topic_data[0].partition_data += second.topic_data[0].partition_data
    answer = ask(broker, PRODUCE, first, 12)
    assert [p.error_code for p in answer.responses[0].partition_responses] == [0, 0]
    assert state.log_end_offset == before + 1


def test_an_offset_that_the_log_has_later_counts_whoever_commits_first(broker: SteeredNode) -> None:
    """Of two transactions, and of a commit outside of any."""
    first, second = Client(broker, "one"), Client(broker, "two")
    first.commit_offset(1)
    second.commit_offset(2)
    assert second.end() == first.end() == 0
    assert offset_of(broker) == (2, ErrorCode.NONE)
    first.commit_offset(3)
    assert ask(broker, OFFSET_COMMIT, commit_of(GROUP, 4), 8).topics[0].partitions[0].error_code == 0
    assert first.end() == 0
    assert offset_of(broker) == (4, ErrorCode.NONE)
    assert offset_of(reopened(broker)) == (4, ErrorCode.NONE)


def test_offsets_that_are_pending_hold_their_group(broker: SteeredNode) -> None:
    client = Client(broker)
    client.commit_offset(1)
    broker.runtime.clock.advance(10 * 86_400_000)  # type: ignore[attr-defined]
    broker.services.groups.expire()
    assert GROUP in broker.services.groups.groups
    assert client.end() == 0
    assert offset_of(broker) == (1, ErrorCode.NONE)


def test_a_group_that_is_deleted_takes_its_pending_offsets_with_it(broker: SteeredNode) -> None:
    client = Client(broker)
    client.commit_offset(1)
    broker.services.groups.delete(GROUP)
    assert client.end() == 0
    assert offset_of(broker) == (-1, ErrorCode.NONE)
    assert offset_of(reopened(broker)) == (-1, ErrorCode.NONE)


# --- over restarts


@pytest.mark.parametrize("is_clean", [False, True])
def test_what_is_open_goes_on_after_a_restart(broker: SteeredNode, is_clean: bool) -> None:
    client = Client(broker)
    client.produce(b"a")
    client.commit_offset(7)
    client.broker = again = reopened(broker, is_clean=is_clean)
    assert stable(again) == (0, 1)
    assert offset_of(again, is_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert client.produce(b"b") == client.end() == 0
    assert committed(again)[:2] == [b"a", b"b"]
    assert offset_of(again) == (7, ErrorCode.NONE)


class _Died(Exception):  # noqa: N818 - it is no error
    pass


@pytest.mark.parametrize("step", ["PrepareCommit", "marker __consumer_offsets-0", "marker t-0", "marker t-1"])
def test_an_end_that_was_begun_is_finished_at_the_next_start(broker: SteeredNode, step: str) -> None:
    client = Client(broker)
    client.produce(b"a")
    client.produce(b"b", 1)
    client.commit_offset(7)

    def die(done: str) -> None:
        if done == step:
            raise _Died

    broker.services.transactions.on_step = die
    with pytest.raises(_Died):
        client.end()
    again = reopened(broker)
    again.services.transaction_log.load_all()
    assert state_of(again) == "CompleteCommit"
    assert stable(again) == stable(again, 1) == (2, 2), "each marker is there once"
    assert offset_of(again, is_stable=True) == (7, ErrorCode.NONE)


def test_an_end_is_marked_where_nothing_was_written_since_the_last_one(broker: SteeredNode) -> None:
    """Its producer has another epoch there then: a record of the transaction that comes late is refused (KIP-890)."""
    client = Client(broker)
    client.produce(b"a")
    late = client.produce_request(b"late", 0, 0)
    assert client.end() == client.add(0) == 0
    epoch = client.producer[1]
    assert client.end() == 0
    assert client.producer[1] == epoch + 1
    assert stable(broker) == (3, 3), "a record and two markers"
    log = broker.services.replicas.find("t", 0).log
    state = log.producers.find(client.producer[0])
    assert state is not None
    assert state.producer_epoch == epoch + 1
    answer = ask(broker, PRODUCE, late, 12).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_that_comes_while_the_groups_are_being_read(broker: SteeredNode) -> None:
    client = Client(broker)
    client.produce(b"a")
    client.commit_offset(7)
    client.broker = again = reopened(broker)
    again.services.transaction_log.load_all()
    reading = Background()
    again.runtime.use(run_in_background=reading)
    assert offset_of(again)[0] == -1
    with pytest.raises(KafkaError):
        again.services.groups.offsets(GROUP)
    assert client.end() == 0
    reading.run_all()
    assert offset_of(again, is_stable=True) == (7, ErrorCode.NONE)


def test_what_is_asked_while_transactions_are_being_read(broker: SteeredNode) -> None:
    client = Client(broker)
    client.broker = again = reopened(broker)
    reading = Background()
    again.runtime.use(run_in_background=reading)
    again.services.transaction_log.load_all()
    assert client.produce(b"a") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.commit_offset(7, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.commit_offset(7, 2) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert client.end() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = ask(again, LIST_TRANSACTIONS, ListTransactionsRequest())
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    reading.run_all()
    assert client.produce(b"a", sequence=0) == client.end() == 0


# --- topics and disks that go


def test_a_topic_that_is_deleted_holds_up_no_transaction(broker: SteeredNode) -> None:
    add_topic(broker, "other")
    client = Client(broker)
    client.produce(b"a")
    client.add(1)
    delete_topic(broker, "t")
    assert client.end() == ErrorCode.NONE
    assert state_of(broker) == "CompleteCommit"


def test_a_partition_that_is_offline_gets_its_marker_later(broker: SteeredNode, timers: Timers) -> None:
    client = Client(broker)
    client.produce(b"a")
    client.produce(b"b", 1)
    lost = broker.services.replicas.partitions[TopicPartition("t", 1)]
    broker.services.replicas.take_offline(lost, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
    assert client.end() == ErrorCode.NONE
    assert state_of(broker) == "PrepareCommit"
    assert stable(broker) == (2, 2)
    assert client.produce(b"c") == ErrorCode.CONCURRENT_TRANSACTIONS
    broker.services.log_manager.offline.pop(TopicPartition("t", 1))
    broker.services.replicas.partitions[TopicPartition("t", 1)] = lost
    timers.fire()
    assert state_of(broker) == "CompleteCommit"
    assert stable(broker, 1) == (2, 2)


def test_ids_go_with_the_topic_that_keeps_them(broker: SteeredNode) -> None:
    client = Client(broker)
    client.produce(b"a")
    delete_topic(broker, "__transaction_state")
    assert client.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert Client(broker).producer[1] == 0
    assert Client(broker).producer[0] > client.producer[0]


# --- flushes


@pytest.fixture
def flushing(broker: SteeredNode) -> Background:
    """Everything must be flushed before it is acknowledged, when the test says so."""
    background = Background()
    broker.runtime.use(run_flush=background)
    for name in ("t", "__transaction_state", "__consumer_offsets"):
        broker.services.configs.set(2, name, {"flush.messages": "1"})
    broker.runtime.use(schedule=Timers())
    return background


def flush(broker: SteeredNode, flushing: Background) -> None:
    if not flushing.waiting:
        broker.runtime._schedule.fire(within_ms=100)  # type: ignore[attr-defined]
    flushing.run()


def begin(broker: SteeredNode, flushing: Background, version: int = 5) -> Client:
    """A producer whose id is on the disk."""
    begun = ask_later(broker, INIT_PRODUCER_ID, InitProducerIdRequest(ID, 60_000), version)
    assert begun == []
    flush(broker, flushing)
    return Client(broker, begun=begun[0])


def test_each_step_waits_for_the_one_before_to_be_on_the_disk(broker: SteeredNode, flushing: Background) -> None:
    client = begin(broker, flushing)
    log = broker.services.replicas.find("t", 0).log

    produced = ask_later(broker, PRODUCE, client.produce_request(b"a", 0, None), 12)
    assert log.log_end_offset == 0, "that it joins is not on the disk"
    flush(broker, flushing)
    assert (log.log_end_offset, produced) == (1, [])
    flush(broker, flushing)
    assert produced[0].responses[0].partition_responses[0].error_code == 0

    offsets = ask_later(broker, TXN_OFFSET_COMMIT, client.offset_request(7), 5)
    kept = broker.services.group_log.partition(GROUP).log
    assert kept.log_end_offset == 0
    flush(broker, flushing)
    assert (kept.log_end_offset, offsets) == (1, [])
    flush(broker, flushing)
    assert offsets[0].topics[0].partitions[0].error_code == 0

    ended = ask_later(broker, END_TXN, EndTxnRequest(ID, *client.producer, True), 5)
    assert (log.log_end_offset, state_of(broker)) == (1, "PrepareCommit")
    flush(broker, flushing)
    assert (log.log_end_offset, state_of(broker)) == (2, "PrepareCommit")
    while not ended:
        flush(broker, flushing)
    assert state_of(broker) == "CompleteCommit"
    assert ended[0].error_code == 0


@pytest.mark.parametrize("what", ["records", "offsets"])
def test_what_waited_while_its_transaction_was_ended_begins_no_other(
    broker: SteeredNode, flushing: Background, what: str
) -> None:
    """Of clients of old, whose epoch stays: nobody would ever end it."""
    client = begin(broker, flushing, 4)
    producer = client.producer
    topics = [AddPartitionsToTxnTopic("t", [0])]
    ask_later(broker, ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest([], ID, *producer, topics), 3)
    ask_later(broker, ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(ID, *producer, GROUP), 3)  # both are not on the disk
    if what == "records":
        late = ask_later(broker, PRODUCE, client.produce_request(b"a", 0, None), 11)
    else:
        late = ask_later(broker, TXN_OFFSET_COMMIT, client.offset_request(7), 3)
    ended = ask_later(broker, END_TXN, EndTxnRequest(ID, *producer, False), 4)
    while not (late and ended):
        flush(broker, flushing)
    assert ended[0].error_code == 0
    code = late[0].responses[0].partition_responses[0] if what == "records" else late[0].topics[0].partitions[0]
    assert code.error_code != 0
    assert stable(broker)[0] == stable(broker)[1]
    assert not broker.services.groups.is_unstable(GROUP, TopicPartition("t", 0))


def test_a_client_that_leaves_before_its_transaction_is_on_the_disk(broker: SteeredNode, flushing: Background) -> None:
    """Nothing holds its request any more, and nobody is told."""
    client = begin(broker, flushing)
    pending = send(broker, PRODUCE, client.produce_request(b"v", 0, 0), 12)
    assert isinstance(pending, Pending)
    pending.cancel()
    flush(broker, flushing)
    assert stable(broker) == (0, 0)


def test_clients_of_old_wait_for_the_disk_too(broker: SteeredNode, flushing: Background) -> None:
    producer = begin(broker, flushing, 4).producer
    topics = [AddPartitionsToTxnTopic("t", [0])]
    added = ask_later(broker, ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest([], ID, *producer, topics), 3)
    flush(broker, flushing)
    assert added[0].results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    offsets = ask_later(broker, ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(ID, *producer, GROUP), 3)
    flush(broker, flushing)
    assert offsets[0].error_code == 0


def test_a_disk_that_fails_takes_nothing_into_the_transaction(broker: SteeredNode, flushing: Background) -> None:
    client = begin(broker, flushing)
    produced = ask_later(broker, PRODUCE, client.produce_request(b"a", 0, None), 12)
    state = broker.services.transaction_log.partition(ID)
    broker.services.replicas.take_offline(state, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
    assert produced[0].responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.services.replicas.find("t", 0).log.log_end_offset == 0


@pytest.mark.parametrize("version", [11, 12])
def test_a_transaction_whose_partition_is_offline_is_refused_and_answered(broker: SteeredNode, version: int) -> None:
    """Also if it wrote to the partition before: whether that is kept is not known. Its connection was closed."""
    client = Client(broker)
    assert client.produce(b"a") == client.commit_offset(1) == client.add(1) == ErrorCode.NONE
    state = broker.services.transaction_log.partition(ID)
    broker.services.replicas.take_offline(state, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
    for partition in (0, 1):
        assert client.produce(b"b", partition, version) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.commit_offset(2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.add(1) == client.end() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [broker.services.replicas.find("t", n).log.log_end_offset for n in (0, 1)] == [1, 0]


# --- who may


def test_records_of_a_transaction_need_its_id(broker: SteeredNode) -> None:
    batch = make_batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produce(broker, batch).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_request_has_one_producer(broker: SteeredNode) -> None:
    first, second = Client(broker, "one"), Client(broker, "two")
    request = first.produce_request(b"a", 0, None)
    request.topic_data[0].partition_data += second.produce_request(b"b", 1, None).topic_data[0].partition_data
    answer = ask(broker, PRODUCE, request, 12)
    assert {p.error_code for p in answer.responses[0].partition_responses} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("is_checked", [True, False])
def test_partitions_that_were_not_added(broker: SteeredNode, is_checked: bool) -> None:
    broker.services.configs.set(4, "", {"transaction.partition.verification.enable": str(is_checked).lower()})
    client = Client(broker)
    client.add(1)
    assert client.produce(b"a", 1, version=11) == ErrorCode.NONE
    said = client.produce(b"a", 0, version=11)
    assert said == (ErrorCode.TRANSACTION_ABORTABLE if is_checked else ErrorCode.NONE)


def test_nothing_follows_a_record_that_is_taken_for_an_aborted_one(broker: SteeredNode) -> None:
    """librdkafka gives the sequence of an aborted record that was not answered to another one, in the same epoch."""
    client = Client(broker)
    client.add(0)
    client.produce(b"aborted", version=11)
    client.end(is_commit=False, version=4)
    client.add(0)
    assert client.produce(b"another", version=11, sequence=0) is ErrorCode.NONE, "as Kafka says"
    assert client.produce(b"next", version=11) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    client.end(is_commit=False, version=4)
    client.add(0)
    assert client.produce(b"whole", version=11, sequence=1) is ErrorCode.NONE
    client.end(version=4)
    assert [value for value in committed(broker) if value and value.isalpha()] == [b"whole"]


def test_a_transaction_begins_with_the_first_of_the_records_that_came(broker: SteeredNode) -> None:
    """The partition may have been added while the first ones were refused."""
    client, other = Client(broker), Client(broker, "other")
    other.add(0)
    assert other.produce(b"before", version=11) is ErrorCode.NONE
    assert client.produce(b"a", version=11, sequence=4) is ErrorCode.TRANSACTION_ABORTABLE
    assert client.produce(b"b", version=11, sequence=5) is ErrorCode.TRANSACTION_ABORTABLE
    client.add(0)
    assert client.produce(b"b", version=11, sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert other.produce(b"of another producer", version=11) is ErrorCode.NONE
    for sequence, value in ((4, b"a"), (5, b"b")):
        assert client.produce(value, version=11, sequence=sequence) is ErrorCode.NONE


def test_several_transactions_are_added_to_and_asked_for_at_once(broker: SteeredNode) -> None:
    """As brokers do of each other."""
    first, second = Client(broker, "one"), Client(broker, "two")
    topics = [AddPartitionsToTxnTopic("t", [0, 1])]
    added = AddPartitionsToTxnTransaction("one", *first.producer, False, topics)
    asked = AddPartitionsToTxnTransaction("two", *second.producer, True, topics)
    answer = ask(broker, ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest([added, asked]), 5)
    codes = {
        result.transactional_id: {p.partition_error_code for p in result.topic_results[0].results_by_partition}
        for result in answer.results_by_transaction
    }
    assert codes == {"one": {0}, "two": {ErrorCode.TRANSACTION_ABORTABLE}}


def test_a_broker_that_only_reads_has_no_producers(broker: SteeredNode) -> None:
    client = Client(broker)
    client.produce(b"a")
    client.end()
    broker.close()
    from core.broker.config.broker_config import BrokerConfig

    reader = SteeredNode(broker.directory, BrokerConfig(), clock=ManualClock(NOW), is_read_only=True)
    assert state_of(reader) == "CompleteCommit"
    asked = ask(reader, INIT_PRODUCER_ID, InitProducerIdRequest(ID, 60_000))
    assert asked.error_code == ErrorCode.POLICY_VIOLATION
    found = ask(reader, FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]))
    assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- from time to time


def test_a_broker_aborts_what_takes_too_long_and_forgets_what_nobody_uses(broker: SteeredNode) -> None:
    client = Client(broker)
    client.produce(b"a")
    clock = broker.runtime.clock
    assert isinstance(clock, ManualClock)
    clock.advance(59_000)
    broker.housekeeping.step()
    assert state_of(broker) == "Ongoing"
    clock.advance(10_000)
    broker.housekeeping.step()
    assert state_of(broker) == "CompleteAbort"
    assert stable(broker) == (2, 2)
    late = ask(broker, PRODUCE, client.produce_request(b"late", 1, 0), 12).responses[0].partition_responses[0]
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert "the transaction timed out" in (late.error_message or "")
    clock.advance(604_800_000)
    broker.housekeeping.step()
    assert state_of(broker) == ""


# --- the feature


def test_a_feature_goes_up_and_down(broker: SteeredNode) -> None:
    def change(level: int, upgrade_type: int, name: str = "transaction.version") -> ErrorCode:
        request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(name, level, upgrade_type=upgrade_type)])
        return ErrorCode.of(ask(broker, UPDATE_FEATURES, request).error_code)

    assert broker.services.image.features["transaction.version"] == 2
    assert change(1, 1) == ErrorCode.INVALID_UPDATE_VERSION
    assert change(1, 2) == ErrorCode.NONE
    assert change(2, 3) == ErrorCode.INVALID_UPDATE_VERSION
    assert change(29, 3, "metadata.version") == ErrorCode.INVALID_UPDATE_VERSION
    unknown = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("nope", 1)])
    assert "this broker has no such feature" in (ask(broker, UPDATE_FEATURES, unknown).error_message or "")
    assert broker.services.image.features["transaction.version"] == 1
    assert reopened(broker).services.image.features["transaction.version"] == 1


def test_a_feature_that_the_disk_refuses(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(MetadataLog, "_append_batch", refuse)
    update = FeatureUpdateKey("transaction.version", 1, upgrade_type=2)
    answer = ask(broker, UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update]))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.services.image.features["transaction.version"] == 2


def test_an_old_client_may_lower_a_feature_where_it_says_so(broker: SteeredNode) -> None:
    update = FeatureUpdateKey("transaction.version", 0, allow_downgrade=True)
    answer = ask(broker, UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update]), 0)
    assert [result.error_code for result in answer.results] == [0]
    assert "transaction.version" not in broker.services.image.features
