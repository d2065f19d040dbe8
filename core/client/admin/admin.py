"""Requests of the command line about topics and configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum

from core.client.admin.controller_connection import at_controller, wait_until_known
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient, TopicInfo
from core.cluster.description.cluster_description import PartitionDescription, TopicDescription
from core.common.config_def import ConfigResourceType, ConfigSource
from core.common.error_code import ErrorCode
from core.common.errors import BrokerAwayError, ConnectionFailedError, KafkaError, MalformedMessageError, ensure_success
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.log.damaged_ranges import DAMAGED_OFFSETS, parse_damaged_offsets
from core.protocol.schema.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    ChangedConfig,
    ChangedResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribableLogDirTopic, DescribeLogDirsRequest
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.topic_changes import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)

LATEST = -1
EARLIEST = -2

Sizes = dict[TopicPartition, dict[int, int]]
"""Partition -> broker -> the bytes of its replica there."""

_TIMEOUT_MS = 30_000
_BRIEF_SECONDS = 5.0
_MOST_AT_ONCE = 2000
"""Partitions of one request for sizes."""


class AlterOperation(IntEnum):
    """Numbers of org.apache.kafka.clients.admin.AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_ERRORS_OF_NO_ACCESS = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)

_UNEXPECTED_HINT = (
    "the controller's log says why. A Kafka controller with ZooKeeper answers so, for example, if some brokers have "
    "a rack and others have none: plog cluster brokers lists them"
)


@contextmanager
def brief_admin(client: KafkaClient) -> Iterator[Admin]:
    """Makes another Admin, with connections of its own, which does not wait long for a broker that does not answer."""
    with closing(client.another(timeout_s=_BRIEF_SECONDS)) as asked:
        yield Admin(asked)


