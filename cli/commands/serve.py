"""`plog serve`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cli.data_location import DATA_DIR, DIRECTORY, LOCK_TIMEOUT, default_data_dir
from cli.logging import LogFormat, start_logging
from cli.options import parse_settings
from cli.plog_command import command, new_app
from cli.stop_signals import leave_terminal
from cli.terminal import say
from core.common.command_option import ensure_compatible, excludes, flag, option, options
from core.common.endpoint import DEFAULT_PORT, Endpoint, parse_endpoint
from core.common.errors import AccessError, KafkaError, PlogError, UsageError
from core.common.fd_limits import LEAST_DESCRIPTORS, raise_limit
from core.common.properties_file import read_properties

if TYPE_CHECKING:
    from cli.first_topics import FirstTopics
    from core.broker.broker_server import BrokerServer
    from core.broker.config.broker_config import BrokerConfig
    from core.broker.replication.zookeeper_registration import ZooKeeperRegistration
    from core.broker.serving.listener_endpoints import Listener
    from core.broker.serving.loop_runtime import LoopRuntime
    from core.broker.serving.socket_server import SocketServer
    from core.cluster.image.metadata_image import MetadataImage
    from core.cluster.image.security_image import SecurityImage

_SWITCH_INTERVAL_S = 0.0001
"""How long a thread waits for the interpreter lock before it gets it; Python's own 5 ms are longer than a request, or a
flush, takes.
"""

_ZOOKEEPER_CONNECT = "zookeeper.connect"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_CLOSING_THREADS = 8
"""Threads that close files: more threads would only wait for the disk."""

app = new_app()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """Holds the options of `plog serve`; immutable."""

    listen: str | None = option("Where to listen; port 0 takes a free one.", metavar="HOST:PORT")
    listener: Sequence[str] = options(
        "A listener with a name, for a broker that has several of them.", metavar="NAME://HOST:PORT"
    )
    advertise: Sequence[str] = options(
        "The address that clients connect to, if it is not the address that the broker listens on. With several "
        "listeners, name one: NAME://HOST:PORT.",
        metavar="[NAME://]HOST:PORT",
    )
    data_dir: Path | None = DIRECTORY
    config: Path | None = option("A server.properties file, as for Kafka's broker.", metavar="FILE")
    settings: Sequence[str] = options("A broker setting.", "--set", metavar="KEY=VALUE")
    topics: Sequence[str] = options(
        "Create this topic before the broker is ready, unless it exists.",
        "--topic",
        metavar="NAME[:PARTITIONS][:KEY=VALUE]..",
        envvar="PLOG_TOPICS",
    )
    seeds: Sequence[str] = options(
        "Write the records of a file, also a .gz, to a topic before the broker is ready, unless it ever had records.",
        "--seed",
        metavar="TOPIC=FILE",
        envvar="PLOG_SEEDS",
    )
    seed_format: Literal["lines", "envelope", "csv", "raw"] | None = option(
        "The format of --seed. Default: csv for .csv, or else lines.", show_default=False
    )
    ephemeral: bool = flag("For tests: the data is deleted at the end, and groups do not wait for more members.")
    zookeeper: str | None = option(
        "Join the cluster in this ZooKeeper, at this path: of Kafka's brokers, or of plogs.",
        metavar="HOST:PORT,..[/CHROOT]",
    )
    new_cluster: bool = flag("With --zookeeper: begin a new cluster, if there is none at that path.")
    node_id: int | None = option("This broker's id, if the directory has none yet.", metavar="N", min=0)
    rack: str | None = option("The rack, or the zone, that this broker is in.", metavar="NAME")
    read_only: bool = flag("Change nothing in the data directory; clients can only read.")
    insecure_ignore_security: bool = flag(
        "Serve without any security, even if the configuration or the directory asks for it."
    )
    metrics_listen: str | None = option(
        "Where to serve /metrics for Prometheus; port 0 takes a free one.", metavar="HOST:PORT"
    )
    log_requests: bool = flag(
        "Log every request and its answer as JSON, with the size of records instead of their content."
    )
    log_format: LogFormat = option("The format of log lines.", default=LogFormat.text)
    ready_file: Path | None = option("Write HOST:PORT to this file once clients may connect.", metavar="FILE")
    lock_timeout: float = LOCK_TIMEOUT

    def ensure_consistent(self) -> None:
        """Raises UsageError for options that do not go together."""
        if self.listen and self.listener:
            raise UsageError(
                "--listen and --listener both say where to listen: use one of them",
                hint=f"--listener PLAINTEXT://{self.listen} is the same as --listen {self.listen}",
            )
        ensure_compatible(self, _RULES)
        if self.new_cluster and not self.zookeeper:
            raise UsageError("--new-cluster begins a cluster in a ZooKeeper", hint="--zookeeper HOST:PORT/CHROOT")
        if self.ephemeral and self.data_dir is not None and os.environ.get(DATA_DIR) != str(self.data_dir):
            raise UsageError("--ephemeral makes a data directory of its own; leave --data-dir out")


_RULES = (
    excludes("ephemeral", "read_only",
             "--ephemeral begins with nothing, and --read-only adds nothing: use one of them"),
    excludes("zookeeper", "read_only", "--read-only adds nothing, and a member of a cluster has to: use one of them"),
    excludes("read_only", "topics seeds seed_format",
             "--read-only adds nothing, and --topic and --seed have to: use one of them"),
)  # fmt: skip


@command(
    app,
    "plog serve --listen 127.0.0.1:9092 --data-dir ./data --set num.partitions=4",
    "plog serve --listener INSIDE://:29092 --listener OUTSIDE://:9092 --advertise OUTSIDE://localhost:9092",
    "plog serve --ephemeral --topic orders:6 --topic audit:1:cleanup.policy=compact",
)
def serve(request: ServeRequest) -> None:
    """Run a broker that every Kafka client can talk to.

    When clients may connect, it prints one line, `ready HOST:PORT ...`. SIGTERM, SIGHUP or Ctrl-C stops it cleanly.
    """
    start_logging(request.log_format, log_requests=request.log_requests)
    _raise_open_files_limit()
    _interrupt_nobody()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    config = _broker_config(request)
    request.ensure_consistent()
    listeners = _where_to_listen(request.listen, config)
    metrics = parse_endpoint(request.metrics_listen, 0) if request.metrics_listen else None
    first = None
    if request.topics or request.seeds or request.seed_format:
        from cli.first_topics import parse_first_topics

        is_kafka_3 = request.zookeeper is not None
        first = parse_first_topics(request.topics, request.seeds, request.seed_format, is_kafka_3=is_kafka_3)
    with _data_directory(request.data_dir, config, is_ephemeral=request.ephemeral) as directory:
        _serve(request, directory, config, listeners, metrics, first)


def _where_to_listen(listen: str | None, config: BrokerConfig) -> list[Listener]:
    """Returns the listeners; `listen` is the address of a single one, in place of the configured ones."""
    if listen is None:
        return config.listeners_or(Endpoint("127.0.0.1", DEFAULT_PORT))
    config.ensure_listeners_fit()
    return [config.main_listener_at(parse_endpoint(listen))]


@contextlib.contextmanager
def _data_directory(named: Path | None, config: BrokerConfig, *, is_ephemeral: bool) -> Iterator[Path]:
    if is_ephemeral:
        with tempfile.TemporaryDirectory(prefix="plog-") as temporary:
            yield Path(temporary)
        return
    configured = [Path(directory) for directory in config.data_directories]
    yield named or (configured[0] if configured else default_data_dir())


def _raise_open_files_limit() -> None:
    """Raises the limits of files and connections as far as the system allows. Raises AccessError if that is too low."""
    limit = raise_limit()
    if limit < LEAST_DESCRIPTORS:
        raise AccessError(
            f"this process may open {limit} files and connections, a broker needs {LEAST_DESCRIPTORS} at least",
            hint="raise the limit: ulimit -n",
        )


def _interrupt_nobody() -> None:
    """Lets requests wake the broker, but not preempt other processes: on a busy machine the client fills its next
    batches meanwhile, and the broker handles them together (docs/adr/0018). A policy that the user chose is kept.
    """
    with contextlib.suppress(AttributeError, OSError):  # not on Linux; not allowed in this container
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _broker_config(request: ServeRequest) -> BrokerConfig:
    from core.broker.config.broker_config import EPHEMERAL_SETTINGS, BrokerConfig
    from core.broker.serving.listener_endpoints import DEFAULT_PROTOCOL_MAP, listener_properties

    config, zookeeper, ignores_security = request.config, request.zookeeper, request.insecure_ignore_security
    properties = dict(EPHEMERAL_SETTINGS) if request.ephemeral else {}
    in_file = {} if config is None else _with_references(read_properties(config), str(config))
    given = {"node.id": request.node_id, "broker.rack": request.rack}
    of_options = {name: str(value) for name, value in given.items() if value is not None}
    typed = _with_references(_without_passwords(parse_settings(request.settings) | of_options), "--set")
    properties |= in_file | typed
    if request.listener:
        known = properties.get("listener.security.protocol.map", DEFAULT_PROTOCOL_MAP)
        properties |= listener_properties(request.listener, known)
    try:
        parsed = replace(BrokerConfig.parse(properties), ignores_security=ignores_security)
    except KafkaError as error:
        named = [name for name in in_file if f" {name}: " in error.message and name not in typed]
        raise UsageError(f"{config}: {error.message}" if named else error.message) from None
    _say_what_changes_nothing(parsed, zookeeper)
    _ensure_open_to_everybody(parsed, is_member=zookeeper is not None)
    if not request.advertise:
        return parsed
    properties["advertised.listeners"] = ",".join(_advertised_listeners(parsed, request.advertise))
    return replace(BrokerConfig.parse(properties), ignores_security=ignores_security)


def _without_passwords(settings: dict[str, str]) -> dict[str, str]:
    if not any("ssl." in name or "sasl." in name for name in settings):
        return settings
    from cli.known_settings import resolve_passwords

    return resolve_passwords("--set", settings)


def _with_references(properties: dict[str, str], where: str) -> dict[str, str]:
    """Returns the properties with ${env:NAME}, ${file:PATH:KEY} and ${directory:PATH:FILE} replaced, as by Kafka's
    config providers. Raises UsageError for a value that plog heeds and another provider has.
    """
    if not any("${" in text for text in properties.values()):
        return properties
    from core.broker.config.broker_settings import find_broker_key
    from core.client.net.client_config_files import replace_references

    return replace_references(properties, where, is_heeded=lambda name: find_broker_key(name) is not None)


def _advertised_listeners(config: BrokerConfig, advertise: Sequence[str]) -> list[str]:
    """Returns advertised.listeners with the addresses of the command line, one for each listener."""
    names = [one.name for one in config.served_listeners] or [config.main_listener]
    found = {}
    if len(names) > 1:
        found = {name: str(endpoint) for name in names if (endpoint := config.find_advertised(name)) is not None}
    for text in advertise:
        name, separator, address = text.rpartition("://")
        if not separator and len(names) > 1:
            raise UsageError(
                f"--advertise {text} does not say which listener it is for: {', '.join(names)}",
                hint=f"--advertise {names[0]}://{text}",
            )
        if separator and name.upper() not in names:
            raise UsageError(f"--advertise {text}: there is no such listener", hint=f"one of {', '.join(names)}")
        found[name.upper() if separator else names[0]] = address
    return [f"{name}://{address}" for name, address in found.items()]


def _ensure_open_to_everybody(config: BrokerConfig, *, is_member: bool) -> None:
    """Raises UsageError for a configuration that asks for security that plog does not have, unless the user ignores
    that: then it warns.
    """
    from core.broker.config.security_requirements import ensure_asks_for_none, find_security_requirements

    ensure_asks_for_none(config, is_member=is_member)
    for name, why in find_security_requirements(config, is_member=is_member).items():
        say(f"warning: {name} ({why}) is ignored: anybody who reaches this broker may do everything")


def _say_what_changes_nothing(config: BrokerConfig, zookeeper: str | None) -> None:
    from cli.known_settings import say_unknown
    from core.broker.config.listener_security import find_unused_settings
    from core.broker.config.security_requirements import find_security_requirements

    asked = find_security_requirements(config)
    for name, text in config.unknown.items():
        if name == _ZOOKEEPER_CONNECT:
            _say_whether_it_joins(text.strip(), zookeeper)
        elif name not in asked:
            say_unknown(name)
    for name, why in find_unused_settings(config).items():
        if name not in asked:
            say(f"warning: {name} changes nothing: {why}")


def _say_whether_it_joins(configured: str, zookeeper: str | None) -> None:
    """Explains that only --zookeeper joins a cluster: a copy of a broker's disk must not (docs/adr/0022)."""
    if zookeeper is None:
        say(f"warning: {_ZOOKEEPER_CONNECT} joins no cluster: this broker serves its directory alone")
        say(f"hint: --zookeeper {configured} joins the cluster, with the same data directory and node id")
    elif zookeeper.strip() != configured:
        say(f"warning: {_ZOOKEEPER_CONNECT} is {configured}, and --zookeeper wins: {zookeeper}")


