"""Prepares ZooKeeper for a process that is about to start the brokers of a cluster.

Registrations of dead brokers are removed before their sessions end. ZooKeeper keeps a broker that was killed until its
session ends, and until then it may not register again; the process that started it, and saw it end, knows better. A new
cluster gets its path and its first features.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from core.common.errors import AccessError
from core.zookeeper.kazoo_client import LastComplaint, make_client
from core.zookeeper.znodes import BROKER_IDS, CONTROLLER, FEATURE, FeatureNode, broker_path, decode_controller
from core.zookeeper.zookeeper_config import ZooKeeperConfig

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_CONNECT_SECONDS = 10.0


class ClusterBootstrap:
    """Made by `open`; owned by one thread."""

    def __init__(self, client: KazooClient, chroot: str) -> None:
        self._client = client
        self._chroot = chroot

    @classmethod
    @contextmanager
    def open(cls, config: ZooKeeperConfig) -> Iterator[Self]:
        """Connects. Raises AccessError if ZooKeeper does not answer, or kazoo is not installed."""
        complaint = LastComplaint()
        client = make_client(config, complaint)
        try:
            client.start(_CONNECT_SECONDS)
            yield cls(client, config.chroot)
        except client.handler.timeout_exception:
            why = f": {complaint.text.rstrip('.')}" if complaint.text else ""
            raise AccessError(
                f"ZooKeeper does not answer at {config}{why}",
                where=str(config),
                hint="start it first, or name where it is; for example, plog zookeeper start runs one",
            ) from None
        finally:
            client.stop()
            client.close()

    def remove_registrations(self, broker_ids: Collection[int]) -> None:
        """Removes the registrations of these brokers, which all are dead, and /controller if it belongs to one of
        them.
        """
        from kazoo.exceptions import NoNodeError

        for broker_id in broker_ids:
            with suppress(NoNodeError):
                self._client.delete(self._chroot + broker_path(broker_id))
        with suppress(NoNodeError):
            controller = self._chroot + CONTROLLER
            data, stat = self._client.get(controller)
            if decode_controller(data).broker_id in broker_ids:
                self._client.delete(controller, stat.version)

    def make_chroot(self) -> bool:
        """Creates the path in ZooKeeper of a new cluster; returns whether it had to."""
        if not self._chroot or self._client.exists(self._chroot) is not None:
            return False
        self._client.ensure_path(self._chroot)
        return True

    def finalize_features(self, levels: Mapping[str, int]) -> bool:
        """Writes the features of a new cluster. Returns False if there is a cluster, which keeps its own; also if the
        chroot does not exist, which brokers report in detail.
        """
        from kazoo.exceptions import NodeExistsError, NoNodeError

        if self._client.exists(self._chroot + BROKER_IDS) is not None:
            return False
        try:
            self._client.create(self._chroot + FEATURE, FeatureNode(levels).encode())
        except (NodeExistsError, NoNodeError):
            return False
        return True
