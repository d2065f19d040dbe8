"""SASL at a listener: handles the frames of a connection whose client has not said who it is, in place of the
dispatcher. `_ACCEPTED` is the table of the requests that may come then; no other is decoded.

    ApiVersions, at most once
    SaslHandshake 1, then SaslAuthenticate until the mechanism is satisfied
    SaslHandshake 0, then the mechanism's messages bare, each with its size before it

What a client may send at no time closes its connection at once, and so does ApiVersions that comes twice. A login that
fails is answered some time later (`connection.failed.authentication.delay.ms`), and closes; so does another request
after a SaslHandshake, which gets ILLEGAL_SASL_STATE. Codes and texts are Kafka's (SaslServerAuthenticator).

A session whose time is limited (`connections.max.reauth.ms`) stays here: each request is held against the time, and a
SaslHandshake begins again, also when the time is over. An answer that waits then is still sent (KIP-368).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any, ClassVar, Protocol

from core.broker.requests.client_session import Session
from core.broker.requests.handlers import api_versions
from core.broker.requests.request_context import RequestContext
from core.broker.requests.request_dispatcher import Answer
from core.broker.serving.door import Door
from core.cluster.image.security_store import SecurityStore
from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import Pending, Schedule
from core.common.printable import printable
from core.protocol.frame import SIZE, Endpoint, read_request_start
from core.protocol.message import Api, VersionRange, schema_of
from core.protocol.primitives import Piece
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from core.protocol.schema.sasl_exchange import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from core.security.principal import ANONYMOUS, USER_TYPE, Principal
from core.security.sasl.scram import MECHANISMS as SCRAM_MECHANISMS
from core.security.sasl.scram import ScramCredential
from core.security.sasl.server_steps import Continue, Done, Failed, PlainServer, PlainUsers, ScramServer, ServerSteps
from core.security.server_security import ServerSasl

_log = logging.getLogger("plog.connection")

_HANDSHAKE_KEY = SASL_HANDSHAKE.key.to_bytes(2)
_FIRST_HANDSHAKE_WITH_REQUESTS = 1  # KIP-152
_AGAIN_AFTER_MS = 1000
"""A client may authenticate again once in that time (KafkaChannel)."""


class FrameHandler(Protocol):
    """What answers the frames of a connection: see `RequestDispatcher.handle`."""

    def handle(self, frame: memoryview, session: Session | None = None) -> Answer: ...


class SaslLogins:
    """The users of a listener, and counts of its logins, for all of its connections. Owned by the broker's task."""

    def __init__(
        self,
        door: Door,
        *,
        clock: Clock,
        schedule: Schedule,
        find_store: Callable[[], SecurityStore],
        answer_versions: Callable[[ApiVersionsRequest, RequestContext], ApiVersionsResponse],
        find_served: Callable[[], Mapping[Api[Any, Any], VersionRange]],
        secret: bytes,
    ) -> None:
        """`find_store` returns the users of SCRAM; `answer_versions` answers ApiVersions, and `find_served` returns the
        APIs that are served after the login. `secret` makes the salts of unknown users (`ScramServer`).
        """
        self.clock = clock
        self.schedule = schedule
        self.answer_versions = answer_versions
        self.find_served = find_served
        self._find_store = find_store
        self.successes = self.failures = 0
        """The clients that authenticated, and those that failed, since the start."""
        self.successes_again = self.failures_again = 0
        """The same of connections whose client had authenticated before."""
        self.expired = 0
        """Connections that were closed because their session was over."""
        self._door = door
        self._secret = secret
        self._users: tuple[ServerSasl, PlainUsers] | None = None

    @property
    def listener(self) -> str:
        return self._door.listener

    @property
    def sasl(self) -> ServerSasl:
        sasl = self._door.security.sasl
        assert sasl is not None, "the listener has SASL"
        return sasl

    def make_steps(self, mechanism: str, *, is_again: bool) -> ServerSteps:
        if mechanism not in SCRAM_MECHANISMS:
            return PlainServer(self._plain_users().has)
        store = self._find_store()
        return ScramServer(
            SCRAM_MECHANISMS[mechanism],
            partial(self._find_credential, mechanism),
            secret=self._secret,
            find_usual=partial(store.usual_scram_credential, mechanism),
            is_again=is_again,
        )

    def _plain_users(self) -> PlainUsers:
        if self._users is None or self._users[0] is not self.sasl:
            self._users = self.sasl, PlainUsers(self.sasl.plain_users)
        return self._users[1]

    def _find_credential(self, mechanism: str, name: str, is_token: bool) -> ScramCredential | None:  # noqa: FBT001
        """Finds no delegation token: plog makes none, and obeys none."""
        return None if is_token else self._find_store().find_scram_credential(name, mechanism)