def _serve(
    request: ServeRequest,
    directory: Path,
    config: BrokerConfig,
    listeners: list[Listener],
    metrics: Endpoint | None,
    first: FirstTopics | None,
) -> None:
    from core.broker.broker_server import BrokerServer, without_collector
    from core.broker.config.listener_security import authenticates
    from core.broker.config.security_requirements import ensure_asks_for_none, ensure_open_to_everybody
    from core.broker.serving.listener_certificate import open_door
    from core.broker.serving.loop_runtime import LoopRuntime
    from core.broker.serving.loop_tasks import new_runner

    def check(image: MetadataImage, node_id: int) -> None:
        if not config.ignores_security:
            dynamic = config.with_dynamic(image.broker_configs(), image.broker_configs(node_id))
            ensure_asks_for_none(dynamic)
            is_authorized = config.authorizes(holds_acls=bool(image.security.acls))
            held = "" if is_authorized else _unheeded(image.security, dynamic).summary()
            for listener in listeners:
                open_door(dynamic, listener)  # raises UsageError for bad certificates before anything is changed
                if not authenticates(dynamic, listener):
                    ensure_open_to_everybody(held, listener.endpoint)

    for listener in () if _has_metadata(directory) else listeners:  # its metadata could say otherwise
        open_door(config, listener)
    with new_runner() as runner, contextlib.ExitStack() as stack:
        runtime = LoopRuntime(runner.get_loop(), directory)
        entry = None
        if request.zookeeper is not None:
            entry = _entry(request.zookeeper, config, listeners, runtime)
            stack.callback(lambda: runner.run(entry.close()))
            _run_whole(runner, entry.open(directory, config.given_node_id, may_begin=request.new_cluster))
        with without_collector():
            node = BrokerServer(
                directory,
                config,
                runtime=runtime,
                lock_timeout_s=request.lock_timeout,
                is_read_only=request.read_only,
                loads_late=True,
                check_metadata=check,
                entry=entry,
            )
        _say_what_is_obeyed(node, config, "" if entry is None else entry.security.summary)
        try:
            _run_whole(runner, _run(node, runtime, listeners, metrics, request.ready_file, entry=entry, first=first))
        finally:
            stack.close()
            runner.close()
            _answer_signals(node)
            node.close(threads=_CLOSING_THREADS)
            if request.ready_file is not None:
                request.ready_file.unlink(missing_ok=True)


