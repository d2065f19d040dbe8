"""What ZooKeeper's nodes say of a cluster, as a broker would say it in an answer to Metadata."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import AccessError
from core.protocol.schema.metadata import MetadataResponseTopic
from core.zookeeper.cluster_view import ClusterView
from core.zookeeper.znodes import BrokerEndpoint, BrokerNode, PartitionStateNode, TopicNode, Uuid
from tests.support.fake_zookeeper import FakeZooKeeper

TOPIC_ID = Uuid(range(16))

done = asyncio.run


def broker(port: int, rack: str | None = None) -> bytes:
    endpoints = (
        BrokerEndpoint("SAFE", "h", port + 1, "SSL"),
        BrokerEndpoint("PLAIN", "h", port),
        BrokerEndpoint("IN", "h", 1),
    )
    return BrokerNode(endpoints, 0, rack=rack).encode()


def set_state(zookeeper: FakeZooKeeper, number: int, leader: int, epoch: int, *isr: int) -> None:
    state = PartitionStateNode(leader, epoch, isr, controller_epoch=1)
    zookeeper.set(f"/brokers/topics/t/partitions/{number}/state", state.encode())


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    zookeeper = FakeZooKeeper()
    zookeeper.set("/brokers/ids/1", broker(9092, "r1"))
    zookeeper.set("/brokers/ids/2", broker(9192))
    zookeeper.set("/brokers/topics/t", TopicNode({0: (1, 2), 1: (2, 3)}, TOPIC_ID).encode())
    set_state(zookeeper, 0, 1, 5, 1, 2)
    set_state(zookeeper, 1, 2, 6, 2)
    return zookeeper


def view_of(zookeeper: FakeZooKeeper, **how: Any) -> ClusterView:
    return ClusterView(cast("Any", zookeeper.session()), **how)


def ask(view: ClusterView, topic: str = "t") -> MetadataResponseTopic:
    (found,) = done(view.metadata([topic])).topics
    return found


def leaders(topic: MetadataResponseTopic) -> list[tuple[int, int, int]]:
    return [(one.partition_index, one.leader_id, one.leader_epoch) for one in topic.partitions]


def test_an_answer_has_brokers_topics_and_leaders(zookeeper: FakeZooKeeper) -> None:
    view = view_of(zookeeper)
    done(view.follow_brokers())
    answer = done(view.metadata(["t"]))
    assert [(one.node_id, one.host, one.port, one.rack) for one in answer.brokers] == [
        (1, "h", 9092, "r1"),
        (2, "h", 9192, None),
    ]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, "t", TOPIC_ID, False)
    assert leaders(topic) == [(0, 1, 5), (1, 2, 6)]
    assert [(one.replica_nodes, one.isr_nodes, one.offline_replicas) for one in topic.partitions] == [
        ([1, 2], [1, 2], []),
        ([2, 3], [2], [3]),
    ]
    assert view.addresses == [("h", 9092), ("h", 9192)]


def test_brokers_are_named_by_the_listener_of_the_protocol(zookeeper: FakeZooKeeper) -> None:
    view = view_of(zookeeper, security_protocol="SSL")
    done(view.follow_brokers())
    assert view.addresses == [("h", 9093), ("h", 9193)]
    with pytest.raises(AccessError, match="the brokers have no listener of SASL_SSL, only of PLAINTEXT, SSL"):
        done(view_of(zookeeper, security_protocol="SASL_SSL").follow_brokers())


def test_without_brokers_it_says_so() -> None:
    with pytest.raises(AccessError, match="no broker is registered in ZooKeeper"):
        done(view_of(FakeZooKeeper()).follow_brokers())


async def test_news_come_by_watches(zookeeper: FakeZooKeeper) -> None:
    news = 0

    def note() -> None:
        nonlocal news
        news += 1

    view = view_of(zookeeper)
    view.on_news.append(note)
    await view.follow_brokers()
    addresses = view.addresses
    await view.metadata(["t", "later"])
    before = news
    set_state(zookeeper, 0, 2, 6, 2)
    zookeeper.set("/brokers/topics/t", TopicNode({0: (1, 2), 1: (2, 3), 2: (2,)}, TOPIC_ID).encode())
    zookeeper.set("/brokers/topics/later", TopicNode({0: (1,)}, None).encode())
    assert news == before + 2, "of leaders there is no news: who asks gets them"
    topic, later = (await view.metadata(["t", "later"])).topics
    assert leaders(topic) == [(0, 2, 6), (1, 2, 6), (2, -1, -1)]
    assert topic.partitions[2].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (later.error_code, later.topic_id) == (0, bytes(16))

    zookeeper.delete("/brokers/ids/2")
    await asyncio.sleep(0)
    zookeeper.set("/brokers/ids/3", broker(9292))
    await asyncio.sleep(0)
    assert addresses == [("h", 9092), ("h", 9292)]
    (topic,) = (await view.metadata(["t"])).topics
    assert leaders(topic) == [(0, -1, 6), (1, -1, 6), (2, -1, -1)], "a leader that is gone leads nothing"

    zookeeper.delete("/brokers/topics/t")
    (topic,) = (await view.metadata(["t"])).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_topics_that_are_not_there(zookeeper: FakeZooKeeper, topic: str, code: ErrorCode) -> None:
    view = view_of(zookeeper)
    done(view.follow_brokers())
    assert ask(view, topic).error_code == code


def test_nodes_that_cannot_be_read_are_left_out_with_a_warning(
    zookeeper: FakeZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper.set("/brokers/ids/2", b"{")
    zookeeper.set("/brokers/ids/x", broker(1))
    zookeeper.set("/brokers/topics/t/partitions/0/state", b"[]")
    view = view_of(zookeeper)
    with caplog.at_level(logging.WARNING):
        done(view.follow_brokers())
        assert leaders(ask(view)) == [(0, -1, -1), (1, -1, 6)]
        zookeeper.set("/brokers/topics/t", b"{")
        assert len(ask(view).partitions) == 2, "what was known stays"
    assert view.addresses == [("h", 9092)]
    assert len(caplog.messages) == 4
    assert all("ZooKeeper node /brokers/" in said and said.endswith("it is left out") for said in caplog.messages)
