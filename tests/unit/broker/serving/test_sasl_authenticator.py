"""What comes when, before a client is known and after: each order of requests, and frames that are none. Requests are
coded by Kafka's own message definitions.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.broker.requests import request_dispatcher
from core.broker.requests.client_session import Sessions
from core.broker.requests.handlers import api_versions
from core.broker.serving.door import Door
from core.broker.serving.sasl_authenticator import FrameHandler, SaslAuthenticator, SaslLogins
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.protocol.frame import Endpoint
from core.security.principal import ANONYMOUS, Principal
from core.security.secret import Secret
from core.security.server_security import ListenerSecurity, ServerSasl
from tests.support.answers.message_codec import decode_response, encode_request
from tests.support.broker import SteeredNode, Timers, joined, open_broker
from tests.support.for_each import for_each
from tests.support.manual_clock import ManualClock
from tests.support.raw_sasl_client import raw_request, set_users, upsertion
from tests.support.requests import SERVED_APIS

GOOD, BAD, OTHER = b"\0alice\0alice-secret", b"\0alice\0wrong", b"\0bob\0bob-secret"
LIFETIME_MS = 3000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CLOSED = "closed"


class Listener:
    """A listener at which clients log in, without sockets. `timers` has the failures that are to be answered."""

    def __init__(self, broker: SteeredNode, clock: ManualClock, lifetime_ms: int = 0) -> None:
        self.broker = broker
        self.clock = clock
        self.timers = Timers()
        broker.runtime.use(schedule=self.timers)
        users = {name: Secret(f"{name}-secret") for name in ("alice", "bob")}
        lifetimes = {"PLAIN": lifetime_ms} if lifetime_ms else {}
        security = ListenerSecurity(sasl=ServerSasl(MECHANISMS, users, lifetimes))
        services = broker.services
        self.logins = SaslLogins(
            Door("SASL", security),
            clock=clock,
            schedule=self.timers,
            find_store=lambda: services.security,
            answer_versions=lambda request, context: api_versions.handle(services, request, context),
            find_served=lambda: services.served_apis,
            secret=b"secret of the cluster",
        )
        self.sessions = Sessions(broker.authorizer)


class Client:
    """A connection: what it sends comes to whatever handles its frames now."""

    def __init__(self, listener: Listener, dispatcher: FrameHandler | None = None) -> None:
        self._listener = listener
        self.session = listener.sessions.find(ANONYMOUS, "SASL", "127.0.0.1", "127.0.0.1")
        self.is_closed = False
        self.pending: Pending[Any] | None = None
        self.handler: FrameHandler = SaslAuthenticator(
            listener.logins, dispatcher or listener.broker.dispatcher, "127.0.0.1", self._admit, self.close
        )

    def _admit(self, principal: Principal, handler: FrameHandler) -> None:
        self.session = self._listener.sessions.find(principal, "SASL", "127.0.0.1", "127.0.0.1")
        self.handler = handler

    def close(self) -> None:
        self.is_closed = True

    def send(self, frame: bytes) -> Any:
        """Returns the bytes of the answer, after its delay if it has one; None without an answer, `CLOSED` if the
        connection is closed without one.
        """
        try:
            answer = self.handler.handle(memoryview(bytearray(frame)), self.session)
        except MalformedMessageError:
            self.close()
            return CLOSED
        if not isinstance(answer, Pending):
            return None if answer is None else joined(answer)
        arrived: list[Any] = []
        answer.on_value = arrived.append
        assert not self.is_closed
        self._listener.timers.fire()
        assert self.is_closed
        return joined(arrived[0]) or CLOSED

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """Returns the answer's fields, or `CLOSED`."""
        answer = self.send(encode_request(api, version, 1, "lab", fields))
        return answer if answer in (None, CLOSED) else decode_response(api, version, answer[4:])

    def shake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.ask("SaslHandshake", version, Mechanism=mechanism)

    def authenticate(self, token: bytes = GOOD, version: int = 2) -> Any:
        return self.ask("SaslAuthenticate", version, AuthBytes=token)

    def log_in(self) -> Client:
        assert self.shake()["ErrorCode"] == 0
        assert self.authenticate()["ErrorCode"] == 0
        return self


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[SteeredNode]:
    broker = open_broker(tmp_path, clock)
    yield broker
    broker.close()


