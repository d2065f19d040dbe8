"""Keys and values of a Schema Registry: turns bytes that name their schema (schema_id.py) into JSON, and back.

    0       1                  5
    | 0x00 | id, big-endian   | Avro: the datum | JSON Schema: JSON | Protobuf: message indexes, then the message |

Keys of 8 bytes whose schema is not there or does not fit name none: they are what Java's LongSerializer makes of
numbers below 2^56. A GUID in front of the data (no serializer writes one there) counts if the registry knows it.

Avro is written as Avro's own JSON encoding (avro_json.py), so that nothing is lost on the way back; plain JSON is taken
too. Of a schema that is the type bytes alone, the datum is the bytes themselves, without Avro's length. Protobuf is its
JSON mapping (protobuf_json.py). Source: Confluent's wire format, KafkaAvroSerializer.

Needs the extra `schema`: confluent-kafka's client of the registry, fastavro, jsonschema, and protoc from grpcio-tools.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from core.client.net.connect_notice import is_this_machine
from core.client.schemas.avro_json import AvroJson, CutOffError
from core.client.schemas.field_types import Types, json_schema_types, merged
from core.client.schemas.protobuf_json import ProtobufJson
from core.client.schemas.schema_id import (
    MOST_BYTES,
    Framed,
    Message,
    Messages,
    RegistryKind,
    SchemaId,
    encode_message,
    find_framed,
    find_message,
    frame_of,
    headers_of,
    indexes_and_message,
)
from core.client.schemas.undecoded import SchemaError, converted
from core.common.errors import AccessError, UsageError
from core.common.lenient_json import read_json
from core.common.printable import printable
from core.records.record import Headers
from core.records.side_format import SchemaJson, split_file
from core.security.client_settings import RegistrySettings
from core.security.secret import shown_url

if TYPE_CHECKING:
    from core.client.schemas.other_registries import Apicurio, Glue, Registered
    from core.client.schemas.schema_files import FileReference, SchemaFile

_HINT = "pip install 'plog-kafka[schema]'"


_LONG_BYTES = 8
_OF_LONG_KEYS = (
    "note: keys of 8 bytes that are of no schema of the registry are shown as they are; --key-format long shows numbers"
)
_IN_CONTEXT = re.compile(r"(:\.[^:]*:)?(.*)", re.DOTALL)
_OF_MESSAGE = re.compile(r"(.+):([A-Za-z_][\w.]*)")
_NOT_FOUND = range(40400, 40500)
"""The registry's error codes for a missing schema, subject or version; HTTP's own is 404."""
_TIMEOUT_SECONDS = 10
"""The timeout of one try."""
_MOST_SECONDS = 30
"""The most for an answer with all its tries: a server that sends a byte now and then meets no timeout of a socket."""
_MOST_TEXT = 500
"""The most characters of a registry's own words that a message has."""
_MOST_REFERENCES = 500
"""The most schemas that a schema refers to, by whichever way."""
_LARGEST_ID = (1 << 31) - 1
_DIGITS = 10
_NO_CODE = -1
"""The registry client's code for errors that are not the registry's own."""
_ASK_AGAIN_SECONDS = 30.0
"""The pause before another request for a missing schema."""


class Codec(NamedTuple):
    """Turns the bytes after the id, of one schema, into JSON, and back. Raises ValueError."""

    decode: Callable[..., bytes]
    encode: Callable[..., bytes]
    """Both take the `form` of JSON, if there are two (`SchemaJson`). For Protobuf `encode` also takes the `indexes` of
    the message, which are not in what it returns.
    """

    decode_typed: Callable[[bytes], tuple[bytes, bytes]] | None = None
    """Returns both forms of JSON, tagged and plain; None if there is but one."""

    messages: Messages | None = None
    """Those of the Protobuf file; None for other schemas."""

    types: Callable[[], Types] = dict
    """Returns the types of the fields; those of Protobuf of the messages that were decoded."""

    def of_form(self, form: SchemaJson | None) -> Codec:
        """Returns the same codec for one form of JSON, which filters see, too; None is every form."""
        if form is None or self.decode_typed is None:
            return self
        decode, encode = partial(self.decode, form=form), partial(self.encode, form=form)
        return self._replace(decode=decode, encode=encode, decode_typed=None)

    def encoder(self, message: str = "", *, is_only: bool = False) -> tuple[Callable[[bytes], bytes], Message | None]:
        """Returns the function that encodes text, and the Protobuf message of that name, or None for other schemas.
        Without a name it is the file's first message, which must be its only one with `is_only`. Raises ValueError for
        a message that is not there.
        """
        if self.messages is None:
            if message:
                raise ValueError(f"it is no Protobuf, and has no message {message}")
            return self.encode, None
        if not message and is_only and len(names := [one.name for one in self.messages if len(one.indexes) == 1]) != 1:
            raise ValueError(
                f"it has the messages {', '.join(names)}: say which, as in FILE:{(names or ['Message'])[0]}"
            )
        if not self.messages:
            raise ValueError("it has no message")
        found = find_message(message, self.messages) if message else self.messages[0]
        return partial(self.encode, indexes=found.indexes), found

    def data_of(self, framed: Framed) -> bytes:
        """Returns the bytes to decode. Raises ValueError if they name a message that is not there."""
        if framed.is_json:
            return self.encode(framed.data, form=None)
        return framed.data if self.messages is None else indexes_and_message(framed, self.messages)


