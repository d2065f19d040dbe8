"""What a controller writes down in ZooKeeper: fenced, in pieces, with answers that get lost, beside what others have
left there. All of it at a model of ZooKeeper, and in the longer tier at a real one.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from core.cluster.controller.controller_context import unwritten_state
from core.cluster.controller.controller_writes import (
    NOT_WRITTEN,
    AssignmentWrite,
    DeletionWrite,
    FeatureWrite,
    ProducerIdWrite,
    StateWrite,
    TopicRemoval,
    Write,
)
from core.cluster.image.metadata_image import PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.zookeeper.controller_store import ControllerStore, OutOfOfficeError
from core.zookeeper.znodes import CONTROLLER_EPOCH, LOG_DIR_EVENTS, PERSISTENT_PATHS, PRODUCER_ID_BLOCK
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Check, Create, Delete, Operation, Refusal, SetData, ZooKeeperError
from tests.support.for_each import for_each
from tests.support.zookeeper_sessions import Ensemble, Fault, FaultyModel, FaultySession

EPOCH = 5
ID = bytes(range(16))
T0 = TopicPartition("t", 0)
WISH = "/admin/delete_topics/t"
STATE_OF_T0 = "/brokers/topics/t/partitions/0/state"
TOPIC_NODES = ("/brokers/topics", "/config/topics", "/admin/delete_topics")

GOOD_STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
STATE = {"version": 1, "controller_epoch": EPOCH, "leader": 1, "leader_epoch": 0, "isr": [1, 2]}
ASSIGNED = {
    "version": 3,
    "partitions": {"0": [1, 2]},
    "topic_id": "AAECAwQFBgcICQoLDA0ODw",
    "adding_replicas": {},
    "removing_replicas": {},
}


def led(leader: int = 1, isr: Sequence[int] = (1, 2), version: int = NOT_WRITTEN, epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, tuple(isr), (1, 2), version)


def assignment(
    partitions: int = 1, version: int = NOT_WRITTEN, configs: Mapping[str, str] = {}, topic: str = "t"
) -> AssignmentWrite:
    return AssignmentWrite(topic, ID, {n: unwritten_state((1, 2)) for n in range(partitions)}, version, configs)


FIRST: list[Write] = [assignment(configs={"retention.ms": "5"}), StateWrite(T0, led())]


class Office:
    """The controller of epoch 5, in a cluster of which nothing is there yet."""

    def __init__(self, session: FaultySession | FaultyModel) -> None:
        self.session = session
        self.store = ControllerStore(cast("ZooKeeperSession", session), EPOCH, 1)

    async def begin(self, *first: Write) -> None:
        """Writes down what is there before the test."""
        await self.session.ensure_paths([*PERSISTENT_PATHS, "/brokers/ids", PRODUCER_ID_BLOCK])
        await self.session.commit([Create(CONTROLLER_EPOCH, b"4"), SetData(CONTROLLER_EPOCH, b"%d" % EPOCH)])
        await self.store.commit(first)

    async def is_followed(self) -> None:
        """Another controller is elected."""
        await self.session.commit([SetData(CONTROLLER_EPOCH, b"%d" % (EPOCH + 1))])

    def lose(self, lost: str) -> None:
        """Of the next transaction the request or the answer gets lost, or nothing; and so on."""
        self.session.faults.append({"request": Fault.NOT_DONE, "answer": Fault.DONE}.get(lost))

    async def tree(self, *roots: str) -> dict[str, tuple[Any, int]]:
        """Reads what is below these, by path: the data and their version. `""` is the root."""
        found: dict[str, tuple[Any, int]] = {}
        for root in roots:
            for path in [f"{root}/{name}" for name in await self.session.children(root or "/") or []]:
                node = await self.session.read(path)
                assert node is not None, path
                found[path] = json.loads(node.data) if node.data[:1] == b"{" else node.data, node.stat.version
                found |= await self.tree(path)
        return found

    async def topics(self) -> dict[str, Any]:
        return {path: data for path, (data, _) in (await self.tree(*TOPIC_NODES)).items()}


Elect = Callable[..., contextlib.AbstractAsyncContextManager[Office]]


@pytest.fixture
def elect(ensembles: Callable[[], Ensemble]) -> Elect:
    @contextlib.asynccontextmanager
    async def elect_one(*first: Write) -> AsyncIterator[Office]:
        async with ensembles().session() as session:
            office = Office(session)
            await office.begin(*first)
            yield office

    return elect_one


# --- the fence


@for_each(
    "write",
    [
        assignment(topic="new"),
        StateWrite(T0, led(2, version=0, epoch=1)),
        assignment(2, version=0),
        DeletionWrite("t"),
        TopicRemoval("t"),
        ProducerIdWrite(1, range(1000, 2000), 0),
        FeatureWrite({"group.version": 1}, NOT_WRITTEN),
    ],
    ids=lambda write: type(write).__name__,
)
async def test_an_earlier_controller_writes_nothing(elect: Elect, write: Write) -> None:
    async with elect(*FIRST) as office:
        await office.is_followed()
        before = await office.tree("")
        with pytest.raises(OutOfOfficeError, match="/controller_epoch"):
            await office.store.commit([write])
        assert await office.tree("") == before


@for_each("lost", ["", "request", "answer"])
async def test_whatever_is_lost_each_write_is_done_once(elect: Elect, lost: str) -> None:
    """Each transaction of a topic's life in turn: in the end all is as without that, and the versions say how often."""
    async with elect() as office:
        life: list[tuple[list[Write], list[int]]] = [
            (FIRST, [0, 0]),
            ([StateWrite(T0, led(2, (2,), 0, 1))], [1]),
            ([assignment(2, version=0)], [1]),
            ([ProducerIdWrite(1, range(1000), 0)], [1]),
            ([ProducerIdWrite(2, range(1000, 2000), 1)], [2]),
            ([FeatureWrite({"group.version": 1}, NOT_WRITTEN)], [0]),
            ([DeletionWrite("t")], [0]),
        ]
        for writes, versions in life:
            office.lose(lost)
            assert await office.store.commit(writes) == versions
        assert await office.tree(*TOPIC_NODES) == {
            "/brokers/topics/t": ({**ASSIGNED, "partitions": {"0": [1, 2], "1": [1, 2]}}, 1),
            "/brokers/topics/t/partitions": (b"", 0),
            "/brokers/topics/t/partitions/0": (b"", 0),
            STATE_OF_T0: ({**STATE, "leader": 2, "leader_epoch": 1, "isr": [2]}, 1),
            "/config/topics/t": ({"version": 1, "config": {"retention.ms": "5"}}, 0),
            WISH: (b"", 0),
        }
        block = await office.session.read(PRODUCER_ID_BLOCK)
        assert block is not None
        assert json.loads(block.data) == {"version": 1, "broker": 2, "block_start": "1000", "block_end": "1999"}
        office.lose(lost)
        await office.store.commit([TopicRemoval("t")])
        assert await office.topics() == {}


