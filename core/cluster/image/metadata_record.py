"""Values of metadata records: a message with its type and version in front.

    uvarint  frame version  1
    uvarint  record type    TopicRecord is 2, PartitionRecord 3, ...
    uvarint  record version
    the flexible message

(org.apache.kafka.server.common.serialization.AbstractApiMessageSerde)
"""

from __future__ import annotations

import inspect
from typing import Any

from core.common.errors import MalformedMessageError
from core.common.varint import read_uvarint, uvarint
from core.protocol.message import schema_of
from core.protocol.message_codec import codec
from core.protocol.schema import metadata_records

_FRAME_VERSION = 1

MetadataRecord = Any
"""An instance of one of the classes in core.protocol.schema.metadata_records."""

_TYPES = {
    schema_of(cls).api_key: cls
    for _, cls in inspect.getmembers(metadata_records, inspect.isclass)
    if cls.__module__ == metadata_records.__name__ and schema_of(cls).api_key >= 0
}


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """Encodes it at the newest version of the record's type."""
    schema = schema_of(type(record))
    version = schema.valid.last
    head = uvarint(_FRAME_VERSION) + uvarint(schema.api_key) + uvarint(version)
    return head + codec(type(record), version).encode(record)


def decode_metadata_record(value: bytes | None) -> MetadataRecord:
    """Decodes it; raises MalformedMessageError for another frame version, an unknown type or version, or a bad body."""
    return decode_versioned_metadata_record(value)[0]


def decode_versioned_metadata_record(value: bytes | None) -> tuple[MetadataRecord, int]:
    """Returns the record and the version in which it was written; raises what `decode_metadata_record` raises."""
    if value is None:
        raise MalformedMessageError("metadata record without a value")
    try:
        frame_version, position = read_uvarint(value, 0)
        type_, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (IndexError, ValueError) as error:
        raise MalformedMessageError(f"metadata record is cut short: {error}") from error
    if frame_version != _FRAME_VERSION:
        raise MalformedMessageError(f"metadata record of frame version {frame_version}, expected {_FRAME_VERSION}")
    cls = _TYPES.get(type_)
    if cls is None or version not in schema_of(cls).valid:
        raise MalformedMessageError(f"metadata record of type {type_} version {version} is not known")
    record, _ = codec(cls, version).decode(memoryview(value), position)
    return record, version
