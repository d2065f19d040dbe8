"""The unit of work: a range of offsets of one partition, small enough for one task; and how to read it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from core.client.net.retry import FAILOVER_SECONDS
from core.client.read.record_source import ReadOptions
from core.common.decompression_limit import each_limited_to
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.forensics.batch_location import find_file
from core.forensics.missing_offsets import Hole, offsets_are
from core.forensics.partition_reader import PartitionReader
from core.forensics.unexplained_gaps import UnexplainedGaps
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_whole_batches
from core.spark.record_schema import to_arrow

if TYPE_CHECKING:
    from core.spark.value_decoding import ValueDecoder

_log = logging.getLogger("plog.spark")

_MOST_OF_A_NAME = 128

TellLeftOut = Callable[[str], None]
"""Called with a description of each loss that a reading leaves out."""

GROUP_BYTES = 4 * 1024 * 1024
"""Bytes of batches that are decoded at once, and handed on as one Arrow batch."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start_offset, end_offset) of a partition whose files are in `directory`, or that `servers` have; about
    `size_bytes` of log. `fails_if_gone`: reading fails at offsets that are damaged, missing, or deleted since it was
    planned; else it goes on after them, and reports which they are. `latest_per_key`: of each key only the last record
    of the range, and none if that is a tombstone. `nulls_bad_timestamps`: as `to_arrow` takes it. `max_expansion`:
    bytes that one batch may decompress to, 0 for the limit that is set for everyone. `access`: how the servers are
    reached, as `cluster_access.connect` takes it.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    read_committed: bool = True
    fails_if_gone: bool = True
    latest_per_key: bool = False
    directory: str = ""
    servers: str = ""
    nulls_bad_timestamps: bool = False
    max_expansion: int = 0
    access: str = ""

    @property
    def name(self) -> str:
        """Returns the name of the range's file without its suffix; it is a valid file name for any topic. Files whose
        names begin with _ or . are hidden from Spark and others, so an @, which no topic's name has, comes before such
        a name.
        """
        topic = f"@{self.topic}" if self.topic.startswith(("_", ".")) else self.topic
        if len(topic) > _MOST_OF_A_NAME:
            import hashlib

            topic = f"{topic[:_MOST_OF_A_NAME]}-{hashlib.sha256(topic.encode()).hexdigest()[:16]}"
        return f"{topic}-{self.partition}-{self.start_offset:020d}-{self.end_offset:020d}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_range(
    range_: OffsetRange,
    columns: Sequence[str],
    tell_left_out: TellLeftOut = _log.warning,
    decoder: ValueDecoder | None = None,
) -> Iterator[Any]:  # of pyarrow.RecordBatch
    """Reads and checks the range's records; yields the requested columns, of which the decoder makes some. Raises what
    `read_columns` and `ValueDecoder.columns` raise.
    """
    for records in read_columns(range_, tell_left_out):
        made = {} if decoder is None else decoder.columns(range_.topic_partition, records, columns)
        others = [name for name in columns if name not in made]
        batch = to_arrow(range_.topic_partition, records, others, nulls_bad_timestamps=range_.nulls_bad_timestamps)
        if made:
            batch = pa.record_batch([made[n] if n in made else batch[n] for n in columns], names=list(columns))
        yield batch


def read_columns(range_: OffsetRange, tell_left_out: TellLeftOut = _log.warning) -> Iterator[RecordColumns]:
    """Reads the range's records, checked. `tell_left_out` is called with each loss of the range that reading passes
    over, perhaps twice with the same one.

    If the range `fails_if_gone`: CorruptRecordError for damage, PlogError if the range's beginning was deleted, and
    `tell_left_out` is called only for offsets that are missing for no known reason. Raises KafkaError and
    ConnectionFailedError if the servers fail.
    """
    options = ReadOptions(  # Spark would try a task again at once, a few times, or not at all
        FAILOVER_SECONDS,
        skips_damage=not range_.fails_if_gone,
        read_committed=range_.read_committed,
        tell=_log.warning,
        tell_left_out=tell_left_out,
    )
    if range_.latest_per_key:
        from core.compaction.compacted_view import CompactedView

        found = CompactedView().read(lambda: _read_all(range_, options))
    else:
        found = _read_all(range_, options)
    yield from each_limited_to(range_.max_expansion, found)


