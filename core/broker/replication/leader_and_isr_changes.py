"""The replicas of a member of a cluster: exactly those that its controller assigns by LeaderAndIsr and StopReplica.

Assignments have an image of their own, apart from the one of all topics: UpdateMetadata may announce a leader before
that leader knows. A change of it is a delta, which `ReplicaManager.apply` applies as for a lone broker.

Source: kafka.server.ReplicaManager.becomeLeaderOrFollower and stopReplicas, of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial

from core.broker.config.effective_configs import Configs
from core.broker.partitions.file_deletion import FileDeletion
from core.broker.partitions.lazy_logs import LazyLogs
from core.broker.partitions.replica_manager import ReplicaManager
from core.cluster.image.cluster_member_metadata import MIGRATING_DIRECTORY
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import NO_LEADER, LeaderRecoveryState, MetadataImage
from core.cluster.image.metadata_record import MetadataRecord
from core.common.error_code import ErrorCode
from core.common.errors import PlogError
from core.common.filesystem import access_error
from core.common.task import Task, finish
from core.common.topic_partition import TopicPartition, is_valid_topic_name
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.log.log_manager import LogManager
from core.protocol.schema.control_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    StopReplicaPartitionState,
    StopReplicaRequest,
)
from core.protocol.schema.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord

_log = logging.getLogger("plog.broker")

_ANY_EPOCHS = (-1, -2)
"""Leader epochs of a StopReplica that applies in any case: for a deleted topic, and from old controllers."""

Errors = dict[TopicPartition, ErrorCode]


class LeaderAndIsrChanges:
    """Owned by the broker's task."""

    def __init__(
        self,
        node_id: int,
        configs: Configs,
        log_manager: LogManager,
        replicas: ReplicaManager,
        late_loads: LazyLogs,
        deletion: FileDeletion,
    ) -> None:
        self._node_id = node_id
        self._configs = configs
        self._log_manager = log_manager
        self._replicas = replicas
        self._late_loads = late_loads
        self._deletion = deletion
        log_manager.remembers_lost_ends = True
        self._image = MetadataImage(has_known_topics=True)
        self._unfit: dict[TopicPartition, PlogError] = {}
        """Partitions that this broker refuses to lead, because its log lacks committed records."""

    # --- LeaderAndIsr

    def take_up(self, request: LeaderAndIsrRequest) -> Task[Errors]:
        """Applies the request's assignments: the steps change roles, and create logs. Returns an error for each
        partition. STALE_CONTROLLER_EPOCH if its leader epoch is not above the known one, UNKNOWN_TOPIC_OR_PARTITION if
        this broker is no replica, INVALID_REQUEST for a leader outside the ISR, INCONSISTENT_TOPIC_ID if id and name do
        not match, KAFKA_STORAGE_ERROR if its log is offline or may not lead, INVALID_TOPIC_EXCEPTION if no folder can
        have its name.
        """
        self._forget_replaced(request)
        errors: Errors = {}
        taken: dict[TopicPartition, PartitionRecord] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                registration = _registration(topic.topic_id, state)
                error = (
                    self._why_refused(name, registration)
                    or self._why_unusable(name, topic.topic_id)
                    or self._why_not_led(name, registration)
                )
                errors[name] = error or ErrorCode.NONE
                if error is None:
                    taken[name] = registration
        effects = self._apply(self._records_of(taken))
        for name in taken:
            self._late_loads.when_loaded(name, self, partial(self._on_loaded, name))
        for starting in effects:
            yield from starting
        offline = self._log_manager.offline.keys() | self._unfit.keys()
        return errors | {name: ErrorCode.KAFKA_STORAGE_ERROR for name in taken if name in offline}

    def _forget_replaced(self, request: LeaderAndIsrRequest) -> None:
        """If a topic's name is known under another id, that topic was deleted without notice: removes it, and sets its
        folders aside. A controller does not inform brokers that are no longer replicas, and a broker that was down may
        not know that. Kafka's brokers refuse the new topic until they restart (INCONSISTENT_TOPIC_ID).
        """
        for topic in request.topic_states:
            known = self._image.topics.get(topic.topic_name)
            if known and known.topic_id != topic.topic_id and self._image.find_name(topic.topic_id) is None:
                self._apply([RemoveTopicRecord(known.topic_id)])
                for number in known.partitions:
                    self._why_unusable(TopicPartition(known.name, number), topic.topic_id)

    def _why_refused(self, name: TopicPartition, registration: PartitionRecord) -> ErrorCode | None:
        node_id, topic_id = self._node_id, registration.topic_id
        if _is_impossible(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if name in self._log_manager.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if name in self._unfit and (
            registration.leader == NO_LEADER or self._find_loss(name, registration) is not None
        ):
            return ErrorCode.KAFKA_STORAGE_ERROR  # no leader, or the same request in the known epoch again
        if self._image.find_name(topic_id) not in (None, name.topic):  # another id of the name is forgotten by now
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if node_id not in registration.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if registration.leader == node_id and node_id not in registration.isr:
            return ErrorCode.INVALID_REQUEST
        known = self._image.find_partition(name)
        if known is not None and registration.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return None

    def _why_unusable(self, name: TopicPartition, topic_id: bytes) -> ErrorCode | None:
        """Sets aside a folder of another topic, unless the disk refuses."""
        log_manager = self._log_manager
        try:
            log_manager.ensure_topic(name, topic_id)
        except OSError as error:
            log_manager.set_offline(name, access_error(error, error.filename or log_manager.directory, "rename"))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def _why_not_led(self, name: TopicPartition, registration: PartitionRecord) -> ErrorCode | None:
        """Refuses to lead after a loss that `_find_loss` finds. A log that is not open yet is checked when it is."""
        error = self._find_loss(name, registration)
        if error is None:
            self._unfit.pop(name, None)
            return None
        self._note_unfit(name, error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _on_loaded(self, name: TopicPartition) -> None:
        """Called when the log of an assigned partition is open. If this broker may not lead it, it stops leading, and
        tells the controller.
        """
        registration = self._image.find_partition(name)
        if registration is None or name not in self._replicas.partitions:
            return
        error = self._find_loss(name, registration)
        if error is not None:
            self._note_unfit(name, error)
            for steps in self._apply([self._without_role(registration, is_deleted=False)]):
                finish(steps)
            self._log_manager.report_offline()

    def _note_unfit(self, name: TopicPartition, reason: PlogError) -> None:
        if name not in self._unfit:
            _log.error("%s is not led here: %s", name, reason)
        self._unfit[name] = reason

    def _find_loss(self, name: TopicPartition, registration: PartitionRecord) -> PlogError | None:
        """Finds lost committed records of a partition that this broker should lead: followers would truncate theirs
        (KAFKA-14139). It refuses as long as another replica, which may have them, is in the ISR. A plog controller does
        not ask for it, because it has compared the logs.
        """
        lost = self._log_manager.lost_ends.get(name)
        if lost is None or registration.leader == NO_LEADER:
            return None
        node_id = self._node_id
        is_last = registration.isr == [node_id]
        is_wanted = registration.leader_recovery_state != LeaderRecoveryState.RECOVERED
        if registration.leader != node_id or is_wanted or is_last:
            del self._log_manager.lost_ends[name]  # from now on that leader's records are the committed ones
            return None
        return PlogError(
            f"this broker has lost the committed offsets {lost[0]}-{lost[1] - 1} in a crash, and other replicas "
            "are in sync"
        )

    def _records_of(self, taken: dict[TopicPartition, PartitionRecord]) -> Iterator[MetadataRecord]:
        made: set[str] = set()
        for name, registration in taken.items():
            if name.topic not in self._image.topics and name.topic not in made:
                made.add(name.topic)
                yield TopicRecord(name.topic, registration.topic_id)
            yield registration

    # --- StopReplica

    def stop(self, request: StopReplicaRequest) -> Task[Errors]:
        """Stops replicas, and deletes those that the request deletes, even folders that were not assigned since the
        broker started. Returns an error code for each.
        """
        errors: Errors = {}
        stopped: list[PartitionRecord] = []
        deleted: list[TopicPartition] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                error = self._why_not_stopped(name, state)
                errors[name] = error or ErrorCode.NONE
                if error is None:
                    known = self._image.find_partition(name)
                    if known is not None:
                        stopped.append(self._without_role(known, is_deleted=state.delete_partition))
                    if state.delete_partition:
                        self._unfit.pop(name, None)
                        deleted.append(name)
        effects = self._apply(stopped)
        self._apply(self._removed_topics())
        configs = {name: self._configs.of_topic(name.topic) for name in deleted}
        for steps in effects + self._deletion.remove_logs(configs):
            yield from steps
        left = filter(self._log_manager.has_folder, deleted)  # the disk refused to rename these
        return errors | dict.fromkeys(left, ErrorCode.KAFKA_STORAGE_ERROR)

    def _why_not_stopped(self, name: TopicPartition, state: StopReplicaPartitionState) -> ErrorCode | None:
        if _is_impossible(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if name in self._log_manager.offline and not state.delete_partition:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self._image.find_partition(name)
        if known is not None and state.leader_epoch not in _ANY_EPOCHS and state.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return None

    def _without_role(self, known: PartitionRecord, *, is_deleted: bool) -> PartitionRecord:
        """Returns the partition after a stop: without a leader, as far as this node knows, and without a replica here
        if it is deleted.
        """
        after = copy(known)
        if is_deleted:
            after.replicas = [one for one in known.replicas if one != self._node_id]
        after.leader = NO_LEADER
        return after

    def _removed_topics(self) -> list[MetadataRecord]:
        """Removes topics without a replica here: the next one of that name may have another id."""
        node_id = self._node_id
        return [
            RemoveTopicRecord(topic.topic_id)
            for topic in self._image.topics.values()
            if not any(node_id in partition.replicas for partition in topic.partitions.values())
        ]

    def _apply(self, records: Iterable[MetadataRecord]) -> list[Task[None]]:
        delta = MetadataDelta(self._image).replay(records)
        self._image = delta.apply()
        return self._replicas.apply(delta)


def _is_impossible(name: TopicPartition) -> bool:
    """Returns whether no controller can mean that: its folder would be elsewhere, or is not a replica's."""
    return not is_valid_topic_name(name.topic) or name.topic == CLUSTER_METADATA_TOPIC


def _registration(topic_id: bytes, state: LeaderAndIsrPartitionState) -> PartitionRecord:
    return PartitionRecord(
        partition_id=state.partition_index,
        topic_id=topic_id,
        replicas=state.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.leader_recovery_state,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        directories=[MIGRATING_DIRECTORY] * len(state.replicas),
    )
