"""Removes logs, and deletes files and folders that were renamed for it: some time later, and a few at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

from core.broker.requests.runtime import Runtime
from core.common.task import Task
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig
from core.log.log_manager import LogManager

_DELETED_AT_ONCE = 20


class FileDeletion:
    """Owned by the broker's task; another thread deletes the files."""

    def __init__(self, log_manager: LogManager, runtime: Runtime) -> None:
        self._log_manager = log_manager
        self._runtime = runtime

    def remove_logs(self, configs: Mapping[TopicPartition, LogConfig]) -> list[Task[None]]:
        """Closes the logs of those partitions; the returned steps, if any, rename their folders, which are deleted
        after the `file.delete.delay.ms` of each.
        """
        leaving = defaultdict[int, list[TopicPartition]](list)
        for partition, config in configs.items():
            leaving[config.file_delete_delay_ms].append(partition)
        removals = [(self._log_manager.remove(partitions), delay_ms) for delay_ms, partitions in leaving.items()]
        return [self._rename(removals)] if removals else []

    def _rename(self, removals: Iterable[tuple[Task[list[Path]], int]]) -> Task[None]:
        for renaming, delay_ms in removals:
            renamed = yield from renaming
            if renamed:
                self.delete_later(renamed, delay_ms)
        self._runtime.run_in_background(self._log_manager.sync_names)

    def delete_later(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Deletes the paths after that time. If the broker stops before, its next start deletes them."""
        self._runtime.schedule(delay_ms, lambda: self._delete(paths))

    def delete_leftovers(self) -> None:
        """Deletes the folders whose deletion a stop interrupted."""
        self._delete(self._log_manager.find_deleted_directories())

    def _delete(self, paths: Iterable[Path]) -> None:
        """Deletes a few at a time, so that checkpoints and a stop need not wait for all."""
        left = iter(paths)

        def delete_some() -> None:
            some = list(islice(left, _DELETED_AT_ONCE))
            if some:
                self._runtime.run_in_background(lambda: self._log_manager.delete(some), delete_some)

        delete_some()
