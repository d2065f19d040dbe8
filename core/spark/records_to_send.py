"""Cuts Arrow columns of records, as Spark's Kafka source and sink name them, by topic and partition for a producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.client.write.partitioner import PARTITIONERS, Partitioner
from core.client.write.producer import RecordsToSend
from core.common.errors import PlogError, UsageError
from core.records.arrow_strings import strings_from_arrow
from core.records.byte_strings import ByteStrings
from core.records.record import encode_headers

_STICKY_BYTES = 128 * 1024


class RecordCutter:
    """Owned by one task. `count_partitions` of a topic; `topic` for all records, or "" if a column has it."""

    def __init__(self, topic: str, count_partitions: Callable[[str], int]) -> None:
        self._topic = topic
        self._count_partitions = count_partitions
        self._counts: dict[str, int] = {}
        self._partitioners: dict[str, Partitioner] = {}

    def cut(self, batch: Any) -> Iterator[tuple[str, RecordsToSend]]:  # batch: pyarrow.RecordBatch
        """Yields (topic, rows of one of its partitions), in the order of the rows. Raises PlogError for a row without a
        topic, and for a row whose partition does not exist.
        """
        if self._topic:
            yield from self._of_topic(self._topic, batch)
            return
        topics = batch.column("topic").dictionary_encode()
        if topics.null_count:
            raise PlogError("a record has no topic", hint="give the option topic, or a value in column topic")
        for number, topic in enumerate(topics.dictionary.to_pylist()):
            yield from self._of_topic(topic, batch.filter(pc.equal(topics.indices, number)))

    def _of_topic(self, topic: str, batch: Any) -> Iterator[tuple[str, RecordsToSend]]:
        if topic not in self._counts:
            self._counts[topic] = self._count_partitions(topic)
            self._partitioners[topic] = PARTITIONERS["murmur2"](self._counts[topic], _STICKY_BYTES)
        names = batch.schema.names
        keys = _byte_strings(batch.column("key")) if "key" in names else None
        values = _byte_strings(batch.column("value"))
        partitions = self._partitions(topic, batch, keys, values)
        timestamps = _timestamps(batch)
        headers = _headers(batch)
        order = np.argsort(partitions, kind="stable")
        bounds = np.flatnonzero(np.diff(partitions[order], prepend=-1, append=-2))
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows = order[start:end]
            yield (
                topic,
                RecordsToSend(
                    int(partitions[rows[0]]),
                    timestamps[rows],
                    None if keys is None else keys.take(rows),
                    values.take(rows),
                    None if headers is None else headers.take(rows),
                    rows,
                ),
            )

    def _partitions(self, topic: str, batch: Any, keys: Any, values: Any) -> Any:  # npt.NDArray[np.int64]
        count = self._counts[topic]
        by_key = self._partitioners[topic](keys, values)
        if "partition" not in batch.schema.names:
            return by_key
        given = batch.column("partition")
        wanted = pc.fill_null(given, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        if (wanted >= count).any():
            raise PlogError(f"topic {topic} has {count} partitions, and a record is for {int(wanted.max())}")
        return np.where(wanted >= 0, wanted, by_key)


def ensure_writable(schema: Any, topic: str) -> None:  # schema: pyarrow.Schema
    """Raises UsageError if a DataFrame can't be written to topics."""
    names = schema.names
    if "value" not in names:
        raise UsageError(f"there is no column value to write, only {', '.join(names)}")
    if not topic and "topic" not in names:
        raise UsageError("write to which topic? give the option topic, or a column topic")
    for name in ("key", "value"):
        if name in names and not _is_bytes(schema.field(name).type):
            raise UsageError(f"column {name} is {schema.field(name).type}, expected binary or string")
    for name, kind in (("topic", pa.string()), ("partition", pa.int32())):
        if name in names and schema.field(name).type != kind:
            raise UsageError(f"column {name} is {schema.field(name).type}, expected {kind}")


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _byte_strings(column: Any) -> ByteStrings:
    return strings_from_arrow(column.cast(pa.binary()))


def _timestamps(batch: Any) -> Any:  # npt.NDArray[np.int64], milliseconds
    now_ms = time.time_ns() // 1_000_000
    if "timestamp" not in batch.schema.names:
        return np.full(len(batch), now_ms, np.int64)
    micros = pc.fill_null(batch.column("timestamp").cast(pa.int64()), now_ms * 1000)
    return micros.to_numpy(zero_copy_only=False) // 1000


def _headers(batch: Any) -> ByteStrings | None:
    if "headers" not in batch.schema.names or batch.column("headers").null_count == len(batch):
        return None
    rows = batch.column("headers").to_pylist()
    sections = [encode_headers([((h["key"] or "").encode(), h["value"]) for h in row or ()]) for row in rows]
    return ByteStrings.of_list(sections)
