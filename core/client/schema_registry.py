"""Keys and values of a Schema Registry: turns bytes that name their schema into JSON, and back.

    0       1                  5
    | 0x00 | id, big-endian   | Avro: the datum | JSON Schema: JSON | Protobuf: message indexes, then the message |

Avro is written as Avro's own JSON encoding (a union's value names its branch), so that nothing is lost on the way back;
plain JSON is taken too. Protobuf is its JSON mapping, with the names of the .proto file. Message indexes are zigzag
varints: how many, then each; a single 0 stands for the first message. Source: Confluent's wire format.

Needs the extra `schema`: confluent-kafka's client of the registry, fastavro, jsonschema, and protoc from grpcio-tools.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from core.client.first_answer import is_this_machine
from core.common.errors import AccessError, PlogError, UsageError
from core.common.varint import read_varint
from core.security.client_settings import RegistrySettings
from core.security.secret import shown_url

_FRAME = struct.Struct(">bI")
_MAGIC = 0
_FILE_TYPES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_HINT = "pip install 'plog-kafka[schema]'"


class SchemaError(PlogError):
    """Bytes do not follow their schema, or text can't."""


class Codec(NamedTuple):
    """Turns what follows the id, of one schema, into JSON, and back. Raises ValueError for what does not fit it."""

    decode: Callable[[bytes], bytes]
    encode: Callable[[bytes], bytes]


