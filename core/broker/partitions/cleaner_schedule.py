"""Starts the cleaning of compacted logs with the broker's current settings."""

from __future__ import annotations

from collections.abc import Callable

from core.broker.partitions.storage_services import StorageServices
from core.broker.partitions.suspected_loss import SuspectedLoss
from core.cluster.image.metadata_image import TopicImage
from core.common.topic_partition import TopicPartition
from core.compaction.cleaner_process import CleanerProcess, CleanerSettings
from core.compaction.log_cleaner import LogCleaner


class CleanerSchedule:
    """Owned by the broker's task. `cleaner` picks the logs, and cleans them in other processes."""

    def __init__(
        self, services: StorageServices, doubts: SuspectedLoss, make_process: Callable[[], CleanerProcess]
    ) -> None:
        self._services = services
        self.cleaner = LogCleaner(
            log_manager=services.log_manager,
            run=services.runtime.run_cleaning,
            delete_later=lambda log, paths: services.deletion.delete_later(paths, log.config.file_delete_delay_ms),
            on_log_failed=services.replicas.on_flush_failed,
            on_damage=doubts.examine,
            on_idle=self.step,
            clock=services.runtime.clock,
            filesystem=services.filesystem,
            make_process=make_process,
        )

    def step(self) -> None:
        """Starts to clean the logs that need it. A read-only broker cleans none."""
        config = self._services.config
        threads = config.log_cleaner_threads
        if self._services.node.is_read_only or not threads:
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
