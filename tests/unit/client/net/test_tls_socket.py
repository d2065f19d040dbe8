"""Answers over TLS that OpenSSL has decrypted already are not waited for; and ports that reset a connection at once."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from pathlib import Path

import pytest

from core.client.net.client_connection import SocketTransport
from core.client.net.tls_socket import TlsPeer, begin_tls
from core.common.errors import ConnectionFailedError
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.secured_door import server_context
from tests.support.waiting import ANSWER_SECONDS, wait_until


@for_each("sizes", [(10, 20, 0, 30), (100_000, 1, 1 << 20), (16_380, 5)])
def test_several_answers_of_one_record(sizes: tuple[int, ...], tmp_path: Path) -> None:
    ca = make_ca()
    server = server_context(*map(str, sign(ca).write(tmp_path, "server")))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ca.pem)
    silences: list[str] = []
    answers = [bytes([number]) * size for number, size in enumerate(sizes)]

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with server.wrap_socket(listener.accept()[0], server_side=True) as connection:
                connection.sendall(b"".join(len(one).to_bytes(4, "big") + one for one in answers))
                connection.recv(1)  # until the client has closed

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        transport = SocketTransport("localhost", port, timeout_s=ANSWER_SECONDS, context=client)
        for answer in answers:
            transport.await_answer(silences.append)
            assert transport.receive() == answer
        transport.close()
        thread.join()
    assert silences == []


@for_each("said", [b"", b"go away"])
def test_a_connection_that_was_reset_before_tls_began(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        plain = socket.create_connection((host, port), ANSWER_SECONDS)
        connection, _ = listener.accept()
        connection.sendall(said)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    wait_until(lambda: _is_reset(plain))
    with pytest.raises(ConnectionFailedError, match=f"could not connect to {host}:{port}"):
        begin_tls(plain, TlsPeer(host, port, shows_certificate=False), ssl.create_default_context())
    assert plain.fileno() == -1


def _is_reset(plain: socket.socket) -> bool:
    try:
        plain.getpeername()
    except OSError:
        return True
    return False


def test_an_address_of_ipv6_is_shown_as_it_is_typed() -> None:
    assert TlsPeer("::1", 9093, shows_certificate=False).where == "[::1]:9093"
    assert TlsPeer("::1", 9093, shows_certificate=False, target=("::1", 1)).where == "[::1]:9093 (at [::1]:1)"
