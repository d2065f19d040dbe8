"""Where partitions are once a move is over: a broker may hear of it after the controller has said so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.client import reassigner
from core.client.reassigner import Reassigner
from core.cluster.planned_move import PlannedMove
from core.common.topic_partition import TopicPartition

MOVE = PlannedMove(TopicPartition("t", 0), (3, 1, 2), (1, 2))


class LateBroker:
    """Gives the replicas of t-0 as its answers have them, one after the other, the last for ever; also the clock."""

    def __init__(self, *answers: tuple[int, ...]) -> None:
        self.answers = list(answers)
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def refresh(self) -> dict[str, Any]:
        replicas = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {"t": SimpleNamespace(partitions={0: SimpleNamespace(replicas=replicas)})}


def find_missed(broker: LateBroker, monkeypatch: pytest.MonkeyPatch) -> list[PlannedMove]:
    monkeypatch.setattr(reassigner, "time", broker)
    client: Any = broker
    return Reassigner(client, throttle=client, say=lambda _: None).find_missed([MOVE])


def test_a_broker_that_hears_later_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_missed(LateBroker((3, 1, 2), (3, 1, 2), (1, 2)), monkeypatch) == []


def test_a_move_that_was_cancelled_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = LateBroker((3, 1, 2))
    assert find_missed(broker, monkeypatch) == [MOVE]
    assert broker.now_s > 0
