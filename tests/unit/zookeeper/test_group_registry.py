"""Registries of groups in ZooKeeper: Kafka's own nodes, garbage, and the division of partitions."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import MalformedMessageError, UsageError
from core.common.topic_partition import TopicPartition
from core.zookeeper.group_registry import (
    BLACK_LIST,
    WHITE_LIST,
    ConsumerNode,
    decode_consumer,
    decode_offset,
    divide,
    encode_offset,
    ensure_group_name,
    ensure_registrable_pattern,
    offset_path,
    owner_path,
    share_of,
)
from tests.support.for_each import for_each

PATH = "/consumers/g/ids/c"
KAFKAS = (
    b'{"version":1,"subscription":{"c1":1},"pattern":"white_list","timestamp":"1795455093392"}'  # Kafka 1.1.1 wrote it
)


# --- consumers


def test_the_node_that_kafkas_consumer_writes() -> None:
    node = decode_consumer(KAFKAS, PATH)
    assert node == ConsumerNode({"c1": 1}, "1795455093392", WHITE_LIST)
    assert json.loads(node.encode()) == json.loads(KAFKAS)


def test_kafka_0_8_0_writes_the_time_as_a_number_and_no_pattern() -> None:
    assert decode_consumer(b'{"version":1,"subscription":{"t":2},"timestamp":7}', PATH) == ConsumerNode({"t": 2}, 7)


@for_each(
    "changed, problem",
    [
        ({"version": 2}, "version 2, expected 1"),
        ({"pattern": "grey_list"}, "Invalid enum value 'grey_list' - at `$.pattern`"),
        ({"subscription": {"a": 1, "b": 1}}, "a white_list of 2 patterns, expected one"),
        ({"subscription": {"a(": 1}}, "'a(' is no pattern that is understood here: "),
        ({"subscription": {"a": 0}}, "Expected `int` >= 1 - at `$.subscription[...]`"),
        ({"subscription": {"a": 10_001}}, "Expected `int` <= 10000 - at `$.subscription[...]`"),
        ({"subscription": {"a": "1"}}, "Expected `int`, got `str` - at `$.subscription[...]`"),
        ({"subscription": ["a"]}, "Expected `object`, got `array` - at `$.subscription`"),
        ({"subscription": None}, "Expected `object`, got `null` - at `$.subscription`"),
        ({"timestamp": "soon"}, "Expected `str` matching regex"),
    ],
)
def test_a_consumer_that_is_not_of_the_form_is_refused(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(MalformedMessageError) as caught:
        decode_consumer(json.dumps(json.loads(KAFKAS) | changed).encode(), PATH)
    assert problem in caught.value.message
    assert PATH in caught.value.message


@given(st.binary())
def test_garbage_is_refused(data: bytes) -> None:
    with contextlib.suppress(MalformedMessageError):
        decode_consumer(data, PATH)
    with contextlib.suppress(MalformedMessageError):
        decode_offset(data, PATH)


@for_each("length", range(len(KAFKAS)))
def test_a_node_that_is_cut_is_refused(length: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode_consumer(KAFKAS[:length], PATH)


@for_each(
    "pattern, kind, wanted",
    [
        ("flights", WHITE_LIST, ["flights"]),
        ("fl.*", WHITE_LIST, ["flies", "flights"]),
        ("flights,events", WHITE_LIST, ["events", "flights"]),
        (" 'flights | events' ", WHITE_LIST, ["events", "flights"]),
        (".*", WHITE_LIST, ["events", "flies", "flights"]),
        ("fl.*", BLACK_LIST, ["events"]),
        ("f", WHITE_LIST, []),
    ],
)
def test_patterns_match_whole_names_and_no_internal_topics(pattern: str, kind: str, wanted: list[str]) -> None:
    topics = ["__consumer_offsets", "__transaction_state", "events", "flies", "flights"]
    assert sorted(ConsumerNode({pattern: 3}, 0, kind).threads(topics)) == wanted


def test_topics_by_name_may_be_internal_and_need_not_be_there() -> None:
    node = ConsumerNode({"__consumer_offsets": 1, "gone": 1, "t": 2}, 0)
    assert node.threads(["t", "u", "__consumer_offsets"]) == {"t": 2, "__consumer_offsets": 1}


@for_each("text", ["a,b", "a b", "'a'", 'a"', "a\tb"])
def test_a_pattern_that_kafkas_consumers_read_otherwise_is_not_registered(text: str) -> None:
    with pytest.raises(UsageError, match="no commas, spaces or quotes"):
        ensure_registrable_pattern(text)
    ensure_registrable_pattern("a|b.*")


@for_each("group", ["", ".", "..", "a/b", "a b", "ä", "a\0", "a\n"])
def test_groups_that_are_no_names_of_nodes_are_refused(group: str) -> None:
    with pytest.raises(UsageError, match="is a node in ZooKeeper"):
        ensure_group_name(group)
    ensure_group_name("My_group-1.2")


# --- offsets


def test_paths_and_offsets_are_kafkas() -> None:
    assert owner_path("g", TopicPartition("t", 3)) == "/consumers/g/owners/t/3"
    assert offset_path("g", TopicPartition("t", 3)) == "/consumers/g/offsets/t/3"
    assert encode_offset(72) == b"72"
    assert decode_offset(b"72", PATH) == 72
    assert decode_offset(b"-1", PATH) is None


@for_each("data", [b"", b"12x", b"-2", b"1 ", b"0x10", b"9" * 30, b"9223372036854775808", b"1.0"])
def test_what_is_no_offset_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="is no offset, expected a number") as caught:
        decode_offset(data, PATH)
    assert "set " + PATH in (caught.value.hint or "")


# --- the division


def test_threads_are_in_the_order_of_their_names_as_java_compares_them() -> None:
    """By UTF-16, U+1F600 is before U+FF5E; by code points it is after it. And thread 10 comes before thread 2."""
    consumers = {"\uff5e": ConsumerNode({"t": 1}), "\U0001f600": ConsumerNode({"t": 11})}
    owners = divide(consumers, {"t": range(12)})
    assert [str(owners[TopicPartition("t", number)])[0] for number in range(12)] == ["\U0001f600"] * 11 + ["\uff5e"]
    assert [owners[TopicPartition("t", number)].number for number in range(4)] == [0, 1, 10, 2]


TOPICS = ("t", "u", "v")
_subscriptions = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 4), max_size=3).map(ConsumerNode)


@given(
    consumers=st.dictionaries(st.text("abc-0", min_size=1, max_size=4), _subscriptions, max_size=6),
    partitions=st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 40), min_size=1), max_size=3),
)
def test_every_partition_has_one_owner_and_shares_are_even(
    consumers: dict[str, ConsumerNode], partitions: dict[str, set[int]]
) -> None:
    """numpy splits an array in the same way: neighbours, of which the first parts are larger by one."""
    owners = divide(consumers, partitions)
    expected: dict[TopicPartition, str] = {}
    for topic, numbers in partitions.items():
        names = sorted(
            f"{name}-{thread}" for name, node in consumers.items() for thread in range(node.subscription.get(topic, 0))
        )
        if names:
            for name, part in zip(names, np.array_split(sorted(numbers), len(names)), strict=True):
                expected |= {TopicPartition(topic, int(number)): name for number in part}
    assert {partition: str(thread) for partition, thread in owners.items()} == expected
    for name in consumers:
        own = {partition: thread for partition, thread in owners.items() if thread.consumer_id == name}
        assert share_of(name, consumers, partitions) == own
