"""Copies a topic, partition by partition, with librdkafka, in a process of its own, until SIGTERM.

python -m tests.crash.copiers.librdkafka_copier KIND NAME ADDRESS IN OUT

`transactional` is a member of a group, and commits its offsets within the transactions, of which it aborts some;
`idempotent` reads from the beginning, in no group, and counts on sequences alone. What makes it begin again is told on
stderr.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.waiting import FLUSH_SECONDS, machine_seconds

QUICK = {
    "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50, "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50, "socket.timeout.ms": 3000, "metadata.recovery.strategy": "none",
    "topic.metadata.refresh.interval.ms": 5000,
}  # fmt: skip
"""It is soon with the next broker. docs/transactions.md says what the strategy is for. A broker of Kafka 3.9 that has
just started says that there is no topic, which librdkafka takes for the truth until it asks again.
"""
PARTITIONS = 3
_TRANSACTION_S = 20.0
"""How long librdkafka tries a step before it says that it may be tried again."""
_ANSWER_S, _STUCK_S = 5.0, 8.0
_AT_ONCE = 40


class LibrdkafkaCopier:
    """Owned by one thread."""

    def __init__(self, name: str, address: str, source: str, target: str) -> None:
        self.is_over = threading.Event()
        self._name = name
        self._address = address
        self._source = source
        self._target = target
        self._turns = count(1)

    def copy_in_transactions(self) -> None:
        """Both clients are made again after an error that the producer can't go on after."""
        while not self.is_over.is_set():
            producer = Producer(self._options(**{"transactional.id": self._name, "transaction.timeout.ms": 20_000}))
            consumer = Consumer(
                self._options(**{"group.id": self._name, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                                 "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500,
                                 "fetch.wait.max.ms": 100, "isolation.level": "read_committed"})
            )  # fmt: skip
            try:
                self._again(lambda producer=producer: producer.init_transactions(_TRANSACTION_S))
                consumer.subscribe([self._source])
                while not self.is_over.is_set():
                    messages = [one for one in consumer.consume(_AT_ONCE, 0.1) if one.error() is None]
                    if messages:
                        self._copy(producer, consumer, messages)
            except (KafkaException, TimeoutError) as error:
                _tell(f"made again after {error.args[0]}")
            finally:
                consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, messages: Sequence[Message]) -> None:
        """KafkaException if the producer is of no use any more. It is not after an abort of records that were not
        answered, either: docs/transactions.md says what librdkafka loses then.
        """
        producer.begin_transaction()
        try:
            for one in messages:
                producer.produce(self._target, one.value(), one.key(), one.partition())  # type: ignore[arg-type]
            ends = {one.partition(): one.offset() + 1 for one in messages}  # type: ignore[operator]
            offsets = [TopicPartition(self._source, partition, end) for partition, end in ends.items()]  # type: ignore[arg-type]
            group = consumer.consumer_group_metadata()
            self._again(lambda: _watched(lambda: producer.send_offsets_to_transaction(offsets, group, _ANSWER_S)))
            if next(self._turns) % 5:
                self._again(lambda: producer.commit_transaction(_TRANSACTION_S))
                return
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                _tell(f"aborts after {error.args[0]}")
                self._again(lambda: producer.abort_transaction(_TRANSACTION_S))
            raise
        assert producer.flush(FLUSH_SECONDS) == 0
        self._again(lambda: producer.abort_transaction(_TRANSACTION_S))
        self._rewind(consumer)

    def _rewind(self, consumer: Consumer) -> None:
        """What was aborted is read again, unless others have the partitions now."""
        positions: list[TopicPartition] = []

        def ask() -> None:
            positions[:] = consumer.committed(consumer.assignment(), _TRANSACTION_S)

        self._again(ask)
        for one in positions:
            consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))

    def _again(self, call: Callable[[], object]) -> None:
        """While librdkafka says that it may be said again."""
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                _tell(f"again after {error.args[0]}")

    def copy_with_sequences(self) -> None:
        """Any record that is refused ends it."""
        options = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 0, "on_delivery": _ensure_kept}
        producer = Producer(self._options(**options))
        consumer = Consumer(
            self._options(**{"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error",
                             "fetch.wait.max.ms": 100, "isolation.level": "read_committed"})
        )  # fmt: skip
        consumer.assign([TopicPartition(self._source, partition, 0) for partition in range(PARTITIONS)])
        while not self.is_over.is_set():
            for one in consumer.consume(_AT_ONCE, 0.05):
                if one.error() is None:
                    producer.produce(self._target, one.value(), one.key(), one.partition())  # type: ignore[arg-type]
                elif one.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
                    raise KafkaException(one.error())
            producer.poll(0)
        assert producer.flush(FLUSH_SECONDS) == 0
        consumer.close()

    def _options(self, **more: Any) -> dict[str, Any]:
        debug = os.environ.get("PLOG_COPIERS_DEBUG")
        told = {"debug": debug, "log_level": 7} if debug else {"log_level": 3}
        return {"bootstrap.servers": self._address, **QUICK, **told, **more}


def _watched(call: Callable[[], None]) -> None:
    """TimeoutError if the call does not come back, as docs/transactions.md says of librdkafka's
    `send_offsets_to_transaction` after a broker was lost: the producer is of no use then, and another one of its
    transactional id fences it.
    """
    outcomes: list[KafkaException | None] = []

    def run() -> None:
        try:
            call()
            outcomes.append(None)
        except KafkaException as error:
            outcomes.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    deadline = machine_seconds() + _STUCK_S
    while thread.is_alive() and machine_seconds() < deadline:
        thread.join(0.1)
    if not outcomes:
        raise TimeoutError("a call that did not come back")
    if outcomes[0] is not None:
        raise outcomes[0]


def _ensure_kept(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def _tell(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def main(kind: str, name: str, address: str, source: str, target: str) -> None:
    copier = LibrdkafkaCopier(name, address, source, target)
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: copier.is_over.set())
    if kind == "transactional":
        copier.copy_in_transactions()
    else:
        copier.copy_with_sequences()


if __name__ == "__main__":
    main(*sys.argv[1:])
