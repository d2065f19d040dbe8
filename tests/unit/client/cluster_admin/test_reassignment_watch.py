"""How far a move is, and when the user hears that it does not get on: the cluster and the time are the test's."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from core.client.cluster_admin import reassignment_watch
from core.client.cluster_admin.cluster_admin import OngoingReassignment
from core.client.cluster_admin.reassignment_watch import ReassignmentWatch
from core.client.net.kafka_client import KafkaClient
from core.cluster.assignment.planned_move import PlannedMove
from core.common.topic_partition import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVES = [PlannedMove(T0, (1,), (2,), 1000), PlannedMove(T1, (1, 2), (2, 3), 500)]


class Cluster:
    """Replicas by size, of which some are copied; stands for the client, the controller, the sizes and the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.node_ids = [1, 2, 3]
        self.ongoing = {T0: OngoingReassignment((2, 1), (2,), (1,)), T1: OngoingReassignment((2, 3, 1), (3,), (1,))}
        self.sizes: dict[TopicPartition, dict[int, int]] = {T0: {1: 1000}, T1: {1: 500, 2: 500}}
        monkeypatch.setattr(reassignment_watch, "time", self)
        monkeypatch.setattr(reassignment_watch, "ClusterAdmin", lambda _client: self)
        monkeypatch.setattr(reassignment_watch, "brief_admin", lambda _client: nullcontext(self))

    retry_while_leader_moves = KafkaClient.retry_while_leader_moves

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def refresh(self, _topics: list[str]) -> None: ...

    def list_reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        return self.ongoing

    def replica_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, int]]:
        return {partition: self.sizes[partition] for partition in partitions}


def watch(cluster: Cluster, said: list[str], *, is_throttled: bool = False) -> ReassignmentWatch:
    client: Any = cluster
    return ReassignmentWatch(client, MOVES, note=said.append, is_throttled=is_throttled)


def test_what_is_left_is_what_the_new_replicas_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    states = watch(cluster, []).watch()
    first = next(states)
    assert (first.done, first.moved_bytes, first.bytes_left) == (0, 0, 1500)
    cluster.sizes[T0][2] = 300
    cluster.sizes[T1][3] = 700  # not cleaned yet, as the others are
    second = next(states)
    assert (second.done, second.moved_bytes, second.bytes_left) == (0, 800, 700)
    del cluster.ongoing[T1]
    assert next(states).done == 1
    cluster.ongoing.clear()
    last = next(states)
    assert (last.done, last.left, last.moved_bytes, last.bytes_left) == (2, [], 1500, 0)
    assert list(states) == []


def test_it_is_said_of_each_partition_once_or_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.sizes[T0][2] = 300
    state = watch(cluster, []).look()
    assert state.copies == {T0: (300, 700), T1: (0, 500)}
    assert (state.moved_bytes, state.bytes_left) == (300, 1200)
    assert cluster.now_s == 0
    del cluster.ongoing[T0]
    assert next(watch(cluster, []).watch()).copies == {T1: (0, 500)}


def test_what_a_broker_has_told_counts_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told other totals because a broker dies, be it one that is copied to or the only one copied from."""
    cluster = Cluster(monkeypatch)
    cluster.sizes = {T0: {1: 1000, 2: 300}, T1: {1: 500, 2: 500, 3: 100}}
    states = watch(cluster, []).watch()
    totals = []
    for gone in ((), (2,), (1,), (1, 2, 3), ()):
        told = cluster.sizes
        cluster.sizes = {p: {b: size for b, size in of.items() if b not in gone} for p, of in told.items()}
        state = next(states)
        totals.append((state.moved_bytes, state.bytes_left, state.of_unknown_size))
        cluster.sizes = told
    assert totals == [(400, 1100, 0)] * 5


def test_what_the_plan_says_counts_while_those_that_have_it_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.sizes = {T0: {2: 300}, T1: {}}
    state = watch(cluster, []).look()
    assert state.copies == {T0: (300, 700)}
    assert state.of_unknown_size == 1
    client: Any = cluster
    unplanned = ReassignmentWatch(client, [PlannedMove(T0, (1,), (2,), None)]).look()
    assert (unplanned.bytes_left, unplanned.of_unknown_size) == (None, 1)


def test_sizes_that_nobody_tells_are_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.sizes = {T0: {}, T1: {}}
    assert next(watch(cluster, []).watch()).bytes_left is None


def test_a_move_that_does_not_get_on_is_said_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Cluster(monkeypatch), list[str]()
    states = watch(cluster, said, is_throttled=True).watch()
    for _ in range(70):
        next(states)
        cluster.sizes[T0][1] += 10  # so much is produced, and as much is copied
        cluster.sizes[T0][2] = cluster.sizes[T0].get(2, 0) + 10
    assert len(said) == 2
    assert "as much is left to copy as 30 s ago; a move never ends if its throttle is below" in said[0]
    assert "--status --throttle RATE" in said[0]


def test_a_move_that_gets_on_slowly_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Cluster(monkeypatch), list[str]()
    states = watch(cluster, said).watch()
    for number in range(90):
        next(states)
        cluster.sizes[T0][2] = number // 20
    assert said == []


def test_a_broker_that_is_awaited_is_named_each_time_that_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Cluster(monkeypatch), list[str]()
    states = watch(cluster, said).watch()
    for brokers in ([1, 2, 3], [1, 3], [1, 3], [1, 2, 3], [1, 3]):
        cluster.node_ids = brokers
        next(states)
    assert said == ["warning: broker 2, to which t-0 moves, is away; the move goes on when it is back"] * 2
