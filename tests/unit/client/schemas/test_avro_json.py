"""Avro's data as JSON: held against fastavro's own reading, and Avro's specification."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from core.client.schemas.avro_json import AvroJson, CutOffError

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}]}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "billing", "type": ADDRESS},
        {"name": "shipping", "type": ["null", "Address"], "default": None},
        {"name": "colour", "type": ["null", COLOUR], "default": None},
        {"name": "old", "type": ["null", "Colour", "string"], "default": None},
        {"name": "size", "type": ["int", "long", "float", "double"], "default": 0},
        {"name": "next", "type": ["null", "Order"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "Colour"}}, "default": {}},
    ],
}  # fmt: skip
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}


def avro(schema: Any) -> AvroJson:
    return AvroJson(schema, {})


def read_by_fastavro(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)


A, B = {"street": "a"}, {"street": "b"}
WHOLE = {
    "billing": A, "shipping": B, "colour": "RED", "old": None, "size": 5, "tags": {"k": ["BLUE"]},
    "next": {"billing": B, "shipping": None, "colour": None, "old": "RED", "size": 0, "next": None, "tags": {}},
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        {
            **WHOLE,
            "shipping": {"shop.Address": B},
            "next": {"shop.Order": {"billing": B, "old": {"shop.Colour": "RED"}}},
        },
        {**WHOLE, "colour": {"Colour": "RED"}, "next": {"Order": {"billing": B, "old": {"string": "RED"}}}},
    ],
)
def test_named_types_are_written_wherever_they_stand(text: Any) -> None:
    made = avro(ORDER)
    data = made.encode(json.dumps(text).encode())
    assert read_by_fastavro(ORDER, data) == WHOLE
    assert made.encode(made.decode(data)) == data, "what is shown can be written again, to the same bytes"


@pytest.mark.parametrize("size", [{"int": 5}, {"long": 5}, {"float": 5.0}, {"double": 5.0}, {"long": 1 << 40}])
def test_the_branch_of_a_number_is_kept(size: Any) -> None:
    data = avro(ORDER).encode(json.dumps({"billing": A, "size": size}).encode())
    assert json.loads(avro(ORDER).decode(data))["size"] == size


@pytest.mark.parametrize(
    ("schema", "text", "stored"),
    [
        (MONEY, b"12.34", "12.34"), (MONEY, b'"12.34"', "12.34"), (MONEY, b"12.3", "12.30"), (MONEY, b"-1.28", "-1.28"),
        (MONEY, b"1e2", "100.00"), (MONEY, b"0", "0.00"), (FIXED, b'"-9999.99"', "-9999.99"),
        (["null", MONEY], b"12.34", "12.34"), (["null", MONEY], b'{"bytes": "12.34"}', "12.34"),
    ],
)  # fmt: skip
def test_a_decimal_is_what_it_says(schema: Any, text: bytes, stored: str) -> None:
    data = avro(schema).encode(text)
    assert read_by_fastavro(schema, data) == Decimal(stored)
    shown = avro(schema).decode(data).decode()
    assert shown in (stored, f'{{"bytes": {stored}}}')
    assert avro(schema).encode(shown.encode()) == data


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        (MONEY, b'"12,34"', "expected a decimal"), (MONEY, b"12.345", "2 digits"), (MONEY, b"12345.67", "6 digits"),
        (MONEY, b"1e999999999", "6 digits"), (MONEY, b"NaN", "expected a decimal"), (MONEY, b'"1234"x', "not JSON"),
        (ORDER, b'{"billing": {"street": "a", "nr": 1}}', "billing: shop.Address has no field 'nr'"),
        (ORDER, b'{"billing": {"street": "a"}, "shiping": null}', "shop.Order has no field 'shiping'"),
        (ORDER, b'{"billing": {"street": "a"}, "tags": {"k": ["PINK"]}}', "tags.k[0]: \"PINK\", expected one of RED"),
        (ORDER, b'{"billing": {}}', "billing.street: it is missing"),
        ("int", b"2147483648", "too large for int"), ("int", b"5.5", "expected int"), ("int", b"true", "expected int"),
        ("float", b"1e39", "too large for float"), ("double", b"1e400", "too large for double"),
        ("double", b'"nan"', '"nan", expected double'),
        ("bytes", b'"\\u0100"', "U+00FF"), ("string", b'"\\ud800"', "a surrogate"),
        ({"type": "fixed", "name": "F", "size": 2}, b'"abc"', "3 bytes, expected 2"),
        ([A_ := {"type": "record", "name": "A", "fields": [{"name": "v", "type": "int"}]}, {**A_, "name": "B"}],
         b'{"v": 1}', "it fits A and B"),
        (["null", "int"], b'"x"', "expected one of null, int"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(schema: Any, text: bytes, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        avro(schema).encode(text)
    assert problem in str(raised.value)


def test_a_datum_that_is_cut_is_told_from_one_that_is_wrong() -> None:
    made = avro(ORDER)
    data = made.encode(json.dumps(WHOLE).encode())
    for end in range(len(data)):
        with pytest.raises(CutOffError):
            made.decode(data[:end])
    with pytest.raises(ValueError) as raised:
        made.decode(data[:2] + b"\x7e" + data[3:])  # no such branch
    assert not isinstance(raised.value, CutOffError)


def test_times_beyond_python_are_shown() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    assert avro(schema).decode(avro(schema).encode(b"9223372036854775807")) == b"9223372036854775807"


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_floats_that_are_no_numbers_are_texts(name: str) -> None:
    """Bare names are no JSON; they are taken still."""
    schema = ["null", "double", {"type": "array", "items": {"type": "map", "values": "float"}}]
    for datum in (float(name), [{"a": float(name)}]):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
        shown = avro(schema).decode(out.getvalue())
        assert json.loads(shown) in ({"double": name}, {"array": [{"a": name}]})
        assert avro(schema).encode(shown) == avro(schema).encode(shown.replace(b'"%b"' % name.encode(), name.encode()))
        assert avro(schema).encode(shown) == out.getvalue()
