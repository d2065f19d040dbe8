"""What consumers send each other through a classic group: an int16 version, then a message of
`schema.consumer_protocol` (org.apache.kafka.clients.consumer.internals.ConsumerProtocol).
"""

from __future__ import annotations

import struct
from typing import TypeVar

from core.common.errors import MalformedMessageError
from core.protocol.message import schema_of
from core.protocol.message_codec import codec

M = TypeVar("M")

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose members speak so."""

_VERSION = struct.Struct(">h")


def read_consumer_protocol(message_type: type[M], data: bytes) -> M:
    """Reads the message, a newer version as the newest known. Raises MalformedMessageError for other data."""
    if len(data) < _VERSION.size:
        raise MalformedMessageError(f"{len(data)} bytes are too few for a {message_type.__name__}")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedMessageError(f"{message_type.__name__} of version {version}")
    version = min(version, schema_of(message_type).valid.last)
    message, _ = codec(message_type, version).decode(memoryview(data), _VERSION.size)
    return message


def write_consumer_protocol(message: object, version: int) -> bytes:
    """Writes what `read_consumer_protocol` reads; for a newer version than is known, the newest that is."""
    version = min(version, schema_of(type(message)).valid.last)
    return _VERSION.pack(version) + codec(type(message), version).encode(message)


def consumer_protocol_version(data: bytes) -> int:
    """Returns the version in which the data was written; 0 for data that is too short to have one."""
    return max(_VERSION.unpack_from(data)[0], 0) if len(data) >= _VERSION.size else 0
