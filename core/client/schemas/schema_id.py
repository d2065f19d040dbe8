"""Finds the schema that a key or value names: in the headers of its record, or in its first bytes.

    Confluent, in front    00 | id, 4 bytes | data                          01 | GUID, 16 bytes | data
    Confluent, a header    __value_schema_id, __key_schema_id: the same bytes, and Protobuf's message indexes after them
    Apicurio, in front     00 | id, 4 bytes, or 8 if the first 4 are zero | Protobuf's Ref | data
    Apicurio, headers      apicurio.value.globalId, .contentId: 8 bytes; .contentHash, or .groupId .artifactId .version:
                           text; .encoding: JSON or BINARY; apicurio.protobuf.type: the message (for keys, .type.key)
    AWS Glue, in front     03 | 00, or 05 for zlib | UUID of the schema version, 16 bytes | Protobuf's index | data

Numbers are big-endian. Of headers with one name the last counts, and headers count before the first bytes: a value
whose id is in a header may begin with 00. Ids begin with 1: bytes that begin with id 0 name no schema.

A message of Protobuf is named by Confluent's message indexes (protobuf_json.py), by Apicurio's Ref (a message with its
own length before it, whose field 1 is a name: `n 0a n-2 NAME`), or by Glue's index, an unsigned varint: the place among
all messages of the file, nested ones too, in the order of their full names.

Sources: SchemaId and DualSchemaIdDeserializer of confluentinc/schema-registry, the IdHandlers and HeadersHandlers of
Apicurio/apicurio-registry, DataParser and MessageIndexFinder of awslabs/aws-glue-schema-registry.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from core.client.schemas.undecoded import SchemaError
from core.common.errors import CorruptRecordError
from core.common.varint import read_uvarint, uvarint, varint
from core.records.record import Headers


class RegistryKind(StrEnum):
    """The API of a registry. It decides how the first bytes of a value are read."""

    confluent = "Confluent's API"
    apicurio = "Apicurio"
    glue = "AWS Glue"


class SchemaId(NamedTuple):
    """The name of a schema, and the space of names that it is of."""

    value: int | str
    space: str = ""
    """"" is Confluent's id, and :.CONTEXT: that of a context; else guid, globalId, contentId, contentHash, version
    (GROUP/ARTIFACT/VERSION) or glue.
    """

    @property
    def is_of_confluent(self) -> bool:
        return not self.space or self.space.startswith(":.")

    def __str__(self) -> str:
        is_known = self.is_of_confluent or self.space in ("guid", "glue")
        return str(self.value) if is_known else f"{self.space}:{self.value}"


class Framed(NamedTuple):
    """A key or value that names its schema."""

    schema_id: SchemaId
    data: bytes
    """The bytes of the value alone; in front of them may be what names a message of Protobuf."""

    indexes: bytes = b""
    """Confluent's message indexes, if a header has them."""

    message: str = ""
    """The name of the message, if a header has it."""

    kind: RegistryKind = RegistryKind.confluent
    is_json: bool = False
    """Whether the data are Avro's JSON encoding."""


MOST_BYTES = 64 << 20
"""The most bytes of a registry's answer."""

_ID = struct.Struct(">bI")
_LONG_ID = struct.Struct(">bQ")
_APICURIO_ID = struct.Struct(">Q")
_GUID_BYTES = 17  # with the byte before it
_GLUE_BYTES = 18
_GLUE_VERSION = 3
_GLUE_COMPRESSIONS = {0: False, 5: True}

Note = Callable[[str], None]


def find_framed(
    data: bytes,
    headers: Headers,
    side: str,
    kind: RegistryKind = RegistryKind.confluent,
    space: str = "",
    *,
    note: Note,
) -> Framed | None:
    """Returns what the bytes and their record's headers name, or None if that is no schema. `side`: key or value;
    `space`: that of Apicurio's ids in front. Raises SchemaError for headers and bytes that name one, and are wrong.
    """
    if headers:
        framed = _in_headers(data, dict(headers), side, note)
        if framed is not None:
            return framed
    if not data:
        return None
    if kind is RegistryKind.glue:
        return _of_glue(data)
    if data[0] == 0 and len(data) >= _ID.size:
        number, size = _ID.unpack_from(data)[1], _ID.size
        if kind is RegistryKind.apicurio and not number and len(data) >= _LONG_ID.size:
            number, size = _LONG_ID.unpack_from(data)[1], _LONG_ID.size
        return Framed(SchemaId(number, space), data[size:], kind=kind) if number else None
    if data[0] == 1 and len(data) >= _GUID_BYTES and kind is RegistryKind.confluent:
        return Framed(_guid(data), data[_GUID_BYTES:])
    return None


