"""The controller of a cluster: what it writes down, and what it tells whom. The versions are those of a store that
always does as it is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from core.cluster.controller.cluster_controller import ClusterController
from core.cluster.controller.controller_context import ControlledTopic, LiveBroker, unwritten_state
from core.cluster.controller.controller_decisions import ControllerDecisions
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.controller_writes import (
    AssignmentWrite,
    Decision,
    ProducerIdWrite,
    StateWrite,
    TopicRemoval,
    Write,
)
from core.cluster.controller.elections import ElectionPolicy
from core.cluster.image.metadata_image import PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    UpdateMetadataBroker,
)
from core.protocol.schema.controller_request import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    BrokerState,
)
from tests.support.for_each import for_each

T = TypeVar("T")

ID = bytes(15) + b"\x07"
T0 = TopicPartition("t", 0)


class Cluster:
    """A controller in office, brokers 1 to 3, and what was written and sent since the last look."""

    def __init__(self, *, unclean: bool = False, min_isr: int = 1) -> None:
        self.min_isr = min_isr
        self.wait_ms: int | None = None
        self.written: list[Write] = []
        self.sent: list[ControllerRequest] = []
        policy = ElectionPolicy(
            may_be_unclean=lambda _topic: unclean,
            min_isr=lambda _topic: self.min_isr,
            recovery_wait_ms=lambda: self.wait_ms,
        )
        office = ControllerDecisions(1, 5, send=self.sent.append, policy=policy)
        self.context = office.context
        self.controller = ClusterController(office)
        self.refused: type[Write] | None = None
        """What ZooKeeper does not take."""

    def drive(self, decision: Decision[T]) -> T:
        try:
            writes = next(decision)
            while True:
                if self.refused is not None and any(isinstance(write, self.refused) for write in writes):
                    writes = decision.throw(KafkaError(ErrorCode.INVALID_REQUEST, "it is too large"))
                    continue
                self.written += writes
                writes = decision.send([_version_after(write) for write in writes])
        except StopIteration as end:
            self.controller.check_invariants()
            return end.value  # type: ignore[no-any-return]

    def take_office(
        self,
        states: Mapping[int, PartitionState],
        brokers: Sequence[int] = (1, 2, 3),
        *,
        epochs: Mapping[int, int] = {},
        deleted: Sequence[str] = (),
    ) -> None:
        """States were written at zxid 500; brokers registered before that, unless `epochs` say otherwise."""
        live = {one: broker(one, epochs.get(one, 100 + one)) for one in brokers}
        topics = {"t": ControlledTopic(ID, 0, _held(states))} if states else {}
        self.drive(self.controller.take_office(live, topics, deleted))

    def be_shown(self, states: Mapping[int, PartitionState], name: str = "t", topic_id: bytes = ID) -> None:
        """A topic is read, once more perhaps; its states were written at zxid 500."""
        self.drive(self.controller.on_topics({name: ControlledTopic(topic_id, 1, _held(states))}))

    def forget(self) -> None:
        self.written.clear()
        self.sent.clear()

    def brokers(self, *ids: int, epochs: Mapping[int, int] = {}) -> None:
        self.drive(self.controller.on_brokers({one: broker(one, epochs.get(one, 100 + one)) for one in ids}))

    def state(self, partition: TopicPartition = T0) -> tuple[int, int, tuple[int, ...]]:
        state = self.context.state(partition)
        return state.leader, state.leader_epoch, state.isr

    def told(self, api: Any) -> dict[int, list[Any]]:
        """The requests of an API, by broker."""
        found: dict[int, list[Any]] = {}
        for request in self.sent:
            if request.api is api:
                found.setdefault(request.broker_id, []).append(request.request)
        return found

    def partition_states(self, api: Any, broker_id: int) -> list[Any]:
        return [
            state
            for request in self.told(api)[broker_id]
            for topic in request.topic_states
            for state in topic.partition_states
        ]

    def roles(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Who was told by LeaderAndIsr that who leads, in which epoch: the last word."""
        return {
            broker_id: {
                f"{topic.topic_name}-{state.partition_index}": (state.leader, state.leader_epoch)
                for request in requests
                for topic in request.topic_states
                for state in topic.partition_states
            }
            for broker_id, requests in self.told(LEADER_AND_ISR).items()
        }

    def stopped(self) -> dict[int, list[tuple[int, bool, int]]]:
        return {
            one: [
                (state.partition_index, state.delete_partition, state.leader_epoch)
                for state in self.partition_states(STOP_REPLICA, one)
            ]
            for one in self.told(STOP_REPLICA)
        }


def in_office(
    states: Mapping[int, PartitionState], brokers: Sequence[int] = (1, 2, 3), *, unclean: bool = False, **more: Any
) -> Cluster:
    cluster = Cluster(unclean=unclean)
    cluster.take_office(states, brokers, **more)
    return cluster


def settled(states: Mapping[int, PartitionState], brokers: Sequence[int] = (1, 2, 3), **more: Any) -> Cluster:
    """One that has told everybody what there is."""
    cluster = in_office(states, brokers, **more)
    cluster.forget()
    return cluster


def _held(states: Mapping[int, PartitionState]) -> dict[int, PartitionState]:
    """The states with their holders, as they are read if Kafka wrote them at zxid 500."""
    return {
        number: state if state.holders else replace(state, holders=dict.fromkeys(state.isr, 500))
        for number, state in states.items()
    }


