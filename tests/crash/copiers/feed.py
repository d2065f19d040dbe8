"""What the copiers copy: an idempotent producer of numbered words, and a reader of what the copiers commit."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.crash.copiers.librdkafka_copier import PARTITIONS, QUICK
from tests.support.topic_reader import read_partitions
from tests.support.waiting import FLUSH_SECONDS

WORDS = ("the", "log", "is", "truth", "and", "all", "else", "can", "be", "made", "again", "of", "it")
_PAUSE_SECONDS = 0.02

Record = tuple[bytes, bytes]
"""Key and value."""


class _Worker:
    """Does a step again and again in a thread, while `with` lasts; what goes wrong there comes out at the end."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._step()
            self._end()
        except BaseException as error:  # noqa: BLE001 - whoever stops it gets it
            self.failure = error

    def _step(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError


class Feed(_Worker):
    """Produces words with numbers for keys to all partitions in turn. `acknowledged` has them by partition."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__()
        self.acknowledged: dict[int, list[Record]] = defaultdict(list)
        self._topic = topic
        self._numbers = count()
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 0,
             "log_level": 0, "on_delivery": self._note, **QUICK}
        )  # fmt: skip

    def total(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def _step(self) -> None:
        number = next(self._numbers)
        self._producer.produce(self._topic, WORDS[number * 7 % len(WORDS)], b"%d" % number, number % PARTITIONS)
        self._producer.poll(0)
        self._is_over.wait(_PAUSE_SECONDS if len(self._producer) < 1000 else 1)

    def _end(self) -> None:
        assert self._producer.flush(FLUSH_SECONDS) == 0

    def _note(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged[message.partition()].append((message.key(), message.value()))  # type: ignore[index, arg-type]


class Watch(_Worker):
    """Reads what is committed in some topics; `found` has it by topic and partition."""

    def __init__(self, address: str, topics: Sequence[str]) -> None:
        super().__init__()
        self.found: dict[tuple[str, int], list[Record]] = {(t, p): [] for t in topics for p in range(PARTITIONS)}
        self._consumer = a_reader(address, list(self.found))

    def total(self, topic: str) -> int:
        return sum(len(self.found[topic, partition]) for partition in range(PARTITIONS))

    def _step(self) -> None:
        for message in self._consumer.consume(500, 0.05):
            if message.error() is None:
                self.found[_place(message)].append((message.key(), message.value()))  # type: ignore[arg-type]
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF or message.error().retriable(), (
                    message.error()
                )

    def _end(self) -> None:
        self._consumer.close()


def read_all(address: str, topics: Sequence[str]) -> dict[tuple[str, int], list[Record]]:
    """All committed records, up to the end or to what is open."""
    found = read_partitions(address, *((topic, number) for topic in topics for number in range(PARTITIONS)))
    return {place: [(m.key(), m.value()) for m in messages] for place, messages in found.items()}  # type: ignore[misc]


def a_reader(address: str, places: Sequence[tuple[str, int]]) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "none", "isolation.level": "read_committed", "log_level": 0,
         "enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True,
         "fetch.wait.max.ms": 100, **QUICK}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    return consumer


def _place(message: Message) -> tuple[str, int]:
    return message.topic(), message.partition()  # type: ignore[return-value]
