"""Starts the cleaning of compacted logs with the broker's current settings."""

from __future__ import annotations

from collections.abc import Callable

from core.broker.config.effective_configs import Configs
from core.broker.partitions.file_deletion import FileDeletion
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.runtime import Runtime
from core.cluster.image.metadata_image import TopicImage
from core.common.topic_partition import TopicPartition
from core.compaction.cleaner_process import CleanerProcess, CleanerSettings
from core.compaction.log_cleaner import LogCleaner
from core.log.log_manager import LogManager


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
