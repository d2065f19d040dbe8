"""Fetch: offsets, limits, epochs, sessions."""

from __future__ import annotations

from typing import Any

from tests.support.answers.asked_broker import FETCH_NOTHING, AskedBroker, Topic, fetch_fields, fetch_partition
from tests.support.answers.message_codec import NO_ID, Fields
from tests.support.answers.record_batches import FIXED_TIME, Record, batch
from tests.support.answers.scenarios.registry import scenario

VERSIONS = (4, 5, 7, 11, 12, 13, 15, 16, 18)
"""The first of each that has something of its own."""


def filled_topic(broker: AskedBroker, name: str, partitions: int = 1, batches: int = 10) -> Topic:
    """Each batch holds two records, and takes 179 bytes."""
    topic = broker.create_topic(name, partitions)
    for partition in range(partitions):
        for number in range(batches):
            records = (Record(b"k%d" % number, b"v" * 50),) * 2
            broker.produce(topic, batch(records, timestamp=FIXED_TIME + number * 10), partition)
    return topic


@scenario
def fetch_one_partition(broker: AskedBroker) -> None:
    topic = filled_topic(broker, "fetched", 2)
    for version in VERSIONS:

        def ask(step: str, offset: int = 0, partition: int = 0, version: int = version, **options: Any) -> None:
            broker.ask(step, "Fetch", version, **fetch_fields(topic, offset, partition, **options))

        for offset in (-2, -1, 0, 1, 3, 19, 20, 21, 1 << 40, 2**63 - 1):
            ask(f"offset {offset}", offset, max_bytes=200)
        for partition in (9, -1):
            ask(f"partition {partition}", partition=partition)
        for other in (Topic("no-such-topic", "a" * 32), Topic("", NO_ID), Topic("a b", NO_ID)):
            broker.ask(f"topic {other.name!r}", "Fetch", version, **fetch_fields(other))
        for most in (-1, 0, 1, 60, 150, 300):
            ask(f"max bytes {most}", max_bytes=most)
            ask(f"partition max bytes {most}", partition_max_bytes=most)
            ask(f"both {most}, from 3", 3, max_bytes=most, partition_max_bytes=most)
        for level in (1, 2, -1, 127):
            ask(f"isolation level {level}", 18, isolation_level=level)
        for epoch in (-2, 0, 1, 5):
            ask(f"leader epoch {epoch}", 18, leader_epoch=epoch)
        for epoch, offset in ((0, 0), (0, 20), (0, 21), (1, 5), (5, 20), (-2, 3), (0, -1)):
            ask(f"last fetched epoch {epoch} at {offset}", offset, last_fetched_epoch=epoch, max_bytes=200)
        asked = fetch_fields(topic, 20)
        broker.ask("waits in vain", "Fetch", version, **{**asked, "MaxWaitMs": 20, "MinBytes": 1})
        broker.ask("waits less than no time", "Fetch", version, **{**asked, "MaxWaitMs": -1, "MinBytes": 1})
        broker.ask("wants less than nothing", "Fetch", version, **{**asked, "MaxWaitMs": 5000, "MinBytes": -1})


@scenario
def fetch_several_partitions(broker: AskedBroker) -> None:
    topic = filled_topic(broker, "fetched-several", 2, 3)
    unknown = Topic("no-such-topic", "c" * 32)
    zero, one = (fetch_partition(index, max_bytes=200) for index in (0, 1))

    def of(topic: Topic, *partitions: Fields) -> Fields:
        return {"Topic": topic.name, "TopicId": topic.id, "Partitions": list(partitions)}

    for version in VERSIONS:
        for step, changes in {
            "two": {"Topics": [of(topic, zero, one)]},
            "a partition twice": {"Topics": [of(topic, zero, zero)]},
            "a topic twice": {"Topics": [of(topic, zero), of(topic, one)]},
            "no topics": {"Topics": []},
            "no partitions": {"Topics": [of(topic)]},
            "of no topic": {"Topics": [of(Topic("", NO_ID), zero, one)]},
            "known and unknown": {"Topics": [of(topic, zero, one), of(unknown, zero, one)]},
            **{
                f"replica {replica}": {
                    "Topics": [of(topic, zero)],
                    "ReplicaId": replica,
                    "ReplicaState": {"ReplicaId": replica, "ReplicaEpoch": -1},
                }
                for replica in (-2, 1, 5, 99)
            },
            "another cluster's id": {"Topics": [of(topic, zero)], "ClusterId": "nope"},
            "a rack": {"Topics": [of(topic, zero)], "RackId": "r1"},
        }.items():
            broker.ask(step, "Fetch", version, **{**FETCH_NOTHING, **changes})


