"""What a data directory's own files say of a partition, for its map: places in the log, and whether it is compacted."""

from __future__ import annotations

from pathlib import Path

from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.files.checkpoint_file import UNKNOWN_RECOVERY_POINT
from core.files.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory

LOG_START = "log start"
FIRST_DIRTY = "first dirty offset"
RECOVERY_POINT = "recovery point"
HIGH_WATERMARK = "high watermark"
_CHECKPOINTS = {
    LOG_START: LOG_START_OFFSET_CHECKPOINT,
    FIRST_DIRTY: CLEANER_CHECKPOINT,
    RECOVERY_POINT: RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK: HIGH_WATERMARK_CHECKPOINT,
}


def read_checkpoints(root: Path, partition: TopicPartition | None) -> dict[str, int]:
    """Gives the offsets that the checkpoints of a data directory name for a partition, as they are now."""
    if partition is None:
        return {}
    evidence = KnownOffsetsOfDirectory(root)
    found = {name: evidence.checkpoint(file).get(partition) for name, file in _CHECKPOINTS.items()}
    return {name: at for name, at in found.items() if at is not None and at != UNKNOWN_RECOVERY_POINT}


def find_compacted(root: Path, partition: TopicPartition | None, cleaned_below: int | None) -> bool | None:
    """Says whether a partition's topic is compacted, by what `plog verify` goes by; None if that is not known.
    `cleaned_below` is what the cleaner's checkpoint has.
    """
    if partition is None:
        return None
    if cleaned_below is not None or partition.topic in INTERNAL_TOPICS:
        return True
    from core.inspector.check.data_directory_metadata import DataDirectoryMetadata  # the first picture does without

    image = DataDirectoryMetadata(root).image
    if image is None or partition.topic not in image.topics:
        return None
    return "compact" in image.topic_configs(partition.topic).get("cleanup.policy", "")
