"""Fetches of other replicas: how far they read, what the leader notes by them, and who is refused."""

from __future__ import annotations

import pytest

from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.protocol.schema.current_leader import NodeEndpoint
from core.protocol.schema.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.metadata_records import PartitionChangeRecord
from core.protocol.schema.produce import PRODUCE
from tests.support.broker import (
    PRODUCE_BY_NAME,
    SteeredNode,
    add_topic,
    ask,
    decode,
    fetch,
    fetch_request,
    produce,
    produce_request,
    produce_values,
    send,
    values_of,
)
from tests.support.logs import NOW, make_batch
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic

STRANGER = 77
CONSUMER = -1
BY_ID = 17


class Waiting:
    """A replica's request that waits."""

    def __init__(self, led: ReplicatedTopic, request: FetchRequest) -> None:
        self.answers: list[PartitionData] = []
        pending = send(led.broker, FETCH, request, BY_ID)
        assert isinstance(pending, Pending)
        self.pending = pending
        pending.on_value = lambda pieces: self.answers.append(decode(FETCH, pieces, BY_ID).responses[0].partitions[0])


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The replica and the offset of each fetch that a leader notes."""
    noted: list[tuple[int, int]] = []
    note_fetch = Partition.note_fetch

    def note(partition: Partition, replica: int, offset: int, **how: int) -> object:
        noted.append((replica, offset))
        return note_fetch(partition, replica, offset, **how)

    monkeypatch.setattr(Partition, "note_fetch", note)
    return noted


def append(led: ReplicatedTopic, *values: bytes) -> None:
    for value in values:
        assert produce(led.broker, make_batch(value), acks=1).error_code == 0


# --- what they get, and what is noted


@pytest.mark.parametrize("version", [10, 12, 14, 15, 17, 18])
def test_a_replica_reads_what_is_not_committed_and_commits_by_asking_further(
    led: ReplicatedTopic, version: int
) -> None:
    append(led, b"a", b"b")
    assert values_of(fetch(led.broker, 0)) == []
    data = led.fetch_as(OTHER, 0, version)
    assert (data.error_code, values_of(data), data.high_watermark) == (0, [b"a", b"b"], 0)
    data = led.fetch_as(OTHER, 2, version)
    assert (data.error_code, values_of(data), data.high_watermark) == (0, [], 2)
    assert values_of(fetch(led.broker, 0)) == [b"a", b"b"]


def test_replicas_get_no_list_of_aborted_transactions(led: ReplicatedTopic) -> None:
    append(led, b"a")
    request = led.replica_request(0)
    request.isolation_level = 1
    data = ask(led.broker, FETCH, request, BY_ID).responses[0].partitions[0]
    assert (values_of(data), data.aborted_transactions) == ([b"a"], None)


def test_a_fetch_that_waits_and_wakes_is_noted_once(led: ReplicatedTopic, notes: list[tuple[int, int]]) -> None:
    led.decide([led.node_id, OTHER, THIRD])
    append(led, b"a")
    big = led.replica_request(1)
    big.min_bytes = 1000
    waiting = Waiting(led, big)
    assert notes == [(OTHER, 1)]
    append(led, b"b")
    led.fetch_as(THIRD, 1)
    assert (waiting.answers, notes) == ([], [(OTHER, 1), (THIRD, 1)])
    append(led, b"c" * 1000)
    assert [values_of(data) for data in waiting.answers] == [[b"b", b"c" * 1000]]
    assert notes == [(OTHER, 1), (THIRD, 1)]


def test_a_fetch_whose_time_is_up_is_noted_once(led: ReplicatedTopic, notes: list[tuple[int, int]]) -> None:
    waiting = Waiting(led, led.replica_request(0))
    waiting.pending.complete_now()
    assert [data.error_code for data in waiting.answers] == [0]
    assert notes == [(OTHER, 0)]


def test_each_partition_of_a_request_is_noted_also_if_there_is_no_room_for_its_records(
    led: ReplicatedTopic, notes: list[tuple[int, int]]
) -> None:
    append(led, b"a")
    request = led.replica_request(0)
    other_id = add_topic(led.broker, "alone")
    request.topics.append(
        FetchTopic("alone", other_id, [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    )
    request.topics.append(led.replica_request(0).topics[0])
    request.max_bytes = 1
    answers = [topic.partitions[0] for topic in ask(led.broker, FETCH, request, BY_ID).responses]
    assert [(data.error_code, len(data.records or b"") > 0) for data in answers] == [
        (0, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (0, False),
    ]
    assert notes == [(OTHER, 0), (OTHER, 0)]


def test_a_replica_that_waits_gets_records_when_they_are_appended(led: ReplicatedTopic) -> None:
    waiting = Waiting(led, led.replica_request(0))
    append(led, b"a")
    assert [values_of(data) for data in waiting.answers] == [[b"a"]]
    assert led.partition.log.high_watermark == 0


def test_a_fetch_gets_what_is_appended_to_another_partition_because_it_commits(
    led: ReplicatedTopic, notes: list[tuple[int, int]]
) -> None:
    """As the end of a transaction does, once it is kept. That other partition was read already, and found empty."""
    request, other_id = led.replica_request(0), add_topic(led.broker, "u")
    nodes = [led.node_id, OTHER]
    led.submit(PartitionChangeRecord(0, other_id, isr=nodes, leader=led.node_id, replicas=nodes))
    wanted = FetchPartition(0, fetch_offset=1, partition_max_bytes=1 << 20)
    request.topics.append(FetchTopic("u", other_id, [wanted]))
    waiting = send(led.broker, PRODUCE, produce_request(make_batch(b"kept"), "u"), PRODUCE_BY_NAME)
    waiting.on_value = lambda _: append(led, b"then")
    answer = ask(led.broker, FETCH, request, BY_ID)
    assert [values_of(topic.partitions[0]) for topic in answer.responses] == [[b"then"], []]
    assert notes == [(OTHER, 0), (OTHER, 1)]


def test_a_replica_of_a_session_commits_by_each_of_its_fetches(led: ReplicatedTopic) -> None:
    append(led, b"a", b"b", b"c")
    request = led.replica_request(1)
    request.session_epoch = 0
    begun = ask(led.broker, FETCH, request, BY_ID)
    assert led.partition.log.high_watermark == 1
    request = led.replica_request(3)
    request.max_wait_ms, request.session_id, request.session_epoch = 0, begun.session_id, 1
    ask(led.broker, FETCH, request, BY_ID)
    assert led.partition.log.high_watermark == 3
    append(led, b"d")
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=begun.session_id, session_epoch=2)
    request.replica_state = ReplicaState(OTHER, 100 + OTHER)
    (data,) = ask(led.broker, FETCH, request, BY_ID).responses[0].partitions
    assert (values_of(data), data.high_watermark) == ([b"d"], 3)


# --- who is refused, and in which order


def test_a_replica_of_another_epoch_is_refused_and_not_noted(
    led: ReplicatedTopic, notes: list[tuple[int, int]]
) -> None:
    append(led, b"a")
    led.decide(leader=led.node_id)
    epoch = led.partition.leader_epoch
    for its, code in (
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        data = led.fetch_as(OTHER, 1, current_leader_epoch=its, last_fetched_epoch=epoch + 5)
        assert (data.error_code, data.records) == (code, b"")
    assert (notes, led.partition.log.high_watermark) == ([], 0)


def test_a_replica_whose_log_parts_ways_is_told_where_before_its_offset_is_looked_at(
    led: ReplicatedTopic, notes: list[tuple[int, int]]
) -> None:
    append(led, b"a")
    epoch = led.partition.leader_epoch
    led.decide(leader=led.node_id)
    append(led, b"b")
    for offset in (2, 9):  # in the log, and beyond its end
        data = led.fetch_as(OTHER, offset, last_fetched_epoch=epoch)
        assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, epoch, 1)
        assert not data.records
    assert notes == []
    assert led.fetch_as(OTHER, 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert notes == []
    assert led.fetch_as(OTHER, 1, last_fetched_epoch=epoch).error_code == 0
    assert notes == [(OTHER, 1)]


def test_who_is_no_replica_is_refused(led: ReplicatedTopic, notes: list[tuple[int, int]]) -> None:
    append(led, b"a")
    for replica in (STRANGER, led.node_id):
        assert led.fetch_as(replica, 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert led.fetch_as(replica, 1, current_leader_epoch=-1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (notes, led.partition.log.high_watermark) == ([], 0)


def test_a_late_fetch_of_an_earlier_life_is_refused(led: ReplicatedTopic) -> None:
    request = led.replica_request(0)
    request.replica_state.replica_epoch = 5
    assert ask(led.broker, FETCH, request, BY_ID).responses[0].partitions[0].error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


@pytest.mark.parametrize("replica", [1, 2])
@pytest.mark.parametrize("version", [10, 17])
def test_a_broker_without_others_refuses_whoever_says_to_be_a_replica(
    broker: SteeredNode, version: int, replica: int
) -> None:
    assert broker.services.node.node_id == 1
    topic_id = add_topic(broker, plog_visible_after_flush="true")
    produce_values(broker, b"a")
    partition = broker.services.replicas.find("t", 0)
    for epoch, code in ((0, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        request = fetch_request(0, max_wait_ms=500)
        request.topics[0].topic_id = topic_id
        request.topics[0].partitions[0].current_leader_epoch = epoch
        if version >= 15:
            request.replica_state = ReplicaState(replica, 100)
        else:
            request.replica_id = replica
        data = ask(broker, FETCH, request, version).responses[0].partitions[0]
        assert (data.error_code, data.records) == (code, b"")
    partition.check_invariants()


# --- followers


def test_one_that_follows_gives_consumers_what_is_committed(led: ReplicatedTopic) -> None:
    append(led, b"a", b"b", b"c")
    led.fetched(2)
    led.decide(leader=OTHER)
    for version in (11, 12):
        first = ask(led.broker, FETCH, fetch_request(0), version).responses[0].partitions[0]
        assert (values_of(first), first.high_watermark) == ([b"a", b"b"], 2)
        beyond = ask(led.broker, FETCH, fetch_request(3), version).responses[0].partitions[0]
        assert (beyond.error_code, values_of(beyond)) == (0, [])
    refused = ask(led.broker, FETCH, fetch_request(0), 10).responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_for_debugging_sees_no_more_than_others(led: ReplicatedTopic, notes: list[tuple[int, int]]) -> None:
    """As Kafka 3.9 has it: FetchIsolation.of."""
    append(led, b"a")
    request = fetch_request(0)
    request.replica_id = -2
    data = ask(led.broker, FETCH, request, PRODUCE_BY_NAME).responses[0].partitions[0]
    assert (data.error_code, values_of(data), notes) == (0, [], [])


# --- offsets


def offset_of(led: ReplicatedTopic, replica: int, timestamp: int) -> tuple[int, int]:
    request = ListOffsetsRequest(replica, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])])
    answer = ask(led.broker, LIST_OFFSETS, request).topics[0].partitions[0]
    return answer.error_code, answer.offset


def test_replicas_and_debuggers_are_told_the_end_of_the_log(led: ReplicatedTopic) -> None:
    append(led, b"a", b"b")
    led.fetched(1)
    assert offset_of(led, -1, -1) == (0, 1)
    for replica in (-2, OTHER):
        assert offset_of(led, replica, -1) == (0, 2)
        assert offset_of(led, replica, NOW) == (0, 0)
    led.decide(leader=led.node_id)
    assert offset_of(led, -1, -1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert offset_of(led, OTHER, -1) == (0, 2)
    led.decide(leader=OTHER)
    for replica in (-1, OTHER):
        assert offset_of(led, replica, -1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert offset_of(led, -2, -1) == (0, 2)


# --- the leader is named


def test_who_is_refused_is_told_who_leads_and_where_that_is(led: ReplicatedTopic) -> None:
    led.register(OTHER, rack="r")
    led.decide(leader=OTHER)
    epoch = led.partition.leader_epoch
    where = NodeEndpoint(OTHER, f"broker-{OTHER}", 9000 + OTHER, "r")
    for version in (16, 17, 18):
        for who, its, code in (
            (CONSUMER, epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (OTHER, epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (OTHER, epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            request = led.replica_request(0, who, current_leader_epoch=its)
            answer = ask(led.broker, FETCH, request, version)
            (data,) = answer.responses[0].partitions
            assert data.error_code == code
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (OTHER, epoch)
            assert answer.node_endpoints == ([where] if who == CONSUMER else [])  # a replica knows its brokers
    before_kip_951 = ask(led.broker, FETCH, led.replica_request(0), 15)
    assert before_kip_951.responses[0].partitions[0].current_leader.leader_id == -1


def test_a_leader_that_is_not_there_is_named_without_an_address(led: ReplicatedTopic) -> None:
    led.decide(leader=OTHER)
    request = led.replica_request(0, CONSUMER, current_leader_epoch=led.partition.leader_epoch - 1)
    answer = ask(led.broker, FETCH, request, BY_ID)
    data = answer.responses[0].partitions[0]
    assert (data.error_code, data.current_leader.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, OTHER)
    assert answer.node_endpoints == []


@pytest.mark.parametrize("version", [9, 10, 11])
def test_producers_are_told_where_the_leader_is(led: ReplicatedTopic, version: int) -> None:
    led.register(OTHER)
    for _ in range(3):  # the last ones are known by their bytes
        append(led, b"a")
    waited = send(led.broker, PRODUCE, produce_request(make_batch(b"a")), version)
    answers: list[object] = []
    waited.on_value = answers.append
    led.decide(leader=OTHER)
    answers.append(send(led.broker, PRODUCE, produce_request(make_batch(b"a")), version))
    for pieces in answers:
        answer = decode(PRODUCE, pieces, version)  # type: ignore[arg-type]  # pieces as they go out
        (response,) = answer.responses[0].partition_responses
        assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_told = version >= 10
        assert response.current_leader.leader_id == (OTHER if is_told else -1)
        assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == (
            [(OTHER, f"broker-{OTHER}", 9000 + OTHER)] if is_told else []
        )


def test_one_partition_of_many_is_answered_once_for_each_of_its_leaders(led: ReplicatedTopic) -> None:
    led.register(OTHER)
    led.decide(leader=OTHER)
    request = led.replica_request(0, CONSUMER, current_leader_epoch=led.partition.leader_epoch - 1)
    request.topics *= 2
    answer = ask(led.broker, FETCH, request, BY_ID)
    assert len(answer.node_endpoints) == 1
    assert all(topic.partitions[0].current_leader.leader_id == OTHER for topic in answer.responses)
