"""What all decisions of a controller share: what it knows, what it has to tell, and how a partition's state is changed.

A state is written down first, then known, then told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from core.cluster.control_requests import ControlRequest, ControlRequests
from core.cluster.controller_context import ControllerContext
from core.cluster.controller_writes import GIVE_WAY, Decision, StateWrite, slices
from core.cluster.elections import Election, elect_offline
from core.cluster.metadata_image import NO_LEADER
from core.cluster.partition_state import LeaderRecoveryState, PartitionState
from core.common.topic_partition import TopicPartition

Send = Callable[[ControlRequest], None]


class ControllerOffice:
    """Owned by the controller's task; one for each time that a broker is the controller."""

    def __init__(
        self, node_id: int, epoch: int, *, send: Send, may_be_unclean: Callable[[str], bool] = lambda _topic: False
    ) -> None:
        """`send` takes a request to a broker, which is sent after those before, until it is answered or that life of
        the broker is over. `may_be_unclean` says of a topic whether unclean.leader.election.enable is on.
        """
        self.node_id = node_id
        self.epoch = epoch
        self.context = ControllerContext()
        self.requests = ControlRequests(self.context, node_id, epoch)
        self.may_be_unclean = may_be_unclean
        self._send = send

    def send_all(self) -> Decision[None]:
        """Sends what was gathered."""
        for request in self.requests.take():
            self._send(request)
            if len(request.request.topic_states):
                yield GIVE_WAY

    # --- states of partitions

    def change(self, states: Mapping[TopicPartition, PartitionState]) -> Decision[None]:
        """Writes the states down and notes them, each with the version that it has then."""
        yield GIVE_WAY
        context = self.context
        for some in slices(states.items()):
            versions = yield [StateWrite(one, state, context.epochs_of(state.isr)) for one, state in some]
            for (partition, state), version in zip(some, versions, strict=True):
                if partition.topic in context.topics:
                    context.put(partition, replace(state, partition_epoch=version))

    def lead(self, states: Mapping[TopicPartition, PartitionState], *, is_new: bool = False) -> Decision[None]:
        """Changes the states, and gathers what replicas and others are told of it."""
        yield from self.change(states)
        for some in slices(states):
            for partition in some:
                if partition.topic in self.context.topics:
                    self.requests.tell_roles(partition, is_new=is_new)
            yield GIVE_WAY

    def elect(self, partitions: Iterable[TopicPartition]) -> Decision[list[TopicPartition]]:
        """Elects for those of the partitions that lack a leader who is online; gives those for which that was possible.
        A partition for which it is not has no leader then, and its replicas in sync stay as they are: one of them may
        come back.
        """
        elected_now: list[TopicPartition] = []
        for some in slices(partitions):
            elected_now += yield from self._elect(some)
        return elected_now

    def _elect(self, partitions: Iterable[TopicPartition]) -> Decision[list[TopicPartition]]:
        changes: dict[TopicPartition, PartitionState] = {}
        made: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = self.context.state(partition)
            online = self.context.online(partition)
            if state.leader != NO_LEADER and self.context.is_online(partition, state.leader):
                continue
            if not self.context.is_written(partition):
                if online:
                    made[partition] = first_state(state, online)
                continue
            may_be_unclean = self.may_be_unclean(partition.topic)
            election = elect_offline(state.replicas, state.isr, online, may_be_unclean=may_be_unclean)
            if election is not None:
                self.context.stats.unclean_elections += election.is_unclean
                changes[partition] = elected(state, election)
            elif state.leader != NO_LEADER:
                changes[partition] = next_epoch(state, leader=NO_LEADER)
        yield from self.lead(made, is_new=True)
        yield from self.lead(changes)
        return [*made, *(one for one, state in changes.items() if state.leader != NO_LEADER)]

    def shrink(self, partitions: Iterable[TopicPartition], leaving: set[int]) -> Decision[None]:
        """Takes brokers out of the replicas in sync, where somebody else is left who leads."""
        for some in slices(partitions):
            yield from self._shrink(some, leaving)

    def _shrink(self, partitions: Iterable[TopicPartition], leaving: set[int]) -> Decision[None]:
        changes: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = self.context.state(partition)
            staying = tuple(one for one in state.isr if one not in leaving)
            if state.leader != NO_LEADER and state.leader not in leaving and len(staying) < len(state.isr):
                changes[partition] = next_epoch(state, isr=staying)
        yield from self.lead(changes)


def first_state(state: PartitionState, online: list[int]) -> PartitionState:
    """Gives the first state of a partition that was never led: all replicas that are online are in sync."""
    return replace(state, leader=online[0], leader_epoch=0, isr=tuple(online))


def next_epoch(
    state: PartitionState, *, leader: int | None = None, isr: tuple[int, ...] | None = None
) -> PartitionState:
    """Gives the state in another leader epoch."""
    return replace(
        state,
        leader=state.leader if leader is None else leader,
        isr=state.isr if isr is None else isr,
        leader_epoch=state.leader_epoch + 1,
    )


def elected(state: PartitionState, election: Election) -> PartitionState:
    """Gives the state after an election. Whoever was elected uncleanly has to say that it has recovered (KIP-704)."""
    recovery = LeaderRecoveryState.RECOVERING if election.is_unclean else state.leader_recovery_state
    return replace(next_epoch(state, leader=election.leader, isr=election.isr), leader_recovery_state=recovery)
