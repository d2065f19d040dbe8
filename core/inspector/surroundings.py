"""What a data directory's root says of its partitions: checkpoints and the metadata log. Reads only."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import CorruptRecordError, PlogError
from core.common.topic_partition import TopicPartition
from core.inspector.partition_check import Surroundings
from core.log.checkpoint_file import read_offset_checkpoint
from core.log.file_names import (
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)

if TYPE_CHECKING:
    from core.cluster.metadata_image import MetadataImage

_SOURCES = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)


class DirectorySurroundings:
    """Of one root, read once, before its logs: these only grow. Files that don't parse are findings of their own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._checkpoints = {name: self._checkpoint(name) for name in (*_SOURCES, CLEANER_CHECKPOINT)}
        self._is_root = (root / META_PROPERTIES).exists()

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._root / name)
        except (CorruptRecordError, OSError):
            return {}

    @cached_property
    def image(self) -> MetadataImage | None:
        """What the metadata log adds up to; None where there is none, or none that can be read."""
        if not (self._root / f"{CLUSTER_METADATA_TOPIC}-0").is_dir():
            return None
        from core.cluster.metadata_log import read_metadata_image

        try:
            return read_metadata_image(self._root)
        except (PlogError, OSError):
            return None

    @property
    def topic_ids(self) -> dict[str, bytes]:
        return {} if self.image is None else {name: topic.topic_id for name, topic in self.image.topics.items()}

    def of(self, partition: TopicPartition | None) -> Surroundings:
        if partition is None:
            return Surroundings()
        end_offset, source = max((self._checkpoints[name].get(partition, 0), name) for name in _SOURCES)
        return Surroundings(end_offset, source, self._is_compacted(partition))

    def _is_compacted(self, partition: TopicPartition) -> bool | None:
        """Whether compaction may have been at work; None where nothing tells."""
        if partition in self._checkpoints[CLEANER_CHECKPOINT]:
            return True
        if self.image is not None and "compact" in self.image.topic_configs(partition.topic).get("cleanup.policy", ""):
            return True
        return False if self._is_root else None
