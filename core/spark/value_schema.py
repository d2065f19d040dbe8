"""The columns of values: Spark's types of Avro, Protobuf and JSON Schema, or those that JSON shows.

They are for the plain JSON of a value (`SchemaJson.plain`), as Spark's from_json reads it. A type is Spark's word,
(ARRAY, type), (MAP, type), or a dict of fields. VOID is what only null was seen of, and becomes STRING.

    Avro      null or X: X; int and long: BIGINT; float and double: DOUBLE; other unions: STRING, with JSON in it
              timestamp-*: TIMESTAMP, local-*: TIMESTAMP_NTZ, decimal(p <= 38, s): DECIMAL; time, uuid, duration,
              big-decimal: STRING; bytes and fixed: STRING whose characters are the bytes
    Protobuf  uint32: BIGINT, uint64: DECIMAL(20,0), bytes: BINARY, enum: STRING, Timestamp: TIMESTAMP, wrappers:
              what is in them; Duration, FieldMask, Struct, Value, Any: STRING, with JSON in it
    JSON      whole numbers: BIGINT (to 38 digits: DECIMAL(38,0)), others: DOUBLE; of several kinds: STRING, with JSON

A record that contains itself, and one without fields, is a STRING with its JSON.

What only the values show (the schemas that they name, the fields of JSON) comes from a sample: the first and the last
records of parts of the log that are spread over all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from core.client.schemas.field_types import avro_type, protobuf_type
from core.client.schemas.schema_registry import Packed, unpack_protobuf
from core.common.errors import UsageError
from core.common.lenient_json import read_json
from core.records.side_format import SchemaJson, SideFormat
from core.spark.offset_range import OffsetRange, read_columns
from core.spark.value_decoding import REASON, Decoding, ValueDecoder

ARRAY, MAP = "ARRAY", "MAP"
VOID = "VOID"

Type = str | tuple[str, Any] | dict[str, Any]

_MOST_DIGITS = 38
_WORDS = {
    "null": VOID, "bool": "BOOLEAN", "int32": "INT", "int64": "BIGINT", "uint32": "BIGINT", "uint64": "DECIMAL(20,0)",
    "float": "FLOAT", "double": "DOUBLE", "date": "DATE", "base64": "BINARY", "timestamp": "TIMESTAMP",
    "local_timestamp": "TIMESTAMP_NTZ",
}  # fmt: skip
"""What `field_types` calls a type, without its unit; all others are STRING."""
_WIDER = {
    frozenset({"INT", "BIGINT"}): "BIGINT",
    frozenset({"FLOAT", "DOUBLE"}): "DOUBLE",
    frozenset({"BIGINT", "DOUBLE"}): "DOUBLE",
    frozenset({"BIGINT", "DECIMAL(38,0)"}): "DECIMAL(38,0)",
}
_LONG = 1 << 63
_JSON_FORMATS = (SideFormat.json, SideFormat.msgpack, SideFormat.cbor)


def ddl(fields: Mapping[str, Any]) -> str:
    """Returns the fields in Spark's words."""
    return ", ".join(f"{_quoted(name)} {_text(type_)}" for name, type_ in fields.items())


def _text(type_: Type) -> str:
    if isinstance(type_, dict):
        inner = ", ".join(f"{_quoted(name)}: {_text(one)}" for name, one in type_.items())
        return f"STRUCT<{inner}>" if type_ else "STRING"
    if isinstance(type_, tuple):
        return f"ARRAY<{_text(type_[1])}>" if type_[0] == ARRAY else f"MAP<STRING, {_text(type_[1])}>"
    return "STRING" if type_ == VOID else type_


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def merged(types: Iterable[Type]) -> Type:
    """Returns a type that holds the values of all types; STRING, with JSON in it, if there is no better one."""
    found: Type = VOID
    for type_ in types:
        found = _merge(found, type_)
    return found


def _merge(a: Type, b: Type) -> Type:
    if a == b or b == VOID:
        return a
    if a == VOID:
        return b
    if isinstance(a, dict) and isinstance(b, dict):
        return {name: _merge(a.get(name, VOID), b.get(name, VOID)) for name in {**a, **b}}
    if isinstance(a, tuple) and isinstance(b, tuple) and a[0] == b[0]:
        return a[0], _merge(a[1], b[1])
    return _WIDER.get(frozenset({a, b}), "STRING") if isinstance(a, str) and isinstance(b, str) else "STRING"


# --- of the records to come

_MOST_RANGES = 24
_MOST_VALUES = 200
"""Of each end of a part of the log."""


def derive_schema(decoding: Decoding, ranges: Sequence[OffsetRange], *, given: str = "") -> tuple[str, Decoding]:
    """Returns the columns of the values in Spark's words, `given` or derived, "" if there are none; and the decoding
    with the schemas that the values name. Raises what `ValueDecoder` and `read_columns` raise, and UsageError for
    values of JSON that have no fields, and if none decodes.
    """
    formats = decoding.formats
    type_: Type = VOID
    format_ = formats.find("value")
    decoding = decoding.with_named_schemas()
    if "value" in decoding.packed:
        type_ = type_of_schema(decoding.packed["value"])
    elif format_ in (SideFormat.registry, *_JSON_FORMATS) and not (given and format_ is not SideFormat.registry):
        decoder = ValueDecoder(replace(decoding, has_reasons=True, is_exact=True))
        texts, problem = _sample(decoder, ranges)
        if problem and not texts:
            raise UsageError(
                f"--value-format {format_}: no value of a sample decodes: {problem}",
                hint="--value-format binary writes the bytes as they are",
            )
        if decoder.registry is not None:
            known = decoder.registry.pack_known()
            decoding = replace(decoding, packed={**decoding.packed, "registry": known})
            type_ = merged(map(type_of_schema, known.values()))
        else:
            type_ = merged(type_of_json(read_json(text)) for text in texts)
            if texts and not isinstance(type_, dict):
                raise UsageError(
                    f"--value-format {format_}: the values have no fields in common that could become columns",
                    hint="--value-format string writes them as they are; --schema names fields",
                )
    is_plain = formats.schema_json is not SchemaJson.tagged
    derived = ddl(type_) if isinstance(type_, dict) and type_ and is_plain else ""
    return given or derived, replace(decoding, is_exact=not given and bool(derived))


