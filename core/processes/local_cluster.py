"""A whole cluster on one machine, for tests and for learning: a ZooKeeper, and brokers that are `plog serve`.

Each is a separate process, and none of them outlives this one (`process_group.py`). Their files are in one
directory: a start on a directory that has a cluster goes on with it.

The directory:

    .lock                 held by the process that runs the cluster, and by its children until they end
    cluster.properties    the last addresses of the brokers and of ZooKeeper, which the next start uses again
                          (a port 0 is not chosen yet)
    zookeeper/            ZooKeeper's data directory, with its log
    broker-N/             the data directory of broker N
    broker-N.log          what broker N prints
    broker-N.ready        its address, while it runs and clients may connect
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Self

from core.broker.config.broker_config import EPHEMERAL_SETTINGS, BrokerConfig
from core.client.net.retry import Retry
from core.cluster.description.feature_args import levels_of_new_cluster
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import AccessError, DirectoryLockedError, UsageError
from core.common.filesystem import FileSystem, access_error, accessing
from core.common.properties_file import parse_properties
from core.files.directory_lock import DirectoryLock, find_lock_holder
from core.files.file_names import CLUSTER_PROPERTIES, META_PROPERTIES, is_cluster
from core.processes.broker_process import BrokerProcess
from core.processes.cluster_check import find_controller, find_trouble
from core.processes.free_port import ensure_free, find_free, is_free
from core.processes.process_group import ProcessGroup
from core.processes.zookeeper_process import ZooKeeperProcess, find_jars
from core.security.client_security import ClientSecurity
from core.spark.java_home import find_java
from core.zookeeper.cluster_bootstrap import finalize_features, remove_registrations
from core.zookeeper.session_thread import SessionThread
from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect

_LOCK_SECONDS = 10.0
"""How long processes may take to end after their owner was killed."""


class ClusterAddresses(NamedTuple):
    """The brokers' addresses, broker 1 first; `zookeeper` is None if the cluster uses another ZooKeeper."""

    brokers: tuple[Endpoint, ...] = ()
    zookeeper: Endpoint | None = None


class ClusterDirectory:
    """Owned by one task, from `acquire` until its lock is released."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.zookeeper = self.path / "zookeeper"
        self.lock = DirectoryLock(self.path)
        """A process that inherits its descriptor keeps the directory locked, too."""

    def broker(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}"

    def acquire(self) -> None:
        """Creates and locks the directory. Raises UsageError for the directory of a single broker, AccessError if it
        can't be created, or another process runs a cluster there.
        """
        if (self.path / META_PROPERTIES).exists() and not is_cluster(self.path):
            raise UsageError(
                f"{self.path} is a broker's data directory", hint="give the cluster a --data-dir of its own"
            )
        with accessing(self.path, "make"):
            FileSystem().make_data_directory(self.path)
        try:
            self.lock.acquire(0.0 if find_lock_holder(self.path) else _LOCK_SECONDS)
        except DirectoryLockedError as error:
            error.hint = "that cluster runs: use it, stop it, or take another --data-dir"
            raise

    def read(self) -> ClusterAddresses:
        """Reads the last addresses. Raises UsageError for a file that plog did not write."""
        path = self.path / CLUSTER_PROPERTIES
        try:
            properties = parse_properties(path.read_text(), str(path))
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
                f"{path}: {error.message}",
                hint="delete the file: the cluster then gets other ports, and keeps its records",
            ) from error

    def write(self, addresses: ClusterAddresses) -> None:
        """Writes the addresses. Raises AccessError if that fails."""
        path = self.path / CLUSTER_PROPERTIES
        text = "# Written by each start of the cluster.\nbrokers=" + ",".join(map(str, addresses.brokers))
        text += f"\nzookeeper={addresses.zookeeper or ''}\n"
        try:
            FileSystem().write_atomic(path, text.encode())
        except OSError as error:
            raise access_error(error, path, "write") from error


DEFAULT_BROKERS = 3
_FIRST_BROKER = Endpoint("127.0.0.1", 9092)
_ZOOKEEPER = Endpoint("127.0.0.1", 2181)

SETTINGS_OF_EACH_BROKER: Mapping[str, str] = {
    "node.id": "the brokers are 1 to N",
    "broker.id": "the brokers are 1 to N",
    "broker.rack": "use --rack",
    "listeners": "use --listen",
    "advertised.listeners": "use --listen",
    "log.dirs": "use --data-dir",
    "log.dir": "use --data-dir",
    "zookeeper.connect": "use --zookeeper",
}
"""Settings that must differ between brokers, or have an option of their own; and the hint for the user."""

_ZOOKEEPER_SETTINGS = {"tickTime": "500", "maxSessionTimeout": "60000"}
"""A session may be as short as two ticks."""
_JAVA_OPTIONS = ("-Xmx64m", "-XX:TieredStopAtLevel=1")
"""For a JVM that starts fast and stays small."""

_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.02


def settings_for_tests(brokers: int) -> dict[str, str]:
    """Returns settings that replace Kafka's defaults in tests: as many replicas as possible, up to three, and short
    waits.
    """
    replicas = str(min(3, brokers))
    return {
        **EPHEMERAL_SETTINGS,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "zookeeper.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "10000",
        "controlled.shutdown.retry.backoff.ms": "200",
    }


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The user's options. `brokers`: None for as many as the directory has, or three. `listen`: an address for each
    broker, or one from whose port on they get consecutive ports (port 0: free ones); if empty, they get their last
    ones, or 9092 and following, or other free ones. `zookeeper`: the user's own. `features`: the levels that a new
    cluster finalizes, as `levels_of_new_cluster` reads them.
    """

    brokers: int | None = None
    listen: Sequence[Endpoint] = ()
    zookeeper: str | None = None
    racks: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    """Further arguments of `plog serve`, for each broker."""
    features: Sequence[str] = ()
    security: ClientSecurity | None = None
    """How this process reaches the brokers; None for plaintext."""


