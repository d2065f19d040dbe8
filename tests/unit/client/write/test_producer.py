"""The producer on a wire that breaks: every record once, in order, whatever is lost on the way."""

from __future__ import annotations

import random
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings

from core.broker.config.broker_config import BrokerConfig
from core.client.net import kafka_client, retry
from core.client.net.kafka_client import KafkaClient, TopicInfo
from core.client.net.retry import Retry
from core.client.read.consumer import Consumer
from core.client.read.record_source import ReadOptions
from core.client.write import producer as producer_module
from core.client.write.producer import Producer, RecordRefusedError, RecordsToSend
from core.cluster.partition.partition import Partition
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.log.partition_log import PartitionLog, ReadResult
from core.pipeline.embedded_transport import EmbeddedTransport
from core.protocol.schema.metadata import METADATA
from core.protocol.schema.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from core.protocol.schema.transactions import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from core.records.byte_strings import ByteStrings
from core.records.compression import CompressionType
from core.records.record_batch import RecordBatch
from tests.support.broker import SteeredNode, add_topic, delete_topic, open_broker
from tests.support.for_each import for_each
from tests.support.logs import NOW, FullDisk
from tests.support.manual_clock import ManualClock, ManualTime
from tests.support.refusals import refused


class BreakingTransport(EmbeddedTransport):
    """Breaks now and then: before a request arrives, or after it was done and before its answer is heard."""

    def __init__(self, broker: SteeredNode, breaks: Callable[[], bool]) -> None:
        super().__init__(broker.dispatcher)
        self._breaks = breaks
        self._is_broken = False

    def send(self, frame: bytearray) -> None:
        if self._is_broken or self._breaks():
            self._is_broken = True
            raise ConnectionFailedError("lost the connection")
        super().send(frame)

    def receive(self) -> memoryview:
        if self._is_broken or self._breaks():
            self._is_broken = True
            raise ConnectionFailedError("lost the connection")
        return super().receive()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before a try."""
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _seconds: None))


def client_of(broker: SteeredNode, breaks: Callable[[], bool] = lambda: False) -> KafkaClient:
    return KafkaClient([("embedded", 0)], lambda host, port: BreakingTransport(broker, breaks))


def rows_of(partition: int, *numbers: int) -> RecordsToSend:
    values = ByteStrings.of_list([b"%d" % n for n in numbers])
    return RecordsToSend(partition, np.full(len(numbers), NOW, np.int64), None, values, None, np.array(numbers))


def write(producer: Producer, *numbers: int, partition: int = 0) -> None:
    producer.send(rows_of(partition, *numbers))
    producer.flush()


def stored(broker: SteeredNode, partition: int = 0, topic: str = "t") -> list[int]:
    tp = TopicPartition(topic, partition)
    end = broker.services.replicas.partitions[tp].log.log_end_offset
    batches = [b for _, some in Consumer(client_of(broker)).read({tp: 0}, {tp: end}) for b in some]
    return [int(r.value or b"") for batch in batches for r in batch.records()]


@pytest.mark.parametrize("compression", CompressionType)
def test_what_is_sent_is_stored_in_order(broker: SteeredNode, compression: CompressionType) -> None:
    acknowledged: list[int] = []
    producer = Producer(
        client_of(broker),
        "t",
        compression=compression,
        batch_bytes=300,
        on_acknowledged=lambda _partition, _offset, count: acknowledged.append(count),
    )
    for start in range(0, 1000, 100):
        producer.send(rows_of(start // 100 % 2, *range(start, start + 100)))
    producer.flush()
    assert producer.acknowledged == sum(acknowledged) == 1000
    assert [n for p in (0, 1) for n in stored(broker, p)] == [
        n for p in (0, 1) for n in range(1000) if n // 100 % 2 == p
    ]


@for_each("seed", range(max(20, settings().max_examples // 5)), first=12)
def test_every_record_once_on_a_wire_that_breaks(tmp_path: Path, seed: int) -> None:
    broker = open_broker(tmp_path, log_retention_ms="-1")
    add_topic(broker, partitions=2)
    add_topic(broker, "u")
    dice = random.Random(seed)
    is_up = True  # while the client is made
    client = client_of(broker, lambda: not is_up and dice.random() < 0.1)
    producer = Producer(client, "t", batch_bytes=200)
    is_up = False
    for start in range(0, 600, 60):
        for partition in (0, 1):
            producer.send(rows_of(partition, *range(start, start + 60)))
        producer.send(rows_of(0, *range(start, start + 60)), "u")
    producer.flush()
    assert producer.acknowledged == 1800
    assert stored(broker, 0) == stored(broker, 1) == stored(broker, topic="u") == list(range(600))
    broker.close()


def test_acks_0_and_1(broker: SteeredNode) -> None:
    for acks in (0, 1):
        producer = Producer(client_of(broker), "t", acks=acks)
        write(producer, acks)
        assert producer.acknowledged == 1
    assert stored(broker) == [0, 1]


def test_a_refused_record_is_named_and_the_rest_of_its_batch_is_written(broker: SteeredNode) -> None:
    broker.services.configs.set(ConfigResourceType.TOPIC, "t", {"max.message.bytes": "500"})
    producer = Producer(client_of(broker), "t")
    values = [b"1", b"2", b"3" * 1000, b"4"]
    rows = RecordsToSend(0, np.full(4, NOW, np.int64), None, ByteStrings.of_list(values), None, np.arange(10, 14))
    producer.send(rows)
    with pytest.raises(RecordRefusedError) as caught:
        producer.flush()
    assert (caught.value.code, caught.value.row) == (ErrorCode.MESSAGE_TOO_LARGE, 12)
    assert producer.acknowledged == len(stored(broker))
    assert stored(broker)[:2] == [1, 2]


def test_a_broker_that_stays_away(broker: SteeredNode) -> None:
    is_down = False
    producer = Producer(client_of(broker, lambda: is_down), "t", delivery_timeout_s=0.05)
    is_down = True
    producer.send(rows_of(0, 1))
    with pytest.raises(ConnectionFailedError):
        producer.flush()
    assert producer.acknowledged == 0


def test_what_keeps_records_waiting_is_told_once(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "Retry", partial(Retry, notice_s=0))
    left = 0

    def is_down() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    told: list[str] = []
    producer = Producer(client_of(broker, is_down), "t", tell=told.append)
    for value in (1, 2):
        left = 20
        write(producer, value)
    assert stored(broker) == [1, 2]
    assert len(told) == 4
    for first, last in (told[:2], told[2:]):
        assert first.endswith("; it is tried again for 120 s")
        assert last.startswith("it goes on, after ")


class Leaderless(KafkaClient):
    """A client of a cluster in which nobody leads that partition for so many times that somebody asks."""

    partition = 0
    left = 0
    waits = 0

    def leader_of(self, partition: TopicPartition) -> int:
        self.waits += 1
        return super().leader_of(partition)

    def find_leader(self, partition: TopicPartition) -> int | None:
        if partition.partition == self.partition:
            self.left -= 1
            if self.left >= 0:
                return None
        return super().find_leader(partition)


@pytest.fixture
def leaderless(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> Leaderless:
    """Nobody waits."""
    monkeypatch.setattr(kafka_client, "_LEADER_TIMEOUT_SECONDS", -1)
    return Leaderless([("embedded", 0)], lambda host, port: BreakingTransport(broker, lambda: False))


def test_a_partition_without_a_leader_is_waited_for(broker: SteeredNode, leaderless: Leaderless) -> None:
    producer = Producer(leaderless, "t")
    producer.send(rows_of(0, 1, 2))
    leaderless.left = 5
    producer.flush()
    assert stored(broker) == [1, 2]
    told: list[str] = []
    leaderless.left = 5
    reader = Consumer(leaderless, options=ReadOptions(30, tell=told.append))
    tp = TopicPartition("t", 0)
    assert sum(len(batches) for _, batches in reader.read({tp: 0}, {tp: 2})) == 1
    assert told == ["partition t-0 has no leader; it is tried again for 30 s"]
    leaderless.left = 5
    with pytest.raises(KafkaError, match="has no leader"):
        next(Consumer(leaderless).read({tp: 0}, {tp: 2}))


def test_a_leader_that_never_comes(leaderless: Leaderless) -> None:
    producer = Producer(leaderless, "t", delivery_timeout_s=0.0)
    leaderless.left = 1_000_000
    producer.send(rows_of(0, 1))
    with pytest.raises(KafkaError, match="has no leader"):
        producer.flush()
    assert producer.acknowledged == 0


class Replicated(KafkaClient):
    """A client of a cluster in which another broker has replicas, too; `on_forget` is called when it asks who leads."""

    on_forget: Callable[[], None]

    def topic(self, name: str, *, may_create: bool = False) -> TopicInfo:
        known = super().topic(name, may_create=may_create)
        return replace(known, partitions={n: replace(info, replicas=(0, 1)) for n, info in known.partitions.items()})

    def forget_topic(self, name: str) -> None:
        self.on_forget()
        super().forget_topic(name)


def test_a_disk_that_fails_is_only_that_of_one_replica(tmp_path: Path) -> None:
    """With others it is tried again, for as long as it would be without a leader; a lone broker is believed at once."""
    disk = FullDisk()
    broker = SteeredNode(tmp_path, BrokerConfig(), clock=ManualClock(NOW), filesystem=disk)
    add_topic(broker)
    client = Replicated([("embedded", 0)], lambda host, port: EmbeddedTransport(broker.dispatcher))
    client.on_forget = lambda: setattr(disk, "is_full", False)
    producer = Producer(client, "t")
    disk.is_full = True
    write(producer, 1, 2)
    assert stored(broker) == [1, 2]
    for lasting in (client_of(broker), client):
        client.on_forget = lambda: None
        producer = Producer(lasting, "t", delivery_timeout_s=0.0)
        disk.is_full = True
        producer.send(rows_of(0, 3))
        with pytest.raises(KafkaError, match="no space left on device"):
            producer.flush()
        disk.is_full = False
    assert stored(broker) == [1, 2]
    broker.close()


def test_a_reader_waits_for_another_leader_when_a_disk_fails(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(client_of(broker), "t")
    write(producer, 1, 2)
    client = Replicated([("embedded", 0)], lambda host, port: EmbeddedTransport(broker.dispatcher))
    client.on_forget = lambda: refusals.pop()
    replicas, refusals = broker.services.replicas, [0, 0, 0]
    read = replicas.read

    def refuse(partition: Partition, look: Callable[[PartitionLog], ReadResult]) -> ReadResult:
        if refusals:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return read(partition, look)

    monkeypatch.setattr(replicas, "read", refuse)
    tp = TopicPartition("t", 0)
    reader = Consumer(client, options=ReadOptions(30))
    assert sum(len(batches) for _, batches in reader.read({tp: 0}, {tp: 2})) == 1
    assert not refusals
    for other, options in ((client, ReadOptions()), (client_of(broker), ReadOptions(30))):
        refusals += [0]
        with pytest.raises(KafkaError, match="could not read t-0 from offset 0 on"):
            next(Consumer(other, options).read({tp: 0}, {tp: 2}))


def test_others_are_read_while_nobody_leads_one(
    broker: SteeredNode, leaderless: Leaderless, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "_LOOK_AGAIN_SECONDS", 0)
    producer = Producer(client_of(broker), "t")
    for partition in (0, 1):
        for number in range(50):
            write(producer, number, partition=partition)
    told: list[str] = []
    leaderless.left = 3
    reader = Consumer(leaderless, partition_bytes=200, options=ReadOptions(30, tell=told.append))
    ends = {TopicPartition("t", number): 50 for number in (0, 1)}
    order = [tp.partition for tp, batches in reader.read(dict.fromkeys(ends, 0), ends) for _ in batches]
    assert sorted(order) == [0] * 50 + [1] * 50
    assert order[:3] == [1, 1, 1]
    assert 0 in order[3:20]
    assert told == ["partition t-0 has no leader; the other partitions do not wait for it"]


def send_to_both(producer: Producer) -> None:
    for number in range(30):
        for partition in (0, 1):
            producer.send(rows_of(partition, number))
        producer.push()
    producer.flush()


def test_others_are_written_while_nobody_leads_one(
    broker: SteeredNode, leaderless: Leaderless, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "_LOOK_AGAIN_SECONDS", 0)
    order: list[int] = []
    told: list[str] = []
    leaderless.left = 60
    producer = Producer(
        leaderless, "t", batch_bytes=200, on_acknowledged=lambda p, _offset, count: order.extend([p.partition] * count),
        tell=told.append,
    )  # fmt: skip
    send_to_both(producer)
    assert stored(broker, 0) == stored(broker, 1) == list(range(30))
    assert set(order[:5]) == {1}
    assert told == ["partition t-0 has no leader; the other partitions do not wait for it"]


@pytest.mark.parametrize(("most_bytes", "is_waited_for"), [(1 << 30, False), (500, True)])
def test_not_too_much_waits_for_a_leader(
    leaderless: Leaderless, monkeypatch: pytest.MonkeyPatch, most_bytes: int, is_waited_for: bool
) -> None:
    monkeypatch.setattr(producer_module, "_MOST_WAITING_BYTES", most_bytes)
    leaderless.left = 1_000_000
    producer = Producer(leaderless, "t", batch_bytes=200)
    for number in range(30):
        for partition in (0, 1):
            producer.send(rows_of(partition, number))
        producer.push()
    assert (leaderless.waits > 0) is is_waited_for


def test_nothing_waits_for_a_leader_for_too_long(leaderless: Leaderless) -> None:
    """Also while the other partition is written."""
    leaderless.left = 1_000_000
    producer = Producer(leaderless, "t", batch_bytes=200, delivery_timeout_s=0.0)
    with pytest.raises(KafkaError, match="t-0 has no leader"):
        send_to_both(producer)
    assert 0 not in producer._known_to_broker


class TwoBrokers:
    """A client of two brokers, of which 5 is dead; notes what is sent to the other one."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def topic(self, name: str) -> TopicInfo:
        return TopicInfo(name, bytes(16), False, {})

    def find_leader(self, partition: TopicPartition) -> int:
        return 5 if partition.partition == 0 else 1

    def connection_to(self, node_id: int) -> TwoBrokers:
        if node_id == 5:
            raise ConnectionFailedError("it is dead", where="5")
        return self

    def send(self, api: object, request: ProduceRequest, at_most: int) -> None:
        assert (api, at_most) == (PRODUCE, PRODUCE.versions.last)
        for partition in request.topic_data[0].partition_data:
            batch = RecordBatch(memoryview(bytes(partition.records)))  # type: ignore[arg-type]
            self.sent += [record.value or b"" for record in batch.records()]

    def forget_connections(self) -> None: ...

    def forget_topic(self, name: str) -> None: ...


