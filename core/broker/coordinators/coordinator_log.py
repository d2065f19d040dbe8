"""An internal topic that keeps a coordinator's state, and from which the coordinator reads it after a start.

The records of a key, a group id or a transactional id, are in the partition that the key's hash selects
(org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime). A partition is read once, in the background, and only
the newest record of each key is kept, as by the log cleaner; these are then replayed in turns, apart from the
coordinator's state, and added to it all at once. Until then requests for the partition's keys get
COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

from core.broker.config.effective_configs import Configs
from core.broker.coordinators.latest_by_key import Fields, ReadRecord, newest_records
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.lazy_logs import LazyLogs
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.partitions.topics import Topics
from core.broker.requests.commit_wait import Uncommitted, find_uncommitted, when_committed
from core.broker.requests.runtime import Runtime, go_through
from core.cluster.image.broker_metadata import BrokerMetadata, NewTopic
from core.cluster.image.metadata_image import TopicImage
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.pending import Pending, TimerHandle
from core.common.task import Task, Yield, finish
from core.common.topic_partition import TopicPartition
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.forensics.segment_scanner import DamagedBytes
from core.index.offset_index import OffsetPosition
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog
from core.records.batches import Batch
from core.records.record_batch import RecordBatch

T = TypeVar("T")

_INT_MIN = -(1 << 31)
_OF_COMMITS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Why records were not committed, in error codes that clients of coordinators know
(kafka.coordinator.group.GroupMetadataManager.createPutCacheCallback).
"""

_log = logging.getLogger("plog.coordinator")


def java_hash(text: str) -> int:
    """Hashes as java.lang.String.hashCode: an int32 over UTF-16 code units."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8) + data[position + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=10_000)
def partition_of(key: str, partitions: int) -> int:
    """Applies Kafka's `Utils.abs` to the hash, which maps the smallest int32 to 0."""
    value = java_hash(key)
    return 0 if value == _INT_MIN else abs(value) % partitions


class Replay(NamedTuple):
    """Replays the records of a partition: `take_up` applies one, apart from the coordinator's state; `finish` adds all
    that was replayed to that state, in one step.
    """

    take_up: Callable[[ReadRecord], None]
    finish: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatingBroker:
    """The broker that coordinates groups and transactions, for the topics of its coordinators. Immutable."""

    node: NodeIdentity
    controller: BrokerMetadata
    configs: Configs
    replicas: ReplicaManager
    late_loads: LazyLogs
    topics: Topics
    runtime: Runtime


