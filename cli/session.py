"""Where a command finds the log: a server on the network, the server that owns the data directory, or the directory
itself, with the engine in this process."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from cli.options import default_data_dir, say
from cli.security_options import find_client_settings, find_named_server
from cli.stop_signals import undivided
from core.common.endpoint import parse_bootstrap
from core.common.errors import DirectoryLockedError
from core.log.directory_lock import find_lock_holder
from core.log.file_names import parse_partition_directory_name

if TYPE_CHECKING:
    from core.broker.node import Node
    from core.client.kafka_client import KafkaClient
    from core.log.directory_reader import DirectoryReader
    from core.security.client_security import ClientSecurity


_LOOK_AGAIN_S = 0.1
"""How long a locked directory is waited for before its holder is looked at again."""


class FoundServer(NamedTuple):
    addresses: list[tuple[str, int]]
    security: ClientSecurity | None
    """How it is reached; None for plaintext."""


def find_server(bootstrap_server: str | None, data_dir: Path | None) -> FoundServer | None:
    """The server to talk to: the one named, else the one that owns the directory, which is on this machine and speaks
    plaintext; None for none. UsageError for settings of --command-config that are wrong.
    """
    named = find_named_server(bootstrap_server)
    if named is not None:
        settings = find_client_settings()
        security = settings.security if settings is not None else None
        return FoundServer(parse_bootstrap(named, security.protocol if security else "PLAINTEXT"), security)
    holder = find_lock_holder(data_dir or default_data_dir())
    return FoundServer(parse_bootstrap(holder.address), None) if holder is not None and holder.address else None


@contextmanager
def open_client(
    bootstrap_server: str | None,
    data_dir: Path | None,
    *,
    lock_timeout_s: float = 10.0,
    is_read_only: bool = False,
    makes_directory: bool = False,
    rests_on: Callable[[str], bool] | None = None,
) -> Iterator[KafkaClient]:
    """A client of the server, or of a broker without sockets in this process, which owns the directory meanwhile; or,
    for what only looks, leaves it as it is. If a server takes the directory first, it is that server's client.
    AccessError if there is no directory, unless the command `makes_directory`: who mistypes a path to delete a topic is
    not to find a new, empty one there.

    `rests_on` says of a topic whether the answer rests on its logs; it is asked at the end. Nothing is said of damage
    to other logs then; damage to these is told of on stderr, and ends the block with exit code 1 when the answer is
    given.
    """
    from core.client.kafka_client import KafkaClient

    server = find_server(bootstrap_server, data_dir)
    with ExitStack() as stack:
        if server is None:
            if not makes_directory:
                from core.log.directory_reader import ensure_data_directory

                ensure_data_directory(data_dir or default_data_dir())
            try:
                embedded = _open_embedded(data_dir, lock_timeout_s, is_read_only=is_read_only, rests_on=rests_on)
                client = stack.enter_context(embedded)
            except DirectoryLockedError:
                server = find_server(bootstrap_server, data_dir)
                if server is None:
                    raise
        if server is not None:
            client = stack.enter_context(closing(KafkaClient(server.addresses, security=server.security)))
        yield client


@contextmanager
def _open_embedded(
    data_dir: Path | None, lock_timeout_s: float, *, is_read_only: bool, rests_on: Callable[[str], bool] | None
) -> Iterator[KafkaClient]:
    if rests_on is None:
        with _each_line_once(), _open_engine(data_dir, lock_timeout_s, is_read_only=is_read_only) as (_, client):
            yield client
        return
    talk = _Talk()
    logging.getLogger("plog").addHandler(talk)
    try:
        with _open_engine(data_dir, lock_timeout_s, is_read_only=is_read_only) as (node, client):
            yield client
            talk.damaged |= _damaged_topics(node)
    finally:
        logging.getLogger("plog").removeHandler(talk)
        talk.say_of(rests_on)
    if any(map(rests_on, talk.damaged)):
        raise typer.Exit(1)


@contextmanager
def _open_engine(
    data_dir: Path | None, lock_timeout_s: float, *, is_read_only: bool
) -> Iterator[tuple[Node, KafkaClient]]:
    from cli.embedded_transport import EmbeddedTransport
    from core.client.kafka_client import KafkaClient

    directory = data_dir or default_data_dir()
    node = _open_node(directory, lock_timeout_s, is_read_only=is_read_only)
    node.services.log_manager.delete(node.services.log_manager.find_deleted_directories())
    node.services.transaction_log.load_all()
    try:
        client = KafkaClient(
            [("embedded", 0)],
            lambda host, port: EmbeddedTransport(node.dispatcher),  # noqa: ARG005
            place=f"in {directory}",
        )
        yield node, client
    finally:
        with undivided(limit_s=float("inf")):
            node.close()


def _open_node(directory: Path, lock_timeout_s: float, *, is_read_only: bool) -> Node:
    """DirectoryLockedError if the lock is still taken after that time, or as soon as its holder listens: `plog serve`
    was started a moment ago, and can be asked now.
    """
    from core.broker.broker_config import BrokerConfig
    from core.broker.node import Node

    deadline = time.monotonic() + lock_timeout_s
    while True:
        wait_s = min(lock_timeout_s, _LOOK_AGAIN_S)
        try:
            return Node(directory, BrokerConfig(), lock_timeout_s=wait_s, is_read_only=is_read_only)
        except DirectoryLockedError:
            holder = find_lock_holder(directory)
            if time.monotonic() >= deadline or (holder is not None and holder.address):
                raise


class _Once(logging.Filter):
    """Lets each line through once: a request that is sent again and again, for a minute, fails in the same way."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


@contextmanager
def _each_line_once() -> Iterator[None]:
    """Of what the engine logs while nobody has said where to."""
    handler, once = logging.lastResort, _Once()
    assert handler is not None
    handler.addFilter(once)
    try:
        yield
    finally:
        handler.removeFilter(once)


def _damaged_topics(node: Node) -> set[str]:
    """The topics of which more than a note is to be said, though their logs are open."""
    replicas = node.services.replicas
    of = (
        node.services.log_manager.offline,
        node.services.log_manager.with_wrong_tail,
        replicas.unexplained,
        replicas.undecided,
    )
    return {partition.topic for partitions in of for partition in partitions}


_NAME = re.compile(r"(?:^|/)([A-Za-z0-9._-]+-\d+)(?=[:/ ]|$)")
"""Where a message names a partition: it begins with it, or has a path in its folder."""


class _Talk(logging.Handler):
    """Keeps what a broker in this process logs of partitions, and says at once what is of none."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: list[tuple[str, str]] = []
        self.damaged: set[str] = set()
        """The topics of which something was logged that is an error."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        partition = next(filter(None, map(parse_partition_directory_name, _NAME.findall(message))), None)
        if partition is None:
            say(message)
            return
        self._kept.append((partition.topic, message))
        if record.levelno >= logging.ERROR:
            self.damaged.add(partition.topic)

    def say_of(self, rests_on: Callable[[str], bool]) -> None:
        for topic, message in self._kept:
            if rests_on(topic):
                say(message)


@contextmanager
def open_source(bootstrap_server: str | None, data_dir: Path | None) -> Iterator[KafkaClient | DirectoryReader]:
    """For reading: a client of a server, or the directory's files, without a lock."""
    if find_server(bootstrap_server, data_dir) is not None:
        with open_client(bootstrap_server, data_dir) as client:
            yield client
        return
    from core.log.directory_reader import DirectoryReader

    yield DirectoryReader(data_dir or default_data_dir())
