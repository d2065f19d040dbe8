"""ListOffsets, OffsetForLeaderEpoch, OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Any

from tests.support.answers.asked_broker import AskedBroker, Topic
from tests.support.answers.message_codec import NO_ID, Fields
from tests.support.answers.record_batches import FIXED_TIME, Record, batch
from tests.support.answers.scenarios.fetch import filled_topic
from tests.support.answers.scenarios.registry import scenario

UNKNOWN = Topic("no-such-topic", "e" * 32)
ODD_TOPICS = (UNKNOWN, Topic("a b", NO_ID), Topic("", NO_ID))


@scenario
def list_offsets(broker: AskedBroker) -> None:
    topic, empty = filled_topic(broker, "listed", 2, 5), broker.create_topic("listed-empty")
    for version in (1, 2, 4, 6, 7, 8, 9, 10, 11):

        def ask(step: str, timestamp: int, version: int = version, **options: Any) -> None:
            asked = _at(options.get("partition", 0), timestamp, options.get("leader_epoch", -1))
            fields = {
                "ReplicaId": options.get("replica", -1),
                "IsolationLevel": options.get("isolation_level", 0),
                "Topics": [{"Name": options.get("name", topic.name), "Partitions": [asked]}],
                "TimeoutMs": options.get("timeout_ms", 1000),
            }
            broker.ask(step, "ListOffsets", version, **fields)

        for timestamp in (-1, -2, -3, -4, -5, -6, -7, -99, 0, 1, 2**63 - 1):
            ask(f"timestamp {timestamp}", timestamp)
            ask(f"timestamp {timestamp}, no records", timestamp, name=empty.name)
        for delta in (-1, 0, 1, 10, 15, 40, 41, 10**9):
            ask(f"the first record's time {delta:+}", FIXED_TIME + delta)
        for replica in (-2, 0, 1, 5):
            ask(f"replica {replica}", -1, replica=replica)
        for level in (1, 2, -1):
            ask(f"isolation level {level}", -1, isolation_level=level)
        for epoch in (-2, 0, 1):
            ask(f"leader epoch {epoch}", -1, leader_epoch=epoch)
        for partition in (9, -1):
            ask(f"partition {partition}", -1, partition=partition)
        for other in ODD_TOPICS:
            ask(f"topic {other.name!r}", -1, name=other.name)
        for timeout_ms in (0, -1):
            ask(f"timeout {timeout_ms}", FIXED_TIME, timeout_ms=timeout_ms)
        for step, topics in {
            "a partition twice": [(topic.name, [_at(0, -1), _at(0, -2)])],
            "a topic twice": [(topic.name, [_at(0, -1)]), (topic.name, [_at(1, -1)])],
            "known and unknown": [
                (topic.name, [_at(0, -1), _at(1, -3), _at(9, 0)]),
                (UNKNOWN.name, [_at(0, 0)]),
            ],
            "none": [],
        }.items():
            asked = [{"Name": name, "Partitions": partitions} for name, partitions in topics]
            broker.ask(step, "ListOffsets", version, ReplicaId=-1, Topics=asked)


def _at(partition: int, timestamp: int, leader_epoch: int = -1) -> Fields:
    return {"PartitionIndex": partition, "Timestamp": timestamp, "CurrentLeaderEpoch": leader_epoch}


@scenario
def list_offsets_of_unordered_times(broker: AskedBroker) -> None:
    topic = broker.create_topic("listed-unordered")
    for delta in (50, 30, 10, 40, 20):
        records = (Record(b"a", b"b"), Record(b"a", b"b", (), 3))
        broker.produce(topic, batch(records, timestamp=FIXED_TIME + delta))
    for delta in (0, 10, 13, 14, 20, 31, 40, 44, 50, 52, 53, 54):
        topics = [{"Name": topic.name, "Partitions": [_at(0, FIXED_TIME + delta)]}]
        broker.ask(f"{delta} ms later", "ListOffsets", ReplicaId=-1, Topics=topics)
    largest = [{"Name": topic.name, "Partitions": [_at(0, -3)]}]
    broker.ask("the largest", "ListOffsets", ReplicaId=-1, Topics=largest)


@scenario
def offsets_for_leader_epochs(broker: AskedBroker) -> None:
    topic, empty = filled_topic(broker, "epochs", 1, 5), broker.create_topic("epochs-empty")
    for version in (2, 3, 4):

        def ask(step: str, epoch: int, version: int = version, **options: Any) -> None:
            asked = {
                "Partition": options.get("partition", 0),
                "CurrentLeaderEpoch": options.get("current", -1),
                "LeaderEpoch": epoch,
            }
            topics = [{"Topic": options.get("name", topic.name), "Partitions": [asked]}]
            broker.ask(step, "OffsetForLeaderEpoch", version, ReplicaId=options.get("replica", -2), Topics=topics)

        for epoch in (-2, -1, 0, 1, 5, 2**31 - 1):
            ask(f"epoch {epoch}", epoch)
            ask(f"epoch {epoch}, no records", epoch, name=empty.name)
        for current in (-2, 0, 1):
            ask(f"current epoch {current}", 0, current=current)
        for replica in (-2, -1, 1, 9):
            ask(f"replica {replica}", 0, replica=replica)
        ask("partition 9", 0, partition=9)
        for other in ODD_TOPICS:
            ask(f"topic {other.name!r}", 0, name=other.name)
        twice = [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}] * 2
        topics = [{"Topic": topic.name, "Partitions": twice}]
        broker.ask("a partition twice", "OffsetForLeaderEpoch", version, ReplicaId=-2, Topics=topics)


def commit_fields(
    group: str,
    topic: Topic,
    *offsets: Fields,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> Fields:
    """Of an OffsetCommit request; `offsets` are `committed(...)`."""
    return {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": generation,
        "MemberId": member,
        "GroupInstanceId": instance,
        "Topics": [{"Name": topic.name, "TopicId": topic.id, "Partitions": list(offsets)}],
    }


def committed(offset: int, partition: int = 0, *, metadata: str | None = "", leader_epoch: int = -1) -> Fields:
    return {
        "PartitionIndex": partition,
        "CommittedOffset": offset,
        "CommittedLeaderEpoch": leader_epoch,
        "CommittedMetadata": metadata,
    }


@scenario
def commit_offsets(broker: AskedBroker) -> None:
    topic = broker.create_topic("committed", 2)
    for version in (2, 3, 5, 6, 7, 8, 9, 10):
        group = f"commits-{version}"

        def ask(step: str, *offsets: Fields, version: int = version, group: str = group, **options: Any) -> None:
            of = options.pop("topic", topic)
            broker.ask(step, "OffsetCommit", version, **commit_fields(group, of, *offsets, **options))

        def show(step: str, group: str = group, version: int = version) -> None:
            broker.ask(f"{step}, after version {version}", "OffsetFetch", 7, GroupId=group, Topics=None)

        ask("one", committed(5, metadata="m"))
        ask("two", committed(6, metadata="n", leader_epoch=0), committed(7, 1, metadata=None, leader_epoch=3))
        show("two are there")
        for offset in (-1, -2, 2**63 - 1):
            ask(f"offset {offset}", committed(offset))
        show("the last is there")
        ask("leader epoch -2", committed(5, 1, leader_epoch=-2))
        for partition in (9, -1):
            ask(f"partition {partition}", committed(5, partition))
        for other in ODD_TOPICS:
            ask(f"topic {other.name!r}", committed(1), topic=other)
        ask("metadata of 4096", committed(5, metadata="x" * 4096))
        ask("metadata of 4097, and a good one", committed(5, metadata="x" * 4097), committed(77, 1))
        ask("a partition twice", committed(1, metadata="a"), committed(2, metadata="b"))
        show("the second of them is there")
        ask("no partitions")
        ask("known and unknown", committed(11), committed(1, 9))
        broker.ask("no topics", "OffsetCommit", version, **{**commit_fields(group, topic), "Topics": []})
        ask("group ''", committed(1), group="")
        ask("unknown group, generation 0", committed(1), group="no-such-group", generation=0)
        ask("unknown group, generation 1", committed(1), group="no-such-group", generation=1, member="x")
        ask("generation 1 of no members", committed(1), generation=1, member="x")
        ask("a member without generation", committed(1), member="x")
        ask("generation -2", committed(1), generation=-2)
        ask("an instance", committed(1), instance="i")
        show("the end")
    broker.ask("the group", "DescribeGroups", 5, Groups=["commits-10"])


@scenario
def fetch_offsets(broker: AskedBroker) -> None:
    topic = broker.create_topic("offsets", 4)
    offsets = (committed(5, metadata="m", leader_epoch=2), committed(0, 1, metadata=None))
    for group in ("offsets-a", "offsets-b"):
        broker.query("OffsetCommit", 8, **commit_fields(group, topic, *offsets))

    def listed(topics: Any) -> Any:
        if topics is None:
            return None
        return [{"Name": name, "TopicId": i, "PartitionIndexes": list(partitions)} for (name, i), partitions in topics]

    def named(topics: Any) -> Any:
        """As versions before 8 have it: without ids."""
        listing = listed(topics)
        return None if listing is None else [{k: v for k, v in each.items() if k != "TopicId"} for each in listing]

    for version in range(1, 11):

        def ask(step: str, topics: Any, group: str = "offsets-a", version: int = version, **options: Any) -> None:
            if topics is None and version < 2:
                return
            asked = {
                "GroupId": group,
                "Topics": listed(topics),
                "MemberId": options.get("member"),
                "MemberEpoch": options.get("epoch", -1),
            }
            simple = {"GroupId": group, "Topics": named(topics), "RequireStable": options.get("stable", False)}
            broker.ask(step, "OffsetFetch", version, **simple, Groups=[asked])

        ask("all", None)
        ask("some", [(topic, (0, 1, 2))])
        ask("unknown partitions", [(topic, (9, -1))])
        for other in ODD_TOPICS:
            ask(f"topic {other.name!r}", [(other, (0,))])
        ask("none", [])
        ask("no partitions", [(topic, ())])
        ask("a topic twice", [(topic, (0,)), (topic, (1,))])
        ask("a partition twice", [(topic, (0, 0))])
        ask("stable", [(topic, (0,))], stable=True)
        ask("unknown group", [(topic, (0,))], "no-such-group")
        ask("unknown group, all", None, "no-such-group")
        ask("group ''", [(topic, (0,))], "")
        ask("a member", [(topic, (0,))], member="x", epoch=1)
        ask("a member, epoch -1", [(topic, (0,))], member="x")
        ask("an epoch alone", [(topic, (0,))], epoch=3)
        if version >= 8:
            for step, groups in {
                "several groups": [
                    ("offsets-a", None), ("offsets-b", [(topic, (0,))]), ("no-such-group", None), ("", None),
                ],
                "a group twice": [("offsets-a", None), ("offsets-a", [(topic, (0,))])],
                "no groups": [],
            }.items():  # fmt: skip
                asked = [{"GroupId": group, "Topics": listed(topics)} for group, topics in groups]
                broker.ask(step, "OffsetFetch", version, Groups=asked)


@scenario
def delete_offsets(broker: AskedBroker) -> None:
    topic = broker.create_topic("deleted-offsets", 4)
    broker.query("OffsetCommit", 8, **commit_fields("deletes", topic, committed(5), committed(6, 1)))

    def ask(step: str, *topics: tuple[str, tuple[int, ...]], group: str = "deletes") -> None:
        asked = [
            {"Name": name, "Partitions": [{"PartitionIndex": index} for index in partitions]}
            for name, partitions in topics
        ]
        broker.ask(step, "OffsetDelete", GroupId=group, Topics=asked)

    ask("unknown group", (topic.name, (0,)), group="no-such-group")
    ask("group ''", (topic.name, (0,)), group="")
    ask("unknown partition", (topic.name, (9,)))
    ask("nothing committed", (topic.name, (3,)))
    ask("unknown topic", ("no-such-topic", (0,)))
    ask("invalid topics", ("a b", (0,)), ("", (0,)))
    ask("none")
    ask("no partitions", (topic.name, ()))
    ask("one", (topic.name, (0,)))
    ask("again", (topic.name, (0,)))
    ask("one twice", (topic.name, (1, 1)))
    broker.ask("then", "OffsetFetch", 7, GroupId="deletes", Topics=None)
    broker.ask("the group", "DescribeGroups", Groups=["deletes"])
