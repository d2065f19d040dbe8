"""Where partitions are once a move is over: a broker may hear of it after the controller has said so. And what is said
when one begins with another throttle.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from core.client.cluster_admin import reassigner
from core.client.cluster_admin.cluster_admin import OngoingReassignment
from core.client.cluster_admin.reassigner import Reassigner
from core.client.net import retry
from core.cluster.assignment.planned_move import PlannedMove
from core.common.topic_partition import TopicPartition
from tests.support.for_each import for_each
from tests.support.manual_clock import ManualTime

MOVE = PlannedMove(TopicPartition("t", 0), (3, 1, 2), (1, 2))


class LateBroker(ManualTime):
    """Gives the replicas of t-0 as its answers have them, one after the other, the last for ever; also the clock."""

    def __init__(self, *answers: tuple[int, ...]) -> None:
        self.answers = list(answers)
        super().__init__()

    def refresh(self) -> dict[str, Any]:
        replicas = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {"t": SimpleNamespace(partitions={0: SimpleNamespace(replicas=replicas)})}


def find_missed(broker: LateBroker, monkeypatch: pytest.MonkeyPatch) -> list[PlannedMove]:
    monkeypatch.setattr(retry, "time", broker)
    client: Any = broker
    return Reassigner(client, throttle=client, say=lambda _: None).find_missed([MOVE])


@for_each("before", [(3, 1, 2), (2, 1)])
def test_a_broker_that_hears_later_is_asked_again(before: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the order of the replicas, too: who leads depends on it."""
    broker = LateBroker(before, before, (1, 2))
    assert find_missed(broker, monkeypatch) == []
    assert broker.now_s > 0


def test_a_move_that_was_cancelled_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = LateBroker((3, 1, 2))
    assert find_missed(broker, monkeypatch) == [MOVE]
    assert broker.now_s > 0


class Sizes:
    """Of t-0 broker 1 holds 1000 bytes; of t-1 nobody tells who had it before."""

    def replica_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, dict[int, int]]:
        return {partition: {1: 1000, 3: 10} if partition.partition == 0 else {3: 10} for partition in partitions}


def test_a_new_replica_does_not_say_how_large_what_is_moved_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ongoing = {TopicPartition("t", number): OngoingReassignment((1, 3), (3,), ()) for number in (0, 1)}
    monkeypatch.setattr(reassigner, "ClusterAdmin", lambda _: SimpleNamespace(list_reassignments=lambda: ongoing))
    monkeypatch.setattr(reassigner, "brief_admin", lambda _client: nullcontext(Sizes()))
    nothing: Any = None
    moves = Reassigner(nothing, nothing, lambda _: None).find_ongoing()
    assert [(move.replicas, move.target, move.size_bytes) for move in moves] == [
        ((1,), (1, 3), 1000), ((1,), (1, 3), None),
    ]  # fmt: skip


class Throttle:
    """Had these rates, and takes each."""

    is_set = True

    def __init__(self, replaced: dict[int, int]) -> None:
        self.replaced = replaced

    def set(self, _moves: object, _rate: int, _living: object) -> dict[int, int]:
        return self.replaced


@for_each(
    "replaced, expected",
    [
        ({}, []),
        ({3: 1 << 20}, ["note: broker 3 copied at most 1,048,576 bytes/s"]),
        ({1: 1000, 2: 1000, 3: 5}, ["note: broker 3 copied at most 5 ", "note: brokers 1, 2 copied at most 1,000 "]),
    ],
)
def test_another_rate_for_what_is_under_way_is_said(
    monkeypatch: pytest.MonkeyPatch, replaced: dict[int, int], expected: list[str]
) -> None:
    said: list[str] = []
    client: Any = SimpleNamespace(refresh=lambda _: {}, node_ids=[1, 2, 3])
    taking: Any = Throttle(replaced)
    controller = SimpleNamespace(alter_reassignments=lambda _: {})
    monkeypatch.setattr(reassigner, "ClusterAdmin", lambda _: controller)
    assert Reassigner(client, taking, said.append).start([MOVE], 4 << 20) == {}
    assert len(said) == len(expected)
    assert all(text.startswith(start) for text, start in zip(said, expected, strict=True)), said
    assert all("may copy 4,194,304 now, also for moves that are under way" in text for text in said)
