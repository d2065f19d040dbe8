"""Compiles a declared message (`message.py`) to an encode and a decode function, once per version.

The functions are straight-line Python made from the declaration: neighbouring fields of fixed size share one
`struct.Struct`, and the structs in a message are read and written in line. Wire rules (Kafka's protocol guide,
KIP-482):

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
from itertools import groupby
from typing import Any, Generic, TypeVar

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.varint import read_uvarint, uvarint
from core.protocol.message import Field, Schema, default_instance, schema_of
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
    def decode(self) -> Callable[..., tuple[M, int]]:
        """Returns the message at a position of a buffer, by default 0, and the position after it; raises
        MalformedMessageError if no such message is there.

        `records` and `bytes` fields: records are views of the buffer, bytes are copies.
        """
        return self._source.decoder_of(self.message_type)

    @cached_property
    def encode_into(self) -> Callable[[M, Callable[[Piece], None]], None]:
        """Hands a message's bytes to a function, piece by piece; `records` go out as the object they are."""
        return self._source.encoder_of(self.message_type)

    def encode(self, message: M) -> bytes:
        """Returns the whole message as bytes; its `records` must be bytes-like."""
        pieces: list[Any] = []  # bytes-like, where no records are a Region
        self.encode_into(message, pieces.append)
        return b"".join(pieces)


@cache
def _codec(message_type: type, version: int) -> MessageCodec[Any]:
    return MessageCodec(message_type, version)


def codec(message_type: type[M], version: int) -> MessageCodec[M]:
    """Returns the class's codec, compiled at first use; raises KafkaError(UNSUPPORTED_VERSION) without that version."""
    compiled: MessageCodec[M] = _codec(message_type, version)  # type: ignore[arg-type]  # classes are hashable
    return compiled


def _short(what: str, wanted: int, left: int) -> None:
    raise ValueError(f"{what} of {wanted} bytes where {left} are left")


def _many(what: str, count: int, most: int) -> None:
    raise ValueError(f"{count} {what} where at most {most} are allowed")


def _refuse(name: str, version: int) -> None:
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{name} is set, but version {version} has no such field")


def _malformed(name: str, version: int, error: Exception) -> MalformedMessageError:
    return MalformedMessageError(f"malformed {name} version {version}: {str(error) or type(error).__name__}")


