"""Reading JSON as it is found: everything that json reads, and what neither json nor msgspec does."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common import lenient_json as module
from core.common.lenient_json import compact, indented, member_text, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
DEEP = 10_000
LONG = "7" * 5_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"x": Infinity, "y": [-Infinity]}', {"x": math.inf, "y": [-math.inf]}),
        (b"1e400", math.inf),
        (b'"\\ud800 \\u00e9"', "\ud800 \xe9"),
        (b'"\xed\xa0\x80"', "\ud800"),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ('{"a": "\xe9"}'.encode("utf-16"), {"a": "\xe9"}),
        ('{"a": "\xe9"}'.encode("utf-16-le"), {"a": "\xe9"}),
        (LONG.encode(), Decimal(LONG)),
        (b"-0", 0),
    ],
)
def test_what_programs_write_is_read(text: bytes, expected: Any) -> None:
    assert read_json(text) == expected


def test_nan_is_read() -> None:
    assert math.isnan(read_json(b'{"x": NaN}')["x"])


def test_levels_have_no_limit() -> None:
    value = read_json(b'{"id": 3, "deep": ' + b"[" * DEEP + b'{"a": 5e-1}' + b"]" * DEEP + b"}")
    assert value["id"] == 3
    inner = value["deep"]
    for _ in range(DEEP):
        (inner,) = inner if isinstance(inner, list) else (inner,)
    assert inner == {"a": 0.5}


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"a" 1}', b"01", b"[1,]", b'"a\nb"', b'"\xff"', b"nan", b"[" * DEEP, b"[" * DEEP + b"}", b"1 2"],
)
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_the_slow_reader_and_the_writers_do_as_json_does(value: Any, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    assert module._read_slowly(text, is_exact=False) == value
    assert compact(text) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert indented(text) == json.dumps(value, ensure_ascii=False, indent=2)
    for name, member in value.items() if isinstance(value, dict) else ():
        assert member_text(text, name) == json.dumps(member, ensure_ascii=False, separators=(",", ":"))
    for end in range(0, len(text), 5):
        assert is_read(module._read_slowly, text[:end]) == is_read(lambda cut, is_exact: json.loads(cut), text[:end])


def is_read(read: Any, text: str) -> bool:
    try:
        read(text, is_exact=False)
    except ValueError:
        return False
    return True


def test_numbers_keep_their_text() -> None:
    text = b'{"a": 1.50, "b": {"a": 2}, "c" : [-0, 1E400, 12345678901234567890.10], "a" : 1.0}'
    assert member_text(text, "a") == "1.0", "the last one counts, as it does for json"
    assert member_text(text, "c") == "[-0,1E400,12345678901234567890.10]"
    assert read_json(b"[1.10, 1e2]", is_exact=True) == [Decimal("1.10"), Decimal("1e2")]


@pytest.mark.parametrize("text", [b"[1e99999999999999999999]", b"[1e99999999999999999999, NaN]"])
def test_an_exponent_that_no_decimal_has_is_infinite_or_an_error(text: bytes) -> None:
    assert read_json(text)[0] == math.inf
    with pytest.raises(ValueError, match="1e99999999999999999999 has an exponent"):
        read_json(text, is_exact=True)
