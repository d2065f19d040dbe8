"""A broker behind TLS: its clients are in the same loop, and hold their records in their hands."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.broker.observe.metrics import connection_metrics
from core.broker.requests import fair_scheduler
from core.broker.requests.fair_scheduler import FairScheduler
from core.broker.serving import socket_server, tls_transport, unauthenticated
from core.broker.serving.socket_server import SocketServer
from core.broker.serving.tls_connection import TlsConnection
from core.broker.serving.unauthenticated import LogLimit
from tests.support.broker import SteeredNode, add_topic, produce_values, serving
from tests.support.tls_peer import TlsPeer, contexts, doors_with, without_certificate
from tests.unit.broker.serving.test_connection import HOUR_MS, fetch_frame, produce_frame, until, versions_frame


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts(tmp_path_factory.getbasetemp())


@pytest.fixture
def server(
    broker: SteeredNode, runner: asyncio.Runner, both: tuple[ssl.SSLContext, ssl.SSLContext]
) -> Iterator[SocketServer]:
    context = serving(broker)
    with doors_with(both[0]):
        yield runner.run(context.__aenter__())
    runner.run(context.__aexit__(None, None, None))


class Client(TlsPeer):
    @classmethod
    async def connect(cls, server: SocketServer, context: ssl.SSLContext, receive_buffer: int = 0) -> Client:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (server.endpoint.host, server.endpoint.port))
        return cls(sock, context)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def shake_hands(self) -> Client:
        while True:
            await self.send(self.shake())
            if self.tls.version() is not None and self.tls.cipher() is not None:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self.tls.do_handshake()
                    return self
            await asyncio.sleep(0)

    async def frames(self, count: int) -> list[bytes]:
        """So many answers, without their sizes."""
        data, found = b"", []
        while len(found) < count:
            data += self.read()
            while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
                size = int.from_bytes(data[:4])
                found.append(data[4 : 4 + size])
                data = data[4 + size :]
            assert not self.has_ended, f"it ended after {len(found)} answers"
            await asyncio.sleep(0)
        assert not data
        return found

    async def ids(self, count: int) -> list[int]:
        return [int.from_bytes(frame[:4]) for frame in await self.frames(count)]

    async def end_of_it(self) -> None:
        await until(lambda: self.read() == b"" and self.has_ended)


Connect = Callable[..., Awaitable[Client]]


def metrics(server: SocketServer) -> dict[Any, float]:
    """By name, and the values of labels other than the only listener."""
    found: dict[Any, float] = {}
    for metric in connection_metrics(server):
        for sample in metric.samples:
            labels = tuple(sample.labels.values())
            found[sample.name if labels in ((), ("PLAINTEXT",)) else (sample.name, *labels)] = sample.value
    return found


@pytest.fixture
def connect(server: SocketServer, both: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Connect]:
    clients: list[Client] = []

    async def connect(context: ssl.SSLContext = both[1], receive_buffer: int = 0) -> Client:
        clients.append(await Client.connect(server, context, receive_buffer))
        return clients[-1]

    yield connect
    for client in clients:
        client.sock.close()


async def test_requests_behind_one_that_waits_are_not_forgotten(connect: Connect, broker: SteeredNode) -> None:
    """libevent 854: when reading was stopped and began again, nobody looked at what was decrypted before."""
    add_topic(broker)
    client = await (await connect()).shake_hands()
    requests = [fetch_frame(0, 0, max_wait_ms=HOUR_MS), *map(versions_frame, range(1, 600))]
    await client.send(client.seal(*map(bytes, requests)))
    other = await (await connect()).shake_hands()
    await other.send(other.seal(produce_frame(7, b"at last")))
    assert await other.ids(1) == [7]
    assert await client.ids(600) == [*range(600)]


async def test_a_request_of_which_a_part_is_decrypted_needs_no_more_bytes_to_go_on(
    connect: Connect, server: SocketServer, broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn ends after its first slice: the rest waits here, and the selector says nothing of it. Nobody looks by
    chance, either.
    """
    monkeypatch.setattr(tls_transport, "TURN_SECONDS", -1)
    monkeypatch.setattr(TlsConnection, "look_for_end", lambda _: None)
    add_topic(broker)
    client = await (await connect()).shake_hands()
    [connection] = server._connections
    assert isinstance(connection, TlsConnection)
    await until(lambda: connection.tls.is_ready and not connection._is_in_line)
    await client.send(client.seal(produce_frame(1, bytes(30_000))))
    assert await client.ids(1) == [1]


