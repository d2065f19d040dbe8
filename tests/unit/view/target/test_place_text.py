"""Places as people type them."""

from __future__ import annotations

import pytest

from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.view.target.inspect_target import Place, parse_place
from tests.support.for_each import for_each

TOPICS = {"flights": [0, 1, 2], "a-1": [0], "a": [0, 1], "only-7": [3]}
HERE = TopicPartition("flights", 1)


@for_each(
    "text, expected",
    [
        ("flights", Place(TopicPartition("flights", 0))),
        ("flights:2", Place(TopicPartition("flights", 2))),
        ("flights-2", Place(TopicPartition("flights", 2))),
        (" flights:2@2013-01-15 ", Place(TopicPartition("flights", 2), "2013-01-15")),
        ("flights@-2h", Place(TopicPartition("flights", 0), "-2h")),
        ("flights@@1357017300000", Place(TopicPartition("flights", 0), "@1357017300000")),
        ("a-1", Place(TopicPartition("a-1", 0))),  # a topic that is called so comes before a partition of another
        ("only-7:3@5", Place(TopicPartition("only-7", 3), "5")),
        (":2", Place(TopicPartition("flights", 2))),
        (":0@end", Place(TopicPartition("flights", 0), "end")),
        ("@17", Place(HERE, "17")),
        ("17", Place(HERE, "17")),
        ("-10", Place(HERE, "-10")),
        ("end", Place(HERE, "end")),
        ("2013-01-15T12:00:00Z", Place(HERE, "2013-01-15T12:00:00Z")),
        ("@@1357017300000", Place(HERE, "@1357017300000")),
    ],
)
def test_a_place_names_a_partition_and_where_in_it(text: str, expected: Place) -> None:
    assert parse_place(text, TOPICS, HERE) == expected


@for_each(
    "text, said",
    [
        ("", "nothing was typed"),
        ("flihgts", "names no topic"),
        ("flights:9", "no partition '9' of flights"),
        ("flights:x", "no partition 'x'"),
        (":7", "no partition '7' of flights"),
        ("flights/../x", "names no topic"),
    ],
)
def test_a_text_that_names_nothing_is_refused_with_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_place(text, TOPICS, HERE)


def test_a_name_like_a_topics_is_hinted_at() -> None:
    with pytest.raises(UsageError) as caught:
        parse_place("flihgts", TOPICS)
    assert caught.value.hint == "did you mean flights?"


@for_each("text", ["17", "@17", "end", ":1"])
def test_a_place_without_a_topic_needs_one_that_is_looked_at(text: str) -> None:
    with pytest.raises(UsageError):
        parse_place(text, TOPICS)
