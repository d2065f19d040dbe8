"""One request that is much work: others have their turns in between, and what they do meanwhile is seen."""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from errno import ENOSPC
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from core.broker.requests import fair_scheduler, stepped_answer
from core.broker.requests.fair_scheduler import MOST_AT_WORK, FairScheduler
from core.broker.requests.handlers import metadata
from core.broker.serving import socket_server
from core.broker.serving.connections_memory import ConnectionsMemory
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.socket_server import SocketServer
from core.common.error_code import ErrorCode
from core.common.pending import Pending, wait_for
from core.common.task import Task, Yield
from core.log.partition_log import PartitionLog
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema.topic_changes import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from core.protocol.schema.transactions import END_TXN, EndTxnRequest
from core.records import record_walk
from core.records.compression import CompressionType
from core.records.record import Record, encode_records
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import build_batch
from tests.support.broker import (
    PRODUCE_BY_NAME,
    Background,
    SteeredNode,
    add_topic,
    ask,
    decode,
    delete_topic,
    fetch,
    open_broker,
    produce,
    produce_request,
    records_of,
    send,
    serving,
)
from tests.support.logs import NOW, append, make_batch, open_log, read_all
from tests.support.manual_clock import ManualClock
from tests.support.waiting import wait_until
from tests.unit.broker.coordinators.test_transactions import SETTINGS, Client
from tests.unit.broker.serving.test_connection import (
    connect,
    frame,
    is_served,
    read_correlation_ids,
    read_frame,
    until,
    versions_frame,
)

MANY = 5_000


class Loop:
    """An event loop that does one thing at a time, when it is told to."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], None]] = deque()

    def call_soon(self, function: Callable[[], None]) -> None:
        self._ready.append(function)

    def step(self) -> bool:
        """Whether there was something to do."""
        if self._ready:
            self._ready.popleft()()
            return True
        return False

    def run(self) -> None:
        while self.step():
            pass


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn is a step, each step a hundred records."""
    monkeypatch.setattr(stepped_answer, "TURN_SECONDS", 0)
    monkeypatch.setattr(fair_scheduler, "ROUND_SECONDS", 0)
    monkeypatch.setattr(record_walk, "MOST_RECORDS", 100)


@pytest.fixture
def loop(broker: SteeredNode) -> Loop:
    loop = Loop()
    broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
    return loop


def log_of(broker: SteeredNode) -> PartitionLog:
    return broker.services.replicas.find("t", 0).log


def many(key: bytes | None = b"k", **fields: Any) -> bytes:
    items = [Record(n, NOW, key, b"v") for n in range(MANY)]
    fields = {"base_timestamp": NOW, "max_timestamp": NOW + 5, "compression": CompressionType.ZSTD, **fields}
    return build_batch(encode_records(items, 0, NOW), count=MANY, **fields)


def lookup(timestamp: int = NOW + 1, topics: str = "t") -> ListOffsetsRequest:
    wanted = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, timestamp)]) for name in topics]
    return ListOffsetsRequest(-1, 0, wanted)


class Asked:
    """A request, and what became of it; `pending` where it takes turns."""

    def __init__(self, broker: SteeredNode, api: Any, request: Any, version: int = PRODUCE_BY_NAME) -> None:
        self.answer: Any = None
        self.error: Exception | None = None
        self._api, self._version = api, version if api is PRODUCE else api.versions.last
        pending = send(broker, api, request, self._version)
        if isinstance(pending, Pending):
            self.pending = pending
            pending.on_value = self._keep
            pending.on_failure = lambda error: setattr(self, "error", error)
        else:
            self._keep(pending)

    def _keep(self, pieces: Any) -> None:
        self.answer = decode(self._api, pieces, self._version)

    @property
    def partition(self) -> Any:
        topics = self.answer.topics if hasattr(self.answer, "topics") else self.answer.responses
        (topic,) = topics
        (found,) = topic.partitions if hasattr(topic, "partitions") else topic.partition_responses
        return found


# --- who else is served


NAMES = [f"t{number}" for number in range(30)]


