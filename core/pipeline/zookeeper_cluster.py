"""A cluster found through its ZooKeeper: a client of its brokers, and members of groups that ZooKeeper keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from core.client.net.kafka_client import KafkaClient
from core.common.clock import SystemClock
from core.protocol.schema.metadata import MetadataResponse
from core.security.client_security import ClientSecurity
from core.zookeeper.cluster_view import ClusterView
from core.zookeeper.group_registry import WHITE_LIST, ConsumerNode
from core.zookeeper.registered_consumer import RegistryMember
from core.zookeeper.session_thread import SessionThread
from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect

if TYPE_CHECKING:
    from core.client.net.address_map import AddressMap

_SESSION_TIMEOUT_MS = 6000
"""`zookeeper.session.timeout.ms` of Kafka's old consumers: how long a dead consumer keeps its partitions."""


class ZooKeeperCluster(NamedTuple):
    """Owned by one task; `client` gets brokers, topics and leaders from the nodes in ZooKeeper."""

    client: KafkaClient
    thread: SessionThread
    view: ClusterView

    def make_member(self, group: str, topics: Sequence[str], *, is_pattern: bool) -> RegistryMember:
        """Returns a member that reads these topics, or with `is_pattern` those that match one of them."""
        if is_pattern:
            wanted = ConsumerNode({"|".join(topics): 1}, pattern=WHITE_LIST)
        else:
            wanted = ConsumerNode(dict.fromkeys(topics, 1))
        return RegistryMember(self.thread, self.view, group, wanted, SystemClock())


@contextmanager
def open_zookeeper_cluster(
    connect: str, security: ClientSecurity | None, routes: AddressMap | None, say: Callable[[str], None]
) -> Iterator[ZooKeeperCluster]:
    """Opens a session, finds the brokers, and connects to one of them, where `routes` lead. Raises AccessError if no
    ZooKeeper answers, if the chroot is missing, and if no broker is registered; what `KafkaClient` raises.
    """
    servers, chroot = parse_zookeeper_connect(connect)
    config = ZooKeeperConfig(servers, chroot, _SESSION_TIMEOUT_MS)
    with _said(say), SessionThread(config) as thread:
        view = ClusterView(thread.session, security_protocol=security.protocol if security else "PLAINTEXT")
        thread.run(view.follow_brokers())

        def find_metadata(topics: Sequence[str]) -> MetadataResponse:
            return thread.run(view.metadata(topics))

        place = f"in the cluster of ZooKeeper {config}"
        client = KafkaClient(view.addresses, security=security, routes=routes, place=place, find_metadata=find_metadata)
        with closing(client):
            yield ZooKeeperCluster(client, thread, view)


class _Said(logging.Handler):
    """Shows the session's warnings, in the command's own way, and after a warning also its recovery."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._is_worried = False

    def emit(self, record: logging.LogRecord) -> None:
        is_warning = record.levelno >= logging.WARNING
        if is_warning or self._is_worried:
            self._say(f"{'warning' if is_warning else 'note'}: {record.getMessage()}")
        self._is_worried = is_warning


@contextmanager
def _said(say: Callable[[str], None]) -> Iterator[None]:
    logger, handler = logging.getLogger("plog.zookeeper"), _Said(say)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