def broker(broker_id: int, epoch: int, rack: str | None = None) -> LiveBroker:
    return LiveBroker(epoch, UpdateMetadataBroker(id=broker_id, rack=rack), {}, epoch)


def _version_after(write: Write) -> int:
    match write:
        case StateWrite(_, state):
            return state.partition_epoch + 1
        case AssignmentWrite(version=version) | ProducerIdWrite(version=version):
            return version + 1
    return 0


def led(
    leader: int, isr: Sequence[int] = (1, 2, 3), replicas: Sequence[int] = (1, 2, 3), epoch: int = 4
) -> PartitionState:
    return PartitionState(leader, epoch, tuple(isr), tuple(replicas), partition_epoch=9)


# --- taking office


def test_brokers_learn_of_each_other_before_they_are_told_what_they_lead() -> None:
    cluster = in_office({0: led(1)})
    by_broker = [request.api for request in cluster.sent if request.broker_id == 2]
    assert by_broker == [UPDATE_METADATA, LEADER_AND_ISR, UPDATE_METADATA]
    first = cluster.told(UPDATE_METADATA)[2][0]
    assert [one.id for one in first.live_brokers] == [1, 2, 3]
    assert first.topic_states == []
    assert cluster.roles() == {one: {"t-0": (1, 4)} for one in (1, 2, 3)}
    assert cluster.written == []


def test_requests_are_meant_for_one_life_of_a_broker() -> None:
    cluster = in_office({0: led(1)})
    assert {request.broker_epoch for request in cluster.sent if request.broker_id == 3} == {103}
    assert all(request.request.broker_epoch == request.broker_epoch for request in cluster.sent)
    assert all(request.request.controller_epoch == 5 for request in cluster.sent)


@pytest.mark.parametrize(
    ("states", "brokers", "epochs", "expected"),
    [
        pytest.param(
            {0: led(1), 1: led(2)}, (2, 3), {}, [(2, 5, (2, 3)), (2, 5, (2, 3))], id="who died before leads no more"
        ),
        # broker 2 has started again since the state was written, and may have lost something (KIP-903)
        pytest.param(
            {0: led(2)}, (1, 2, 3), {2: 600}, [(1, 5, (1, 3))], id="a life that nobody confirmed is not in sync"
        ),
        # each may have lost something, and it is to be found out who has most
        pytest.param(
            {0: led(2, isr=(2, 3))}, (1, 2, 3), {2: 600, 3: 601}, [(-1, 5, (2, 3))],
            id="if all have started again nobody leads yet",
        ),
        pytest.param(
            {0: led(9, isr=(9,))}, (1, 2, 3), {}, [(-1, 5, ())], id="in sync and no replica makes nobody be in sync"
        ),
    ],
)  # fmt: skip
def test_who_leads_and_is_in_sync_when_it_takes_office(
    states: dict[int, PartitionState],
    brokers: Sequence[int],
    epochs: Mapping[int, int],
    expected: list[tuple[int, int, tuple[int, ...]]],
) -> None:
    cluster = in_office(states, brokers, epochs=epochs)
    assert [cluster.state(TopicPartition("t", number)) for number in states] == expected


def test_a_life_is_not_confirmed_by_who_does_not_know_of_it() -> None:
    """Broker 2 starts again, and the state is written once more by a controller that has not heard of that. What the
    next one finds says which life was meant, however late it was written.
    """
    before = Cluster()
    before.take_office({0: led(1)})
    before.forget()
    assert alter(before, [1, 2]) == (ErrorCode.NONE, ErrorCode.NONE)
    (write,) = before.written
    assert isinstance(write, StateWrite)
    assert write.state.holders == {1: 101, 2: 102}

    after = Cluster()
    live = {one: broker(one, epoch) for one, epoch in ((1, 101), (2, 450))}
    topics = {"t": ControlledTopic(ID, 0, {0: write.state})}
    after.drive(after.controller.take_office(live, topics, ()))
    assert after.state() == (1, 5, (1,))


def test_replicas_in_sync_that_are_dead_are_known_by_the_lives_in_which_they_were() -> None:
    cluster = in_office({0: led(1, isr=(1, 2))}, brokers=(3,))
    (write,) = cluster.written
    assert isinstance(write, StateWrite)
    assert (write.state.leader, write.state.holders) == (-1, {1: 500, 2: 500})


def test_an_expired_session_is_no_other_life() -> None:
    cluster = Cluster()
    live = {one: broker(one, 100 + one) for one in (1, 2, 3)}
    live[2] = live[2]._replace(epoch=600)
    cluster.drive(cluster.controller.take_office(live, {"t": ControlledTopic(ID, 0, _held({0: led(2)}))}, ()))
    assert cluster.state() == (2, 4, (1, 2, 3))


# --- brokers die and come back


def test_a_follower_that_dies_leaves_the_replicas_in_sync_and_the_epoch_rises() -> None:
    cluster = in_office({0: led(1)})
    cluster.brokers(1, 2)
    assert cluster.state() == (1, 5, (1, 2))


