"""A log in memory, with what a replica needs of `PartitionLog`: every record is one batch, and its value one number."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import LeaderEpochCache
from core.files.log_config import LogConfig
from core.log.partition_log import AppendResult


class Entry(NamedTuple):
    epoch: int
    value: int


class Batch(NamedTuple):
    """What a producer sends."""

    value: int
    size_bytes: int = 100


class _NoFiles(FileSystem):
    """The epochs are made again from the log at each start."""

    def write_atomic(self, *arguments: Any, **how: Any) -> None: ...


class SimulatedLog:
    """`entries` outlast a kill, those below `recovery_point` also a power cut. The leader epochs are the real ones."""

    partition = TopicPartition("t", 0)
    log_start_offset = 0

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.entries: list[Entry] = []
        self.high_watermark = 0
        self.recovery_point = 0
        self._synced: list[Entry] = []
        """What was on the disk at the last flush; since then something may have been cut off."""
        self._was_cut = False
        self._checkpointed_high_watermark = 0
        self.leader_epochs = self._read_epochs()

    def _read_epochs(self) -> LeaderEpochCache:
        epochs = LeaderEpochCache(Path("/nowhere"), _NoFiles())
        for offset, entry in enumerate(self.entries):
            epochs.assign(entry.epoch, offset)
        return epochs

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else -1

    # --- a leader's

    def append_as_leader(self, batch: Batch, leader_epoch: int, *, from_client: bool = True) -> AppendResult:
        offset = len(self.entries)
        self.leader_epochs.assign(leader_epoch, offset)
        self.entries.append(Entry(leader_epoch, batch.value))
        return AppendResult(offset, offset, -1, 0)

    def ensure_in_range(self, offset: int) -> None:
        if not 0 <= offset <= len(self.entries):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    def update_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, len(self.entries)))

    # --- a follower's

    def append_as_follower(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.leader_epochs.assign(entry.epoch, len(self.entries))
            self.entries.append(entry)

    def truncate_to(self, offset: int) -> None:
        self._was_cut |= offset < len(self._synced)
        del self.entries[offset:]
        self.leader_epochs.truncate_from_end(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._checkpointed_high_watermark = min(self._checkpointed_high_watermark, offset)

    # --- the disk

    def flush(self) -> None:
        self.recovery_point = len(self.entries)
        self._synced, self._was_cut = list(self.entries), False

    def checkpoint(self) -> None:
        self._checkpointed_high_watermark = self.high_watermark

    def recover(self, random: Random, *, loses_unsynced: bool) -> None:
        """What a start finds after a kill, or after a power cut."""
        if loses_unsynced and self._was_cut and random.random() < 0.5:
            self.entries = list(self._synced)  # the cut itself is lost, and all that came after it
        elif loses_unsynced:
            del self.entries[random.randint(self.recovery_point, len(self.entries)) :]
        self.recovery_point = min(self.recovery_point, len(self.entries))
        self.high_watermark = min(self._checkpointed_high_watermark, len(self.entries))
        self.leader_epochs = self._read_epochs()

    def check_invariants(self) -> None:
        assert self.recovery_point <= len(self.entries)
        assert self.high_watermark <= len(self.entries)
        self.leader_epochs.check_invariants()
