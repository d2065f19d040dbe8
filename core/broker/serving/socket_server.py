"""Puts a broker on the network: binds its listeners, accepts connections, and runs its loop until `stop` is called."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from core.broker.broker_server import BrokerServer
from core.broker.config.broker_config import BrokerConfig
from core.broker.config.listener_security import find_listener_security
from core.broker.requests.client_session import Sessions
from core.broker.requests.handlers import api_versions
from core.broker.serving.bound_listener import BoundListener, bind_all
from core.broker.serving.connection import Connection
from core.broker.serving.connections_memory import ConnectionsMemory
from core.broker.serving.door import Door
from core.broker.serving.listener_certificate import ListenerCertificate, open_door
from core.broker.serving.listener_endpoints import Listener
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.owner_listener import OwnerListener, find_intruder
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.broker.serving.sasl_authenticator import FrameHandler, SaslAuthenticator, SaslLogins
from core.broker.serving.tls_connection import TlsConnection
from core.broker.serving.tls_transport import TlsTransport
from core.broker.serving.unauthenticated import MOST_UNAUTHENTICATED, LogLimit, Unauthenticated
from core.common.endpoint import Endpoint
from core.common.errors import AuthenticationError, UsageError
from core.common.fd_limits import OUT_OF_DESCRIPTORS, share
from core.common.java_limits import LONG_MAX
from core.security.principal import ANONYMOUS, LOCAL, Principal, parse_principals
from core.security.server_security import OPEN

_log = logging.getLogger("plog.server")
_connection_log = logging.getLogger("plog.connection")

_HOUSEKEEPING_SECONDS = 1.0
_ACCEPT_AGAIN_SECONDS = 0.1
_OUT_OF_ROOM = (*OUT_OF_DESCRIPTORS, errno.ENOBUFS, errno.ENOMEM)
_WARN_AGAIN_SECONDS = 60.0
_KEPT_FOR_OWNER = 8
"""Connections by the socket in the data directory that are open beside as many as `max.connections`: a broker whose
clients have taken all connections can be administered.
"""


def _ensure_obeyable(listener: Listener, config: BrokerConfig) -> None:
    Door(listener.name, find_listener_security(config, listener))


def _maybe_change(door: Door, listener: Listener, config: BrokerConfig) -> None:
    """Has the door obey new settings of its listener, if they can be obeyed."""
    try:
        security = find_listener_security(config, listener)
        if security != door.security:
            door.use(security)
            _log.info("listener %s has other settings from now on", listener.name)
    except UsageError as error:
        _log.error("listener %s keeps its settings: %s", listener.name, error.message)


def _most_bytes(config: BrokerConfig) -> int:
    limit = config.queued_max_request_bytes
    return max(limit, config.socket_request_max_bytes) if limit > 0 else LONG_MAX


@dataclass(slots=True)
class ServedListener:
    """What the connections of a listener have in common; owned by the server's task."""

    door: Door
    certificate: ListenerCertificate | None = None
    """None without TLS."""
    logins: SaslLogins | None = None
    """None without SASL."""
    open_connections: int = 0