def _read_all(range_: OffsetRange, options: ReadOptions) -> Iterator[RecordColumns]:
    gone: list[tuple[int, int]] = []
    if not range_.directory:
        yield from _decoded(_from_servers(range_, options, gone), range_, gone, options, lambda _: None)
        return
    reader = PartitionReader(Path(range_.directory))
    try:
        batches = _from_files(range_, reader, options, gone)
        yield from _decoded(batches, range_, gone, options, partial(find_file, reader))
    finally:
        reader.close()


def _decoded(
    batches: Iterator[Batch],
    range_: OffsetRange,
    gone: Sequence[tuple[int, int]],
    options: ReadOptions,
    find_path: Callable[[Batch], Path | None],
) -> Iterator[RecordColumns]:
    """Yields the batches' records in the range, except the deleted offsets in `gone`, [start, end) each: the first
    batch that is left of the log may still hold them.
    """

    def leave_out(batch: Batch, error: CorruptRecordError) -> None:
        options.leave_out(range_.topic_partition, batch, error, find_path(batch))

    for group in group_batches(batches, GROUP_BYTES):
        for columns in decode_whole_batches(group, leave_out):
            records = _inside(columns, range_, gone)
            if len(records):
                yield records


def _from_files(
    range_: OffsetRange, reader: PartitionReader, options: ReadOptions, gone: list[tuple[int, int]]
) -> Iterator[Batch]:
    partition, unexplained = range_.topic_partition, UnexplainedGaps()
    if reader.start_offset > range_.start_offset:
        _meet_deleted(range_, range_.start_offset, reader.start_offset, options, gone)

    def pass_over(hole: Hole) -> None:
        options.tell_left_out(f"{partition}: passed over: {hole.error()}")

    yield from reader.read(
        range_.start_offset,
        range_.end_offset,
        read_committed=range_.read_committed,
        on_hole=pass_over if options.skips_damage else None,
        on_doubt=lambda hole: unexplained.add(hole.start, hole.end),
    )
    if unexplained.count:
        options.tell_left_out(f"{partition}: {unexplained.text(reader.root)}")


def _meet_deleted(range_: OffsetRange, start: int, end: int, options: ReadOptions, gone: list[tuple[int, int]]) -> None:
    """Notes in `gone` that offsets [start, end) are deleted; raises PlogError unless damage is skipped."""
    end = min(end, range_.end_offset)
    text = f"{range_.topic_partition}: {offsets_are(start, end)} gone, deleted since the reading was planned"
    if not options.skips_damage:
        raise PlogError(text, hint="failOnDataLoss=false reads what there is, planned again")
    gone.append((start, end))
    options.tell_left_out(text)


def _from_servers(range_: OffsetRange, options: ReadOptions, gone: list[tuple[int, int]]) -> Iterator[Batch]:
    """Reads the batches from servers. If offsets were deleted, continues at the log's start offset if `options` skip
    damage, else raises KafkaError(OFFSET_OUT_OF_RANGE).
    """
    from core.client.admin.admin import EARLIEST, Admin
    from core.client.read.consumer import Consumer
    from core.spark.cluster_access import connect

    partition, position = range_.topic_partition, range_.start_offset
    client = connect(range_.servers, range_.access)
    try:
        consumer = Consumer(client, options)
        while position < range_.end_offset:
            try:
                for _, batches in consumer.read({partition: position}, {partition: range_.end_offset}):
                    for batch in batches:
                        yield batch
                        position = batch.next_offset
                return
            except KafkaError as error:
                start = Admin(client).list_offsets({partition: EARLIEST})[partition]
                is_gone = error.code == ErrorCode.OFFSET_OUT_OF_RANGE and start > position
                if not options.skips_damage or not is_gone:
                    raise
                _meet_deleted(range_, position, start, options, gone)
                position = start
    finally:
        client.close()


def ensure_allowed(range_: OffsetRange, left_out: Iterable[str]) -> None:
    """Raises PlogError if something was left out of a range that `fails_if_gone`: a replay must not pass over it."""
    if range_.fails_if_gone:
        for text in left_out:
            raise PlogError(text, hint="--allow-loss replays what there is, and names what there is not")


def _inside(records: RecordColumns, range_: OffsetRange, gone: Sequence[tuple[int, int]]) -> RecordColumns:
    inside = (records.offsets >= range_.start_offset) & (records.offsets < range_.end_offset)
    for start, end in gone:
        inside &= (records.offsets < start) | (records.offsets >= end)
    return records if inside.all() else records.select(inside)
