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
_NO_TOPIC_ID = bytes(16)

Message = Any  # an instance of one of the classes of `protocol.schema.group_records`

RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]
"""Classes of key and value by record type."""


def record_types(*modules: ModuleType) -> RecordTypes:
    """Finds the records that schema modules declare, each as `...Key` and `...Value`."""
    types: dict[int, tuple[type[Message], type[Message]]] = {}
    for module in modules:
        for name, key in vars(module).items():
            if name.endswith("Key"):
                types[schema_of(key).api_key] = key, vars(module)[f"{name.removesuffix('Key')}Value"]
    if schema in modules:
        types[0] = types[schema_of(schema.OffsetCommitKey).api_key]
    return types


_TYPES = record_types(schema)


class GroupRecord(NamedTuple):
    """Key and value of a record as bytes; a null value deletes the key."""

    key: bytes
    value: bytes | None


class CommittedOffset(NamedTuple):
    """A group's position in a partition: the next offset to read. Times in ms, -1 if absent."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    topic_id: bytes = _NO_TOPIC_ID


def read_record(key: bytes, value: bytes | None, types: RecordTypes = _TYPES) -> tuple[Message, Message | None] | None:
    """Returns the messages in a record's key and value, or None for a record type that is not among `types` (by default
    those of the groups that plog has). Raises CorruptRecordError if the bytes do not match the type.
    """
    try:
        (type_,) = _INT16.unpack_from(key)
        classes = types.get(type_)
        if classes is None:
            return None
        key_class, value_class = classes
        read_key, _ = codec(key_class, 0).decode(memoryview(key), _INT16.size)
        if value is None:
            return read_key, None
        (version,) = _INT16.unpack_from(value)
        if version not in schema_of(value_class).valid:
            raise CorruptRecordError(f"{value_class.__name__} of unknown version {version}")
        read_value, _ = codec(value_class, version).decode(memoryview(value), _INT16.size)
    except (struct.error, MalformedMessageError) as error:
        raise CorruptRecordError(f"no record of a coordinator: {error}") from error
    return read_key, read_value


def offset_commit_record(group_id: str, partition: TopicPartition, committed: CommittedOffset) -> GroupRecord:
    value = schema.OffsetCommitValue(
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.commit_timestamp,
        topic_id=committed.topic_id,
    )
    version = _OFFSET_COMMIT_VERSION
    if committed.expire_timestamp != -1:  # only version 1 has this field
        value.expire_timestamp, version = committed.expire_timestamp, 1
    return GroupRecord(_offset_key(group_id, partition), record_value(value, version))


def offset_tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    return GroupRecord(_offset_key(group_id, partition), None)


def group_metadata_record(group_id: str, value: schema.GroupMetadataValue) -> GroupRecord:
    return GroupRecord(record_key(schema.GroupMetadataKey(group_id)), record_value(value, _GROUP_METADATA_VERSION))


def group_tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(record_key(schema.GroupMetadataKey(group_id)), None)


def consumer_group_record(key: Message, value: Message | None = None) -> GroupRecord:
    """Returns a record of the consumer protocol, which is always of version 0; a tombstone if there is no value."""
    return GroupRecord(record_key(key), None if value is None else record_value(value, 0))


def committed_offset(value: schema.OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, value.topic_id
    )


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    return record_key(schema.OffsetCommitKey(group_id, partition.topic, partition.partition))


def record_key(message: Message) -> bytes:
    """Returns a message as the key of a coordinator's record: the record type, then the message."""
    return _INT16.pack(schema_of(type(message)).api_key) + codec(type(message), 0).encode(message)


def record_value(message: Message, version: int) -> bytes:
    """Returns a message as the value of a coordinator's record: the version, then the message."""
    return _INT16.pack(version) + codec(type(message), version).encode(message)
