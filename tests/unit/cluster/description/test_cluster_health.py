"""What is wrong with a cluster, from what its brokers say."""

from __future__ import annotations

from dataclasses import replace

from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.description.cluster_health import (
    find_problems,
    led_by_unreachable,
    names_text,
    partition_health,
    with_missing_brokers,
)
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.errors import ConnectionFailedError
from core.common.topic_partition import TopicPartition


def partition(
    number: int, leader: int, isr: tuple[int, ...], *, offline: tuple[int, ...] = (), min_isr: int | None = 2
) -> ReplicatedPartition:
    return ReplicatedPartition(TopicPartition("t", number), leader, 5, (1, 2, 3), isr, offline, min_isr)


def cluster(*brokers: BrokerDescription, controller: int = 1) -> ClusterDescription:
    return ClusterDescription("id", controller, list(brokers))


def broker(number: int, *, is_fenced: bool = False) -> BrokerDescription:
    return BrokerDescription(number, {"": f"b{number}:9092"}, is_fenced=is_fenced)


ALL = [broker(1), broker(2), broker(3)]


def test_a_cluster_that_is_well() -> None:
    placed = [partition(0, 1, (1, 2, 3)), partition(1, 1, (3, 2, 1), min_isr=None)]
    assert find_problems(cluster(*ALL), placed) == []
    assert set(partition_health(placed).counts.values()) == {0}
    assert partition_health(placed).first_at_fault is None


def test_the_controller_may_be_broker_0() -> None:
    assert find_problems(cluster(broker(0), controller=0), []) == []


def test_a_leader_that_is_not_the_preferred_one_is_no_fault() -> None:
    placed = [partition(0, 2, (1, 2, 3))]
    assert find_problems(cluster(*ALL), placed) == []
    assert partition_health(placed).not_preferred == [TopicPartition("t", 0)]


def test_each_fault_is_named_once() -> None:
    placed = [
        partition(0, 1, (1, 2), offline=(3,)),
        partition(1, -1, (), offline=(3,)),
        partition(2, 1, (1,), offline=(3,)),
        partition(3, 1, (1, 2), offline=(3,)),
        partition(4, 1, (1, 2), offline=(3,)),
    ]
    assert find_problems(cluster(broker(1), broker(2), broker(3, is_fenced=True), controller=-1), placed) == [
        "no controller is known",
        "broker 3 is fenced, which has 5 replicas",
        "1 partition without a leader: t-1",
        "2 partitions with fewer replicas in sync than min.insync.replicas: t-1, t-2",
        "5 partitions under-replicated: t-0, t-1, t-2 and 2 more",
    ]
    assert partition_health(placed).first_at_fault == TopicPartition("t", 1)


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    """As for Kafka, it is so by the numbers: one that was there before and is out of sync counts all the same."""
    moving = replace(partition(0, 1, (1, 2)), adding=(3,))
    assert find_problems(cluster(*ALL), [moving]) == []
    assert find_problems(cluster(*ALL), [replace(moving, isr=(1,), min_isr=1)]) == ["1 partition under-replicated: t-0"]


def test_a_replica_is_offline_on_a_broker_that_lives_if_its_disk_failed() -> None:
    assert find_problems(cluster(*ALL), [partition(0, 1, (1, 2), offline=(3,))]) == [
        "1 partition under-replicated: t-0",
        "1 partition with offline replicas on live brokers: t-0",
    ]


def test_a_broker_that_does_not_answer_is_not_blamed_on_its_disk() -> None:
    silent = BrokerDescription(3, {"": "b3:9092"}, failure=ConnectionFailedError("no"))
    assert find_problems(cluster(broker(1), broker(2), silent), [partition(0, 1, (1, 2), offline=(3,))]) == [
        "1 partition under-replicated: t-0"
    ]


def test_zookeeper_forgets_a_broker_that_is_gone() -> None:
    placed = [partition(0, 1, (1, 2), offline=(3,))]
    found = with_missing_brokers(cluster(broker(1), broker(2)), placed)
    assert [(b.broker_id, b.listeners) for b in found.brokers][2] == (3, {})
    assert find_problems(found, placed)[0] == "broker 3 is not registered, which has 1 replica"


def test_a_controller_that_is_silent() -> None:
    silent = replace(cluster(*ALL, controller=-1), has_silent_controller=True)
    assert find_problems(silent, []) == [
        "the controller does not answer the brokers: nothing can be changed, and no leader elected"
    ]


def test_as_many_partitions_as_are_named_have_no_others() -> None:
    assert names_text(TopicPartition("t", number) for number in range(3)) == "t-0, t-1, t-2"


def test_partitions_led_by_a_broker_that_does_not_answer() -> None:
    silent = BrokerDescription(3, {"": "b3:9092"}, failure=ConnectionFailedError("no"))
    placed = [partition(0, 1, (1, 2, 3)), partition(1, 3, (1, 2, 3)), partition(2, -1, ())]
    assert led_by_unreachable(cluster(broker(1), broker(2), silent), placed) == {3: [TopicPartition("t", 1)]}
    assert led_by_unreachable(cluster(*ALL), placed) == {}