@pytest.mark.parametrize("what", ["lookup", "metadata", "metadata of a large topic", "creation", "validation"])
async def test_others_are_served_while_one_waits_for_much_work(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A batch is gone through, or many topics are described or made. Answers come in order, as ever."""
    monkeypatch.setattr(metadata, "_MOST_AT_ONCE", 1)
    api, request, version = METADATA, MetadataRequest(None), METADATA.versions.last
    if what == "lookup":
        add_topic(broker)
        assert produce(broker, many()).error_code == 0
        api, request, version = LIST_OFFSETS, lookup(), 11
    elif what == "metadata":
        for name in NAMES:
            add_topic(broker, name)
    elif what == "metadata of a large topic":
        add_topic(broker, "large", 30)
        request = MetadataRequest([MetadataRequestTopic(name="large")])
    elif what == "creation":
        api, version = CREATE_TOPICS, CREATE_TOPICS.versions.last
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in NAMES], 60_000)
    else:
        add_topic(broker, cleanup_policy="compact", compression_type="gzip")
        api, request, version = PRODUCE, produce_request(many()), PRODUCE_BY_NAME
    async with serving(broker) as server:
        slow_reader, slow_writer = await connect(server)
        other = await connect(server)
        slow_writer.write(frame(api, 1, request, version) + versions_frame(2))
        answers = asyncio.create_task(read_correlation_ids(slow_reader, 2))
        for number in range(5):
            assert await is_served(other, number)
        assert not answers.done()
        assert await answers == [1, 2]
    if what == "creation":
        assert broker.services.image.topics.keys() == set(NAMES)
    if what == "validation":
        assert [r.offset for r in records_of(fetch(broker, 0))] == list(range(MANY))


def test_topics_that_come_and_go_while_all_are_described(
    broker: SteeredNode, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "_MOST_AT_ONCE", 1)
    for number in range(20):
        add_topic(broker, f"t{number}")
    asked = Asked(broker, METADATA, MetadataRequest(None))
    loop.step()
    delete_topic(broker, "t19")
    add_topic(broker, "late")
    loop.run()
    assert {topic.name for topic in asked.answer.topics} - {"late"} >= {f"t{number}" for number in range(19)}


def large(letter: bytes = b"x", **fields: Any) -> RecordBatch:
    return make_batch(letter * 3_000_000, **fields)


def add_topic_for_large(broker: SteeredNode, partitions: int = 1, **configs: str) -> None:
    add_topic(broker, partitions=partitions, max_message_bytes="20000000", **configs)


@pytest.mark.parametrize("configs", [{}, {"cleanup_policy": "compact"}, {"message_timestamp_type": "LogAppendTime"}])
def test_a_large_batch_is_checked_and_written_in_turns(
    broker: SteeredNode, loop: Loop, configs: dict[str, str]
) -> None:
    add_topic_for_large(broker, **configs)
    log = log_of(broker)
    asked = Asked(broker, PRODUCE, produce_request(large()))
    sizes = [log.segments.active.records.path.stat().st_size]
    while asked.answer is None:
        assert (log.log_end_offset, log.size_bytes) == (0, 0), "it is not in the log"
        assert loop.step()
        sizes.append(log.segments.active.records.path.stat().st_size)
    assert max(after - before for before, after in pairwise(sizes)) < 600_000
    assert asked.partition.error_code == 0
    (record,) = read_all(log)
    assert record.value == b"x" * 3_000_000
    assert log.size_bytes == sizes[-1]


def test_whoever_appends_while_a_large_batch_is_written_comes_after_it(broker: SteeredNode, loop: Loop) -> None:
    """And waits without a turn's work of its own; the broker's own records wait for nobody."""
    add_topic_for_large(broker)
    log = log_of(broker)
    first = Asked(broker, PRODUCE, produce_request(large(b"1")))
    while not log.is_written_ahead:
        loop.step()
    others = [Asked(broker, PRODUCE, produce_request(batch)) for batch in (make_batch(b"2"), large(b"3"))]
    loop.run()
    offsets = [asked.partition.base_offset for asked in (first, *others)]
    assert offsets == [0, 1, 2]
    again = Asked(broker, PRODUCE, produce_request(large(b"4")))
    while not log.is_written_ahead:
        loop.step()
    broker.services.replicas.append(
        broker.services.replicas.find("t", 0), make_batch(b"own"), required_acks=1, from_client=False
    )
    loop.run()
    assert again.partition.base_offset == 4
    assert [(record.value or b"")[:3] for record in read_all(log)] == [b"111", b"2", b"333", b"own", b"444"]


@pytest.mark.parametrize("what", ["goes", "damaged", "fenced", "deleted", "stopped"])
def test_a_large_batch_that_comes_to_nothing_leaves_nothing(broker: SteeredNode, loop: Loop, what: str) -> None:
    add_topic_for_large(broker)
    assert produce(broker, make_batch(b"0", producer_id=7, producer_epoch=1, base_sequence=0)).error_code == 0
    log = log_of(broker)
    path, size_bytes = log.segments.active.records.path, log.size_bytes
    epoch = 0 if what == "fenced" else 1
    batch = large(producer_id=7, producer_epoch=epoch, base_sequence=1)
    if what == "damaged":
        batch.buffer[2_000_000] ^= 1
    asked = Asked(broker, PRODUCE, produce_request(batch))
    if what in ("damaged", "fenced"):
        loop.run()
        errors = {"damaged": ErrorCode.CORRUPT_MESSAGE, "fenced": ErrorCode.INVALID_PRODUCER_EPOCH}
        assert asked.partition.error_code == errors[what]
    else:
        while path.stat().st_size == size_bytes:
            assert loop.step()
    if what == "goes":
        asked.pending.cancel()
    elif what == "deleted":
        delete_topic(broker, "t")
        loop.run()
        assert asked.partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    elif what == "stopped":
        broker.close()
    else:
        loop.run()
    assert path.stat().st_size == log.size_bytes == size_bytes


@pytest.mark.parametrize("steps", range(1, 12, 2))
def test_a_kill_while_a_large_batch_is_written_takes_nothing_else(tmp_path: Path, steps: int) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"0"))
    log.flush()
    writing = log.write_ahead(large(), 0)
    for _ in range(steps):
        next(writing)
    assert log.segments.active.records.path.stat().st_size > log.size_bytes
    shutil.copytree(log.directory, tmp_path / "killed" / "t-0")
    killed = open_log(tmp_path / "killed" / "t-0", had_clean_shutdown=False, recovery_point=1)
    assert [record.value for record in read_all(killed)] == [b"0"]
    assert append(killed, make_batch(b"1")).base_offset == 1


async def test_a_large_request_stays_until_it_is_done_while_others_of_its_size_come(broker: SteeredNode) -> None:
    add_topic_for_large(broker, partitions=2)
    async with serving(broker) as server:
        clients = [await connect(server) for _ in range(3)]
        for turn in range(3):
            for number, (_, writer) in enumerate(clients):
                batch = large(b"%d" % (3 * turn + number))
                writer.write(frame(PRODUCE, turn, produce_request(batch, partition=number % 2), PRODUCE_BY_NAME))
        for reader, _ in clients:
            assert await read_correlation_ids(reader, 3) == [0, 1, 2]
    values = [record.value or b"" for n in (0, 1) for record in read_all(broker.services.replicas.find("t", n).log)]
    assert sorted(values) == [b"%d" % number * 3_000_000 for number in range(9)]


@pytest.mark.parametrize("api", [LIST_OFFSETS, PRODUCE])
async def test_another_thread_loads_what_walks_need_before_the_first(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, api: Any
) -> None:
    """NumPy alone takes a tenth of a second; however long it takes, others are served."""
    add_topic(broker)
    add_topic(broker, "k", cleanup_policy="compact")
    assert produce(broker, many()).error_code == 0
    broker.services.stepped_answers.has_libraries = False
    may_load = threading.Event()
    loaders: list[threading.Thread] = []
    walks: list[record_walk.RecordWalk] = []
    take = record_walk.RecordWalk.take

    def load() -> None:
        loaders.append(threading.current_thread())
        wait_until(may_load.is_set, "the test lets them load")
        assert not walks

    def note(walk: record_walk.RecordWalk, piece: bytes) -> Any:
        walks.append(walk)
        return take(walk, piece)

    monkeypatch.setattr(stepped_answer, "load_libraries", load)
    monkeypatch.setattr(record_walk.RecordWalk, "take", note)
    request = lookup() if api is LIST_OFFSETS else produce_request(many(), "k")
    version = 11 if api is LIST_OFFSETS else PRODUCE_BY_NAME
    async with serving(broker) as server:
        reader, writer = await connect(server)
        slow = [await connect(server) for _ in range(MOST_AT_WORK + 1)]
        waiting = []
        for slow_reader, slow_writer in slow:
            slow_writer.write(frame(api, 1, request, version))
            waiting.append(asyncio.create_task(read_frame(slow_reader)))
            assert await is_served((reader, writer))
        small = produce_request(make_batch(b"v"), "k")
        writer.write(frame(PRODUCE, 2, small, PRODUCE_BY_NAME))
        assert await read_correlation_ids(reader, 1) == [2]
        assert not any(answer.done() for answer in waiting)
        may_load.set()
        await asyncio.gather(*waiting)
    assert len(walks) >= MOST_AT_WORK + 1
    (loader,) = loaders
    assert loader is not threading.main_thread()


def test_a_client_that_leaves_while_they_are_loaded(broker: SteeredNode, loop: Loop) -> None:
    disk = Background()
    broker.runtime.use(run_in_background=disk)
    add_topic(broker, cleanup_policy="compact")
    gone, stays = (Asked(broker, PRODUCE, produce_request(many())) for _ in range(2))
    loop.run()
    assert stays.answer is None
    gone.pending.cancel()
    disk.run_all()
    loop.run()
    assert stays.partition.error_code == 0
    assert log_of(broker).log_end_offset == MANY


def test_where_they_can_not_be_loaded_who_needs_them_fails(
    broker: SteeredNode, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one tries again."""

    def fail(*_arguments: Any) -> None:
        raise ImportError("no more descriptors")

    add_topic(broker, cleanup_policy="compact")
    with monkeypatch.context() as broken:
        broken.setattr(stepped_answer, "load_libraries", fail)
        broken.setattr(record_walk.RecordWalk, "take", fail)
        asked = Asked(broker, PRODUCE, produce_request(many()))
        loop.run()
        assert isinstance(asked.error, ImportError)
    assert ask_by(broker, loop, many()).error_code == 0


def test_a_walk_imports_nothing_more() -> None:
    """That it does not is told by an interpreter which has just the server."""
    code = """
import sys, core.broker.serving.socket_server
from core.common.task import finish
from core.files.log_config import LogConfig
from core.log.log_validator import check_records
from core.records.record_batch import RecordBatch
from core.records.record_walk import find_by_time, load_libraries

batch = RecordBatch(memoryview(sys.stdin.buffer.read()))
load_libraries()
before = set(sys.modules)
rules = LogConfig(frozenset({"compact"}), plog_validate_records=True, message_timestamp_before_max_ms=1 << 50)
finish(check_records(batch, rules, batch.max_timestamp))
assert finish(find_by_time(batch, batch.max_timestamp, 0)) is None
print(*sorted(set(sys.modules) - before))
"""
    batch = many(compression=CompressionType.NONE)
    found = subprocess.run([sys.executable, "-c", code], input=batch, check=True, capture_output=True)
    assert found.stdout.split() == []


async def test_what_is_worked_on_is_held_until_it_is_done(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records were copied: many such requests would be more memory than connections may take."""
    add_topic(broker, cleanup_policy="compact")
    memory = ConnectionsMemory(1 << 30)
    monkeypatch.setattr(socket_server, "ConnectionsMemory", lambda _limit: memory)
    data = [PartitionProduceData(0, many()), PartitionProduceData(1, bytes(200_000))]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=data)])

    log = log_of(broker)
    validate = log.validate
    held = []

    def watch(batch: RecordBatch) -> Any:
        steps = validate(batch)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            held.append(memory._total)
            yield Yield.GIVE_WAY

    log.validate = watch  # type: ignore[method-assign]
    async with serving(broker) as server:
        reader, writer = await connect(server)
        writer.write(frame(PRODUCE, 1, request, PRODUCE_BY_NAME))
        await read_frame(reader)
        writer.write(versions_frame(2))
        await read_frame(reader)
        assert memory._total == 0
    assert 200_000 < held[-1] < 300_000


async def test_what_waits_for_its_transaction_is_held_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records were copied: that they are of the transaction must be on the disk before they are."""
    broker = open_broker(tmp_path / "data", ManualClock(NOW), log_retention_ms="-1", **SETTINGS)
    add_topic(broker)
    client = Client(broker)
    broker.services.configs.set(2, "__transaction_state", {"flush.messages": "1"})
    memory = ConnectionsMemory(1 << 30)
    monkeypatch.setattr(socket_server, "ConnectionsMemory", lambda _limit: memory)
    request = client.produce_request(bytes(200_000), 0, 0)
    async with serving(broker) as server:
        disk = Background()
        broker.runtime.use(run_flush=disk)
        reader, writer = await connect(server)
        writer.write(frame(PRODUCE, 1, request, PRODUCE_BY_NAME))
        await until(lambda: bool(disk.waiting))
        assert 200_000 < memory._total < 210_000
        memory.step()
        memory.step()
        (holder,) = memory._held
        assert holder.is_at_work, "it can but wait: it is not slow"
        disk.run()
        await read_frame(reader)
        assert memory._total == 0
    assert log_of(broker).log_end_offset == 1


@pytest.mark.parametrize("key", [b"k", None])
async def test_without_acks_there_is_no_answer_but_the_end_when_it_failed(
    server: SocketServer, broker: SteeredNode, key: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    add_topic(broker, cleanup_policy="compact")
    reader, writer = await connect(server)
    writer.write(frame(PRODUCE, 1, produce_request(many(key), acks=0), PRODUCE_BY_NAME) + versions_frame(2))
    if key is None:
        assert await reader.read() == b""
        assert "closing a connection" not in caplog.text
    else:
        assert await read_correlation_ids(reader, 1) == [2]


@pytest.mark.parametrize("acks", [0, -1])
async def test_a_client_that_has_sent_all_it_had(server: SocketServer, broker: SteeredNode, acks: int) -> None:
    """Its records are kept though it is gone by then, and it is answered if it listens."""
    add_topic(broker, cleanup_policy="compact")
    reader, writer = await connect(server)
    writer.write(frame(PRODUCE, 1, produce_request(many(), acks=acks), PRODUCE_BY_NAME))
    if acks:
        writer.write_eof()
        assert await read_correlation_ids(reader, 1) == [1]
        assert await reader.read() == b""
    else:
        writer.close()
        while log_of(broker).log_end_offset < MANY or server.open_connections:
            await asyncio.sleep(0)


async def test_the_work_of_a_client_whose_connection_was_reset_is_dropped(broker: SteeredNode) -> None:
    """It is gone: its place is another's."""
    add_topic(broker, cleanup_policy="compact")
    async with serving(broker) as server:
        gone = [await connect(server) for _ in range(MOST_AT_WORK)]
        for _, writer in gone:
            writer.write(frame(PRODUCE, 1, produce_request(many()), PRODUCE_BY_NAME))
        turns = broker.runtime.turns
        assert turns is not None
        await until(lambda: turns.has_enough_work)
        for _, writer in gone:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        await until(lambda: not (turns.has_enough_work or server.open_connections))
    assert log_of(broker).log_end_offset == 0


def test_a_few_requests_are_worked_on_at_a_time(loop: Loop) -> None:
    at_work: set[int] = set()
    done: list[int] = []
    line = FairScheduler(cast(asyncio.AbstractEventLoop, loop))

    def begin(number: int) -> None:
        left = 3 + number

        def take_turn() -> bool:
            nonlocal left
            at_work.add(number)
            assert len(at_work) <= MOST_AT_WORK
            left -= 1
            if not left:
                at_work.discard(number)
                done.append(number)
            return left > 0

        line.work(take_turn)

    for number in range(20):
        begin(number)
    loop.run()
    assert sorted(done) == list(range(20))


def test_who_fails_at_work_holds_up_nobody(loop: Loop) -> None:
    line = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
    done: list[int] = []

    def fail() -> bool:
        raise RuntimeError("a bug")

    for _ in range(10):
        line.work(fail)
    line.work(lambda: bool(done.append(1)))
    failures = 0
    while True:
        try:
            if not loop.step():
                break
        except RuntimeError:
            failures += 1
    assert (failures, done) == (10, [1])


@pytest.mark.parametrize("api", [LIST_OFFSETS, PRODUCE])
def test_who_waits_for_others_to_be_done_holds_nothing_yet(
    broker: SteeredNode, loop: Loop, monkeypatch: pytest.MonkeyPatch, api: Any
) -> None:
    """A kilobyte that is begun with can hold megabytes, of each request that waits."""
    add_topic(broker)
    assert produce(broker, many()).error_code == 0
    add_topic(broker, "u", cleanup_policy="compact")
    begun = []
    take = record_walk.RecordWalk.take

    def note(walk: record_walk.RecordWalk, piece: bytes) -> Any:
        begun.append(walk)
        return take(walk, piece)

    monkeypatch.setattr(record_walk.RecordWalk, "take", note)
    request = lookup() if api is LIST_OFFSETS else produce_request(many(), "u")
    asked = [Asked(broker, api, request) for _ in range(3 * MOST_AT_WORK)]
    for _ in range(MOST_AT_WORK):
        loop.step()
    assert len(set(begun)) <= MOST_AT_WORK
    small = Asked(broker, PRODUCE, produce_request(make_batch(b"v"), "u"))
    assert small.partition.error_code == 0, "it is served at once"
    loop.run()
    assert [one.partition.error_code for one in asked] == [0] * len(asked)


# --- what happens meanwhile


def test_a_lookup_gives_what_it_would_have_given_at_once(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker)
    for timestamp in (NOW, NOW + 10):
        assert produce(broker, many(base_timestamp=timestamp)).error_code == 0
    broker.runtime.turns = None
    expected = [ask(broker, LIST_OFFSETS, lookup(NOW + n)).topics for n in range(13)]
    broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
    asked = [Asked(broker, LIST_OFFSETS, lookup(NOW + n)) for n in range(13)]
    loop.run()
    assert [lookup.answer.topics for lookup in asked] == expected


def test_a_client_that_leaves_ends_its_work(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker, cleanup_policy="compact")
    asked = Asked(broker, PRODUCE, produce_request(many()))
    loop.step()
    asked.pending.cancel()
    loop.step()
    assert not loop.step()
    assert log_of(broker).log_end_offset == 0


def test_a_client_that_is_closed_in_the_middle_of_a_step(broker: SteeredNode, loop: Loop) -> None:
    """As when who is told of its records needs memory, and it is slow."""
    add_topic(broker, partitions=2, cleanup_policy="compact")
    data = [PartitionProduceData(0, bytes(make_batch(b"v").buffer)), PartitionProduceData(1, many())]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=data)])
    asked = Asked(broker, PRODUCE, request)
    log = broker.services.replicas.find("t", 1).log
    validate = log.validate

    def leave(batch: RecordBatch) -> Any:
        asked.pending.cancel()
        return validate(batch)

    log.validate = leave  # type: ignore[method-assign]
    loop.run()
    assert asked.answer is asked.error is None
    assert [broker.services.replicas.find("t", number).log.log_end_offset for number in (0, 1)] == [1, 0]


