"""How fast a topic is written and read, by plog's own client: what `plog perf` measures.

As Kafka's tools measure it (org.apache.kafka.tools.ProducerPerformance, ConsumerPerformance, EndToEndLatency): a
record's latency is from when it was handed to the producer to when it was acknowledged; end to end, to when a consumer
that polls after the acknowledgement has it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from core.client.admin.admin import LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.cluster_source import ClusterSource
from core.client.read.consumer import Consumer
from core.client.read.record_source import ReadOptions
from core.client.write.producer import OnAcknowledged, Producer, RecordsToSend
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.records.batches import group_batches
from core.records.byte_strings import ByteStrings
from core.records.columns import decode_whole_batches

_PERCENTILES = (50, 95, 99, 99.9)
_UNPACED_RECORDS = 1000
_PACED_SECONDS = 0.01
_WAIT_SECONDS = 60.0


@dataclass(slots=True)
class Latencies:
    """Latencies of records, many at once; owned by one task."""

    _millis: list[float] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def add(self, seconds: float, count: int = 1) -> None:
        self._millis.append(seconds * 1000)
        self._counts.append(count)

    def summary(self) -> dict[str, float]:
        """Returns milliseconds: avg, max, p50, p95, p99, p99.9; {} without records."""
        if not self._millis:
            return {}
        order = np.argsort(self._millis)
        millis, counts = np.array(self._millis)[order], np.array(self._counts)[order]
        below = np.cumsum(counts)
        found = {"avg_ms": float(np.average(millis, weights=counts)), "max_ms": float(millis[-1])}
        for percentile in _PERCENTILES:
            place = np.searchsorted(below, below[-1] * percentile / 100)
            found[f"p{percentile}_ms"] = float(millis[min(place, len(millis) - 1)])
        return {name: round(value, 3) for name, value in found.items()}

    def histogram(self) -> list[tuple[float, int]]:
        """Returns (milliseconds, records that took at most so long, but longer than the one before): powers of two."""
        if not self._millis:
            return []
        ends = np.exp2(np.ceil(np.log2(np.maximum(self._millis, 0.001))))
        bounds, places = np.unique(ends, return_inverse=True)
        counts = np.bincount(places, weights=self._counts).astype(int)
        return list(zip(bounds.round(4).tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a measurement; immutable."""

    records: int
    size_bytes: int
    seconds: float
    latencies: Latencies

    def row(self) -> dict[str, Any]:
        seconds = max(self.seconds, 1e-9)
        return {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.records / seconds, 1),
            "mb_per_s": round(self.size_bytes / seconds / (1 << 20), 2),
            **self.latencies.summary(),
        }


OnMeasured = Callable[[Measured], None]
"""Called every few seconds with the measurement since the last call."""


# --- produce


