"""What a new consumer of librdkafka's gets of some partitions, up to their ends or to what is open."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.support.waiting import wait_until
from tests.support.ways_in import librdkafka


def read_partitions(
    address: str, *places: tuple[str, int], isolation: str = "read_committed"
) -> dict[tuple[str, int], list[Message]]:
    """By topic and partition."""
    consumer = Consumer(
        {**librdkafka(address), "group.id": "reader", "isolation.level": isolation, "enable.auto.commit": False,
         "enable.partition.eof": True, "check.crcs": True, "log_level": 0, "fetch.wait.max.ms": 10}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in places])
    found: dict[tuple[str, int], list[Message]] = {place: [] for place in places}
    ended: set[tuple[str, int]] = set()

    def are_ended() -> bool:
        for message in consumer.consume(1000, 0.05):
            place = message.topic() or "", message.partition() or 0
            if message.error() is None:
                found[place].append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(place)
        return ended == found.keys()

    wait_until(are_ended, lambda: f"the ends of {found.keys() - ended}")
    consumer.close()
    return found


def read_topic(
    address: str, topic: str, partitions: int = 1, *, isolation: str = "read_committed"
) -> Sequence[Message]:
    """One partition after the other."""
    found = read_partitions(address, *((topic, number) for number in range(partitions)), isolation=isolation)
    return [message for messages in found.values() for message in messages]