@scenario
def fetch_first_batches(broker: AskedBroker) -> None:
    """Partitions whose first batch is larger than what is left, or than their own limit."""
    topic = filled_topic(broker, "fetched-first", 3, 3)

    def sizes(answer: Fields) -> Any:
        partitions = answer["Responses"][0]["Partitions"]
        return {each["PartitionIndex"]: len(each["Records"] or "") // 2 for each in partitions}

    for version in (4, 9, 12, 13, 18):
        for most in (170, 179, 180, 200, 300, 357, 358, 359, 400, 537):
            for partition_most in (100, 178, 179, 180, 1000):
                asked = [fetch_partition(index, max_bytes=partition_most) for index in (0, 1, 2)]
                topics = [{"Topic": topic.name, "TopicId": topic.id, "Partitions": asked}]
                fields = {**FETCH_NOTHING, "MaxBytes": most, "Topics": topics}
                broker.ask(f"{most} bytes, {partition_most} a partition", "Fetch", version, pick=sizes, **fields)


class Session:
    """A fetch session by one version; steps are numbered by its epochs."""

    def __init__(self, broker: AskedBroker, version: int) -> None:
        self._broker = broker
        self._version = version
        self._id = 0

    def ask(self, step: str, epoch: int, *topics: tuple[Topic, dict[int, int]], **options: Any) -> None:
        """`forget`: topics with their partitions; `session`: another session's id; `begin`: it is a new one's."""
        session = options.get("session", 0 if options.get("begin") else self._id)
        asked = [
            {
                "Topic": topic.name,
                "TopicId": topic.id,
                "Partitions": [fetch_partition(p, o) for p, o in offsets.items()],
            }
            for topic, offsets in topics
        ]
        forgotten = [
            {"Topic": topic.name, "TopicId": topic.id, "Partitions": partitions}
            for topic, partitions in options.get("forget", ())
        ]
        fields = {
            **FETCH_NOTHING, "SessionId": session, "SessionEpoch": epoch, "Topics": asked,
            "ForgottenTopicsData": forgotten,
        }  # fmt: skip
        answer = self._broker.ask(step, "Fetch", self._version, pick=_hide_session, **fields)
        if options.get("begin") and isinstance(answer, dict):
            self._id = answer["SessionId"]


def _hide_session(answer: Fields) -> Fields:
    return {**answer, "SessionId": answer["SessionId"] != 0}


@scenario
def fetch_sessions(broker: AskedBroker) -> None:
    one, other = filled_topic(broker, "session", 3, 2), filled_topic(broker, "session-other", 1, 2)
    unknown = Topic("no-such-topic", "d" * 32)
    for index, version in enumerate((7, 12, 13, 15, 18)):
        session, end = Session(broker, version), 4 + index
        session.ask("begins", 0, (one, {0: end, 1: 4}), begin=True)
        session.ask("nothing new", 1)
        broker.produce(one, batch((Record(b"new", b"n"),)))
        session.ask("something new", 2)
        session.ask("again, as the offset is the same", 3)
        session.ask("the offset is moved", 4, (one, {0: end + 1}))
        session.ask("a partition is added", 5, (one, {2: 0}))
        session.ask("its offset is moved", 6, (one, {2: 4}))
        session.ask("a topic is added", 7, (other, {0: 2}))
        session.ask("a partition is forgotten", 8, (other, {0: 4}), forget=[(one, [2])])
        session.ask("nothing new then", 9)
        session.ask("an unknown topic is forgotten", 10, forget=[(unknown, [0])])
        session.ask("an unknown partition is added", 11, (one, {9: 0}))
        session.ask("it is still unknown", 12)
        session.ask("it is forgotten", 13, forget=[(one, [9])])
        session.ask("an unknown topic is added", 14, (unknown, {0: 0}))
        session.ask("the topic is still unknown", 15)
        session.ask("the topic is forgotten", 16, forget=[(unknown, [0])])
        session.ask("an offset out of range", 17, (one, {0: 99}))
        session.ask("it is still out of range", 18)
        session.ask("the offset is right again", 19, (one, {0: end + 1}))
        session.ask("forgotten and added at once", 20, (one, {1: 0}), forget=[(one, [1])])
        for epoch in (5, 77, 21, 22):
            session.ask(f"epoch {epoch}", epoch)
        session.ask("an unknown session", 1, session=12345678)
        session.ask("no session, epoch 1", 1, session=0)
        session.ask("a new one in place of it", 0, (one, {0: 4}))
        session.ask("another begins", 0, (one, {0: 4}), begin=True)
        session.ask("it ends", -1)
        session.ask("after its end", 1)
        session.ask("no session at all", -1, (one, {0: 4}), session=0)
        session.ask("epoch -2", -2, (one, {0: 4}), session=0)
        session.ask("begins with nothing", 0, session=0)
        session.ask("forgets what it begins with", 0, (one, {0: 4}), session=0, forget=[(one, [0])])


@scenario
def fetch_sessions_of_deleted_topics(broker: AskedBroker) -> None:
    kept = filled_topic(broker, "session-kept", 1, 1)
    for version in (7, 12, 13, 18):
        deleted = filled_topic(broker, f"session-deleted-{version}", 1, 1)
        session = Session(broker, version)
        session.ask("begins", 0, (deleted, {0: 2}), (kept, {0: 2}), begin=True)
        broker.delete_topic(deleted)
        session.ask("a topic is deleted", 1)
        session.ask("it is still deleted", 2)
        broker.create_topic(deleted.name)
        session.ask("it is made again", 3)
