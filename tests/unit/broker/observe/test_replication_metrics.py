"""What a broker counts of replication, against what the test has others do."""

from __future__ import annotations

import pytest

from core.broker.observe.metrics import replication_metrics
from core.broker.partitions.replica_manager import ReplicationCounts
from core.cluster.partition.leadership import IsrAnswer
from core.common.error_code import ErrorCode
from core.protocol.schema.metadata_records import PartitionChangeRecord
from tests.support.broker import fetch, produce, values_of
from tests.support.fetched import as_leader
from tests.support.logs import make_batch
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic


def metrics(led: ReplicatedTopic) -> dict[str, float]:
    return {
        sample.name.removeprefix("kafka_server_"): sample.value
        for metric in replication_metrics(led.broker.services)
        for sample in metric.samples
    }


def answer(led: ReplicatedTopic, *isr: int, error: ErrorCode = ErrorCode.NONE, epochs: int = 0) -> None:
    """The controller answers what was proposed last, which rises the partition epoch, or with `epochs` does not."""
    proposal = led.proposals.pop()
    found = IsrAnswer(error, isr, proposal.leader_epoch, proposal.partition_epoch + 1 - 2 * epochs)
    led.replicas.on_isr_answer(led.partition, proposal, found)


# --- the replicas in sync


def test_replicas_that_join_and_leave_are_counted_when_the_controller_has_answered(led: ReplicatedTopic) -> None:
    led.decide([led.node_id, OTHER, THIRD], isr=[led.node_id, OTHER])
    led.fetched(0, THIRD)
    assert led.replicas.counts == ReplicationCounts()
    answer(led, led.node_id, OTHER, THIRD)
    assert led.replicas.counts == ReplicationCounts(isr_expands=1)


def test_what_the_controller_refuses_is_counted_each_time(led: ReplicatedTopic) -> None:
    led.decide([led.node_id, OTHER, THIRD], isr=[led.node_id, OTHER])
    led.fetched(0, THIRD)
    answer(led, error=ErrorCode.REQUEST_TIMED_OUT)  # it is proposed again
    answer(led, error=ErrorCode.INELIGIBLE_REPLICA)
    led.fetched(0, THIRD)
    answer(led, led.node_id, OTHER, THIRD, epochs=1)  # of a controller that knows less
    assert led.replicas.counts == ReplicationCounts(failed_isr_updates=3)


def test_the_answer_to_what_was_forgotten_is_not_counted(led: ReplicatedTopic) -> None:
    led.decide([led.node_id, OTHER, THIRD], isr=[led.node_id, OTHER])
    led.fetched(0, THIRD)
    led.decide(isr=[led.node_id, OTHER, THIRD])
    answer(led, led.node_id, OTHER, THIRD)
    assert led.replicas.counts == ReplicationCounts()


@pytest.mark.parametrize(("isr_size", "under", "at"), [(1, 1, 0), (2, 0, 1), (3, 0, 0)])
def test_partitions_at_and_under_the_least_of_replicas(
    led: ReplicatedTopic, isr_size: int, under: int, at: int
) -> None:
    led.broker.services.configs.set(2, "t", {"min.insync.replicas": "2"})
    led.decide([led.node_id, OTHER, THIRD], isr=[led.node_id, OTHER, THIRD][:isr_size])
    found = metrics(led)
    assert found["replicamanager_underminisrpartitioncount"] == under
    assert found["replicamanager_atminisrpartitioncount"] == at
    assert found["replicamanager_underreplicatedpartitions"] == (isr_size < 3)
    assert (found["replicamanager_partitioncount"], found["replicamanager_leadercount"]) == (1, 1)


def test_a_replica_that_is_being_added_is_not_missing(led: ReplicatedTopic) -> None:
    led.decide([led.node_id, OTHER, THIRD], isr=[led.node_id, OTHER])
    assert metrics(led)["replicamanager_underreplicatedpartitions"] == 1
    led.submit(PartitionChangeRecord(0, led.topic_id, adding_replicas=[THIRD], removing_replicas=[]))
    assert metrics(led)["replicamanager_underreplicatedpartitions"] == 0
    led.decide(isr=[led.node_id])
    assert metrics(led)["replicamanager_underreplicatedpartitions"] == 1


# --- bytes


def test_bytes_that_go_to_replicas_and_those_that_are_added_are_counted_apart(led: ReplicatedTopic) -> None:
    adding = PartitionChangeRecord(
        0, led.topic_id, replicas=[led.node_id, OTHER, THIRD], adding_replicas=[THIRD], removing_replicas=[]
    )
    led.submit(adding)
    batch = make_batch(b"x" * 1000)
    size = batch.size_bytes
    assert produce(led.broker, batch, acks=1).error_code == 0
    assert metrics(led)["replicamanager_reassigningpartitions"] == 1
    for replica in (OTHER, THIRD):
        assert values_of(led.fetch_as(replica, 0))
        led.fetch_as(replica, 1)
    assert values_of(fetch(led.broker, 0))
    found = metrics(led)
    assert found["brokertopicmetrics_replicationbytesout_total"] == 2 * size
    assert found["brokertopicmetrics_reassignmentbytesout_total"] == size
    assert led.partition.bytes_out == size


def test_bytes_that_come_from_leaders_are_counted(led: ReplicatedTopic) -> None:
    us = led.node_id
    led.decide(leader=OTHER)
    first = as_leader(make_batch(b"a"), 0, 1)
    take(led, first)
    moved = PartitionChangeRecord(0, led.topic_id, adding_replicas=[us], removing_replicas=[OTHER])
    led.submit(moved)
    assert metrics(led)["replicamanager_reassigningpartitions"] == 0  # the leader counts them
    second = as_leader(make_batch(b"b"), 1, 1)
    take(led, second)
    found = metrics(led)
    assert found["brokertopicmetrics_replicationbytesin_total"] == len(first) + len(second)
    assert found["brokertopicmetrics_reassignmentbytesin_total"] == len(second)


def take(led: ReplicatedTopic, records: bytes) -> None:
    epoch = led.partition.leader_epoch
    led.replicas.append_as_follower(
        led.partition, memoryview(bytearray(records)), epoch, high_watermark=0, log_start_offset=0
    )
