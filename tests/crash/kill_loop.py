"""A server that is killed again and again under real clients, and a checker that trusts nothing of plog's own.

Idempotent producers number what they write, by topic and partition; a consumer follows; topics come and go; retention
works. In the end everything is read once more, and held against what was acknowledged and what was seen on the way.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.server import Server
from tests.support.waiting import ANSWER_SECONDS, wait_until

Where = tuple[str, int]

PARTITIONS = 3
KEPT, ROLLING, TRIMMED = "kept", "rolling", "trimmed"
TOPICS = {
    KEPT: {"retention.ms": "-1", "internal.segment.bytes": "1000000"},
    ROLLING: {"retention.ms": "-1", "internal.segment.bytes": "200000"},
    TRIMMED: {"retention.ms": "-1", "internal.segment.bytes": "20000", "retention.bytes": "60000"},
}
QUICK = {
    "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 10, "retry.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 10, "metadata.recovery.strategy": "none", "log_level": 0,
}  # fmt: skip
"""A server lives for less than a second; with their defaults clients take longer to find it again."""
_ASKED_S = 2.0
"""How long a life of the server is asked for a topic."""


@dataclass
class Report:
    """What happened; `problems` should be empty."""

    kills: int = 0
    acknowledged: int = 0
    seen: int = 0
    topics_made: int = 0
    idle_lives: int = 0
    """Lives of the server in which nothing was acknowledged."""
    problems: list[str] = field(default_factory=list)


class KillLoop:
    """`run` it once."""

    def __init__(self, directory: Path, *, seed: int = 1) -> None:
        self.report = Report()
        self._rng = random.Random(seed)
        self._server = Server(
            directory / "data",
            "--set", "log.retention.check.interval.ms=100", "--set", "log.flush.offset.checkpoint.interval.ms=300",
            "--set", "log.segment.delete.delay.ms=100",
        )  # fmt: skip
        self._acknowledged: dict[Where, dict[int, bytes]] = defaultdict(dict)
        self._seen: dict[Where, dict[int, bytes]] = defaultdict(dict)
        self._watermarks: dict[Where, int] = defaultdict(int)
        self._made: set[str] = set()
        self._dropped: set[str] = set()
        self._is_over = threading.Event()

    def run(self, kills: int) -> Report:
        self._server.start()
        address = self._server.address
        self._server.pin(address)
        admin = AdminClient({"bootstrap.servers": address, **QUICK})
        for future in admin.create_topics([NewTopic(n, PARTITIONS, 1, config=c) for n, c in TOPICS.items()]).values():
            future.result()
        threads = [threading.Thread(target=self._produce, args=(address, number)) for number in range(2)]
        threads += [threading.Thread(target=self._consume, args=(address,))]
        threads += [threading.Thread(target=self._make_topics, args=(address,))]
        for thread in threads:
            thread.start()
        try:
            self._wait_for_work()
            before = 0
            for number in range(kills):
                if number % 3:  # else it may die before anybody has found it again
                    self._wait_for_more(before)
                is_long = self._rng.random() < 0.25  # long enough for what is done every second
                self._is_over.wait(self._rng.uniform(1.1, 1.6) if is_long else self._rng.uniform(0.05, 0.6))
                self._server.kill()
                self.report.kills += 1
                acknowledged = _count(self._acknowledged)
                self.report.idle_lives += acknowledged == before
                before = acknowledged
                self._server.start()
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()
        self._check(address)
        self._server.stop()
        return self.report

    def _wait_for_work(self) -> None:
        """Until the first records were acknowledged, and seen."""
        wait_until(lambda: self._acknowledged and self._seen, "the clients get to work")

    def _wait_for_more(self, before: int) -> None:
        """Until more is acknowledged than that, and more is seen than there was."""
        seen = _count(self._seen)
        wait_until(
            lambda: _count(self._acknowledged) != before and _count(self._seen) != seen,
            lambda: f"the clients get on: {self.report}",
        )

    # --- the clients

    def _produce(self, address: str, number: int) -> None:
        producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2, "batch.num.messages": 20,
             "message.timeout.ms": 0, **QUICK}
        )  # fmt: skip
        sent = 0

        def acknowledged(error: KafkaError | None, message: Any) -> None:  # confluent_kafka.Message
            if error is not None:
                self.report.problems.append(f"not delivered: {error}")
                return
            where = message.topic(), message.partition()
            self._acknowledged[where][message.offset()] = message.value()

        while not self._is_over.is_set():
            for topic in TOPICS:
                producer.produce(
                    topic, b"%d %d " % (number, sent) + b"." * (sent % 300), partition=sent % PARTITIONS,
                    on_delivery=acknowledged,
                )  # fmt: skip
            sent += 1
            producer.poll(0.001)
            self._is_over.wait(0.004)  # so that the log, and with it a start, stays short
        if producer.flush(ANSWER_SECONDS):
            self.report.problems.append("what was sent was not acknowledged")

    def _consume(self, address: str) -> None:
        """With a new consumer for each life of the server: an old one takes longer to find it than it lives."""
        positions = {(topic, number): 0 for topic in TOPICS for number in range(PARTITIONS)}
        while not self._is_over.is_set():
            is_lost = threading.Event()
            consumer = Consumer(
                {"bootstrap.servers": address, "group.id": "x", "enable.auto.commit": False,
                 "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50, "error_cb": lambda _, e=is_lost: e.set(),
                 **QUICK}
            )  # fmt: skip
            consumer.assign([TopicPartition(*where, position) for where, position in positions.items()])
            while not is_lost.is_set() and not self._is_over.is_set():
                for message in consumer.consume(500, 0.05):
                    if not message.error():
                        positions[message.topic(), message.partition()] = message.offset() + 1
                        self._note_seen(message)
                for where in positions:
                    self._note_watermark(where, consumer.get_watermark_offsets(TopicPartition(*where), cached=True)[1])
            consumer.close()

    def _note_seen(self, message: Any) -> None:  # confluent_kafka.Message
        where = message.topic(), message.partition()
        before = self._seen[where].setdefault(message.offset(), message.value())
        if before != message.value():
            self.report.problems.append(f"{where} offset {message.offset()} was given twice")

    def _note_watermark(self, where: Where, high_watermark: int) -> None:
        if 0 <= high_watermark < self._watermarks[where]:
            self.report.problems.append(f"{where}: high watermark from {self._watermarks[where]} to {high_watermark}")
        self._watermarks[where] = max(self._watermarks[where], high_watermark)

    def _make_topics(self, address: str) -> None:
        admin = AdminClient({"bootstrap.servers": address, **QUICK})
        number = 0
        while not self._is_over.is_set():
            name = f"made-{number}"
            number += 1
            try:
                admin.create_topics([NewTopic(name, 1, 1)], request_timeout=_ASKED_S)[name].result()
                self._made.add(name)
                if number % 3:
                    self._dropped.add(name)
                    admin.delete_topics([name], request_timeout=_ASKED_S)[name].result()
            except KafkaException:
                pass  # the server was killed in the middle: the topic may be there or not
            self._is_over.wait(0.1)

    # --- the end

    def _check(self, address: str) -> None:
        there = set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=ANSWER_SECONDS).topics)
        self.report.topics_made = len(self._made)
        for name in self._made - self._dropped - there:
            self.report.problems.append(f"topic {name} is gone")
        for where, (start, records) in self._read_all(address).items():
            self._check_partition(where, start, records)

    def _check_partition(self, where: Where, start: int, records: dict[int, bytes]) -> None:
        for what, known in (("acknowledged", self._acknowledged[where]), ("seen", self._seen[where])):
            wrong = [o for o, value in known.items() if o >= start and records.get(o) != value]
            if wrong:
                self.report.problems.append(f"{where}: {len(wrong)} {what} records are not there, as of {wrong[0]}")
        if where[0] != TRIMMED and start:
            self.report.problems.append(f"{where} starts at {start}")
        if sorted(records) != list(range(start, start + len(records))):
            self.report.problems.append(f"{where}: the offsets have holes")
        last: dict[bytes, int] = {}
        for offset in sorted(records):
            producer, number, _ = records[offset].split(b" ", 2)
            if int(number) <= last.get(producer, -1):
                self.report.problems.append(f"{where} offset {offset}: twice, or out of order")
            last[producer] = int(number)
        self.report.acknowledged += len(self._acknowledged[where])
        self.report.seen += len(self._seen[where])

    def _read_all(self, address: str) -> dict[Where, tuple[int, dict[int, bytes]]]:
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "y", "enable.partition.eof": True, "enable.auto.commit": False}
        )
        found: dict[Where, tuple[int, dict[int, bytes]]] = {}
        for topic in TOPICS:
            for number in range(PARTITIONS):
                start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_SECONDS)
                consumer.assign([TopicPartition(topic, number, start)])
                records: dict[int, bytes] = {}
                while start + len(records) < end:
                    message = consumer.poll(ANSWER_SECONDS)
                    if message is None:
                        self.report.problems.append(f"{topic}-{number} can't be read on from {start + len(records)}")
                        break
                    if not message.error():
                        records[message.offset()] = message.value()
                found[topic, number] = start, records
        consumer.close()
        return found


def _count(records: dict[Where, dict[int, bytes]]) -> int:
    return sum(len(records.get((topic, number), ())) for topic in TOPICS for number in range(PARTITIONS))
