"""Declares protocol messages: classes whose fields say their wire type and their versions.

    @message(api_key=18, valid="0-4", flexible="3+")
    class ApiVersionsRequest:
        client_software_name: str = string("3+", ignorable=True)

The same declaration serves people (typed attributes), the codec (`message_codec` compiles it once per version) and the
test that holds it against Kafka's own message definitions. Terms are those of Kafka's definitions: `versions` in which
the field exists, `nullable` versions in which it may be None, `tagged` versions in which it travels as an optional
tagged field with number `tag`, `ignorable` when a value other than the default may be dropped for a version without
the field. Version ranges read "3+", "0-12", "7", or "none".

An `Api` is its key, its request and response and, through their schemas, its versions. Each one stands with its schema
(core/protocol/schema), so that a client imports no more than it speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, dataclass_transform

import msgspec

T = TypeVar("T")

MAX_VERSION = 32767


class VersionRange(msgspec.Struct, frozen=True):
    """Both ends are in; empty when `last` < `first`."""

    first: int
    last: int

    @staticmethod
    @cache
    def parse(text: str) -> VersionRange:
        if text == "none":
            return VersionRange(0, -1)
        if text.endswith("+"):
            return VersionRange(int(text[:-1]), MAX_VERSION)
        first, _, last = text.partition("-")
        return VersionRange(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


class Field(NamedTuple):
    """One field of a struct. `kind` is a primitive's name, "struct" or "array"; `element` is what a struct or array
    holds: a struct class, or a primitive's name."""

    kind: str
    versions: VersionRange
    nullable: VersionRange
    tagged: VersionRange
    tag: int
    ignorable: bool
    default: object
    element: type | str | None = None
    never_flexible: bool = False
    is_lenient: bool = False
    name: str = ""


class Schema(NamedTuple):
    """A struct's fields in wire order and, for a whole message, its API key (-1: none) and versions."""

    name: str
    fields: tuple[Field, ...]
    api_key: int = -1
    valid: VersionRange = VersionRange(0, MAX_VERSION)
    flexible: VersionRange = VersionRange(0, -1)


def _field(
    kind: str,
    versions: str,
    default: object,
    *,
    nullable: str = "none",
    tagged: str = "none",
    tag: int = -1,
    ignorable: bool = False,
    element: type | str | None = None,
    never_flexible: bool = False,
    is_lenient: bool = False,
) -> Any:  # stands, as a default, where a value of the field's type is declared
    return Field(
        kind=kind,
        versions=VersionRange.parse(versions),
        nullable=VersionRange.parse(nullable),
        tagged=VersionRange.parse(tagged),
        tag=tag,
        ignorable=ignorable,
        default=default,
        element=element,
        never_flexible=never_flexible,
        is_lenient=is_lenient,
    )


class _Number(Protocol):
    """Declares a number: `int32("3+", -1)` exists from version 3 on and defaults to -1."""

    def __call__(
        self,
        versions: str = "0+",
        default: Any = 0,  # a number of the field's kind
        *,
        tagged: str = "none",
        tag: int = -1,
        ignorable: bool = False,
    ) -> Any: ...


def _number(kind: str, zero: float) -> _Number:
    def declare(
        versions: str = "0+", default: Any = zero, *, tagged: str = "none", tag: int = -1, ignorable: bool = False
    ) -> Any:
        return _field(kind, versions, default, tagged=tagged, tag=tag, ignorable=ignorable)

    return declare


boolean = _number("bool", zero=False)
int8 = _number("int8", 0)
int16 = _number("int16", 0)
uint16 = _number("uint16", 0)
int32 = _number("int32", 0)
int64 = _number("int64", 0)
float64 = _number("float64", 0.0)


def uuid(versions: str = "0+", *, tagged: str = "none", tag: int = -1, ignorable: bool = False) -> Any:
    """Declares a uuid of 16 bytes; all zeros stand for no uuid."""
    return _field("uuid", versions, bytes(16), tagged=tagged, tag=tag, ignorable=ignorable)


def string(
    versions: str = "0+",
    default: str | None = "",
    *,
    nullable: str = "none",
    tagged: str = "none",
    tag: int = -1,
    ignorable: bool = False,
    never_flexible: bool = False,
    is_lenient: bool = False,
) -> Any:
    """Declares a text in UTF-8. `never_flexible` keeps the int16 length in flexible versions too (RequestHeader's
    client id). With `is_lenient` bytes that are no UTF-8 are read as U+FFFD, as Java reads them; otherwise they are
    malformed.
    """
    return _field(
        "string",
        versions,
        default,
        nullable=nullable,
        tagged=tagged,
        tag=tag,
        ignorable=ignorable,
        never_flexible=never_flexible,
        is_lenient=is_lenient,
    )


