"""Protobuf's messages as JSON, both ways, in two forms.

Tagged is Protobuf's JSON mapping, with the names of the .proto file: 64-bit integers are texts, fields without presence
follow the others if they are zero. Plain is for people and filters: all fields in the file's order, 64-bit integers as
numbers, and null for fields with presence that are not set. Members of a oneof are there if they are set, as are fields
whose null is a value (google.protobuf.Value, NullValue). Both forms are read, by the same rules.

The mapping has no text for some messages. Times out of range are {"seconds": .., "nanos": ..}, paths that camel case
would change {"paths": [..]}, and an Any whose type is not known, or whose bytes are not of it, is
{"@type": .., "not_decoded": {"base64": ..}}. These are read back as they were. So are fields that the schema does not
have, and values that an enum of proto2 does not have: a message shows their bytes as "[not_decoded]": {"base64": ..},
and a message with a text of its own is that alone. They are written after the other fields, as Protobuf does it.

Message indexes are zigzag varints: how many, then each; a single 0 stands for the first message. Source: Confluent's
wire format.

Needs protoc from grpcio-tools.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import math
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.client.schemas.avro_json import json_float, shortest_float
from core.client.schemas.field_types import Types, merged, protobuf_types
from core.client.schemas.schema_id import Message, find_message
from core.common.lenient_json import decode_text
from core.common.varint import read_varint
from core.records.side_format import SchemaJson

_Show = Callable[[Any], Any]

_MAIN = "plog-schema.proto"


class ProtobufJson:
    """The messages of a .proto file. Immutable once made, but for which messages it has met."""

    def __init__(
        self, imported: list[tuple[str, str]], text: str, *, name: str = _MAIN, others: Sequence[tuple[str, str]] = ()
    ) -> None:
        """`imported` are the names and texts of the files that this one, `name`, imports, whatever they import before
        them; `others` those that may define types of an Any. Raises ValueError for a file that protoc does not take.
        """
        files = [*imported, (name, text)]
        try:
            compiled = _compile([*files, *others], [name, *(other for other, _ in others)])
        except ValueError:
            if not others:
                raise
            compiled = _compile(files, [name])
        self._open(compiled, name)

    @classmethod
    def of_descriptors(cls, data: bytes, message: str, *, name: str = "") -> ProtobufJson:
        """Opens a FileDescriptorSet, at the file `name`, or at its file that has the message, or else at its last one.
        Raises ValueError.
        """
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError

        try:
            files = FileDescriptorSet.FromString(data)
        except DecodeError as error:
            raise ValueError(f"it is no descriptor set of protoc: {error}") from error
        if not files.file:
            raise ValueError("it is no descriptor set of protoc: it has no files")
        found = cls.__new__(cls)
        for file in reversed(files.file):
            if name and file.name != name:
                continue
            found._open(files, file.name)  # noqa: SLF001 - of this class
            if not message or any(message in (one.name, f"{one.package}.{one.name}") for one in found.messages()):
                return found
        raise ValueError(f"no file in it has a message {message}")

    def _open(self, files: Any, name: str) -> None:
        self._files = files
        self.name = name
        self._pool = _pool_of(files)
        self._main = self._pool.FindFileByName(name)
        self._met: dict[str, Any] = {}
        self._printers = {form: _Printer(self._pool, is_plain=form is SchemaJson.plain) for form in SchemaJson}

    def descriptors(self) -> bytes:
        """Returns its files as a FileDescriptorSet."""
        data: bytes = self._files.SerializeToString()
        return data

    def descriptor(self, name: str = "") -> Any:
        """Returns the descriptor of the message of that name, or of the first. Raises ValueError without it."""
        messages = self.messages()
        message = find_message(name, messages) if name else messages[0] if messages else None
        if message is None:
            raise ValueError("it has no message")
        return self._message_at(message.indexes).DESCRIPTOR

    def messages(self) -> list[Message]:
        """Returns all messages of the file, nested ones too."""
        found: list[Message] = []
        package = self._main.package
        places = [([index], one) for index, one in enumerate(self._main.message_types_by_name.values())]
        for indexes, one in places:
            found.append(Message(one.full_name.removeprefix(f"{package}."), indexes, package))
            places += [([*indexes, index], inner) for index, inner in enumerate(one.nested_types)]
        return found

    def decode(self, data: bytes, form: SchemaJson = SchemaJson.tagged) -> bytes:
        """Returns the JSON of message indexes and their message. Raises ValueError."""
        return self._shown(self._parse(data), form)

    def decode_typed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns both forms of its JSON, tagged and plain."""
        message = self._parse(data)
        return self._shown(message, SchemaJson.tagged), self._shown(message, SchemaJson.plain)

    def _shown(self, message: Any, form: SchemaJson) -> bytes:
        return _write(self._printers[form].show(message)).encode()

    def types(self) -> Types:
        """Returns the types of the fields, in plain JSON, of the messages that it has met."""
        return merged(map(protobuf_types, self._met.values()))

    def _parse(self, data: bytes) -> Any:
        indexes, position = _read_indexes(data)
        message = self._message_at(indexes)
        self._met[message.DESCRIPTOR.full_name] = message.DESCRIPTOR
        if not _parses(message, data[position:]):
            raise ValueError(f"its bytes are no {message.DESCRIPTOR.full_name}")
        return message

    def encode(self, text: bytes, form: SchemaJson | None = None, *, indexes: Sequence[int] = (0,)) -> bytes:  # noqa: ARG002 - both forms are read alike
        """Returns the message that has these indexes, and not the indexes, of a JSON text. Raises ValueError."""
        message = self._message_at(indexes)
        fields = json.loads(decode_text(text), object_pairs_hook=_without_repeated)
        if not isinstance(fields, dict):  # ParseDict takes [] and "" for a message
            raise ValueError("expected a JSON object")
        return _Reader(self._pool).read(fields, message)

    def _message_at(self, indexes: Sequence[int]) -> Any:
        from google.protobuf import message_factory

        descriptor: Any = None
        for index in indexes:
            among = list(self._main.message_types_by_name.values()) if descriptor is None else descriptor.nested_types
            if not 0 <= index < len(among):
                raise ValueError(f"there is no message {list(indexes)}")
            descriptor = among[index]
        return message_factory.GetMessageClass(descriptor)()


