"""How a broker enters a ZooKeeper-mode cluster: the session, the cluster's id, settings, and the registration.

`open` is called before the data directory is opened, because its settings decide how logs are kept; `register` when the
broker listens, so that others can reach it; `close` last.

Before the broker registers, it compares itself with the others of its cluster. Kafka's controller looks for the
listener of its `inter.broker.listener.name` at each broker that registers. If one does not have it, the controller
fails to apply that change of brokers, for all of them: so that broker must not register. Settings that are often a
mistake, but may be right, are logged as doubts.

The settings for ZooKeeper have Kafka's names, if Kafka has them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.client_quotas import ClientQuotas
from core.broker.controller.active_controller import ActiveController, Ask, MakeQueue
from core.broker.replication.unenforced_security import UnenforcedSecurity
from core.broker.requests.unannounced_topics import UnannouncedTopics
from core.broker.serving.listener_endpoints import PROTOCOLS
from core.broker.serving.loop_tasks import LoopTasks
from core.cluster.controller.elections import ElectionPolicy
from core.cluster.image.cluster_member_metadata import ClusterMemberMetadata
from core.cluster.image.feature_levels import MEMBERS_FEATURES, unsupported
from core.common.clock import Clock
from core.common.config_def import ConfigResourceType
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, KafkaError, MalformedMessageError, PlogError, UsageError
from core.common.pending import Pending
from core.common.topic_partition import is_valid_topic_name, random_uuid, uuid_text
from core.files.file_names import ensure_no_cluster
from core.files.meta_properties import read_meta_properties
from core.security.client_security import Tls
from core.security.secret import Secret
from core.zookeeper import znodes
from core.zookeeper.config_changes import ConfigChanges
from core.zookeeper.controller_election import ControllerElection, WonElection
from core.zookeeper.controller_store import ControllerStore
from core.zookeeper.registration import Registration, ensure_cluster_id, until_free
from core.zookeeper.zookeeper_config import ZooKeeperConfig, ZooKeeperLogin, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import SessionFigures, ZooKeeperSession, while_connected
from core.zookeeper.zookeeper_transaction import Create, Node, Refusal, SetData, ZooKeeperError


def zookeeper_config_of(connect: str, config: BrokerConfig) -> ZooKeeperConfig:
    """Reads the settings for the ZooKeeper at `connect`, HOST:PORT,..[/CHROOT]. Raises UsageError for contradictory
    settings, AccessError if the password can't be read.
    """
    servers, chroot = parse_zookeeper_connect(connect)
    login = _login(config)
    found = ZooKeeperConfig(
        servers,
        chroot,
        config.zookeeper_session_timeout_ms,
        sets_acls=config.zookeeper_set_acl,
        digest=login if config.plog_zookeeper_login == "digest" else None,
        sasl=login if config.plog_zookeeper_login == "sasl" else None,
        tls=_tls(config),
    )
    found.ensure_consistent()
    return found


def _login(config: BrokerConfig) -> ZooKeeperLogin | None:
    if config.plog_zookeeper_login == "none":
        return None
    user, file = config.plog_zookeeper_user, config.plog_zookeeper_password_file
    if user is None or file is None:
        raise UsageError(
            f"plog.zookeeper.login is {config.plog_zookeeper_login}, and the user or the password file is missing",
            hint="set both plog.zookeeper.user and plog.zookeeper.password.file",
        )
    try:
        password = Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = (getattr(error, "strerror", None) or "it is no text").lower()
        raise AccessError(f"could not read the password for ZooKeeper in {file}: {reason}", where=file) from error
    return ZooKeeperLogin(user, Secret(password))


def _tls(config: BrokerConfig) -> Tls | None:
    if not config.zookeeper_ssl_client_enable:
        return None
    if (config.zookeeper_clientCnxnSocket or "").strip().endswith("NIO"):
        raise UsageError(
            "zookeeper.clientCnxnSocket is Java's class without TLS, and zookeeper.ssl.client.enable is true",
            hint="zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty; plog does without it",
        )
    from core.security.client_settings import parse_tls

    settings = {
        "ssl.truststore.location": config.zookeeper_ssl_truststore_location,
        "ssl.truststore.type": config.zookeeper_ssl_truststore_type,
        "ssl.truststore.password": config.zookeeper_ssl_truststore_password,
        "ssl.keystore.location": config.zookeeper_ssl_keystore_location,
        "ssl.keystore.type": config.zookeeper_ssl_keystore_type,
        "ssl.keystore.password": config.zookeeper_ssl_keystore_password,
        "ssl.enabled.protocols": ",".join(config.zookeeper_ssl_enabled_protocols or ()),
        "ssl.cipher.suites": ",".join(config.zookeeper_ssl_cipher_suites or ()),
        "ssl.endpoint.identification.algorithm": config.zookeeper_ssl_endpoint_identification_algorithm,
    }
    try:
        return parse_tls({name: value or "" for name, value in settings.items()})
    except UsageError as error:
        raise UsageError(f"zookeeper.{error.message}", hint=error.hint) from error


_NOBODY = (
    "no other broker is in this cluster. If that is not meant to be so: is the path after ZooKeeper's address right?"
)
_HALF_RACKS = "Kafka's controller makes no topics then, and answers UNKNOWN_SERVER_ERROR"


def ensure_others_reach(config: BrokerConfig, own: Collection[str], others: Mapping[int, znodes.BrokerNode]) -> None:
    """Raises UsageError if this broker's listener for brokers is not among its `own`, or not among those of all
    `others`, if one of them has another security protocol there, or if it is a guess which of several they use.
    """
    if not others:
        return
    common = set.intersection(*({one.listener.upper() for one in broker.endpoints} for broker in others.values()))
    wanted = config.inter_broker_listener
    is_guess = config.inter_broker_listener_name is None and wanted not in PROTOCOLS and len(common) > 1
    spoken = {
        one.security_protocol
        for broker in others.values()
        for one in broker.endpoints
        if one.listener.upper() == wanted
    }
    name = min(common) if len(common) == 1 else "NAME"
    hint = f"--listener {name}://HOST:PORT --set inter.broker.listener.name={name}, as the others have it"
    if wanted not in own:
        reason = f"it has no listener {wanted} (inter.broker.listener.name)"
    elif wanted not in common:
        reason = f"they have no listener {wanted}"
    elif is_guess:
        reason = "inter.broker.listener.name does not say which listener they use"
    elif spoken != {ours := config.protocol_of(wanted)}:
        reason = f"it speaks {ours} at {wanted}, and they speak {' or '.join(sorted(spoken))} there"
        hint = f"listener.security.protocol.map={wanted}:{min(spoken)},.., as the others have it"
    else:
        return
    known = "; ".join(f"broker {node_id} has {', '.join(map(str, one.endpoints))}" for node_id, one in others.items())
    raise UsageError(f"the cluster's other brokers could not reach this one: {reason}; {known}", hint=hint)


def find_doubts(own: znodes.BrokerNode, others: Mapping[int, znodes.BrokerNode]) -> list[str]:
    """Returns one line for each likely mistake of the operator."""
    if not others:
        return [_NOBODY]
    doubts = []
    near = [str(one) for one in own.endpoints if _is_loopback(one)]
    if near and any(not _is_loopback(one) for broker in others.values() for one in broker.endpoints):
        doubts.append(
            f"this broker registers the address {', '.join(near)}, which only this machine can reach: name another "
            "address with --listen or --advertise"
        )
    with_rack = [str(node_id) for node_id, broker in others.items() if broker.rack is not None]
    if own.rack is None and with_rack:
        doubts.append(f"this broker has no --rack, and brokers {', '.join(with_rack)} have one: {_HALF_RACKS}")
    elif own.rack is not None and len(with_rack) < len(others):
        without = ", ".join(str(node_id) for node_id, broker in others.items() if broker.rack is None)
        doubts.append(f"this broker has a rack, and brokers {without} have none: {_HALF_RACKS}")
    return doubts


def _is_loopback(endpoint: znodes.BrokerEndpoint) -> bool:
    return Endpoint(endpoint.host, endpoint.port).is_loopback


_log = logging.getLogger("plog.zookeeper")

_RESOURCES = {"topics": ConfigResourceType.TOPIC, "brokers": ConfigResourceType.BROKER}
"""Kinds of entities whose settings plog obeys, and their resource types in requests."""

T = TypeVar("T")

_READ_AT_ONCE = 500

_MOST_BYTES = 900_000
"""The limit for an entity's settings. ZooKeeper drops clients that send a megabyte at once (jute.maxbuffer)."""