async def test_a_part_that_is_as_it_would_make_it_says_nothing_of_the_rest(elect: Elect) -> None:
    """The settings of an earlier topic of that name are there, and are the same."""
    async with elect() as office:
        await office.session.commit([Create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')])
        office.lose("request")
        assert await office.store.commit(FIRST[:1]) == [0]
        assert (await office.topics())["/brokers/topics/t"] == ASSIGNED


async def test_a_lost_answer_to_an_earlier_controller_is_none(elect: Elect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same state is written by the next controller before it looks: what it finds is not its own."""
    async with elect(*FIRST) as office:
        write = StateWrite(T0, led(2, (2,), 0, 1))

        async def lose_it(operations: Sequence[Operation]) -> None:
            monkeypatch.undo()
            await office.is_followed()
            await ControllerStore(cast("ZooKeeperSession", office.session), EPOCH + 1, 2).commit([write])
            raise ZooKeeperError(Refusal.CONNECTION_LOST, operations[0].path)

        monkeypatch.setattr(office.session, "commit", lose_it)
        with pytest.raises(OutOfOfficeError):
            await office.store.commit([write])


# --- what is there already, or is missing


@for_each(
    "write", [StateWrite(T0, led(2, version=0, epoch=1)), assignment(2, version=0), ProducerIdWrite(1, range(9), 0)]
)
async def test_what_others_have_written_since_stays(elect: Elect, write: Write) -> None:
    async with elect(*FIRST) as office:
        paths = (STATE_OF_T0, "/brokers/topics/t", PRODUCER_ID_BLOCK)
        await office.session.commit([SetData(path, b"others'") for path in paths])
        before = [await office.session.read(path) for path in paths]
        with pytest.raises(OutOfOfficeError, match="was changed by somebody else"):
            await office.store.commit([write])
        assert [await office.session.read(path) for path in paths] == before


@for_each(
    "there, write",
    [
        ([], StateWrite(T0, led(version=0))),
        ([], StateWrite(T0, led())),
        ([Create("/brokers/topics/t")], assignment()),
        ([], assignment(version=0)),
        ([], ProducerIdWrite(1, range(1000), 3)),
    ],
)
async def test_things_are_not_as_it_knows_them(elect: Elect, there: list[Operation], write: Write) -> None:
    async with elect() as office:
        if there:
            await office.session.commit(there)
        with pytest.raises(OutOfOfficeError):
            await office.store.commit([write])


async def test_leftovers_of_an_earlier_topic_do_no_harm(elect: Elect) -> None:
    async with elect() as office:
        config = b'{"version":1,"config":{"cleanup.policy":"compact"}}'
        await office.session.commit([Create("/config/topics/t", config), Create(WISH)])
        assert await office.store.commit([FIRST[0], DeletionWrite("t")]) == [0, 0]
        assert (await office.topics())["/config/topics/t"] == {"version": 1, "config": {"retention.ms": "5"}}


@for_each(
    "made",
    [
        ["/brokers/topics/t/partitions/7", "/brokers/topics/t/partitions/7/state", "/brokers/topics/t/odd"],
        ["/config/topics/t/x"],
        [f"{WISH}/x"],
    ],
)
async def test_all_of_a_topic_is_removed_also_what_nobody_knew(elect: Elect, made: list[str]) -> None:
    async with elect(*FIRST, DeletionWrite("t")) as office:
        await office.session.commit([Create(path, b"x") for path in made])
        await office.store.commit([TopicRemoval("t"), TopicRemoval("never")])
        assert await office.topics() == {}


# --- much


async def test_many_writes_go_in_pieces_each_of_them_fenced(elect: Elect) -> None:
    """The wish to delete a topic is removed last: whoever becomes the controller in between goes on by it."""
    async with elect(assignment(400)) as office:
        pieces = office.session.transactions
        pieces.clear()
        states = [StateWrite(TopicPartition("t", number), led()) for number in range(400)]
        assert await office.store.commit(states) == [0] * 400
        for lost in ("", "answer", "", "request"):
            office.lose(lost)
        again = [write._replace(state=led(2, (2,), 0, 1)) for write in states]
        assert await office.store.commit(again) == [1] * 400
        await office.store.commit([DeletionWrite("t")])
        await office.store.commit([TopicRemoval("t")])
        assert await office.topics() == {}
        assert all(piece[0] == Check(CONTROLLER_EPOCH, 1) for piece in pieces)
        assert max(map(len, pieces)) == 101
        assert pieces[-1][-1] == Delete(WISH)


@for_each("write", [assignment(configs={"x": "y" * 1_100_000}), assignment(75_000)], ids=lambda _: "")
async def test_what_zookeeper_does_not_take_is_refused(elect: Elect, write: Write) -> None:
    """ZooKeeper would close the connection whenever it is asked, and the controller would ask for ever."""
    async with elect() as office:
        with pytest.raises(KafkaError, match="ZooKeeper takes no more than") as refused:
            await office.store.commit([assignment(topic="small"), write])
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert await office.topics() == {}
        await office.store.commit([assignment(configs={"x": "y" * 990_000}), *[StateWrite(T0, led())]])
        await office.store.commit([assignment(20_000, topic="large")])
        assert len((await office.topics())["/brokers/topics/large"]["partitions"]) == 20_000


# --- what is read


async def test_a_state_says_in_which_lives_its_holders_are_known(elect: Elect) -> None:
    """Those that its controller knew; if Kafka's wrote it, those in sync that had begun by then."""

    async def holders(office: Office) -> Mapping[int, int]:
        return (await office.store.read_topics(["t"])).topics["t"].partitions[0].holders

    written = replace(led(), holders={1: 2**40, 2: 77, 3: -1})
    async with elect(assignment(2), StateWrite(T0, written)) as office:
        assert (await office.topics())[STATE_OF_T0] == {**STATE, "plog_holders": {"1": 2**40, "2": 77, "3": -1}}
        assert await holders(office) == {1: 2**40, 2: 77, 3: -1}
        await office.session.commit([SetData(STATE_OF_T0, json.dumps(STATE).encode())])
        node = await office.session.read(STATE_OF_T0)
        assert node is not None
        assert node.stat.mzxid > node.stat.czxid
        assert await holders(office) == dict.fromkeys((1, 2), node.stat.mzxid)


@for_each(
    "topic, state",
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
    elect: Elect, topic: bytes, state: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """As a whole: its assignment would be written without the partition that can't be understood."""
    caplog.clear()
    async with elect(assignment(topic="good"), StateWrite(TopicPartition("good", 0), led())) as office:
        base = "/brokers/topics/bad/partitions"
        await office.session.commit(
            [
                Create("/brokers/topics/bad", topic),
                *[Create(path) for path in (base, f"{base}/0", f"{base}/1")],
                Create(f"{base}/0/state", state),
                Create(f"{base}/1/state", GOOD_STATE),
            ]
        )
        with caplog.at_level(logging.ERROR):
            found = await office.store.read_topics(["bad", "good"])
        assert (list(found.topics), found.unreadable) == (["good"], {"bad"})
        assert any("topic bad is passed over" in record.getMessage() for record in caplog.records)


async def test_a_topic_with_the_id_of_another_one_is_left_alone(elect: Elect, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody has copied its node. The one that is known stays, or else the one that was made first."""
    async with elect(assignment()) as office:
        known = await office.session.read("/brokers/topics/t")
        assert known is not None
        await office.session.commit([Create("/brokers/topics/a", known.data)])
        read = office.store.read_topics
        assert await read(["a"], {ID: "t"}) == ({}, {"a"})
        assert "topic a is passed over: it has the id of topic t" in caplog.text
        found = await read(["a", "t"])
        assert (list(found.topics), found.unreadable) == (["t"], {"a"})
        assert (await read(["t"], {ID: "t"})).topics.keys() == {"t"}


async def test_brokers_that_are_garbled_are_passed_over(elect: Elect, caplog: pytest.LogCaptureFixture) -> None:
    broker = (
        b'{"listener_security_protocol_map":{"CLIENT":"PLAINTEXT"},"endpoints":["CLIENT://h:9"],"rack":"r",'
        b'"features":{},"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"1"}'
    )
    nodes = {"1": broker, "2": b"?", "3": broker.replace(b"CLIENT://", b"OTHER://")}
    nodes |= dict.fromkeys(["x", "4294967297", "9" * 5000], broker)
    async with elect() as office:
        await office.session.commit([Create(f"/brokers/ids/{name}", data) for name, data in nodes.items()])
        with caplog.at_level(logging.ERROR):
            found = await office.store.read_brokers()
        assert list(found) == [1]
        assert found[1].registration.rack == "r"
        assert len(caplog.records) == 5


async def test_addresses_have_the_number_of_their_protocol(elect: Elect) -> None:
    """As in Kafka's org.apache.kafka.common.security.auth.SecurityProtocol."""
    protocols = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
    broker = {
        "listener_security_protocol_map": {f"L{number}": name for name, number in protocols.items()},
        "endpoints": [f"L{number}://h:{number + 1}" for number in protocols.values()],
        "features": {}, "jmx_port": -1, "port": -1, "host": None, "version": 5, "timestamp": "1",
    }  # fmt: skip
    async with elect() as office:
        await office.session.commit([Create("/brokers/ids/1", json.dumps(broker).encode())])
        found = await office.store.read_brokers()
    addresses = [(one.listener, one.port, one.security_protocol) for one in found[1].registration.endpoints]
    assert addresses == [("L0", 1, 0), ("L1", 2, 1), ("L2", 3, 2), ("L3", 4, 3)]


async def test_news_of_disks_are_taken_once(elect: Elect) -> None:
    """Also those with something below them."""
    news = {
        "1": b'{"version":1,"broker":2,"event":1}',
        "2": b"?",
        "3": b'{"version":1,"broker":2,"event":1}',
        "3/x": b"",
    }
    async with elect() as office:
        await office.session.commit([Create(f"{LOG_DIR_EVENTS}/{name}", data) for name, data in news.items()])
        office.lose("answer")
        office.lose("request")
        assert await office.store.take_disk_events() == [2]
        assert await office.store.take_disk_events() == []
        assert await office.tree(LOG_DIR_EVENTS) == {}


async def test_producer_ids_go_on_from_the_last_block(elect: Elect) -> None:
    async with elect() as office:
        assert await office.store.read_producer_ids() == (0, 0)
        block = b'{"version":1,"broker":3,"block_start":"7000","block_end":"7999"}'
        await office.session.commit([SetData(PRODUCER_ID_BLOCK, block)])
        assert await office.store.read_producer_ids() == (8000, 1)
        await office.session.commit([SetData(PRODUCER_ID_BLOCK, b"?")])
        with pytest.raises(MalformedMessageError, match=PRODUCER_ID_BLOCK):
            await office.store.read_producer_ids()
