"""__consumer_offsets: where groups are kept, and read from when the broker starts.

A group belongs to the partition that its id's hash says (org.apache.kafka.coordinator.group.GroupCoordinatorService). A
partition is read when its first group is asked for, in the background; until that is done its groups answer
COORDINATOR_LOAD_IN_PROGRESS, which clients try again.

A broker that only reads keeps its groups in memory: they live as long as it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from core.broker.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, group_setting
from core.cluster.controller import NewTopic
from core.cluster.metadata_image import TopicImage
from core.cluster.partition import Partition
from core.common.config_def import ConfigResourceType
from core.common.deferred import TimerHandle
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.topic_partition import TopicPartition
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.group_environment import GroupConfig
from core.coordinator.group_records import GroupRecord
from core.index.offset_index import OffsetPosition
from core.log.log_segment import LogSegment
from core.records.batches import Batch
from core.records.control_record import read_end_transaction_marker
from core.records.record import Record
from core.records.record_batch import NO_PRODUCER_ID, RecordBatch
from core.records.record_batch_builder import batch_of

if TYPE_CHECKING:
    from core.broker.broker import Broker

GROUPS_TOPIC = "__consumer_offsets"

_INT_MIN = -(1 << 31)

_log = logging.getLogger("plog.groups")


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: an int32 over UTF-16 code units."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8) + data[position + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(group_id: str, partitions: int) -> int:
    """org.apache.kafka.common.utils.Utils.abs of the hash: the one number that has no positive is 0."""
    value = java_hash(group_id)
    return 0 if value == _INT_MIN else abs(value) % partitions


class _Read(NamedTuple):
    """A record as the log holds it; a marker where there is neither key nor value."""

    key: bytes
    value: bytes | None
    producer_id: int
    is_commit: bool = False


class GroupLog:
    """Owned by the broker's task, but for the reading itself. Gives `coordinator` its world (`GroupEnvironment`)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        integer = broker.config.integer
        self.config = GroupConfig(
            group_min_session_timeout_ms=integer("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=integer("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms=integer("group.initial.rebalance.delay.ms"),
            group_max_size=integer("group.max.size"),
            offset_metadata_max_bytes=integer("offset.metadata.max.bytes"),
            offsets_retention_minutes=integer("offsets.retention.minutes"),
            group_consumer_max_size=integer("group.consumer.max.size"),
            group_consumer_migration_policy=str(broker.config["group.consumer.migration.policy"]).lower(),
        )
        self.coordinator = GroupCoordinator(self)
        self._is_loaded: dict[int, bool] = {}  # by partition; False while it is being read

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._broker.image.topics

    @property
    def metadata_version(self) -> int:
        return self._broker.controller.end_offset

    def session_timeout_ms(self, group_id: str) -> int:
        return self._setting(SESSION_TIMEOUT, group_id)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._setting(HEARTBEAT_INTERVAL, group_id)

    def _setting(self, name: str, group_id: str) -> int:
        settings = self._broker.image.configs.get((ConfigResourceType.GROUP, group_id), {})
        return group_setting(name, settings, self._broker.config)

    def now_ms(self) -> int:
        return self._broker.clock.now_ms()

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        return self._broker.schedule(delay_ms, function)

    # --- the topic

    def ensure_topic(self) -> None:
        """Makes the topic where there is none yet. KafkaError and OSError as of `Broker.create_topic`."""
        if GROUPS_TOPIC in self._broker.image.topics or self._broker.is_read_only:
            return
        config = self._broker.config
        topic = self._broker.create_topic(
            NewTopic(
                GROUPS_TOPIC,
                config.integer("offsets.topic.num.partitions"),
                min(config.integer("offsets.topic.replication.factor"), 1),
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
                },
            )
        )
        self._is_loaded = dict.fromkeys(topic.partitions, True)  # nothing is in them yet

    def _number_of(self, group_id: str) -> int | None:
        topic = self._broker.image.topics.get(GROUPS_TOPIC)
        return None if topic is None else partition_of(group_id, len(topic.partitions))

    def partition(self, group_id: str) -> Partition:
        """Where the group is kept. KafkaError where that can't be."""
        number = self._number_of(group_id)
        if number is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._broker.replicas.find(GROUPS_TOPIC, number)

    # --- writing

    def write(self, group_id: str, records: list[GroupRecord]) -> None:
        """As of `GroupEnvironment.write`: COORDINATOR_NOT_AVAILABLE where the disk refuses."""
        if self._broker.is_read_only:
            return
        try:
            self.ensure_topic()
            partition = self.partition(group_id)
            now_ms = self.now_ms()
            data = batch_of([Record(n, now_ms, key, value) for n, (key, value) in enumerate(records)])
            batch = RecordBatch(memoryview(bytearray(data)))
            self._broker.replicas.append(partition, batch, required_acks=-1, from_client=False)
        except (OSError, KafkaError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            _log.error("group %s could not be written: %s", group_id, error)
            known = {ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
            raise KafkaError(known.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)) from error
        self._broker.replicas.notify([partition.log.partition])

    # --- loading

    def load_all(self) -> ErrorCode | None:
        """Begins to read what is not read yet; why not all groups are known, where they are not."""
        topic = self._broker.image.topics.get(GROUPS_TOPIC)
        numbers = topic.partitions if topic is not None else ()
        for number in numbers:
            self._load(number)
        return next((code for number in numbers if (code := self._why_not_loaded(number)) is not None), None)

    def on_topic_deleted(self, name: str) -> None:
        """Groups go with the topic that keeps them; of another one they forget how far they have read."""
        if name == GROUPS_TOPIC:
            self.coordinator.forget_all()
            self._is_loaded.clear()
        else:
            self.coordinator.on_topic_deleted(name)

    def ensure_loaded(self, group_id: str) -> None:
        """As of `GroupEnvironment.ensure_loaded`."""
        number = self._number_of(group_id)
        if number is not None and not self._is_loaded.get(number):
            self._load(number)
            code = self._why_not_loaded(number)
            if code is not None:
                raise KafkaError(code)

    def _why_not_loaded(self, number: int) -> ErrorCode | None:
        if self._is_loaded.get(number):
            return None
        is_served = TopicPartition(GROUPS_TOPIC, number) in self._broker.replicas.partitions
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_served else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _load(self, number: int) -> None:
        if number in self._is_loaded:
            return
        partition = self._broker.replicas.partitions.get(TopicPartition(GROUPS_TOPIC, number))
        if partition is None:
            return  # offline: what is in it must not be taken for nothing
        if partition.log.log_end_offset == partition.log.log_start_offset:
            self._is_loaded[number] = True
            return
        self._is_loaded[number] = False
        log = partition.log
        ends = [(segment, log.end_of(segment)) for segment in log.segments]
        found: list[_Read] = []
        is_whole = False

        def work() -> None:
            nonlocal is_whole
            try:
                for segment, end in ends:
                    found.extend(_records(segment, end, log.log_start_offset))
                is_whole = True
            except OSError as error:
                _log.error("groups could not be read from %s: %s", log.directory, error.strerror)

        def then() -> None:
            if not is_whole:  # the next one who asks tries again
                del self._is_loaded[number]
                return
            group_ids = set()
            for read in found:
                if not read.key:
                    self.coordinator.replay_end_of_transaction(read.producer_id, is_commit=read.is_commit)
                    continue
                group_ids.add(self.coordinator.replay(read.key, read.value, read.producer_id))
            self._is_loaded[number] = True
            self.coordinator.begin(group_ids)
            _log.info("%s-%d: %d records of %d groups", GROUPS_TOPIC, number, len(found), len(group_ids))

        self._broker.run_in_background(work, then)


def _records(segment: LogSegment, end: OffsetPosition, log_start_offset: int) -> Iterator[_Read]:
    """What can be read of the segment, up to `end`; safe from any thread. OSError as the disk says."""
    position, last_offset = 0, segment.base_offset - 1
    while position < end.position:
        try:
            for batch in segment.checked_batches(position, last_offset, end):
                if batch.next_offset > log_start_offset:
                    yield from _of_batch(batch)
                position, last_offset = batch.position + batch.size_bytes, batch.last_offset
        except CorruptRecordError as error:
            gap = segment.find_gap(max(error.position, position), end)
            _log.error("groups: offsets %s of %s can't be read: %s", gap, segment.records.path, error)
            position, last_offset = gap.end_position, gap.end_offset - 1


def _of_batch(batch: Batch) -> Iterator[_Read]:
    records = batch.records()
    if isinstance(batch, RecordBatch) and batch.is_control:
        marker = read_end_transaction_marker(records[0]) if records else None
        if marker is not None:
            yield _Read(b"", None, batch.producer_id, marker.is_commit)
        return
    is_open = isinstance(batch, RecordBatch) and batch.is_transactional
    for record in records:
        if record.key:
            yield _Read(record.key, record.value, batch.producer_id if is_open else NO_PRODUCER_ID)
