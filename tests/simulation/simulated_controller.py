"""The controller of a cluster with ZooKeeper, as its brokers meet it, with one partition: a model of what Apache Kafka
3.9 was seen to do, not code of plog's.

What it has decided is kept by ZooKeeper: it outlasts every controller. What is in it changes by one step at a time, and
each broker is told by requests that are sent one after the other until they are answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.leadership import IsrAnswer, IsrProposal
from core.common.error_code import ErrorCode
from tests.simulation.virtual_time import Endpoint, Network, VirtualTime

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.simulated_node import SimulatedNode

_NOTICED_WITHIN_MS = 300
_AGAIN_MS = 100
NOBODY = -1


class SimulatedController(Endpoint):
    """Always there: another controller that takes office is the same object with another epoch."""

    checks_partition_epoch = True
    """KIP-497: else an earlier leader's in-sync replicas are written down."""

    checks_broker_epochs = True
    """KIP-903: else a life that lacks records may be let in, by what an earlier life of it had."""

    def __init__(self, time: VirtualTime, network: Network, random: Random, history: History) -> None:
        super().__init__(random)
        self._time = time
        self._network = network
        self._random = random
        self._history = history
        self.nodes: Sequence[SimulatedNode] = ()
        self.epoch = 1
        self.sessions: dict[int, int] = {}
        """The znodes of the brokers that live, with their czxids: the brokers' epochs."""
        self._known: dict[int, int] = {}
        self._zxid = 100
        self._unsent: dict[int, deque[tuple[int, int, PartitionState, frozenset[int]]]] = {}
        self._is_sending: set[int] = set()
        self.leader, self.leader_epoch, self.partition_epoch = NOBODY, 0, 0
        self.isr: frozenset[int] = frozenset()

    # --- ZooKeeper's

    def register(self, node_id: int) -> int:
        """A broker makes its znode, again if it had one; gives the broker's epoch."""
        self._zxid += 1
        self.sessions[node_id] = self._zxid
        self._notice_soon()
        return self._zxid

    def expire(self, node_id: int, session: int) -> None:
        """The session of a broker ends, unless it has another one by now."""
        if self.sessions.get(node_id) == session:
            del self.sessions[node_id]
            self._notice_soon()

    def _notice_soon(self) -> None:
        self._time.call_later(self._random.randint(0, _NOTICED_WITHIN_MS), self._notice)

    def _notice(self) -> None:
        """Kafka's BrokerChange: a broker whose epoch is another one died, and was born again.

        Of several that died at once, those that lost something leave the replicas in sync first. Kafka takes them as
        they come, and may be left with one of those: the last replica standing (KAFKA-14139), which is not simulated.
        """
        before, now = self._known, dict(self.sessions)
        gone = [node_id for node_id, epoch in before.items() if now.get(node_id) != epoch]
        born = [node_id for node_id, epoch in now.items() if before.get(node_id) != epoch]
        self._known = {node_id: epoch for node_id, epoch in now.items() if node_id not in born}
        for node_id in sorted(gone, key=lambda one: not self.nodes[one].has_lost):
            self._on_failure(node_id)
        self._known = now
        if self.leader == NOBODY and born:
            self._elect()
        if gone or born:
            self._tell_all()

    def knows(self, node: SimulatedNode) -> bool:
        """Says whether the controller knows the present life of the node."""
        return self._known.get(node.node_id) == node.session

    # --- decisions

    @property
    def _live_isr(self) -> list[int]:
        return sorted(self.isr & self._known.keys())

    def begin(self) -> None:
        """The partition is made, with all brokers that there are."""
        self._known = dict(self.sessions)
        self.isr = frozenset(self._known)
        self.leader = min(self.isr)
        self._tell_all()

    def _decide(self, leader: int, isr: frozenset[int]) -> None:
        self.leader, self.isr = leader, isr
        self.leader_epoch += 1
        self.partition_epoch += 1

    def _on_failure(self, node_id: int) -> None:
        """It leads no more, and leaves the replicas in sync if it is not the last of them."""
        if node_id == self.leader:
            self._decide(NOBODY, self.isr)
            self._elect()
        if node_id in self.isr and len(self.isr) > 1:
            self._decide(self.leader, self.isr - {node_id})

    def _elect(self) -> None:
        candidates = self._live_isr
        if candidates:
            self._decide(self._random.choice(candidates), frozenset(candidates))

    def move_leader(self) -> None:
        """A preferred election, or a reassignment: another one of the replicas in sync leads."""
        others = [one for one in self._live_isr if one != self.leader]
        if others and self.leader != NOBODY:
            self._decide(self._random.choice(others), self.isr)
            self._tell_all()

    def change(self) -> None:
        """Another controller: it tells everybody everything. What the one before has sent is still under way."""
        self.epoch += 1
        self._tell_all()

    # --- requests

    def _tell_all(self) -> None:
        self._history.on_decision(self)
        for node_id in self._known:
            self._tell(node_id)

    def _tell(self, node_id: int) -> None:
        state = PartitionState(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=tuple(sorted(self.isr)),
            replicas=tuple(node.node_id for node in self.nodes),
            partition_epoch=self.partition_epoch,
        )
        told = (self.epoch, self._known[node_id], state, frozenset(self._known))
        self._unsent.setdefault(node_id, deque()).append(told)
        self._send_next(node_id)

    def _send_next(self, node_id: int) -> None:
        """One at a time, and again until it is answered or the broker's life is over (RequestSendThread)."""
        queue = self._unsent[node_id]
        if node_id in self._is_sending or not queue:
            return
        epoch, broker_epoch, state, live = queue[0]
        if self._known.get(node_id) != broker_epoch:
            queue.popleft()
            self._send_next(node_id)
            return
        self._is_sending.add(node_id)
        node = self.nodes[node_id]

        def on_answer(answer: object) -> None:
            self._is_sending.discard(node_id)
            if answer is not None and queue:
                queue.popleft()
                self._send_next(node_id)
            else:
                self._time.call_later(_AGAIN_MS, lambda: self._send_next(node_id))

        handle = lambda: node.on_leader_and_isr(epoch, broker_epoch, state, live)  # noqa: E731
        self._network.call(self, node, handle, on_answer)

    def look(self, node: SimulatedNode) -> None:
        """Called now and then by each node that lives; the controller is another object than they are."""

    def ask(
        self,
        node: SimulatedNode,
        broker_epoch: int,
        proposal: IsrProposal,
        on_answer: Callable[[IsrAnswer | None], None],
    ) -> None:
        """Has a node's proposal answered; None if no answer comes."""
        answer = lambda: self.alter_partition(node.node_id, broker_epoch, proposal)  # noqa: E731
        self._network.call(node, self, answer, on_answer)

    def reassign(self) -> None:
        """Moves no replicas: this controller has one assignment."""

    def heal(self) -> None:
        """Has nothing to put in order."""

    def alter_partition(self, node_id: int, broker_epoch: int, proposal: IsrProposal) -> IsrAnswer:
        """Answers as KafkaController.alterPartition of 3.9 does, and refuses earlier lives as KIP-903 asks for."""
        if self._known.get(node_id) != broker_epoch:
            return IsrAnswer(ErrorCode.STALE_BROKER_EPOCH)
        refusal = self._find_refusal(node_id, proposal)
        if refusal is not None:
            return IsrAnswer(refusal)
        if frozenset(proposal.isr) != self.isr:
            if not self._are_eligible(proposal.broker_epochs):
                return IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
            self.isr = frozenset(proposal.isr)
            self.partition_epoch += 1
            self._history.on_decision(self)
        return IsrAnswer(ErrorCode.NONE, tuple(self.isr), self.leader_epoch, self.partition_epoch)

    def _find_refusal(self, node_id: int, proposal: IsrProposal) -> ErrorCode | None:
        if not self.checks_partition_epoch:
            return None if node_id == self.leader else ErrorCode.INVALID_REQUEST
        if proposal.leader_epoch != self.leader_epoch:
            is_old = proposal.leader_epoch < self.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NOT_CONTROLLER
        if frozenset(proposal.isr) == self.isr:
            return None  # it was done already, and the answer lost
        if proposal.partition_epoch != self.partition_epoch:
            is_old = proposal.partition_epoch < self.partition_epoch
            return ErrorCode.INVALID_UPDATE_VERSION if is_old else ErrorCode.NOT_CONTROLLER
        return None

    def _are_eligible(self, broker_epochs: Mapping[int, int]) -> bool:
        """Says whether all of them live (KIP-841), in the lives that were meant."""
        return all(
            node_id in self._known and (not self.checks_broker_epochs or epoch in (-1, self._known[node_id]))
            for node_id, epoch in broker_epochs.items()
        )
