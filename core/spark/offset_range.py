"""The unit of work: a range of offsets of one partition, small enough for one task, and the reading of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.client.admin import EARLIEST, Admin
from core.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer
from core.client.kafka_client import KafkaClient
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.expansion_limit import each_limited_to
from core.common.topic_partition import TopicPartition
from core.compaction.latest_per_key import LatestPerKey
from core.log.batch_place import find_file, undecodable
from core.log.hole import Hole, HoleReason, offsets_are
from core.log.partition_reader import PartitionReader
from core.records.batches import Batch, group_batches
from core.records.columns import RecordColumns, decode_whole_batches
from core.spark.json_values import ensure_one_value_each
from core.spark.record_schema import to_arrow

_MOST_OF_A_NAME = 128

GROUP_BYTES = 4 * 1024 * 1024
"""Of batches that are decoded at once, and handed on as one Arrow batch."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start_offset, end_offset) of a partition whose files are in `directory`, or that `servers` have; about
    `size_bytes` of log. `fails_if_gone`: where what was there when the reading was planned is not any more.
    `latest_per_key`: of each key only the last record of the range, and none where that is a tombstone.
    `nulls_bad_timestamps`: as of `to_arrow`. `max_expansion`: bytes that one batch may decompress to, 0 for the limit
    that is set for everyone. `is_json`: values are to be one JSON value each.
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
    is_json: bool = False

    @property
    def name(self) -> str:
        """The name of what is written of it, without its ending; a file's, for any topic's name. Files whose names
        begin with _ or . are hidden from Spark and others, so something that no topic's name has comes before those.
        """
        topic = f"@{self.topic}" if self.topic.startswith(("_", ".")) else self.topic
        if len(topic) > _MOST_OF_A_NAME:
            topic = f"{topic[:_MOST_OF_A_NAME]}-{hashlib.sha256(topic.encode()).hexdigest()[:16]}"
        return f"{topic}-{self.partition}-{self.start_offset:020d}-{self.end_offset:020d}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_range(range_: OffsetRange, columns: Sequence[str]) -> Iterator[Any]:  # of pyarrow.RecordBatch
    """The range's records, checked, by the columns that are asked for; errors as of `read_columns`, and PlogError for
    values that are not what they are to be.
    """
    for records in read_columns(range_):
        if range_.is_json:
            ensure_one_value_each(range_.topic_partition, records)
        yield to_arrow(range_.topic_partition, records, columns, nulls_bad_timestamps=range_.nulls_bad_timestamps)


def read_columns(range_: OffsetRange) -> Iterator[RecordColumns]:
    """The range's records, checked; CorruptRecordError where the log is damaged, PlogError where its beginning is gone,
    KafkaError and ConnectionFailedError as the servers say.
    """
    found = LatestPerKey().read(lambda: _read_all(range_)) if range_.latest_per_key else _read_all(range_)
    yield from each_limited_to(range_.max_expansion, found)


def _read_all(range_: OffsetRange) -> Iterator[RecordColumns]:
    if not range_.directory:
        yield from _decoded(_from_servers(range_), range_, lambda _: None)
        return
    reader = PartitionReader(Path(range_.directory))
    try:
        yield from _decoded(_from_files(range_, reader), range_, partial(find_file, reader))
    finally:
        reader.close()


def _decoded(
    batches: Iterator[Batch], range_: OffsetRange, find_path: Callable[[Batch], Path | None]
) -> Iterator[RecordColumns]:
    """The batches' records that lie in the range."""

    def refuse(batch: Batch, error: CorruptRecordError) -> None:
        raise undecodable(range_.topic_partition, batch, error, find_path(batch)) from None

    for group in group_batches(batches, GROUP_BYTES):
        for columns in decode_whole_batches(group, refuse):
            records = _inside(columns, range_)
            if len(records):
                yield records


def _from_files(range_: OffsetRange, reader: PartitionReader) -> Iterator[Batch]:
    if range_.fails_if_gone and reader.start_offset > range_.start_offset:
        raise PlogError(
            f"{range_.topic_partition}: {offsets_are(range_.start_offset, reader.start_offset)} gone, deleted "
            f"since the reading was planned",
            hint="failOnDataLoss=false reads what there is, planned anew",
        )
    yield from reader.read(
        range_.start_offset,
        range_.end_offset,
        read_committed=range_.read_committed,
        on_hole=_fail_if_damaged if range_.fails_if_gone else _fail_if_there,
    )


def _fail_if_damaged(hole: Hole) -> None:
    raise hole.error()


def _fail_if_there(hole: Hole) -> None:
    """Passes over what is gone without a trace of its bytes."""
    if hole.reason is not HoleReason.MISSING:
        raise hole.error()


def _from_servers(range_: OffsetRange) -> Iterator[Batch]:
    """Without `fails_if_gone` it goes on where the log begins by now, if that is deleted which it was to read."""
    partition, position = range_.topic_partition, range_.start_offset
    client = KafkaClient(parse_bootstrap(range_.servers))
    try:
        consumer = Consumer(client, isolation_level=READ_COMMITTED if range_.read_committed else READ_UNCOMMITTED)
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
                if range_.fails_if_gone or not is_gone:
                    raise
                position = start
    finally:
        client.close()


def _inside(records: RecordColumns, range_: OffsetRange) -> RecordColumns:
    inside = (records.offsets >= range_.start_offset) & (records.offsets < range_.end_offset)
    return records if inside.all() else records.select(inside)
