"""A client in a process of its own, that works until SIGTERM and notes what it was told.

python -m tests.crash.chaos.clients KIND NAME ADDRESS LEDGER SEED
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from core.client.net.client_connection import SocketTransport
from core.client.net.kafka_client import KafkaClient
from core.client.write.producer import Producer as OwnProducer
from core.client.write.producer import RecordRefusedError, RecordsToSend
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition as Partition
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.byte_strings import ByteStrings
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.crash.chaos.known_ends import KnownEnds
from tests.crash.chaos.ledger import (
    COPIERS,
    COPIES,
    CUT,
    FLUSHED,
    KEPT,
    KEYED,
    PARTITIONS,
    PLAIN,
    READERS,
    TELLS,
    TRIMMED,
    Notes,
)
from tests.support.waiting import FLUSH_SECONDS

QUICK = {
    "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20, "topic.metadata.refresh.interval.ms": 5000,
    "metadata.recovery.strategy": "none", "log_level": 0,
}  # fmt: skip
"""A broker of Kafka 3.9 that has just started says that there is no topic, which librdkafka takes for the truth until
it asks again.
"""
_KEYS = 400
_TRANSACTION_S = 20
"""How long librdkafka tries a step of a transaction before it says that it may be tried again."""
_ASKED_S = 5
_LOOKED_AT = 0.2
"""How often leaders are asked for their ends."""
_COUNTED_S = 3.0
"""How often it is asked how many partitions KEPT has."""
_PERHAPS = (
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Answers that say that the batch may be kept; the last two also come if a leader that has it is one no more."""


class Client:
    """`run` returns when `is_over` is set."""

    def __init__(self, name: str, address: str, notes: Notes, seed: int) -> None:
        self.name = name
        self.address = address
        self.notes = notes
        self.random = Random(seed)
        self.is_over = threading.Event()
        self._lives = 0
        self._kept = PARTITIONS
        self._count_again_s = 0.0

    def options(self, **more: Any) -> dict[str, Any]:
        debug = os.environ.get("PLOG_CHAOS_DEBUG")
        return {
            "bootstrap.servers": self.address,
            **QUICK,
            **more,
            **({"debug": debug, "log_level": 7} if debug else {}),
        }

    def next_name(self) -> str:
        """Of another life of the client's: numbers begin again."""
        self._lives += 1
        return f"{self.name}.{self._lives}"

    def count_kept(self, librdkafka: Producer | Consumer) -> int:
        """Gives how many partitions KEPT has, as was found some seconds ago."""
        if time.monotonic() > self._count_again_s:
            self._count_again_s = time.monotonic() + _COUNTED_S
            with contextlib.suppress(KafkaException):
                found = librdkafka.list_topics(KEPT, timeout=_ASKED_S).topics[KEPT].partitions
                self._kept = max(self._kept, len(found))
        return self._kept

    def complain(self, why: str) -> None:
        """That it is made again, for whoever looks into its log."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {why}\n")


def produce_with_sequences(client: Client) -> None:
    """An idempotent producer, which sends a record again until it is acknowledged."""
    while not client.is_over.is_set():
        who = client.next_name()
        is_broken = threading.Event()
        numbers: dict[tuple[str, int], int] = defaultdict(int)

        def on_delivery(error: KafkaError | None, message: Any, is_broken: threading.Event = is_broken) -> None:
            topic, partition, name = message.topic(), message.partition(), name_of(message.value())
            if error is not None:
                client.notes.note("perhaps", topic=topic, partition=partition, name=name, code=error.name())
                is_broken.set()
                return
            key = message.key() and message.key().decode()
            client.notes.note(
                "acknowledged", topic=topic, partition=partition, offset=message.offset(), name=name, key=key
            )

        producer = Producer(
            client.options(**{"enable.idempotence": True, "linger.ms": 5, "batch.num.messages": 10,
                              "message.timeout.ms": 0, "on_delivery": on_delivery})
        )  # fmt: skip
        while not client.is_over.is_set() and not is_broken.is_set():
            for topic in (KEPT, TRIMMED, CUT, KEYED, FLUSHED):
                partition = client.random.randrange(client.count_kept(producer) if topic == KEPT else PARTITIONS)
                number = numbers[topic, partition]
                numbers[topic, partition] += 1
                key = b"%d" % client.random.randrange(_KEYS) if topic == KEYED else None
                value = f"{who} {number} " + "." * client.random.randrange(200)
                producer.produce(topic, value.encode(), key, partition)
            producer.poll(0)
            client.is_over.wait(0.01 if len(producer) < 2000 else 0.1)
        if producer.flush(FLUSH_SECONDS):
            client.complain("what was sent was not acknowledged in time")


def produce_with_plog(client: Client) -> None:
    """plog's own producer, idempotent as well. It gives up after its time; a refusal for good is wrong."""
    while not client.is_over.is_set():
        try:
            _produce_with_plog(client)
        except RecordRefusedError as error:
            client.notes.note("wrong", text=f"{client.name}: a record is refused: {error!r}")
        except PlogError as error:
            client.complain(repr(error))


