"""How this broker connects to the others of its cluster where their listener speaks TLS or SASL: a client of it, by the
settings of its own listener of that name, as Kafka's brokers do.

    security.inter.broker.protocol, or inter.broker.listener.name and listener.security.protocol.map
    sasl.mechanism.inter.broker.protocol
    listener.name.NAME.MECHANISM.sasl.jaas.config       username and password are this broker's
    listener.name.NAME.ssl.*                            the key store is our certificate, as a client's, too

Settings that change while the broker runs, and files that are replaced, count from the next connection on.

Source: org.apache.kafka.common.network.ChannelBuilders.clientChannelBuilder of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.listener_security import find_listener_security, find_peer_security
from core.broker.serving.door import Door
from core.broker.serving.listener_endpoints import SAME_PROTOCOLS, Listener
from core.broker.serving.tls_transport import TlsError, TlsTransport
from core.client.net.authenticator import Authenticator
from core.client.net.tls_socket import TlsPeer, alert_failure, handshake_failure
from core.common.endpoint import Endpoint
from core.common.errors import PlogError, UsageError
from core.files.tls_context import file_states, make_context, read_certificates
from core.security.client_security import PasswordLogin, Tls
from core.security.principal import ANONYMOUS, USER_TYPE, Principal
from core.security.server_security import ClientAuth

_log = logging.getLogger("plog.broker")

_RECEIVED_BYTES = 64 * 1024
_CONTENT_TYPES = range(20, 24)
"""The first byte of a record of TLS."""
_MOST_EXPLAINED = 1000


class PeerSecurity:
    """Owned by the broker's loop; all its connections to other brokers use it."""

    def __init__(self, find_config: Callable[[], BrokerConfig]) -> None:
        """Raises UsageError for settings or files with which no broker can be reached."""
        self._find_config = find_config
        self._config = find_config()
        self._security = find_peer_security(self._config)
        self._files: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None
        self._explained: dict[tuple[object, ...], str] = {}
        """Failures that were explained: an explanation costs connections, and has the time in it."""
        self._read_files(self._security.tls)

    @property
    def principal(self) -> Principal:
        """The principal of this broker at other brokers, if their inter-broker listener has the same settings."""
        login, tls = self._security.login, self._security.tls
        if isinstance(login, PasswordLogin):
            return Principal(USER_TYPE, login.name)
        if tls is None or tls.key_store is None:
            return ANONYMOUS
        store = tls.key_store
        path = Path(store.location or store.certificate_location or "")
        try:
            shown = read_certificates(path, lambda: store.password)[0]
            name = self._config.inter_broker_listener
            listener = Listener(name, self._config.protocol_of(name), "")
            security = find_listener_security(self._config, listener)
            is_asked = security.tls is not None and security.tls.client_auth is not ClientAuth.NONE
            return Door(name, security).find_principal(shown) if is_asked else ANONYMOUS
        except (PlogError, ValueError):  # it is for a hint
            return ANONYMOUS

    # --- settings and files

    def refresh(self) -> None:
        """Takes up changes of the settings and of the files; goes on with the earlier ones if these are invalid."""
        config = self._find_config()
        try:
            security = self._security if config is self._config else find_peer_security(config)
            self._read_files(security.tls)
            self._security = security
        except UsageError as error:
            if self._explained.get((_log.name,)) != error.message:
                self._explained[(_log.name,)] = error.message
                _log.error("other brokers are connected to as before: %s", error)
        self._config = config

    def _read_files(self, tls: Tls | None) -> None:
        if tls is None:
            self._context = None
        elif (files := (tls, *file_states(tls))) != self._files:
            self._context = make_context(tls)
            self._files = files

    # --- a connection's start

    async def shake_hands(self, sock: socket.socket, endpoint: Endpoint, scratch: memoryview) -> ClientTransport | None:
        """Returns the connected socket with TLS on it, or None for a listener without TLS. Raises TlsError and OSError;
        the caller closes the socket then.
        """
        self.refresh()
        if self._context is None:
            return None
        transport = ClientTransport(sock, self._context, endpoint.host, scratch)
        await transport.connect()
        return transport

    def make_authenticator(self) -> Authenticator | None:
        """Returns what authenticates one connection, or None for a listener without SASL."""
        login, clock = self._security.login, asyncio.get_running_loop().time
        return None if login is None else Authenticator(login, has_tls=self._context is not None, clock=clock)

    # --- failures

    async def explain(self, error: Exception, endpoint: Endpoint) -> str | None:
        """Explains why the handshake failed; None if TLS has nothing to do with it. The same failure is explained once:
        the peer is asked again for its certificate.
        """
        if self._context is None or not isinstance(error, TlsError | ConnectionError):
            return None
        cause = error.__cause__
        about = endpoint, type(error), getattr(cause, "reason", None), getattr(cause, "verify_code", None)
        if about not in self._explained:
            if len(self._explained) >= _MOST_EXPLAINED:
                self._explained.clear()
            self._explained[about] = await asyncio.to_thread(self._explain, error, endpoint)
        return self._explained[about]

    def _explain(self, error: TlsError | ConnectionError, endpoint: Endpoint) -> str:
        if isinstance(error.__cause__, ssl.SSLError):
            return said(handshake_failure(error.__cause__, self._peer(endpoint)))
        if isinstance(error, TlsError):
            return f"{error.message}; {SAME_PROTOCOLS}"
        return f"it closed the connection when TLS began; does its listener speak plaintext? {SAME_PROTOCOLS}"

    def refusal(self, error: Exception, endpoint: Endpoint) -> str | None:
        """Explains an alert that came after the handshake: in TLS 1.3 the peer looks at our certificate then."""
        if self._context is None or not isinstance(error.__cause__, ssl.SSLError):
            return None
        failure = alert_failure(error.__cause__, self._peer(endpoint))
        return None if failure is None else said(failure)

    def _peer(self, endpoint: Endpoint) -> TlsPeer:
        tls = self._security.tls
        return TlsPeer(endpoint.host, endpoint.port, tls is not None and tls.key_store is not None)


class ClientTransport(TlsTransport):
    """TLS of a connection to another broker."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str, scratch: memoryview) -> None:
        super().__init__(sock, context, scratch)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    async def connect(self) -> None:
        """Shakes hands. Raises TlsError, after the alert is on its way, and OSError."""
        loop = asyncio.get_running_loop()
        self.shake_hands()  # our hello
        while not self.is_ready:
            if self.has_unsent:  # the system had no room
                await loop.sock_sendall(self._socket, self.take_unsent())
            received = await loop.sock_recv(self._socket, _RECEIVED_BYTES)
            if not received:
                raise ConnectionResetError
            self._keep(memoryview(self._waiting + received))
            if self._waiting[0] not in _CONTENT_TYPES:
                raise TlsError("it does not speak TLS")
            if self.needs_step:
                self.shake_hands()


def said(error: PlogError) -> str:
    """Returns message and hint in a line, for a log."""
    return f"{error.message}; {error.hint}" if error.hint else error.message