def binary(
    versions: str = "0+", default: bytes | None = b"", *, nullable: str = "none", ignorable: bool = False
) -> Any:
    return _field("bytes", versions, default, nullable=nullable, ignorable=ignorable)


def record_bytes(versions: str = "0+", *, nullable: str = "none") -> Any:
    """Declares record batches: decoded as a memoryview of the frame, encoded from anything with a length in bytes."""
    return _field("records", versions, None, nullable=nullable)


def struct_of(
    element: type,
    versions: str = "0+",
    *,
    null_default: bool = False,
    nullable: str = "none",
    tagged: str = "none",
    tag: int = -1,
    ignorable: bool = False,
) -> Any:
    default = None if null_default else element
    return _field(
        "struct", versions, default, nullable=nullable, tagged=tagged, tag=tag, ignorable=ignorable, element=element
    )


def array(
    element: type | str,
    versions: str = "0+",
    *,
    null_default: bool = False,
    nullable: str = "none",
    tagged: str = "none",
    tag: int = -1,
    ignorable: bool = False,
) -> Any:
    """Declares a list of structs (a class) or primitives (its name); an empty list unless `null_default`."""
    default: list[object] | None = None if null_default else []
    return _field(
        "array", versions, default, nullable=nullable, tagged=tagged, tag=tag, ignorable=ignorable, element=element
    )


@dataclass_transform()
def struct(cls: type[T]) -> type[T]:
    """Declares a struct inside messages; mutable, owned by one task."""
    return _declare(cls, api_key=-1, valid=VersionRange(0, MAX_VERSION), flexible=VersionRange(0, -1))


@dataclass_transform()
def message(*, valid: str, flexible: str, api_key: int = -1) -> Callable[[type[T]], type[T]]:
    """Declares a whole request, response, header or metadata record; `api_key` is the type of a metadata record."""

    def declare(cls: type[T]) -> type[T]:
        return _declare(cls, api_key=api_key, valid=VersionRange.parse(valid), flexible=VersionRange.parse(flexible))

    return declare


@cache
def default_instance(cls: type) -> Any:
    """Returns the struct with all defaults. Messages share it as their default: replace it, don't change it."""
    return cls()


def _declare(cls: type[T], *, api_key: int, valid: VersionRange, flexible: VersionRange) -> type[T]:
    # A tenth of the time that dataclass takes for each of some 300 classes, at every start.
    fields = tuple(vars(cls)[name]._replace(name=name) for name in cls.__annotations__)
    declared: Any = msgspec.defstruct(
        cls.__name__,
        [(field.name, Any, _default(field)) for field in fields],
        module=cls.__module__,
        namespace={"__doc__": cls.__doc__ or cls.__name__},
    )
    _schemas[declared] = Schema(cls.__name__, fields, api_key, valid, flexible)
    return declared  # type: ignore[no-any-return]  # a class made in passing, of the shape that was declared


def _default(field: Field) -> Any:  # what stands for a value in a class's declaration
    if field.default is None:
        return None
    if field.kind == "array":
        return msgspec.field(default_factory=list)
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return msgspec.field(default_factory=repeat(default_instance(field.element)).__next__)
    return field.default


_schemas: dict[type, Schema] = {}


def schema_of(cls: type) -> Schema:
    """Returns the declared schema of a message or struct class; raises KeyError for any other class."""
    return _schemas[cls]


Req = TypeVar("Req")
Res = TypeVar("Res")

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True, eq=False)
class Api(Generic[Req, Res]):
    key: int
    name: str
    request: type[Req]
    response: type[Res]

    @property
    def versions(self) -> VersionRange:
        """Returns the versions that plog serves, both ends included."""
        return schema_of(self.request).valid

    def request_header_version(self, version: int) -> int:
        return 2 if version in schema_of(self.request).flexible else 1

    def response_header_version(self, version: int) -> int:
        """Returns the header's version: 0 for all ApiVersions, as a client can't know yet what the broker speaks."""
        if self.key == API_VERSIONS_KEY:
            return 0
        return 1 if version in schema_of(self.response).flexible else 0
