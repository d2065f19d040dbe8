"""Changes the metadata of a data directory when a lone broker starts: it leads all partitions of which it has a
replica, and adopts folders without metadata.

A broker writes these records to its metadata log (`SingleNodeController`); a command that describes a directory without
a broker applies them to the metadata it has read, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from core.cluster.image.metadata_image import NO_LEADER, MetadataImage
from core.cluster.image.metadata_record import MetadataRecord
from core.cluster.image.topics_from_folders import FoundTopic
from core.common.config_def import ConfigResourceType
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata_records import ConfigRecord, PartitionChangeRecord, PartitionRecord, TopicRecord

DEFAULT_NODE_ID = 1
KEEPS_EVERYTHING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings of an adopted topic: nothing is deleted or compacted until the user changes them."""


def find_node_id(
    image: MetadataImage | None, partitions: Iterable[TopicPartition], default: int = DEFAULT_NODE_ID
) -> int:
    """Finds the owner of a directory that does not name it: the one node with a replica of every partition there."""
    if image is None:
        return default
    replicas = [
        set(image.topics[tp.topic].partitions[tp.partition].replicas)
        for tp in partitions
        if tp.topic in image.topics and tp.partition in image.topics[tp.topic].partitions
    ]
    common = set.intersection(*replicas) if replicas else set()
    return default if default in common or not common else min(common)


def led_by_others(image: MetadataImage, node_id: int) -> list[TopicPartition]:
    """Finds the partitions of which the node has a replica and that others lead."""
    return [
        TopicPartition(topic.name, number)
        for topic in image.topics.values()
        for number, partition in topic.partitions.items()
        if partition.leader != node_id and node_id in partition.replicas
    ]


def election_records(
    image: MetadataImage, partitions: Iterable[TopicPartition], node_id: int
) -> list[PartitionChangeRecord]:
    """Makes the node lead each of them from now on, in a new leader epoch."""
    return [
        PartitionChangeRecord(partition_id=number, topic_id=image.topics[topic].topic_id, isr=[node_id], leader=node_id)
        for topic, number in partitions
    ]


def adoption_records(
    topics: Mapping[FoundTopic, Mapping[int, int]], node_id: int, directory_id: bytes
) -> list[MetadataRecord]:
    """Returns records that adopt the topics of `find_topics`. Partitions missing between them are others'."""
    records: list[MetadataRecord] = []
    for topic, leader_epochs in topics.items():
        records.append(TopicRecord(topic.name, topic.topic_id))
        records += [
            ConfigRecord(ConfigResourceType.TOPIC, topic.name, key, value) for key, value in KEEPS_EVERYTHING.items()
        ]
        records += [
            _adopted_partition(topic, number, leader_epochs.get(number), node_id, directory_id)
            for number in range(max(leader_epochs) + 1)
        ]
    return records


def _adopted_partition(
    topic: FoundTopic, number: int, leader_epoch: int | None, node_id: int, directory_id: bytes
) -> PartitionRecord:
    is_here = leader_epoch is not None
    return PartitionRecord(
        partition_id=number,
        topic_id=topic.topic_id,
        replicas=[node_id if is_here else node_id + 1],
        isr=[node_id] if is_here else [],
        leader=node_id if is_here else NO_LEADER,
        leader_epoch=leader_epoch or 0,
        partition_epoch=0,
        directories=[directory_id if is_here else bytes(16)],
    )
