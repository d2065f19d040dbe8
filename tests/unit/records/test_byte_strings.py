"""Lines made a column at a time beside the same made one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from core.records.arrow_strings import strings_from_arrow, strings_to_arrow
from core.records.byte_strings import ByteStrings, Part, digits, join_parts, stitch
from tests.support.for_each import for_each

INT64 = st.integers(-(2**63), 2**63 - 1)


def lines_of(parts: list[Part], rows: int) -> list[bytes]:
    text, ends = join_parts(parts, rows)
    return [bytes(text[start:end]) for start, end in zip([0, *ends.tolist()], ends.tolist(), strict=False)]


@given(st.lists(INT64 | st.integers(-20, 20) | st.integers(0, 10**9), min_size=1, max_size=30))
def test_digits(numbers: list[int]) -> None:
    assert lines_of([digits(np.array(numbers, np.int64))], len(numbers)) == [b"%d" % n for n in numbers]


def test_digits_where_their_count_changes() -> None:
    for power in range(1, 19):
        numbers = [10**power + n for n in range(-2, 3)]
        for some in (numbers, numbers[:2], numbers[2:], [-n for n in numbers], [-1, *numbers]):
            assert lines_of([digits(np.array(some, np.int64))], len(some)) == [b"%d" % n for n in some]


@given(
    st.lists(st.tuples(INT64, st.integers(0, 3), st.none() | st.binary(max_size=5)), min_size=1, max_size=20),
    st.binary(max_size=3),
)
def test_lines_of_parts(rows: list[tuple[int, int, bytes | None]], label: bytes) -> None:
    numbers, small, texts = zip(*rows, strict=True)
    columns: list[Part] = [
        label,
        digits(np.array(numbers, np.int64)),
        b": ",
        digits(np.array(small, np.int64)),
        b"-",
        ByteStrings.of_list(texts),
        ByteStrings.repeat(label, len(rows)),
        b"\n",
    ]
    expected = [b"%s%d: %d-%s%s\n" % (label, n, s, text or b"", label) for n, s, text in rows]
    assert lines_of(columns, len(rows)) == expected


def test_byte_strings_of_a_large_buffer_take_but_their_part_of_it() -> None:
    texts = ByteStrings(bytes(1000) + b"abc" + bytes(1000), np.array([1001, 1000, 0]), np.array([2, 1, -1]))
    assert len(texts.take(np.array([0, 1])).trimmed().buffer) == 3
    assert lines_of([texts, b"."], 3) == [b"bc.", b"a.", b"."]


@for_each("runs", [1, 2, 5, 40, 200])
def test_lines_of_one_length_in_runs(runs: int) -> None:
    """Numbers that get a digit more, texts whose length changes now and then or all the time, nulls among them."""
    rows = 200
    numbers = np.arange(950, 950 + rows)
    lengths = [n * runs // rows for n in range(rows)]
    texts = [None if length % 5 == 3 else b"x" * length for length in lengths]
    expected = [b"%d=%s;" % (number, text or b"") for number, text in zip(numbers.tolist(), texts, strict=True)]
    assert lines_of([digits(numbers), b"=", ByteStrings.of_list(texts), b";"], rows) == expected
    assert lines_of([b"=", digits(numbers), ByteStrings.of_list(texts)], rows) == [
        b"=%d%s" % (number, text or b"") for number, text in zip(numbers.tolist(), texts, strict=True)
    ]


def test_no_lines() -> None:
    assert lines_of([b"a", ByteStrings.of_list([]), digits(np.array([], np.int64))], 0) == []


def test_lines_of_nothing() -> None:
    """A run of nulls alone has no width."""
    assert lines_of([ByteStrings.of_list([None, None, b"x"])], 3) == [b"", b"", b"x"]
    assert lines_of([b"", ByteStrings.of_list([None, None])], 2) == [b"", b""]


@given(st.data(), st.sampled_from([3, 50, 90, 300, 900, 5000]), st.integers(1, 4))
def test_stitched_columns(data: st.DataObject, most: int, width: int) -> None:
    """Pieces of any size, of every size of cells, out of order and overlapping in their buffer."""
    rows = data.draw(st.integers(0, 12))
    buffer = bytes(np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, most + 10, np.uint8))
    columns, expected = [], [b""] * rows
    for _ in range(width):
        bounds = data.draw(st.lists(st.tuples(st.integers(0, 10), st.integers(-1, most)), min_size=rows, max_size=rows))
        positions, lengths = np.array([*bounds, (0, 0)], np.int64)[:-1].T
        columns.append(ByteStrings(buffer, positions, lengths))
        expected = [before + buffer[at : at + max(n, 0)] for before, (at, n) in zip(expected, bounds, strict=True)]
    text, ends = stitch(columns)
    assert bytes(text) == b"".join(expected)
    assert ends.tolist() == np.cumsum([len(one) for one in expected], dtype=int).tolist()


FEW = st.text("ab\n", max_size=8).map(str.encode)


@given(st.lists(st.none() | FEW, max_size=12), FEW, st.integers(0, 12))
def test_what_is_found_in_them(texts: list[bytes | None], wanted: bytes, first: int) -> None:
    strings = ByteStrings.of_list(texts).take(slice(first, None))
    some = texts[first:]
    assert strings.to_pylist() == some
    assert strings_to_arrow(strings).equals(pa.array(some, pa.binary()))
    assert strings_from_arrow(pa.array(texts, pa.binary())[first:]).to_pylist() == some
    assert strings.equal(wanted).tolist() == [text == wanted for text in some]
    assert strings.find(wanted).tolist() == [-1 if text is None else text.find(wanted) for text in some]
