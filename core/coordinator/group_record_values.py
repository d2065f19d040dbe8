"""The records of __consumer_offsets as values: reading and writing them.

The messages are in `protocol.schema.group_records`; here are their frames, and the versions that plog writes, which are
those that Kafka 4.4 writes. Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from core.common.errors import CorruptRecordError, MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.protocol.message import schema_of
from core.protocol.message_codec import codec
from core.protocol.schema import group_records as schema

_INT16 = struct.Struct(">h")
_OFFSET_COMMIT_VERSION = 4
_GROUP_METADATA_VERSION = 3

Message = Any  # an instance of one of the classes of `protocol.schema.group_records`

RecordTypes = Mapping[int, type[Message]]
"""Classes of values, each of which names that of the key, by record type."""


def record_types(*modules: ModuleType) -> RecordTypes:
    """Finds the records that schema modules declare: messages with a key."""
    found = [kind for module in modules for name, kind in vars(module).items() if name.endswith("Value")]
    types = {schema_of(kind).api_key: kind for kind in found if schema_of(kind).key is not None}
    if schema in modules:
        types[0] = schema.OffsetCommitValue
    return types


_TYPES = record_types(schema)


class GroupRecord(NamedTuple):
    """Key and value of a record as bytes; a null value deletes the key."""

    key: bytes
    value: bytes | None


class CoordinatorRecord(NamedTuple):
    """The messages in a record's key and value, None if it deletes; `kind` is the class of such values."""

    key: Message
    value: Message | None
    kind: type[Message]


def read_record(key: bytes, value: bytes | None, types: RecordTypes = _TYPES) -> CoordinatorRecord | None:
    """Reads a record's key and value; returns None for a record type that is not among `types` (by default those of the
    groups that plog has). Raises CorruptRecordError if the bytes do not match the type.
    """
    try:
        (type_,) = _INT16.unpack_from(key)
        kind = types.get(type_)
        if kind is None:
            return None
        read_key, _ = codec(_key_of(kind), 0).decode(memoryview(key), _INT16.size)
        if value is None:
            return CoordinatorRecord(read_key, None, kind)
        (version,) = _INT16.unpack_from(value)
        if version not in schema_of(kind).valid:
            raise CorruptRecordError(f"{kind.__name__} of unknown version {version}")
        read_value, _ = codec(kind, version).decode(memoryview(value), _INT16.size)
    except (struct.error, MalformedMessageError) as error:
        raise CorruptRecordError(f"no record of a coordinator: {error}") from error
    return CoordinatorRecord(read_key, read_value, kind)


def offset_commit_record(group_id: str, partition: TopicPartition, committed: schema.OffsetCommitValue) -> GroupRecord:
    version = _OFFSET_COMMIT_VERSION if committed.expire_timestamp == -1 else 1  # only version 1 has this field
    return GroupRecord(record_key(type(committed), group_id, *partition), record_value(committed, version))


def group_metadata_record(group_id: str, value: schema.GroupMetadataValue) -> GroupRecord:
    return GroupRecord(record_key(type(value), group_id), record_value(value, _GROUP_METADATA_VERSION))


def consumer_group_record(value: Message, *key: str) -> GroupRecord:
    """Returns a record of the consumer protocol, which is always of version 0."""
    return GroupRecord(record_key(type(value), *key), record_value(value, 0))


def tombstone(kind: type[Message], *key: Any) -> GroupRecord:
    """Returns the record that deletes the one of that kind and key."""
    return GroupRecord(record_key(kind, *key), None)


def _key_of(kind: type[Message]) -> type[Message]:
    key = schema_of(kind).key
    assert key is not None
    return key


def record_key(kind: type[Message], *fields: Any) -> bytes:
    """Returns the key of a coordinator's record: the record type, then a struct of those fields."""
    key = _key_of(kind)
    return _INT16.pack(schema_of(kind).api_key) + codec(key, 0).encode(key(*fields))


def record_value(message: Message, version: int) -> bytes:
    """Returns a message as the value of a coordinator's record: the version, then the message."""
    return _INT16.pack(version) + codec(type(message), version).encode(message)
