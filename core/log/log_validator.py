"""Checks batches before a leader appends them, and sets the fields that a leader sets.

By the header alone it checks: magic, size, codec, crc, record count against last offset delta and against what the
bytes can hold, sequences, timestamps within `message.timestamp.after.max.ms`. docs/validation.md lists how the checks
differ from Kafka's. Source: org.apache.kafka.storage.internals.log.LogValidator.

The records are opened only if the topic requires it: a compacted topic (every record needs a key),
`message.timestamp.before.max.ms`, another codec than the topic's `compression.type`, or `plog.validate.records`. A few
bytes can hold a million records, or one of a hundred megabytes: they are gone through in steps, and only what a step
needs is held (core.records.record_walk); a small batch takes one. What is wrong with records is INVALID_RECORD, so that
clients do not send them again; Kafka answers so, or with an unexpected error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from core.common.decompression_limit import expansion_limit
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, InvalidRecordsError, KafkaError
from core.common.java_limits import LONG_MAX
from core.common.task import Task, Yield, finish
from core.common.varint import read_varint, read_varlong
from core.files.log_config import MOST_DECOMPRESSED_BYTES, LogConfig
from core.records.batches import refused_frame
from core.records.compression import (
    FRAME_START_BYTES,
    FRAME_STARTS,
    CompressionType,
    compress,
    decompressed_pieces,
    no_frame_error,
    stream_compressor,
)
from core.records.record import SMALLEST_RECORD_BYTES, Buffer, Record, read_headers
from core.records.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LARGE_BATCH_BYTES,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from core.records.record_batch_builder import with_section
from core.records.record_walk import SMALL_SECTION_BYTES, RecordWalk, is_small, read_if_small

if TYPE_CHECKING:
    from core.records.columns import RecordColumns


_FEW_RECORDS = 2
"""Up to so many records of a batch are all checked, unless they are compressed in more than `_FEW_RECORDS_BYTES`."""
_FEW_RECORDS_BYTES = 4096
_LEAST_LENGTH = 2 * (SMALLEST_RECORD_BYTES - 1)
"""The first byte of the least length, zig-zag."""

_FEW_HEADER_BYTES = 4096

_COMPRESSED_AT_ONCE = 64 * 1024
MOST_NAMED = 1000
"""The most wrong records of one batch that are named."""


class CheckedBatch(RecordBatch):
    """A batch whose records were checked, and compressed, as that configuration wants it."""

    __slots__ = ("checked_by",)

    def __init__(self, batch: RecordBatch, checked_by: LogConfig) -> None:
        super().__init__(batch.buffer, batch.start, batch.position)
        self.checked_by = checked_by


def ensure_readable(batch: RecordBatch) -> None:
    """Raises KafkaError(INVALID_RECORD) for a batch that no Java consumer can read, as far as that costs little: checks
    each record if there are few, else the first byte, and of compressed records the head of the frame.

    Source: `LogValidator`, which checks all of them.
    """
    buffer, start, count = batch.buffer, batch.start + HEADER_SIZE, batch.count
    try:
        if batch.attributes & CODEC_MASK:
            frame_starts = FRAME_STARTS[batch.attributes & CODEC_MASK]
            if not bytes(buffer[start : start + FRAME_START_BYTES]).startswith(frame_starts):
                raise no_frame_error(batch.compression, buffer[start : batch.start + batch.size_bytes])
            if count > _FEW_RECORDS or batch.size_bytes > _FEW_RECORDS_BYTES:
                return
            section: bytes | memoryview = buffer[start : batch.start + batch.size_bytes]
            records = b""
            for piece in decompressed_pieces(batch.compression, section):
                records += piece
                if len(records) > SMALL_SECTION_BYTES:
                    return
            section = records
        elif count > _FEW_RECORDS:
            if buffer[start] & 1 or buffer[start] < _LEAST_LENGTH:
                raise ValueError("the first record has a length that none can have")
            return
        else:
            section = buffer[start : batch.start + batch.size_bytes]
        position = 0
        for _ in range(count):
            position = skip_record(section, position)
        if position != len(section):
            raise ValueError(f"{len(section) - position} bytes follow the last of {count} records")
    except (CorruptRecordError, ValueError, IndexError) as error:
        why = "it ends within a record" if isinstance(error, IndexError) else str(error)
        raise _invalid(f"no consumer could read the batch: {why}") from error


def skip_record(section: Buffer, position: int) -> int:
    """Returns where the record that begins at `position` ends. Raises ValueError or IndexError for one that Kafka's
    consumers can't read. Makes no objects, and reads varints of one byte in line: a third of a microsecond. Headers of
    more than 4 KB are not checked, as a record may have half a million.
    """
    byte = section[position]
    if byte < 128:
        length, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        length, position = read_varint(section, position)
    end = position + length
    if length < 0 or end > len(section):
        raise ValueError(f"record of {length} bytes where {len(section) - position} are left")
    position += 2
    if section[position - 1] >= 128:
        _, position = read_varlong(section, position - 1)
    position += 1
    if section[position - 1] >= 128:
        _, position = read_varint(section, position - 1)
    for _ in (0, 1):  # the key, and the value
        byte = section[position]
        if byte < 128:
            position += 1 if byte & 1 else 1 + (byte >> 1)
        else:
            length, position = read_varint(section, position)
            position += max(length, 0)
    if not section[position]:
        position += 1
    elif end - position > _FEW_HEADER_BYTES:
        return end
    else:
        _, position = read_headers(section, position)
    if position != end:
        raise ValueError(f"record ends {position - end} bytes from where its length says")
    return end


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def check_records(batch: RecordBatch, config: LogConfig, now_ms: int) -> Task[CheckedBatch]:
    """Returns the batch, or one that is compressed as the topic wants it. Raises KafkaError: INVALID_RECORD,
    INVALID_TIMESTAMP, MESSAGE_TOO_LARGE.
    """
    if is_small(batch):
        return CheckedBatch(check_small(batch, config, now_ms), config)
    yield from _record_sizes(batch, config)
    target = _other_codec(batch, config)
    check = _RecordCheck(batch, config, now_ms)
    if target is not None or check.asks_anything:
        if (refusal := refused_frame(batch)) is not None:
            raise _invalid(refusal)
        try:
            content = read_if_small(batch)
            if not isinstance(content, list):
                yield Yield.MUCH_FOLLOWS
                batch = yield from _walk(batch, content, check, target, config)
            else:
                batch = _check_all(batch, content, check, target, config)
        except CorruptRecordError as error:
            raise _invalid(str(error)) from error
    return CheckedBatch(batch, config)


def check_small(batch: RecordBatch, config: LogConfig, now_ms: int) -> RecordBatch:
    """Does the same as `check_records`, but at once, for a batch that is small: most batches are."""
    finish(_record_sizes(batch, config))
    target = _other_codec(batch, config)
    check = _RecordCheck(batch, config, now_ms)
    if target is None and not check.asks_anything:
        return batch
    try:
        return _check_all(batch, batch.records(), check, target, config)
    except CorruptRecordError as error:
        raise _invalid(str(error)) from error


def _record_sizes(batch: RecordBatch, config: LogConfig) -> Task[None]:
    """Raises KafkaError(INVALID_RECORD) for a compressed record above `max.decompressed.message.bytes`, before it is
    decompressed.
    """
    most = config.max_decompressed_message_bytes
    if most == MOST_DECOMPRESSED_BYTES or not batch.attributes & CODEC_MASK:
        return
    begun, position = b"", 0  # a length that the next piece completes, and where in it the next record begins
    try:
        for piece in batch.section_pieces():
            data, begun = begun + piece, b""
            while position < len(data):
                try:
                    length, start = read_varint(data, position)
                except IndexError:
                    begun, position = data[position:], 0
                    break
                if length > most:
                    what = f"a record of {length} bytes is compressed"
                    raise _invalid(f"{what}, max.decompressed.message.bytes is {most}")
                position = start + max(length, 0)
            else:
                position -= len(data)
            yield Yield.GIVE_WAY
    except (CorruptRecordError, ValueError) as error:
        raise _invalid(str(error)) from error


def _other_codec(batch: RecordBatch, config: LogConfig) -> CompressionType | None:
    target = config.target_compression
    return None if target is None or target is batch.compression else target


def _check_all(
    batch: RecordBatch, records: list[Record], check: _RecordCheck, target: CompressionType | None, config: LogConfig
) -> RecordBatch:
    check.records(records)
    check.end()
    if target is None:
        return batch
    section = compress(target, batch.records_section(), config.compression_level(target))
    ensure_size(HEADER_SIZE + len(section), config)
    return with_section(batch, target, section)


def _walk(
    batch: RecordBatch, pieces: Iterator[bytes], check: _RecordCheck, target: CompressionType | None, config: LogConfig
) -> Task[RecordBatch]:
    walk = RecordWalk(batch)
    section = None if target is None else _NewSection(target, config)
    for piece in pieces:
        for columns in walk.take(piece):
            if columns is not None:
                check.columns(columns)
            yield Yield.GIVE_WAY
        if section is not None:
            yield from section.add(piece)
        yield Yield.GIVE_WAY
    walk.ensure_whole()
    check.end()
    if target is None or section is None:
        return batch
    return with_section(batch, target, section.end())


class _NewSection:
    """A records section, compressed as its pieces come; raises KafkaError as soon as it makes the batch too large."""

    def __init__(self, codec: CompressionType, config: LogConfig) -> None:
        self._config = config
        self._compressor = stream_compressor(codec, config.compression_level(codec))
        self._parts: list[bytes] = []
        self._size = HEADER_SIZE

    def add(self, piece: bytes) -> Task[None]:
        for start in range(0, len(piece), _COMPRESSED_AT_ONCE):
            self._keep(self._compressor.compress(piece[start : start + _COMPRESSED_AT_ONCE]))
            yield Yield.GIVE_WAY

    def end(self) -> bytes:
        self._keep(self._compressor.flush())
        return b"".join(self._parts)

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        ensure_size(self._size, self._config)


class _RecordCheck:
    """Checks each record of a batch. Raises InvalidRecordsError at the end, or as soon as enough are wrong."""

    def __init__(self, batch: RecordBatch, config: LogConfig, now_ms: int) -> None:
        self._config = config
        self._needs_keys = config.is_compacted
        self._checks_offsets = config.plog_validate_records
        self._before_max_ms = LONG_MAX if config.is_log_append_time else config.message_timestamp_before_max_ms
        self._now_ms = now_ms
        self._next_offset = batch.base_offset
        self._checked = 0
        self._wrong: list[tuple[int, str]] = []
        self._is_late = False

    @property
    def asks_anything(self) -> bool:
        return self._needs_keys or self._checks_offsets or self._before_max_ms != LONG_MAX

    def records(self, records: list[Record]) -> None:
        if self._needs_keys and None in [record.key for record in records]:
            self._note_without_key(number for number, record in enumerate(records) if record.key is None)
        if self._before_max_ms != LONG_MAX:
            oldest_ms = self._now_ms - self._before_max_ms
            times = ((number, record.timestamp) for number, record in enumerate(records))
            self._note_late((number, time) for number, time in times if time < oldest_ms and time != NO_TIMESTAMP)
        if self._checks_offsets:
            self._ensure_consecutive([record.offset for record in records])

    def columns(self, columns: RecordColumns) -> None:
        import numpy as np

        if self._needs_keys:
            self._note_without_key(map(int, np.flatnonzero(columns.key_lengths < 0)))
        if self._before_max_ms != LONG_MAX:
            times = columns.timestamps
            late = np.flatnonzero((times < self._now_ms - self._before_max_ms) & (times != NO_TIMESTAMP))
            self._note_late((int(number), int(times[number])) for number in late)
        if self._checks_offsets:
            offsets = columns.offsets
            if (offsets != np.arange(self._next_offset, self._next_offset + len(offsets))).any():
                self._ensure_consecutive(offsets.tolist())
            self._next_offset += len(offsets)
        self._checked += len(columns)

    def _note_without_key(self, numbers: Iterable[int]) -> None:
        self._note((number, "compacted topics do not accept records without a key") for number in numbers)

    def _note_late(self, times: Iterable[tuple[int, int]]) -> None:
        before = len(self._wrong)
        self._note((number, out_of_range(timestamp, self._now_ms, self._config)) for number, timestamp in times)
        self._is_late = self._is_late or len(self._wrong) > before

    def _note(self, wrong: Iterable[tuple[int, str]]) -> None:
        room = MOST_NAMED - len(self._wrong)
        self._wrong += [(self._checked + number, why) for number, why in islice(wrong, room)]

    def end(self) -> None:
        """Raises InvalidRecordsError if records were wrong."""
        if self._wrong:
            code = ErrorCode.INVALID_TIMESTAMP if self._is_late else ErrorCode.INVALID_RECORD
            raise invalid_records(code, self._wrong)

    def _ensure_consecutive(self, offsets: list[int]) -> None:
        for expected, offset in enumerate(offsets, self._next_offset):
            if offset != expected:
                raise _invalid(f"a record of the batch has offset {offset} where {expected} is next")


def out_of_range(timestamp: int, now_ms: int, config: LogConfig) -> str:
    """Says how far a record's timestamp is from the range that the topic accepts now."""
    if timestamp > now_ms:
        limit = f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
        return f"timestamp {timestamp} lies {timestamp - now_ms} ms ahead of the broker's clock, {limit}"
    limit = f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}"
    return f"timestamp {timestamp} lies {now_ms - timestamp} ms behind the broker's clock, {limit}"


