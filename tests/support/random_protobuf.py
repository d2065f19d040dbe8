"""Random .proto files, and messages of their types."""

from __future__ import annotations

import math
from random import Random
from typing import Any

_SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
_KEYS = ("int32", "int64", "uint64", "sint32", "fixed64", "bool", "string")
_KNOWN = (
    "Any", "Duration", "FieldMask", "Struct", "Value", "ListValue", "NullValue", "Timestamp", "Int64Value",
    "UInt64Value", "DoubleValue", "FloatValue", "Int32Value", "BoolValue", "StringValue", "BytesValue",
)  # fmt: skip
_IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto";\n'
    for name in ("any", "duration", "field_mask", "struct", "timestamp", "wrappers")
)
_TEXTS = ("", "a", "é\u2028\0", "NaN", "1", "not_decoded")
_NUMBERS = (0.0, -0.0, 1.0, 0.1, -12.5, 1e30, math.nan, math.inf, -math.inf)


def random_file(random: Random, syntax: str) -> str:
    """A file of one package with some messages, in one another, and enums."""
    names = [f"M{number}" for number in range(random.randint(2, 5))]
    known = [f"google.protobuf.{name}" for name in _KNOWN if syntax == "proto3" or name != "NullValue"]
    types = [*names, *(f"{name}.Inner" for name in names), *(f"{name}.E" for name in names), *known]
    text = f'syntax = "{syntax}";\npackage p.q;\n{_IMPORTS}'
    for name in names:
        zero = "ZERO = 0;" if syntax == "proto3" else "TWO = 2; ZERO = 0;"
        text += f"message {name} {{\n  enum E {{ {zero} NEGATIVE = -1; }}\n"
        text += f"  message Inner {{\n{_fields(random, syntax, types)}  }}\n{_fields(random, syntax, types)}"
        if syntax == "proto2" and random.random() < 0.5:
            text += "  extensions 1000 to 1100;\n  extend " + name + " { optional int64 more = 1000; }\n"
        text += "}\n"
    return text


def _fields(random: Random, syntax: str, types: list[str]) -> str:
    lines, number = [], 0
    for _ in range(random.randint(0, 7)):
        number += random.randint(1, 20)
        type_ = random.choice(_SCALARS) if random.random() < 0.6 else random.choice(types)
        name = random.choice(("a", "fooBar", "foo_bar", "value_")) + str(number)
        kind = random.choice(("one", "one", "optional", "repeated", "map", "oneof"))
        if kind == "map":
            lines.append(f"map<{random.choice(_KEYS)}, {_nullless(type_)}> {name} = {number};")
        elif kind == "oneof":
            other = random.choice(_SCALARS)
            lines.append(f"oneof of_{name} {{ {type_} {name} = {number}; {other} {name}x = {number + 1}; }}")
            number += 1
        elif kind == "one" and syntax == "proto3":
            lines.append(f"{type_} {name} = {number};")
        else:
            lines.append(f"{'repeated' if kind == 'repeated' else 'optional'} {type_} {name} = {number};")
    return "".join(f"    {line}\n" for line in lines)


def _nullless(type_: str) -> str:
    return "int32" if type_.endswith((".E", "NullValue")) else type_


def fill(random: Random, message: Any, find: Any, depth: int = 0) -> None:
    """Sets some of its fields; `find` returns an empty message by name, for an Any."""
    name = message.DESCRIPTOR.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        limit = random.choice((5, 253402300799, 315576000000, 1 << 62))
        message.seconds = random.randint(-limit, limit)
        sign = -1 if name.endswith("Duration") and message.seconds < 0 else 1
        message.nanos = (
            random.choice((0, 1000000, 1000, 1, 999999999, 2000000000)) * sign * random.choice((1, 1, 1, -1))
        )
    elif name == "google.protobuf.FieldMask":
        message.paths.extend(random.sample(("a", "foo_bar", "fooBar", "a__b", "a,b", "x.y_z"), random.randint(0, 2)))
    elif name == "google.protobuf.Value":
        _fill_value(random, message, depth)
    elif name == "google.protobuf.Any":
        inner = find(random.choice(("p.q.M0", "p.q.M1", "google.protobuf.Timestamp", "google.protobuf.Int64Value")))
        if depth < 4:
            fill(random, inner, find, depth + 1)
        message.type_url = random.choice(("t/", "")) + random.choice((inner.DESCRIPTOR.full_name,) * 3 + ("no.Such",))
        message.value = inner.SerializeToString(deterministic=True)
    else:
        for field in message.DESCRIPTOR.fields:
            if random.random() < 0.6:
                _fill_field(random, message, field, find, depth)


def _fill_value(random: Random, value: Any, depth: int) -> None:
    kind = random.choice(("null", "number", "string", "bool", *(("struct", "list") if depth < 4 else ())))
    if kind == "null":
        value.null_value = 0
    elif kind == "number":
        value.number_value = random.choice((0.0, 1.0, -2.5))
    elif kind == "string":
        value.string_value = random.choice(_TEXTS)
    elif kind == "bool":
        value.bool_value = random.random() < 0.5
    elif kind == "list":
        value.list_value.SetInParent()
        for _ in range(random.randint(0, 2)):
            _fill_value(random, value.list_value.values.add(), depth + 1)
    else:
        value.struct_value.SetInParent()
        for name in random.sample(_TEXTS, random.randint(0, 2)):
            _fill_value(random, value.struct_value.fields[name], depth + 1)


def _fill_field(random: Random, message: Any, field: Any, find: Any, depth: int) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, item = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        for _ in range(random.randint(0, 2)):
            if item.message_type is None:
                getattr(message, field.name)[_scalar(random, key)] = _scalar(random, item)
            elif depth < 4 or item.message_type.full_name == "google.protobuf.Value":
                fill(random, getattr(message, field.name)[_scalar(random, key)], find, depth + 1)
    elif field.message_type is not None:
        is_value = field.message_type.full_name == "google.protobuf.Value"
        if depth >= 4 and not is_value:
            return
        for _ in range(random.randint(0, 2) if field.is_repeated else 1):
            part = getattr(message, field.name)
            part = part.add() if field.is_repeated else part
            part.SetInParent()
            fill(random, part, find, depth + 1)
    elif field.is_repeated:
        getattr(message, field.name).extend(_scalar(random, field) for _ in range(random.randint(0, 3)))
    else:
        setattr(message, field.name, _scalar(random, field))


def _scalar(random: Random, field: Any) -> Any:
    if field.enum_type is not None:
        is_open = not field.enum_type.is_closed and not field.enum_type.full_name.endswith("NullValue")
        return random.choice([*(value.number for value in field.enum_type.values), *([7] if is_open else [])])
    if field.type == field.TYPE_BYTES:
        return random.choice((b"", b"\xff", b"\0a\xfb"))
    if field.cpp_type == field.CPPTYPE_STRING:
        return random.choice(_TEXTS)
    if field.cpp_type == field.CPPTYPE_BOOL:
        return random.random() < 0.5
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random.choice(_NUMBERS)
    bits = 64 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
    if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return random.choice((0, 1, (1 << bits) - 1))
    return random.choice((0, 1, -1, (1 << bits - 1) - 1, -(1 << bits - 1)))
