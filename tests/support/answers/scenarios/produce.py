"""Produce: versions, broken batches, timestamps, sizes, sequences of idempotent producers."""

from __future__ import annotations

import time
from typing import Any

from tests.support.answers.asked_broker import AskedBroker, Topic, fetch_fields, produce_fields
from tests.support.answers.message_codec import NO_ID, Fields
from tests.support.answers.record_batches import (
    CONTROL,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    THREE,
    TRANSACTIONAL,
    ZSTD,
    Record,
    batch,
    old_message,
    record_bytes,
)
from tests.support.answers.scenarios.registry import scenario

VERSIONS = (3, 5, 7, 8, 9, 12, 13)
"""The first of each that has something of its own."""
ONE = (Record(b"k", b"v"),)
TWO = ONE * 2
HOUR_MS = 3600_000
_MADE_UP_PRODUCER = 1 << 40


class Log:
    """A topic of one partition, to which batches are sent by one version.

    Without `offsets` only whether a batch got one is compared: what one broker takes and the other refuses would
    otherwise show in every later answer.
    """

    def __init__(self, broker: AskedBroker, topic: Topic, version: int = 13, *, offsets: bool = True) -> None:
        self._broker = broker
        self.topic = topic
        self._version = version
        self._pick = None if offsets else _without_offsets

    def send(self, step: str, records: bytes | None, *, partition: int = 0, **options: Any) -> None:
        fields = produce_fields(self.topic, records, partition, **options)
        self._broker.ask(step, "Produce", self._version, pick=self._pick, **fields)

    def show(self, step: str) -> None:
        self._broker.ask(step, "Fetch", **fetch_fields(self.topic))


def _without_offsets(answer: Fields) -> Fields:
    """Of one partition."""
    (topic,) = answer["Responses"]
    (partition,) = topic["PartitionResponses"]
    offset = partition["BaseOffset"]
    return {**topic, "PartitionResponses": [{**partition, "BaseOffset": offset if offset < 0 else "<offset>"}]}


@scenario
def produce_versions(broker: AskedBroker) -> None:
    topic = broker.create_topic("produced", 2)
    good, bad = batch(), batch(crc=5)

    def ask(step: str, *topics: tuple[Topic, dict[int, bytes]], version: int) -> None:
        data = [
            {"Name": name, "TopicId": topic_id, "PartitionData": _partition_data(partitions)}
            for (name, topic_id), partitions in topics
        ]
        broker.ask(step, "Produce", version, Acks=1, TimeoutMs=100, TopicData=data)

    for version in VERSIONS:
        log = Log(broker, topic, version)
        for acks in (1, -1, 2, -2, 127):
            log.send(f"acks {acks}", good, acks=acks)
        log.send("partition 7", good, partition=7)
        log.send("partition -1", good, partition=-1)
        log.send("acks 2, partition 7", good, acks=2, partition=7)
        for other in (Topic("no-such-topic", "a" * 32), Topic("", NO_ID), Topic("a b", NO_ID)):
            Log(broker, other, version).send(f"topic {other.name!r}", good)
        log.send("empty", b"")
        log.send("not transactional, an id given", good, transactional_id="x")
        log.send("transactional, no id given", batch(attributes=TRANSACTIONAL, producer=(5, 0), sequence=0))
        ask("no topics", version=version)
        ask("no partitions", (topic, {}), version=version)
        ask("a topic twice", (topic, {0: good}), (topic, {1: good}), version=version)
        unknown = Topic("no-such-topic", "b" * 32)
        ask("good, bad and unknown", (topic, {0: good, 1: bad, 9: good}), (unknown, {0: good}), version=version)
    for timeout_ms in (0, -1):
        fields = {**produce_fields(topic, good), "TimeoutMs": timeout_ms}
        broker.ask(f"timeout {timeout_ms}", "Produce", **fields)
    Log(broker, topic).send("null", None)
    for name in ("__consumer_offsets", "__transaction_state"):
        Log(broker, Topic(name, NO_ID), 12).send(name, good)
    log.show("the log")


