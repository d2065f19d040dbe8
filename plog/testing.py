"""A Kafka for tests, started in a fraction of a second: in this process, or as a process of its own. A whole cluster
takes a few seconds.

    from plog.testing import running_broker

    with running_broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    with running_cluster(brokers=3) as cluster:
        cluster.kill(cluster.controller())

    with running_broker(security="sasl_ssl") as broker:
        producer = confluent_kafka.Producer(broker.librdkafka_settings)

In pytest the fixtures of `plog.pytest_plugin` do it. For tests in other languages: `plog serve --ephemeral --listen
127.0.0.1:0` prints `ready HOST:PORT` when clients may connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.common.endpoint import Endpoint
from core.common.errors import AccessError, KafkaError, UsageError

if TYPE_CHECKING:
    from core.broker.broker_server import BrokerServer
    from core.broker.config.broker_config import BrokerConfig
    from core.broker.serving.loop_runtime import LoopRuntime
    from core.broker.serving.socket_server import SocketServer
    from core.client.net.kafka_client import KafkaClient
    from core.client.read.awaited_records import Record
    from core.processes.broker_process import BrokerProcess
    from core.processes.local_cluster import LocalCluster
    from core.security.client_security import ClientSecurity

__all__ = [
    "AccessError",
    "KafkaError",
    "RunningBroker",
    "RunningCluster",
    "RunningServer",
    "UsageError",
    "running_broker",
    "running_cluster",
    "running_server",
]

_ANY_PORT = Endpoint("127.0.0.1", 0)
_START_SECONDS = 30.0
_HEALTHY_SECONDS = 60.0
_RECORDS_SECONDS = 10.0
_POLL_SECONDS = 0.02
_ITERATIONS = 4096
"""The fewest that Kafka's brokers take."""


