"""An idempotent producer that goes on while a cluster is in trouble, and what is there in the end."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Producer

from tests.support.topic_reader import read_topic
from tests.support.waiting import FLUSH_SECONDS, wait_until


class Load:
    """An idempotent producer of numbers, acknowledged by all in sync, beside whatever else goes on."""

    def __init__(self, address: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for_more(self, count: int = 50) -> None:
        """Until so many more are acknowledged: it gets on."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) >= before + count, f"{self.topic} gets on")

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        )
        number = 0
        while not self._is_over.wait(0.002):
            producer.produce(self.topic, b"%d" % number, partition=0, on_delivery=self._note)
            number += 1
            producer.poll(0)
        producer.flush(FLUSH_SECONDS)

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.failures.append(str(error))

    def verify(self) -> None:
        """Each acknowledged number is there once, and in order; there is no other one."""
        assert self.failures == []
        found = read_numbers(self._address, self.topic, len(self.acknowledged))
        assert found == sorted(self.acknowledged) == list(range(len(found)))


def read_numbers(address: str, topic: str, count: int) -> list[int]:
    """Reads all of partition 0, which has so many at least: a new leader tells of the last ones a moment later."""
    found: list[int] = []

    def is_done() -> bool:
        found[:] = [int(message.value() or b"") for message in read_topic(address, topic)]
        return len(found) >= count

    wait_until(is_done, lambda: f"{topic} has {count} records; there are {len(found)}")
    return found
