"""Clients of a broker that log in, over sockets: what their rights are, and what they send in one piece."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from core.common.error_code import ErrorCode
from core.protocol.frame import decode_response as decode
from core.protocol.frame import encode_request as encode
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.produce import PRODUCE
from core.security.acl import WRITE_TOPIC
from core.security.principal import Principal
from tests.support.answers.message_codec import decode_response
from tests.support.broker import (
    PRODUCE_BY_NAME,
    add_topic,
    allow,
    fetch_request,
    produce_request,
    write_acls,
)
from tests.support.logs import make_batch
from tests.support.manual_clock import ManualClock
from tests.support.raw_sasl_client import ClosedError, RawClient, SaslServer, sasl_server

FETCH_BY_NAME = 12


async def logged_in(running: SaslServer, name: str, port: int = 0) -> RawClient:
    client = await RawClient.connect(port or running.port)
    assert (await client.log_in(name, f"{name}-secret"))["ErrorCode"] == 0
    return client


async def produced(client: RawClient) -> ErrorCode:
    """The error of a request whose bytes are the same for each client."""
    client.send(encode(PRODUCE, PRODUCE_BY_NAME, 1, "same", produce_request(make_batch(b"a"))))
    _, answer = decode(PRODUCE, PRODUCE_BY_NAME, memoryview(await client.frame()))
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def test_equal_bytes_of_two_users(tmp_path: Path) -> None:
    """Each by its own rights, though the broker knows the bytes."""
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:admin"}
    async with sasl_server(tmp_path, **settings) as running:
        add_topic(running.broker)
        write_acls(running.broker, allow(WRITE_TOPIC, "User:alice"))
        alice, bob, admin = [await logged_in(running, name) for name in ("alice", "bob", "admin")]
        for _ in range(3):
            assert await produced(alice) is ErrorCode.NONE
            assert await produced(bob) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert await produced(admin) is ErrorCode.NONE
        again = await logged_in(running, "alice")
        sessions = {connection._session for connection in running.server._connections}
        assert {session.principal for session in sessions if session} == {
            Principal("User", name) for name in ("alice", "bob", "admin")
        }
        assert len(running.server._connections) == 4
        assert len(sessions) == 3, "a session is all connections of a user from a host to a listener"
        again.close()


async def test_a_login_within_a_pipeline(tmp_path: Path) -> None:
    """A fetch that waits, a second login, and requests after it, in one piece: answers come in order."""
    clock = ManualClock()
    async with sasl_server(tmp_path, clock) as running:
        add_topic(running.broker)
        client = await logged_in(running, "alice", running.reauth_port)
        frames = [
            encode(FETCH, FETCH_BY_NAME, 10, "lab", fetch_request(0, max_wait_ms=50))[4:],
            client.request("SaslHandshake", 1, {"Mechanism": "PLAIN"}),
            client.request("SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0alice-secret"}),
            client.request("Metadata", 13, {"Topics": []}),
        ]
        client.send(b"".join(len(one).to_bytes(4) + bytes(one) for one in frames))
        _, fetched = decode(FETCH, FETCH_BY_NAME, memoryview(await client.frame()))
        assert fetched.error_code == 0
        answers = [
            decode_response(api, version, await client.frame())
            for api, version in (("SaslHandshake", 1), ("SaslAuthenticate", 2), ("Metadata", 13))
        ]
        assert [one["ErrorCode"] for one in answers] == [0, 0, 0]
        clock.advance(3001)
        with pytest.raises(ClosedError):
            await client.ask("Metadata", 13, {"Topics": []})


async def test_what_follows_a_failure_is_not_handled(tmp_path: Path) -> None:
    """A client sends its requests with a wrong password, and hears of the password alone."""
    async with sasl_server(tmp_path) as running:
        add_topic(running.broker)
        client = await RawClient.connect(running.port)
        await client.shake_hands()
        wrong = client.request("SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0wrong"})
        produce = encode(PRODUCE, PRODUCE_BY_NAME, 1, "same", produce_request(make_batch(b"a")))
        client.send(len(wrong).to_bytes(4) + wrong + bytes(produce))
        assert decode_response("SaslAuthenticate", 2, await client.frame())["ErrorCode"] == 58
        with pytest.raises(ClosedError):
            await client.frame()
        assert [one.log_end_offset for one in running.broker.services.log_manager.logs.values()] == [0]
