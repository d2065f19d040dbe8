"""The partitions that this broker holds, and the fetches that wait for records in them.

`ReplicationCounts` says what the broker has replicated since it started, and how often the replicas in sync changed
where it leads: counters, with the meanings of Kafka's (kafka.server.BrokerTopicStats, the ReplicaManager's
IsrShrinksPerSec and the like).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from core.broker.config.effective_configs import Configs
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.flusher import Flusher
from core.broker.requests.runtime import Runtime
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage, TopicImage
from core.cluster.partition.in_sync_replicas import IsrAnswer, IsrProposal
from core.cluster.partition.leadership import Peers
from core.cluster.partition.partition import Partition
from core.cluster.partition.partition_state import PartitionState
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.fd_limits import OUT_OF_DESCRIPTORS
from core.common.filesystem import access_error
from core.common.java_limits import LONG_MAX
from core.common.steps import Steps
from core.common.topic_partition import TopicPartition
from core.files.file_names import parse_partition_directory_name
from core.files.log_config import LogConfig
from core.forensics.damage import DamagedRange
from core.log.damaged_ranges import UNDECIDED_OFFSETS, UNEXPLAINED_OFFSETS, WRONG_START, WRONG_TAIL
from core.log.log_manager import LogManager
from core.log.partition_log import AppendResult, PartitionLog
from core.protocol.schema.metadata_records import PartitionRecord
from core.records.record_batch import RecordBatch

_log = logging.getLogger("plog.broker")

_FLUSH_AGAIN_MS = 1000

Result = TypeVar("Result")

PERHAPS_KEPT = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
"""A producer's error for a batch that is in the log, if nobody knows whether the disk has it. Clients send it again as
it was, so that it is recognized if it is there. After KAFKA_STORAGE_ERROR they may take it for not written."""


@dataclass(slots=True)
class ReplicationCounts:
    """Owned by the broker's task."""

    bytes_in: int = 0
    """Of records that were fetched from leaders."""
    bytes_out: int = 0
    """Of records that were given to followers."""
    reassignment_bytes_in: int = 0
    """Those of `bytes_in` that are of replicas which a reassignment adds here."""
    reassignment_bytes_out: int = 0
    """Likewise, those of `bytes_out` for replicas that it adds elsewhere."""
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    """Proposals of other replicas in sync that the controller refused."""

    def note_in(self, size_bytes: int, *, is_added: bool) -> None:
        """Counts what was fetched; `is_added` says whether a reassignment adds the replica."""
        self.bytes_in += size_bytes
        if is_added:
            self.reassignment_bytes_in += size_bytes

    def note_out(self, size_bytes: int, *, is_added: bool) -> None:
        self.bytes_out += size_bytes
        if is_added:
            self.reassignment_bytes_out += size_bytes

    def note_isr(self, *, is_expansion: bool, is_done: bool) -> None:
        """Counts the controller's answer to a proposal of replicas in sync that was waiting for it."""
        if not is_done:
            self.failed_isr_updates += 1
        elif is_expansion:
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1


class Watcher(Protocol):
    def on_change(self, partition: TopicPartition) -> None:
        """Called when what can be read of the partition has changed."""


