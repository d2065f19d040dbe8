"""What a leader checks of batches before they are appended, and what it changes in them.

Checked by the header alone: magic, size, codec, crc, record count against last offset delta, sequences, timestamps
within `message.timestamp.after.max.ms`. The records are opened only where the topic asks for it: a compacted topic
(every record needs a key), a `message.timestamp.before.max.ms`, another codec than the topic's `compression.type`.
Differences from Kafka's checks are listed in docs/validation.md. Source:
org.apache.kafka.storage.internals.log.LogValidator.
"""

from __future__ import annotations

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.log.log_config import LONG_MAX, LogConfig
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from core.records.record_batch_builder import build_batch

_SMALLEST_RECORD = 7
"""Bytes of a record with nothing in it: no batch holds more records than its bytes have room for, uncompressed."""


def validate_batch(batch: RecordBatch, config: LogConfig, *, from_client: bool, now_ms: int) -> RecordBatch:
    """The batch, checked; another one where the topic's codec asks for it.

    KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP.
    """
    if batch.size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record batch has {batch.size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    try:
        batch.ensure_valid()
        if from_client:
            _ensure_sound_header(batch)
        elif batch.is_control:
            return batch
        if batch.max_timestamp - now_ms > config.message_timestamp_after_max_ms and not config.is_log_append_time:
            raise _ahead_of_clock(batch, config, now_ms)
        if from_client and config.opens_records:
            return _check_records(batch, config, now_ms)
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return batch


def _check_records(batch: RecordBatch, config: LogConfig, now_ms: int) -> RecordBatch:
    """What can't be told from the header."""
    target = config.target_compression
    must_rebuild = target is not None and target is not batch.compression
    checks_timestamps = config.message_timestamp_before_max_ms != LONG_MAX and not config.is_log_append_time
    if not (must_rebuild or config.is_compacted or checks_timestamps):
        return batch
    _ensure_sound_records(batch.records(), config, checks_timestamps=checks_timestamps, now_ms=now_ms)
    if must_rebuild:
        assert target is not None
        return _recompress(batch, target, config)
    return batch


def _ensure_sound_header(batch: RecordBatch) -> None:
    attributes, count = batch.attributes, batch.count
    codec = batch.compression if attributes & CODEC_MASK else CompressionType.NONE
    if attributes & (CONTROL_FLAG | DELETE_HORIZON_FLAG):
        what = "control records" if batch.is_control else "batches with a delete horizon"
        raise KafkaError(ErrorCode.INVALID_RECORD, f"clients are not allowed to write {what}")
    if count <= 0 or count != batch.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch says it holds {count} records, its last offset delta is {batch.last_offset_delta}",
        )
    if codec is CompressionType.NONE and count * _SMALLEST_RECORD > batch.size_bytes:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{count} records do not fit in a batch of {batch.size_bytes} bytes")
    if batch.producer_id > NO_PRODUCER_ID:
        if batch.base_sequence < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"producer {batch.producer_id} sent sequence {batch.base_sequence}"
            )
        if batch.producer_epoch < 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {batch.producer_id} sent epoch {batch.producer_epoch}"
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a batch of a transaction has no producer id")


def _ahead_of_clock(batch: RecordBatch, config: LogConfig, now_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {batch.max_timestamp} lies {batch.max_timestamp - now_ms} ms ahead of the broker's clock, "
        f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}",
    )


def _ensure_sound_records(records: list[Record], config: LogConfig, *, checks_timestamps: bool, now_ms: int) -> None:
    if config.is_compacted and any(r.key is None for r in records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "compacted topics do not accept records without a key")
    if checks_timestamps:
        oldest = min((r.timestamp for r in records if r.timestamp != NO_TIMESTAMP), default=now_ms)
        if now_ms - oldest > config.message_timestamp_before_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {oldest} lies {now_ms - oldest} ms behind the broker's clock, "
                f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}",
            )


def _recompress(batch: RecordBatch, target: CompressionType, config: LogConfig) -> RecordBatch:
    """The same batch with its records section in the topic's codec."""
    rebuilt = build_batch(
        batch.records_section(),
        count=batch.count,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        last_offset_delta=batch.last_offset_delta,
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        compression=target,
        compression_level=config.compression_level(target),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_log_append_time=batch.is_log_append_time,
        is_transactional=batch.is_transactional,
    )
    return RecordBatch(memoryview(bytearray(rebuilt)))