_write = json.JSONEncoder(ensure_ascii=False).encode


def _without_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _pool_of(files: Any) -> Any:  # a FileDescriptorSet -> a DescriptorPool
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        try:
            pool.Add(file)
        except TypeError as error:  # it does not fit the others
            raise ValueError(str(error)) from error
    return pool


# --- out


class _Field(NamedTuple):
    """A field, and how it is shown. `null` tells whether plain shows it as null if it is not set."""

    name: str
    has_presence: bool
    null: bool
    show: _Show
    default: Callable[[], Any]
    """Returns what is shown of a field without presence that is zero."""


class _Printer:
    """Shows messages in one form. Immutable once made, but for what it remembers of each type."""

    def __init__(self, pool: Any, *, is_plain: bool) -> None:
        self._pool = pool
        self._is_plain = is_plain
        self._fields: dict[str, list[_Field]] = {}
        self._of_its_own: dict[str, _Show] = {
            "google.protobuf.Any": self._any,
            "google.protobuf.Timestamp": _time,
            "google.protobuf.Duration": _time,
            "google.protobuf.FieldMask": _field_mask,
            "google.protobuf.Struct": lambda struct: {name: _value(struct.fields[name]) for name in struct.fields},
            "google.protobuf.Value": _value,
            "google.protobuf.ListValue": lambda values: [_value(one) for one in values.values],
        }

    def show(self, message: Any) -> Any:
        """Returns the JSON value of a message. Raises ValueError for one that has none."""
        descriptor = message.DESCRIPTOR
        own = self._of_its_own.get(descriptor.full_name)
        is_own = own is not None or descriptor.file.name == _WRAPPERS_FILE
        if is_own and _has_unknown(message):
            return _unknown(message.SerializePartialToString(deterministic=True))
        if own is not None:
            return own(message)
        if is_own:
            return self._fields_of(descriptor)[0].show(message.value)
        return self._regular(message, {})

    def _regular(self, message: Any, shown: dict[str, Any]) -> dict[str, Any]:
        from google.protobuf.unknown_fields import UnknownFieldSet

        shown = self._known(message, shown)
        return shown | _unknown(_unknown_fields(message)) if len(UnknownFieldSet(message)) else shown

    def _known(self, message: Any, shown: dict[str, Any]) -> dict[str, Any]:
        descriptor = message.DESCRIPTOR
        fields = self._fields.get(descriptor.full_name) or self._fields_of(descriptor)
        if self._is_plain:
            for name, has_presence, null, show, _ in fields:
                if not has_presence or message.HasField(name):
                    shown[name] = show(getattr(message, name))
                elif null:
                    shown[name] = None
            extended = message.ListFields() if descriptor.is_extendable else ()
            return shown | {
                f"[{one.full_name}]": self._shower(one)(value) for one, value in extended if one.is_extension
            }
        by_name = {field.name: field for field in fields}
        for field, value in message.ListFields():
            if field.is_extension:
                shown[f"[{field.full_name}]"] = self._shower(field)(value)
            else:
                shown[field.name] = by_name[field.name].show(value)
        for field in fields:
            if not field.has_presence and field.name not in shown:
                shown[field.name] = field.default()
        return shown

    def _fields_of(self, descriptor: Any) -> list[_Field]:
        from google.protobuf.descriptor_pb2 import DescriptorProto

        if descriptor.full_name not in self._fields:
            proto = DescriptorProto()
            descriptor.CopyToProto(proto)
            is_optional = {one.name: one.proto3_optional for one in proto.field}
            self._fields[descriptor.full_name] = [
                self._field(field, in_oneof=field.containing_oneof is not None and not is_optional[field.name])
                for field in descriptor.fields
            ]
        return self._fields[descriptor.full_name]

    def _field(self, field: Any, *, in_oneof: bool) -> _Field:
        type_ = field.message_type or field.enum_type
        null = not in_oneof and (type_ is None or type_.full_name not in _NULLS)
        show = self._shower(field)
        if field.is_repeated:
            default: Callable[[], Any] = dict if _is_map(field) else list
        else:
            default = lambda: show(field.default_value)  # noqa: E731
        return _Field(field.name, field.has_presence, null, show, default)

    def _shower(self, field: Any) -> _Show:
        """Returns what shows a field's value, also if it is repeated or a map."""
        if _is_map(field):
            show = self._shower(field.message_type.fields_by_name["value"])
            return lambda items: {_key_text(key): show(items[key]) for key in items}
        show = self._shower_of_one(field)
        return (lambda items: [show(item) for item in items]) if field.is_repeated else show

    def _shower_of_one(self, field: Any) -> _Show:
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            return self.show
        if field.cpp_type == field.CPPTYPE_ENUM:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return (lambda _: None) if _is_null(field) else lambda number: names.get(number, number)
        if field.type == field.TYPE_BYTES:
            return _base64
        if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) and not self._is_plain:
            return str
        if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            is_double = field.cpp_type == field.CPPTYPE_DOUBLE
            return json_float if is_double else lambda number: json_float(shortest_float(number))
        return lambda value: value

    def _any(self, message: Any) -> Any:
        if not message.ListFields():
            return {}
        shown = {"@type": message.type_url}
        inner = _message_of(message.type_url, self._pool)
        if inner is not None and _parses(inner, message.value):
            own = inner.DESCRIPTOR.full_name in self._of_its_own or inner.DESCRIPTOR.file.name == _WRAPPERS_FILE
            return {**shown, "value": self.show(inner)} if own else self._regular(inner, shown)
        if inner is not None and _NOT_DECODED in inner.DESCRIPTOR.fields_by_name:
            raise ValueError(f"an Any holds bytes that are no {inner.DESCRIPTOR.full_name}")
        return {**shown, _NOT_DECODED: {"base64": _base64(message.value)}}


