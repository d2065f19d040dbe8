"""Has compacted logs cleaned by the broker's settings that are in force."""

from __future__ import annotations

from collections.abc import Callable

from core.broker.configs import Configs
from core.broker.file_deletion import FileDeletion
from core.broker.node_identity import NodeIdentity
from core.broker.replica_manager import ReplicaManager
from core.broker.runtime import Runtime
from core.broker.scrubber import Scrubber
from core.cluster.metadata_image import TopicImage
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.compaction.cleaner_process import CleanerProcess, CleanerSettings
from core.compaction.log_cleaner import LogCleaner
from core.log.log_manager import LogManager


class Cleaning:
    """Owned by the broker's task. `cleaner` picks the logs, and cleans them in other processes."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        node: NodeIdentity,
        configs: Configs,
        log_manager: LogManager,
        replicas: ReplicaManager,
        scrubber: Scrubber,
        deletion: FileDeletion,
        filesystem: FileSystem,
        make_process: Callable[[], CleanerProcess],
    ) -> None:
        self._node = node
        self._configs = configs
        self.cleaner = LogCleaner(
            log_manager,
            runtime.run_cleaning,
            lambda log, paths: deletion.delete_later(paths, log.config.file_delete_delay_ms),
            replicas.on_flush_failed,
            scrubber.examine,
            self.step,
            runtime.clock,
            filesystem,
            make_process=make_process,
        )

    def step(self) -> None:
        """Begins to clean the logs that need it. A broker that only reads cleans none."""
        config = self._configs.broker
        threads = config.log_cleaner_threads
        if self._node.is_read_only or not threads:
            return
        settings = CleanerSettings(
            config.log_cleaner_dedupe_buffer_size // threads,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_max_bytes_per_second / threads,
        )
        self.cleaner.step(settings, threads, config.log_cleaner_backoff_ms)

    def on_topic_deleted(self, topic: TopicImage) -> None:
        """Its logs are not cleaned any more."""
        for number in topic.partitions:
            self.cleaner.forget(TopicPartition(topic.name, number))