def _partition_data(partitions: dict[int, bytes]) -> list[Fields]:
    return [{"Index": index, "Records": records} for index, records in partitions.items()]


@scenario
def produce_without_answer(broker: AskedBroker) -> None:
    topic = broker.create_topic("produced-acks-0")
    for step, records, name in (
        ("good", batch(), topic.name),
        ("bad checksum", batch(crc=1), topic.name),
        ("unknown topic", batch(), "no-such-topic"),
        ("bad magic", batch(magic=3), topic.name),
        ("empty", b"", topic.name),
    ):
        data = [{"Name": name, "PartitionData": _partition_data({0: records})}]
        broker.send_only("Produce", 9, connection=step, Acks=0, TimeoutMs=100, TopicData=data)
        broker.ask(f"{step}: then", "ApiVersions", 0, connection=step, pick=lambda _: "an answer")
    Log(broker, topic).show("the log")


@scenario
def produce_broken_headers(broker: AskedBroker) -> None:
    log = Log(broker, broker.create_topic("broken-headers"), offsets=False)
    good = batch()
    right_length = len(good) - 12
    for codec in (GZIP, SNAPPY, LZ4, ZSTD, 5, 6, 7):
        log.send(f"codec {codec}", batch(attributes=codec))
    for attributes in (TRANSACTIONAL, CONTROL, TRANSACTIONAL | CONTROL, 64, 128, 0x100, 0x4000, -32768):
        log.send(f"attributes {attributes}", batch(attributes=attributes))
    for attributes in (TRANSACTIONAL, CONTROL, TRANSACTIONAL | CONTROL):
        records = batch(attributes=attributes, producer=(77777, 0), sequence=0)
        log.send(f"attributes {attributes} of a producer", records)
    for magic in (0, 1, 3, 255):
        log.send(f"magic {magic} in a batch of magic 2", batch(magic=magic))
    for magic in (0, 1):
        log.send(f"a message of magic {magic}", old_message(magic))
    log.send("bad checksum", batch(crc=1))
    for base_offset in (5, -1, 1 << 62):
        log.send(f"base offset {base_offset}", batch(base_offset=base_offset))
    log.send("leader epoch 9", batch(leader_epoch=9))
    for length in (-1, 0, 10, 48, 49, 60, 2**31 - 1):
        log.send(f"length {length}", batch(length=length))
    for more in (-1, 1):
        log.send(f"length {more} more than right", batch(length=right_length + more))
    for size in (1, 12, 17, 61, len(good) - 1):
        log.send(f"the first {size} bytes", good[:size])
    for size in (1, 11, 17):
        log.send(f"{size} bytes after it", good + bytes(size))
    log.send("two batches", good + good)
    log.send("a good batch and a bad one", good + batch(crc=1))


@scenario
def produce_attributes(broker: AskedBroker) -> None:
    """Bits that are not a client's to set, and what the log holds of them."""
    log = Log(broker, broker.create_topic("attributes"))
    for attributes in (LOG_APPEND_TIME, 0x80, 0x100, 0x4000):
        log.send(f"attributes {attributes}", batch(attributes=attributes, leader_epoch=9))
    log.show("the log")


@scenario
def produce_broken_counts(broker: AskedBroker) -> None:
    """The count and the last offset delta, against each other and against the records."""
    log = Log(broker, broker.create_topic("broken-counts"), offsets=False)
    log.send("no records", batch(()))
    log.send("no records, last delta 0", batch((), last_offset_delta=0))
    for count, last_delta in (
        (0, 2), (-1, 2), (2, 2), (4, 2), (2, 1), (4, 3), (3, 5), (3, -1), (2**31 - 1, 2**31 - 2),
    ):  # fmt: skip
        step = f"count {count}, last delta {last_delta} of three"
        log.send(step, batch(count=count, last_offset_delta=last_delta))
        if count in (2, 4):
            log.send(f"{step}, gzip", batch(count=count, last_offset_delta=last_delta, attributes=GZIP))