class _Log:
    """What a test does with the records of a broker or a cluster. Each call waits for its answer: in a test of asyncio
    call `await asyncio.to_thread(broker.records, "orders")`.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def bootstrap_servers(self) -> str: ...

        @property
        def client_settings(self) -> Mapping[str, str]: ...

    def _client(self) -> AbstractContextManager[KafkaClient]:
        raise NotImplementedError

    @property
    def librdkafka_settings(self) -> dict[str, str]:
        """The settings of a client on librdkafka, such as confluent-kafka's: the servers, and what TLS and SASL need.
        Raises UsageError for `client_settings` that librdkafka can't have, such as a trust store of Java's.
        """
        from core.client.net.other_clients import librdkafka_settings

        return {"bootstrap.servers": self.bootstrap_servers, **librdkafka_settings(_security(self.client_settings))}

    @property
    def python_settings(self) -> dict[str, Any]:
        """The same for a client of kafka-python or aiokafka, as arguments."""
        from core.client.net.other_clients import python_arguments

        return {"bootstrap_servers": self.bootstrap_servers, **python_arguments(_security(self.client_settings))}

    def write_client_properties(self, path: Path | str) -> Path:
        """Writes a file that only its owner may read, for clients that take one: of Java, Kafka's tools, plog's
        commands. Raises AccessError.
        """
        from core.client.net.development_certificates import java_properties
        from core.common.out_file import write_whole

        settings = {**self.client_settings, "bootstrap.servers": self.bootstrap_servers}
        write_whole(Path(path), java_properties(settings), mode=0o600)
        return Path(path)

    def produce(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        """Writes a record and returns it, with its partition and offset. A key or value is bytes, text, None, or
        becomes JSON. Without a `partition`, the key chooses it as Java's clients do. Raises KafkaError if the broker
        refuses the record.
        """
        import numpy as np

        from core.client.read.awaited_records import Record, encoded
        from core.client.write.partitioner import PARTITIONERS
        from core.client.write.producer import Producer, RecordsToSend
        from core.records.byte_strings import ByteStrings
        from core.records.record import encode_headers

        texts = tuple((name, encoded(text)) for name, text in (headers or {}).items())
        keys, values = ByteStrings.of_list([encoded(key)]), ByteStrings.of_list([encoded(value)])
        time_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        offsets: list[int] = []
        with self._client() as client:
            count = len(client.topic(topic, may_create=True).partitions)
            if partition is None:
                partition = int(PARTITIONERS["murmur2"](count, 1)(keys, values)[0])
            elif not 0 <= partition < count:
                raise UsageError(f"topic {topic} has {count} partitions, from 0 on, and not {partition}")
            producer = Producer(
                client, topic, on_acknowledged=lambda _partition, offset, _count: offsets.append(offset)
            )
            section = encode_headers([(name.encode(), text) for name, text in texts])
            producer.send(
                RecordsToSend(
                    partition=partition,
                    timestamps=np.array([time_ms], np.int64),
                    keys=keys,
                    values=values,
                    headers=ByteStrings.of_list([section]),
                    rows=np.zeros(1, np.int64),
                )
            )
            producer.flush()
        return Record(
            topic,
            partition,
            offsets[0],
            time_ms,
            key=encoded(key),
            value=encoded(value),
            headers=texts,
        )

    def records(self, topic: str, count: int = 0, timeout_s: float = _RECORDS_SECONDS) -> list[Record]:
        """Returns the topic's committed records, by partition and offset, once there are `count`: there may be more.
        Raises TimeoutError, which shows what came.
        """
        from core.client.read.awaited_records import read_records

        with self._client() as client:
            return read_records(client, topic, count, timeout_s)

    def expect(self, topic: str, values: Sequence[Any], timeout_s: float = _RECORDS_SECONDS) -> list[Record]:
        """Waits for as many records, whose values must be these, in any order, and returns them. Values are bytes, text
        or None; anything else is compared with the value as JSON. Raises AssertionError, which shows the difference.
        """
        from core.client.read.awaited_records import expect_values

        with self._client() as client:
            return expect_values(client, topic, values, timeout_s)

    def wait_until_read(
        self, group: str, topics: str | Sequence[str] | None = None, timeout_s: float = _START_SECONDS
    ) -> None:
        """Returns once the group has committed all that was there at the call: in `topics`, or in each topic that its
        members are assigned or that it has committed offsets for. Raises TimeoutError, which names the partitions and
        their lag.
        """
        from core.client.read.awaited_records import await_group

        with self._client() as client:
            await_group(client, group, [topics] if isinstance(topics, str) else topics, timeout_s)


@dataclass(frozen=True, slots=True)
class RunningBroker(_Log):
    """A broker that clients may connect to; `data_dir` is where its files are. `client_settings`, by the names of
    Kafka's client.properties, say how it is reached if it needs TLS or SASL; `${env:NAME}` is replaced in them.

    Without `client_settings` of the caller, its methods are requests of the directory's owner, whom an authorizer
    refuses nothing: clients of its `bootstrap_servers` have the rights that ACLs give them.
    """

    bootstrap_servers: str
    data_dir: Path
    client_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    _is_owners: bool = field(default=False, kw_only=True, repr=False)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Makes a topic; `configs` by Kafka's names, with _ for a dot. Topics that a producer or consumer asks for are
        made as well, with one partition. Raises KafkaError if the broker refuses.
        """
        _create_topic(self._client(), name, partitions, configs)

    def _client(self) -> AbstractContextManager[KafkaClient]:
        is_owners = self._is_owners or not self.client_settings
        return _open_client(self.bootstrap_servers, self.client_settings, self.data_dir if is_owners else None)


