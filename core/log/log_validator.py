"""Checks batches as a leader does before they are appended, and changes in them what must be changed.

Checked by the header alone: magic, size, codec, crc, record count against last offset delta and against what the bytes
can hold, sequences, timestamps within `message.timestamp.after.max.ms`. The records are opened only if the topic
requires it (`record_validator.py`). Differences from Kafka's checks are listed in docs/validation.md. Source:
org.apache.kafka.storage.internals.log.LogValidator.
"""

from __future__ import annotations

from core.common.decompression_limit import expansion_limit
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.steps import Steps, finish
from core.files.log_config import LogConfig
from core.log.record_validator import (
    MOST_NAMED,
    CheckedBatch,
    check_records,
    check_small,
    ensure_readable,
    ensure_size,
    invalid_records,
    out_of_range,
)
from core.records.compression import CompressionType
from core.records.record import SMALLEST_RECORD_BYTES
from core.records.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LARGE_BATCH_BYTES,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from core.records.record_walk import is_small, read_if_small

_FEW_BYTES = 1024 * 1024
"""What a batch may always say it expands to: finding the limit costs more than the rest of the header."""


def validate_header(batch: RecordBatch, config: LogConfig, *, from_client: bool, now_ms: int) -> None:
    """Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP."""
    if batch.size_bytes > config.max_message_bytes:
        ensure_size(batch.size_bytes, config)
    try:
        batch.ensure_valid()
        _ensure_right_header(batch, config, from_client=from_client, now_ms=now_ms)
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _validate_large(batch: RecordBatch, config: LogConfig, now_ms: int) -> Steps[None]:
    """Does what `validate_header` does with a client's batch, in steps."""
    ensure_size(batch.size_bytes, config)
    try:
        yield from batch.ensure_valid_in_steps()
        _ensure_right_header(batch, config, from_client=True, now_ms=now_ms)
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _ensure_right_header(batch: RecordBatch, config: LogConfig, *, from_client: bool, now_ms: int) -> None:
    """Checks everything but the size and the crc."""
    if from_client:
        _ensure_sound_header(batch)
        ensure_readable(batch)
    elif batch.is_control:
        return
    if batch.max_timestamp - now_ms > config.message_timestamp_after_max_ms and not config.is_log_append_time:
        raise _ahead_of_clock(batch, config, now_ms)


def validate_batch(batch: RecordBatch, config: LogConfig, now_ms: int) -> RecordBatch:
    """Gives a client's batch with its records checked, or another one if the topic's codec requires it, all at once; as
    it is if `validate_in_steps` gave it for the same configuration. Raises what `validate_header` raises.
    """
    if is_checked(batch, config):
        return batch
    if is_small(batch):
        validate_header(batch, config, from_client=True, now_ms=now_ms)
        return check_small(batch, config, now_ms)
    return finish(validate_in_steps(batch, config, now_ms))


def is_checked(batch: RecordBatch, config: LogConfig) -> bool:
    """Says whether `validate_in_steps` gave the batch for that configuration."""
    return isinstance(batch, CheckedBatch) and batch.checked_by is config


def validate_in_steps(batch: RecordBatch, config: LogConfig, now_ms: int) -> Steps[CheckedBatch]:
    """Does the same in steps that are short however much the batch holds."""
    if batch.size_bytes > LARGE_BATCH_BYTES:
        yield from _validate_large(batch, config, now_ms)
    else:
        validate_header(batch, config, from_client=True, now_ms=now_ms)
    return (yield from check_records(batch, config, now_ms))


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
    if count * SMALLEST_RECORD_BYTES > batch.size_bytes - HEADER_SIZE:
        _ensure_room(batch, codec)
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


def _ensure_room(batch: RecordBatch, codec: CompressionType) -> None:
    """Raises KafkaError for more records than the batch's bytes can hold, or what they may expand to."""
    needed = batch.count * SMALLEST_RECORD_BYTES
    if codec is CompressionType.NONE:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{batch.count} records do not fit in a batch of {batch.size_bytes} bytes"
        )
    if needed > _FEW_BYTES and needed > expansion_limit():
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{batch.count} records take {needed} bytes at least, a batch may expand to {expansion_limit()}",
        )


def _ahead_of_clock(batch: RecordBatch, config: LogConfig, now_ms: int) -> KafkaError:
    """Names the records that are ahead, if the batch is small: of a large one it is not worth the work."""
    latest = now_ms + config.message_timestamp_after_max_ms
    code, why = ErrorCode.INVALID_TIMESTAMP, out_of_range(batch.max_timestamp, now_ms, config)
    records = read_if_small(batch)
    if not isinstance(records, list):
        return KafkaError(code, why)
    ahead = [(n, out_of_range(r.timestamp, now_ms, config)) for n, r in enumerate(records) if r.timestamp > latest]
    return invalid_records(code, ahead[:MOST_NAMED]) if ahead else KafkaError(code, why)