def test_nothing_overtakes_what_is_sent_again() -> None:
    """One broker dies while a batch for the other is in flight, and with it all connections are made again."""
    client = TwoBrokers()
    producer = Producer(client, "t", acks=1)  # type: ignore[arg-type]
    dead = TopicPartition("t", 0)
    producer._queues = {dead: deque(), TopicPartition("t", 1): deque()}  # the dead one's comes first
    producer.send(rows_of(1, 0))
    producer.push()
    producer.send(rows_of(0, 1))
    producer.send(rows_of(1, 2))
    producer._dispatch()
    assert client.sent == [b"0"]
    producer._queues[dead].clear()
    producer._dispatch()
    assert client.sent == [b"0", b"0"]


class Incomplete(TwoBrokers):
    """A broker whose answers leave out partition 3."""

    def receive_from_leader(self, *_: object, may_repeat: bool) -> ProduceResponse:
        assert not may_repeat
        answers = [PartitionProduceResponse(index, ErrorCode.NONE, 7) for index in (1, 2)]
        return ProduceResponse([TopicProduceResponse("t", partition_responses=answers)])


def test_an_answer_that_leaves_out_a_partition_is_malformed() -> None:
    producer = Producer(Incomplete(), "t", acks=1)  # type: ignore[arg-type]
    producer.send(rows_of(1, 0))
    producer.send(rows_of(3, 1))
    with pytest.raises(MalformedMessageError, match="a Produce answer of broker 1 lacks t-3"):
        producer.flush()
    assert producer.unacknowledged_rows().tolist() == [0, 1]


