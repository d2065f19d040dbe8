"""A group's consumer with a membership and committed offsets that the test makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from core.client.net.kafka_client import KafkaClient
from core.client.read.group_consumer import GroupConsumer, Partitions
from core.client.read.record_source import ReadOptions
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    """A membership and its offsets in one; `answer` is what a commit gets."""

    member_id, epoch, group_instance_id = "m", 1, None

    def __init__(self) -> None:
        self.assigned: Partitions = frozenset({FIRST, SECOND})
        self.answer = ErrorCode.NONE
        self.committed: list[dict[TopicPartition, int]] = []

    def assignment(self, owned: Partitions) -> Partitions:
        return self.assigned

    def leave(self) -> None: ...

    def find(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 5)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        if self.answer is ErrorCode.NONE:
            self.committed.append(dict(offsets))
        return self.answer


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def consumer(group: Group, said: list[str]) -> GroupConsumer:
    client = cast("KafkaClient", None)  # nothing is fetched
    consumer = GroupConsumer(client, group, group, lambda _: {}, ReadOptions(tell=said.append))
    consumer._follow_assignment()
    return consumer


def test_it_reads_from_what_is_committed(consumer: GroupConsumer) -> None:
    assert consumer.positions == {FIRST: 5, SECOND: 5}


def test_what_could_not_be_committed_when_a_partition_was_given_up_is_not_committed_later(
    consumer: GroupConsumer, group: Group
) -> None:
    """Others have the partition by then, and have read on: their offset would go back."""
    consumer.done(FIRST, 7)
    consumer.done(SECOND, 8)
    group.assigned, group.answer = frozenset({SECOND}), ErrorCode.REBALANCE_IN_PROGRESS
    consumer._follow_assignment()
    group.answer = ErrorCode.NONE
    consumer.commit()
    assert group.committed == [{SECOND: 8}]


def test_at_the_end_it_says_what_could_not_be_committed(consumer: GroupConsumer, group: Group, said: list[str]) -> None:
    consumer.done(FIRST, 7)
    group.answer = ErrorCode.REBALANCE_IN_PROGRESS
    consumer.close()
    assert said == ["offsets read in the last 5 s were not committed; the group will read them again"]


def test_who_was_fenced_has_nothing_to_commit(consumer: GroupConsumer, group: Group, said: list[str]) -> None:
    consumer.done(FIRST, 7)
    group.answer = ErrorCode.UNKNOWN_MEMBER_ID
    consumer.commit()
    group.answer = ErrorCode.NONE
    consumer.close()
    assert (group.committed, said) == ([], [])
