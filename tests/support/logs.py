"""Small logs to work on: batches of numbered records, and a log opened as a broker opens it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from core.common.clock import Clock
from core.common.filesystem import Buffer, File, FileSystem
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.log.log_manager import LogManager
from core.log.partition_log import AppendResult, PartitionLog
from core.records.batches import Batch, iter_whole_batches, read_batch
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.manual_clock import ManualClock

PARTITION = TopicPartition("t", 0)
NOW = 1_700_000_000_000


def make_batch(*values: bytes, timestamp: int = NOW, key: bytes | None = b"k", **fields: object) -> RecordBatch:
    """A batch as a producer sends it; `fields` as of `batch_parts`."""
    records = [Record(number, timestamp + number, key, value) for number, value in enumerate(values)]
    return RecordBatch(memoryview(bytearray(batch_of(records, **fields))))


def make_marker(producer_id: int, *, is_commit: bool, producer_epoch: int = 0) -> RecordBatch:
    data = end_transaction_batch(
        EndTransactionMarker(is_commit, 0), producer_id=producer_id, producer_epoch=producer_epoch, timestamp=NOW
    )
    return RecordBatch(memoryview(bytearray(data)))


def iter_batches(buffer: memoryview) -> Iterator[Batch]:
    """Gives every batch; raises CorruptRecordError at the first bytes that are none, cut short or not."""
    start = 0
    while start < len(buffer):
        batch = read_batch(buffer, start)
        yield batch
        start += batch.size_bytes


def cut_as_follower(manager: LogManager, partition: TopicPartition, offset: int) -> None:
    """Cuts the log as a fetcher does whose leader has other records from there on."""
    log = manager.logs[partition]
    for write in manager.forget_safety({partition: offset} if offset < log.log_end_offset else {}):
        write()
    log.truncate_to(offset)
    for write in manager.forget_safety({partition: log.log_end_offset}):  # lower, if a batch's middle was cut
        write()


def open_log(
    directory: Path,
    *,
    clock: Clock | None = None,
    had_clean_shutdown: bool = True,
    recovery_point: int = 0,
    filesystem: FileSystem | None = None,
    checks_late: bool = False,
    **config: object,
) -> PartitionLog:
    """The log of `directory`, made where it is not there; every record below its end may be consumed."""
    directory.mkdir(exist_ok=True, parents=True)
    log = load_log(
        directory,
        PARTITION,
        LogConfig(**config),  # type: ignore[arg-type]
        LogSettings(clock or ManualClock(NOW), filesystem or FileSystem(), checks_late=checks_late),
        had_clean_shutdown=had_clean_shutdown,
        recovery_point=recovery_point,
    ).log
    log.update_high_watermark(log.log_end_offset)
    return log


def append(log: PartitionLog, batch: RecordBatch, *, leader_epoch: int = 0) -> AppendResult:
    """Appended by a client, and committed; in the log's latest leader epoch if that is above `leader_epoch`."""
    result = log.append_as_leader(batch, max(leader_epoch, log.leader_epochs.latest_epoch))
    log.update_high_watermark(log.log_end_offset)
    return result


def append_marker(log: PartitionLog, producer_id: int, *, is_commit: bool) -> AppendResult:
    """The end of a producer's transaction, in the log's latest leader epoch."""
    epoch = log.leader_epochs.latest_epoch
    result = log.append_as_leader(make_marker(producer_id, is_commit=is_commit), epoch, from_client=False)
    log.update_high_watermark(log.log_end_offset)
    return result


def read_all(log: PartitionLog, offset: int = 0, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from `offset` on, by reads of `max_bytes`."""
    records: list[Record] = []
    while offset < log.high_watermark:
        result = log.read(offset, max_bytes, log.high_watermark)
        assert result.region is not None
        batches = list(iter_whole_batches(memoryview(result.region.read())))
        assert batches
        records += [r for batch in batches for r in batch.records() if r.offset >= offset]
        offset = batches[-1].next_offset
    return records


def fingerprint(directory: Path) -> dict[str, tuple[int, str]]:
    """Every file's time of change and content, every folder's names."""
    found = {}
    for folder, folders, files in os.walk(directory):
        found[folder] = 0, repr(sorted(folders) + sorted(files))
        for name in files:
            path = Path(folder, name)
            found[str(path)] = path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def content(log: PartitionLog, start_offset: int) -> bytes:
    """All batches that end above `start_offset`."""
    batches = (batch for segment in log.segments for batch in segment.batches(0))
    return b"".join(bytes(b.buffer[b.start : b.start + b.size_bytes]) for b in batches if b.last_offset >= start_offset)


class FullDisk(FileSystem):
    """Writes half of what it is asked for, then refuses, while it is full."""

    is_full = False

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        file = super().open_append(path, creates=creates)
        write_at = type(file).write_at

        def maybe_write(file: File, data: Buffer, position: int) -> None:
            write_at(file, memoryview(data)[: len(data) // 2] if self.is_full else data, position)
            if self.is_full:
                raise OSError(28, "No space left on device")

        file.__class__ = type("FillingFile", (type(file),), {"__slots__": (), "write_at": maybe_write})
        return file
