"""The types of a schema's fields, as columns have them (core/pipeline/consuming/typed_sink.py), for its plain JSON.

Fields of a nested record are found by the names that lead to them. `json` is what has no columns of its own: arrays,
maps, records in themselves. A field that is missing here has the type that its values show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Types = dict[tuple[str, ...], str]

_MOST_DIGITS = 38
"""A decimal of more is text, as few readers of Parquet take it."""
_AVRO = {
    "boolean": "bool", "int": "int32", "long": "int64", "float": "float", "double": "double", "string": "string",
    "enum": "string", "bytes": "latin1", "fixed": "latin1", "array": "json", "map": "json",
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


# --- Avro


def avro_types(schema: Any, named: Mapping[str, Any]) -> Types:
    """Takes a schema that fastavro has parsed."""
    found: Types = {}
    _add_avro(found, schema, named, (), ())
    found.pop((), None)
    return found


def _add_avro(
    found: Types, schema: Any, named: Mapping[str, Any], steps: tuple[str, ...], inside: tuple[str, ...]
) -> None:
    """Adds what is at `steps`; `inside` are the records around it."""
    if isinstance(schema, str) and schema not in _AVRO:
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:
            _add_avro(found, branches[0], named, steps, inside)
        elif branches:
            texts = ("bool", "int32", "int64", "float", "double", "string")
            is_text = all(isinstance(branch, str) and _AVRO.get(branch) in texts for branch in branches)
            found[steps] = "string" if is_text else "json"
        return
    if isinstance(schema, str):
        found[steps] = _AVRO.get(schema, "json")
        return
    type_ = schema["type"]
    if type_ not in ("record", "error"):
        found[steps] = _avro_logical(type_, schema) or _AVRO.get(type_, "json")
    elif schema["name"] in inside:
        found[steps] = "json"
    else:
        for field in schema["fields"]:
            _add_avro(found, field["type"], named, (*steps, field["name"]), (*inside, schema["name"]))


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
    found: Types = {}
    _add_message(found, message, (), ())
    return found


def _add_message(found: Types, message: Any, steps: tuple[str, ...], inside: tuple[str, ...]) -> None:
    for field in message.fields:
        _add_field(found, field, (*steps, field.name), (*inside, message.full_name))


def _add_field(found: Types, field: Any, steps: tuple[str, ...], inside: tuple[str, ...]) -> None:
    inner = field.message_type
    numbers = {
        field.CPPTYPE_INT32: "int32", field.CPPTYPE_INT64: "int64", field.CPPTYPE_UINT32: "uint32",
        field.CPPTYPE_UINT64: "uint64", field.CPPTYPE_DOUBLE: "double", field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_BOOL: "bool",
    }  # fmt: skip
    if field.is_repeated:
        found[steps] = "json"
    elif inner is None:
        found[steps] = "base64" if field.type == field.TYPE_BYTES else numbers.get(field.cpp_type, "string")
    elif inner.full_name == "google.protobuf.Timestamp":
        found[steps] = "timestamp_ns"
    elif inner.full_name in ("google.protobuf.Duration", "google.protobuf.FieldMask"):
        found[steps] = "string"
    elif inner.file.name == "google/protobuf/wrappers.proto":
        _add_field(found, inner.fields_by_name["value"], steps, inside)
    elif inner.full_name.startswith("google.protobuf.") or inner.full_name in inside:
        found[steps] = "json"
    else:
        _add_message(found, inner, steps, inside)


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