@dataclass(frozen=True, slots=True)
class SchemaEncoder:
    """Encodes text by one schema of a registry, whose id goes in front of the bytes, or into a header beside them."""

    name: str
    """How errors name the schema."""

    encode: Callable[[bytes], bytes]
    frame: bytes
    """What is in front of the bytes: the id, and what names the message of Protobuf."""

    headers: Headers
    """What names the schema in headers instead. AWS Glue has none."""

    front: bytes = b""
    """What is in front of the bytes all the same: what names the message of Protobuf to Apicurio."""

    def __call__(self, text: bytes | None) -> bytes | None:
        """Returns the bytes with the id in front; null stays null. Raises SchemaError for text that does not fit."""
        return None if text is None else self.frame + converted(self.encode, text, f"not of schema {self.name}")

    def bare(self, text: bytes) -> bytes:
        """Returns the bytes that go with the headers. Raises SchemaError."""
        return self.front + converted(self.encode, text, f"not of schema {self.name}")


class SchemaRegistry:
    """Owned by one task. Every method raises AccessError if the registry does not answer."""

    def __init__(
        self,
        url: str,
        settings: RegistrySettings | None = None,
        context: str | None = None,
        *,
        form: SchemaJson | None = None,
        elsewhere: Mapping[str, str] | None = None,
        is_dry_run: bool = False,
    ) -> None:
        """`context` is used for ids and subjects that name no context. `form` is the form of the JSON, None allows
        every form. `elsewhere` maps the names of a file's references to subjects of the registry. A dry run registers
        nothing. The URL may hold a user and a password, which no message shows. Raises UsageError if the extra is not
        installed, or if files of keys and certificates can't be read.
        """
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise UsageError(f"a Schema Registry needs more packages: {error.name}", hint=_HINT) from error
        self._url = shown_url(url)
        self._form = form
        self._elsewhere = elsewhere or {}
        self._is_dry_run = is_dry_run
        self._other: Apicurio | Glue | None = None
        if url.startswith("glue:") or "/apis/registry/v" in url:
            from core.client.schemas.other_registries import open_other_registry

            self._other = open_other_registry(url, settings, _TIMEOUT_SECONDS)
        self._context = "" if context is None else f":.{context.strip(':').removeprefix('.')}:"
        """As it stands in front of a subject, or ""."""

        if self._context and self._other is not None:
            raise UsageError(f"--schema-context {context}: {self._other.kind} has no contexts")
        try:
            with _own_settings(settings) as own, _without_proxies(url):
                self._client: Any = None
                if self._other is None:
                    options = {"url": url, "max.retries": 1, "timeout": _TIMEOUT_SECONDS, **own}
                    self._client = SchemaRegistryClient(options)
                    session = self._client._rest_client.session  # noqa: SLF001 - no option limits what it reads
                    session.event_hooks = {"response": [_read_answer]}
        except (ValueError, OSError) as error:
            hint = "http://HOST:PORT, an Apicurio's http://HOST/apis/registry/v3, or glue:REGION"
            raise UsageError(f"--schema-registry {self._url}: {error}", hint=hint) from error
        self._codecs: dict[SchemaId, Codec] = {}
        self._types: dict[SchemaId, str] = {}
        self._guids: dict[SchemaId, bytes] = {}
        self._failures: dict[SchemaId, tuple[float, SchemaError]] = {}  # when each ends to count
        self._of_values: dict[SchemaId, Codec] = {}
        self._has_guids_in_front: bool | None = None
        self.notes: dict[str, None] = {}
        """What a user should know about the records so far, each once."""
        self.has_typed = False
        """Whether `decode_typed` returned something else than `decode` would, or could."""
        self.packed: dict[str, Packed] = {}
        """Schemas that need no request, by the text of their ids."""

    # --- out

    def decode(self, data: bytes | None, *, is_key: bool = False, headers: Headers = ()) -> bytes | None:
        """Returns the JSON of framed data, which name their schema, or whose headers do; other bytes as is. Raises
        SchemaError.
        """
        return self._decode(data, is_key=is_key, headers=headers, is_typed=False)[0]

    def decode_typed(
        self, data: bytes | None, *, is_key: bool = False, headers: Headers = ()
    ) -> tuple[bytes | None, bytes | None]:
        """Returns what `decode` returns, and its plain form, which filters see."""
        return self._decode(data, is_key=is_key, headers=headers, is_typed=True)

    def _decode(
        self, data: bytes | None, *, is_key: bool, headers: Headers, is_typed: bool
    ) -> tuple[bytes | None, bytes | None]:
        schema_id = None
        try:
            framed = self._find_framed(data, headers, "key" if is_key else "value")
            if framed is None:
                return data, data
            schema_id = framed.schema_id
            codec = self._codec(schema_id)
            if not is_key:
                self._of_values[schema_id] = codec
            found = codec.data_of(framed)
            if is_typed and codec.decode_typed is not None:
                return codec.decode_typed(found)
            decoded: bytes | None = codec.decode(found)
        except (ValueError, RecursionError, SchemaError) as error:
            assert data is not None
            decoded = self._plain_long(data, schema_id, error, is_key=is_key)
        return decoded, decoded

    def names_schema(self, data: bytes, headers: Headers = ()) -> bool:
        """Returns whether a value names a schema. Raises SchemaError for a name that is wrong."""
        return self._find_framed(data, headers, "value") is not None

    def pack_known(self) -> dict[str, Packed]:
        """Packs the schemas of the values that were decoded so far."""
        return {f"{one.space}/{one.value}": self._pack(one) for one in self._of_values}

    def pack_named(self, schema: str) -> tuple[Packed, str]:
        """Packs a schema that is named as `named_codec` takes it; returns the message too."""
        schema_id, message = self._find(schema, schema)
        return self._pack(schema_id), message

    def _pack(self, schema_id: SchemaId) -> Packed:
        known = self.packed.get(f"{schema_id.space}/{schema_id.value}")
        return known or pack_schema(self._ask(lambda: _with_text(self._get(schema_id)), schema_id), self._referred)

    def value_types(self) -> Types:
        """Returns the types of the fields that values had until now."""
        return merged(codec.types() for codec in self._of_values.values())

    def _find_framed(self, data: bytes | None, headers: Headers, side: str) -> Framed | None:
        if data is None:
            return None
        kind, space = (RegistryKind.confluent, "") if self._other is None else (self._other.kind, self._other.space)
        framed = find_framed(data, headers, side, kind, space, note=self._note)
        if framed is not None and not framed.schema_id.space:
            framed = framed._replace(schema_id=framed.schema_id._replace(space=self._context))
        if framed is None or framed.schema_id.space != "guid" or len(framed.data) == len(data):
            return framed
        if self._has_guids_in_front is None:
            try:
                self._codec(framed.schema_id)
                self._has_guids_in_front = True
            except (SchemaError, AccessError):
                # the first decides: each value that begins with 01 would be asked for
                self._has_guids_in_front = False
        return framed if self._has_guids_in_front else None

    def _note(self, text: str) -> None:
        self.notes[text] = None

    def _plain_long(self, data: bytes, schema_id: SchemaId | None, error: Exception, *, is_key: bool) -> bytes:
        """Returns a key unchanged if it looks like a number and not like framed data. Raises SchemaError for other
        keys.
        """
        if isinstance(error, SchemaError) and not error.why:
            raise error
        if is_key and len(data) == _LONG_BYTES:
            self._note(_OF_LONG_KEYS)
            return data
        if isinstance(error, SchemaError):
            raise error
        why = "cut off" if isinstance(error, CutOffError) else f"not of schema {schema_id}"
        problem = "its levels are too many" if isinstance(error, RecursionError) else str(error)
        message = f"not of schema {schema_id}, which it names: {problem}"
        raise SchemaError(message, why=why, schema_id=_shown(schema_id)) from error

    # --- in

    @property
    def has_headers(self) -> bool:
        """Says whether a header may name a schema of this registry."""
        return self._other is None or self._other.kind is not RegistryKind.glue

    def subject_of(self, topic: str, side: str) -> str:
        """Returns the name under which the schemas of a topic's keys or values are registered, as serializers do it."""
        return topic if not self.has_headers and side == "value" else f"{topic}-{side}"

    def encoder(self, schema: str | None, topic: str, side: str) -> SchemaEncoder | None:
        """Returns the encoder of a schema: an id, SUBJECT, SUBJECT:VERSION, or a file (.avsc, .proto, .json). A file is
        registered for the topic, and so are the files that it imports. A colon and the name of a Protobuf message may
        follow. Without `schema` the topic's newest is taken; None if the topic has none.
        """
        subject = self.subject_of(topic, side)
        if schema is None and not self.has_subject(subject):
            return None
        schema_id, message = self._find(schema or subject, subject)
        try:
            found = self._encoder(schema_id, *self._codec(schema_id).encoder(message), side)
            return found if schema_id.value else replace(found, name=schema or subject)
        except ValueError as error:
            raise UsageError(f"schema {schema or subject}: {error}") from error

    def _encoder(
        self, schema_id: SchemaId, encode: Callable[[bytes], bytes], message: Message | None, side: str
    ) -> SchemaEncoder:
        kind = RegistryKind.confluent if self._other is None else self._other.kind
        messages = self._codec(schema_id).messages or ()
        named = b"" if message is None else encode_message(kind, message, messages)
        if self._other is not None:
            long_ids = self._other.has_long_ids
            frame = frame_of(kind, schema_id, named, has_long_ids=long_ids)
            if kind is RegistryKind.glue:
                return SchemaEncoder(str(schema_id), encode, frame, ())
            headers = headers_of(schema_id, side, message, is_avro=self._types[schema_id] == "AVRO")
            return SchemaEncoder(str(schema_id), encode, frame, headers, b"" if long_ids else named)
        frame, guid = frame_of(kind, schema_id, named), self._guids.get(schema_id)
        header = frame if guid is None else b"\1" + guid + named
        return SchemaEncoder(str(schema_id), encode, frame, ((f"__{side}_schema_id".encode(), header),))

    def has_subject(self, subject: str) -> bool:
        name, other = self._qualified(subject), self._other
        if other is not None:
            return self._ask_if_there(lambda: other.find(subject)) is not None
        return self._ask(lambda: name in self._client.get_subjects())  # type: ignore[no-any-return]

    def named_codec(self, schema: str) -> tuple[Codec, str, str]:
        """Returns the codec, the type and the message of a schema that is named as `encoder` takes it, except files."""
        schema_id, message = self._find(schema, schema)
        return self._codec(schema_id), self._types[schema_id], message

    def _qualified(self, subject: str) -> str:
        return subject if subject.startswith(":.") else self._context + subject

    def _find(self, schema: str, subject: str) -> tuple[SchemaId, str]:
        """Returns the id of a named schema, and the name of a message, or ""."""
        file = split_file(schema)
        if file is not None:
            return self._register(Path(file[0]), subject), file[1]
        if (other := self._other) is not None:
            found = _OF_MESSAGE.fullmatch(schema)
            name, message = (schema, "") if found is None or self.has_subject(schema) else found.groups()
            return self._ask(lambda: other.find(name)), message
        context, name = _IN_CONTEXT.fullmatch(schema).groups(self._context)  # type: ignore[union-attr]
        found = _OF_MESSAGE.fullmatch(name)
        if found is not None and not self.has_subject(context + name):
            return self._find_id(context, found[1]), found[2]
        return self._find_id(context, name), ""

    def _find_id(self, context: str, name: str) -> SchemaId:
        if name.isdecimal():
            if len(name) > _DIGITS or not 0 < int(name) <= _LARGEST_ID:
                raise UsageError(f"schema {name:.{_DIGITS}}: ids are 1 to {_LARGEST_ID}")
            return SchemaId(int(name), context)
        return self._note_id(self._version(context, name)[1], context)

    def _version(self, context: str, name: str) -> tuple[str, Any]:
        """Returns the subject of SUBJECT or SUBJECT:VERSION, and that version, or the newest, as registered."""
        subject, _, version = name.rpartition(":") if name.rpartition(":")[2].isdecimal() else (name, "", "")
        subject = context + subject
        if version:
            return subject, self._ask(lambda: self._client.get_version(subject, int(version)))
        return subject, self._ask(lambda: self._client.get_latest_version(subject))

    def _note_id(self, found: Any, context: str) -> SchemaId:
        """Returns the id of a registered schema, and keeps its GUID, if the registry has GUIDs."""
        schema_id = SchemaId(self._ask(lambda: _number_of(found.schema_id)), context)
        if found.guid is not None:
            self._guids[schema_id] = self._ask(lambda: uuid.UUID(found.guid).bytes)
        return schema_id

    def _register(self, path: Path, subject: str) -> SchemaId:
        from core.client.schemas.schema_files import read_schema_file

        if self._elsewhere and not self.has_headers:
            raise UsageError("--schema-reference: AWS Glue has no references")
        file = read_schema_file(path, self._elsewhere)
        try:
            # before a registry has it that takes everything
            codec = make_codec(file, self._referred, is_of_confluent=self._other is None).of_form(self._form)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"schema {path} can't be used: {error}") from error
        except ImportError as error:
            raise UsageError(f"{file.schema_type} needs more packages: {error.name}", hint=_HINT) from error
        schema_id = self._registered(file, self._qualified(subject))
        self.has_typed |= codec.decode_typed is not None
        self._codecs[schema_id] = codec
        self._types[schema_id] = file.schema_type
        return schema_id

    def _registered(self, file: SchemaFile, subject: str) -> SchemaId:
        if self._is_dry_run:
            return self._id_of_dry_run(file, subject)
        if self._other is not None:
            from core.client.schemas.other_registries import Apicurio

            if isinstance(self._other, Apicurio):
                return self._registered_with_apicurio(self._other, file, subject).schema_id
            return self._registered_with_glue(self._other, file, subject)
        schema = self._with_references(file)
        context = subject[: subject.index(":", 1) + 1] if subject.startswith(":.") else ""
        return self._note_id(self._ask(lambda: self._client.register_schema_full_response(subject, schema)), context)

    def _id_of_dry_run(self, file: SchemaFile, subject: str) -> SchemaId:
        """Returns an id that nothing is written with. Raises SchemaError for a schema that Confluent's registry would
        refuse, which it says without a change.
        """
        if self._other is not None:
            return SchemaId(0, self._other.space)
        schema = self._with_references(file)
        if schema is not None and self._ask_if_there(lambda: not self._client.test_compatibility(subject, schema)):
            raise SchemaError(f"{self._url} would refuse {file.path}: it is not compatible with the newest {subject}")
        return SchemaId(0)

    def _with_references(self, file: SchemaFile) -> Any:
        """Returns the schema of a file for the registry. Files that it imports are registered first, under their names
        as Confluent's serializers do it, if they are not yet there; a dry run returns None then.
        """
        from confluent_kafka.schema_registry import Schema, SchemaReference

        found = []
        for reference in _referred_files(file):
            if reference.schema is None:
                found.append(self._reference_elsewhere(reference.name))
                continue
            schema, subject = self._with_references(reference.schema), self._qualified(reference.name)
            if schema is None:
                return None
            version = self._ask_if_there(lambda: int(self._client.lookup_schema(subject, schema).version))  # noqa: B023
            if version is None:
                if self._is_dry_run:
                    return None
                self._ask(lambda: self._client.register_schema_full_response(subject, schema))  # noqa: B023
                version = self._ask_number(lambda: self._client.lookup_schema(subject, schema).version)  # noqa: B023
            found.append(SchemaReference(reference.name, subject, version))
        return Schema(file.schema_str, file.schema_type, found)

    def _reference_elsewhere(self, name: str) -> Any:
        """Returns the reference to what the user says that it is."""
        from confluent_kafka.schema_registry import SchemaReference

        context, named = _IN_CONTEXT.fullmatch(self._elsewhere[name]).groups(self._context)  # type: ignore[union-attr]
        subject, found = self._version(context, named)
        return SchemaReference(name, subject, self._ask_number(lambda: found.version))

    def _registered_with_apicurio(self, apicurio: Apicurio, file: SchemaFile, artifact: str) -> Registered:
        references = []
        for one in _referred_files(file):
            if one.schema is None:
                found = self._ask(lambda: apicurio.find_version(self._elsewhere[one.name]))  # noqa: B023
            else:
                found = self._registered_with_apicurio(apicurio, one.schema, one.name)
            references.append({"name": one.name, **found.coordinates})
        return self._ask(lambda: apicurio.register(artifact, file.schema_str, file.schema_type, references))  # type: ignore[no-any-return]

    def _registered_with_glue(self, glue: Glue, file: SchemaFile, name: str) -> SchemaId:
        if references := _referred_files(file):
            raise UsageError(f"schema {file.path} refers to {references[0].name}: AWS Glue has no references")
        return self._ask(lambda: glue.register(name, file.schema_str, file.schema_type))  # type: ignore[no-any-return]

    # --- schemas

    def _codec(self, schema_id: SchemaId) -> Codec:
        if schema_id not in self._codecs:
            self._codecs[schema_id] = self._make_codec(schema_id)
        return self._codecs[schema_id]

    def _make_codec(self, schema_id: SchemaId) -> Codec:
        until, failure = self._failures.get(schema_id, (0.0, None))
        if failure is not None and time.monotonic() < until:
            raise failure
        try:
            if packed := self.packed.get(f"{schema_id.space}/{schema_id.value}"):
                codec = unpack_codec(packed, is_of_confluent=self._other is None).of_form(self._form)
                self.has_typed |= codec.decode_typed is not None
                return codec
            schema = self._ask(lambda: _with_text(self._get(schema_id)), schema_id)
            if schema.schema_type not in _MAKERS:
                raise SchemaError(
                    f"schema {schema_id} is of type {schema.schema_type}, which is not known",
                    why=f"of schema {schema_id}",
                    schema_id=_shown(schema_id),
                )
            try:
                codec = make_codec(schema, self._referred, is_of_confluent=self._other is None).of_form(self._form)
            except (ValueError, RecursionError) as error:
                why = f"of schema {schema_id}"
                raise SchemaError(
                    f"schema {schema_id} can't be used: {error}", why=why, schema_id=_shown(schema_id)
                ) from error
            self.has_typed |= codec.decode_typed is not None
            self._types[schema_id] = schema.schema_type
            return codec
        except SchemaError as error:
            error.why = error.why and f"of schema {schema_id}"  # not that of a schema that it refers to
            error.schema_id = _shown(schema_id)
            self._failures[schema_id] = time.monotonic() + _ASK_AGAIN_SECONDS, error
            raise
        except ImportError as error:
            raise UsageError(f"{schema.schema_type} needs more packages: {error.name}", hint=_HINT) from error

    def _get(self, schema_id: SchemaId) -> Any:
        if self._other is not None:
            return self._other.get(schema_id)
        if schema_id.space == "guid":
            return self._client.get_schema_by_guid(str(schema_id))
        if schema_id.is_of_confluent:
            return self._client.get_schema(int(schema_id.value), schema_id.space or None)
        if schema_id.space == "contentId":  # of Apicurio's registry, asked by Confluent's API: these are its ids
            return self._client.get_schema(int(schema_id.value))
        why = f"of Apicurio's {schema_id.space}"
        hint = "--schema-registry http://HOST:PORT/apis/registry/v3 (or v2)"
        raise SchemaError(f"Confluent's API does not know {schema_id}, an id of Apicurio", why=why, hint=hint)

    def _ask_number(self, work: Callable[[], Any]) -> int:
        number: int = self._ask(lambda: int(work()))
        return number

    def _ask_if_there(self, work: Callable[[], Any]) -> Any:
        """Returns None if the registry does not know what is asked for."""
        try:
            return self._ask(work)
        except SchemaError as error:
            if error.why:
                return None
            raise

    def _ask(self, work: Callable[[], Any], schema_id: SchemaId | None = None) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return _in_time(work)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise self._stranger("") from error  # its answer is no registry's
        except SchemaRegistryError as error:
            status, words = error.http_status_code, printable(str(error.error_message)[:_MOST_TEXT], keeps="")
            text = f"{words} ({error.error_code})"
            is_missing = status == HTTPStatus.NOT_FOUND
            is_strange = error.error_code in (_NO_CODE, None) or status < HTTPStatus.BAD_REQUEST
            if is_strange and not (is_missing and schema_id is not None and schema_id.space):
                raise self._stranger(f": HTTP {status}") from error
            if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise self._silent(text) from error
            is_of_record = error.error_code in _NOT_FOUND or is_missing
            raise SchemaError(
                f"{self._url}: {text}",
                why="of a schema that is not there" if is_of_record else "",
                schema_id=_shown(schema_id),
            ) from error
        except _transport_errors() as error:
            raise self._silent(f"{str(error) or type(error).__name__:.{_MOST_TEXT}}") from error

    def _silent(self, how: str) -> AccessError:
        return AccessError(
            f"{self._url}: the Schema Registry does not answer: {how}", where=self._url, hint="--schema-registry URL"
        )

    def _stranger(self, how: str) -> AccessError:
        return AccessError(
            f"{self._url} does not answer as a Schema Registry does{how}",
            where=self._url,
            hint="--schema-registry URL: with its path, and the user and password that it may want",
        )

    def _referred(self, reference: Any) -> Any:
        """Returns the schema that another refers to, or a file."""
        from core.client.schemas.schema_files import FileReference

        if isinstance(reference, FileReference) and reference.schema is not None:
            return reference.schema
        name = reference.name if isinstance(reference, FileReference) else ""

        def get() -> Any:
            if (other := self._other) is not None:
                return other.get(other.find(self._elsewhere[name]) if name else reference.schema_id)
            one = self._reference_elsewhere(name) if name else reference
            return self._client.get_version(one.subject, one.version).schema

        return self._ask(lambda: _with_text(get()))


