"""`produce --timestamp-unit`, `--crlf`, and what is told without them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import call_plog


@pytest.fixture
def embedded(tmp_path: Path) -> list[str]:
    where = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", "--set", "retention.ms=-1", *where)
    return where


def timestamps(where: list[str]) -> list[int]:
    return [int(line) for line in ok("consume", "t", "--format", r"%T\n", *where).split()]


def test_units(embedded: list[str]) -> None:
    cases = (
        ("s", "1361836800", 1361836800000),
        ("s", "1361836800.129", 1361836800129),
        ("s", "1361836800.1299999", 1361836800129),
        ("s", '"1361836800.129"', 1361836800129),
        ("s", "-0.001", -1),
        ("s", '"2013-02-26"', 1361836800000),
        ("s", '"20130226"', 20130226000),
        ("ms", "1361836800000.9", 1361836800000),
        ("us", "1361836800000999", 1361836800000),
        ("ns", "1361836800000999999", 1361836800000),
        ("ns", "-1", -1),
    )
    for unit, written, _ in cases:
        options = ["--timestamp-field", "at", "--timestamp-unit", unit, *embedded]
        ok("produce", "t", *options, stdin=b'{"at": %s}\n' % written.encode())
        ok("produce", "t", "--format", "csv", *options, stdin=b"at\n%s\n" % written.strip('"').encode())
    assert timestamps(embedded) == [expected for *_, expected in cases for _ in ("json", "csv")]


def test_what_looks_like_another_unit_is_told_of_once(embedded: list[str]) -> None:
    ok("topic", "alter", "t", "--set", "message.timestamp.after.max.ms=9223372036854775807", *embedded)
    numbers = {b"s": 1361836800, b"us": 1361836800000000, b"ns": 1361836800000000000}
    for unit, number in numbers.items():
        done = call_plog("produce", "t", "--timestamp-field", "at", *embedded, stdin=b'{"at": %d}\n' % number * 3)
        assert done.returncode == 0
        assert done.stderr.count(b"warning: ") == 1
        assert b"say --timestamp-unit %s\n" % unit in done.stderr
    assert timestamps(embedded) == [number for number in numbers.values() for _ in range(3)]


NO_TIMES = ["1e300", "NaN", "9" * 30, '"' + "9" * 5000 + '"', "true", "null", '"10000-01-01"']


@for_each("written, options", product(NO_TIMES, [[], ["--timestamp-unit", "s"]]))
def test_what_is_no_time(embedded: list[str], written: str, options: list[str]) -> None:
    line = b'{"at": 1361836800000}\n{"at": %s}\n' % written.encode()
    done = call_plog("produce", "t", "--timestamp-field", "at", *options, "--dry-run", *embedded, stdin=line)
    assert done.returncode == 1
    assert b"line 2: field 'at' is " in done.stderr


@for_each("options", [["--format", "envelope"], ["--template", r'{"timestamp": %T}%s\n']])
def test_timestamps_out_of_range_elsewhere(embedded: list[str], options: list[str]) -> None:
    done = call_plog("produce", "t", *options, *embedded, stdin=b'{"timestamp": 9223372036854775808}\n')
    assert done.returncode == 1
    assert b"line 1: " in done.stderr
    assert b"expected a number of 64 bits" in done.stderr


def test_times_that_no_calendar_reaches_are_printed_as_numbers(embedded: list[str]) -> None:
    lines = [b'{"timestamp": %d}\n' % n for n in (-(2**63), -1)]
    for line in lines:
        ok("produce", "t", "--format", "envelope", *embedded, stdin=line)
    printed = ok("consume", "t", "--format", r"%T{strftime[%F %T]}\n", *embedded)
    assert printed == b"-9223372036854775808\n1969-12-31 23:59:59\n"


def test_crlf(embedded: list[str]) -> None:
    cases = (
        ([], b"a\r\nb\n\r\nc\r", b"a\nb\n\nc\n"),
        (["--key-separator", ":"], b"k:a\r\nk:b", b"a\nb\n"),
        (["--key-field", "k"], b'{"k": 1}\r\n', b'{"k": 1}\n'),
        (["--format", "csv"], b"a,b\r\n1,2\r\n", b'{"a": "1", "b": "2"}\n'),
        (["--format", "envelope"], b'{"value": "v"}\r\n', b"v\n"),
    )
    for options, text, _ in cases:
        done = call_plog("produce", "t", "--crlf", *options, *embedded, stdin=text)
        assert (done.returncode, b"CRLF" in done.stderr) == (0, False), done.stderr
    assert ok("consume", "t", *embedded) == b"".join(expected for *_, expected in cases)


def test_the_byte_order_mark_of_a_csv_is_no_part_of_a_name(embedded: list[str]) -> None:
    ok("produce", "t", "--format", "csv", *embedded, stdin=b'\xef\xbb\xbf"a",b\r\n1,2\r\n')
    assert ok("consume", "t", *embedded) == b'{"a": "1", "b": "2"}\n'


def test_the_byte_order_mark_of_lines_is_told_of(embedded: list[str]) -> None:
    done = call_plog("produce", "t", *embedded, stdin=b"\xef\xbb\xbfa\nb\n")
    assert b"byte order mark" in done.stderr
    assert ok("consume", "t", *embedded) == b"\xef\xbb\xbfa\nb\n"


def test_crlf_is_told_of_once(embedded: list[str]) -> None:
    done = call_plog("produce", "t", *embedded, stdin=b"a\nb\r\nc\r\n")
    assert done.stderr.startswith(b"note: the lines end in CRLF; the records keep the \\r; --crlf removes it\n")
    assert done.stderr.count(b"CRLF") == 1
    assert ok("consume", "t", *embedded) == b"a\nb\r\nc\r\n"
    for options in (["--format", "csv"], ["--delimiter", r"\r\n"]):
        assert b"CRLF" not in call_plog("produce", "t", *options, *embedded, stdin=b"a\r\nb\r\n").stderr


@for_each(
    "options",
    [
        ["--crlf", "--delimiter", "x"],
        ["--crlf", "--template", r"%s\n"],
        ["--crlf", "--format", "raw"],
        ["--timestamp-unit", "s"],
        ["--timestamp-unit", "min", "--timestamp-field", "at"],
    ],
)
def test_options_that_do_not_go_together(embedded: list[str], options: list[str]) -> None:
    assert call_plog("produce", "t", *options, *embedded, stdin=b"a\n").returncode == 2
