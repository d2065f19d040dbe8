"""Where a command finds the log: a server on the network, the server that owns the data directory, or the directory
itself, with the engine in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.options import default_data_dir
from core.common.endpoint import parse_bootstrap
from core.log.directory_lock import find_lock_holder

if TYPE_CHECKING:
    from core.client.kafka_client import KafkaClient
    from core.log.directory_reader import DirectoryReader


def find_server(bootstrap_server: str | None, data_dir: Path | None) -> list[tuple[str, int]] | None:
    """Addresses of the server to talk to: the one named, else the one that owns the directory; None for none."""
    if bootstrap_server is not None:
        return parse_bootstrap(bootstrap_server)
    holder = find_lock_holder(data_dir or default_data_dir())
    return parse_bootstrap(holder.address) if holder is not None and holder.address else None


@contextmanager
def open_client(
    bootstrap_server: str | None, data_dir: Path | None, *, lock_timeout_s: float = 10.0, is_read_only: bool = False
) -> Iterator[KafkaClient]:
    """A client of the server, or of a broker without sockets in this process, which owns the directory meanwhile; or,
    for what only looks, leaves it as it is.
    """
    from core.client.kafka_client import KafkaClient

    addresses = find_server(bootstrap_server, data_dir)
    if addresses is not None:
        client = KafkaClient(addresses)
        try:
            yield client
        finally:
            client.close()
        return
    from cli.embedded_transport import EmbeddedTransport
    from core.broker.broker import Broker
    from core.broker.broker_config import BrokerConfig

    directory = data_dir or default_data_dir()
    broker = Broker(directory, BrokerConfig(), lock_timeout_s=lock_timeout_s, is_read_only=is_read_only)
    broker.transaction_log.load_all()
    try:
        yield KafkaClient([("embedded", 0)], lambda host, port: EmbeddedTransport(broker.dispatcher))  # noqa: ARG005
    finally:
        broker.close()


@contextmanager
def open_source(bootstrap_server: str | None, data_dir: Path | None) -> Iterator[KafkaClient | DirectoryReader]:
    """For reading: a client of a server, or the directory's files, without a lock."""
    if find_server(bootstrap_server, data_dir) is not None:
        with open_client(bootstrap_server, data_dir) as client:
            yield client
        return
    from core.log.directory_reader import DirectoryReader

    yield DirectoryReader(data_dir or default_data_dir())