_LAST_PORT = 65535


class LocalCluster:
    """A context manager: it locks the directory, and at its end kills all processes that still run. Owned by one
    thread, except for `kill`.
    """

    def __init__(
        self, directory: Path, options: ClusterOptions, *, note: Callable[[str], None] = lambda _text: None
    ) -> None:
        """`note` is called with messages for the user, for example about another port. Raises UsageError for features
        that plog does not have.
        """
        self.directory = ClusterDirectory(directory)
        self.brokers: dict[int, BrokerProcess] = {}
        self.zookeeper: ZooKeeperProcess | None = None
        """None if the user has another one."""
        self._options = options
        self._note = note
        self._group = ProcessGroup()
        self._has_lost_zookeeper = False
        """It was reported as ended; the user may have started it again by hand since."""
        self._features = levels_of_new_cluster(options.features)

    def __enter__(self) -> Self:
        """Raises AccessError if Java or an extra is missing, or the directory is taken; UsageError for options that
        contradict each other or the directory. Nothing has been started then.
        """
        ensure_possible(needs_zookeeper=self._options.zookeeper is None)
        self.directory.acquire()
        try:
            self._place()
        except BaseException:
            self.directory.lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._group.__exit__()
        for broker in self.brokers.values():
            broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.stop()
        self.directory.lock.release()

    # --- addresses

    def _place(self) -> None:
        if self._options.zookeeper is None:
            self._ensure_no_other_zookeeper()
        known = self.directory.read()
        count = self._count(known)
        taken: list[Endpoint] = []
        for number in range(count):
            taken.append(self._address(number, known, taken))
        connect = self._options.zookeeper
        if connect is None:
            self.zookeeper = self._make_zookeeper(known)
            connect = str(self.zookeeper.endpoint)
        self.connect = connect
        settings = {**settings_for_tests(count), **self._options.settings}
        arguments = ["--zookeeper", connect, *self._options.arguments]
        if self._options.zookeeper is None or self._begins(range(1, count + 1)):
            arguments.append("--new-cluster")
        arguments += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        racks = self._options.racks
        for number, endpoint in enumerate(taken):
            rack = ["--rack", racks[number % len(racks)]] if racks else []
            self.brokers[number + 1] = BrokerProcess(
                number + 1,
                self.directory.broker(number + 1),
                endpoint,
                arguments=[*arguments, *rack],
                group=self._group,
                keeps=[self.directory.lock.descriptor],
            )
        timeout_ms = BrokerConfig.parse(settings).zookeeper_session_timeout_ms
        self._zookeeper_config = ZooKeeperConfig(*parse_zookeeper_connect(connect), timeout_ms)

    def _ensure_no_other_zookeeper(self) -> None:
        """Raises DirectoryLockedError if the user has started the cluster's ZooKeeper by hand. Otherwise the start
        would choose another port, and wait for the directory.
        """
        directory = self.directory.zookeeper
        holder = find_lock_holder(directory)
        if holder is not None:
            raise DirectoryLockedError(
                f"ZooKeeper's directory {directory} is in use by {holder}",
                where=str(directory),
                holder=str(holder),
                hint="somebody has started this ZooKeeper by hand: stop it, and the cluster starts it again",
            )

    def _count(self, known: ClusterAddresses) -> int:
        listen, wanted = self._options.listen, self._options.brokers
        count = wanted or len(known.brokers) or (len(listen) if len(listen) > 1 else DEFAULT_BROKERS)
        before = max((n for n in range(1, len(known.brokers) + 1) if self._was_member(n)), default=0)
        if count < before:
            raise UsageError(
                f"the cluster in {self.directory.path} has {before} brokers, and {count} of them would not have all "
                "its records",
                hint=f"--brokers {before}, or another --data-dir",
            )
        if len(listen) > 1 and len(listen) != count:
            raise UsageError(
                f"there are {count} brokers, and --listen has {len(listen)} addresses",
                hint="give one for each broker, or a single one: its port is the first broker's, the others take the "
                "ports after it",
            )
        if len(listen) == 1 and listen[0].port and listen[0].port + count - 1 > _LAST_PORT:
            raise UsageError(
                f"{count} brokers from port {listen[0].port} on need ports up to {listen[0].port + count - 1}, and "
                f"{_LAST_PORT} is the last one",
                hint=f"--listen {listen[0].host}:{_LAST_PORT - count + 1}, or an address for each broker",
            )
        if len(self._options.racks) > count:
            raise UsageError(f"there are {len(self._options.racks)} racks for {count} brokers")
        return count

    def _address(self, number: int, known: ClusterAddresses, taken: Sequence[Endpoint]) -> Endpoint:
        """Returns a broker's address; with port 0 the broker chooses one."""
        listen = self._options.listen
        first = listen[0] if listen else _FIRST_BROKER
        given = listen[number] if len(listen) > 1 else Endpoint(first.host, first.port and first.port + number)
        if listen and given.port:
            if given in taken:
                raise UsageError(f"--listen names {given} twice")
            return ensure_free(given)
        had = known.brokers[number] if number < len(known.brokers) else None
        wanted = had if had is not None and had.host == given.host else given
        if wanted.port == 0 or (wanted not in taken and is_free(wanted)):
            return wanted
        others = [*taken, *known.brokers]
        found = find_free(wanted, others) if given.port else given
        if wanted not in taken:
            where = f"port {found.port}" if found.port else "a free port"
            self._note(f"port {wanted.port} is taken: broker {number + 1} listens on {where}")
        return found

    def _make_zookeeper(self, known: ClusterAddresses) -> ZooKeeperProcess:
        listen = self._options.listen
        usual = Endpoint(_ZOOKEEPER.host, 0) if listen and not listen[0].port else _ZOOKEEPER
        wanted = known.zookeeper or usual
        if not is_free(wanted):
            found = find_free(wanted)
            self._note(f"port {wanted.port} is taken: ZooKeeper listens on port {found.port}")
            wanted = found
        return ZooKeeperProcess(
            self.directory.zookeeper,
            ensure_free(wanted),
            group=self._group,
            settings=_ZOOKEEPER_SETTINGS,
            java_options=_JAVA_OPTIONS,
        )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(broker.endpoint) for broker in self.brokers.values())

    # --- starting and stopping

    def start(self, on_ready: Callable[[BrokerProcess], None] = lambda _broker: None) -> None:
        """Starts all processes; calls `on_ready` with each broker that clients may connect to. Returns when the brokers
        are one cluster. Raises AccessError if a process ends, or it takes too long.
        """
        self._write_addresses()  # for the next start, if this one is stopped before it is ready
        if self.zookeeper is not None:
            self.zookeeper.start()
            self.zookeeper.wait_until_ready()
        self._prepare()
        for broker in self.brokers.values():
            broker.start()
        deadline = monotonic() + _START_SECONDS
        for broker in self.brokers.values():
            self._wait_for(broker, deadline)
            on_ready(broker)
        self._write_addresses()
        self.directory.lock.announce(self.bootstrap_servers)
        self.wait_until_healthy(deadline - monotonic())

    def _write_addresses(self) -> None:
        brokers = tuple(broker.endpoint for broker in self.brokers.values())
        self.directory.write(ClusterAddresses(brokers, self.zookeeper.endpoint if self.zookeeper is not None else None))

    def start_broker(self, node_id: int) -> None:
        """Restarts a broker that has ended; returns when clients may connect to it. Raises AccessError as `start`."""
        broker = self.brokers[node_id]
        if broker.is_running:
            return
        with SessionThread(self._zookeeper_config) as thread:
            self._forget_dead(thread, [node_id])
        broker.start()
        self._wait_for(broker, monotonic() + _START_SECONDS)

    def _prepare(self) -> None:
        """Removes old registrations of the brokers, and finalizes a new cluster's features, so that clients see them as
        soon as they find a broker. An existing cluster keeps its features.
        """
        with SessionThread(self._zookeeper_config, makes_chroot=self._begins(self.brokers)) as thread:
            self._forget_dead(thread, self.brokers)
            if thread.session.has_made_chroot:
                self._note(f"ZooKeeper had no node {self._zookeeper_config.chroot}: it is made for the new cluster")
            is_new = thread.run(finalize_features(thread.session, self._features))
        if self._options.features and not is_new:
            self._note("the cluster is there already, and keeps its features: plog cluster features changes them")

    def _begins(self, brokers: Iterable[int]) -> bool:
        """Returns whether no broker was a member before. Otherwise a missing path in ZooKeeper is a typing error."""
        return not any(map(self._was_member, brokers))

    def _was_member(self, node_id: int) -> bool:
        return (self.directory.broker(node_id) / META_PROPERTIES).exists()

    def _forget_dead(self, thread: SessionThread, node_ids: Collection[int]) -> None:
        """Removes registrations of killed brokers, so that these can register at once. They are dead: all of them held
        the directory's lock. Another ZooKeeper may have other brokers under these ids, so it is only asked whether it
        answers.
        """
        thread.run(remove_registrations(thread.session, node_ids if self.zookeeper is not None else ()))

    def _wait_for(self, broker: BrokerProcess, deadline: float) -> None:
        waiting = Retry(deadline - monotonic(), first_s=_LOOK_SECONDS)
        while not broker.look_whether_ready():
            if self.zookeeper is not None and not self.zookeeper.is_running and not self._has_lost_zookeeper:
                raise self.zookeeper.failure()
            if not waiting.wait():
                raise AccessError(
                    f"broker {broker.node_id} is not ready after {_START_SECONDS:.0f} s",
                    where=str(broker.directory),
                    hint=f"{broker.log} says what it waits for",
                )

    def find_controller(self) -> int | None:
        """See `cluster_check.find_controller`."""
        return find_controller(self.running(), self._options.security)

    def wait_until_healthy(self, seconds: float) -> None:
        """Returns when `find_trouble` finds nothing in the running brokers. Raises AccessError, with the problem, if it
        still does after so many seconds.
        """
        waiting = Retry(seconds, first_s=_LOOK_SECONDS)
        while (trouble := find_trouble(self.running(), self._options.security)) is not None:
            if not waiting.wait():
                raise AccessError(
                    f"the cluster is not well after {seconds:.0f} s: {trouble}",
                    where=str(self.directory.path),
                    hint=f"the logs are in {self.directory.path}",
                )

    def running(self) -> dict[int, Endpoint]:
        """Returns the addresses of the brokers that run and are not paused."""
        return {n: one.endpoint for n, one in self.brokers.items() if one.is_running and not one.is_paused}

    def find_losses(self) -> list[AccessError]:
        """Returns an error for each process that has ended by itself since the last call."""
        lost = [broker for broker in self.brokers.values() if broker.is_wanted and not broker.is_running]
        found = []
        for broker in lost:
            broker.is_wanted = False
            found.append(broker.failure())
            found[-1].hint = f"{broker.log} says more; {broker.command} starts it again"
        if self.zookeeper is not None and not self.zookeeper.is_running and not self._has_lost_zookeeper:
            self._has_lost_zookeeper = True
            found.append(self.zookeeper.failure())
            self.zookeeper.stop()  # this unlocks the directory, for one that the user starts
            found[-1].hint = (
                f"{self.zookeeper.log} says more; no leader is elected without it; {self.zookeeper.command} starts it "
                "again"
            )
        return found

    def stop(self) -> list[int]:
        """Stops one broker after the other, so that leaders hand over, then ZooKeeper. Returns the brokers that took
        too long, and were killed.
        """
        deadline = monotonic() + _STOP_SECONDS
        killed = [n for n, broker in reversed(self.brokers.items()) if not broker.stop(deadline)]
        if self.zookeeper is not None:
            self.zookeeper.stop()
        return killed

    def kill(self) -> None:
        """Kills all processes at once; a signal handler may call it."""
        self._group.kill()


def ensure_possible(*, needs_zookeeper: bool) -> None:
    """Raises AccessError if the extra for clusters, or anything that ZooKeeper needs, is not installed."""
    if find_spec("kazoo") is None:
        raise AccessError(
            "a cluster needs the package kazoo, which is not installed", hint="pip install 'plog-kafka[cluster,spark]'"
        )
    if needs_zookeeper:
        find_jars()
        find_java(os.environ, "ZooKeeper")


def parse_listen(text: str) -> tuple[Endpoint, ...]:
    """Reads HOST:PORT[,HOST:PORT..]; raises UsageError for anything else."""
    return tuple(parse_endpoint(one.strip()) for one in text.split(","))
