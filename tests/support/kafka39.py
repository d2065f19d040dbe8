"""A cluster of Apache Kafka 3.9, the last that runs with ZooKeeper: real brokers for plog to be a member among.

Tests that need it carry `requires_kafka39` (`tests/support/oracle.py`, which fetches the jars). A broker has two
listeners, as a cluster's brokers usually have: CLIENT for clients, INTERNAL for what brokers say to each other.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

from kazoo.client import KazooClient

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.common.errors import PlogError
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.support.class_archives import kafka_options
from tests.support.free_ports import free_ports
from tests.support.oracle import KAFKA39_VERSION, fetched_libs
from tests.support.waiting import ANSWER_SECONDS, wait_for_exit, wait_until

_LOGGING = Path(__file__).resolve().parent / "kafka" / "log4j-3.9.properties"
_ASKED_S = 2.0
"""How long a broker is asked for metadata before it is asked again."""
_SESSION_S = 30.0
CHROOT = "/plogtest"
"""Where in ZooKeeper the cluster is."""
_JAVA_OPTIONS = kafka_options(KAFKA39_VERSION)
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class Place(NamedTuple):
    """Where a process is: the address on which it listens, and what its command line begins with."""

    host: str = "127.0.0.1"
    command: Sequence[str] = ()


HERE = Place()


class _JavaProcess:
    """One of the cluster's processes; what it says is in `log`."""

    def __init__(self, log: Path, java_options: Sequence[str], place: Place) -> None:
        self.log = log
        self._place = place
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self, heap: str, main_class: str, settings: Path) -> None:
        classes = f"{fetched_libs(KAFKA39_VERSION)}/*"
        options = [*self._java_options, heap, "-Djava.awt.headless=true", f"-Dlog4j.configuration=file:{_LOGGING}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._place.command, "java", *options, "-cp", classes, main_class, str(settings)],
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _ensure_running(self) -> None:
        assert self.is_running, self.log.read_text()

    def stop(self) -> None:
        """Stops it cleanly."""
        if self.is_running:
            self._send(signal.SIGTERM)
            self._wait()

    def kill(self) -> None:
        """Ends it as a crash does, paused or not."""
        if self.is_running:
            self._send(signal.SIGKILL)
            self._wait()

    def pause(self) -> None:
        """Stops the process where it stands: its connections stay open, and nothing is answered."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _wait(self) -> None:
        assert self._process is not None
        wait_for_exit(self._process)


class ZooKeeper(_JavaProcess):
    """The ZooKeeper of Kafka's own jars."""

    def __init__(self, folder: Path, place: Place = HERE, settings: Mapping[str, str] = _NO_SETTINGS) -> None:
        """`settings` are ZooKeeper's own, beyond the usual ones."""
        super().__init__(folder.with_name(f"{folder.name}.log"), _JAVA_OPTIONS, place)
        self._folder = folder
        self._file = folder.with_name(f"{folder.name}.cfg")
        (self._port,) = free_ports(1)
        self.address = f"{place.host}:{self._port}"
        self._settings = {
            "dataDir": str(folder),
            "clientPortAddress": place.host,
            "clientPort": str(self._port),
            "tickTime": "500",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            **settings,
        }

    def start(self) -> None:
        """Returns when it gives sessions."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        self._run("-Xmx96M", "org.apache.zookeeper.server.ZooKeeperServerMain", self._file)
        wait_until(self._answers, "ZooKeeper gives sessions")

    def _answers(self) -> bool:
        self._ensure_running()
        with suppress(OSError, struct.error):
            find_creation(self.address, "/")
            return True
        return False


@contextmanager
def zookeeper_client(address: str) -> Iterator[KazooClient]:
    """Of the address of a ZooKeeper, and of a place in it if one is named."""
    client = KazooClient(address, timeout=_SESSION_S)
    client.start(ANSWER_SECONDS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def find_creation(zookeeper: str, path: str) -> int | None:
    """The number of the transaction that made a node of that ZooKeeper (its czxid); None if there is no such node."""
    name = path.encode()
    host, _, port = zookeeper.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as connection, connection.makefile("rwb") as stream:

        def call(request: bytes) -> bytes:
            stream.write(struct.pack(">i", len(request)) + request)
            stream.flush()
            return stream.read(*struct.unpack(">i", stream.read(4)))

        call(struct.pack(">iqiqi16s?", 0, 0, 10_000, 0, 16, bytes(16), False))  # a session
        answer = call(struct.pack(">iii", 1, 3, len(name)) + name + b"\0")  # exists, without a watch
        call(struct.pack(">ii", 2, -11))  # the end of the session
    error, czxid = struct.unpack_from(">iq", answer + bytes(8), 12)
    assert error in (0, -101), error  # -101: no node
    return None if error else int(czxid)


class Kafka39Broker(_JavaProcess):
    """One broker, on a directory of its own; it keeps directory and ports when it is started again."""

    def __init__(
        self,
        folder: Path,
        node_id: int,
        zookeeper: str,
        settings: Mapping[str, str] = _NO_SETTINGS,
        java_options: Sequence[str] = _JAVA_OPTIONS,
        place: Place = HERE,
    ) -> None:
        """`zookeeper` is the address of any, and `settings` are the broker's, by Kafka's names."""
        super().__init__(folder.with_name(f"{folder.name}.log"), java_options, place)
        self.node_id = node_id
        self.data_dir = folder
        self._zookeeper = zookeeper
        client, internal = free_ports(2)
        self.address = f"{place.host}:{client}"
        self.internal_address = f"{place.host}:{internal}"
        self._properties = folder.with_name(f"{folder.name}.properties")
        self._settings = {
            "broker.id": str(node_id),
            "listeners": f"CLIENT://{self.address},INTERNAL://{self.internal_address}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "zookeeper.connect": zookeeper + CHROOT,
            "zookeeper.session.timeout.ms": "9000",
            "log.dirs": str(folder),
            "log.retention.ms": "-1",
            "log.cleaner.dedupe.buffer.size": "10485760",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "auto.leader.rebalance.enable": "false",
            **settings,
        }

    def start(self) -> None:
        """Returns when it answers clients, and knows itself as one of the cluster's brokers."""
        self.start_without_waiting()
        self.wait_until_ready()

    def start_without_waiting(self) -> None:
        """Waits only for the session of an earlier life to end: until then Kafka would not start."""
        wait_until(self._is_registered_no_more, f"broker {self.node_id} is registered no more")
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        self._run("-Xmx256M", "kafka.Kafka", self._properties)

    def _is_registered_no_more(self) -> bool:
        with suppress(OSError, struct.error):
            return self.find_epoch() is None
        return False

    def find_epoch(self) -> int | None:
        """The broker's epoch: the number that ZooKeeper gave its registration, another in each life of the broker. None
        while it is not registered.
        """
        return find_creation(self._zookeeper, f"{CHROOT}/brokers/ids/{self.node_id}")

    def wait_until_ready(self) -> None:
        wait_until(self._is_ready, f"broker {self.node_id} knows itself")

    def _is_ready(self) -> bool:
        self._ensure_running()
        metadata = metadata_at(self.address)
        brokers = [] if metadata is None else [broker.node_id for broker in metadata.brokers]
        return metadata is not None and self.node_id in brokers and metadata.controller_id in brokers


def metadata_at(address: str) -> MetadataResponse | None:
    """What the broker there tells a client of the cluster; None while it does not answer. A client of librdkafka's asks
    any broker that it has heard of.
    """
    host, _, port = address.rpartition(":")
    with suppress(PlogError), closing(ClientConnection(SocketTransport(host, int(port), timeout_s=_ASKED_S))) as asked:
        return asked.call(METADATA, MetadataRequest(topics=None))
    return None


def topics_at(address: str) -> set[str | None]:
    """The topics that the broker there tells a client of."""
    metadata = metadata_at(address)
    return set() if metadata is None else {topic.name for topic in metadata.topics}


class Kafka39Cluster:
    """A ZooKeeper, and brokers that are numbered from 1 on; started by `with`, killed at its end.

    `settings` are those of each broker, by Kafka's names. The internal topics have as many replicas as there are
    brokers.
    """

    def __init__(
        self,
        folder: Path,
        brokers: int = 1,
        settings: Mapping[str, str] = _NO_SETTINGS,
        java_options: Sequence[str] = _JAVA_OPTIONS,
        *,
        place_of: Callable[[int], Place] = lambda _node_id: HERE,
        zookeeper: Place = HERE,
        of_zookeeper: Mapping[str, str] = _NO_SETTINGS,
    ) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper", zookeeper, of_zookeeper)
        replicas = str(brokers)
        settings = {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            **settings,
        }
        self.brokers = {
            node_id: Kafka39Broker(
                folder / f"broker-{node_id}",
                node_id,
                self.zookeeper.address,
                settings,
                java_options,
                place_of(node_id),
            )
            for node_id in range(1, brokers + 1)
        }

    @property
    def connect(self) -> str:
        """What a broker needs to be a member: ZooKeeper's address, and where in it the cluster is."""
        return self.zookeeper.address + CHROOT

    @property
    def address(self) -> str:
        """The brokers' addresses for clients."""
        return ",".join(broker.address for broker in self.brokers.values())

    def controller(self) -> Kafka39Broker:
        """The broker that is the controller, as the first one says that answers."""
        answers = (metadata_at(broker.address) for broker in self.brokers.values() if broker.is_running)
        return self.brokers[next(answer.controller_id for answer in answers if answer is not None)]

    def start(self) -> None:
        """Starts all at once; returns when each broker answers clients."""
        self.zookeeper.start()
        self.start_brokers()

    def start_brokers(self) -> None:
        """Does so with a ZooKeeper that runs."""
        for broker in self.brokers.values():
            broker.start_without_waiting()
        for broker in self.brokers.values():
            broker.wait_until_ready()

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
