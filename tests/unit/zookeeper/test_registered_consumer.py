"""A consumer that divides partitions with others through ZooKeeper, one request after the other.

`tests/property/test_registered_consumers_model.py` has several at once, at random; `tests/interop` has Kafka's own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, cast

import pytest

from core.common.errors import MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.zookeeper.cluster_view import ClusterView
from core.zookeeper.group_registry import WHITE_LIST, ConsumerNode
from core.zookeeper.registered_consumer import ConsumerState, RegisteredConsumer
from core.zookeeper.zookeeper_transaction import Create, Refusal, ZooKeeperError
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.support.manual_clock import ManualClock

T = ConsumerNode({"t": 1})

done = asyncio.run


def tps(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def set_partitions(zookeeper: FakeZooKeeper, topic: str, partitions: int) -> None:
    node = {"version": 2, "partitions": {str(number): [1] for number in range(partitions)}}
    zookeeper.set(f"/brokers/topics/{topic}", json.dumps(node).encode())


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    zookeeper = FakeZooKeeper()
    set_partitions(zookeeper, "t", 3)
    return zookeeper


def join(zookeeper: FakeZooKeeper, topics: ConsumerNode = T) -> tuple[RegisteredConsumer, FakeSession]:
    session = zookeeper.session()
    consumer = RegisteredConsumer(cast("Any", session), ClusterView(cast("Any", session)), "g", topics, ManualClock())
    done(consumer.begin())
    return consumer, session


def owning(zookeeper: FakeZooKeeper) -> tuple[RegisteredConsumer, FakeSession]:
    """One that has its share."""
    consumer, session = join(zookeeper)
    done(consumer.advance(is_reading=False))
    return consumer, session


def test_it_registers_and_owns_its_share_in_kafkas_words(zookeeper: FakeZooKeeper) -> None:
    consumer, session = join(zookeeper)
    assert done(consumer.advance(is_reading=False)) == tps(0, 1, 2) == consumer.owned
    (name,) = zookeeper.children("/consumers/g/ids") or []
    assert name.startswith("g_")
    node = zookeeper.nodes[f"/consumers/g/ids/{name}"]
    assert node.stat.ephemeral_owner == session.session_id
    assert json.loads(node.data) == {
        "version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1700000000000"
    }  # fmt: skip
    owner = zookeeper.nodes["/consumers/g/owners/t/2"]
    assert owner.data.decode() == f"{name}-0"
    assert owner.stat.ephemeral_owner == session.session_id


def test_it_stops_reading_before_it_gives_anything_up(zookeeper: FakeZooKeeper) -> None:
    consumer, _ = owning(zookeeper)
    zookeeper.set("/consumers/g/ids/a", ConsumerNode({"t": 2}).encode())
    assert consumer.needs_to_look
    assert done(consumer.advance(is_reading=True)) == frozenset()
    assert len(zookeeper.children("/consumers/g/owners/t") or []) == 3, "it may commit still"
    assert done(consumer.advance(is_reading=False)) == tps(2)
    assert zookeeper.children("/consumers/g/owners/t") == ["2"]


def test_a_share_that_stays_the_same_is_read_on(zookeeper: FakeZooKeeper) -> None:
    consumer, _ = owning(zookeeper)
    set_partitions(zookeeper, "u", 5)
    zookeeper.set("/consumers/g/ids/a", ConsumerNode({"u": 1}).encode())
    assert done(consumer.advance(is_reading=True)) == tps(0, 1, 2)
    assert consumer.state is ConsumerState.OWNING


def test_it_owns_all_of_its_share_or_nothing_and_backs_off(
    zookeeper: FakeZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper.set("/consumers/g/owners/t/1", b"somebody-0")
    consumer, _ = join(zookeeper)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert done(consumer.advance(is_reading=False)) == frozenset()
            assert zookeeper.children("/consumers/g/owners/t") == ["1"]
            assert consumer.needs_to_look
            assert consumer.next_try_ms > ManualClock().monotonic_ms()
    (said,) = caplog.messages
    assert said.startswith("/consumers/g/owners/t/1 still names 'somebody-0' as the owner")
    assert "no session keeps that node: delete it" in said
    zookeeper.delete("/consumers/g/owners/t/1")
    assert done(consumer.advance(is_reading=False)) == tps(0, 1, 2)


def test_a_thousand_partitions_are_owned_in_several_transactions_and_given_up_if_one_fails(
    zookeeper: FakeZooKeeper,
) -> None:
    set_partitions(zookeeper, "t", 1200)
    zookeeper.set("/consumers/g/owners/t/1199", b"somebody-0")
    consumer, _ = join(zookeeper)
    assert done(consumer.advance(is_reading=False)) == frozenset()
    assert zookeeper.children("/consumers/g/owners/t") == ["1199"]
    zookeeper.delete("/consumers/g/owners/t/1199")
    assert done(consumer.advance(is_reading=False)) == tps(*range(1200))
    assert done(consumer.commit(dict.fromkeys(tps(*range(1200)), 7)))
    assert done(consumer.find_offsets(sorted(tps(*range(1200))))) == dict.fromkeys(tps(*range(1200)), 7)


def test_who_comes_while_it_looks_is_news(zookeeper: FakeZooKeeper) -> None:
    consumer, session = owning(zookeeper)
    consumer.needs_to_look = True
    session.meanwhile += [  # before the ids' data are read, of which it has the names by then
        lambda: None,
        lambda: zookeeper.set("/consumers/g/ids/a", T.encode()),
    ]
    assert done(consumer.advance(is_reading=True)) == tps(0, 1, 2)
    assert consumer.needs_to_look
    assert done(consumer.advance(is_reading=True)) == frozenset()


def test_consumers_that_cannot_be_read_are_left_out_and_named_once(
    zookeeper: FakeZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper.set("/consumers/g/ids/bad", b'{"version":1,')
    consumer, _ = join(zookeeper)
    with caplog.at_level(logging.WARNING):
        assert done(consumer.advance(is_reading=False)) == tps(0, 1, 2)
        done(consumer.advance(is_reading=True))
    (said,) = caplog.messages
    assert "/consumers/g/ids/bad" in said
    assert said.endswith("that consumer is left out")


def test_a_pattern_takes_topics_that_come_later(zookeeper: FakeZooKeeper) -> None:
    consumer, _ = join(zookeeper, ConsumerNode({"t|u.*": 1}, pattern=WHITE_LIST))
    assert done(consumer.advance(is_reading=False)) == tps(0, 1, 2)
    set_partitions(zookeeper, "u2", 1)
    assert consumer.needs_to_look
    assert done(consumer.advance(is_reading=True)) == frozenset()
    assert done(consumer.advance(is_reading=False)) == tps(0, 1, 2) | tps(0, topic="u2")


def test_a_topic_that_is_not_there_is_waited_for(zookeeper: FakeZooKeeper) -> None:
    consumer, _ = join(zookeeper, ConsumerNode({"later": 1}))
    assert done(consumer.advance(is_reading=False)) == frozenset()
    assert consumer.state is ConsumerState.OWNING
    set_partitions(zookeeper, "later", 1)
    assert done(consumer.advance(is_reading=False)) == tps(0, topic="later")


def test_after_an_expiry_it_is_out_commits_nothing_and_joins_under_another_name(zookeeper: FakeZooKeeper) -> None:
    consumer, session = owning(zookeeper)
    before = zookeeper.children("/consumers/g/ids")
    session.expire()
    assert not done(consumer.commit({TopicPartition("t", 0): 9})), "although it has not heard of it"
    session.hear()
    assert (consumer.state, consumer.owned) == (ConsumerState.OUT, frozenset())
    assert "/consumers/g/offsets/t/0" not in zookeeper.nodes
    assert done(consumer.advance(is_reading=True)) == frozenset()
    assert done(consumer.advance(is_reading=False)) == tps(0, 1, 2)
    after = zookeeper.children("/consumers/g/ids") or []
    assert len(after) == 1
    assert after != before


def test_a_stale_owner_does_not_delete_the_node_of_the_next_one(zookeeper: FakeZooKeeper) -> None:
    consumer, session = owning(zookeeper)

    def be_replaced() -> None:
        session.expire()
        zookeeper.set("/consumers/g/owners/t/0", b"other-0")

    session.meanwhile += [lambda: None, be_replaced]  # after it has seen that the nodes are its own
    with pytest.raises(ZooKeeperError, match=r"/consumers/g/ids/.* does not exist"):
        done(consumer.leave())
    assert zookeeper.children("/consumers/g/owners/t") == ["0"]


def test_offsets_that_are_none_are_refused_or_begin_anywhere(zookeeper: FakeZooKeeper) -> None:
    consumer, _ = join(zookeeper)
    zookeeper.set("/consumers/g/offsets/t/0", b"-1")
    zookeeper.set("/consumers/g/offsets/t/2", b"5")
    assert done(consumer.find_offsets(sorted(tps(0, 1, 2)))) == {TopicPartition("t", 2): 5}
    zookeeper.set("/consumers/g/offsets/t/1", b"5 o'clock")
    with pytest.raises(MalformedMessageError, match=r"/consumers/g/offsets/t/1: .* is no offset, expected a number"):
        done(consumer.find_offsets(sorted(tps(0, 1, 2))))


def test_an_offset_that_somebody_else_made_or_deleted_is_written_at_the_next_try(zookeeper: FakeZooKeeper) -> None:
    consumer, _ = owning(zookeeper)
    partition = TopicPartition("t", 0)
    zookeeper.set("/consumers/g/offsets/t/0", b"5")
    assert not done(consumer.commit({partition: 8}))
    assert done(consumer.commit({partition: 8}))
    zookeeper.delete("/consumers/g/offsets/t/0")
    assert not done(consumer.commit({partition: 9}))
    assert done(consumer.commit({partition: 9}))
    assert zookeeper.nodes["/consumers/g/offsets/t/0"].data == b"9"


def test_what_is_not_permitted_is_raised(zookeeper: FakeZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, session = join(zookeeper)

    async def refuse(operations: list[Create]) -> None:
        raise ZooKeeperError(Refusal.NO_AUTH, operations[0].path)

    monkeypatch.setattr(session, "commit", refuse)
    with pytest.raises(ZooKeeperError, match="our login may not read or change /consumers/g/ids/"):
        done(consumer.advance(is_reading=False))
    assert consumer.needs_to_look


def test_leaving_takes_all_nodes_away_but_the_offsets(zookeeper: FakeZooKeeper) -> None:
    consumer, _ = owning(zookeeper)
    assert done(consumer.commit({TopicPartition("t", 1): 4}))
    done(consumer.leave())
    assert zookeeper.children("/consumers/g/ids") == []
    assert zookeeper.children("/consumers/g/owners/t") == []
    assert zookeeper.nodes["/consumers/g/offsets/t/1"].data == b"4"