@dataclass(frozen=True, slots=True)
class RunningServer(RunningBroker):
    """A `plog serve` of its own, which a test may end and start again: it keeps its address and its data. Owned by one
    thread.
    """

    _process: BrokerProcess = field(kw_only=True, repr=False)

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._process.kill()

    def stop(self) -> None:
        """Stops it cleanly. If that takes longer than 30 s, it is killed."""
        self._process.stop(time.monotonic() + _START_SECONDS)

    def start(self) -> None:
        """Starts it again after a kill or a stop; returns when clients may connect. Raises AccessError, with what it
        said, if it does not start.
        """
        if not self._process.is_running:
            _start(self._process)

    def pause(self) -> None:
        """Has it do nothing any more, and answer nothing, although its connections stay open."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()


class RunningCluster(_Log):
    """A cluster that clients may connect to: brokers 1 to N, each a `plog serve` of its own, and a ZooKeeper. Owned by
    one thread.

    Methods that take a broker's id raise UsageError if no broker has it.
    """

    def __init__(self, cluster: LocalCluster, client_settings: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._client_settings = client_settings

    @property
    def client_settings(self) -> Mapping[str, str]:
        """See `RunningBroker`."""
        return self._client_settings

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers; those of brokers that were killed stay theirs."""
        return self._cluster.bootstrap_servers

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return list(self._cluster.brokers)

    @property
    def data_dir(self) -> Path:
        """Has the directory of each broker, `broker-N`, and what it logs, `broker-N.log`."""
        return self._cluster.directory.path

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = -1, **configs: str) -> None:
        """Makes a topic, with up to three replicas if nothing else is said; `configs` by Kafka's names, with _ for a
        dot. Raises KafkaError if the controller refuses.
        """
        _create_topic(self._client(), name, partitions, configs, replication_factor=replication_factor)

    def _client(self) -> AbstractContextManager[KafkaClient]:
        return _open_client(self.bootstrap_servers, self.client_settings)

    def kill(self, broker: int) -> None:
        """Ends a broker as a crash does. The others notice when its session with ZooKeeper ends, after 6 s if
        `zookeeper.session.timeout.ms` is not set.
        """
        self._broker(broker).kill()

    def stop(self, broker: int) -> None:
        """Stops a broker cleanly: it hands over what it leads. One that takes longer than 30 s is killed."""
        self._broker(broker).stop(time.monotonic() + _START_SECONDS)

    def start(self, broker: int) -> None:
        """Starts a broker again that was killed or stopped; returns when clients may connect to it. Raises AccessError,
        with what it said, if it does not start.
        """
        self._broker(broker)
        self._cluster.start_broker(broker)

    def pause(self, broker: int) -> None:
        """Has a broker do nothing any more, and answer nothing, although its connections stay open."""
        self._broker(broker).pause()

    def resume(self, broker: int) -> None:
        self._broker(broker).resume()

    def controller(self, timeout_s: float = _HEALTHY_SECONDS) -> int:
        """Returns the controller's id, and waits for a controller if there is none. Raises AccessError if none is
        elected in that time.
        """
        deadline = time.monotonic() + timeout_s
        while (found := self._cluster.find_controller()) is None:
            if time.monotonic() > deadline:
                raise AccessError(f"the cluster has no controller after {timeout_s:.0f} s", where=str(self.data_dir))
            time.sleep(_POLL_SECONDS)
        return found

    def wait_until_healthy(self, timeout_s: float = _HEALTHY_SECONDS) -> None:
        """Returns when the brokers that run are all that the cluster counts, agree on the controller and know the
        topics that it knows, and each of their replicas is in sync with a leader. Raises AccessError, with what is not
        well, if that takes longer.
        """
        self._cluster.wait_until_healthy(timeout_s)

    def _broker(self, broker: int) -> BrokerProcess:
        found = self._cluster.brokers.get(broker)
        if found is None:
            raise UsageError(f"there is no broker {broker}: the brokers are {', '.join(map(str, self.brokers))}")
        return found


@contextmanager
def running_broker(
    data_dir: Path | str | None = None, *, security: str = "plaintext", **settings: str
) -> Iterator[RunningBroker]:
    """Runs a broker in a thread of this process. `settings` are the broker's, with _ for a dot; without a `data_dir` it
    gets one that is deleted at the end. `security` is its listener's protocol, as Kafka names it: certificates, and a
    user with a password, are made for it, and its `client_settings` have them.

    Raises AccessError if the directory or an address can't be used, KafkaError for values that are none, UsageError for
    settings that plog does not have or does not act on, and for those that ask for security that plog does not have.
    """
    with _secured(security) as secured, _directory(data_dir) as directory:
        thread = _BrokerThread(directory, _config_of(settings, secured.broker_settings))
        thread.start()
        try:
            address = thread.wait_until_ready()
            secured.create_user(address, directory)
            yield RunningBroker(address, directory, secured.client_settings(address), _is_owners=True)
        finally:
            thread.stop()


