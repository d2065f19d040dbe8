"""The broker, without sockets: a data directory opened for serving, and the parts that serve it wired together.

`SocketServer` puts it on the network; embedded commands call its dispatcher directly. Either way there is one door to
the log. What must be done from time to time is done by `housekeep`, which whoever owns the loop calls.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from core.broker.broker_config import BrokerConfig
from core.broker.fetch_session import FetchSessionCache
from core.broker.group_log import GroupLog
from core.broker.late_checks import LateChecks
from core.broker.late_loads import LateLoads
from core.broker.readers_doubts import Doubts, ReadersDoubts
from core.broker.replica_manager import ReplicaManager
from core.broker.request_dispatcher import SERVED_APIS, AnyApi, RequestDispatcher
from core.broker.scrubber import Scrubber
from core.broker.stepped_answer import SteppedAnswer
from core.broker.transaction_log import TransactionLog
from core.broker.turns import Turns
from core.broker.walk_libraries import WalkLibraries
from core.cluster.controller import Controller, NewTopic
from core.cluster.found_topics import find_topics
from core.cluster.metadata_image import MetadataImage, TopicImage
from core.cluster.metadata_log import MetadataLog, read_metadata_image
from core.cluster.single_broker import find_node_id
from core.common.background import RunInBackground, run_now
from core.common.bad_sectors import unreadable_error
from core.common.clock import Clock, SystemClock
from core.common.config_def import ConfigResourceType
from core.common.deferred import Schedule, TimerHandle
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, CorruptRecordError, KafkaError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.shadow_filesystem import ShadowFileSystem, link_tree, temporary_shadow
from core.common.steps import Steps, finish
from core.common.topic_partition import TopicPartition, random_uuid, uuid_text
from core.common.users_paths import UsersPaths
from core.compaction.cleaner_process import CleanerProcess, CleanerSettings
from core.compaction.log_cleaner import LogCleaner
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.log.directory_lock import DirectoryLock, find_lock_holder
from core.log.file_names import (
    LOCK,
    META_PROPERTIES,
    holds_segments,
    parse_offset_file_name,
    partition_directory_name,
)
from core.log.log_config import LogConfig, stored_topic_values
from core.log.log_loader import LoadedLog, LogSettings
from core.log.log_manager import LogManager, find_partitions
from core.log.log_segment import LogSegment
from core.log.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from core.log.partition_log import PartitionLog
from core.log.retention import delete_old_segments
from core.protocol.schema.metadata_records import BrokerEndpoint

_log = logging.getLogger("plog.broker")

_PLAINTEXT = 0
_EXPIRE_PRODUCERS_EVERY_MS = 600_000
_NOTE_RECOVERED_EVERY_MS = 100
_DELETED_AT_ONCE = 20


class Broker:
    """Owned by one task from `open` to `close`."""

    def __init__(
        self,
        directory: Path,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        filesystem: FileSystem | None = None,
        lock_timeout_s: float = 0.0,
        is_read_only: bool = False,
        loads_late: bool = False,
        check_metadata: Callable[[MetadataImage], None] | None = None,
    ) -> None:
        """`check_metadata` sees the metadata before anything is changed or served; what it raises is raised here. With
        `loads_late` logs that have to be read are read when somebody asks for them, and indexes checked when they are
        used: not where all that is wrong is to be told before anything else is done.
        """
        self.directory = directory
        self._check_metadata = check_metadata
        self.is_read_only = is_read_only
        self._loads_late = loads_late
        self._shadow = temporary_shadow(directory, "plog-read-only-") if is_read_only else None
        self._log_directory = Path(self._shadow.name) if self._shadow else directory
        self.config = config
        self.clock = clock or SystemClock()
        self.schedule: Schedule = _never
        self.run_in_background: RunInBackground = run_now
        self.run_flush: RunInBackground = run_now
        self.turns: Turns | None = None
        """Work that takes long is done in turns, once there is a loop for them."""
        self.owed: set[SteppedAnswer] = set()
        """Answers whose work was begun, and must be done before the broker closes."""
        self.walk_libraries = WalkLibraries(lambda work, then=None: self.run_in_background(work, then))
        self.run_cleaning: RunInBackground = run_now
        self.run_loading: RunInBackground = run_now
        self.endpoint: Endpoint | None = None
        self._users_paths = UsersPaths(self._log_directory, directory)
        self._filesystem = filesystem or (ShadowFileSystem(self._users_paths) if is_read_only else FileSystem())
        self._lock = DirectoryLock(self._log_directory)
        self._unreadable: list[Path] = []
        self._has_adopted = False
        self._found: dict[TopicPartition, Doubts] = {}  # of a log that was just read
        self._producer_ids = iter(range(0))
        self._last_run_us: dict[str, int] = {}
        self._opened_us = self.clock.monotonic_us()
        self._open(lock_timeout_s)
        self.dispatcher = RequestDispatcher(self)

    # --- opening

    def _ensure_no_partition(self) -> None:
        """AccessError for a partition's folder, where a data directory would be made within another one."""
        directory = self.directory
        if directory.is_dir() and holds_segments(directory) and not (directory / META_PROPERTIES).exists():
            raise AccessError(
                f"{directory} is a partition's folder, not a data directory",
                where=str(directory),
                hint=f"--data-dir {directory.absolute().parent}",
            )

    def _open(self, lock_timeout_s: float) -> None:
        """Locks the directory and opens what is in it. AccessError and CorruptRecordError where that can't be done."""
        try:
            if self.is_read_only:
                self._users_paths.start()
                link_tree(
                    self.directory,
                    self._log_directory,
                    is_left_out=lambda name: name == LOCK,
                    on_unreadable=self._pass_over,
                )
            else:
                self._ensure_no_partition()
                self._filesystem.make_directory(self.directory)
        except OSError as error:
            self._release()
            raise access_error(error, self.directory, "read" if self.is_read_only else "create") from error
        self._lock.acquire(lock_timeout_s)
        try:
            self._open_locked()
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

    def _open_locked(self) -> None:
        meta = self._read_meta_properties()
        if meta is None:
            meta = MetaProperties(uuid_text(random_uuid()), self._find_node_id(), random_uuid())
            write_meta_properties(self._log_directory, meta, self._filesystem)
        elif meta.version == 0:  # ZooKeeper's: without the directory's id
            meta = replace(meta, version=1)
            write_meta_properties(self._log_directory, meta, self._filesystem)
        if self.config.is_node_id_given and meta.node_id != self.config.node_id:
            raise AccessError(
                f"{self.directory} belongs to node {meta.node_id}, node.id is {self.config.node_id}",
                where=str(self.directory),
                hint=f"leave node.id out, or set it to {meta.node_id}",
            )
        self.cluster_id = meta.cluster_id
        self.node_id = meta.node_id
        self._metadata_log = self._open_metadata_log(meta.node_id)
        if self._check_metadata is not None:
            self._check_metadata(self._metadata_log.image)
        self.controller = Controller(self._metadata_log, meta.node_id, meta.directory_id)
        self._take_dynamic_configs()
        settings = LogSettings(
            self.clock,
            self._filesystem,
            self.config.integer("producer.id.expiration.ms"),
            is_read_only=self.is_read_only,
            keeps_cut_bytes=not self.is_read_only,
            checks_late=self._loads_late,
        )
        self.log_manager = LogManager(
            self._log_directory,
            settings,
            origin=self.directory,
            is_beside_writer=lambda: self.is_read_only and find_lock_holder(self.directory) is not None,
        )
        self.replicas = ReplicaManager(
            self.log_manager,
            lambda work, then=None: self.run_flush(work, then),
            lambda delay_ms, function: self.schedule(delay_ms, function),
            self.clock,
        )
        self.scrubber = Scrubber(
            lambda: list(self.log_manager.logs.values()),
            lambda log: self.replicas.notify([log.partition]),
            lambda work, then=None: self.run_in_background(work, then),
            self.clock,
            bytes_per_second=self.config.integer("plog.scrub.bytes.per.second"),
            interval_ms=self.config.integer("plog.scrub.interval.ms"),
        )
        self.replicas.on_damage = self.scrubber.examine
        self._doubts = ReadersDoubts(self.log_manager, self.replicas, self.directory)
        self.late_checks = LateChecks(
            self.log_manager.logs.values,
            lambda delay_ms, function: self.schedule(delay_ms, function),
            lambda work, then=None: self.run_in_background(work, then),
            None if self.is_read_only else self._doubts.note_unexplained,
        )
        self.log_cleaner = LogCleaner(
            self.log_manager,
            lambda work, then=None: self.run_cleaning(work, then),
            lambda log, paths: self._delete_later(paths, log.config.file_delete_delay_ms),
            self.replicas.on_flush_failed,
            self.scrubber.examine,
            self.clean_logs,
            self.clock,
            self._filesystem,
            make_process=lambda: CleanerProcess(lambda: [self._lock.descriptor]),
        )
        self.late_loads = LateLoads(self)
        self.replicas.on_unloaded = self.late_loads.ask
        self._open_logs()
        self.group_log = GroupLog(self)
        self.transaction_log = TransactionLog(self)
        slots = self.config.integer("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessionCache(slots, self.clock)

    def _open_logs(self) -> None:
        is_new = not self.image.has_known_topics
        self.controller.register_broker(self._registered_endpoints(), self.config.rack)
        if is_new:
            self._adopt(self.log_manager.find_partitions())
        elif self._metadata_log.lacks_records:
            folders = self.log_manager.find_partitions()
            self._adopt({tp: path for tp, path in folders.items() if tp.topic not in self.image.topics})
        topic_ids = {
            TopicPartition(topic.name, number): topic.topic_id
            for topic in self.image.topics.values()
            for number, registration in topic.partitions.items()
            if self.node_id in registration.replicas
        }
        if topic_ids and not is_new:
            known = self.log_manager.set_aside_strays(topic_ids)
        else:
            known = self.log_manager.known(topic_ids)
            for partition, path in self.log_manager.find_partitions().items():
                if partition not in known:
                    _log.warning("%s belongs to no topic of the metadata; it is left alone", path)
        if self._loads_late and (self.is_read_only or not self.log_manager.had_clean_shutdown):
            self.log_manager.leave_unloaded(known)
            known = {tp: known[tp] for tp in self.late_loads.read_at_once() if self.log_manager.unloaded.pop(tp)}
        opened = self.log_manager.open_existing(known, self.log_config)
        self._raise_leader_epochs(opened)
        evidence = self.log_manager.read_evidence()
        for loaded in opened:
            self._note_doubts(loaded, self._doubts.find(loaded, evidence) if self.is_read_only else None)
        if not self.log_manager.unloaded:
            self.log_manager.forget_clean_shutdown()
        for topic in self.image.topics.values():
            finish(self._add_topic(topic))

    def _pass_over(self, error: OSError, path: Path) -> None:
        """What the shadow can't have."""
        if not path.is_dir() or parse_offset_file_name(path.name) is not None:
            _log.warning("%s; it is passed over", unreadable_error(error, path))
            self._unreadable.append(path)

    def _raise_leader_epochs(self, opened: Iterable[LoadedLog]) -> None:
        """Of logs that were cut, and of those that know of later epochs than the metadata."""
        was_cut = [loaded.log.partition for loaded in opened if loaded.was_cut]
        if was_cut:
            self.controller.start_new_leader_epochs(was_cut)
        for log in (loaded.log for loaded in opened):
            registration = self.image.topics[log.partition.topic].partitions[log.partition.partition]
            if log.leader_epochs.latest_epoch > registration.leader_epoch:
                self.controller.raise_leader_epoch(log.partition, above=log.leader_epochs.latest_epoch)

    # --- logs that are opened late

    @property
    def filesystem(self) -> FileSystem:
        """Where everything of the broker's is."""
        return self._filesystem

    def load(self, partition: TopicPartition, config: LogConfig, filesystem: FileSystem) -> LoadedLog:
        """Reads the partition's log, with that file system; in any thread. OSError and CorruptRecordError where that
        can't be. `end_load` comes then.
        """
        if self.is_read_only and find_lock_holder(self.directory) is not None:
            self._link_again(partition)
        loaded = self.log_manager.load(partition, config, filesystem)
        if self.is_read_only:
            self._found[partition] = self._doubts.find(loaded, self.log_manager.read_evidence())
        return loaded

    def _link_again(self, partition: TopicPartition) -> None:
        """The folder as it is now: whoever writes there made and deleted segments since the start. OSError if it can't
        be read.
        """
        name = partition_directory_name(partition)
        shadow = self._log_directory / name
        if shadow.is_symlink():
            return
        self._filesystem.remove_tree(shadow)
        shadow.mkdir()
        link_tree(
            self.directory / name, shadow, on_unreadable=lambda _error, path: self._unreadable.append(path), depth=0
        )

    def end_load(self, partition: TopicPartition, found: LoadedLog | OSError | PlogError) -> None:
        """Serves the partition, unless it could not be read or is there no more."""
        found_doubts = self._found.pop(partition, None)
        loaded = self.log_manager.end_load(partition, found)
        if loaded is None:
            return
        self._note_doubts(loaded, found_doubts)
        self._raise_leader_epochs([loaded])
        topic = self.image.topics[partition.topic]
        loaded.log.configure(self.log_config(topic.name))
        self.replicas.serve_loaded(loaded.log, topic.partitions[partition.partition], topic.topic_id)
        self.late_checks.add(loaded.log)
        self._flush_recovered([loaded.log])

    def _note_doubts(self, loaded: LoadedLog, doubts: Doubts | None) -> None:
        """What was found by who only reads, None of a log that is owned."""
        if doubts is None:
            self._doubts.note_unexplained(loaded.log, loaded.unexplained or ())
        else:
            self._doubts.note(loaded.log, doubts, self._unreadable)

    def _add_topic(self, topic: TopicImage) -> Steps[None]:
        """Makes the logs of the topic's partitions, and stops if somebody deletes it, who may have done so already."""
        if topic.topic_id not in self.image.topics_by_id:
            return
        config = self.log_config(topic.name)
        for _ in self.replicas.add_topic(topic, config, self.node_id):
            yield
            if topic.topic_id not in self.image.topics_by_id:
                return
        if self.log_config(topic.name) != config:  # somebody altered it meanwhile
            self._configure_logs([topic.name])

    def _read_meta_properties(self) -> MetaProperties | None:
        """None if the directory has none. Who only reads needs nothing of the file, and a damaged one does not keep
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
            _log.warning("%s; what is there is read without it", error)
            return None

    def _open_metadata_log(self, node_id: int) -> MetadataLog:
        try:
            return MetadataLog(
                self._log_directory, node_id, self.clock, self._filesystem, is_read_only=self.is_read_only
            )
        except CorruptRecordError as error:
            if error.hint is None:
                error.hint = (
                    f"plog recover {self.directory} shows what of the metadata can be kept; "
                    "plog serve --read-only serves the records as they are"
                )
            raise

    def _find_node_id(self) -> int:
        """Of a directory that does not say whose it is: the one node that has a replica of everything that is there."""
        if self.config.is_node_id_given:
            return self.config.node_id
        image = read_metadata_image(self._log_directory)
        return find_node_id(image, find_partitions(self._log_directory), self.config.node_id)

    def _adopt(self, folders: Mapping[TopicPartition, Path]) -> None:
        """Takes up the topics of folders that came without metadata: a copy, or a ZooKeeper-mode broker's.

        What their configuration was is not known: nothing is deleted or compacted until somebody says so.
        """
        self._has_adopted = bool(folders)
        found = find_topics(folders, goes_by_name=self.is_read_only)
        self.log_manager.note_unknown_recovery_points(folders)
        self.controller.adopt_topics(found)
        for topic, partitions in found.items() if not self.is_read_only else ():
            _log.warning(
                "topic %s came without metadata: %d partitions; its configuration is not known, so retention and "
                "compaction are off until they are set, as by: plog topic alter %s --set retention.ms=604800000",
                topic.name,
                len(partitions),
                topic.name,
            )

    def _registered_endpoints(self) -> Sequence[BrokerEndpoint]:
        endpoint = self.config.advertised_listener or self.config.listener or Endpoint("localhost", 0)
        return [BrokerEndpoint("PLAINTEXT", endpoint.host or "localhost", endpoint.port, _PLAINTEXT)]

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def apis(self) -> list[AnyApi]:
        return SERVED_APIS

    def ensure_writable(self) -> None:
        """KafkaError(POLICY_VIOLATION) for a broker that only reads."""
        if self.is_read_only:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"this broker was started with --read-only: {self.directory} is not written to",
            )

    def log_config(self, topic: str) -> LogConfig:
        """What the logs of that topic are kept by."""
        values = self.config.topic_defaults() | stored_topic_values(self.image.topic_configs(topic))
        return LogConfig.from_values(values)

    @property
    def groups(self) -> GroupCoordinator:
        return self.group_log.coordinator

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.transaction_log.coordinator

    # --- where clients find it

    def announce(self, endpoint: Endpoint) -> None:
        """The broker listens there now: other processes that want the directory are told so."""
        self.endpoint = endpoint
        reachable = Endpoint("127.0.0.1", endpoint.port) if endpoint.is_wildcard else endpoint
        self._lock.announce(str(reachable))

    def retire(self) -> None:
        """The broker listens no more: commands wait until it has left the directory, and don't ask it."""
        with contextlib.suppress(OSError):  # of a full disk; they can't connect then
            self._lock.announce("")

    def advertised_endpoint(self, local_host: str) -> Endpoint:
        """What a client is told to connect to: what is configured, else where the broker listens; for a listener on all
        addresses, the one that the client reached."""
        advertised = self.config.advertised_listener
        if advertised is not None and not advertised.is_wildcard:
            port = advertised.port or (self.endpoint.port if self.endpoint else 0)
            return Endpoint(advertised.host, port)
        endpoint = self.endpoint or Endpoint("localhost", 0)
        if not endpoint.is_wildcard:
            return endpoint
        return Endpoint(local_host or "localhost", endpoint.port)

    # --- topics

    def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """Makes one topic, at once. Raises KafkaError if it may not be made."""
        made = finish(self.create_topics([topic], validate_only=validate_only))[topic.name]
        if isinstance(made, KafkaError):
            raise made
        return made

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Steps[dict[str, TopicImage | KafkaError]]:
        """Gives, by name, what `Controller.create_topics` makes of each. The topics exist after the first step, the
        logs of their partitions when the last one is done: until then clients get LEADER_NOT_AVAILABLE, and ask again.
        """
        self.ensure_writable()
        made = self.controller.create_topics(
            topics,
            default_partitions=self.config.integer("num.partitions"),
            default_replication=self.config.integer("default.replication.factor"),
            validate_only=validate_only,
        )
        if not validate_only:
            yield
            for topic in made.values():
                if isinstance(topic, TopicImage):
                    yield from self._add_topic(topic)
        return made

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Steps[None]:
        """Grows a topic, after `Controller.ensure_few_are_added`. Raises what `Controller.create_partitions` raises."""
        self.ensure_writable()
        self.controller.create_partitions(name, count, assignments, validate_only=validate_only)
        yield
        topic = self.image.topics.get(name)
        if topic is not None and not validate_only:
            yield from self._add_topic(topic)

    def delete_topic(self, name: str) -> TopicImage:
        """Deletes one topic, at once. Raises what `delete_topics` raises."""
        (topic,) = finish(self.delete_topics([name]))
        return topic

    def delete_topics(self, names: Sequence[str]) -> Steps[list[TopicImage]]:
        """Deletes the topics, all of them or none. They are gone after the first step, their folders are renamed when
        the last one is done, and deleted after `file.delete.delay.ms`.

        Raises what `Controller.delete_topics` raises.
        """
        self.ensure_writable()
        delays_ms = {name: self.log_config(name).file_delete_delay_ms for name in names if name in self.image.topics}
        topics = self.controller.delete_topics(names)
        leaving = defaultdict[int, list[TopicPartition]](list)
        for topic in topics:
            self.group_log.on_topic_deleted(topic.name)
            self.transaction_log.on_topic_deleted(topic.name)
            partitions = self.replicas.remove_topic(topic)
            for partition in partitions:
                self.log_cleaner.forget(partition)
            leaving[delays_ms[topic.name]] += partitions
        removals = [(self.log_manager.remove(partitions), delay_ms) for delay_ms, partitions in leaving.items()]
        for renaming, delay_ms in removals:
            renamed = yield from renaming
            if renamed:
                self._delete_later(renamed, delay_ms)
        self.run_in_background(self.log_manager.sync_names)
        return topics

    def _delete_later(self, paths: Sequence[Path], delay_ms: int) -> None:
        """Deletes what was renamed for that; the next start does so where this one's does not come."""

        self.schedule(delay_ms, lambda: self._delete(paths))

    def delete_leftovers(self) -> None:
        """Deletes the folders whose deletion a stop interrupted, in the background of a loop: there may be many."""
        self._delete(self.log_manager.find_deleted_directories())

    def _delete(self, paths: Iterable[Path]) -> None:
        """Some at a time: checkpoints, and a stop, don't wait for all of them."""
        left = iter(paths)

        def delete_some() -> None:
            some = list(islice(left, _DELETED_AT_ONCE))
            if some:
                self.run_in_background(lambda: self.log_manager.delete(some), delete_some)

        delete_some()

    def set_configs(self, resource_type: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets keys of a resource, or with None removes them, from now on; checked by `ConfigResource.alter`."""
        self.ensure_writable()
        self.controller.set_configs(resource_type, name, changes)
        if resource_type == ConfigResourceType.BROKER:
            self._take_dynamic_configs()
            self._configure_logs(self.image.topics)
        elif resource_type == ConfigResourceType.TOPIC:
            self._configure_logs([name])

    def _take_dynamic_configs(self) -> None:
        configs = self.image.configs
        self.config = self.config.with_dynamic(
            configs.get((ConfigResourceType.BROKER, ""), {}),
            configs.get((ConfigResourceType.BROKER, str(self.node_id)), {}),
        )

    def _configure_logs(self, topics: Iterable[str]) -> None:
        configs = {name: self.log_config(name) for name in topics}
        expiration_ms = self.config.integer("producer.id.expiration.ms")
        for partition in self.replicas.partitions.values():
            log = partition.log
            if log.partition.topic in configs:
                log.configure(configs[log.partition.topic])
                log.producers.expiration_ms = expiration_ms
                self.replicas.flush_as_configured(log)

    # --- producers

    @property
    def _must_know_all_logs(self) -> bool:
        """Whether ids may stand in logs that the metadata do not know of."""
        return not self.is_read_only and (self._has_adopted or not self.image.next_producer_id)

    def next_producer_id(self) -> int:
        """An id that was never given in this directory, nor lies in a log that came from elsewhere. KafkaError while
        that can't be told.
        """
        try:
            return next(self._producer_ids)
        except StopIteration:
            if not self.image.next_producer_id and self.transaction_log.load_all() is not None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None  # which ids it has must be known
            if self._must_know_all_logs and self.log_manager.unloaded:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None  # likewise of logs
            known = [p.log.producers.latest_producer_id for p in self.replicas.partitions.values()]
            at_least = 1 + max(*known, self.transactions.latest_producer_id, -1)
            self._producer_ids = iter(self.controller.allocate_producer_ids(at_least))
            return next(self._producer_ids)

    # --- after a crash

    def flush_recovered(self) -> None:
        """Brings what was recovered to the disk, in the background, segment by segment, and notes how far it is: a
        crash soon after this one must not cost the same again.
        """
        self._flush_recovered(self.log_manager.logs.values())

    def _flush_recovered(self, logs: Iterable[PartitionLog]) -> None:
        if not self.log_manager.had_clean_shutdown and not self.is_read_only:
            logs = [log for log in logs if log.unflushed_messages]
            self._flush_next(iter([(log, s) for log in logs for s in log.unflushed_segments(log.log_end_offset)]))

    def _flush_next(self, recovered: Iterator[tuple[PartitionLog, LogSegment]]) -> None:
        served = self.log_manager.logs
        following = next((found for found in recovered if served.get(found[0].partition) is found[0]), None)
        if following is None:
            self.log_manager.checkpoint_recovery_points(self.run_in_background)
            return
        log, segment = following
        offset = log.end_offset_of(segment)
        failures: list[OSError] = []

        def sync() -> None:
            try:
                segment.sync()
            except OSError as error:
                failures.append(error.with_traceback(None))  # which would hold the segment

        def then() -> None:
            if failures:
                self.replicas.on_flush_failed(log, failures[0])
            else:
                log.mark_flushed(offset)
            if self._is_due("recovered", _NOTE_RECOVERED_EVERY_MS):
                self.log_manager.checkpoint_recovery_points(self.run_in_background)
            self._flush_next(recovered)

        self.run_flush(sync, then)

    # --- from time to time

    def housekeep(self) -> None:
        """Checkpoints and expiry that are due; called every second or so."""
        config = self.config
        if self._is_due("high watermarks", config.integer("replica.high.watermark.checkpoint.interval.ms")):
            self.log_manager.checkpoint_high_watermarks(self.run_in_background)
        if self._is_due("recovery points", config.integer("log.flush.offset.checkpoint.interval.ms")):
            self.log_manager.checkpoint_recovery_points(self.run_in_background)
        if self._is_due("log starts", config.integer("log.flush.start.offset.checkpoint.interval.ms")):
            self.checkpoint_log_starts()
        if not self.is_read_only:
            self._expire_of_coordinators()
        if self._is_due("retention", config.integer("log.retention.check.interval.ms")):
            self.apply_retention()
        self.replicas.flush_to_close_files()
        self.scrubber.step()
        if config["log.cleaner.enable"] and self._is_due("cleaner", config.integer("log.cleaner.backoff.ms")):
            self.clean_logs()
        if self._is_due("producers", _EXPIRE_PRODUCERS_EVERY_MS):
            now_ms = self.clock.monotonic_ms()
            for partition in self.replicas.partitions.values():
                partition.log.producers.remove_expired(now_ms)

    def _expire_of_coordinators(self) -> None:
        config = self.config
        if self._is_due("offsets", config.integer("offsets.retention.check.interval.ms")):
            self.groups.expire()
        if self._is_due("timeouts", config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms")):
            self.transactions.abort_timed_out()
        every_ms = config.integer("transaction.remove.expired.transaction.cleanup.interval.ms")
        if self._is_due("transactional ids", every_ms):
            self.transactions.expire()

    def apply_retention(self) -> None:
        """Lets go of the segments that their topics' configurations do not keep; a broker that only reads, of none."""
        if self.is_read_only:
            return
        for partition in list(self.replicas.partitions.values()):
            log = partition.log
            if self.log_cleaner.is_cleaning(log.partition):
                continue
            try:
                deleted = delete_old_segments(log, self.clock.now_ms())
            except OSError as error:
                _log.error("retention: %s", access_error(error, error.filename or log.directory, "trim"))
                continue
            except CorruptRecordError as error:
                _log.error("retention: %s", error)
                self.scrubber.examine(log, error)
                continue
            if deleted:
                self._delete_later(deleted, log.config.file_delete_delay_ms)
                self.replicas.notify([log.partition])
        self.checkpoint_log_starts()

    def clean_logs(self) -> None:
        """Begins to clean the compacted logs that need it."""
        config = self.config
        threads = config.integer("log.cleaner.threads")
        if self.is_read_only or not threads:
            return
        settings = CleanerSettings(
            config.integer("log.cleaner.dedupe.buffer.size") // threads,
            config.number("log.cleaner.io.buffer.load.factor"),
            config.number("log.cleaner.io.max.bytes.per.second") / threads,
        )
        self.log_cleaner.step(settings, threads, config.integer("log.cleaner.backoff.ms"))

    def checkpoint_log_starts(self) -> None:
        self.log_manager.checkpoint_log_starts(self.run_in_background)

    def _is_due(self, what: str, every_ms: int) -> bool:
        """By the clock that nobody sets: a step of the other one neither holds up nor hastens anything."""
        now_us = self.clock.monotonic_us()
        if now_us - self._last_run_us.setdefault(what, self._opened_us) < every_ms * 1000:
            return False
        self._last_run_us[what] = now_us
        return True

    def close(self, *, threads: int = 1) -> None:
        """A clean stop; the directory is free for others then. `threads` close logs at once."""
        for answer in list(self.owed):
            answer.complete()
        self.log_cleaner.close()
        try:
            self.log_manager.close(self.controller.broker_epoch, threads=threads)
            self.controller.close()
        finally:
            self._release()

    def _release(self) -> None:
        self._lock.release()
        if self._shadow is not None:
            self._users_paths.stop()
            self._shadow.cleanup()


class _NoTimer:
    def cancel(self) -> None:
        pass


def _never(_delay_ms: int, _function: Callable[[], None]) -> TimerHandle:
    """Without a loop nothing is done later: deleted folders go at the next start."""
    return _NoTimer()