@contextlib.contextmanager
def _own_settings(settings: RegistrySettings | None) -> Iterator[dict[str, str]]:
    """Yields them by the names of the registry's client, which reads the files once, when it is created."""
    found: dict[str, str] = {}
    with contextlib.ExitStack() as files:
        if settings is not None and settings.tls is not None:
            from core.files.tls_context import as_pem_files

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


def _shown(schema_id: SchemaId | None) -> int | str | None:
    """Returns the id as a mark of a value that is not decoded shows it."""
    if schema_id is None:
        return None
    return schema_id.value if schema_id.is_of_confluent else str(schema_id)


def _with_text(schema: Any) -> Any:
    """Returns the same schema. Raises ValueError if the answer has no schema."""
    if not isinstance(schema.schema_str, str) or not isinstance(schema.schema_type, str):
        raise ValueError("there is no schema in it")
    if not all(isinstance(reference.name, str) for reference in schema.references or ()):
        raise ValueError("a reference has no name")
    return schema


def _number_of(schema_id: Any) -> int:
    """Returns a registry's id as a number. Raises ValueError or TypeError if it is no id."""
    if not 0 < int(schema_id) <= _LARGEST_ID:
        raise ValueError(f"an id of {schema_id}")
    return int(schema_id)


def _in_time(work: Callable[[], Any]) -> Any:
    """Returns the result of the work, and raises its errors; TimeoutError if it takes too long. It runs on then."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except Exception as error:  # noqa: BLE001 - the caller gets it
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name="schema-registry").start()
    try:
        return found.result(_MOST_SECONDS)
    except TimeoutError:
        if found.done():
            raise
        raise TimeoutError(f"its answer took more than {_MOST_SECONDS} s") from None


def _read_answer(response: Any) -> None:
    """Reads the body of an answer for the registry's client, decompressed. Raises OSError for one that is too large."""
    pieces, size = [], 0
    for piece in response.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise OSError(f"its answer has more than {MOST_BYTES:,} bytes")
    response._content = b"".join(pieces)  # noqa: SLF001 - where `read`, which comes next, looks


