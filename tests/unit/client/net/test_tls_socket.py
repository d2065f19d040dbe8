"""Answers over TLS: what OpenSSL has decrypted already is not waited for."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

from core.client.net.client_connection import SocketTransport
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.secured_door import server_context
from tests.support.waiting import ANSWER_SECONDS


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
