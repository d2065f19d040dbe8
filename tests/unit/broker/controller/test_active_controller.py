"""A time in office: one event after the other, and a clear end, whatever goes wrong; with models of ZooKeeper and of
brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.cluster.controller.controller_context import ControlledTopic, unwritten_state
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.controller_writes import Decision, DeletionWrite, StateWrite
from core.cluster.image.feature_levels import FeatureUpdate, UpgradeType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrResponse,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from core.zookeeper.controller_store import OutOfOfficeError
from core.zookeeper.znodes import BROKER_IDS, DELETE_TOPICS, LOG_DIR_EVENTS, TOPICS, broker_path, topic_path
from core.zookeeper.zookeeper_transaction import Node, NodeStat, Refusal, ZooKeeperError
from tests.support.office import T0, Office, live, office


def outcome(pending: Pending[Any]) -> Any:
    assert pending.is_over
    return pending.value


def codes(outcomes: Mapping[str, Any]) -> dict[str, ErrorCode]:
    return {name: one.code if isinstance(one, KafkaError) else ErrorCode.NONE for name, one in outcomes.items()}


def nothing() -> Decision[str]:
    yield ()
    return "done"


async def test_a_broker_hears_of_the_others_before_it_is_told_what_it_leads(it: Office) -> None:
    for broker_id in (1, 2):
        apis = [request.api for request in it.sent(broker_id)]
        assert apis[0] is UPDATE_METADATA
        assert LEADER_AND_ISR in apis
    folders = {BROKER_IDS, TOPICS, DELETE_TOPICS, LOG_DIR_EVENTS}
    assert set(it.session.watched) == folders | {broker_path(1), broker_path(2), topic_path("t")}
    assert it.term.unsent == sum(len(queue) for _, _, queue in it.queues)


@pytest.mark.parametrize(
    "failure",
    [
        OutOfOfficeError("somebody else"),
        ZooKeeperError(Refusal.SESSION_EXPIRED, "/x"),
        MalformedMessageError("?"),
        RuntimeError("a mistake"),
    ],
)
async def test_a_write_that_is_refused_ends_it(it: Office, failure: Exception) -> None:
    """Whoever waits is told so, he whose write it was and those behind him; nothing is sent or written afterwards."""
    before = [len(queue.sent) for _, _, queue in it.queues]
    it.store.failure = failure
    first = it.term.ask(lambda: it.term.controller.elect_leaders([T0], is_unclean=False))
    second = it.term.ask(lambda: it.term.controller.reassignments.alter({T0: (2, 1)}))
    third = it.term.ask(nothing)
    await it.settle()
    assert it.overs == 1
    assert outcome(first) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
    for pending in (second, third):
        assert outcome(pending).code is ErrorCode.NOT_CONTROLLER
    it.store.failure = None
    it.change(BROKER_IDS)
    with pytest.raises(KafkaError) as refused:
        it.term.ask(nothing)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await it.settle()
    assert it.store.written == []
    assert [len(queue.sent) for _, _, queue in it.queues] == before
    assert all(queue.is_closed for _, _, queue in it.queues)
    assert all(watch.is_cancelled for watch in it.session.watches)


async def test_who_is_deposed_while_it_writes_tells_nobody(it: Office) -> None:
    """The write may be done, or not: whoever follows knows."""
    before = [len(queue.sent) for _, _, queue in it.queues]
    it.store.gate.clear()
    pending = it.term.ask(lambda: it.term.controller.reassignments.alter({T0: (2, 1)}))
    await it.settle()
    assert not pending.is_over
    it.term.close()
    assert outcome(pending).code is ErrorCode.NOT_CONTROLLER
    it.store.gate.set()
    await it.settle()
    assert it.store.written == []
    assert [len(queue.sent) for _, _, queue in it.queues] == before
    assert it.overs == 0


@pytest.mark.parametrize(("unread", "leader"), [(None, 2), (1, -1)])
async def test_settings_that_a_dead_leader_obeyed_are_known_before_another_is_elected(
    it: Office, unread: int | None, leader: int
) -> None:
    """While min.insync.replicas was 2, broker 2 lacked nothing; the leader has committed alone since it is 1."""
    it.min_isr, it.unread_min_isr = 2, unread
    it.term.context.put(T0, replace(it.term.context.state(T0), isr=(1,), holders={1: 11, 2: 12}))
    it.store.brokers = {2: live(2, 12)}
    it.change(BROKER_IDS)
    await it.settle()
    assert it.term.context.state(T0).leader == leader


async def test_nobody_hears_of_a_leader_before_it_is_written_down(it: Office) -> None:
    before = len(it.sent(2))
    it.store.gate.clear()
    it.store.brokers = {2: live(2, 12)}
    it.change(BROKER_IDS)
    await it.settle()
    assert it.sent(2)[before:] == []
    it.store.gate.set()
    await it.settle()
    (state,) = [write.state for write in it.store.written if isinstance(write, StateWrite)]
    assert state.leader == 2
    assert LEADER_AND_ISR in [request.api for request in it.sent(2)[before:]]


async def test_who_asks_after_the_end_is_told_at_once(it: Office) -> None:
    """Also in the turn in which it ended."""
    it.term.close()
    with pytest.raises(KafkaError) as refused:
        it.term.ask(nothing)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_what_is_asked_while_it_begins_is_answered_then() -> None:
    it = Office()
    it.begin()
    pending = it.term.ask(lambda: it.term.controller.elect_leaders([T0], is_unclean=False))
    await it.settle()
    assert outcome(pending) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
    it.term.close()


async def test_a_broker_that_comes_while_it_begins_is_not_missed() -> None:
    """It registers after the brokers were read, and before anything was decided."""
    it = Office()

    def come() -> None:
        it.store.brokers[3] = live(3, 13)
        it.change(BROKER_IDS)

    it.store.while_reading = come
    it.begin()
    await it.settle()
    assert set(it.term.context.brokers) == {1, 2, 3}
    assert [request.api for request in it.sent(3)][:1] == [UPDATE_METADATA]
    it.term.close()


async def test_a_broker_that_comes_while_brokers_are_read_is_not_missed(it: Office) -> None:

    def come() -> None:
        it.store.brokers[4] = live(4, 14)
        it.change(BROKER_IDS)

    it.store.brokers[3] = live(3, 13)
    it.store.while_reading = come
    it.change(BROKER_IDS)
    await it.settle()
    assert set(it.term.context.brokers) == {1, 2, 3, 4}


@pytest.mark.parametrize("failure", [ZooKeeperError(Refusal.NO_AUTH, "/x"), MalformedMessageError("?"), KeyError("x")])
async def test_a_term_that_can_not_begin_is_over(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    it = Office()
    it.store.read_failure = failure
    it.begin()
    with caplog.at_level(logging.WARNING):
        pending = it.term.ask(nothing)
        await it.settle()
    assert it.overs == 1
    assert outcome(pending).code is ErrorCode.NOT_CONTROLLER
    assert caplog.records


async def test_what_a_decision_refuses_costs_nobody_the_office() -> None:
    def refuse() -> Decision[None]:
        yield ()
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    async with office() as it:
        first, second = it.term.ask(refuse), it.term.ask(nothing)
        await it.settle()
        assert outcome(first).code is ErrorCode.INVALID_REQUEST
        assert outcome(second) == "done"
        assert it.overs == 0


@pytest.mark.parametrize("first", [-1, 2**63 - 500])
async def test_producer_ids_that_nobody_knows_cost_nobody_the_office(it: Office, first: int) -> None:
    """The node is garbled, or the last ids are given out."""
    if first < 0:
        it.store.read_failure = MalformedMessageError("ZooKeeper node /latest_producer_id_block: ?")
    else:
        it.store.read_producer_ids = lambda: asyncio.sleep(0, (first, 0))  # type: ignore[method-assign]
    pending = it.term.do(lambda: it.term.allocate_producer_ids(2, 12))
    await it.settle()
    assert outcome(pending).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert it.overs == 0
    assert it.store.written == []


async def test_garbled_features_cost_nobody_the_office_and_nobody_changes_them() -> None:
    failure = MalformedMessageError("ZooKeeper node /feature: ?")
    async with office(feature_failure=failure) as it:
        update = [FeatureUpdate("group.version", 1, UpgradeType.UPGRADE)]
        pending = it.term.do(lambda: it.term.update_features(update, validate_only=False))
        await it.settle()
        assert outcome(pending).code is ErrorCode.FEATURE_UPDATE_FAILED
        assert it.overs == 0
        assert it.store.written == []


async def test_what_can_not_be_written_is_raised_in_the_decision(it: Office) -> None:
    """It may have to put right what it has written before."""

    def decide() -> Decision[str]:
        try:
            yield [DeletionWrite("t")]
        except KafkaError as error:
            return error.message
        return "written"

    it.store.failure = KafkaError(ErrorCode.INVALID_REQUEST, "it is too large")
    pending = it.term.ask(decide)
    await it.settle()
    assert outcome(pending) == "it is too large"
    assert it.overs == 0


async def test_one_thing_after_the_other(it: Office) -> None:
    """What comes while something is written waits; folders that change often meanwhile are read once."""
    reads = it.store.reads
    it.store.gate.clear()
    moved = it.term.ask(lambda: it.term.controller.reassignments.alter({T0: (2, 1)}))
    await it.settle()
    for _ in range(5):
        it.change(BROKER_IDS)
    asked = it.term.ask(nothing)
    await it.settle()
    assert not moved.is_over
    assert not asked.is_over
    assert it.store.reads == reads
    it.store.gate.set()
    await it.settle()
    assert moved.is_over
    assert outcome(asked) == "done"
    assert it.store.reads == reads + 1


async def test_what_is_done_in_turns_lets_others_in_between(it: Office) -> None:
    seen: list[str] = []
    others: list[Pending[Any]] = []

    async def other(name: str) -> None:
        seen.append(name)

    async def work(part: str) -> dict[str, int]:
        others.append(it.term.do(lambda: other(f"after {part}")))
        seen.append(part)
        return {part: len(seen)}

    pending = it.term.do_in_turns("ab", iter("ab"), work)
    assert seen == []
    await it.settle()
    assert seen == ["a", "after a", "b", "after b"]
    assert outcome(pending) == {"a": 1, "b": 3}
    assert all(one.is_over for one in others)


async def test_the_first_refusal_ends_what_is_done_in_turns(it: Office) -> None:
    seen: list[str] = []

    async def work(part: str) -> dict[str, int]:
        if part == "b":
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        seen.append(part)
        return {part: 0}

    def parts() -> Iterator[str]:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
        yield ""

    refused = it.term.do_in_turns("abc", iter("abc"), work), it.term.do_in_turns("xy", parts(), work)
    await it.settle()
    assert codes(outcome(refused[0])) == {
        "a": 0,
        "b": ErrorCode.INVALID_REQUEST,
        "c": ErrorCode.INVALID_REQUEST,
    }
    assert codes(outcome(refused[1])) == dict.fromkeys("xy", ErrorCode.POLICY_VIOLATION)
    assert seen == ["a"]


async def test_what_was_done_in_turns_stays_done_when_the_term_ends(it: Office) -> None:
    seen: list[str] = []

    async def work(part: str) -> dict[str, int]:
        seen.append(part)
        if part == "b":
            asyncio.get_running_loop().call_soon(it.term.close)
            await asyncio.sleep(0)
        return {part: 0}

    pending = it.term.do_in_turns("abc", iter("abc"), work)
    await it.settle()
    assert codes(outcome(pending)) == {"a": 0, "b": ErrorCode.NOT_CONTROLLER, "c": ErrorCode.NOT_CONTROLLER}
    assert seen == ["a", "b"]
    with pytest.raises(KafkaError):
        it.term.do_in_turns("ab", iter("ab"), work)


async def test_another_life_of_a_broker_gets_nothing_of_the_one_before(it: Office) -> None:
    (old,) = (queue for number, _, queue in it.queues if number == 2)
    it.store.brokers[2] = live(2, 22)
    it.change(BROKER_IDS)
    await it.settle()
    assert old.is_closed
    ((epoch, new),) = ((epoch, queue) for number, epoch, queue in it.queues if number == 2 and queue is not old)
    assert epoch == 22
    assert {request.broker_epoch for request in new.sent} == {22}
    before = it.term.context.state(T0)
    old.on_answer(
        ControllerRequest(2, 12, LEADER_AND_ISR, 7, None),
        LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
    )
    await it.settle()
    assert it.term.context.state(T0) == before


async def test_a_broker_that_listens_elsewhere_is_told_there(it: Office) -> None:
    """As one of Kafka's whose listeners were changed while it runs. What it has not answered is sent there."""
    (old,) = (queue for number, _, queue in it.queues if number == 2)
    unanswered, states = list(old.sent), len(it.store.written)
    it.store.brokers[2] = live(2, 12, port=9999)
    it.change(broker_path(2))
    await it.settle()
    assert old.is_closed
    (new,) = (queue for number, _, queue in it.queues if number == 2 and queue is not old)
    assert new.sent[: len(unanswered)] == unanswered
    for broker_id in (1, 2):
        last = it.sent(broker_id)[-1]
        assert last.api is UPDATE_METADATA
        assert [one.endpoints[0].port for one in last.request.live_brokers] == [9092, 9999]
    assert len(it.store.written) == states, "nobody else is elected for that"
    assert it.term.context.stats.broker_changes == 0