class Admin:
    """Owned by one task. If a broker refuses a request, the method raises KafkaError with the broker's code and
    message; the methods for settings raise BrokerAwayError for a broker that is not there.

    The controller confirms that a topic was created, deleted or grown a moment before other brokers know of it: each
    method that does this waits, for 5 s at most, until the broker that answers the next request knows of it.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Creates a topic; -1 takes the broker's default. `validate_only`: only checks the request. Returns once its
        partitions have leaders.
        """
        topic = CreatableTopic(
            name,
            partitions,
            replication_factor,
            configs=[CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest([topic], _TIMEOUT_MS, validate_only)

        def create(connection: ClientConnection) -> None:
            for result in connection.call(CREATE_TOPICS, request).topics:
                try:
                    ensure_success(result.error_code, name, result.error_message)
                except KafkaError as error:
                    if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                        error.hint = _UNEXPECTED_HINT
                    raise

        at_controller(self._client, create)
        if not validate_only:
            self._wait_until([name], lambda topic: topic is not None and _has_leaders(topic))

    def delete_topics(self, names: Sequence[str]) -> None:
        states = [DeleteTopicState(name) for name in names]

        def delete(connection: ClientConnection) -> None:
            by_state = connection.version_of(DELETE_TOPICS) >= 6
            request = DeleteTopicsRequest(
                topics=states if by_state else [], topic_names=[] if by_state else list(names), timeout_ms=_TIMEOUT_MS
            )
            for result in connection.call(DELETE_TOPICS, request).responses:
                ensure_success(result.error_code, result.name or "", result.error_message)

        at_controller(self._client, delete)
        self._wait_until(names, lambda topic: topic is None)

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], _TIMEOUT_MS, validate_only)

        def create(connection: ClientConnection) -> None:
            for result in connection.call(CREATE_PARTITIONS, request).results:
                ensure_success(result.error_code, name, result.error_message)

        at_controller(self._client, create)
        if not validate_only:
            self._wait_until([name], lambda topic: topic is not None and len(topic.partitions) >= count)

    def _wait_until(self, names: Sequence[str], is_so: Callable[[TopicInfo | None], bool]) -> None:
        """Waits until `is_so` holds for a broker's state of each topic; forgets the client's state of the topics."""

        def look() -> bool:
            found = self._client.refresh(names, skips_unknown=True)
            return all(is_so(found.get(name)) for name in names)

        wait_until_known(look)
        for name in names:
            self._client.forget_topic(name)

    # --- configurations

    def alter_configs(
        self,
        resource_type: ConfigResourceType,
        name: str,
        changes: list[ChangedConfig],
        *,
        validate_only: bool = False,
    ) -> None:
        """Changes settings. The `config_operation` of each change is an `AlterOperation`; DELETE has the value None."""
        request = IncrementalAlterConfigsRequest([ChangedResource(resource_type, name, changes)], validate_only)
        connection = self._connection_for(resource_type, name)
        for result in connection.call(INCREMENTAL_ALTER_CONFIGS, request).responses:
            ensure_success(result.error_code, name, result.error_message)

    def describe_configs(
        self, resource_type: ConfigResourceType, name: str, *, with_docs: bool = False
    ) -> list[DescribedConfig]:
        """Returns every key of the resource, by name. A sensitive one has no value; the source is a `ConfigSource`, and
        the documentation is there on request.
        """
        resource = DescribeConfigsResource(resource_type, name, None)
        request = DescribeConfigsRequest([resource], include_documentation=with_docs)
        values: list[DescribedConfig] = []
        for result in self._connection_for(resource_type, name).call(DESCRIBE_CONFIGS, request).results:
            ensure_success(result.error_code, name, result.error_message)
            values += result.configs
        return sorted(values, key=lambda value: value.name)

    def find_configs(
        self, resource_type: ConfigResourceType, name: str, *, with_docs: bool = False
    ) -> list[DescribedConfig]:
        """As `describe_configs`, but returns [] if the server is too old for it, or this client may not ask."""
        try:
            return self.describe_configs(resource_type, name, with_docs=with_docs)
        except KafkaError as error:
            if error.code in _ERRORS_OF_NO_ACCESS:
                return []
            raise

    def find_topic_setting(self, names: Sequence[str], key: str) -> dict[str, str]:
        """Returns the effective value for each topic; topics that this client may not describe are missing."""
        asked = [DescribeConfigsResource(ConfigResourceType.TOPIC, name, [key]) for name in names]
        answer = self._client.any_connection().call(DESCRIBE_CONFIGS, DescribeConfigsRequest(asked))
        return {
            result.resource_name: config.value
            for result in answer.results
            for config in result.configs
            if not result.error_code and config.value is not None
        }

    def list_config_resources(self, types: Sequence[ConfigResourceType] = ()) -> list[tuple[ConfigResourceType, str]]:
        """Returns the resources with settings, by type and name: of those types, or of all."""
        answer = self._client.any_connection().call(LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(list(types)))
        ensure_success(answer.error_code, "configurations")
        found = [(ConfigResourceType(r.resource_type), r.resource_name) for r in answer.config_resources]
        return sorted(found)

    def _connection_for(self, resource_type: ConfigResourceType, name: str) -> ClientConnection:
        """Returns a connection to the broker that a resource is about, else to any. Raises BrokerAwayError if that
        broker is not there: no other broker reads or changes its settings.
        """
        if resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name.isdecimal():
            if int(name) not in self._client.node_ids:
                self._client.refresh([])
            if int(name) not in self._client.node_ids:
                raise BrokerAwayError(int(name), self._client.node_ids)
            return self._client.connection_to(int(name))
        return self._client.any_connection()

    # --- records and offsets

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Moves the start of each log to that offset, or to the end with -1; returns the new starts. Raises KafkaError
        for the first refusal; it names the partitions that were moved all the same.
        """
        wanted = ((p, DeleteRecordsPartition(p.partition, offset)) for p, offset in offsets.items())
        starts, refused = dict[TopicPartition, int](), list[KafkaError]()
        for leader, topics in self._client.by_leader(wanted).items():
            request = DeleteRecordsRequest([DeleteRecordsTopic(*topic) for topic in topics.items()], _TIMEOUT_MS)
            answer = self._client.connection_to(leader).call(DELETE_RECORDS, request)
            for partition, result in by_partition(answer.topics):
                try:
                    ensure_success(result.error_code, str(partition))
                    starts[partition] = result.low_watermark
                except KafkaError as error:
                    refused.append(error)
        if refused:
            moved = "".join(
                f"; {partition} starts at offset {start} now" for partition, start in sorted(starts.items())
            )
            raise KafkaError(refused[0].code, f"{refused[0].message}{moved}", hint=refused[0].hint)
        return starts

    def log_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the bytes of each partition's largest replica; partitions without a known size are missing."""
        found = self.replica_sizes(partitions)
        return {partition: max(sizes.values()) for partition, sizes in found.items() if sizes}

    def replica_sizes(self, partitions: Iterable[TopicPartition]) -> Sizes:
        """Returns the sizes on the brokers that are there now; of those that can't be reached, or may not answer, they
        are missing.
        """
        wanted = sorted(partitions)
        self._client.refresh([])
        sizes: Sizes = {partition: {} for partition in wanted}
        for node_id in self._client.node_ids:
            try:
                for start in range(0, len(wanted), _MOST_AT_ONCE):
                    self._add_sizes(node_id, wanted[start : start + _MOST_AT_ONCE], sizes)
            except ConnectionFailedError:
                self._client.forget_connection(node_id)
            except KafkaError:
                continue  # not every client may know it
        return sizes

    def _add_sizes(self, node_id: int, wanted: list[TopicPartition], sizes: Sizes) -> None:
        numbers = by_topic((partition, partition.partition) for partition in wanted)
        request = DescribeLogDirsRequest([DescribableLogDirTopic(*topic) for topic in numbers.items()])
        for result in self._client.connection_to(node_id).call(DESCRIBE_LOG_DIRS, request).results:
            for partition, found in by_partition(result.topics):
                if partition in sizes and not found.is_future_key:
                    sizes[partition][node_id] = found.partition_size

    def describe_topic(self, name: str) -> TopicDescription:
        """Returns partitions with their offsets and sizes, and the topic's overrides."""
        topic = self._client.topic(name)
        led = [TopicPartition(name, number) for number, info in topic.partitions.items() if info.leader >= 0]
        starts = self.list_offsets(dict.fromkeys(led, EARLIEST))
        ends = self.list_offsets(dict.fromkeys(led, LATEST))
        topic = self._client.topic(name)  # leaders may have changed meanwhile
        sizes = self.log_sizes(TopicPartition(name, number) for number in topic.partitions)
        configs = self.describe_configs(ConfigResourceType.TOPIC, name)
        overrides = {c.name: c.value or "" for c in configs if c.config_source == ConfigSource.TOPIC_CONFIG}
        damaged = next((parse_damaged_offsets(c.value) for c in configs if c.name == DAMAGED_OFFSETS and c.value), {})
        return TopicDescription(
            name,
            topic.topic_id,
            overrides,
            [
                PartitionDescription(
                    partition=number,
                    leader=info.leader,
                    leader_epoch=info.leader_epoch,
                    replicas=info.replicas,
                    isr=info.isr,
                    start_offset=starts.get(TopicPartition(name, number), -1),
                    end_offset=ends.get(TopicPartition(name, number), -1),
                    size_bytes=sizes.get(TopicPartition(name, number)),
                    damaged=tuple(f"{first}-{last}" for first, last in damaged.get(number, ())),
                )
                for number, info in sorted(topic.partitions.items())
            ],
        )

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int]:
        """Returns the offset of each partition's timestamp (ms), of its start (EARLIEST) or end (LATEST); -1 if a
        timestamp lies beyond every record. Leaders may change meanwhile (`KafkaClient.retry_while_leader_moves`).
        """
        return self._client.retry_while_leader_moves(lambda: self._ask_for_offsets(timestamps, isolation_level))

    def _ask_for_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, int]:
        wanted = ((p, ListOffsetsPartition(p.partition, timestamp=time)) for p, time in timestamps.items())
        offsets = {}
        for leader, topics in self._client.by_leader(wanted).items():
            asked = [ListOffsetsTopic(*topic) for topic in topics.items()]
            request = ListOffsetsRequest(-1, isolation_level, asked, _TIMEOUT_MS)
            answer = self._client.connection_to(leader).call(LIST_OFFSETS, request)
            for partition, found in by_partition(answer.topics):
                if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._is_there(partition):
                    text = f"broker {leader} has not heard yet that it leads {partition}"
                    raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
                ensure_success(found.error_code, str(partition))
                offsets[partition] = found.offset
        if missing := sorted(timestamps.keys() - offsets.keys()):
            raise MalformedMessageError(f"a ListOffsets answer lacks {', '.join(map(str, missing))}")
        return offsets

    def _is_there(self, partition: TopicPartition) -> bool:
        """Asks a broker whether the partition exists; the client may know a deleted one."""
        topic = self._client.refresh([partition.topic], skips_unknown=True).get(partition.topic)
        return topic is not None and partition.partition in topic.partitions


def _has_leaders(topic: TopicInfo) -> bool:
    return all(partition.leader >= 0 for partition in topic.partitions.values())
