"""A server under a memory limit, and clients that mean it no good before and after they log in: nobody gets in without
a password, each connection ends, and a client that means well is served all the while.

`scripts/torture --doors 100000` plays so many conversations.
"""

from __future__ import annotations

import os
import random
import resource
import socket
from collections.abc import Iterator

import pytest

from tests.support.answers.message_codec import decode_response, encode_request
from tests.support.raw_sasl_client import JAAS
from tests.support.server import Server
from tests.support.waiting import ANSWER_SECONDS
from tests.unit.broker.serving.test_hostile_frames import ROOM_BYTES, bend, seeds, sent_and_closed, virtual_bytes
from tests.unit.broker.serving.test_sasl_authenticator import GOOD, hostile_conversation

pytestmark = pytest.mark.longer

CASES = int(os.environ.get("PLOG_DOORS", "1500"))
SEED = int(os.environ.get("PLOG_DOORS_SEED", "61"))
SETTINGS = {
    "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.login.plain.sasl.jaas.config": f"{JAAS};",
    "listener.name.login.connections.max.reauth.ms": "60000",
    "connection.failed.authentication.delay.ms": "0",
    "connections.max.idle.ms": "5000",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile-logins")
    config = folder / "server.properties"
    config.touch(0o600)
    config.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    arguments = ("--config", str(config), "--listener", "LOGIN://127.0.0.1:0")
    with Server(folder / "data", *arguments, environment={"MALLOC_ARENA_MAX": "1"}) as running:
        assert running.process is not None
        assert_serves(running)
        limit = virtual_bytes(running) + ROOM_BYTES
        resource.prlimit(running.process.pid, resource.RLIMIT_AS, (limit, limit))
        yield running
        assert_serves(running)
    said = running.log.read_text()
    assert "Traceback" not in said, said[-3000:]
    assert "MemoryError" not in said
    assert "alice-secret" not in said


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


def handshake() -> bytes:
    return framed(encode_request("SaslHandshake", 1, 1, "good", {"Mechanism": "PLAIN"}))


def login() -> bytes:
    """In one piece, as some clients send it."""
    return handshake() + framed(encode_request("SaslAuthenticate", 2, 2, "good", {"AuthBytes": GOOD}))


def assert_serves(server: Server) -> None:
    with socket.create_connection(server.host_and_port, timeout=ANSWER_SECONDS) as sock:
        sock.sendall(login() + framed(encode_request("ApiVersions", 0, 3, "good", {})))
        codes = []
        for api, version in (("SaslHandshake", 1), ("SaslAuthenticate", 2), ("ApiVersions", 0)):
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL))
            codes.append(decode_response(api, version, sock.recv(size, socket.MSG_WAITALL))["ErrorCode"])
    assert codes == [0, 0, 0]


def test_bent_logins(server: Server) -> None:
    """Before authentication: what comes back has no answer of another API than those of logins."""
    dice = random.Random(SEED)
    for case in range(CASES):
        frames = hostile_conversation(dice)
        data = b"".join(bend(framed(one), dice) if dice.random() < 0.3 else framed(one) for one in frames)
        try:
            answers = sent_and_closed(server, data)
        except TimeoutError:
            pytest.fail(f"hangs: seed {SEED}, case {case}: {data.hex()}")
        assert len(answers) < 8192, data.hex()
        if case % 100 == 0:
            assert_serves(server)


def test_bent_requests_after_a_login(server: Server) -> None:
    dice = random.Random(SEED)
    frames = [*seeds(), *(framed(one) for one in hostile_conversation(dice))]
    for case in range(CASES // 4):
        data = login() + b"".join(bend(dice.choice(frames), dice) for _ in range(dice.choice((1, 2))))
        try:
            sent_and_closed(server, data)
        except TimeoutError:
            pytest.fail(f"hangs: seed {SEED}, case {case}: {data.hex()}")
        if case % 100 == 0:
            assert_serves(server)


def test_claims_of_clients_that_are_not_known_cost_nothing(server: Server) -> None:
    """300 connections that claim a frame of the largest size, and send some of it."""
    claiming = [socket.create_connection(server.host_and_port, timeout=ANSWER_SECONDS) for _ in range(300)]
    for sock in claiming:
        sock.sendall(handshake() + (524288).to_bytes(4) + bytes(1000))
    assert_serves(server)
    for sock in claiming:
        sock.close()


def test_a_login_of_a_byte_at_a_time(server: Server) -> None:
    with socket.create_connection(server.host_and_port, timeout=ANSWER_SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in login():
            sock.sendall(bytes([byte]))
        size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL))
        assert decode_response("SaslHandshake", 1, sock.recv(size, socket.MSG_WAITALL))["ErrorCode"] == 0
        size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL))
        assert decode_response("SaslAuthenticate", 2, sock.recv(size, socket.MSG_WAITALL))["ErrorCode"] == 0
