"""Templates: what `consume --format` writes by a pattern, `produce --template` reads by it; and what can't be read."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.pipeline import input_lines
from core.pipeline.format_pattern import pattern_formatter
from core.pipeline.input_lines import BadLineError
from core.pipeline.input_template import Template, read_by_template
from core.pipeline.line_parsers import OPEN, Batch
from core.records.columns import decode_columns
from core.records.record import Headers, Record, read_headers
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.for_each import for_each

T3 = TopicPartition("t", 3)
Read = tuple[bytes | None, bytes | None, Headers, int | None, int | None]


def read(text: bytes, pattern: str, tmp_path: Path, chunk: int = 1 << 20) -> list[Read]:
    """(key, value, headers, timestamp, partition) of each record."""
    path = tmp_path / "input"
    path.write_bytes(text)
    with mock.patch.object(input_lines, "_CHUNK_BYTES", chunk):
        batches = list(read_by_template([path], Template(pattern), 0))
    for batch in batches:
        if batch.bad is not None:
            raise batch.bad
    return [record for batch in batches for record in _records(batch)]


def _records(batch: Batch) -> list[Read]:
    rows = batch.rows
    count = len(rows)
    keys = [None] * count if rows.keys is None else rows.keys.to_pylist()
    sections = [None] * count if rows.headers is None else rows.headers.to_pylist()
    numbers = [
        [None] * count if column is None else [None if n == OPEN else n for n in column.tolist()]
        for column in (rows.timestamps, rows.partitions)
    ]
    headers = [() if section is None else read_headers(section, 0)[0] for section in sections]
    return list(zip(keys, rows.values.to_pylist(), headers, *numbers, strict=True))


@for_each(
    "pattern, text, expected",
    [
        ("%s", b"a\nb c\n\n", [(None, b"a"), (None, b"b c"), (None, b"")]),
        (r"%k\t%s\n", b"k\tv\n\t\nk2\ta\tb\n", [(b"k", b"v"), (b"", b""), (b"k2", b"a\tb")]),
        (r"%k=%s\0", b"a=1\0b=2", [(b"a", b"1"), (b"b", b"2")]),
        (r"<%k|%s>\n", b"<a|b>\n<|>\n", [(b"a", b"b"), (b"", b"")]),
        (r"%o %t %k %s\n", b"17 topic key and a value\n", [(b"key", b"and a value")]),
        (r"%k", b"only keys\n", [(b"only keys", None)]),
        (r"%k{hex} %s{base64}\n", b"00ff Zm9v\n", [(b"\x00\xff", b"foo")]),
        (r"%k{json} %s{json}\n", b'null "a\\nb"\n"k" {"base64": "AP8="}\n', [(None, b"a\nb"), (b"k", b"\x00\xff")]),
        (r"%s--%k==\n", b"v--k==\nv2--k2==\n", [(b"k", b"v"), (b"k2", b"v2")]),
        ("%R%s", b"\0\0\0\3a\nb\0\0\0\0\xff\xff\xff\xff", [(None, b"a\nb"), (None, b""), (None, None)]),
        (r"%K{little16}%k%S{big8}%s;", b"\1\0k\2vv;\0\0\xff;", [(b"k", b"vv"), (b"", None)]),
        (r"%K %S\n%k%s\n", b"1 3\nkv\nv\n-1 0\n\n", [(b"k", b"v\nv"), (None, b"")]),
        (r"%S{hex}:%s", b"a:0123456789", [(None, b"0123456789")]),
    ],
)
@for_each("chunk", [1 << 20, 1, 3])
def test_keys_and_values(
    pattern: str, text: bytes, expected: list[tuple[bytes | None, bytes | None]], chunk: int, tmp_path: Path
) -> None:
    assert [record[:2] for record in read(text, pattern, tmp_path, chunk)] == expected


def test_everything_else(tmp_path: Path) -> None:
    text = b"1700000000123 2 a=1,b=,a=x=y v\n-5 0  w\n"
    assert read(text, r"%T %p %h %s\n", tmp_path) == [
        (None, b"v", ((b"a", b"1"), (b"b", b""), (b"a", b"x=y")), 1_700_000_000_123, 2),
        (None, b"w", (), -5, 0),
    ]
    text = b"2013-01-15 10:00:00|n: 1;m: 2;|x\n"
    assert read(text, r"%T{strftime[%Y-%m-%d %H:%M:%S]}|%h{%k: %v;}|%s\n", tmp_path) == [
        (None, b"x", ((b"n", b"1"), (b"m", b"2")), 1_358_244_000_000, None)
    ]
    assert read(struct.pack(">qi", 9, 1) + b"v", r"%T{big64}%S{big32}%s", tmp_path)[0][3] == 9


RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=40),
        st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), max_size=2),
        st.integers(0, 1 << 41),
    ),
    min_size=1,
    max_size=5,
)
ANYTHING = [
    r"%T{big64}%p{big32}%K{big32}%k%S{big32}%s", r"%K %S %T %p\n%k%s\n", r"%k{json}\t%s{json}\t%T\t%p\n",
]  # fmt: skip


@settings(max_examples=settings().max_examples * 2)
@given(pattern=st.sampled_from(ANYTHING), records=RECORDS)
def test_a_pattern_writes_what_a_template_reads(
    pattern: str, tmp_path_factory: pytest.TempPathFactory, records: Sequence[tuple[bytes, bytes, list, int]]
) -> None:
    """Whatever bytes there are, null told from empty."""
    batch = batch_of([Record(n, ms, key, value, ()) for n, (key, value, _, ms) in enumerate(records)])
    columns = decode_columns([RecordBatch(memoryview(bytearray(batch)))])
    text = bytes(pattern_formatter(pattern)(T3, columns, np.arange(len(records)))[0])
    found = read(text, pattern, tmp_path_factory.getbasetemp())
    assert found == [(key, value, (), ms, 3) for key, value, _, ms in records]


@for_each(
    "pattern, text, problem",
    [
        (r"%k\t%s", b"a\tb\nno tab\n", "line 2: no b'\\t'"),
        (r"%k{hex} %s", b"00 a\nzz b\n", "line 2: b'zz' is not hex"),
        (r"%p %s", b"1 a\nx b\n", "line 2: expected a whole number, found b'x'"),
        (r"%p <%k> %s", b"1 <a> b\n2 a> b\n", "line 2: no b' <' after byte 0"),
        (r"<%p> %s", b"<1> a\n2> a\n", "line 2: expected b'<', found b'2'"),
        (r"<%k> %s", b"<a> b\na> b\n", "line 2: expected b'<' first"),
        (r"%h %s", b"a=1 v\nnothing v\n", "line 2: header b'nothing': no b'='"),
        (r"%T{strftime[%Y]} %s", b"2013 a\nsoon b\n", "line 2: b'soon' is no time of %Y"),
        ("%R%s", b"\0\0\0\1a\0\0\0\2b", "record 2: the input ends in the middle of it"),
        ("%R%s", b"\0\0\0\1a\xff\xff\xff\0", "record 2: a length of -256"),
        (r"%S{big8}%s;", b"\1a;\1b,", "record 2: expected b';', found b','"),
        (r"%k{json}\n", b'"a"\n{"a": 1}\n', "line 2: b'{\"a\": 1}': expected a JSON string or null"),
    ],
)
def test_input_that_is_not_so(pattern: str, text: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(BadLineError) as caught:
        read(text, pattern, tmp_path)
    assert caught.value.message.startswith(problem)
    assert caught.value.row == 1


@for_each(
    "pattern, problem",
    [
        ("", "neither a key nor a value"),
        ("%o", "neither a key nor a value"),
        ("%k%s", "nothing says where a field ends"),
        ("%K{big32}%k%s", "nothing says where a field ends"),
        ("%K%k%s;", "nothing says where a field ends"),
        ("%k %k", "has %k twice"),
        ("%q %s", "no token %q"),
        ("%s{upper}", "%s can't be read {upper}"),
        ("%p{base64} %s", "%p can't be read {base64}"),
        ("%h{%k} %s", "%h{%k} can't be read"),
        ("%s{", "has no closing brace"),
    ],
)
def test_templates_that_can_not_be_read_by(pattern: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        Template(pattern)
    assert problem in caught.value.message
