"""A broker: opens a data directory for serving, wires the services together that serve it, and closes it.

`SocketServer` puts it on the network; commands that work without a server call its dispatcher directly. Either way
there is one door to the log.

`LastingObjects` keeps a broker's long-lived objects out of Python's collector of cycles, which looks through all that
lives, again and again: the answers to Metadata are enough. Nobody is served meanwhile: 50 ms for 3,000 partitions, and
in proportion. A partition holds no cycle (`tests/unit/broker/partitions/test_deleted_files.py`), and goes without the
collector when its topic does.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.effective_configs import Configs
from core.broker.coordinators.consumer_offsets_topic import ConsumerOffsetsTopic
from core.broker.coordinators.coordinator_log import CoordinatingBroker
from core.broker.coordinators.producer_ids import ProducerIdBlocks, ProducerIds
from core.broker.coordinators.transaction_state_topic import TransactionStateTopic
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.file_deletion import FileDeletion
from core.broker.partitions.housekeeping import CleanerSchedule, Housekeeping
from core.broker.partitions.lazy_index_checks import LazyIndexChecks
from core.broker.partitions.lazy_logs import LazyLogs
from core.broker.partitions.log_startup import LogStartup
from core.broker.partitions.post_recovery_flush import PostRecoveryFlush
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.partitions.suspected_loss import SuspectedLoss
from core.broker.partitions.topics import Topics
from core.broker.replication.cluster_membership import Membership
from core.broker.replication.cluster_peers import ClusterPeers
from core.broker.replication.replication_quota import ReplicationQuota, ReplicationQuotas
from core.broker.replication.zookeeper_registration import ZooKeeperRegistration
from core.broker.requests.authorizer import Authorizer
from core.broker.requests.fetch_session import FetchSessionCache
from core.broker.requests.request_dispatcher import RequestDispatcher, served_apis
from core.broker.requests.runtime import ImmediateRuntime, Runtime
from core.broker.requests.services import Services
from core.broker.requests.stepped_answer import SteppedAnswers
from core.broker.serving.listener_endpoints import PLAINTEXT, PROTOCOLS, Listener
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.cluster_member_metadata import ClusterMemberMetadata
from core.cluster.image.lone_broker_startup import find_node_id
from core.cluster.image.metadata_image import MetadataImage
from core.cluster.image.metadata_log import MetadataLog, read_metadata_image
from core.cluster.image.single_node_controller import SingleNodeController
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, CorruptRecordError, KafkaError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.path_alias import PathAlias
from core.common.salvaging_file import unreadable_error
from core.common.shadow_filesystem import ShadowFileSystem, link_tree, temporary_shadow
from core.common.topic_partition import random_uuid, uuid_text
from core.compaction.cleaner_process import CleanerProcess
from core.files.directory_lock import DirectoryLock, find_lock_holder
from core.files.file_names import LOCK, META_PROPERTIES, ensure_no_cluster, holds_segments, parse_offset_file_name
from core.files.login_secret import read_or_make_login_secret
from core.files.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from core.files.owner_socket_file import OWNER_SOCKET
from core.log.log_loader import LogSettings
from core.log.log_manager import LogManager, find_partitions
from core.protocol.schema.metadata_records import BrokerEndpoint
from core.security.principal import parse_principals


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Stops the collector, because the block's objects last: it took a third of the time to open 10,000 segments."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # else the collector would look through all of it now
        gc.enable()


class LastingObjects:
    """Keeps a broker's partitions from the collector, in a process that only serves; owned by the broker's task."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._generation = -1

    def step(self) -> None:
        """Freezes the present objects, if partitions were added since the last call; call it every second."""
        if self._generation != self._replicas.generation:
            self._generation = self._replicas.generation
            gc.collect(1)  # young cycles would stay for good
            gc.freeze()


_log = logging.getLogger("plog.broker")


