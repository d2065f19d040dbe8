"""A server under a memory limit, and clients that mean it no good: each is answered or closed, none hangs, and whoever
means well is served all the while. The fuzzer's seeds are sound requests of every API and version, bent in one place
or more."""

from __future__ import annotations

import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.error_code import ErrorCode
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.metadata import METADATA, MetadataRequestTopic
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.topic_changes import CREATE_PARTITIONS, CREATE_TOPICS, CreatableTopic, CreatePartitionsTopic
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.broker import fetch_request, produce_request
from tests.support.logs import NOW, make_batch
from tests.support.requests import SERVED_APIS
from tests.support.server import Server, call_plog
from tests.support.waiting import ANSWER_SECONDS

pytestmark = pytest.mark.longer

ROOM_BYTES = 184 * 1024 * 1024
"""What the server may take on top of what it has when it is ready; a batch may unfold to 128 MB, and two large buffers
are kept.
"""

CASES = 12_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("hostile") / "data"
    # else each thread reserves 64 MB of addresses that it does not use
    environment = {"MALLOC_ARENA_MAX": "1"}
    settings = ["auto.create.topics.enable=false"]
    # a bent Fetch may ask to wait for days; what is sent behind it is not looked at meanwhile
    settings.append("connections.max.idle.ms=5000")
    options = [option for setting in settings for option in ("--set", setting)]
    with Server(data_dir, *options, environment=environment) as running:
        for settings in (
            ["t"],
            ["compacted", "--set", "cleanup.policy=compact", "--set", "max.message.bytes=20000000"],
        ):
            assert call_plog("topic", "create", *settings, "--bootstrap-server", running.address).returncode == 0
        large = batch_of([Record(0, NOW, b"k", bytes(100_000))])
        frame = encode_request(PRODUCE, 12, 1, "x", produce_request(large, topic="compacted"))
        assert sent_and_closed(running, frame)  # from here on it has the libraries that walk large batches
        assert running.process is not None
        limit = virtual_bytes(running) + ROOM_BYTES
        resource.prlimit(running.process.pid, resource.RLIMIT_AS, (limit, limit))
        yield running
        assert_serves(running)
    said = running.log.read_text()
    assert "Traceback" not in said, said[-3000:]
    assert "MemoryError" not in said


def virtual_bytes(server: Server) -> int:
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def connect(server: Server) -> socket.socket:
    return socket.create_connection(server.host_and_port, timeout=ANSWER_SECONDS)


def sent_and_closed(server: Server, data: bytes) -> bytes:
    """What comes back until the server closes, too. TimeoutError where it does not."""
    with connect(server) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            return b""  # closed while we sent
        answer = bytearray()
        while True:
            try:
                piece = sock.recv(65536)
            except ConnectionResetError:
                return bytes(answer)
            if not piece:
                return bytes(answer)
            answer += piece


def assert_serves(server: Server) -> None:
    with connect(server) as sock:
        sock.sendall(api_versions_frame())
        (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        body = sock.recv(size, socket.MSG_WAITALL)
    correlation_id, response = decode_response(API_VERSIONS, 4, memoryview(body))
    assert (correlation_id, response.error_code) == (5, 0)


def api_versions_frame() -> bytes:
    return encode_request(API_VERSIONS, 4, 5, "good", ApiVersionsRequest("good", "1"))


def seeds() -> list[bytes]:
    frames = []
    for api in SERVED_APIS:
        request = api.request()
        if api is PRODUCE:
            request = produce_request(make_batch(b"a", b"b"))
        elif api is FETCH:
            request = fetch_request(0, max_wait_ms=5)
        elif api is METADATA:
            request.topics = [MetadataRequestTopic(name="t")]
        elif api is CREATE_TOPICS:
            request.topics = [CreatableTopic("no good name", 1, 1)]
        elif api is CREATE_PARTITIONS:
            request.topics = [CreatePartitionsTopic("nope", 2)]
        elif api is API_VERSIONS:
            request = ApiVersionsRequest("bad", "1")
        frames += [
            encode_request(api, version, 9, "fuzzer", request)
            for version in range(api.versions.first, api.versions.last + 1)
        ]
    return frames


def bend(frame: bytes, dice: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 20))):
        if not data:
            break
        position = dice.randrange(len(data))
        match dice.randrange(7):
            case 0:
                data[position] ^= 1 << dice.randrange(8)
            case 1:
                data[position] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del data[position:]
            case 3:
                data[position:position] = dice.randbytes(dice.randrange(1, 50))
            case 4:
                data[position : position + 4] = struct.pack(">i", dice.choice((-1, -2, 0, 0x7FFFFFFF, -0x80000000)))
            case 5:
                data[position : position + 5] = b"\xff\xff\xff\xff\x0f"  # a varint of the largest length
            case 6:
                del data[position : position + dice.randrange(1, 9)]
    if dice.random() < 0.7 and len(data) >= 4:
        data[:4] = struct.pack(">i", len(data) - 4)  # so that the body is looked at
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_bent_requests(server: Server, seed: int) -> None:
    dice = random.Random(seed)
    frames = seeds()
    for case in range(CASES // 4):
        bent = b"".join(bend(dice.choice(frames), dice) for _ in range(dice.choice((1, 1, 3))))
        try:
            sent_and_closed(server, bent)
        except TimeoutError:
            pytest.fail(f"hangs: seed {seed}, case {case}: {bent.hex()}")
        if case % 50 == 0:
            assert_serves(server)
    assert_serves(server)


def test_claims_cost_nothing(server: Server) -> None:
    """200 connections that each claim a request of 100 MB, and send some of it."""
    with_claims = [connect(server) for _ in range(200)]
    for sock in with_claims:
        sock.sendall(struct.pack(">ihhi", 104857600, 0, 9, 1) + bytes(1000))
    assert_serves(server)
    for sock in with_claims:
        sock.close()


def test_a_client_that_asks_and_never_reads(server: Server) -> None:
    """Its answers wait in the socket, and its further requests with it."""
    big = bytes(make_batch(bytes(900_000)).buffer)
    assert len(sent_and_closed(server, encode_request(PRODUCE, 12, 1, "x", produce_request(big)))) > 4
    fetch = encode_request(FETCH, 12, 1, "x", fetch_request(0, max_bytes=1 << 30, partition_max_bytes=1 << 30))
    greedy = []
    for _ in range(20):
        sock = connect(server)
        sock.setblocking(False)
        try:
            while sock.send(fetch * 100):
                pass
        except BlockingIOError:
            greedy.append(sock)
    assert len(greedy) == 20
    assert_serves(server)
    for sock in greedy:
        sock.close()


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_a_batch_that_unfolds_beyond_the_limit(server: Server, codec: CompressionType) -> None:
    """A compacted topic looks at the keys, so it must be unfolded: as far as the limit, and no farther."""
    batch = batch_of([Record(0, NOW, b"k", bytes(200_000_000))], compression=codec)
    frame = encode_request(PRODUCE, 12, 1, "x", produce_request(batch, topic="compacted"))
    _, response = decode_response(PRODUCE, 12, memoryview(sent_and_closed(server, frame))[4:])
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD, answer
    assert_serves(server)