@contextmanager
def running_server(
    data_dir: Path | str | None = None, *, security: str = "plaintext", **settings: str
) -> Iterator[RunningServer]:
    """Runs `plog serve` as a process of its own, which does not outlive this one. Raises RuntimeError, with what it
    said, if it does not start; otherwise what `running_broker` raises.
    """
    from core.broker.config.broker_config import EPHEMERAL_SETTINGS
    from core.processes.broker_process import BrokerProcess
    from core.processes.free_port import ensure_free
    from core.processes.process_group import ProcessGroup

    with (
        _secured(security) as secured,
        _directory(data_dir) as directory,
        tempfile.TemporaryDirectory(prefix="plog-server-") as beside,
        ProcessGroup() as group,
    ):
        config = _config_of(settings, secured.broker_settings)
        listeners = config.listeners_or(_ANY_PORT)
        given = {**EPHEMERAL_SETTINGS, **_named(settings)}
        if config.served_listeners:  # free ports are chosen here, so that it has the same after a restart
            listeners = [replace(one, address=str(ensure_free(one.endpoint))) for one in listeners]
            given["listeners"] = ",".join(map(str, listeners))
        process = BrokerProcess(
            config.given_node_id or 1,
            directory,
            listeners[0].endpoint,
            arguments=[
                *secured.arguments,
                "--lock-timeout",
                "0",
                *(f"--set={key}={value}" for key, value in given.items()),
            ],
            group=group,
            beside=Path(beside, "server"),
            is_placed=not config.served_listeners,
        )
        try:
            _start(process)
        except AccessError as error:
            raise RuntimeError(f"plog serve did not start: {process.log.read_text()}") from error
        try:
            address = str(process.endpoint)
            secured.create_user(address, directory)
            yield RunningServer(address, directory, secured.client_settings(address), _is_owners=True, _process=process)
        finally:
            process.stop(time.monotonic() + _START_SECONDS)


def _start(process: BrokerProcess) -> None:
    process.start()
    deadline = time.monotonic() + _START_SECONDS
    while not process.look_whether_ready():
        if time.monotonic() > deadline:
            process.kill()
            raise AccessError(f"plog serve is not ready after {_START_SECONDS:.0f} s", where=str(process.directory))
        time.sleep(0.005)


@contextmanager
def running_cluster(
    data_dir: Path | str | None = None,
    *,
    brokers: int = 3,
    features: str | Sequence[str] = (),
    security: str = "plaintext",
    **settings: str,
) -> Iterator[RunningCluster]:
    """Runs a ZooKeeper and so many brokers, as `plog cluster start` does; `settings` are those of each broker, with _
    for a dot. It needs the extras `cluster` and `spark`. Without a `data_dir` it gets one that is deleted at the end;
    a cluster with one of its own is stopped cleanly, and can be started there again. With `security`, as for
    `running_broker`, the brokers reach each other by it, too.

    `features` are what `plog cluster start --feature` takes: `none`, or FEATURE=LEVEL, once or several times.

    Raises AccessError if an extra or Java is missing, the directory can't be used, or a broker does not start;
    KafkaError for values that are none, UsageError for settings and features that plog does not have, and for settings
    that each broker has of its own, such as `listeners`.
    """
    from core.processes.local_cluster import ClusterOptions, LocalCluster

    ensure_obeyed(settings, is_cluster=True)
    with contextlib.ExitStack() as stack:
        secured, directory = stack.enter_context(_secured(security)), stack.enter_context(_directory(data_dir))
        options = ClusterOptions(
            brokers=brokers,
            listen=(_ANY_PORT,),
            settings=_named(settings),
            arguments=secured.arguments,
            features=[features] if isinstance(features, str) else features,
            security=_security(secured.first_settings()),
        )
        cluster = stack.enter_context(LocalCluster(directory, options))
        cluster.start()
        try:
            secured.create_user(cluster.bootstrap_servers)
            yield RunningCluster(cluster, secured.client_settings(cluster.bootstrap_servers))
        finally:
            if data_dir is not None:
                cluster.stop()


_MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class _Secured:
    """The security of a broker for tests; `folder` has the files of `plog cert dev`, or is None without any."""

    protocol: str
    folder: Path | None
    passwords: Mapping[str, str]

    @property
    def arguments(self) -> list[str]:
        """Those of `plog serve`; others on this machine see them, and not the file."""
        return [] if self.folder is None else ["--config", str(self.folder / "server.properties")]

    @property
    def broker_settings(self) -> dict[str, str]:
        from core.common.properties_file import read_properties

        if self.folder is None:
            return {}
        listeners = f"{self.protocol}://{_ANY_PORT}"
        return {**read_properties(self.folder / "server.properties"), "listeners": listeners}

    def client_settings(self, bootstrap_servers: str) -> dict[str, str]:
        from core.common.properties_file import read_properties

        settings = {} if self.folder is None else read_properties(self.folder / "client.properties")
        return {**settings, "bootstrap.servers": bootstrap_servers}

    def first_settings(self, bootstrap_servers: str = "127.0.0.1:0") -> dict[str, str]:
        """Returns the settings of clients before the user of SCRAM is there: the broker's file has it for PLAIN."""
        settings = self.client_settings(bootstrap_servers)
        settings.pop("sasl.jaas.config", None)
        for name, password in self.passwords.items():
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": password}
        return settings

    def create_user(self, address: str, directory: Path | None = None) -> None:
        """Creates the user of SCRAM in a broker, or a cluster, that runs."""
        from core.client.admin.security_admin import ScramCredential, SecurityAdmin

        for name, password in self.passwords.items():
            with _open_client(address, self.first_settings(address), directory) as client:
                for mechanism in ("SCRAM-SHA-256", _MECHANISM):
                    credential = ScramCredential(name, mechanism, _ITERATIONS)
                    SecurityAdmin(client).set_password(credential, password, allows_plaintext=True)


def protocol_of(security: object, shown: str = "security={!r}") -> str:
    """Returns Kafka's name of the protocol. Raises UsageError for a name that is none; `shown` is how it has it."""
    from core.security.client_settings import PROTOCOLS

    if str(security).upper() not in PROTOCOLS:
        raise UsageError(f"{shown.format(security)}: expected one of {', '.join(PROTOCOLS).lower()}")
    return str(security).upper()


@contextmanager
def _secured(security: str) -> Iterator[_Secured]:
    protocol = protocol_of(security)
    if protocol == "PLAINTEXT":
        yield _Secured(protocol, None, {})
        return
    try:
        from core.client.net.development_certificates import DevelopmentSecurity, make_development_files
    except ImportError as error:
        raise UsageError(
            f"security={security!r} needs more packages: {error.name}", hint="pip install 'plog-kafka[security]'"
        ) from error

    with tempfile.TemporaryDirectory(prefix="plog-security-") as folder:
        wanted = DevelopmentSecurity(protocol, mechanism=_MECHANISM)
        yield _Secured(protocol, Path(folder), make_development_files(Path(folder), wanted, datetime.now(UTC)))


@contextmanager
def _open_client(
    bootstrap_servers: str, client_settings: Mapping[str, str], directory: Path | None = None
) -> Iterator[KafkaClient]:
    """With a `directory`, its owner is the client, if a broker of this machine serves it."""
    from core.client.net.kafka_client import Connector, KafkaClient
    from core.client.net.owner_socket import connect_as_owner
    from core.common.endpoint import parse_bootstrap

    security = _security(client_settings)
    addresses = parse_bootstrap(bootstrap_servers, security.protocol)
    connector = Connector(security)
    if directory is not None:
        connect_as_owner(connector, directory, addresses)
    client = KafkaClient(addresses, connector=connector)
    try:
        yield client
    finally:
        client.close()


def _security(client_settings: Mapping[str, str]) -> ClientSecurity:
    from core.client.net.client_config_files import replace_references
    from core.security.client_settings import parse_client_settings

    return parse_client_settings(replace_references(client_settings, "client_settings")).security


def _create_topic(
    opened: AbstractContextManager[KafkaClient],
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    *,
    replication_factor: int = -1,
) -> None:
    from core.client.admin.admin import Admin

    with opened as client:
        Admin(client).create_topic(
            name, partitions=partitions, replication_factor=replication_factor, configs=_named(configs)
        )


