"""Keeps the records of a Produce request for as long as somebody has work to do with them."""

from __future__ import annotations

from core.protocol.primitives import Records
from core.protocol.schema.produce import ProduceRequest
from core.records.record_batch import LARGE_BATCH_BYTES


def is_large(records: Records | None) -> bool:
    """Says whether a batch of that size is gone through in steps."""
    return records is not None and len(records) > LARGE_BATCH_BYTES


def keep_records(request: ProduceRequest) -> None:
    """Copies them: the request's frame will be gone when they are appended. But a large one stays as long as somebody
    is at work on it (`RequestDispatcher.handle`).
    """
    if any(is_large(data.records) for topic_data in request.topic_data for data in topic_data.partition_data):
        return
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            if isinstance(data.records, memoryview):
                data.records = memoryview(bytearray(data.records))
