from __future__ import annotations

import pytest

from core.common.errors import CorruptRecordError
from core.records.batches import entry_size, iter_whole_batches, read_batch, read_header
from core.records.checksum import crc32c, crc32c_by_table
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import (
    HEADER_SIZE,
    RecordBatch,
    is_thinned,
    set_base_offset_and_leader_epoch,
    set_log_append_time,
)
from core.records.record_batch_builder import batch_of, build_batch
from tests.support.for_each import for_each
from tests.support.logs import iter_batches

RECORDS = [Record(n, 1_700_000_000_000 + n, b"k%d" % n, b"v" * n) for n in range(5)]


def batch_from(data: bytes | bytearray) -> RecordBatch:
    return RecordBatch(memoryview(data))


def test_the_header_of_a_batch_byte_by_byte() -> None:
    data = build_batch(
        b"",
        count=0,
        base_timestamp=0x0102030405060708,
        max_timestamp=0x1112131415161718,
        last_offset_delta=3,
        base_offset=0x2122232425262728,
        partition_leader_epoch=0x31323334,
        producer_id=0x4142434445464748,
        producer_epoch=0x5152,
        base_sequence=0x61626364,
        is_transactional=True,
        is_control=True,
        is_log_append_time=True,
        has_delete_horizon=True,
    )
    crc = crc32c_by_table(data[21:])
    assert data.hex(" ", 1) == (
        "21 22 23 24 25 26 27 28 00 00 00 31 31 32 33 34 02 " + crc.to_bytes(4, "big").hex(" ") + " 00 78 00 00 00 03 "
        "01 02 03 04 05 06 07 08 11 12 13 14 15 16 17 18 41 42 43 44 45 46 47 48 51 52 61 62 63 64 00 00 00 00"
    )
    batch = batch_from(data)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (
        0x2122232425262728,
        0x212223242526272B,
        0x212223242526272C,
    )
    assert batch.is_transactional and batch.is_control and batch.is_log_append_time
    assert batch.delete_horizon_ms == 0x0102030405060708
    assert batch.size_bytes == HEADER_SIZE == 61


@for_each("codec", CompressionType)
def test_what_is_built_is_read(codec: CompressionType) -> None:
    data = batch_of(RECORDS, base_offset=100, compression=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    batch = batch_from(data)
    batch.ensure_valid()
    assert batch.compression is codec
    assert batch.count == 5
    assert (batch.base_sequence, batch.last_sequence) == (5, 9)
    assert batch.records() == [r._replace(offset=100 + r.offset) for r in RECORDS]


@pytest.mark.parametrize(("base_sequence", "last"), [((1 << 31) - 5, (1 << 31) - 1), ((1 << 31) - 2, 2), (-1, -1)])
def test_sequences_wrap_to_0_and_without_a_producer_there_are_none(base_sequence: int, last: int) -> None:
    producer_id = 7 if base_sequence >= 0 else -1
    batch = batch_from(batch_of(RECORDS, producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence))
    assert batch.last_sequence == last


@for_each(
    "count, last_offset_delta, attributes, is_so",
    [(5, 4, 0, False), (4, 4, 0, True), (0, 4, 0, True), (0, 0, 0, True), (-1, 4, 0, False), (5, 4, 0x40, True)],
)
def test_a_batch_that_a_cleaner_was_at(count: int, last_offset_delta: int, attributes: int, is_so: bool) -> None:
    """It took records, perhaps all, or noted when the others may go."""
    assert is_thinned(count, last_offset_delta, attributes) == is_so


def test_log_append_time_patches_the_header_and_all_timestamps_follow() -> None:
    data = bytearray(batch_of(RECORDS))
    batch = batch_from(data)
    before = bytes(data[61:])
    set_log_append_time(batch, 1_800_000_000_000)
    again = batch_from(data)
    again.ensure_valid()
    assert again.is_log_append_time
    assert {r.timestamp for r in again.records()} == {1_800_000_000_000}
    assert data[61:] == before


def test_the_brokers_fields_lie_outside_the_checksum() -> None:
    data = bytearray(batch_of(RECORDS))
    set_base_offset_and_leader_epoch(batch_from(data), 12345, 7)
    again = batch_from(data)
    again.ensure_valid()
    assert (again.base_offset, again.partition_leader_epoch) == (12345, 7)


def test_every_flipped_bit_behind_the_crc_is_noticed() -> None:
    data = bytearray(batch_of(RECORDS))
    for position in range(17, len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            with pytest.raises(CorruptRecordError, match="crc mismatch"):
                batch_from(data).ensure_valid()
            data[position] ^= 1 << bit


def test_an_error_says_where() -> None:
    data = bytearray(batch_of(RECORDS, base_offset=42))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        RecordBatch(memoryview(data), 0, 4096).ensure_valid()
    error = caught.value
    assert (error.position, error.offset) == (4096, 42)
    stored = int.from_bytes(data[17:21], "big")
    assert str(error) == (
        f"crc mismatch: stored {stored:08x}, computed {crc32c_by_table(data[21:]):08x} at position 4096 (offset 42)"
    )


def test_a_codec_that_there_is_not() -> None:
    data = bytearray(batch_of(RECORDS))
    data[22] |= 7
    with pytest.raises(CorruptRecordError, match="unknown codec 7"):
        batch_from(data).records()


def test_a_batch_that_compaction_emptied() -> None:
    data = build_batch(b"", count=0, base_timestamp=-1, max_timestamp=5, last_offset_delta=9, base_offset=10)
    batch = batch_from(data)
    assert batch.records() == []
    assert batch.next_offset == 20


def test_walking_batches() -> None:
    data = b"".join(batch_of(RECORDS, base_offset=offset) for offset in (0, 5, 10))
    assert [b.base_offset for b in iter_batches(memoryview(data))] == [0, 5, 10]
    assert [b.base_offset for b in iter_whole_batches(memoryview(data[:-1]))] == [0, 5]
    with pytest.raises(CorruptRecordError, match="bytes where"):
        list(iter_batches(memoryview(data[:-1])))


def test_frames_that_are_none() -> None:
    good = bytearray(batch_of(RECORDS))
    with pytest.raises(CorruptRecordError, match="16 bytes are too few"):
        read_batch(memoryview(good[:16]))
    good[16] = 3
    with pytest.raises(CorruptRecordError, match="unknown magic 3"):
        entry_size(memoryview(good), 0)
    good[16] = 2
    for length in (-1, 0, 48, -(2**31)):
        good[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptRecordError, match=f"length {length}, expected at least 49"):
            entry_size(memoryview(good), 0)


def test_a_header_alone_tells_the_offsets() -> None:
    data = batch_of(RECORDS, base_offset=7)
    header = read_header(data[:61], 1000)
    assert (header.base_offset, header.last_offset, header.size_bytes, header.position) == (7, 11, len(data), 1000)


def test_both_checksums_agree() -> None:
    assert crc32c(b"123456789") == crc32c_by_table(b"123456789") == 0xE3069283  # the check value of the polynomial
    for compute in (crc32c, crc32c_by_table):
        assert compute(b"6789", compute(b"12345")) == 0xE3069283