def _has_unknown(message: Any) -> bool:
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return bool(known.ByteSize() != message.ByteSize())


def _unknown_fields(message: Any) -> bytes:
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.is_extension:
            rest.ClearExtension(field)
        else:
            rest.ClearField(field.name)
    return bytes(rest.SerializePartialToString())


def _unknown(data: bytes) -> dict[str, Any]:
    return {_UNKNOWN: {"base64": _base64(data)}}


def _message_of(url: str, pool: Any) -> Any:
    """Returns an empty message of the type that an Any names, or None if that is not known."""
    from google.protobuf import message_factory

    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(url.rpartition("/")[2]))()
    except KeyError:
        return None


def _parses(message: Any, data: bytes) -> bool:
    from google.protobuf.message import DecodeError

    try:
        message.ParseFromString(data)
    except DecodeError:
        return False
    return True


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _key_text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _time(message: Any) -> Any:
    try:
        return message.ToJsonString()
    except ValueError:
        return {"seconds": message.seconds, "nanos": message.nanos}


def _field_mask(message: Any) -> Any:
    read = type(message)()
    try:
        text = message.ToJsonString()
        read.FromJsonString(text)
    except ValueError:
        text = ""
    return text if read.paths == message.paths else {"paths": list(message.paths)}


def _value(message: Any) -> Any:
    """Returns null also for a Value that holds nothing, which is no Value by Protobuf's documents."""
    kind = message.WhichOneof("kind")
    if kind == "number_value" and not math.isfinite(message.number_value):
        raise ValueError(f"a google.protobuf.Value is {message.number_value}, which JSON does not have")
    if kind == "struct_value":
        return {name: _value(message.struct_value.fields[name]) for name in message.struct_value.fields}
    if kind == "list_value":
        return [_value(one) for one in message.list_value.values]
    return None if kind in (None, "null_value") else getattr(message, kind)