def test_another_replica_in_sync_leads_when_the_leader_dies() -> None:
    cluster = settled({0: led(1, isr=(1, 3))})
    cluster.brokers(2, 3)
    assert cluster.state() == (3, 5, (3,))
    assert len(cluster.written) == 1
    assert cluster.roles() == {2: {"t-0": (3, 5)}, 3: {"t-0": (3, 5)}}


def test_nobody_out_of_sync_leads_unless_that_is_allowed() -> None:
    for unclean, expected in ((False, (-1, 5, (1,))), (True, (2, 5, (2,)))):
        cluster = in_office({0: led(1, isr=(1,))}, unclean=unclean)
        cluster.brokers(2, 3)
        assert cluster.state() == expected
        assert cluster.context.state(T0).leader_recovery_state == int(unclean)


def test_replicas_that_all_die_stay_in_sync() -> None:
    cluster = in_office({0: led(1, isr=(1, 2))})
    cluster.brokers(3)
    assert cluster.state() == (-1, 5, (1, 2))


def test_a_broker_that_is_back_before_anybody_looked_was_dead() -> None:
    cluster = settled({0: led(1)})
    cluster.brokers(1, 2, 3, epochs={1: 700})
    assert cluster.state() == (2, 5, (2, 3))
    assert cluster.roles()[1] == {"t-0": (2, 5)}
    assert {request.broker_epoch for request in cluster.sent if request.broker_id == 1} == {700}


def test_a_broker_that_comes_is_told_everything() -> None:
    cluster = settled({0: led(1), 1: led(1, replicas=(1, 2), isr=(1, 2))}, brokers=(1, 2))
    cluster.brokers(1, 2, 3)
    assert {state.partition_index for state in cluster.partition_states(UPDATE_METADATA, 3)} == {0, 1}
    assert cluster.roles() == {3: {"t-0": (1, 5)}}
    assert all(not request.topic_states for request in cluster.told(UPDATE_METADATA)[1][:1])


# --- AlterPartition


def alter(
    cluster: Cluster,
    isr: Sequence[int],
    *,
    leader: int = 1,
    leader_epoch: int = 4,
    partition_epoch: int = 9,
    broker_epoch: int | None = None,
    epochs: Mapping[int, int] = {},
    topic_id: bytes = ID,
) -> tuple[ErrorCode, ErrorCode | None]:
    partition = AlteredPartition(
        partition_index=0,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        new_isr_with_epochs=[BrokerState(one, epochs.get(one, -1)) for one in isr],
    )
    epoch = 100 + leader if broker_epoch is None else broker_epoch
    topics = [AlteredTopic(topic_id=topic_id, partitions=[partition])]
    answer = cluster.drive(cluster.controller.alter_partitions(AlterPartitionRequest(leader, epoch, topics)))
    if answer.error_code:
        return ErrorCode.of(answer.error_code), None
    (result,) = answer.topics[0].partitions
    return ErrorCode.NONE, ErrorCode.of(result.error_code)


def alter_now(cluster: Cluster, isr: Sequence[int]) -> tuple[ErrorCode, ErrorCode | None]:
    """With the epochs that hold now."""
    state = cluster.context.state(T0)
    return alter(cluster, isr, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch)


@pytest.fixture
def shrunk() -> Cluster:
    return settled({0: led(1, isr=(1, 2))})


def test_a_leader_takes_a_follower_in(shrunk: Cluster) -> None:
    assert alter(shrunk, (1, 2, 3), epochs={3: 103}) == (ErrorCode.NONE, ErrorCode.NONE)
    assert shrunk.state() == (1, 4, (1, 2, 3)), "the leader epoch stays"
    assert shrunk.context.state(T0).partition_epoch == 10
    assert shrunk.told(LEADER_AND_ISR) == {}
    assert set(shrunk.told(UPDATE_METADATA)) == {1, 2, 3}
    shrunk.forget()
    assert alter(shrunk, (3, 2, 1)) == (ErrorCode.NONE, ErrorCode.NONE), "what is so already is confirmed"
    assert shrunk.written == []