@pytest.fixture
def listener(broker: SteeredNode, clock: ManualClock) -> Listener:
    return Listener(broker, clock)


@pytest.fixture
def limited(broker: SteeredNode, clock: ManualClock) -> Listener:
    """Its sessions last for 3 s."""
    return Listener(broker, clock, LIFETIME_MS)


# --- nothing else is reached


def into(state: str, client: Client) -> Client:
    """Brings it there."""
    if state == "asked":
        client.ask("ApiVersions", 4, ClientSoftwareName="lab", ClientSoftwareVersion="1")
    elif state == "shaken":
        client.shake()
    elif state == "bare":
        client.shake(version=0)
    return client


@for_each("state", ["new", "asked", "shaken", "bare"])
def test_three_decoders_are_reached_before_authentication(
    state: str, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each served API, in its first and last version and one more: no handler is called, nothing else decoded."""
    decoded: set[str] = set()
    decode = Endpoint.decode_request
    dispatcher = Mock()
    clients = {
        (api.key, version): into(state, Client(listener, dispatcher))
        for api in SERVED_APIS
        for version in (api.versions.first, api.versions.last, api.versions.last + 1)
    }

    def noted(self: Endpoint[Any, Any], frame: memoryview) -> Any:
        decoded.add({api.key: api.name for api in SERVED_APIS}[int.from_bytes(frame[:2])])
        return decode(self, frame)

    monkeypatch.setattr(Endpoint, "decode_request", noted)
    monkeypatch.setattr(request_dispatcher.RequestDispatcher, "handle", Mock(side_effect=AssertionError))
    for (key, version), client in clients.items():
        client.send(raw_request(key, version, bytes(40)))
        assert client.session.principal == ANONYMOUS
    assert not dispatcher.mock_calls
    expected = {"new": {"ApiVersions", "SaslHandshake"}, "asked": {"SaslHandshake"}, "shaken": {"SaslAuthenticate"}}
    assert decoded == expected.get(state, set())


# --- each order

TOKENS = {"good": GOOD, "bad": BAD, "other": OTHER}
EVENTS = (
    "versions", "versions 99", "bad name", "hand 1", "hand 0", "hand NTLM", "good", "bad", "other", "bare good",
    "bare bad", "metadata", "garbage", "empty",
)  # fmt: skip
WAITS = {"wait": 1, "wait a second": 1000, "wait long": LIFETIME_MS + 1}


class Model:
    """What section 2.1 of the captured facts says, for a listener of PLAIN."""

    def __init__(self, lifetime_ms: int) -> None:
        self.lifetime_ms = lifetime_ms
        self.now_ms = 0
        self.connect()

    def connect(self) -> None:
        self.state = "new"
        self.name = ""
        self.ends_ms = self.again_ms = -1

    def next(self, event: str) -> Any:
        """The error code that is answered, "token" for a bare one, or `CLOSED`; moves to the next state."""
        answer, self.state = self._next(event)
        return answer

    def _next(self, event: str) -> tuple[Any, str]:
        if self.state == "bare":
            return self._log_in("alice", "token") if event == "bare good" else (CLOSED, CLOSED)
        if event.startswith("bare") or event in ("garbage", "empty"):
            return CLOSED, CLOSED
        if self.state in ("new", "asked"):
            if event.startswith("hand"):
                return self._shake(event)
            known = {"versions": (0, "asked"), "versions 99": (35, "new"), "bad name": (42, "new")}
            return known.get(event, (CLOSED, CLOSED)) if self.state == "new" else (CLOSED, CLOSED)
        if self.state == "shaken":
            if event in ("good", "other"):
                return self._log_in("alice" if event == "good" else "bob", 0)
            return {"bad": (58, CLOSED), "versions 99": (CLOSED, CLOSED)}.get(event, (34, CLOSED))
        may_begin = self.lifetime_ms > 0 and (self.again_ms < 0 or self.now_ms - self.again_ms >= 1000)
        if event.startswith("hand") and may_begin:
            self.again_ms = self.now_ms
            return (CLOSED, CLOSED) if event == "hand NTLM" else self._shake(event)
        if self.lifetime_ms and self.now_ms > self.ends_ms:
            return CLOSED, CLOSED
        return {"versions": 0, "versions 99": 35, "bad name": 42, "metadata": 0}.get(event, 34), "known"

    def _shake(self, event: str) -> tuple[Any, str]:
        return (33, CLOSED) if event == "hand NTLM" else (0, "shaken" if event == "hand 1" else "bare")

    def _log_in(self, name: str, answer: Any) -> tuple[Any, str]:
        if self.name not in ("", name):
            return 58, CLOSED
        self.name = name
        self.ends_ms = self.now_ms + self.lifetime_ms
        return answer, "known"


def say(client: Client, event: str) -> Any:
    """The error code of the answer, "token" for a bare one, or `CLOSED`."""
    about = event.split()[-1]
    if event == "versions 99":
        answer = client.send(raw_request(18, 99, b"\0"))
        return answer if answer == CLOSED else int.from_bytes(answer[8:10])
    if event.startswith("bare"):
        return "token" if client.send(TOKENS[about]) == bytes(4) else CLOSED
    if event in ("garbage", "empty"):
        return client.send(b"\xff" * 8 if event == "garbage" else b"")
    if event in TOKENS:
        answer = client.authenticate(TOKENS[event])
    elif event.startswith("hand"):
        answer = client.shake("NTLM" if about == "NTLM" else "PLAIN", 0 if about == "0" else 1)
    elif event == "metadata":
        answer = client.ask("Metadata", 13, Topics=[])
    else:
        name = "-" if event == "bad name" else "lab"
        answer = client.ask("ApiVersions", 4, ClientSoftwareName=name, ClientSoftwareVersion="1")
    return answer if answer == CLOSED else answer["ErrorCode"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([0, LIFETIME_MS]), st.lists(st.sampled_from([*EVENTS, *WAITS]), max_size=40))
def test_each_order_is_answered_by_the_table(broker: SteeredNode, lifetime_ms: int, events: list[str]) -> None:
    """A client that is closed connects again."""
    clock = ManualClock()
    listener = Listener(broker, clock, lifetime_ms)
    model = Model(lifetime_ms)
    client = Client(listener)
    for event in events:
        if event in WAITS:
            clock.advance(WAITS[event])
            model.now_ms += WAITS[event]
            continue
        before = model.state
        expected = model.next(event)
        assert say(client, event) == expected, (before, event)
        assert client.is_closed == (model.state == CLOSED)
        assert client.session.principal == (Principal("User", model.name) if model.name else ANONYMOUS)
        if client.is_closed:
            client = Client(listener)
            model.connect()


# --- failures


def failed(listener: Listener, token: bytes = BAD) -> tuple[Client, Any]:
    client = Client(listener)
    client.shake()
    frame = encode_request("SaslAuthenticate", 2, 1, "lab", {"AuthBytes": token})
    return client, client.handler.handle(memoryview(bytearray(frame)), client.session)


def test_a_failure_is_answered_after_a_while(listener: Listener) -> None:
    client, pending = failed(listener)
    assert isinstance(pending, Pending)
    arrived: list[Any] = []
    pending.on_value = arrived.append
    assert listener.timers.delays == [100]
    assert not pending.is_at_work
    listener.timers.fire(within_ms=99)
    assert (arrived, client.is_closed) == ([], False)
    listener.timers.fire(within_ms=100)
    assert len(arrived) == 1
    assert client.is_closed
    assert listener.logins.failures == 1


def test_who_is_gone_is_not_waited_for(listener: Listener) -> None:
    client, pending = failed(listener)
    pending.cancel()
    assert listener.timers.delays == []
    assert not client.is_closed


def test_after_a_failure_nothing_is_taken(listener: Listener) -> None:
    """What a client sent in one piece with it, or while it waited."""
    client, _ = failed(listener)
    assert client.send(encode_request("SaslHandshake", 1, 1, "lab", {"Mechanism": "PLAIN"})) == CLOSED


def test_another_request_in_between_gets_its_own_answer_or_none(listener: Listener) -> None:
    """Produce has no place for an error of the whole request before version 13, and none after."""
    codes = {}
    for api in SERVED_APIS:
        client = Client(listener)
        client.shake()
        answer = client.send(raw_request(api.key, api.versions.last, b""))
        codes[api.name] = answer if answer == CLOSED else decode_response(api.name, api.versions.last, answer[4:])
    assert codes.pop("SaslAuthenticate") == CLOSED  # it can't be read
    without = {name for name, answer in codes.items() if answer == CLOSED}
    assert {"Produce", "CreateTopics", "OffsetCommit"} <= without
    assert not {"Metadata", "ApiVersions", "SaslHandshake", "Fetch"} & without
    assert {answer["ErrorCode"] for answer in codes.values() if answer != CLOSED} == {34}


# --- sessions with a limit


def test_an_answer_that_waits_is_sent_though_the_session_ends(limited: Listener) -> None:
    """Which session asked, counts; the next request is held against the time."""
    waiting: Pending[Any] = Pending()
    dispatcher = Mock()
    dispatcher.handle.return_value = waiting
    client = Client(limited, dispatcher).log_in()
    session = client.session
    frame = encode_request("Metadata", 13, 2, "lab", {"Topics": []})
    assert client.handler.handle(memoryview(bytearray(frame)), session) is waiting
    limited.clock.advance(LIFETIME_MS + 1)
    assert client.shake()["ErrorCode"] == 0
    assert client.authenticate()["SessionLifetimeMs"] == LIFETIME_MS
    assert client.session is session
    assert not waiting.is_over
    limited.clock.advance(LIFETIME_MS + 1)
    assert client.ask("Metadata", 13, Topics=[]) == CLOSED
    assert limited.logins.expired == 1
    assert (limited.logins.successes, limited.logins.successes_again) == (1, 1)


def test_a_session_without_a_limit_is_the_dispatchers_alone(listener: Listener) -> None:
    assert Client(listener).log_in().handler is listener.broker.dispatcher


@for_each("version", [0, 1])
def test_a_session_of_bare_messages_ends_too(version: int, limited: Listener) -> None:
    """A client can't get around the limit by an old version."""
    client = Client(limited)
    client.shake(version=version)
    if version:
        assert client.authenticate(version=0) == {"ErrorCode": 0, "ErrorMessage": "", "AuthBytes": ""}
    else:
        assert client.send(GOOD) == bytes(4)
    assert client.ask("Metadata", 13, Topics=[])["ErrorCode"] == 0
    limited.clock.advance(LIFETIME_MS + 1)
    assert client.ask("Metadata", 13, Topics=[]) == CLOSED


def test_a_large_frame_is_refused_while_a_client_authenticates_again(limited: Listener) -> None:
    client = Client(limited).log_in()
    assert client.shake()["ErrorCode"] == 0
    assert client.authenticate(GOOD + bytes(524_288)) == CLOSED


# --- users


def scram_client(listener: Listener, name: str, mechanism: str = "SCRAM-SHA-256") -> tuple[str, Client]:
    """The broker's first message without the nonce."""
    client = Client(listener)
    assert client.shake(mechanism)["ErrorCode"] == 0
    answer = client.authenticate(f"n,,n={name},r=abc".encode())
    assert answer["ErrorCode"] == 0
    return bytes.fromhex(answer["AuthBytes"]).decode().split(",", 1)[1], client


def test_a_name_that_nobody_has_keeps_its_salt(listener: Listener) -> None:
    set_users(listener.broker, upsertion("sam", "pw1", 1, 8192), upsertion("tom", "pw1", 1, 8192))
    salt, client = scram_client(listener, "ghost")
    assert salt.endswith(",i=8192")
    assert len(salt) == len(scram_client(listener, "sam")[0])
    assert client.authenticate(b"c=biws,r=abc,p=AAAA")["ErrorCode"] == 58
    set_users(listener.broker, upsertion("zed", "pw1", 1, 4096))
    assert scram_client(listener, "ghost")[0] == salt
    assert scram_client(listener, "spectre")[0] != salt
    assert scram_client(listener, "ghost", "SCRAM-SHA-512")[0] != salt


# --- what strangers met


def proof_of(name: str, password: str, first: str, nonce: str, binding: str = "biws") -> bytes:
    """The last message of a client whose nonce is `abc`, with any nonce in it (RFC 5802)."""
    salt = base64.b64decode(first.split(",")[1][2:])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c={binding},r={nonce}"
    message = f"n={name},r=abc,{first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def scram_answer(
    listener: Listener, password: str, change: Callable[[str], str] = str, name: str = "sam", binding: str = "biws"
) -> int:
    """The error code for a proof with what `change` makes of the broker's nonce."""
    client = Client(listener)
    client.shake("SCRAM-SHA-256")
    first = bytes.fromhex(client.authenticate(f"n,,n={name},r=abc".encode())["AuthBytes"]).decode()
    nonce = first.split(",")[0][2:]
    code: int = client.authenticate(proof_of(name, password, first, change(nonce), binding))["ErrorCode"]
    return code


