"""The directory of a whole cluster on one machine:

.lock                 held by whoever runs the cluster, and by all that he has started until they have ended
cluster.properties    where the brokers and ZooKeeper listened the last time, or were to (a port 0 is not chosen yet),
                      which is where they will again
zookeeper/            ZooKeeper's own, with its log
broker-N/             the data directory of broker N
broker-N.log          what broker N prints
broker-N.ready        its address, while it runs and clients may connect
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import DirectoryLockedError, UsageError
from core.common.filesystem import FileSystem, access_error
from core.common.properties_file import parse_properties
from core.files.directory_lock import DirectoryLock, find_lock_holder
from core.files.file_names import CLUSTER_PROPERTIES, META_PROPERTIES, is_cluster

_LOCK_SECONDS = 10.0
"""How long those may take to end whose owner was killed."""


class ClusterAddresses(NamedTuple):
    """Where the brokers listen, broker 1 first; `zookeeper` is None if it is somebody else's."""

    brokers: tuple[Endpoint, ...] = ()
    zookeeper: Endpoint | None = None


class ClusterDirectory:
    """Owned by one task, from `acquire` to `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.zookeeper = self.path / "zookeeper"
        self._lock = DirectoryLock(self.path)

    def broker(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}"

    def acquire(self) -> None:
        """Makes and locks it. Raises UsageError for the directory of a single broker, AccessError if it can't be made,
        or another process runs a cluster there.
        """
        if (self.path / META_PROPERTIES).exists() and not is_cluster(self.path):
            raise UsageError(
                f"{self.path} is a broker's data directory", hint="give the cluster a --data-dir of its own"
            )
        try:
            FileSystem().make_data_directory(self.path)
        except OSError as error:
            raise access_error(error, self.path, "make") from error
        try:
            self._lock.acquire(0.0 if find_lock_holder(self.path) else _LOCK_SECONDS)
        except DirectoryLockedError as error:
            error.hint = "that cluster runs: use it, stop it, or take another --data-dir"
            raise

    @property
    def descriptor(self) -> int:
        """Keeps the directory locked in each process that has it, too."""
        return self._lock.descriptor

    def announce(self, bootstrap_servers: str) -> None:
        """Has those who find it locked learn where the cluster is."""
        self._lock.announce(bootstrap_servers)

    def release(self) -> None:
        self._lock.release()

    def read(self) -> ClusterAddresses:
        """Reads where they listened. Raises UsageError for a file that nobody of plog's has written."""
        path = self.path / CLUSTER_PROPERTIES
        try:
            properties = parse_properties(path.read_text())
        except FileNotFoundError:
            return ClusterAddresses()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"could not read {path}: {error}") from error
        zookeeper = properties.get("zookeeper", "")
        brokers = re.split(r"\s*,\s*", properties.get("brokers", ""))
        try:
            return ClusterAddresses(
                tuple(parse_endpoint(one) for one in brokers if one), parse_endpoint(zookeeper) if zookeeper else None
            )
        except UsageError as error:
            raise UsageError(
                f"{path}: {error.message}", hint="delete the file: the cluster gets other ports then, and is the same"
            ) from error

    def write(self, addresses: ClusterAddresses) -> None:
        """Writes where they listen. Raises AccessError if it can't be written."""
        path = self.path / CLUSTER_PROPERTIES
        text = "# Written by each start of the cluster.\nbrokers=" + ",".join(map(str, addresses.brokers))
        text += f"\nzookeeper={addresses.zookeeper or ''}\n"
        try:
            FileSystem().write_atomic(path, text.encode())
        except OSError as error:
            raise access_error(error, path, "write") from error
