"""The cluster of which a data directory was a broker's, as its files have it.

A `ControllerTerm` is one that the metadata log has: each leader of the quorum begins with a LeaderChange.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription, PartitionDescription
from core.cluster.description.directory_topics import DirectoryTopics
from core.cluster.description.replicated_partition import PartitionReport, ReplicaReport, ReplicatedPartition
from core.cluster.image.metadata_log import read_metadata_image
from core.common.endpoint import Endpoint
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.files.meta_properties import read_meta_properties
from core.forensics.partition_reader import PartitionReader
from core.protocol.message_codec import codec
from core.protocol.schema.control_records import LeaderChangeMessage
from core.records.control_record import ControlRecordType, control_type
from core.records.record_batch import RecordBatch


class ControllerTerm(NamedTuple):
    """A term of office: it began at that time, with the record at that offset."""

    epoch: int
    controller_id: int
    since_ms: int
    offset: int


def read_controller_history(directory: Path) -> list[ControllerTerm] | None:
    """Returns the terms of office that the metadata log of a data directory still has, the first one first, or None if
    there is no such log. Terms before its first record are gone. Raises CorruptRecordError if the log is damaged,
    UnreadableFileError if the system can't read all of it.
    """
    folder = directory / f"{CLUSTER_METADATA_TOPIC}-0"
    if not folder.is_dir():
        return None
    reader = PartitionReader(folder)
    try:
        for error in reader.unreadable:
            raise error
        batches = reader.read(reader.start_offset, reader.end_offset, read_committed=False, with_control=True)
        return [
            ControllerTerm(batch.partition_leader_epoch, message.leader_id, record.timestamp, record.offset)
            for batch in batches
            if isinstance(batch, RecordBatch) and batch.is_control
            for record in batch.records()
            if control_type(record.key) is ControlRecordType.LEADER_CHANGE and record.value is not None
            for message, _ in [codec(LeaderChangeMessage, 0).decode(memoryview(record.value))]
        ]
    finally:
        reader.close()


def read_cluster(directory: Path) -> ClusterDescription:
    """Reads the metadata log in a data directory, and adds the directory's broker if the log lacks it. No file names
    the present controller for certain. Raises what `read_metadata_image` and `read_meta_properties` raise.
    """
    meta = read_meta_properties(directory)
    image = read_metadata_image(directory)
    brokers = [
        BrokerDescription(
            broker.broker_id,
            {endpoint.name: str(Endpoint(endpoint.host, endpoint.port)) for endpoint in broker.end_points},
            broker.rack,
            broker.fenced,
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in broker.features
            },
        )
        for broker in (image.brokers.values() if image is not None else ())
    ]
    if meta is not None and all(broker.broker_id != meta.node_id for broker in brokers):
        brokers.append(BrokerDescription(meta.node_id, {}))
    return ClusterDescription(
        meta.cluster_id if meta is not None else None,
        -1,
        sorted(brokers, key=lambda broker: broker.broker_id),
        dict(image.features) if image is not None else {},
    )


def report_directory(topics: DirectoryTopics, names: Iterable[str]) -> list[PartitionReport]:
    """Reports the partitions of these topics, each with its replica in the directory: no file describes the others.
    Raises what `DirectoryTopics.describe` raises.
    """
    described = [topics.describe(name) for name in names]
    return [
        _report(placed, known)
        for topic in described
        for placed, known in zip(topic.placed, topic.partitions, strict=True)
    ]


def _report(placed: ReplicatedPartition, known: PartitionDescription) -> PartitionReport:
    replicas = [_replica(placed, known, replica) for replica in placed.replicas]
    return PartitionReport(placed, None, None, known.end_offset, replicas)


def _replica(placed: ReplicatedPartition, known: PartitionDescription, replica: int) -> ReplicaReport:
    is_here, is_in_sync = replica == known.leader, replica in placed.isr
    return ReplicaReport(
        broker_id=replica,
        is_leader=is_here,
        is_in_sync=is_in_sync,
        is_eligible=None,
        start_offset=known.start_offset if is_here else None,
        end_offset=known.end_offset if is_here else None,
        lag=0 if is_here else None,
        size_bytes=known.size_bytes if is_here else None,
        lag_bytes=0 if is_here else None,
        why_out_of_sync=None if is_in_sync else "nobody serves the directory, and no file tells of other brokers",
    )