class BrokerServer:
    """Owned by one task from its construction, which opens the directory, to `close`.

    `services` is for handlers; `dispatcher` answers requests; call `housekeeping.step` regularly.
    """

    services: Services
    authorizer: Authorizer | None = None
    """Who may do what; None if everybody may do everything."""
    dispatcher: RequestDispatcher
    housekeeping: Housekeeping
    cleaning: CleanerSchedule
    _deletion: FileDeletion
    _recovered_flush: PostRecoveryFlush

    def __init__(
        self,
        directory: Path,
        config: BrokerConfig,
        *,
        runtime: Runtime | None = None,
        filesystem: FileSystem | None = None,
        lock_timeout_s: float = 0.0,
        is_read_only: bool = False,
        loads_late: bool = False,
        check_metadata: Callable[[MetadataImage, int], None] | None = None,
        entry: ZooKeeperRegistration | None = None,
    ) -> None:
        """Locks the directory and opens its logs. Raises AccessError and CorruptRecordError if that fails, UsageError
        for the directory of a whole cluster.

        With an `entry`, which is open, the node is a member of that cluster: its controller assigns the replicas.
        Without a `runtime` all work is done at once. `check_metadata` gets the metadata, and the node's id, before
        anything is changed or served; its exceptions are raised here. With `loads_late`, a log that must be scanned is
        opened on first use, and indexes are checked on first use. Leave it off if every error must be reported before
        the node serves.
        """
        if find_lock_holder(directory) is None:  # else the lock is waited for, also that of a starting cluster
            ensure_no_cluster(directory)
        self.directory = directory
        self.is_read_only = is_read_only
        self._runtime = runtime or ImmediateRuntime()
        self._check_metadata = check_metadata
        self._entry = entry
        self._loads_late = loads_late
        self._is_embedded = runtime is None
        self._shadow = temporary_shadow(directory, "plog-read-only-") if is_read_only else None
        self._log_directory = Path(self._shadow.name) if self._shadow else directory
        self._users_paths = PathAlias(self._log_directory, directory)
        self._filesystem = filesystem or (ShadowFileSystem(self._users_paths) if is_read_only else FileSystem())
        self._lock = DirectoryLock(self._log_directory)
        self._unreadable: list[Path] = []
        self._prepare_directory()
        self._lock.acquire(lock_timeout_s)
        with self._releasing_on_failure():
            self._open(config)

    @contextlib.contextmanager
    def _releasing_on_failure(self) -> Iterator[None]:
        """Frees the directory if it can't be opened; errors name the user's paths."""
        try:
            yield
        except OSError as error:
            self._release()
            failure = access_error(error, error.filename or self.directory, "open")
            self._users_paths.rename(failure)
            raise failure from error
        except KafkaError as error:  # of the metadata log
            self._release()
            raise AccessError(self._users_paths.text(str(error)), where=str(self.directory)) from error
        except PlogError as error:
            self._release()
            self._users_paths.rename(error)
            raise
        except BaseException:
            self._release()
            raise

    # --- the directory

    def _prepare_directory(self) -> None:
        """Creates the directory, or the shadow of it in which a read-only broker works."""
        try:
            if self.is_read_only:
                self._users_paths.start()
                link_tree(
                    self.directory,
                    self._log_directory,
                    is_left_out=lambda name: name in (LOCK, OWNER_SOCKET),
                    on_unreadable=self._pass_over,
                )
            else:
                self._ensure_no_partition()
                self._filesystem.make_data_directory(self.directory)
        except OSError as error:
            self._release()
            raise access_error(error, self.directory, "read" if self.is_read_only else "create") from error

    def _pass_over(self, error: OSError, path: Path) -> None:
        """Notes a file that the shadow can't have."""
        if not path.is_dir() or parse_offset_file_name(path.name) is not None:
            _log.warning("%s; it is passed over", unreadable_error(error, path))
            self._unreadable.append(path)

    def _ensure_no_partition(self) -> None:
        """Raises AccessError for a partition's folder: a data directory would be created inside of another one."""
        directory = self.directory
        if directory.is_dir() and holds_segments(directory) and not (directory / META_PROPERTIES).exists():
            raise AccessError(
                f"{directory} is a partition's folder, not a data directory",
                where=str(directory),
                hint=f"--data-dir {directory.absolute().parent}",
            )

    def _identify(self, config: BrokerConfig) -> MetaProperties:
        """Returns the directory's owner, which a new directory gets here. Raises AccessError if it is another node."""
        meta = self._read_meta_properties()
        if meta is None:
            node_id = self._find_node_id(config)
            if self._entry is None:
                meta = MetaProperties(uuid_text(random_uuid()), node_id, random_uuid())
            else:  # so that a broker of Kafka's can take its place
                meta = MetaProperties(self._entry.cluster_id, node_id, random_uuid(), version=0)
            write_meta_properties(self._log_directory, meta, self._filesystem)
        elif meta.version == 0 and self._entry is None:  # ZooKeeper's: without the directory's id
            meta = replace(meta, version=1)
            write_meta_properties(self._log_directory, meta, self._filesystem)
        if config.given_node_id not in (None, meta.node_id):
            raise AccessError(
                f"{self.directory} belongs to node {meta.node_id}, node.id is {config.given_node_id}",
                where=str(self.directory),
                hint=f"leave node.id out, or set it to {meta.node_id}",
            )
        return meta

    def _read_meta_properties(self) -> MetaProperties | None:
        """Returns None if the directory has none. A read-only broker does without the file: a damaged one does not keep
        readers from the records.
        """
        try:
            return read_meta_properties(self._log_directory)
        except CorruptRecordError as error:
            if not self.is_read_only:
                error.hint = (
                    "restore it from a copy, or move it away: the next start makes another, with a new cluster id; "
                    "plog serve --read-only does without it"
                )
                raise
            _log.warning("%s; the directory is served without it", error)
            return None

    def _find_node_id(self, config: BrokerConfig) -> int:
        """For a directory without an owner, returns the one node that has a replica of all its partitions."""
        if config.given_node_id is not None:
            return config.given_node_id
        image = read_metadata_image(self._log_directory)
        return find_node_id(image, find_partitions(self._log_directory), config.node_id)

    def _open_metadata_log(self, node_id: int) -> MetadataLog:
        try:
            return MetadataLog(
                self._log_directory, node_id, self._runtime.clock, self._filesystem, is_read_only=self.is_read_only
            )
        except CorruptRecordError as error:
            if error.hint is None:
                error.hint = (
                    f"plog recover {self.directory} shows what of the metadata can be kept; "
                    "plog serve --read-only serves the records as they are"
                )
            raise

    # --- the services

    def _open(self, config: BrokerConfig) -> None:
        """Makes the services, from the metadata up, and opens the logs on the way. Each is given those above it that it
        uses; what it must tell these goes to a subscription.
        """
        runtime = self._runtime
        meta = self._identify(config)
        controller = self._make_controller(meta)
        self.authorizer = self._make_authorizer(config, controller)
        node = NodeIdentity(self.directory, meta.cluster_id, meta.node_id, is_read_only=self.is_read_only)
        configs = Configs(config, controller, node)
        peers = ClusterPeers(configs.broker, lambda: controller.image)

        log_manager = self._make_log_manager(configs)
        self._deletion = deletion = FileDeletion(log_manager, runtime)
        quotas = self._make_quotas(configs)
        replicas = ReplicaManager(
            node, controller, configs, log_manager, runtime, peers=None if self._entry is None else peers
        )
        doubts = SuspectedLoss(log_manager, replicas, self.directory, runtime.run_in_background)
        make_cleaner = partial(CleanerProcess, lambda: [self._lock.descriptor])
        self.cleaning = CleanerSchedule(configs, log_manager, replicas, deletion, runtime, make_cleaner)
        late_checks = LazyIndexChecks(
            log_manager.logs.values,
            runtime.schedule,
            runtime.run_in_background,
            None if self.is_read_only else doubts.note_unexplained,
        )
        self._recovered_flush = PostRecoveryFlush(log_manager, replicas, runtime)
        opening = LogStartup(
            controller if isinstance(controller, SingleNodeController) else None,
            node=node,
            configs=configs,
            log_manager=log_manager,
            replicas=replicas,
            late_checks=late_checks,
            doubts=doubts,
            recovered_flush=self._recovered_flush,
            unreadable=self._unreadable,
        )
        late_loads = LazyLogs(opening, controller, configs, log_manager, replicas, runtime)
        stepped_answers = SteppedAnswers(runtime)
        topics = Topics(node, controller, configs, replicas, deletion, stepped_answers)
        topics.on_deleted.append(self.cleaning.on_topic_deleted)

        if isinstance(controller, SingleNodeController):
            controller.register_broker(self._registered_endpoints(configs.broker), configs.broker.broker_rack)
        self._open_logs(log_manager, opening, late_loads)
        topics.begin()

        membership: Membership | None = None
        producer_ids: ProducerIds | ProducerIdBlocks
        if isinstance(controller, SingleNodeController):
            producer_ids = ProducerIds(controller, log_manager, replicas, has_adopted=opening.has_adopted)
        else:
            assert self._entry is not None
            membership = Membership(
                self._entry,
                controller,
                peers,
                node_id=node.node_id,
                configs=configs,
                log_manager=log_manager,
                replicas=replicas,
                late_loads=late_loads,
                topics=topics,
                deletion=deletion,
                runtime=runtime,
                replication_quota=quotas.follower,
            )
            producer_ids = membership.producer_ids
        coordinating = CoordinatingBroker(
            node=node,
            controller=controller,
            configs=configs,
            replicas=replicas,
            late_loads=late_loads,
            topics=topics,
            runtime=runtime,
        )
        rules = None if self.authorizer is None else self.authorizer.rules
        group_log = ConsumerOffsetsTopic(coordinating, rules)
        others = None if membership is None else membership.transactions
        transaction_log = TransactionStateTopic(coordinating, producer_ids, group_log, others)

        self.services = Services(
            runtime=runtime,
            node=node,
            controller=controller,
            configs=configs,
            log_manager=log_manager,
            replicas=replicas,
            quotas=quotas,
            stepped_answers=stepped_answers,
            late_loads=late_loads,
            topics=topics,
            group_log=group_log,
            transaction_log=transaction_log,
            fetch_sessions=FetchSessionCache(configs.broker.max_incremental_fetch_session_cache_slots, runtime.clock),
            late_checks=late_checks,
            losses=doubts,
            find_served_apis=served_apis,
            membership=membership,
            authorizer=self.authorizer,
        )
        self.dispatcher = RequestDispatcher(self.services)
        self.housekeeping = Housekeeping(
            configs=configs,
            log_manager=log_manager,
            replicas=replicas,
            deletion=deletion,
            cleaning=self.cleaning,
            groups=group_log.coordinator,
            transactions=transaction_log.coordinator,
            runtime=runtime,
        )

    def _make_controller(self, meta: MetaProperties) -> SingleNodeController | ClusterMemberMetadata:
        """Returns the metadata, which a lone broker controls itself."""
        if self._entry is not None:
            member = ClusterMemberMetadata(meta.directory_id, self._entry.write_configs)
            self._entry.attach(member)
            return member
        metadata_log = self._open_metadata_log(meta.node_id)
        if self._check_metadata is not None:
            self._check_metadata(metadata_log.image, meta.node_id)
        return SingleNodeController(metadata_log, meta.node_id, meta.directory_id)

    def _make_authorizer(self, config: BrokerConfig, controller: BrokerMetadata) -> Authorizer | None:
        """Returns who may do what, if clients come that are not the owner of the directory. The rules follow the
        metadata, or ZooKeeper, from now on.
        """
        if self._entry is not None:
            return Authorizer(self._entry.security.acls.rules) if config.authorizes() else None
        stored = controller.image.security.acls
        if self._is_embedded or not config.authorizes(holds_acls=bool(stored)):
            return None
        assert isinstance(controller, SingleNodeController)
        return Authorizer(
            controller.security.make_rules(
                super_users=parse_principals(config.super_users),
                allows_everyone_if_none=config.allow_everyone_if_no_acl_found,
            )
        )

    def _make_quotas(self, configs: Configs) -> ReplicationQuotas:
        make = partial(
            ReplicationQuota,
            clock=self._runtime.clock,
            samples=configs.broker.replication_quota_window_num,
            sample_ms=configs.broker.replication_quota_window_size_seconds * 1000,
        )
        return ReplicationQuotas(
            leader=make(lambda: configs.broker.leader_replication_throttled_rate),
            follower=make(lambda: configs.broker.follower_replication_throttled_rate),
        )

    def _open_logs(self, log_manager: LogManager, opening: LogStartup, late_loads: LazyLogs) -> None:
        """Opens the logs of the present topics, or leaves them for later."""
        folders = opening.find_known()
        if self._loads_late and (self.is_read_only or not log_manager.had_clean_shutdown):
            log_manager.leave_unloaded(folders)
            folders = {tp: folders[tp] for tp in late_loads.read_at_once() if log_manager.unloaded.pop(tp)}
        opening.open_all(folders)

    def _make_log_manager(self, configs: Configs) -> LogManager:
        settings = LogSettings(
            self._runtime.clock,
            self._filesystem,
            configs.producer_id_expiration_ms,
            is_read_only=self.is_read_only,
            keeps_cut_bytes=not self.is_read_only,
            checks_late=self._loads_late,
        )
        return LogManager(
            self._log_directory,
            settings,
            origin=self.directory,
            is_beside_writer=lambda: self.is_read_only and find_lock_holder(self.directory) is not None,
        )

    def _registered_endpoints(self, config: BrokerConfig) -> Sequence[BrokerEndpoint]:
        listeners = config.served_listeners or [Listener.plaintext_at(Endpoint("localhost", 0))]
        found = [(one, config.find_advertised(one.name) or one.endpoint) for one in listeners]
        return [
            BrokerEndpoint(one.name, at.host or "localhost", at.port, PROTOCOLS.index(one.protocol or PLAINTEXT))
            for one, at in found
        ]

    # --- on the network

    def begin_serving(self, endpoint: Endpoint, endpoints: Mapping[str, Endpoint] | None = None) -> None:
        """Called when the broker listens; `endpoints` are by name of the listener, if there are names. Announces it to
        other processes that want the directory, and starts the work that a start leaves for later.
        """
        self.services.node.endpoint = endpoint
        self.services.node.endpoints = endpoints or {}
        config = self.services.config
        open_ones = [at for name, at in self.services.node.endpoints.items() if config.protocol_of(name) == PLAINTEXT]
        endpoint = open_ones[0] if open_ones else endpoint  # for a command that finds no socket in the directory
        reachable = Endpoint("127.0.0.1", endpoint.port) if endpoint.is_wildcard else endpoint
        protocol = PLAINTEXT if open_ones else config.protocol_of(config.main_listener)
        self._lock.announce(str(reachable) if protocol == PLAINTEXT else f"{protocol}://{reachable}")
        self._recovered_flush.begin(self.services.log_manager.logs.values())
        self._deletion.delete_leftovers()
        self.services.late_checks.begin()
        self.services.late_loads.begin()
        self.services.group_log.load_all()
        self.services.transaction_log.load_all()

    def reached_at(self) -> dict[str, Endpoint]:
        """Returns the outside address of each listener, by name, once the broker listens. A listener on all addresses
        without an advertised one is reached by the name of this host.
        """
        config, node = self.services.config, self.services.node
        host = socket.getfqdn() if any(one.is_wildcard for one in node.endpoints.values()) else ""
        return {name: node.advertised_endpoint(config.find_advertised(name), host, name) for name in node.endpoints}

    def find_login_secret(self) -> bytes:
        """Returns what `ScramServer` makes salts of: the cluster's, or the directory's own, which is made if it is not
        there.
        """
        if self._entry is not None:
            return self._entry.security.login_secret
        return read_or_make_login_secret(self._log_directory, self._filesystem)

    def retire(self) -> None:
        """Called when the broker no longer listens: commands then wait for the directory, and do not ask it."""
        with contextlib.suppress(OSError):  # a full disk; the commands fail to connect then
            self._lock.announce("")

    # --- closing

    def close(self, *, threads: int = 1) -> None:
        """Stops cleanly; afterwards the directory is free. `threads` threads close logs."""
        services = self.services
        services.stepped_answers.finish_owed()
        self.cleaning.cleaner.close()
        try:
            services.log_manager.close(services.controller.broker_epoch, threads=threads)
            services.controller.close()
        finally:
            self._release()

    def _release(self) -> None:
        self._lock.release()
        if self._shadow is not None:
            self._users_paths.stop()
            self._shadow.cleanup()
