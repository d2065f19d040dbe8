"""What holds of every Avro schema and every value: tagged gives equal bytes; plain gives them, or is refused."""

from __future__ import annotations

import io
import json
from collections import Counter
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.client.schemas.avro_json import AvroJson
from core.records.side_format import SchemaJson
from tests.support.random_avro import RandomAvro

PLAIN, TAGGED = SchemaJson.plain, SchemaJson.tagged
WHICH = "say which with --schema-json tagged"


def exactly(text: bytes) -> Any:
    """JSON with numbers by their digits: 5 is not 5.0."""
    return json.loads(text, parse_float=lambda digits: ("number", digits), parse_constant=pytest.fail)


def digits(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: digits(item) for name, item in value.items()}
    if isinstance(value, list):
        return [digits(item) for item in value]
    return value if isinstance(value, (str, int, type(None))) else Number(value)


class Number:
    """Equal to the text of the same number."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and Decimal(other[1]).as_tuple() == self._value.as_tuple()

    __hash__ = None  # type: ignore[assignment]


def without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_logical(part) for name, part in schema.items() if name != "logicalType"}
    return [without_logical(part) for part in schema] if isinstance(schema, list) else schema


@given(st.integers(0, 2**64))
@settings(print_blob=False)
def test_tagged_is_exact_and_plain_is_never_another_value(seed: int) -> None:
    made = RandomAvro(Random(seed))
    avro, parsed = AvroJson(made.schema, {}), fastavro.parse_schema(without_logical(made.schema))
    for datum in made.data(6):
        stream = io.BytesIO(datum.data)
        fastavro.schemaless_reader(stream, parsed, None)
        assert stream.tell() == len(datum.data), "fastavro reads these bytes so, too"
        tagged, plain = avro.decode(datum.data), avro.decode(datum.data, PLAIN)
        exactly(tagged)
        assert avro.encode(tagged, TAGGED) == datum.data, tagged
        assert digits(datum.plain) == exactly(plain), plain
        for text, form in ((plain, PLAIN), (plain, None), (tagged, None)):
            found = written(avro, text, form)
            assert found in (datum.data, None), (text, form)


def written(avro: AvroJson, text: bytes, form: SchemaJson | None) -> bytes | None:
    try:
        return avro.encode(text, form)
    except ValueError as error:
        if WHICH not in str(error):
            raise
        return None


def test_few_values_are_refused() -> None:
    """What is refused is what has two readings, not more: this counts how often."""
    counts: Counter[str] = Counter()
    for seed in range(100):
        made = RandomAvro(Random(seed))
        avro = AvroJson(made.schema, {})
        for datum in made.data(2):
            counts["plain"] += written(avro, avro.decode(datum.data, PLAIN), PLAIN) is None
            counts["tagged, unsaid"] += written(avro, avro.decode(datum.data), None) is None
    assert (counts["plain"] > 0, counts["plain"] <= 10, counts["tagged, unsaid"] <= 5) == (True, True, True), counts
