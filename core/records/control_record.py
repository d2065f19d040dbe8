"""Control records: the broker's own records between the users' records.

Key: int16 version (0), int16 type. Value: a message of the type's schema, with an int16 version in front for
transaction markers (org.apache.kafka.common.record.ControlRecordType, EndTransactionMarker).
"""

from __future__ import annotations

import struct
from enum import IntEnum, StrEnum
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.records.batches import Batch
from core.records.record import Record, encode_record
from core.records.record_batch import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD, RecordBatch
from core.records.record_batch_builder import build_batch

_KEY = struct.Struct(">hh")
_END_TXN_MARKER = struct.Struct(">hi")
LARGEST_MARKER = 100
"""The most bytes of a marker's batch; that of a transaction's marker has 78."""


class ControlRecordType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def control_type(key: bytes | None) -> ControlRecordType | None:
    """Returns the type that a control record's key names, or None for one of a future Kafka.

    Raises CorruptRecordError for any other key.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(f"control record key of {0 if key is None else len(key)} bytes, expected 4")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(f"control record key version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return None


def control_key(type_: ControlRecordType) -> bytes:
    return _KEY.pack(0, type_)


def read_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """Reads the marker in a control batch's record; None if it is no transaction marker."""
    type_ = control_type(record.key)
    if type_ not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_MARKER.size:
        raise CorruptRecordError("transaction marker is too short for its version and coordinator epoch")
    version, coordinator_epoch = _END_TXN_MARKER.unpack_from(record.value)
    if version < 0:  # Kafka reads later ones as version 0
        raise CorruptRecordError(f"transaction marker of version {version}")
    return EndTransactionMarker(type_ is ControlRecordType.COMMIT, coordinator_epoch)


_PLAIN_RECORD = bytes((0x20, 0, 0, 0, 0x08))
"""How the record of a marker begins: 16 bytes follow; no attributes, no deltas; a key of 4 bytes."""

_PLAIN_HEADS = {
    _PLAIN_RECORD + _KEY.pack(0, type_) + b"\x0c\0\0": type_ is ControlRecordType.COMMIT
    for type_ in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
}
"""Plain markers up to the coordinator's epoch: the key, the length of a value of 6 bytes, and version 0."""

_PLAIN_SIZE = 17
_EPOCH_POSITION = 12


def find_plain_marker(section: bytes) -> EndTransactionMarker | None:
    """Returns the marker in a batch's uncompressed records section, as `read_end_transaction_marker` does for its
    record, if it is written as brokers write it, or None if it must be decoded.
    """
    is_commit = _PLAIN_HEADS.get(section[:_EPOCH_POSITION])
    if is_commit is None or len(section) != _PLAIN_SIZE or section[-1]:
        return None
    return EndTransactionMarker(is_commit, int.from_bytes(section[_EPOCH_POSITION:-1], "big", signed=True))


_PLAIN_COMMIT = next(head for head, is_commit in _PLAIN_HEADS.items() if is_commit)
_PLAIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD + _PLAIN_SIZE


def is_plain_commit(batch: RecordBatch) -> bool:
    """Says whether a sound control batch of a transaction is a commit that is written as brokers write it, by its
    bytes. If not, its records must be read.
    """
    section, buffer = batch.start + HEADER_SIZE, batch.buffer
    return (
        batch.length == _PLAIN_LENGTH
        and batch.count == 1
        and not batch.attributes & CODEC_MASK
        and buffer[section : section + _EPOCH_POSITION] == _PLAIN_COMMIT
        and not buffer[section + _PLAIN_SIZE - 1]
    )


def end_transaction_batch(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0
) -> bytes:
    """Makes the control batch that ends a transaction."""
    type_ = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    section = encode_record(0, 0, control_key(type_), _END_TXN_MARKER.pack(0, marker.coordinator_epoch))
    return build_batch(
        section,
        count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_record_text(key: bytes | None, value: bytes | None) -> str:
    """Returns its type's name, with a transaction marker's coordinator epoch; UNKNOWN for a key without a type."""
    try:
        type_ = control_type(key)
    except CorruptRecordError:
        type_ = None
    if type_ in (ControlRecordType.ABORT, ControlRecordType.COMMIT) and value and len(value) >= _END_TXN_MARKER.size:
        return f"{type_.name} coordinatorEpoch: {_END_TXN_MARKER.unpack_from(value)[1]}"
    return "UNKNOWN" if type_ is None else type_.name


class FateKind(StrEnum):
    """What became of a transaction. `transaction_resolution.py` decides that of one whose marker is damaged."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"


class Marker(NamedTuple):
    """A known end of a transaction, with records or without."""

    producer_id: int
    producer_epoch: int
    offset: int
    is_commit: bool
    coordinator_epoch: int = 0
    timestamp: int = -1
    is_mended: bool = False
    """Its batch is damaged, and its contents are known: no reader gets it."""


def read_marker(batch: RecordBatch) -> Marker | None:
    """Reads a control batch; None if it ends no transaction. Raises CorruptRecordError if it can't be decoded."""
    marker = None
    if batch.count == 1 and batch.size_bytes <= LARGEST_MARKER and not batch.attributes & CODEC_MASK:
        marker = find_plain_marker(bytes(batch.buffer[batch.start + HEADER_SIZE : batch.start + batch.size_bytes]))
    if marker is None:
        records = batch.records()
        marker = read_end_transaction_marker(records[0]) if records else None
    if marker is None:
        return None
    return Marker(
        batch.producer_id,
        batch.producer_epoch,
        batch.last_offset,
        marker.is_commit,
        marker.coordinator_epoch,
        batch.max_timestamp,
    )


def control_text(batch: Batch) -> str:
    """Describes a control batch: `COMMIT marker of producer 4000`."""
    try:
        records = batch.records()
        type_ = control_type(records[0].key) if records else None
    except CorruptRecordError:
        type_ = None
    return f"{type_.name if type_ is not None else 'control'} marker of producer {batch.producer_id}"
