"""Declares protocol messages: classes whose fields say their wire type and their versions.

    class ApiVersionsRequest(Message, api_key=18, valid="0-4", flexible="3+"):
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

from functools import cache, partial
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack, dataclass_transform

import msgspec

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


NEVER = VersionRange(0, -1)


class Field(NamedTuple):
    """One field of a struct. `kind` is a primitive's name, "struct" or "array"; `element` is what a struct or array
    holds: a struct class, or a primitive's name."""

    kind: str
    versions: VersionRange
    default: object = None
    nullable: VersionRange = NEVER
    tagged: VersionRange = NEVER
    tag: int = -1
    ignorable: bool = False
    element: type | str | None = None
    never_flexible: bool = False
    is_lenient: bool = False
    name: str = ""


class Schema(NamedTuple):
    """A struct's fields in wire order and, for a whole message, its API key (-1: none) and versions.

    `key` is the struct of a coordinator's record's key; the message is the value.
    """

    name: str
    fields: tuple[Field, ...]
    api_key: int = -1
    valid: VersionRange = VersionRange(0, MAX_VERSION)
    flexible: VersionRange = NEVER
    key: type | None = None


class _Options(TypedDict, total=False):
    nullable: str
    tagged: str
    tag: int
    ignorable: bool


_DEFAULT_OF_KIND: Any = object()
_DEFAULTS = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b"", "records": None}


def _field(
    kind: str,
    versions: str = "0+",
    default: Any = _DEFAULT_OF_KIND,
    *,
    element: type | str | None = None,
    never_flexible: bool = False,
    is_lenient: bool = False,
    nullable: str = "none",
    tagged: str = "none",
    tag: int = -1,
    ignorable: bool = False,
) -> Any:  # stands, as a default, where a value of the field's type is declared
    """Declares a field: `int32("3+", -1)` exists from version 3 on and defaults to -1, `int32()` to 0."""
    return Field(
        kind=kind,
        versions=VersionRange.parse(versions),
        default=_DEFAULTS.get(kind, 0) if default is _DEFAULT_OF_KIND else default,
        nullable=VersionRange.parse(nullable),
        tagged=VersionRange.parse(tagged),
        tag=tag,
        ignorable=ignorable,
        element=element,
        never_flexible=never_flexible,
        is_lenient=is_lenient,
    )


boolean = partial(_field, "bool")
int8 = partial(_field, "int8")
int16 = partial(_field, "int16")
uint16 = partial(_field, "uint16")
int32 = partial(_field, "int32")
int64 = partial(_field, "int64")
float64 = partial(_field, "float64")
uuid = partial(_field, "uuid")
"""Declares a uuid of 16 bytes; all zeros stand for no uuid."""
string = partial(_field, "string")
"""Declares a text in UTF-8. `never_flexible` keeps the int16 length in flexible versions too (RequestHeader's client
id). With `is_lenient` bytes that are no UTF-8 are read as U+FFFD, as Java reads them; otherwise they are malformed.
"""
binary = partial(_field, "bytes")
record_bytes = partial(_field, "records")
"""Declares record batches: decoded as a memoryview of the frame, encoded from anything with a length in bytes."""


def struct_of(element: type, versions: str = "0+", *, null_default: bool = False, **options: Unpack[_Options]) -> Any:
    return _field("struct", versions, None if null_default else element, element=element, **options)


def array(element: type | str, versions: str = "0+", *, null_default: bool = False, **options: Unpack[_Options]) -> Any:
    """Declares a list of structs (a class) or primitives (its name); an empty list unless `null_default`."""
    return _field("array", versions, None if null_default else [], element=element, **options)


@cache
def default_instance(cls: type) -> Any:
    """Returns the struct with all defaults. Messages share it as their default: replace it, don't change it."""
    return cls()


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


@dataclass_transform()
class _Declared(type):
    """Makes another class of a declaration, with its schema: in a tenth of the time that dataclass takes for each of
    some 300 classes, at every start. The options are fields of the schema, the versions as texts.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        fields = tuple(namespace[field]._replace(name=field) for field in namespace.get("__annotations__", ()))
        declared = msgspec.defstruct(
            name,
            [(field.name, Any, _default(field)) for field in fields],
            module=namespace["__module__"],
            namespace={"__doc__": namespace.get("__doc__", name)},
        )
        options = {one: VersionRange.parse(it) if isinstance(it, str) else it for one, it in options.items()}
        _schemas[declared] = Schema(name, fields, **options)
        return declared


class Struct(metaclass=_Declared):
    """Declares a struct inside messages; mutable, owned by one task."""


class Message(metaclass=_Declared):
    """Declares a whole request, response, header or metadata record; `api_key` is the type of a record."""


Req = TypeVar("Req")
Res = TypeVar("Res")

API_VERSIONS_KEY = 18


class Api(Generic[Req, Res]):
    """A request and its response, by the key and the name that the request is declared with. Immutable."""

    __slots__ = ("key", "name", "request", "response")

    def __init__(self, request: type[Req], response: type[Res]) -> None:
        schema = schema_of(request)
        self.key, self.name = schema.api_key, schema.name.removesuffix("Request")
        self.request, self.response = request, response

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
