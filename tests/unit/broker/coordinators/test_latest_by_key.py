"""The newest records of an internal topic, beside a plain model of what the log's cleaner leaves."""

from __future__ import annotations

import gc
from random import Random

import pytest

from core.broker.coordinators.latest_by_key import ReadRecord, newest_records
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.for_each import for_each
from tests.support.logs import NOW, make_marker


@for_each("seed", range(12), first=3)
def test_the_newest_records_are_those_that_the_cleaner_would_leave(seed: int) -> None:
    """Beside a plain model: of each key the last record outside of transactions, with what it deletes; and all that is
    in transactions.
    """
    random = Random(seed)
    batches: list[RecordBatch] = []
    expected: list[ReadRecord] = []
    newest: dict[bytes, ReadRecord] = {}
    for _ in range(random.choice([5, 400, 3000])):
        kind, producer = random.random(), random.randint(1, 3)
        if kind < 0.05:
            batches.append(make_marker(producer, is_commit=kind < 0.03))
            expected.append(ReadRecord(b"", None, producer, kind < 0.03, offset=0))
            continue
        is_open = kind < 0.1
        fields = {"is_transactional": True, "producer_id": producer, "producer_epoch": 0} if is_open else {}
        records = [
            Record(n, NOW, random.choice([b"", b"a", b"b", b"c" * 300]), random.choice([None, b"", b"%d" % n]))
            for n in range(random.randint(1, 5))
        ]
        codec = random.choice([CompressionType.NONE, CompressionType.ZSTD])
        batches.append(RecordBatch(memoryview(bytearray(batch_of(records, compression=codec, **fields)))))
        for record in records:
            read = ReadRecord(record.key or b"", record.value, producer if is_open else -1, offset=record.offset)
            if record.key and not is_open and read.key in newest:
                earlier = newest[read.key]
                expected = [r for r in expected if r is not earlier]
                if read.value is None and earlier.value is not None:
                    expected.append(earlier)
            if record.key:
                expected.append(read)
                newest |= {} if is_open else {read.key: read}
    found = list(newest_records(batches, lambda *_: pytest.fail("all can be read")))
    assert found == expected
    gc.collect()
    assert not any(map(gc.is_tracked, found)), "a million of them would hold the loop whenever cycles are looked for"