async def test_who_sends_nothing_more_gets_what_he_asked_for(connect: Connect, broker: SteeredNode) -> None:
    """haproxy 1450, mitmproxy 8364: the end of an answer was lost when the peer had said that it sends no more."""
    add_topic(broker)
    produce_values(broker, bytes(300_000))
    client = await (await connect(receive_buffer=65536)).shake_hands()
    await client.send(client.seal(*(bytes(fetch_frame(n, 0)) for n in range(20))) + client.end())
    client.sock.shutdown(socket.SHUT_WR)
    data = b""
    while not client.has_ended:
        data += client.read()
        await asyncio.sleep(0)
    size = int.from_bytes(data[:4]) + 4
    assert size > 300_000
    assert len(data) % size == 0
    assert [int.from_bytes(data[at + 4 : at + 8]) for at in range(0, len(data), size)] == [*range(len(data) // size)]


async def test_what_waits_encrypted_is_held(connect: Connect, server: SocketServer, broker: SteeredNode) -> None:
    """uvloop 220: the memory grew with every answer to a client that did not read."""
    add_topic(broker)
    produce_values(broker, bytes(900_000))
    client = await (await connect(receive_buffer=4096)).shake_hands()
    await client.send(client.seal(*(bytes(fetch_frame(n, 0)) for n in range(50))))
    [connection] = server._connections
    await until(lambda: connection._is_writing)
    assert 0 < server._memory._total < 300_000
    assert isinstance(connection, TlsConnection)
    assert connection.tls.has_unsent
    connection.close()
    assert server._memory._total == 0


async def test_the_last_bytes_drive_the_writer(connect: Connect, server: SocketServer) -> None:
    """haproxy 2749: nothing was left to encrypt, and what was encrypted stayed."""
    client = await (await connect(receive_buffer=4096)).shake_hands()
    [connection] = server._connections
    assert isinstance(connection, TlsConnection)
    connection.tls._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    await until(lambda: connection.is_authenticated)
    connection._send_later([bytes(90_000)])
    connection._go_on()
    assert connection._is_writing
    assert not connection._out
    came = 0
    while came < 90_000:
        came += len(client.read())
        await asyncio.sleep(0)
    await until(lambda: not connection._is_writing)
    assert not connection.tls.has_unsent


async def test_who_was_refused_reads_why(
    connect: Connect, tmp_path: Path, server: SocketServer, caplog: pytest.LogCaptureFixture
) -> None:
    """nginx 627: the client's next bytes reached a closed socket, and the reset took back what was said."""
    door = next(iter(server.served.values())).door
    door.context, client_context = contexts(tmp_path)
    door.context.verify_mode = ssl.CERT_REQUIRED
    client = await connect(context=without_certificate(client_context))
    await client.shake_hands()
    await client.send(client.seal(versions_frame(1)))
    await until(lambda: door.failed_handshakes == 1)
    await client.send(client.seal(versions_frame(2)))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        await client.frames(1)
    client.sock.close()
    await until(lambda: not server._connections)
    reason = "it shows no certificate, and ssl.client.auth is required"
    assert caplog.messages == [f"closing a connection of 127.0.0.1 to PLAINTEXT: no TLS connection: {reason}"]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP at a port that speaks TLS"),
        (bytes(versions_frame(1)), "a request without TLS at a port that speaks TLS"),
    ],
)
async def test_no_tls_is_named_once(
    connect: Connect, server: SocketServer, caplog: pytest.LogCaptureFixture, sent: bytes, message: str
) -> None:
    client = await connect()
    await client.send(sent)
    await until(lambda: bool(server._connections))
    await until(lambda: not server._connections)
    assert caplog.messages == [f"closing a connection of 127.0.0.1 to PLAINTEXT: {message}"]
    assert metrics(server)["plog_tls_failed_handshakes_total"] == 1
    assert metrics(server)["kafka_server_socket_server_metrics_failed_authentication_total"] == 1