@scenario
def produce_broken_records(broker: AskedBroker) -> None:
    """Under a right checksum."""
    log = Log(broker, broker.create_topic("broken-records"), offsets=False)
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        log.send(f"codec {codec}, not compressed", batch(attributes=codec, codec=0))
    whole = record_bytes(ONE[0])
    for step, records, body in (
        ("record length -1", ONE, record_bytes(ONE[0], length=-1)),
        ("record length 1 more", ONE, record_bytes(ONE[0], length=9)),
        ("record length 0", ONE, b"\0"),
        ("offset delta 5", ONE, record_bytes(ONE[0], 5)),
        ("one offset delta twice", TWO, whole + whole),
        ("attributes of a record", ONE, record_bytes(ONE[0], attributes=1)),
        ("bytes after a record's fields", ONE, record_bytes(ONE[0], extra=b"x")),
        ("bytes after the records", ONE, whole + b"zz"),
        ("no bytes", ONE, b""),
        ("a header without a name", ONE, whole[:-1] + b"\2\1\1"),
        ("key length -2", ONE, bytes([16, 0, 0, 0, 3, 2, 118, 0, 0])),
    ):
        log.send(step, batch(records, body=body))
        log.send(f"{step}, gzip", batch(records, body=body, attributes=GZIP))
    headers = ((b"h", b"x"), (b"h", None), (b"", b""))
    log.send("headers", batch((Record(b"k", b"v", headers),)))
    log.send("key and value null", batch((Record(None, None),)))
    log.send("key and value empty", batch((Record(b"", b""),)))


@scenario
def produce_to_compacted(broker: AskedBroker) -> None:
    middle = (*ONE * 5, Record(None, b"v"), *ONE * 3)
    for policy in ("compact", "compact,delete"):
        topic = broker.create_topic("produced-" + policy.replace(",", "-"), cleanup_policy=policy)
        for version in (3, 7, 8, 13):
            log = Log(broker, topic, version)
            log.send(f"{policy}: a null key", batch())
            log.send(f"{policy}: a null key, gzip", batch(attributes=GZIP))
            log.send(f"{policy}: a null key among many", batch(middle))
            log.send(f"{policy}: keys", batch(THREE[:2]))
            log.send(f"{policy}: a tombstone", batch((Record(b"k", None),)))
        log.show(f"{policy}: the log")


@scenario
def produce_compression(broker: AskedBroker) -> None:
    for target in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"):
        log = Log(broker, broker.create_topic(f"compressed-{target}", compression_type=target))
        for codec in range(5):
            log.send(f"{target}, from codec {codec}", batch(attributes=codec))
        answer = broker.query("Fetch", **fetch_fields(log.topic))
        broker.keep(f"{target}, codecs in the log", _codecs(answer["Responses"][0]["Partitions"][0]["Records"]))


def _codecs(records: str) -> list[int]:
    from tests.support.answers.record_batches import comparable_batches

    return [found["Attributes"] for found in comparable_batches(records)["batches"]]