async def test_partitions_that_somebody_adds_by_hand_are_led(it: Office) -> None:
    """As kafka-topics.sh --zookeeper of Kafka before 3.0 adds them."""
    topic = it.store.topics["t"]
    topic.partitions[1], topic.version = unwritten_state((2, 1)), 1
    it.session.watched[topic_path("t")](Node(b"", NodeStat(1, 0, 0, 0, 0, 0)))
    await it.settle()
    assert it.term.context.state(TopicPartition("t", 1)).leader == 2
    assert it.term.context.topics["t"].version == 1
    assert [write.partition for write in it.store.written if isinstance(write, StateWrite)] == [TopicPartition("t", 1)]


async def test_what_is_gone_is_watched_no_more(it: Office) -> None:
    del it.store.brokers[2]
    it.store.topics.clear()
    it.change(BROKER_IDS)
    it.change(TOPICS)
    await it.settle()
    assert sum(watch.is_cancelled for watch in it.session.watches) == 2


async def test_a_term_that_is_over_watches_nothing_though_an_answer_was_under_way() -> None:
    it = Office()
    it.session.refuses = broker_path(2)
    it.begin()
    await it.settle()
    assert it.overs == 1
    assert {broker_path(1), TOPICS} <= set(it.session.watched)
    assert all(watch.is_cancelled for watch in it.session.watches)


