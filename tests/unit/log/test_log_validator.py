from __future__ import annotations

import struct

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.files.log_config import LogConfig
from core.log.log_validator import validate_batch, validate_header
from core.records.checksum import crc32c
from core.records.compression import CompressionType
from core.records.record_batch import RecordBatch
from tests.support.for_each import for_each
from tests.support.logs import NOW, make_batch


def validate(batch: RecordBatch, *, from_client: bool = True, **config: object) -> RecordBatch:
    configured = LogConfig(**config)  # type: ignore[arg-type]
    if from_client:
        return validate_batch(batch, configured, NOW)
    validate_header(batch, configured, from_client=False, now_ms=NOW)
    return batch


def changed(batch: RecordBatch, position: int, form: str, value: int) -> RecordBatch:
    """The batch with one header field changed, and the crc made right again."""
    data = bytearray(batch.buffer)
    struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return RecordBatch(memoryview(data))


def refused(batch: RecordBatch, code: ErrorCode, message: str, **config: object) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        validate(batch, **config)
    assert caught.value.code is code


def test_a_sound_batch_passes_as_it_is() -> None:
    batch = make_batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0)
    assert validate(batch).buffer is batch.buffer


def test_too_large() -> None:
    batch = make_batch(b"x" * 1000)
    refused(
        batch,
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{batch.size_bytes} bytes, max.message.bytes is {batch.size_bytes - 1}",
        max_message_bytes=batch.size_bytes - 1,
    )
    validate(batch, max_message_bytes=batch.size_bytes)


@for_each(
    "position, form, value, message",
    [
        (21, ">h", 0x20, "not allowed to write control records"),
        (21, ">h", 0x40, "delete horizon"),
        (57, ">i", 0, "holds 0 records, its last offset delta is 1"),
        (57, ">i", 3, "holds 3 records, its last offset delta is 1"),
        (57, ">i", -5, "holds -5 records"),
        (23, ">i", 5, "holds 2 records, its last offset delta is 5"),
        (43, ">q", 5, "producer 5 sent sequence -1"),
        (21, ">h", 0x10, "a batch of a transaction has no producer id"),
    ],
)
def test_a_header_that_makes_no_sense(position: int, form: str, value: int, message: str) -> None:
    refused(changed(make_batch(b"a", b"b"), position, form, value), ErrorCode.INVALID_RECORD, message)


def test_what_is_refused_with_another_code() -> None:
    batch = make_batch(b"abc")
    batch.buffer[-2] ^= 1
    refused(batch, ErrorCode.CORRUPT_MESSAGE, "crc mismatch")
    refused(changed(make_batch(b"a"), 21, ">h", 6), ErrorCode.CORRUPT_MESSAGE, "unknown codec 6")
    batch = changed(changed(make_batch(b"a"), 43, ">q", 5), 53, ">i", 0)
    refused(batch, ErrorCode.INVALID_PRODUCER_EPOCH, "producer 5 sent epoch -1")
    batch = changed(changed(make_batch(b"a", b"b"), 57, ">i", 1_000_000), 23, ">i", 999_999)
    refused(batch, ErrorCode.INVALID_RECORD, "1000000 records do not fit")


def test_a_timestamp_from_the_future() -> None:
    batch = make_batch(b"a", timestamp=NOW + 3_600_001)
    refused(
        batch,
        ErrorCode.INVALID_TIMESTAMP,
        r"lies 3600001 ms ahead of the broker's clock, message\.timestamp\.after\.max\.ms is 3600000",
    )
    validate(make_batch(b"a", timestamp=NOW + 3_600_000))
    validate(batch, message_timestamp_type="LogAppendTime")


def test_a_timestamp_from_the_past() -> None:
    old = make_batch(b"a", b"b", timestamp=NOW - 5000)
    refused(old, ErrorCode.INVALID_TIMESTAMP, "lies 5000 ms behind", message_timestamp_before_max_ms=4999)
    validate(old, message_timestamp_before_max_ms=5000)
    validate(make_batch(b"a", timestamp=-1), message_timestamp_before_max_ms=1)


@for_each("codec", CompressionType)
def test_a_compacted_topic_needs_keys(codec: CompressionType) -> None:
    batch = make_batch(b"a", key=None, compression=codec)
    refused(batch, ErrorCode.INVALID_RECORD, "without a key", cleanup_policy=frozenset({"compact"}))
    validate(make_batch(b"a", compression=codec), cleanup_policy=frozenset({"compact", "delete"}))


@for_each("codec", CompressionType)
@for_each("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_is_what_is_stored(codec: CompressionType, target: str) -> None:
    batch = make_batch(
        b"a" * 100, b"b", compression=codec, producer_id=4, producer_epoch=2, base_sequence=9, is_transactional=True
    )
    stored = validate(batch, compression_type=target)
    stored.ensure_valid()
    wanted = CompressionType.NONE if target == "uncompressed" else CompressionType.parse(target)
    assert stored.compression is wanted
    assert stored.records() == batch.records()
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (4, 2, 9)
    assert stored.is_transactional
    assert (stored.buffer is batch.buffer) == (codec is wanted)


def test_what_the_broker_writes_itself_is_not_judged_by_a_clients_rules() -> None:
    marker = changed(make_batch(b"a"), 21, ">h", 0x20)
    assert validate(marker, from_client=False) is marker