@for_each(
    "change, code",
    [
        (lambda nonce: nonce, 0),
        (lambda nonce: "abc" + nonce, 0),  # librdkafka before 2.6.1 (its pull request 4895)
        (lambda _: "abc", 58),  # Redpanda's issue 3015: a client that only repeats its own
        (lambda _: "foo", 58),  # CVE-2024-56128
        (lambda nonce: "xyz" + nonce, 58),
        (lambda nonce: "abcabc" + nonce, 58),
        (lambda nonce: nonce + "x", 58),
        (lambda nonce: nonce[3:], 58),
        (lambda _: "MDEyMzQ1Njc4OWFiY2RlZg==", 58),  # kafka_protocol's pull request 112: the salt
    ],
)
def test_the_nonce_must_come_back(change: Callable[[str], str], code: int, listener: Listener) -> None:
    set_users(listener.broker, upsertion("sam", "pw1"))
    assert scram_answer(listener, "pw1", change) == code


@for_each("binding, code", [("biws", 0), ("eSws", 58), ("biwsYg==", 58), ("", 58)])
def test_the_binding_must_come_back(binding: str, code: int, listener: Listener) -> None:
    """Its proof is right, as that of a client that took away channel binding on the way would be; Kafka takes it."""
    set_users(listener.broker, upsertion("sam", "pw1"))
    assert scram_answer(listener, "pw1", binding=binding) == code


