"""A deletion of records whose new log start was not on the disk yet when the broker was killed; its epochs were."""

from __future__ import annotations

from pathlib import Path

from core.common.clock import ManualClock
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.log.leader_epoch_cache import EpochEntry
from core.log.log_config import LogConfig
from core.log.log_loader import LogSettings
from core.log.log_manager import LogManager
from core.log.partition_log import PartitionLog
from tests.support.logs import NOW, make_batch

NAME = TopicPartition("t", 0)


def test_the_epochs_of_records_that_are_back_are_known(tmp_path: Path) -> None:
    """Without them a follower that parts ways there would be told to go on."""
    log = opened(tmp_path)
    for epoch, offset in ((1, 0), (2, 1), (4, 4)):
        log.leader_epochs.assign(epoch, offset)
        log.append_as_leader(make_batch(*[b"x"] * (3 if epoch == 2 else 1)), epoch)
    log.leader_epochs.assign(5, log.log_end_offset)
    before = log.leader_epochs.entries
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(2)
    assert log.leader_epochs.entries[0] == EpochEntry(2, 2)
    again = opened(tmp_path)  # as after a kill
    assert again.log_start_offset == 0
    assert again.leader_epochs.entries == before
    assert again.leader_epochs.end_offset_of(1, again.log_end_offset) == (1, 1)


def opened(directory: Path) -> PartitionLog:
    manager = LogManager(directory, LogSettings(ManualClock(NOW), FileSystem()))
    manager.open_existing(manager.find_partitions(), lambda _: LogConfig())
    manager.forget_clean_shutdown()
    return manager.create(NAME, bytes(15) + b"\1", LogConfig())
