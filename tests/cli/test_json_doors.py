"""JSON as programs write it, asked of every command that reads JSON: they agree on what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.common.errors import UsageError
from core.pipeline.input_lines import BadLineError
from core.pipeline.input_rows import parse_lines
from core.pipeline.json_values import read_json_values
from core.pipeline.line_parsers import csv_parser, json_parser
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
        (b'"a;x",b\n1,2\n', {"a;x": "1", "b": "2"}),
        (b"a,b,a\n1,2,3\n", "line 1: the name 'a' is there twice"),
        (b'a,b\n1,"x\ny"\n', "line 2: not CSV: a cell in quotes does not end in its line"),
        (b"sep=;\na;b\n", "line 1: this line is Excel's"),
    ],
)
def test_csv_is_read_right_or_refused(tmp_path: Path, data: bytes, expected: object) -> None:
    from core.pipeline.input_lines import read_lines

    path = tmp_path / "in.csv"
    path.write_bytes(data)
    (batch,) = parse_lines(read_lines([path]), csv_parser(None, None))
    if isinstance(expected, str):
        assert str(batch.bad).startswith(expected)
    else:
        assert [json.loads(value or b"") for value in batch.rows.values.to_pylist()] == [expected]