class SchemaRegistry:
    """Owned by one task. Every method raises AccessError if the registry does not answer."""

    def __init__(self, url: str, settings: RegistrySettings | None = None) -> None:
        """Raises UsageError if the extra is not installed, and for files of keys and certificates that can't be read.
        The URL may hold a user and a password, which no message shows.
        """
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise UsageError(f"a Schema Registry needs more packages: {error.name}", hint=_HINT) from error
        self._url = shown_url(url)
        try:
            with _own_settings(settings) as own, _without_proxies(url):
                self._client = SchemaRegistryClient({"url": url, "max.retries": 1, **own})
        except (ValueError, OSError) as error:
            raise UsageError(f"--schema-registry {self._url}: {error}") from error
        self._codecs: dict[int, Codec] = {}

    # --- out

    def decode(self, data: bytes | None) -> bytes | None:
        """Gives the JSON of what names its schema; other bytes as they are. Raises SchemaError if they don't fit it."""
        if data is None or len(data) < _FRAME.size or data[0] != _MAGIC:
            return data
        schema_id = _FRAME.unpack_from(data)[1]
        try:
            return self._codec(schema_id).decode(data[_FRAME.size :])
        except ValueError as error:
            raise SchemaError(f"not of schema {schema_id}, which it names: {error}") from error

    # --- in

    def encoder(self, schema: str, subject: str) -> Callable[[bytes | None], bytes | None]:
        """Finds the schema by an id, SUBJECT, SUBJECT:VERSION, or a file (.avsc, .proto, .json), which is registered as
        `subject`. The encoder raises SchemaError for text that is not of the schema; null stays null.
        """
        schema_id = self._find_id(schema, subject)
        codec = self._codec(schema_id)
        frame = _FRAME.pack(_MAGIC, schema_id)

        def encode(text: bytes | None) -> bytes | None:
            if text is None:
                return None
            try:
                return frame + codec.encode(text)
            except ValueError as error:
                raise SchemaError(f"not of schema {schema_id}: {error}") from error

        return encode

    def has_subject(self, subject: str) -> bool:
        return self._ask(lambda: subject in self._client.get_subjects())  # type: ignore[no-any-return]

    def _find_id(self, schema: str, subject: str) -> int:
        if schema.isdecimal():
            return int(schema)
        type_ = _FILE_TYPES.get(Path(schema).suffix)
        if type_ is not None:
            return self._register(Path(schema), type_, subject)
        name, _, version = schema.rpartition(":") if schema.rpartition(":")[2].isdecimal() else (schema, "", "")
        if version:
            found = self._ask(lambda: self._client.get_version(name, int(version)))
        else:
            found = self._ask(lambda: self._client.get_latest_version(name))
        return int(found.schema_id)

    def _register(self, path: Path, type_: str, subject: str) -> int:
        from confluent_kafka.schema_registry import Schema

        try:
            text = path.read_text()
        except OSError as error:
            raise UsageError(f"schema {path}: {error.strerror or error}") from error
        return int(self._ask(lambda: self._client.register_schema(subject, Schema(text, type_))))

    # --- schemas

    def _codec(self, schema_id: int) -> Codec:
        if schema_id not in self._codecs:
            schema = self._ask(lambda: self._client.get_schema(schema_id))
            try:
                self._codecs[schema_id] = _MAKERS[schema.schema_type](self, schema)
            except KeyError as error:
                raise SchemaError(f"schema {schema_id} is of type {schema.schema_type}, which is not known") from error
            except ImportError as error:
                raise UsageError(f"{schema.schema_type} needs more packages: {error.name}", hint=_HINT) from error
        return self._codecs[schema_id]

    def _ask(self, work: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return work()
        except SchemaRegistryError as error:
            raise SchemaError(f"{self._url}: {error.error_message} ({error.error_code})") from error
        except _transport_errors() as error:
            raise AccessError(
                f"the Schema Registry does not answer: {str(error) or type(error).__name__}",
                where=self._url,
                hint="--schema-registry URL",
            ) from error

    def references(self, schema: Any) -> list[tuple[str, Any]]:
        """Gives (name, schema) of all that the schema refers to, those that others refer to first; each once."""
        found: dict[str, Any] = {}

        def visit(one: Any) -> None:
            for reference in one.references or ():
                if reference.name not in found:
                    version = self._ask(lambda: self._client.get_version(reference.subject, reference.version))  # noqa: B023
                    visit(version.schema)
                    found[reference.name] = version.schema

        visit(schema)
        return list(found.items())


@contextlib.contextmanager
def _own_settings(settings: RegistrySettings | None) -> Iterator[dict[str, str]]:
    """Gives them by the names of the registry's client, which reads the files once, when it is made."""
    found: dict[str, str] = {}
    with contextlib.ExitStack() as files:
        if settings is not None and settings.tls is not None:
            from core.client.tls_context import as_pem_files

            found |= files.enter_context(as_pem_files(settings.tls))
        if settings is not None and settings.user is not None:
            found["basic.auth.user.info"] = settings.user.reveal()
        yield found


@contextlib.contextmanager
def _without_proxies(url: str) -> Iterator[None]:
    """Lets the registry's client, which is made in the block, ask a registry on this machine itself: a proxy would read
    the user's password. It reads the environment when it is made.
    """
    is_here = is_this_machine(urlsplit(url).hostname or "")
    named = [name for name in os.environ if name.lower().endswith("_proxy")] if is_here else []
    kept = {name: os.environ.pop(name) for name in named}
    try:
        yield
    finally:
        os.environ.update(kept)


def _transport_errors() -> tuple[type[Exception], ...]:
    """Gives the errors of the HTTP client that the registry's client found."""
    modules = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return (OSError, *(module.HTTPError for module in modules))


# --- Avro


def _avro(registry: SchemaRegistry, schema: Any) -> Codec:
    import fastavro

    named: dict[str, Any] = {}
    for _, other in registry.references(schema):
        fastavro.parse_schema(json.loads(other.schema_str), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(schema.schema_str), named_schemas=named)

    def decode(data: bytes) -> bytes:
        stream = io.BytesIO(data)
        try:
            datum = fastavro.schemaless_reader(stream, parsed, None, return_record_name=True)
        except (EOFError, IndexError, StopIteration) as error:
            raise ValueError("the datum ends too early") from error
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the datum")
        text = io.StringIO()
        fastavro.json_writer(text, parsed, [datum])
        return text.getvalue().encode()

    def encode(text: bytes) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, _avro_datum(fastavro, parsed, named, text))
        return out.getvalue()

    return Codec(decode, encode)


def _avro_datum(fastavro: Any, schema: Any, named: dict[str, Any], text: bytes) -> Any:
    """Reads Avro's JSON encoding, or plain JSON."""
    plain = _with_bytes(fastavro, json.loads(text), schema, named)
    with contextlib.suppress(*_NOT_AVROS_JSON):
        (datum,) = fastavro.json_reader(io.StringIO(text.decode()), schema)
        if fastavro.validation.validate(datum, schema, raise_errors=False):
            return datum
    try:
        fastavro.validation.validate(plain, schema)
    except fastavro.validation.ValidationError as error:
        raise ValueError(str(error).replace("\n", " ")) from error
    return plain


