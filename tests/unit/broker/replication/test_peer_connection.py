"""One end of a connection between brokers; the other end is a script that may do anything."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from random import Random, randbytes
from typing import Any

import pytest

from core.broker.replication import peer_connection
from core.broker.replication.peer_connection import PeerConnection
from core.broker.serving import loop_tasks
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.protocol.message_codec import codec
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    LeaderAndIsrRequest,
    UpdateMetadataBroker,
    UpdateMetadataRequest,
)
from core.protocol.schema.controller_request import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from core.protocol.schema.fetch import FETCH, FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

FETCH_VERSION = 17
HOUR_S = 3600.0
"""What an answer may take, where something else than time has to end the wait for it."""
LARGE = UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(n, rack="r" * 30_000) for n in range(700)])
"""More than the buffers of both ends hold."""

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What the peer does with one connection, which is closed after it."""


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    with asyncio.Runner() if request.param == "asyncio" else loop_tasks.new_runner() as runner:
        yield runner


class Talking:
    """Connects to a peer that does as a script says."""

    def __init__(self) -> None:
        self.buffers = ReceiveBuffers()

    @asynccontextmanager
    async def __call__(self, script: Script, *, request_timeout_s: float = HOUR_S) -> AsyncIterator[PeerConnection]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await script(reader, writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            connection = await self.connect(Endpoint("127.0.0.1", port), request_timeout_s)
            try:
                yield connection
            finally:
                connection.close()

    async def connect(self, endpoint: Endpoint, request_timeout_s: float = HOUR_S) -> PeerConnection:
        return await PeerConnection.connect(
            endpoint,
            self.buffers,
            client_id="broker-1-fetcher-0",
            connect_timeout_s=HOUR_S,
            request_timeout_s=request_timeout_s,
        )


@pytest.fixture
def talking() -> Talking:
    return Talking()


def ask(connection: PeerConnection, number: int = 1) -> asyncio.Future[AllocateProducerIdsResponse]:
    return connection.send(ALLOCATE_PRODUCER_IDS, 0, AllocateProducerIdsRequest(1, number))


def fetch(connection: PeerConnection) -> asyncio.Future[FetchResponse]:
    return connection.send(FETCH, FETCH_VERSION, FetchRequest())


async def read_request(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """(correlation id, all that comes after it)."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    return struct.unpack_from(">i", frame, 4)[0], frame[8:]


def framed(correlation_id: int, body: bytes) -> bytes:
    """An answer with a header of version 1."""
    answer = struct.pack(">ib", correlation_id, 0) + body
    return struct.pack(">i", len(answer)) + answer


def block_answer(correlation_id: int, start: int) -> bytes:
    return framed(correlation_id, struct.pack(">ihqib", 0, 0, start, 1000, 0))


def fetch_answer(correlation_id: int, records: bytes) -> bytes:
    topic = FetchableTopicResponse(topic_id=bytes(16), partitions=[PartitionData(0, records=records)])
    return framed(correlation_id, codec(FetchResponse, FETCH_VERSION).encode(FetchResponse(responses=[topic])))


def records_of(answer: FetchResponse) -> memoryview:
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    return records


async def answer_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Gives each the id that it says, as the start of a block."""
    while True:
        correlation_id, rest = await read_request(reader)
        writer.write(block_answer(correlation_id, struct.unpack_from(">q", rest, len(rest) - 9)[0]))


async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


# --- answers


async def write_in_pieces(writer: asyncio.StreamWriter, stream: bytes, most_bytes: int, rnd: Random) -> None:
    while stream:
        size = rnd.randrange(1, most_bytes)
        writer.write(stream[:size])
        await writer.drain()
        stream = stream[size:]
        await asyncio.sleep(0)


async def test_requests_are_sent_at_once_and_answered_in_their_order(talking: Talking) -> None:
    async def answer_after_all_came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [(await read_request(reader))[0] for _ in range(200)]
        await write_in_pieces(writer, b"".join(block_answer(one, one * 7) for one in ids), 70, Random(7))
        await reader.read()

    async with talking(answer_after_all_came) as connection:
        answers = await asyncio.gather(*(ask(connection) for _ in range(200)))
        assert [answer.producer_id_start for answer in answers] == [n * 7 for n in range(1, 201)]


async def test_the_request_is_framed_with_key_version_and_client(talking: Talking) -> None:
    seen: list[bytes] = []

    async def remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readexactly(4 + 8 + 2 + 18 + 1 + 13))
        writer.write(block_answer(1, 5))
        await reader.read()

    async with talking(remember) as connection:
        assert (await ask(connection, 77)) == AllocateProducerIdsResponse(0, 0, 5, 1000)
    header = struct.pack(">ihhih", 42, 67, 0, 1, 18) + b"broker-1-fetcher-0" + b"\0"
    assert seen == [header + struct.pack(">iqb", 1, 77, 0)]


async def test_an_answer_that_comes_byte_by_byte_is_whole(talking: Talking) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        for byte in block_answer(correlation_id, 123_000):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with talking(drip) as connection:
        assert (await ask(connection)).producer_id_start == 123_000


async def test_a_request_larger_than_the_socket_takes_at_once_arrives_whole(talking: Talking) -> None:
    async def measure(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, rest = await read_request(reader)
        assert rest.endswith(codec(UpdateMetadataRequest, 8).encode(LARGE))
        writer.write(framed(correlation_id, b"\0\0\0"))
        await answer_each(reader, writer)

    async with talking(measure) as connection:
        large = connection.send(UPDATE_METADATA, 8, LARGE)
        small = ask(connection, 9)
        assert (await large).error_code == 0
        assert (await small).producer_id_start == 9


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped(talking: Talking) -> None:
    async with talking(answer_each) as connection:
        forgotten = ask(connection, 1)
        forgotten.cancel()
        assert (await ask(connection, 2)).producer_id_start == 2


async def test_a_request_that_the_version_has_no_room_for_is_not_sent(talking: Talking) -> None:
    async with talking(answer_each) as connection:
        with pytest.raises(KafkaError) as refused:
            connection.send(LEADER_AND_ISR, 4, LeaderAndIsrRequest(type=1))
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert (await ask(connection, 3)).producer_id_start == 3


# --- records


async def test_records_are_a_view_of_a_buffer_that_is_used_again(talking: Talking) -> None:
    values = [randbytes(40_000) for _ in range(3)]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for value in values:
            correlation_id, _ = await read_request(reader)
            writer.write(fetch_answer(correlation_id, value))
        await reader.read()

    async with talking(serve) as connection:
        buffers = set()
        for value in values:
            records = records_of(await fetch(connection))
            assert records == value
            buffers.add(id(records.obj))
        assert len(buffers) == 1


async def test_records_stay_as_they_are_while_more_answers_come(talking: Talking) -> None:
    rnd = Random(34)
    values = [rnd.randbytes(rnd.choice((1, 1000, 70_000, 300_000))) for _ in range(40)]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ids = [(await read_request(reader))[0] for _ in values]
        answers = [fetch_answer(*pair) for pair in zip(ids, values, strict=True)]
        await write_in_pieces(writer, b"".join(answers), 200_000, rnd)
        await reader.read()

    async with talking(serve) as connection:
        answers = await asyncio.gather(*(fetch(connection) for _ in values))
        assert [bytes(records_of(answer)) for answer in answers] == values


async def test_records_outlive_the_connection_whatever_is_sent_unasked(talking: Talking) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        writer.write(fetch_answer(correlation_id, b"records"))
        await writer.drain()
        await given.wait()
        writer.write(bytes(60_000))

    given = asyncio.Event()
    async with talking(serve) as connection:
        answer = await fetch(connection)
        given.set()
        while not connection.is_closed:
            await asyncio.sleep(0)
        another = talking.buffers.take(64 * 1024)
        another[:] = bytes(len(another))
        assert records_of(answer) == b"records"


async def test_a_large_answer_grows_the_buffer_as_it_comes_and_the_buffer_goes_back_at_the_end(
    talking: Talking,
) -> None:
    value = randbytes(3_000_000)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        writer.write(fetch_answer(correlation_id, value))
        await answer_each(reader, writer)

    sizes = []
    async with talking(serve) as connection:
        assert records_of(await fetch(connection)) == value
        sizes.append(len(connection._buffer))
        await ask(connection)
    assert len(value) < sizes[0] <= 2 * len(value)
    assert [len(buffer) for buffer in talking.buffers._free[sizes[0]]] == sizes


# --- hostile and broken peers


def sent_to_anyone(data: bytes) -> Script:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(data)
        await writer.drain()
        await reader.read()

    return send


async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)


async def close_in_the_middle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(block_answer(1, 0)[:-1])


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param(close_at_once, "it was closed", id="closes"),
        pytest.param(close_in_the_middle, "it was closed", id="closes in the middle of an answer"),
        pytest.param(reset, "connection reset by peer|it was closed", id="resets"),
        pytest.param(sent_to_anyone(b"\xff" * 16), "an answer claims -1 bytes", id="a negative size"),
        pytest.param(sent_to_anyone(b"\x7f\xff\xff\xff"), "an answer claims 2147483647 bytes", id="a huge size"),
        pytest.param(sent_to_anyone(b"HTTP/1.1 400 \r\n"), "an answer claims 1213486160 bytes", id="another protocol"),
        pytest.param(sent_to_anyone(struct.pack(">i", 0)), "malformed ResponseHeader", id="an answer of nothing"),
        pytest.param(sent_to_anyone(framed(1, b"\1")), "malformed AllocateProducerIdsResponse", id="a short answer"),
        pytest.param(
            sent_to_anyone(block_answer(2, 0)), "an answer to request 2 came where one to 1 was due", id="another's"
        ),
    ],
)
async def test_whoever_waits_learns_why_the_connection_is_lost(talking: Talking, script: Script, reason: str) -> None:
    async with talking(script) as connection:
        answers = await asyncio.gather(*(ask(connection) for _ in range(3)), return_exceptions=True)
        for answer in answers:
            assert isinstance(answer, ConnectionFailedError)
            assert answer.where.startswith("127.0.0.1:")
        assert connection.is_closed
        with pytest.raises(ConnectionFailedError, match=f"lost the connection to 127.0.0.1:[0-9]+: ({reason})"):
            raise answers[0]  # type: ignore[misc]
        with pytest.raises(ConnectionFailedError, match="it is closed"):
            ask(connection)