def _has_metadata(directory: Path) -> bool:
    """Returns whether a broker was here before; not if that can't be found out."""
    from core.files.file_names import CLUSTER_METADATA_TOPIC, META_PROPERTIES

    names = (META_PROPERTIES, f"{CLUSTER_METADATA_TOPIC}-0")
    return any(os.path.exists(directory / name) for name in names)  # noqa: PTH110 - Path's raises errors


def _say_what_is_obeyed(node: BrokerServer, config: BrokerConfig, held: str) -> None:
    """Reports security settings in the metadata, and of the configuration, that change nothing. `held`: the number of
    each kind in ZooKeeper, for people.
    """
    from core.broker.config.broker_settings import STANDARD_AUTHORIZER
    from core.cluster.image.security_image import counts_text

    security = _unheeded(node.services.image.security, node.services.config)
    if node.authorizer is None:
        unheeded, then = held or security.summary(), "anybody who reaches the broker may do everything"
        if config.super_users or config.allow_everyone_if_no_acl_found:
            say("warning: super.users and allow.everyone.if.no.acl.found change nothing without authorizer.class.name")
    else:
        unheeded = held or replace(security, acls={}).summary()
        then = "a client that does not log in is User:ANONYMOUS, who may do what ACLs allow"
        if not config.authorizer_class_name:
            say(
                f"warning: the metadata hold {counts_text([(len(security.acls), 'ACL')])}, which are obeyed, also "
                f"without authorizer.class.name={STANDARD_AUTHORIZER}"
            )
    if unheeded:
        say(f"warning: the metadata hold {unheeded}, and plog obeys none of them: {then}")


