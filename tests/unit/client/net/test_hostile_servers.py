"""What a server may do while a client connects, in TLS's steps and in SASL's: the client ends with an error that says
what it was, in a time and with memory that are bounded. Some of these servers never stop; that the tests end is the
proof.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.client.net.client_connection import SocketTransport
from core.client.net.kafka_client import Connector
from core.common.errors import PlogError, UnansweredError
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.security.client_security import ClientSecurity, Tls, TrustStore
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.secured_door import server_context
from tests.support.waiting import ANSWER_SECONDS
from tests.unit.client.net.test_authenticator import LOGINS, Broker

STAGES = {"PLAIN": 3, "SCRAM-SHA-256": 3, "OAUTHBEARER": 3}
"""ApiVersions, SaslHandshake, SaslAuthenticate."""

MOST_BYTES = 8 << 20

Contexts = dict[str, tuple[ssl.SSLContext | None, Tls | None]]
"""Of a server and of its client, by protocol."""

Answer = Callable[[bytes, random.Random], Iterable[bytes]]
"""What goes out instead of a frame, its size in front of it."""


def framed(answer: bytes) -> bytes:
    return len(answer).to_bytes(4, "big") + answer


def large(answer: bytes) -> bytes:
    return (1 << 20).to_bytes(4, "big") + answer


ANSWERS: dict[str, Answer] = {
    "random bytes": lambda _, chance: [chance.randbytes(200)],
    "a random frame": lambda _, chance: [framed(chance.randbytes(60))],
    "cut": lambda answer, chance: [framed(answer)[: chance.randrange(len(answer) + 4)]],
    "huge": lambda answer, _: [b"\x7f\xff\xff\xff" + answer],
    "large and never whole": lambda answer, _: [large(answer)],
    "of a negative size": lambda answer, _: [b"\xff\xff\xff\xff" + answer],
    "to another request": lambda answer, _: [framed(b"\0\0\0\x63" + answer[4:])],
    "twice": lambda answer, _: [framed(answer) * 2],
    # lengths within are as large as they can be
    "long lists": lambda answer, _: [
        framed(answer[:6] + b"\x7f\xff\xff\xff" + answer[10:]),
        framed(answer[:4] + b"\xff" * 20),
    ],
    "nothing": lambda _, __: [],
    "drops": lambda _, __: chain([large(b"")], repeat(b"\0")),
}
CLOSES_AFTER = (ANSWERS["cut"], ANSWERS["random bytes"])


class Hostile:
    """Answers as a broker does, but for one request of a connection."""

    def __init__(self, context: ssl.SSLContext | None, stage: int, answer: Answer, seed: int) -> None:
        self._context = context
        self._stage = stage
        self._answer = answer
        self._chance = random.Random(seed)
        self._is_over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield self.port
        finally:
            self._is_over.set()
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join()

    def _serve(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(OSError, EOFError):
                plain, _ = self._listener.accept()
                with plain:
                    plain.settimeout(ANSWER_SECONDS)
                    self._serve_one(self._context.wrap_socket(plain, server_side=True) if self._context else plain)

    def _serve_one(self, client: socket.socket) -> None:
        broker = Broker([])
        number = 0
        with client:
            while size := client.recv(4, socket.MSG_WAITALL if self._context is None else 0):
                frame = bytearray(size)
                while len(frame) < 4 + int.from_bytes(size, "big"):
                    more = client.recv(1 << 16)
                    if not more:  # a client that asks whether something else than Kafka is spoken here
                        return
                    frame += more
                broker.send(frame)
                answer = bytes(broker.receive())
                if number != self._stage:
                    client.sendall(framed(answer))
                    number += 1
                    continue
                for data in self._answer(answer, self._chance):
                    client.sendall(data)
                    if self._is_over.wait(0.01):
                        return
                number += 1
                if self._answer in CLOSES_AFTER:
                    return


def failure(connect: Connector, port: int) -> PlogError | None:
    """None where a changed answer happens to be a good one."""
    try:
        connect("127.0.0.1", port).close()
    except PlogError as error:
        return error
    return None


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """Of the server and of the client."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    ca = make_ca()
    context = server_context(*map(str, sign(ca).write(folder, "server")))
    return {"PLAINTEXT": (None, None), "TLS": (context, Tls(TrustStore(certificates=ca.pem)))}


@for_each("protocol, mechanism", [*(("PLAINTEXT", one) for one in STAGES), ("TLS", "PLAIN")])
@for_each("answer", ANSWERS)
@pytest.mark.longer
def test_an_answer_of_sasl(answer: str, mechanism: str, protocol: str, contexts: Contexts) -> None:
    ensure_survived(answer, mechanism, *contexts[protocol])


@pytest.mark.longer
@for_each("mechanism", STAGES.keys() - {"PLAIN"})
@for_each("answer", ANSWERS)
def test_an_answer_of_sasl_over_tls(answer: str, mechanism: str, contexts: Contexts) -> None:
    ensure_survived(answer, mechanism, *contexts["TLS"])


def ensure_survived(answer: str, mechanism: str, server: ssl.SSLContext | None, client: Tls | None) -> None:
    connect = Connector(ClientSecurity(client, LOGINS[mechanism]), timeout_s=0.1)
    for stage in range(STAGES[mechanism]):
        with Hostile(server, stage, ANSWERS[answer], seed=stage).running() as port, bounded_memory():
            error = failure(connect, port)
        if error is not None:
            assert "marked" not in f"{error.message} {error.hint}"
            assert error.exit_code in (1, 3), error.message
        if answer == "huge":  # it is not waited for
            assert error is not None
            assert "claims 2147483647 bytes" in error.message or "does not speak Kafka" in error.message


