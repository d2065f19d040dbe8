"""The last record of each key, with a buffer that is too small for all of them, against a dict."""

from __future__ import annotations

from random import Random

from core.compaction.compacted_view import CompactedView
from core.compaction.offset_map import BYTES_PER_SLOT
from core.records.columns import RecordColumns, decode_columns
from core.records.record import Record, encode_records
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import build_batch
from tests.support.for_each import for_each


def columns_of(records: list[Record], sizes: int) -> list[RecordColumns]:
    """Batches of so many records, which may leave offsets out."""
    groups = [records[start : start + sizes] for start in range(0, len(records), sizes)]
    batches = [
        build_batch(
            encode_records(group, group[0].offset, group[0].timestamp),
            count=len(group),
            base_offset=group[0].offset,
            last_offset_delta=group[-1].offset - group[0].offset,
            base_timestamp=group[0].timestamp,
            max_timestamp=group[-1].timestamp,
        )
        for group in groups
    ]
    return [decode_columns([RecordBatch(memoryview(bytearray(batch)))]) for batch in batches]


@for_each("seed", range(30), first=10)
def test_rounds(seed: int) -> None:
    random = Random(seed)
    keys = random.choice([1, 10, 300])
    offset, records = (0, 2**62 - 1000, 2**63 - 20_000)[seed % 3], []
    for number in range(300):
        offset += random.choice([1, 1, 1, 2, 50])
        key = None if random.random() < 0.1 else b"key %d" % random.randrange(keys)
        value = None if random.random() < 0.2 else b"value %d" % number
        records.append(Record(offset, 1_700_000_000_000, key, value))
    expected: dict[bytes, Record] = {}
    for record in records:
        if record.key is not None:
            expected[record.key] = record
    wanted = sorted(record.offset for record in expected.values() if record.value is not None)
    batches = columns_of(records, random.choice([3, 7, 300]))
    tested = CompactedView(buffer_bytes=random.choice([4, 20, 40, 10_000]) * BYTES_PER_SLOT)
    assert [offset for columns in tested.read(lambda: iter(batches)) for offset in columns.offsets.tolist()] == wanted
    assert tested.without_key == sum(record.key is None for record in records)


def test_a_buffer_that_is_enough_takes_two_readings_and_half_a_buffer_takes_more() -> None:
    batches = columns_of([Record(n, 0, b"%d" % n, b"v") for n in range(1000)], 100)
    whole, half = CompactedView(2000 * BYTES_PER_SLOT), CompactedView(700 * BYTES_PER_SLOT)
    for tested in (whole, half):
        assert sum(len(columns) for columns in tested.read(lambda: iter(batches))) == 1000
    assert whole.readings == 2
    assert half.readings == 3
