"""What other files than the logs know of a partition's log: where it begins, how far it went, whether it was cleaned.

What was written, and synced, only after the records proves that they were there: the name of the next segment, a
producer snapshot, a leader epoch, the recovery point, the high watermark. An index of the last segment proves nothing:
a crash may keep it and lose the records. Reads only; a file that does not parse says nothing here, `plog verify` names
it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from core.common.bad_sectors import read_small_text
from core.common.errors import CorruptRecordError, UnreadableFileError
from core.common.topic_partition import TopicPartition
from core.log.checkpoint_file import UNKNOWN_RECOVERY_POINT, read_offset_checkpoint
from core.log.file_names import (
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    CLEANER_CHECKPOINT,
    DELETED_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    locate_partition,
    parse_offset_file_name,
)
from core.log.leader_epoch_cache import parse_leader_epochs

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """Of one partition; offsets.

    Records below `known_end` were in the log; `source` says who knows. The cleaner worked on what lies below
    `cleaned_below`. `lone_indexes` are the base offsets of segments of which an index is left and no log.
    """

    log_start_offset: int = 0
    known_end: int = 0
    source: str = ""
    cleaned_below: int = 0
    newest_snapshot: int = 0
    lone_indexes: tuple[int, ...] = ()
    was_stopped_cleanly: bool = False
    directory: Path = Path()
    unreadable: tuple[UnreadableFileError, ...] = ()
    """Of log files that can't be opened; `offset` is where such a segment begins."""


class DirectoryEvidence:
    """What a data directory's root says of its partitions; read once, owned by one task."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def log_starts(self) -> dict[TopicPartition, int]:
        return self.checkpoint(LOG_START_OFFSET_CHECKPOINT)

    def why_no_log_starts(self) -> str | None:
        """What is wrong with the file that says where logs begin after DeleteRecords; None if nothing is."""
        try:
            read_offset_checkpoint(self.root / LOG_START_OFFSET_CHECKPOINT)
        except (CorruptRecordError, OSError) as error:
            return str(error)
        return None

    @cached_property
    def _recovery_points(self) -> dict[TopicPartition, int]:
        """Without those that say no more than that nobody knows."""
        found = self.checkpoint(RECOVERY_POINT_CHECKPOINT)
        return {partition: offset for partition, offset in found.items() if offset != UNKNOWN_RECOVERY_POINT}

    @cached_property
    def _high_watermarks(self) -> dict[TopicPartition, int]:
        return self.checkpoint(HIGH_WATERMARK_CHECKPOINT)

    @cached_property
    def cleaned(self) -> dict[TopicPartition, int]:
        """Offsets below which the cleaner worked."""
        return self.checkpoint(CLEANER_CHECKPOINT)

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """As it is now; empty if it is not there or does not parse."""
        try:
            return read_offset_checkpoint(self.root / name)
        except (CorruptRecordError, OSError):
            return {}

    @cached_property
    def was_stopped_cleanly(self) -> bool:
        return (self.root / CLEAN_SHUTDOWN).exists()

    def of(self, directory: Path, partition: TopicPartition | None = None) -> LogEvidence:
        """Of a partition's folder, by its name unless the partition is given. OSError if the folder can't be read."""
        partition = partition or locate_partition(directory)[0]
        offsets: dict[str, set[int]] = {}
        names = [path.name for path in directory.iterdir()]
        for name in names:
            parsed = parse_offset_file_name(name)
            if parsed is not None:
                offsets.setdefault(parsed[1], set()).add(parsed[0])
        logs = offsets.get(LOG_SUFFIX, set())
        is_being_cleaned = any(name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)) for name in names)
        lone = (
            set()
            if is_being_cleaned or any(name.endswith(DELETED_SUFFIX) for name in names)
            else {offset for suffix in _INDEX_SUFFIXES for offset in offsets.get(suffix, set()) - logs}
        )
        newest_snapshot = max(offsets.get(SNAPSHOT_SUFFIX, ()), default=0)
        known = [
            (newest_snapshot, "a producer snapshot"),
            (max(lone, default=0), "an index without its log"),
            (_newest_epoch_start(directory), LEADER_EPOCH_CHECKPOINT),
        ]
        if partition is not None:
            known += [
                (self._recovery_points.get(partition, 0), RECOVERY_POINT_CHECKPOINT),
                (self._high_watermarks.get(partition, 0), HIGH_WATERMARK_CHECKPOINT),
                (self.log_starts.get(partition, 0), LOG_START_OFFSET_CHECKPOINT),
            ]
        known_end, source = max(known, key=lambda pair: pair[0])
        return LogEvidence(
            log_start_offset=self.log_starts.get(partition, 0) if partition else 0,
            known_end=known_end,
            source=source,
            cleaned_below=max(
                self.cleaned.get(partition, 0) if partition else 0, max(logs, default=0) if is_being_cleaned else 0
            ),
            newest_snapshot=newest_snapshot,
            lone_indexes=tuple(sorted(lone)),
            was_stopped_cleanly=self.was_stopped_cleanly,
            directory=directory,
        )


def _newest_epoch_start(directory: Path) -> int:
    with contextlib.suppress(OSError, CorruptRecordError, ValueError):
        path = directory / LEADER_EPOCH_CHECKPOINT
        text = read_small_text(path)
        return max((entry.start_offset for entry in parse_leader_epochs(text, str(path))), default=0)
    return 0
