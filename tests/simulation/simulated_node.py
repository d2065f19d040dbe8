"""A broker with one replica: the real roles over a simulated log, and the wiring that a broker has round them."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.image.cluster_member_metadata import ControlFence
from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.divergence import find_divergence, truncation_offset
from core.cluster.partition.leadership import IsrAnswer, IsrProposal
from core.cluster.partition.partition import REPLICATED, Partition, Role
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.files.log_config import LogConfig
from core.protocol.schema.control_request import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from core.protocol.schema.fetch import EpochEndOffset
from core.protocol.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.simulation.history import History
from tests.simulation.plog_controllers import PlogControllers
from tests.simulation.simulated_controller import SimulatedController
from tests.simulation.simulated_log import Batch, Entry, SimulatedLog
from tests.simulation.virtual_time import Endpoint, Network, VirtualTime

_SOME = 3
"""Records that one fetch brings at most."""

_LOOK_MS = 250
_RETRY_MS = 50


class Fetch(NamedTuple):
    replica: int
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int


class Fetched(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    entries: tuple[Entry, ...] = ()
    high_watermark: int = 0
    diverging: EpochEndOffset | None = None


class Acknowledgement:
    """A producer's wait for all in-sync replicas, as `CommitWait` does it."""

    def __init__(self, node: SimulatedNode, partition: Partition, offset: int, terms: int) -> None:
        self._node = node
        self._partition = partition
        self._offset = offset
        self._entry = node.log.entries[offset]
        self._terms = terms

    def maybe_complete(self) -> None:
        partition = self._partition
        if not partition.is_leading or not partition.is_served:
            partition.commit_waits.pop(self, None)  # the producer learns that nobody knows
        elif partition.is_committed(self._offset + 1, self._terms):
            partition.commit_waits.pop(self, None)
            if not (self._terms & REPLICATED and partition.is_short_of_replicas):
                self._node.acknowledge(self._offset, self._entry)


Controllers = SimulatedController | PlogControllers