def test_a_client_stays_who_it_is(limited: Listener) -> None:
    client = Client(limited).log_in()
    client.shake()
    answer = client.authenticate(OTHER)
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert (answer["ErrorCode"], answer["ErrorMessage"]) == (58, text)
    assert client.is_closed
    assert client.session.principal == Principal("User", "alice")
    assert (limited.logins.failures, limited.logins.failures_again) == (0, 1)


def test_a_password_is_taken_as_it_is_and_a_name_is_escaped(listener: Listener) -> None:
    """kafkajs's issue 506 escaped passwords; kafka-python-ng's pull request 196 is about names."""
    set_users(listener.broker, upsertion("a=b", "x,y=z=2C"))
    assert scram_answer(listener, "x,y=z=2C", str, "a=3Db") == 0
    client = Client(listener)
    client.shake("SCRAM-SHA-256")
    assert client.authenticate(b"n,,n=a=b,r=abc")["ErrorCode"] == 58


def test_bare_messages_of_scram(listener: Listener) -> None:
    """Shotover's issue 1574 and KoP's 667: kafka-python 2.0 sends tokens without requests around them."""
    set_users(listener.broker, upsertion("sam", "pw1"))
    client = Client(listener)
    assert client.shake("SCRAM-SHA-256", version=0)["ErrorCode"] == 0
    first = client.send(b"n,,n=sam,r=abc")[4:].decode()
    last = client.send(proof_of("sam", "pw1", first, first.split(",")[0][2:]))
    assert int.from_bytes(last[:4]) == len(last) - 4
    assert last[4:6] == b"v="
    assert client.session.principal == Principal("User", "sam")


