"""Puts a broker on the network: accepts connections, and runs the broker's loop until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from core.broker.broker import Broker
from core.broker.broker_config import BrokerConfig
from core.broker.connection import Connection, ReceiveBuffers
from core.broker.connection_memory import ConnectionMemory
from core.broker.timing_wheel import TimingWheel
from core.broker.turns import Turns
from core.common.descriptors import OUT_OF_DESCRIPTORS, share
from core.common.endpoint import Endpoint
from core.common.errors import AccessError
from core.common.filesystem import access_error
from core.log.log_config import LONG_MAX

_log = logging.getLogger("plog.server")

_HOUSEKEEPING_SECONDS = 1.0
_ACCEPT_AGAIN_SECONDS = 0.1
_OUT_OF_ROOM = (*OUT_OF_DESCRIPTORS, errno.ENOBUFS, errno.ENOMEM)
_SAY_AGAIN_SECONDS = 60.0


def _most_bytes(config: BrokerConfig) -> int:
    """What connections may hold in memory."""
    limit = config.integer("queued.max.request.bytes")
    return max(limit, config.integer("socket.request.max.bytes")) if limit > 0 else LONG_MAX


class SocketServer:
    """Owned by one task. `endpoint` says where it listens once `start` has returned; port 0 takes a free one."""

    def __init__(self, broker: Broker, listen: Endpoint) -> None:
        self._broker = broker
        self._listen = listen
        self._listener: socket.socket | None = None
        self._connections: set[Connection] = set()
        self._buffers = ReceiveBuffers()
        self._memory = ConnectionMemory(_most_bytes(broker.config))
        self._idle_since: dict[Connection, tuple[int, float]] = {}  # what each had moved, and since when no more
        self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plog-background")
        self._flushing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plog-flusher")
        self._cleaning = ThreadPoolExecutor(thread_name_prefix="plog-cleaner")
        self._loading: threading.Thread | None = None
        self._is_full = False
        self._room = share().connections
        self._warned_s: float | None = None
        self.accepted_connections = 0
        """Since it started."""
        self.on_housekeeping: Callable[[], None] | None = None
        """Called every second."""
        self._stopped = asyncio.Event()
        self.endpoint = listen

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Listens; AccessError where the address can't be had."""
        loop = asyncio.get_running_loop()
        self._listener = self._bind()
        port = self._listener.getsockname()[1]
        self.endpoint = Endpoint(self._listen.host or "0.0.0.0", port)  # noqa: S104 - what --listen :PORT asks for
        self._turns = self._broker.turns = Turns(loop)
        self._broker.schedule = TimingWheel(loop).schedule
        self._broker.run_in_background = lambda work, then=None: self._submit(self._background, work, then)
        self._broker.run_flush = lambda work, then=None: self._submit(self._flushing, work, then)
        self._broker.run_cleaning = lambda work, then=None: self._submit(self._cleaning, work, then)
        self._broker.run_loading = self._load
        self._broker.announce(self.endpoint)
        self._broker.flush_recovered()
        self._broker.delete_leftovers()
        self._broker.late_checks.begin()
        self._broker.late_loads.begin()
        self._broker.group_log.load_all()
        self._broker.transaction_log.load_all()
        loop.add_reader(self._listener.fileno(), self._accept)
        loop.call_later(_HOUSEKEEPING_SECONDS, self._housekeep)

    def _bind(self) -> socket.socket:
        host, port = self._listen.host, self._listen.port
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise AccessError(
                f"could not listen on {self._listen}: {(error.strerror or str(error)).lower()}", where=str(self._listen)
            ) from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option, key in (
                (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
                (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
            ):
                if key in self._broker.config.settings and self._broker.config.integer(key) > 0:
                    listener.setsockopt(socket.SOL_SOCKET, option, self._broker.config.integer(key))
            listener.bind(address)
            listener.listen(self._broker.config.integer("socket.listen.backlog.size"))
        except OSError as error:
            listener.close()
            hint = (
                f"another server listens there; another port: --listen {self._listen.host}:{self._listen.port + 1}"
                if error.errno == errno.EADDRINUSE
                else None
            )
            raise AccessError(
                f"could not listen on {self._listen}: {(error.strerror or str(error)).lower()}",
                where=str(self._listen),
                hint=hint,
            ) from error
        listener.setblocking(False)
        return listener

    def _accept(self) -> None:
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        for _ in range(self._broker.config.integer("socket.listen.backlog.size")):
            if self._has_all_it_may():
                loop.remove_reader(self._listener.fileno())
                self._is_full = True  # who comes now waits in the backlog
                return
            try:
                sock, (host, *_) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _OUT_OF_ROOM:
                    continue
                self._warn("could not accept a connection: %s; it is tried again", (error.strerror or "").lower())
                loop.remove_reader(self._listener.fileno())
                loop.call_later(_ACCEPT_AGAIN_SECONDS, self._accept_again)
                return
            if not self._may_connect(host):
                _log.warning("closing a connection of %s: it has max.connections.per.ip", host)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection = Connection(
                    loop,
                    sock,
                    self._broker.dispatcher,
                    self._buffers,
                    self._turns,
                    self._memory,
                    self._broker.config.integer("socket.request.max.bytes"),
                    self._on_closed,
                )
            except OSError:  # the client is gone already
                sock.close()
                continue
            self._connections.add(connection)
            self.accepted_connections += 1

    def _has_all_it_may(self) -> bool:
        """As many connections as `max.connections` allows, or as the process has descriptors for."""
        if len(self._connections) >= self._room:
            self._warn("%d connections are open, as many as ulimit -n leaves room for; who comes now waits", self._room)
            return True
        return len(self._connections) >= self._broker.config.integer("max.connections")

    def _warn(self, text: str, *arguments: object) -> None:
        """Not more than once a minute: what it is about may happen many times a second."""
        now_s = asyncio.get_running_loop().time()
        if self._warned_s is None or now_s - self._warned_s >= _SAY_AGAIN_SECONDS:
            self._warned_s = now_s
            _log.warning(text, *arguments)

    def _may_connect(self, host: str) -> bool:
        most = self._broker.config.integer("max.connections.per.ip")
        return most > len(self._connections) or most > sum(c.client_host == host for c in self._connections)

    def _on_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._is_full:
            self._listen_again()

    def _listen_again(self) -> None:
        self._is_full = False
        self._accept_again()

    def _accept_again(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _submit(
        self, thread: ThreadPoolExecutor, work: Callable[[], None], then: Callable[[], None] | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        if self._stopped.is_set():
            return  # the broker's end does what is left

        def run() -> None:
            try:
                work()
            except OSError as error:  # a checkpoint's, say; it is written again when it is due
                _log.error("%s", access_error(error, error.filename or self._broker.directory, "write to"))
                return
            except Exception:  # noqa: BLE001 - the door of the background thread
                _log.exception("background work failed")
                return
            if then is not None and not loop.is_closed():
                loop.call_soon_threadsafe(then)

        thread.submit(run)

    def _load(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """In a thread of its own. At the end nobody waits for it if it only reads, which may take minutes."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            work()
            if then is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(then)

        self._loading = threading.Thread(target=run, name="plog-load", daemon=True)
        self._loading.start()

    def _housekeep(self) -> None:
        if self._stopped.is_set():
            return
        loop = asyncio.get_running_loop()
        loop.call_later(_HOUSEKEEPING_SECONDS, self._housekeep)
        try:
            self._broker.housekeep()
        except OSError as error:
            _log.error("housekeeping: %s: %s", error.filename, error.strerror)
        if self._is_full:  # max.connections may be another now
            self._listen_again()
        self._memory.step()
        if self.on_housekeeping is not None:
            self.on_housekeeping()
        self._close_idle(loop.time())

    def _close_idle(self, now_s: float) -> None:
        """Closes connections on which nothing came or went for `connections.max.idle.ms`, and those whose client is
        gone without a word that the loop passed on.
        """
        idle_since = {}
        limit_ms = self._broker.config.integer("connections.max.idle.ms")
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
        """Asks `run` to return; from the loop's task."""
        self._stopped.set()

    async def run(self) -> None:
        """Serves until `stop`; then closes connections, not the broker."""
        try:
            await self._stopped.wait()
        finally:
            self._close()

    def _close(self) -> None:
        if self._listener is not None:
            self._broker.retire()
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.close()
        self._broker.late_loads.stop()
        self._broker.log_cleaner.close()
        if self._loading is not None and not self._broker.is_read_only:
            self._loading.join()
        self._cleaning.shutdown(wait=True)
        self._background.shutdown(wait=True)
        self._flushing.shutdown(wait=True)