class SimulatedNode(Endpoint):
    """As of `Peers` for its partition."""

    max_lag_ms = 1000

    fences_fetches = True
    """A fetch of another leader epoch is refused (KIP-320)."""

    takes_late_answers = False
    """Whether an answer counts that was asked for in another leader epoch, or that nobody waits for any more: the log
    may end by now where it ended then, and have other records.
    """

    looks_for_divergence = True
    """Whether it compares epochs with a follower before it gives records (KIP-595)."""

    names_last_records_epoch = False
    """What a follower fetched last is said by its leader epochs, of which the last may have no record: it led in that
    one, and nothing was written.
    """

    truncates_to_high_watermark = False
    """What Kafka did before KIP-101."""

    flushes_before_it_answers = True
    """Whether what it says of its log's end is on the disk."""

    def __init__(
        self,
        node_id: int,
        time: VirtualTime,
        network: Network,
        random: Random,
        controller: Controllers,
        history: History,
        config: LogConfig,
    ) -> None:
        super().__init__(random)
        self.node_id = node_id
        self.log = SimulatedLog(config)
        self.partition: Partition | None = None
        self._time = time
        self._network = network
        self._random = random
        self._controller = controller
        self._history = history
        self.has_lost = False
        """Whether its last start was one after a power cut."""
        self.previous_session = -1
        """The session in which it stopped, if it stopped cleanly before this life."""
        self.last_proposal: IsrProposal | None = None
        """What it had proposed, and was not answered, when it was killed."""
        self._clock_ahead_ms = 0
        self._begin_life()

    def _begin_life(self, previous_session: int = -1) -> None:
        self.partition = None
        self._live: frozenset[int] = frozenset()
        self.controller_id: int | None = None
        """The controller that has spoken to this life last."""
        self._fence = ControlFence()
        self._fetching: object = None
        self._seen = 0
        self.proposal: IsrProposal | None = None
        self.session = self._fence.broker_epoch = self._controller.register(self.node_id)
        self.first_session = self.session
        self.previous_session = previous_session
        self._look_later(self.life)

    # --- its life

    def kill(self) -> None:
        self.is_up = False
        self._end_life()
        self.partition = None
        self.last_proposal = self.proposal

    def stop(self) -> None:
        """Stops cleanly: everything is on the disk, and the session is closed."""
        self.log.flush()
        self.log.checkpoint()
        self.kill()
        self._controller.expire(self.node_id, self.session)

    def start(self, *, loses_unsynced: bool, was_stopped: bool = False, has_new_disk: bool = False) -> None:
        if has_new_disk:
            self.log = SimulatedLog(self.log.config)
        self.log.recover(self._random, loses_unsynced=loses_unsynced)
        self.has_lost = loses_unsynced
        if loses_unsynced or has_new_disk:
            self._history.on_loss()
        self.is_up = True
        self._begin_life(self.session if was_stopped else -1)

    def jump_clock(self, ms: int) -> None:
        self._clock_ahead_ms += ms

    @property
    def now_ms(self) -> int:
        return self._time.now_ms + self._clock_ahead_ms

    # --- what the controller says

    def on_leader_and_isr(
        self, controller_epoch: int, broker_epoch: int, state: PartitionState, live: frozenset[int]
    ) -> ErrorCode:
        error = self._fence.find_error(controller_epoch, broker_epoch)
        if error is not None:
            return error
        self._live = live
        if self.partition is None:
            self.partition = Partition(
                self.log,
                bytes(16),
                state,
                node_id=self.node_id,
                now_ms=self.now_ms,
                peers=self,  # type: ignore[arg-type]
            )
            self._seen = 0
        else:
            epoch = self.partition.leader_epoch
            self.partition.take_up(state, self.now_ms)
            if self.partition.leader_epoch != epoch:
                self._fetching = None  # another leader is asked on another connection
        if self.truncates_to_high_watermark and self.partition.role is Role.FOLLOWING:
            self.log.truncate_to(self.log.high_watermark)
        self.after_event()
        return ErrorCode.NONE

    def on_control_request(self, request: ControllerRequest) -> ErrorCode:
        """Obeys a request as plog's controller sends it."""
        said = request.request
        error = self._fence.find_error(said.controller_epoch, said.broker_epoch)
        if error is not None:
            return error
        self.controller_id = said.controller_id
        if request.api is UPDATE_METADATA:
            self._live = frozenset(broker.id for broker in said.live_brokers)
        elif request.api is LEADER_AND_ISR:
            (told,) = said.topic_states[0].partition_states
            if self.partition is None or told.leader_epoch > self.partition.leader_epoch:
                state = PartitionState.of_registration(told)
                self.on_leader_and_isr(said.controller_epoch, said.broker_epoch, state, self._live)
        elif request.api is STOP_REPLICA:
            (stopped,) = said.topic_states[0].partition_states
            if self.partition is not None and stopped.leader_epoch >= self.partition.leader_epoch:
                self._stop_replica(deletes=stopped.delete_partition)
        return ErrorCode.NONE

    def _stop_replica(self, *, deletes: bool) -> None:
        self.partition = None
        self._fetching = None
        self._seen = 0
        if deletes:
            self.log = SimulatedLog(self.log.config)

    def find_broker_epoch(self, node_id: int) -> int | None:
        """See `Peers`: UpdateMetadata of ZooKeeper clusters names no epochs."""
        return -1 if node_id in self._live else None

    # --- it follows

    def fetch(self) -> None:
        partition = self.partition
        if partition is None or partition.role is not Role.FOLLOWING or self._fetching is not None:
            return
        leader = self._controller.nodes[partition.state.leader]
        log = self.log
        last_epoch = log.last_epoch if self.names_last_records_epoch else log.leader_epochs.latest_epoch
        request = Fetch(self.node_id, self._fence.broker_epoch, partition.leader_epoch, log.log_end_offset, last_epoch)
        token = self._fetching = object()

        def on_answer(answer: Fetched | None) -> None:
            is_awaited = self._fetching is token  # of a fetch that was given up the connection is closed
            if is_awaited:
                self._fetching = None
            if answer is not None and (is_awaited or self.takes_late_answers):
                self._take(request, answer)

        self._network.call(self, leader, lambda: leader.on_fetch(request), on_answer)

    def _take(self, request: Fetch, answer: Fetched) -> None:
        partition, log = self.partition, self.log
        if partition is None or partition.role is not Role.FOLLOWING or log.log_end_offset != request.offset:
            return
        if partition.leader_epoch != request.leader_epoch and not self.takes_late_answers:
            return
        if answer.diverging is not None:
            epochs, log_end = log.leader_epochs, log.log_end_offset
            log.truncate_to(truncation_offset(epochs, log_end=log_end, diverging=answer.diverging))
        else:
            log.append_as_follower(list(answer.entries))
            log.update_high_watermark(answer.high_watermark)
        self.after_event()

    # --- it leads

    def on_fetch(self, request: Fetch) -> Fetched:
        partition, log = self.partition, self.log
        if partition is None:
            return Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            partition.ensure_leading()
            if self.fences_fetches:
                partition.ensure_leader_epoch(request.leader_epoch)
            if self.looks_for_divergence:
                diverging = find_divergence(
                    log.leader_epochs,
                    log_start=0,
                    log_end=log.log_end_offset,
                    last_fetched_epoch=request.last_epoch,
                    fetch_offset=request.offset,
                )
                if diverging is not None:
                    return Fetched(diverging=diverging)
            proposal = partition.note_fetch(
                request.replica,
                request.offset,
                log_start_offset=0,
                broker_epoch=request.broker_epoch,
                now_ms=self.now_ms,
            )
        except KafkaError as error:
            return Fetched(error.code)
        self._propose(proposal)
        self.after_event()
        count = self._random.randint(1, _SOME)
        entries = tuple(log.entries[request.offset : request.offset + count])
        return Fetched(entries=entries, high_watermark=log.high_watermark)

    def on_question(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Says where its log ends, as the handler of ListOffsets does."""
        (asked,) = request.topics[0].partitions
        partition, log = self.partition, self.log
        response = ListOffsetsPartitionResponse(0)
        if partition is None or partition.leader_epoch != asked.current_leader_epoch:
            response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif self.flushes_before_it_answers and log.recovery_point < log.log_end_offset:
            response.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
            life = self.life
            self._time.call_later(self._random.randint(1, 300), lambda: self.receive(life, self.flush))
        else:
            response.offset, response.leader_epoch = log.log_end_offset, log.last_epoch
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(request.topics[0].name, [response])])

    def produce(self, value: int) -> None:
        partition = self.partition
        if partition is None or not self.is_up or self.is_paused:
            return
        try:
            result = partition.append(Batch(value), required_acks=-1)  # type: ignore[arg-type]
        except KafkaError:
            return  # the producer asks elsewhere
        terms = partition.must_wait_for(result.last_offset + 1)
        wait = Acknowledgement(self, partition, result.base_offset, terms)
        partition.commit_waits[wait] = None
        wait.maybe_complete()
        self.after_event()

    def acknowledge(self, offset: int, entry: Entry) -> None:
        self._history.acknowledge(offset, entry, self._controller)

    def flush(self) -> None:
        self.log.flush()
        if self.partition is not None:
            self.partition.on_flushed()
        self.after_event()

    def _look_later(self, life: int) -> None:
        self._time.call_later(_LOOK_MS, lambda: self.receive(life, lambda: self._look(life)))

    def _look(self, life: int) -> None:
        """Looks who is late, and whether its own session is over: then it registers again, and leads until it is told
        that it does not.
        """
        self._look_later(life)
        self._controller.look(self)
        if self._controller.sessions.get(self.node_id) != self.session:
            self.session = self._fence.broker_epoch = self._controller.register(self.node_id)
        if self.partition is not None:
            self._propose(self.partition.look_at_followers(self.now_ms))
            self.after_event()

    def _propose(self, proposal: IsrProposal | None) -> None:
        if proposal is None or self.proposal is proposal:
            return
        self.proposal = proposal
        broker_epoch = self._fence.broker_epoch
        partition = self.partition

        def on_answer(answer: IsrAnswer | None) -> None:
            self.proposal = None
            if partition is None or partition is not self.partition:
                return
            answer = IsrAnswer(ErrorCode.NETWORK_EXCEPTION) if answer is None else answer
            if partition.on_isr_answer(proposal, answer, self.now_ms):
                life = self.life
                self._time.call_later(_RETRY_MS, lambda: self.receive(life, lambda: self._propose(proposal)))
            self.after_event()

        controller = self._controller
        controller.ask(self, broker_epoch, proposal, on_answer)

    # --- what must hold

    def after_event(self) -> None:
        """Has whoever reads see what is committed now, and asserts what must always hold."""
        partition = self.partition
        if partition is None:
            return
        partition.check_invariants()
        if partition.is_leading:
            self._history.see(self.log, min(self._seen, self.log.high_watermark))
            self._seen = self.log.high_watermark
        if partition._leadership is not None:
            self._history.ensure_superset(self._controller, self.node_id, partition._leadership.in_sync)