@for_each("mechanism", STAGES)
def test_rounds_of_sasl_that_never_end(mechanism: str) -> None:
    """Each answer says that more is to come."""
    with (
        Hostile(None, 99, lambda answer, _: [framed(answer)], seed=0).running() as port,
        contextlib.suppress(PlogError),
    ):
        Connector(ClientSecurity(None, LOGINS[mechanism]), timeout_s=5)("127.0.0.1", port).close()


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(st.binary(max_size=80), max_size=4), st.sampled_from([b"", b"\x16\x03\x03", b"\x15\x03\x03\x00\x02"]))
@example([b"\x40\x00" + b"\0" * 64], b"\x16\x03\x03")
@example([b"\xff\xff"], b"\x16\x03\x03")
@example([b"\x02\x28"], b"\x15\x03\x03\x00\x02")
def test_any_bytes_instead_of_tls(pieces: list[bytes], start: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                listener.close()  # whoever asks again what is spoken here has the answer at once
                connection.settimeout(ANSWER_SECONDS)
                connection.recv(1 << 16)
                connection.sendall(start)
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(PlogError) as raised:
            Connector(ClientSecurity(Tls(), None), timeout_s=2)("127.0.0.1", port)
        thread.join()
    assert raised.value.exit_code == 3


class BelowTls(Hostile):
    """Shakes hands, and answers the first requests with bytes that are no records of TLS."""

    def __init__(self, context: ssl.SSLContext | None, data: bytes, requests: int, *, is_endless: bool = False) -> None:
        super().__init__(context, 0, ANSWERS["nothing"], seed=0)
        self._data = data
        self._requests = requests
        self._is_endless = is_endless

    def _serve_one(self, client: socket.socket) -> None:
        plain = socket.socket(fileno=client.fileno())
        try:
            for _ in range(self._requests):
                client.recv(1 << 16)
                plain.sendall(self._data)
            while self._is_endless and not self._is_over.wait(0.01):
                plain.sendall(b"\0")
        finally:
            plain.detach()
            client.close()


@settings(max_examples=settings().max_examples // 4)
@given(data=st.binary(min_size=1, max_size=100), requests=st.integers(1, 3))
def test_any_bytes_in_the_middle_of_tls(data: bytes, requests: int, contexts: Contexts) -> None:
    server, client = contexts["TLS"]
    with BelowTls(server, data, requests).running() as port, pytest.raises(PlogError):
        Connector(ClientSecurity(client, LOGINS["PLAIN"]), timeout_s=0.5)("127.0.0.1", port)


def test_a_record_of_tls_that_never_ends(contexts: Contexts) -> None:
    server, client = contexts["TLS"]
    record = b"\x17\x03\x03\x40\x00"
    with BelowTls(server, record, 1, is_endless=True).running() as port, pytest.raises(PlogError, match="no answer in"):
        Connector(ClientSecurity(client, LOGINS["PLAIN"]), timeout_s=0.3)("127.0.0.1", port)


def test_a_server_whose_answers_are_empty_is_no_broker() -> None:
    """It is not said to be one of another version, and the exit code is that of a connection that fails."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as client:
                while client.recv(1 << 16):
                    client.sendall(framed(b""))

        thread = threading.Thread(target=serve)
        thread.start()
        error = failure(Connector(None), listener.getsockname()[1])
        thread.join()
    assert error is not None
    assert "is no Kafka broker" in error.message
    assert error.exit_code == 3


class Late:
    """Speaks ApiVersions as a broker does, and then sends the bytes that it is given, one after the other, for ever."""

    def __init__(self, context: ssl.SSLContext | None, start: bytes) -> None:
        self._context = context
        self._start = start
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1", int(self._listener.getsockname()[1])

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, int]]:
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield self.address
        finally:
            self._listener.close()
            thread.join()

    def _serve(self) -> None:
        broker = Broker([])
        with contextlib.suppress(OSError, EOFError), self._listener.accept()[0] as plain:
            client = self._context.wrap_socket(plain, server_side=True) if self._context else plain
            with client, client.makefile("rb") as requests:
                for number in range(2):
                    size = requests.read(4)
                    broker.send(bytearray(size + requests.read(int.from_bytes(size, "big"))))
                    if number == 0:
                        client.sendall(framed(bytes(broker.receive())))
                client.sendall(self._start)
                is_over = threading.Event()
                while not is_over.wait(0.02):
                    client.sendall(b"\0")


@for_each("protocol", ["PLAINTEXT", "TLS"])
@for_each("size", [100_000, 1 << 20, 1 << 30])
def test_an_answer_that_comes_byte_by_byte_ends(protocol: str, size: int, contexts: Contexts) -> None:
    """Of a broker that is trusted; what an answer claims takes no memory before it comes."""
    server, client = contexts[protocol]
    with Late(server, size.to_bytes(4, "big")).running() as address, bounded_memory():
        connection = Connector(ClientSecurity(client), timeout_s=0.5)(*address)
        with pytest.raises(UnansweredError, match=r"lost the connection to .*: no answer in 0.5 s"):
            connection.call(METADATA, MetadataRequest())
        connection.close()


@for_each("size", [1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (5 << 20) + 3])
def test_an_answer_comes_whole_whatever_its_size(size: int) -> None:
    data = random.Random(size).randbytes(size)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = SocketTransport(*listener.getsockname(), timeout_s=ANSWER_SECONDS)
        client, _ = listener.accept()
        thread = threading.Thread(target=client.sendall, args=(framed(b"first") + framed(data),))
        thread.start()
        assert (transport.receive(), transport.receive()) == (b"first", data)
        thread.join()
        client.close()
        transport.close()