def invalid_records(code: ErrorCode, wrong: Sequence[tuple[int, str]]) -> InvalidRecordsError:
    """Makes the error of a batch that is refused for these records."""
    first = "; ".join(f"record {number}: {why}" for number, why in wrong[:3])
    return InvalidRecordsError(code, f"the batch is refused because of some of its records: {first}", wrong)


def ensure_size(size_bytes: int, config: LogConfig) -> None:
    """Raises KafkaError(MESSAGE_TOO_LARGE) for a batch of so many bytes or more than the topic takes."""
    if size_bytes > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record batch has {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}",
        )


_FEW_BYTES = 1024 * 1024
"""The size up to which a batch may always expand: computing the limit costs more than the rest of the header check."""


def validate_header(batch: RecordBatch, config: LogConfig, *, from_client: bool, now_ms: int) -> None:
    """Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP."""
    if batch.size_bytes > config.max_message_bytes:
        ensure_size(batch.size_bytes, config)
    try:
        batch.ensure_valid()
        _ensure_right_header(batch, config, from_client=from_client, now_ms=now_ms)
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _validate_large(batch: RecordBatch, config: LogConfig, now_ms: int) -> Task[None]:
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
    """Returns a client's batch with its records checked, or another one if the topic's codec requires it, all at once;
    unchanged if `validate_in_steps` returned it for the same configuration. Raises what `validate_header` raises.
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


def validate_in_steps(batch: RecordBatch, config: LogConfig, now_ms: int) -> Task[CheckedBatch]:
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
        raise _invalid(f"clients are not allowed to write {what}")
    if count <= 0 or count != batch.last_offset_delta + 1:
        raise _invalid(f"the batch says it holds {count} records, its last offset delta is {batch.last_offset_delta}")
    if count * SMALLEST_RECORD_BYTES > batch.size_bytes - HEADER_SIZE:
        _ensure_room(batch, codec)
    if batch.producer_id > NO_PRODUCER_ID:
        if batch.base_sequence < 0:
            raise _invalid(f"producer {batch.producer_id} sent sequence {batch.base_sequence}")
        if batch.producer_epoch < 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {batch.producer_id} sent epoch {batch.producer_epoch}"
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise _invalid("a batch of a transaction has no producer id")


def _ensure_room(batch: RecordBatch, codec: CompressionType) -> None:
    """Raises KafkaError for more records than the batch's bytes, or their expansion, can hold."""
    needed = batch.count * SMALLEST_RECORD_BYTES
    if codec is CompressionType.NONE:
        raise _invalid(f"{batch.count} records do not fit in a batch of {batch.size_bytes} bytes")
    if needed > _FEW_BYTES and needed > expansion_limit():
        what = f"{batch.count} records take {needed} bytes at least"
        raise _invalid(f"{what}, a batch may expand to {expansion_limit()}")


def _ahead_of_clock(batch: RecordBatch, config: LogConfig, now_ms: int) -> KafkaError:
    """Names the records that are ahead, if the batch is small: of a large one it is not worth the work."""
    latest = now_ms + config.message_timestamp_after_max_ms
    code, why = ErrorCode.INVALID_TIMESTAMP, out_of_range(batch.max_timestamp, now_ms, config)
    records = read_if_small(batch)
    if not isinstance(records, list):
        return KafkaError(code, why)
    ahead = [(n, out_of_range(r.timestamp, now_ms, config)) for n, r in enumerate(records) if r.timestamp > latest]
    return invalid_records(code, ahead[:MOST_NAMED]) if ahead else KafkaError(code, why)