class SocketServer:
    """Owned by one task. After `start`, `endpoint` is that of the first listener, and `endpoints` has all, by name of
    the listener; port 0 takes a free one.
    """

    def __init__(
        self,
        node: BrokerServer,
        runtime: LoopRuntime,
        listen: Endpoint | Sequence[Listener],
        *,
        on_housekeeping: Callable[[], None] = lambda: None,
        before_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`listen`: the address of the only listener, or all listeners. `runtime` is the one that `node` was opened
        with; it ends with the server. `on_housekeeping` is called every second; `run` awaits `before_close`, if there
        is one, at a stop, while clients are still served.
        """
        self._node = node
        self._runtime = runtime
        if isinstance(listen, Endpoint):
            listen = [Listener.plaintext_at(listen, node.services.config.main_listener)]
        self._listeners = listen
        self._bound: list[BoundListener] = []
        self.served: dict[str, ServedListener] = {}
        """By name of the listener."""
        self._owner_socket: OwnerListener | None = None
        self._connections: set[Connection] = set()
        self.unauthenticated = Unauthenticated()
        self._log_limit = LogLimit()
        self._sessions = Sessions(node.authorizer)
        self._turns = runtime.turns
        self._buffers = ReceiveBuffers()
        self._memory = ConnectionsMemory(_most_bytes(node.services.config))
        self._idle_since: dict[Connection, tuple[int, float]] = {}  # moved bytes, and since when they have not changed
        self._is_full = False
        self._room = share().connections
        self._warned_s: float | None = None
        self.accepted_connections = 0
        """Accepted since the start."""
        self._on_housekeeping = on_housekeeping
        self._before_close = before_close
        self.turns_away = False
        """Whether new connections are closed at once, so that clients ask another broker."""
        self._stopped = asyncio.Event()
        self._hurry = asyncio.Event()
        self.endpoint = listen[0].endpoint
        self.endpoints: dict[str, Endpoint] = {}

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Listens. Raises AccessError if an address can't be bound; UsageError for invalid settings of a listener, and
        if nobody could administer the broker: there is an authorizer, and neither a super user nor a socket in the
        directory.
        """
        config = self._node.services.config
        self.served = {one.name: self._serve(one) for one in self._listeners}
        self._bound = bind_all(self._listeners, config)
        self.endpoints = {bound.name: bound.endpoint for bound in self._bound}
        self.endpoint = self._bound[0].endpoint
        self._bind_owner_socket()
        self._node.begin_serving(self.endpoint, self.endpoints)
        self._accept_again()
        _connection_log.addFilter(self._log_limit)
        asyncio.get_running_loop().call_later(_HOUSEKEEPING_SECONDS, self._housekeep)

    def _serve(self, listener: Listener) -> ServedListener:
        """Raises what `open_door` raises."""
        services, configs = self._node.services, self._node.services.configs
        door, loaded = open_door(configs.broker, listener)
        served = ServedListener(door)
        if door.security == OPEN:
            return served
        configs.checks.append(partial(_ensure_obeyable, listener))
        configs.on_changed.append(partial(_maybe_change, door, listener))
        if loaded is not None:
            certificate = ListenerCertificate(listener, door, loaded, lambda: configs.broker, services.runtime)
            served.certificate = certificate
            configs.checks.append(certificate.ensure_usable)
            configs.on_changed.append(lambda _config: certificate.step())
        if door.security.sasl is not None:
            served.logins = SaslLogins(
                door,
                clock=services.runtime.clock,
                schedule=services.runtime.schedule,
                find_store=lambda: services.security,
                answer_versions=partial(api_versions.handle, services),
                find_served=lambda: services.served_apis,
                secret=self._node.find_login_secret(),
            )
        return served

    def _bind_owner_socket(self) -> None:
        """Makes the socket in the data directory. A broker that only reads holds no lock of the directory, and changes
        nothing in it: it has none.
        """
        if self._node.is_read_only:
            return
        config = self._node.services.config
        try:
            self._owner_socket = OwnerListener(self._node.directory, config.socket_listen_backlog_size)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            if self._node.authorizer is not None and not parse_principals(config.super_users):
                raise UsageError(
                    f"nobody could administer this broker: it has an authorizer and no super users, and no socket for "
                    f"commands with --data-dir {self._node.directory}: {reason}",
                    hint="name them: --set super.users=User:NAME;User:NAME",
                ) from error
            _log.warning("no socket for commands with --data-dir %s: %s", self._node.directory, reason)
            return
        first = self._bound[0]
        self._bound.append(BoundListener(first.name, self._owner_socket.socket, first.endpoint, is_owners=True))

    def _accept(self, bound: BoundListener) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self._node.services.config.socket_listen_backlog_size):
            if self._has_all_it_may(_KEPT_FOR_OWNER if bound.is_owners else 0):
                self._accept_none(is_owners=bound.is_owners)
                self._is_full = True  # new connections wait in the backlog
                return
            try:
                sock, address = bound.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _OUT_OF_ROOM:
                    continue
                self._warn("could not accept a connection: %s; it is tried again", (error.strerror or "").lower())
                self._accept_none()
                loop.call_later(_ACCEPT_AGAIN_SECONDS, self._accept_again)
                return
            if self.turns_away:
                sock.close()
                continue
            if not (self._is_owner(sock) if bound.is_owners else self._may_connect(address[0])):
                sock.close()
                continue
            sock.setblocking(False)
            if not bound.is_owners:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection = self._make_connection(bound, sock)
            except OSError:  # the client has already disconnected
                sock.close()
                continue
            self._connections.add(connection)
            self.served[bound.name].open_connections += not bound.is_owners
            self.accepted_connections += 1
            if not connection.is_authenticated:
                self.unauthenticated.add(connection, loop.time(), self._most_unauthenticated())

    def _make_connection(self, bound: BoundListener, sock: socket.socket) -> Connection:
        door = self.served[bound.name].door
        make: Callable[..., Connection] = partial(Connection, sock=sock)
        if door.context is not None and not bound.is_owners:
            tls = TlsTransport(sock, door.context, self._buffers.scratch)
            make = partial(TlsConnection, tls=tls, on_failure=door.on_failed_handshake)
        return make(
            loop=asyncio.get_running_loop(),
            buffers=self._buffers,
            turns=self._turns,
            memory=self._memory,
            max_request_bytes=self._node.services.config.socket_request_max_bytes,
            on_close=partial(self._on_closed, bound),
            on_unreadable=self._node.services.replicas.on_unreadable,
            greet=partial(self._greet, bound),
            listener="the socket in the data directory" if bound.is_owners else bound.name,
        )

    def _greet(self, bound: BoundListener, connection: Connection) -> None:
        """Serves a client that needs no login, and lets any other log in."""
        served, dispatcher = self.served[bound.name], self._node.dispatcher
        door, logins = served.door, served.logins
        tls = connection.tls if isinstance(connection, TlsConnection) else None
        principal = ANONYMOUS
        if tls is not None:
            door.handshakes += 1
            try:
                principal = self._find_certified(door, tls)
            except (AuthenticationError, ValueError) as error:
                self._warn("closing a connection of %s to %s: %s", connection.client_host, bound.name, error)
                connection.close()
                return
        if bound.is_owners:
            self._admit(bound, connection, LOCAL, dispatcher)
        elif logins is not None:
            admit = partial(self._admit, bound, connection)
            authenticator = SaslAuthenticator(
                logins, dispatcher, connection.client_host, admit, connection.close_when_sent
            )
            session = self._sessions.find(ANONYMOUS, bound.name, connection.client_host, connection.local_host)
            connection.admit(session, authenticator, logins.sasl.most_frame_bytes, is_authenticated=False)
        else:
            self._admit(bound, connection, principal, dispatcher)

    def _find_certified(self, door: Door, tls: TlsTransport) -> Principal:
        """Returns whom the client's certificate names, if that counts at the listener. Raises AuthenticationError."""
        certificate = tls.certificate
        door.ensure_shown(certificate)
        if tls.is_resumed:
            door.ensure_current(
                certificate, datetime.fromtimestamp(self._node.services.runtime.clock.now_ms() / 1000, UTC)
            )
        return ANONYMOUS if door.security.sasl is not None else door.find_principal(certificate)

    def _admit(self, bound: BoundListener, connection: Connection, principal: Principal, handler: FrameHandler) -> None:
        host = connection.client_host
        local_host = host if bound.is_owners else connection.local_host
        session = self._sessions.find(principal, bound.name, host, local_host)
        connection.admit(session, handler, self._node.services.config.socket_request_max_bytes)
        self.unauthenticated.remove(connection)

    def _is_owner(self, sock: socket.socket) -> bool:
        uid = find_intruder(sock)
        if uid is not None:
            _log.warning("closing a connection to the socket in the data directory: it is of user id %d", uid)
        return uid is None

    def _most_unauthenticated(self) -> int:
        room = min(self._room, self._node.services.config.max_connections)
        return min(MOST_UNAUTHENTICATED, max(room // 2, 1))

    def _has_all_it_may(self, beyond: int) -> bool:
        """Returns whether it has as many connections as `max.connections`, or the process's descriptors, allow, and so
        many beyond.
        """
        if len(self._connections) >= self._room + beyond:
            self._warn(
                "%d connections are open, as many as ulimit -n leaves room for; further clients wait", self._room
            )
            return True
        return len(self._connections) >= self._node.services.config.max_connections + beyond

    def _warn(self, text: str, *arguments: object) -> None:
        """Warns, at most once a minute: the cause may occur many times a second."""
        now_s = asyncio.get_running_loop().time()
        if self._warned_s is None or now_s - self._warned_s >= _WARN_AGAIN_SECONDS:
            self._warned_s = now_s
            _log.warning(text, *arguments)

    def _may_connect(self, host: str) -> bool:
        most = self._node.services.config.max_connections_per_ip
        if most > len(self._connections) or most > sum(c.client_host == host for c in self._connections):
            return True
        _connection_log.warning("closing a connection of %s: it has max.connections.per.ip open already", host)
        return False

    def _on_closed(self, bound: BoundListener, connection: Connection) -> None:
        self.served[bound.name].open_connections -= connection in self._connections and not bound.is_owners
        self._connections.discard(connection)
        self.unauthenticated.remove(connection)
        if self._is_full:
            self._listen_again()

    def _listen_again(self) -> None:
        self._is_full = False
        self._accept_again()

    def _accept_again(self) -> None:
        for bound in self._bound:
            asyncio.get_running_loop().add_reader(bound.socket.fileno(), self._accept, bound)

    def _accept_none(self, *, is_owners: bool | None = None) -> None:
        """Stops accepting: at all listeners, or only at the owner's (`is_owners`), or only at the others."""
        for bound in self._bound:
            if is_owners in (None, bound.is_owners):
                asyncio.get_running_loop().remove_reader(bound.socket.fileno())

    def _housekeep(self) -> None:
        if not self._bound:
            return
        loop = asyncio.get_running_loop()
        loop.call_later(_HOUSEKEEPING_SECONDS, self._housekeep)
        try:
            self._node.housekeeping.step()
        except OSError as error:
            _log.error("housekeeping: %s: %s", error.filename, error.strerror)
        if self._is_full:  # max.connections may have changed
            self._listen_again()
        self._memory.step()
        self.unauthenticated.step(loop.time())
        self._on_housekeeping()
        for one in self.served.values():
            if one.certificate is not None:
                one.certificate.step()
        self._close_idle(loop.time())

    def _close_idle(self, now_s: float) -> None:
        """Closes connections without any traffic for `connections.max.idle.ms`, and those whose reset the loop did not
        notice.
        """
        idle_since = {}
        limit_ms = self._node.services.config.connections_max_idle_ms
        for connection in list(self._connections):
            moved, since_s = self._idle_since.get(connection, (-1, now_s))
            if moved != connection.moved_bytes:
                since_s = now_s
                connection.look_for_end()
            if limit_ms >= 0 and (now_s - since_s) * 1000 >= limit_ms:
                connection.close()
            elif connection in self._connections:
                idle_since[connection] = connection.moved_bytes, since_s
        self._idle_since = idle_since

    def stop(self) -> None:
        """Asks `run` to return; from the loop's task. A second call ends the wait for `before_close`."""
        if self._stopped.is_set() or self._before_close is None:
            self._hurry.set()
            self._runtime.stop_taking()
        self._stopped.set()

    async def run(self) -> None:
        """Serves until `stop` is called; then calls `close`."""
        try:
            await self._stopped.wait()
            if self._before_close is not None:
                await _first_of(self._before_close(), self._hurry.wait())
            self._runtime.stop_taking()
        finally:
            self.close()

    def close(self) -> None:
        """Closes all sockets of the server, and ends its runtime; the broker stays open. May be called again."""
        if self._bound:
            self._node.retire()
            self._accept_none()
            for bound in self._bound:
                bound.socket.close()
            self._bound = []
            if self._owner_socket is not None:
                self._owner_socket.close()
        _connection_log.removeFilter(self._log_limit)
        for connection in list(self._connections):
            connection.close()
        self._node.services.late_loads.stop()
        self._node.cleaning.cleaner.close()
        self._runtime.stop(waits_for_loading=not self._node.is_read_only)


async def _first_of(*works: Awaitable[object]) -> None:
    """Returns when one of them is done, and cancels the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