def test_who_can_not_wait_has_the_rest_done_at_once(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker, cleanup_policy="compact")
    asked = Asked(broker, PRODUCE, produce_request(many()))
    asked.pending.complete_now()
    assert asked.partition.error_code == 0
    loop.run()
    assert log_of(broker).log_end_offset == MANY


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_goes_meanwhile(broker: SteeredNode, loop: Loop, is_made_again: bool) -> None:
    add_topic(broker, cleanup_policy="compact")
    with_records = add_topic(broker, "u")
    assert with_records
    assert produce(broker, make_batch(b"v"), "u").error_code == 0
    broker.runtime.turns, taken = None, broker.runtime.turns
    assert produce(broker, many(), "u").error_code == 0
    broker.runtime.turns = taken
    written, asked = Asked(broker, PRODUCE, produce_request(many())), Asked(broker, LIST_OFFSETS, lookup(topics="u"))
    loop.step()
    for name in "tu":
        delete_topic(broker, name)
        if is_made_again:
            add_topic(broker, name, cleanup_policy="delete,compact")
    loop.run()
    if is_made_again:
        assert written.partition.error_code == 0, "the new topic's rules are asked, too"
    else:
        assert written.partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asked.partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_other_rules_meanwhile(broker: SteeredNode, loop: Loop) -> None:
    """A batch that was looked at by the rules of before is looked at again."""
    add_topic(broker, compression_type="gzip")
    asked = Asked(broker, PRODUCE, produce_request(many(None)))
    loop.step()
    broker.services.configs.set(2, "t", {"cleanup.policy": "compact"})
    loop.run()
    assert asked.partition.error_code == ErrorCode.INVALID_RECORD
    assert log_of(broker).log_end_offset == 0


