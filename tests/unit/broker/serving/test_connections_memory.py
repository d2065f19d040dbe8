"""What connections hold in memory is bounded, and those who mean well are served beside those who don't."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.connections_memory import LARGE_BYTES, SLOW_BYTES, ConnectionsMemory
from core.common.errors import KafkaError
from core.protocol.frame import encode_request
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.produce import PRODUCE
from tests.support.broker import PRODUCE_BY_NAME, produce_request
from tests.support.logs import make_batch
from tests.support.server import Server, call_plog
from tests.support.waiting import ANSWER_SECONDS

MB = 1024 * 1024


class Holder:
    """A connection that holds `held` bytes, and asks for more by `want`."""

    def __init__(self, memory: ConnectionsMemory) -> None:
        self.memory = memory
        self.moved_bytes = 0
        self.is_at_work = False
        self.held = 0
        self.wanted = 0
        self.is_closed = False

    def hold(self, size_bytes: int) -> Holder:
        self.held = size_bytes
        self.moved_bytes += size_bytes
        self.memory.hold(self, size_bytes)
        self.memory._check_invariants()
        return self

    def want(self, size_bytes: int) -> Holder:
        self.wanted = size_bytes
        self.memory.ask(self, size_bytes)
        self.memory._check_invariants()
        return self

    def on_granted(self) -> None:
        self.held, self.wanted = self.wanted, 0

    def close(self) -> None:
        self.is_closed = True
        self.memory.forget(self)
        self.held = self.wanted = 0


@pytest.fixture
def memory() -> ConnectionsMemory:
    return ConnectionsMemory(8 * MB)


def test_who_does_not_fit_waits_until_somebody_gives_back(memory: ConnectionsMemory) -> None:
    first, second = Holder(memory).hold(8 * MB - 10), Holder(memory).hold(5)
    second.want(100)
    assert second.wanted == 100
    first.hold(8 * MB - 100)
    assert second.held == 100
    assert memory._total == 8 * MB


def test_those_who_need_least_are_served_first(memory: ConnectionsMemory) -> None:
    first = Holder(memory).hold(8 * MB)
    waiting = [Holder(memory).want(size) for size in (MB, 20, 10)]
    first.hold(8 * MB - 25)
    assert [holder.held for holder in waiting] == [0, 0, 10]
    first.hold(8 * MB - 40)
    assert [holder.held for holder in waiting] == [0, 20, 10]
    first.hold(0)
    assert [holder.held for holder in waiting] == [MB, 20, 10]


def test_large_requests_leave_room_to_small_ones(memory: ConnectionsMemory) -> None:
    large = [Holder(memory).want(5 * MB // 2) for _ in range(3)]
    assert [holder.held for holder in large] == [5 * MB // 2, 5 * MB // 2, 0]
    assert Holder(memory).want(MB // 2).held == MB // 2
    large[0].hold(0)
    assert large[2].held == 5 * MB // 2


def test_one_large_request_is_admitted_whatever_there_is(memory: ConnectionsMemory) -> None:
    Holder(memory).hold(4 * MB)
    assert Holder(memory).want(8 * MB).held == 8 * MB


def test_what_is_admitted_waits_for_nobody(memory: ConnectionsMemory) -> None:
    first, second = Holder(memory).want(5 * MB), Holder(memory).want(5 * MB)
    assert (first.held, second.held) == (5 * MB, 0)
    first.want(5 * MB)
    assert first.wanted == 0, "it has what it needs, and asks for that again as it comes"


def test_slow_ones_are_closed_when_others_wait(memory: ConnectionsMemory) -> None:
    small, large, moving = (Holder(memory).hold(size * MB) for size in (1, 3, 4))
    for _ in range(3):
        memory.step()
        moving.moved_bytes += SLOW_BYTES
    assert not (small.is_closed or large.is_closed), "nobody needs their memory"
    assert Holder(memory).want(MB).held == MB
    assert (small.is_closed, large.is_closed, moving.is_closed) == (False, True, False)


def test_nobody_is_slow_in_his_first_two_seconds_nor_while_he_waits(memory: ConnectionsMemory) -> None:
    memory.step()
    first, second = Holder(memory).hold(7 * MB), Holder(memory).hold(MB)
    second.want(LARGE_BYTES)
    memory.step()
    memory.step()
    assert not first.is_closed
    for _ in range(3):
        first.moved_bytes += SLOW_BYTES
        memory.step()
    assert not second.is_closed
    memory.step()
    assert not first.is_closed
    memory.step()
    assert first.is_closed
    assert second.held == LARGE_BYTES
    third = Holder(memory).hold(7 * MB)
    memory.step()
    memory.step()
    assert not second.is_closed, "its two seconds began when it was served"
    third.moved_bytes += SLOW_BYTES
    memory.step()
    assert (second.is_closed, third.is_closed) == (True, False)


def test_whose_request_is_worked_on_is_not_slow(memory: ConnectionsMemory) -> None:
    at_work = Holder(memory).want(7 * MB)
    at_work.is_at_work = True
    next_one = Holder(memory).want(2 * MB)
    for _ in range(3):
        memory.step()
    assert (at_work.is_closed, next_one.held) == (False, 0)
    at_work.hold(0)
    assert next_one.held == 2 * MB


def test_where_all_wait_for_each_other_the_last_one_goes(
    memory: ConnectionsMemory, caplog: pytest.LogCaptureFixture
) -> None:
    holders = [Holder(memory).hold(MB) for _ in range(8)]
    for holder in holders:
        holder.want(LARGE_BYTES)
    memory.step()
    assert [holder.is_closed for holder in holders] == [False] * 7 + [True]
    assert all(holder.held == LARGE_BYTES for holder in holders[:7])
    assert caplog.text.count("closed 1 connections") == 1


def test_unsent_answers_are_counted_though_they_can_not_wait(memory: ConnectionsMemory) -> None:
    unread = [Holder(memory).hold(2 * MB) for _ in range(6)]
    assert memory.is_short
    assert memory.most_unsent_bytes == 0
    for _ in range(3):
        memory.step()
    assert memory._total <= 8 * MB
    assert sum(holder.is_closed for holder in unread) == 2


def test_less_than_one_request_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"queued.max.request.bytes is 1000: it must be at least"):
        BrokerConfig.parse({"queued.max.request.bytes": "1000"})
    BrokerConfig.parse({"queued.max.request.bytes": "1000", "socket.request.max.bytes": "1000"})
    BrokerConfig.parse({"queued.max.request.bytes": "-1"})


# --- a server's memory

LIMIT = 24 * MB
LARGEST = 8 * MB
SLACK = 48 * MB
"""Beside the limit: one large request, and what Python keeps."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = {
        "queued.max.request.bytes": LIMIT,
        "socket.request.max.bytes": LARGEST,
        "socket.send.buffer.bytes": 32768,
        "num.partitions": 100,
    }
    options = [option for name, value in settings.items() for option in ("--set", f"{name}={value}")]
    environment = {"MALLOC_ARENA_MAX": "1"}
    with Server(tmp_path / "data", *options, environment=environment) as running:
        assert call_plog("topic", "create", "t", "--bootstrap-server", running.address).returncode == 0
        yield running


