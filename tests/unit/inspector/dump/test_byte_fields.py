"""The fields of a batch's header, as Kafka's documentation lists them."""

from __future__ import annotations

from core.inspector.dump.byte_fields import BatchFields
from core.records.record_batch import RecordBatch
from tests.support.crafted import batch

HEADER = [
    ("base offset", 8), ("length", 4), ("leader epoch", 4), ("magic", 1), ("crc", 4), ("attributes", 2),
    ("last offset delta", 4), ("base timestamp", 8), ("max timestamp", 8), ("producer id", 8), ("producer epoch", 2),
    ("base sequence", 4), ("record count", 4),
]  # fmt: skip


def test_the_fields_of_a_header_follow_each_other() -> None:
    data = batch(0x0102030405060708, [(b"key", b"value")])
    fields = BatchFields(RecordBatch(memoryview(data)))
    assert [(span.name, span.end - span.start) for span in fields.spans] == HEADER
    assert b"".join(map(fields.data, fields.spans)) == data[:61]
