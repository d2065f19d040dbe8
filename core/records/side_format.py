"""The format of keys or values, as `--key-format` and `--value-format` name it, each for its side."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from core.common.command_option import Option


class SideFormat(StrEnum):
    registry = "registry"
    string = "string"
    long = "long"
    int = "int"
    double = "double"
    uuid = "uuid"
    json = "json"
    base64 = "base64"
    none = "none"


class SchemaJson(StrEnum):
    """The form of JSON that stands for values of a schema: `tagged` is exact, `plain` is for people and filters."""

    plain = "plain"
    tagged = "tagged"


class SideFormats(NamedTuple):
    """The formats of both sides; `url` is that of the Schema Registry, or None."""

    url: str | None = None
    key: SideFormat | None = None
    value: SideFormat | None = None

    def find(self, side: str) -> SideFormat:
        """Returns the format of `key` or `value`: the named one, else `registry` if there is one, else `none`."""
        named = self.key if side == "key" else self.value
        return named or (SideFormat.none if self.url is None else SideFormat.registry)

    @property
    def are_plain(self) -> bool:
        """Says whether the bytes of both stay as they are."""
        return self.find("key") is self.find("value") is SideFormat.none


PLAIN = SideFormats()
"""Bytes of both sides stay as they are."""

SchemaRegistryOption = Annotated[
    str | None,
    Option(
        "A Schema Registry, or glue:REGION: keys and values with a schema in it are shown, or given, as JSON.",
        "--schema-registry",
        metavar="URL",
        envvar="SCHEMA_REGISTRY_URL",
        show_default=False,
    ),
]
KeyFormatOption = Annotated[
    SideFormat | None,
    Option(
        "The format of keys. Default: that of the Schema Registry, if one is given, else none (plain bytes).",
        "--key-format",
        show_default=False,
    ),
]
ValueFormatOption = Annotated[
    SideFormat | None, Option("The format of values; the default is as for keys.", "--value-format", show_default=False)
]
