"""CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.answers.asked_broker import AskedBroker, Topic, fetch_fields
from tests.support.answers.message_codec import NO_ID, Fields
from tests.support.answers.scenarios.registry import scenario

SET_ON_THE_TOPIC = 1
"""The source of a config."""


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Iterable[tuple[str, str | None]] = (),
) -> Fields:
    return {
        "Name": name,
        "NumPartitions": partitions,
        "ReplicationFactor": replicas,
        "Assignments": [{"PartitionIndex": index, "BrokerIds": brokers} for index, brokers in assignments],
        "Configs": [{"Name": key, "Value": value} for key, value in configs],
    }


def without_defaults(answer: Fields) -> Fields:
    """Of CreateTopics: the configs of a topic that were set on it."""
    return {**answer, "Topics": [_without_defaults(topic) for topic in answer["Topics"]]}


def _without_defaults(topic: Fields) -> Fields:
    shown = {**topic, "TopicId": topic.get("TopicId", NO_ID) != NO_ID}
    if topic.get("Configs"):
        shown["Configs"] = [config for config in topic["Configs"] if config["ConfigSource"] == SET_ON_THE_TOPIC]
    return shown


def create(
    broker: AskedBroker,
    step: str,
    *topics: Fields,
    versions: Iterable[int] = (7,),
    validate: bool = False,
    timeout_ms: int = 10_000,
) -> None:
    broker.ask_each(
        step,
        "CreateTopics",
        versions,
        pick=without_defaults,
        Topics=list(topics),
        validateOnly=validate,
        timeoutMs=timeout_ms,
    )


@scenario
def create_topics_names(broker: AskedBroker) -> None:
    internal = ("__consumer_offsets", "__cluster_metadata", "__transaction_state", "__share_group_state")
    odd = ("", ".", "..", "a/b", "x" * 249, "x" * 250, "a b", "é", "a\nb", "a:b", "a,b", "-", "_", "A.b-c_D")
    for name in (*odd, *internal):
        step = f"{name[:20]!r} of length {len(name)}"
        create(broker, step, new_topic(name), versions=(2, 5, 7), validate=True)
    create(broker, "with a dot", new_topic("collides.a"))
    create(broker, "collides with a dot", new_topic("collides_a"))
    create(broker, "two that collide", new_topic("collide.b"), new_topic("collide_b"))
    create(broker, "again", new_topic("collides.a"))
    create(broker, "again, to validate", new_topic("collides.a"), validate=True)
    create(broker, "again, with a null value", new_topic("collides.a", configs=[("retention.ms", None)]))
    create(broker, "a null value", new_topic("null-value", configs=[("retention.ms", None)]))
    create(broker, "two mistakes", new_topic("a b", -1, -1, assignments=[(0, [broker.id]), (0, [broker.id])]))
    create(broker, "twice and another", new_topic("twice"), new_topic("twice"), new_topic("besides"))
    create(broker, "twice, to validate", new_topic("twice"), new_topic("twice"), validate=True)
    create(broker, "none", versions=range(2, 8))


@scenario
def create_topics_numbers(broker: AskedBroker) -> None:
    for partitions in (-2, -1, 0, 1, 3, 10_000, 10_001, 2**31 - 1, -(2**31)):
        topic = new_topic("numbers", partitions)
        create(broker, f"{partitions} partitions", topic, versions=(2, 4, 5, 7), validate=True)
    for replicas in (-2, -1, 0, 1, 2, 32767):
        topic = new_topic("numbers", 1, replicas)
        create(broker, f"{replicas} replicas", topic, versions=(2, 4, 5, 7), validate=True)
    create(broker, "the broker's numbers", new_topic("numbers", -1, -1), versions=range(2, 8), validate=True)
    configs = [("retention.ms", "1000"), ("cleanup.policy", "compact")]
    for version in range(2, 8):
        create(broker, "is made", new_topic(f"made-{version}", 3, configs=configs), versions=[version])
    for timeout_ms in (0, -1, 1, 2**31 - 1):
        create(broker, f"timeout {timeout_ms}", new_topic(f"timeout-{timeout_ms}"), timeout_ms=timeout_ms)
    good, bad = new_topic("mixed-good"), new_topic("mixed-bad", 0)
    create(broker, "good and bad", good, new_topic("a b"), bad, new_topic("mixed-config", configs=[("nope", "1")]))
    described = broker.query("CreateTopics", Topics=[new_topic("made-described", configs=configs)], timeoutMs=5000)
    broker.keep("every config is told", described["Topics"][0]["Configs"], "CreateTopics", 7)


@scenario
def create_topics_assignments(broker: AskedBroker) -> None:
    me = broker.id
    mine = [me]
    for step, assignments in {
        "one": [(0, mine)],
        "three": [(0, mine), (1, mine), (2, mine)],
        "a gap": [(0, mine), (2, mine)],
        "from 1": [(1, mine)],
        "a partition twice": [(0, mine), (0, mine)],
        "partition -1": [(-1, mine)],
        "no broker": [(0, [])],
        "unknown broker": [(0, [99])],
        "broker -1": [(0, [-1])],
        "a broker twice": [(0, [me, me])],
        "known and unknown": [(0, [me, 99])],
        "uneven": [(0, mine), (1, [me, 99])],
    }.items():
        topic = new_topic("assigned", -1, -1, assignments=assignments)
        create(broker, step, topic, versions=(2, 4, 7), validate=True)
    for step, partitions, replicas in (("partitions", 1, -1), ("replicas", -1, 1), ("both", 1, 1), ("zeros", 0, 0)):
        topic = new_topic("assigned", partitions, replicas, assignments=[(0, mine)])
        create(broker, f"with {step}", topic, versions=(2, 4, 7), validate=True)
    create(broker, "is made", new_topic("assigned", -1, -1, assignments=[(0, mine), (1, mine)]))


@scenario
def create_partitions(broker: AskedBroker) -> None:
    topic, me = broker.create_topic("more-partitions", 2).name, broker.id

    def ask(step: str, count: int, assignments: list[list[int]] | None = None, *, name: str = topic) -> None:
        broker.ask_each(step, "CreatePartitions", **fields(count, assignments, name=name))

    def fields(count: int, assignments: list[list[int]] | None, *, name: str = topic, validate: bool = True) -> Fields:
        lists = None if assignments is None else [{"BrokerIds": brokers} for brokers in assignments]
        asked = {"Name": name, "Count": count, "Assignments": lists}
        return {"Topics": [asked], "TimeoutMs": 5000, "ValidateOnly": validate}

    for count in (-1, 0, 1, 2, 3, 10, 10_003, 2**31 - 1):
        ask(f"{count}", count)
    for step, count, assignments in (
        ("one assignment", 3, [[me]]),
        ("too many assignments", 3, [[me], [me]]),
        ("too few assignments", 4, [[me]]),
        ("no broker", 3, [[]]),
        ("no assignments", 3, []),
        ("unknown broker", 3, [[99]]),
        ("a broker twice", 3, [[me, me]]),
        ("two replicas", 3, [[me, 99]]),
    ):
        ask(step, count, assignments)
    for name in ("", "no-such-topic", "a b"):
        ask(f"topic {name!r}", 5, name=name)
    ask("internal topic", 60, name="__consumer_offsets")
    twice = {"TimeoutMs": 5000, "ValidateOnly": True, "Topics": [{"Name": topic, "Count": 5, "Assignments": None}] * 2}
    broker.ask("one twice", "CreatePartitions", **twice)
    broker.ask("none", "CreatePartitions", Topics=[], TimeoutMs=5000)
    broker.ask("four are made", "CreatePartitions", **fields(4, None, validate=False))
    broker.wait_until_applied()
    broker.ask("they are there", "Metadata", Topics=[{"Name": topic}])
    broker.ask("again", "CreatePartitions", **fields(4, None, validate=False))
    broker.ask("fewer", "CreatePartitions", **fields(1, None, validate=False))


@scenario
def delete_topics(broker: AskedBroker) -> None:
    def ask(step: str, *asked: tuple[str | None, str], version: int = 6) -> None:
        topics = [{"Name": name, "TopicId": topic_id} for name, topic_id in asked]
        listed = [name for name, _ in asked] if version < 6 else []
        broker.ask(step, "DeleteTopics", version, Topics=topics, TopicNames=listed, TimeoutMs=5000)

    for version in range(1, 7):
        one, two = broker.create_topic(f"deleted-{version}").name, broker.create_topic(f"deleted-twice-{version}").name
        ask("known and unknown", (one, NO_ID), ("no-such-topic", NO_ID), version=version)
        ask("again", (one, NO_ID), version=version)
        ask("one twice", (two, NO_ID), (two, NO_ID), version=version)
        ask("none", version=version)
        ask("invalid", ("a b", NO_ID), ("", NO_ID), version=version)
    one, two = broker.create_topic("deleted-id-one"), broker.create_topic("deleted-id-two")
    ask("name and id", (one.name, one.id))
    ask("neither", (None, NO_ID))
    ask("unknown id", (None, "a" * 32))
    ask("one by name and by id", (two.name, NO_ID), (None, two.id))
    ask("one id twice", (None, two.id), (None, two.id))
    ask("by id", (None, one.id))
    ask("by id again", (None, one.id))
    broker.delete_topic(two)
    again = broker.create_topic("deleted-id-two")
    broker.keep("made again, another id", again.id != two.id)
    broker.ask("the id from before", "Metadata", 13, Topics=[{"TopicId": two.id, "Name": None}])


@scenario
def delete_records(broker: AskedBroker) -> None:
    topic = broker.create_topic("deleted-records", 2)
    for _ in range(6):
        broker.produce(topic)

    def ask(step: str, *asked: tuple[int, int], name: str = topic.name, versions: Any = None) -> None:
        partitions = [{"PartitionIndex": partition, "Offset": offset} for partition, offset in asked]
        topics = [{"Name": name, "Partitions": partitions}]
        broker.ask_each(step, "DeleteRecords", versions, Topics=topics, TimeoutMs=5000)

    for step, partition, offset in (
        ("offset -2", 0, -2), ("after the end", 0, 19), ("offset 0", 0, 0), ("offset 3", 0, 3),
        ("before the start", 0, 1), ("unknown partition", 9, 0), ("partition -1", -1, 0), ("an empty one", 1, 0),
    ):  # fmt: skip
        ask(step, (partition, offset))
    for name in ("no-such-topic", "a b", "", "__consumer_offsets"):
        ask(f"topic {name!r}", (0, 0), name=name)
    ask("a partition twice", (0, 4), (0, 6))
    for timestamp in (-1, -2, -3):
        asked = {"PartitionIndex": 0, "Timestamp": timestamp, "CurrentLeaderEpoch": -1}
        topics = [{"Name": topic.name, "Partitions": [asked]}]
        broker.ask(f"timestamp {timestamp} then", "ListOffsets", ReplicaId=-1, Topics=topics)
    broker.ask("fetched before the start", "Fetch", **fetch_fields(topic, 0))
    broker.ask("fetched from the start", "Fetch", **fetch_fields(topic, 7))
    ask("up to the end", (0, -1))
    ask("the end itself", (0, 18))
    for policy in ("compact", "compact,delete"):
        cleaned = _topic_with_policy(broker, policy)
        ask(policy, (0, 2), name=cleaned.name)


def _topic_with_policy(broker: AskedBroker, policy: str) -> Topic:
    from tests.support.answers.record_batches import THREE, batch

    topic = broker.create_topic("deleted-records-" + policy.replace(",", "-"), cleanup_policy=policy)
    broker.produce(topic, batch(THREE[:2]))
    return topic