def _guid(data: bytes) -> SchemaId:
    return SchemaId(str(uuid.UUID(bytes=data[1:_GUID_BYTES])), "guid")


def _in_headers(data: bytes, headers: dict[bytes, bytes | None], side: str, note: Note) -> Framed | None:
    name = f"__{side}_schema_id"
    found = headers.get(name.encode())
    if found:
        if found[0] == 0 and len(found) >= _ID.size:
            return Framed(SchemaId(_ID.unpack_from(found)[1]), data, found[_ID.size :])
        if found[0] == 1 and len(found) >= _GUID_BYTES:
            return Framed(_guid(found), data, found[_GUID_BYTES:])
        note(
            f"note: a header {name} of {len(found)} bytes is no id of a schema; expected 00 and an id, or 01 and a GUID"
        )
    return _in_apicurio_headers(data, headers, side)


def _in_apicurio_headers(data: bytes, headers: dict[bytes, bytes | None], side: str) -> Framed | None:
    def text(name: str) -> str:
        return (headers.get(name.encode()) or b"").decode("utf-8", "replace")

    prefix = f"apicurio.{side}."
    schema_id = None
    for space in ("contentId", "globalId"):
        number = headers.get(f"{prefix}{space}".encode())
        if number is None:
            continue
        if len(number) != _APICURIO_ID.size:
            why = f"its header {prefix}{space} has {len(number)} bytes, expected {_APICURIO_ID.size}"
            raise SchemaError(why, why="with a header that is no id")
        schema_id = SchemaId(_APICURIO_ID.unpack(number)[0], space)
        break
    if schema_id is None and (hash_ := text(f"{prefix}contentHash")):
        schema_id = SchemaId(hash_, "contentHash")
    if schema_id is None and (artifact := text(f"{prefix}artifactId")):
        group, version = text(f"{prefix}groupId") or "default", text(f"{prefix}version") or "latest"
        schema_id = SchemaId(f"{group}/{artifact}/{version}", "version")
    if schema_id is None:
        return None
    message = text(_message_header(side))
    is_json = text(f"{prefix}encoding") == "JSON"
    return Framed(schema_id, data, message=message, kind=RegistryKind.apicurio, is_json=is_json)


def _of_glue(data: bytes) -> Framed | None:
    if len(data) < _GLUE_BYTES or data[0] != _GLUE_VERSION or data[1] not in _GLUE_COMPRESSIONS:
        return None
    schema_id = SchemaId(str(uuid.UUID(bytes=data[2:_GLUE_BYTES])), "glue")
    rest = data[_GLUE_BYTES:]
    if _GLUE_COMPRESSIONS[data[1]]:
        from core.records.compression import decompress_zlib

        try:
            rest = decompress_zlib(rest)
        except CorruptRecordError as error:
            raise SchemaError(error.message, why="not decompressed", schema_id=str(schema_id)) from error
    return Framed(schema_id, rest, kind=RegistryKind.glue)


# --- the message of a Protobuf file


class Message(NamedTuple):
    """One message of a file: its name without the file's package, such as B.C, and its indexes, such as [1, 0]."""

    name: str
    indexes: list[int]
    package: str = ""


Messages = Sequence[Message]
"""All those of a file."""


def frame_of(kind: RegistryKind, schema_id: SchemaId, message: bytes, *, has_long_ids: bool = False) -> bytes:
    """Returns what goes in front of the data: the id, and `message`, which names one of Protobuf."""
    if kind is RegistryKind.glue:
        number = uuid.UUID(int=0) if schema_id.value == 0 else uuid.UUID(str(schema_id.value))
        return bytes((_GLUE_VERSION, 0)) + number.bytes + message
    return (_LONG_ID if has_long_ids else _ID).pack(0, int(schema_id.value)) + message


