"""Finds which partitions may hold records of one key: by a named partitioner, or by the one that put the topic's newest
keys where they are.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence

import numpy as np

from core.client.read.record_source import Offsets, RecordSource
from core.client.schemas.undecoded import SchemaError
from core.client.write.partitioner import PARTITIONERS
from core.common.errors import CorruptRecordError, UsageError
from core.common.topic_partition import TopicPartition
from core.inspector.stats.trace import rows_ending_with
from core.pipeline.consume_request import ConsumeRequest
from core.pipeline.key_value_text import Schemas
from core.pipeline.record_stream import Chunk
from core.pipeline.session import Session
from core.records.batches import Batch
from core.records.byte_strings import ByteStrings
from core.records.columns import decode_whole_batches
from core.records.record_batch import CODEC_MASK, RecordBatch
from core.records.side_format import SideFormat

_KNOWN = ("murmur2", "crc32", "fnv1a", "hash-ref")
"""The partitioners that are recognized; others put a key where one of these does."""

_SAMPLED_PARTITIONS = 4
_SAMPLED_OFFSETS = 250
_ENOUGH = 0.95
"""The share of the keys that a partitioner must explain."""

_CHANCE = 10_000
"""A partitioner is recognized if chance alone explains as many keys less often than once in so many topics."""

Placed = set[tuple[int, bytes]]
"""Keys, each with a partition in which it lies."""


class OneKey:
    """The key of a request; owned by one task."""

    def __init__(self, request: ConsumeRequest, session: Session, say: Callable[[str], None]) -> None:
        assert request.key is not None  # the caller looks
        self._request = request
        self._session = session
        self._say = say
        self._keys: dict[str, bytes] = {}
        self._left_out = False

    def choose(self, source: RecordSource, present: Sequence[TopicPartition], ends: Offsets) -> list[TopicPartition]:
        """Returns the partitions to read of each topic, and says which they are and why.

        Raises UsageError for a key that is not of the key's format, or whose partition is not there.
        """
        chosen: list[TopicPartition] = []
        for topic in dict.fromkeys(tp.topic for tp in present):
            mine = [tp for tp in present if tp.topic == topic]
            count = max(tp.partition for tp in mine) + 1
            numbers, why = self._find(source, mine, count, ends)
            found = mine if numbers is None else [tp for tp in mine if tp.partition in numbers]
            names = ", ".join(map(str, sorted(numbers or ())))
            if not found:
                raise UsageError(
                    f"key {self._request.key} of {topic} belongs to partition {names} of {count}, which is not there",
                    hint="--all-partitions reads those that are",
                )
            self._left_out |= len(found) < len(mine)
            one_or_more = f"partition{'s' * (len(numbers or ()) > 1)} {names} of {count}"
            where = f"all {count} partitions are read" if numbers is None else one_or_more
            if why:
                self._say(f"note: key {self._request.key} of {topic}: {where}{why}")
            chosen += found
        return chosen

    def _find(
        self, source: RecordSource, mine: list[TopicPartition], count: int, ends: Offsets
    ) -> tuple[set[int] | None, str]:
        """Returns the numbers of the partitions, or None for all, and the reason to print."""
        key = self.bytes_in(mine[0].topic)
        if self._request.all_partitions or count == 1:
            return None, ""
        if self._request.partitioner is not None:
            number = find_partition(key, count, self._request.partitioner)
            name = self._request.partitioner
            return (None, f": {name} spreads an empty key") if number is None else ({number}, f" by {name}")
        starts = source.starts(mine)
        sampled = [tp for tp in mine if starts[tp] < ends[tp]][:_SAMPLED_PARTITIONS]
        froms = {tp: max(starts[tp], ends[tp] - _SAMPLED_OFFSETS) for tp in sampled}
        newest = _sample(source, froms, ends)
        names = recognize(newest, count)
        if not names:
            return None, f": the {len(newest):,} newest keys do not show a partitioner; --partitioner NAME says it"
        if not key and names == ["crc32"]:
            return None, ": librdkafka's default partitioner spreads an empty key"
        numbers = {find_partition(key, count, name) or 0 for name in names}
        of_keys = f"{_explained(newest, names[0], count):,} of the {len(newest):,} newest keys"
        why = f" by {' or '.join(names)}, as {of_keys}; --all-partitions reads all"
        until = {tp: min(end, starts[tp] + _SAMPLED_OFFSETS) for tp, end in froms.items()}
        oldest = _sample(source, {tp: starts[tp] for tp in sampled}, until)
        others = {pair for pair in oldest if not _explained({pair}, names[0], count)}
        if len(others) <= (1 - _ENOUGH) * len(oldest):
            return numbers, why
        for fewer in range(count - 1, 0, -1):
            if _is_enough(_explained(others, names[0], fewer), len(others), count):
                numbers.add(find_partition(key, fewer, names[0]) or 0)
                return numbers, f"{why}; its oldest keys lie as among {fewer} partitions: some were added later"
        return None, f": {names[0]} explains the newest keys, but not where the oldest lie"

    def step(self, chunk: Chunk) -> Chunk:
        rows = rows_ending_with(chunk.columns, self.bytes_in(chunk.partition.topic), is_whole=True)
        return chunk._replace(columns=chunk.columns.select(rows), typed=None)

    def may_hold(self, partition: TopicPartition, batch: Batch) -> bool:
        """Says whether the batch may hold a record of the key, without decoding it."""
        if not isinstance(batch, RecordBatch) or batch.attributes & CODEC_MASK:
            return True
        pattern = re.compile(re.escape(self.bytes_in(partition.topic)))
        end = batch.start + batch.size_bytes
        return pattern.search(batch.buffer[batch.start : end]) is not None

    def report(self, printed: int) -> None:
        """Says what to do if nothing was found in the partitions that were read."""
        if not printed and self._left_out:
            self._say("note: no record of that key was found there; --all-partitions looks into the others")

    def bytes_in(self, topic: str) -> bytes:
        """Returns the key's bytes in that topic. Raises UsageError for text that is not of the key's format."""
        if topic not in self._keys:
            try:
                self._keys[topic] = self._encode(topic)
            except SchemaError as error:
                raise UsageError(f"--key {self._request.key}: {error.message}", hint="--key-format") from error
        return self._keys[topic]

    def _encode(self, topic: str) -> bytes:
        formats, text = self._request.formats, os.fsencode(self._request.key or "")
        if formats.find("key") is SideFormat.none:
            return text
        encode = Schemas(formats, self._session.find_settings()).find_encoder("key", None, topic)
        return text if encode is None else encode(text) or b""


def find_partition(key: bytes, partitions: int, name: str) -> int | None:
    """Returns the partition in which the partitioner puts the key, or None if it is any. Raises UsageError for a
    partitioner that does not look at keys, or does not exist.
    """
    if not key and name == "consistent_random":
        return None
    if name in ("random", "round_robin", "sticky"):
        raise UsageError(f"--partitioner {name} does not look at keys", hint="--all-partitions")
    if name in PARTITIONERS:
        assign = PARTITIONERS[name](partitions, 1)
    else:
        from core.pipeline.produce import find_partitioner  # with all that makes records

        assign = find_partitioner(name, partitions, 1)
    return int(assign(ByteStrings.of_list([key]), ByteStrings.of_list([b""]))[0])


def recognize(placed: Placed, partitions: int) -> list[str]:
    """Returns the partitioners that put these keys where they are, or none if chance may have done so."""
    return [name for name in _KNOWN if _is_enough(_explained(placed, name, partitions), len(placed), partitions)]


def _is_enough(explained: int, count: int, partitions: int) -> bool:
    return explained > _ENOUGH * count and explained * math.log(partitions) >= math.log(_CHANCE)


def _explained(placed: Placed, name: str, partitions: int) -> int:
    """Returns how many of the keys lie where the partitioner puts them."""
    keys = ByteStrings.of_list([key for _, key in placed])
    numbers = np.fromiter((number for number, _ in placed), np.int64, len(placed))
    return int((PARTITIONERS[name](partitions, 1)(keys, keys) == numbers).sum()) if placed else 0


def _sample(source: RecordSource, starts: Offsets, ends: Offsets) -> Placed:
    """Reads the keys of [start, end) of each partition, as far as they can be read; null keys are left out."""
    found: Placed = set()
    for tp, start in starts.items():
        if start >= ends[tp]:
            continue
        try:
            for _, batches in source.read({tp: start}, {tp: ends[tp]}):
                if not batches:
                    break  # later notes of the source are for the reading proper
                for columns in decode_whole_batches(batches, lambda *_: None):
                    inside = np.flatnonzero(
                        (columns.offsets >= start) & (columns.offsets < ends[tp]) & (columns.key_lengths >= 0)
                    )
                    found |= {(tp.partition, columns.key(row) or b"") for row in inside.tolist()}
        except CorruptRecordError:
            continue  # the reading proper reports it
    return found
