"""What a measurement of producing reports on its way, and in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.client.write.perf import Measured, measure_produce
from core.client.write.producer import RecordsToSend
from core.common.topic_partition import TopicPartition


class AcknowledgingProducer:
    """Acknowledges what it is sent at once."""

    def __init__(self, acknowledged: Callable[[TopicPartition, int, int], None]) -> None:
        self._acknowledged = acknowledged

    def send(self, records: RecordsToSend) -> None:
        self._acknowledged(TopicPartition("t", records.partition), 0, len(records.rows))

    def flush(self) -> None:
        pass


def test_each_record_is_in_one_report() -> None:
    told: list[Measured] = []
    make_producer: Any = AcknowledgingProducer
    whole = measure_produce(
        make_producer, 2, [b"abc", b"d"], records=100_000, per_second=None, report_seconds=0, tell=told.append
    )
    assert len(told) > 1
    assert sum(one.records for one in told) == whole.records == 100_000
    assert sum(one.size_bytes for one in told) == whole.size_bytes == 200_000
