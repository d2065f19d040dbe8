"""The metrics of a controller: the state of its cluster, and counts since it took office.

The state is counted partition by partition when the metrics are read: events cost nothing more for it. The meanings are
Kafka's (kafka.controller.KafkaController.updateMetrics, ControllerStats of Kafka 3.9).
"""

from __future__ import annotations

from dataclasses import dataclass

from core.cluster.controller.controller_context import ControllerContext
from core.cluster.controller.topic_deletion import TopicDeletions
from core.cluster.image.metadata_image import NO_LEADER, PartitionState
from core.common.task import Task, Yield
from core.common.topic_partition import TopicPartition

_PARTITIONS_PER_STEP = 500


@dataclass(slots=True)
class ControllerMetrics:
    """All are 0 for a broker that is not the controller."""

    topics: int = 0
    partitions: int = 0
    """Partitions that were ever led."""
    offline_partitions: int = 0
    """Partitions whose leader is not online. Topics that are being deleted do not count here, nor below."""
    not_led_by_preferred: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0


def count_cluster(context: ControllerContext, deletions: TopicDeletions) -> Task[ControllerMetrics]:
    """Counts partitions, some hundred a step. Topics that come meanwhile do not count, and others may go."""
    counts = ControllerMetrics(
        topics=len(context.topics), topics_to_delete=len(context.deleted), replicas_to_delete=deletions.replicas_left
    )
    seen = 0
    for name in list(context.topics):
        topic = context.topics.get(name)
        for number, state in [] if topic is None else list(topic.partitions.items()):
            _count(counts, context, TopicPartition(name, number), state)
            seen += 1
            if seen % _PARTITIONS_PER_STEP == 0:
                yield Yield.GIVE_WAY
    return counts


def _count(
    counts: ControllerMetrics, context: ControllerContext, partition: TopicPartition, state: PartitionState
) -> None:
    if not context.is_written(partition):
        return
    counts.partitions += 1
    if partition.topic not in context.deleted:
        is_online = state.leader != NO_LEADER and context.is_online(partition, state.leader)
        counts.offline_partitions += not is_online
        counts.not_led_by_preferred += not _is_led_as_preferred(state)


def _is_led_as_preferred(state: PartitionState) -> bool:
    """Says whether the first replica leads; one that a reassignment adds is not expected to before it is in sync."""
    preferred = state.replicas[0]
    if preferred in state.adding_replicas:
        return preferred not in state.isr
    return state.leader == preferred
