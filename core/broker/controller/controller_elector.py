"""A broker's candidacy for controller, and its work for other brokers during its terms."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from core.broker.config.effective_configs import Configs
from core.broker.controller.active_controller import ActiveController
from core.broker.controller.controller_sender import ControllerSender
from core.broker.replication.cluster_peers import ClusterPeers
from core.broker.replication.peer_connection import PeerLink, PeerPool
from core.broker.replication.zookeeper_registration import MOMENT_MS, ZooKeeperRegistration
from core.broker.serving.loop_tasks import LoopTasks
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.controller.controller_context import LiveBroker
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.elections import ElectionPolicy
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.metadata_delta import MetadataDelta
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending, Schedule
from core.zookeeper.controller_election import ControllerElection, WonElection
from core.zookeeper.zookeeper_session import SessionFigures

if TYPE_CHECKING:
    from core.broker.replication.peer_security import PeerSecurity

_log = logging.getLogger("plog.controller")

_RESIGN_SECONDS = 2.0
"""How long a stopping broker waits for ZooKeeper, which may be gone, to accept its resignation."""

_AGAIN_SECONDS = 1.0


class ControllerElector:
    """Owned by the broker's loop."""

    def __init__(
        self,
        entry: ZooKeeperRegistration,
        peers: ClusterPeers,
        node_id: int,
        controller: BrokerMetadata,
        configs: Configs,
        schedule: Schedule,
        *,
        security: PeerSecurity | None = None,
    ) -> None:
        self._security = security
        self._entry = entry
        self._peers = peers
        self._node_id = node_id
        self._configs = configs
        self._schedule = schedule
        self._buffers = ReceiveBuffers()
        self._election: ControllerElection | None = None
        self._term: ActiveController | None = None
        self._waits: dict[Pending[bool], Callable[[], bool]] = {}
        self._tasks = LoopTasks()
        self._is_closed = False
        self.pool = PeerPool(
            peers.find_endpoint,
            configs.broker,
            self._buffers,
            client_id=f"controller-{node_id}-questions",
            security=security,
        )
        """Connections to other brokers, for questions before a decision."""
        controller.subscribe(self._on_metadata)

    @property
    def term(self) -> ActiveController | None:
        """The present term, or None if this broker is not the controller."""
        return None if self._term is None or self._term.is_over else self._term

    @property
    def zookeeper(self) -> SessionFigures:
        """The state of the broker's session with ZooKeeper."""
        return self._entry.session_figures

    @property
    def can_decide(self) -> bool:
        """Whether the broker is the controller, and ZooKeeper is reachable: without it nothing can be written."""
        return self.term is not None and self.zookeeper.silence_ms <= MOMENT_MS

    def require_term(self) -> ActiveController:
        """Returns the term. Raises KafkaError(NOT_CONTROLLER) if this broker is not the controller."""
        if self.term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self.term

    # --- the candidacy

    async def start(self) -> None:
        """Makes the registered broker a candidate from now on, unless `plog.controller.enable` is off."""
        if not self._configs.broker.plog_controller_enable:
            return
        self._election = self._entry.make_election(self._node_id, on_elected=self._on_elected, on_lost=self._on_lost)
        await self._election.start()

    def _on_elected(self, won: WonElection) -> None:
        if self._is_closed:
            return
        _log.info("this broker is the controller, in epoch %d", won.epoch)
        self._term = self._entry.begin_term(
            won,
            node_id=self._node_id,
            make_queue=self._make_queue,
            ask=self.pool.ask,
            policy=ElectionPolicy(
                may_be_unclean=lambda topic: self._configs.of_topic(topic).unclean_leader_election_enable,
                min_isr=lambda topic: self._configs.of_topic(topic).min_insync_replicas,
                recovery_wait_ms=lambda: self._configs.broker.plog_leader_recovery_wait_ms,
            ),
            on_over=self._on_over,
        )
        self._tasks.begin(self._balance(self._term))

    def _on_lost(self) -> None:
        if self._term is not None:
            _log.info("this broker is no longer the controller")
            self._term.close()
            self._term = None

    def _on_over(self) -> None:
        """Called when the term can't go on: another broker may try, or this one again."""
        if self._term is not None:
            self._tasks.begin(self._resign(self._term))

    async def _resign(self, term: ActiveController) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)  # the cause may be gone at the next try
        if self._election is not None and self._term is term:  # else it was lost meanwhile, and perhaps won again
            await self._election.resign()

    async def close(self) -> None:
        """Withdraws the candidacy, and resigns."""
        self._is_closed = True
        if self._election is not None:
            self._election.stop()
        self._on_lost()
        if self._election is not None:
            with contextlib.suppress(TimeoutError):  # without ZooKeeper the session's end does it
                await asyncio.wait_for(self._election.resign(), _RESIGN_SECONDS)
        await self._tasks.close()
        self.pool.close()

    # --- services for a term

    def _make_queue(
        self,
        broker_id: int,
        broker: LiveBroker,
        on_answer: Callable[[ControllerRequest, Any], None],
        on_mistake: Callable[[], None],
    ) -> ControllerSender:
        client_id = f"controller-{self._node_id}"
        link = PeerLink(self._buffers, self._configs.broker, client_id=client_id, security=self._security)
        return ControllerSender(self._peers.endpoint_of(broker_id, broker.registration), link, on_answer, on_mistake)

    async def _balance(self, term: ActiveController) -> None:
        while self._term is term:
            config = self._configs.broker
            await asyncio.sleep(config.leader_imbalance_check_interval_seconds)
            if self.term is not term or not config.auto_leader_rebalance_enable:
                continue
            most = config.leader_imbalance_per_broker_percentage
            term.ask(lambda most=most: term.controller.balance_leaders(most))  # type: ignore[misc]

    # --- questions before a decision

    def when_done(self, question: Coroutine[Any, Any, None]) -> Pending[KafkaError | None]:
        """Runs a question beside all other work; returns the KafkaError that it raises, or None."""
        pending = Pending[KafkaError | None]()

        async def ask() -> None:
            error: KafkaError | None = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the brokers could not be asked")
            try:
                await question
                error = None
            except KafkaError as raised:
                error = raised
            finally:  # also if this broker stops
                pending.complete_with(error)

        self._tasks.begin(ask())
        return pending

    # --- waiting until brokers know

    def when_known(self, is_so: Callable[[], bool], timeout_ms: int) -> Pending[bool] | bool:
        """Returns True as soon as this broker's own metadata, which arrive the same way as other brokers', meet the
        condition; False if they do not in time.
        """
        if is_so():
            return True
        if timeout_ms <= 0:
            return False
        wait = Pending(is_so, forget=lambda wait: self._waits.pop(wait, None))
        wait.limit(self._schedule, timeout_ms)
        self._waits[wait] = is_so
        return wait

    def _on_metadata(self, delta: MetadataDelta) -> None:
        if delta.brokers.changed:
            self.pool.on_brokers_changed()
        if delta.configs.changed and self.term is not None:
            self.term.ask(self.term.controller.settle_holders)
        for wait, is_so in list(self._waits.items()):
            if is_so():
                wait.complete_with(True)
