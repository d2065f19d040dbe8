"""What a broker says of partitions just after their leaders have changed; the answers are the test's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from core.client import cluster_partitions
from core.client.cluster_partitions import read_when_heard
from core.client.kafka_client import KafkaClient, PartitionInfo, TopicInfo
from core.cluster.replicated_partition import ReplicatedPartition
from core.common.topic_partition import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEFORE = [ReplicatedPartition(one, 2, 5, (1, 2), (1, 2), (), 1) for one in (T0, T1)]
HEARD = replace(BEFORE[0], leader=1, leader_epoch=6)
AGAIN = replace(BEFORE[1], leader_epoch=6)


class Broker:
    """Hears more with each question, and has a clock that goes on when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[ReplicatedPartition]) -> None:
        self.answers = list(answers)
        self.now_s = 0.0
        monkeypatch.setattr(cluster_partitions, "time", self)
        monkeypatch.setattr(cluster_partitions, "read_partitions", lambda *_: self.answers[0])

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def refresh(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        assert topics == ["t"]
        placed = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        partitions = {p.partition.partition: PartitionInfo(p.leader, p.leader_epoch, p.replicas, p.isr) for p in placed}
        return {"t": TopicInfo("t", bytes(16), False, partitions)}

    def after(self, *elected: TopicPartition) -> list[ReplicatedPartition]:
        return list(read_when_heard(cast(KafkaClient, self), BEFORE, elected).values())


def test_what_was_not_elected_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, BEFORE)
    assert broker.after() == BEFORE
    assert broker.now_s == 0


def test_each_that_was_elected_is_waited_for_also_if_the_same_leads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, BEFORE, [HEARD, BEFORE[1]], [HEARD, AGAIN])
    assert broker.after(T0, T1) == [HEARD, AGAIN]
    assert broker.now_s == pytest.approx(0.2)


def test_one_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Broker(monkeypatch, [BEFORE[1]]).after(T0) == [BEFORE[1]]


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, BEFORE)
    assert broker.after(T0) == BEFORE
    assert 10 <= broker.now_s < 11