def test_an_old_version_of_authenticate_tells_no_lifetime_and_has_one(limited: Listener) -> None:
    """KAFKA-9241, and librdkafka's issue 3293."""
    client = Client(limited)
    client.shake()
    assert "SessionLifetimeMs" not in client.authenticate(version=0)
    limited.clock.advance(LIFETIME_MS + 1)
    assert client.ask("Metadata", 13, Topics=[]) == CLOSED
    later = Client(limited)
    later.shake()
    assert later.authenticate(version=1)["SessionLifetimeMs"] == LIFETIME_MS


def test_a_client_may_authenticate_as_often_as_its_session_ends(limited: Listener) -> None:
    """Tansu's pull request 665: the second handshake of a connection was refused as an unknown mechanism."""
    client = Client(limited).log_in()
    for _ in range(5):
        limited.clock.advance(LIFETIME_MS - 100)
        client.log_in()
        assert client.ask("Metadata", 13, Topics=[])["ErrorCode"] == 0
    assert limited.logins.successes_again == 5


def test_a_client_whose_first_question_is_too_new_asks_again(listener: Listener) -> None:
    """Java's clients ask with their newest ApiVersions, and go down by the answer (KIP-511)."""
    client = Client(listener)
    answer = client.send(raw_request(18, 9, b"\0"))
    assert int.from_bytes(answer[8:10]) == 35
    keys = client.ask("ApiVersions", 3, ClientSoftwareName="lab", ClientSoftwareVersion="1")["ApiKeys"]
    known = {one["ApiKey"]: (one["MinVersion"], one["MaxVersion"]) for one in keys}
    assert (known[17], known[36]) == ((0, 1), (0, 2))  # KAFKA-9577: clients take the largest version of 17 blindly
    client.log_in()


