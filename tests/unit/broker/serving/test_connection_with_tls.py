"""What holds of a connection, once more with TLS on it: back-pressure, turns, ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from core.broker.serving.socket_server import SocketServer
from tests.support.tls_peer import contexts, doors_with
from tests.unit.broker.serving import test_connection
from tests.unit.broker.serving.test_connection import *  # noqa: F403 - its tests
from tests.unit.broker.serving.test_connection import Client

pytestmark = pytest.mark.longer

for name in (
    # a client with TLS knows that it is connected when the broker has accepted it
    "test_who_connects_is_turned_away_while_the_server_says_so",
    "test_no_more_connections_from_one_address_than_allowed",
    "test_those_above_max_connections_wait_until_one_leaves_or_more_are_allowed",
    # handshakes stand in line, too
    "test_what_waits_for_its_turn_is_held",
    "test_a_client_that_goes_on_sending_gets_no_turn_out_of_turn",
    "test_the_beginning_of_a_long_request_is_not_moved",  # records bring it in other pieces
    "test_who_sends_nothing_more_gets_what_he_asked_for",  # asyncio has no half of an end; test_tls.py has one
):
    del globals()[name]


@pytest.fixture(autouse=True)
def with_tls(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server_context, client_context = contexts(tmp_path_factory.getbasetemp())

    async def connect(server: SocketServer, receive_buffer: int | None = None) -> Client:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (server.endpoint.host, server.endpoint.port))
        return await asyncio.open_connection(sock=sock, limit=1 << 16, ssl=client_context, server_hostname="localhost")

    monkeypatch.setattr(test_connection, "connect", connect)
    with doors_with(server_context):
        yield
