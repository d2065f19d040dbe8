"""Avro's data as JSON: held against fastavro's own reading, and Avro's specification."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from core.client.schemas.avro_json import AvroJson, CutOffError
from core.records.side_format import SchemaJson
from tests.support.for_each import for_each

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
BIG_DECIMAL = {"type": "bytes", "logicalType": "big-decimal"}


def avro(schema: Any) -> AvroJson:
    return AvroJson(schema, {})


def read_by_fastavro(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)


A, B = {"street": "a"}, {"street": "b"}
WHOLE = {
    "billing": A, "shipping": B, "colour": "RED", "old": None, "size": 1 << 40, "tags": {"k": ["BLUE"]},
    "next": {"billing": B, "shipping": None, "colour": None, "old": "RED", "size": 0, "next": None, "tags": {}},
}  # fmt: skip
NEXT = {"billing": B, "old": {"shop.Colour": "RED"}}


@pytest.mark.parametrize(
    "text",
    [
        {**WHOLE, "next": NEXT},
        {**WHOLE, "shipping": {"shop.Address": B}, "next": {"shop.Order": NEXT}},
        {**WHOLE, "colour": {"Colour": "RED"}, "next": {"Order": {"billing": B, "old": {"string": "RED"}}}},
    ],
)
def test_named_types_are_written_wherever_they_stand(text: Any) -> None:
    made = avro(ORDER)
    data = made.encode(json.dumps(text).encode())
    assert read_by_fastavro(ORDER, data) == WHOLE
    assert made.encode(made.decode(data)) == data, "what is shown can be written again, to the same bytes"


@pytest.mark.parametrize(
    "size",
    [{"int": 5}, {"long": 5}, {"float": 5.0}, {"double": 5.0}, {"long": 1 << 40}, {"float": 3.4028234663852886e38}],
)
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
        (BIG_DECIMAL, b"[1]", "[1], expected a decimal, as a number or its bytes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(schema: Any, text: bytes, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        avro(schema).encode(text)
    assert problem in str(raised.value)


def test_a_datum_that_is_cut_is_told_from_one_that_is_wrong() -> None:
    made = avro(ORDER)
    data = made.encode(json.dumps({**WHOLE, "next": NEXT}).encode())
    for end in range(len(data)):
        with pytest.raises(CutOffError):
            made.decode(data[:end])
    with pytest.raises(ValueError) as raised:
        made.decode(data[:2] + b"\x7e" + data[3:])  # no such branch
    assert not isinstance(raised.value, CutOffError)


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


PLAIN, TAGGED = SchemaJson.plain, SchemaJson.tagged
VECTORS = json.loads((Path(__file__).parent / "avro_vectors.json").read_text())
"""Inputs of strangers, with where they were found; the plain form by a reader of Avro's specification of its own."""


@for_each("vector", VECTORS["shown"])
def test_what_strangers_have_is_shown_as_they_think_of_it(vector: dict[str, str]) -> None:
    made, data = avro(json.loads(vector["schema"])), bytes.fromhex(vector["datum"])
    shown = made.decode(data, PLAIN).decode()
    assert shown == vector["plain"], vector
    assert made.encode(made.decode(data), TAGGED) == made.encode(made.decode(data)) == data, vector
    for form in (PLAIN, None):
        if "back" in vector:
            with pytest.raises(ValueError, match=vector["back"]):
                made.encode(shown.encode(), form)
        else:
            assert made.encode(shown.encode(), form) == data, vector


@for_each("vector", VECTORS["written"])
def test_what_strangers_type_is_written_or_refused(vector: dict[str, str]) -> None:
    made, text = avro(json.loads(vector["schema"])), vector["text"].encode()
    if "datum" in vector:
        assert made.encode(text, PLAIN) == made.encode(text) == bytes.fromhex(vector["datum"]), vector
        return
    with pytest.raises(ValueError) as raised:
        made.encode(text, PLAIN)
    assert vector["refused"] in str(raised.value), vector
    if "unless_tagged" in vector:
        assert made.encode(text) == made.encode(text, TAGGED) == bytes.fromhex(vector["unless_tagged"]), vector


