"""Finds the types of columns in a schema: those of `consume` (core/pipeline/consuming/typed_sink.py) and of Spark.

`avro_type` and `protobuf_type` return the type of a whole schema. `consume` takes the fields of nested records by their
paths, such as a.b, and writes arrays, maps and recursive records as one column of JSON. A field that has no type here
gets the type that its values show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Types = dict[tuple[str, ...], str]

Type = str | tuple[str, Any] | dict[str, Any]
"""A word; ("array", Type), ("map", Type); ("union", (word, Types)), whose word is what one column has, "" if there are
no branches; or the fields of a record.
"""

_MOST_DIGITS = 38
"""A decimal of more is text, as few readers of Parquet take it."""
_AVRO = {
    "null": "null", "boolean": "bool", "int": "int32", "long": "int64", "float": "float", "double": "double",
    "string": "string", "enum": "string", "bytes": "latin1", "fixed": "latin1",
}  # fmt: skip
_AVRO_LOGICAL = {
    ("int", "date"): "date", ("int", "time-millis"): "time_ms", ("long", "time-micros"): "time_us",
    ("long", "time-nanos"): "string", ("fixed", "uuid"): "string", ("fixed", "duration"): "string",
}  # fmt: skip
_UNITS = {"millis": "", "micros": "_us", "nanos": "_ns"}
_JSON_SCHEMA = {"string": "string", "integer": "int64", "number": "double", "boolean": "bool", "array": "json"}


def merged(several: Iterable[Types]) -> Types:
    """Merges the types of several schemas of a topic. A field that has two of them is text."""
    found: Types = {}
    for types in several:
        for steps, type_ in types.items():
            pair = {found.get(steps, type_), type_}
            found[steps] = type_ if len(pair) == 1 else "int64" if pair == {"int32", "int64"} else "string"
    return found


def _flat(type_: Type, steps: tuple[str, ...] = ()) -> Types:
    """Returns the words of all fields below `steps`."""
    if isinstance(type_, dict):
        return {path: word for name, one in type_.items() for path, word in _flat(one, (*steps, name)).items()}
    if isinstance(type_, str):
        return {steps: "json" if type_ == "null" else type_}
    kind, inner = type_
    word = inner[0] if kind == "union" else "json"
    return {steps: word} if word else {}


# --- Avro


def avro_types(schema: Any, named: Mapping[str, Any]) -> Types:
    """Takes a schema that fastavro has parsed."""
    found = _flat(avro_type(schema, named))
    found.pop((), None)
    return found


def avro_type(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...] = ()) -> Type:
    """Takes a schema that fastavro has parsed; `inside` are the records around it."""
    if isinstance(schema, str) and schema not in _AVRO:
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        types = [avro_type(branch, named, inside) for branch in branches]
        texts = ("bool", "int32", "int64", "float", "double", "string")
        is_text = all(isinstance(branch, str) and _AVRO.get(branch) in texts for branch in branches)
        word = "" if not types else "string" if is_text else "json"
        return types[0] if len(types) == 1 else ("union", (word, types))
    if isinstance(schema, str):
        return _AVRO.get(schema, "json")
    type_ = schema["type"]
    if type_ in ("array", "map"):
        return type_, avro_type(schema["items" if type_ == "array" else "values"], named, inside)
    if type_ not in ("record", "error"):
        return _avro_logical(type_, schema) or _AVRO.get(type_, "json")
    if schema["name"] in inside:
        return "json"
    inner = (*inside, schema["name"])
    return {field["name"]: avro_type(field["type"], named, inner) for field in schema["fields"]}


def _avro_logical(type_: str, schema: Any) -> str | None:
    logical = str(schema.get("logicalType"))
    kind, _, unit = logical.rpartition("-")
    if logical == "big-decimal" and type_ == "bytes":
        return "string"
    if logical == "decimal" and type_ in ("bytes", "fixed"):
        precision = int(schema.get("precision", _MOST_DIGITS + 1))
        return f"decimal({precision},{int(schema.get('scale', 0))})" if precision <= _MOST_DIGITS else "string"
    if kind in ("timestamp", "local-timestamp") and type_ == "long" and unit in _UNITS:
        return kind.replace("-", "_") + _UNITS[unit]
    return _AVRO_LOGICAL.get((type_, logical))


# --- Protobuf


def protobuf_types(message: Any) -> Types:
    """Takes a message's descriptor."""
    return _flat(protobuf_type(message))


def protobuf_type(message: Any, inside: tuple[str, ...] = ()) -> Type:
    """Takes a message's descriptor; `inside` are the messages around it."""
    if message.full_name in inside:
        return "json"
    return {field.name: _field_type(field, (*inside, message.full_name)) for field in message.fields}


def _field_type(field: Any, inside: tuple[str, ...]) -> Type:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return "map", _value_type(inner.fields_by_name["value"], inside)
    return ("array", _value_type(field, inside)) if field.is_repeated else _value_type(field, inside)


def _value_type(field: Any, inside: tuple[str, ...]) -> Type:
    inner = field.message_type
    numbers = {
        field.CPPTYPE_INT32: "int32", field.CPPTYPE_INT64: "int64", field.CPPTYPE_UINT32: "uint32",
        field.CPPTYPE_UINT64: "uint64", field.CPPTYPE_DOUBLE: "double", field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_BOOL: "bool",
    }  # fmt: skip
    if inner is None:
        return "base64" if field.type == field.TYPE_BYTES else numbers.get(field.cpp_type, "string")
    if inner.full_name == "google.protobuf.Timestamp":
        return "timestamp_ns"
    if inner.full_name in ("google.protobuf.Duration", "google.protobuf.FieldMask"):
        return "string"
    if inner.file.name == "google/protobuf/wrappers.proto":
        return _value_type(inner.fields_by_name["value"], inside)
    return "json" if inner.full_name.startswith("google.protobuf.") else protobuf_type(inner, inside)


# --- JSON Schema


def json_schema_types(schema: Any, steps: tuple[str, ...] = ()) -> Types:
    """Takes what a schema's properties say themselves, without the schemas that they refer to."""
    found: Types = {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, one in properties.items() if isinstance(properties, dict) else ():
        type_ = one.get("type") if isinstance(one, dict) else None
        kinds = [kind for kind in (type_ if isinstance(type_, list) else [type_]) if kind != "null"]
        if kinds == ["object"]:
            found |= json_schema_types(one, (*steps, name))
        elif len(kinds) == 1 and kinds[0] in _JSON_SCHEMA:
            is_date = kinds[0] == "string" and one.get("format") == "date"
            found[*steps, name] = "date" if is_date else _JSON_SCHEMA[kinds[0]]
    return found