def _produce_with_plog(client: Client) -> None:
    who = client.next_name()
    acknowledged: dict[int, list[int]] = defaultdict(list)
    numbers: dict[int, count[int]] = defaultdict(count)
    rows = count()

    def on_acknowledged(place: Partition, offset: int, number: int) -> None:
        acknowledged[place.partition] += range(offset, offset + number) if offset >= 0 else [-1] * number

    with contextlib.closing(KafkaClient(parse_bootstrap(client.address), connect)) as connection:
        producer = OwnProducer(connection, KEPT, on_acknowledged=on_acknowledged)
        while not client.is_over.wait(0.01):
            sent: dict[int, list[str]] = defaultdict(list)
            for _ in range(client.random.randint(1, 4)):
                partition = client.random.choice(list(connection.topic(KEPT).partitions))
                names = [f"{who} {next(numbers[partition])}" for _ in range(client.random.randint(1, 5))]
                sent[partition] += names
                values = ByteStrings.of_list([f"{name} ".encode().ljust(100, b".") for name in names])
                now_ms = np.full(len(names), time.time_ns() // 1_000_000)
                mine = np.fromiter(rows, np.int64, len(names))
                producer.send(RecordsToSend(partition, now_ms, None, values, None, mine))
                producer.push()
            producer.flush()
            for partition, names in sent.items():
                _note_in_order(client, partition, names, acknowledged.pop(partition))


def _note_in_order(client: Client, partition: int, names: list[str], offsets: list[int]) -> None:
    """Their offsets rise as they were sent, however the answers came: a batch that had to be sent again, as the first
    answer to it said only that it may be kept, is acknowledged after the one that followed it.
    """
    is_known = min(offsets) >= 0
    for name, offset in zip(names, sorted(offsets), strict=True):
        where = offset if is_known else -1
        client.notes.note("acknowledged", topic=KEPT, partition=partition, offset=where, name=name)


def produce_plainly(client: Client) -> None:
    """Says each request once, and takes the broker at its word."""
    connection: KafkaClient | None = None
    who, number = client.next_name(), 0

    def note_end(where: Partition, end: int, acknowledged: int) -> None:
        client.notes.note("end", topic=where.topic, partition=where.partition, offset=end, acknowledged=acknowledged)

    ends = KnownEnds(note_end)
    while not client.is_over.wait(0.005):
        topic, partition = client.random.choice((PLAIN, FLUSHED)), client.random.randrange(PARTITIONS)
        names = [f"{who} {number + i}" for i in range(client.random.randint(1, 3))]
        number += len(names)
        now_ms = time.time_ns() // 1_000_000
        records = [Record(i, now_ms, None, f"{name} ".encode().ljust(80, b".")) for i, name in enumerate(names)]
        data = PartitionProduceData(partition, bytes(batch_of(records)))
        offset, code = -1, "the connection broke"
        try:
            connection = connection or KafkaClient(parse_bootstrap(client.address), connect)
            topic_id = connection.topic(topic).topic_id
            request = ProduceRequest(None, -1, 5000, [TopicProduceData(topic, topic_id, [data])])
            if client.random.random() < _LOOKED_AT:
                ends.look(connection, Partition(topic, partition))
        except PlogError:  # nothing was sent
            if connection is not None:
                connection.close()
            connection = None
            continue
        what = "perhaps"
        try:
            leader = connection.connection_to(connection.leader_of(Partition(topic, partition)))
            answer = leader.call(PRODUCE, request).responses[0].partition_responses[0]
            error = ErrorCode.of(answer.error_code)
            offset, code = answer.base_offset, error.name
            what = "acknowledged" if error is ErrorCode.NONE else "perhaps" if error in _PERHAPS else "refused"
            if error is not ErrorCode.NONE:
                connection.forget_topic(topic)  # the leader may be another one
            elif client.random.random() < _LOOKED_AT:
                ends.look(connection, Partition(topic, partition), offset + len(names) - 1)
        except PlogError:
            connection.close()
            connection = None
        for i, name in enumerate(names):
            fields: dict[str, Any] = {"offset": offset + i} if what == "acknowledged" else {"code": code}
            client.notes.note(what, topic=topic, partition=partition, name=name, **fields)


def read_in_a_group(client: Client, **protocol: Any) -> None:
    """A member that commits what it has noted as seen."""
    consumer = Consumer(
        client.options(**{"group.id": READERS, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                          "fetch.wait.max.ms": 50, "isolation.level": "read_uncommitted", **protocol})
    )  # fmt: skip
    consumer.subscribe([KEPT])
    while not client.is_over.is_set():
        messages = [m for m in consumer.consume(200, 0.1) if not m.error()]
        if not messages:
            continue
        records = [(m.partition(), m.offset(), name_of(m.value())) for m in messages]
        client.notes.note("seen", topic=KEPT, records=records)
        ends = {m.partition(): m.offset() + 1 for m in messages}
        with contextlib.suppress(KafkaException):  # a rebalance; whoever has the partition next sees them again
            consumer.commit(offsets=[TopicPartition(KEPT, p, end) for p, end in ends.items()], asynchronous=False)
            client.notes.note("committed", offsets=ends)
    consumer.close()


def read_all_the_time(client: Client) -> None:
    """Reads what is committed, in no group. What it was shown must stay, and no offset may be without a record."""
    while not client.is_over.is_set():
        consumer = Consumer(
            client.options(**{"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error",
                              "fetch.wait.max.ms": 50, "isolation.level": "read_committed"})
        )  # fmt: skip
        consumer.assign([TopicPartition(t, p, 0) for t in (PLAIN, TELLS) for p in range(PARTITIONS)])
        reading = client.next_name()
        error = None
        kept = 0
        while not client.is_over.is_set() and error is None:
            if client.count_kept(consumer) > kept:
                new = range(kept, client.count_kept(consumer))
                consumer.incremental_assign([TopicPartition(KEPT, partition, 0) for partition in new])
                kept = new.stop
            seen: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
            for m in consumer.consume(500, 0.1):
                if m.error():
                    error = m.error()
                else:
                    seen[m.topic()].append((m.partition(), m.offset(), name_of(m.value())))
            for topic, records in seen.items():
                client.notes.note("seen", topic=topic, records=records, reading=reading)
            if seen:
                client.notes.note("moved")
        if error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
            client.notes.note("wrong", text=f"{client.name}: {error}")
        consumer.close()


def delete_records(client: Client) -> None:
    """Cuts the beginnings of CUT off. All is made again after an error: librdkafka keeps for minutes what a broker that
    has just started says of topics, and where the leader was.
    """
    while not client.is_over.is_set():
        admin = AdminClient(client.options())
        reader = Consumer(client.options(**{"group.id": "none"}))
        try:
            while not client.is_over.wait(0.3):
                _cut(client, admin, reader)
        except (KafkaException, TimeoutError) as error:
            client.complain(repr(error))
        reader.close()


def _cut(client: Client, admin: AdminClient, reader: Consumer) -> None:
    partition = client.random.randrange(PARTITIONS)
    start, end = reader.get_watermark_offsets(TopicPartition(CUT, partition), timeout=_ASKED_S)
    target = start + (end - start) // 2
    client.notes.note("cut_asked", partition=partition, offset=target)
    wanted = TopicPartition(CUT, partition, target)
    low = admin.delete_records([wanted], request_timeout=_ASKED_S)[wanted].result().low_watermark
    client.notes.note("cut_done", partition=partition, offset=low)


def tell_in_transactions(client: Client) -> None:
    """Transactions over all partitions of TELLS, some of them aborted."""
    number = time.time_ns() // 1_000_000  # the numbers of a process that is made again go on from there
    while not client.is_over.is_set():
        producer = Producer(client.options(**{"transactional.id": client.name, "transaction.timeout.ms": 30000}))
        name = ""
        try:
            producer.init_transactions(_TRANSACTION_S)
            may_go_on = True
            while may_go_on and not client.is_over.wait(0.02):
                number += 1
                name = f"{client.name} {number}"
                may_go_on = _tell(client, producer, name)
        except KafkaException as error:
            client.complain(f"{name}: {error.args[0]}")


def _tell(client: Client, producer: Producer, name: str) -> bool:
    """Whether the producer may go on: docs/transactions.md says what librdkafka loses after it aborted records that
    were not answered. KafkaException where it can't go on.
    """
    counts = {partition: client.random.randint(1, 3) for partition in range(PARTITIONS)}
    client.notes.note("begun", name=name, counts=counts)
    producer.begin_transaction()
    is_commit_asked = may_go_on = False
    try:
        for partition, count in counts.items():
            for _ in range(count):
                producer.produce(TELLS, f"{name} ".encode(), partition=partition)
        if client.random.random() < 0.6:
            is_commit_asked = True
            persistently(lambda: producer.commit_transaction(_TRANSACTION_S), client)
            client.notes.note("ended", name=name, outcome="committed")
            return True
        may_go_on = producer.flush(FLUSH_SECONDS) == 0
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            if not is_commit_asked:
                client.notes.note("ended", name=name, outcome="aborted")  # nobody will ever commit it
            raise
    persistently(lambda: producer.abort_transaction(_TRANSACTION_S), client)
    client.notes.note("ended", name=name, outcome="aborted")
    return may_go_on


def copy_exactly_once(client: Client) -> None:
    """Copies each record of KEPT to all partitions of COPIES, with its offset in the same transaction.

    librdkafka may wait for ever in `send_offsets_to_transaction` after the group's coordinator was away (its issue
    5511); then this process is made again, and is counted as stuck.
    """
    while not client.is_over.is_set():
        producer = Producer(client.options(**{"transactional.id": client.name, "transaction.timeout.ms": 30000}))
        consumer = Consumer(
            client.options(**{"group.id": COPIERS, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                              "session.timeout.ms": 6000, "fetch.wait.max.ms": 50, "isolation.level": "read_committed"})
        )  # fmt: skip
        try:
            producer.init_transactions(_TRANSACTION_S)
            consumer.subscribe([KEPT])
            while not client.is_over.is_set():
                messages = [m for m in consumer.consume(100, 0.1) if not m.error()]
                if messages:
                    _copy(client, producer, consumer, messages)
        except KafkaException as error:
            client.complain(str(error.args[0]))
        finally:
            consumer.close()


def _copy(client: Client, producer: Producer, consumer: Consumer, messages: list[Any]) -> None:
    """KafkaException after which the group's offsets say what is copied."""
    producer.begin_transaction()
    try:
        for m in messages:
            value = f"{m.partition()}:{m.offset()} ".encode() + m.value()
            for partition in range(PARTITIONS):
                producer.produce(COPIES, value, partition=partition)
        ends = {m.partition(): m.offset() + 1 for m in messages}
        offsets = [TopicPartition(KEPT, partition, end) for partition, end in ends.items()]
        group = consumer.consumer_group_metadata()
        persistently(lambda: producer.send_offsets_to_transaction(offsets, group, _TRANSACTION_S), client)
        persistently(lambda: producer.commit_transaction(_TRANSACTION_S), client)
    except KafkaException as error:
        if error.args[0].txn_requires_abort():
            persistently(lambda: producer.abort_transaction(_TRANSACTION_S), client)
        raise
    client.notes.note("moved", records=len(messages))


def persistently(call: Callable[[], None], client: Client) -> None:
    """Again while librdkafka says that it may be said again."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or client.is_over.is_set():
                raise
            client.complain(f"again, because of {error.args[0]}")


def connect(host: str, port: int) -> SocketTransport:
    return SocketTransport(host, port, timeout_s=10)


def name_of(value: bytes) -> str:
    """Of a record: who wrote it, and its number."""
    return " ".join(value.decode().split(" ")[:2])


KINDS: dict[str, Callable[[Client], None]] = {
    "producer": produce_with_sequences,
    "plain": produce_plainly,
    "reader": partial(read_in_a_group, **{"group.protocol": "consumer"}),
    "member": partial(read_in_a_group, **{"session.timeout.ms": 6000}),
    "auditor": read_all_the_time,
    "plog": produce_with_plog,
    "cutter": delete_records,
    "teller": tell_in_transactions,
    "copier": copy_exactly_once,
}


def main(kind: str, name: str, address: str, ledger: str, seed: str) -> None:
    client = Client(name, address, Notes(Path(ledger)), int(seed))
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: client.is_over.set())
    KINDS[kind](client)


if __name__ == "__main__":
    main(*sys.argv[1:])
