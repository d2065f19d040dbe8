"""Moves replicas of partitions to other brokers, by a controller (KIP-455).

    replicas    1,2,3            the present ones, with the target 4,5,6:
    replicas    4,5,6,1,2,3      adding 4,5,6, removing 1,2,3: the new ones follow, and nobody is taken away
    replicas    4,5,6            once they are all in sync: one of them leads, and the old ones are deleted

The controller writes the assignment before it tells any broker, so the next controller goes on with it. A reassignment
that is cancelled or replaced removes the adding replicas that are not in the next target.

Source: kafka.controller.KafkaController.onPartitionReassignment, kafka.controller.ReplicaAssignment of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from core.cluster.controller.controller_decisions import ControllerDecisions, elected, next_epoch
from core.cluster.controller.controller_writes import GIVE_WAY, AssignmentWrite, Decision, slices
from core.cluster.controller.elections import elect_for_reassignment
from core.cluster.image.metadata_image import NO_LEADER, PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata_records import PartitionRecord

Outcomes = dict[TopicPartition, KafkaError | None]


def origin_of(state: PartitionState) -> tuple[int, ...]:
    """Returns the replicas that a partition had before its reassignment began."""
    return tuple(one for one in state.replicas if one not in state.adding_replicas)


def target_of(state: PartitionState) -> tuple[int, ...]:
    """Returns the replicas that a partition will have in the end."""
    return tuple(one for one in state.replicas if one not in state.removing_replicas)


def is_moving(state: PartitionState | PartitionRecord) -> bool:
    return bool(state.adding_replicas or state.removing_replicas)


def on_the_way(state: PartitionState, target: Sequence[int]) -> PartitionState:
    """Returns the state with the replicas of both, the target's first."""
    origin = origin_of(state)
    return replace(
        state,
        replicas=tuple(dict.fromkeys([*target, *origin])),
        adding_replicas=tuple(one for one in target if one not in origin),
        removing_replicas=tuple(one for one in origin if one not in target),
    )


def _with_replicas_of(before: PartitionState, state: PartitionState) -> PartitionState:
    return replace(
        state,
        replicas=before.replicas,
        adding_replicas=before.adding_replicas,
        removing_replicas=before.removing_replicas,
    )


