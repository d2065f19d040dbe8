"""The partitions that this broker holds, and the fetches that wait for records in them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from core.broker.delayed_operation import DelayedOperation
from core.broker.flusher import Flusher
from core.cluster.metadata_image import TopicImage
from core.cluster.partition import Partition
from core.common.background import RunInBackground
from core.common.clock import Clock
from core.common.deferred import Schedule
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.filesystem import access_error
from core.common.topic_partition import TopicPartition
from core.log.damage import DamagedRange
from core.log.log_config import LONG_MAX, LogConfig
from core.log.log_manager import LogManager
from core.log.partition_log import AppendResult, PartitionLog
from core.records.record_batch import RecordBatch

_log = logging.getLogger("plog.broker")

Result = TypeVar("Result")


class ReplicaManager:
    """Owned by one task."""

    def __init__(self, log_manager: LogManager, run_flush: RunInBackground, schedule: Schedule, clock: Clock) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.generation = 0
        """Another one whenever partitions came or went."""
        self._log_manager = log_manager
        self._flusher = Flusher(run_flush, schedule, clock, self._on_flushed, self.on_flush_failed)
        self.on_damage: Callable[[PartitionLog, CorruptRecordError], None] | None = None
        """Told of damage that a reader met and that was not known."""
        self._waiting: _Waiting = {}
        self._waiting_for_flush: _Waiting = {}

    # --- which partitions there are

    def add_topic(self, topic: TopicImage, config: LogConfig, node_id: int) -> None:
        """Makes or takes up the logs of the topic's partitions that this node has a replica of; one that the disk
        refuses is offline, with the reason.
        """
        for number, registration in topic.partitions.items():
            partition = TopicPartition(topic.name, number)
            if partition in self.partitions or partition in self._log_manager.offline:
                continue
            if node_id not in registration.replicas:
                continue
            try:
                log = self._log_manager.create(partition, topic.topic_id, config)
                self.partitions[partition] = Partition(log, registration, topic.topic_id)
                self.generation += 1
            except OSError as error:
                reason = access_error(error, self._log_manager.directory / str(partition), "create")
                self._log_manager.set_offline(partition, reason)
            else:
                log.on_roll = self._flusher.flush

    def remove_topic(self, topic: TopicImage) -> list[TopicPartition]:
        """Stops serving the topic; whoever waits for its records is answered. Gives its partitions."""
        removed = [TopicPartition(topic.name, number) for number in topic.partitions]
        for partition in removed:
            self._stop_serving(partition)
        self._notify_gone(removed)
        return removed

    def _stop_serving(self, partition: TopicPartition) -> None:
        self.generation += 1
        served = self.partitions.pop(partition, None)
        if served is not None:
            self._flusher.forget(served.log)

    def take_offline(self, partition: Partition, reason: PlogError) -> None:
        """Answers KAFKA_STORAGE_ERROR for it from now on; the next start tries again."""
        name = partition.log.partition
        self._stop_serving(name)
        self._log_manager.set_offline(name, reason)
        self._notify_gone([name])

    def find(self, topic: str, number: int) -> Partition:
        """KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR where its log is offline."""
        partition = self.partitions.get(TopicPartition(topic, number))
        if partition is not None:
            return partition
        reason: PlogError | None = self._log_manager.offline.get(TopicPartition(topic, number))
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{number} is offline: {reason}")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # --- writing

    def append(
        self, partition: Partition, batch: RecordBatch, *, required_acks: int, from_client: bool = True
    ) -> AppendResult:
        """Appends a batch, a client's or one of the broker's own; the caller calls `notify` when its request is done.

        KafkaError as of `Partition.append`, and KAFKA_STORAGE_ERROR where the disk refuses, or holds damage where the
        batch is to go.
        """
        try:
            result = partition.append(batch, required_acks=required_acks, from_client=from_client)
            if partition.log.config.is_flushed_while_appending:
                self.flush_as_configured(partition.log)
            return result
        except OSError as error:
            raise _said(access_error(error, partition.log.directory, "write to")) from error
        except CorruptRecordError as error:
            raise _said(error) from error

    def read(self, partition: Partition, read: Callable[[PartitionLog], Result]) -> Result:
        """What `read` finds in the partition's log.

        KafkaError: its own, CORRUPT_MESSAGE where the log is damaged there, KAFKA_STORAGE_ERROR where the disk refuses.
        """
        try:
            return read(partition.log)
        except CorruptRecordError as error:
            if any(gap.position == error.position for gap in partition.log.gaps):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            if self.on_damage is not None:
                self.on_damage(partition.log, error)
            raise _said(error, ErrorCode.CORRUPT_MESSAGE) from error
        except OSError as error:
            raise _said(access_error(error, partition.log.directory, "read")) from error

    # --- flushing

    def flush_as_configured(self, log: PartitionLog) -> None:
        """Asks for the flush that `flush.messages` or `flush.ms` want by now."""
        config = log.config
        unflushed = log.log_end_offset - log.recovery_point
        if not unflushed:
            return
        is_timed = config.flush_ms != LONG_MAX
        is_flushed_at_once = config.plog_visible_after_flush and not is_timed and config.flush_messages == LONG_MAX
        if unflushed >= config.flush_messages or is_flushed_at_once:
            self._flusher.flush(log)
        elif is_timed:
            self._flusher.flush_within(log, config.flush_ms)

    def _on_flushed(self, log: PartitionLog) -> None:
        partition = self.partitions.get(log.partition)
        if partition is not None and partition.log is log:
            partition.on_flushed()
            _complete(self._waiting_for_flush, log.partition)
            if log.config.plog_visible_after_flush:
                self.notify([log.partition])

    def on_flush_failed(self, log: PartitionLog, error: OSError) -> None:
        """What the disk lost of it is not known: the partition must be opened, and checked, anew."""
        partition = self.partitions.get(log.partition)
        if partition is not None and partition.log is log:
            self.take_offline(partition, access_error(error, log.directory, "sync"))

    # --- damage

    def gaps_of(self, topic: str) -> dict[int, list[DamagedRange]]:
        """What is known to be damaged, by partition."""
        found = {tp.partition: p.log.gaps for tp, p in self.partitions.items() if tp.topic == topic}
        return {number: gaps for number, gaps in found.items() if gaps}

    # --- waiting for records, or for a flush

    def watch(
        self, operation: DelayedOperation, partitions: Iterable[TopicPartition], *, for_flush: bool = False
    ) -> None:
        """`operation.maybe_complete` is called whenever one of the partitions gets records, or is flushed where that is
        what it waits for; and when it goes away.
        """
        waiting = self._waiting_for_flush if for_flush else self._waiting
        for partition in partitions:
            waiting.setdefault(partition, {})[operation] = None

    def unwatch(
        self, operation: DelayedOperation, partitions: Iterable[TopicPartition], *, for_flush: bool = False
    ) -> None:
        waiting = self._waiting_for_flush if for_flush else self._waiting
        for partition in partitions:
            operations = waiting.get(partition)
            if operations is not None:
                operations.pop(operation, None)
                if not operations:
                    del waiting[partition]

    def waiting_counts(self) -> tuple[int, int]:
        """How many wait for records, and for a flush."""
        waiting = self._waiting, self._waiting_for_flush
        for_records, for_flush = (len({o for operations in w.values() for o in operations}) for w in waiting)
        return for_records, for_flush

    def notify(self, partitions: Iterable[TopicPartition]) -> None:
        """Records came."""
        if self._waiting:
            for partition in partitions:
                _complete(self._waiting, partition)

    def _notify_gone(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            _complete(self._waiting, partition)
            _complete(self._waiting_for_flush, partition)


_Waiting = dict[TopicPartition, dict[DelayedOperation, None]]


def _complete(waiting: _Waiting, partition: TopicPartition) -> None:
    """Those of the operations that have what they waited for."""
    operations = waiting.get(partition)
    if operations:
        for operation in list(operations):
            operation.maybe_complete()


def _said(reason: PlogError, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> KafkaError:
    """The error that a client gets; the operator reads the reason in the log."""
    _log.error("%s", reason)
    return KafkaError(code, str(reason))