class ReplicaManager:
    """Owned by one task."""

    def __init__(
        self,
        node: NodeIdentity,
        configs: Configs,
        log_manager: LogManager,
        runtime: Runtime,
        *,
        peers: Peers | None = None,
        may_be_elsewhere: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        """Without `peers` this broker is the only one, and nothing is replicated. `may_be_elsewhere` is asked about
        partitions that this broker does not have; without it others have those that `apply` is told of.
        """
        self.partitions: dict[TopicPartition, Partition] = {}
        self.generation = 0
        """Another one whenever partitions came or went."""
        self.appends = 0
        """Counts the batches that were appended here as a leader."""
        self.counts = ReplicationCounts()
        self.unexplained: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Offsets [start, end) that are missing for no known reason, as far as they were looked for."""
        self.undecided: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Likewise, batches of which it is not known whether they were aborted: the marker is lost."""
        self._node_id = node.node_id
        self._configs = configs
        self._image = MetadataImage()
        self._may_be_elsewhere = may_be_elsewhere or (lambda name: self._image.find_partition(name) is not None)
        self._log_manager = log_manager
        self._peers = peers
        self._clock = runtime.clock
        self.schedule = runtime.schedule
        self._flusher = Flusher(runtime, self._on_flushed, self.on_flush_failed)
        self.on_damage: Callable[[PartitionLog, CorruptRecordError], None] | None = None
        """Called with damage that a reader met and that was not known."""
        self.on_unloaded: Callable[[TopicPartition], None] | None = None
        """Called with a partition that somebody asks for, and whose log was not opened yet."""
        self.on_proposal: Callable[[Partition, IsrProposal], None] | None = None
        """Called with what the controller is to be asked for, who answers by `on_isr_answer`."""
        self.on_cut: Callable[[PartitionLog, int], None] | None = None
        """See `PartitionLog.on_cut`, of all logs that are served from now on."""
        self._waiting: dict[TopicPartition, dict[Watcher, None]] = {}
        self._on_stopped: list[Callable[[TopicPartition], None]] = []
        self._on_role: list[Callable[[Partition], None]] = []

    def subscribe(
        self, on_stopped: Callable[[TopicPartition], None], on_role: Callable[[Partition], None] | None = None
    ) -> None:
        """Calls back with each partition that is served no more, and with each that has taken up what the controller
        decided, from now on: its role may be another one, or it has the same one in another leader epoch.
        """
        self._on_stopped.append(on_stopped)
        if on_role is not None:
            self._on_role.append(on_role)

    # --- which partitions there are

    def apply(self, delta: MetadataDelta) -> list[Steps[None]]:
        """Takes up a change of the metadata. Partitions that are gone are stopped at once. The steps, if there are any,
        have those that are led in another epoch, or by another node, change their roles, and start new ones.
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
        """Stops a partition of which this node is no replica any more: its log stays, until it is said to be deleted.
        Whoever waits here for what another node does now is answered.
        """
        partition = self.partitions.get(name)
        if partition is not None:
            self._stop_serving(partition)
            self.notify([name])
            partition.notify_waiting()

    def _change_roles(self, topic: TopicImage, names: Sequence[TopicPartition]) -> Steps[None]:
        """Has partitions that are served take up the change, one a step: a leader writes down where its epoch begins,
        and others are served while many do. What is decided later, and came meanwhile, counts.
        """
        for name in names:
            partition, known = self.partitions.get(name), self._image.topics_by_id.get(topic.topic_id)
            if partition is not None and known is not None:
                self._change_role(partition, known.partitions[name.partition])
                yield

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
        for on_role in self._on_role:
            on_role(partition)

    def _start(self, topic: TopicImage, registrations: Sequence[PartitionRecord]) -> Steps[None]:
        """Makes or takes up the logs, one a step, and stops if the topic is deleted, which it may be already; a log
        that the disk refuses is offline, with the reason.
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
            registration = self._registration(partition)  # which may be another one by now
            if self._is_missing(partition) and self._node_id in registration.replicas:
                self._add(partition, registration, config)
                yield
                if topic.topic_id not in self._image.topics_by_id:
                    return
        if self._configs.of_topic(topic.name) != config:  # somebody altered it meanwhile
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
        log.on_roll = self._flusher.flush
        log.on_cut = self.on_cut
        self._tell_role(partition)

    def serve_loaded(self, log: PartitionLog) -> None:
        """Serves a partition whose log was opened just now, unless this node is no replica of it, or not yet."""
        registration = self._image.find_partition(log.partition)
        if registration is None or self._node_id not in registration.replicas:
            return
        log.configure(self._configs.of_topic(log.partition.topic))
        try:
            self._serve(log, registration)
        except OSError as error:
            self._set_offline(log.partition, error)

    def configure(self, delta: MetadataDelta) -> None:
        """Configures the logs of topics whose configuration changed, or that take something from the broker's."""
        names = {name for type_, name in delta.configs.changed if type_ == ConfigResourceType.TOPIC}
        if delta.changes_brokers_configs():
            names |= self._image.topics.keys()
        for name in names:
            if name in self._image.topics:
                self._configure_topic(self._image.topics[name])

    def _configure_topic(self, topic: TopicImage) -> None:
        config = self._configs.of_topic(topic.name)
        for _, partition in self._served(topic):
            partition.log.configure(config)
            self.flush_as_configured(partition.log)

    def _set_offline(self, partition: TopicPartition, error: OSError) -> None:
        reason = access_error(error, self._log_manager.directory / str(partition), "create")
        self._log_manager.set_offline(partition, reason)

    def _stop(self, topic: TopicImage) -> None:
        """Stops the partitions; whoever waits for their records is answered."""
        removed = [TopicPartition(topic.name, number) for number in topic.partitions]
        served = [self.partitions[name] for name in removed if name in self.partitions]
        for partition in served:
            self._stop_serving(partition)
        for name in removed:  # the next topic of that name has other logs
            self.unexplained.pop(name, None)
            self.undecided.pop(name, None)
        self.notify(removed)
        for partition in served:
            partition.notify_waiting()

    def _stop_serving(self, partition: Partition) -> None:
        self.generation += 1
        partition.is_served = False
        del self.partitions[partition.log.partition]
        self._flusher.forget(partition.log)
        for on_stopped in self._on_stopped:
            on_stopped(partition.log.partition)

    def take_offline(self, partition: Partition, reason: PlogError) -> None:
        """Answers KAFKA_STORAGE_ERROR for it from now on; the next start tries again."""
        self._stop_serving(partition)
        self._log_manager.set_offline(partition.log.partition, reason)
        self.notify([partition.log.partition])
        partition.notify_waiting()

    def holds(self, partition: TopicPartition) -> bool:
        """Says whether this broker has a replica of it; its log may be still to be opened."""
        return partition in self.partitions or partition in self._log_manager.unloaded

    def leads(self, partition: TopicPartition) -> bool:
        """Says whether clients are to ask this broker for it; its log may be still to be opened."""
        served = self.partitions.get(partition)
        if served is not None:
            return served.is_leading
        registration = self._image.find_partition(partition) if self.is_being_read(partition) else None
        return registration is not None and registration.leader == self._node_id

    def is_being_read(self, partition: TopicPartition) -> bool:
        """Says whether its log is still to be opened, or is being opened."""
        return partition in self._log_manager.unloaded

    def _registration(self, partition: TopicPartition) -> PartitionRecord:
        return self._image.topics[partition.topic].partitions[partition.partition]

    def find_name(self, topic_id: bytes) -> str | None:
        """Finds the name of the topic with that id, of those that this broker has replicas of."""
        return self._image.find_name(topic_id)

    def find(self, topic: str, number: int) -> Partition:
        """Finds it, if this broker leads it. Raises what `find_replica` raises, and NOT_LEADER_OR_FOLLOWER if another
        does, or none.
        """
        partition = self.partitions.get(TopicPartition(topic, number)) or self.find_replica(topic, number)
        if not partition.is_leading:
            partition.ensure_leading()
        return partition

    def find_replica(self, topic: str, number: int) -> Partition:
        """Finds it, whoever leads it, or raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR if its log
        is offline, NOT_LEADER_OR_FOLLOWER if other nodes have it, or while it is opened, which begins if it had not:
        clients ask again.
        """
        name = TopicPartition(topic, number)
        partition = self.partitions.get(name)
        if partition is None and name in self._log_manager.unloaded and self.on_unloaded is not None:
            self.on_unloaded(name)
            partition = self.partitions.get(name)
        if partition is not None:
            return partition
        if name in self._log_manager.unloaded:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is being read; it can be asked for then")
        reason: PlogError | None = self._log_manager.offline.get(name)
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline: {reason}")
        if self._peers is not None and self._may_be_elsewhere(name):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._node_id} has no replica of {name}")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find_error(self, partition: Partition) -> ErrorCode | None:
        """Says why the partition is not served or not led any more; None while it is."""
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
        """Appends a batch, a client's or one of the broker's own; the caller calls `notify` when its request is done.

        Raises what `Partition.append` raises, and KAFKA_STORAGE_ERROR if the disk refuses, or holds damage where the
        batch is to go: it is not kept then. PERHAPS_KEPT if it was written, and the partition is offline. It is also
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
        """Gives what `read` finds in the partition's log.

        KafkaError: its own, CORRUPT_MESSAGE if the log is damaged there, KAFKA_STORAGE_ERROR if the disk refuses. The
        partition is offline then if another replica leads it or could.
        """
        try:
            return read(partition.log)
        except (CorruptRecordError, OSError) as error:
            raise self._reading_error(partition, error) from error

    def read_in_steps(self, partition: Partition, steps: Steps[Result]) -> Steps[Result]:
        """Gives what the steps find in the partition's log; raises what `read` raises, and what `find` raises if it is
        served no more.
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
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # another one has its name now

    def _reading_error(self, partition: Partition, error: CorruptRecordError | OSError) -> KafkaError:
        log = partition.log
        if isinstance(error, OSError):
            reason = access_error(error, log.directory, "read")
            self._leave_to_others(partition, error, reason)
            return _logged_error(reason)
        if any(gap.position == error.position for gap in log.gaps):
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        if self.on_damage is not None:
            self.on_damage(log, error)
        return _logged_error(error, ErrorCode.CORRUPT_MESSAGE)

    def on_unreadable(self, path: Path, error: OSError) -> None:
        """Called when an answer can't be sent whole, because the disk refuses to read the file that it lies in."""
        reason = access_error(error, path, "read")
        _log.error("%s; the answer that was to hold it is cut off", reason)
        name = parse_partition_directory_name(path.parent.name)
        partition = None if name is None else self.partitions.get(name)
        if partition is not None and partition.log.directory == path.parent:
            self._leave_to_others(partition, error, reason)

    def _leave_to_others(self, partition: Partition, error: OSError, reason: PlogError) -> None:
        """Takes the partition offline if another replica leads it or could: the controller has one lead that has a
        better disk. It stays if the process has run out of descriptors: the disk was not asked.
        """
        if partition.is_served and partition.has_others_in_sync and error.errno not in OUT_OF_DESCRIPTORS:
            self.take_offline(partition, reason)

    # --- followers

    def note_fetch(
        self, partition: Partition, replica: int, offset: int, *, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Notes that a replica fetches. Says and raises what `Partition.note_fetch` does."""
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
        """Looks which followers are late, and proposes that they leave the replicas in sync. To be called twice in
        replica.lag.time.max.ms (ReplicaManager.maybeShrinkIsr).
        """
        now_ms = self._clock.monotonic_ms()
        for partition in list(self.partitions.values()):
            before = partition.log.high_watermark
            self._announce(partition, before, partition.look_at_followers(now_ms))

    def on_isr_answer(self, partition: Partition, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """Takes up the controller's answer to a proposal, which is made again if that may help."""
        before = partition.log.high_watermark
        was_waiting, is_expansion = partition.proposes(proposal), len(proposal.isr) > partition.isr_size
        must_send_again = partition.on_isr_answer(proposal, answer, self._clock.monotonic_ms())
        if was_waiting:
            is_done = answer.error is ErrorCode.NONE and not partition.proposes(proposal)
            self.counts.note_isr(is_expansion=is_expansion, is_done=is_done)
        self._announce(partition, before, proposal if must_send_again else None)

    def _announce(self, partition: Partition, high_watermark: int, proposal: IsrProposal | None) -> None:
        """Tells readers if the high watermark was there and has moved, and the controller what is proposed."""
        if partition.log.high_watermark != high_watermark:
            self.notify([partition.log.partition])
        if proposal is not None and self.on_proposal is not None:
            self.on_proposal(partition, proposal)

    def append_as_follower(
        self,
        partition: Partition,
        records: memoryview,
        leader_epoch: int,
        *,
        high_watermark: int,
        log_start_offset: int,
    ) -> None:
        """Appends what the leader answered in that epoch, if there is something, and has the log begin, and be
        committed, as far as the leader's is. Raises what `PartitionLog.append_as_follower` raises.
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
        """Asks for the flush that `flush.messages` or `flush.ms` require by now."""
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
        """Raises KafkaError(REPLICA_NOT_AVAILABLE) unless all of the log is on the disk, and has it brought there."""
        if partition.log.unflushed_messages:
            self._flusher.flush(partition.log)
        if partition.log.unflushed_messages:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "what the log holds is being brought to the disk")

    def flush_to_close_files(self) -> None:
        """Asks for the flush of logs whose files may be closed then, when too many are open."""
        for log in self._log_manager.find_logs_to_sync():
            self._flusher.flush(log)

    def _on_flushed(self, log: PartitionLog) -> None:
        partition = self.partitions.get(log.partition)
        if partition is not None and partition.log is log:
            partition.on_flushed()
            if log.config.plog_visible_after_flush:
                self.notify([log.partition])

    def on_flush_failed(self, log: PartitionLog, error: OSError) -> None:
        """Takes it offline: what the disk lost is not known, so it must be opened and checked again. Not so if a file
        could not even be opened, for want of descriptors: the disk was not asked then, and is asked again.
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

    # --- damage

    def gaps_of(self, topic: TopicImage) -> dict[int, list[DamagedRange]]:
        """Gives what is known to be damaged, by partition."""
        return {tp.partition: partition.log.gaps for tp, partition in self._served(topic) if partition.log.gaps}

    def doubts_of(self, topic: TopicImage) -> dict[str, dict[int, list[tuple[int, int]]]]:
        """Gives what readers should know that fetches do not say, by key and partition: offsets [start, end)."""
        names = [TopicPartition(topic.name, number) for number in topic.partitions]
        holes = {tp.partition: self.unexplained[tp] for tp in names if tp in self.unexplained}
        for tp, partition in self._served(topic):
            lost_start = self._log_manager.lost_starts.get(tp)
            if lost_start is not None and lost_start[1] == partition.log.log_start_offset:  # nothing was deleted since
                holes[tp.partition] = [lost_start, *holes.get(tp.partition, [])]
        undecided = {tp.partition: self.undecided[tp] for tp in names if tp in self.undecided}
        ends = {tp: (p.log.log_end_offset, p.log.log_end_offset + 1) for tp, p in self._served(topic)}
        tails = {tp.partition: [end] for tp, end in ends.items() if tp in self._log_manager.with_wrong_tail}
        starts = {tp.partition: [end] for tp, end in ends.items() if tp in self._log_manager.with_wrong_start}
        doubts = {
            UNEXPLAINED_OFFSETS: holes, UNDECIDED_OFFSETS: undecided, WRONG_TAIL: tails, WRONG_START: starts
        }  # fmt: skip
        return {key: found for key, found in doubts.items() if found}

    def _served(self, topic: TopicImage) -> Iterator[tuple[TopicPartition, Partition]]:
        for number in topic.partitions:
            name = TopicPartition(topic.name, number)
            if name in self.partitions:
                yield name, self.partitions[name]

    # --- waiting for records

    def watch(self, watcher: Watcher, partitions: Iterable[TopicPartition]) -> None:
        """Calls `watcher.on_change` with each of the partitions that gets records or loses some, or goes away."""
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
        """Counts the answers that wait for records, and those that wait for records to be committed."""
        for_records = {watcher for watchers in self._waiting.values() for watcher in watchers}
        for_commit = {waiting for partition in self.partitions.values() for waiting in partition.commit_waits}
        return len(for_records), len(for_commit)

    def notify(self, partitions: Iterable[TopicPartition]) -> None:
        """Called when records came, or went, or the partitions did."""
        if self._waiting:
            for partition in partitions:
                for watcher in list(self._waiting.get(partition, ())):
                    watcher.on_change(partition)


def _logged_error(reason: PlogError, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> KafkaError:
    """Makes the error that a client gets; the operator reads the reason in the log."""
    _log.error("%s", reason)
    return KafkaError(code, str(reason))
