"""Protobuf's messages as JSON, both ways: its JSON mapping, with the names of the .proto file; fields that have no
presence are there when they are zero.

Message indexes are zigzag varints: how many, then each; a single 0 stands for the first message. Source: Confluent's
wire format.

Needs protoc from grpcio-tools.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from core.client.schemas.schema_id import Message
from core.common.lenient_json import decode_text, read_json
from core.common.varint import read_varint

_MAIN = "plog-schema.proto"


class ProtobufJson:
    """The messages of a .proto file. Immutable once made."""

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
    def of_descriptors(cls, data: bytes, message: str) -> ProtobufJson:
        """Opens a FileDescriptorSet, at its file that has the message, or else at its last one. Raises ValueError."""
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
            found._open(files, file.name)  # noqa: SLF001 - of this class
            if not message or any(message in (one.name, f"{one.package}.{one.name}") for one in found.messages()):
                return found
        raise ValueError(f"no file in it has a message {message}")

    def _open(self, files: Any, name: str) -> None:
        self._pool = _pool_of(files)
        self._main = self._pool.FindFileByName(name)
        self._write = json.JSONEncoder(ensure_ascii=False).encode

    def messages(self) -> list[Message]:
        """Returns all messages of the file, nested ones too."""
        found: list[Message] = []
        package = self._main.package
        places = [([index], one) for index, one in enumerate(self._main.message_types_by_name.values())]
        for indexes, one in places:
            found.append(Message(one.full_name.removeprefix(f"{package}."), indexes, package))
            places += [([*indexes, index], inner) for index, inner in enumerate(one.nested_types)]
        return found

    def decode(self, data: bytes) -> bytes:
        """Returns the JSON of message indexes and their message. Raises ValueError."""
        return self._write(self._fields(data)[1]).encode()

    def decode_typed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns the JSON, and the same with 64-bit numbers as numbers."""
        descriptor, value = self._fields(data)
        shown = self._write(value).encode()
        return shown, self._write(_convert(value, descriptor, _number_maker)).encode()

    def encode(self, text: bytes, indexes: Sequence[int] = (0,)) -> bytes:
        """Returns the message that has these indexes, and not the indexes, of a JSON text. Raises ValueError."""
        from google.protobuf import json_format
        from google.protobuf.message import EncodeError

        message = self._message_at(indexes)
        fields = read_json(text)
        if not isinstance(fields, dict):  # Parse takes [] and "" for a message
            raise ValueError("expected a JSON object")
        _convert(fields, message.DESCRIPTOR, _base64_check)
        try:
            json_format.Parse(decode_text(text), message, descriptor_pool=self._pool)
            return bytes(message.SerializeToString(deterministic=True))
        except (json_format.ParseError, EncodeError) as error:
            raise ValueError(" ".join(str(error).split())) from error

    def _message_at(self, indexes: Sequence[int]) -> Any:
        from google.protobuf import message_factory

        descriptor: Any = None
        for index in indexes:
            among = list(self._main.message_types_by_name.values()) if descriptor is None else descriptor.nested_types
            if not 0 <= index < len(among):
                raise ValueError(f"there is no message {list(indexes)}")
            descriptor = among[index]
        return message_factory.GetMessageClass(descriptor)()

    def _fields(self, data: bytes) -> tuple[Any, Any]:
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        indexes, position = _read_indexes(data)
        message = self._message_at(indexes)
        try:
            message.ParseFromString(data[position:])
        except DecodeError as error:
            raise ValueError(str(error)) from error
        return message.DESCRIPTOR, json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=self._pool,
        )


def _pool_of(files: Any) -> Any:  # a FileDescriptorSet -> a DescriptorPool
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        try:
            pool.Add(file)
        except TypeError as error:  # it does not fit the others
            raise ValueError(str(error)) from error
    return pool


def _convert(value: Any, descriptor: Any, find: Callable[[Any], Callable[[Any], Any] | None]) -> Any:
    """Converts, in place, the values of fields in Protobuf's JSON for which `find` returns a converter."""
    if descriptor.full_name in _WRAPPERS:
        convert = find(descriptor.fields_by_name["value"])
        return value if convert is None else convert(value)
    if not isinstance(value, dict) or descriptor.full_name in _JSON_OF_THEIR_OWN:
        return value
    for field in descriptor.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        one = field.message_type.fields_by_name["value"] if is_map else field
        convert = find(one) if one.message_type is None else partial(_convert, descriptor=one.message_type, find=find)
        if convert is None:
            continue
        for name in {field.name, field.json_name} & value.keys():
            found = value[name]
            if is_map and isinstance(found, dict):
                value[name] = {key: convert(item) for key, item in found.items()}
            else:
                value[name] = [convert(item) for item in found] if isinstance(found, list) else convert(found)
    return value


def _number_maker(field: Any) -> Callable[[Any], Any] | None:
    """Returns the converter of Protobuf's JSON texts for 64-bit integers to numbers, or None."""
    is_long = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    return (lambda item: int(item) if isinstance(item, str) else item) if is_long else None


def _base64_check(field: Any) -> Callable[[Any], Any] | None:
    """Returns a check that refuses text that is not base64, which Protobuf's JSON parser would accept."""
    return partial(_ensure_base64, name=field.full_name) if field.type == field.TYPE_BYTES else None


def _ensure_base64(text: Any, name: str) -> Any:
    if isinstance(text, str) and (_BASE64.fullmatch(text) is None or len(text.rstrip("=")) % 4 == 1):
        raise ValueError(f"{name}: {text[:40]!r} is no base64, which stands for bytes")
    return text


_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")
_WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in ("Int64", "UInt64", "Bytes"))
_JSON_OF_THEIR_OWN = frozenset({"google.protobuf.Any", "google.protobuf.Struct", "google.protobuf.Value"})


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
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise ValueError(f"it refers to {name!r}: {error.strerror}") from error
        out, known = Path(directory, "descriptors"), Path(directory, "known")
        known.write_bytes(_known_files().SerializeToString())
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        arguments = [f"-I{sources}", f"-I{well_known}", f"--descriptor_set_in={known}", "--include_imports"]
        protoc = [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments, f"--descriptor_set_out={out}", *names]
        done = subprocess.run(protoc, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603 - ourselves
        if done.returncode:
            lines = done.stderr.decode(errors="replace").replace(f"{sources}/", "").splitlines()
            raise ValueError("; ".join(line for line in lines if not _WARNING.match(line)) or "protoc does not take it")
        return FileDescriptorSet.FromString(out.read_bytes())


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