def _with_bytes(fastavro: Any, value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """Puts bytes where the schema has them: Avro's JSON has texts whose characters are bytes."""

    def go(value: Any, schema: Any) -> Any:
        if isinstance(schema, list):
            made = ((go(value, branch), branch) for branch in schema)
            fitting = (v for v, branch in made if fastavro.validation.validate(v, branch, raise_errors=False))
            return next(fitting, value)
        type_ = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(type_, str) and type_ in named:
            return go(value, named[type_])
        if type_ in ("bytes", "fixed") and isinstance(value, str):
            return value.encode("latin-1")
        if type_ == "record" and isinstance(value, dict):
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: go(item, types[name]) if name in types else item for name, item in value.items()}
        if type_ == "array" and isinstance(value, list):
            return [go(item, schema["items"]) for item in value]
        if type_ == "map" and isinstance(value, dict):
            return {name: go(item, schema["values"]) for name, item in value.items()}
        return go(value, type_) if isinstance(type_, dict | list) else value

    return go(value, schema)


_NOT_AVROS_JSON = (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration, EOFError)
"""What fastavro's reader raises, wherever it fails."""


# --- JSON Schema


def _json(registry: SchemaRegistry, schema: Any) -> Codec:
    import jsonschema
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    resources = [
        (name, Resource.from_contents(json.loads(other.schema_str), default_specification=DRAFT7))
        for name, other in registry.references(schema)
    ]
    content = json.loads(schema.schema_str)
    validator = jsonschema.validators.validator_for(content, jsonschema.Draft7Validator)(
        content, registry=Registry().with_resources(resources)
    )

    def encode(text: bytes) -> bytes:
        try:
            validator.validate(json.loads(text))
        except jsonschema.ValidationError as error:
            raise ValueError(f"{error.json_path}: {error.message}") from error
        return text

    return Codec(lambda data: data, encode)


# --- Protobuf


def _protobuf(registry: SchemaRegistry, schema: Any) -> Codec:
    from google.protobuf import descriptor_pool, json_format, message_factory
    from google.protobuf.message import DecodeError

    files = _compile([*registry.references(schema), (_MAIN, schema)])
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    main = pool.FindFileByName(_MAIN)

    def message_at(indexes: list[int]) -> Any:
        descriptor: Any = None
        for index in indexes:
            among = list(main.message_types_by_name.values()) if descriptor is None else descriptor.nested_types
            if not 0 <= index < len(among):
                raise ValueError(f"there is no message {indexes}")
            descriptor = among[index]
        return message_factory.GetMessageClass(descriptor)()

    def decode(data: bytes) -> bytes:
        indexes, position = _read_indexes(data)
        message = message_at(indexes)
        try:
            message.ParseFromString(data[position:])
        except DecodeError as error:
            raise ValueError(str(error)) from error
        text: str = json_format.MessageToJson(
            message, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=pool
        )
        return text.encode()

    def encode(text: bytes) -> bytes:
        message = message_at([0])
        try:
            json_format.Parse(text, message, descriptor_pool=pool)
        except json_format.ParseError as error:
            raise ValueError(str(error)) from error
        return _FIRST_MESSAGE + bytes(message.SerializeToString(deterministic=True))

    return Codec(decode, encode)


_MAIN = "plog-schema.proto"
_FIRST_MESSAGE = b"\0"


def _read_indexes(data: bytes) -> tuple[list[int], int]:
    """Reads message indexes, and finds where the message begins."""
    try:
        count, position = read_varint(data, 0)
        indexes = []
        for _ in range(count):
            index, position = read_varint(data, position)
            indexes.append(index)
    except IndexError as error:
        raise ValueError("the message indexes end too early") from error
    return indexes or [0], position


def _compile(files: list[tuple[str, Any]]) -> Any:  # -> a FileDescriptorSet with all that they import
    import tempfile

    import grpc_tools
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as directory:
        for name, schema in files:
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(schema.schema_str)
        out = Path(directory, "descriptors")
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        code = protoc.main(
            ["protoc", f"-I{directory}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={out}", _MAIN]
        )
        if code:
            raise SchemaError("protoc does not take the schema")
        return FileDescriptorSet.FromString(out.read_bytes())


_MAKERS: dict[str, Callable[[SchemaRegistry, Any], Codec]] = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}