@scenario
def produce_timestamps(broker: AskedBroker) -> None:
    now = int(time.time() * 1000) - 1000  # so that what comes a little later is no future, however fast the broker is
    for name, configs in {
        "default": {},
        "before one hour": {"message_timestamp_before_max_ms": "3600000"},
        "after two hours": {"message_timestamp_after_max_ms": "7200000"},
        "before 0": {"message_timestamp_before_max_ms": "0"},
        "after 0": {"message_timestamp_after_max_ms": "0"},
        "append time": {"message_timestamp_type": "LogAppendTime"},
        "append time, gzip": {"message_timestamp_type": "LogAppendTime", "compression_type": "gzip"},
    }.items():
        topic = broker.create_topic("times-" + name.replace(" ", "-").replace(",", ""), **configs)
        for version in (3, 9, 13):
            log = Log(broker, topic, version, offsets=False)
            for step, timestamp in (
                ("-1", -1), ("-2", -2), ("0", 0), ("1", 1), ("two hours ago", now - 2 * HOUR_MS), ("now", now - 1),
                ("in half an hour", now + HOUR_MS // 2), ("in one hour and a half", now + 3 * HOUR_MS // 2),
                ("in three hours", now + 3 * HOUR_MS), ("2^63-1", 2**63 - 1),
            ):  # fmt: skip
                log.send(f"{name}: {step}", batch(ONE, timestamp=timestamp))
        for step, deltas, options in (
            ("one of three is old", (0, -3 * HOUR_MS, 5), {}),
            ("one of three is in the future", (0, 3 * HOUR_MS, 5), {}),
            ("the header's maximum is too small", (0, 5), {"max_timestamp": now}),
            ("the header's maximum is too large", (0,), {"max_timestamp": now + 50}),
            ("the header's maximum is -1", (0,), {"max_timestamp": -1}),
            ("the bit of append time", (0, 0), {"attributes": LOG_APPEND_TIME}),
            ("gzip", (0, 0), {"attributes": GZIP}),
        ):
            records = tuple(Record(b"a", b"b", (), delta) for delta in deltas)
            log.send(f"{name}: {step}", batch(records, timestamp=now, **options))  # type: ignore[arg-type]


@scenario
def produce_sizes(broker: AskedBroker) -> None:
    size = len(batch((Record(b"k", b"x" * 100),)))
    compressible = (Record(b"k", b"x" * 5000),)
    for target in ("producer", "gzip", "uncompressed"):
        topic = broker.create_topic(f"sizes-{target}", max_message_bytes=str(size), compression_type=target)
        log = Log(broker, topic, offsets=False)
        for more in (-1, 0, 1, 2):
            log.send(f"{target}: {more:+} bytes", batch((Record(b"k", b"x" * (100 + more)),)))
        log.send(f"{target}: compresses well", batch(compressible))
        log.send(f"{target}: is compressed well", batch(compressible, attributes=GZIP))
    for most in ("0", "61"):
        log = Log(broker, broker.create_topic(f"sizes-{most}", max_message_bytes=most))
        log.send(f"at most {most} bytes", batch(ONE))
    small = broker.create_topic("sizes-segment", segment_bytes="1048576", max_message_bytes="3000000")
    Log(broker, small).send("larger than a segment", batch((Record(b"k", b"x" * 1_100_000),)))
    log = Log(broker, broker.create_topic("sizes-default"))
    log.send("the most by default", batch((Record(b"k", b"x" * (1_048_588 - size + 96)),)))
    log.send("more than by default", batch((Record(b"k", b"x" * 1_048_588),)))


class IdempotentLog(Log):
    """Batches of two records, as a producer with an id sends them."""

    def __init__(self, broker: AskedBroker, topic: Topic, version: int) -> None:
        super().__init__(broker, topic, version)
        self.producer_id, _ = broker.new_producer()

    def write(
        self, step: str, sequence: int, count: int = 2, *, epoch: int = 0, other: int | None = None, attributes: int = 0
    ) -> None:
        """By another producer with `other`."""
        producer = self.producer_id if other is None else other
        records = batch(ONE * count, producer=(producer, epoch), sequence=sequence, attributes=attributes)
        self.send(step, records)


@scenario
def idempotent_sequences(broker: AskedBroker) -> None:
    for version in (3, 9, 13):
        log = IdempotentLog(broker, broker.create_topic(f"sequences-{version}"), version)
        for step, sequence, count in (
            ("the first", 0, 2), ("the next", 2, 2), ("again", 2, 2), ("the first again", 0, 2), ("a gap", 6, 2),
            ("again with more records", 2, 3), ("again with fewer", 2, 1), ("an overlap", 3, 2),
            ("the middle of an old one", 1, 1), ("and on", 4, 2), ("sequence 6", 6, 2), ("sequence 8", 8, 2),
            ("sequence 10", 10, 2), ("sequence 12", 12, 2), ("sequence 14", 14, 2), ("the fifth last again", 6, 2),
            ("the sixth last again", 4, 2), ("the first, long after", 0, 2),
        ):  # fmt: skip
            log.write(step, sequence, count)
        for step, epoch, sequence in (
            ("a new epoch from 5", 1, 5), ("a new epoch from 0", 1, 0), ("the old epoch", 0, 16),
            ("the new epoch's next", 1, 2), ("the new epoch's first again", 1, 0), ("epoch 5", 5, 0),
            ("epoch 32767", 32767, 0), ("epoch 0 after all", 0, 0), ("epoch -1", -1, 0), ("epoch -2", -2, 0),
            ("sequence -1", 32767, -1), ("sequence -2", 32767, -2),
        ):  # fmt: skip
            log.write(step, sequence, epoch=epoch)
        log.show(f"the log, after version {version}")
        broker.ask(
            f"its producers, after version {version}",
            "DescribeProducers",
            Topics=[{"Name": log.topic.name, "PartitionIndexes": [0]}],
        )


@scenario
def idempotent_producers(broker: AskedBroker) -> None:
    """Those that the partition does not know."""
    log = IdempotentLog(broker, broker.create_topic("producers"), 13)
    unknown = iter(range(_MADE_UP_PRODUCER, _MADE_UP_PRODUCER + 20))
    log.write("from 0", 0, other=next(unknown))
    empty = IdempotentLog(broker, broker.create_topic("producers-empty"), 13)
    empty.write("an empty log from 7", 7)
    empty.write("an empty log from 0 then", 0)
    other = IdempotentLog(broker, broker.create_topic("producers-other"), 13)
    other.write("epoch -1", 0, epoch=-1, other=next(unknown))
    later = next(unknown)
    log.write("from 7", 7, other=later)
    log.write("from 7, and on", 9, other=later)
    log.write("epoch 3 from 2", 2, epoch=3, other=next(unknown))
    log.write("id -2", 0, other=-2)
    log.write("id -1 with a sequence", 0, other=-1)
    log.write("id -1, epoch and sequence -1", -1, epoch=-1, other=-1)
    log.write("an id without a sequence", -1, other=next(unknown))
    log.write("transactional without an id", 0, other=next(unknown), attributes=TRANSACTIONAL)
    log.write("gzip", 0, other=next(unknown), attributes=GZIP)
    wrapping = next(unknown)
    for step, sequence, count in (
        ("near the last sequence", 2**31 - 3, 2), ("over it", 2**31 - 1, 2), ("and on", 1, 2),
        ("over it again", 2**31 - 1, 2), ("a gap", 5, 1), ("back to 0", 0, 1),
    ):  # fmt: skip
        log.write(f"wraps: {step}", sequence, count, other=wrapping)
    exact = next(unknown)
    for step, sequence in (("the last sequence", 2**31 - 1), ("then 0", 0), ("then 1", 1), ("again", 2**31 - 1)):
        log.write(f"wraps exactly: {step}", sequence, 1, other=exact)
    emptied = IdempotentLog(broker, broker.create_topic("producers-emptied"), 13)
    emptied.write("before", 0, 3)
    partitions = [{"PartitionIndex": 0, "Offset": -1}]
    broker.query("DeleteRecords", Topics=[{"Name": emptied.topic.name, "Partitions": partitions}], TimeoutMs=5000)
    for step, sequence in (("again", 0), ("the next", 3), ("a gap", 9)):
        emptied.write(f"records deleted: {step}", sequence, 3)