class _State(Enum):
    NEW = "nothing was accepted yet"
    ASKED = "ApiVersions was answered"
    SHAKEN = "the mechanism's messages come in SaslAuthenticate"
    BARE = "the mechanism's messages come bare"
    LIVE = "the client is known for some time"
    OVER = "the client is known for good, or failed"


_NEXT = {
    _State.NEW: {_State.ASKED, _State.SHAKEN, _State.BARE, _State.OVER},
    _State.ASKED: {_State.SHAKEN, _State.BARE, _State.OVER},
    _State.SHAKEN: {_State.LIVE, _State.OVER},
    _State.BARE: {_State.LIVE, _State.OVER},
    _State.LIVE: {_State.SHAKEN, _State.BARE, _State.OVER},
    _State.OVER: set[_State](),
}


class SaslAuthenticator:
    """One for each connection; owned by the broker's task."""

    def __init__(
        self,
        logins: SaslLogins,
        dispatcher: FrameHandler,
        client_host: str,
        admit: Callable[[Principal, FrameHandler], None],
        close: Callable[[], None],
    ) -> None:
        """`client_host` is for log lines. `admit` is called with the client's principal once it is known, and with what
        handles its further frames. `close` closes the connection when the answers so far are sent.
        """
        self._logins = logins
        self._dispatcher = dispatcher
        self._client_host = client_host
        self._admit = admit
        self._close = close
        self._clock = logins.clock
        self._state = _State.NEW
        self._mechanism = ""
        self._steps: ServerSteps | None = None
        self._principal: Principal | None = None
        self._ends_ms = 0
        self._again_ms: int | None = None  # when it last began to authenticate again

    def handle(self, frame: memoryview, session: Session | None = None) -> Answer:
        """Raises MalformedMessageError for what a client may not send now: the connection is closed then. Its message
        holds nothing of the frame.
        """
        if self._state is _State.LIVE:
            return self._handle_live(frame, session)
        if len(frame) > self._logins.sasl.most_frame_bytes:
            raise MalformedMessageError(f"request of {len(frame)} bytes before authentication")
        if self._state is _State.BARE:
            return self._take_bare(bytes(frame))
        key, version, correlation_id = read_request_start(frame)
        accept = self._ACCEPTED[self._state].get(key)
        if accept is not None:
            return accept(self, frame, version, correlation_id)
        if self._state is _State.SHAKEN:
            return self._refuse_request(key, version, correlation_id)
        raise MalformedMessageError("a request that may not come before authentication")

    def _handle_live(self, frame: memoryview, session: Session | None) -> Answer:
        now_ms = self._clock.monotonic_ms()
        if frame[:2] == _HANDSHAKE_KEY and (self._again_ms is None or now_ms >= self._again_ms + _AGAIN_AFTER_MS):
            self._again_ms = now_ms
            _, version, correlation_id = read_request_start(frame)
            return self._shake_hands(frame, version, correlation_id)
        if now_ms > self._ends_ms:
            self._logins.expired += 1
            raise MalformedMessageError("its session is over, and it did not authenticate again")
        return self._dispatcher.handle(frame, session)

    def _enter(self, state: _State) -> None:
        assert state in _NEXT[self._state], f"{self._state.value}, and then {state.value}"
        self._state = state

    # --- before the mechanism is agreed

    def _answer_versions(self, frame: memoryview, version: int, correlation_id: int) -> Answer:
        if version not in API_VERSIONS.versions:
            return _endpoint(API_VERSIONS, 0).encode_response(correlation_id, api_versions.unsupported_version())
        header, request = _endpoint(API_VERSIONS, version).decode_request(frame)
        context = RequestContext(version, header.client_id, Session(ANONYMOUS))
        response = self._logins.answer_versions(request, context)
        if response.error_code == ErrorCode.NONE:
            self._enter(_State.ASKED)
        return _endpoint(API_VERSIONS, version).encode_response(correlation_id, response)

    def _shake_hands(self, frame: memoryview, version: int, correlation_id: int) -> Answer:
        mechanism = _decode(SASL_HANDSHAKE, version, frame).mechanism
        offered = list(self._logins.sasl.mechanisms)
        encode = partial(_endpoint(SASL_HANDSHAKE, version).encode_response, correlation_id)
        if self._principal is not None and mechanism != self._mechanism:
            raise MalformedMessageError(
                f"a client that authenticated by {self._mechanism} may not change the mechanism"
            )
        if mechanism not in offered:
            answer = encode(SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered))
            return self._refuse("the listener does not have its mechanism", answer)
        self._mechanism = mechanism
        self._steps = self._logins.make_steps(mechanism, is_again=self._principal is not None)
        self._enter(_State.SHAKEN if version >= _FIRST_HANDSHAKE_WITH_REQUESTS else _State.BARE)
        return encode(SaslHandshakeResponse(mechanisms=offered))

    # --- the mechanism's messages

    def _authenticate(self, frame: memoryview, version: int, correlation_id: int) -> Answer:
        token = _decode(SASL_AUTHENTICATE, version, frame).auth_bytes
        outcome, lifetime_ms = self._step(bytes(token))
        encode = partial(_endpoint(SASL_AUTHENTICATE, version).encode_response, correlation_id)
        if isinstance(outcome, Failed):
            answer = encode(SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, outcome.message))
            return self._refuse(outcome.message, answer)
        return encode(SaslAuthenticateResponse(auth_bytes=outcome.token, session_lifetime_ms=lifetime_ms))

    def _take_bare(self, token: bytes) -> Answer:
        outcome, _ = self._step(token)
        if isinstance(outcome, Failed):
            return self._refuse(outcome.message, [])
        return [SIZE.pack(len(outcome.token)) + outcome.token]

    def _step(self, token: bytes) -> tuple[Continue | Done | Failed, int]:
        """Returns the outcome of a message, and how long the session lasts in ms if that completes the login; 0 for no
        limit.
        """
        assert self._steps is not None
        outcome = self._steps.step(token)
        if not isinstance(outcome, Done):
            return outcome, 0
        self._steps = None
        principal = Principal(USER_TYPE, outcome.name)
        if self._principal is None:
            self._logins.successes += 1
        elif principal == self._principal:
            self._logins.successes_again += 1
        else:
            change = f"from {self._principal.type}.{self._principal.name}: {principal.type}.{principal.name}"
            return Failed(f"Cannot change principals during re-authentication {change}"), 0
        self._principal = principal
        lifetime_ms = self._logins.sasl.max_reauth_ms.get(self._mechanism, 0)
        self._ends_ms = self._clock.monotonic_ms() + lifetime_ms
        self._enter(_State.LIVE if lifetime_ms else _State.OVER)
        self._admit(principal, self if lifetime_ms else self._dispatcher)
        return outcome, lifetime_ms

    # --- what ends it

    def _refuse_request(self, key: int, version: int, correlation_id: int) -> Answer:
        """Answers another request than SaslAuthenticate with ILLEGAL_SASL_STATE, as far as its answer has a place for
        an error of the whole request.
        """
        found = [api for api, versions in self._logins.find_served().items() if api.key == key and version in versions]
        if not found:
            raise MalformedMessageError("a request that is not served, instead of SaslAuthenticate")
        fields = schema_of(found[0].response).fields
        has_error = any(field.name == "error_code" and version in field.versions for field in fields)
        response = found[0].response(error_code=ErrorCode.ILLEGAL_SASL_STATE) if has_error else None
        answer = _endpoint(found[0], version).encode_response(correlation_id, response) if has_error else []
        return self._refuse(f"{found[0].name} instead of SaslAuthenticate", answer)

    def _refuse(self, why: str, answer: list[Piece]) -> Answer:
        """Answers later, and closes the connection then. `why` holds no secret."""
        logins = self._logins
        is_again = self._principal is not None
        logins.failures_again += is_again
        logins.failures += not is_again
        self._steps = None
        self._enter(_State.OVER)
        at = f"{logins.listener} by {self._mechanism}" if self._mechanism else logins.listener
        _log.info("a client at %s failed to authenticate at %s: %s", self._client_host, at, printable(why, ""))
        return _LateAnswer(logins, answer, self._close)

    _ACCEPTED: ClassVar[dict[_State, dict[int, Callable[[SaslAuthenticator, memoryview, int, int], Answer]]]] = {
        _State.NEW: {API_VERSIONS.key: _answer_versions, SASL_HANDSHAKE.key: _shake_hands},
        _State.ASKED: {SASL_HANDSHAKE.key: _shake_hands},
        _State.SHAKEN: {SASL_AUTHENTICATE.key: _authenticate},
        _State.OVER: {},
    }
    """By state and key of the API: what is decoded and answered. LIVE and BARE take frames in other ways."""


class _LateAnswer(Pending[list[Piece]]):
    """The last answer of a connection, after the listener's delay of failures."""

    def __init__(self, logins: SaslLogins, answer: list[Piece], close: Callable[[], None]) -> None:
        super().__init__(lambda: answer)
        self._close = close
        self.limit(logins.schedule, logins.sasl.failure_delay_ms)

    def complete_now(self) -> None:
        super().complete_now()
        self._close()


def _decode(api: Api[Any, Any], version: int, frame: memoryview) -> Any:
    """Raises MalformedMessageError, whose message holds nothing of the frame."""
    try:
        if version in api.versions:
            return _endpoint(api, version).decode_request(frame)[1]
    except MalformedMessageError:
        raise MalformedMessageError(f"{api.name} version {version} that can't be read") from None
    raise MalformedMessageError(f"{api.name} version {version} is not served")


@cache
def _endpoint(api: Api[Any, Any], version: int) -> Endpoint[Any, Any]:
    return Endpoint(api, version)
