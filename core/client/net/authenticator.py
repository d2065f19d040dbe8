"""SASL on a connection: before any other request, and again before the session ends (KIP-152, KIP-368).

SaslHandshake v1, a mechanism -> those that the broker has
SaslAuthenticate, the mechanism's message -> its answer; and so on; the last answer says how long the session lasts
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from core.client.net.token_source import TokenSource
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, PlogError
from core.protocol.message import MAX_VERSION, Api
from core.protocol.schema.sasl_exchange import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from core.security.client_security import BearerLogin, PasswordLogin
from core.security.client_settings import IN_CLEAR, STRONGEST_FIRST
from core.security.sasl.sasl_steps import ClientSteps, OAuthBearerClient, PlainClient
from core.security.sasl.scram import MECHANISMS, ScramClient
from core.security.secret import hide_secrets

Req = TypeVar("Req")

_EARLIEST, _LATEST = 0.85, 0.95
"""Shares of the session's lifetime between which it is time to authenticate again; Java's client has the same."""

_LEAST_SECONDS = 1.0
"""The least time between two logins on a connection: Kafka answers ILLEGAL_SASL_STATE to a client that authenticates
again sooner. Only a token that is about to expire makes a session so short.
"""

_HANDSHAKE_VERSION = 1  # KIP-152
_NO_AUTHENTICATION = "the listener does not authenticate"
_NO_AUTHENTICATION_HINT = "security.protocol=PLAINTEXT or SSL, or the port of a listener with SASL"


Question = tuple[Api[Any, Any], Any, int]
"""An API, the request, and the newest version that may be asked."""


class Exchange(Protocol):
    """A connection to be authenticated."""

    def exchange(self, api: Api[Req, Any], request: Req, *, at_most: int = ...) -> Any:
        """Sends a request at once, and returns its answer: a response message of the API."""


class Authenticator:
    """Authenticates one connection; owned by one task."""

    def __init__(
        self,
        login: PasswordLogin | BearerLogin,
        tokens: TokenSource | None = None,
        *,
        has_tls: bool = False,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`has_tls`: nobody on the way can read the connection."""
        self._login = login
        self._has_tls = has_tls
        self._pause = pause
        self._tokens = tokens or (TokenSource(login) if isinstance(login, BearerLogin) else None)
        self._token = ""
        self._clock = clock
        self._due_s: float | None = None
        self._begun_s: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time to authenticate again."""
        return self._due_s is not None and self._clock() >= self._due_s

    @property
    def wait_s(self) -> float:
        """How long to wait before the connection may authenticate again."""
        return 0 if self._begun_s is None else max(self._begun_s + _LEAST_SECONDS - self._clock(), 0)

    def authenticate(self, connection: Exchange) -> None:
        """Raises KafkaError if the broker refuses, AuthenticationError if it does not prove its identity, or if there
        is no token, and ConnectionFailedError.
        """
        if self.wait_s > 0:
            self._pause(self.wait_s)
        asking = self.ask()
        answer = None
        with contextlib.suppress(StopIteration):
            while True:
                api, request, at_most = asking.send(answer)
                try:
                    answer = connection.exchange(api, request, at_most=at_most)
                except PlogError as error:
                    asking.throw(error)

    def ask(self) -> Generator[Question, Any, None]:
        """Yields each request, and is sent the response, or the error that came instead of it. Raises what
        `authenticate` raises.
        """
        steps = self._steps()
        self._begun_s = self._clock()
        yield from self._handshake()
        message: bytes | None = steps.first()
        lifetime_ms = 0
        while message is not None:
            response = yield from self._exchange(message)
            if response.error_code:
                raise self._refused(ErrorCode.of(response.error_code), response.error_message, steps)
            message = steps.answer(response.auth_bytes)
            lifetime_ms = response.session_lifetime_ms
        self._due_s = None
        if lifetime_ms > 0:
            share = random.uniform(_EARLIEST, _LATEST)  # noqa: S311 - so that not all connections do it at once
            self._due_s = self._clock() + share * lifetime_ms / 1000

    def _steps(self) -> ClientSteps:
        login = self._login
        if isinstance(login, BearerLogin):
            assert self._tokens is not None
            self._token = self._tokens.token()
            return OAuthBearerClient(self._token, login.extensions)
        if login.mechanism in MECHANISMS:
            password = login.password.reveal()
            return ScramClient(MECHANISMS[login.mechanism], login.name, password, is_token=login.is_token)
        return PlainClient(login.name, login.password.reveal())

    def _handshake(self) -> Generator[Question, Any, None]:
        mechanism = self._login.mechanism
        try:
            response = yield SASL_HANDSHAKE, SaslHandshakeRequest(mechanism), _HANDSHAKE_VERSION
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise KafkaError(error.code, _NO_AUTHENTICATION, hint=_NO_AUTHENTICATION_HINT) from None
            raise
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms) or "none"
            raise KafkaError(
                code,
                f"the broker does not take {mechanism} on this listener; it takes {offered}",
                hint=self._advise(response.mechanisms),
            )
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise KafkaError(code, _NO_AUTHENTICATION, hint=_NO_AUTHENTICATION_HINT)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def _advise(self, offered: Sequence[str]) -> str | None:
        """Names the strongest mechanism that both support. Without TLS it never suggests one that sends the secret
        itself: a man in the middle could offer only that one to get the password.
        """
        spoken = [name for name in STRONGEST_FIRST if name in offered]
        if not spoken:
            return f"plog speaks {', '.join(STRONGEST_FIRST)}" if offered else None
        safe = [name for name in spoken if self._has_tls or name not in IN_CLEAR]
        if safe:
            return f"sasl.mechanism={safe[0]}"
        return f"{' and '.join(spoken)} without TLS would show the secret: has the cluster a listener with SASL_SSL?"

    def _exchange(self, message: bytes) -> Generator[Question, Any, SaslAuthenticateResponse]:
        try:
            response: SaslAuthenticateResponse = yield SASL_AUTHENTICATE, SaslAuthenticateRequest(message), MAX_VERSION
            return response
        except ConnectionFailedError as error:
            hint = (
                f"some brokers close the connection when they refuse: is the login for {self._login.mechanism} right?"
            )
            raise ConnectionFailedError(error.message, where=error.where, hint=hint) from error

    def _refused(self, code: ErrorCode, message: str | None, steps: ClientSteps) -> KafkaError:
        login = self._login
        if isinstance(login, PasswordLogin):
            what = f"{login.mechanism} for {login.name!r}"
            hint = (
                "is the delegation token still good?"
                if login.is_token
                else "are the user, the password and the mechanism right?"
            )
        else:
            assert self._tokens is not None
            what = login.mechanism
            hint = self._tokens.explain(self._token)
            self._tokens.forget()
        refusal = steps.refusal if isinstance(steps, OAuthBearerClient) else None
        secret = login.password.reveal() if isinstance(login, PasswordLogin) else self._token
        said = hide_secrets(message or refusal or "", [secret]) or code.text
        return KafkaError(code, f"{what}: {said}", hint=hint)
