"""The world's Kafka clients behind one shape each: produce these records, consume that topic by assignment."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS
from tests.support.ways_in import WAYS, librdkafka, python


@dataclass(frozen=True)
class Sent:
    """A record as a client sends and gets it; `timestamp` in milliseconds."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


NOW = 1_700_000_000_000
RECORDS = (
    Sent(b"key", b"value", NOW),
    Sent(None, b"no key", NOW + 1),
    Sent(b"no value", None, NOW + 2),
    Sent(b"", b"", NOW + 3),
    Sent(b"\x00\xff", b"\xfe" * 300, NOW + 4, (("h", b"1"), ("h", b"\xff\x00"), ("", b""))),
    *(Sent(b"k%d" % (n % 7), b"the same words again " * 5 + b"%d" % n, NOW + 5 + n) for n in range(300)),
    Sent(b"large", bytes(range(256)) * 2000, NOW + 1000),
)
"""Nulls, empty ones, bytes that are no text, headers with a name twice, timestamps of their own; one large record."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Produce = Callable[[str, str, Sequence[Sent], str], None]
"""(address, topic, records, codec): all to partition 0, acknowledged when it returns."""

Consume = Callable[[str, str, int], list[Sent]]
"""(address, topic, count): so many records of partition 0, from its beginning."""


# --- confluent-kafka (librdkafka)


def confluent_produce(address: str, topic: str, records: Sequence[Sent], codec: str) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({**librdkafka(address), "compression.type": codec, "enable.idempotence": True})
    for r in records:
        producer.produce(
            topic, r.value, r.key, partition=0, timestamp=r.timestamp, headers=list(r.headers), on_delivery=delivered
        )
    assert producer.flush(FLUSH_SECONDS) == 0
    assert not failures


def confluent_consume(address: str, topic: str, count: int) -> list[Sent]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({**librdkafka(address), "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages = consumer.consume(count, timeout=ANSWER_SECONDS)
    consumer.close()
    assert all(m.error() is None for m in messages)
    return [Sent(m.key(), m.value(), m.timestamp()[1], tuple(m.headers() or ())) for m in messages]


# --- kafka-python


def kafka_python_produce(address: str, topic: str, records: Sequence[Sent], codec: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(**python(address), compression_type=None if codec == "none" else codec)
    futures = [
        producer.send(topic, r.value, r.key, list(r.headers), partition=0, timestamp_ms=r.timestamp) for r in records
    ]
    producer.flush(FLUSH_SECONDS)
    for future in futures:
        future.get(30)
    producer.close()


def kafka_python_consume(address: str, topic: str, count: int) -> list[Sent]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(**python(address), group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found = [next(consumer) for _ in range(count)]
    consumer.close()
    return [Sent(m.key, m.value, m.timestamp, tuple(m.headers)) for m in found]


# --- aiokafka


def aiokafka_produce(address: str, topic: str, records: Sequence[Sent], codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(**python(address), compression_type=compression, acks="all") as producer:
            futures = [
                await producer.send(
                    topic, r.value, r.key, partition=0, timestamp_ms=r.timestamp, headers=list(r.headers)
                )
                for r in records
            ]
            await asyncio.gather(*futures)

    asyncio.run(run())


def aiokafka_consume(address: str, topic: str, count: int) -> list[Sent]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> list[Sent]:
        async with AIOKafkaConsumer(**python(address), auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found = [await consumer.getone() for _ in range(count)]
            return [Sent(m.key, m.value, m.timestamp, tuple(m.headers)) for m in found]

    return asyncio.run(run())


PRODUCERS: dict[str, Produce] = {
    "confluent-kafka": confluent_produce,
    "kafka-python": kafka_python_produce,
    "aiokafka": aiokafka_produce,
}
CONSUMERS: dict[str, Consume] = {
    "confluent-kafka": confluent_consume,
    "kafka-python": kafka_python_consume,
    "aiokafka": aiokafka_consume,
}


# --- kcat

requires_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat, which is not installed here")


def kcat(*arguments: str, stdin: bytes = b"") -> bytes:
    settings = [f"-X{name}={value}" for one in arguments if one in WAYS for name, value in librdkafka(one).items()]
    done = subprocess.run(["kcat", *settings, *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
