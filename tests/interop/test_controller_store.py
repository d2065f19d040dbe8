"""What a controller writes down in a real Apache ZooKeeper: fenced, in pieces, with answers that get lost, beside what
others have left there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from core.cluster.controller_context import unwritten_state
from core.cluster.controller_writes import (
    NOT_WRITTEN,
    AssignmentWrite,
    DeletionWrite,
    ProducerIdWrite,
    StateWrite,
    TopicRemoval,
    Write,
)
from core.cluster.partition_state import PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.zookeeper.controller_store import ControllerStore, OutOfOfficeError
from core.zookeeper.session import ZooKeeperSession
from core.zookeeper.transaction import Create, Operation, SetData
from core.zookeeper.znodes import CONTROLLER_EPOCH, LOG_DIR_EVENT_PREFIX, PERSISTENT_PATHS, PRODUCER_ID_BLOCK
from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper
from tests.support.zookeeper_sessions import Fault, session_of

pytestmark = [requires_zookeeper, pytest.mark.java]

EPOCH = 5
ID = bytes(range(16))
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
T0 = TopicPartition("t", 0)


async def store_of(session: ZooKeeperSession) -> ControllerStore:
    """That of a controller in office, in a cluster of which nothing is there yet."""
    await session.ensure_paths([*PERSISTENT_PATHS, "/brokers/ids", PRODUCER_ID_BLOCK])
    await session.commit([Create(CONTROLLER_EPOCH, b"%d" % EPOCH)])
    return ControllerStore(session, EPOCH, 0)


async def tree(session: ZooKeeperSession, *roots: str) -> dict[str, Any]:
    """Reads all nodes below these, by path."""
    found: dict[str, Any] = {}
    for path in roots:
        node = await session.read(path)
        if node is not None:
            found[path] = json.loads(node.data) if node.data[:1] == b"{" else node.data
            below = [f"{path}/{name}" for name in await session.children(path) or []]
            found.update(await tree(session, *below))
    return found


def led(leader: int = 1, isr: Sequence[int] = (1, 2), version: int = NOT_WRITTEN, epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, tuple(isr), (1, 2), version)


def assignment(
    partitions: int = 1, version: int = NOT_WRITTEN, configs: Mapping[str, str] = {}, topic: str = "t"
) -> AssignmentWrite:
    return AssignmentWrite(topic, ID, {n: unwritten_state((1, 2)) for n in range(partitions)}, version, configs)


STATE = {"version": 1, "controller_epoch": EPOCH, "leader": 1, "leader_epoch": 0, "isr": [1, 2]}
ASSIGNED = {
    "version": 3,
    "partitions": {"0": [1, 2]},
    "topic_id": ID_TEXT,
    "adding_replicas": {},
    "removing_replicas": {},
}
FIRST: list[Write] = [assignment(configs={"retention.ms": "5"}), StateWrite(T0, led())]
LOOKED_AT = ("/brokers/topics", "/config/topics", "/admin/delete_topics", PRODUCER_ID_BLOCK)


async def looked_at(session: ZooKeeperSession) -> dict[str, Any]:
    found = await tree(session, *LOOKED_AT)
    return {path: data for path, data in found.items() if data != b"" or path.count("/") > 2}


# --- the fence


@pytest.mark.parametrize(
    "write",
    [
        assignment(topic="new"),
        StateWrite(T0, led(2, version=0, epoch=1)),
        assignment(2, version=0),
        DeletionWrite("t"),
        TopicRemoval("t"),
        ProducerIdWrite(1, range(1000, 2000), 0),
    ],
    ids=lambda write: type(write).__name__,
)
async def test_an_earlier_controller_writes_nothing(zookeeper: ZooKeeperServer, chroot: str, write: Write) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        await store.commit(FIRST)
        await session.commit([SetData(CONTROLLER_EPOCH, b"6")])
        before = await looked_at(session)
        with pytest.raises(OutOfOfficeError, match="/controller_epoch"):
            await store.commit([write])
        assert await looked_at(session) == before


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_what_is_lost_is_found_out(zookeeper: ZooKeeperServer, chroot: str, fault: Fault | None) -> None:
    """Each transaction of a topic's life in turn loses its answer, done or not done: in the end all is as without that,
    and each was done once, as the versions say.
    """
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        life: list[tuple[list[Write], list[int]]] = [
            ([assignment(configs={"retention.ms": "5"})], [0]),
            ([StateWrite(T0, led())], [0]),
            ([StateWrite(T0, led(2, (2,), 0, 1))], [1]),
            ([assignment(2, version=0)], [1]),
            ([ProducerIdWrite(1, range(1000), 0)], [1]),
            ([ProducerIdWrite(2, range(1000, 2000), 1)], [2]),
            ([DeletionWrite("t")], [0]),
        ]
        for writes, versions in life:
            session.faults.append(fault)
            assert await store.commit(writes) == versions
        assert await looked_at(session) == {
            "/brokers/topics/t": {**ASSIGNED, "partitions": {"0": [1, 2], "1": [1, 2]}},
            "/brokers/topics/t/partitions": b"",
            "/brokers/topics/t/partitions/0": b"",
            "/brokers/topics/t/partitions/0/state": {**STATE, "leader": 2, "leader_epoch": 1, "isr": [2]},
            "/config/topics/t": {"version": 1, "config": {"retention.ms": "5"}},
            "/admin/delete_topics/t": b"",
            PRODUCER_ID_BLOCK: {"version": 1, "broker": 2, "block_start": "1000", "block_end": "1999"},
        }
        session.faults.append(fault)
        await store.commit([TopicRemoval("t")])
        assert list(await looked_at(session)) == [PRODUCER_ID_BLOCK]


async def test_a_write_that_was_not_done_does_not_look_done(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """The settings of an earlier topic are there, and are as those of the new one: that says nothing of the rest."""
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        await session.commit([Create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')])
        session.faults.append(Fault.NOT_DONE)
        assert await store.commit(FIRST[:1]) == [0]
        assert (await looked_at(session))["/brokers/topics/t"] == ASSIGNED


async def test_a_lost_answer_to_an_earlier_controller_is_none(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """The same state is written by the next controller before it looks: what it finds is not its own."""
    async with session_of(zookeeper.config(chroot)) as session, session_of(zookeeper.config(chroot)) as other:
        store = await store_of(session)
        await store.commit(FIRST)

        async def next_controller() -> None:
            await other.commit([SetData(CONTROLLER_EPOCH, b"6")])
            await ControllerStore(other, 6, 1).commit([StateWrite(T0, led(2, (2,), 0, 1))])

        session.faults.append(Fault.NOT_DONE)
        session.before_loss = next_controller
        with pytest.raises(OutOfOfficeError):
            await store.commit([StateWrite(T0, led(2, (2,), 0, 1))])


# --- what is there already, or is missing


@pytest.mark.parametrize(
    ("there", "write"),
    [
        ([], StateWrite(T0, led(version=0))),
        ([], StateWrite(T0, led())),
        ([Create("/brokers/topics/t")], assignment()),
        ([], assignment(version=0)),
        ([], ProducerIdWrite(1, range(1000), 3)),
    ],
)
async def test_things_are_not_as_it_knows_them(
    zookeeper: ZooKeeperServer, chroot: str, there: list[Operation], write: Write
) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        if there:
            await session.commit(there)
        with pytest.raises(OutOfOfficeError):
            await store.commit([write])


async def test_leftovers_of_an_earlier_topic_do_no_harm(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        await session.commit(
            [
                Create("/config/topics/t", b'{"version":1,"config":{"cleanup.policy":"compact"}}'),
                Create("/admin/delete_topics/t"),
            ]
        )
        assert await store.commit([FIRST[0], DeletionWrite("t")]) == [0, 0]
        found = await looked_at(session)
        assert found["/config/topics/t"] == {"version": 1, "config": {"retention.ms": "5"}}


async def test_all_of_a_topic_is_removed_also_what_nobody_knew(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        await store.commit([*FIRST, DeletionWrite("t")])
        below = "/brokers/topics/t/partitions"
        await session.commit([Create(f"{below}/7"), Create(f"{below}/7/state", b"x"), Create("/brokers/topics/t/odd")])
        await store.commit([TopicRemoval("t"), TopicRemoval("never")])
        assert await looked_at(session) == {}


# --- much


async def test_many_writes_go_in_pieces_each_of_them_fenced(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        await store.commit([assignment(1000)])
        session.committed.clear()
        states = [StateWrite(TopicPartition("t", number), led()) for number in range(1000)]
        assert await store.commit(states) == [0] * 1000
        for operations in session.committed:
            assert operations[0].path == CONTROLLER_EPOCH
            assert len(operations) <= 101
        session.faults.extend([None, Fault.DONE, None, Fault.NOT_DONE])
        again = [write._replace(state=led(2, (2,), 0, 1)) for write in states]
        assert await store.commit(again) == [1] * 1000
        await store.commit([DeletionWrite("t")])
        session.committed.clear()
        await store.commit([TopicRemoval("t")])
        assert await looked_at(session) == {}
        assert max(map(len, session.committed)) <= 101
        assert session.committed[-1][-1].path == "/admin/delete_topics/t"


@pytest.mark.parametrize("write", [assignment(configs={"x": "y" * 1_100_000}), assignment(75_000)])
async def test_what_zookeeper_does_not_take_is_refused(zookeeper: ZooKeeperServer, chroot: str, write: Write) -> None:
    """ZooKeeper would close the connection whenever it is asked, and the controller would ask for ever."""
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        with pytest.raises(KafkaError, match="ZooKeeper takes no more than") as refused:
            await store.commit([assignment(topic="small"), write])
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert await looked_at(session) == {}
        await store.commit([assignment(configs={"x": "y" * 990_000}), *[StateWrite(T0, led())]])
        await store.commit([assignment(20_000, topic="large")])
        assert len((await looked_at(session))["/brokers/topics/large"]["partitions"]) == 20_000


# --- what is garbled


GOOD_STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'


async def test_a_state_says_which_lives_are_in_sync(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Those that its controller knew; if Kafka's wrote it, those that had begun by then."""
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        await store.commit([assignment(2), StateWrite(T0, led(), {1: 2**40, 2: -1})])
        path = "/brokers/topics/t/partitions/0/state"
        node = await session.read(path)
        assert node is not None
        assert json.loads(node.data) == {**STATE, "plog_isr_epochs": {"1": 2**40, "2": -1}}
        assert (await store.read_topics(["t"])).confirmed == {T0: {1: 2**40, 2: -1}}

        await session.commit([SetData(path, json.dumps(STATE).encode())])
        node = await session.read(path)
        assert node is not None
        assert node.stat.mzxid > node.stat.czxid
        assert (await store.read_topics(["t"])).confirmed == {T0: dict.fromkeys((1, 2), node.stat.mzxid)}


