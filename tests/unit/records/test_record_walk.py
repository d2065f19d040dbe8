"""Walking a batch against taking it apart at once."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import CorruptRecordError
from core.common.task import finish
from core.common.varint import varint
from core.records import compression, record_walk
from core.records.checksum import crc32c
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of, build_batch
from core.records.record_walk import RecordWalk, find_by_time
from tests.support.for_each import for_each
from tests.unit.records.test_columns import as_records, record

EMPTY_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])
MANY = 150_000


@pytest.fixture(params=[(1, 1), (7, 2), (1 << 20, 8192)], ids=str)
def small_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many bytes and records a step."""
    piece_bytes, records = request.param
    monkeypatch.setattr(compression, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(record_walk, "SMALL_SECTION_BYTES", -1)
    monkeypatch.setattr(record_walk, "MOST_RECORDS", records)


def batch(items: list[Record], **fields: object) -> RecordBatch:
    return RecordBatch(memoryview(batch_of(items, base_offset=1000, **fields)))


def many(record: bytes = EMPTY_RECORD, count: int = MANY, codec: CompressionType = CompressionType.ZSTD) -> RecordBatch:
    return RecordBatch(
        memoryview(build_batch(record * count, count=count, base_timestamp=5, max_timestamp=5, compression=codec))
    )


def steps_of(one: RecordBatch) -> Iterator[list[Record]]:
    """The records of each step."""
    walk = RecordWalk(one)
    for piece in one.section_pieces():
        for columns in walk.take(piece):
            yield [] if columns is None else as_records(columns)
        yield []
    walk.ensure_whole()


def walked(one: RecordBatch) -> list[Record]:
    return [found for step in steps_of(one) for found in step]


@pytest.mark.usefixtures("small_steps")
@given(items=st.lists(record, min_size=1, max_size=12), codec=st.sampled_from(CompressionType))
def test_a_walk_meets_every_record(items: list[Record], codec: CompressionType) -> None:
    one = batch(items, compression=codec)
    assert walked(one) == one.records()


@pytest.mark.usefixtures("small_steps")
def test_long_lengths_may_be_cut_anywhere() -> None:
    items = [Record(0, 5, b"k" * size, b"v" * size) for size in (0, 62, 63, 64, 8190, 8191, 8192, 70_000)]
    one = batch(items, compression=CompressionType.LZ4)
    assert walked(one) == one.records()


@pytest.mark.usefixtures("small_steps")
def test_what_the_plain_decoder_refuses_a_walk_refuses() -> None:
    items = [Record(0, 1_000_000 * n, b"key", b"value" * 20, ((b"h", b"1"), (b"i", None))[: n % 3]) for n in range(4)]
    sound = batch_of(items)
    chance = random.Random(3)
    for position in range(57, len(sound)):
        data = bytearray(sound)
        data[position] ^= 1 << chance.randrange(8)
        one = RecordBatch(memoryview(data))
        try:
            expected = one.records()
        except CorruptRecordError:
            with pytest.raises(CorruptRecordError):
                walked(one)
        else:
            assert walked(one) == expected
    for end in range(61, len(sound)):
        walk = RecordWalk(batch(items))
        with pytest.raises(CorruptRecordError):
            _take_all(walk, sound[61:end])


def _take_all(walk: RecordWalk, section: bytes) -> None:
    for _ in walk.take(section):
        pass
    walk.ensure_whole()


@for_each("codec", CompressionType)
def test_no_step_goes_through_more_than_a_few_thousand_records(codec: CompressionType) -> None:
    steps = [len(step) for step in steps_of(many(count=50_000, codec=codec))]
    assert sum(steps) == 50_000
    assert max(steps) <= record_walk.MOST_RECORDS


def test_a_record_with_very_many_headers_takes_many_steps() -> None:
    headers = 100_000
    body = bytes([0, 0, 0, 1, 1]) + varint(headers) + bytes([0, 1]) * headers
    one = many(varint(len(body)) + body, count=1)
    steps = list(steps_of(one))
    assert len(steps) > headers / 8192
    assert [len(found.headers) for step in steps for found in step] == [headers]
    assert walked(one) == one.records()


def test_many_records_are_not_held_at_once() -> None:
    one = many()
    tracemalloc.start()
    try:
        assert finish(find_by_time(one, 6, 0)) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000, "all of them took 30 MB"


def test_one_large_record_takes_a_step_for_each_piece() -> None:
    one = batch([Record(0, 5, b"k", bytes(20_000_000))], compression=CompressionType.ZSTD)
    steps = list(steps_of(one))
    assert len(steps) > 10
    assert [len(found.value or b"") for step in steps for found in step] == [20_000_000]


def test_more_records_than_the_header_says_are_not_gone_through() -> None:
    data = bytearray(many(count=100_000).buffer)
    data[57:61] = (10).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    steps = steps_of(RecordBatch(memoryview(data)))
    with pytest.raises(CorruptRecordError, match="more than 10 records"):
        next(steps)


# --- by time


@pytest.mark.usefixtures("small_steps")
@given(
    items=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    codec=st.sampled_from(CompressionType),
    timestamp=st.integers(-1, 21),
    start=st.integers(990, 1013),
)
def test_the_first_record_by_time(items: list[int], codec: CompressionType, timestamp: int, start: int) -> None:
    one = batch([Record(0, time, None, b"v") for time in items], compression=codec)
    expected = [(r.timestamp, r.offset) for r in one.records() if r.timestamp >= timestamp and r.offset >= start]
    assert finish(find_by_time(one, timestamp, start)) == (expected[0] if expected else None)


def test_what_is_found_is_not_held_up_by_what_follows() -> None:
    data = bytearray(many(codec=CompressionType.NONE).buffer)
    data[-1] = 99
    assert finish(find_by_time(RecordBatch(memoryview(data)), 5, 0)) == (5, 0)
    with pytest.raises(CorruptRecordError):
        finish(find_by_time(RecordBatch(memoryview(data)), 6, 0))
