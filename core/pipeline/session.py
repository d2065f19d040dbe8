"""Opens the log where it is: on a server on the network, in the cluster of a ZooKeeper, on the server that owns the
data directory, or in the directory itself, with the engine in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.common.endpoint import parse_bootstrap
from core.common.errors import DamagedAnswerError, DirectoryLockedError
from core.files.directory_lock import LockHolder, find_lock_holder
from core.pipeline.frontend import SILENT, Frontend

if TYPE_CHECKING:
    from core.broker.broker_server import BrokerServer
    from core.client.net.address_map import AddressMap
    from core.client.net.kafka_client import KafkaClient
    from core.forensics.partition_reader import DirectoryReader
    from core.pipeline.zookeeper_cluster import ZooKeeperCluster
    from core.security.client_security import ClientSecurity
    from core.security.client_settings import ClientSettings


_LOOK_AGAIN_S = 0.1
"""The pause between looks at the holder of a locked directory."""


class FoundServer(NamedTuple):
    addresses: list[tuple[str, int]]
    security: ClientSecurity | None
    """Its security; None for plaintext."""
    routes: AddressMap | None = None
    """Where the addresses that it advertises can be reached from here; None if they are where they say."""
    directory: Path | None = None
    """The directory that it serves, if it is not named: a client that may use its socket there is the owner."""

    def open_client(self) -> KafkaClient:
        """Returns a client of it. Raises what `KafkaClient` raises."""
        from core.client.net.kafka_client import Connector, KafkaClient

        connector = Connector(self.security, routes=self.routes)
        if self.directory is not None:
            from core.client.net.owner_socket import connect_as_owner

            connect_as_owner(connector, self.directory, self.addresses)
        return KafkaClient(self.addresses, connector=connector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The place of the log, and how to open it; immutable."""

    directory: Path
    """The data directory, used without a named server."""
    is_default: bool = False
    """Whether that directory is the default."""
    find_named_server: Callable[[], str | None] = lambda: None
    """Returns the named servers, `HOST:PORT,..`. Called when they are needed, as is `find_settings`: the user may have
    to type a password.
    """
    find_settings: Callable[[], ClientSettings | None] = lambda: None
    """Returns the settings of clients, or None for the defaults. Raises UsageError for invalid settings."""
    find_routes: Callable[[list[tuple[str, int]]], AddressMap | None] = lambda _: None
    """Returns where advertised addresses can be reached from here, by the addresses of the named servers. Raises
    UsageError if it is said in a wrong way.
    """
    zookeeper: str | None = None
    """The cluster's ZooKeeper, `HOST:PORT,..[/CHROOT]`; it names the brokers then."""
    options: str = ""
    """The options that named the place, after a space: for a command in a hint."""
    frontend: Frontend = SILENT
    lock_timeout_s: float = 10.0
    """How long to wait for a directory that is in use."""

    def find_server(self) -> FoundServer | None:
        """Returns the named server, or else the one that owns the directory, or None."""
        named = self.find_named_server()
        if named is not None:
            security = self._find_security()
            addresses = parse_bootstrap(named, security.protocol if security else "PLAINTEXT")
            return FoundServer(addresses, security, self.find_routes(addresses))
        holder = find_lock_holder(self.directory)
        return None if holder is None or not holder.address else self.find_owner(holder, self.directory)

    def find_owner(self, holder: LockHolder, directory: Path) -> FoundServer:
        """Returns the server that owns a directory. It is on this machine: it has a socket in the directory, or else
        speaks plaintext. The settings are those of the other brokers of its cluster, if it has any.
        """
        from core.files.meta_properties import is_of_cluster

        addresses = parse_bootstrap(holder.address)
        security = self._find_security() if is_of_cluster(directory) else None
        return FoundServer(addresses, security, self.find_routes(addresses), directory)

    def _find_security(self) -> ClientSecurity | None:
        settings = self.find_settings()
        return None if settings is None else settings.security

    @contextmanager
    def open_client(
        self,
        *,
        is_read_only: bool = False,
        makes_directory: bool = False,
        rests_on: Callable[[str], bool] | None = None,
        opens_late: bool = False,
    ) -> Iterator[KafkaClient]:
        """Opens a client of the server, or of a broker without sockets in this process, which owns the directory
        meanwhile; with `is_read_only` it does not change the directory. If a server takes the directory first, it is
        that server's client. Raises AccessError if there is no directory, unless the command `makes_directory`: a
        mistyped path must not become a new, empty directory.

        `rests_on` says of a topic whether the answer rests on its logs; it is called at the end. Then damage to other
        logs is not reported; damage to these is, and ends the block with DamagedAnswerError when the answer is given.
        With `opens_late` a large log is read only if its topic is one of them, or if a request names it.
        """
        if self.zookeeper is not None:
            with self.open_by_zookeeper() as cluster:
                yield cluster.client
            return
        server = self.find_server()
        with ExitStack() as stack:
            if server is None:
                if not makes_directory:
                    from core.forensics.partition_reader import ensure_data_directory

                    ensure_data_directory(self.directory)
                try:
                    client = stack.enter_context(
                        self._open_embedded(is_read_only=is_read_only, rests_on=rests_on, opens_late=opens_late)
                    )
                except DirectoryLockedError:
                    server = self.find_server()
                    if server is None:
                        raise
            if server is not None:
                client = stack.enter_context(closing(server.open_client()))
            yield client

    @contextmanager
    def open_source(self) -> Iterator[KafkaClient | DirectoryReader]:
        """Opens the log for reading: a client of a server, or the directory's files, without a lock."""
        if self.zookeeper is not None or self.find_server() is not None:
            with self.open_client() as client:
                yield client
            return
        from core.forensics.partition_reader import DirectoryReader

        yield DirectoryReader(self.directory)

    @contextmanager
    def open_by_zookeeper(self) -> Iterator[ZooKeeperCluster]:
        """Opens the cluster of `zookeeper`. Raises UsageError for an invalid address."""
        from core.pipeline.zookeeper_cluster import open_zookeeper_cluster

        assert self.zookeeper is not None
        security, routes = self._find_security(), self.find_routes([])
        with open_zookeeper_cluster(self.zookeeper, security, routes, self.frontend.say) as cluster:
            yield cluster

    # --- the engine in this process

    @contextmanager
    def _open_embedded(
        self, *, is_read_only: bool, rests_on: Callable[[str], bool] | None, opens_late: bool
    ) -> Iterator[KafkaClient]:
        from core.pipeline.embedded_transport import each_line_once, kept_talk

        if rests_on is None:
            with each_line_once(), self._open_engine(is_read_only=is_read_only) as (_, client):
                yield client
            return
        with (
            kept_talk(self.frontend.say, rests_on) as talk,
            self._open_engine(is_read_only=is_read_only, opens_late=opens_late) as (node, client),
        ):
            yield client
            for partition in [name for name in node.services.log_manager.unloaded if rests_on(name.topic)]:
                node.services.late_loads.ask(partition)
            talk.note_damage(node)
        if any(map(rests_on, talk.damaged)):
            raise DamagedAnswerError("the answer rests on damaged logs")

    @contextmanager
    def _open_engine(
        self, *, is_read_only: bool, opens_late: bool = False
    ) -> Iterator[tuple[BrokerServer, KafkaClient]]:
        from core.client.net.kafka_client import KafkaClient
        from core.pipeline.embedded_transport import EmbeddedTransport

        node = self._open_node(is_read_only=is_read_only, opens_late=opens_late)
        node.services.log_manager.delete(node.services.log_manager.find_deleted_directories())
        node.services.transaction_log.load_all()
        undivided = self.frontend.undivided
        try:
            client = KafkaClient(
                [("embedded", 0)],
                lambda host, port: EmbeddedTransport(node.dispatcher, undivided),  # noqa: ARG005
                place=f"in {self.directory}",
            )
            yield node, client
        finally:
            with undivided(limit_s=float("inf")):
                node.close()

    def _open_node(self, *, is_read_only: bool, opens_late: bool) -> BrokerServer:
        """Raises DirectoryLockedError if the lock is still taken after `lock_timeout_s`, or as soon as its holder
        listens: `plog serve` was started a moment ago, and can be asked now.
        """
        from core.broker.broker_server import BrokerServer
        from core.broker.config.broker_config import BrokerConfig

        deadline = time.monotonic() + self.lock_timeout_s
        while True:
            wait_s = min(self.lock_timeout_s, _LOOK_AGAIN_S)
            try:
                return BrokerServer(
                    self.directory,
                    BrokerConfig(),
                    lock_timeout_s=wait_s,
                    is_read_only=is_read_only,
                    loads_late=opens_late,
                )
            except DirectoryLockedError:
                holder = find_lock_holder(self.directory)
                if time.monotonic() >= deadline or (holder is not None and holder.address):
                    raise
