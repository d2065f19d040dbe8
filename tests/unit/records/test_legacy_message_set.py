"""The formats themselves are held against real Kafka's files in tests/golden; here, damage."""

from __future__ import annotations

import struct
import zlib

import pytest

from core.common.errors import CorruptRecordError
from core.records.batches import read_batch
from core.records.compression import CompressionType, compress
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record import Record
from tests.support import crafted


def message(
    offset: int, value: bytes | None, *, magic: int = 1, key: bytes | None = None, attributes: int = 0
) -> bytes:
    """Written here by hand: plog never writes the old formats."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", 1000 + offset)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, inner: bytes, codec: CompressionType, *, magic: int = 1, attributes: int = 0) -> bytes:
    return message(offset, compress(codec, inner), magic=magic, attributes=codec | attributes)


def legacy(data: bytes) -> LegacyRecordBatch:
    batch = read_batch(memoryview(data))
    assert isinstance(batch, LegacyRecordBatch)
    return batch


def test_a_plain_message() -> None:
    batch = legacy(message(5, b"v", key=b"k"))
    batch.ensure_valid()
    assert batch.records() == [Record(5, 1005, b"k", b"v")]
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (5, 5, 6)


def test_magic_0_has_no_timestamp() -> None:
    assert legacy(message(5, None, magic=0)).records() == [Record(5, -1, None, None)]


def test_inner_offsets_are_relative_in_magic_1_and_absolute_in_0() -> None:
    one = wrapper(102, b"".join(message(n, b"v") for n in range(3)), CompressionType.GZIP)
    assert [r.offset for r in legacy(one).records()] == [100, 101, 102]
    assert legacy(one).base_offset == 100
    zero = wrapper(7, message(3, b"a", magic=0) + message(7, b"b", magic=0), CompressionType.SNAPPY, magic=0)
    assert [r.offset for r in legacy(zero).records()] == [3, 7]


def test_a_log_append_time_wrapper_gives_its_time_to_all() -> None:
    data = wrapper(1, message(0, b"a") + message(1, b"b"), CompressionType.LZ4, attributes=0x08)
    assert [r.timestamp for r in legacy(data).records()] == [1001, 1001]


def test_messages_inside_may_have_the_other_magic() -> None:
    """The wrapper says how their offsets count (KAFKA-4298); one of magic 0 has no time, whatever the wrapper's is."""
    mixed = message(0, b"a", magic=0) + message(1, b"b") + message(4, b"c", magic=0)
    for attributes, time in ((0, 1001), (0x08, 1009)):
        one = legacy(wrapper(9, mixed, CompressionType.GZIP, attributes=attributes))
        assert [(r.offset, r.timestamp, r.value) for r in one.records()] == [
            (5, -1, b"a"),
            (6, time, b"b"),
            (9, -1, b"c"),
        ]
        assert one.offsets() == [5, 6, 9]
    zero = legacy(wrapper(4, mixed, CompressionType.GZIP, magic=0))
    assert [(r.offset, r.timestamp) for r in zero.records()] == [(0, -1), (1, 1001), (4, -1)]


def test_an_offset_below_that_of_the_last_message_inside() -> None:
    with pytest.raises(CorruptRecordError, match="offset 3 of a compressed message whose last one inside has 4"):
        legacy(wrapper(3, message(0, b"a") + message(4, b"b"), CompressionType.GZIP)).records()


def test_no_message_inside_has_a_magic_above_1() -> None:
    wrapper = crafted.wrapper([0], [(b"k", b"v")], 1, inner_magic=2)
    with pytest.raises(CorruptRecordError, match="a magic above 1"):
        read_batch(memoryview(wrapper)).records()


def test_damage_inside_and_outside() -> None:
    flipped = bytearray(message(5, b"value"))
    flipped[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="crc mismatch"):
        legacy(bytes(flipped)).ensure_valid()
    for inner in (b"", b"junk" * 5, message(0, b"a")[:-1], message(0, b"x", magic=0)[:-1]):
        with pytest.raises(CorruptRecordError):
            legacy(wrapper(0, inner, CompressionType.GZIP)).records()
    nested = wrapper(0, wrapper(0, message(0, b"a"), CompressionType.GZIP), CompressionType.GZIP)
    with pytest.raises(CorruptRecordError, match="a magic above 1 or a codec"):
        legacy(nested).records()


def test_lengths_that_do_not_fit() -> None:
    for length in (-2, 100, 2**31 - 1):
        data = bytearray(message(5, b"value"))
        data[-9:-5] = struct.pack(">i", length)
        with pytest.raises(CorruptRecordError):
            legacy(bytes(data)).records()