class BusyCluster(ManualTime):
    """A client, its connection and the clock of a cluster that gives ids of producers only after half a minute."""

    def __init__(self) -> None:
        super().__init__()

    def any_connection(self) -> BusyCluster:
        return self

    def call(self, api: object, request: object) -> InitProducerIdResponse:
        assert (api, request) == (INIT_PRODUCER_ID, InitProducerIdRequest(None, 60_000))
        if self.now_s < 30:
            return InitProducerIdResponse(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        return InitProducerIdResponse(0, 0, 7, 0)


@for_each("patience_s, is_enough", [(120.0, True), (20.0, False)])
def test_an_id_is_waited_for_as_long_as_records_are_tried(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, is_enough: bool
) -> None:
    """Kafka 3.9 has none to give while its broker asks a controller that has just died."""
    cluster = BusyCluster()
    monkeypatch.setattr(retry, "time", cluster)
    if is_enough:
        assert Producer(cluster, "t", delivery_timeout_s=patience_s)._producer_id == 7  # type: ignore[arg-type]
        return
    with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        Producer(cluster, "t", delivery_timeout_s=patience_s)  # type: ignore[arg-type]


def test_a_topic_that_was_made_anew_in_between(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is another one; the client looks again."""
    monkeypatch.setattr(kafka_client, "_LEADER_TIMEOUT_SECONDS", 0.0)
    producer = Producer(client_of(broker), "t")
    write(producer, 1)
    delete_topic(broker, "t")
    add_topic(broker, partitions=2)
    write(producer, 2)
    assert stored(broker) == [2]
    delete_topic(broker, "t")
    producer.send(rows_of(0, 3))
    with pytest.raises(KafkaError, match="no topic 't'"):
        producer.flush()


class Forgetful(EmbeddedTransport):
    """A way to a broker that has just started: until the controller tells it, it answers as one without topics."""

    def __init__(self, broker: SteeredNode, empty: SteeredNode) -> None:
        super().__init__(broker.dispatcher)
        self._empty = EmbeddedTransport(empty.dispatcher)
        self._forgets = {PRODUCE.key: 1, METADATA.key: 2}
        self._asked: deque[EmbeddedTransport] = deque()

    def send(self, frame: bytearray) -> None:
        (key,) = struct.unpack_from(">h", frame, 4)
        is_forgotten = self._forgets.get(key, 0) > 0
        self._forgets[key] = self._forgets.get(key, 0) - 1
        self._asked.append(self._empty if is_forgotten else super())  # type: ignore[arg-type]
        self._asked[-1].send(frame)

    def receive(self) -> memoryview:
        return self._asked.popleft().receive()


def test_a_broker_that_has_just_started_is_not_believed(broker: SteeredNode, tmp_path: Path) -> None:
    empty = SteeredNode(tmp_path / "empty", BrokerConfig())
    ways: list[EmbeddedTransport] = [EmbeddedTransport(broker.dispatcher), Forgetful(broker, empty)]
    client = KafkaClient([("embedded", 0)], lambda host, port: ways[0])
    producer = Producer(client, "t")
    producer._last_version = 12  # before topics have ids on the wire
    write(producer, 1)
    del ways[0]
    client.forget_connections()
    write(producer, 2)
    assert stored(broker) == [1, 2]
    empty.close()


def test_the_first_batch_of_a_producer_goes_alone(broker: SteeredNode) -> None:
    """Of a producer that it knows nothing of, a broker takes any sequence: nothing may overtake its first batch."""
    heard: list[str] = []

    class Watched(EmbeddedTransport):
        def send(self, frame: bytearray) -> None:
            heard.append("produce" if frame[4:6] == b"\0\0" else "other")
            super().send(frame)

        def receive(self) -> memoryview:
            heard.append("answer")
            return super().receive()

    producer = Producer(
        KafkaClient([("embedded", 0)], lambda host, port: Watched(broker.dispatcher)), "t", batch_bytes=200
    )
    write(producer, *range(300))
    first = heard.index("produce")
    assert heard[first : first + 4] == ["produce", "answer", "produce", "produce"]
    assert stored(broker) == list(range(300))


def test_answers_about_several_topics_are_told_apart(broker: SteeredNode) -> None:
    """Many requests of a small size are under way, and each topic is at another offset."""
    add_topic(broker, "u")
    acknowledged: dict[TopicPartition, int] = {}

    def note(partition: TopicPartition, offset: int, count: int) -> None:
        assert offset == acknowledged.get(partition, 0)
        acknowledged[partition] = offset + count

    producer = Producer(client_of(broker), batch_bytes=100, on_acknowledged=note)
    for number in range(30):
        producer.send(rows_of(0, number, number), "t")
        producer.send(rows_of(0, number), "u")
    producer.flush()
    assert acknowledged == {TopicPartition("t", 0): 60, TopicPartition("u", 0): 30}


def test_a_full_batch_is_sent_without_a_push(broker: SteeredNode) -> None:
    producer = Producer(client_of(broker), "t", batch_bytes=200)
    for number in range(10):
        producer.send(rows_of(0, number))
    assert producer.acknowledged > 0
    producer.flush()
    assert stored(broker) == list(range(10))


def test_small_batches_for_many_topics_do_not_pile_up(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "_MOST_WAITING_BYTES", 500)
    producer = Producer(client_of(broker))
    for number in range(30):
        add_topic(broker, f"t{number}")
        producer.send(rows_of(0, number), f"t{number}")
        assert producer._queued_bytes == sum(len(b.data) for queue in producer._queues.values() for b in queue) <= 500
    producer.flush()
    assert (producer.acknowledged, producer._queued_bytes) == (30, 0)
