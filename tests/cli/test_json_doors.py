"""JSON as programs write it, asked of every command that reads JSON: they agree on what it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from core.common.errors import UsageError
from core.pipeline import input_lines, json_stream
from core.pipeline.input_lines import BadLineError
from core.pipeline.json_stream import read_csv, read_json_values
from core.pipeline.line_parsers import Batch, json_parser, parse_lines
from tests.cli.conftest import ok
from tests.support.server import call_plog

WILD = [
    b'{"id": 1.50, "x": NaN}',
    b'{"id": 1.50, "x": [1e400, -Infinity]}',
    b'{"id": 1.50, "x": "\\ud800"}',
    b'{"id": 1.50, "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    b'{"id": 1.50, "x": ' + b"7" * 5_000 + b"}",
]


def test_every_command_reads_the_same_json(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *where)
    ok(
        "produce",
        "t",
        "--key-field",
        "id",
        "--timestamp-field",
        "id",
        "--timestamp-unit",
        "s",
        *where,
        stdin=b"\n".join(WILD),
    )
    ok("produce", "t", *where, stdin=b"no JSON\n")
    for expression in ("value.id == 1.5", "value.id > 1", "not value.id is null"):
        done = call_plog("consume", "t", "--filter", expression, "--format", r"%k %T\n", *where)
        assert (done.returncode, done.stdout) == (0, b"1.50 1500\n" * len(WILD)), expression
        assert b"note: 1 of the records that the filter looked into are not JSON" in done.stderr
        assert b"the first is t-0 offset 5: Expecting value at column 1" in done.stderr
    dump = call_plog(
        "dump-segment",
        str(tmp_path / "data" / "t-0"),
        "--print-data-log",
        "--value-format",
        "json",
        "--format",
        "ndjson",
    )
    rows = [line for line in dump.stdout.splitlines() if b'"value": ' in line]
    assert [b'"id": 1.5' in row or b'"id":1.50' in row for row in rows] == [True] * len(WILD) + [False]
    assert [json.loads(row)["value"]["id"] for row in rows[:3]] == [1.5] * 3
    assert b"1 key or value is not JSON, and shown as text; the first is that of" in dump.stderr
    assert b"offset 5" in dump.stderr


PRETTY = b'\xef\xbb\xbf{\n "k": 1.0,\n "x": "a{\\n"}\n{"k":2}\r\n[{"k": -0},\n {"k":[ 1 ]}]\n\n[]{"k":1E400}'
TAKEN = [b'{"k":1.0,"x":"a{\\n"}', b'{"k":2}', b'{"k": -0}', b'{"k":[ 1 ]}', b'{"k":1E400}']


def read(path: Path, data: bytes) -> tuple[list[bytes | None], list[bytes | None], BadLineError | None]:
    """Keys and values of the input, and what is wrong with the rest."""
    path.write_bytes(data)
    batches = list(parse_lines(read_json_values([path]), json_parser("k", None)))
    keys = [key for batch in batches if batch.rows.keys is not None for key in batch.rows.keys.to_pylist()]
    values = [value for batch in batches for value in batch.rows.values.to_pylist()]
    return keys, values, next((batch.bad for batch in batches if batch.bad is not None), None)


def test_values_of_several_lines_and_arrays_are_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(tmp_path / "in", PRETTY) == ([b"1.0", b"2", b"-0", b"[1]", b"1E400"], TAKEN, None)
    monkeypatch.setattr("core.pipeline.input_lines._CHUNK_BYTES", 5)
    assert read(tmp_path / "in", PRETTY)[1] == TAKEN, "wherever the input is cut"


@pytest.mark.parametrize(
    ("data", "taken", "problem"),
    [
        (b'[{"k":1}\n {"k":2}]', 1, "value 2: not JSON: expected a comma or the array's end"),
        (b'{\n"k":1}\n{"k":', 1, "value 2: not JSON: the value does not end"),
        (b'[{"k":1},', 1, "value 2: not JSON: the array does not end"),
        (b'{"k":1}\n{"k":\n', 1, "line 2: not JSON"),
        (b'[1,{"k":1}]', 0, "value 1: expected a JSON object"),
        (b'{"k":1,}\n', 0, "line 1: not JSON"),
    ],
)
def test_what_is_wrong_in_values_is_named(tmp_path: Path, data: bytes, taken: int, problem: str) -> None:
    _, values, bad = read(tmp_path / "in", data)
    assert len(values) == taken
    assert str(bad).startswith(problem)


def test_utf16_is_refused(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        with pytest.raises(UsageError, match="is UTF-16"):
            read(tmp_path / "in", '{"k": 1}\n'.encode(encoding))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a;b\n1;2,5\n", {"a": "1", "b": "2,5"}),
        (b"a\tb\n1\t2\n", {"a": "1", "b": "2"}),
        (b"a|b\n1|2\n", {"a": "1", "b": "2"}),
        (b"a,b\r1,2\r", "line 1: not CSV: a \\r stands alone"),
        (b'"a;x",b\n1,2\n', {"a;x": "1", "b": "2"}),
        (b"a,b,a\n1,2,3\n", "line 1: the name 'a' is there twice"),
        (b'a,b\n1,"x\ny"\n', {"a": "1", "b": "x\ny"}),
        (b'"a\r\nb"\r\n"x\r\n""y"""\r\n', {"a\r\nb": 'x\r\n"y"'}),
        (b'a,b\n1,"x\ny\n', "line 2: not CSV: the quotes of a cell do not end"),
        (b'a,b\n"x\ny",1\n\xff,1\n', "line 4: not CSV: byte 0 (0xff) is not UTF-8"),
        (b'a,b\n"x\ny",1\n2\n', "line 4: 1 cells, the first line names 2 columns"),
        (b"sep=;\na;b\n", "line 1: this line is Excel's"),
    ],
)
def test_csv_is_read_right_or_refused(tmp_path: Path, data: bytes, expected: object) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(data)
    batches = list(read_csv([path], None, None))
    if isinstance(expected, str):
        assert next(str(batch.bad) for batch in batches if batch.bad is not None).startswith(expected)
    else:
        assert csv_values(batches) == [expected]


def test_quotes_that_do_not_end_are_named_before_the_end_of_a_long_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "_LONGEST_CELL", 40)
    path = tmp_path / "in.csv"
    path.write_bytes(b'a,b\n1,"x\n' + b"2,y\n" * 20)
    batches = read_csv([path], None, None)
    bad = next(batch.bad for batch in batches if batch.bad is not None)
    assert str(bad) == "line 2: not CSV: the quotes of a cell do not end"


def csv_values(batches: Iterable[Batch]) -> list[object]:
    return [json.loads(value or b"") for batch in batches for value in batch.rows.values.to_pylist()]


def test_rows_of_csv_that_chunks_cut_and_inputs_with_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_bytes(b'\xef\xbb\xbfa,b\n"1\n\n""2""\n",3\n4,"\n"\n5,6')
    second.write_bytes(b'b;c\n7;"8\n,9"\n')
    expected = [
        {"a": '1\n\n"2"\n', "b": "3"}, {"a": "4", "b": "\n"}, {"a": "5", "b": "6"}, {"b": "7", "c": "8\n,9"}
    ]  # fmt: skip
    for size in range(1, 60):
        monkeypatch.setattr(input_lines, "_CHUNK_BYTES", size)
        batches = list(read_csv([first, second], "b", None))
        assert csv_values(batches) == expected, size
        assert [number for batch in batches for number in batch.rows.numbers.tolist()] == [1, 5, 7, 9]
        assert b"".join(batch.text for batch in batches) == first.read_bytes() + second.read_bytes()
