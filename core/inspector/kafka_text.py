"""The text of Kafka's own dump tool (org.apache.kafka.tools.DumpLogSegments), line for line.

Record lines are made a column at a time. Where plog's text differs from Kafka's is listed in docs/dump-log.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.cluster.metadata_record import decode_versioned_metadata_record
from core.common.errors import CorruptRecordError, MalformedMessageError
from core.coordinator.group_records import read_record
from core.inspector.segment_walk import is_valid
from core.log.file_names import CLUSTER_METADATA_TOPIC
from core.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_consumer_protocol
from core.protocol.message import schema_of
from core.protocol.message_codec import codec
from core.protocol.message_json import message_to_json
from core.protocol.schema.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from core.protocol.schema.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from core.protocol.schema.group_records import GroupMetadataValue
from core.records.batches import Batch
from core.records.columns import RecordColumns, decode_columns
from core.records.compression import CompressionType
from core.records.control_record import ControlRecordType, control_type, read_end_transaction_marker
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record import Record, increment_sequence
from core.records.record_batch import CODEC_MASK, RecordBatch

_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)

_KRAFT_RECORDS: dict[ControlRecordType, tuple[str, type]] = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChange:", LeaderChangeMessage),
    ControlRecordType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    ControlRecordType.KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    ControlRecordType.KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}


def batch_line(batch: Batch) -> str:
    """A batch's own line, newline included."""
    codec_number = batch.attributes & CODEC_MASK
    codec_text = CompressionType(codec_number).text if codec_number < len(CompressionType) else f"{codec_number}"
    tail = (
        f"size: {batch.size_bytes} magic: {batch.magic} compresscodec: {codec_text} crc: {batch.crc} "
        f"isvalid: {_boolean(is_valid(batch))}\n"
    )
    time = f"{timestamp_type(batch)}: {batch.max_timestamp}"
    if isinstance(batch, LegacyRecordBatch):
        return f"offset: {batch.last_offset} position: {batch.position} {time} {tail}"
    horizon = batch.delete_horizon_ms
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch} "
        f"isTransactional: {_boolean(batch.is_transactional)} isControl: {_boolean(batch.is_control)} "
        f"deleteHorizonMs: {optional_long(horizon)} position: {batch.position} {time} {tail}"
    )


