"""Plans for replicas: what always holds of them, and the fewest moves, found by trying all plans."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.cluster.assignment.planned_move import PlannedMove
from core.cluster.assignment.reassignment_planner import plan_drain, plan_spread
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition


def placed(topic: str, number: int, replicas: tuple[int, ...]) -> ReplicatedPartition:
    return ReplicatedPartition(TopicPartition(topic, number), replicas[0], 0, replicas, replicas)


def after(partitions: list[ReplicatedPartition], moves: list[PlannedMove]) -> dict[TopicPartition, tuple[int, ...]]:
    return {p.partition: p.replicas for p in partitions} | {move.partition: move.target for move in moves}


@st.composite
def clusters(draw: st.DrawFn, *, most_brokers: int = 7, most_partitions: int = 12) -> list[ReplicatedPartition]:
    """Partitions of two topics on brokers 1 and up; nothing is even about them."""
    brokers = list(range(1, most_brokers + 1))
    return [
        placed(topic, number, tuple(draw(st.permutations(brokers))[: draw(st.integers(1, 3))]))
        for topic in ("s", "t")
        for number in range(draw(st.integers(1, most_partitions)))
    ]


@settings(max_examples=settings().max_examples * 2)
@given(clusters(), st.integers(3, 7), st.integers(1, 3), st.sampled_from([0, 2, 3]))
def test_a_plan_spreads_everything(cluster: list[ReplicatedPartition], count: int, factor: int, racks: int) -> None:
    """Racks of which each has as many brokers let both be even."""
    count -= count % racks if racks else 0
    brokers = {broker: f"r{broker % racks}" if racks else None for broker in range(1, count + 1)}
    factor = min(factor, count)
    moves = plan_spread(cluster, brokers, cluster, {}, factor)
    assert all(move.changes for move in moves)
    found = after(cluster, moves)
    for replicas in found.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= brokers.keys()
        if racks:
            assert len({brokers[broker] for broker in replicas}) == min(factor, racks)
    for some in ("s", "t", "st"):
        of_topics = [replicas for partition, replicas in found.items() if partition.topic in some]
        held = Counter(broker for replicas in of_topics for broker in replicas)
        # topic after topic is placed: with more racks than replicas the room that is left may be in one rack
        ensure_even(held, count, most=2 if some == "st" and racks > factor else 1)
        if some != "st":  # the replicas of both, once chosen, may not let all leaders be even
            ensure_even(Counter(replicas[0] for replicas in of_topics), count)


def ensure_even(held: Counter[int], brokers: int, *, most: int = 1) -> None:
    numbers = [held[broker] for broker in range(1, brokers + 1)]
    assert max(numbers) - min(numbers) <= most, held


def test_racks_may_leave_the_topics_together_uneven_by_two() -> None:
    """Found once in some thousand plans: 3 racks of 2 brokers, and 2 replicas."""
    cluster = [placed("s", 0, (6,)), placed("s", 1, (4, 5, 3)), placed("t", 0, (2, 3))]
    brokers: dict[int, str | None] = {broker: f"r{broker % 3}" for broker in range(1, 7)}
    found = after(cluster, plan_spread(cluster, brokers, cluster, {}, 2))
    ensure_even(Counter(broker for replicas in found.values() for broker in replicas), 6, most=2)
    ensure_even(Counter(broker for p, replicas in found.items() if p.topic == "s" for broker in replicas), 6)


@settings(max_examples=settings().max_examples * 2)
@given(clusters(most_brokers=4, most_partitions=2), st.data())
def test_no_even_plan_copies_fewer_bytes(cluster: list[ReplicatedPartition], data: st.DataObject) -> None:
    topic = [p for p in cluster if p.partition.topic == "t"] + [placed("t", 8, (1, 2)), placed("t", 9, (1, 3))]
    sizes = {p.partition: data.draw(st.integers(0, 9)) * 1000 for p in topic}
    brokers: dict[int, str | None] = dict.fromkeys((1, 2, 3, 4))
    moves = plan_spread(topic, brokers, topic, sizes, 2)
    copied = sum((sizes[move.partition] + 1) * len(move.adding) for move in moves)
    least = min(
        sum((sizes[p.partition] + 1) * len(set(way) - set(p.replicas)) for p, way in zip(topic, ways, strict=True))
        for ways in product(*[list(combinations(brokers, 2)) for _ in topic])
        if is_even(Counter(broker for way in ways for broker in way))
    )
    assert copied == least


def is_even(held: Counter[int]) -> bool:
    return max(held[broker] for broker in (1, 2, 3, 4)) - min(held[broker] for broker in (1, 2, 3, 4)) <= 1


def test_what_is_even_already_stays() -> None:
    cluster = [placed("t", n, ((n % 3) + 1, ((n + 1) % 3) + 1)) for n in range(6)]
    assert plan_spread(cluster, dict.fromkeys((1, 2, 3)), cluster, {}) == []


@given(clusters(), st.integers(1, 7))
def test_a_drain_moves_what_is_on_the_broker_and_nothing_else(cluster: list[ReplicatedPartition], broker: int) -> None:
    brokers: dict[int, str | None] = {number: f"r{number % 3}" for number in range(1, 8) if number != broker}
    moves = plan_drain(broker, cluster, brokers, cluster, {})
    assert {move.partition for move in moves} == {p.partition for p in cluster if broker in p.replicas}
    for move in moves:
        assert set(move.replicas) - set(move.target) == {broker}
        assert len(move.adding) == 1
        assert len(set(move.target)) == len(move.replicas)
        racks = {brokers[one] for one in move.target}
        stayed = {brokers[one] for one in move.target if one in move.replicas}
        assert len(racks) == min(3, len(stayed) + 1)
        if move.replicas[0] != broker:
            assert move.target[0] == move.replicas[0]


def test_a_drain_spreads_what_it_moves_over_those_that_hold_least() -> None:
    cluster = [placed("t", n, (9,)) for n in range(6)] + [placed("s", n, (1,)) for n in range(3)]
    moves = plan_drain(9, cluster, dict.fromkeys((1, 2, 3)), cluster, {})
    assert Counter(move.target for move in moves) == {(1,): 2, (2,): 2, (3,): 2}  # each topic is spread by itself


def test_too_few_brokers_are_refused_with_the_topics() -> None:
    cluster = [placed("s", 0, (1,)), placed("t", 0, (1, 2, 3)), placed("u", 0, (2, 3))]
    with pytest.raises(UsageError, match=r"^2 brokers can't hold the replicas of t \(3\)"):
        plan_drain(1, cluster, dict.fromkeys((2, 3)), cluster, {})
    with pytest.raises(UsageError, match=r"^1 broker can't hold the replicas of t \(3\), u \(2\)"):
        plan_spread(cluster, {1: None}, cluster, {})


def test_a_replica_on_a_dead_broker_stays_if_another_one_is_drained() -> None:
    cluster = [placed("t", 0, (1, 8))]
    (move,) = plan_drain(1, cluster, dict.fromkeys((2, 3)), cluster, {})
    assert set(move.target) & {8} == {8}
    assert move.target[0] in (2, 3, 8)
