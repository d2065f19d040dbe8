"""Filters: each expression held against the same question asked of every record by itself, in plain Python."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import UsageError
from core.common.time_text import parse_iso_time
from core.common.topic_partition import TopicPartition
from core.records import record_filter
from core.records.byte_strings import ByteStrings
from core.records.columns import decode_columns
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from core.records.record_filter import Rows, ensure_pattern, grep, parse_filter
from tests.support.for_each import for_each

T1 = TopicPartition("flights", 1)
START = parse_iso_time("2013-01-01")
VALUES = [
    b'{"carrier": "UA", "delay": 5, "legs": [{"to": "IAH"}, {"to": "SFO"}], "late": true}',
    b'{"carrier": "U\\u0041", "delay": 5.0, "legs": [], "late": false}',
    b'{"carrier": "AA", "delay": -3, "note": "UA", "odd name": 1}',
    b'{"carrier": null, "delay": "5"}',
    b'["UA"]',
    b"UA, but no JSON",
    b"\xff\xfe\x00",
    b"",
    None,
    b'{"caf\xc3\xa9": "\xc3\xa9", "carrier": "caf\xc3\xa9"}',
]
KEYS = [b"k1", None, b"", b"k2", b"\xff", b"k10", b'{"id": 7}', b"k1", b"K1", b"x"]
HEADERS: list[tuple[tuple[bytes, bytes | None], ...]] = [
    ((b"trace", b"abc"), (b"trace", b"xyz")), (), ((b"trace", None),), ((b"odd name", b"1"),), ((b"trace", b"xyz"),),
    (), (), ((b"other", b"abc"), (b"trace", b"")), (), (),
]  # fmt: skip
RECORDS = [
    Record(number, START + number * 3_600_000, key, value, headers)
    for number, (key, value, headers) in enumerate(zip(KEYS, VALUES, HEADERS, strict=True))
]
BATCHES = [
    RecordBatch(memoryview(bytearray(batch_of(records, base_offset=base, partition_leader_epoch=base))))
    for base, records in ((0, RECORDS[:4]), (4, [r._replace(offset=r.offset - 4) for r in RECORDS[4:]]))
]


def parsed(text: bytes | None) -> Any:
    try:
        return json.loads(text or b"")
    except ValueError:
        return None


def field(record: Record, name: str) -> Any:
    value = parsed(record.value)
    return value.get(name) if isinstance(value, dict) else None


def headers(record: Record, name: bytes) -> list[bytes | None]:
    return [value for key, value in record.headers if key == name]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


CASES: dict[str, Callable[[Record], bool]] = {
    "offset >= 3 and offset < 6": lambda r: 3 <= r.offset < 6,
    "offset != 4": lambda r: r.offset != 4,
    "partition == 1": lambda r: True,
    "partition == 2 or topic == 'flights'": lambda r: True,
    'topic ~ "^fl.*s$" and leader_epoch == 4': lambda r: r.offset >= 4,
    "producer_id == -1 and producer_epoch <= -1": lambda r: True,
    'timestamp > "2013-01-01T04:00:00Z"': lambda r: r.timestamp > START + 4 * 3_600_000,
    f"timestamp <= {START}": lambda r: r.timestamp <= START,
    'key == "k1"': lambda r: r.key == b"k1",
    'key != "k1"': lambda r: r.key != b"k1",
    'key == x"ff"': lambda r: r.key == b"\xff",
    'key == ""': lambda r: r.key == b"",
    "key is null": lambda r: r.key is None,
    "key is not null and value is null": lambda r: r.key is not None and r.value is None,
    "key == null": lambda r: r.key is None,
    'key < "k2" and key >= "k"': lambda r: r.key is not None and b"k" <= r.key < b"k2",
    'key ~ "^k[0-9]$"': lambda r: bool(re.search(b"^k[0-9]$", r.key or b"")),
    'key !~ "(?i)^k"': lambda r: not re.search(b"(?i)^k", r.key or b""),
    'value contains "UA"': lambda r: b"UA" in (r.value or b""),
    'value contains x"fe00"': lambda r: b"\xfe\x00" in (r.value or b""),
    'header.trace == "xyz"': lambda r: b"xyz" in headers(r, b"trace"),
    'header.trace != "xyz"': lambda r: b"xyz" not in headers(r, b"trace"),
    "header.trace is null": lambda r: not any(v is not None for v in headers(r, b"trace")),
    'header["odd name"] == "1"': lambda r: b"1" in headers(r, b"odd name"),
    'header.trace ~ "b|z"': lambda r: any(re.search(b"b|z", v or b"") for v in headers(r, b"trace")),
    'value.carrier == "UA"': lambda r: field(r, "carrier") == "UA",
    '.carrier == "UA"': lambda r: field(r, "carrier") == "UA",
    '.carrier != "UA"': lambda r: field(r, "carrier") != "UA",
    '.carrier ~ "^.A$"': lambda r: bool(re.search("^.A$", str(field(r, "carrier")))),
    '.carrier contains "A"': lambda r: "A" in (field(r, "carrier") or ""),
    '.carrier == "café"': lambda r: field(r, "carrier") == "café",
    '.carrier < "V"': lambda r: (field(r, "carrier") or "z") < "V",
    ".trägér is null": lambda r: field(r, "trägér") is None,
    ".carrier is null": lambda r: field(r, "carrier") is None,
    ".delay == 5": lambda r: is_number(field(r, "delay")) and field(r, "delay") == 5,
    ".delay >= -3.5": lambda r: is_number(field(r, "delay")) and field(r, "delay") >= -3.5,
    ".late == true": lambda r: field(r, "late") is True,
    ".late != true": lambda r: field(r, "late") is not True,
    '.legs[1].to == "SFO" or .legs[-1].to == "IAH"': lambda r: r.offset == 0,
    'value["odd name"] == 1': lambda r: field(r, "odd name") == 1,
    'value[0] == "UA"': lambda r: parsed(r.value) == ["UA"],
    "key.id == 7": lambda r: isinstance(parsed(r.key), dict) and parsed(r.key).get("id") == 7,
    'not (key == "k1" or offset > 5) and not value is null': lambda r: r.key != b"k1" and r.offset <= 5,
    'offset > 5 and key == "k1" or offset == 0': lambda r: (r.offset > 5 and r.key == b"k1") or r.offset == 0,
}


def test_what_passes_each_filter() -> None:
    rows = Rows(T1, decode_columns(BATCHES))
    passes = {text: parse_filter(text, 0)(rows).tolist() for text in CASES}
    assert passes == {text: [expected(record) for record in RECORDS] for text, expected in CASES.items()}


def test_grep() -> None:
    rows = Rows(T1, decode_columns(BATCHES))
    assert np.flatnonzero(grep("UA|JSON|é")(rows)).tolist() == [0, 2, 4, 5, 9]
    with pytest.raises(UsageError, match="no regular expression: missing"):
        grep("(")


@for_each(
    "text, problem",
    [
        ("", "expected a field"),
        ("key", "expected one of =="),
        ("key ==", "at its end: expected a"),
        ("nosuch == 1", "no field nosuch: expected partition, offset"),
        ("header.h == 5", "headers and topics are bytes"),
        ('offset == "x"', "expected a number"),
        ('timestamp > "nonsense"', "expected a number or a time"),
        ("offset > null", "null is only equal"),
        ('key ~ "("', "no regular expression"),
        ("key ~ 5", "expected a text after ~"),
        ('key == x"abc"', "bytes have two digits each"),
        ('.a == x"00"', "JSON holds no bytes"),
        ("(offset > 1", "expected )"),
        ("offset > 1 offset", "at 'offset': expected and, or"),
        ("header == 1", "expected header.NAME"),
        ("offset > 1 and #", "at '#': no part of an expression begins like that"),
        ("key is nothing", "expected null"),
    ],
)
def test_what_is_no_expression(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text, 0)
    assert problem in caught.value.message


@pytest.mark.parametrize("text", ["key = 1", "key =~ 'a'", "key == 1 && key == 2", "key == 1 AND key == 2"])
def test_signs_of_other_languages_are_told(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text, 0)
    assert caught.value.hint is not None and caught.value.hint.startswith("write ")


PIECES = [
    "a", "é", ".", "x*", "[^a]", "^", "$", r"\b", r"\z", "|", "(", ")", "(?i)", r"\xe9", r"\pL", "+", "[[:alpha:]]",
    r"\C",
]  # fmt: skip
TEXTS = st.none() | st.text("aéAx \n", max_size=5).map(str.encode) | st.binary(max_size=3)


@given(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), st.lists(TEXTS, min_size=1, max_size=5))
def test_with_pyarrow_and_without_the_same_is_found(pattern: str, texts: list[bytes | None]) -> None:
    """Both have RE2."""
    strings = ByteStrings.of_list(texts)
    try:
        expected = record_filter._search(strings, pattern)
    except pa.ArrowInvalid as error:
        with pytest.raises(UsageError, match=re.escape(str(error).removeprefix("Invalid regular expression: "))):
            ensure_pattern(pattern, "it")
    else:
        assert record_filter._search_each(strings, pattern).tolist() == expected.tolist()


def test_grep_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    test_grep()
    test_what_passes_each_filter()
