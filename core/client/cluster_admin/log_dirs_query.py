"""Asks each broker of a cluster for the logs on its disks, and the offsets of its replicas.

A leader knows the positions of its followers, but no request returns them. So each broker is asked for the ends of its
own logs: ListOffsets as a "debugging replica" is answered by followers too, and with the end of the log, not with the
high watermark (org.apache.kafka.common.requests.ListOffsetsRequest.DEBUGGING_REPLICA_ID).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from core.client.admin.admin import EARLIEST, LATEST
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.cluster.description.cluster_description import BrokerDescription
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, PlogError
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

_CONSUMER = -1
DEBUGGING_REPLICA = -2
_AT_ONCE = 16
_TIMEOUT_SECONDS = 10.0
_TIMEOUT_MS = 10_000


Offsets = dict[TopicPartition, int | ErrorCode]


@dataclass(slots=True)
class LogDirsQuery:
    """The answers of one broker; missing facts are None, or left out, and `notes` says why."""

    sizes: dict[TopicPartition, int] | None = None
    """The bytes of each log."""
    failed_dirs: list[str] = field(default_factory=list)
    """Data directories whose disks have failed."""
    starts: Offsets = field(default_factory=dict)
    """The first offset of each requested log, or the error."""
    ends: Offsets = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """The leader epoch that the broker returned with each end. plog's brokers return that of the log's last record, -1
    for an empty log; Kafka's the latest that they know.
    """
    high_watermarks: Offsets = field(default_factory=dict)
    """High watermarks of the partitions that this broker leads."""
    notes: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int | None:
        """Returns the bytes of all its logs, or None if that is not known."""
        return None if self.sizes is None else sum(self.sizes.values())


def survey_brokers(
    client: KafkaClient, brokers: Iterable[BrokerDescription], offsets_of: Sequence[TopicPartition] = ()
) -> dict[int, LogDirsQuery]:
    """Queries all reachable brokers at once, each on a connection of its own; `offsets_of`: also for the offsets of
    these logs. Returns the answers by broker.
    """
    asked = [broker for broker in brokers if not broker.is_fenced and broker.failure is None]

    def look(broker: BrokerDescription) -> LogDirsQuery:
        return _survey(client, broker, offsets_of)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip((broker.broker_id for broker in asked), pool.map(look, asked), strict=True))


def _survey(client: KafkaClient, broker: BrokerDescription, offsets_of: Sequence[TopicPartition]) -> LogDirsQuery:
    survey = LogDirsQuery()
    try:
        with client.connection_at(broker.listeners[""], timeout_s=_TIMEOUT_SECONDS) as connection:
            for what, ask in (("sizes", _ask_sizes), ("offsets", _ask_offsets)):
                try:
                    ask(connection, survey, offsets_of)
                except KafkaError as error:
                    survey.notes.append(f"{what} are not known: {error.message}")
    except PlogError as error:
        survey.notes.append(error.message)
    return survey


def _ask_sizes(connection: ClientConnection, survey: LogDirsQuery, _: Sequence[TopicPartition]) -> None:
    answer = connection.call(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None))
    if answer.error_code:
        raise KafkaError(ErrorCode.of(answer.error_code))
    survey.failed_dirs = [result.log_dir for result in answer.results if result.error_code]
    survey.sizes = {
        partition: found.partition_size
        for result in answer.results
        for partition, found in by_partition(result.topics)
        if not found.is_future_key  # a copy on its way to another directory of the same broker
    }


def _ask_offsets(connection: ClientConnection, survey: LogDirsQuery, partitions: Sequence[TopicPartition]) -> None:
    if partitions:
        survey.high_watermarks = read_offsets(connection, partitions, LATEST, _CONSUMER)
        found = _list_offsets(connection, partitions, LATEST, DEBUGGING_REPLICA)
        survey.ends = {partition: _offset(one) for partition, one in found.items()}
        survey.epochs = {partition: one.leader_epoch for partition, one in found.items() if not one.error_code}
        survey.starts = read_offsets(connection, partitions, EARLIEST, DEBUGGING_REPLICA)


def read_offsets(
    connection: ClientConnection, partitions: Sequence[TopicPartition], timestamp: int, replica_id: int
) -> Offsets:
    """Returns the offset that a broker answers for each partition, or its error. Only the leader answers a consumer's
    replica id; any replica answers the debugging one.
    """
    found = _list_offsets(connection, partitions, timestamp, replica_id)
    return {partition: _offset(one) for partition, one in found.items()}


def _list_offsets(
    connection: ClientConnection, partitions: Sequence[TopicPartition], timestamp: int, replica_id: int
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    topics = by_topic((p, ListOffsetsPartition(p.partition, timestamp=timestamp)) for p in partitions)
    request = ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic(*topic) for topic in topics.items()], _TIMEOUT_MS)
    return dict(by_partition(connection.call(LIST_OFFSETS, request).topics))


def _offset(found: ListOffsetsPartitionResponse) -> int | ErrorCode:
    return ErrorCode.of(found.error_code) if found.error_code else found.offset
