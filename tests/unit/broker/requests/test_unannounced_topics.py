"""A member of a cluster that has not heard of all topics yet says of none that it does not exist.

First what clients hear meanwhile, then when that ends: the controller is the test, and ZooKeeper its model.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

import pytest

from core.broker.requests import unannounced_topics
from core.broker.requests.unannounced_topics import UnannouncedTopics
from core.cluster.image.cluster_member_metadata import ClusterMemberMetadata, NotInformedError
from core.common.error_code import ErrorCode
from core.protocol.message import Api
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.schema.control_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema.topic_changes import (
    DELETE_RECORDS,
    DELETE_TOPICS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from core.protocol.schema.transactions import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from core.zookeeper.znodes import PartitionStateNode, TopicNode, Uuid
from core.zookeeper.zookeeper_session import ZooKeeperSession
from tests.support.broker import ask
from tests.support.fake_entry import FakeEntry
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.logs import make_batch
from tests.support.member import ANOTHER_ID, OTHER, US, Member

UNTOLD = "untold"
T = TypeVar("T")


def codes_in(answer: Any) -> set[int]:
    """All error codes but 0, however deep, also those whose fields have names of their own."""
    return {int(code) for code in re.findall(r"error_code=(-?\d+)", repr(answer))} - {0}


def metadata_of(name: str | None, topic_id: bytes = bytes(16)) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(topic_id, name)], allow_auto_topic_creation=False)


RECORDS = PartitionProduceData(0, make_batch(b"v").buffer)
WANTED = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
BY_NAME, BY_ID = 12, 13
HELD_OFF: list[tuple[Api[Any, Any], Any, int | None]] = [
    (METADATA, metadata_of(UNTOLD), None),
    (METADATA, metadata_of(None, ANOTHER_ID), None),
    (DESCRIBE_CONFIGS, DescribeConfigsRequest([DescribeConfigsResource(2, UNTOLD)]), None),
    (DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState(UNTOLD)]), None),
    (
        ADD_PARTITIONS_TO_TXN,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id", v3_and_below_topics=[AddPartitionsToTxnTopic(UNTOLD, [0])]
        ),
        3,
    ),
]
ASK_AGAIN: list[tuple[Api[Any, Any], Any, int | None]] = [
    (PRODUCE, ProduceRequest(acks=1, topic_data=[TopicProduceData(UNTOLD, partition_data=[RECORDS])]), BY_NAME),
    (PRODUCE, ProduceRequest(acks=1, topic_data=[TopicProduceData("", ANOTHER_ID, [RECORDS])]), BY_ID),
    (FETCH, FetchRequest(topics=[FetchTopic(UNTOLD, partitions=[WANTED])]), BY_NAME),
    (FETCH, FetchRequest(topics=[FetchTopic("", ANOTHER_ID, [WANTED])]), BY_ID),
    (LIST_OFFSETS, ListOffsetsRequest(-1, topics=[ListOffsetsTopic(UNTOLD, [ListOffsetsPartition(0, -1, -1)])]), None),
    (
        OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(UNTOLD, [OffsetForLeaderPartition(0, -1, 0)])]),
        None,
    ),
    (DELETE_RECORDS, DeleteRecordsRequest([DeleteRecordsTopic(UNTOLD, [DeleteRecordsPartition(0, 1)])]), None),
]
UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, {ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize(("api", "asked", "version"), HELD_OFF)
async def test_who_looks_for_a_topic_is_held_off(
    member: Member, api: Api[Any, Any], asked: Any, version: int | None
) -> None:
    member.entry.has_untold_topics = True
    member.update()
    with pytest.raises(NotInformedError):
        ask(member.node, api, asked, version)
    member.node.services.controller.is_informed = True
    assert codes_in(ask(member.node, api, asked, version)) in UNKNOWN


@pytest.mark.parametrize(("api", "asked", "version"), ASK_AGAIN)
async def test_who_asks_a_leader_asks_again(
    member: Member, api: Api[Any, Any], asked: Any, version: int | None
) -> None:
    """The connection stays, as other partitions of the request are led here."""
    member.entry.has_untold_topics = True
    member.update()
    assert codes_in(ask(member.node, api, asked, version)) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    member.node.services.controller.is_informed = True
    assert codes_in(ask(member.node, api, asked, version)) in UNKNOWN


async def test_topics_that_were_told_are_known_meanwhile(member: Member) -> None:
    """But not how many there are, nor a topic that has partitions that were not told."""
    member.entry.has_untold_topics = True
    member.update()
    assert [len(topic.partitions) for topic in ask(member.node, METADATA, metadata_of("t")).topics] == [1]
    with pytest.raises(NotInformedError):
        ask(member.node, METADATA, MetadataRequest(None))
    controller = member.node.services.controller
    assert isinstance(controller, ClusterMemberMetadata)
    controller.note_count("t", 2)
    with pytest.raises(NotInformedError):
        ask(member.node, METADATA, metadata_of("t"))
    controller.is_informed = True
    assert [len(topic.partitions) for topic in ask(member.node, METADATA, MetadataRequest(None)).topics] == [1]


async def test_no_topic_is_made_that_may_be_there(member: Member) -> None:
    member.entry.has_untold_topics = True
    member.update()
    wanted: list[Any] = []
    member.node.services.topics.on_wanted[:] = [lambda topic, _sender: wanted.append(topic)]
    request = MetadataRequest([MetadataRequestTopic(name=UNTOLD)])
    with pytest.raises(NotInformedError):
        ask(member.node, METADATA, request)
    assert not wanted
    member.node.services.controller.is_informed = True
    assert codes_in(ask(member.node, METADATA, request)) == {ErrorCode.LEADER_NOT_AVAILABLE}
    assert [topic.name for topic in wanted] == [UNTOLD]


# --- when all are told


class Cluster:
    """A member's news: ZooKeeper has topics, and the controller tells of some of them."""

    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper()
        self.zookeeper.set("/brokers/topics", b"")
        self.controller = ClusterMemberMetadata(bytes(16), FakeEntry().write_configs)
        self.looks = 0
        session = cast(ZooKeeperSession, self.zookeeper.session())
        self.untold = UnannouncedTopics(session, self.controller, self._read)
        self.tasks: list[asyncio.Task[None]] = []

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        self.looks += 1
        return await read()

    def register(self, epoch: int = 1) -> None:
        self.controller.broker_epoch = epoch
        self.tasks.append(asyncio.create_task(self.untold.wait(epoch)))  # which ends with the test's loop

    def has(self, topic: str, partitions: int = 1, led: Iterable[int] | None = None) -> None:
        node = TopicNode(dict.fromkeys(range(partitions), (US,)), Uuid(topic.encode().ljust(16)))
        self.zookeeper.set(f"/brokers/topics/{topic}", node.encode())
        for number in range(partitions) if led is None else led:
            state = PartitionStateNode(US, 0, (US,), 1).encode()
            self.zookeeper.set(f"/brokers/topics/{topic}/partitions/{number}/state", state)

    def tell(self, *topics: str, partitions: Iterable[int] = (0,)) -> None:
        states = [UpdateMetadataPartitionState("", number, 1, US, 0, [US], 0, [US]) for number in partitions]
        told = [UpdateMetadataTopicState(topic, topic.encode().ljust(16), states) for topic in topics]
        live = [UpdateMetadataBroker(US, endpoints=[UpdateMetadataEndpoint(9000, "127.0.0.1", "PLAINTEXT", 0)])]
        request = UpdateMetadataRequest(OTHER, controller_epoch=1, topic_states=told, live_brokers=live)
        self.controller.take_update(request)

    async def is_informed(self) -> bool:
        """After it has looked again."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.controller.is_informed


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_a_cluster_without_topics_is_known_with_its_brokers(cluster: Cluster) -> None:
    cluster.register()
    assert not await cluster.is_informed()
    assert cluster.looks == 0  # who has heard of nobody has nothing to compare
    cluster.tell()
    assert await cluster.is_informed()


async def test_the_first_news_have_brokers_alone(cluster: Cluster) -> None:
    cluster.has("a")
    cluster.register()
    cluster.tell()
    assert not await cluster.is_informed()
    cluster.tell("a")
    assert await cluster.is_informed()


async def test_many_topics_come_in_pieces(cluster: Cluster) -> None:
    """One of them is cut in two."""
    cluster.has("a")
    cluster.has("b", 3)
    cluster.register()
    cluster.tell("a")
    assert not await cluster.is_informed()
    cluster.controller.note_count("b", 3)
    cluster.tell("b", partitions=[0, 1])
    assert not await cluster.is_informed()
    cluster.tell("b", partitions=[2])
    assert await cluster.is_informed()


async def test_a_topic_that_no_controller_tells_of_is_not_waited_for(cluster: Cluster) -> None:
    """It is being deleted, was never led, or can't be read; of another one some partitions were never led."""
    cluster.has("deleted")
    cluster.zookeeper.set("/admin/delete_topics/deleted", b"")
    cluster.has("unled", 2, led=())
    cluster.zookeeper.set("/brokers/topics/garbled", b"{")
    cluster.has("partly", 3, led=[0, 2])
    cluster.controller.note_count("partly", 3)
    cluster.register()
    cluster.tell("partly")
    assert not await cluster.is_informed()
    cluster.tell("partly", partitions=[0, 2])
    assert await cluster.is_informed()


async def test_a_topic_that_goes_meanwhile_is_not_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells of that."""
    monkeypatch.setattr(unannounced_topics, "_LOOK_AGAIN_SECONDS", 0)
    cluster.has("a")
    cluster.register()
    cluster.tell()
    assert not await cluster.is_informed()
    cluster.zookeeper.delete("/brokers/topics/a")
    assert await cluster.is_informed()


async def test_another_life_has_to_be_told_again(cluster: Cluster) -> None:
    """What came while the broker was away it knows not."""
    cluster.register()
    cluster.tell()
    assert await cluster.is_informed()
    cluster.has("a")
    assert await cluster.is_informed()  # it is news, of which the controller tells as of each change
    cluster.register(2)
    assert not await cluster.is_informed()
    cluster.tell("a")
    assert await cluster.is_informed()


async def test_a_topic_that_is_not_told_for_long_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unannounced_topics, "_LOOK_AGAIN_SECONDS", 0)
    cluster.has("a")
    cluster.register()
    cluster.tell()
    while not caplog.records:
        assert not await cluster.is_informed()
    assert [record.message.partition(",")[0] for record in caplog.records] == ["ZooKeeper has the topic a"]