def _unheeded(security: SecurityImage, config: BrokerConfig) -> SecurityImage:
    """Returns the settings without the users of SCRAM, if they can log in."""
    from core.broker.config.listener_security import has_scram

    return replace(security, scram_credentials={}) if has_scram(config) else security


def _run_whole(runner: asyncio.Runner, work: Coroutine[Any, Any, None]) -> None:
    """Runs it to its end. A signal that stops the command meanwhile cancels it, and its cleanup still runs."""

    async def end() -> None:
        await task

    task = runner.get_loop().create_task(work)
    try:
        runner.run(end())
    except KeyboardInterrupt:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            runner.run(end())
        raise


def _entry(
    zookeeper: str, config: BrokerConfig, listeners: list[Listener], runtime: LoopRuntime
) -> ZooKeeperRegistration:
    from core.broker.config.listener_security import authenticates, find_peer_security
    from core.broker.replication.zookeeper_registration import ZooKeeperRegistration, zookeeper_config_of

    find_peer_security(config)  # raises before ZooKeeper is waited for
    listens = [listener.endpoint for listener in listeners if not authenticates(config, listener)]
    return ZooKeeperRegistration(zookeeper_config_of(zookeeper, config), runtime.clock, config, listens)


def _answer_signals(node: BrokerServer) -> None:
    """Stops at the first signal; further signals report the progress of the stop, and do not cut it short."""

    def answer(_number: int, _frame: object) -> None:
        how_far = node.services.log_manager.closing_text
        text = f"{how_far}; kill -9 ends it at once, and costs the next start a recovery\n"
        with contextlib.suppress(OSError):  # of a terminal that is gone
            os.write(2, text.encode())  # print may be at work beneath this

    for number in _stop_signals():
        signal.signal(number, answer)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)


