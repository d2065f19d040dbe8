"""Compiles a declared message (`message.py`) to an encode and a decode function, once per version.

The functions are straight-line Python made from the declaration: neighbouring fields of fixed size share one
`struct.Struct`, each struct of the version gets a function of its own. Wire rules (Kafka's protocol guide, KIP-482):

- numbers are big-endian; a uuid is 16 bytes; a bool is one byte
- classic versions: string = int16 length + UTF-8, bytes/records/arrays = int32 length or count; -1 is null
- flexible versions: the length or count is an unsigned varint of n + 1, 0 is null; every struct ends with tagged
  fields:
  uvarint count, then per field uvarint tag, uvarint size, bytes
- a nullable struct starts with an int8: -1 null, 1 present; as a tagged field with an unsigned varint: 0 and 1

A request refuses to be encoded with a field set that its version does not have, unless the field is ignorable: what a
client asks for must not get lost. A response leaves such fields out.

Decoding trusts nothing: each length is checked against the bytes that are left before it is used, an array's count
against its elements' smallest size, so that no frame makes more objects than its bytes pay for. Kafka's readers allow
as many elements and tagged fields as `_MOST_ELEMENTS` and `_MOST_TAGS` (4.4).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.varint import read_uvarint, uvarint
from core.protocol.message import Field, Schema, VersionRange, default_instance, schema_of
from core.protocol.primitives import Piece

M = TypeVar("M")

_FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
}
_NEVER = VersionRange.parse("none")
_MOST_ELEMENTS = 1_000_000
_MOST_TAGS = 10_000
_UVARINTS = tuple(uvarint(n) for n in range(4096))
_ENCODED_LENGTH = f"(UV[n] if n < {len(_UVARINTS)} else uvarint(n))"


class MessageCodec(Generic[M]):
    """Encodes and decodes one message class at one version; immutable."""

    def __init__(self, message_type: type[M], version: int) -> None:
        schema = schema_of(message_type)
        if version not in schema.valid:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{schema.name} has versions {schema.valid.first} to {schema.valid.last}, not {version}",
            )
        is_request = schema.name.endswith("Request")
        source = _Source(version, flexible=version in schema.flexible, refuses=is_request)
        self.message_type = message_type
        self.version = version
        self._source = source

    # Compiled when they are first asked for: a client needs one, a broker the other.

    @cached_property
    def _decode(self) -> Callable[[memoryview, int, int], tuple[M, int]]:
        return self._source.decoder_of(self.message_type)

    @cached_property
    def _encode(self) -> Callable[[M, Callable[[Piece], None]], None]:
        return self._source.encoder_of(self.message_type)

    def decode(self, buffer: memoryview, position: int = 0) -> tuple[M, int]:
        """Gives the message at `position` and the position after it; raises MalformedMessageError if it is none.

        `records` and `bytes` fields: records are views of `buffer`, bytes are copies.
        """
        try:
            return self._decode(buffer, position, len(buffer))
        except (struct.error, IndexError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise MalformedMessageError(
                f"malformed {self.message_type.__name__} version {self.version}: {reason}"
            ) from error

    def encode_into(self, message: M, append: Callable[[Piece], None]) -> None:
        """Hands the message's bytes to `append`, piece by piece; `records` go out as the object they are."""
        self._encode(message, append)

    def encode(self, message: M) -> bytes:
        """Gives the whole message as bytes; its `records` must be bytes-like."""
        pieces: list[Any] = []  # bytes-like, where no records are a Region
        self._encode(message, pieces.append)
        return b"".join(pieces)


@cache
def _codec(message_type: type, version: int) -> MessageCodec[Any]:
    return MessageCodec(message_type, version)


def codec(message_type: type[M], version: int) -> MessageCodec[M]:
    """Gives the codec of that class and version, compiled at first use; raises KafkaError(UNSUPPORTED_VERSION) if there
    is none.
    """
    compiled: MessageCodec[M] = _codec(message_type, version)  # type: ignore[arg-type]  # classes are hashable
    return compiled


def _short(what: str, wanted: int, left: int) -> None:
    raise ValueError(f"{what} of {wanted} bytes where {left} are left")


def _many(what: str, count: int, most: int) -> None:
    raise ValueError(f"{count} {what} where at most {most} are allowed")


def _null(name: str) -> None:
    raise ValueError(f"{name} may not be null")


def _refuse(name: str, version: int) -> None:
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} is set, but version {version} has no such field")