# --- in


class _Reader:
    """Reads JSON values into messages, as Protobuf's own reader does, and also what that has no text for."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def read(self, value: Any, message: Any) -> bytes:
        """Returns the bytes of the message, which is empty before. Raises ValueError."""
        from google.protobuf import json_format
        from google.protobuf.message import EncodeError

        later: list[tuple[tuple[Any, ...], Callable[[Any], None]]] = []
        value = self._without_own(value, message.DESCRIPTOR, (), later)
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool)
            for path, put in later:
                part = message
                for step in path:
                    part = getattr(part, step) if isinstance(step, str) else part[step[0]]
                put(part)
            return bytes(message.SerializeToString(deterministic=True))
        except (json_format.ParseError, EncodeError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(" ".join(str(error).split())) from error

    def _without_own(self, value: Any, descriptor: Any, path: tuple[Any, ...], later: list[Any]) -> Any:
        """Returns the value with an empty one for each message that the mapping has no text for, and for each Any, and
        adds to `later` where they are and what fills them. Raises ValueError for bytes that are no base64.
        """
        name = descriptor.full_name
        if isinstance(value, dict) and _UNKNOWN in value:
            data = _base64_of(value, _UNKNOWN)
            value = {given: part for given, part in value.items() if given != _UNKNOWN}
            if name in _JSON_OF_THEIR_OWN or descriptor.file.name == _WRAPPERS_FILE:
                if value:
                    raise ValueError(f"{name} has {_UNKNOWN} and more")
                later.append((path, lambda message: message.ParseFromString(data)))
                return _empty(descriptor)
            later.append((path, lambda message: message.MergeFromString(data)))
        if name in _EMPTY and isinstance(value, dict) and value:
            later.append((path, self._any_filler(value) if name == "google.protobuf.Any" else _filler(value, name)))
            return _EMPTY[name]
        if descriptor.file.name == _WRAPPERS_FILE:
            return _checked(value, descriptor.fields_by_name["value"])
        if not isinstance(value, dict) or name in _JSON_OF_THEIR_OWN:
            return value
        found = dict(value)
        for field in descriptor.fields:
            item = field.message_type.fields_by_name["value"] if _is_map(field) else field
            if item.message_type is None and item.type != item.TYPE_BYTES and not _is_null(item):
                continue
            for given in {field.name, field.json_name} & value.keys():
                found[given] = self._part(value[given], field, item, (*path, field.name), later)
        return found

    def _part(self, value: Any, field: Any, item: Any, path: tuple[Any, ...], later: list[Any]) -> Any:
        def one(part: Any, *step: Any) -> Any:
            if item.message_type is None:
                return _checked(part, item)
            return self._without_own(part, item.message_type, (*path, *step), later)

        if _is_map(field) and isinstance(value, dict):
            key = _key_reader(field.message_type.fields_by_name["key"])
            return {text: one(part, (key(text),)) for text, part in value.items()}
        if isinstance(value, list):
            return [one(part, (number,)) for number, part in enumerate(value)]
        return one(value)

    def _any_filler(self, value: dict[str, Any]) -> Callable[[Any], None]:
        url = value.get("@type")
        if not isinstance(url, str):
            raise ValueError("an Any has no @type")
        inner = _message_of(url, self._pool)
        rest = {name: part for name, part in value.items() if name != "@type"}
        if _NOT_DECODED in rest and (inner is None or _NOT_DECODED not in inner.DESCRIPTOR.fields_by_name):
            data = _base64_of(rest, _NOT_DECODED)
        elif inner is None:
            raise ValueError(f"the type of an Any is not known: {url}")
        else:
            own = inner.DESCRIPTOR.full_name in _JSON_OF_THEIR_OWN or inner.DESCRIPTOR.file.name == _WRAPPERS_FILE
            if own and rest.keys() != {"value"}:
                raise ValueError(f"an Any of {inner.DESCRIPTOR.full_name} has not its value alone")
            data = self.read(rest["value"] if own else rest, inner)

        def put(message: Any) -> None:
            message.type_url, message.value = url, data

        return put


def _base64_of(value: dict[str, Any], name: str) -> bytes:
    try:
        ((_, text),) = value[name].items()
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f'its {name} is no {{"base64": ..}}') from None


def _empty(descriptor: Any) -> Any:
    """Returns a JSON value of a message with a text of its own."""
    if descriptor.file.name == _WRAPPERS_FILE:
        field = descriptor.fields_by_name["value"]
        return "" if field.type == field.TYPE_BYTES else field.default_value
    return _EMPTY.get(descriptor.full_name, [] if descriptor.name == "ListValue" else {})


def _filler(value: dict[str, Any], name: str) -> Callable[[Any], None]:
    def put(message: Any) -> None:
        unknown = value.keys() - {field.name for field in message.DESCRIPTOR.fields}
        if unknown:
            raise TypeError(f"{name} has no field {min(unknown)!r}")
        for field, part in value.items():
            if type(part) is not (list if field == "paths" else int):
                raise TypeError(f"{name}.{field}: {part!r} is no {'array' if field == 'paths' else 'whole number'}")
            if field == "paths":
                message.paths.extend(part)
            else:
                setattr(message, field, part)

    return put


def _key_reader(field: Any) -> Callable[[str], Any]:
    if field.cpp_type == field.CPPTYPE_STRING:
        return str
    return (lambda text: text == "true") if field.cpp_type == field.CPPTYPE_BOOL else int


def _is_null(field: Any) -> bool:
    return field.enum_type is not None and bool(field.enum_type.full_name == _NULL_VALUE)


def _checked(text: Any, field: Any) -> Any:
    """Returns the same value, or the name of a NullValue, which Protobuf's reader does not take as null everywhere.
    Raises ValueError for text that is not base64, which that reader would accept.
    """
    if text is None and _is_null(field):
        return "NULL_VALUE"
    is_text = field.type == field.TYPE_BYTES and isinstance(text, str)
    if is_text and (_BASE64.fullmatch(text) is None or len(text.rstrip("=")) % 4 == 1):
        raise ValueError(f"{field.full_name}: {text[:40]!r} is no base64, which stands for bytes")
    return text


_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")
_NOT_DECODED = "not_decoded"
_UNKNOWN = "[not_decoded]"
"""No name of a field: in brackets are extensions."""

_NULL_VALUE = "google.protobuf.NullValue"
_NULLS = ("google.protobuf.Value", _NULL_VALUE)
_WRAPPERS_FILE = "google/protobuf/wrappers.proto"
_EMPTY: dict[str, Any] = {
    "google.protobuf.Any": {},
    "google.protobuf.Timestamp": "1970-01-01T00:00:00Z",
    "google.protobuf.Duration": "0s",
    "google.protobuf.FieldMask": "",
}
_JSON_OF_THEIR_OWN = frozenset({*_EMPTY, *(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))})


def _read_indexes(data: bytes) -> tuple[list[int], int]:
    """Reads message indexes, and finds where the message begins."""
    try:
        count, position = read_varint(data, 0)
        if count < 0:
            old = "; confluent-kafka-python 1.4 to 1.7 wrote them without zigzag" if count == -1 else ""
            raise ValueError(f"it has {count} message indexes{old}")
        indexes = []
        for _ in range(count):
            index, position = read_varint(data, position)
            indexes.append(index)
    except IndexError as error:
        raise ValueError("the message indexes end too early") from error
    return indexes or [0], position


def _compile(
    files: list[tuple[str, str]], names: Sequence[str]
) -> Any:  # -> a FileDescriptorSet with all that they import
    import tempfile

    import grpc_tools
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory() as directory:
        sources = Path(directory, "sources")
        for name, text in files:
            path = sources / name
            if not Path(os.path.normpath(path)).is_relative_to(sources):
                raise ValueError(f"it refers to {name!r}, which is no name of a file beside it")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_MAP_ENTRY.sub(f"reserved '{_MAP_MARK}'", text), encoding="utf-8")
            except OSError as error:
                raise ValueError(f"it refers to {name!r}: {error.strerror}") from error
        out, known = Path(directory, "descriptors"), Path(directory, "known")
        known.write_bytes(_known_files().SerializeToString())
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        arguments = [f"-I{sources}", f"-I{well_known}", f"--descriptor_set_in={known}", "--include_imports"]
        protoc = [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments, f"--descriptor_set_out={out}"]
        protoc += [f"{sources}/{name}" for name in names]  # a name may begin with - or @
        done = subprocess.run(protoc, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603 - ourselves
        if done.returncode:
            lines = done.stderr.decode(errors="replace").replace(f"{sources}/", "").splitlines()
            raise ValueError("; ".join(line for line in lines if not _WARNING.match(line)) or "protoc does not take it")
        return _with_maps(FileDescriptorSet.FromString(out.read_bytes()))


_MAP_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\b")
"""Apicurio's serializers register maps as the messages that they are in descriptors, which protoc refuses."""

