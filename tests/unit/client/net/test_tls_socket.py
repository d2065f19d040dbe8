"""The bytes that TlsSocket moves: what comes in is what was sent, and it never waits for more than will come."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from core.client.net.tls_socket import TlsPeer, TlsSocket
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.secured_door import server_context

_PATTERN = bytes(range(251)) * 2000


class Wire:
    """A socket whose other end is a TLS server in memory, which hands over pieces as large as is said."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self._in, self._out, server_side=True)
        self.sizes: Iterator[int] = iter(())
        self.low_water = 1
        self._left = bytearray()
        self.received = bytearray()
        self.round_trips = 0
        self._has_sent = False
        self._is_shaken = False

    def sendall(self, data: bytes) -> None:
        self._has_sent = True
        self._in.write(data)
        try:
            if not self._is_shaken:
                self.server.do_handshake()
                self._is_shaken = True
            self.received += self.server.read(1 << 20)
        except ssl.SSLWantReadError:
            pass

    def say(self, data: bytes) -> None:
        self.server.write(data)

    def recv_into(self, buffer: memoryview) -> int:
        self.round_trips += self._has_sent
        self._has_sent = False
        self._left += self._out.read()
        assert self._left, "it waits, and nothing more will come"
        assert self.low_water <= len(self._left), "it waits for more than will come"
        size = min(max(next(self.sizes, 1 << 20), self.low_water), len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        del self._left[:size]
        return size

    def setsockopt(self, _level: int, _name: int, value: int) -> None:
        self.low_water = value

    def gettimeout(self) -> float:
        return 10.0

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("tls")
    ca = make_ca()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ca.pem)
    return client, server_context(*map(str, sign(ca).write(folder, "server")))


def connected(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> tuple[TlsSocket, Wire]:
    wire = Wire(contexts[1])
    plain: Any = wire
    return TlsSocket(plain, TlsPeer("localhost", 1, shows_certificate=False), contexts[0]), wire


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 300_000), min_size=1, max_size=4),
    st.integers(1, 40_000),
    st.lists(st.integers(1, 200_000) | st.sampled_from([16_384, 65_536, 131_072, 100_000]), max_size=40),
)
@example([204_800], 204_800, [131_072])  # a part of a record is here, and what is missing is more than what will come
@example([300_000], 16_384, [1, 131_071, 131_072])
def test_what_comes_in_is_what_was_sent(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], answers: list[int], record: int, sizes: list[int]
) -> None:
    """Answers of any size, in records of any size, that arrive in pieces of any size."""
    socket, wire = connected(contexts)
    wire.sizes = iter(sizes)
    for number, size in enumerate(answers):
        sent = _PATTERN[number : number + size]
        for start in range(0, size, record):
            wire.say(sent[start : start + record])
        got = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            filled += socket.recv_into(got[filled:])
        assert got == sent


@for_each("size", [0, 1, 16_384, 65_536, 65_537, 500_000])
def test_what_goes_out_is_what_is_received(contexts: tuple[ssl.SSLContext, ssl.SSLContext], size: int) -> None:
    socket, wire = connected(contexts)
    data = bytearray(_PATTERN[:size])
    socket.sendall(data)
    while True:
        try:
            wire.received += wire.server.read(1 << 20)
        except ssl.SSLWantReadError:
            break
    assert wire.received == data


@for_each("version, round_trips", [(ssl.TLSVersion.TLSv1_3, 1), (ssl.TLSVersion.TLSv1_2, 2)])
def test_a_handshake_takes_no_more_round_trips_than_the_protocol_needs(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
    version: ssl.TLSVersion,
    round_trips: int,
) -> None:
    """One in TLS 1.3 (RFC 8446, 2), two before (RFC 5246, 7.3); the first request goes out without another."""
    monkeypatch.setattr(contexts[1], "maximum_version", version)
    socket, wire = connected(contexts)
    socket.sendall(b"a request")
    assert socket.version == {1: "TLSv1.3", 2: "TLSv1.2"}[round_trips]
    assert wire.round_trips == round_trips
    assert wire.received.endswith(b"a request") or wire.server.read(100) == b"a request"


@for_each("size", [0, 1, 16_384])
def test_a_server_that_says_goodbye_has_closed_the_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], size: int
) -> None:
    """TLS's close_notify, which a broker in Java sends before it closes; what it said before it is still read."""
    socket, wire = connected(contexts)
    if size:
        wire.say(bytes(size))
    with contextlib.suppress(ssl.SSLWantReadError):  # it would wait for our goodbye
        wire.server.unwrap()
    buffer = memoryview(bytearray(size + 1))
    filled = 0
    while filled < size:
        filled += socket.recv_into(buffer[filled:])
    assert filled == size
    assert socket.recv_into(buffer) == 0
    assert socket.recv_into(buffer) == 0
