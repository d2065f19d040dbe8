"""Keeps the records of a Produce request for as long as a task works on them."""

from __future__ import annotations

from core.protocol.primitives import Records
from core.protocol.schema.produce import ProduceRequest
from core.records.record_batch import LARGE_BATCH_BYTES


def is_large(records: Records | None) -> bool:
    """Returns whether a batch of that size is processed in steps."""
    return records is not None and len(records) > LARGE_BATCH_BYTES


def keep_records(request: ProduceRequest) -> None:
    """Copies the records, because the request's frame is reused before they are appended. Not so if any of them is
    large: then the frame is kept (`RequestDispatcher.handle`).
    """
    if any(is_large(data.records) for topic_data in request.topic_data for data in topic_data.partition_data):
        return
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            if isinstance(data.records, memoryview):
                data.records = memoryview(bytearray(data.records))