_MAP_MARK = "plog_map_entry"


def _with_maps(files: Any) -> Any:
    """Makes the marked messages of the files entries of maps; returns the files."""
    places = [one for file in files.file for one in file.message_type]
    for message in places:
        places.extend(message.nested_type)
        if _MAP_MARK in message.reserved_name:
            message.reserved_name.remove(_MAP_MARK)
            message.options.map_entry = True
            for field in message.field:  # proto3 has no such presence in descriptors of maps
                if field.proto3_optional:
                    field.ClearField("proto3_optional")
                    field.ClearField("oneof_index")
            del message.oneof_decl[:]
    return files


_WARNING = re.compile(r"WARNING: |W[0-9]{4} |[^ ]*:[0-9]+:[0-9]+: warning: ")


def _known_files() -> Any:  # -> a FileDescriptorSet
    """Returns the files that every registry knows without having them: Confluent's own, and google/type."""
    from confluent_kafka.schema_registry import confluent
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    found: dict[str, Any] = {}

    def add(file: Any) -> None:
        for other in file.dependencies:
            add(other)
        if file.name not in found:
            file.CopyToProto(found.setdefault(file.name, FileDescriptorProto()))

    packages = [confluent]
    with contextlib.suppress(ImportError):  # protoc says so if a schema needs it
        packages.append(importlib.import_module("google.type"))
    for package in packages:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2"):
                add(importlib.import_module(module.name).DESCRIPTOR)
    return FileDescriptorSet(file=found.values())