def _boolean(value: bool) -> str:  # noqa: FBT001 - it is the value
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    """Java's OptionalLong.toString."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def timestamp_type(batch: Batch) -> str:
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


@dataclass(frozen=True, slots=True)
class LineOptions:
    """`with_data`: keys and values too. `topic`: an internal one, whose records are then shown as JSON.

    `first_offset`: leave out the records before it. `limit`: no more records than that, of each call.
    """

    with_data: bool = False
    topic: str | None = None
    first_offset: int = 0
    limit: int | None = None


def record_lines(batches: Sequence[Batch], options: LineOptions) -> Iterator[bytes]:
    """The lines of the records of each batch, joined; in step with `batches`.

    CorruptRecordError for a batch whose records don't decode, raised in its turn: the batches before it are out then.
    """
    plain: list[Batch] = []
    for batch in batches:
        is_special = options.with_data and options.topic in _DECODERS
        if isinstance(batch, RecordBatch) and not batch.is_control and not is_special:
            plain.append(batch)
            continue
        yield from _plain_lines(plain, options)
        plain = []
        yield b"".join(_single_lines(batch, options))
    yield from _plain_lines(plain, options)


def _plain_lines(batches: list[Batch], options: LineOptions) -> Iterator[bytes]:
    if not batches:
        return
    try:
        columns = decode_columns(batches)
    except CorruptRecordError:
        if len(batches) == 1:
            raise
        for batch in batches:
            yield from _plain_lines([batch], options)
        return
    if options.first_offset and len(columns) and columns.offsets[0] < options.first_offset:
        columns = columns.select(columns.offsets >= options.first_offset)
    if options.limit is not None and options.limit < len(columns):
        columns = columns.select(slice(0, options.limit))
    text, offsets = _join(*_record_parts(columns, with_data=options.with_data))
    ends = np.searchsorted(columns.batch_numbers, np.arange(len(batches)), side="right")
    start = 0
    for end in ends.tolist():
        yield bytes(text[offsets[start] : offsets[end]])
        start = end


def _single_lines(batch: Batch, options: LineOptions) -> list[bytes]:
    """Of a batch that is none for columns: legacy, control, or of an internal topic."""
    if isinstance(batch, LegacyRecordBatch):
        lines = [
            (record.offset, _legacy_line(batch, record, message, with_data=options.with_data))
            for record, message in zip(batch.records(), batch.messages(), strict=True)
        ]
    else:
        say = _control_text if batch.is_control else _DECODERS[options.topic or ""]
        lines = [(record.offset, _special_line(batch, record, say(record))) for record in batch.records()]
    return [line for offset, line in lines if offset >= options.first_offset][: options.limit]


def _record_parts(columns: RecordColumns, *, with_data: bool) -> list[Any]:
    """What each line is made of: columns, and texts that all lines have, which cost next to nothing."""
    parts = [
        _constant("| offset: "),
        _digits(columns.offsets),
        _constant(" "),
        _timestamp_types(columns),
        _constant(": "),
        _digits_or_constant(columns.timestamps),
        _constant(" keySize: "),
        _digits_or_constant(columns.key_lengths),
        _constant(" valueSize: "),
        _digits_or_constant(columns.value_lengths),
        _constant(" sequence: "),
        _digits_or_constant(_sequences(columns)),
        _constant(" headerKeys: ["),
        _header_keys(columns),
        _constant("]"),
    ]
    if with_data:
        parts += _labelled(" key: ", columns.keys()) + _labelled(" payload: ", columns.values())
    return _joined_constants([*parts, _constant("\n")])


def _constant(text: str) -> Any:
    return pa.scalar(text.encode(), _BINARY)


def _digits(values: Any) -> Any:
    return pc.cast(pc.cast(pa.array(values), pa.string()), _BINARY)


def _digits_or_constant(values: Any) -> Any:
    first = values[0] if len(values) else 0
    return _constant(str(first)) if (values == first).all() else _digits(values)


def _timestamp_types(columns: RecordColumns) -> Any:
    types = [timestamp_type(batch) for batch in columns.batches]
    if len(set(types)) == 1:
        return _constant(types[0])
    return pa.array([type_.encode() for type_ in types], _BINARY).take(pa.array(columns.batch_numbers))


def _joined_constants(parts: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for part in parts:
        if joined and isinstance(part, pa.Scalar) and isinstance(joined[-1], pa.Scalar):
            joined[-1] = pa.scalar(joined[-1].as_py() + part.as_py(), _BINARY)
        else:
            joined.append(part)
    return joined


def _join(*parts: Any) -> tuple[memoryview, Any]:
    """All rows' bytes end to end, and where each starts and ends (one more entry than rows)."""
    joined = pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")
    count = len(joined)
    if not count:
        return memoryview(b""), np.zeros(1, np.int32)
    offsets = np.frombuffer(joined.buffers()[1], np.int32, count + 1, joined.offset * 4)
    return memoryview(joined.buffers()[2]), offsets


def _sequences(columns: RecordColumns) -> Any:
    bases = columns.of_batches(b.base_sequence for b in columns.batches)
    base_offsets = columns.of_batches(b.base_offset for b in columns.batches)
    following = (bases + columns.offsets - base_offsets) & 0x7FFFFFFF
    return np.where(bases < 0, -1, following)


def _header_keys(columns: RecordColumns) -> Any:
    if not columns.header_counts.any():
        return _EMPTY
    seen: dict[int, bytes] = {0: b""}
    texts = []
    for row, count in enumerate(columns.header_counts.tolist()):
        texts.append(b",".join(name for name, _ in columns.headers(row)) if count else seen[0])
    return utf8(pa.array(texts, _BINARY))


def _labelled(label: str, values: Any) -> list[Any]:
    """The label and the value; nothing where the value is null."""
    if values.null_count == len(values):
        return []
    if values.null_count == 0:
        return [_constant(label), utf8(values)]
    return [pc.binary_join_element_wise(_constant(label), utf8(values), _EMPTY, null_handling="emit_null")]


def utf8(values: Any) -> Any:
    """The same bytes with U+FFFD where they are not UTF-8, as Java prints them."""
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else v.decode("utf-8", "replace").encode() for v in values.to_pylist()], _BINARY
        )
    return values


