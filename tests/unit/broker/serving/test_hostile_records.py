"""A server with TLS under a memory limit, and clients whose records mean it no good; whoever means well is served all
the while. `scripts/torture --doors N` sends so many records.
"""

from __future__ import annotations

import os
import random
import resource
import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from statistics import median

import pytest

from core.protocol.frame import encode_request
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.metadata import METADATA, MetadataRequest
from tests.support.certificates import make_ca, sign
from tests.support.free_ports import free_ports
from tests.support.server import Server
from tests.support.tls_peer import TlsPeer, bend, records_of
from tests.support.waiting import ANSWER_SECONDS, wait_until

pytestmark = pytest.mark.longer

RECORDS = int(os.environ.get("PLOG_DOORS", "3000"))
SEED = int(os.environ.get("PLOG_DOORS_SEED", "61"))
ROOM_BYTES = 128 << 20
"""What the server may take on top of what it has when it has served a client: 500 handshakes of 110 KB, and buffers."""
HALF_HANDSHAKES = 1500 if RECORDS < 10_000 else 5000
HEALTHY_SECONDS = 0.05
"""What an attack may add to what a client waits without one: on this machine, as busy as it is."""


class Doors:
    def __init__(self, server: Server, port: int, context: ssl.SSLContext) -> None:
        self.server = server
        self.port = port
        self.context = context

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS)

    def serve_newcomer(self) -> float:
        """Seconds until a new client has its first answer."""
        started = time.monotonic()
        with self.context.wrap_socket(self.connect(), server_hostname="localhost") as client:
            ask(client)
        return time.monotonic() - started


def ask(client: ssl.SSLSocket) -> None:
    client.sendall(encode_request(API_VERSIONS, 3, 5, "good", ApiVersionsRequest("good", "1")))
    assert len(read(client, int.from_bytes(read(client, 4)))) > 100


def read(client: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        assert more, "it was closed"
        data += more
    return data


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("doors")
    ca = make_ca()
    server_certificate = sign(ca)
    (folder / "server.pem").write_text(server_certificate.key_pem() + server_certificate.pem)
    context = ssl.create_default_context(cadata=ca.pem)
    (port,) = free_ports(1)
    options = ["--listener", f"TLS://127.0.0.1:{port}"]
    for setting in (
        "listener.security.protocol.map=TLS:SSL",
        "inter.broker.listener.name=TLS",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'server.pem'}",
        "auto.create.topics.enable=false",
    ):
        options += ["--set", setting]
    with Server(folder / "data", *options, environment={"MALLOC_ARENA_MAX": "1"}) as running:
        found = Doors(running, port, context)
        found.serve_newcomer()
        assert running.process is not None
        pages = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + ROOM_BYTES
        resource.prlimit(running.process.pid, resource.RLIMIT_AS, (limit, limit))
        yield found
        found.serve_newcomer()
    said = running.log.read_text()
    assert "Traceback" not in said, said[-3000:]
    assert "MemoryError" not in said
    assert len(said) < 100_000, "the log says too much"


def test_bent_records(doors: Doors) -> None:
    dice = random.Random(SEED)
    requests = [
        encode_request(METADATA, 12, 1, "fuzzer", MetadataRequest(topics=[])),
        encode_request(API_VERSIONS, 3, 1, "fuzzer", ApiVersionsRequest("fuzzer", "1")),
    ]
    with closing(doors.context.wrap_socket(doors.connect(), server_hostname="localhost")) as healthy:
        sent = case = 0
        while sent < RECORDS:
            with doors.connect() as sock:
                sock.setblocking(False)
                peer = TlsPeer(sock, doors.context)
                sent += attack(peer, dice, [bytes(dice.choice(requests)) for _ in range(dice.randrange(1, 30))])
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)
                assert has_ended(sock), f"hangs: case {case}"
            case += 1
            if case % 50 == 0:
                ask(healthy)


def attack(peer: TlsPeer, dice: random.Random, requests: list[bytes]) -> int:
    """Bends one flight: the first, the second, or records of requests; returns how many records it sent."""
    sent, victim = 0, dice.randrange(3)
    with suppress(OSError):
        for stage in range(3):
            wire = peer.seal(*requests) if stage == 2 else peer.shake()
            records = records_of(wire)
            if stage == victim and records:
                peer.sock.sendall(bend(records, dice))
                return sent + len(records)
            peer.sock.sendall(wire)
            sent += len(records)
            if stage == 0:
                select.select([peer.sock], [], [], ANSWER_SECONDS)
    return max(sent, 1)


def has_ended(sock: socket.socket) -> bool:
    sock.settimeout(ANSWER_SECONDS)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def test_half_handshakes_keep_nobody_out(doors: Doors) -> None:
    """Three bytes of a ClientHello each, from one address; those whom the server closes are not opened again."""
    usual_s = median(doors.serve_newcomer() for _ in range(9))
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, HALF_HANDSHAKES + 1000), most))
    try:
        with ExitStack() as stack:
            healthy = stack.enter_context(doors.context.wrap_socket(doors.connect(), server_hostname="localhost"))
            waits, newcomers = [], []
            for number in range(HALF_HANDSHAKES):
                sock = stack.enter_context(doors.connect())
                with suppress(OSError):
                    sock.sendall(b"\x16\x03\x01")
                if number % 100 == 99:
                    started = time.monotonic()
                    ask(healthy)
                    waits.append(time.monotonic() - started)
                    newcomers.append(doors.serve_newcomer())
            assert median(waits) < HEALTHY_SECONDS + usual_s
            assert median(newcomers) < HEALTHY_SECONDS + 3 * usual_s
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_a_burst_of_handshakes_keeps_nobody_waiting(doors: Doors) -> None:
    """Many clients that all begin at once, and one that is there."""
    usual_s = median(doors.serve_newcomer() for _ in range(9))
    with ExitStack() as stack:
        healthy = stack.enter_context(doors.context.wrap_socket(doors.connect(), server_hostname="localhost"))
        peers = []
        for _ in range(450):
            sock = stack.enter_context(doors.connect())
            sock.setblocking(False)
            peers.append(TlsPeer(sock, doors.context))
        hellos = [peer.shake() for peer in peers]
        for peer, hello in zip(peers, hellos, strict=True):
            peer.sock.sendall(hello)
        waits = []
        for _ in range(20):
            started = time.monotonic()
            ask(healthy)
            waits.append(time.monotonic() - started)
        assert median(waits) < HEALTHY_SECONDS + usual_s
        for peer in peers:
            peer.sock.sendall(finish(peer))
        for peer in peers:
            peer.sock.sendall(peer.seal(bytes(encode_request(METADATA, 12, 1, "one", MetadataRequest(topics=[])))))
        for peer in peers:
            wait_until(lambda peer=peer: len(peer.read()) > 50, lambda: "no answer after the handshake")


def finish(peer: TlsPeer) -> bytes:
    """The client's last flight, when all of the server's has come."""
    found: list[bytes] = []

    def is_there() -> bool:
        found.append(peer.shake())
        return bool(found[-1])

    wait_until(is_there, lambda: "no answer to the hello")
    return found[-1]
