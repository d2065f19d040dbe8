"""What a leader checks of the records inside a batch, where the topic asks for it: a compacted topic (every record
needs a key), `message.timestamp.before.max.ms`, another codec than the topic's `compression.type`, or
`plog.validate.records`.

A few bytes can hold a million records, or one of a hundred megabytes: they are gone through in steps, and only what a
step needs is held (core.records.record_walk); a small batch takes one. What is wrong with records is INVALID_RECORD, so
that clients do not send them again; Kafka answers so, or with an unexpected error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.steps import MUCH_FOLLOWS, Steps
from core.log.log_config import LONG_MAX, LogConfig
from core.records.compression import CompressionType, compress, stream_compressor
from core.records.record import Record
from core.records.record_batch import HEADER_SIZE, NO_TIMESTAMP, RecordBatch
from core.records.record_batch_builder import with_section
from core.records.record_walk import RecordWalk, read_if_small

if TYPE_CHECKING:
    from core.records.columns import RecordColumns

_COMPRESSED_AT_ONCE = 64 * 1024


class CheckedBatch(RecordBatch):
    """A batch whose records were checked, and compressed, as that configuration wants it."""

    __slots__ = ("checked_by",)

    def __init__(self, batch: RecordBatch, checked_by: LogConfig) -> None:
        super().__init__(batch.buffer, batch.start, batch.position)
        self.checked_by = checked_by


def check_records(batch: RecordBatch, config: LogConfig, now_ms: int) -> Steps[CheckedBatch]:
    """The batch, or one that is compressed as the topic wants it. KafkaError: INVALID_RECORD, INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE.
    """
    target = config.target_compression
    if target is batch.compression:
        target = None
    check = _RecordCheck(batch, config, now_ms)
    if target is not None or check.asks_anything:
        try:
            content = read_if_small(batch)
            if not isinstance(content, list):
                yield MUCH_FOLLOWS
                batch = yield from _walk(batch, content, check, target, config)
            else:
                check.records(content)
                if target is not None:
                    section = compress(target, batch.records_section(), config.compression_level(target))
                    ensure_size(HEADER_SIZE + len(section), config)
                    batch = with_section(batch, target, section)
        except CorruptRecordError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    return CheckedBatch(batch, config)


def _walk(
    batch: RecordBatch,
    pieces: Iterator[bytes],
    check: _RecordCheck,
    target: CompressionType | None,
    config: LogConfig,
) -> Steps[RecordBatch]:
    walk = RecordWalk(batch)
    section = None if target is None else _NewSection(target, config)
    for piece in pieces:
        for columns in walk.take(piece):
            if columns is not None:
                check.columns(columns)
            yield
        if section is not None:
            yield from section.add(piece)
        yield
    walk.ensure_whole()
    if target is None or section is None:
        return batch
    return with_section(batch, target, section.end())


class _NewSection:
    """A records section that is compressed as its pieces come; KafkaError as soon as the batch is too large with it."""

    def __init__(self, codec: CompressionType, config: LogConfig) -> None:
        self._config = config
        self._compressor = stream_compressor(codec, config.compression_level(codec))
        self._parts: list[bytes] = []
        self._size = HEADER_SIZE

    def add(self, piece: bytes) -> Steps[None]:
        for start in range(0, len(piece), _COMPRESSED_AT_ONCE):
            self._keep(self._compressor.compress(piece[start : start + _COMPRESSED_AT_ONCE]))
            yield

    def end(self) -> bytes:
        self._keep(self._compressor.flush())
        return b"".join(self._parts)

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        ensure_size(self._size, self._config)


class _RecordCheck:
    """What is asked of each record of a batch. KafkaError where one does not answer."""

    def __init__(self, batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
        self._needs_keys = config.is_compacted
        self._checks_offsets = config.plog_validate_records
        self._before_max_ms = LONG_MAX if config.is_log_append_time else config.message_timestamp_before_max_ms
        self._now_ms = now_ms
        self._next_offset = batch.base_offset

    @property
    def asks_anything(self) -> bool:
        return self._needs_keys or self._checks_offsets or self._before_max_ms != LONG_MAX

    def records(self, records: list[Record]) -> None:
        if self._needs_keys and any(record.key is None for record in records):
            raise _without_key()
        if self._before_max_ms != LONG_MAX:
            self._ensure_recent(
                min((r.timestamp for r in records if r.timestamp != NO_TIMESTAMP), default=self._now_ms)
            )
        if self._checks_offsets:
            self._ensure_consecutive([record.offset for record in records])

    def columns(self, columns: RecordColumns) -> None:
        import numpy as np

        if self._needs_keys and (columns.key_lengths < 0).any():
            raise _without_key()
        if self._before_max_ms != LONG_MAX:
            timestamps = columns.timestamps[columns.timestamps != NO_TIMESTAMP]
            self._ensure_recent(int(timestamps.min(initial=self._now_ms)))
        if self._checks_offsets:
            offsets = columns.offsets
            if (offsets != np.arange(self._next_offset, self._next_offset + len(offsets))).any():
                self._ensure_consecutive(offsets.tolist())
            self._next_offset += len(offsets)

    def _ensure_recent(self, oldest: int) -> None:
        if self._now_ms - oldest > self._before_max_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {oldest} lies {self._now_ms - oldest} ms behind the broker's clock, "
                f"message.timestamp.before.max.ms is {self._before_max_ms}",
            )

    def _ensure_consecutive(self, offsets: list[int]) -> None:
        for expected, offset in enumerate(offsets, self._next_offset):
            if offset != expected:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"a record of the batch has offset {offset} where {expected} is next"
                )


def _without_key() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, "compacted topics do not accept records without a key")


def ensure_size(size_bytes: int, config: LogConfig) -> None:
    """KafkaError(MESSAGE_TOO_LARGE) for a batch of so many bytes or more than the topic takes."""
    if size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record batch has {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )
