"""The broker, without sockets: a data directory opened for serving, and the parts that serve it wired together.

`SocketServer` puts it on the network; embedded commands call its dispatcher directly. Either way there is one door to
the log. What must be done from time to time is done by `housekeep`, which whoever owns the loop calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from core.broker.broker_config import BrokerConfig, Endpoint
from core.broker.delayed_operation import Schedule, TimerHandle
from core.broker.replica_manager import ReplicaManager
from core.broker.request_dispatcher import SERVED_APIS, AnyApi, RequestDispatcher
from core.broker.scrubber import Scrubber
from core.cluster.controller import Controller, NewTopic
from core.cluster.metadata_image import MetadataImage, TopicImage
from core.cluster.metadata_log import MetadataLog
from core.common.background import RunInBackground, run_now
from core.common.clock import Clock, SystemClock
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, KafkaError
from core.common.filesystem import FileSystem, access_error
from core.common.topic_partition import TopicPartition, random_uuid, uuid_text
from core.log.directory_lock import DirectoryLock
from core.log.log_config import LogConfig, stored_topic_values
from core.log.log_loader import LogSettings
from core.log.log_manager import LogManager
from core.log.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from core.log.retention import delete_old_segments
from core.protocol.schema.metadata_records import BrokerEndpoint

_log = logging.getLogger("plog.broker")

_PLAINTEXT = 0
_EXPIRE_PRODUCERS_EVERY_MS = 600_000


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
    ) -> None:
        self.directory = directory
        self.is_read_only = is_read_only
        self.config = config
        self.clock = clock or SystemClock()
        self.schedule: Schedule = _never
        self.run_in_background: RunInBackground = run_now
        self.run_flush: RunInBackground = run_now
        self.endpoint: Endpoint | None = None
        self._filesystem = filesystem or FileSystem()
        self._lock = DirectoryLock(directory)
        self._producer_ids = iter(range(0))
        self._last_run: dict[str, int] = {}
        self._open(lock_timeout_s)
        self.dispatcher = RequestDispatcher(self)

    # --- opening

    def _open(self, lock_timeout_s: float) -> None:
        """Locks the directory and opens what is in it. AccessError and CorruptRecordError where that can't be done."""
        try:
            self._filesystem.make_directory(self.directory)
        except OSError as error:
            raise access_error(error, self.directory, "create") from error
        self._lock.acquire(lock_timeout_s)
        try:
            self._open_locked()
        except OSError as error:
            self._lock.release()
            raise access_error(error, error.filename or self.directory, "open") from error
        except BaseException:
            self._lock.release()
            raise

    def _open_locked(self) -> None:
        meta = read_meta_properties(self.directory)
        if meta is None:
            cluster_id = uuid_text(random_uuid())
            meta = MetaProperties(cluster_id, self.config.node_id, random_uuid())
            write_meta_properties(self.directory, meta, self._filesystem)
        elif self.config.is_node_id_given and meta.node_id != self.config.node_id:
            raise AccessError(
                f"{self.directory} belongs to node {meta.node_id}, node.id is {self.config.node_id}",
                where=str(self.directory),
                hint=f"leave node.id out, or set it to {meta.node_id}",
            )
        self.cluster_id = meta.cluster_id
        self.node_id = meta.node_id
        self._metadata_log = MetadataLog(self.directory, meta.node_id, self.clock, self._filesystem)
        self.controller = Controller(self._metadata_log, meta.node_id, meta.directory_id)
        settings = LogSettings(self.clock, self._filesystem, self.config.integer("producer.id.expiration.ms"))
        self.log_manager = LogManager(self.directory, settings)
        self.replicas = ReplicaManager(
            self.log_manager,
            lambda work, then=None: self.run_flush(work, then),
            lambda delay_ms, function: self.schedule(delay_ms, function),
            self.clock,
        )
        self._scrubber = Scrubber(
            lambda: list(self.log_manager.logs.values()),
            lambda log: self.replicas.notify([log.partition]),
            lambda work, then=None: self.run_in_background(work, then),
            self.clock,
            bytes_per_second=self.config.integer("plog.scrub.bytes.per.second"),
            interval_ms=self.config.integer("plog.scrub.interval.ms"),
        )
        self.replicas.on_damage = self._scrubber.examine
        self._open_logs()

    def _open_logs(self) -> None:
        topic_ids = {
            TopicPartition(topic.name, number): topic.topic_id
            for topic in self.image.topics.values()
            for number in topic.partitions
        }
        if topic_ids:
            known = self.log_manager.set_aside_strays(topic_ids)
        else:  # perhaps somebody's folders, copied without their metadata: not ours to rename
            known = {}
            for path in self.log_manager.find_partitions().values():
                _log.warning("%s belongs to no topic: there is no metadata; it is left alone", path)
        was_cut = self.log_manager.open_existing(known, self._log_config)
        self.controller.register_broker(self._registered_endpoints(), self.config.rack)
        if was_cut:
            self.controller.start_new_leader_epochs(was_cut)
        for topic in self.image.topics.values():
            self.replicas.add_topic(topic, self._log_config(topic.name))
        for path in self.log_manager.find_deleted_directories():
            self.log_manager.delete([path])

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

    def _log_config(self, topic: str) -> LogConfig:
        values = self.config.topic_defaults() | stored_topic_values(self.image.topic_configs(topic))
        return LogConfig.from_values(values)

    # --- where clients find it

    def announce(self, endpoint: Endpoint) -> None:
        """The broker listens there now: other processes that want the directory are told so."""
        self.endpoint = endpoint
        reachable = Endpoint("127.0.0.1", endpoint.port) if endpoint.is_wildcard else endpoint
        self._lock.announce(str(reachable))

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
        """KafkaError as of `Controller.create_topic`."""
        created = self.controller.create_topic(
            topic,
            default_partitions=self.config.integer("num.partitions"),
            default_replication=self.config.integer("default.replication.factor"),
            validate_only=validate_only,
        )
        if not validate_only:
            self.replicas.add_topic(created, self._log_config(created.name))
        return created

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        """KafkaError as of `Controller.create_partitions`."""
        self.controller.create_partitions(name, count, assignments, validate_only=validate_only)
        self.replicas.add_topic(self.image.topics[name], self._log_config(name))

    def delete_topic(self, name: str) -> TopicImage:
        """The files go after `file.delete.delay.ms`. KafkaError where there is no such topic."""
        delay_ms = self._log_config(name).file_delete_delay_ms if name in self.image.topics else 0
        topic = self.controller.delete_topic(name)
        for partition in self.replicas.remove_topic(topic):
            renamed = self.log_manager.remove(partition)
            if renamed is not None:
                self._delete_later([renamed], delay_ms)
        return topic

    def _delete_later(self, paths: Sequence[Path], delay_ms: int) -> None:
        """Deletes what was renamed for that; the next start does so where this one's does not come."""

        def delete() -> None:
            self.run_in_background(lambda: self.log_manager.delete(paths))

        self.schedule(delay_ms, delete)

    def set_topic_configs(self, name: str, overrides: dict[str, str | None], *, validate_only: bool) -> None:
        """KafkaError as of `Controller.set_topic_configs`."""
        self.controller.set_topic_configs(name, overrides, validate_only=validate_only)
        config = self._log_config(name)
        for partition in self.replicas.partitions.values():
            if partition.log.partition.topic == name:
                partition.log.config = config
                self.replicas.flush_as_configured(partition.log)

    # --- producers

    def next_producer_id(self) -> int:
        """An id that was never given in this directory, nor lies in a log that came from elsewhere."""
        try:
            return next(self._producer_ids)
        except StopIteration:
            at_least = 1 + max(
                (p.log.producers.latest_producer_id for p in self.replicas.partitions.values()), default=-1
            )
            self._producer_ids = iter(self.controller.allocate_producer_ids(at_least))
            return next(self._producer_ids)

    # --- from time to time

    def housekeep(self) -> None:
        """Checkpoints and expiry that are due; called every second or so."""
        config = self.config
        now_ms = self.clock.now_ms()
        if self._is_due("high watermarks", config.integer("replica.high.watermark.checkpoint.interval.ms")):
            self.log_manager.checkpoint_high_watermarks(self.run_in_background)
        if self._is_due("recovery points", config.integer("log.flush.offset.checkpoint.interval.ms")):
            self.log_manager.checkpoint_recovery_points(self.run_in_background)
        if self._is_due("log starts", config.integer("log.flush.start.offset.checkpoint.interval.ms")):
            self.checkpoint_log_starts()
        if self._is_due("retention", config.integer("log.retention.check.interval.ms")):
            self.apply_retention()
        self._scrubber.step()
        if self._is_due("producers", _EXPIRE_PRODUCERS_EVERY_MS):
            for partition in self.replicas.partitions.values():
                partition.log.producers.remove_expired(now_ms)

    def apply_retention(self) -> None:
        """Lets go of the segments that their topics' configurations do not keep."""
        for partition in list(self.replicas.partitions.values()):
            log = partition.log
            try:
                deleted = delete_old_segments(log, self.clock.now_ms())
            except OSError as error:
                _log.error("retention: %s", access_error(error, error.filename or log.directory, "trim"))
                continue
            if deleted:
                self._delete_later(deleted, log.config.file_delete_delay_ms)
        self.checkpoint_log_starts()

    def checkpoint_log_starts(self) -> None:
        self.log_manager.checkpoint_log_starts(self.run_in_background)

    def _is_due(self, what: str, every_ms: int) -> bool:
        now_ms = self.clock.now_ms()
        if now_ms - self._last_run.setdefault(what, now_ms) < every_ms:
            return False
        self._last_run[what] = now_ms
        return True

    def close(self) -> None:
        """A clean stop; the directory is free for others then."""
        try:
            self.log_manager.close(self.controller.broker_epoch)
            self.controller.close()
        finally:
            self._lock.release()


class _NoTimer:
    def cancel(self) -> None:
        pass


def _never(_delay_ms: int, _function: Callable[[], None]) -> TimerHandle:
    """Without a loop nothing is done later: deleted folders go at the next start."""
    return _NoTimer()