def _transport_errors() -> tuple[type[Exception], ...]:
    modules = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return (OSError, *(module.HTTPError for module in modules))


def _referred_files(file: SchemaFile) -> list[FileReference]:
    """Returns the references of the file, without those that every registry knows."""
    from core.client.schemas.schema_files import KNOWN_IMPORTS

    return [one for one in file.references if one.schema is None or not one.name.startswith(KNOWN_IMPORTS)]


References = Sequence[tuple[str, Any]]
"""The names and schemas that a schema refers to, each once, after those it refers to."""


def make_codec(
    schema: Any, find: Callable[[Any], Any] = lambda reference: reference.schema, *, is_of_confluent: bool = False
) -> Codec:
    """Returns the codec of a schema, whose references `find` finds. `is_of_confluent`: the bytes are as Confluent's
    serializers write them. Raises ValueError and RecursionError for one that can't be used, and what `find` raises.
    """
    make, references = _MAKERS[schema.schema_type], references_of(schema, find)
    try:
        return make(references, schema, is_of_confluent=is_of_confluent)
    except (
        TypeError,
        AttributeError,
        KeyError,
        OverflowError,
    ) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def references_of(schema: Any, find: Callable[[Any], Any]) -> References:
    """Returns the schemas that the schema refers to. Raises ValueError for a circle, and for more than
    _MOST_REFERENCES; and the errors of `find`.
    """
    found: dict[str, Any] = {}
    open_: dict[str, None] = {}

    def visit(one: Any) -> None:
        for reference in one.references or ():
            if reference.name in open_:
                raise ValueError(f"what it refers to as {reference.name!r:.{_MOST_TEXT}} refers to itself")
            if len(found) + len(open_) >= _MOST_REFERENCES:
                raise ValueError(f"it refers to more than {_MOST_REFERENCES} schemas")
            if reference.name not in found:
                open_[reference.name] = None
                referred = find(reference)
                visit(referred)
                del open_[reference.name]
                found[reference.name] = referred

    visit(schema)
    return list(found.items())


