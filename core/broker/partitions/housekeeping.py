"""The periodic work of a broker, and when it is due: checkpoints, retention, cleaning, expiry."""

from __future__ import annotations

import logging

from core.broker.partitions.cleaner_schedule import CleanerSchedule
from core.broker.partitions.suspected_loss import SuspectedLoss
from core.broker.requests.services import Services
from core.common.errors import CorruptRecordError
from core.common.filesystem import access_error
from core.log.retention import delete_old_segments

_log = logging.getLogger("plog.broker")

_EXPIRE_PRODUCERS_EVERY_MS = 600_000


class Housekeeping:
    """Owned by the broker's task, which calls `step` every second or so."""

    def __init__(self, services: Services, cleaning: CleanerSchedule, doubts: SuspectedLoss) -> None:
        self._services = services
        self._cleaning = cleaning
        self._doubts = doubts
        self._clock = services.runtime.clock
        self._began_us = self._clock.monotonic_us()
        self._last_run_us: dict[str, int] = {}

    def step(self) -> None:
        """Does the work that is due. Raises OSError if a checkpoint can't be written."""
        services, config = self._services, self._services.config
        logs, run = services.log_manager, services.runtime.run_in_background
        if self._is_due("high watermarks", config.replica_high_watermark_checkpoint_interval_ms):
            logs.checkpoints.write_high_watermarks(run)
        if self._is_due("recovery points", config.log_flush_offset_checkpoint_interval_ms):
            logs.checkpoints.write_recovery_points(run)
        if self._is_due("log starts", config.log_flush_start_offset_checkpoint_interval_ms):
            logs.checkpoints.write_log_starts(run)
        if not services.node.is_read_only:
            self._expire_of_coordinators()
        if self._is_due("retention", config.log_retention_check_interval_ms):
            self.apply_retention()
        if services.membership is not None and self._is_due("followers", services.membership.look_every_ms):
            services.replicas.look_at_followers()
        services.replicas.flush_to_close_files()
        if config.log_cleaner_enable and self._is_due("cleaner", config.log_cleaner_backoff_ms):
            self._cleaning.step()
        if self._is_due("producers", _EXPIRE_PRODUCERS_EVERY_MS):
            now_ms = self._clock.monotonic_ms()
            for partition in services.replicas.partitions.values():
                partition.log.producers.remove_expired(now_ms)

    def _expire_of_coordinators(self) -> None:
        services, config = self._services, self._services.config
        if self._is_due("offsets", config.offsets_retention_check_interval_ms):
            services.groups.expire()
        if self._is_due("timeouts", config.transaction_abort_timed_out_transaction_cleanup_interval_ms):
            services.transactions.abort_timed_out()
        every_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        if self._is_due("transactional ids", every_ms):
            services.transactions.expire()

    def apply_retention(self) -> None:
        """Deletes the segments that retention settings no longer keep; a read-only broker deletes none."""
        services = self._services
        if services.node.is_read_only:
            return
        for partition in list(services.replicas.partitions.values()):
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
                self._doubts.examine(log, error)
                continue
            if deleted:
                services.deletion.delete_later(deleted, log.config.file_delete_delay_ms)
                services.replicas.notify([log.partition])
        services.log_manager.checkpoints.write_log_starts(services.runtime.run_in_background)

    def _is_due(self, what: str, every_ms: int) -> bool:
        """Returns whether the work is due, by the monotonic clock: a change of the system's time has no effect."""
        now_us = self._clock.monotonic_us()
        if now_us - self._last_run_us.setdefault(what, self._began_us) < every_ms * 1000:
            return False
        self._last_run_us[what] = now_us
        return True
