"""Where keys go: plog's partitioners beside Java's producer and librdkafka, on 100,000 random keys."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer

from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import Server, call_plog
from tests.support.waiting import FLUSH_SECONDS

KEYS = 100_000
PARTITIONS = 7


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    """Of lengths from 0 to 40, of any bytes; one key once."""
    rnd = random.Random(11)
    return list(dict.fromkeys(rnd.randbytes(rnd.randrange(1, 40)) for _ in range(KEYS)))


def places(address: str, topic: str) -> dict[bytes, bytes]:
    """Partition of each key."""
    options = ["--format", r"%k{hex} %p\n", "--bootstrap-server", address]
    done = call_plog("consume", topic, *options)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines() if line[:1] != b" ")


def produce_with_plog(address: str, topic: str, partitioner: str, keys: list[bytes]) -> dict[bytes, bytes]:
    make(address, topic)
    lines = b"".join(key.hex().encode() + b" \n" for key in keys)
    options = ["--template", r"%k{hex} %s\n", "--partitioner", partitioner, "--bootstrap-server", address]
    done = call_plog("produce", topic, *options, stdin=lines)
    assert done.returncode == 0, done.stderr
    return places(address, topic)


def make(address: str, topic: str) -> None:
    call_plog("topic", "create", topic, "--partitions", str(PARTITIONS), "--bootstrap-server", address)


@pytest.mark.parametrize("partitioner", ["consistent_random", "consistent", "murmur2_random", "fnv1a_random"])
def test_librdkafkas(broker: Server, topic: str, keys: list[bytes], partitioner: str) -> None:
    make(broker.address, topic)
    settings = {"bootstrap.servers": broker.address, "partitioner": partitioner, "linger.ms": 50}
    producer = Producer({**settings, "queue.buffering.max.messages": 2 * KEYS})
    for key in keys:
        producer.produce(topic, b"", key=key)
    assert producer.flush(FLUSH_SECONDS) == 0
    theirs = places(broker.address, topic)
    assert len(theirs) == len(keys)
    assert produce_with_plog(broker.address, f"{topic}-plog", partitioner, keys) == theirs
    assert len(set(theirs.values())) == PARTITIONS


@requires_kafka
@pytest.mark.java
def test_javas(broker: Server, topic: str, keys: list[bytes]) -> None:
    """Keys as text: it is what Kafka's console producer reads."""
    make(broker.address, topic)
    texts = [key.hex().encode()[: 1 + number % 33] + b"%d" % number for number, key in enumerate(keys)]
    done = run_tool(
        "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", broker.address, "--topic", topic,
        "--reader-property", "parse.key=true", stdin=b"".join(text + b"\t\n" for text in texts),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs = places(broker.address, topic)
    assert len(theirs) == len(texts)
    assert produce_with_plog(broker.address, f"{topic}-plog", "murmur2", texts) == theirs
