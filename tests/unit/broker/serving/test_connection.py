"""Bytes in, answers out: the broker behind real sockets on loopback, its clients in the same loop."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random, randbytes
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.broker.requests import fair_scheduler
from core.broker.requests.fair_scheduler import FairScheduler
from core.broker.requests.request_dispatcher import RequestDispatcher
from core.broker.serving import connection, loop_tasks, socket_server
from core.broker.serving.connection import Connection
from core.broker.serving.connections_memory import ConnectionsMemory
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.broker.serving.socket_server import SocketServer
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.files.directory_lock import LockHolder, find_lock_holder
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.produce import PRODUCE
from tests.support.broker import (
    PRODUCE_BY_NAME,
    AnyApi,
    SteeredNode,
    add_topic,
    fetch,
    fetch_request,
    open_broker,
    produce_request,
    produce_values,
    serving,
    values_of,
)
from tests.support.logs import make_batch

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MANY_BYTES = 4_000_000
HOUR_MS = 3_600_000
"""What a fetch waits that something else than its time has to end."""


async def connect(server: SocketServer, receive_buffer: int | None = None) -> Client:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (server.endpoint.host, server.endpoint.port))
    return await asyncio.open_connection(sock=sock, limit=1 << 16)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop go on until it holds."""
    while not condition():
        await asyncio.sleep(0)


def moved_bytes(server: SocketServer) -> int:
    """What all its connections received and sent."""
    return sum(one.moved_bytes for one in server._connections)


async def until_moved(server: SocketServer, size_bytes: int) -> None:
    await until(lambda: moved_bytes(server) >= size_bytes)


def frame(api: AnyApi, correlation_id: int, request: Any, version: int) -> bytes:
    return encode_request(api, version, correlation_id, "test", request)


def versions_frame(correlation_id: int) -> bytes:
    return frame(API_VERSIONS, correlation_id, ApiVersionsRequest("x", "1"), 3)


def fetch_frame(correlation_id: int, offset: int, **fields: Any) -> bytes:
    return frame(FETCH, correlation_id, fetch_request(offset, **fields), PRODUCE_BY_NAME)


def produce_frame(correlation_id: int, value: bytes, acks: int = -1) -> bytes:
    return frame(PRODUCE, correlation_id, produce_request(make_batch(value), acks=acks), PRODUCE_BY_NAME)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def read_correlation_ids(reader: asyncio.StreamReader, count: int) -> list[int]:
    return [int.from_bytes((await read_frame(reader))[:4], "big") for _ in range(count)]


async def is_served(client: Client, number: int = 1) -> bool:
    """Whether a request is answered, as the next one."""
    reader, writer = client
    writer.write(versions_frame(number))
    return await read_correlation_ids(reader, 1) == [number]


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), 0.1)
    except TimeoutError:
        return True
    return False


async def test_who_connects_is_turned_away_while_the_server_says_so(server: SocketServer, broker: SteeredNode) -> None:
    """A member of a cluster before it is registered."""
    server.turns_away = True
    reader, writer = await connect(server)
    assert await reader.read() == b""
    writer.close()
    server.turns_away = False
    assert await is_served(await connect(server))


