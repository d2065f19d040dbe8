"""A cluster of Apache Kafka 3.9 and plog: Kafka's brokers and ZooKeeper of `kafka39`, and plog's members beside them.

Tests that need it carry `requires_kafka39` (`tests/support/oracle.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import struct
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from prometheus_client.parser import text_string_to_metric_families

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.common.topic_partition import TopicPartition as Name
from core.files.file_names import LOG_SUFFIX, partition_directory_name
from core.protocol.message import MAX_VERSION, Api
from tests.support.free_ports import free_ports
from tests.support.kafka39 import (
    CHROOT,
    HERE,
    Kafka39Broker,
    Kafka39Cluster,
    Place,
    find_creation,
    metadata_at,
    topics_at,
    zookeeper_client,
)
from tests.support.oracle import run_tool
from tests.support.server import PLOG, Server
from tests.support.waiting import wait_until

Res = TypeVar("Res")
SESSION_MS = 6000
"""How long ZooKeeper keeps a broker that is silent."""

_ELECTION_NOT_NEEDED = 84
_ELECTION_S = 10
"""How long an answer about an election is waited for. Kafka's controller answers when its own metadata tell of the new
leader, and has been seen not to for a minute: its purgatory looks at new metadata only while it counts requests, and
counts one a moment after that one could be found. Asked again, it says that the election is not needed.
"""

_ASKED_S = 10
"""How long a broker is asked for metadata before it is asked again."""
_ASK_AGAIN = (KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT)

_PASSWORDS = {"listener.name.internal.scram-sha-512.sasl.jaas.config"}
"""Settings that are not for a command line, which everybody on the machine may read."""

_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "500",
    "log.retention.ms": "-1",
}


class PlogMember:
    """A plog broker in a cluster, with two listeners as Kafka's have; it keeps directory and ports over its lives."""

    def __init__(
        self,
        data_dir: Path,
        node_id: int,
        zookeeper: str,
        settings: Mapping[str, str] = _NO_SETTINGS,
        place: Place = HERE,
    ) -> None:
        self.node_id = node_id
        self._place = place
        self.data_dir = data_dir
        self._zookeeper = zookeeper
        client, internal = free_ports(2)
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        self._listen(f"{place.host}:{client}", f"{place.host}:{internal}", settings)

    @classmethod
    def instead_of(cls, kafka: Kafka39Broker, zookeeper: str) -> Self:
        """A member with the directory, the id and the addresses of a broker of Kafka's, which does not run."""
        member = cls(kafka.data_dir, kafka.node_id, zookeeper)
        member._listen(kafka.address, kafka.internal_address, _NO_SETTINGS)
        return member

    def _listen(self, address: str, internal_address: str, settings: Mapping[str, str]) -> None:
        self.address = address
        self.internal_address = internal_address
        all_settings = {"inter.broker.listener.name": "INTERNAL", **_SETTINGS, **settings}
        connect = all_settings.pop("zookeeper.connect", self._zookeeper + CHROOT)
        arguments = ["--zookeeper", connect, "--new-cluster", "--node-id", str(self.node_id)]
        arguments += ["--listener", f"CLIENT://{self.address}", "--listener", f"INTERNAL://{self.internal_address}"]
        arguments += ["--metrics-listen", "127.0.0.1:0"]
        if _PASSWORDS & all_settings.keys():
            file = self.data_dir.with_name(f"{self.data_dir.name}.properties")
            file.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
            arguments += ["--config", str(file)]
            all_settings = {}
        for name, value in all_settings.items():
            arguments += ["--set", f"{name}={value}"]
        self.server = Server(self.data_dir, *arguments, command=(*self._place.command, PLOG, "serve"))

    @property
    def log(self) -> Path:
        return self.server.log

    @property
    def is_running(self) -> bool:
        return self.server.process is not None and self.server.process.poll() is None

    def start(self) -> None:
        """Returns when it is registered, and clients may connect."""
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def kill(self) -> None:
        """Ends it as a crash does, paused or not."""
        if self.is_running:
            self.server.kill()

    def pause(self) -> None:
        """Stops the process where it stands: its connections stay open, and nothing is answered."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self.server.process is not None
        self.server.process.send_signal(number)

    def metrics(self) -> dict[str, float]:
        """What it tells of itself, added up over all labels."""
        (*_, address) = re.findall(r"metrics ([0-9.:]+)", self.log.read_text(), re.MULTILINE)
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
        found: dict[str, float] = defaultdict(float)
        for sample in (sample for family in families for sample in family.samples):
            found[sample.name] += sample.value
        return found

    def find_epoch(self) -> int | None:
        """The broker's epoch; None while it is not registered."""
        return find_creation(self._zookeeper, f"{CHROOT}/brokers/ids/{self.node_id}")


def make_chroot(zookeeper: str) -> None:
    """Makes the cluster's place in ZooKeeper, as the first of Kafka's brokers does."""
    with zookeeper_client(zookeeper) as client:
        client.ensure_path(CHROOT)


