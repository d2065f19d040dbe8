"""Shared by all decisions of a controller: its state, its pending requests, and how it changes a partition's state.

The controller writes a state to ZooKeeper first, then keeps it, then sends it to brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from core.cluster.controller.controller_context import WITNESS, ControllerContext
from core.cluster.controller.controller_requests import ControllerRequest, ControllerRequests
from core.cluster.controller.controller_writes import GIVE_WAY, Decision, StateWrite, slices
from core.cluster.controller.elections import DEFAULT_POLICY, Election, ElectionPolicy, elect_offline, elect_unclean
from core.cluster.controller.unclean_recovery import UncleanRecovery
from core.cluster.image.metadata_image import NO_LEADER, LeaderRecoveryState, PartitionState
from core.common.topic_partition import TopicPartition

_log = logging.getLogger("plog.controller")

Send = Callable[[ControllerRequest], None]


class ControllerDecisions:
    """Owned by the controller's task; one for each term of office."""

    def __init__(self, node_id: int, epoch: int, *, send: Send, policy: ElectionPolicy = DEFAULT_POLICY) -> None:
        """`send` sends a request to a broker, after earlier ones, until it is answered or that life of the broker is
        over; a question of `recovery` is sent once, beside them.
        """
        self.node_id = node_id
        self.epoch = epoch
        self.context = ControllerContext(policy.min_isr)
        self.requests = ControllerRequests(self.context, node_id, epoch)
        self.recovery = UncleanRecovery(self.context)
        self.policy = policy
        self._send = send

    def send_all(self, *, asks: bool = True) -> Decision[None]:
        """Sends the gathered requests, and asks holders where their logs end if an election needs that."""
        for request in self.requests.take():
            self._send(request)
            if len(request.request.topic_states):
                yield GIVE_WAY
        for request in self.recovery.questions() if asks else ():
            self._send(request)

    # --- states of partitions

    def change(self, states: Mapping[TopicPartition, PartitionState]) -> Decision[None]:
        """Writes the states, and keeps each with its new version."""
        yield GIVE_WAY
        context = self.context
        for some in slices(states.items()):
            held = [(one, context.with_holders(one, state)) for one, state in some]
            versions = yield [StateWrite(one, state) for one, state in held]
            for (partition, state), version in zip(held, versions, strict=True):
                if partition.topic in context.topics:
                    context.put(partition, replace(state, partition_epoch=version))

    def lead(self, states: Mapping[TopicPartition, PartitionState], *, is_new: bool = False) -> Decision[None]:
        """Changes the states, and gathers the requests that tell replicas and other brokers of it."""
        yield from self.change(states)
        yield from self.tell_roles((one for one in states if one.topic in self.context.topics), is_new=is_new)

    def tell_roles(self, partitions: Iterable[TopicPartition], *, is_new: bool = False) -> Decision[None]:
        """Gathers the requests that tell replicas and other brokers who leads the partitions."""
        for some in slices(partitions):
            for partition in some:
                self.requests.tell_roles(partition, is_new=is_new)
            yield GIVE_WAY

    def elect(self, partitions: Iterable[TopicPartition]) -> Decision[list[TopicPartition]]:
        """Elects leaders for those of the partitions whose leader is offline or may lack committed records; returns the
        partitions for which that was possible. Any other partition has no leader then, and keeps its ISR: one of those
        brokers may come back. If they are back, and none surely has everything, `recovery` asks them.
        """
        elected_now: list[TopicPartition] = []
        for some in slices(partitions):
            elected_now += yield from self._elect(some)
        return elected_now

    def _elect(self, partitions: Iterable[TopicPartition]) -> Decision[list[TopicPartition]]:
        changes: dict[TopicPartition, PartitionState] = {}
        made: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            if self.is_led(partition):
                continue
            state = self.context.state(partition)
            online = self.context.online(partition)
            if not self.context.is_written(partition):
                if online:
                    made[partition] = first_state(state, online)
                continue
            election = self._choose(partition, state, online)
            if election is not None:
                self.context.stats.unclean_elections += election.is_unclean
                changes[partition] = self.elected(partition, election)
                continue
            self.recovery.begin(partition)
            isr = tuple(one for one in state.isr if one in state.replicas)
            if state.isr and not isr:
                _log.error(
                    "%s has no replica in sync any more: the brokers in its ISR are none of its replicas", partition
                )
            if (NO_LEADER, isr) != (state.leader, state.isr):
                changes[partition] = next_epoch(state, leader=NO_LEADER, isr=isr)
        yield from self.lead(made, is_new=True)
        yield from self.lead(changes)
        return [*made, *(one for one, state in changes.items() if state.leader != NO_LEADER)]

    def is_led(self, partition: TopicPartition) -> bool:
        """Returns whether the leader is online, and surely has all committed records."""
        leader = self.context.state(partition).leader
        return leader != NO_LEADER and self._is_fit(partition, leader)

    def _is_fit(self, partition: TopicPartition, replica: int) -> bool:
        return self.context.is_online(partition, replica) and self.context.is_sure(partition, replica)

    def _choose(self, partition: TopicPartition, state: PartitionState, online: list[int]) -> Election | None:
        election = elect_offline(state.replicas, state.isr, self.context.sure(partition))
        if election is not None:
            return election
        furthest = self.recovery.furthest(partition)
        if furthest is not None:
            _log.info(
                "%s: broker %d leads, as it has the most records (%s)", partition, furthest, self._known_ends(partition)
            )
            return Election(furthest, (furthest,))
        return elect_unclean(state.replicas, state.isr, online) if self.policy.may_be_unclean(partition.topic) else None

    def elected(self, partition: TopicPartition, election: Election) -> PartitionState:
        """Returns the state after an election for a partition without a leader, and ends its recovery. Its leader epoch
        is above those of all records that replicas have reported: the state in ZooKeeper may come from an old backup.
        """
        after = elected(self.context.state(partition), election)
        epoch = max(after.leader_epoch, self.recovery.latest_epoch(partition) + 1)
        self.recovery.end(partition)
        return replace(after, leader_epoch=epoch)

    def give_up(self, partition: TopicPartition) -> Election | None:
        """Returns the unclean election of the online replica that has most, or None; logs what it gives up."""
        state, online = self.context.state(partition), self.context.online(partition)
        ends = self.recovery.ends(partition)
        furthest = self.recovery.furthest(partition, of_all=False)
        if furthest is not None:
            election: Election | None = Election(furthest, (furthest,), is_unclean=True)
        else:
            election = elect_unclean(state.replicas, state.isr, online)
        if election is not None:
            missing = [one for one in self.context.holders(partition) if one not in ends]
            self._say_given_up(partition, f"{election.leader} leads by an unclean election", missing)
        return election

    def _say_given_up(self, partition: TopicPartition, what: str, missing: Collection[int]) -> None:
        known = self._known_ends(partition)
        named = ", ".join(map(str, missing)) or "nobody"
        _log.warning("%s: %s; records that only %s may have are given up (%s)", partition, what, named, known)

    def _known_ends(self, partition: TopicPartition) -> str:
        ends = self.recovery.ends(partition)
        return "; ".join(f"{one} {end}" for one, end in ends.items()) or "no replica has said where its log ends"

    def shrink(self, partitions: Iterable[TopicPartition], leaving: Collection[int] = ()) -> Decision[None]:
        """Removes leaving brokers, and brokers that lack records, from the ISR, if a broker is left that can lead."""
        for some in slices(partitions):
            yield from self._shrink(some, leaving)

    def _shrink(self, partitions: Iterable[TopicPartition], leaving: Collection[int]) -> Decision[None]:
        changes: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = self.context.state(partition)
            staying = tuple(one for one in state.isr if one not in leaving and self._is_fit(partition, one))
            if len(staying) < len(state.isr) and state.leader in staying:
                changes[partition] = next_epoch(state, isr=staying)
        yield from self.lead(changes)

    def settle_holders(self, partitions: Iterable[TopicPartition]) -> Decision[None]:
        """Writes the holders again, in another epoch, after `min.insync.replicas` was lowered: then a broker outside
        the ISR is no holder, as the ISR may commit without it.
        """
        for some in slices(partitions):
            left = [one for one in some if self.context.is_written(one) and self.context.has_left_over_holders(one)]
            yield from self.lead({one: next_epoch(self.context.state(one)) for one in left})

    def forget(self, partitions: Iterable[TopicPartition], broker_id: int) -> Decision[None]:
        """Writes, in another leader epoch, that a broker which is gone for good holds nothing of the partitions any
        more. If no other broker holds anything, the other replicas become witnesses: they may have what it had.
        """
        for some in slices(partitions):
            changes: dict[TopicPartition, PartitionState] = {}
            for partition in some:
                state = self.context.state(partition)
                if not self.context.is_written(partition) or broker_id not in state.holders:
                    continue
                holders = {one: epoch for one, epoch in state.holders.items() if one != broker_id}
                if not holders:
                    holders = {one: WITNESS for one in state.replicas if one != broker_id}
                if holders:
                    isr = tuple(one for one in state.isr if one != broker_id)
                    changes[partition] = replace(next_epoch(state, isr=isr), holders=holders)
                    if state.leader == NO_LEADER:
                        what = f"broker {broker_id} is gone for good, as an operator has said"
                        self._say_given_up(partition, what, [broker_id])
            yield from self.lead(changes)


def first_state(state: PartitionState, online: list[int]) -> PartitionState:
    """Returns the first state of a partition that was never led: all replicas that are online are in the ISR."""
    return replace(state, leader=online[0], leader_epoch=0, isr=tuple(online))


def next_epoch(
    state: PartitionState, *, leader: int | None = None, isr: tuple[int, ...] | None = None
) -> PartitionState:
    return replace(
        state,
        leader=state.leader if leader is None else leader,
        isr=state.isr if isr is None else isr,
        leader_epoch=state.leader_epoch + 1,
    )


def elected(state: PartitionState, election: Election) -> PartitionState:
    """Returns the state after an election. A leader that was elected uncleanly must report that it has recovered
    (KIP-704), and other holders are given up.
    """
    after = next_epoch(state, leader=election.leader, isr=election.isr)
    if election.is_unclean:
        return replace(after, leader_recovery_state=LeaderRecoveryState.RECOVERING, holders={})
    return after
