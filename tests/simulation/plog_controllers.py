"""plog's own controllers in the simulation: each node stands for election at a model of ZooKeeper, which keeps what
they decide. They are killed, paused and expire with their nodes; one that does not know yet that its time is over goes
on, as a zombie, until a write is refused.

To the nodes and to the history it looks like `SimulatedController`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from core.cluster.controller.cluster_controller import ClusterController
from core.cluster.controller.controller_context import ControlledTopic, LiveBroker, unwritten_state
from core.cluster.controller.controller_decisions import ControllerDecisions
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.controller_writes import AssignmentWrite, Decision, StateWrite, Write
from core.cluster.controller.elections import ElectionPolicy
from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.leadership import IsrAnswer, IsrProposal
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    LeaderAndIsrResponse,
    StopReplicaPartitionError,
    StopReplicaResponse,
    UpdateMetadataBroker,
)
from core.protocol.schema.controller_request import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
)
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsResponse
from tests.simulation.virtual_time import Endpoint, Network, VirtualTime

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.simulated_node import SimulatedNode

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
_ID = bytes(16)
_NOTICED_WITHIN_MS = 300
_AGAIN_MS = 100
_LOOK_MS = 250
_REFUSED = "refused"


class PlogControllers(Endpoint):
    """ZooKeeper: one topic of one partition, sessions, and who is the controller."""

    checks_controller_epoch = True
    """Whether a write of an earlier controller is refused (KAFKA-6082)."""
    keeps_lives = True
    """Whether a state says which lives its controller knew, or only when it was written."""

    def __init__(self, time: VirtualTime, network: Network, random: Random, history: History) -> None:
        super().__init__(random)
        self.time = time
        self.network = network
        self.random = random
        self._history = history
        self._nodes: Sequence[SimulatedNode] = ()
        self.candidates: dict[int, Candidate] = {}
        self.sessions: dict[int, int] = {}
        self.holder: tuple[int, int] | None = None
        """The node that is the controller, and its session."""
        self.epoch = 0
        self._zxid = 100
        self.state: PartitionState | None = None
        self.assigned = unwritten_state(())
        self.assignment_version = 0
        self.min_isr = 2
        self._registered_ms: dict[int, int] = {}

    @property
    def nodes(self) -> Sequence[SimulatedNode]:
        return self._nodes

    @nodes.setter
    def nodes(self, nodes: Sequence[SimulatedNode]) -> None:
        self._nodes = nodes
        self.candidates = {node.node_id: Candidate(self, node) for node in nodes}

    # --- what the history asks

    @property
    def leader(self) -> int:
        return -1 if self.state is None else self.state.leader

    @property
    def leader_epoch(self) -> int:
        return -1 if self.state is None else self.state.leader_epoch

    @property
    def isr(self) -> frozenset[int]:
        return frozenset() if self.state is None else frozenset(self.state.isr)

    def knows(self, node: SimulatedNode) -> bool:
        """Says whether the present life of the node may be elected as it stands: it has lost nothing since who wrote
        the state knew it.
        """
        return node.is_up and self._has_lost_nothing(node)

    def _has_lost_nothing(self, node: SimulatedNode) -> bool:
        epoch = -1 if self.state is None else self.state.holders.get(node.node_id, -1)
        return node.first_session <= epoch or node.previous_session == epoch >= 0

    def _has_answered(self, node: SimulatedNode, holders: Mapping[int, int]) -> bool:
        """Says whether this life of the node is elected for what it has said, and lives."""
        is_meant = node.session == holders.get(node.node_id) and self.sessions.get(node.node_id) == node.session
        return node.is_up and is_meant and not self._has_lost_nothing(node)

    def _term_in_office(self) -> Term | None:
        """Finds the term of who is the controller, once it has taken office."""
        if self.holder is None:
            return None
        term = self.candidates[self.holder[0]].term
        return term if term is not None and term.epoch == self.epoch and term.has_begun else None

    # --- sessions

    def register(self, node_id: int) -> int:
        self._zxid += 1
        if self.holder is not None and self.holder[0] == node_id:
            self._free()
        self.sessions[node_id] = self._zxid
        self._registered_ms[node_id] = self.time.now_ms
        self._tell_of_brokers()
        return self._zxid

    def expire(self, node_id: int, session: int) -> None:
        if self.sessions.get(node_id) == session:
            self._zxid += 1
            del self.sessions[node_id]
            if self.holder == (node_id, session):
                self._free()
            self._tell_of_brokers()

    def _tell_of_brokers(self) -> None:
        for candidate in self.candidates.values():
            candidate.hear(candidate.on_brokers)

    def _free(self) -> None:
        self.holder = None
        for candidate in self.candidates.values():
            candidate.hear(candidate.stand)

    def begin(self) -> None:
        """The topic is made, with all brokers that there are."""
        self.assigned = unwritten_state(node.node_id for node in self.nodes)
        self._free()

    def change(self) -> None:
        """Somebody deletes /controller: its owner goes on until it hears of that."""
        if self.holder is not None:
            self._free()

    def look(self, node: SimulatedNode) -> None:
        """Called now and then by each node that lives: it may have missed that nobody is the controller."""
        candidate = self.candidates.get(node.node_id)
        if candidate is not None:
            candidate.look()

    # --- what candidates ask

    def elect(self, node_id: int, session: int, epoch: int) -> int | None:
        """Makes /controller, if there is none, and raises the epoch from what the candidate has read."""
        if self.holder is not None or self.sessions.get(node_id) != session or epoch != self.epoch:
            return None
        self._zxid += 1
        self.holder = node_id, session
        self.epoch += 1
        return self.epoch

    def read(self) -> tuple[dict[int, LiveBroker], ControlledTopic]:
        state = (
            self.assigned
            if self.state is None
            else replace(
                self.assigned,
                leader=self.state.leader,
                leader_epoch=self.state.leader_epoch,
                isr=self.state.isr,
                partition_epoch=self.state.partition_epoch,
                leader_recovery_state=self.state.leader_recovery_state,
                holders=self.state.holders,
            )
        )
        return self.read_brokers(), ControlledTopic(_ID, self.assignment_version, {0: state})

    def read_brokers(self) -> dict[int, LiveBroker]:
        return {
            one: LiveBroker(
                session,
                UpdateMetadataBroker(id=one),
                {},
                self.nodes[one].first_session if self.nodes[one].session == session else session,
                self.nodes[one].previous_session if self.nodes[one].session == session else -1,
                self._registered_ms[one],
            )
            for one, session in self.sessions.items()
        }

    def commit(self, epoch: int, writes: Sequence[Write]) -> list[int] | str:
        """Does all writes or none; gives their versions, or that they are refused."""
        if self.checks_controller_epoch and epoch != self.epoch:
            return _REFUSED
        for write in writes:
            now = self.assignment_version if isinstance(write, AssignmentWrite) else self._version
            wanted = write.version if isinstance(write, AssignmentWrite) else write.state.partition_epoch  # type: ignore[union-attr]
            if self.checks_controller_epoch and now != wanted:
                return _REFUSED
        return [self._write(write) for write in writes]

    @property
    def _version(self) -> int:
        return -1 if self.state is None else self.state.partition_epoch

    def _write(self, write: Write) -> int:
        self._zxid += 1
        if isinstance(write, AssignmentWrite):
            self.assigned = write.partitions[0]
            self.assignment_version += 1
            return self.assignment_version
        assert isinstance(write, StateWrite)
        written = dict.fromkeys(write.state.holders, self._zxid)
        holders = write.state.holders if self.keeps_lives else written
        is_said_by_leader = self.state is not None and write.state.leader_epoch == self.state.leader_epoch
        was_sure = is_said_by_leader or write.state.leader < 0 or self.state is None
        was_sure = was_sure or self.knows(self._nodes[write.state.leader])
        if not was_sure and self._has_answered(leader := self._nodes[write.state.leader], holders):
            self._history.ensure_synced(leader)
        self.state = replace(write.state, partition_epoch=self._version + 1, holders=holders)
        self._history.on_decision(self, min_isr=self.min_isr, was_sure=was_sure)  # type: ignore[arg-type]
        return self.state.partition_epoch

    def is_done(self, write: Write) -> bool:
        """Says whether a write was done whose answer was lost."""
        if isinstance(write, AssignmentWrite):
            return self.assignment_version > write.version
        assert isinstance(write, StateWrite)
        return self._version > write.state.partition_epoch

    # --- what nodes and the world ask of whoever is the controller

    def ask(
        self,
        node: SimulatedNode,
        broker_epoch: int,
        proposal: IsrProposal,
        on_answer: Callable[[IsrAnswer | None], None],
    ) -> None:
        """Has a node's proposal answered by the controller that it knows; None if no answer comes in time."""
        is_over = False

        def once(answer: IsrAnswer | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                on_answer(answer)

        if node.controller_id is None:
            self.time.call_later(_AGAIN_MS, lambda: node.receive(life, lambda: once(None)))
            life = node.life
            return
        target = self.nodes[node.controller_id]

        def respond(answer: IsrAnswer) -> None:
            self.network.call(target, node, lambda: once(answer), lambda _: None)

        def on_taken(taken: object) -> None:
            if taken is None:
                once(None)

        life = node.life
        self.time.call_later(2 * Network.TIMEOUT_MS, lambda: node.receive(life, lambda: once(None)))
        candidate = self.candidates[target.node_id]
        self.network.call(
            node, target, lambda: candidate.take_proposal(node.node_id, broker_epoch, proposal, respond), on_taken
        )

    def shut_down(self, node: SimulatedNode) -> None:
        """A node that is about to stop asks the controller to take over what it leads."""
        term = self._term_in_office()
        if term is not None:
            session = node.session
            self.network.call(node, term.node, lambda: term.shut_down(node.node_id, session), lambda _: None)

    def move_leader(self) -> None:
        """An operator puts another replica first, and has the preferred leader elected."""
        term = self._term_in_office()
        if term is None:
            return
        replicas = [node.node_id for node in self.nodes]
        self.random.shuffle(replicas)
        term.reassign(replicas)

    def reassign(self) -> None:
        """An operator wants other replicas; perhaps the way there is cut off by the next wish."""
        term = self._term_in_office()
        if term is not None:
            term.reassign(self.random.sample([node.node_id for node in self.nodes], self.random.choice((2, 3))))

    def heal(self) -> None:
        """At the end all nodes are to have a replica, whoever is the controller then."""
        term = self._term_in_office()
        is_moving = self.assigned.adding_replicas or self.assigned.removing_replicas
        if term is not None and (len(self.assigned.replicas) < len(self.nodes) or is_moving):
            term.reassign([node.node_id for node in self.nodes])


class Candidate:
    """A node that stands for election; what it knows is gone with the node's life."""

    def __init__(self, zookeeper: PlogControllers, node: SimulatedNode) -> None:
        self._zookeeper = zookeeper
        self._node = node
        self._life = node.life
        self._is_standing = False
        self._term: Term | None = None

    @property
    def term(self) -> Term | None:
        """The time in office of this life of the node, as it believes."""
        self._look_at_life()
        return self._term

    def _look_at_life(self) -> None:
        if self._life != self._node.life:
            self._life, self._term, self._is_standing = self._node.life, None, False

    def hear(self, work: Callable[[], None]) -> None:
        """Has it told of something by ZooKeeper, a little later."""
        zookeeper, life = self._zookeeper, self._node.life
        delay_ms = zookeeper.random.randint(0, _NOTICED_WITHIN_MS)
        zookeeper.time.call_later(delay_ms, lambda: self._node.receive(life, work))

    def look(self) -> None:
        term = self.term
        session = self._zookeeper.sessions.get(self._node.node_id)
        if term is not None and (term.session != session or self._zookeeper.holder != (self._node.node_id, session)):
            self._term = None  # it has heard of its end
        if self._zookeeper.holder is None:
            self.stand()
        elif self._zookeeper.holder == (self._node.node_id, session) and self._term is None and not self._is_standing:
            self._begin_term(self._zookeeper.epoch, self._node.session)  # it has won, and did not hear of that

    def _begin_term(self, epoch: int, session: int) -> None:
        self._term = Term(self._zookeeper, self._node, epoch, session, self._on_over)

    def on_brokers(self) -> None:
        if self.term is not None:
            self.term.refresh_brokers()

    def stand(self) -> None:
        """Tries to become the controller; a term that is over ends with that."""
        self._look_at_life()
        zookeeper, node = self._zookeeper, self._node
        if zookeeper.holder is None:
            self._term = None
        if self._is_standing or self._term is not None:
            return
        self._is_standing = True
        session, epoch = node.session, zookeeper.epoch

        def on_answer(won: int | None) -> None:
            self._look_at_life()
            self._is_standing = False
            if won is not None:
                self._begin_term(won, session)

        zookeeper.network.call(node, zookeeper, lambda: zookeeper.elect(node.node_id, session, epoch), on_answer)

    def _on_over(self, term: Term) -> None:
        if self.term is not term:
            return
        self._term = None
        zookeeper, holder = self._zookeeper, (self._node.node_id, term.session)

        def resign() -> None:
            if zookeeper.holder == holder:
                zookeeper.change()

        zookeeper.network.call(self._node, zookeeper, resign, lambda _: None)

    def take_proposal(
        self, node_id: int, broker_epoch: int, proposal: IsrProposal, respond: Callable[[IsrAnswer], None]
    ) -> bool:
        term = self.term
        if term is None:
            respond(IsrAnswer(ErrorCode.NOT_CONTROLLER))
        else:
            term.alter_partition(node_id, broker_epoch, proposal, respond)
        return True


class Term:
    """A time in office, with the real `ClusterController`: what `ActiveController` and its queues do in a broker."""

    def __init__(
        self,
        zookeeper: PlogControllers,
        node: SimulatedNode,
        epoch: int,
        session: int,
        on_over: Callable[[Term], None],
    ) -> None:
        self.epoch = epoch
        self.session = session
        self.has_begun = False
        self._zookeeper = zookeeper
        self.node = self._node = node
        self._on_over = on_over
        policy = ElectionPolicy(min_isr=lambda _topic: zookeeper.min_isr)
        self.office = ControllerDecisions(node.node_id, epoch, send=self._send, policy=policy)
        self._controller = ClusterController(self.office)
        self._events: deque[Callable[[], None]] = deque()
        self._is_busy = True
        self._is_over = False
        self._queues: dict[tuple[int, int], deque[ControllerRequest]] = {}
        self._read(zookeeper.read, self._begin)

    @property
    def _is_known(self) -> bool:
        """Whether the node still believes that this is its term."""
        return not self._is_over and self._zookeeper.candidates[self._node.node_id].term is self

    def _end(self) -> None:
        self._is_over = True
        self._on_over(self)

    # --- events, one after the other

    def _begin(self, found: tuple[dict[int, LiveBroker], ControlledTopic]) -> None:
        brokers, topic = found

        def done(_nothing: object) -> None:
            self.has_begun = True
            self._look_later()

        self._drive(self._controller.take_office(brokers, {TOPIC: topic}, ()), done)

    def _look_later(self) -> None:
        """Looks now and then whether a partition that nobody leads can be led."""
        life = self._node.life

        def look() -> None:
            if self._is_known:
                if self.office.recovery.waiting:
                    now_ms = self._zookeeper.time.now_ms
                    self._decide(lambda: self._controller.look_at_recovery(now_ms), lambda _: None)
                self._look_later()

        self._zookeeper.time.call_later(_LOOK_MS, lambda: self._node.receive(life, look))

    def _submit(self, event: Callable[[], None]) -> None:
        self._events.append(event)
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_busy and self._events and self._is_known:
            self._is_busy = True
            self._events.popleft()()

    def _decide(self, make: Callable[[], Decision[Any]], then: Callable[[Any], None]) -> None:
        self._submit(lambda: self._drive(make(), then))

    def _drive(self, decision: Decision[Any], then: Callable[[Any], None], versions: Any = None) -> None:
        try:
            writes = decision.send(versions)
        except StopIteration as end:
            self._controller.check_invariants()
            then(end.value)
            self._is_busy = False
            self._go_on()
            return
        if writes:
            self._commit(writes, lambda done: self._drive(decision, then, done))
        else:
            self._drive(decision, then, [])

    def _commit(self, writes: Sequence[Write], then: Callable[[list[int]], None]) -> None:
        zookeeper = self._zookeeper

        def on_answer(answer: list[int] | str | None) -> None:
            if not self._is_known:
                return
            if answer is None:
                self._read(lambda: zookeeper.is_done(writes[0]), on_known)
            elif isinstance(answer, str):
                self._end()
            else:
                then(answer)

        def on_known(is_done: bool) -> None:
            if is_done:
                then([_version_after(write) for write in writes])
            else:
                self._commit(writes, then)

        zookeeper.network.call(self._node, zookeeper, lambda: zookeeper.commit(self.epoch, writes), on_answer)

    def _read(self, read: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Reads as often as it takes."""

        def on_answer(answer: Any) -> None:
            if self._is_over:
                return
            if answer is None:
                self._read(read, then)
            else:
                then(answer)

        self._zookeeper.network.call(self._node, self._zookeeper, read, on_answer)

    def refresh_brokers(self) -> None:
        def event() -> None:
            self._read(self._zookeeper.read_brokers, take)

        def take(brokers: dict[int, LiveBroker]) -> None:
            self._drive(self._controller.on_brokers(brokers), lambda _: None)

        self._submit(event)

    def reassign(self, replicas: Sequence[int]) -> None:
        self._decide(lambda: self._controller.reassignments.alter({PARTITION: replicas}), lambda _: None)
        self._decide(lambda: self._controller.elect_leaders([PARTITION], is_unclean=False), lambda _: None)

    def shut_down(self, node_id: int, session: int) -> bool:
        self._decide(lambda: self._controller.shut_down(node_id, session), lambda _: None)
        return True

    def alter_partition(
        self, node_id: int, broker_epoch: int, proposal: IsrProposal, respond: Callable[[IsrAnswer], None]
    ) -> None:
        epochs = proposal.broker_epochs
        partition = AlteredPartition(
            partition_index=0,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=[BrokerState(one, epochs.get(one, -1)) for one in proposal.isr],
            leader_recovery_state=proposal.leader_recovery_state,
            partition_epoch=proposal.partition_epoch,
        )
        request = AlterPartitionRequest(node_id, broker_epoch, [AlteredTopic(topic_id=_ID, partitions=[partition])])
        self._decide(lambda: self._controller.alter_partitions(request), lambda answer: respond(_isr_answer(answer)))

    # --- control requests

    def _send(self, request: ControllerRequest) -> None:
        if request.api is LIST_OFFSETS:
            self._question(request)
            return
        queue = self._queues.setdefault((request.broker_id, request.broker_epoch), deque())
        queue.append(request)
        if len(queue) == 1:
            self._send_next(queue)

    def _question(self, request: ControllerRequest) -> None:
        node = self._zookeeper.nodes[request.broker_id]

        def on_answer(answer: ListOffsetsResponse | None) -> None:
            told = ListOffsetsResponse() if answer is None else answer
            self._decide(lambda: self._controller.on_log_ends(request, told), lambda _: None)

        self._zookeeper.network.call(self._node, node, lambda: node.on_question(request.request), on_answer)

    def _send_next(self, queue: deque[ControllerRequest]) -> None:
        if not queue or not self._is_known:
            return
        request = queue[0]
        broker = self.office.context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            queue.clear()
            return
        node = self._zookeeper.nodes[request.broker_id]

        def on_answer(answer: ErrorCode | None) -> None:
            if answer is None:
                time, life = self._zookeeper.time, self._node.life
                time.call_later(_AGAIN_MS, lambda: self._node.receive(life, lambda: self._send_next(queue)))
                return
            queue.popleft()
            self._take_answer(request, answer)
            self._send_next(queue)

        self._zookeeper.network.call(self._node, node, lambda: node.on_control_request(request), on_answer)

    def _take_answer(self, request: ControllerRequest, answer: ErrorCode) -> None:
        broker_id, epoch = request.broker_id, request.broker_epoch
        if request.api is LEADER_AND_ISR:
            taken = LeaderAndIsrResponse(answer)
            self._decide(
                lambda: self._controller.on_roles_taken(broker_id, epoch, request.request, taken), lambda _: None
            )
        elif request.api is STOP_REPLICA:
            errors = [StopReplicaPartitionError(TOPIC, 0, ErrorCode.NONE)]
            stopped = StopReplicaResponse(partition_errors=errors)
            self._decide(
                lambda: self._controller.on_replicas_stopped(broker_id, epoch, request.request, stopped), lambda _: None
            )


def _version_after(write: Write) -> int:
    before = write.version if isinstance(write, AssignmentWrite) else write.state.partition_epoch  # type: ignore[union-attr]
    return before + 1


def _isr_answer(answer: AlterPartitionResponse | Any) -> IsrAnswer:
    if answer.error_code:
        return IsrAnswer(ErrorCode.of(answer.error_code))
    (result,) = answer.topics[0].partitions
    return IsrAnswer(ErrorCode.of(result.error_code), tuple(result.isr), result.leader_epoch, result.partition_epoch)