def _decode_uvarint(name: str, pad: str) -> list[str]:
    return [f"{pad}{name} = b[p]", f"{pad}p += 1", f"{pad}if {name} > 127: {name}, p = read_uvarint(b, p - 1)"]


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
            "refuse": _refuse,
            "malformed": _malformed,
            "FAULTS": (struct.error, IndexError, ValueError),
        }

    def decoder_of(self, cls: type) -> Callable[..., Any]:
        lines = [
            "def decode(b, p=0):",
            "    end = len(b)",
            "    try:",
            *self._decode_fields(cls, "f_", "        "),
            f"        return {self._made(cls, 'f_')}, p",
            f"    except FAULTS as error: raise malformed({cls.__name__!r}, {self.version}, error) from error",
        ]
        return self._function("decode", cls, lines)

    def encoder_of(self, cls: type) -> Callable[..., None]:
        return self._function("encode", cls, ["def encode(m, a):", *self._encode_fields(cls, "m", "    ")])

    def _function(self, name: str, cls: type, lines: list[str]) -> Callable[..., Any]:
        code = compile("\n".join(lines), f"<{schema_of(cls).name} version {self.version}>", "exec")
        exec(code, self.names)  # noqa: S102 - the source is made here, from declarations of ours
        function: Callable[..., Any] = self.names[name]
        return function

    def _present(self, schema: Schema) -> Iterable[Field]:
        return (f for f in schema.fields if self.version in f.versions)

    def _runs(self, schema: Schema) -> Iterable[tuple[bool, Iterable[Field]]]:
        """Returns the fields that are not tagged, neighbours of fixed size together, and whether they have one."""
        untagged = (f for f in self._present(schema) if not self._is_tagged(f))
        return groupby(untagged, lambda f: f.kind in _FIXED)

    def _is_tagged(self, field: Field) -> bool:
        return self.flexible and self.version in field.tagged

    def _struct(self, format_: str) -> str:
        name = f"S_{format_.replace('?', 'o')}"
        self.names.setdefault(name, struct.Struct(">" + format_))
        return name

    # --- decode: the local names are b (buffer), p (position), end, n (a length), q (end of a value); those of a
    # struct's fields have a prefix

    def _decode_fields(self, cls: type, prefix: str, pad: str) -> list[str]:
        schema, lines = schema_of(cls), []
        for is_fixed, fields in self._runs(schema):
            if is_fixed:
                lines += self._decode_run(list(fields), prefix, pad)
            else:
                lines += [line for one in fields for line in self._decode_value(one, prefix + one.name, pad)]
        if self.flexible:
            lines += self._decode_tagged_fields(schema, prefix, pad)
        return lines

    def _made(self, cls: type, prefix: str) -> str:
        """Writes the source text of the struct whose fields were read into locals of that prefix."""
        schema = schema_of(cls)
        self.names[f"T_{schema.name}"] = cls
        values = (prefix + f.name if self.version in f.versions else self._absent_default(f) for f in schema.fields)
        return f"T_{schema.name}({', '.join(values)})"

    def _absent_default(self, field: Field) -> str:
        if field.kind == "struct" and isinstance(field.default, type):
            name = f"D_{schema_of(field.default).name}"
            self.names[name] = default_instance(field.default)
            return name
        value = field.default
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        return "[]"

    def _decode_run(self, run: list[Field], prefix: str, pad: str) -> list[str]:
        format_ = "".join(_FIXED[f.kind][0] for f in run)
        targets = "".join(f"{prefix}{f.name}, " for f in run)
        return [
            f"{pad}{targets}= {self._struct(format_)}.unpack_from(b, p)",
            f"{pad}p += {sum(_FIXED[f.kind][1] for f in run)}",
        ]

    def _decode_value(self, field: Field, target: str, pad: str) -> list[str]:
        if field.kind in _FIXED:
            code, size = _FIXED[field.kind]
            return [f"{pad}{target}, = {self._struct(code)}.unpack_from(b, p)", f"{pad}p += {size}"]
        if field.kind == "uuid":
            return self._decode_uuid(target, pad)
        if field.kind == "struct":
            return self._decode_struct(field, target, pad)
        lines = self._decode_length(field, pad)
        null = (
            f"{target} = None"
            if self.version in field.nullable
            else f"raise ValueError('{field.name} may not be null')"
        )
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
        if self.version not in field.nullable:
            return self._decode_one(field.element, target, f"{target} = ", pad)
        null = 0 if self._is_tagged(field) else -1
        return [
            f"{pad}n, = {self._struct('b')}.unpack_from(b, p)",
            f"{pad}p += 1",
            f"{pad}if n <= {null}: {target} = None",
            f"{pad}else:",
            *self._decode_one(field.element, target, f"{target} = ", pad + "    "),
        ]

    def _decode_one(self, cls: type, target: str, give: str, pad: str, end: str = "") -> list[str]:
        """Returns the lines that read a struct; the last one, which passes it on, begins with `give` and ends with
        `end`.
        """
        return [*self._decode_fields(cls, f"{target}__", pad), f"{pad}{give}{self._made(cls, f'{target}__')}{end}"]

    def _decode_length(self, field: Field, pad: str) -> list[str]:
        if self.flexible and not field.never_flexible:
            return [*_decode_uvarint("n", pad), f"{pad}n -= 1"]
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
                *self._decode_one(element, target, f"{target}.append(", pad + "    ", ")"),
            ]
        assert element is not None
        if element in _FIXED:
            code, size = _FIXED[element]
            self.names["unpack_from"] = struct.unpack_from
            return [*lines, f"{pad}{target} = list(unpack_from(f'>{{n}}{code}', b, p))", f"{pad}p += {size} * n"]
        one = Field(element, field.versions, name="element")
        return [
            *lines,
            f"{pad}{target} = []",
            f"{pad}for _ in range(n):",
            *self._decode_value(one, f"{target}__element", pad + "    "),
            f"{pad}    {target}.append({target}__element)",
        ]

    def _smallest_element(self, field: Field) -> int:
        element = field.element
        if isinstance(element, type):
            return max(1, self._smallest_struct(schema_of(element)))
        assert element is not None
        return self._smallest_value(Field(element, field.versions))

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

    def _decode_tagged_fields(self, schema: Schema, prefix: str, pad: str) -> list[str]:
        tagged = [f for f in self._present(schema) if self._is_tagged(f)]
        lines = [f"{pad}{prefix}{f.name} = {self._absent_default(f)}" for f in tagged]
        tag, size, stop = f"{prefix}_tag", f"{prefix}_size", f"{prefix}_stop"  # no field's name begins so
        lines += [
            *_decode_uvarint("n", pad),
            f"{pad}if n:",
            f"{pad}    if n * 2 > end - p: short('tagged fields', n * 2, end - p)",
            f"{pad}    if n > {_MOST_TAGS}: many('tagged fields', n, {_MOST_TAGS})",
            f"{pad}    for _ in range(n):",
            *_decode_uvarint(tag, f"{pad}        "),
            *_decode_uvarint(size, f"{pad}        "),
            f"{pad}        {stop} = p + {size}",
            f"{pad}        if {stop} > end: short('tagged field', {size}, end - p)",
        ]
        keyword = "if"
        for field in tagged:
            wrong = f"short('tagged field {field.name}', {size}, {size} - ({stop} - p))"
            lines += [
                f"{pad}        {keyword} {tag} == {field.tag}:",
                *self._decode_value(field, prefix + field.name, f"{pad}            "),
                f"{pad}            if p != {stop}: {wrong}",
            ]
            keyword = "elif"
        return [*lines, f"{pad}        p = {stop}"]

    # --- encode: the local names are m (message), a (append a piece), n (a length), x (a value to be refused), and one
    # for each value

    def _encode_fields(self, cls: type, m: str, pad: str) -> list[str]:
        """Writes the fields of the struct that is the value of the local `m`."""
        schema, lines = schema_of(cls), []
        for field in schema.fields if self.refuses else ():
            if self.version not in field.versions and not field.ignorable:
                lines += self._refuse_set_field(schema, field, m, pad)
        for is_fixed, fields in self._runs(schema):
            if is_fixed:
                lines.append(self._encode_run(list(fields), m, pad))
            else:
                for field in fields:
                    lines += self._encode_value(field, f"{m}.{field.name}", f"{m}__{field.name}", pad)
        if self.flexible:
            lines += self._encode_tagged_fields(schema, m, pad)
        return lines or [f"{pad}pass"]

    def _refuse_set_field(self, schema: Schema, field: Field, m: str, pad: str) -> list[str]:
        unset = "not x" if field.kind == "array" else f"x == {self._absent_default(field)}"
        return [
            f"{pad}x = {m}.{field.name}",
            f"{pad}if not ({unset}): refuse({schema.name + '.' + field.name!r}, {self.version})",
        ]

    def _encode_run(self, run: list[Field], m: str, pad: str) -> str:
        format_ = "".join(_FIXED[f.kind][0] for f in run)
        return f"{pad}a({self._struct(format_)}.pack({', '.join(f'{m}.{f.name}' for f in run)}))"

    def _encode_value(self, field: Field, value: str, x: str, pad: str) -> list[str]:
        """Writes the value of that source text; the generated code may use the local `x` for it."""
        if field.kind in _FIXED:
            return [f"{pad}a({self._struct(_FIXED[field.kind][0])}.pack({value}))"]
        if field.kind == "uuid":
            return [f"{pad}a({value})"]
        if field.kind == "struct":
            assert isinstance(field.element, type)
            if self.version not in field.nullable:
                return [f"{pad}{x} = {value}", *self._encode_fields(field.element, x, pad)]
            absent = b"\x00" if self._is_tagged(field) else b"\xff"
            return [
                f"{pad}{x} = {value}",
                f"{pad}if {x} is None: a({absent!r})",
                f"{pad}else:",
                f"{pad}    a(b'\\x01')",
                *self._encode_fields(field.element, x, pad + "    "),
            ]
        null = (
            f"a({self._null_length(field)!r})"
            if self.version in field.nullable
            else f"raise ValueError('{field.name} may not be null')"
        )
        lines = [f"{pad}{x} = {value}", f"{pad}if {x} is None: {null}", f"{pad}else:"]
        inner = pad + "    "
        if field.kind == "string":
            lines.append(f"{inner}{x} = {x}.encode()")
        lines += [f"{inner}n = len({x})", inner + self._encode_length(field)]
        if field.kind != "array":
            return [*lines, f"{inner}a({x})"]
        return lines + self._encode_elements(field, x, inner)

    def _encode_elements(self, field: Field, x: str, pad: str) -> list[str]:
        element = field.element
        if isinstance(element, type):
            return [f"{pad}for {x}__e in {x}:", *self._encode_fields(element, f"{x}__e", pad + "    ")]
        assert element is not None
        if element in _FIXED:
            self.names["pack"] = struct.pack
            return [f"{pad}a(pack(f'>{{n}}{_FIXED[element][0]}', *{x}))"]
        one = Field(element, field.versions, name=field.name)
        return [f"{pad}for {x}__e in {x}:", *self._encode_value(one, f"{x}__e", f"{x}__e", pad + "    ")]

    def _null_length(self, field: Field) -> bytes:
        if self.flexible and not field.never_flexible:
            return b"\x00"
        return b"\xff\xff" if field.kind == "string" else b"\xff\xff\xff\xff"

    def _encode_length(self, field: Field) -> str:
        if self.flexible and not field.never_flexible:
            return f"a(UV[n + 1] if n < {len(_UVARINTS) - 1} else uvarint(n + 1))"
        return f"a({self._struct('h' if field.kind == 'string' else 'i')}.pack(n))"

    def _encode_tagged_fields(self, schema: Schema, m: str, pad: str) -> list[str]:
        tagged = sorted((f for f in self._present(schema) if self._is_tagged(f)), key=lambda f: f.tag)
        if not tagged:
            return [f"{pad}a(b'\\x00')"]
        conditions = [self._is_set(field, m) for field in tagged]
        tags, part, outer = (f"{m}___{name}" for name in ("tags", "part", "a"))  # no field's name begins so
        lines = [f"{pad}if not ({' or '.join(conditions)}): a(b'\\x00')", f"{pad}else:", f"{pad}    {tags} = []"]
        for field, condition in zip(tagged, conditions, strict=True):
            lines += [
                f"{pad}    if {condition}:",
                f"{pad}        {part} = []",
                f"{pad}        {outer}, a = a, {part}.append",
                *self._encode_value(field, f"{m}.{field.name}", f"{m}__{field.name}", f"{pad}        "),
                f"{pad}        a = {outer}",
                f"{pad}        {part} = b''.join({part})",
                f"{pad}        n = len({part})",
                f"{pad}        {tags}.append({uvarint(field.tag)!r} + {_ENCODED_LENGTH} + {part})",
            ]
        return [*lines, f"{pad}    a(UV[len({tags})])", f"{pad}    a(b''.join({tags}))"]

    def _is_set(self, field: Field, m: str) -> str:
        value, default = f"{m}.{field.name}", self._absent_default(field)
        if field.kind == "struct":
            return f"({value} is not {default} and {value} != {default})"
        return f"{value} != {default}"