def of(name: str, type_: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": type_}]}


@for_each(
    "schema, text, problem",
    [
        ([of("A", ["int", "long"]), {"type": "map", "values": "int"}], b'{"x": 5}', "it fits A and map"),
        ({"type": "array", "items": of("A", ["int", "long"])}, b'[{"x": 6000000000}, {"x": 5}]', "[1].x: it fits int"),
        (["null", {"type": "map", "values": "string"}, "string"], b'{"string": "x"}', "it fits string, which it names"),
        ([{"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}], b'"P0M0DT0.000S"', "12 bytes"),
        ([{"type": "int", "logicalType": "date"}, "long"], b"2147483647", "it fits int and long"),
    ],
)
def test_input_of_two_readings_is_refused(schema: Any, text: bytes, problem: str) -> None:
    """In the first, the branch that fits is in doubt itself; in the third, a tag may be the key of a map."""
    with pytest.raises(ValueError) as raised:
        avro(schema).encode(text)
    assert problem in str(raised.value)


@for_each(
    "schema, text, problem",
    [
        (["null", "string"], b'"x"', 'expected one of null, string, named as in {"int": 5}'),
        (["null", "string"], b'{"string": 5}', "string: 5, expected string"),
        ({"type": "int", "logicalType": "date"}, b'"2024-08-13"', "expected int"),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
         b'"123e4567-e89b-12d3-a456-426614174000"', "36 bytes, expected 16"),
        (BIG_DECIMAL, b"1.5", "1.5, expected a decimal, as a number or its bytes"),
    ],
)  # fmt: skip
def test_tagged_input_has_tags(schema: Any, text: bytes, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        avro(schema).encode(text, TAGGED)
    assert problem in str(raised.value)


def test_defaults_of_unions_are_of_the_first_branch_that_fits() -> None:
    size = {"name": "x", "type": ["int", "long"], "default": 7}
    when = {"name": "y", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}, "default": "\u0001\u0000"}
    assert avro({"type": "record", "name": "A", "fields": [size, when]}).encode(b"{}") == b"\0\x0e\4\1\0"


@for_each("data", [b"\0", b"\4\0\5", b"\4\xff\x80"])
def test_decimals_with_more_bytes_than_they_need_are_exact(data: bytes) -> None:
    """No byte at all, and two where one does, which fastavro writes for -128."""
    made = avro(MONEY)
    assert made.encode(made.decode(data)) == made.encode(made.decode(data), TAGGED) == data
    assert made.decode(data, PLAIN) == made.decode(made.encode(made.decode(data, PLAIN), PLAIN), PLAIN)


def test_unions_in_one_another_take_no_exponential_time() -> None:
    """Each level fits two records, and each of these is tried at each level above."""
    schema = of("A", ["null", "A", of("B", ["null", "A", "B"])])
    with pytest.raises(ValueError, match="it fits A and B"):
        avro(schema).encode(b'{"x": ' * 60 + b"null" + b"}" * 60)


def linked(inner: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": inner}]}


@pytest.mark.parametrize(
    ("inner", "level"),
    [
        ("R", b"\2"),
        (["null", "R"], b"\2"),
        ({"type": "array", "items": "R"}, b"\2"),
        ({"type": "array", "items": "R"}, b"\1\2"),
        ({"type": "map", "values": "R"}, b"\2\2k"),
    ],
)
def test_endless_levels_do_not_overflow_the_stack(inner: Any, level: bytes) -> None:
    with pytest.raises(RecursionError):
        avro(linked(inner)).decode(level * 1_000_000)


def test_a_list_of_300_nodes_is_read() -> None:
    data = b"\2" * 299 + b"\0"
    assert avro(linked(["null", "R"])).decode(data, SchemaJson.plain) == b'{"a": ' * 300 + b"null" + b"}" * 300


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_items_that_take_no_bytes_do_not_fill_the_memory(items: Any) -> None:
    array = avro({"type": "array", "items": items})
    assert len(json.loads(array.decode(b"\xd0\x0f\0"))) == 1000
    with pytest.raises(ValueError, match="take no bytes"):
        array.decode(b"\x80\x80\x80\x80\x80\x40\0")  # 2**40 of them


@pytest.mark.parametrize("data", [b"\2", b"\2\xff", b"\2" + b"\xff" * 12, b"\2\1k", b"\4", b"\1", b"\1\3", b"\2\7"])
def test_wrong_bytes_of_a_type_inside_itself_are_no_datum(data: bytes) -> None:
    schema = linked({"type": "map", "values": ["null", "R", "string"]})
    with pytest.raises(ValueError):
        avro(schema).decode(data)