@pytest.mark.parametrize(
    ("topic", "state"),
    [
        (b"", GOOD_STATE),
        (b"{}", GOOD_STATE),
        (b'{"version":3,"partitions":{},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}', GOOD_STATE),
        (b'{"version":3,"partitions":{"0":[]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}', GOOD_STATE),
        (b'{"version":3,"partitions":{"0":[1,1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}', GOOD_STATE),
        (b'{"version":3,"partitions":{"x":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}', GOOD_STATE),
        (b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}', GOOD_STATE),
        (b'{"version":3,"partitions":{"0":[1],"1":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}', b""),
        (b'{"version":3,"partitions":{"0":[1],"1":[1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw"}', b'{"leader":1}'),
    ],
)
async def test_a_topic_that_is_garbled_is_left_alone(
    zookeeper: ZooKeeperServer, chroot: str, topic: bytes, state: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """As a whole: its assignment would be written without the partition that can't be understood."""
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        await store.commit([assignment(topic="good")])
        base = "/brokers/topics/bad/partitions"
        await session.commit(
            [
                Create("/brokers/topics/bad", topic),
                *[Create(path) for path in (base, f"{base}/0", f"{base}/1")],
                Create(f"{base}/0/state", state),
                Create(f"{base}/1/state", GOOD_STATE),
            ]
        )
        with caplog.at_level(logging.ERROR):
            found = await store.read_topics(["bad", "good"])
        assert list(found.topics) == ["good"]
        assert found.unreadable == {"bad"}
        assert {partition.topic for partition in found.confirmed} <= {"good"}
        assert any("topic bad is passed over" in record.getMessage() for record in caplog.records)


async def test_brokers_that_are_garbled_are_passed_over(
    zookeeper: ZooKeeperServer, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = (
        b'{"listener_security_protocol_map":{"CLIENT":"PLAINTEXT"},"endpoints":["CLIENT://h:9"],"rack":"r",'
        b'"features":{},"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"1"}'
    )

    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        nodes = {"1": broker, "2": b"?", "x": broker, "3": broker.replace(b"CLIENT://", b"OTHER://")}
        await session.commit([Create(f"/brokers/ids/{name}", data) for name, data in nodes.items()])
        with caplog.at_level(logging.ERROR):
            found = await store.read_brokers()
        assert list(found) == [1]
        assert found[1].registration.rack == "r"
        assert len(caplog.records) == 3


async def test_news_of_disks_are_taken_once(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        for data in (b'{"version":1,"broker":2,"event":1}', b"?", b'{"version":1,"broker":2,"event":1}'):
            await session.commit([Create(LOG_DIR_EVENT_PREFIX, data, is_sequential=True)])
        session.faults.extend([Fault.DONE, Fault.NOT_DONE])
        assert await store.take_disk_events() == [2]
        assert await store.take_disk_events() == []


async def test_producer_ids_go_on_from_the_last_block(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        store = await store_of(session)
        assert await store.read_producer_ids() == (0, 0)
        await session.commit(
            [SetData(PRODUCER_ID_BLOCK, b'{"version":1,"broker":3,"block_start":"7000","block_end":"7999"}')]
        )
        assert await store.read_producer_ids() == (8000, 1)
        await session.commit([SetData(PRODUCER_ID_BLOCK, b"?")])
        with pytest.raises(MalformedMessageError, match=PRODUCER_ID_BLOCK):
            await store.read_producer_ids()