MOMENT_MS = 2000
"""How long ZooKeeper may be away before requests are refused: it takes a moment for another server to take over."""

_AGAIN_SECONDS = 0.5
_GRACE_SECONDS = 5.0
"""How long a stopping broker that has lost ZooKeeper waits for the controller."""
_GRACE_OF_CONTROLLER_SECONDS = 2.0


class ZooKeeperRegistration:
    """Owned by the loop's thread."""

    def __init__(
        self,
        config: ZooKeeperConfig,
        clock: Clock,
        broker_config: BrokerConfig | None = None,
        listens: Sequence[Endpoint] = (),
    ) -> None:
        """`broker_config` is the static configuration, `listens` are the endpoints: see `UnenforcedSecurity`."""
        self.cluster_id = ""
        """The cluster's id, after `open`."""
        self._config = config
        self._clock = clock
        self._session = ZooKeeperSession(config)
        self.quotas = ClientQuotas(self._write_settings)
        self._tasks = LoopTasks()
        self.security = UnenforcedSecurity(
            self._session,
            self.quotas,
            broker_config or BrokerConfig(),
            listens,
            clock=clock,
            write=self._write_configs,
            tasks=self._tasks,
        )
        self._changes = ConfigChanges(
            self._session, self._on_config, clock=clock, on_unreadable=self.security.note_unreadable
        )
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}  # until `attach`
        self._features: tuple[Mapping[str, int], int] = ({}, 0)
        """The finalized features of the cluster, and the version of their node."""
        self._on_failed: Callable[[PlogError], None] | None = None
        self._controller: ClusterMemberMetadata | None = None
        self._registration: Registration | None = None
        self._unreported = 0
        """How many failed replicas are not reported to ZooKeeper yet."""

    def __str__(self) -> str:
        return str(self._config)

    @property
    def session_figures(self) -> SessionFigures:
        return self._session.figures

    async def open(self, directory: Path, node_id: int | None, *, may_begin: bool = False) -> None:
        """Waits for ZooKeeper, and reads the facts that a broker needs before it opens the directory. `node_id` is the
        configured one; `may_begin`: the broker may create a new cluster, if none exists. Raises AccessError if the
        chroot is missing, or a new directory would get a node id that is taken; UsageError without a node id or a
        cluster, if the directory is another cluster's or that of a whole cluster, and if the cluster is protected and
        would be served to everybody.
        """
        ensure_no_cluster(directory)
        known = read_meta_properties(directory)
        if known is None and node_id is None:
            raise UsageError(
                f"{directory} has no node id yet, and a member of a cluster needs one of its own", hint="--node-id N"
            )
        await self._session.open(makes_chroot=may_begin)
        if known is None and node_id is not None:
            await until_free(self._session, node_id)
        found = None if known is None else known.cluster_id
        new = uuid_text(random_uuid())
        self.cluster_id = await ensure_cluster_id(self._session, found, new, may_begin=may_begin)
        await self._session.ensure_paths(["/config/changes"])
        await self._changes.start()
        await self.security.start(known.node_id if known is not None else node_id or 0)
        await self._session.watch_data(znodes.FEATURE, self._on_features)

    def attach(self, controller: ClusterMemberMetadata) -> None:
        """Passes the present settings and features to the controller, and from now on each change."""
        self._controller = controller
        controller.take_features(*self._features)
        for (resource_type, name), settings in self._configs.items():
            controller.take_configs(resource_type, name, settings)
        self._configs.clear()

    def _on_config(self, entity: znodes.ConfigEntity, settings: Mapping[str, str]) -> None:
        resource_type = _RESOURCES.get(entity.kind)
        if resource_type is None:
            self.quotas.take(entity, settings)
        self.security.take(entity, settings)
        if resource_type is None:
            return
        name = "" if entity.name == znodes.DEFAULT_ENTITY else entity.name
        if self._controller is None:
            self._configs[resource_type, name] = settings
        else:
            self._controller.take_configs(resource_type, name, settings)

    # --- features

    def _on_features(self, node: Node | None) -> None:
        """Applies the finalized features. A broker that does not support them leaves the cluster."""
        try:
            feature = None if node is None else znodes.decode_feature(node.data)
        except MalformedMessageError as error:
            _log.error("the features of the cluster stay as they were: %s", error)
            return
        finalized = feature.features if feature is not None and feature.is_enabled else {}
        self._features = finalized, 0 if node is None else node.stat.version
        try:
            self._ensure_knows_features()
        except UsageError as error:
            if self._on_failed is not None:
                self._on_failed(error)
            return
        if self._controller is not None:
            self._controller.take_features(*self._features)

    def _ensure_knows_features(self) -> None:
        """Raises UsageError if the cluster has finalized a level that this broker does not support."""
        unknown = unsupported(self._features[0], MEMBERS_FEATURES)
        if unknown:
            what = ", ".join(f"{name} {level}" for name, level in unknown.items())
            supported = ", ".join(f"{name} up to {highest}" for name, (_, highest) in MEMBERS_FEATURES.items())
            raise UsageError(
                f"the cluster has finalized {what}, and this release of plog supports {supported}",
                hint="use a newer release of plog, or lower these levels first: plog cluster features --downgrade",
            )

    # --- settings of new topics

    def read_configs(self, topics: Iterable[str]) -> Pending[None] | None:
        """See `ReadConfigs`. Waits as long as ZooKeeper is away: without its settings a topic could promise less than
        configured.
        """
        assert self._controller is not None
        new = [name for name in topics if name not in self._controller.image.topics and is_valid_topic_name(name)]
        if not new:
            return None
        pending = Pending[None]()
        self._tasks.begin(self._read_configs(new, pending))
        return pending

    async def _read_configs(self, topics: Sequence[str], then: Pending[None]) -> None:
        entities = [znodes.ConfigEntity("topics", topic) for topic in topics]
        try:
            for start in range(0, len(entities), _READ_AT_ONCE):
                some = entities[start : start + _READ_AT_ONCE]
                found = await self._until_read(partial(self._changes.read_many, some))
                for entity, settings in zip(some, found, strict=True):
                    self._on_config(entity, settings)
                await self._read_counts([entity.name for entity in some])
        except ZooKeeperError as error:  # this broker is about to stop
            _log.debug("the settings of new topics are not known: %s", error)
            return
        then.complete_with(None)

    async def _read_counts(self, topics: Sequence[str]) -> None:
        """Reads the topics' numbers of partitions, before they are served."""
        paths = [znodes.topic_path(topic) for topic in topics]
        nodes = await self._until_read(partial(self._session.read_many, paths))
        for topic, path, node in zip(topics, paths, nodes, strict=True):
            if node is None or self._controller is None:
                continue
            try:
                self._controller.note_count(topic, len(znodes.decode_topic(node.data, path).partitions))
            except MalformedMessageError as error:
                _log.error("the number of partitions of %s can't be read: %s", topic, error)

    async def _until_read(self, read: Callable[[], Awaitable[T]]) -> T:
        """Reads, and retries as often as needed; logs each reason once."""
        said = ""
        while True:
            try:
                return await read()
            except ZooKeeperError as error:
                if error.refusal in (Refusal.CLOSED, Refusal.AUTH_FAILED):
                    raise
                if str(error) != said:
                    said = str(error)
                    _log.warning("%s; it is read again, and its topic waits for it", said)
            await asyncio.sleep(_AGAIN_SECONDS)

    # --- changes of settings

    def write_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> Pending[KafkaError | None]:
        """Writes settings, then notifies all brokers; see `BrokerMetadata.set_configs`. Raises KafkaError:
        INVALID_REQUEST for a resource type that is not in ZooKeeper; UNKNOWN_SERVER_ERROR at once if ZooKeeper is away.
        """
        silence_ms = self.session_figures.silence_ms
        if silence_ms > MOMENT_MS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper has been away for {silence_ms // 1000} s")
        kind = next((kind for kind, number in _RESOURCES.items() if number == resource_type), None)
        if kind is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a cluster with ZooKeeper has settings of topics and brokers")
        return self._write_settings(znodes.ConfigEntity(kind, name or znodes.DEFAULT_ENTITY), changes)

    def _write_settings(
        self, entity: znodes.ConfigEntity, changes: Mapping[str, str | None]
    ) -> Pending[KafkaError | None]:
        return self._tasks.pending(self._write_configs(entity, changes))

    async def _write_configs(self, entity: znodes.ConfigEntity, changes: Mapping[str, str | None]) -> KafkaError | None:
        try:
            settings = await self._merge(entity, changes)
            await self._session.commit(
                [Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), is_sequential=True)]
            )
        except KafkaError as error:
            return error
        except (ZooKeeperError, MalformedMessageError) as error:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        self._on_config(entity, settings)
        return None

    async def _merge(self, entity: znodes.ConfigEntity, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the settings as written; tries again after a concurrent write."""
        while True:
            node = await self._session.read(entity.path)
            known = znodes.decode_config(node.data, entity.path) if node is not None and node.data else {}
            after = {**known, **changes}
            settings = {key: value for key, value in after.items() if value is not None}
            data = znodes.encode_config(settings)
            if len(data) > _MOST_BYTES:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {_MOST_BYTES} bytes of settings")
            change = Create(entity.path, data) if node is None else SetData(entity.path, data, node.stat.version)
            try:
                await self._session.commit([change])
            except ZooKeeperError as error:
                if error.refusal not in (Refusal.BAD_VERSION, Refusal.NODE_EXISTS, Refusal.NO_NODE):
                    raise
            else:
                return settings

    # --- the registration

    async def register(
        self,
        node_id: int,
        endpoints: Mapping[str, Endpoint],
        config: BrokerConfig,
        *,
        previous_epoch: int,
        on_registered: Callable[[int], None],
        on_failed: Callable[[PlogError], None],
    ) -> None:
        """Registers the broker, with the addresses of its listeners by name, and again after each expiry of the
        session. `previous_epoch` is `LogManager.clean_epoch`. `on_registered` is called with each broker epoch;
        `on_failed` if another broker has its id by then, or the cluster has finalized features that it does not
        support. Raises AccessError if the node id is another broker's, UsageError for such features, and what
        `ensure_others_reach` raises.
        """
        self._ensure_knows_features()
        self._on_failed = on_failed
        others = await self._find_others(node_id)
        ensure_others_reach(config, endpoints.keys(), others)
        reached = tuple(
            znodes.BrokerEndpoint(name, one.host, one.port, config.protocol_of(name)) for name, one in endpoints.items()
        )
        broker = znodes.BrokerNode(
            endpoints=reached,
            timestamp_ms=self._clock.now_ms(),
            rack=config.broker_rack,
            features=MEMBERS_FEATURES,
            previous_epoch=previous_epoch,
        )
        for doubt in find_doubts(broker, others):
            _log.warning(doubt)
        assert self._controller is not None  # since `attach`
        untold = UnannouncedTopics(self._session, self._controller, self._until_read)

        def begin_life(epoch: int) -> None:
            on_registered(epoch)
            self._tasks.begin(untold.wait(epoch))

        self._registration = Registration(
            self._session, node_id, broker, clock=self._clock, on_registered=begin_life, on_failed=on_failed
        )
        await self._registration.register()

    async def _find_others(self, node_id: int) -> dict[int, znodes.BrokerNode]:
        """Returns the other live brokers whose registration can be read."""
        found: dict[int, znodes.BrokerNode] = {}
        for name in await self._session.children(znodes.BROKER_IDS) or ():
            node = await self._session.read(path := f"{znodes.BROKER_IDS}/{name}")
            if node is None or not name.isdecimal() or int(name) == node_id:
                continue
            try:
                found[int(name)] = znodes.decode_broker(node.data, path)
            except MalformedMessageError as error:
                _log.warning("a broker whose registration can't be read is ignored: %s", error)
        return found

    def make_election(
        self, node_id: int, *, on_elected: Callable[[WonElection], None], on_lost: Callable[[], None]
    ) -> ControllerElection:
        """Returns the candidacy of the registered broker."""
        assert self._registration is not None
        return ControllerElection(
            self._session,
            node_id,
            clock=self._clock,
            on_elected=on_elected,
            on_lost=on_lost,
            until_registered=self._registration.until_registered,
        )

    def begin_term(
        self,
        won: WonElection,
        *,
        node_id: int,
        make_queue: MakeQueue,
        ask: Ask,
        policy: ElectionPolicy,
        on_over: Callable[[], None],
    ) -> ActiveController:
        """Starts a term as the controller, after an election was won."""
        return ActiveController(
            self._session,
            ControllerStore(self._session, won.epoch, won.epoch_version),
            node_id=node_id,
            epoch=won.epoch,
            make_queue=make_queue,
            ask=ask,
            policy=policy,
            clock=self._clock,
            read_settings=self._changes.catch_up,
            on_over=on_over,
        )

    def report_disk_failure(self, node_id: int) -> None:
        """Makes the controller ask this broker which of its replicas are offline, as soon as ZooKeeper can be reached:
        once for all that failed until then.
        """
        self._unreported += 1
        if self._unreported == 1:
            self._tasks.begin(self._report_disk_failures(node_id))

    async def _report_disk_failures(self, node_id: int) -> None:
        event = Create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(node_id), is_sequential=True)
        while self._unreported:
            reported = self._unreported
            try:
                await self._session.commit([event])
            except ZooKeeperError as error:
                if error.refusal is Refusal.CLOSED:
                    return
                if error.is_lost:
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                _log.error("the controller can't be told of a failed disk: %s", error)
            self._unreported -= reported

    async def hand_over(self, work: Coroutine[Any, Any, None], *, is_controller: bool) -> None:
        """Runs `work`, which asks the controller to move leadership before the broker stops. Gives up if ZooKeeper is
        away, because a controller decides nothing then. A controller on another broker may still reach it, and gets
        more time.
        """
        grace_seconds = _GRACE_OF_CONTROLLER_SECONDS if is_controller else _GRACE_SECONDS
        try:
            await while_connected(self._session, work, grace_seconds)
        except TimeoutError:
            _log.warning(
                "leadership is not handed over to other brokers: ZooKeeper is away, and the controller does not answer"
            )

    async def close(self) -> None:
        """Leaves the cluster: the registration ends with the session."""
        self._changes.stop()
        self.security.stop()
        await self._tasks.close()
        await self._session.close()
