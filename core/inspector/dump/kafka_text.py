"""Writes the text of Kafka's own dump tool (org.apache.kafka.tools.DumpLogSegments), line for line, record by record.

Where plog's text differs from Kafka's is listed in docs/dump-log.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from core.common.errors import CorruptRecordError, MalformedMessageError
from core.forensics.batch_scanner import is_valid
from core.records.batches import Batch, codec_text, timestamp_type
from core.records.control_record import ControlRecordType, control_type, read_end_transaction_marker
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record import MAX_SEQUENCE, Record, increment_sequence
from core.records.record_batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)

RecordText = Callable[[Record], str]
"""Returns the text after a record's sizes and headers: its key and value, raw or decoded."""


def batch_line(batch: Batch, *, is_sound: bool) -> str:
    """Writes a batch's own line, newline included. `is_sound`: its checksum is that of its bytes."""
    attributes = batch.attributes
    tail = (
        f"size: {batch.size_bytes} magic: {batch.magic} "
        f"compresscodec: {codec_text(attributes)} crc: {batch.crc} "
        f"isvalid: {_boolean(is_sound)}\n"
    )
    time = f"{timestamp_type(batch)}: {batch.max_timestamp}"
    if isinstance(batch, LegacyRecordBatch):
        return f"offset: {batch.last_offset} position: {batch.position} {time} {tail}"
    horizon = batch.base_timestamp if attributes & DELETE_HORIZON_FLAG else None
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {_wrapped(batch.last_offset, 64)} count: {batch.count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {_last_sequence(batch)} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch} "
        f"isTransactional: {_boolean(attributes & TRANSACTIONAL_FLAG)} "
        f"isControl: {_boolean(attributes & CONTROL_FLAG)} "
        f"deleteHorizonMs: {optional_long(horizon)} position: {batch.position} {time} {tail}"
    )


def _last_sequence(batch: RecordBatch) -> int:
    """Reckons it as Kafka does, in 32 bits, of damaged headers too."""
    base, delta = batch.base_sequence, batch.last_offset_delta
    if base == NO_SEQUENCE:
        return NO_SEQUENCE
    if base > _wrapped(MAX_SEQUENCE - delta, 32):
        return _wrapped(delta - (MAX_SEQUENCE - base) - 1, 32)
    return _wrapped(base + delta, 32)


def _wrapped(number: int, bits: int) -> int:
    half = 1 << bits - 1
    return (number + half) % (2 * half) - half


RECORD_LINE = "| offset: %s %s: %s keySize: %s valueSize: %s sequence: %s headerKeys: [%s]%s\n"
"""A record of magic 2: the offset, the type of the timestamp and the timestamp, and so on; `RecordText` at the end."""

_MESSAGE_LINE = "| offset: %s %s: %s keySize: %s valueSize: %s isValid: %s crc: %s%s\n"
"""A record of magic 0 and 1."""

KEY_LABEL, VALUE_LABEL = " key: ", " payload: "


def record_lines(batch: Batch, text_of: RecordText, is_wanted: Callable[[Record], bool]) -> list[bytes]:
    """Writes the lines of a batch's wanted records; raises CorruptRecordError if its records don't decode."""
    details: Iterable[tuple[object, object]]
    if isinstance(batch, LegacyRecordBatch):
        line, records = _MESSAGE_LINE, batch.records(is_checked=False)
        details = ((_boolean(is_valid(message)), message.crc) for message in batch.messages())
    else:
        line, records = RECORD_LINE, batch.records()
        details = ((sequence_of(batch, r), ",".join(utf8(name) for name, _ in r.headers)) for r in records)
    type_, text_of = timestamp_type(batch), control_text if batch.is_control else text_of
    return [
        (line % (r.offset, type_, r.timestamp, _size(r.key), _size(r.value), *detail, text_of(r))).encode()
        for r, detail in zip(records, details, strict=True)
        if is_wanted(r)
    ]


def bare_lines(batch: Batch, text_of: RecordText, is_wanted: Callable[[Record], bool]) -> list[bytes]:
    """Does the same as `record_lines` with --skip-record-metadata: keys and payloads only, and no control records."""
    if batch.is_control:
        return []
    texts = [text_of(record) for record in batch.records() if is_wanted(record)]
    return [(f"|{text}\n" if text else "\n").encode() for text in texts]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def sequence_of(batch: Batch, record: Record) -> int:
    """Returns the record's sequence, or -1 if its batch has none."""
    if batch.base_sequence < 0:
        return NO_SEQUENCE
    return increment_sequence(batch.base_sequence, record.offset - batch.base_offset)


def no_text(_record: Record) -> str:
    """Returns no text, if keys and values are not wanted."""
    return ""


def plain_text(record: Record) -> str:
    """Writes key and value as UTF-8."""
    key = "" if record.key is None else KEY_LABEL + utf8(record.key)
    return key if record.value is None else key + VALUE_LABEL + utf8(record.value)


def control_text(record: Record) -> str:
    """Describes a control record, after a space."""
    type_ = control_type(record.key)
    marker = read_end_transaction_marker(record)
    if marker is not None:
        return (
            f" endTxnMarker: {'COMMIT' if marker.is_commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"
        )
    if type_ is None or type_ not in _KRAFT or record.value is None:
        return " controlType: UNKNOWN" if type_ is None else f" controlType: {type_.name}({int(type_)})"
    label, schema = _KRAFT[type_]
    return f" {label} {json.dumps(_kraft_json(record, schema), separators=(',', ':'), ensure_ascii=False)}"


_KRAFT = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChange:", "LeaderChangeMessage"),
    ControlRecordType.SNAPSHOT_HEADER: ("SnapshotHeader", "SnapshotHeaderRecord"),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooter", "SnapshotFooterRecord"),
    ControlRecordType.KRAFT_VERSION: ("KRaftVersion", "KRaftVersionRecord"),
    ControlRecordType.KRAFT_VOTERS: ("KRaftVoters", "VotersRecord"),
}
"""The label of Kafka's tool, and the schema of the value."""


def _kraft_json(record: Record, schema: str) -> Any:
    from core.protocol.message_codec import codec
    from core.protocol.message_json import message_to_json
    from core.protocol.schema import control_records

    value = record.value or b""
    version = int.from_bytes(value[:2], "big", signed=True)
    try:
        message: object = codec(getattr(control_records, schema), version).decode(memoryview(value))[0]
    except MalformedMessageError as error:
        raise CorruptRecordError(str(error), offset=record.offset) from error
    return message_to_json(message, version)


def _boolean(value: int) -> str:
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    """Writes it as Java's OptionalLong.toString."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def utf8(data: bytes) -> str:
    """Decodes it, with U+FFFD if the bytes are not UTF-8, as Java prints them."""
    return data.decode("utf-8", "replace")