# --- Avro


def _avro(references: References, schema: Any, *, is_of_confluent: bool) -> Codec:
    named: dict[str, Any] = {}
    for _, other in references:
        AvroJson(json.loads(other.schema_str), named)
    avro = AvroJson(json.loads(schema.schema_str), named, has_bare_bytes=is_of_confluent)
    return Codec(avro.decode, avro.encode, avro.decode_typed, types=avro.types)


# --- JSON Schema


def _json(references: References, schema: Any, **_: Any) -> Codec:
    import jsonschema
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    content = json.loads(schema.schema_str)
    own = content.get("$id", "") if isinstance(content, dict) else ""
    resources = [
        (url, Resource.from_contents(json.loads(other.schema_str), default_specification=DRAFT7))
        for name, other in references
        for url in {name, urljoin(own, name)}
    ]
    kind = jsonschema.validators.validator_for(content, jsonschema.Draft7Validator)
    try:
        kind.check_schema(content)
    except jsonschema.SchemaError as error:
        raise ValueError(f"it is no JSON Schema: {error.json_path}: {error.message}") from error
    validator = kind(content, registry=Registry().with_resources(resources))

    def encode(text: bytes, **_: Any) -> bytes:  # both forms are the same
        try:
            validator.validate(read_json(text))
        except jsonschema.ValidationError as error:
            raise ValueError(f"{error.json_path}: {error.message}") from error
        except (Unresolvable, re.error) as error:  # a reference that leads nowhere, an invalid pattern
            raise ValueError(f"the schema can't be used: {error}") from error
        return text

    def decode(data: bytes) -> bytes:
        read_json(data)
        return data

    return Codec(decode, encode, types=lambda: json_schema_types(content))


