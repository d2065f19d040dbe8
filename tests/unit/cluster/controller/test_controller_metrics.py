"""What there is to watch of a controller: what is expected follows from what a test had happen to brokers."""

from __future__ import annotations

from core.cluster.controller.controller_context import ControlledTopic, unwritten_state
from core.cluster.controller.controller_metrics import ControllerMetrics, count_cluster
from core.cluster.image.metadata_image import PartitionState
from core.common.error_code import ErrorCode
from core.common.task import finish
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tests.support.for_each import for_each
from tests.unit.cluster.controller.test_cluster_controller import Cluster, in_office

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER_ID = b"u" * 16


def counts(cluster: Cluster) -> ControllerMetrics:
    return finish(count_cluster(cluster.context, cluster.controller.deletions))


def led(leader: int, *replicas: int, adding: tuple[int, ...] = (), isr: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(leader, 4, isr or replicas, replicas, 9, adding_replicas=adding)


def test_a_cluster_that_is_well() -> None:
    cluster = in_office({0: led(1, 1, 2), 1: led(2, 2, 3)})
    cluster.be_shown({0: led(3, 3, 1)}, "u", OTHER_ID)
    assert counts(cluster) == ControllerMetrics(topics=2, partitions=3)


def test_partitions_whose_brokers_are_dead_are_offline_and_come_back() -> None:
    cluster = in_office({0: led(1, 1), 1: led(1, 1, 2)})
    cluster.brokers(2, 3)
    assert counts(cluster) == ControllerMetrics(topics=1, partitions=2, offline_partitions=1, not_led_by_preferred=2)
    cluster.brokers(1, 2, 3)
    assert counts(cluster) == ControllerMetrics(topics=1, partitions=2, not_led_by_preferred=1)
    assert cluster.context.stats.broker_changes == 2


def test_what_was_never_led_is_no_partition_yet() -> None:
    cluster = in_office({0: led(1, 1), 1: unwritten_state((9,))})
    assert counts(cluster) == ControllerMetrics(topics=1, partitions=1)


@for_each("isr, imbalance", [((1, 2), 0), ((1, 2, 3), 1)])
def test_a_replica_being_added_is_to_lead_once_it_is_in_sync(isr: tuple[int, ...], imbalance: int) -> None:
    """Another replica that is added is not in sync, so that the reassignment does not end."""
    cluster = in_office({0: led(1, 3, 1, 2, 4, adding=(3, 4), isr=isr)})
    assert counts(cluster).not_led_by_preferred == imbalance


def test_topics_that_are_deleted_are_counted_until_their_replicas_are_gone() -> None:
    cluster = in_office({0: led(1, 1, 2), 1: led(2, 1, 2)})
    cluster.be_shown({0: led(2, 1, 2)}, "u", OTHER_ID)
    cluster.brokers(1, 3)
    cluster.drive(cluster.controller.on_deletions(["t"]))
    expected = ControllerMetrics(topics=2, partitions=3, topics_to_delete=1, replicas_to_delete=4)
    assert counts(cluster) == expected
    gone = [StopReplicaPartitionError("t", number, ErrorCode.NONE) for number in (0, 1)]
    answer = StopReplicaResponse(partition_errors=gone)
    states = [StopReplicaPartitionState(number, -2, delete_partition=True) for number in (0, 1)]
    request = StopReplicaRequest(topic_states=[StopReplicaTopicState("t", states)])
    cluster.drive(cluster.controller.on_replicas_stopped(1, 101, request, answer))
    assert counts(cluster).replicas_to_delete == 2
    cluster.brokers(1, 2, 3)
    cluster.drive(cluster.controller.on_replicas_stopped(2, 102, request, answer))
    assert counts(cluster) == ControllerMetrics(topics=1, partitions=1)


def test_unclean_elections_are_counted_whoever_wanted_them() -> None:
    cluster = in_office({0: led(1, 1, 2, isr=(1,))}, unclean=True)
    cluster.brokers(2, 3)
    assert cluster.context.stats.unclean_elections == 1
    asked = in_office({0: led(1, 1, 2, isr=(1,)), 1: led(1, 1, 2)})
    asked.brokers(2, 3)
    assert asked.context.stats.unclean_elections == 0
    asked.drive(asked.controller.elect_leaders([T0, T1], is_unclean=True))
    assert asked.context.stats.unclean_elections == 1


def test_many_partitions_are_counted_in_steps_and_topics_may_come_and_go_meanwhile() -> None:
    cluster = in_office({})
    for name in ("a", "b", "c"):
        cluster.be_shown({number: led(1, 1, 2) for number in range(700)}, name, name.encode() * 16)
    steps = count_cluster(cluster.context, cluster.controller.deletions)
    next(steps)
    cluster.context.drop_topic("b")
    cluster.context.put_topic("new", ControlledTopic(bytes(16), 0, {0: led(1, 1)}))
    assert finish(steps) == ControllerMetrics(topics=3, partitions=1400)
    assert sum(1 for _ in count_cluster(cluster.context, cluster.controller.deletions)) == 2