def test_what_a_leader_may_not_change(shrunk: Cluster) -> None:
    all_of_them = (1, 2, 3)
    refused: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"isr": all_of_them, "leader_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"isr": all_of_them, "leader_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ({"isr": all_of_them, "partition_epoch": 8}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": all_of_them, "partition_epoch": 10}, ErrorCode.NOT_CONTROLLER),
        ({"isr": all_of_them, "epochs": {3: 99}}, ErrorCode.INELIGIBLE_REPLICA),
        ({"isr": (1, 2, 9)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": (2, 3)}, ErrorCode.INVALID_REQUEST),
        ({"isr": all_of_them, "leader": 2}, ErrorCode.INVALID_REQUEST),
        ({"isr": all_of_them, "topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    for asked, error in refused:
        assert alter(shrunk, **asked) == (ErrorCode.NONE, error), asked
    assert alter(shrunk, all_of_them, broker_epoch=99) == (ErrorCode.STALE_BROKER_EPOCH, None), "an earlier life"
    assert shrunk.written == []


@pytest.mark.parametrize("how", ["dead", "shutting down"])
def test_a_broker_that_goes_is_not_taken_in(shrunk: Cluster, how: str) -> None:
    """KIP-841. What became of the partition meanwhile is asked for with the present epochs."""
    if how == "dead":
        shrunk.brokers(1, 2)
    else:
        shrunk.drive(shrunk.controller.shut_down(3, 103))
    assert alter_now(shrunk, (1, 2, 3)) == (ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA)


def test_a_leader_that_is_about_to_stop_may_take_in_who_can_lead_after_it() -> None:
    cluster = in_office({0: led(1, isr=(1,))})
    assert cluster.drive(cluster.controller.shut_down(1, 101)) == [T0]
    assert alter(cluster, (1, 2)) == (ErrorCode.NONE, ErrorCode.NONE)
    assert cluster.drive(cluster.controller.shut_down(1, 101)) == []
    assert cluster.state()[0] == 2


def alter_as(cluster: Cluster, *partitions: AlteredPartition) -> list[int]:
    """The errors of a request of the leader's, broker 1, as it stands."""
    request = AlterPartitionRequest(1, 101, [AlteredTopic(topic_id=ID, partitions=list(partitions))])
    answer = cluster.drive(cluster.controller.alter_partitions(request))
    return [one.error_code for one in answer.topics[0].partitions]


def test_an_older_form_of_the_request_lets_in_no_dead_broker() -> None:
    """AlterPartition 2 names no epochs."""
    cluster = in_office({0: led(1, isr=(1,))}, brokers=(1, 2))
    older = AlteredPartition(partition_index=0, leader_epoch=4, partition_epoch=9, new_isr=[1, 3])
    assert alter_as(cluster, older) == [ErrorCode.INELIGIBLE_REPLICA]


def test_a_leader_that_has_recovered_does_not_say_that_it_has_not(shrunk: Cluster) -> None:
    """KIP-704: it is said once, by the first leader after an unclean election. There is no other state than two."""
    for recovery in (1, 2, -1):
        said = AlteredPartition(
            partition_index=0, leader_epoch=4, partition_epoch=9, new_isr=[1], leader_recovery_state=recovery
        )
        assert alter_as(shrunk, said) == [ErrorCode.INVALID_REQUEST], recovery
    assert shrunk.written == []


# --- controlled shutdown


def test_what_a_broker_leads_is_handed_over_before_it_stops() -> None:
    cluster = Cluster()
    states = {
        0: led(2, isr=(1, 2, 3)),
        1: led(2, isr=(2,)),
        2: led(1, isr=(1, 2)),
        3: led(2, isr=(2,), replicas=(2,)),
    }
    cluster.take_office(states)
    cluster.forget()
    remaining = cluster.drive(cluster.controller.shut_down(2, 102))
    assert remaining == [TopicPartition("t", 1)], "nobody else is in sync; and a single replica is nobody else's"
    assert cluster.state(T0) == (1, 5, (1, 3))
    assert cluster.state(TopicPartition("t", 2)) == (1, 5, (1,))
    assert cluster.stopped() == {2: [(2, False, 5)]}


def test_nothing_is_moved_to_another_broker_that_is_about_to_stop() -> None:
    cluster = in_office({0: led(2, isr=(2, 3), replicas=(3, 2, 1))})
    assert cluster.drive(cluster.controller.shut_down(3, 103)) == []
    assert cluster.drive(cluster.controller.shut_down(2, 102)) == [T0]


def test_a_stop_that_is_asked_for_by_nobody_who_lives() -> None:
    cluster = in_office({0: led(2)})
    assert cluster.drive(cluster.controller.shut_down(9, 1)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.drive(cluster.controller.shut_down(2, 99)) is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.state() == (2, 4, (1, 2, 3))


# --- elections that are asked for


def test_preferred_leaders() -> None:
    cluster = in_office({0: led(2), 1: led(2, isr=(2, 3)), 2: led(1)})
    partitions = [TopicPartition("t", number) for number in (0, 1, 2, 7)]
    results = cluster.drive(cluster.controller.elect_leaders(partitions, is_unclean=False))
    assert [results[one] for one in partitions] == [
        ErrorCode.NONE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.state(T0) == (1, 5, (1, 2, 3))


def test_an_operator_may_have_anybody_elected_who_lives() -> None:
    cluster = in_office({0: led(1, isr=(1,)), 1: led(2)}, brokers=(2, 3))
    one = TopicPartition("t", 1)
    results = cluster.drive(cluster.controller.elect_leaders([T0, one], is_unclean=True))
    assert results == {T0: ErrorCode.NONE, one: ErrorCode.ELECTION_NOT_NEEDED}
    assert cluster.state()[0] == 2
    assert cluster.context.state(T0).leader_recovery_state == 1


def test_an_operators_word_takes_a_replica_that_would_not_lead() -> None:
    """It has answered KAFKA_STORAGE_ERROR, as it lost committed records, and nobody else is there."""
    cluster = in_office({0: led(1, isr=(1,))}, brokers=(1,))
    answer_storage_error(cluster, 1)
    assert cluster.state()[0] == -1
    assert cluster.drive(cluster.controller.elect_leaders([T0], is_unclean=True)) == {T0: ErrorCode.NONE}
    assert cluster.state()[0] == 1


def test_leadership_goes_back_by_itself_if_a_broker_leads_too_little() -> None:
    cluster = in_office({number: led(2 if number < 2 else 1) for number in range(10)})
    assert cluster.drive(cluster.controller.balance_leaders(30)) == 0
    assert cluster.drive(cluster.controller.balance_leaders(10)) == 2
    assert cluster.state()[0] == 1


# --- disks


def answer_storage_error(
    cluster: Cluster, broker_id: int, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR, *, epoch: int | None = None
) -> None:
    error = LeaderAndIsrPartitionError(partition_index=0, error_code=code)
    answer = LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(ID, [error])])
    life = 100 + broker_id if epoch is None else epoch
    cluster.drive(cluster.controller.on_roles_taken(broker_id, life, LeaderAndIsrRequest(), answer))


def test_another_replica_leads_if_the_leaders_disk_fails() -> None:
    cluster = settled({0: led(1)})
    cluster.drive(cluster.controller.ask_for_disks(1))
    assert cluster.roles() == {1: {"t-0": (1, 4)}}
    answer_storage_error(cluster, 1)
    assert cluster.state() == (2, 5, (2, 3))
    assert cluster.partition_states(UPDATE_METADATA, 3)[-1].offline_replicas == [1]
    answer_storage_error(cluster, 1, ErrorCode.NONE)
    assert cluster.context.is_online(T0, 1)


def test_news_of_an_earlier_life_of_a_disk_are_old() -> None:
    cluster = in_office({0: led(1)})
    answer_storage_error(cluster, 1, epoch=99)
    assert cluster.state() == (1, 4, (1, 2, 3))


def test_the_disk_of_a_later_life_has_not_failed() -> None:
    cluster = in_office({0: led(1)})
    answer_storage_error(cluster, 1)
    cluster.brokers(2, 3)
    cluster.brokers(1, 2, 3, epochs={1: 700})
    assert cluster.context.is_online(T0, 1)


# --- topics


def test_a_new_topic_is_led_by_the_first_replica_that_lives() -> None:
    cluster = in_office({}, brokers=(2, 3))
    topic = ControlledTopic(ID, -1, {0: unwritten_state((1, 2, 3))})
    cluster.drive(cluster.controller.create_topics({"t": topic}, {"t": {"retention.ms": "5"}}))
    assert isinstance(cluster.written[0], AssignmentWrite)
    assert cluster.written[0].configs == {"retention.ms": "5"}
    assert cluster.state() == (2, 0, (2, 3))
    (request,) = cluster.told(LEADER_AND_ISR)[3]
    assert request.topic_states[0].partition_states[0].is_new


def test_a_topic_whose_brokers_are_all_dead_is_led_when_one_comes() -> None:
    cluster = in_office({}, brokers=(3,))
    topic = ControlledTopic(ID, 0, {0: unwritten_state((1, 2))})
    cluster.drive(cluster.controller.on_topics({"t": topic}))
    assert cluster.written == []
    cluster.brokers(2, 3)
    assert cluster.state() == (2, 0, (2,))


def test_a_topic_grows() -> None:
    cluster = settled({0: led(1)})
    cluster.drive(cluster.controller.create_partitions("t", {1: unwritten_state((3, 1))}))
    assert isinstance(cluster.written[0], AssignmentWrite)
    assert {number: state.replicas for number, state in cluster.written[0].partitions.items()} == {
        0: (1, 2, 3),
        1: (3, 1),
    }
    assert cluster.state(TopicPartition("t", 1)) == (3, 0, (3, 1))
    assert cluster.state(T0) == (1, 4, (1, 2, 3)), "what was there stays"


def stop_answer(
    cluster: Cluster,
    broker_id: int,
    code: ErrorCode = ErrorCode.NONE,
    *,
    deletes: bool = True,
    broker_epoch: int | None = None,
) -> None:
    answer = StopReplicaResponse(partition_errors=[StopReplicaPartitionError("t", 0, code)])
    request = StopReplicaRequest(
        topic_states=[StopReplicaTopicState("t", [StopReplicaPartitionState(0, -2, delete_partition=deletes)])]
    )
    epoch = 100 + broker_id if broker_epoch is None else broker_epoch
    cluster.drive(cluster.controller.on_replicas_stopped(broker_id, epoch, request, answer))


def stop_answers(cluster: Cluster, *brokers: int) -> None:
    for broker_id in brokers:
        stop_answer(cluster, broker_id)


def test_a_topic_is_gone_when_all_replicas_are() -> None:
    cluster = settled({0: led(1)})
    cluster.drive(cluster.controller.on_deletions(["t"]))
    for one in (1, 2, 3):
        assert {state.leader for state in cluster.partition_states(UPDATE_METADATA, one)} == {-2}
    assert cluster.stopped() == {one: [(0, True, -2)] for one in (1, 2, 3)}
    stop_answers(cluster, 1, 2)
    assert cluster.written == []
    stop_answer(cluster, 3)
    assert cluster.written == [TopicRemoval("t")]
    assert cluster.context.topics == {}
    assert cluster.context.deleted == set()


def test_a_deletion_waits_for_a_broker_that_is_dead() -> None:
    cluster = in_office({0: led(1)}, brokers=(1, 2), deleted=["t"])
    stop_answers(cluster, 1, 2)
    assert cluster.written == []
    cluster.forget()
    cluster.brokers(1, 2, 3)
    assert cluster.stopped() == {3: [(0, True, -2)]}
    stop_answer(cluster, 3, ErrorCode.KAFKA_STORAGE_ERROR)
    assert cluster.written == []
    stop_answer(cluster, 3)
    assert cluster.written == [TopicRemoval("t")]


def test_what_an_earlier_life_of_a_broker_has_deleted_may_be_there_again() -> None:
    cluster = in_office({0: led(1)}, deleted=["t"])
    stop_answers(cluster, 1, 2)
    stop_answer(cluster, 3, broker_epoch=99)
    assert cluster.written == []
    stop_answer(cluster, 3)
    assert cluster.written == [TopicRemoval("t")]


def test_nobody_is_elected_for_a_topic_that_is_deleted() -> None:
    cluster = settled({0: led(1)}, deleted=["t"])
    cluster.brokers(2, 3)
    assert cluster.written == []
    assert alter(cluster, (2, 3), leader=2) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_wish_to_delete_what_is_not_there_is_fulfilled() -> None:
    cluster = in_office({}, deleted=["gone"])
    assert cluster.written == [TopicRemoval("gone")]


def test_what_was_stopped_before_a_deletion_is_not_deleted() -> None:
    """The answer is to a controlled shutdown, and comes when the topic is to be deleted."""
    cluster = in_office({0: led(1)})
    cluster.drive(cluster.controller.shut_down(3, 103))
    cluster.drive(cluster.controller.on_deletions(["t"]))
    stop_answer(cluster, 3, deletes=False)
    stop_answers(cluster, 1, 2)
    assert TopicRemoval("t") not in cluster.written
    stop_answer(cluster, 3)
    assert TopicRemoval("t") in cluster.written


def test_a_topic_whose_nodes_somebody_removed_is_another_one_when_it_is_made_again() -> None:
    cluster = in_office({0: led(1)}, brokers=(1, 2), deleted=["t"])
    cluster.controller.on_topics_gone(["t"])
    cluster.forget()
    another = ControlledTopic(bytes(15) + b"\x08", 0, {0: unwritten_state((1, 2))})
    cluster.drive(cluster.controller.on_topics({"t": another}))
    assert cluster.state() == (1, 0, (1, 2))
    cluster.brokers(1, 2, 3)
    stop_answer(cluster, 3)
    assert TopicRemoval("t") not in cluster.written


def test_a_disk_that_fails_under_a_topic_that_is_deleted_changes_nothing() -> None:
    cluster = in_office({0: led(1)})
    cluster.drive(cluster.controller.on_deletions(["t"]))
    cluster.forget()
    answer_storage_error(cluster, 1)
    assert cluster.written == []
    assert cluster.roles() == {}


def test_a_failed_disk_is_known_when_the_topic_has_grown() -> None:
    cluster = in_office({0: led(1)})
    answer_storage_error(cluster, 3)
    cluster.drive(cluster.controller.create_partitions("t", {1: unwritten_state((1, 2))}))
    assert not cluster.context.is_online(T0, 3)


def test_a_partition_without_a_leader_is_led_when_a_disk_works_again() -> None:
    cluster = in_office({0: led(1, isr=(1,))}, brokers=(1,))
    answer_storage_error(cluster, 1)
    assert cluster.state()[0] == -1
    answer_storage_error(cluster, 1, ErrorCode.NONE)
    assert cluster.state()[0] == 1


# --- reassignment


def reassign(cluster: Cluster, target: Sequence[int] | None) -> ErrorCode | None:
    (error,) = cluster.drive(cluster.controller.reassignments.alter({T0: target})).values()
    return None if error is None else error.code


def assigned(cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    state = cluster.context.state(T0)
    return state.replicas, state.adding_replicas, state.removing_replicas


def moving() -> Cluster:
    return settled({0: led(1, isr=(1, 2), replicas=(1, 2))}, brokers=(1, 2, 3, 4))


def half_moved(leader: int, isr: tuple[int, ...]) -> Cluster:
    """A controller that found the partition on its way from 1 and 2 to 3 and 4."""
    state = PartitionState(leader, 4, isr, (3, 4, 1, 2), 9, adding_replicas=(3, 4), removing_replicas=(1, 2))
    return settled({0: state}, brokers=(1, 2, 3, 4))


def test_replicas_move_in_three_steps() -> None:
    cluster = moving()
    assert reassign(cluster, (3, 4)) is None
    assert assigned(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert cluster.state() == (1, 5, (1, 2))
    assert set(cluster.roles()) == {1, 2, 3, 4}
    assert cluster.stopped() == {}
    cluster.forget()
    alter_now(cluster, (1, 2, 3))
    assert assigned(cluster)[1] == (3, 4)
    alter_now(cluster, (1, 2, 3, 4))
    assert assigned(cluster) == ((3, 4), (), ())
    assert cluster.state() == (3, 6, (3, 4))
    assert cluster.stopped() == {1: [(0, True, 6)], 2: [(0, True, 6)]}
    assert cluster.controller.reassignments.listed() == {}


def test_a_leader_that_stays_goes_on_leading() -> None:
    cluster = moving()
    reassign(cluster, (1, 3))
    alter_now(cluster, (1, 2, 3))
    assert cluster.state() == (1, 6, (1, 3))
    assert cluster.stopped() == {2: [(0, True, 6)]}


def test_partitions_of_several_topics_move_at_once() -> None:
    """Each topic's assignment is written as a whole, with those of its partitions that stay."""
    cluster = in_office({0: led(1), 1: led(1)})
    other = ControlledTopic(bytes(15) + b"\x08", 0, {0: unwritten_state((1, 2))})
    cluster.drive(cluster.controller.on_topics({"u": other}))
    cluster.forget()
    u0 = TopicPartition("u", 0)
    cluster.drive(cluster.controller.reassignments.alter({T0: (2, 3), u0: (2, 3)}))
    written = [write for write in cluster.written if isinstance(write, AssignmentWrite)]
    first = {write.topic: {n: one.replicas for n, one in write.partitions.items()} for write in reversed(written)}
    assert first == {"t": {0: (2, 3, 1), 1: (1, 2, 3)}, "u": {0: (2, 3, 1)}}


def test_a_cancelled_reassignment_takes_the_new_replicas_away() -> None:
    cluster = moving()
    reassign(cluster, (3, 4))
    assert list(cluster.controller.reassignments.listed([T0])) == [T0]
    cluster.forget()
    assert reassign(cluster, None) is None
    assert assigned(cluster) == ((1, 2), (), ())
    assert cluster.state() == (1, 6, (1, 2))
    assert cluster.stopped() == {3: [(0, True, 6)], 4: [(0, True, 6)]}


def test_another_target_on_the_way() -> None:
    cluster = moving()
    reassign(cluster, (3, 4))
    cluster.forget()
    assert reassign(cluster, (2, 4)) is None
    assert assigned(cluster) == ((2, 4, 1), (4,), (1,))
    assert cluster.stopped() == {3: [(0, True, 6)]}


def test_a_move_that_zookeeper_does_not_take_leaves_all_as_it_was_in_an_epoch_that_all_know() -> None:
    """The epoch has risen before: a leader that is not told would be refused by its followers."""
    cluster = moving()
    cluster.refused = AssignmentWrite
    with pytest.raises(KafkaError, match="too large"):
        reassign(cluster, (3, 4))
    assert assigned(cluster) == ((1, 2), (), ())
    assert cluster.state() == (1, 5, (1, 2))
    assert cluster.roles() == {1: {"t-0": (1, 5)}, 2: {"t-0": (1, 5)}}
    cluster.refused = None
    assert alter_now(cluster, (1,)) == (ErrorCode.NONE, ErrorCode.NONE)


def test_another_controller_ends_what_one_began() -> None:
    cluster = half_moved(1, (1, 2, 3, 4))
    assert assigned(cluster) == ((3, 4), (), ())
    assert cluster.state() == (3, 5, (3, 4))


def test_a_move_ends_when_the_only_replica_in_sync_is_back() -> None:
    state = PartitionState(3, 4, (3,), (3, 1, 2), 9, adding_replicas=(3,), removing_replicas=(1, 2))
    cluster = in_office({0: state}, brokers=(1, 2))
    assert cluster.state() == (-1, 5, (3,))
    assert assigned(cluster) == ((3, 1, 2), (3,), (1, 2))
    cluster.brokers(1, 2, 3)
    assert assigned(cluster) == ((3,), (), ())
    assert cluster.state()[0] == 3


def test_a_move_whose_new_leader_is_given_up_is_led_by_who_is_in_sync() -> None:
    cluster = half_moved(3, (3, 2))
    assert reassign(cluster, None) is None
    assert cluster.state() == (2, 5, (2,))


def test_a_target_that_can_not_be() -> None:
    cluster = moving()
    for target in ((), (3, 3), (-1, 3), (1, 9)):
        assert reassign(cluster, target) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, target
    assert reassign(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert cluster.written == []


@for_each("target", [(3, 4), None])
def test_the_leader_hears_of_other_replicas_whoever_is_the_controller_then(target: Sequence[int] | None) -> None:
    """The controller is gone after any of its writes. A leader takes other replicas up in a higher epoch alone: so the
    epoch has to be written before they are.
    """
    cluster = moving()
    if target is None:
        reassign(cluster, (3, 4))
    known_epoch, known = cluster.state()[1], cluster.context.state(T0).replicas
    decision = cluster.controller.reassignments.alter({T0: target})
    writes = next(decision)
    epoch = known_epoch
    while True:
        for write in writes:
            if isinstance(write, StateWrite):
                epoch = write.state.leader_epoch
            elif isinstance(write, AssignmentWrite) and write.partitions[0].replicas != known:
                assert epoch > known_epoch
                return
        writes = decision.send([_version_after(write) for write in writes])


def test_what_is_in_sync_alone_is_not_given_up() -> None:
    """Who was to be replaced has died, and who was to come has it all: to cancel would lose what was committed."""
    cluster = half_moved(3, (3,))
    assert reassign(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, (1, 2)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.written == []
    assert reassign(cluster, (1, 3)) is None
    assert cluster.state() == (3, 5, (3,))


def test_a_disk_that_has_failed_is_remembered_over_a_reassignment() -> None:
    cluster = moving()
    cluster.context.set_offline(T0, 2)
    reassign(cluster, (1, 2, 3))
    assert not cluster.context.is_online(T0, 2)


# --- what can't be understood


def test_a_topic_that_nobody_understands_is_not_deleted() -> None:
    cluster = Cluster()
    cluster.context.unreadable = {"odd"}
    cluster.take_office({0: led(1)}, deleted=("odd",))
    cluster.drive(cluster.controller.on_deletions(["odd"]))
    assert cluster.written == []


def test_a_topic_that_is_understood_again_is_led_again() -> None:
    """Its leader has died meanwhile, and one of its brokers has started again and knows nothing of it."""
    cluster = settled({}, brokers=(2, 3))
    cluster.be_shown({0: led(1), 1: led(2)})
    assert cluster.state() == (2, 5, (2, 3))
    assert cluster.roles() == {2: {"t-0": (2, 5), "t-1": (2, 5)}, 3: {"t-0": (2, 5), "t-1": (2, 5)}}


def test_who_began_another_life_while_a_topic_was_not_understood_is_not_in_sync() -> None:
    """It leads no more, as it may have lost what the others have."""
    cluster = in_office({}, epochs={1: 700})
    cluster.be_shown({0: led(1)})
    assert cluster.state() == (2, 5, (2, 3))


def test_a_partition_that_somebody_adds_again_is_led_again() -> None:
    """It was removed from the assignment by hand, and how it stood is written down still; its leader has died since."""
    cluster = settled({0: led(1)}, brokers=(2, 3))
    cluster.be_shown({0: led(2), 1: led(1)})
    assert cluster.state(TopicPartition("t", 1)) == (2, 5, (2, 3))
    assert cluster.roles() == {2: {"t-1": (2, 5)}, 3: {"t-1": (2, 5)}}


def test_a_topic_that_vanishes_while_it_is_deleted_is_gone() -> None:
    """Somebody has removed it in ZooKeeper by hand; a broker that comes is told of what there is."""
    cluster = in_office({0: led(1)}, brokers=(1, 2), deleted=("t",))
    cluster.controller.on_topics_gone(["t"])
    cluster.forget()
    cluster.brokers(1, 2, 3)
    assert cluster.stopped() == {}


# --- producer ids


def test_blocks_of_producer_ids() -> None:
    cluster = in_office({})
    given = cluster.drive(cluster.controller.allocate_producer_ids(2, 102, 3000, 7, 1000))
    assert given == range(3000, 4000)
    assert cluster.written == [ProducerIdWrite(2, range(3000, 4000), 7)]
    assert cluster.drive(cluster.controller.allocate_producer_ids(2, 99, 3000, 7, 1000)) is ErrorCode.STALE_BROKER_EPOCH


# --- much


def test_many_partitions_go_in_requests_of_a_bounded_size() -> None:
    cluster = in_office({number: led(1) for number in range(2500)})
    sizes = [
        sum(len(topic.partition_states) for topic in request.topic_states)
        for request in cluster.told(LEADER_AND_ISR)[2]
    ]
    assert sizes == [1000, 1000, 500]


@for_each("broker_id", [1, 2])
def test_others_have_a_turn_while_much_is_decided(broker_id: int) -> None:
    """A broker stops that leads 3000 partitions, or follows them; and then they are given back. So many writes, and so
    much work between two turns, are done at once.
    """
    cluster = settled({number: led(1) for number in range(3000)})
    partitions = [partition for partition, _ in cluster.context.partitions()]

    def turns(decision: Decision[object]) -> int:
        count = 0
        try:
            writes = next(decision)
            while True:
                count += 1
                assert len(writes) <= 500
                writes = decision.send([_version_after(write) for write in writes])
        except StopIteration:
            return count

    assert turns(cluster.controller.shut_down(broker_id, -1)) > 12
    assert {state.leader for _, state in cluster.context.partitions()} == {2 if broker_id == 1 else 1}
    cluster.context.shutting_down.clear()
    for partition in partitions:
        state = cluster.context.state(partition)
        held = dict.fromkeys((1, 2, 3), 500)
        cluster.context.put(partition, replace(state, isr=(1, 2, 3), leader=3, holders=held))
    assert turns(cluster.controller.balance_leaders(10)) > 12
    assert {state.leader for _, state in cluster.context.partitions()} == {1}


def test_of_a_partition_that_is_named_twice_the_last_counts() -> None:
    """The other way round what is refused would be changed all the same."""
    cluster = settled({0: led(1)})
    named = [
        AlteredPartition(0, leader_epoch=epoch, partition_epoch=9, new_isr_with_epochs=[BrokerState(1, -1)])
        for epoch in (4, 3)
    ]
    assert set(alter_as(cluster, *named)) == {ErrorCode.FENCED_LEADER_EPOCH}
    assert (cluster.written, cluster.state()) == ([], (1, 4, (1, 2, 3)))


def test_others_have_a_turn_while_a_large_alter_partition_is_checked() -> None:
    """Nothing of it changes anything, so it is the checks alone that would take the time."""
    cluster = in_office({0: unwritten_state((1, 2, 3))})
    known = [AlteredPartition(number, leader_epoch=0, partition_epoch=0, new_isr=[1, 2, 3]) for number in range(3000)]
    request = AlterPartitionRequest(1, 101, [AlteredTopic(topic_id=ID, partitions=known)])
    decision = cluster.controller.alter_partitions(request)
    assert sum(1 for writes in decision if not writes) >= 6


def test_others_have_a_turn_while_a_large_reassignment_is_checked() -> None:
    cluster = in_office({0: unwritten_state((1, 2, 3))})
    decision = cluster.controller.reassignments.alter({TopicPartition("none", one): [1, 2] for one in range(3000)})
    assert sum(1 for writes in decision if not writes) >= 6
