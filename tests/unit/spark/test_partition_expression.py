"""What `--partition-by` may say."""

from __future__ import annotations

import pytest

from core.common.errors import UsageError
from core.spark.partition_expression import Partition, parse_partitions
from tests.support.for_each import for_each


@for_each(
    "text, name, expression, is_simple",
    [
        ("day", "day", "day", True),
        ("hour", "hour", "hour", True),
        ("city", "city", "city", True),
        ("Zürich", "Zürich", "Zürich", True),
        ("`my city`", "my city", "`my city`", True),
        ("`city`", "city", "city", True),
        ("2nd", "2nd", "`2nd`", True),
        ("date(timestamp)", "date", "date(timestamp)", True),
        ("DATE( timestamp )", "date", "date(timestamp)", True),
        ("d=date(timestamp)", "d", "date(timestamp)", True),
        ("town=city", "town", "city", True),
        ("value.country", "country", "value.country", False),
        ("value.`home country`", "home country", "value.`home country`", False),
        ("country=upper(value.country)", "country", "upper(value.country)", False),
        ("is_big = size >= 10", "is_big", "size >= 10", False),
        ("same=a == b", "same", "a == b", False),
    ],
)
def test_one_column_of_folders(text: str, name: str, expression: str, is_simple: object) -> None:
    (found,) = parse_partitions([text])
    assert found == Partition(name, expression)
    assert found.is_simple is is_simple
    assert parse_partitions([str(found)]) == (found,)


def test_several_with_commas_that_are_in_nothing_else() -> None:
    given = ["day, k=concat_ws(',', key, `a,b`) ,`c,d`", "hour", ""]
    assert [str(one) for one in parse_partitions(given)] == ["day", "k=concat_ws(',', key, `a,b`)", "`c,d`", "hour"]
    assert parse_partitions([]) == parse_partitions([""]) == ()


@for_each(
    "text, said",
    [
        ("upper(city)", "--partition-by upper(city): expected day, hour, COLUMN"),
        ("a b", "expected day, hour, COLUMN"),
        ("`a", "expected day, hour, COLUMN"),
        ("day,", "expected day, hour, COLUMN"),
        ("day,,hour", "expected day, hour, COLUMN"),
        ("x=", "--partition-by x=: expected day, hour"),
        ("day,Day", "--partition-by Day: there is a folder Day already"),
    ],
)
def test_what_is_no_column_of_folders(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_partitions([text])
    assert said in str(caught.value)
