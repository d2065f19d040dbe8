"""A transactional producer that goes on while a cluster is in trouble, and what readers of committed data get in the
end.
"""

from __future__ import annotations

import threading
from random import Random

from confluent_kafka import KafkaException, Producer

from tests.support.topic_reader import read_partitions
from tests.support.waiting import ANSWER_SECONDS, wait_until

_ASKED_S = 15.0
_ABORTED = 0.2


class Transfers:
    """Each transaction writes its number to both partitions of a topic; some are aborted."""

    def __init__(self, address: str, topic: str, random: Random) -> None:
        self.committed: list[int] = []
        self.unknown: set[int] = set()
        """Nobody said what became of these."""
        self.troubles: list[str] = []
        self._topic = topic
        self._random = random
        self._settings = {
            "bootstrap.servers": address,
            "transactional.id": topic,
            "transaction.timeout.ms": 20_000,
            "linger.ms": 0,
            "log_level": 0,
        }
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Transfers:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        """After a failure a transaction may never end."""
        self._is_over.set()
        if failure is None:
            self._thread.join()

    def wait_for_more(self, number: int = 5) -> None:
        before = len(self.committed)
        wait_until(
            lambda: len(self.committed) >= before + number, lambda: f"{self._topic} gets on: {self.troubles[-5:]}"
        )

    def _run(self) -> None:
        number = 0
        producer: Producer | None = None
        while not self._is_over.wait(0.02):
            try:
                if producer is None:
                    producer = Producer(self._settings)
                    self._repeat(lambda: producer.init_transactions(_ASKED_S))  # noqa: B023  called at once
                if not self._transfer(producer, number):
                    producer = None
            except KafkaException as error:
                self.troubles.append(f"{number}: {error}")
                producer = None
            number += 1
        self._repeat(lambda: Producer(self._settings).init_transactions(ANSWER_SECONDS))

    def _transfer(self, producer: Producer, number: int) -> bool:
        """Whether the producer may go on. It may not after records that were sent and not answered are aborted:
        librdkafka gives their sequence numbers to others then, in the same epoch, and a broker that has the first ones
        takes the others for the same. Raises KafkaException if it can't go on.
        """
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(self._topic, b"%d" % number, partition=partition)
        if self._random.random() < _ABORTED:
            is_sent = producer.flush(_ASKED_S) == 0
            self._repeat(lambda: producer.abort_transaction(_ASKED_S))
            return is_sent
        self.unknown.add(number)
        try:
            self._repeat(lambda: producer.commit_transaction(_ASKED_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._repeat(lambda: producer.abort_transaction(_ASKED_S))
            self.unknown.discard(number)
            return False
        self.committed.append(number)
        self.unknown.discard(number)
        return True

    def _repeat(self, call: object) -> None:
        while True:
            try:
                call()  # type: ignore[operator]
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self.troubles.append(str(error))
            else:
                return

    def verify(self) -> None:
        """Each committed transaction is there once and whole, in order, and no aborted one."""
        partitions = read_partitions(self._address, (self._topic, 0), (self._topic, 1))
        first, second = ([int(one.value() or b"") for one in messages] for messages in partitions.values())
        assert first == second, f"differ in {sorted(set(first) ^ set(second))}"
        assert first == sorted(set(first)), "out of order, or twice"
        assert set(self.committed) <= set(first), f"lost {sorted(set(self.committed) - set(first))}"
        extra = set(first) - set(self.committed) - self.unknown
        assert not extra, f"aborted and there: {sorted(extra)}"