def test_a_client_that_asks_for_no_versions_first(listener: Listener) -> None:
    """Platformatic's issue 350: each version of SaslAuthenticate is taken."""
    for version in range(3):
        client = Client(listener)
        client.shake()
        assert client.authenticate(version=version)["ErrorCode"] == 0


# --- secrets


def test_tokens_are_in_no_line(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    """Neither those of a client that fails, nor those that come where they must not."""
    caplog.set_level(logging.DEBUG)
    marked = b"\0alice\0marked-secret"
    client = Client(listener)
    client.shake()
    client.authenticate(marked)
    client = Client(listener)
    client.shake(version=0)
    client.send(marked)
    for version in (0, 1):
        client = Client(listener)
        client.shake(version=version)
        client.send(b"marked-secret")
        client = into("bare", Client(listener))
        client.send(encode_request("SaslAuthenticate", 2, 1, "lab", {"AuthBytes": marked}))
    client = Client(listener)
    client.shake("marked-secret")
    client = Client(listener).log_in()
    client.authenticate(marked)
    client = Client(listener)
    client.shake()
    client.send(raw_request(36, 2, b"\0\x7fmarked-secret"))
    assert "failed to authenticate" in caplog.text
    assert "127.0.0.1" in caplog.text
    assert "marked-secret" not in caplog.text
    assert "marked" not in caplog.text
    assert GOOD.decode() not in caplog.text
    assert "alice" not in caplog.text


# --- frames that are none


def hostile_conversation(dice: random.Random) -> list[bytes]:
    """Frames such as a client sends, some of them bent."""
    frames = [
        encode_request("ApiVersions", dice.randrange(6), 1, "lab", {"ClientSoftwareName": "lab"}),
        encode_request("SaslHandshake", 1, 2, "lab", {"Mechanism": dice.choice([*MECHANISMS, "", "x" * 300])}),
        encode_request("SaslHandshake", 0, 2, "lab", {"Mechanism": "PLAIN"}),
        encode_request("SaslAuthenticate", dice.randrange(3), 3, "lab", {"AuthBytes": dice.choice(SOUND_TOKENS)}),
        dice.choice(SOUND_TOKENS),
        encode_request("Metadata", 12, 4, "lab", {"Topics": []}),
    ]
    sent = [frames[place] for place in (0, 1, 3, 3)] if dice.random() < 0.7 else dice.choices(frames, k=5)
    return [bent(frame, dice) if dice.random() < 0.4 else frame for frame in sent]


SOUND_TOKENS = (
    BAD, b"n,,n=alice,r=abc", b"n,,n=ghost,r=abc", b"c=biws,r=abc,p=AAAA", b"", b"\0" * 3, b"n,a=x,n=x,r=y,",
)  # fmt: skip


def bent(frame: bytes, dice: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(dice.choice((1, 1, 2, 8))):
        position = dice.randrange(len(data) + 1)
        piece = dice.choice((b"", b"\xff", b"\0", b"\x80\x80\x80\x80\x7f", b"\x7f\xff\xff\xff", dice.randbytes(9)))
        data[position : position + dice.randrange(6)] = piece
    return bytes(data)


def test_hostile_frames(listener: Listener) -> None:
    """Nobody gets in without the password; nothing is raised but that the connection is to be closed."""
    set_users(listener.broker, upsertion("alice", "pw1"))
    dice = random.Random(61)
    for _ in range(200):
        client = Client(listener)
        for frame in hostile_conversation(dice):
            if client.is_closed:
                break
            client.send(frame)
        assert client.session.principal == ANONYMOUS
    assert listener.logins.successes == 0
