from __future__ import annotations

import pytest

from core.common.errors import UsageError
from core.common.time_text import find_time, parse_iso_time, parse_time, time_text
from tests.support.for_each import for_each

NOW = 1_700_000_000_000


@for_each(
    "text, expected",
    [
        ("2013-01-15T00:00:00Z", 1358208000000),
        ("2013-01-15", 1358208000000),
        ("2013-01-15T01:00:00+01:00", 1358208000000),
        ("2013-01-15T00:00:00.123Z", 1358208000123),
        ("-2h", NOW - 7_200_000),
        ("-90s", NOW - 90_000),
        ("-1.5d", NOW - 129_600_000),
        ("1358208000000", 1358208000000),
    ],
)
def test_times_as_people_write_them(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@for_each("text", ["", "yesterday", "-2y", "2013-13-01", "12:00"])
def test_what_is_no_time_is_said_so(text: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        parse_time(text, NOW)


def test_a_bare_number_is_left_to_the_caller() -> None:
    assert find_time("17", NOW) is None
    assert find_time("-17", NOW) is None


def test_time_text_is_the_way_back() -> None:
    assert time_text(1358208000123) == "2013-01-15T00:00:00.123Z"
    assert parse_iso_time(time_text(1358208000123)) == 1358208000123
    assert time_text(2**62) == str(2**62)
