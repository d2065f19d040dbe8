"""The partitions that this broker holds, and the fetches that wait for records in them.

`ReplicationCounts` counts what the broker has replicated since it started, and the changes of the ISR of partitions
that it leads, as Kafka's metrics do (kafka.server.BrokerTopicStats, the ReplicaManager's IsrShrinksPerSec and the
like).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from core.broker.config.effective_configs import Configs
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.flusher import Flusher
from core.broker.requests.runtime import Runtime
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage, PartitionState, TopicImage
from core.cluster.partition.leadership import IsrAnswer, IsrProposal, Peers
from core.cluster.partition.partition import Partition
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.fd_limits import OUT_OF_DESCRIPTORS
from core.common.filesystem import access_error
from core.common.java_limits import LONG_MAX
from core.common.task import Task, Yield
from core.common.topic_partition import TopicPartition
from core.files.file_names import parse_partition_directory_name
from core.files.log_config import LogConfig
from core.log.log_manager import LogManager
from core.log.partition_log import AppendResult, PartitionLog
from core.protocol.schema.metadata_records import PartitionRecord
from core.records.record_batch import RecordBatch

_log = logging.getLogger("plog.broker")

_FLUSH_AGAIN_MS = 1000

Result = TypeVar("Result")

PERHAPS_KEPT = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
"""A producer's error for a batch that is in the log, but perhaps not on the disk. Clients send the same batch again, so
that it is recognized if it is there. After KAFKA_STORAGE_ERROR they may take it for not written.
"""


@dataclass(slots=True)
class ReplicationCounts:
    """Owned by the broker's task."""

    bytes_in: int = 0
    """Bytes of records fetched from leaders."""
    bytes_out: int = 0
    """Bytes of records sent to followers."""
    reassignment_bytes_in: int = 0
    """The part of `bytes_in` for replicas that a reassignment adds here."""
    reassignment_bytes_out: int = 0
    """The part of `bytes_out` for replicas that a reassignment adds elsewhere."""
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    """Proposed ISRs that the controller refused."""

    def note_in(self, size_bytes: int, *, is_added: bool) -> None:
        """Counts fetched bytes; `is_added`: a reassignment adds the replica."""
        self.bytes_in += size_bytes
        if is_added:
            self.reassignment_bytes_in += size_bytes

    def note_out(self, size_bytes: int, *, is_added: bool) -> None:
        self.bytes_out += size_bytes
        if is_added:
            self.reassignment_bytes_out += size_bytes

    def note_isr(self, *, is_expansion: bool, is_done: bool) -> None:
        """Counts the controller's answer to a pending ISR proposal."""
        if not is_done:
            self.failed_isr_updates += 1
        elif is_expansion:
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1


class Watcher(Protocol):
    def on_change(self, partition: TopicPartition) -> None:
        """Called when the readable records of the partition have changed."""