def measure_produce(
    make_producer: Callable[[OnAcknowledged], Producer],
    partitions: int,
    payloads: Sequence[bytes],
    *,
    records: int,
    per_second: float | None,
    warmup: int = 0,
    report_seconds: float = 5.0,
    tell: OnMeasured = lambda _: None,
) -> Measured:
    """Sends records whose values are the payloads in turn, to one partition after the other; at most so many a second.
    The first `warmup` are not counted.
    """
    meter = _ProduceMeter(report_seconds, tell)
    producer = make_producer(meter.acknowledged)
    values = ByteStrings.of_list(payloads)
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    sent, started_s = 0, time.monotonic()
    chunk = _UNPACED_RECORDS if per_second is None else max(int(per_second * _PACED_SECONDS), 1)
    for number, start in enumerate(range(0, records + warmup, chunk)):
        count = min(chunk, records + warmup - start)
        if sent >= warmup > 0 and meter.is_warming_up:
            producer.flush()
            meter.begin()
            started_s, sent = time.monotonic(), warmup
        rows = np.arange(sent, sent + count, dtype=np.int64)
        chosen = rows % len(payloads)
        partition = number % partitions
        now_ms = np.full(count, time.time_ns() // 1_000_000, np.int64)
        meter.sent(partition, count, int(sizes[chosen].sum()))
        producer.send(RecordsToSend(partition, now_ms, None, values.take(chosen), None, rows))
        sent += count
        if per_second is not None:
            ahead_s = (sent - warmup) / per_second - (time.monotonic() - started_s)
            if ahead_s > 0:
                producer.flush()
                time.sleep(max((sent - warmup) / per_second - (time.monotonic() - started_s), 0))
    producer.flush()
    return meter.whole()


class _ProduceMeter:
    """Pairs acknowledgements with sent records: within a partition they come in order. Owned by one task."""

    def __init__(self, report_seconds: float, tell: OnMeasured) -> None:
        self._report_seconds = report_seconds
        self._tell = tell
        self._waiting: dict[int, deque[list[float]]] = {}
        self.begin()
        self.is_warming_up = True

    def begin(self) -> None:
        self.is_warming_up = False
        self._whole, self._part = Latencies(), Latencies()
        self._records = self._bytes = self._part_records = self._part_bytes = 0
        self._started_s = self._part_s = time.monotonic()

    def sent(self, partition: int, count: int, size_bytes: int) -> None:
        self._waiting.setdefault(partition, deque()).append([time.monotonic(), count, size_bytes / count])

    def acknowledged(self, partition: TopicPartition, _base_offset: int, count: int) -> None:
        now_s = time.monotonic()
        waiting = self._waiting[partition.partition]
        while count:
            sent_s, left, size = waiting[0]
            some = min(count, int(left))
            self._whole.add(now_s - sent_s, some)
            self._part.add(now_s - sent_s, some)
            self._records += some
            self._part_records += some
            self._bytes += int(some * size)
            self._part_bytes += int(some * size)
            waiting[0][1] -= some
            count -= some
            if not waiting[0][1]:
                waiting.popleft()
        if now_s - self._part_s >= self._report_seconds:
            self._tell(Measured(self._part_records, self._part_bytes, now_s - self._part_s, self._part))
            self._part, self._part_records, self._part_bytes, self._part_s = Latencies(), 0, 0, now_s

    def whole(self) -> Measured:
        return Measured(self._records, self._bytes, time.monotonic() - self._started_s, self._whole)


# --- consume


def measure_consume(client: KafkaClient, topic: str, *, records: int | None, timeout_s: float) -> Measured:
    """Reads, decodes and counts so many records from the beginning, or all; fewer after a long silence."""
    source = ClusterSource(client, ReadOptions(read_committed=False))
    partitions = [TopicPartition(topic, number) for number in source.partitions(topic)]
    count = size = 0
    started_s = last_s = time.monotonic()
    for found in source.follow(source.starts(partitions)):
        now_s = time.monotonic()
        if found is None:
            if now_s - last_s >= timeout_s:
                break
            continue
        for group in group_batches(found[1]):
            for columns in decode_whole_batches(group, partial(source.leave_out, found[0])):
                count += len(columns)
                size += int(np.maximum(columns.value_lengths, 0).sum() + np.maximum(columns.key_lengths, 0).sum())
        last_s = time.monotonic()
        if records is not None and count >= records:
            break
    return Measured(count, size, last_s - started_s, Latencies())


# --- end to end


def measure_latency(
    client: KafkaClient, topic: str, make_producer: Callable[[], Producer], *, records: int, size_bytes: int
) -> Measured:
    """Sends, confirms and reads one record after the other. Raises AccessError if one does not arrive."""
    partition = TopicPartition(topic, 0)
    positions = Admin(client).list_offsets({partition: LATEST})
    producer = make_producer()
    consumer = Consumer(client)
    latencies = Latencies()
    payload = ByteStrings.of_list([random_payload(size_bytes, np.random.default_rng(0))])
    started_s = time.monotonic()
    for number in range(records):
        sent_s = time.monotonic()
        now_ms = np.array([time.time_ns() // 1_000_000], np.int64)
        producer.send(RecordsToSend(0, now_ms, None, payload, None, np.array([number])))
        producer.flush()
        while not list(consumer.poll(positions)):
            if time.monotonic() - sent_s > _WAIT_SECONDS:
                raise AccessError(f"record {number} of {partition} did not arrive in {_WAIT_SECONDS:.0f} s")
        latencies.add(time.monotonic() - sent_s)
    return Measured(records, records * size_bytes, time.monotonic() - started_s, latencies)


def random_payload(size_bytes: int, random: np.random.Generator) -> bytes:
    """Returns capital letters, as ProducerPerformance sends."""
    letters: npt.NDArray[np.uint8] = random.integers(ord("A"), ord("Z") + 1, size_bytes, np.uint8)
    return letters.tobytes()