_OF_CLUSTERS = ("brokers", "features")
"""What the mark of a cluster has beside settings."""


def ensure_obeyed(settings: Mapping[str, object], *, is_cluster: bool = False, shown: str = "{}") -> None:
    """Raises UsageError for a setting, with _ or a dot in its name, that would change nothing: a test would be about
    something else than it says. `shown` is how the message has its name.
    """
    from core.broker.config.broker_settings import BROKER_CONFIG
    from core.common.printable import did_you_mean

    own: Mapping[str, str] = {}
    if is_cluster:
        from core.processes.local_cluster import SETTINGS_OF_EACH_BROKER as own  # noqa: N811 - for this function

    known = {key.name.replace(".", "_"): key for key in BROKER_CONFIG}
    for given in settings:
        name = given.replace(".", "_")
        if name not in known:
            near = did_you_mean(name, [*known, *(_OF_CLUSTERS if is_cluster else ())])
            hint = f"plog_cluster has {name}" if name in _OF_CLUSTERS else near
            raise UsageError(f"{shown.format(given)}: no such setting", hint=hint)
        if known[name].is_kept_only:
            raise UsageError(f"{shown.format(given)}: plog keeps this setting and does not act on it")
        if known[name].name in own:
            raise UsageError(f"{shown.format(given)}: each broker has its own")
        if not is_cluster and name in ("log_dir", "log_dirs"):
            raise UsageError(f"{shown.format(given)}: the directory is another one", hint="running_server has data_dir")
        if not is_cluster and name.startswith(("zookeeper_", "plog_zookeeper_")):
            raise UsageError(f"{shown.format(given)}: a broker alone has no ZooKeeper", hint="plog_cluster has one")


def _config_of(settings: Mapping[str, str], defaults: Mapping[str, str]) -> BrokerConfig:
    """Parses the settings of a broker for a test; raises as `running_broker` says."""
    from core.broker.config.broker_config import EPHEMERAL_SETTINGS, BrokerConfig
    from core.broker.config.security_requirements import ensure_asks_for_none

    config = BrokerConfig.parse({**EPHEMERAL_SETTINGS, **defaults, **_named(settings)})
    ensure_asks_for_none(config)
    ensure_obeyed(settings)
    return config


def _named(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): str(value) for key, value in settings.items()}


@contextmanager
def _directory(data_dir: Path | str | None) -> Iterator[Path]:
    if data_dir is not None:
        yield Path(data_dir)
        return
    temporary = Path(tempfile.mkdtemp(prefix="plog-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _BrokerThread(threading.Thread):
    """Runs a broker and its loop; `stop` returns when all of it is on the disk."""

    def __init__(self, directory: Path, config: BrokerConfig) -> None:
        super().__init__(name="plog-broker", daemon=True)
        self._directory = directory
        self._config = config
        self._is_decided = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: SocketServer | None = None

    def run(self) -> None:
        from core.broker.broker_server import BrokerServer
        from core.broker.serving.loop_runtime import LoopRuntime
        from core.broker.serving.loop_tasks import new_runner

        try:
            with new_runner() as runner:
                runtime = LoopRuntime(runner.get_loop(), self._directory)
                node = BrokerServer(self._directory, self._config, runtime=runtime)
                try:
                    runner.run(self._serve(node, runtime))
                finally:
                    node.close()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._failure = error
        finally:
            self._is_decided.set()

    async def _serve(self, node: BrokerServer, runtime: LoopRuntime) -> None:
        from core.broker.serving.socket_server import SocketServer

        server = SocketServer(node, runtime, self._config.listeners_or(_ANY_PORT))
        await server.start()
        self._loop, self._server = asyncio.get_running_loop(), server
        self._is_decided.set()
        await server.run()

    def wait_until_ready(self) -> str:
        """Returns the address; raises the error that kept the broker from starting."""
        self._is_decided.wait(_START_SECONDS)
        if self._failure is not None:
            raise self._failure
        assert self._server is not None
        return str(self._server.endpoint)

    def stop(self) -> None:
        if self._loop is not None and self._server is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._server.stop)
        self.join()