class ReplicaManager:
    """Owned by one task."""

    def __init__(
        self,
        node: NodeIdentity,
        controller: BrokerMetadata,
        configs: Configs,
        log_manager: LogManager,
        runtime: Runtime,
        *,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` this broker is the only one, and nothing is replicated."""
        self.partitions: dict[TopicPartition, Partition] = {}
        self.generation = 0
        """Changes whenever partitions come or go."""
        self.appends = 0
        """How many batches this broker appended as a leader."""
        self.counts = ReplicationCounts()
        self._node_id = node.node_id
        self._controller = controller
        self._configs = configs
        self._image = MetadataImage()
        self._log_manager = log_manager
        self._peers = peers
        self.look_every_ms = None if peers is None else peers.max_lag_ms // 2
        """The interval for `look_at_followers`; None if there are no followers."""
        self._clock = runtime.clock
        self.schedule = runtime.schedule
        self._flusher = Flusher(runtime, self._on_flushed, self.on_flush_failed)
        log_manager.events.on_roll.append(self._flusher.flush)
        self._waiting: dict[TopicPartition, dict[Watcher, None]] = {}

        # Whoever wants to know appends itself to these.
        self.on_stopped: list[Callable[[TopicPartition], None]] = []
        """Called with each partition that is no longer served."""
        self.on_removed: list[Callable[[Sequence[TopicPartition]], None]] = []
        """Called with the partitions of a topic that is gone: the next topic of that name has other logs."""
        self.on_role: list[Callable[[Partition], None]] = []
        """Called with each partition that has applied a decision of the controller: it may have another role, or the
        same role in another leader epoch.
        """
        self.on_damage: list[Callable[[PartitionLog, CorruptRecordError], None]] = []
        """Called with damage that a reader met."""
        self.on_unloaded: list[Callable[[TopicPartition], None]] = []
        """Called with a requested partition whose log is not open yet."""
        self.on_proposal: list[Callable[[Partition, IsrProposal], None]] = []
        """Called with a proposal for the controller, whose answer comes to `on_isr_answer`."""

    # --- the partitions of this broker

    def apply(self, delta: MetadataDelta) -> list[Task[None]]:
        """Applies a change of the metadata. Removed partitions are stopped at once. The returned steps, if any, change
        the roles of partitions with a new leader or leader epoch, and start new partitions.
        """
        self._image = delta.apply()
        for topic in delta.deleted_topics():
            self._stop(topic)
        self.configure(delta)
        effects = []
        for topic, changed in delta.changed_topics():
            names = {number: TopicPartition(topic.name, number) for number in changed}
            held = [one for one in changed.values() if self._node_id in one.replicas]
            for registration in changed.values():
                if self._node_id not in registration.replicas:
                    self._let_go(names[registration.partition_id])
            if served := [name for name in names.values() if name in self.partitions]:
                effects.append(self._change_roles(topic, served))
            if new := [one for one in held if self._is_missing(names[one.partition_id])]:
                effects.append(self._start(topic, new))
        return effects

    def _let_go(self, name: TopicPartition) -> None:
        """Stops a partition of which this node is no longer a replica: its log stays until the controller deletes it.
        Requests that wait for the partition are answered.
        """
        partition = self.partitions.get(name)
        if partition is not None:
            self._stop_serving(partition)
            self.notify([name])
            partition.notify_waiting()

    def _change_roles(self, topic: TopicImage, names: Sequence[TopicPartition]) -> Task[None]:
        """Changes the roles of served partitions, one per step: a leader writes the start of its epoch to the disk, and
        other requests are served in between. Each step applies the latest decision.
        """
        for name in names:
            partition, known = self.partitions.get(name), self._image.topics_by_id.get(topic.topic_id)
            if partition is not None and known is not None:
                self._change_role(partition, known.partitions[name.partition])
                yield Yield.GIVE_WAY

    def _change_role(self, partition: Partition, registration: PartitionRecord) -> None:
        state = PartitionState.of_registration(registration)
        if partition.state == state:
            return
        try:
            partition.take_up(state, self._clock.monotonic_ms())
        except OSError as error:
            self.take_offline(partition, access_error(error, partition.log.directory, "write to"))
        else:
            self._tell_role(partition)
            self.notify([partition.log.partition])

    def _tell_role(self, partition: Partition) -> None:
        for on_role in self.on_role:
            on_role(partition)

    def _start(self, topic: TopicImage, registrations: Sequence[PartitionRecord]) -> Task[None]:
        """Creates or opens the logs, one per step, and stops if the topic is deleted, which may have happened already;
        a log that the disk refuses is offline, with the reason.
        """
        if topic.topic_id not in self._image.topics_by_id:
            return
        config = self._configs.of_topic(topic.name)
        held = [TopicPartition(topic.name, one.partition_id) for one in registrations]
        try:
            self._log_manager.checkpoints.forget(partition for partition in held if self._is_missing(partition))
        except OSError as error:
            for partition in filter(self._is_missing, held):
                self._set_offline(partition, error)
        for partition in held:
            topic = self._image.topics[partition.topic]  # may have changed by now
            registration = topic.partitions[partition.partition]
            if self._is_missing(partition) and self._node_id in registration.replicas:
                self._add(partition, registration, config)
                yield Yield.GIVE_WAY
                if topic.topic_id not in self._image.topics_by_id:
                    return
        if self._configs.of_topic(topic.name) != config:  # altered meanwhile
            self._configure_topic(self._image.topics_by_id[topic.topic_id])

    def _is_missing(self, partition: TopicPartition) -> bool:
        return not self.holds(partition) and partition not in self._log_manager.offline

    def _add(self, partition: TopicPartition, registration: PartitionRecord, config: LogConfig) -> None:
        try:
            self._serve(self._log_manager.create(partition, registration.topic_id, config), registration)
        except OSError as error:
            self._set_offline(partition, error)

    def _serve(self, log: PartitionLog, registration: PartitionRecord) -> None:
        partition = self.partitions[log.partition] = Partition(
            log,
            registration.topic_id,
            PartitionState.of_registration(registration),
            node_id=self._node_id,
            now_ms=self._clock.monotonic_ms(),
            peers=self._peers,
        )
        self.generation += 1
        self._tell_role(partition)

    def serve_loaded(self, log: PartitionLog) -> None:
        """Serves a partition whose log was just opened, unless this node is not, or not yet, one of its replicas."""
        registration = self._image.find_partition(log.partition)
        if registration is None or self._node_id not in registration.replicas:
            return
        log.configure(self._configs.of_topic(log.partition.topic))
        try:
            self._serve(log, registration)
        except OSError as error:
            self._set_offline(log.partition, error)

    def configure(self, delta: MetadataDelta) -> None:
        """Configures the logs of topics whose settings changed, in the topic or in the broker's defaults."""
        names = {name for type_, name in delta.configs.changed if type_ == ConfigResourceType.TOPIC}
        if delta.changes_brokers_configs():
            names |= self._image.topics.keys()
        for name in names:
            if name in self._image.topics:
                self._configure_topic(self._image.topics[name])

    def _configure_topic(self, topic: TopicImage) -> None:
        config = self._configs.of_topic(topic.name)
        for number in topic.partitions:
            partition = self.partitions.get(TopicPartition(topic.name, number))
            if partition is not None:
                partition.log.configure(config)
                self.flush_as_configured(partition.log)

    def _set_offline(self, partition: TopicPartition, error: OSError) -> None:
        reason = access_error(error, self._log_manager.directory / str(partition), "create")
        self._log_manager.set_offline(partition, reason)

    def _stop(self, topic: TopicImage) -> None:
        """Stops the topic's partitions; requests that wait for their records are answered."""
        removed = [TopicPartition(topic.name, number) for number in topic.partitions]
        served = [self.partitions[name] for name in removed if name in self.partitions]
        for partition in served:
            self._stop_serving(partition)
        for on_removed in self.on_removed:
            on_removed(removed)
        self.notify(removed)
        for partition in served:
            partition.notify_waiting()

    def _stop_serving(self, partition: Partition) -> None:
        self.generation += 1
        partition.is_served = False
        del self.partitions[partition.log.partition]
        self._flusher.forget(partition.log)
        for on_stopped in self.on_stopped:
            on_stopped(partition.log.partition)

    def take_offline(self, partition: Partition, reason: PlogError) -> None:
        """Answers KAFKA_STORAGE_ERROR for the partition from now on; the next start tries again."""
        self._stop_serving(partition)
        self._log_manager.set_offline(partition.log.partition, reason)
        self.notify([partition.log.partition])
        partition.notify_waiting()

    def holds(self, partition: TopicPartition) -> bool:
        """Returns whether this broker has a replica of it; its log may not be open yet."""
        return partition in self.partitions or partition in self._log_manager.unloaded

    def leads(self, partition: TopicPartition) -> bool:
        """Returns whether this broker leads it; its log may not be open yet."""
        served = self.partitions.get(partition)
        if served is not None:
            return served.is_leading
        registration = self._image.find_partition(partition) if self.is_being_read(partition) else None
        return registration is not None and registration.leader == self._node_id

    def is_being_read(self, partition: TopicPartition) -> bool:
        """Returns whether its log is not open yet."""
        return partition in self._log_manager.unloaded

    def find_name(self, topic_id: bytes) -> str | None:
        """Returns the name of the topic with that id, among the topics that this broker has replicas of."""
        return self._image.find_name(topic_id)

    def find(self, topic: str, number: int) -> Partition:
        """Finds a partition that this broker leads. Raises what `find_replica` raises, and NOT_LEADER_OR_FOLLOWER."""
        partition = self.partitions.get(TopicPartition(topic, number)) or self.find_replica(topic, number)
        if not partition.is_leading:
            partition.ensure_leading()
        return partition

    def find_replica(self, topic: str, number: int) -> Partition:
        """Finds a partition, led here or not. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR if its
        log is offline, NOT_LEADER_OR_FOLLOWER if other brokers have it, or while its log is being opened, which this
        starts: clients retry.
        """
        name = TopicPartition(topic, number)
        partition = self.partitions.get(name)
        if partition is None and name in self._log_manager.unloaded:
            for on_unloaded in self.on_unloaded:
                on_unloaded(name)
            partition = self.partitions.get(name)
        if partition is not None:
            return partition
        if name in self._log_manager.unloaded:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {name} is still being read; try again")
        reason: PlogError | None = self._log_manager.offline.get(name)
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline: {reason}")
        metadata = self._controller
        if self._peers is not None and (not metadata.is_informed or metadata.image.find_partition(name) is not None):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._node_id} has no replica of {name}")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find_error(self, partition: Partition) -> ErrorCode | None:
        """Returns why the partition is no longer served or led here, or None if it is."""
        if partition.is_served:
            return None if partition.is_leading else ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            self.find(*partition.log.partition)
        except KafkaError as error:
            return error.code
        return None

    # --- writing

    def append(
        self, partition: Partition, batch: RecordBatch, *, required_acks: int, from_client: bool = True
    ) -> AppendResult:
        """Appends a batch of a client or of the broker itself; the caller calls `notify` at the end of its request.

        Raises what `Partition.append` raises, and, with the batch not kept, KAFKA_STORAGE_ERROR if the disk refuses or
        the log is damaged at its end. PERHAPS_KEPT if the batch was written, and the partition is offline. It is also
        offline if the disk refuses, and another replica could lead.
        """
        try:
            result = partition.append(batch, required_acks=required_acks, from_client=from_client)
            self.appends += 1
            if partition.log.config.is_flushed_while_appending:
                self.flush_as_configured(partition.log)
            return result
        except OSError as error:
            reason = access_error(error, partition.log.directory, "write to")
            if not partition.log.is_settled:
                self.take_offline(partition, reason)
                raise _logged_error(reason, PERHAPS_KEPT) from error
            self._leave_to_others(partition, error, reason)
            raise _logged_error(reason) from error
        except CorruptRecordError as error:
            raise _logged_error(error) from error

    def read(self, partition: Partition, read: Callable[[PartitionLog], Result]) -> Result:
        """Returns the result of `read` on the partition's log.

        Raises KafkaError: what `read` raises, CORRUPT_MESSAGE if the log is damaged there, KAFKA_STORAGE_ERROR if the
        disk refuses. Then the partition is taken offline if another replica leads it or could.
        """
        try:
            return read(partition.log)
        except (CorruptRecordError, OSError) as error:
            raise self._reading_error(partition, error) from error

    def read_in_steps(self, partition: Partition, steps: Task[Result]) -> Task[Result]:
        """Returns the result of the steps on the partition's log. Raises what `read` raises, and what `find_replica`
        raises if it is no longer served.
        """
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                found: Result = end.value
                return found
            except (CorruptRecordError, OSError) as error:
                raise self._reading_error(partition, error) from error
            yield step
            if not partition.is_served:
                self.find_replica(*partition.log.partition)
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # a new partition has its name now

    def _reading_error(self, partition: Partition, error: CorruptRecordError | OSError) -> KafkaError:
        log = partition.log
        if isinstance(error, OSError):
            reason = access_error(error, log.directory, "read")
            self._leave_to_others(partition, error, reason)
            return _logged_error(reason)
        if any(gap.position == error.position for gap in log.gaps):
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        self.report_damage(log, error)
        return _logged_error(error, ErrorCode.CORRUPT_MESSAGE)

    def report_damage(self, log: PartitionLog, error: CorruptRecordError) -> None:
        """Called when somebody who read the log met damage."""
        for on_damage in self.on_damage:
            on_damage(log, error)

    def on_unreadable(self, path: Path, error: OSError) -> None:
        """Called when a response can't be sent completely, because the disk refuses to read its file."""
        reason = access_error(error, path, "read")
        _log.error("%s; the answer that was to hold it is cut off", reason)
        name = parse_partition_directory_name(path.parent.name)
        partition = None if name is None else self.partitions.get(name)
        if partition is not None and partition.log.directory == path.parent:
            self._leave_to_others(partition, error, reason)

    def _leave_to_others(self, partition: Partition, error: OSError, reason: PlogError) -> None:
        """Takes the partition offline if another replica leads it or could: the controller elects one with a better
        disk. Not so if the process has run out of descriptors, which is no fault of the disk.
        """
        if partition.is_served and partition.has_others_in_sync and error.errno not in OUT_OF_DESCRIPTORS:
            self.take_offline(partition, reason)

    # --- followers

    def note_fetch(
        self, partition: Partition, replica: int, offset: int, *, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Notes a replica's fetch. Raises what `Partition.note_fetch` raises."""
        before = partition.log.high_watermark
        proposal = partition.note_fetch(
            replica,
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            now_ms=self._clock.monotonic_ms(),
        )
        if partition.log.high_watermark != before or proposal is not None:
            self._announce(partition, before, proposal)

    def look_at_followers(self) -> None:
        """Proposes to remove late followers from the ISR. Call it every `look_every_ms`: twice in
        replica.lag.time.max.ms (ReplicaManager.maybeShrinkIsr).
        """
        now_ms = self._clock.monotonic_ms()
        for partition in list(self.partitions.values()):
            before = partition.log.high_watermark
            self._announce(partition, before, partition.look_at_followers(now_ms))

    def on_isr_answer(self, partition: Partition, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """Applies the controller's answer to a proposal; proposes it again if that may help."""
        before = partition.log.high_watermark
        was_waiting, is_expansion = partition.proposes(proposal), len(proposal.isr) > partition.isr_size
        must_send_again = partition.on_isr_answer(proposal, answer, self._clock.monotonic_ms())
        if was_waiting:
            is_done = answer.error is ErrorCode.NONE and not partition.proposes(proposal)
            self.counts.note_isr(is_expansion=is_expansion, is_done=is_done)
        self._announce(partition, before, proposal if must_send_again else None)

    def _announce(self, partition: Partition, high_watermark: int, proposal: IsrProposal | None) -> None:
        """Notifies readers if the high watermark has moved, and passes on a proposal for the controller."""
        if partition.log.high_watermark != high_watermark:
            self.notify([partition.log.partition])
        if proposal is not None:
            for on_proposal in self.on_proposal:
                on_proposal(partition, proposal)

    def append_as_follower(
        self,
        partition: Partition,
        records: memoryview,
        leader_epoch: int,
        *,
        high_watermark: int,
        log_start_offset: int,
    ) -> None:
        """Appends the records of the leader's response in that epoch, if any, and takes over its log start offset and
        high watermark. Raises what `PartitionLog.append_as_follower` raises.
        """
        log = partition.log
        before = log.log_start_offset, log.high_watermark
        if len(records):
            self.counts.note_in(len(records), is_added=self._node_id in partition.state.adding_replicas)
            log.append_as_follower(records, leader_epoch, leader_log_start=log_start_offset)
            if log.config.is_flushed_while_appending:
                self.flush_as_configured(log)
        log.update_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.increment_log_start_offset(min(log_start_offset, log.high_watermark))
        if self._waiting and (log.log_start_offset, log.high_watermark) != before:
            self.notify([log.partition])

    # --- flushing

    def flush_as_configured(self, log: PartitionLog) -> None:
        """Requests the flush that `flush.messages` or `flush.ms` require by now."""
        config = log.config
        unflushed = log.log_end_offset - log.recovery_point
        if not unflushed:
            return
        if unflushed >= config.flush_messages:
            self._flusher.flush(log)
        elif config.flush_ms != LONG_MAX:
            self._flusher.flush_within(log, config.flush_ms)
        elif config.plog_visible_after_flush and config.flush_messages == LONG_MAX:
            self._flusher.flush(log)

    def ensure_flushed(self, partition: Partition) -> None:
        """Raises KafkaError(REPLICA_NOT_AVAILABLE), and requests a flush, unless the whole log is on the disk."""
        if partition.log.unflushed_messages:
            self._flusher.flush(partition.log)
        if partition.log.unflushed_messages:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "the log is being flushed to the disk")

    def flush_to_close_files(self) -> None:
        """Requests flushes of logs whose files can be closed afterwards, when too many files are open."""
        for log in self._log_manager.find_logs_to_sync():
            self._flusher.flush(log)

    def _on_flushed(self, log: PartitionLog) -> None:
        partition = self.partitions.get(log.partition)
        if partition is not None and partition.log is log:
            partition.on_flushed()
            if log.config.plog_visible_after_flush:
                self.notify([log.partition])

    def on_flush_failed(self, log: PartitionLog, error: OSError) -> None:
        """Takes the log's partition offline: it is unknown what the disk lost, so the log must be opened and checked
        again. Not so if a file could not even be opened for want of descriptors: the flush is tried again.
        """
        partition = self.partitions.get(log.partition)
        if partition is None or partition.log is not log:
            return
        if error.errno in OUT_OF_DESCRIPTORS and log.is_settled:
            reason = access_error(error, error.filename or log.directory, "sync")
            _log.error("%s; it is tried again in %d s", reason, _FLUSH_AGAIN_MS // 1000)
            self._flusher.flush_within(log, _FLUSH_AGAIN_MS)
        else:
            self.take_offline(partition, access_error(error, log.directory, "sync"))

    # --- waiting for records

    def watch(self, watcher: Watcher, partitions: Iterable[TopicPartition]) -> None:
        """Calls `watcher.on_change` with each of the partitions that gets or loses records, or is stopped."""
        for partition in partitions:
            self._waiting.setdefault(partition, {})[watcher] = None

    def unwatch(self, watcher: Watcher, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            watchers = self._waiting.get(partition)
            if watchers is not None:
                watchers.pop(watcher, None)
                if not watchers:
                    del self._waiting[partition]

    def waiting_counts(self) -> tuple[int, int]:
        """Counts the responses that wait for records, and those that wait for records to be committed."""
        for_records = {watcher for watchers in self._waiting.values() for watcher in watchers}
        for_commit = {waiting for partition in self.partitions.values() for waiting in partition.commit_waits}
        return len(for_records), len(for_commit)

    def notify(self, partitions: Iterable[TopicPartition]) -> None:
        """Calls the watchers of partitions whose records came or went, or that are gone."""
        if self._waiting:
            for partition in partitions:
                for watcher in list(self._waiting.get(partition, ())):
                    watcher.on_change(partition)


def _logged_error(reason: PlogError, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> KafkaError:
    _log.error("%s", reason)
    return KafkaError(code, str(reason))
