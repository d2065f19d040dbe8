"""What the files of a data directory state of a log, but for its start, which a test gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from core.common.topic_partition import TopicPartition
from core.files.file_names import locate_partition
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory


class GivenLogStart(KnownOffsetsOfDirectory):
    """Of a partition's folder, for its reader."""

    def __init__(self, directory: Path, log_start_offset: int) -> None:
        super().__init__(locate_partition(directory)[1])
        self._log_start_offset = log_start_offset

    def of(self, directory: Path, partition: TopicPartition | None = None) -> KnownOffsets:
        return replace(super().of(directory, partition), log_start_offset=self._log_start_offset)
