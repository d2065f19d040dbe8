"""What a controller writes down, at a model of ZooKeeper that loses requests and answers; `tests/interop` has a real
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from core.cluster.controller_context import unwritten_state
from core.cluster.controller_writes import (
    NOT_WRITTEN,
    AssignmentWrite,
    DeletionWrite,
    FeatureWrite,
    ProducerIdWrite,
    StateWrite,
    TopicRemoval,
    Write,
)
from core.cluster.partition_state import PartitionState
from core.common.topic_partition import TopicPartition
from core.zookeeper.controller_store import ControllerStore, OutOfOfficeError
from core.zookeeper.transaction import Check, Delete, Node
from core.zookeeper.znodes import (
    CONTROLLER_EPOCH,
    LOG_DIR_EVENTS,
    PERSISTENT_PATHS,
    PRODUCER_ID_BLOCK,
    BrokerEndpoint,
    BrokerNode,
    encode_log_dir_event,
)
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.support.for_each import for_each

ID = bytes(range(16))
T0 = TopicPartition("t", 0)
WISH = "/admin/delete_topics/t"


def led(leader: int = 1, version: int = NOT_WRITTEN, epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, (1, 2), (1, 2), version)


def assignment(partitions: int = 1, version: int = NOT_WRITTEN, configs: Mapping[str, str] = {}) -> AssignmentWrite:
    return AssignmentWrite("t", ID, {n: unwritten_state((1, 2)) for n in range(partitions)}, version, configs)


FIRST: list[Write] = [assignment(configs={"retention.ms": "5"}), StateWrite(T0, led())]


class Office:
    """The controller of epoch 5, with what it has written down first."""

    def __init__(self, *first: Write) -> None:
        self.zookeeper = FakeZooKeeper()
        self.session: FakeSession = self.zookeeper.session()
        self.store = ControllerStore(cast("Any", self.session), 5, 1)
        self._first = first

    async def begin(self) -> None:
        await self.session.ensure_paths([*PERSISTENT_PATHS, PRODUCER_ID_BLOCK])
        self.zookeeper.set(CONTROLLER_EPOCH, b"4")
        self.zookeeper.set(CONTROLLER_EPOCH, b"5")
        if self._first:
            await self.store.commit(self._first)
        self.session.committed.clear()

    def nodes(self) -> dict[str, Node]:
        return dict(self.zookeeper.nodes)

    def be_followed(self) -> None:
        """Another controller is elected."""
        self.zookeeper.set(CONTROLLER_EPOCH, b"6")


async def in_office(*first: Write) -> Office:
    office = Office(*first)
    await office.begin()
    return office


@for_each(
    "write",
    [
        AssignmentWrite("new", ID, {0: unwritten_state((1,))}, NOT_WRITTEN),
        StateWrite(T0, led(2, 0, 1)),
        assignment(2, version=0),
        DeletionWrite("t"),
        TopicRemoval("t"),
        ProducerIdWrite(1, range(1000), 0),
        FeatureWrite({"group.version": 1}, NOT_WRITTEN),
    ],
    ids=lambda write: type(write).__name__,
)
async def test_an_earlier_controller_writes_nothing(write: Write) -> None:
    office = await in_office(*FIRST)
    office.be_followed()
    before = office.nodes()
    with pytest.raises(OutOfOfficeError, match="/controller_epoch"):
        await office.store.commit([write])
    assert office.nodes() == before


@for_each("lost", ["", "request", "answer"])
async def test_whatever_is_lost_each_write_is_done_once(lost: str) -> None:
    office = await in_office()
    life: list[tuple[Sequence[Write], list[int]]] = [
        (FIRST, [0, 0]),
        ([StateWrite(T0, led(2, 0, 1))], [1]),
        ([assignment(2, version=0)], [1]),
        ([ProducerIdWrite(1, range(1000), 0)], [1]),
        ([FeatureWrite({"group.version": 1}, NOT_WRITTEN)], [0]),
        ([DeletionWrite("t")], [0]),
    ]
    for writes, versions in life:
        office.session.loses.append(lost)
        assert await office.store.commit(writes) == versions
    assert {path: node.stat.version for path, node in office.nodes().items() if path.endswith("/t")} == {
        "/brokers/topics/t": 1, "/config/topics/t": 0, WISH: 0,
    }  # fmt: skip
    office.session.loses.append(lost)
    await office.store.commit([TopicRemoval("t")])
    assert not [path for path in office.nodes() if "t" in path.split("/")]


async def test_a_part_that_is_as_it_would_make_it_says_nothing_of_the_rest() -> None:
    """The settings of an earlier topic of that name are there, and are the same."""
    office = await in_office()
    office.zookeeper.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    office.session.loses.append("request")
    await office.store.commit(FIRST[:1])
    assert "/brokers/topics/t" in office.nodes()


@for_each("write", [StateWrite(T0, led(2, 0, 1)), assignment(2, version=0), ProducerIdWrite(1, range(1000), 0)])
async def test_what_others_have_written_since_stays(write: Write) -> None:
    office = await in_office(*FIRST)
    for path in (f"/brokers/topics/t/partitions/{T0.partition}/state", "/brokers/topics/t", PRODUCER_ID_BLOCK):
        office.zookeeper.set(path, b"others'")
    before = office.nodes()
    with pytest.raises(OutOfOfficeError, match="was changed by somebody else"):
        await office.store.commit([write])
    assert office.nodes() == before


async def test_the_wish_to_delete_a_topic_is_what_is_removed_last() -> None:
    """In the last of several transactions: whoever becomes the controller in between goes on by it."""
    states = [StateWrite(TopicPartition("t", number), led()) for number in range(80)]
    office = await in_office(assignment(80), *states, DeletionWrite("t"))
    await office.store.commit([TopicRemoval("t")])
    assert len(office.session.committed) > 1
    assert all(isinstance(operations[0], Check) for operations in office.session.committed)
    assert office.session.committed[-1][-1] == Delete(WISH)


async def test_a_topic_of_which_one_partition_is_garbled_is_left_alone_as_a_whole() -> None:
    office = await in_office(assignment(2), *(StateWrite(TopicPartition("t", number), led()) for number in (0, 1)))
    read = await office.store.read_topics(["t"])
    assert list(read.topics["t"].partitions) == [0, 1]
    assert set(read.confirmed) == {TopicPartition("t", 0), TopicPartition("t", 1)}
    office.zookeeper.set("/brokers/topics/t/partitions/0/state", b'{"leader":1}')
    assert await office.store.read_topics(["t"]) == ({}, {}, {"t"})


async def test_a_topic_with_the_id_of_another_one_is_left_alone() -> None:
    """Somebody has copied its node. The one that is known stays, or else the one that was made first."""
    office = await in_office(assignment())
    office.zookeeper.set("/brokers/topics/a", office.nodes()["/brokers/topics/t"].data)
    assert await office.store.read_topics(["a"], {ID: "t"}) == ({}, {}, {"a"})
    found = await office.store.read_topics(["a", "t"])
    assert found.topics.keys() == {"t"}
    assert found.unreadable == {"a"}
    assert (await office.store.read_topics(["t"], {ID: "t"})).topics.keys() == {"t"}


@for_each("name", ["4294967297", "9" * 5000, "x"])
async def test_a_broker_whose_id_is_none_is_passed_over(name: str) -> None:
    office = await in_office()
    data = BrokerNode((BrokerEndpoint("PLAINTEXT", "h", 9092),), 0).encode()
    for broker_id in ("1", name):
        office.zookeeper.set(f"/brokers/ids/{broker_id}", data)
    assert (await office.store.read_brokers()).keys() == {1}


@for_each("below", ["/config/topics/t/x", f"{WISH}/x"])
async def test_what_somebody_made_below_a_topic_goes_with_it(below: str) -> None:
    office = await in_office(*FIRST, DeletionWrite("t"))
    office.zookeeper.set(below, b"")
    await office.store.commit([TopicRemoval("t")])
    assert not [path for path in office.nodes() if "t" in path.split("/")]


async def test_news_of_disks_with_something_below_them_are_taken() -> None:
    office = await in_office()
    office.zookeeper.set(f"{LOG_DIR_EVENTS}/1", encode_log_dir_event(3))
    office.zookeeper.set(f"{LOG_DIR_EVENTS}/1/x", b"")
    assert await office.store.take_disk_events() == [3]
    assert await office.store.take_disk_events() == []