def _stop_signals() -> list[signal.Signals]:
    """Returns the signals that stop the broker, except a SIGHUP that `nohup` has ignored."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _STOP_SIGNALS if number != signal.SIGHUP or not is_ignored]


async def _run(
    node: BrokerServer,
    runtime: LoopRuntime,
    listeners: list[Listener],
    metrics: Endpoint | None,
    ready_file: Path | None,
    *,
    entry: ZooKeeperRegistration | None,
    first: FirstTopics | None,
) -> None:
    from core.broker.broker_server import LastingObjects
    from core.broker.serving.socket_server import SocketServer

    membership = node.services.membership

    async def hand_over() -> None:
        if entry is not None and membership is not None:
            await entry.hand_over(membership.hand_over(), is_controller=membership.is_controller)

    server = SocketServer(
        node,
        runtime,
        listeners,
        on_housekeeping=LastingObjects(node.services.replicas).step,
        before_close=None if entry is None else hand_over,
    )
    server.turns_away = entry is not None
    with contextlib.closing(server), contextlib.ExitStack() as stack:
        if first is not None and entry is None:
            await _make_first_topics(first, node, None)
        await server.start()
        for one in listeners:
            _say_who_may_reach(one, node)
        how = " read-only" if node.is_read_only else ""
        if len(server.endpoints) > 1:
            how += " listeners " + ",".join(f"{name}://{endpoint}" for name, endpoint in server.endpoints.items())
        if not all(one.is_plaintext for one in listeners):
            how += " protocols " + ",".join(f"{one.name}:{one.protocol}" for one in listeners)
        if metrics is not None:
            from core.broker.observe.metrics import MetricsServer

            metrics_server = stack.enter_context(contextlib.closing(MetricsServer(node, server, metrics)))
            how += f" metrics {metrics_server.endpoint}"
        if entry is None:
            await _run_until_stopped(server, node, ready_file, how)
        else:
            await _run_as_member(server, node, entry, ready_file, how, first)


def _say_who_may_reach(listener: Listener, node: BrokerServer) -> None:
    """Warns of an address that other machines reach, without authentication or with passwords in the clear."""
    from core.broker.config.listener_security import PLAIN, authenticates, find_listener_security

    if listener.endpoint.is_loopback:
        return
    security = find_listener_security(node.services.config, listener)
    if not authenticates(node.services.config, listener):
        what = "read, write and delete everything" if node.authorizer is None else "do what ACLs allow"
        say(f"warning: on {listener.endpoint} without authentication: everybody who reaches this address may {what}")
    elif security.tls is None and security.sasl is not None and PLAIN in security.sasl.mechanisms:
        say(f"warning: on {listener.endpoint} with PLAIN and without TLS: passwords of clients are in the clear there")


async def _make_first_topics(first: FirstTopics, node: BrokerServer, served: Endpoint | None) -> None:
    """Works in a thread, as the loop answers its requests meanwhile: those to this broker without a socket, unless it
    is served already; a cluster's other brokers are asked as well then.
    """
    is_stopped = threading.Event()
    loop = asyncio.get_running_loop()

    def make() -> None:
        from core.client.net.kafka_client import KafkaClient
        from core.pipeline.embedded_transport import LoopTransport
        from core.pipeline.session import FoundServer

        def connect(_host: str, _port: int) -> LoopTransport:
            return LoopTransport(node.dispatcher, loop.call_soon_threadsafe, is_stopped)

        with contextlib.suppress(KeyboardInterrupt):
            if served is None:
                client, where = KafkaClient([("embedded", 0)], connect), f" --data-dir {node.directory}"
            else:
                server = FoundServer([(served.host, served.port)], None, directory=node.directory)
                client, where = server.open_client(), f" --bootstrap-server {served}"
            with contextlib.closing(client):
                first.make(client, where)

    work = loop.run_in_executor(None, make)
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        is_stopped.set()
        await asyncio.wait([work])
        raise


async def _run_as_member(
    server: SocketServer,
    node: BrokerServer,
    entry: ZooKeeperRegistration,
    ready_file: Path | None,
    how: str,
    first: FirstTopics | None,
) -> None:
    """Joins the cluster, and leaves it again. Until it is registered it serves nobody: the others may still have an
    earlier life of the broker, with other partitions. Raises the error that ends its membership: what
    `ZooKeeperRegistration.register` raises, at once or after an expiry.
    """
    membership = node.services.membership
    assert membership is not None
    failures: list[PlogError] = []

    def fail(error: PlogError) -> None:
        failures.append(error)
        server.stop()
        server.stop()

    def leave(error: PlogError) -> None:
        """Others first take over the partitions led here."""
        if not failures:
            say(f"leaving the cluster: {error.message}")
            failures.append(error)
            server.stop()
            if server.turns_away:  # it is not registered yet, and has nothing to hand over
                server.stop()

    entry.security.on_guarded.append(leave)

    def on_registered(broker_epoch: int) -> None:
        membership.on_registered(broker_epoch)
        server.turns_away = False

    try:
        entry.security.ensure_open()  # errors while the directory was opened had no receiver
        await entry.register(
            node.services.node.node_id,
            node.reached_at(),
            node.services.config,
            previous_epoch=node.services.log_manager.clean_epoch,
            on_registered=on_registered,
            on_failed=fail,
        )
        node.services.log_manager.on_offline.append(lambda: entry.report_disk_failure(node.services.node.node_id))
        await membership.control.start()
        if first is not None:
            await _until_informed(node)
            await _make_first_topics(first, node, server.endpoint)
        await _run_until_stopped(server, node, ready_file, f"{how} node {node.services.node.node_id} in {entry}")
    finally:
        node.services.log_manager.on_offline.clear()
        await membership.close()
        await entry.close()
    if failures:
        raise failures[0]


async def _until_informed(node: BrokerServer) -> None:
    """Waits until the controller has told this broker of the cluster; before, clients that ask are disconnected."""
    has_news = asyncio.Event()
    node.services.controller.subscribe(lambda _delta: has_news.set())
    while not node.services.image.brokers:
        await has_news.wait()
        has_news.clear()


def _held(node: BrokerServer) -> str:
    """Describes the contents. A member of a cluster does not know its topics yet, but has its replicas."""
    if node.services.membership is None:
        return f"topics {len(node.services.image.topics)}"
    try:
        return f"replicas {len(node.services.log_manager.find_partitions())}"
    except (OSError, PlogError):  # of a disk that fails, which is no reason not to serve
        return "replicas ?"


async def _run_until_stopped(server: SocketServer, node: BrokerServer, ready_file: Path | None, how: str) -> None:
    def hang_up() -> None:
        leave_terminal()
        server.stop()

    for number in _stop_signals():
        stop = hang_up if number == signal.SIGHUP else server.stop
        asyncio.get_running_loop().add_signal_handler(number, stop)
    if ready_file is not None:
        beside = ready_file.with_name(ready_file.name + ".tmp")
        beside.write_text(f"{server.endpoint}\n")
        beside.replace(ready_file)
    held = _held(node)
    try:
        print(f"ready {server.endpoint} data {node.directory} {held} pid {os.getpid()}{how}", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:  # clients may connect all the same
        say(f"warning: ready, but could not write so to stdout: {(error.strerror or '').lower()}")
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - the rest of the line goes there
    await server.run()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)  # the loop's end would give them back to the system
