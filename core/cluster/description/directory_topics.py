"""The topics of a data directory, described from its files."""

from __future__ import annotations

from core.cluster.description.cluster_description import PartitionDescription, TopicDescription
from core.cluster.image.lone_broker_startup import adoption_records, election_records, find_node_id, led_by_others
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import NO_LEADER, MetadataImage
from core.cluster.image.metadata_log import read_metadata_image
from core.cluster.image.topics_from_folders import find_latest_epoch, find_topics
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import find_topic_id
from core.files.meta_properties import read_meta_properties
from core.forensics.partition_reader import DirectoryReader
from core.log.log_summary import LogDescription, describe_log
from core.protocol.schema.metadata_records import PartitionRecord


class DirectoryTopics:
    """Returns the topics of a directory from its metadata log, if it has one, and from its folders; writes nothing.

    They are described as `plog serve --read-only` would describe them: it leads all that it has.
    """

    def __init__(self, reader: DirectoryReader) -> None:
        self._reader = reader
        self._folders = reader.topics
        image = read_metadata_image(reader.directory) or MetadataImage()
        self.node_id = _read_node_id(reader, image)
        """The node that owns the directory."""
        elected = election_records(image, led_by_others(image, self.node_id), self.node_id)
        found = {} if image.has_known_topics else find_topics(reader.partitions, goes_by_name=True)
        adopted = adoption_records(found, self.node_id, bytes(16))
        self.image = MetadataDelta(image).replay([*elected, *adopted]).apply()
        """The metadata with which a broker would begin."""

    def partitions(self) -> dict[str, list[int]]:
        """Returns partition numbers by topic, both in order, also of folders that are not here."""
        return {name: self._numbers(name) for name in sorted(self.image.topics.keys() | self._folders.keys())}

    def _numbers(self, name: str) -> list[int]:
        topic = self.image.topics.get(name)
        return sorted({*self._folders.get(name, ()), *(topic.partitions if topic else ())})

    def describe(self, name: str) -> TopicDescription:
        """Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) if the topic does not exist."""
        numbers = self._numbers(name)
        topic = self.image.topics.get(name)
        if topic is None and not numbers:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"no topic {name!r} in {self._reader.directory}",
                hint=did_you_mean(name, self.partitions()),
            )
        if topic is not None:
            topic_id = topic.topic_id
        else:
            topic_id = find_topic_id(self._reader.partitions[TopicPartition(name, numbers[0])]) or bytes(16)
        described = TopicDescription(name, topic_id, dict(self.image.topic_configs(name)))
        for number in numbers:
            described.partitions.append(self._describe_partition(TopicPartition(name, number)))
        return described

    def _describe_partition(self, partition: TopicPartition) -> PartitionDescription:
        known = self.image.find_partition(partition)
        folder = self._reader.partitions.get(partition)
        log = _NO_LOG if folder is None else describe_log(self._reader, partition)
        latest_epoch = -1 if folder is None else find_latest_epoch(folder)
        return PartitionDescription(
            partition=partition.partition,
            leader=known.leader if known else NO_LEADER,
            leader_epoch=_leader_epoch(known, latest_epoch) if known else -1,
            replicas=tuple(known.replicas) if known else (),
            isr=tuple(known.isr) if known else (),
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            size_bytes=log.size_bytes,
            damaged=log.damaged,
        )


_NO_LOG = LogDescription(start_offset=0, end_offset=0, size_bytes=0, damaged=())


def _read_node_id(reader: DirectoryReader, image: MetadataImage) -> int:
    try:
        meta = read_meta_properties(reader.directory)
    except CorruptRecordError:
        meta = None
    return meta.node_id if meta is not None else find_node_id(image, reader.partitions)


def _leader_epoch(known: PartitionRecord, latest_epoch: int) -> int:
    return latest_epoch + 1 if latest_epoch > known.leader_epoch else known.leader_epoch
