"""What a broker says of partitions just after their leaders have changed; the answers are the test's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from core.client.cluster_admin.cluster_partitions import _why_out_of_sync, read_leaders_when_heard
from core.client.cluster_admin.log_dirs_query import LogDirsQuery
from core.client.net import retry
from core.client.net.kafka_client import KafkaClient, PartitionInfo, TopicInfo
from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError
from core.common.topic_partition import TopicPartition
from tests.support.for_each import for_each
from tests.support.manual_clock import ManualTime

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEFORE = [ReplicatedPartition(one, 2, 5, (1, 2), (1, 2), (), 1) for one in (T0, T1)]
HEARD = replace(BEFORE[0], leader=1, leader_epoch=6)
AGAIN = replace(BEFORE[1], leader_epoch=6)


HEARD_LEADERS = {T0: 1, T1: 2}


class Broker(ManualTime):
    """Hears more with each question, and has a clock that goes on when somebody sleeps. An answer of None is none: the
    connection breaks, after some seconds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[ReplicatedPartition] | None) -> None:
        self.answers = list(answers)
        super().__init__()
        self.forgotten = 0
        self.timeout_s: float | None = None
        monkeypatch.setattr(retry, "time", self)

    def another(self, *, timeout_s: float) -> Broker:
        self.timeout_s = timeout_s
        return self

    def refresh(self, topics: Sequence[str], *, skips_unknown: bool) -> dict[str, TopicInfo]:
        assert skips_unknown
        placed = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if placed is None:
            self.now_s += self.timeout_s or 30.0
            raise ConnectionFailedError("no answer")
        found: dict[str, TopicInfo] = {}
        for p in placed:
            if p.partition.topic in topics:
                topic = found.setdefault(p.partition.topic, TopicInfo(p.partition.topic, bytes(16), False, {}))
                topic.partitions[p.partition.partition] = PartitionInfo(p.leader, p.leader_epoch, p.replicas, p.isr)
        return found

    def forget_connections(self) -> None:
        self.forgotten += 1

    def close(self) -> None: ...

    def after(
        self, *elected: TopicPartition, before: Sequence[ReplicatedPartition] = BEFORE
    ) -> dict[TopicPartition, int]:
        return read_leaders_when_heard(cast(KafkaClient, self), before, elected)


def test_what_was_not_elected_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, BEFORE)
    assert broker.after() == {T0: 2, T1: 2}
    assert broker.now_s == 0


def test_each_that_was_elected_is_waited_for_also_if_the_same_leads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, BEFORE, [HEARD, BEFORE[1]], [HEARD, AGAIN])
    assert broker.after(T0, T1) == HEARD_LEADERS
    assert broker.now_s == pytest.approx(0.3, rel=0.2)


def test_one_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Broker(monkeypatch, [BEFORE[1]]).after(T0) == {T1: 2}


def test_a_topic_that_is_gone_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(BEFORE[0], partition=TopicPartition("deleted", 0))
    broker = Broker(monkeypatch, [HEARD, AGAIN])
    assert broker.after(T0, gone.partition, before=[gone, *BEFORE]) == HEARD_LEADERS


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader that it had before is not said to be the new one."""
    broker = Broker(monkeypatch, [BEFORE[0], AGAIN])
    assert broker.after(T0, T1) == {T1: 2}
    assert 10 <= broker.now_s < 11


def test_another_broker_is_asked_if_one_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, BEFORE, None, [HEARD, AGAIN])
    assert broker.after(T0, T1) == HEARD_LEADERS
    assert broker.forgotten == 1


def test_brokers_that_keep_silent_are_not_awaited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, None)
    with pytest.raises(ConnectionFailedError):
        broker.after(T0, T1)
    assert 10 <= broker.now_s <= 16, "10 s after the first try, and the last one"


FOLLOWER = ReplicatedPartition(T0, 1, 5, (1, 2), (1,))
STORAGE_ERROR = LogDirsQuery(ends={T0: ErrorCode.KAFKA_STORAGE_ERROR})


@for_each(
    "why, placed, broker, survey, lag",
    [
        ("its broker is not registered", FOLLOWER, None, LogDirsQuery(), 5),
        ("its broker is fenced", FOLLOWER, BrokerDescription(2, {}, is_fenced=True), LogDirsQuery(), 5),
        ("its broker can't be reached from here: no answer", FOLLOWER,
         BrokerDescription(2, {}, failure=ConnectionFailedError("no answer")), LogDirsQuery(), 5),
        ("its broker does not serve it: the disk has failed", FOLLOWER, ALIVE := BrokerDescription(2, {}),
         STORAGE_ERROR, None),
        ("its broker does not serve it: the disk has failed", replace(FOLLOWER, offline=(2,)), ALIVE,
         LogDirsQuery(), None),
        ("its disk has failed: /a, /b", FOLLOWER, ALIVE, replace(STORAGE_ERROR, failed_dirs=["/a", "/b"]), None),
        (f"its broker does not serve it: {ErrorCode.NOT_LEADER_OR_FOLLOWER.text}", FOLLOWER, ALIVE,
         LogDirsQuery(ends={T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}), None),
        ("there is no leader", replace(FOLLOWER, leader=-1), ALIVE, LogDirsQuery(), 5),
        ("how far it has copied is not known", FOLLOWER, ALIVE, LogDirsQuery(), None),
        ("it is being added, and has 5,000 records to copy", replace(FOLLOWER, adding=(2,)), ALIVE, LogDirsQuery(),
         5000),
        ("it lags by 5 records", FOLLOWER, ALIVE, LogDirsQuery(), 5),
        ("it has caught up", replace(FOLLOWER, adding=(2,)), ALIVE, LogDirsQuery(), 0),
    ],
)  # fmt: skip
def test_why_a_replica_is_not_in_sync(
    why: str, placed: ReplicatedPartition, broker: BrokerDescription | None, survey: LogDirsQuery, lag: int | None
) -> None:
    """What is worse comes first. Other brokers, such as the leader's, say nothing of it."""
    brokers = [BrokerDescription(1, {}, is_fenced=True), *([broker] if broker is not None else [])]
    found = _why_out_of_sync(ClusterDescription("id", -1, brokers), placed, 2, survey, lag)
    assert found.startswith(why)