class Reassignments:
    """Owned by the controller's task."""

    def __init__(self, office: ControllerDecisions) -> None:
        self._office = office

    def listed(self, wanted: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, PartitionState]:
        """Returns the partitions under reassignment, of all or of `wanted`."""
        context = self._office.context
        if wanted is None:
            return {partition: state for partition, state in context.partitions() if is_moving(state)}
        found = {one: context.find(one) for one in wanted if one.topic not in context.deleted}
        return {one: state for one, state in found.items() if state is not None and is_moving(state)}

    def alter(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Decision[Outcomes]:
        """Begins to move partitions to their targets; None cancels a reassignment. Returns, for each partition, None or
        the error.
        """
        outcomes: Outcomes = {}
        begun: dict[TopicPartition, PartitionState] = {}
        for some in slices(targets.items()):
            for partition, target in some:
                try:
                    begun[partition] = self._altered(partition, target)
                    outcomes[partition] = None
                except KafkaError as error:
                    outcomes[partition] = error
            yield GIVE_WAY
        yield from self._begin(begun)
        yield from self._office.send_all()
        yield from self.resume(begun)
        yield from self._office.send_all()
        return outcomes

    def _altered(self, partition: TopicPartition, target: Sequence[int] | None) -> PartitionState:
        """Returns the state in which the reassignment begins. Raises KafkaError if it may not."""
        context = self._office.context
        state = context.find(partition)
        if state is None or partition.topic in context.deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if target is None:
            if not is_moving(state):
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            return self._ensured(partition, state, on_the_way(state, origin_of(state)))
        problem = None
        if not target:
            problem = "Empty replica list specified in partition reassignment."
        elif len(set(target)) < len(target):
            problem = f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        elif any(one < 0 for one in target):
            problem = f"Invalid replica id in partition reassignment replica list: {list(target)}"
        else:
            added = [one for one in target if one not in origin_of(state)]
            dead = [one for one in added if one not in context.brokers]
            if dead:
                problem = f"Replica assignment has brokers that are not alive. Replica list: {dead}, live broker list: "
                problem += str(sorted(context.brokers))
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        return self._ensured(partition, state, on_the_way(state, target))

    def _ensured(self, partition: TopicPartition, before: PartitionState, state: PartitionState) -> PartitionState:
        """Returns `state`. Raises KafkaError if it would drop the whole ISR, and with it the records that only the ISR
        has (org.apache.kafka.controller.ReplicationControlManager.cancelPartitionReassignment).
        """
        if before.isr and not set(before.isr) & set(state.replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {partition} because it would require an unclean leader "
                f"election: only {list(before.isr)} has what is committed.",
            )
        return state

    def _write_assignments(self, states: Mapping[TopicPartition, PartitionState]) -> Decision[None]:
        context = self._office.context
        changed: dict[str, dict[int, PartitionState]] = {}
        for partition, state in states.items():
            if partition.topic not in changed:
                changed[partition.topic] = dict(context.topics[partition.topic].partitions)
            changed[partition.topic][partition.partition] = state
        if not changed:
            return
        versions = yield [
            AssignmentWrite(name, context.topics[name].topic_id, partitions, context.topics[name].version)
            for name, partitions in changed.items()
        ]
        for name, version in zip(changed, versions, strict=True):
            context.topics[name].version = version
        for partition, state in states.items():
            context.put(partition, state)

    def _begin(self, states: Mapping[TopicPartition, PartitionState]) -> Decision[None]:
        """Has the new replicas follow; deletes those of an earlier target that are not in this one.

        The leader epoch rises first, before any broker is told: a leader accepts other replicas only with a higher
        epoch. If another controller takes over in between, or after the assignment is written, it tells the leader.
        """
        context = self._office.context
        given_up = {
            partition: set(context.state(partition).replicas) - set(state.replicas)
            for partition, state in states.items()
        }
        led = {
            partition: self._led_on_the_way(partition, state, given_up[partition])
            for partition, state in states.items()
            if context.is_written(partition)
        }
        before = {partition: context.state(partition) for partition in states}
        yield from self._office.change(led)
        try:
            yield from self._write_assignments({**states, **{partition: context.state(partition) for partition in led}})
        except KafkaError:  # ZooKeeper does not take it: nothing moves, in the epochs that there are now
            for partition in led:
                context.put(partition, _with_replicas_of(before[partition], context.state(partition)))
                self._office.requests.tell_roles(partition)
            yield from self._office.send_all()
            raise
        for partition in led:
            self._office.requests.tell_roles(partition)
            for broker_id in given_up[partition]:
                self._office.requests.stop(partition, broker_id, deletes=True)

    def _led_on_the_way(self, partition: TopicPartition, state: PartitionState, given_up: set[int]) -> PartitionState:
        """Returns the state in another leader epoch without the given-up replicas, even if one was the leader."""
        isr = tuple(one for one in state.isr if one not in given_up)
        if state.leader not in given_up:
            return next_epoch(state, isr=isr)
        election = elect_for_reassignment(state.replicas, isr, self._office.context.sure(partition))
        if election is None:
            return next_epoch(state, leader=NO_LEADER, isr=isr)
        return elected(replace(state, isr=isr), election)

    def resume(self, partitions: Iterable[TopicPartition]) -> Decision[None]:
        """Ends reassignments whose replicas are all in the ISR."""
        context = self._office.context
        ready = [
            partition
            for partition in partitions
            if (state := context.find(partition)) is not None
            and is_moving(state)
            and set(target_of(state)) <= set(state.isr)
            and partition.topic not in context.deleted
        ]
        if ready:
            yield from self._end(ready)

    def _end(self, partitions: Sequence[TopicPartition]) -> Decision[None]:
        """Leads from the target, deletes the old replicas, and writes the end. The leader epoch rises before a replica
        is deleted, so that no leader counts it any more.
        """
        context = self._office.context
        led: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            state = context.state(partition)
            target = target_of(state)
            isr = tuple(one for one in state.isr if one in target)
            moved = next_epoch(state, isr=isr)
            if state.leader not in target or not context.is_online(partition, state.leader):
                election = elect_for_reassignment(target, isr, context.sure(partition))
                if election is None:
                    continue  # it is tried again when one of them is back
                moved = elected(replace(state, isr=isr), election)
            led[partition] = moved
        yield from self._office.change(led)
        after: dict[TopicPartition, PartitionState] = {}
        for partition in led:
            state = context.state(partition)
            for broker_id in state.removing_replicas:
                self._office.requests.stop(partition, broker_id, deletes=True)
            after[partition] = replace(state, replicas=target_of(state), adding_replicas=(), removing_replicas=())
        yield from self._write_assignments(after)
        for partition in after:
            self._office.requests.tell_roles(partition)
        yield from self._office.send_all()