# --- one by one


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _legacy_line(batch: LegacyRecordBatch, record: Record, message: LegacyRecordBatch, *, with_data: bool) -> bytes:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    line = (
        f"| offset: {record.offset} {timestamp_type(batch)}: {record.timestamp} keySize: {key_size} "
        f"valueSize: {value_size} isValid: {_boolean(is_valid(message))} crc: {message.crc}"
    )
    if with_data:
        line += "" if record.key is None else f" key: {_text(record.key)}"
        line += "" if record.value is None else f" payload: {_text(record.value)}"
    return (line + "\n").encode()


def _special_line(batch: RecordBatch, record: Record, text: str) -> bytes:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    keys = ",".join(_text(name) for name, _ in record.headers)
    sequence = batch.base_sequence
    if sequence >= 0:
        sequence = increment_sequence(sequence, record.offset - batch.base_offset)
    return (
        f"| offset: {record.offset} {timestamp_type(batch)}: {record.timestamp} keySize: {key_size} "
        f"valueSize: {value_size} sequence: {sequence} headerKeys: [{keys}]{text}\n"
    ).encode()


def _metadata_text(record: Record) -> str:
    """A metadata record, behind a space."""
    try:
        message, version = decode_versioned_metadata_record(record.value)
    except MalformedMessageError as error:
        return f" payload: Error at {record.offset}, skipping. {error.message}"
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(message).__name__).upper()
    fields = {"type": name, "version": version, "data": message_to_json(message, version)}
    return f" payload: {json.dumps(fields, separators=(',', ':'), ensure_ascii=False)}"


def _group_text(record: Record) -> str:
    """A record of __consumer_offsets, behind a space; as it is where that can't be told."""
    try:
        read = read_record(record.key or b"", record.value)
    except CorruptRecordError:
        read = None
    if read is None:
        return f" key: {_text(record.key or b'')} payload: {_text(record.value or b'')}"
    key, value = read
    type_ = int.from_bytes((record.key or b"")[:2])
    shown = _json({"type": str(type_), "data": message_to_json(key, 0)})
    if value is None or record.value is None:
        return f" key: {shown} payload: <DELETE>"
    version = int.from_bytes(record.value[:2])
    data = message_to_json(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for member, row in zip(value.members, data["members"], strict=True):
            row["subscription"] = _opened(ConsumerProtocolSubscription, member.subscription, row["subscription"])
            row["assignment"] = _opened(ConsumerProtocolAssignment, member.assignment, row["assignment"])
    return f" key: {shown} payload: {_json({'version': str(version), 'data': data})}"


def _opened(class_: type, data: bytes, shown: object) -> object:
    """What a consumer told the others, with all fields of the newest version; as it was shown where it is none."""
    try:
        message: object = read_consumer_protocol(class_, data)
    except MalformedMessageError:
        return shown
    return message_to_json(message, schema_of(class_).valid.last)


def _json(fields: object) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


_DECODERS = {CLUSTER_METADATA_TOPIC: _metadata_text, "__consumer_offsets": _group_text}


def _control_text(record: Record) -> str:
    """What a control record says, behind a space."""
    type_ = control_type(record.key)
    marker = read_end_transaction_marker(record)
    if marker is not None:
        return (
            f" endTxnMarker: {'COMMIT' if marker.is_commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"
        )
    if type_ is None or type_ not in _KRAFT_RECORDS or record.value is None:
        return " controlType: UNKNOWN" if type_ is None else f" controlType: {type_.name}({int(type_)})"
    label, cls = _KRAFT_RECORDS[type_]
    version = int.from_bytes(record.value[:2], "big", signed=True)
    try:
        message: object = codec(cls, version).decode(memoryview(record.value))[0]
    except MalformedMessageError as error:
        raise CorruptRecordError(str(error), offset=record.offset) from error
    return f" {label} {json.dumps(message_to_json(message, version), separators=(',', ':'), ensure_ascii=False)}"


def interleave(batches: Sequence[Batch], lines: Iterable[bytes]) -> Iterator[bytes]:
    """Each batch's line, then its records' lines."""
    records = iter(lines)
    for batch in batches:
        yield batch_line(batch).encode()
        yield next(records)
