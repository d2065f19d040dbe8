"""Reads a follower's fetched records: the leader's batches, as they lie in its log, maybe cut short at the end.

The leader has checked them and assigned their offsets and epochs, so that a follower only checks whether they arrived
intact, and whether they continue its log. Offsets and epochs lie outside a batch's crc, so they are compared with each
other:

    magic           2
    crc             that of the bytes
    base offset     the log's end or above, then above the batch before: the cleaner of the leader leaves holes
    leader epoch    not below that of the batch before, nor above the leader's

Source: org.apache.kafka.storage.internals.log.UnifiedLog.analyzeAndValidateRecords, which says less of epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.java_limits import LONG_MAX
from core.log.log_segment import LogSegment, SizedBatch
from core.records.batches import CURRENT_MAGIC, ENTRY_HEADER_SIZE, entry_size
from core.records.checksum import crc32c
from core.records.record_batch import ATTRIBUTES_POSITION, MAGIC_POSITION, RecordBatch


def read_fetched(records: memoryview, *, end_offset: int, latest_epoch: int, leader_epoch: int) -> list[RecordBatch]:
    """Returns the whole batches, checked, that continue a log which ends at `end_offset` with records of
    `latest_epoch`; `leader_epoch` is the epoch of the fetch. The first may begin below `end_offset`, if it ends above.

    Raises CorruptRecordError for batches that are damaged or do not continue the log; also if the first batch is cut
    short, because leaders send that whole. KafkaError(UNSUPPORTED_FOR_MESSAGE_FORMAT) for messages of magic 0 or 1.
    """
    batches: list[RecordBatch] = []
    start, size, next_offset, epoch = 0, len(records), end_offset, latest_epoch
    while size - start >= ENTRY_HEADER_SIZE:
        end = start + entry_size(records, start)
        if end > size:
            break
        if records[start + MAGIC_POSITION] != CURRENT_MAGIC:
            raise _unsupported(records[start + MAGIC_POSITION], start)
        batch = RecordBatch(records, start)
        if crc32c(records[start + ATTRIBUTES_POSITION : end]) != batch.crc:
            batch.ensure_valid()  # its error names the damage
        batch_epoch = batch.partition_leader_epoch
        if batch.base_offset < next_offset or batch.last_offset_delta < 0:
            _ensure_continues(batch, next_offset, is_first=not batches)
        if batch_epoch != epoch:
            _ensure_epoch(batch, epoch, leader_epoch)
            epoch = batch_epoch
        batches.append(batch)
        next_offset = batch.base_offset + batch.last_offset_delta + 1
        start = end
    if next_offset > LONG_MAX:
        raise batches[-1].corrupt("it ends above the last offset that there can be")
    if size and not batches:
        raise CorruptRecordError(f"the first batch of a fetched answer is cut short: {size} bytes came", position=0)
    return batches


def pieces_of(records: memoryview, most_bytes: int) -> Iterator[memoryview]:
    """Yields the records in pieces of whole batches, to be appended one after the other: each of at most `most_bytes`,
    or one batch. A batch that is cut short at the end is left out, unless it is in the last piece. Raises
    CorruptRecordError as `read_fetched` does.
    """
    start = end = 0
    while len(records) > most_bytes and len(records) - end >= ENTRY_HEADER_SIZE:
        size = entry_size(records, end)
        if end + size > len(records):
            break
        if start < end and end + size - start > most_bytes:
            yield records[start:end]
            start = end
        end += size
    if start == 0 or start < end:
        yield records[start:]


def _unsupported(magic: int, start: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        f"the leader sent a message of magic {magic} at position {start} of its answer; a replica takes magic 2 only, "
        "which brokers write since Kafka 0.11",
    )


def _ensure_continues(batch: RecordBatch, next_offset: int, *, is_first: bool) -> None:
    if batch.last_offset_delta < 0:
        raise batch.corrupt(f"the last offset delta is {batch.last_offset_delta}")
    if not is_first or batch.last_offset < next_offset:
        raise out_of_order(batch, next_offset)


def out_of_order(batch: RecordBatch, next_offset: int) -> CorruptRecordError:
    """Makes the error for a batch that does not continue a log that ends at `next_offset`."""
    return batch.corrupt(f"a batch of offsets {batch.base_offset} to {batch.last_offset}, expected {next_offset}")


def _ensure_epoch(batch: RecordBatch, latest_epoch: int, leader_epoch: int) -> None:
    epoch = batch.partition_leader_epoch
    if epoch > leader_epoch:
        raise batch.corrupt(f"leader epoch {epoch}, the leader is in epoch {leader_epoch}")
    if epoch < latest_epoch:
        raise batch.corrupt(f"leader epoch {epoch} after records of epoch {latest_epoch}")


def run_from(batches: Sequence[RecordBatch], start: int, segment: LogSegment, clock: Clock) -> Sequence[RecordBatch]:
    """Returns the batches from `start` on that can be written to the segment together: all of one epoch, and none needs
    another segment. The first batch of a segment is written alone, as the others' times count from it.
    """
    if len(batches) - start == 1 or not segment.size_bytes:
        return batches[start : start + 1]
    run = batches[start : start + max(segment.indexes.room, 1)]
    first, last = run[0], run[-1]
    if first.partition_leader_epoch == last.partition_leader_epoch:
        delta, size_bytes = last.last_offset - first.base_offset, last.start + last.size_bytes - first.start
        newest = max([batch.max_timestamp for batch in run])
        if not segment.should_roll(SizedBatch(first.base_offset, delta, newest, size_bytes), clock):
            return run

    def fits(batch: RecordBatch) -> bool:
        is_of_epoch = batch.partition_leader_epoch == first.partition_leader_epoch
        return is_of_epoch and not segment.should_roll(batch, clock, ahead_bytes=batch.start - first.start)

    return [first, *takewhile(fits, run[1:])]