def memory_of(server: Server, field: str) -> int:
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


class Healthy:
    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(server.host_and_port, timeout=ANSWER_SECONDS)
        self.batch = make_batch(bytes(100_000))

    def is_served(self) -> bool:
        """Small requests, and one that is larger than what is read at once when memory is short."""
        self.socket.sendall(encode_request(API_VERSIONS, 3, 1, "x", ApiVersionsRequest("x", "1")))
        self.socket.sendall(encode_request(PRODUCE, PRODUCE_BY_NAME, 2, "x", produce_request(self.batch)))
        return [self._correlation_id() for _ in range(2)] == [1, 2]

    def _correlation_id(self) -> int:
        size, correlation_id = struct.unpack(">ii", self._receive(8))
        self._receive(size - 4)
        return int(correlation_id)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += (piece := self.socket.recv(size - len(data)))
            assert piece
        return data


def send_what_goes(clients: list[socket.socket], data: memoryview) -> None:
    """To each as much as it takes now; some are closed meanwhile."""
    for client in clients:
        client.setblocking(False)
        with contextlib.suppress(OSError):
            sent = 0
            while sent < len(data):
                sent += client.send(data[sent : sent + 262_144])


def half_of(size: int) -> bytes:
    return struct.pack(">ihhi", size, 0, 9, 1) + bytes(size - 100)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("count", "sent"),
    [
        pytest.param(20, half_of(LARGEST), id="a few large requests, half sent"),
        pytest.param(200, half_of(MB // 2), id="requests, half sent"),
        pytest.param(400, half_of(3000), id="many small requests, half sent"),
        pytest.param(200, encode_request(METADATA, 4, 1, "x", MetadataRequest(None)) * 1000, id="answers unread"),
    ],
)
def test_clients_that_send_halves_or_read_nothing(server: Server, count: int, sent: bytes) -> None:
    healthy = Healthy(server)
    assert healthy.is_served()
    before = memory_of(server, "VmRSS")
    clients = [socket.socket() for _ in range(count)]
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.host_and_port)
    for _ in range(3):
        send_what_goes(clients, memoryview(sent))
        assert healthy.is_served()
    assert memory_of(server, "VmHWM") - before < LIMIT + LARGEST + SLACK
    for client in clients:
        client.close()
    assert healthy.is_served()