def test_batches_of_others_meanwhile(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker, cleanup_policy="compact")
    asked = Asked(broker, PRODUCE, produce_request(many()))
    loop.step()
    for number in range(3):
        assert Asked(broker, PRODUCE, produce_request(make_batch(b"other"))).partition.base_offset == number
        loop.step()
    assert asked.answer is None
    loop.run()
    assert asked.partition.base_offset == 3
    assert [r.offset for r in records_of(fetch(broker, 0))] == list(range(MANY + 3))


def test_the_frame_may_be_overwritten_meanwhile(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker, partitions=2, cleanup_policy="compact")
    from core.protocol.frame import encode_request

    data = [PartitionProduceData(0, many()), PartitionProduceData(1, bytes(make_batch(b"v").buffer))]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=data)])
    received = bytearray(encode_request(PRODUCE, PRODUCE_BY_NAME, 77, "test", request))
    pending = broker.dispatcher.handle(memoryview(received)[4:])
    assert isinstance(pending, Pending)
    received[:] = bytes(len(received))
    loop.run()
    for number, count in ((0, MANY), (1, 1)):
        assert len(records_of(fetch(broker, 0, partition=number))) == count


def test_a_batch_that_must_be_flushed_too(broker: SteeredNode, loop: Loop) -> None:
    disk = Background()
    broker.runtime.use(run_flush=disk)
    add_topic(broker, cleanup_policy="compact", flush_messages="1")
    asked = Asked(broker, PRODUCE, produce_request(many()))
    loop.run()
    assert asked.answer is None
    disk.run()
    assert (asked.partition.error_code, asked.partition.base_offset) == (0, 0)