def _sample(decoder: ValueDecoder, ranges: Sequence[OffsetRange]) -> tuple[list[str], str]:
    """Returns the values that decode, and the place and the reason of the first that does not, or ""."""
    texts: list[str] = []
    problem = ""
    count = min(len(ranges), _MOST_RANGES)
    for number in sorted({round(n * (len(ranges) - 1) / max(count - 1, 1)) for n in range(count)}):
        records = next(read_columns(ranges[number]), None)
        if records is None:
            continue
        rows = np.arange(len(records))
        some = records.select((rows < _MOST_VALUES) | (rows >= len(records) - _MOST_VALUES))
        partition = ranges[number].topic_partition
        found = decoder.columns(partition, some, ["value", REASON])
        texts += filter(None, found["value"].to_pylist())
        for row, reason in enumerate(found[REASON].to_pylist()):
            problem = problem or (f"{partition} offset {some.offsets[row]}: {reason}" if reason else "")
    return texts, problem


# --- of JSON


def type_of_json(value: Any) -> Type:
    """Returns the type that a parsed value shows."""
    if value is None:
        return VOID
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        is_long = -_LONG <= value < _LONG
        return "BIGINT" if is_long else "DECIMAL(38,0)" if abs(value) < 10**_MOST_DIGITS else "STRING"
    if isinstance(value, dict):
        return {name: type_of_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return ARRAY, merged(map(type_of_json, value))
    return "STRING" if isinstance(value, str) else "DOUBLE"


# --- of a schema


def type_of_schema(packed: Packed) -> Type:
    """Returns the type of a packed schema's values. Raises ValueError for a message that is not there."""
    if packed["type"] == "AVRO":
        return _type_of_avro(packed)
    if packed["type"] == "JSON":
        content = json.loads(packed["text"])
        return _of_json_schema(content, content, ())
    return _in_spark(protobuf_type(unpack_protobuf(packed).descriptor(packed.get("message", ""))))


def _type_of_avro(packed: Packed) -> Type:
    import fastavro

    named: dict[str, Any] = {}

    def parse(one: Packed) -> Any:
        for _, other in one["references"]:
            parse(other)
        return fastavro.parse_schema(json.loads(one["text"]), named_schemas=named)

    return _in_spark(avro_type(parse(packed), named))


def _in_spark(type_: Any) -> Type:
    """Returns the type for one of `field_types`."""
    if isinstance(type_, dict):
        return {name: _in_spark(one) for name, one in type_.items()}
    if isinstance(type_, str):
        return type_.upper() if "(" in type_ else _WORDS.get(re.sub("_[mun]s$", "", type_), "STRING")
    kind, inner = type_
    if kind != "union":
        return kind.upper(), _in_spark(inner)
    found = [_in_spark(branch) for branch in inner[1]]
    is_one_number = {one for one in found if isinstance(one, str)} in ({"INT", "BIGINT"}, {"FLOAT", "DOUBLE"})
    return merged(found) if not found or (is_one_number and len(found) == 2) else "STRING"


_JSON = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "null": VOID}


def _of_json_schema(schema: Any, whole: Any, inside: tuple[str, ...]) -> Type:
    """Takes a part of the `whole`; `inside` are the references that lead to it."""
    if not isinstance(schema, dict):
        return "STRING"
    if isinstance(reference := schema.get("$ref"), str):
        found = _find(reference, whole)
        return "STRING" if found is None or reference in inside else _of_json_schema(found, whole, (*inside, reference))
    branches = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(branches, list):
        found = [_of_json_schema(one, whole, inside) for one in branches]
        found = [one for one in found if one != VOID]
        return found[0] if len(found) == 1 else "STRING"
    kind = schema.get("type", "object" if "properties" in schema else None)
    kinds = [one for one in (kind if isinstance(kind, list) else [kind]) if one != "null"]
    if not kinds and kind == "null":
        return VOID
    if len(kinds) != 1:
        return "STRING"
    if kinds[0] == "array":
        return ARRAY, _of_json_schema(schema.get("items"), whole, inside)
    if kinds[0] != "object":
        is_date = kinds[0] == "string" and schema.get("format") == "date"
        return "DATE" if is_date else _JSON.get(str(kinds[0]), "STRING")
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(properties, dict) and properties:
        return {name: _of_json_schema(one, whole, inside) for name, one in properties.items()}
    return (MAP, _of_json_schema(others, whole, inside)) if isinstance(others, dict) and others else "STRING"


def _find(reference: str, whole: Any) -> Any:
    """Returns the part of the schema to which a reference in it leads, or None."""
    if not reference.startswith("#"):
        return None
    found = whole
    for step in filter(None, reference[1:].split("/")):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