async def test_who_only_looks_is_not_worth_a_line(
    connect: Connect, server: SocketServer, caplog: pytest.LogCaptureFixture
) -> None:
    """aiohttp 3052: port scanners and load balancers."""
    (await connect()).sock.close()
    client = await connect()
    await client.send(client.shake())
    await until(lambda: any(one.has_begun for one in server._connections))
    client.sock.close()
    await until(lambda: server.accepted_connections == 2 and not server._connections)
    assert not caplog.messages


async def test_tls_at_a_plain_port(
    broker: SteeredNode, both: tuple[ssl.SSLContext, ssl.SSLContext], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(broker) as server:
        client = await Client.connect(server, both[1])
        await client.send(client.shake())
        await until(lambda: server.accepted_connections == 1 and not server._connections)
        client.sock.close()
    (message,) = caplog.messages
    assert message.startswith(
        "closing a connection of 127.0.0.1 to PLAINTEXT: a client speaks TLS here: request of 369"
    )


async def test_strangers_do_not_keep_out_who_comes(
    connect: Connect, server: SocketServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(socket_server, "MOST_UNAUTHENTICATED", 20)
    known = await (await connect()).shake_hands()
    await known.send(known.seal(versions_frame(1)))
    for number in range(40):
        stranger = await connect()
        await stranger.send(stranger.shake()[:3])
        await until(lambda number=number: server.accepted_connections == number + 2)
    assert server.unauthenticated.count == 10
    assert await known.ids(1) == [1]
    newcomer = await (await connect()).shake_hands()
    await newcomer.send(newcomer.seal(versions_frame(2)))
    assert await newcomer.ids(1) == [2]
    found = metrics(server)
    assert found["plog_unauthenticated_connections"] == 9
    assert found["plog_unauthenticated_connections_closed_total", "crowded out"] == 31
    assert found["plog_connections", "PLAINTEXT", "SSL"] == 11
    assert found["kafka_server_socket_server_metrics_successful_authentication_total"] == 2
    caplog.clear()
    server.unauthenticated.step(0)
    monkeypatch.setattr(unauthenticated, "AUTHENTICATION_SECONDS", 0)
    server.unauthenticated.step(asyncio.get_running_loop().time())
    assert server.unauthenticated.count == 0
    assert len(server._connections) == 2
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "closed 31 connections whose clients did not authenticate",
        "closed 9 connections whose clients did not authenticate",
    ]


class Stranger:
    def __init__(self, all_: unauthenticated.Unauthenticated, client_host: str, *, has_begun: bool) -> None:
        self.client_host, self.has_begun, self.is_closed = client_host, has_begun, False
        self._all = all_

    def close(self) -> None:
        self.is_closed = True
        self._all.remove(self)


def test_who_has_many_addresses_keeps_nobody_out() -> None:
    """As whoever has a network of IPv6."""
    all_ = unauthenticated.Unauthenticated()
    begun = [Stranger(all_, f"10.0.0.{number}", has_begun=True) for number in range(5)]
    silent = [Stranger(all_, f"fd00::{number:x}", has_begun=False) for number in range(500)]
    for one in begun + silent:
        all_.add(one, 0, 100)
    assert all_.count == 100
    assert not any(one.is_closed for one in begun)


async def test_a_round_has_one_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of them delays others by one at a time, and waits for no line: two hundred clients in it, each of them
    for 2 ms, would take half of the time that a new client has.
    """
    monkeypatch.setattr(fair_scheduler, "ROUND_SECONDS", 0)  # over after one turn
    turns, done = FairScheduler(asyncio.get_running_loop()), []

    def busy() -> None:
        done.append("other")
        turns.wait(busy)

    for _ in range(5):
        turns.wait(busy)
    for number in range(3):
        turns.queue(lambda number=number: done.append(number))
    await until(lambda: len(done) >= 7)
    turns._line.clear()
    assert done[:6] == [0, "other", 1, "other", 2, "other"]


def test_lines_about_connections_do_not_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("plog.test-of-many-lines")
    log.addFilter(limit := LogLimit())
    for number in range(5000):
        log.warning("%d", number)
    assert 100 <= len(caplog.messages) < 110
    limit._may = 1
    log.warning("and %s", "then")
    assert re.fullmatch(r"and then \(and 4[89]\d\d lines about .* before\)", caplog.messages[-1])