@pytest.mark.parametrize(("produce_version", "end_version"), [(12, 5), (11, 4)])
def test_a_transaction_that_is_ended_meanwhile(tmp_path: Path, produce_version: int, end_version: int) -> None:
    """No marker would follow its records."""
    broker = open_broker(tmp_path / "data", ManualClock(NOW), **SETTINGS)
    add_topic(broker, partitions=2, cleanup_policy="compact")
    client = Client(broker)
    loop = Loop()
    assert client.produce(b"first") == 0
    producer_id, epoch = client.producer
    broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
    batch = many(producer_id=producer_id, producer_epoch=epoch, base_sequence=1, is_transactional=True)
    request = produce_request(batch)
    request.transactional_id = client.name
    asked = Asked(broker, PRODUCE, request, produce_version)
    loop.step()
    assert asked.answer is None
    ended = ask(broker, END_TXN, EndTxnRequest(client.name, producer_id, epoch, True), end_version)
    assert ended.error_code == 0
    end_offset = log_of(broker).log_end_offset
    loop.run()
    assert asked.partition.error_code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_ABORTABLE)
    partition = broker.services.replicas.find("t", 0)
    assert partition.log.log_end_offset == end_offset == partition.log.last_stable_offset


def test_a_lookup_over_many_partitions_gives_way_between_them(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker, partitions=20)
    for number in range(20):
        assert produce(broker, make_batch(b"v"), partition=number).error_code == 0
    partitions = [ListOffsetsPartition(number, -1, NOW) for number in range(20)]
    asked = Asked(broker, LIST_OFFSETS, ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", partitions)]))
    steps = 0
    while loop.step():
        steps += 1
    assert steps > 15
    assert [p.offset for p in asked.answer.topics[0].partitions] == [0] * 20


def test_what_is_wrong_with_records_is_said(broker: SteeredNode, loop: Loop) -> None:
    add_topic(broker, plog_validate_records="true")
    assert ask_by(broker, loop, many()).error_code == 0
    for section in (b"\xff" * 40, b"A" * 60):
        bad = RecordBatch(memoryview(build_batch(section, count=3, base_timestamp=NOW, max_timestamp=NOW)))
        assert ask_by(broker, loop, bytes(bad.buffer)).error_code == ErrorCode.INVALID_RECORD
    assert log_of(broker).log_end_offset == MANY


def ask_by(broker: SteeredNode, loop: Loop, batch: bytes) -> Any:
    asked = Asked(broker, PRODUCE, produce_request(batch))
    loop.run()
    return asked.partition


def test_owed_work_that_fails_at_the_end_holds_up_nothing_else(tmp_path: Path) -> None:
    """Its client is gone by then; the broker has more to do, and its logs to close."""
    runtime = LoopRuntime(cast(asyncio.AbstractEventLoop, Loop()), tmp_path)
    done: list[str] = []

    def work(name: str) -> Task[None]:
        yield Yield.OTHERS_FIRST
        yield Yield.OTHERS_FIRST
        done.append(name)
        raise OSError(ENOSPC, "no space left on device")

    answers = stepped_answer.SteppedAnswers(runtime)
    for name in ("a", "b"):
        pending = answers.answer(work(name), is_owed=True)
        assert isinstance(pending, Pending)
        pending.cancel()
    answers.finish_owed()
    assert sorted(done) == ["a", "b"]
    assert not answers.owed


def waiting_for(source: Pending[str], done: list[str]) -> Task[str]:
    yield Yield.GIVE_WAY
    try:
        found = yield from wait_for(source)
    except OSError as error:
        found = f"no {error.strerror}"
    yield Yield.GIVE_WAY
    done.append(found)
    return found.upper()


@pytest.mark.parametrize("has_turns", [False, True])
@pytest.mark.parametrize(
    ("arrive", "expected"),
    [
        (lambda source: source.complete_with("a"), "A"),
        (lambda source: source.fail(OSError(ENOSPC, "space")), "NO SPACE"),
    ],
)
def test_a_task_that_waits_goes_on_with_what_arrives(
    broker: SteeredNode, loop: Loop, arrive: Callable[[Pending[str]], None], expected: str, *, has_turns: bool
) -> None:
    if not has_turns:
        broker.runtime.turns = None
    source, done, answers = Pending[str](), list[str](), list[str]()
    pending = broker.services.stepped_answers.answer(waiting_for(source, done))
    assert isinstance(pending, Pending)
    pending.on_value = answers.append
    loop.run()
    assert pending.is_at_work
    assert not done
    arrive(source)
    loop.run()
    assert answers == [expected]


def test_a_task_that_waits_completes_with_what_counts_now(broker: SteeredNode, loop: Loop) -> None:
    done, answers = list[str](), list[str]()
    pending = broker.services.stepped_answers.answer(waiting_for(Pending(lambda: "now"), done))
    assert isinstance(pending, Pending)
    pending.on_value = answers.append
    pending.complete_now()
    assert answers == ["NOW"]
    loop.run()
    assert done == ["now"], "once, though it stood in line"


@pytest.mark.parametrize("is_closing", [False, True])
def test_owed_work_that_waits_has_not_begun(broker: SteeredNode, loop: Loop, *, is_closing: bool) -> None:
    """Nobody may ever answer: it must not hold up a broker that closes."""
    source, done = Pending[str](), list[str]()
    pending = broker.services.stepped_answers.answer(waiting_for(source, done), is_owed=True)
    assert isinstance(pending, Pending)
    loop.run()
    if is_closing:
        broker.services.stepped_answers.finish_owed()
        assert not done
    else:
        pending.cancel()
        assert source.is_over
        assert not broker.services.stepped_answers.owed
    loop.run()
    assert not done
