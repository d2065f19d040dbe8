"""What there is to watch of a controller: what is expected follows from what a test had happen to brokers."""

from __future__ import annotations

from core.cluster.cluster_controller import ClusterController
from core.cluster.controller_context import ControlledTopic, LiveBroker, unwritten_state
from core.cluster.controller_counts import ControllerCounts, count_cluster
from core.cluster.controller_office import ControllerOffice
from core.cluster.controller_writes import Decision
from core.cluster.partition_state import PartitionState
from core.common.error_code import ErrorCode
from core.common.steps import finish
from core.common.topic_partition import TopicPartition
from core.protocol.schema.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from core.protocol.schema.update_metadata import UpdateMetadataBroker
from tests.support.for_each import for_each

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Office:
    """A controller whose writes are kept, in a cluster of the brokers 1 to 3."""

    def __init__(self, topics: dict[str, dict[int, PartitionState]], *, unclean: bool = False) -> None:
        office = ControllerOffice(1, 5, send=lambda _request: None, may_be_unclean=lambda _topic: unclean)
        self.context, self.controller = office.context, ClusterController(office)
        made = {name: ControlledTopic(name.encode() * 16, 0, dict(states)) for name, states in topics.items()}
        confirmed = {
            TopicPartition(name, number): dict.fromkeys(state.isr, 500)
            for name, states in topics.items()
            for number, state in states.items()
        }
        self.drive(self.controller.take_office(self.live(1, 2, 3), made, (), confirmed))

    @staticmethod
    def live(*ids: int) -> dict[int, LiveBroker]:
        return {one: LiveBroker(100 + one, UpdateMetadataBroker(id=one), {}, 100 + one) for one in ids}

    def drive(self, decision: Decision[object]) -> None:
        try:
            writes = next(decision)
            while True:
                writes = decision.send([7] * len(writes))
        except StopIteration:
            pass

    def brokers(self, *ids: int) -> None:
        self.drive(self.controller.on_brokers(self.live(*ids)))

    def counts(self) -> ControllerCounts:
        return finish(count_cluster(self.context, self.controller.deletions))


def led(leader: int, *replicas: int, adding: tuple[int, ...] = (), isr: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(leader, 4, isr or replicas, replicas, 9, adding_replicas=adding)


def test_a_cluster_that_is_well() -> None:
    office = Office({"t": {0: led(1, 1, 2), 1: led(2, 2, 3)}, "u": {0: led(3, 3, 1)}})
    assert office.counts() == ControllerCounts(topics=2, partitions=3)


def test_partitions_whose_brokers_are_dead_are_offline_and_come_back() -> None:
    office = Office({"t": {0: led(1, 1), 1: led(1, 1, 2)}})
    office.brokers(2, 3)
    assert office.counts() == ControllerCounts(topics=1, partitions=2, offline_partitions=1, not_led_by_preferred=2)
    office.brokers(1, 2, 3)
    assert office.counts() == ControllerCounts(topics=1, partitions=2, not_led_by_preferred=1)
    assert office.context.stats.broker_changes == 2


def test_what_was_never_led_is_no_partition_yet() -> None:
    office = Office({"t": {0: led(1, 1), 1: unwritten_state((9,))}})
    assert office.counts() == ControllerCounts(topics=1, partitions=1)


@for_each("isr, imbalance", [((1, 2), 0), ((1, 2, 3), 1)])
def test_a_replica_being_added_is_to_lead_once_it_is_in_sync(isr: tuple[int, ...], imbalance: int) -> None:
    """Another replica that is added is not in sync, so that the reassignment does not end."""
    office = Office({"t": {0: led(1, 3, 1, 2, 4, adding=(3, 4), isr=isr)}})
    assert office.counts().not_led_by_preferred == imbalance


def test_topics_that_are_deleted_are_counted_until_their_replicas_are_gone() -> None:
    office = Office({"t": {0: led(1, 1, 2), 1: led(2, 1, 2)}, "u": {0: led(2, 1, 2)}})
    office.brokers(1, 3)
    office.drive(office.controller.on_deletions(["t"]))
    expected = ControllerCounts(topics=2, partitions=3, topics_to_delete=1, replicas_to_delete=4)
    assert office.counts() == expected
    gone = [StopReplicaPartitionError("t", number, ErrorCode.NONE) for number in (0, 1)]
    answer = StopReplicaResponse(partition_errors=gone)
    states = [StopReplicaPartitionState(number, -2, delete_partition=True) for number in (0, 1)]
    request = StopReplicaRequest(topic_states=[StopReplicaTopicState("t", states)])
    office.drive(office.controller.on_replicas_stopped(1, 101, request, answer))
    assert office.counts().replicas_to_delete == 2
    office.brokers(1, 2, 3)
    office.drive(office.controller.on_replicas_stopped(2, 102, request, answer))
    assert office.counts() == ControllerCounts(topics=1, partitions=1)


def test_unclean_elections_are_counted_whoever_wanted_them() -> None:
    office = Office({"t": {0: led(1, 1, 2, isr=(1,))}}, unclean=True)
    office.brokers(2, 3)
    assert office.context.stats.unclean_elections == 1
    asked = Office({"t": {0: led(1, 1, 2, isr=(1,)), 1: led(1, 1, 2)}})
    asked.brokers(2, 3)
    assert asked.context.stats.unclean_elections == 0
    asked.drive(asked.controller.elect_leaders([T0, T1], is_unclean=True))
    assert asked.context.stats.unclean_elections == 1


def test_many_partitions_are_counted_in_steps_and_topics_may_come_and_go_meanwhile() -> None:
    office = Office({name: {number: led(1, 1, 2) for number in range(700)} for name in ("a", "b", "c")})
    steps = count_cluster(office.context, office.controller.deletions)
    next(steps)
    office.context.drop_topic("b")
    office.context.put_topic("new", ControlledTopic(bytes(16), 0, {0: led(1, 1)}))
    assert finish(steps) == ControllerCounts(topics=3, partitions=1400)
    assert sum(1 for _ in count_cluster(office.context, office.controller.deletions)) == 2
