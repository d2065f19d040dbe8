"""When a connection authenticates again, and what any answers of a server's do to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client.net.authenticator import Authenticator
from core.client.net.client_connection import ClientConnection
from core.common.errors import KafkaError, PlogError
from core.protocol.frame import Endpoint, read_request_start
from core.protocol.message import Api
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataResponse
from core.protocol.schema.sasl_exchange import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from core.security.client_security import BearerLogin, PasswordLogin
from core.security.secret import Secret
from tests.support.for_each import for_each

LOGINS: dict[str, PasswordLogin | BearerLogin] = {
    "PLAIN": PasswordLogin("PLAIN", "alice", Secret("marked")),
    "SCRAM-SHA-256": PasswordLogin("SCRAM-SHA-256", "alice", Secret("marked")),
    "OAUTHBEARER": BearerLogin(token=Secret("marked")),
}


class Broker:
    """A transport that answers each request with the next response, its bytes changed by `spoil`."""

    def __init__(self, lifetimes_ms: list[int], spoil: Any = lambda _number, data: data) -> None:
        self._lifetimes_ms = lifetimes_ms
        self._spoil = spoil
        self._answers: list[bytes] = []
        self._sent = 0
        self.keys: list[int] = []

    def send(self, frame: bytearray) -> None:
        key, version, correlation_id = read_request_start(memoryview(frame)[4:])
        self.keys.append(key)
        api, response = self._response(key)
        answer = b"".join(Endpoint(api, version).encode_response(correlation_id, response))[4:]  # type: ignore[arg-type]
        self._answers.append(self._spoil(self._sent, answer))
        self._sent += 1

    def _response(self, key: int) -> tuple[Api[Any, Any], object]:
        if key == 18:
            return API_VERSIONS, ApiVersionsResponse(0, [ApiVersion(k, 0, 2) for k in (3, 17, 18, 36)])
        if key == 17:
            return SASL_HANDSHAKE, SaslHandshakeResponse(0, ["PLAIN"])
        if key == 36:
            lifetime_ms = self._lifetimes_ms.pop(0) if self._lifetimes_ms else 0
            return SASL_AUTHENTICATE, SaslAuthenticateResponse(0, None, b"", lifetime_ms)
        return METADATA, MetadataResponse()

    def await_answer(self, on_silence: Callable[[str], None]) -> None: ...

    def receive(self) -> memoryview:
        return memoryview(self._answers.pop(0))

    def close(self) -> None: ...


@for_each(
    "lifetimes_ms, at_s, times",
    [
        ([0], 1e9, 1),
        ([10_000, 10_000], 8.4, 1),
        ([10_000, 10_000], 9.6, 2),
        ([10_000, 0], 9.6, 2),
        ([10_000, 10_000], 1e6, 2),  # the session has ended long ago: a handshake still saves it
    ],
)
def test_when_a_session_is_renewed(lifetimes_ms: list[int], at_s: float, times: int) -> None:
    now = [0.0]
    broker = Broker(list(lifetimes_ms))
    connection = ClientConnection(broker, Authenticator(LOGINS["PLAIN"], clock=lambda: now[0]))
    now[0] = at_s
    connection.call(METADATA, MetadataRequest([]))
    connection.call(METADATA, MetadataRequest([]))
    assert broker.keys == [18, 17, 36, *[17, 36] * (times - 1), 3, 3]


def test_a_session_is_renewed_again_and_again() -> None:
    now = [0.0]
    broker = Broker([1000] * 5)
    connection = ClientConnection(broker, Authenticator(LOGINS["PLAIN"], clock=lambda: now[0]))
    for _ in range(4):
        now[0] += 0.96
        connection.call(METADATA, MetadataRequest([]))
    assert broker.keys == [18, 17, 36] + [17, 36, 3] * 4


def test_a_session_that_is_too_short_is_not_renewed_at_once() -> None:
    """Kafka does not let a connection log in again within a second."""
    now = [0.0]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(round(seconds, 6))
        now[0] += seconds

    broker = Broker([100, 100, 5000])
    connection = ClientConnection(broker, Authenticator(LOGINS["PLAIN"], clock=lambda: now[0], pause=pause))
    for _ in range(4):
        now[0] += 0.25
        connection.call(METADATA, MetadataRequest([]))
    assert pauses == [0.75, 0.75]
    assert broker.keys == [18, 17, 36] + [17, 36, 3] * 2 + [3, 3]


def authenticated(login: str, spoil: Any) -> None:
    connection = ClientConnection(Broker([], spoil), Authenticator(LOGINS[login]))
    connection.call(METADATA, MetadataRequest([]))


@given(st.sampled_from(list(LOGINS)), st.integers(0, 3), st.binary(max_size=100))
def test_any_bytes_for_an_answer_are_survived(login: str, number: int, data: bytes) -> None:
    with contextlib.suppress(PlogError):
        authenticated(login, lambda n, answer: data if n == number else answer)


@given(st.sampled_from(list(LOGINS)), st.integers(0, 3), st.integers(0, 200), st.integers(0, 255))
def test_any_changed_byte_of_an_answer_is_survived(login: str, number: int, position: int, value: int) -> None:
    def spoil(n: int, answer: bytes) -> bytes:
        if n != number or position >= len(answer):
            return answer
        return answer[:position] + bytes([value]) + answer[position + 1 :]

    with contextlib.suppress(PlogError):
        authenticated(login, spoil)


@given(st.sampled_from(list(LOGINS)), st.integers(0, 3), st.integers(0, 200))
def test_any_answer_cut_anywhere_is_survived(login: str, number: int, size: int) -> None:
    with contextlib.suppress(PlogError):
        authenticated(login, lambda n, answer: answer[:size] if n == number else answer)


def test_a_broker_that_does_not_know_the_handshake() -> None:
    class Old(Broker):
        def _response(self, key: int) -> tuple[Api[Any, Any], object]:
            api, response = super()._response(key)
            if isinstance(response, ApiVersionsResponse):
                response.api_keys = [one for one in response.api_keys if one.api_key not in (17, 36)]
            return api, response

    with pytest.raises(KafkaError, match="the listener does not authenticate"):
        ClientConnection(Old([]), Authenticator(LOGINS["PLAIN"]))


@for_each(
    "offered, has_tls, hint",
    [
        (["PLAIN", "SCRAM-SHA-256"], True, "sasl.mechanism=SCRAM-SHA-256"),
        (["PLAIN", "SCRAM-SHA-256"], False, "sasl.mechanism=SCRAM-SHA-256"),
        (["SCRAM-SHA-256", "PLAIN", "SCRAM-SHA-512"], False, "sasl.mechanism=SCRAM-SHA-512"),
        (["GSSAPI", "PLAIN"], True, "sasl.mechanism=PLAIN"),
        (["GSSAPI", "PLAIN"], False,
         "PLAIN without TLS would show the secret: has the cluster a listener with SASL_SSL?"),
        (["OAUTHBEARER", "PLAIN"], True, "sasl.mechanism=OAUTHBEARER"),
        (["PLAIN", "OAUTHBEARER"], False,
         "OAUTHBEARER and PLAIN without TLS would show the secret: has the cluster a listener with SASL_SSL?"),
        (["GSSAPI", "AWS_MSK_IAM"], True, "plog speaks SCRAM-SHA-512, SCRAM-SHA-256, OAUTHBEARER, PLAIN"),
        ([], True, None),
    ],
)  # fmt: skip
def test_the_strongest_mechanism_is_advised(offered: list[str], has_tls: bool, hint: str | None) -> None:
    """Somebody on the way may offer the weakest alone."""

    class Other(Broker):
        def _response(self, key: int) -> tuple[Api[Any, Any], object]:
            return (SASL_HANDSHAKE, SaslHandshakeResponse(33, offered)) if key == 17 else super()._response(key)

    login = PasswordLogin("SCRAM-SHA-999", "alice", Secret("marked"))
    with pytest.raises(KafkaError, match="the broker does not take SCRAM-SHA-999") as raised:
        ClientConnection(Other([]), Authenticator(login, has_tls=has_tls))
    assert raised.value.hint == hint


@for_each("login", LOGINS)
@for_each("said", ["wrong password: marked", "MARKED", "token bWFya2Vk", None, "Invalid username or password"])
def test_a_broker_that_repeats_the_secret(login: str, said: str | None) -> None:
    class Refusing(Broker):
        def _response(self, key: int) -> tuple[Api[Any, Any], object]:
            return (SASL_AUTHENTICATE, SaslAuthenticateResponse(58, said)) if key == 36 else super()._response(key)

    with pytest.raises(KafkaError) as raised:
        ClientConnection(Refusing([]), Authenticator(LOGINS[login]))
    message = raised.value.message.lower()
    assert "marked" not in message
    assert "bwfya2vk" not in message
    assert (said is None or said in raised.value.message) is (said is None or said.startswith("Invalid"))
