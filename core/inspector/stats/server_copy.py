"""Partitions of a server, copied over the wire into a folder, so that programs that read log files can read them.

A server sends its batches as they lie in its log, control batches and those of aborted transactions too; it does not
say where its segments begin, so that a copy is one segment. `log-start-offset-checkpoint` has where the copy begins.
For topics with `cleanup.policy=compact` `cleaner-offset-checkpoint` has where it ends: missing offsets are the
cleaner's, as far as a client knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_UNCOMMITTED, Consumer
from core.client.read.record_source import ReadOptions
from core.common.config_def import ConfigResourceType
from core.common.filesystem import File, FileSystem, access_error
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import write_offset_checkpoint
from core.files.file_names import (
    CLEANER_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    offset_file_name,
    partition_directory_name,
)
from core.records.batches import Batch

FindStart = Callable[[int, int], int]
"""Returns the offset where a copy begins, from the log's start and end on the server."""


class ServerCopy:
    """Copies of a server's partitions below `root`, a folder of this copy alone; owned by one task."""

    def __init__(self, client: KafkaClient, root: Path, options: ReadOptions) -> None:
        """`options` says how to treat damage: offsets that are passed over are missing in the copy."""
        self.root = root
        self._client = client
        self._options = options
        self._filesystem = FileSystem()
        self._starts: dict[TopicPartition, int] = {}
        self._cleaned: dict[TopicPartition, int] = {}
        self._settings: dict[str, Mapping[str, str]] = {}

    def settings_of(self, topic: str) -> Mapping[str, str]:
        """Returns the topic's settings, or none if the server does not list them."""
        if topic not in self._settings:
            configs = Admin(self._client).find_configs(ConfigResourceType.TOPIC, topic)
            self._settings[topic] = {config.name: config.value for config in configs if config.value is not None}
        return self._settings[topic]

    def is_compacted(self, topic: str) -> bool:
        """Says whether the server's cleaner takes records out of the topic, by its settings there."""
        return "compact" in self.settings_of(topic).get("cleanup.policy", "")

    def add(
        self,
        partition: TopicPartition,
        find_start: FindStart = lambda start, _end: start,
        *,
        is_enough: Callable[[Batch], bool] = lambda _batch: False,
        on_bytes: Callable[[int], None] = lambda _size: None,
    ) -> None:
        """Copies the partition from the offset that `find_start` returns, within the log, to its end as of now, or to
        the first batch that `is_enough`. Raises KafkaError for an unknown partition, AccessError if the disk refuses.
        """
        admin = Admin(self._client)
        start = admin.list_offsets({partition: EARLIEST})[partition]
        end = admin.list_offsets({partition: LATEST}, isolation_level=READ_UNCOMMITTED)[partition]
        start = min(max(find_start(start, end), start), end)
        folder = self.root / partition_directory_name(partition)
        try:
            self._filesystem.make_directory(folder)
            self._write(partition, folder, start, end, is_enough=is_enough, on_bytes=on_bytes)
            self._starts[partition] = start
            if self.is_compacted(partition.topic):
                self._cleaned[partition] = end
            write_offset_checkpoint(self.root / LOG_START_OFFSET_CHECKPOINT, self._starts, self._filesystem)
            write_offset_checkpoint(self.root / CLEANER_CHECKPOINT, self._cleaned, self._filesystem)
        except OSError as error:
            raise access_error(error, self.root, "copy the server's records to") from error

    def _write(
        self,
        partition: TopicPartition,
        folder: Path,
        start: int,
        end: int,
        *,
        is_enough: Callable[[Batch], bool],
        on_bytes: Callable[[int], None],
    ) -> None:
        consumer = Consumer(self._client, replace(self._options, read_committed=False, with_control=True))
        file: File | None = None
        position = 0
        try:
            for _, batches in consumer.read({partition: start}, {partition: end}):
                for batch in batches:
                    if file is None:
                        first = min(start, batch.base_offset)
                        file = self._filesystem.open_append(folder / offset_file_name(first, LOG_SUFFIX))
                    data = batch.buffer[batch.start : batch.start + batch.size_bytes]
                    file.write_at(data, position)
                    position += len(data)
                    on_bytes(len(data))
                    if is_enough(batch):
                        return
            if file is None:
                file = self._filesystem.open_append(folder / offset_file_name(end, LOG_SUFFIX))
        finally:
            if file is not None:
                file.close()
