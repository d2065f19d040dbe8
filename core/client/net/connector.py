"""Makes a client's connections: TCP, TLS on it, ApiVersions, SASL; as a `ClientSecurity` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.client.net.connect_notice import ConnectNotice

if TYPE_CHECKING:
    from ssl import SSLContext

    from core.client.net.authenticator import Authenticator
    from core.client.net.token_source import TokenSource
    from core.security.client_security import ClientSecurity

TIMEOUT_SECONDS = 30.0


class Connector:
    """May be used by several clients, each of its own thread: the TLS context and the token are read once. What a
    plaintext connection does not need is not imported for it.
    """

    def __init__(self, security: ClientSecurity | None = None, *, timeout_s: float = TIMEOUT_SECONDS) -> None:
        """Connects in plaintext if there is no `security`. Raises UsageError for files of keys that can't be read."""
        self._tls = security.tls if security is not None else None
        self._login = security.login if security is not None else None
        self._timeout_s = timeout_s
        self._first_answer = ConnectNotice()
        self._context = self._make_context()
        self._tokens = self._make_tokens()

    def with_timeout(self, timeout_s: float) -> Connector:
        other = Connector(timeout_s=timeout_s)
        other._tls, other._login = self._tls, self._login
        other._context, other._tokens = self._context, self._tokens
        other._first_answer = self._first_answer
        return other

    def is_silent(self, address: tuple[str, int]) -> bool:
        """Says whether who is there let somebody wait when it was asked last."""
        return address in self._first_answer.silent

    def pass_over(self, address: tuple[str, int], following: tuple[str, int]) -> None:
        """Says which address is asked instead of one that is silent."""
        self._first_answer.pass_over(address, following)

    def __call__(self, host: str, port: int, *, is_hasty: bool = False) -> ClientConnection:
        """Makes a connection that may be used; `is_hasty`: see `SocketTransport`. Raises ConnectionFailedError if
        nobody answers, AuthenticationError if one side does not believe the other, KafkaError if the broker refuses the
        login.
        """
        transport = SocketTransport(
            host,
            port,
            timeout_s=self._timeout_s,
            context=self._context,
            shows_certificate=self._tls is not None and self._tls.key_store is not None,
            is_trusted=False,
            first_answer=self._first_answer,
            is_hasty=is_hasty,
        )
        try:
            connection = ClientConnection(transport, self._authenticator())
        except BaseException:
            transport.close()
            raise
        transport.is_trusted = True
        return connection

    def _authenticator(self) -> Authenticator | None:
        if self._login is None:
            return None
        from core.client.net.authenticator import Authenticator

        return Authenticator(self._login, self._tokens, has_tls=self._tls is not None)

    def _make_context(self) -> SSLContext | None:
        if self._tls is None:
            return None
        from core.client.net.tls_context import make_context

        return make_context(self._tls)

    def _make_tokens(self) -> TokenSource | None:
        if self._login is None:
            return None
        from core.client.net.token_source import TokenSource
        from core.security.client_security import BearerLogin

        return TokenSource(self._login) if isinstance(self._login, BearerLogin) else None
