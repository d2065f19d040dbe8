"""Plans as files of kafka-reassign-partitions.sh."""

from __future__ import annotations

import json

import pytest

from core.cluster.assignment.planned_move import PlannedMove, plan_json, read_plan
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from tests.support.for_each import for_each

KNOWN = {"t": [0, 1], "other": [0]}
BROKERS = [1, 2, 3]


def read(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    return read_plan(text, "plan.json", KNOWN, BROKERS)


def test_a_plan_is_read_as_it_was_written() -> None:
    move = PlannedMove(TopicPartition("t", 1), (1, 2), (3, 1), 100)
    text = plan_json([move])
    assert json.loads(text) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 1, "replicas": [3, 1], "log_dirs": ["any", "any"]}],
    }
    assert read(text) == {move.partition: (3, 1)}
    assert (move.adding, move.moved_bytes) == ((3,), 100)


def entry(**changes: object) -> str:
    one = {"topic": "t", "partition": 0, "replicas": [1, 2], **changes}
    return json.dumps({"version": 1, "partitions": [one]})


@for_each(
    "text, message",
    [
        ("{", "plan.json is no JSON"),
        ("[]", "expected an object with version 1 and partitions"),
        ('{"version":2,"partitions":[]}', "expected an object with version 1 and partitions"),
        ('{"version":1,"partitions":[]}', "plan.json names no partition"),
        ('{"version":1,"partitions":[7]}', r"partitions\[0\] is 7, expected an object"),
        (entry(topic=3), "expected a topic and the number of a partition"),
        (entry(partition=True), "expected a topic and the number of a partition"),
        (entry(topic="tt"), "no topic 'tt'"),
        (entry(partition=2), "topic 't' has no partition 2"),
        (entry(replicas=[]), r"replicas is \[\], expected a list of broker ids"),
        (entry(replicas=["1"]), "expected a list of broker ids"),
        (entry(replicas=[1, 1]), "which names a broker twice"),
        (entry(replicas=[1, 4]), "broker 4 is not in the cluster, expected some of 1, 2, 3"),
        (entry(log_dirs=["any"]), "as many directories as there are replicas"),
        (entry(log_dirs=["any", "/disk2"]), 'expected "any" for each replica'),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(text)


def test_a_partition_that_is_named_twice_is_refused() -> None:
    one = {"topic": "t", "partition": 0, "replicas": [1]}
    with pytest.raises(UsageError, match=r"partitions\[1\]: t-0 is there twice"):
        read(json.dumps({"version": 1, "partitions": [one, one]}))