async def test_what_was_answered_before_the_connection_is_lost_is_given(talking: Talking) -> None:
    async with talking(sent_to_anyone(block_answer(1, 1) + b"\xff\xff\xff\xff")) as connection:
        first, second = await asyncio.gather(ask(connection), ask(connection), return_exceptions=True)
        assert first == AllocateProducerIdsResponse(0, 0, 1, 1000)
        assert isinstance(second, ConnectionFailedError)


@pytest.mark.parametrize("more", [b"\0", block_answer(2, 0)], ids=["a byte", "an answer"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_nobody_asked_for_ends_the_connection(talking: Talking, more: bytes, at_once: bool) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        answer = block_answer(correlation_id, 1)
        writer.write(answer + more if at_once else answer)
        await writer.drain()
        if not at_once:
            await given.wait()
            writer.write(more)
        await reader.read()

    given = asyncio.Event()
    async with talking(send) as connection:
        assert (await ask(connection)).producer_id_start == 1
        given.set()
        while not connection.is_closed:
            await asyncio.sleep(0)


@pytest.mark.parametrize("begun", [b"", block_answer(1, 1)[:-1]], ids=["nothing", "half an answer"])
async def test_a_peer_that_never_answers_is_given_up(talking: Talking, begun: bytes) -> None:
    async with talking(sent_to_anyone(begun), request_timeout_s=0.05) as connection:
        answers = await asyncio.gather(ask(connection), ask(connection), return_exceptions=True)
        assert [str(answer).partition(": ")[2] for answer in answers] == ["no answer in 0.05 s"] * 2


async def test_a_claim_takes_no_memory_before_its_bytes_come(talking: Talking) -> None:
    async with talking(sent_to_anyone(struct.pack(">i", 1 << 29) + bytes(100000))) as connection:
        ask(connection)
        while connection._end < 100_000:
            await asyncio.sleep(0)
        assert len(connection._buffer) <= 512 * 1024


async def test_one_timer_looks_after_all_answers_in_turn(talking: Talking) -> None:
    async with talking(answer_each) as connection:
        assert await ask(connection)
        later = ask(connection)
        connection._on_timer()  # the time of the first is over
        assert not connection.is_closed
        assert connection._timer is not None
        assert await later
        connection._on_timer()
        assert connection._timer is None
        assert await ask(connection)


async def test_a_peer_that_reads_nothing_is_given_up(talking: Talking) -> None:
    async def sleep_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await done.wait()

    done = asyncio.Event()
    async with talking(sleep_on, request_timeout_s=0.05) as connection:
        with pytest.raises(ConnectionFailedError, match=r"no answer in 0\.05 s"):
            await connection.send(UPDATE_METADATA, 8, LARGE)
        done.set()


async def test_random_bytes_never_do_more_than_end_the_connection(talking: Talking) -> None:
    rnd = Random(5)
    good = fetch_answer(1, rnd.randbytes(300))
    for _ in range(60):
        bad = bytearray(good)
        for _ in range(rnd.randrange(1, 4)):
            bad[rnd.randrange(len(bad))] = rnd.randrange(256)
        bad = bad[: rnd.randrange(4, len(bad) + 1)]

        async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bad: bytes = bytes(bad)) -> None:
            await read_request(reader)
            writer.write(bad)

        async with talking(send) as connection:
            with suppress(ConnectionFailedError):
                await fetch(connection)


# --- the beginning and the end


async def test_who_closes_the_connection_ends_what_waits(talking: Talking) -> None:
    async with talking(never_answer) as connection:
        answer = ask(connection)
        connection.close()
        connection.close()
        with pytest.raises(ConnectionFailedError, match="it is closed"):
            await answer


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        (Endpoint("127.0.0.1", 1), "connection refused"),
        (Endpoint("no-such-host.invalid", 9092), "name|address|resolution"),
        (Endpoint("a" * 70, 9092), ""),
        (Endpoint("nul\0", 9092), ""),
        (Endpoint("127.0.0.1", 70_000), "there is no such port"),
        (Endpoint("127.0.0.1", -1), "there is no such port"),
    ],
    ids=["nobody listens", "no such name", "too long a name", "no name", "no port", "a negative port"],
)
async def test_where_nobody_answers(talking: Talking, endpoint: Endpoint, reason: str) -> None:
    with pytest.raises(ConnectionFailedError, match=f"could not connect to .*: .*({reason})"):
        await talking.connect(endpoint)


async def test_a_connection_that_nobody_takes_is_given_up(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_for_ever(endpoint: Endpoint) -> Any:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(peer_connection, "_connected_socket", wait_for_ever)
    with pytest.raises(ConnectionFailedError, match=r"could not connect to 127.0.0.1:9092: no answer in 0\.05 s"):
        await PeerConnection.connect(
            Endpoint("127.0.0.1", 9092), talking.buffers, client_id="x", connect_timeout_s=0.05, request_timeout_s=1
        )
