"""A broker as a member of a cluster: it obeys the controller, leads some partitions and follows others.

The controller sends LeaderAndIsr for the partitions that this broker leads and follows; `ReplicaFetcherManager` fetches
those that it follows, `IsrReporter` proposes the ISRs of those that it leads. `join` is called when the broker listens,
`leave` before it stops listening: until the controller has moved leadership away, clients are served.

A broker that is about to stop asks the controller to move its leadership (KIP-3, ControlledShutdown).

The controller elects other leaders from the ISR, and removes this broker from it. The broker goes on serving until
LeaderAndIsr and StopReplica arrive, and stops then: clients lose no time.

Source: kafka.server.KafkaServer.controlledShutdown, and ReplicaManager.becomeLeaderOrFollower and stopReplicas, of
Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.effective_configs import Configs
from core.broker.controller.controller_elector import ControllerElector
from core.broker.coordinators.producer_ids import ProducerIdBlocks
from core.broker.coordinators.transaction_peers import TransactionPeers
from core.broker.partitions.file_deletion import FileDeletion
from core.broker.partitions.lazy_logs import LazyLogs
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.partitions.topics import Topics
from core.broker.replication.auto_topic_creation import AutoTopicCreation
from core.broker.replication.cluster_peers import ClusterPeers
from core.broker.replication.controller_channel import ControllerChannel
from core.broker.replication.isr_reporter import IsrReporter
from core.broker.replication.replica_fetcher import FollowingBroker, ReplicaFetcherManager
from core.broker.replication.replication_quota import ReplicationQuota
from core.broker.replication.zookeeper_registration import ZooKeeperRegistration
from core.broker.requests.client_session import Session
from core.broker.requests.runtime import Runtime
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.image.cluster_member_metadata import (
    MIGRATING_DIRECTORY,
    NO_CONTROLLER,
    ClusterMemberMetadata,
    ControlFence,
)
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import NO_LEADER, LeaderRecoveryState, MetadataImage
from core.cluster.image.metadata_record import MetadataRecord
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, PlogError
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
from core.protocol.schema.controller_request import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from core.protocol.schema.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from core.security.principal import ANONYMOUS

_log = logging.getLogger("plog.broker")

_VERSION = 3
_MOST_NAMED = 10
"""The most partitions in one message."""
_SILENCE_MS = 10_000
_ANY_EPOCHS = (-1, -2)
"""Leader epochs of a StopReplica that applies in any case: for a deleted topic, and from old controllers."""

Errors = dict[TopicPartition, ErrorCode]


class LeaderAndIsrChanges:
    """The replicas of this member: exactly those that its controller assigns by LeaderAndIsr and StopReplica. Owned by
    the broker's task.

    Assignments have an image of their own, apart from the one of all topics: UpdateMetadata may announce a leader
    before that leader knows. A change of it is a delta, which `ReplicaManager.apply` applies as for a lone broker.
    """

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
        """Returns records that remove the topics without a replica here: a new topic of that name has another id."""
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


class Membership:
    """Owned by the broker's task."""

    def __init__(
        self,
        entry: ZooKeeperRegistration,
        controller: ClusterMemberMetadata,
        peers: ClusterPeers,
        *,
        node_id: int,
        configs: Configs,
        log_manager: LogManager,
        replicas: ReplicaManager,
        late_loads: LazyLogs,
        topics: Topics,
        deletion: FileDeletion,
        runtime: Runtime,
        replication_quota: ReplicationQuota,
    ) -> None:
        """`replication_quota` is that of the partitions that this broker follows."""
        self.controller = controller
        self.quotas = entry.quotas
        self.security = entry.security.store
        self.read_configs = entry.read_configs
        self.assigned = LeaderAndIsrChanges(node_id, configs, log_manager, replicas, late_loads, deletion)
        self._node_id = node_id
        self._configs = configs
        self._schedule = runtime.schedule
        self._said: set[str] = set()
        self._peers = peers
        self._fence = ControlFence()
        buffers = ReceiveBuffers()
        config, client_id = configs.broker, f"broker-{node_id}"
        security = peers.make_security(lambda: configs.broker)
        self.channel = ControllerChannel(self._find_controller, config, buffers, client_id=client_id, security=security)
        self.transactions = TransactionPeers(peers.find_endpoint, config, buffers, client_id, security)
        self.producer_ids = ProducerIdBlocks(self.channel, node_id=node_id, broker_epoch=self._broker_epoch)
        self._isr_reporter = IsrReporter(
            self.channel, node_id=node_id, broker_epoch=self._broker_epoch, on_answer=replicas.on_isr_answer
        )
        self._topic_creation = AutoTopicCreation(self.channel, lambda: configs.broker)
        self._fetchers = ReplicaFetcherManager(
            FollowingBroker(
                node_id=node_id,
                replicas=replicas,
                log_manager=log_manager,
                find_endpoint=peers.find_endpoint,
                broker_epoch=self._broker_epoch,
                config=lambda: configs.broker,
                runtime=runtime,
                buffers=buffers,
                quota=replication_quota,
                security=security,
            )
        )
        replicas.on_proposal.append(self._isr_reporter.propose)
        topics.on_wanted.append(self._topic_creation.begin)
        controller.subscribe(self._on_metadata)
        verifier = self.transactions.verifier
        replicas.on_stopped.append(verifier.forget)
        replicas.on_role.append(lambda partition: verifier.forget(partition.log.partition))
        self.control = ControllerElector(
            entry, peers, node_id, controller, configs, runtime.schedule, security=security
        )
        """The broker's candidacy for controller."""

    def _broker_epoch(self) -> int:
        return self.controller.broker_epoch

    def _find_controller(self) -> tuple[int, Endpoint] | None:
        endpoint = self._peers.find_endpoint(self.controller.controller_id)
        return None if endpoint is None else (self.controller.controller_id, endpoint)

    # --- the controller's requests

    def find_error(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> ErrorCode | None:
        """Returns why a control request is refused, or None if it is the present controller's, which is noted then."""
        error = self._fence.find_error(controller_epoch, broker_epoch)
        if error is None and (controller_id, controller_epoch) != (
            self.controller.controller_id,
            self.controller.epoch,
        ):
            self.controller.note_controller(controller_id, controller_epoch)
            self.channel.look_again()
        return error

    def find_right_listener(self, session: Session) -> str | None:
        """Returns the listener that brokers must use, if a request between brokers came by another one, else None: by
        their own, or, as with Kafka, by any from a client whose name the authorizer knows. The right to the request is
        checked besides.
        """
        inner = self._configs.broker.inter_broker_listener
        is_known = session.authorizer is not None and session.principal != ANONYMOUS
        return None if is_known or session.listener in ("", inner) else inner

    def _on_metadata(self, delta: MetadataDelta) -> None:
        if delta.brokers.changed:
            self._fetchers.on_brokers_changed()
            self.transactions.on_brokers_changed()
            self.channel.look_again()

    # --- the broker's place in the cluster

    def note_unfit(self, reason: str, hint: str) -> None:
        """Logs that a controller can't be obeyed, unless a controller was obeyed before: then the request is not the
        controller's. The broker does not leave the cluster for it, because anybody may send such a request.
        """
        if self.controller.controller_id == NO_CONTROLLER and reason not in self._said:
            self._said.add(reason)
            _log.error("%s: this broker leads and follows nothing; %s", reason, hint)

    def on_registered(self, broker_epoch: int) -> None:
        """Called after each registration of the broker; from then on requests for earlier broker epochs are refused."""
        self._fence.broker_epoch = self.controller.broker_epoch = broker_epoch
        self.producer_ids.begin()
        self.channel.look_again()
        self._schedule(_SILENCE_MS, self._say_silence)

    def _say_silence(self) -> None:
        if self.controller.controller_id == NO_CONTROLLER:
            _log.warning(
                "no controller of the cluster has spoken to this broker in %d s: until one does, clients that ask for "
                "topics are disconnected. Is a broker of Kafka's running, can it reach this one's listener %s, and may "
                "it (plog.authorizer logs a denied ClusterAction)?",
                *(_SILENCE_MS // 1000, self._configs.broker.inter_broker_listener),
            )

    @property
    def max_lag(self) -> int:
        """How many committed records the most lagging of the replicas that follow here lacks."""
        return self._fetchers.max_lag

    @property
    def is_controller(self) -> bool:
        return self.control.term is not None

    async def hand_over(self) -> None:
        """Asks the controller to elect other leaders before the broker stops. Without any controller so far, this
        broker leads nothing.
        """
        if self.controller.controller_id == NO_CONTROLLER:
            return
        config = self._configs.broker
        await controlled_shutdown(self.channel, config, node_id=self._node_id, broker_epoch=self._broker_epoch)

    async def close(self) -> None:
        """Stops all fetchers and all requests to other brokers."""
        await self.control.close()
        await self._fetchers.close()
        self.channel.close()
        await self._isr_reporter.close()
        await self._topic_creation.close()
        await self.producer_ids.close()
        await self.transactions.close()


async def controlled_shutdown(
    channel: ControllerChannel, config: BrokerConfig, *, node_id: int, broker_epoch: Callable[[], int]
) -> bool:
    """Asks the controller, again if partitions remain or there is no answer, `controlled.shutdown.max.retries` times at
    most. Returns whether this broker leads no partition any longer; the log says why not. Does nothing if
    `controlled.shutdown.enable` is off.
    """
    if not config.controlled_shutdown_enable:
        return False
    for tries_left in reversed(range(config.controlled_shutdown_max_retries)):
        request = ControlledShutdownRequest(node_id, broker_epoch())
        try:
            answer = await channel.try_once(CONTROLLED_SHUTDOWN, _VERSION, request, lambda answer: answer.error_code)
            reason = _remaining(answer)
        except (ConnectionFailedError, KafkaError) as error:
            reason = str(error)
        if reason is None:
            return True
        ending = (
            "this broker asks again"
            if tries_left
            else "this broker stops all the same, and the controller elects other leaders when it notices"
        )
        _log.warning("the controller has not taken over all that broker %d leads: %s; %s", node_id, reason, ending)
        if tries_left:
            await channel.wait_for_change(config.controlled_shutdown_retry_backoff_ms)
    return False


def _remaining(answer: ControlledShutdownResponse) -> str | None:
    """Describes the partitions that this broker still leads; returns None if it leads no partition."""
    remaining = [str(TopicPartition(one.topic_name, one.partition_index)) for one in answer.remaining_partitions]
    if not remaining:
        return None
    more = len(remaining) - _MOST_NAMED
    return f"no other broker can lead {', '.join(remaining[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"
