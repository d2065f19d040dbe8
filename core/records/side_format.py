"""The format of keys or values, as `--key-format` and `--value-format` name it, each for its side."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from core.common.command_option import option
from core.common.errors import UsageError


class SideFormat(StrEnum):
    registry = "registry"
    string = "string"
    long = "long"
    int = "int"
    double = "double"
    uuid = "uuid"
    json = "json"
    base64 = "base64"
    avro = "avro"
    protobuf = "protobuf"
    jsonschema = "jsonschema"
    msgpack = "msgpack"
    cbor = "cbor"
    none = "none"


class SchemaJson(StrEnum):
    """The form of JSON that stands for keys and values of a schema: `tagged` is exact, `plain` is for people."""

    plain = "plain"
    tagged = "tagged"


SCHEMA_FILES = {
    ".avsc": SideFormat.avro,
    ".proto": SideFormat.protobuf,
    ".desc": SideFormat.protobuf,
    ".json": SideFormat.jsonschema,
}
"""The format of what is of a schema in such a file."""

_NAMES = frozenset(SideFormat)
_OF_SCHEMA = (SideFormat.avro, SideFormat.protobuf, SideFormat.jsonschema)
_FILE = re.compile(r"(.*(?:\.avsc|\.proto|\.desc|\.json))(?::([\w.]+))?", re.DOTALL)


def split_file(text: str) -> tuple[str, str] | None:
    """Splits FILE[:Message], or returns None for what is no file of a schema."""
    found = _FILE.fullmatch(text)
    return None if found is None else (found[1], found[2] or "")


def parse_side_format(text: str) -> tuple[SideFormat, str] | None:
    """Splits FORMAT and, for protobuf:Message, the message. Returns None for another text."""
    name, separator, message = text.partition(":")
    if name not in _NAMES or bool(separator) != bool(message) or (message and name != SideFormat.protobuf):
        return None
    return SideFormat(name), message


class SideFormats(NamedTuple):
    """The formats and schemas of both sides as the options name them; `url` is that of the Schema Registry, or None.

    Bytes that are read with a named schema name none themselves: that schema is the one of all of them. Bytes that are
    written with a named schema name it (`registry`), if there is a registry and no other format.
    """

    url: str | None = None
    key: str | None = None
    value: str | None = None
    key_schema: str | None = None
    value_schema: str | None = None
    is_written: bool = False
    context: str | None = None
    schema_json: SchemaJson | None = None
    """The form of JSON. None: filters see `plain` and everybody else `tagged`; both are read."""

    is_in_header: bool = False
    """Whether ids of schemas are written into headers."""

    references: tuple[str, ...] = ()  # NAME=SUBJECT[:VERSION]: what files of schemas refer to, and is in the registry
    is_dry_run: bool = False

    def find(self, side: str) -> SideFormat:
        """Returns the format of `key` or `value`: the named one, else that of a file with a schema, else `registry` if
        there is one, else `none`. Raises UsageError for an unknown one.
        """
        named = self._named(side)
        schema = self.schema(side)
        if named is not None:
            return named[0]
        if schema is not None and not (self.is_written and self.url is not None) and (file := split_file(schema)):
            return SCHEMA_FILES[file[0][file[0].rindex(".") :]]
        return SideFormat.none if self.url is None else SideFormat.registry

    def _named(self, side: str) -> tuple[SideFormat, str] | None:
        text = self.key if side == "key" else self.value
        if text is None:
            return None
        found = parse_side_format(text)
        if found is None:
            raise UsageError(f"--{side}-format {text}: no such format", hint=", ".join(SideFormat))
        return found

    def message(self, side: str) -> str:
        """Returns the message of Protobuf that the format names, or ""."""
        named = self._named(side)
        return "" if named is None else named[1]

    def schema(self, side: str) -> str | None:
        """Returns the named schema."""
        return self.key_schema if side == "key" else self.value_schema

    def is_of_one_schema(self, side: str) -> bool:
        """Says whether all keys or values are of the named schema, and name none."""
        format_ = self.find(side)
        return format_ in _OF_SCHEMA or (
            format_ is SideFormat.registry and not self.is_written and bool(self.schema(side))
        )

    def needs_registry(self, side: str) -> bool:
        schema = self.schema(side)
        return self.find(side) is SideFormat.registry or (schema is not None and split_file(schema) is None)

    def have_schemas(self) -> bool:
        """Says whether a side may be of a schema, or of another format with two forms of JSON."""
        formats = (SideFormat.registry, *_OF_SCHEMA, SideFormat.msgpack, SideFormat.cbor)
        return self.find("key") in formats or self.find("value") in formats

    def for_people(self) -> SideFormats:
        """Returns the same formats, plain unless the user said otherwise."""
        return self._replace(schema_json=self.schema_json or SchemaJson.plain)

    def ensure_consistent(self) -> None:
        """Raises UsageError for formats and schemas that do not go together."""
        if self.context is not None and self.url is None:
            raise UsageError("--schema-context goes with --schema-registry")
        if self.context is not None and not self.context.strip(":."):
            raise UsageError("--schema-context is empty")
        if self.is_in_header and SideFormat.registry not in (self.find("key"), self.find("value")):
            raise UsageError("--schema-id header goes with --schema-registry, and a side that it writes")
        for side in ("key", "value"):
            format_, schema = self.find(side), self.schema(side)
            if schema is None and format_ in _OF_SCHEMA:
                raise UsageError(
                    f"--{side}-format {format_} goes with --{side}-schema",
                    hint=f"--{side}-schema FILE, or with a registry SUBJECT",
                )
            if schema is None:
                continue
            if self.url is None and split_file(schema) is None:
                raise UsageError(
                    f"--{side}-schema {schema}: no file of a schema ({', '.join(SCHEMA_FILES)})",
                    hint="an id, or SUBJECT[:VERSION], goes with --schema-registry",
                )
            if format_ not in (*_OF_SCHEMA, SideFormat.registry):
                raise UsageError(
                    f"--{side}-schema goes with --{side}-format {', '.join(_OF_SCHEMA)} or registry, "
                    f"not with --{side}-format {format_}"
                )
            if self._named(side) == (SideFormat.registry, "") and not self.is_written:
                raise UsageError(
                    f"--{side}-schema is for {side}s that name no schema: not with --{side}-format registry"
                )

    @property
    def are_plain(self) -> bool:
        """Says whether the bytes of both stay as they are."""
        return self.find("key") is self.find("value") is SideFormat.none


NO_SCHEMA_JSON = "--schema-json goes with a schema (--schema-registry, --value-schema, --key-schema), msgpack or cbor"
PLAIN = SideFormats()
"""Bytes of both sides stay as they are."""

SCHEMA_REGISTRY = option(
    "A Schema Registry, or glue:REGION: keys and values with a schema in it are shown, or given, as JSON.",
    metavar="URL",
    envvar="SCHEMA_REGISTRY_URL",
    show_default=False,
)
SCHEMA_CONTEXT = option(
    "The context of the registry's ids and subjects that name none, as in :.CONTEXT:SUBJECT.", metavar="CONTEXT"
)
_FORMATS = (
    "registry, avro, protobuf[:Message], jsonschema, msgpack, cbor, "
    "string, long, int, double, uuid, json, base64 or none"
)
KEY_FORMAT = option(
    f"The format of keys: {_FORMATS}. Default: that of --key-schema, else registry if there is one, else none.",
    metavar="FORMAT",
    show_default=False,
)
VALUE_FORMAT = option("The format of values, as for keys.", metavar="FORMAT", show_default=False)
VALUE_SCHEMA = option(
    "The schema of values that name none: FILE[:Message] (.avsc, .proto, .desc, .json), or a registry's id or "
    "SUBJECT[:VERSION].",
    metavar="SCHEMA",
)
KEY_SCHEMA = option("The schema of keys that name none, likewise.", metavar="SCHEMA")
SCHEMA_JSON = option(
    "JSON of a schema: tagged is exact (Avro's unions name their branch), plain is for people. Default: plain on a "
    "terminal, for filters and for columns; else tagged.",
    show_default=False,
)
DUMPED_SCHEMA_JSON = option(
    "JSON of a schema: tagged (Avro's unions name their branch), or plain. Default: tagged.", show_default=False
)