async def test_a_topic_that_is_made_and_to_be_deleted_at_once_is_deleted_as_a_topic(it: Office) -> None:
    """News of the wish may come before those of the topic: its replicas are deleted all the same."""
    it.store.topics["u"] = ControlledTopic(bytes(15) + b"u", 0, {0: unwritten_state((1, 2))})
    it.store.deleted = ["u"]
    it.change(DELETE_TOPICS)
    it.change(TOPICS)
    await it.settle()
    assert "u" in it.term.context.deleted
    stops = [request for request in it.sent(2) if request.api is STOP_REPLICA]
    (stop,) = stops
    assert [(topic.topic_name, len(topic.partition_states)) for topic in stop.request.topic_states] == [("u", 1)]
    for broker_id in (1, 2):
        answer = StopReplicaResponse(partition_errors=[StopReplicaPartitionError("u", 0, ErrorCode.NONE)])
        epoch, queue = next((epoch, queue) for number, epoch, queue in it.queues if number == broker_id)
        queue.on_answer(ControllerRequest(broker_id, epoch, STOP_REPLICA, 4, stop.request), answer)
    await it.settle()
    assert "u" not in it.term.context.topics
    assert it.overs == 0


async def test_a_queue_that_comes_to_an_end_by_a_mistake_ends_it(it: Office) -> None:
    _, _, queue = it.queues[0]
    queue.on_mistake()
    assert it.overs == 1
    assert all(one.is_closed for _, _, one in it.queues)


async def test_answers_that_say_nothing_change_nothing(it: Office) -> None:
    epoch, queue = next((epoch, queue) for number, epoch, queue in it.queues if number == 2)
    for error in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR):
        queue.on_answer(ControllerRequest(2, epoch, UPDATE_METADATA, 8, None), UpdateMetadataResponse(error_code=error))
        queue.on_answer(
            ControllerRequest(2, epoch, STOP_REPLICA, 4, StopReplicaRequest()),
            StopReplicaResponse(error_code=error),
        )
        queue.on_answer(ControllerRequest(2, epoch, LEADER_AND_ISR, 7, None), LeaderAndIsrResponse(error_code=error))
    await it.settle()
    assert it.store.written == []
    assert it.overs == 0
