"""A broker as a member of a cluster: it obeys the controller, leads some partitions and follows others.

The controller sends LeaderAndIsr for the partitions that this broker leads and follows; `ReplicaFetcherManager` fetches
those that it follows, `IsrReporter` proposes the ISRs of those that it leads. `join` is called when the broker listens,
`leave` before it stops listening: until the controller has moved leadership away, clients are served.

A broker that is about to stop asks the controller to move its leadership (KIP-3, ControlledShutdown).

The controller elects other leaders from the ISR, and removes this broker from it. The broker goes on serving until
LeaderAndIsr and StopReplica arrive, and stops then: clients lose no time.

Source: kafka.server.KafkaServer.controlledShutdown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
from core.broker.replication.leader_and_isr_changes import LeaderAndIsrChanges
from core.broker.replication.replica_fetcher import FollowingBroker, ReplicaFetcherManager
from core.broker.replication.replication_quota import ReplicationQuota
from core.broker.replication.zookeeper_registration import ZooKeeperRegistration
from core.broker.requests.runtime import Runtime
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.image.cluster_member_metadata import NO_CONTROLLER, ClusterMemberMetadata, ControlFence
from core.cluster.image.metadata_delta import MetadataDelta
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition
from core.log.log_manager import LogManager
from core.protocol.schema.controller_request import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

_log = logging.getLogger("plog.broker")

_VERSION = 3
_MOST_NAMED = 10
"""The most partitions in one message."""
_SILENCE_MS = 10_000


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
        self.channel = ControllerChannel(self._find_controller, config, buffers, client_id=client_id)
        self.transactions = TransactionPeers(peers.find_endpoint, config, buffers, client_id)
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
            )
        )
        replicas.on_proposal.append(self._isr_reporter.propose)
        topics.on_wanted.append(self._topic_creation.begin)
        controller.subscribe(self._on_metadata)
        verifier = self.transactions.verifier
        replicas.on_stopped.append(verifier.forget)
        replicas.on_role.append(lambda partition: verifier.forget(partition.log.partition))
        self.control = ControllerElector(entry, peers, node_id, controller, configs, runtime.schedule)
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
                "topics are disconnected. Is a broker of Kafka's running, and can it reach this one's listener %s?",
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
