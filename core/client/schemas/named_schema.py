"""Keys and values that are all of one schema, which the user names for their side: a file, or a registry's schema.

The whole key or value is the datum. If it does not fit so, but does without an id in front (schema_id.py, and Avro's
single objects: C3 01 and 8 bytes of the schema's fingerprint), then that is what it is; if both fit, it is refused.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from core.client.schemas.protobuf_json import ProtobufJson
from core.client.schemas.schema_files import (
    MOST_FILES,
    TYPES,
    SchemaFile,
    find_root,
    proto_imports,
    read_schema_file,
    read_text,
    type_of,
)
from core.client.schemas.schema_id import Framed, RegistryKind, SchemaId, encode_indexes, find_framed
from core.client.schemas.schema_registry import (
    Codec,
    Packed,
    SchemaRegistry,
    make_codec,
    pack_protobuf,
    pack_schema,
    protobuf_codec,
    references_of,
    unpack_codec,
)
from core.client.schemas.undecoded import SchemaError
from core.common.errors import UsageError
from core.records.side_format import SideFormats, split_file

_ANY = "google/protobuf/any.proto"


class NamedSchema:
    """The codec of one side; immutable."""

    def __init__(self, text: str, codec: Codec, message: str = "", fingerprint: bytes = b"") -> None:
        """`text` is what the user named. Raises UsageError for a message that is not there, or that must be named."""
        self._text = text
        self._codec = codec
        self.types = codec.types
        self._fingerprint = fingerprint
        try:
            self.encode, found = codec.encoder(message, is_only=True)
        except ValueError as error:
            raise UsageError(f"schema {text}: {error}") from error
        self.indexes = b"" if found is None else encode_indexes(found.indexes)
        self.decode: Callable[[bytes], bytes] = partial(self._decode, codec.decode)
        """Returns the JSON. Raises SchemaError."""
        self.decode_typed: Callable[[bytes], tuple[bytes, bytes]] | None = None
        if codec.decode_typed is not None:
            self.decode_typed = partial(self._decode, codec.decode_typed)

    def _decode(self, decode: Callable[[bytes], Any], data: bytes) -> Any:
        problem: Exception | None = None
        found = []
        for one in self._readings(data):
            try:
                found.append(decode(one() if callable(one) else one))
            except (ValueError, RecursionError, SchemaError) as error:
                problem = problem or error
        if len(found) == 1:
            return found[0]
        why = f"not of {self._text}"
        if found:
            raise SchemaError(f"{why} for sure: it fits with and without the id in front", why=why)
        shown = "its levels are too many" if isinstance(problem, RecursionError) else str(problem)
        raise SchemaError(f"{why}: {shown}", why=why) from problem

    def _readings(self, data: bytes) -> Iterator[Any]:
        """Yields the bytes that may be the datum, the whole first."""
        yield self.indexes + data
        if self._fingerprint and data.startswith(self._fingerprint):
            yield data[len(self._fingerprint) :]
        seen = set()
        for kind in RegistryKind:
            framed = _find(data, kind)
            if framed is not None and framed.data not in seen:
                seen.add(framed.data)
                yield lambda framed=framed: self._codec.data_of(framed)


def _find(data: bytes, kind: RegistryKind) -> Framed | None:
    if data[:5] == bytes(5) and kind is not RegistryKind.apicurio:  # id 0, which xk6-kafka writes
        return Framed(SchemaId(0), data[5:])
    try:
        framed = find_framed(data, (), "value", kind, note=lambda _: None)
    except SchemaError:
        return None
    if framed is None or framed.schema_id.space == "guid":
        return None  # a GUID in front is what no serializer writes
    if kind is not RegistryKind.confluent:
        return framed
    return framed._replace(kind=RegistryKind.apicurio)  # whose Refs look like nobody's indexes


def open_named_schema(
    formats: SideFormats, side: str, registry: SchemaRegistry | None, packed: Packed | None = None
) -> NamedSchema:
    """Opens the schema that is named for `key` or `value`: a file, or one of the registry, or what `pack_named_schema`
    made of them. Raises UsageError for a schema that is not of the side's format, or not there.
    """
    if packed is not None:
        codec = unpack_codec(packed, is_of_confluent=split_file(formats.schema(side) or "") is None)
        fingerprint = bytes.fromhex(packed["fingerprint"])
        return NamedSchema(
            formats.schema(side) or "", codec.of_form(formats.schema_json), packed["message"], fingerprint
        )

    text, type_, message = formats.schema(side) or "", TYPES.get(formats.find(side)), formats.message(side)
    file = split_file(text)
    path = Path(file[0] if file is not None else "")
    if file is None:
        assert registry is not None  # `open_registry` opens it
        codec, found_type, named = registry.named_codec(text)
    else:
        named = file[1]
        found_type = type_of(path)
    if type_ is not None and found_type != type_:
        raise UsageError(f"schema {text} is of type {found_type}, and the format says {type_}")
    if message and named and message != named:
        raise UsageError(f"the format names message {message}, and schema {text} another")
    fingerprint = b""
    try:
        if file is not None and path.suffix == ".desc":
            codec = protobuf_codec(_of_descriptors(path, message or named))
        elif file is not None:
            schema = read_schema_file(path)
            codec = protobuf_codec(_of_proto(schema)) if found_type == "PROTOBUF" else make_codec(schema)
            fingerprint = _fingerprint(schema) if found_type == "AVRO" and not schema.references else b""
    except (ValueError, RecursionError) as error:
        raise UsageError(f"schema {text} can't be used: {error}") from error
    except ImportError as error:
        hint = "pip install 'plog-kafka[schema]'"
        raise UsageError(f"schema {text} needs more packages: {error.name}", hint=hint) from error
    return NamedSchema(text, codec.of_form(formats.schema_json), message or named, fingerprint)


def pack_named_schema(formats: SideFormats, side: str, registry: SchemaRegistry | None) -> Packed:
    """Packs the schema that is named for `key` or `value`, as `open_named_schema` finds it; it takes what this returns
    elsewhere. Raises what it raises.
    """
    text, message = formats.schema(side) or "", formats.message(side)
    open_named_schema(formats, side, registry)  # which checks all of it
    file = split_file(text)
    if file is None:
        assert registry is not None  # `open_registry` opens it
        found, named = registry.pack_named(text)
        return {**found, "message": message or named, "fingerprint": ""}
    path, more = Path(file[0]), {"message": message or file[1], "fingerprint": ""}
    if path.suffix == ".desc":
        return pack_protobuf(_of_descriptors(path, message or file[1])) | more
    schema = read_schema_file(path)
    if schema.schema_type == "PROTOBUF":
        return pack_protobuf(_of_proto(schema)) | more
    is_alone = schema.schema_type == "AVRO" and not schema.references
    return pack_schema(schema) | more | {"fingerprint": _fingerprint(schema).hex() if is_alone else ""}


def _of_descriptors(path: Path, message: str) -> ProtobufJson:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"schema {path}: {error.strerror or error}") from error
    return ProtobufJson.of_descriptors(data, message)


def _fingerprint(schema: SchemaFile) -> bytes:
    """Returns what is in front of a single object of Avro."""
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    text = to_parsing_canonical_form(json.loads(schema.schema_str))
    return b"\xc3\x01" + bytes.fromhex(fingerprint(text, "CRC-64-AVRO"))


def _of_proto(schema: SchemaFile) -> ProtobufJson:
    """Opens a .proto file. If a message of it may have an Any, only the data say which type is in it: so the other
    files below its folder are read as well, as far as protoc takes them.
    """
    root = find_root(schema.path, proto_imports(schema.schema_str))
    imported = references_of(schema, lambda reference: reference.schema)
    texts = [(name, one.schema_str) for name, one in imported]
    others = []
    if any(_ANY in proto_imports(text) for text in (schema.schema_str, *(text for _, text in texts))):
        seen = {schema.path.resolve(), *(one.path.resolve() for _, one in imported)}
        for path in sorted(root.rglob("*.proto"))[:MOST_FILES]:
            if path.resolve() not in seen and path.is_file():  # reading a FIFO would never end
                with contextlib.suppress(UsageError):
                    others.append((path.relative_to(root).as_posix(), read_text(path)))
    name = schema.path.absolute().relative_to(root).as_posix()
    return ProtobufJson(texts, schema.schema_str, name=name, others=others)
