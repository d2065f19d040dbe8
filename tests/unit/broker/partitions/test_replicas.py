"""Partitions of which other brokers hold replicas: what clients are told as leaders come and go, and what reaches the
controller.
"""

from __future__ import annotations

from typing import cast

import pytest

from core.cluster.image.single_node_controller import SingleNodeController
from core.cluster.partition.leadership import IsrAnswer
from core.cluster.partition.partition import Role
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from core.protocol.schema.metadata_records import PartitionChangeRecord
from core.protocol.schema.produce import PRODUCE, PartitionProduceResponse
from tests.support.broker import (
    PRODUCE_BY_NAME,
    SteeredNode,
    add_topic,
    ask,
    ask_later,
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
from tests.support.manual_clock import ManualClock
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic
from tests.support.replication import LAG_MS, KnownPeers


class Produced:
    """A request with acks=all whose answer may wait."""

    def __init__(self, broker: SteeredNode, value: bytes = b"v", acks: int = -1) -> None:
        self.answers: list[PartitionProduceResponse] = []
        request = produce_request(make_batch(value), acks=acks)
        answer = send(broker, PRODUCE, request, PRODUCE_BY_NAME)
        if isinstance(answer, Pending):
            self.pending = answer
            answer.on_value = self._on_value
        else:
            self._on_value(answer)

    def _on_value(self, pieces: object) -> None:
        response = decode(PRODUCE, pieces, PRODUCE_BY_NAME)  # type: ignore[arg-type]  # pieces as they go out
        self.answers.append(response.responses[0].partition_responses[0])

    @property
    def codes(self) -> list[int]:
        return [answer.error_code for answer in self.answers]


def test_acks_of_all_are_answered_when_all_in_sync_have_it(led: ReplicatedTopic) -> None:
    first, second = Produced(led.broker), Produced(led.broker)
    assert Produced(led.broker, acks=1).codes == [0]
    led.fetched(1)
    assert (first.codes, second.codes) == ([0], [])
    led.fetched(3)
    assert second.codes == [0]


def test_a_consumer_that_waits_gets_records_when_all_in_sync_have_them(led: ReplicatedTopic) -> None:
    found = ask_later(led.broker, FETCH, fetch_request(0, max_wait_ms=500), PRODUCE_BY_NAME)
    Produced(led.broker, b"a")
    assert found == []
    led.fetched(1)
    assert [values_of(answer.responses[0].partitions[0]) for answer in found] == [[b"a"]]


def test_what_waits_is_refused_when_another_leads_and_its_leader_is_named(led: ReplicatedTopic) -> None:  # rule 17
    long_way = Produced(led.broker)
    produce_values_without_waiting(led)
    short_way = Produced(led.broker)
    led.decide(leader=OTHER)
    for waited in (long_way, short_way):
        assert waited.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        leader = waited.answers[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (OTHER, led.partition.leader_epoch)


def produce_values_without_waiting(led: ReplicatedTopic) -> None:
    """So that the next request is known by its bytes."""
    for _ in range(3):
        Produced(led.broker)


def test_a_producer_is_told_who_leads(led: ReplicatedTopic) -> None:
    Produced(led.broker)
    led.decide(leader=OTHER)
    for acks in (-1, 1):
        refused = produce(led.broker, make_batch(b"a"), acks=acks)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == OTHER
    assert led.partition.log.log_end_offset == 1


def test_who_asks_one_that_follows_is_sent_away(led: ReplicatedTopic) -> None:
    led.decide(leader=OTHER)
    before_kip_392 = ask(led.broker, FETCH, fetch_request(0), 10).responses[0].partitions[0]
    assert before_kip_392.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])])
    answer = ask(led.broker, OFFSET_FOR_LEADER_EPOCH, request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.replicas.find_replica("t", 0) is led.partition
    assert not led.replicas.leads(TopicPartition("t", 0))
    assert led.replicas.holds(TopicPartition("t", 0))


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_the_end_is_not_told_before_it_is_known(led: ReplicatedTopic, version: int, code: ErrorCode) -> None:
    for timestamp in (NOW, -1):
        Produced(led.broker)
        led.decide(leader=led.node_id)
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])])
        answer = ask(led.broker, LIST_OFFSETS, request, version).topics[0].partitions[0]
        assert answer.error_code == code
        led.fetched(led.partition.log.log_end_offset)
        assert ask(led.broker, LIST_OFFSETS, request, version).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_consumer_that_waits_is_sent_away_at_once(led: ReplicatedTopic) -> None:
    request = fetch_request(0, max_wait_ms=500)
    request.topics[0].partitions[0].current_leader_epoch = led.partition.leader_epoch
    answers = ask_later(led.broker, FETCH, request, PRODUCE_BY_NAME)
    led.decide(leader=OTHER)
    assert [one.responses[0].partitions[0].error_code for one in answers] == [ErrorCode.FENCED_LEADER_EPOCH]