class _Source:
    """Python source of the functions of one version, and the names it uses."""

    def __init__(self, version: int, *, flexible: bool, refuses: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.refuses = refuses
        self.names: dict[str, Any] = {
            "read_uvarint": read_uvarint,
            "uvarint": uvarint,
            "UV": _UVARINTS,
            "short": _short,
            "many": _many,
            "null": _null,
            "refuse": _refuse,
        }
        self._compiled: set[tuple[str, type]] = set()

    def decoder_of(self, cls: type) -> Callable[..., Any]:
        return self._function("decode", cls, self._decoder)

    def encoder_of(self, cls: type) -> Callable[..., None]:
        return self._function("encode", cls, self._encoder)

    def _function(self, name: str, cls: type, make_lines: Callable[[Schema], list[str]]) -> Callable[..., Any]:
        """Gives that of the struct, compiled after those of the structs in it, which it calls by name."""
        schema = schema_of(cls)
        if (name, cls) not in self._compiled:
            for field in self._present(schema):
                if isinstance(field.element, type):
                    self._function(name, field.element, make_lines)
            code = compile("\n".join(make_lines(schema)), f"<{schema.name} version {self.version}>", "exec")
            self.names[f"T_{schema.name}"] = cls
            exec(code, self.names)  # noqa: S102 - the source is made here, from declarations of ours
            self._compiled.add((name, cls))
        function: Callable[..., Any] = self.names[f"{name}_{schema.name}"]
        return function

    def _present(self, schema: Schema) -> Iterable[Field]:
        return (f for f in schema.fields if self.version in f.versions)

    def _is_tagged(self, field: Field) -> bool:
        return self.flexible and self.version in field.tagged

    def _constant(self, value: object) -> str:
        """Writes the source text of a default."""
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        return "[]"

    def _struct(self, format_: str) -> str:
        name = f"S_{format_.replace('?', 'o')}"
        self.names.setdefault(name, struct.Struct(">" + format_))
        return name

    # --- decode: the local names are b (buffer), p (position), end, n (a length), q (end of a value)

    def _decoder(self, schema: Schema) -> list[str]:
        lines = [f"def decode_{schema.name}(b, p, end):"]
        run: list[Field] = []
        for field in self._present(schema):
            if self._is_tagged(field):
                continue
            if field.kind in _FIXED:
                run.append(field)
                continue
            lines += self._decode_run(run)
            run = []
            lines += self._decode_value(field, "    ")
        lines += self._decode_run(run)
        if self.flexible:
            lines += self._decode_tagged_fields(schema)
        values = (f"f_{f.name}" if self.version in f.versions else self._absent_default(f) for f in schema.fields)
        return [*lines, f"    return T_{schema.name}({', '.join(values)}), p"]

    def _absent_default(self, field: Field) -> str:
        if field.kind == "struct" and isinstance(field.default, type):
            name = f"D_{schema_of(field.default).name}"
            self.names[name] = default_instance(field.default)
            return name
        return self._constant(field.default)

    def _decode_run(self, run: list[Field]) -> list[str]:
        if not run:
            return []
        format_ = "".join(_FIXED[f.kind][0] for f in run)
        targets = "".join(f"f_{f.name}, " for f in run)
        return [
            f"    {targets}= {self._struct(format_)}.unpack_from(b, p)",
            f"    p += {sum(_FIXED[f.kind][1] for f in run)}",
        ]

    def _decode_value(self, field: Field, pad: str) -> list[str]:
        target = f"f_{field.name}"
        if field.kind in _FIXED:
            code, size = _FIXED[field.kind]
            return [f"{pad}{target}, = {self._struct(code)}.unpack_from(b, p)", f"{pad}p += {size}"]
        if field.kind == "uuid":
            return self._decode_uuid(target, pad)
        if field.kind == "struct":
            return self._decode_struct(field, target, pad)
        lines = self._decode_length(field, pad)
        null = f"{target} = None" if self.version in field.nullable else f"null({field.name!r})"
        lines += [f"{pad}if n < 0: {null}", f"{pad}else:"]
        inner = pad + "    "
        if field.kind == "array":
            return lines + self._decode_array(field, target, inner)
        return lines + self._decode_bytes(field, target, inner)

    def _decode_uuid(self, target: str, pad: str) -> list[str]:
        return [
            f"{pad}q = p + 16",
            f"{pad}if q > end: short('uuid', 16, end - p)",
            f"{pad}{target} = bytes(b[p:q])",
            f"{pad}p = q",
        ]

    def _decode_struct(self, field: Field, target: str, pad: str) -> list[str]:
        assert isinstance(field.element, type)
        call = f"{target}, p = decode_{schema_of(field.element).name}(b, p, end)"
        if self.version not in field.nullable:
            return [pad + call]
        null = 0 if self._is_tagged(field) else -1
        return [
            f"{pad}n, = {self._struct('b')}.unpack_from(b, p)",
            f"{pad}p += 1",
            f"{pad}if n <= {null}: {target} = None",
            f"{pad}else: {call}",
        ]

    def _decode_length(self, field: Field, pad: str) -> list[str]:
        if self.flexible and not field.never_flexible:
            return [
                f"{pad}n = b[p]",
                f"{pad}p += 1",
                f"{pad}if n > 127: n, p = read_uvarint(b, p - 1)",
                f"{pad}n -= 1",
            ]
        code, size = ("h", 2) if field.kind == "string" else ("i", 4)
        return [f"{pad}n, = {self._struct(code)}.unpack_from(b, p)", f"{pad}p += {size}"]

    def _decode_bytes(self, field: Field, target: str, pad: str) -> list[str]:
        text = "str(b[p:q], 'utf-8', 'replace')" if field.is_lenient else "str(b[p:q], 'utf-8')"
        value = {"string": text, "bytes": "bytes(b[p:q])", "records": "b[p:q]"}[field.kind]
        return [
            f"{pad}q = p + n",
            f"{pad}if q > end: short({field.kind!r}, n, end - p)",
            f"{pad}{target} = {value}",
            f"{pad}p = q",
        ]

    def _decode_array(self, field: Field, target: str, pad: str) -> list[str]:
        smallest = self._smallest_element(field)
        lines = [
            f"{pad}if n * {smallest} > end - p: short('array {field.name}', n * {smallest}, end - p)",
            f"{pad}if n > {_MOST_ELEMENTS}: many({field.name!r}, n, {_MOST_ELEMENTS})",
        ]
        element = field.element
        if isinstance(element, type):
            return [
                *lines,
                f"{pad}{target} = []",
                f"{pad}for _ in range(n):",
                f"{pad}    x, p = decode_{schema_of(element).name}(b, p, end)",
                f"{pad}    {target}.append(x)",
            ]
        assert element is not None
        if element in _FIXED:
            code, size = _FIXED[element]
            self.names["unpack_from"] = struct.unpack_from
            return [
                *lines,
                f"{pad}{target} = list(unpack_from(f'>{{n}}{code}', b, p))",
                f"{pad}p += {size} * n",
            ]
        one = Field(
            kind=element,
            versions=field.versions,
            nullable=_NEVER,
            tagged=_NEVER,
            tag=-1,
            ignorable=False,
            default=None,
            name="element",
        )
        return [
            *lines,
            f"{pad}{target} = []",
            f"{pad}for _ in range(n):",
            *self._decode_value(one, pad + "    "),
            f"{pad}    {target}.append(f_element)",
        ]

    def _smallest_element(self, field: Field) -> int:
        element = field.element
        if isinstance(element, type):
            return max(1, self._smallest_struct(schema_of(element)))
        assert element is not None
        one = Field(
            kind=element, versions=field.versions, nullable=_NEVER, tagged=_NEVER, tag=-1, ignorable=False, default=None
        )
        return self._smallest_value(one)

    def _smallest_struct(self, schema: Schema) -> int:
        fields = (f for f in self._present(schema) if not self._is_tagged(f))
        return sum(map(self._smallest_value, fields)) + self.flexible

    def _smallest_value(self, field: Field) -> int:
        if field.kind in _FIXED:
            return _FIXED[field.kind][1]
        if field.kind == "uuid":
            return 16
        if field.kind == "struct":
            assert isinstance(field.element, type)
            return 1 if self.version in field.nullable else self._smallest_struct(schema_of(field.element))
        if self.flexible:
            return 1
        return 2 if field.kind == "string" else 4

    def _decode_tagged_fields(self, schema: Schema) -> list[str]:
        tagged = [f for f in self._present(schema) if self._is_tagged(f)]
        lines = [f"    f_{f.name} = {self._absent_default(f)}" for f in tagged]
        lines += [
            "    t = b[p]",
            "    p += 1",
            "    if t:",
            "        if t > 127: t, p = read_uvarint(b, p - 1)",
            "        if t * 2 > end - p: short('tagged fields', t * 2, end - p)",
            f"        if t > {_MOST_TAGS}: many('tagged fields', t, {_MOST_TAGS})",
            "        for _ in range(t):",
            "            tag, p = read_uvarint(b, p)",
            "            size, p = read_uvarint(b, p)",
            "            stop = p + size",
            "            if stop > end: short('tagged field', size, end - p)",
        ]
        keyword = "if"
        for field in tagged:
            lines += [
                f"            {keyword} tag == {field.tag}:",
                *self._decode_value(field, "                "),
                f"                if p != stop: short('tagged field {field.name}', size, size - (stop - p))",
            ]
            keyword = "elif"
        return [*lines, "            p = stop"]

    # --- encode: the local names are m (message), a (append a piece), x (a value)

    def _encoder(self, schema: Schema) -> list[str]:
        lines = [f"def encode_{schema.name}(m, a):"]
        run: list[Field] = []
        for field in schema.fields:
            if self.version not in field.versions:
                if self.refuses and not field.ignorable:
                    lines += self._refuse_set_field(schema, field)
                continue
            if self._is_tagged(field):
                continue
            if field.kind in _FIXED:
                run.append(field)
                continue
            lines += self._encode_run(run)
            run = []
            lines += self._encode_value(field, f"m.{field.name}", "    ", 0)
        lines += self._encode_run(run)
        if self.flexible:
            lines += self._encode_tagged_fields(schema)
        return [*lines, "    return"]

    def _refuse_set_field(self, schema: Schema, field: Field) -> list[str]:
        unset = "not x" if field.kind == "array" else f"x == {self._absent_default(field)}"
        return [
            f"    x = m.{field.name}",
            f"    if not ({unset}): refuse({schema.name + '.' + field.name!r}, {self.version})",
        ]

    def _encode_run(self, run: list[Field]) -> list[str]:
        if not run:
            return []
        format_ = "".join(_FIXED[f.kind][0] for f in run)
        return [f"    a({self._struct(format_)}.pack({', '.join(f'm.{f.name}' for f in run)}))"]

    def _encode_value(self, field: Field, value: str, pad: str, depth: int) -> list[str]:
        if field.kind in _FIXED:
            return [f"{pad}a({self._struct(_FIXED[field.kind][0])}.pack({value}))"]
        if field.kind == "uuid":
            return [f"{pad}a({value})"]
        if field.kind == "struct":
            assert isinstance(field.element, type)
            call = f"encode_{schema_of(field.element).name}({value}, a)"
            if self.version not in field.nullable:
                return [pad + call]
            absent = b"\x00" if self._is_tagged(field) else b"\xff"
            return [
                f"{pad}if {value} is None: a({absent!r})",
                f"{pad}else:",
                f"{pad}    a(b'\\x01')",
                f"{pad}    {call}",
            ]
        x = f"x{depth}"
        null = f"a({self._null_length(field)!r})" if self.version in field.nullable else f"null({field.name!r})"
        lines = [f"{pad}{x} = {value}", f"{pad}if {x} is None: {null}", f"{pad}else:"]
        inner = pad + "    "
        if field.kind == "string":
            lines.append(f"{inner}{x} = {x}.encode()")
        lines += [f"{inner}n = len({x})", inner + self._encode_length(field)]
        if field.kind != "array":
            return [*lines, f"{inner}a({x})"]
        return lines + self._encode_elements(field, x, inner, depth)

    def _encode_elements(self, field: Field, x: str, pad: str, depth: int) -> list[str]:
        element = field.element
        if isinstance(element, type):
            return [f"{pad}for e in {x}: encode_{schema_of(element).name}(e, a)"]
        assert element is not None
        if element in _FIXED:
            self.names["pack"] = struct.pack
            return [f"{pad}a(pack(f'>{{n}}{_FIXED[element][0]}', *{x}))"]
        one = Field(
            kind=element,
            versions=field.versions,
            nullable=_NEVER,
            tagged=_NEVER,
            tag=-1,
            ignorable=False,
            default=None,
            name=field.name,
        )
        return [f"{pad}for e in {x}:", *self._encode_value(one, "e", pad + "    ", depth + 1)]

    def _null_length(self, field: Field) -> bytes:
        if self.flexible and not field.never_flexible:
            return b"\x00"
        return b"\xff\xff" if field.kind == "string" else b"\xff\xff\xff\xff"

    def _encode_length(self, field: Field) -> str:
        if self.flexible and not field.never_flexible:
            return f"a(UV[n + 1] if n < {len(_UVARINTS) - 1} else uvarint(n + 1))"
        return f"a({self._struct('h' if field.kind == 'string' else 'i')}.pack(n))"

    def _encode_tagged_fields(self, schema: Schema) -> list[str]:
        tagged = sorted((f for f in self._present(schema) if self._is_tagged(f)), key=lambda f: f.tag)
        if not tagged:
            return ["    a(b'\\x00')"]
        conditions = [self._is_set(field) for field in tagged]
        lines = [f"    if not ({' or '.join(conditions)}): a(b'\\x00'); return", "    tags = []"]
        for field, condition in zip(tagged, conditions, strict=True):
            lines += [
                f"    if {condition}:",
                "        part = []",
                "        a2, a = a, part.append",
                *self._encode_value(field, f"m.{field.name}", "        ", 0),
                "        a = a2",
                "        part = b''.join(part)",
                "        n = len(part)",
                f"        tags.append({uvarint(field.tag)!r} + {_ENCODED_LENGTH} + part)",
            ]
        return [*lines, "    a(UV[len(tags)])", "    a(b''.join(tags))"]

    def _is_set(self, field: Field) -> str:
        """Writes source text that says whether a field has another value than its default."""
        value, default = f"m.{field.name}", self._absent_default(field)
        if field.kind == "struct":
            return f"({value} is not {default} and {value} != {default})"
        return f"{value} != {default}"
