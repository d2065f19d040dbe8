"""What `--partition-by` may say."""

from __future__ import annotations

import pytest

from core.common.errors import UsageError
from core.spark.partition_expression import Partition, parse_partitions
from tests.support.for_each import for_each


@for_each(
    "text, name, expression",
    [
        ("day", "day", "day"),
        ("hour", "hour", "hour"),
        ("city", "city", "city"),
        ("Zürich", "Zürich", "Zürich"),
        ("`my city`", "my city", "`my city`"),
        ("`city`", "city", "city"),
        ("2nd", "2nd", "`2nd`"),
        ("date(timestamp)", "date", "date(timestamp)"),
        ("DATE( timestamp )", "date", "date(timestamp)"),
        ("d=date(timestamp)", "d", "date(timestamp)"),
        ("town=city", "town", "city"),
    ],
)
def test_one_column_of_folders(text: str, name: str, expression: str) -> None:
    (found,) = parse_partitions([text])
    assert found == Partition(name, expression)
    assert parse_partitions([str(found)]) == (found,)


def test_several_with_commas_that_are_in_nothing_else() -> None:
    given = ["day, k=`a,b` ,`c,d`", "hour", ""]
    assert [str(one) for one in parse_partitions(given)] == ["day", "k=`a,b`", "`c,d`", "hour"]
    assert parse_partitions([]) == parse_partitions([""]) == ()


@for_each(
    "text, said",
    [
        ("upper(city)", "--partition-by upper(city): expected day, hour, COLUMN"),
        ("country=upper(city)", "--partition-by country=upper(city): expected day, hour, COLUMN"),
        ("value.country", "--partition-by value.country: expected day, hour, COLUMN"),
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
