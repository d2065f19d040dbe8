"""The periodic work of a broker, and when it is due: checkpoints, retention, cleaning, expiry."""

from __future__ import annotations

import logging
from collections.abc import Callable

from core.broker.config.effective_configs import Configs
from core.broker.partitions.file_deletion import FileDeletion
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.runtime import Runtime
from core.cluster.image.metadata_image import TopicImage
from core.common.errors import CorruptRecordError
from core.common.filesystem import access_error
from core.common.topic_partition import TopicPartition
from core.compaction.cleaner_process import CleanerProcess, CleanerSettings
from core.compaction.log_cleaner import LogCleaner
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.log.log_manager import LogManager
from core.log.retention import delete_old_segments

_log = logging.getLogger("plog.broker")

_EXPIRE_PRODUCERS_EVERY_MS = 600_000


class CleanerSchedule:
    """Owned by the broker's task. `cleaner` picks the logs, and cleans them in other processes."""

    def __init__(
        self,
        configs: Configs,
        log_manager: LogManager,
        replicas: ReplicaManager,
        deletion: FileDeletion,
        runtime: Runtime,
        make_process: Callable[[], CleanerProcess],
    ) -> None:
        self._configs = configs
        self._is_read_only = log_manager.is_read_only
        self.cleaner = LogCleaner(
            log_manager=log_manager,
            run=runtime.run_cleaning,
            delete_later=lambda log, paths: deletion.delete_later(paths, log.config.file_delete_delay_ms),
            on_log_failed=replicas.on_flush_failed,
            on_damage=replicas.report_damage,
            on_idle=self.step,
            clock=runtime.clock,
            filesystem=log_manager.filesystem,
            make_process=make_process,
        )
        log_manager.events.on_cut.append(self.cleaner.break_off)

    def step(self) -> None:
        """Starts to clean the logs that need it. A read-only broker cleans none."""
        config = self._configs.broker
        threads = config.log_cleaner_threads
        if self._is_read_only or not threads:
            return
        settings = CleanerSettings(
            config.log_cleaner_dedupe_buffer_size // threads,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_max_bytes_per_second / threads,
        )
        self.cleaner.step(settings, threads, config.log_cleaner_backoff_ms)

    def on_topic_deleted(self, topic: TopicImage) -> None:
        """Stops the cleaning of the topic's logs."""
        for number in topic.partitions:
            self.cleaner.forget(TopicPartition(topic.name, number))


class Housekeeping:
    """Owned by the broker's task, which calls `step` every second or so."""

    def __init__(
        self,
        *,
        configs: Configs,
        log_manager: LogManager,
        replicas: ReplicaManager,
        deletion: FileDeletion,
        cleaning: CleanerSchedule,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        runtime: Runtime,
    ) -> None:
        self._configs = configs
        self._log_manager = log_manager
        self._replicas = replicas
        self._deletion = deletion
        self._cleaning = cleaning
        self._groups = groups
        self._transactions = transactions
        self._run = runtime.run_in_background
        self._clock = runtime.clock
        self._began_us = self._clock.monotonic_us()
        self._last_run_us: dict[str, int] = {}

    def step(self) -> None:
        """Does the work that is due. Raises OSError if a checkpoint can't be written."""
        config, checkpoints, replicas = self._configs.broker, self._log_manager.checkpoints, self._replicas
        if self._is_due("high watermarks", config.replica_high_watermark_checkpoint_interval_ms):
            checkpoints.write_high_watermarks(self._run)
        if self._is_due("recovery points", config.log_flush_offset_checkpoint_interval_ms):
            checkpoints.write_recovery_points(self._run)
        if self._is_due("log starts", config.log_flush_start_offset_checkpoint_interval_ms):
            checkpoints.write_log_starts(self._run)
        if not self._log_manager.is_read_only:
            self._expire_of_coordinators()
        if self._is_due("retention", config.log_retention_check_interval_ms):
            self.apply_retention()
        if replicas.look_every_ms is not None and self._is_due("followers", replicas.look_every_ms):
            replicas.look_at_followers()
        replicas.flush_to_close_files()
        if config.log_cleaner_enable and self._is_due("cleaner", config.log_cleaner_backoff_ms):
            self._cleaning.step()
        if self._is_due("producers", _EXPIRE_PRODUCERS_EVERY_MS):
            now_ms = self._clock.monotonic_ms()
            for partition in replicas.partitions.values():
                partition.log.producers.remove_expired(now_ms)

    def _expire_of_coordinators(self) -> None:
        config = self._configs.broker
        if self._is_due("offsets", config.offsets_retention_check_interval_ms):
            self._groups.expire()
        if self._is_due("timeouts", config.transaction_abort_timed_out_transaction_cleanup_interval_ms):
            self._transactions.abort_timed_out()
        every_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        if self._is_due("transactional ids", every_ms):
            self._transactions.expire()

    def apply_retention(self) -> None:
        """Deletes the segments that retention settings no longer keep; a read-only broker deletes none."""
        if self._log_manager.is_read_only:
            return
        for partition in list(self._replicas.partitions.values()):
            log = partition.log
            if self._cleaning.cleaner.is_cleaning(log.partition):
                continue
            try:
                deleted = delete_old_segments(log, self._clock.now_ms())
            except OSError as error:
                _log.error("retention: %s", access_error(error, error.filename or log.directory, "trim"))
                continue
            except CorruptRecordError as error:
                _log.error("retention: %s", error)
                self._replicas.report_damage(log, error)
                continue
            if deleted:
                self._deletion.delete_later(deleted, log.config.file_delete_delay_ms)
                self._replicas.notify([log.partition])
        self._log_manager.checkpoints.write_log_starts(self._run)

    def _is_due(self, what: str, every_ms: int) -> bool:
        """Returns whether the work is due, by the monotonic clock: a change of the system's time has no effect."""
        now_us = self._clock.monotonic_us()
        if now_us - self._last_run_us.setdefault(what, self._began_us) < every_ms * 1000:
            return False
        self._last_run_us[what] = now_us
        return True