# --- Protobuf


def _protobuf(references: References, schema: Any, **_: Any) -> Codec:
    return protobuf_codec(ProtobufJson([(name, other.schema_str) for name, other in references], schema.schema_str))


def protobuf_codec(protobuf: ProtobufJson) -> Codec:
    return Codec(protobuf.decode, protobuf.encode, protobuf.decode_typed, protobuf.messages(), protobuf.types)


_MAKERS: dict[str, Callable[..., Codec]] = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}


# --- schemas for processes that have neither the files nor the registry

Packed = dict[str, Any]
"""A schema as JSON, with what it refers to; a named one also has "message" and "fingerprint" (hex).

    {"type": "AVRO", "text": "...", "references": [["NAME", {"type": ...}], ..]}    or "JSON"
    {"type": "DESCRIPTORS", "text": "...", "file": "order.proto"}    of Protobuf: what protoc made, in base64
"""
_DESCRIPTORS = "DESCRIPTORS"


class _Reference(NamedTuple):
    name: str
    schema: UnpackedSchema


class UnpackedSchema(NamedTuple):
    """A schema by the names of Confluent's client."""

    schema_str: str
    schema_type: str
    references: list[Any]


def pack_schema(schema: Any, find: Callable[[Any], Any] = lambda reference: reference.schema) -> Packed:
    """Packs a schema whose references `find` finds. Raises ValueError for Protobuf that protoc does not take, and what
    `find` raises.
    """
    if schema.schema_type == "PROTOBUF":
        others = [(name, other.schema_str) for name, other in references_of(schema, find)]
        return pack_protobuf(ProtobufJson(others, schema.schema_str))
    references = [[one.name, pack_schema(find(one), find)] for one in schema.references or ()]
    return {"type": schema.schema_type, "text": schema.schema_str, "references": references}


def pack_protobuf(protobuf: ProtobufJson) -> Packed:
    return {"type": _DESCRIPTORS, "text": base64.b64encode(protobuf.descriptors()).decode(), "file": protobuf.name}


def unpack_schema(packed: Packed) -> UnpackedSchema:
    """Unpacks Avro or JSON Schema."""
    references = [_Reference(name, unpack_schema(one)) for name, one in packed["references"]]
    return UnpackedSchema(packed["text"], packed["type"], references)


def unpack_protobuf(packed: Packed) -> ProtobufJson:
    return ProtobufJson.of_descriptors(base64.b64decode(packed["text"]), "", name=packed["file"])


def unpack_codec(packed: Packed, *, is_of_confluent: bool = False) -> Codec:
    """Returns the codec. Raises what `make_codec` raises."""
    if packed["type"] == _DESCRIPTORS:
        return protobuf_codec(unpack_protobuf(packed))
    return make_codec(unpack_schema(packed), is_of_confluent=is_of_confluent)
