"""A member that waits for ZooKeeper, if that is away, silent, or answers as it should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.zookeeper.cluster_view import ClusterView
from core.zookeeper.group_registry import ConsumerNode
from core.zookeeper.registered_consumer import RegistryMember
from core.zookeeper.session_thread import NoAnswerError
from core.zookeeper.zookeeper_session import SessionState
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.support.manual_clock import ManualClock

_Result = TypeVar("_Result")
PARTITION = TopicPartition("t", 0)
ALL = frozenset({PARTITION, TopicPartition("t", 1)})


class FakeThread:
    """Does the work at once, or not at all."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.is_silent = False

    def run(self, work: Coroutine[Any, Any, _Result], *, seconds: float = 0) -> _Result:
        if self.is_silent:
            work.close()
            raise NoAnswerError(f"no answer in {seconds:g} s")
        return asyncio.run(work)


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    zookeeper = FakeZooKeeper()
    zookeeper.set("/brokers/topics/t", json.dumps({"version": 2, "partitions": {"0": [1], "1": [1]}}).encode())
    return zookeeper


@pytest.fixture
def thread(zookeeper: FakeZooKeeper) -> FakeThread:
    return FakeThread(zookeeper.session())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def member(thread: FakeThread, clock: ManualClock) -> RegistryMember:
    view = ClusterView(cast("Any", thread.session))
    return RegistryMember(cast("Any", thread), view, "g", ConsumerNode({"t": 1}), clock)


def test_it_owns_commits_and_finds_what_was_committed(member: RegistryMember) -> None:
    assert member.assignment(frozenset()) == ALL == member.assignment(ALL)
    assert member.commit({PARTITION: 7}) is ErrorCode.NONE
    assert member.find(sorted(ALL)) == {PARTITION: 7}


def test_while_zookeeper_is_away_it_reads_on_and_commits_later(member: RegistryMember, thread: FakeThread) -> None:
    member.assignment(frozenset())
    thread.session.state = SessionState.SUSPENDED
    assert member.assignment(ALL) == ALL
    assert member.commit({PARTITION: 7}) is ErrorCode.REBALANCE_IN_PROGRESS
    assert member.find([PARTITION]) is None
    member.leave()
    thread.session.state = SessionState.CONNECTED
    assert member.commit({PARTITION: 7}) is ErrorCode.NONE


def test_a_zookeeper_that_says_nothing_ends_no_reading(
    zookeeper: FakeZooKeeper, member: RegistryMember, thread: FakeThread
) -> None:
    thread.is_silent = True
    assert member.assignment(frozenset()) == frozenset()
    thread.is_silent = False
    member.assignment(frozenset())
    thread.is_silent = True
    zookeeper.set("/consumers/g/ids/a", ConsumerNode({"t": 1}).encode())
    assert member.assignment(ALL) == ALL
    assert member.commit({PARTITION: 7}) is ErrorCode.REBALANCE_IN_PROGRESS
    assert member.find([PARTITION]) is None
    member.leave()


def test_after_an_expiry_nothing_is_owned_and_nothing_committed(member: RegistryMember, thread: FakeThread) -> None:
    member.assignment(frozenset())
    thread.session.expire()
    thread.session.hear()
    assert member.commit({PARTITION: 7}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.assignment(ALL) == frozenset()
    assert member.assignment(frozenset()) == ALL


def test_it_tries_again_after_the_time_of_backing_off(
    zookeeper: FakeZooKeeper, member: RegistryMember, clock: ManualClock
) -> None:
    zookeeper.set("/consumers/g/owners/t/1", b"other-0")
    assert member.assignment(frozenset()) == frozenset()
    zookeeper.delete("/consumers/g/owners/t/1")
    assert member.assignment(frozenset()) == frozenset()
    clock.advance(500)
    assert member.assignment(frozenset()) == ALL


def test_leaving_gives_everything_up(zookeeper: FakeZooKeeper, member: RegistryMember) -> None:
    member.assignment(frozenset())
    member.leave()
    assert zookeeper.children("/consumers/g/ids") == []
    assert zookeeper.children("/consumers/g/owners/t") == []


def test_a_session_that_will_not_come_back_ends_the_reading(member: RegistryMember, thread: FakeThread) -> None:
    thread.session.state = SessionState.FAILED
    with pytest.raises(AccessError, match="the session with ZooKeeper has ended"):
        member.assignment(frozenset())
