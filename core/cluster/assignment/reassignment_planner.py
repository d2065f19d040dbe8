"""Plans which brokers hold the replicas of partitions, and which of the replicas is the preferred leader.

A plan spreads the replicas of a partition over the racks, and the replicas of each topic evenly over the brokers, with
as few bytes moved as that allows (`balanced_assignment.py`). It places one topic after the other, each where the topics
before it left room, so that all topics together are even, too; with more racks than replicas that room may be in one
rack, and a broker may have two replicas more than another. Preferred leaders are spread over the brokers topic by
topic, as far as the replicas allow, and stay where they are if they can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.cluster.assignment.balanced_assignment import Load, Thing, choose_evenly
from core.cluster.assignment.planned_move import PlannedMove
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition, by_topic

Sizes = Mapping[TopicPartition, int]
"""The bytes of one replica of each partition."""
Racks = Mapping[int, str | None]
"""The brokers that may be used, and the rack of each."""


def plan_spread(
    partitions: Iterable[ReplicatedPartition],
    brokers: Racks,
    cluster: Iterable[ReplicatedPartition],
    sizes: Sizes,
    factor: int | None = None,
) -> list[PlannedMove]:
    """Spreads the partitions over exactly these brokers; each gets `factor` replicas, or as many as it has if that is
    None. `cluster` are all partitions: their replicas decide between brokers that are equally good.

    Raises UsageError if there are fewer brokers than replicas.
    """
    planned = list(partitions)
    counts = {p.partition: factor if factor is not None else len(p.replicas) for p in planned}
    ensure_enough_brokers(planned, counts, {p.partition: len(brokers) for p in planned})
    things = {
        p.partition: Thing(
            frozenset(brokers), counts[p.partition], frozenset(p.replicas), sizes.get(p.partition, 0) + 1
        )
        for p in planned
    }
    return _plan(planned, things, brokers, _outside(planned, cluster), sizes)


def plan_drain(
    broker: int,
    partitions: Iterable[ReplicatedPartition],
    brokers: Racks,
    cluster: Iterable[ReplicatedPartition],
    sizes: Sizes,
) -> list[PlannedMove]:
    """Moves the replicas off one broker, to some of `brokers`, and no others. Raises UsageError as `plan_spread`."""
    planned = [p for p in partitions if broker in p.replicas]
    things, room = {}, {}
    for p in planned:
        stays = frozenset(p.replicas) - {broker}
        allowed = frozenset(brokers) - {broker}
        room[p.partition] = len(allowed | stays)
        things[p.partition] = Thing(
            allowed, len(p.replicas), frozenset(p.replicas), sizes.get(p.partition, 0) + 1, stays
        )
    ensure_enough_brokers(planned, {p.partition: len(p.replicas) for p in planned}, room)
    racks = {**dict.fromkeys(replica for p in planned for replica in p.replicas), **brokers}
    return _plan(planned, things, racks, _outside(planned, cluster), sizes, leaving=broker)


def ensure_enough_brokers(
    planned: Sequence[ReplicatedPartition], counts: Mapping[TopicPartition, int], room: Mapping[TopicPartition, int]
) -> None:
    """Raises UsageError, which names the topics, if a partition needs more replicas than there is `room` for."""
    short = [p.partition for p in planned if counts[p.partition] > room[p.partition]]
    if not short:
        return
    needs: dict[str, int] = {}
    for partition in short:
        needs[partition.topic] = max(needs.get(partition.topic, 0), counts[partition])
    names = ", ".join(f"{topic} ({count})" for topic, count in sorted(needs.items()))
    least = min(room[partition] for partition in short)
    raise UsageError(
        f"{least} broker{'s' if least != 1 else ''} can't hold the replicas of {names}",
        hint="each replica needs a broker of its own: name more brokers, or lower the factor "
        "(plog cluster reassign --replication-factor)",
    )


def _outside(planned: Sequence[ReplicatedPartition], cluster: Iterable[ReplicatedPartition]) -> list[tuple[int, ...]]:
    moved = {p.partition for p in planned}
    return [p.replicas for p in cluster if p.partition not in moved]


def _plan(
    planned: Sequence[ReplicatedPartition],
    things: Mapping[TopicPartition, Thing],
    racks: Racks,
    outside: Sequence[tuple[int, ...]],
    sizes: Sizes,
    *,
    leaving: int | None = None,
) -> list[PlannedMove]:
    """Plans topic after topic; returns the moves that change something. With `leaving`, a partition gets another
    preferred leader only if that broker is its present one.
    """
    held, led = _count(b for replicas in outside for b in replicas), _count(replicas[0] for replicas in outside)
    planned_held, planned_led = Load(), Load()
    moves = []
    for of_topic in by_topic((p.partition, p) for p in sorted(planned, key=lambda p: p.partition)).values():
        wanted = [things[p.partition] for p in of_topic]
        chosen = choose_evenly(wanted, racks, loads=[Load(), planned_held], others=[held])
        firsts = [_first(p, brokers, leaving) for p, brokers in zip(of_topic, chosen, strict=True)]
        leaders = choose_evenly(firsts, {}, loads=[Load(), planned_led], others=[led])
        for p, brokers, (leader,) in zip(of_topic, chosen, leaders, strict=True):
            target = _in_order(p.replicas, brokers, leader)
            moves.append(PlannedMove(p.partition, p.replicas, target, sizes.get(p.partition)))
    return [move for move in moves if move.changes]


def _count(brokers: Iterable[int]) -> Load:
    load = Load()
    for broker in brokers:
        load[broker] = load.get(broker, 0) + 1
    return load


def _first(p: ReplicatedPartition, chosen: set[int], leaving: int | None) -> Thing:
    """Returns the thing for the choice of a preferred leader among the chosen brokers."""
    is_free = leaving is None or p.replicas[0] == leaving
    return Thing(frozenset(chosen) if is_free else frozenset(p.replicas[:1]), 1, frozenset(p.replicas[:1]))


def _in_order(replicas: tuple[int, ...], chosen: set[int], leader: int) -> tuple[int, ...]:
    kept = [broker for broker in replicas if broker in chosen]
    ordered = [*kept, *sorted(chosen - set(kept))]
    return (leader, *(broker for broker in ordered if broker != leader))