def test_too_few_in_sync_are_said_before_and_after(broker: SteeredNode, peers: KnownPeers) -> None:  # rule 8
    led = ReplicatedTopic(broker, min_insync_replicas="2")
    waited = Produced(led.broker)
    led.decide(isr=[led.node_id])
    assert Produced(led.broker).codes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert waited.codes == [], "nobody says that it is lost"
    waited.pending.complete_now()
    assert waited.codes == [ErrorCode.REQUEST_TIMED_OUT]


def test_one_partition_that_lost_its_replicas_while_another_was_waited_for_is_refused(
    broker: SteeredNode, peers: KnownPeers
) -> None:  # rule 8
    led = ReplicatedTopic(broker, min_insync_replicas="2")
    add_topic(broker, "u", flush_messages="1000000")
    request = produce_request(make_batch(b"a"))
    request.topic_data.append(produce_request(make_batch(b"b"), "u").topic_data[0])
    other_id = broker.services.image.topics["u"].topic_id
    both = PartitionChangeRecord(0, other_id, isr=[led.node_id, OTHER], replicas=[led.node_id, OTHER])
    cast(SingleNodeController, broker.services.controller)._submit([both])
    answers = ask_later(broker, PRODUCE, request, PRODUCE_BY_NAME)
    led.fetched(1)
    led.decide(isr=[led.node_id])
    assert answers == []
    led.replicas.note_fetch(led.replicas.find("u", 0), OTHER, 1, log_start_offset=0, broker_epoch=100 + OTHER)
    codes = [topic.partition_responses[0].error_code for topic in answers[0].responses]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NONE]


def test_a_follower_that_caught_up_is_proposed_and_one_that_is_late_too(
    led: ReplicatedTopic, clock: ManualClock
) -> None:
    led.decide([led.node_id, OTHER, THIRD])
    led.fetched(0, THIRD)
    assert [proposal.isr for proposal in led.proposals] == [(led.node_id, OTHER, THIRD)]
    answer = IsrAnswer(
        isr=(led.node_id, OTHER, THIRD),
        leader_epoch=led.partition.leader_epoch,
        partition_epoch=led.partition.partition_epoch + 1,
    )
    led.replicas.on_isr_answer(led.partition, led.proposals.pop(), answer)
    clock.advance(LAG_MS + 1)
    waited = Produced(led.broker)
    led.fetched(1)
    led.replicas.look_at_followers()
    (late,) = led.proposals
    assert late.isr == (led.node_id, OTHER)
    assert waited.codes == []
    answer = IsrAnswer(isr=late.isr, leader_epoch=late.leader_epoch, partition_epoch=late.partition_epoch + 1)
    led.replicas.on_isr_answer(led.partition, late, answer)
    assert waited.codes == [0]


def test_a_proposal_that_got_no_answer_is_made_again(led: ReplicatedTopic) -> None:
    led.decide([led.node_id, OTHER, THIRD])
    led.fetched(0, THIRD)
    (proposal,) = led.proposals
    led.replicas.on_isr_answer(led.partition, proposal, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT))
    assert led.proposals == [proposal, proposal]
    led.replicas.on_isr_answer(led.partition, proposal, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA))
    assert led.proposals == [proposal, proposal]


def test_one_that_is_no_replica_any_more_lets_go_and_keeps_its_log(led: ReplicatedTopic) -> None:
    waited = Produced(led.broker)
    log = led.partition.log
    led.decide([OTHER], isr=[OTHER], leader=OTHER)
    assert waited.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert produce(led.broker, make_batch(b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(led.broker, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.directory.exists()


def test_one_that_becomes_a_replica_starts_and_follows(led: ReplicatedTopic) -> None:
    led.decide([OTHER], isr=[OTHER], leader=OTHER)
    assert not led.replicas.holds(TopicPartition("t", 0))
    led.decide([OTHER, led.node_id])
    assert led.partition.role is Role.FOLLOWING
    led.decide(leader=led.node_id, isr=[OTHER, led.node_id])
    assert led.partition.role is Role.LEADING


def test_a_broker_without_others_leads_what_it_has_alone(broker: SteeredNode) -> None:
    led = ReplicatedTopic(broker)
    produce_values(broker, b"a")
    assert values_of(fetch(broker, 0)) == [b"a"]
    assert led.partition.role is Role.ALONE
