"""Metadata, DescribeTopicPartitions, FindCoordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.answers.asked_broker import AskedBroker
from tests.support.answers.message_codec import NO_ID, Fields, versions_of
from tests.support.answers.scenarios.registry import scenario
from tests.support.waiting import wait_until

ODD_NAMES = ("", "a b", "..", ".", "x" * 249, "x" * 250, "é", "a/b", "__nope")
WITH_CREATION_SWITCH = 4


def names(*topics: str) -> list[Fields]:
    return [{"Name": name} for name in topics]


@scenario
def metadata_by_name(broker: AskedBroker) -> None:
    one, two = broker.create_topic("metadata-one", 2), broker.create_topic("metadata-two")

    def only_own(answer: Fields) -> Fields:
        return {**answer, "Topics": [topic for topic in answer["Topics"] if topic["Name"].startswith("metadata-")]}

    def ask(step: str, topics: list[Fields] | None, versions: Iterable[int] | None = None, **fields: Any) -> None:
        broker.ask_each(step, "Metadata", versions, Topics=topics, **fields)

    ask("all", None, versions_of("Metadata", 1), pick=only_own)
    ask("none", [], versions_of("Metadata", 1))
    ask("one", names(one.name))
    ask("two", names(one.name, two.name))
    ask("one twice", names(one.name, one.name))
    switchable = versions_of("Metadata", WITH_CREATION_SWITCH)
    for name in ODD_NAMES:
        ask(f"{name[:5]!r} of length {len(name)}", names(name), switchable, AllowAutoTopicCreation=False)
        if name not in (".", "x" * 249, "__nope"):
            ask(f"{name[:5]!r} of length {len(name)} is made", names(name), (0, 4, 9, 13), AllowAutoTopicCreation=True)
    ask("unknown", names("metadata-none"), switchable, AllowAutoTopicCreation=False)
    mixed = names(one.name, "metadata-none", "a b")
    ask("known, unknown and invalid", mixed, switchable, AllowAutoTopicCreation=False)
    for topics_too, cluster_too in ((False, False), (True, False), (False, True), (True, True)):
        ask(
            f"authorized operations, topics {topics_too} cluster {cluster_too}",
            names(one.name),
            versions_of("Metadata", 8),
            IncludeClusterAuthorizedOperations=cluster_too,
            IncludeTopicAuthorizedOperations=topics_too,
        )
    asked = {"AllowAutoTopicCreation": False, "IncludeTopicAuthorizedOperations": True}
    ask(
        "authorized operations of what there is not", names("metadata-none", "a b"), versions_of("Metadata", 8), **asked
    )


@scenario
def metadata_by_id(broker: AskedBroker) -> None:
    one, two = broker.create_topic("metadata-id-one", 2), broker.create_topic("metadata-id-two")
    for step, asked in {
        "one": [(one.id, None)],
        "two": [(one.id, None), (two.id, None)],
        "id and name": [(one.id, one.name)],
        "id and another's name": [(two.id, one.name)],
        "id and no name": [(one.id, "")],
        "unknown": [("a" * 32, None)],
        "no id, no name": [(NO_ID, None)],
        "one twice": [(one.id, None), (one.id, None)],
        "one by id and one by name": [(one.id, None), (NO_ID, two.name)],
        "id 1": [("0" * 31 + "1", None)],
    }.items():
        topics = [{"TopicId": topic_id, "Name": name} for topic_id, name in asked]
        nameless = any(name is None for _, name in asked)
        broker.ask_each(step, "Metadata", versions_of("Metadata", 10 if nameless else 12), Topics=topics)


@scenario
def metadata_creates_topics(broker: AskedBroker) -> None:
    for version in (0, 4, 7, 10, 13):
        new = names(f"metadata-new-{version}")
        broker.ask("is asked for first", "Metadata", version, Topics=new, AllowAutoTopicCreation=True, pick=_only_error)
        known = {"Topics": new, "AllowAutoTopicCreation": False}
        wait_until(lambda known=known: broker.query("Metadata", **known)["Topics"][0]["ErrorCode"] == 0)
        broker.ask("is there", "Metadata", version, **known)


def _only_error(answer: Fields) -> Any:
    return answer["Topics"][0]["ErrorCode"]


@scenario
def describe_topic_partitions(broker: AskedBroker) -> None:
    one, two = broker.create_topic("partitions-a", 5).name, broker.create_topic("partitions-c", 3).name

    def ask(step: str, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        position = None if cursor is None else {"TopicName": cursor[0], "PartitionIndex": cursor[1]}
        asked = {"Topics": names(*topics), "ResponsePartitionLimit": limit, "Cursor": position}
        broker.ask(step, "DescribeTopicPartitions", **asked)

    ask("one", one)
    ask("two", one, two)
    ask("one twice", one, one)
    ask("unknown", "partitions-none")
    ask("invalid", "a b", "")
    for limit in (-1, 0, 1, 2, 5, 6, 7, 8, 9):
        ask(f"limit {limit}", one, two, limit=limit)
        ask(f"limit {limit}, and unknown", one, "partitions-b", limit=limit)
    for topic, partition in (
        (one, 0), (one, 3), (one, 4), (one, 5), (one, 9), (two, 1), (two, -1), ("a", 0), ("z", 0), ("partitions-b", 0),
        (one, 2**31 - 1),
    ):  # fmt: skip
        for limit in (2000, 2):
            ask(f"from {topic}-{partition}, limit {limit}", one, two, limit=limit, cursor=(topic, partition))


@scenario
def find_coordinator(broker: AskedBroker) -> None:
    for key_type in (0, 1, 2, 3, -1, 9):
        for key in ("group", "", "é", "a:b", "a:AAAAAAAAAAAAAAAAAAAAAA:0"):
            versions = versions_of("FindCoordinator", 0 if key_type == 0 else 1)
            asked = {"Key": key, "KeyType": key_type, "CoordinatorKeys": [key]}
            broker.ask_each(f"type {key_type}, key {key!r}", "FindCoordinator", versions, **asked)
    for step, keys in {"several": ["a", "b", "a", ""], "none": []}.items():
        broker.ask_each(step, "FindCoordinator", (4, 5, 6), KeyType=0, CoordinatorKeys=keys)