def find_controller(zookeeper: str) -> int | None:
    """Finds the broker that is the controller; None while nobody is."""
    with zookeeper_client(zookeeper) as client, suppress(NoNodeError):
        return int(json.loads(client.get(f"{CHROOT}/controller")[0])["brokerid"])
    return None


Broker = Kafka39Broker | PlogMember


class MixedCluster:
    """Kafka's brokers 1 and 2, and plog's 5; started by `with`, killed at its end."""

    def __init__(
        self,
        folder: Path,
        kafkas: int = 2,
        plogs: Sequence[int] = (5,),
        settings: Mapping[str, str] = _NO_SETTINGS,
        java_options: Sequence[str] | None = None,
        *,
        of_one: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
        plog_controls: bool = False,
        place_of: Callable[[int], Place] = lambda _node_id: HERE,
        zookeeper: Place = HERE,
        of_zookeeper: Mapping[str, str] = _NO_SETTINGS,
        prepare: Callable[[KazooClient], None] | None = None,
    ) -> None:
        """`settings` are those of each broker, beyond what is usual here; `of_one` more for some of plog's.
        `java_options` are Kafka's, instead of those with which it starts soon. With `plog_controls` the first of plog's
        is the first controller, and any broker may follow it; else none of plog's ever is. `of_zookeeper` are
        ZooKeeper's settings. `prepare` writes into the cluster's ZooKeeper before any broker starts.
        """
        self._plog_controls = plog_controls
        self._prepare = prepare
        of_plogs = settings if plog_controls else {"plog.controller.enable": "false", **settings}
        how = {} if java_options is None else {"java_options": java_options}
        self.kafka = Kafka39Cluster(
            folder,
            kafkas,
            {**_SETTINGS, **settings},
            place_of=place_of,
            zookeeper=zookeeper,
            of_zookeeper=of_zookeeper,
            **how,
        )
        address = self.kafka.zookeeper.address
        self.plogs = {
            node_id: PlogMember(
                folder / f"plog-{node_id}", node_id, address, {**of_plogs, **of_one.get(node_id, {})}, place_of(node_id)
            )
            for node_id in plogs
        }
        self.brokers: dict[int, Broker] = {**self.kafka.brokers, **self.plogs}

    @property
    def plog(self) -> PlogMember:
        """The first of plog's."""
        return next(iter(self.plogs.values()))

    @property
    def address(self) -> str:
        """All brokers' addresses for clients."""
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        self.kafka.zookeeper.start()
        if self._plog_controls:
            make_chroot(self.kafka.zookeeper.address)
        if self._prepare is not None:
            make_chroot(self.kafka.zookeeper.address)
            with zookeeper_client(self.kafka.connect) as client:
                self._prepare(client)
        if not self._plog_controls:
            self.kafka.start_brokers()
        for member in self.plogs.values():
            member.start()
        if self._plog_controls:
            self.kafka.start_brokers()
        wait_until(self._all_know_all, "all brokers know all brokers")

    def _all_know_all(self) -> bool:
        return all(self.known_to(broker) == self.brokers.keys() for broker in self.brokers.values())

    def known_to(self, broker: Broker) -> set[int]:
        """The brokers that it tells clients of."""
        metadata = metadata_at(broker.address)
        return set() if metadata is None else {one.node_id for one in metadata.brokers}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def kill(self) -> None:
        for member in self.plogs.values():
            member.kill()
        self.kafka.kill()

    def call(self, node_id: int, api: Api[Any, Res], request: Any, *, at_most: int = MAX_VERSION) -> Res:
        """What a broker answers a client."""
        host, _, port = self.brokers[node_id].address.rpartition(":")
        with closing(ClientConnection(SocketTransport(host, int(port)))) as connection:
            return connection.call(api, request, at_most=at_most)

    # --- topics

    def make_topic(self, name: str, *replicas: Sequence[int], **settings: str) -> None:
        """`replicas` of each partition, the preferred leader first; `settings` by Kafka's names, with _ for a dot.
        Returns when all replicas are in sync.
        """
        config = {key.replace("_", "."): value for key, value in settings.items()}
        topic = NewTopic(name, len(replicas), replica_assignment=[list(one) for one in replicas], config=config)
        is_first = True

        def create(admin: AdminClient) -> None:
            nonlocal is_first
            try:
                admin.create_topics([topic])[name].result()
            except KafkaException as error:  # one that did not answer in time may have made it
                if is_first or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            finally:
                is_first = False

        self._ask(create)
        for number, one in enumerate(replicas):
            self.wait_for(Name(name, number), leader=one[0], isr=one)

    def wait_until_known(self, name: str) -> None:
        """Until every broker tells clients of the topic; all of them run."""
        wait_until(
            lambda: all(name in topics_at(broker.address) for broker in self.brokers.values()),
            f"all brokers know {name}",
        )

    def wait_for(
        self, name: Name, *, leader: int | None = None, isr: Sequence[int] | None = None, lacks: int | None = None
    ) -> None:
        """Until the controller says so: who leads, who is in sync, who is not."""

        def is_so() -> bool:
            state = self.state(name)
            return (
                state is not None
                and (leader is None or state[0] == leader)
                and (isr is None or state[1] == set(isr))
                and (lacks is None or lacks not in state[1])
            )

        wait_until(is_so, lambda: f"{name}: leader {leader}, in sync {isr}, without {lacks}; it is {self.state(name)}")

    def state(self, name: Name) -> tuple[int, set[int]] | None:
        """Who leads it and who is in sync, as `_asked` says; None if it does not know it, or does not answer."""
        with suppress(KafkaException):
            admin = AdminClient({"bootstrap.servers": self._asked(), "log_level": 0})
            topic = admin.list_topics(timeout=_ASKED_S).topics.get(name.topic)
            partition = None if topic is None else topic.partitions.get(name.partition)
            return None if partition is None else (partition.leader, set(partition.isrs))
        return None

    def _asked(self) -> str:
        """Where one of Kafka's brokers is that run, or all others if none does."""
        return next((broker.address for broker in self.kafka.brokers.values() if broker.is_running), self.address)

    def delete_topic(self, name: str) -> None:
        self._ask(lambda admin: admin.delete_topics([name])[name].result())

    def is_deleted(self, name: str) -> bool:
        """Whether the topic is gone, and another one of that name may be made; no if ZooKeeper does not answer."""
        with suppress(OSError, struct.error):
            return find_creation(self.kafka.zookeeper.address, f"{CHROOT}/admin/delete_topics/{name}") is None
        return False

    def elect(self, name: Name, *, unclean: bool = False) -> None:
        """Has the controller elect the preferred leader, or with `unclean` anybody that lives."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED

        partitions = [TopicPartition(*name)]

        def elect(admin: AdminClient) -> None:
            (error,) = admin.elect_leaders(kind, partitions).result().values()
            if error is not None and error.code() != _ELECTION_NOT_NEEDED:
                raise KafkaException(error)

        self._ask(elect, _ELECTION_S)

    def elect_preferred(self, names: Sequence[Name]) -> int:
        """Has the controller elect the preferred leaders of all these; counts those that it can't."""
        refused = 0

        def elect(admin: AdminClient) -> None:
            nonlocal refused
            answers = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(*name) for name in names]).result()
            refused = sum(error is not None and error.code() != _ELECTION_NOT_NEEDED for error in answers.values())

        self._ask(elect, _ELECTION_S)
        return refused

    def _ask(self, work: Callable[[AdminClient], object], answer_s: int = 60) -> None:
        """Does it with the controller; again if it is another one than the brokers knew, or has not answered in
        so many seconds.
        """

        def is_done() -> bool:
            admin = AdminClient(
                {"bootstrap.servers": self.address, "log_level": 0, "socket.timeout.ms": answer_s * 1000}
            )
            try:
                work(admin)
            except KafkaException as error:
                if error.args[0].code() in _ASK_AGAIN:
                    return False
                raise
            return True

        wait_until(is_done, "the brokers know the controller")

    def topic_ids(self, *names: str) -> dict[str, str]:
        admin = AdminClient({"bootstrap.servers": self._asked(), "log_level": 0})
        described = admin.describe_topics(TopicCollection(list(names)))
        return {name: str(one.result().topic_id) for name, one in described.items()}

    # --- settings and moves

    def unset(self, broker_id: int, *keys: str) -> None:
        """Takes from a broker what was set for it while it ran."""
        entries = [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in keys]
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id), incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        admin.incremental_alter_configs([resource])[resource].result()

    def reassign(self, plan: Path, targets: Mapping[Name, Sequence[int]], *arguments: str) -> str:
        """Does something with Kafka's tool for reassignments, with a plan in that file; gives what it says."""
        partitions = [
            {"topic": name.topic, "partition": name.partition, "replicas": list(replicas)}
            for name, replicas in targets.items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        done = run_tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *("--bootstrap-server", self.address, "--reassignment-json-file", str(plan), *arguments),
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        return done.stdout.decode()

    # --- what is on the disks

    def size_bytes(self, name: Name, node_id: int) -> int:
        """Of all segments of a replica; 0 while there is none."""
        folder = self.brokers[node_id].data_dir / partition_directory_name(name)
        return sum(path.stat().st_size for path in folder.glob(f"*{LOG_SUFFIX}"))

    def wait_until_equal(self, name: Name, nodes: Sequence[int]) -> None:
        """Until the logs of these brokers are equal to the byte."""
        wait_until(
            lambda: len({self.digest(name, node) for node in nodes}) == 1,
            lambda: f"{name}: replicas differ: { ({node: self.digest(name, node) for node in nodes}) }",
        )

    def digest(self, name: Name, node_id: int) -> str:
        """Of all segments, with their names."""
        folder = self.brokers[node_id].data_dir / partition_directory_name(name)
        digest = hashlib.sha256()
        for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()[:12]