class CoordinatorLog(ABC):
    """Owned by the broker's task, except for the reading itself."""

    coordinator: GroupCoordinator | TransactionCoordinator

    def __init__(self, broker: CoordinatingBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._loaded: set[int] = set()
        self._readings: dict[int, object] = {}  # of partitions that are being read; a new object each time
        self._after_loading: dict[int, list[Callable[[], None]]] = {}
        self._to_read: deque[Callable[[], None]] = deque()
        self._is_reading = False
        self._creation: Task[None] | None = None
        broker.topics.on_deleted.append(self._on_topic_deleted)
        broker.replicas.on_stopped.append(self._on_partition_stopped)
        broker.replicas.on_role.append(self._on_role)

    @abstractmethod
    def _new_topic(self) -> NewTopic:
        """Returns the settings of the topic."""

    @abstractmethod
    def _begin_replay(self, number: int) -> Replay:
        """Called with a partition's number when it was read."""

    @property
    def _commit_timeout_ms(self) -> int | None:
        """How long an answer waits at most for its records to be committed."""
        return None

    # --- what coordinators need from the broker

    def now_ms(self) -> int:
        return self._broker.runtime.clock.now_ms()

    def monotonic_ms(self) -> int:
        return self._broker.runtime.clock.monotonic_ms()

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        return self._broker.runtime.schedule(delay_ms, function)

    # --- the topic

    def ensure_topic(self) -> None:
        """Creates the topic if it does not exist, in one step. Raises what `Topics.create` raises."""
        finish(self.ensure_topic_in_steps())

    def ensure_topic_in_steps(self) -> Task[None]:
        """As `ensure_topic`, in steps; concurrent callers work on the same creation."""
        if self._lacks_topic and self._broker.controller.is_member:
            if not self._broker.controller.is_informed:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"the controller has not told this broker yet whether {self._topic} exists",
                )
            self._broker.topics.ask_controller(self._new_topic())
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this broker has asked the controller to create {self._topic}"
            )
        while self._creation is not None or self._lacks_topic:
            if self._creation is None:
                self._creation = self._create()
            yield next(self._creation, Yield.GIVE_WAY)

    @property
    def _lacks_topic(self) -> bool:
        return self._topic not in self._broker.controller.image.topics and not self._broker.node.is_read_only

    def _create(self) -> Task[None]:
        try:
            creation = self._broker.topics.create_all([self._new_topic()])
            next(creation)  # now the topic exists
            self._loaded.update(self.numbers)  # nothing is in them yet
            yield Yield.GIVE_WAY
            made = (yield from creation)[self._topic]
        finally:
            self._creation = None
        if isinstance(made, KafkaError):
            raise made

    @property
    def numbers(self) -> Mapping[int, object]:
        """The topic's partitions; empty if the topic does not exist yet."""
        topic = self._broker.controller.image.topics.get(self._topic)
        return {} if topic is None else topic.partitions

    def find_number(self, key: str) -> int | None:
        """Returns the partition that the key belongs to, or None if the topic does not exist yet."""
        count = self._broker.controller.count_partitions(self._topic)
        return partition_of(key, count) if count else None

    def number_of(self, key: str) -> int:
        """See `CoordinatorEnvironment.number_of`."""
        return self.find_number(key) or 0

    def name_of(self, key: str) -> TopicPartition:
        """Returns the key's partition; in a cluster another broker may lead it. Raises
        KafkaError(COORDINATOR_NOT_AVAILABLE) if no partition can be written to.
        """
        number = self.find_number(key)
        if number is None or not self._broker.controller.is_member:
            return self.partition(key).log.partition
        return TopicPartition(self._topic, number)

    def partition(self, key: str) -> Partition:
        """Returns the key's partition. Raises KafkaError if it is not led here: COORDINATOR_NOT_AVAILABLE, or in a
        cluster NOT_COORDINATOR.
        """
        number = self.find_number(key)
        if number is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            return self._broker.replicas.find(self._topic, number)
        except KafkaError as error:  # clients find the coordinator again, and retry
            raise KafkaError(self._why_no_coordinator, error.message) from error

    @property
    def _why_no_coordinator(self) -> ErrorCode:
        is_member = self._broker.controller.is_member
        return ErrorCode.NOT_COORDINATOR if is_member else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _is_led_here(self, number: int) -> bool:
        return self._broker.replicas.leads(TopicPartition(self._topic, number))

    # --- writing

    def append(self, partition: Partition, data: bytes) -> None:
        """Appends a batch of the coordinator's own. Raises what `ReplicaManager.append` raises."""
        batch = RecordBatch(memoryview(bytearray(data)))
        self._broker.replicas.append(partition, batch, required_acks=-1, from_client=False)
        self._broker.replicas.notify([partition.log.partition])

    def find_uncommitted(self, key: str, refuse: Callable[[ErrorCode], None]) -> list[Uncommitted]:
        """Returns the key's records that must be committed before the coordinator may acknowledge them. Refuses at
        once, and returns nothing, if the partition is no longer led here.
        """
        if self.find_number(key) is None:
            return []
        try:
            partition = self.partition(key)
        except KafkaError as error:
            refuse(error.code)
            return []
        return find_uncommitted(partition, lambda code: refuse(_OF_COMMITS.get(code, code)))

    def when_committed(self, key: str, answer: T, refuse: Callable[[ErrorCode], None]) -> T | Pending[T]:
        """Returns the answer to a request that wrote the key's records, when these are committed; if they can't be,
        `refuse` puts the error into the answer first.
        """
        waiting = self.find_uncommitted(key, refuse)
        return when_committed(self._broker.replicas, waiting, answer, self._commit_timeout_ms)

    # --- loading

    def _on_topic_deleted(self, topic: TopicImage) -> None:
        if topic.name == self._topic:
            self.coordinator.forget_all()
            self._loaded.clear()
            self._readings.clear()
            self._after_loading.clear()
            self._to_read.clear()

    def _on_partition_stopped(self, partition: TopicPartition) -> None:
        if partition.topic == self._topic:  # not at once: a group's own write may have stopped it
            self.schedule(0, partial(self._resign, partition.partition))

    def _on_role(self, partition: Partition) -> None:
        """Loads a partition of the topic when this broker becomes its leader: others may have written to it. Resigns at
        once when this broker is no longer the leader.
        """
        topic, number = partition.log.partition
        if topic == self._topic and partition.is_leading:
            self.schedule(0, partial(self._load, number))
        elif topic == self._topic:
            self._let_go(number)

    def _resign(self, number: int) -> None:
        if not self._is_led_here(number):
            self._let_go(number)

    def _let_go(self, number: int) -> None:
        """Unloads the partition, which this broker can no longer read or write. Waiting members of its groups get
        NOT_COORDINATOR. If it comes back, it is read again.
        """
        self._readings.pop(number, None)
        self._after_loading.pop(number, None)
        if number in self._loaded:
            self._loaded.remove(number)
            self.coordinator.forget(number)

    def load_all(self) -> ErrorCode | None:
        """Starts to read the partitions that are not loaded, in a cluster those led here; returns why not all are
        loaded yet, or None.
        """
        is_member = self._broker.controller.is_member
        own = [number for number in self.numbers if not is_member or self._is_led_here(number)]
        for number in own:
            self._load(number)
        return next((code for number in own if (code := self._why_not_loaded(number)) is not None), None)

    def ensure_loaded(self, key: str, /) -> None:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the key's partition is being read,
        COORDINATOR_NOT_AVAILABLE if it can't be, NOT_COORDINATOR in a cluster if it is not led here. If the topic does
        not exist, nothing needs to be read; in a cluster no broker is the coordinator then.
        """
        number = self.find_number(key)
        if number is None and self._broker.controller.is_member:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if number is not None and number not in self._loaded:
            self._load(number)
            code = self._why_not_loaded(number)
            if code is not None:
                raise KafkaError(code)

    def when_loaded(self, number: int, work: Callable[[], None]) -> None:
        """Calls `work` now, or after the partition is read, if that has started; never if it has not, because a later
        reading finds in the log what `work` is about.
        """
        if number in self._loaded:
            work()
        elif number in self._readings:
            self._after_loading.setdefault(number, []).append(work)

    def _why_not_loaded(self, number: int) -> ErrorCode | None:
        """Returns an error of loading, which clients retry, or None."""
        if number in self._loaded:
            return None
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._is_led_here(number) else self._why_no_coordinator

    def _load(self, number: int) -> None:
        name = TopicPartition(self._topic, number)
        self._broker.late_loads.when_loaded(name, self, partial(self._load, number))  # at once if there is no loop
        if number in self._loaded or number in self._readings:
            return
        partition = self._broker.replicas.partitions.get(name)
        if partition is None or not partition.is_leading:
            return  # not opened yet, offline, or led elsewhere: it must not count as empty
        log = partition.log
        if log.log_end_offset == log.log_start_offset:
            self._loaded.add(number)
            return
        reading = self._readings[number] = object()
        ends = [(segment, log.end_of(segment)) for segment in log.segments]
        self._to_read.append(partial(self._read, number, reading, log, ends))
        self._read_next()

    def _read_next(self) -> None:
        """Reads one partition after the other, because a partition's records are in memory until they are replayed."""
        if self._to_read and not self._is_reading:
            self._is_reading = True
            self._to_read.popleft()()

    def _end_reading(self) -> None:
        self._is_reading = False
        self._read_next()

    def _read(
        self, number: int, reading: object, log: PartitionLog, ends: Sequence[tuple[LogSegment, OffsetPosition]]
    ) -> None:
        found: deque[Fields] = deque()
        is_whole = False  # whether all of it could be read

        def work() -> None:
            nonlocal is_whole
            try:
                log_undecodable = partial(_log_undecodable, log.partition)
                found.extend(newest_records(_batches(log.partition, ends, log.log_start_offset), log_undecodable))
                is_whole = True
            except OSError as error:
                _log.error("%s-%d could not be read from %s: %s", self._topic, number, log.directory, error.strerror)
            except Exception:  # noqa: BLE001 - another leads now, and the log is cut or deleted under the reader's eyes
                if self._readings.get(number) is reading:
                    _log.exception("%s-%d could not be read from %s", self._topic, number, log.directory)

        def then() -> None:
            if self._readings.get(number) is not reading:  # the partition is gone
                self._end_reading()
            elif not is_whole:  # the next request tries again
                self._after_loading.pop(number, None)
                del self._readings[number]
                self._end_reading()
            else:
                go_through(self._broker.runtime, self._take_up(number, reading, found))

        self._broker.runtime.run_in_background(work, then)

    def _take_up(self, number: int, reading: object, found: deque[Fields]) -> Task[None]:
        replay = self._begin_replay(number)
        count = len(found)
        while found and self._readings.get(number) is reading:  # else the partition is gone
            replay.take_up(ReadRecord(*found.popleft()))
            yield Yield.GIVE_WAY
        if self._readings.get(number) is reading:
            del self._readings[number]
            self._loaded.add(number)
            replay.finish()
            _log.info("%s-%d: %d records", self._topic, number, count)
            for later in self._after_loading.pop(number, []):
                later()
        self._end_reading()


def _batches(
    partition: TopicPartition, ends: Sequence[tuple[LogSegment, OffsetPosition]], log_start_offset: int
) -> Iterator[Batch]:
    """Yields the readable batches of the segments, each up to its end; thread-safe. Raises the disk's OSError."""
    for segment, end in ends:
        for item in segment.reading(end).items():
            if isinstance(item, DamagedBytes):
                path = segment.records.path
                _log.error("%s: offsets %s of %s can't be read: %s", partition, item.range, path, item.cause)
            elif item.next_offset > log_start_offset:
                yield item


def _log_undecodable(partition: TopicPartition, batch: Batch, error: CorruptRecordError) -> None:
    _log.error("%s: offsets %d-%d can't be read: %s", partition, batch.base_offset, batch.last_offset, error)