async def test_a_long_answer_goes_out_in_turns(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a log from its start takes all that the loop can send, and others want to be served too."""
    monkeypatch.setattr(connection, "_TURN_BYTES", 1000)
    add_topic(broker)
    produce_values(broker, bytes(50_000), b"small")
    waits = 0
    wait = FairScheduler.wait

    def count(turns: FairScheduler, take_turn: Callable[[], None]) -> None:
        nonlocal waits
        waits += 1
        wait(turns, take_turn)

    monkeypatch.setattr(FairScheduler, "wait", count)
    async with serving(broker) as server:
        reader, writer = await connect(server)
        writer.write(fetch_frame(1, 0) + versions_frame(2))
        answer = await read_frame(reader)
        assert await read_correlation_ids(reader, 1) == [2], "in order, as ever"
        _, response = decode_response(FETCH, PRODUCE_BY_NAME, memoryview(answer))
        data = response.responses[0].partitions[0]
        assert values_of(data) == [bytes(50_000), b"small"]
    assert waits >= 50


async def test_what_waits_for_its_turn_is_held(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to the second request is in memory until the first one's file is sent."""
    monkeypatch.setattr(connection, "_TURN_BYTES", 1000)
    memory = ConnectionsMemory(1 << 30)
    monkeypatch.setattr(socket_server, "ConnectionsMemory", lambda _limit: memory)
    add_topic(broker)
    produce_values(broker, bytes(50_000))
    held: list[int] = []
    wait = FairScheduler.wait

    def note(turns: FairScheduler, take_turn: Callable[[], None]) -> None:
        held.append(memory._total)
        wait(turns, take_turn)

    monkeypatch.setattr(FairScheduler, "wait", note)
    async with serving(broker) as server:
        reader, writer = await connect(server)
        writer.write(fetch_frame(1, 0) + versions_frame(2))
        await read_frame(reader)
        answer = await read_frame(reader)
        assert min(held[1:]) > len(answer)
        assert memory._total == 0


async def test_a_client_that_goes_on_sending_gets_no_turn_out_of_turn(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TURN_BYTES", 1000)
    add_topic(broker)
    produce_values(broker, bytes(50_000))
    line: list[Callable[[], None]] = []
    async with serving(broker) as server:
        with monkeypatch.context() as standing:
            standing.setattr(FairScheduler, "wait", lambda _turns, take_turn: line.append(take_turn))
            reader, writer = await connect(server)
            writer.write(fetch_frame(1, 0))
            await until(lambda: bool(line))
            one: Connection = line[0].__self__  # type: ignore[attr-defined]  # the method of one
            request = versions_frame(2)
            for sent in request[:10]:
                moved_bytes = one.moved_bytes
                writer.write(bytes([sent]))
                while one.moved_bytes == moved_bytes:
                    await asyncio.sleep(0)
                assert one.moved_bytes == moved_bytes + 1, "what came, and nothing went"
            (take_turn,) = line
        take_turn()
        writer.write(request[10:])
        assert len(await read_frame(reader)) > 50_000
        assert await read_correlation_ids(reader, 1) == [2]


async def test_a_long_poll_holds_back_the_answers_behind_it(server: SocketServer, broker: SteeredNode) -> None:
    add_topic(broker)
    reader, writer = await connect(server)
    metadata = frame(METADATA, 3, MetadataRequest(), 12)
    writer.write(versions_frame(1) + fetch_frame(2, 0, max_wait_ms=HOUR_MS) + metadata + versions_frame(4))
    assert await read_correlation_ids(reader, 1) == [1]
    assert await is_silent(reader)
    other_reader, other_writer = await connect(server)
    other_writer.write(produce_frame(9, b"at last"))
    assert await read_correlation_ids(other_reader, 1) == [9]
    answer = await read_frame(reader)
    correlation_id, response = decode_response(FETCH, PRODUCE_BY_NAME, memoryview(answer))
    assert correlation_id == 2
    assert b"at last" in bytes(response.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]
    assert await read_correlation_ids(reader, 2) == [3, 4]


async def test_behind_a_long_poll_is_read_once(server: SocketServer, broker: SteeredNode) -> None:
    """To stop and to begin again costs system calls, which are for clients that send more than that."""
    add_topic(broker)
    _, writer = await connect(server)
    first, second = fetch_frame(1, 0, max_wait_ms=HOUR_MS), versions_frame(2)
    writer.write(first)
    await until_moved(server, len(first))
    (one,) = server._connections
    writer.write(second)
    await until_moved(server, len(first + second))
    assert one._is_reading
    writer.write(versions_frame(3))
    await until(lambda: not one._is_reading)
    one.look_for_end()
    assert moved_bytes(server) == len(first + second)


async def test_a_long_poll_ends_when_its_time_is_up(server: SocketServer, broker: SteeredNode) -> None:
    add_topic(broker)
    reader, writer = await connect(server)
    writer.write(fetch_frame(1, 0, max_wait_ms=50) + fetch_frame(2, 0, max_wait_ms=50) + versions_frame(3))
    assert await read_correlation_ids(reader, 3) == [1, 2, 3]


async def test_a_client_that_leaves_waits_no_longer(server: SocketServer, broker: SteeredNode) -> None:
    add_topic(broker)
    reader, writer = await connect(server)
    writer.write(fetch_frame(1, 0, max_wait_ms=HOUR_MS))
    assert await is_silent(reader)
    writer.close()
    await writer.wait_closed()
    other_reader, other_writer = await connect(server)
    other_writer.write(produce_frame(1, b"x") + fetch_frame(2, 0))
    assert await read_correlation_ids(other_reader, 2) == [1, 2]


@given(cuts=st.lists(st.integers(1, 700), max_size=12), sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6))
@settings(max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_frames_cut_anywhere(broker: SteeredNode, cuts: list[int], sizes: list[int]) -> None:
    if "t" not in broker.services.image.topics:
        add_topic(broker)
    stream = b"".join(produce_frame(n, b"v" * size) for n, size in enumerate(sizes))

    async def talk() -> None:
        async with serving(broker) as server:
            reader, writer = await connect(server)
            start = 0
            for cut in cuts:
                writer.write(stream[start : start + cut])
                start += cut
                await asyncio.sleep(0)
            writer.write(stream[start:])
            assert await read_correlation_ids(reader, len(sizes)) == list(range(len(sizes)))

    before = broker.services.replicas.find("t", 0).log.log_end_offset
    asyncio.run(talk())
    assert broker.services.replicas.find("t", 0).log.log_end_offset == before + len(sizes)


async def test_frames_larger_than_every_buffer(server: SocketServer, broker: SteeredNode) -> None:
    add_topic(broker, max_message_bytes=str(2 * MANY_BYTES))
    values = [bytes([n]) * size for n, size in enumerate((10, 100_000, 300_000, 1_200_000, MANY_BYTES, 10))]
    reader, writer = await connect(server)
    for number, value in enumerate(values):
        writer.write(produce_frame(number, value))
    assert await read_correlation_ids(reader, len(values)) == list(range(len(values)))
    writer.write(fetch_frame(9, 4, partition_max_bytes=1))
    _, response = decode_response(FETCH, PRODUCE_BY_NAME, memoryview(await read_frame(reader)))
    assert values[4] in bytes(response.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]


async def test_a_client_that_does_not_read_is_not_read_from(server: SocketServer, broker: SteeredNode) -> None:
    """Answers of 80 MB are asked for: they wait as requests at the client, not as answers in the broker."""
    add_topic(broker, max_message_bytes=str(2 * MANY_BYTES))
    produce_values(broker, b"x" * 800_000)
    count = 100
    reader, writer = await connect(server, receive_buffer=65536)
    requests = [fetch_frame(n, 0) + versions_frame(n) for n in range(count)]
    writer.write(b"".join(requests))
    await until(lambda: len(server._connections) == 1)
    (connection,) = server._connections
    await until(lambda: connection._is_writing and reader._paused)  # type: ignore[attr-defined]  # both are full
    assert 0 < connection._out_bytes == sum(map(len, connection._out)) < 3_000_000
    assert await read_correlation_ids(reader, 2 * count) == [n for n in range(count) for _ in "ab"]
    assert connection._out_bytes == 0


async def test_thousands_of_small_requests_at_once(server: SocketServer, broker: SteeredNode) -> None:
    reader, writer = await connect(server)
    writer.write(b"".join(map(versions_frame, range(5000))))
    assert await read_correlation_ids(reader, 5000) == list(range(5000))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\xff\xff\xff\xff", id="a negative size"),
        pytest.param(b"\x80\x00\x00\x00", id="the least size"),
        pytest.param(b"\x7f\xff\xff\xff", id="the largest size"),
        pytest.param(struct.pack(">i", 104857601), id="a size above the limit"),
        pytest.param(bytes(1000), id="zeros"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"\x00\x00\x00\x03abc", id="a frame too short"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
async def test_what_is_no_request_ends_the_connection_only(
    server: SocketServer, broker: SteeredNode, sent: bytes
) -> None:
    other = await connect(server)
    reader, writer = await connect(server)
    writer.write(versions_frame(1) + sent)
    assert await read_correlation_ids(reader, 1) == [1]
    assert await reader.read() == b""
    assert await is_served(other)


async def test_a_bug_ends_the_connection_only_and_is_logged(
    server: SocketServer, broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add_topic(broker)

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no such number")

    monkeypatch.setattr(type(broker.services.fetch_sessions), "find", fail)
    other = await connect(server)
    reader, writer = await connect(server)
    writer.write(fetch_frame(1, 0))
    assert await reader.read() == b""
    assert await is_served(other)
    assert "closing a connection of 127.0.0.1 to PLAINTEXT after an unexpected error" in caplog.text
    assert "ZeroDivisionError: no such number" in caplog.text


@pytest.mark.parametrize("configs", [{}, {"cleanup_policy": "compact"}])
async def test_without_acks_there_is_no_answer_but_the_end_when_it_failed(
    broker: SteeredNode, configs: dict[str, str]
) -> None:
    """Where records are opened their work takes steps, and may be done in the first turn."""
    add_topic(broker, **configs)
    async with serving(broker) as server:
        reader, writer = await connect(server)
        writer.write(produce_frame(1, b"kept", acks=0) + versions_frame(2))
        assert await read_correlation_ids(reader, 1) == [2]
        broken = bytearray(produce_frame(3, b"broken", acks=0))
        broken[-3] ^= 1
        writer.write(bytes(broken))
        assert await reader.read() == b""
    assert values_of(fetch(broker, 0)) == [b"kept"]


async def test_no_more_connections_from_one_address_than_allowed(tmp_path: Path) -> None:
    broker = open_broker(tmp_path / "data", max_connections_per_ip="2")
    async with serving(broker) as server:
        clients = [await connect(server) for _ in range(3)]
        assert await clients[2][0].read() == b""
        clients[0][1].close()
        await until(lambda: len(server._connections) == 1)
        assert await is_served(await connect(server))


@pytest.mark.parametrize("is_left", [True, False])
async def test_those_above_max_connections_wait_until_one_leaves_or_more_are_allowed(
    tmp_path: Path, is_left: bool
) -> None:
    broker = open_broker(tmp_path / "data", max_connections="2")
    async with serving(broker) as server:
        clients = [await connect(server) for _ in range(3)]
        for client in clients[:2]:
            assert await is_served(client)
        reader, writer = clients[2]
        writer.write(versions_frame(2))
        assert await is_silent(reader)
        if is_left:
            clients[0][1].close()
        else:
            broker.services.configs.set(ConfigResourceType.BROKER, "", {"max.connections": "3"})
        assert await read_correlation_ids(reader, 1) == [2]


async def test_idle_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_server, "_HOUSEKEEPING_SECONDS", 3600)  # the test does it, when the client was served
    async with serving(open_broker(tmp_path / "data", connections_max_idle_ms="1")) as server:
        client = await connect(server)
        assert await is_served(client)
        while server.open_connections:
            server._housekeep()
            await asyncio.sleep(0.001)
        assert await client[0].read() == b""
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", None)
    server._housekeep()  # not again after the end


async def test_an_unknown_topic_is_an_answer(server: SocketServer, broker: SteeredNode) -> None:
    reader, writer = await connect(server)
    writer.write(fetch_frame(1, 0, topic="none", max_wait_ms=HOUR_MS))
    _, response = decode_response(FETCH, PRODUCE_BY_NAME, memoryview(await read_frame(reader)))
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("first_bytes", [2, 10, 1_400, 70_000])
async def test_a_request_of_a_usual_size_finds_room_at_once(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, first_bytes: int
) -> None:
    """However little of it came first: there is room for all of it where the rest is received."""
    grown: list[int] = []
    grow = ReceiveBuffers.grow

    def noted(self: ReceiveBuffers, buffer: memoryview, used_bytes: int, size_bytes: int) -> memoryview:
        grown.append(used_bytes)
        return grow(self, buffer, used_bytes, size_bytes)

    monkeypatch.setattr(ReceiveBuffers, "grow", noted)
    add_topic(broker)
    async with serving(broker) as server:
        reader, writer = await connect(server)
        sent = frame(PRODUCE, 7, produce_request(make_batch(bytes(130_000)), "t"), PRODUCE_BY_NAME)
        writer.write(sent[:first_bytes])
        await until_moved(server, first_bytes)
        writer.write(sent[first_bytes:])
        correlation_id, response = decode_response(PRODUCE, PRODUCE_BY_NAME, memoryview(await read_frame(reader)))
        assert (correlation_id, response.responses[0].partition_responses[0].error_code) == (7, 0)
    assert not grown


async def test_many_begin_a_request_before_one_ends(server: SocketServer, broker: SteeredNode) -> None:
    """Each beginning stays where it was received, and nobody receives there but its own client."""
    add_topic(broker)
    sizes = [130_000, 60_000, 250_000, 20_000, 900_000, 130_001]
    clients = [await connect(server) for _ in sizes]
    frames = [produce_frame(n, randbytes(size)) for n, size in enumerate(sizes)]
    for (_, writer), sent in zip(clients, frames, strict=True):
        began, before = versions_frame(100) + sent[:-9_000], moved_bytes(server)
        writer.write(began)
        await until_moved(server, before + len(began))
    for (reader, writer), sent in reversed(list(zip(clients, frames, strict=True))):
        writer.write(sent[-9_000:] + versions_frame(101))
        assert await read_correlation_ids(reader, 1) == [100]
        _, response = decode_response(PRODUCE, PRODUCE_BY_NAME, memoryview(await read_frame(reader)))
        assert response.responses[0].partition_responses[0].error_code == 0, "its checksum is right"
        assert await read_correlation_ids(reader, 1) == [101]


@pytest.mark.parametrize("seed", range(4))
async def test_long_requests_cut_anywhere(server: SocketServer, broker: SteeredNode, seed: int) -> None:
    add_topic(broker)
    random = Random(seed)
    count = 20
    stream = b"".join(produce_frame(n, random.randbytes(int(10 ** random.uniform(1, 5.7)))) for n in range(count))
    reader, writer = await connect(server)

    async def send() -> None:
        start = 0
        while start < len(stream):
            cut = int(10 ** random.uniform(0, 5.5))
            writer.write(stream[start : start + cut])
            await writer.drain()
            await asyncio.sleep(0.002 * random.randrange(2))
            start += cut

    sending = asyncio.create_task(send())
    for number in range(count):
        correlation_id, response = decode_response(PRODUCE, PRODUCE_BY_NAME, memoryview(await read_frame(reader)))
        assert (correlation_id, response.responses[0].partition_responses[0].error_code) == (number, 0)
    await sending


async def test_the_beginning_of_a_long_request_is_not_moved(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[memoryview] = []
    keep = ReceiveBuffers.keep

    def noted(self: ReceiveBuffers, buffer: memoryview) -> None:
        kept.append(buffer)
        keep(self, buffer)

    monkeypatch.setattr(ReceiveBuffers, "keep", noted)
    add_topic(broker)
    sent = produce_frame(1, randbytes(130_000))
    async with serving(broker) as server:
        reader, writer = await connect(server)
        for end in (60_000, len(sent) - 60_000):
            before = moved_bytes(server)
            writer.write(sent[:end])
            await until_moved(server, before + end)
            writer.write(sent[end:])
            assert await read_correlation_ids(reader, 1) == [1]
    assert len(kept) >= 2
    assert all(len(buffer) > 2 * len(sent) for buffer in kept)


def test_buffers_are_used_again() -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(10)
    first[:3] = b"abc"
    grown = buffers.grow(first, 3, 50_000_000)
    assert bytes(grown[:3]) == b"abc"
    assert len(first) < len(grown) <= 50_000_000
    pooled = [buffers.take(1_050_000) for _ in range(20)]
    for buffer in pooled:
        buffers.give_back(buffer)
    again = [buffers.take(1_050_000) for _ in range(20)]
    shared = {id(b) for b in pooled} & {id(b) for b in again}
    assert 0 < len(shared) <= 8, "some are kept, not all"


@pytest.mark.parametrize("count", [1, 20])
async def test_many_requests_of_others_keep_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Each request takes longer than a turn; whoever asks in between is served before most of those that wait."""
    broker = open_broker(tmp_path)
    handled: list[str] = []
    handle = broker.dispatcher.handle
    now_s = 0.0

    def slowly(data: memoryview, *hosts: str) -> Any:
        nonlocal now_s
        now_s += 2 * fair_scheduler.TURN_SECONDS
        handled.append(bytes(data[10:14]).decode())
        return handle(data, *hosts)

    monkeypatch.setattr(broker.dispatcher, "handle", slowly)
    for module in (connection, fair_scheduler):
        monkeypatch.setattr(module, "monotonic", lambda: now_s)
    requests = 100

    def frames(client_id: str, count: int) -> bytes:
        request = ApiVersionsRequest("x", "1")
        return b"".join(encode_request(API_VERSIONS, 3, n, client_id, request) for n in range(count))

    async with serving(broker) as server:
        greedy = [await connect(server) for _ in range(count)]
        reader, writer = await connect(server)
        for _, greedy_writer in greedy:
            greedy_writer.write(frames("many", requests))
        await until(lambda: len(handled) >= 40)
        before = len(handled)
        writer.write(frames("one!", 1))
        await read_frame(reader)
        assert handled.index("one!") - before < 40
        for number, (greedy_reader, greedy_writer) in enumerate(greedy):
            if number:
                greedy_writer.close()
            else:
                assert await read_correlation_ids(greedy_reader, requests) == list(range(requests))


async def test_a_disk_that_refuses_in_the_background_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint, say; it is written when it is due again."""
    broker = open_broker(tmp_path)
    add_topic(broker)
    checkpoint = tmp_path / "replication-offset-checkpoint"
    refused: list[Path] = []
    write_atomic = broker._filesystem.write_atomic

    def write(path: Path, content: bytes, *, sync: bool = True) -> None:
        if path == checkpoint and not refused:
            refused.append(path)
            raise OSError(28, "No space left on device", str(path))
        write_atomic(path, content, sync=sync)

    monkeypatch.setattr(broker._filesystem, "write_atomic", write)
    async with serving(broker):
        produce_values(broker, b"a")
        broker.services.log_manager.checkpoints.write_high_watermarks(broker.runtime.run_in_background)
        done = asyncio.Event()
        broker.runtime.run_in_background(lambda: None, done.set)
        await done.wait()
        [line] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert line.getMessage() == f"could not write to {checkpoint}: no space left on device"
        assert line.exc_info is None
        broker.services.log_manager.checkpoints.write_high_watermarks(broker.runtime.run_in_background)
    broker.close()
    assert "t 0 1" in checkpoint.read_text()


def test_a_large_buffer_is_used_again() -> None:
    """The system takes long to make its pages."""
    buffers = ReceiveBuffers()
    large = buffers.take(10_000_000)
    assert len(large) >= 10_000_000
    buffers.give_back(large)
    assert buffers.take(9_000_000) is large
    assert buffers.take(9_000_000) is not large, "only one of them is kept"
    assert len(buffers.take(50_000_000)) == 50_000_000


@pytest.mark.parametrize("sent_last", [b"", b"\xff\xff\xff\xff"], ids=["its end", "what is no request"])
async def test_who_sends_nothing_more_gets_what_he_asked_for(
    server: SocketServer, broker: SteeredNode, sent_last: bytes
) -> None:
    """As a shell does, that pipes requests in: he reads slowly, and the answers are more than a socket takes."""
    add_topic(broker)
    produce_values(broker, bytes(800_000))
    count = 30
    reader, writer = await connect(server, receive_buffer=65536)
    writer.write(b"".join(fetch_frame(n, 0) + versions_frame(n) for n in range(count)) + sent_last)
    if not sent_last:
        writer.write_eof()
    assert await read_correlation_ids(reader, 2 * count) == [n for n in range(count) for _ in "ab"]
    assert await reader.read() == b""


async def test_who_is_gone_before_his_answer_holds_no_memory(
    server: SocketServer, broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning of a further request came with the one that can't be answered any more."""
    client = socket.create_connection((server.endpoint.host, server.endpoint.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handle = RequestDispatcher.handle

    def reset_and_handle(dispatcher: RequestDispatcher, *arguments: Any) -> Any:
        client.close()
        return handle(dispatcher, *arguments)

    monkeypatch.setattr(RequestDispatcher, "handle", reset_and_handle)
    client.sendall(versions_frame(1) + produce_frame(2, bytes(50_000))[:30_000])
    await until(lambda: server.accepted_connections == 1 and not server.open_connections)
    assert server._memory._total == 0


@pytest.mark.parametrize(
    "sent", [produce_frame(1, b"x")[:30], b"\0", produce_frame(1, b"x", acks=0)], ids=["half", "a byte", "no answer"]
)
def test_who_is_gone_with_his_last_bytes_holds_no_connection(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """The loop of a server tells of the bytes and of the reset at once, and of nothing after that."""
    monkeypatch.setattr(socket_server, "_HOUSEKEEPING_SECONDS", 0.01)

    async def come_and_go() -> None:
        async with serving(broker) as server:
            for _ in range(3):
                client = socket.create_connection((server.endpoint.host, server.endpoint.port))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(sent)
                client.close()
            await until(lambda: server.accepted_connections == 3 and not server.open_connections)

    with loop_tasks.new_runner() as runner:
        runner.run(come_and_go())


async def test_a_server_that_stops_is_not_asked(broker: SteeredNode) -> None:
    """It has the directory for a while yet, and others wait for that."""
    async with serving(broker) as server:
        holder = find_lock_holder(broker.directory)
        assert holder is not None
        assert holder.address == str(server.endpoint)
    assert find_lock_holder(broker.directory) == LockHolder(os.getpid(), "")


async def test_a_server_that_could_not_start_whole_is_closed(server: SocketServer, broker: SteeredNode) -> None:
    """As if the port for metrics were taken: nobody runs the server then, and `run` may close it once more."""
    client = socket.create_connection((server.endpoint.host, server.endpoint.port))
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.endpoint.host, server.endpoint.port))
    assert server.open_connections == 0
    client.close()
