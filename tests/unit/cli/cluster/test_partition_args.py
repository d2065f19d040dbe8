"""Partitions as people name them."""

from __future__ import annotations

import pytest

from cli.cluster.served_cluster import find_named_partitions
from core.common.errors import KafkaError
from tests.support.for_each import for_each

KNOWN = {"flights": [0, 1, 2], "one": [0], "a-1": [0], "a": [0, 1], "b-7": [0], "b": [0]}


@for_each(
    "text, expected",
    [
        ("flights-1", ["flights-1"]),
        ("flights:2", ["flights-2"]),
        ("flights:0,2", ["flights-0", "flights-2"]),
        ("flights", ["flights-0", "flights-1", "flights-2"]),
        ("a-1", ["a-1"]),  # the partition, although there is such a topic
        ("a-1:0", ["a-1-0"]),
        ("b-7", ["b-7-0"]),  # the topic, because there is no such partition
    ],
)
def test_what_a_text_names(text: str, expected: list[str]) -> None:
    assert [str(partition) for partition in find_named_partitions([text], KNOWN)] == expected


@for_each(
    "text, message, hint",
    [
        ("flights-3", "topic 'flights' has no partition 3", "it has partitions 0 to 2"),
        ("one:4", "topic 'one' has no partition 4", "it has partition 0 only"),
        ("flihgts-0", "no topic 'flihgts'", "did you mean flights?"),
        ("xyz", "no topic 'xyz'", "plog topic list"),
        ("flights:x", "'flights:x' names no partitions: expected numbers, with commas", "flights:0,1,2"),
        ("flights:0-2", "'flights:0-2' names no partitions: expected numbers, with commas", "flights:0,1,2"),
        ("one:", "'one:' names no partitions: expected numbers, with commas", "one:0"),
        ("flihgts:0-2", "no topic 'flihgts:0-2'", "did you mean flights?"),
    ],
)
def test_a_text_that_names_nothing(text: str, message: str, hint: str) -> None:
    with pytest.raises(KafkaError) as caught:
        find_named_partitions([text], KNOWN)
    assert (caught.value.message, caught.value.hint) == (message, hint)