def headers_of(schema_id: SchemaId, side: str, message: Message | None, *, is_avro: bool) -> Headers:
    """Returns Apicurio's headers, which name the schema, the encoding of Avro, and the message of Protobuf."""
    found = [(f"apicurio.{side}.{schema_id.space}".encode(), _APICURIO_ID.pack(int(schema_id.value)))]
    if is_avro:
        found.append((f"apicurio.{side}.encoding".encode(), b"BINARY"))
    if message is not None:
        found.append((_message_header(side).encode(), message.name.rpartition(".")[2].encode()))
    return tuple(found)


def names_schema(header: bytes, side: str) -> bool:
    """Says whether a header of that name is read before the bytes of the key or value."""
    name = header.decode("utf-8", "replace")
    return name in (f"__{side}_schema_id", _message_header(side)) or name.startswith(f"apicurio.{side}.")


def _message_header(side: str) -> str:
    return "apicurio.protobuf.type" if side == "value" else "apicurio.protobuf.type.key"


def encode_message(kind: RegistryKind, message: Message, messages: Messages) -> bytes:
    """Returns what names the message in front of its bytes. Raises ValueError for one that Apicurio can't name."""
    if kind is RegistryKind.confluent:
        return encode_indexes(message.indexes)
    if kind is RegistryKind.glue:
        return uvarint(sorted(messages).index(message))
    name = message.name.rpartition(".")[2]
    if find_message(name, messages) is not message:
        raise ValueError(f"Apicurio names messages by their last name, and {name} is not {message.name} alone")
    ref = b"\n" + uvarint(len(name)) + name.encode()
    return uvarint(len(ref)) + ref


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Encodes message indexes as Confluent's serializers do: a single 0 stands for the first message."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(varint, (len(indexes), *indexes)))


def indexes_and_message(framed: Framed, messages: Messages) -> bytes:
    """Returns Confluent's message indexes, and the bytes of the message. Raises ValueError for an unknown message."""
    data = framed.data
    if framed.kind is RegistryKind.glue:
        index, position = _read_glue_index(data)
        names = sorted(messages)
        if index >= len(names):
            raise ValueError(f"there is no message {index}: the schema has {len(names)}")
        return encode_indexes(names[index].indexes) + data[position:]
    if framed.kind is RegistryKind.confluent:
        return framed.indexes + data
    ref, position = _read_ref(data)
    if framed.message:
        indexes = find_message(framed.message, messages).indexes
        return encode_indexes(indexes) + data[position if ref == framed.message else 0 :]
    if any(ref == one.name.rpartition(".")[2] for one in messages):
        return encode_indexes(find_message(ref, messages).indexes) + data[position:]
    return data


def find_message(name: str, messages: Messages) -> Message:
    """Returns the message of that name, or the only one whose name ends with it. Raises ValueError if there is none."""
    named = [one for one in messages if name in (one.name, f"{one.package}.{one.name}")]
    named = named or [one for one in messages if one.name.endswith(f".{name}")]
    if len(named) == 1:
        return named[0]
    if named:
        raise ValueError(f"{name} may be any of {', '.join(one.name for one in named)}")
    raise ValueError(f"there is no message {name}: the schema has {', '.join(one.name for one in messages)}")


def _read_glue_index(data: bytes) -> tuple[int, int]:
    try:
        return read_uvarint(data, 0)
    except IndexError as error:
        raise ValueError("the index of the message ends too early") from error


def _read_ref(data: bytes) -> tuple[str, int]:
    """Returns the name in Apicurio's Ref, and where the message begins; "" and 0 if there is no Ref."""
    try:
        size, start = read_uvarint(data, 0)
        length, at = read_uvarint(data, start + 1)
    except (IndexError, ValueError):
        return "", 0
    end = start + size
    if data[start] != 0x0A or at + length != end or end > len(data):
        return "", 0
    return data[at:end].decode("utf-8", "replace"), end
