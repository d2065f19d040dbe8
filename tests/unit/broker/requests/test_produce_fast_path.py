"""A Produce request that is known by its bytes is answered as one that is decoded: two brokers get the same requests,
one of which remembers nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from errno import EIO, ENOSPC
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.broker.observe.request_metrics import RequestMetrics
from core.broker.requests.handlers import produce
from core.broker.requests.handlers.produce import ProduceFastPath, RememberedRequest, UnacknowledgedError
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.filesystem import File
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition, uuid_text
from core.protocol.frame import encode_request
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.compression import CompressionType
from tests.support.broker import (
    PRODUCE_BY_NAME,
    Background,
    SteeredNode,
    Timers,
    add_topic,
    delete_topic,
    fetch_request,
    open_broker,
    send,
)
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "broker_time": {"message_timestamp_type": "LogAppendTime"},
    "small": {"max_message_bytes": "300"},
    "synced": {"flush_messages": "1"},
    "lz4": {"compression_type": "lz4"},
}


@dataclass
class Side:
    broker: SteeredNode
    taken: int = 0
    """How many requests were known by their bytes."""

    def answer(self, frame: bytes) -> bytes:
        """Without what differs from broker to broker; what was raised, by its name."""
        try:
            answer = self.handle(frame)
        except (MalformedMessageError, UnacknowledgedError) as error:
            return type(error).__name__.encode()
        return b"nothing" if answer is None else self.without_ids(answer)

    def handle(self, frame: bytes) -> Any:
        for name, topic in self.broker.services.image.topics.items():
            frame = frame.replace(stand_in(name), topic.topic_id)
        return self.broker.dispatcher.handle(memoryview(bytearray(frame)))

    def without_ids(self, pieces: list[bytes]) -> bytes:
        answer = b"".join(pieces)
        for name, topic in self.broker.services.image.topics.items():
            answer = answer.replace(topic.topic_id, stand_in(name))
        return answer.replace(b"/none", b"/some")

    def log(self, topic: str, partition: int) -> bytes:
        log = self.broker.services.replicas.partitions[TopicPartition(topic, partition)].log
        return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


def stand_in(topic: str) -> bytes:
    return topic.encode().ljust(16, b"\xee")


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Side, Side]]:
    with TemporaryDirectory() as folder:
        yield from two_sides(Path(folder), monkeypatch)


def two_sides(
    folder: Path, monkeypatch: pytest.MonkeyPatch, topics: dict[str, dict[str, str]] = TOPICS
) -> Iterator[tuple[Side, Side]]:
    with_memory, without = (
        Side(open_broker(folder / name, ManualClock(NOW), log_retention_ms="-1")) for name in ("some", "none")
    )
    find = ProduceFastPath.find

    def counted(self: ProduceFastPath, frame: memoryview) -> tuple[RememberedRequest, memoryview] | None:
        if self._services is without.broker.services:
            return None
        found = find(self, frame)
        with_memory.taken += found is not None
        return found

    monkeypatch.setattr(ProduceFastPath, "find", counted)
    for side in (with_memory, without):
        for name, configs in topics.items():
            add_topic(side.broker, name, partitions=2, **configs)
    yield with_memory, without
    for side in (with_memory, without):
        side.broker.close()


def frame_of(random: Random, sequences: dict[int, int], number: int) -> bytes:
    """Of a producer's request, unusual in a thing or two now and then."""
    is_usual = random.random() < 0.6

    def pick(usual: Any, *others: Any) -> Any:
        return usual if is_usual or random.random() < 0.8 else random.choice(others)

    topic = pick(random.choice(["plain", "broker_time"]), *TOPICS, "nope", "__consumer_offsets")
    fields: dict[str, Any] = {"is_transactional": pick(False, True)}
    producer_id = random.choice((-1, 7, 8))
    if producer_id >= 0:
        sequence = max(sequences.get(producer_id, 0) + pick(0, -1, 3), 0)
        fields |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        sequences[producer_id] = sequence + 1
    value = random.randbytes(pick(20, 1, 400))
    batch = bytearray(make_batch(value, compression=pick(CompressionType.NONE, CompressionType.GZIP), **fields).buffer)
    if pick(False, True):
        batch[random.randrange(len(batch))] ^= 1
    data = [PartitionProduceData(pick(0, 1, 5), bytes(batch)) for _ in range(pick(1, 2))]
    request = ProduceRequest(
        transactional_id=pick(None, "t"),
        acks=pick(-1, 1, 0, 2),
        timeout_ms=1000,
        topic_data=[TopicProduceData(topic, stand_in(topic), data)] * pick(1, 2),
    )
    frame = encode_request(PRODUCE, pick(13, 8, 9, 10, 12), number, pick("a", "another client", None), request)[4:]
    return bytes(frame) + pick(b"", b"\0", b"more")


def hold_beside(sides: tuple[Side, Side], frame: bytes) -> None:
    with_memory, without = sides
    assert with_memory.answer(frame) == without.answer(frame)


def hold_logs_beside(sides: tuple[Side, Side]) -> None:
    with_memory, without = sides
    for topic in with_memory.broker.services.image.topics:
        for partition in range(2):
            assert with_memory.log(topic, partition) == without.log(topic, partition)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.longer) for seed in (4, 5))])
def test_requests_of_every_kind(sides: tuple[Side, Side], seed: int) -> None:
    random = Random(seed)
    sequences: dict[int, int] = {}
    for number in range(400):
        hold_beside(sides, frame_of(random, sequences, number))
        if random.random() < 0.01:
            for side in sides:
                delete_topic(side.broker, "plain")
                add_topic(side.broker, "plain", partitions=2)
    hold_logs_beside(sides)
    assert sides[0].taken > 50


def usual_frame(number: int, *, topic: str = "plain", version: int = 13, size: int = 50, client_id: str = "a") -> bytes:
    data = PartitionProduceData(0, bytes(make_batch(b"x" * size).buffer))
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic, stand_in(topic), [data])])
    return bytes(encode_request(PRODUCE, version, number, client_id, request)[4:])


@pytest.mark.parametrize("version", range(9, 14))
def test_the_second_usual_request_is_known_by_its_bytes(sides: tuple[Side, Side], version: int) -> None:
    for number, size in enumerate((1, 50, 5_000, 300_000)):  # one to three bytes of length
        hold_beside(sides, usual_frame(number - 2, version=version, size=size))
        assert sides[0].taken == number
    hold_logs_beside(sides)


@settings(max_examples=settings().max_examples // 4)
@given(seed=st.integers(0, 2**32))
@example(seed=1427)  # a codec that there is not
def test_bytes_of_any_kind(seed: int) -> None:
    random = Random(seed)
    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as folder:
        for sides in two_sides(Path(folder), monkeypatch, {"plain": {}}):
            for number in range(20):
                frame = bytearray(usual_frame(number, size=random.choice((1, 50, 200))))
                if number > 1 and random.random() < 0.7:
                    frame[random.randrange(4, len(frame))] = random.randrange(256)
                if number > 1 and random.random() < 0.3:
                    del frame[random.randrange(4, len(frame)) :]
                hold_beside(sides, bytes(frame))
            hold_logs_beside(sides)


def test_what_waits_for_records_is_told(sides: tuple[Side, Side]) -> None:
    side, _ = sides
    log = side.broker.services.replicas.find("plain", 0).log
    for number in range(3):
        waiting = send(
            side.broker, FETCH, fetch_request(log.log_end_offset, "plain", max_wait_ms=1000), PRODUCE_BY_NAME
        )
        told: list[Any] = []
        waiting.on_value = told.append
        side.answer(usual_frame(number))
        assert told
        assert side.taken == number


@pytest.mark.parametrize("end", ["flushed", "too late", "deleted", "refused by the disk"])
def test_an_answer_that_waits_for_the_disk(sides: tuple[Side, Side], end: str) -> None:
    told: list[list[bytes]] = []
    for side in sides:
        flushing, timers = Background(), Timers()
        side.broker.runtime.use(run_flush=flushing, schedule=timers)
        answers: list[bytes] = []
        topic_id = side.broker.services.image.topics["synced"].topic_id
        for number in range(3):
            pending = side.handle(usual_frame(number, topic="synced"))
            pending.on_value = lambda pieces, topic_id=topic_id, answers=answers: answers.append(
                b"".join(pieces).replace(topic_id, b"")
            )
        assert not answers
        if end == "too late":
            timers.fire()
        elif end == "deleted":
            delete_topic(side.broker, "synced")
        elif end == "refused by the disk":
            log = side.broker.services.replicas.find("synced", 0).log
            side.broker.services.replicas.on_flush_failed(log, OSError(EIO, "input/output error"))
        while flushing.waiting:
            flushing.run()
            timers.fire(within_ms=50)
        told.append(answers)
    assert told[0] == told[1]
    assert len(told[0]) == 3
    assert sides[0].taken == 2


def test_a_disk_that_refuses_at_once(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a flush is done when it is asked for."""
    for number in range(4):
        if number == 2:
            monkeypatch.setattr(File, "sync", refuse)
        hold_beside(sides, usual_frame(number, topic="synced"))
    assert sides[0].taken == 2, "from the second until the partition went"


def test_a_full_disk_is_asked_once_for_each_request(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold_beside(sides, usual_frame(0))
    hold_beside(sides, usual_frame(1))

    def full(file: File, *_arguments: object) -> None:
        raise OSError(ENOSPC, "No space left on device", str(file.path))

    with monkeypatch.context() as disk:
        disk.setattr(File, "write_at", full)
        for number in (2, 3):
            caplog.clear()
            hold_beside(sides, usual_frame(number))
            assert len(caplog.records) == 2, "one line of each broker"
    hold_beside(sides, usual_frame(4))
    hold_logs_beside(sides)


def refuse(file: File) -> None:
    raise OSError(EIO, "input/output error", str(file.path))


def test_more_kinds_than_are_kept(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_MOST_KNOWN", 3)
    monkeypatch.setattr(produce, "_MOST_LENGTHS", 2)
    for client_id in ("a", "b", "cc", "c", "ddd", "a", "a", "ddd", "ddd"):
        hold_beside(sides, usual_frame(7, client_id=client_id))
    hold_logs_beside(sides)
    assert sides[0].taken == 3, "the last three"


def test_a_long_client_id_is_not_kept(sides: tuple[Side, Side]) -> None:
    """A client may choose another one for each request, and each of its addresses has a session."""
    for number in range(2):
        hold_beside(sides, usual_frame(number, client_id="x" * 32_767))
    side = sides[0]
    assert side.taken == 0
    assert not side.broker.dispatcher._local.produce_memory._known


def test_a_broker_that_only_reads_remembers_nothing(sides: tuple[Side, Side]) -> None:
    side, _ = sides
    hold_beside(sides, usual_frame(0))
    side.broker.close()
    reader = Side(open_broker(side.broker.directory, ManualClock(NOW), is_read_only=True))
    refusals = [reader.answer(usual_frame(7)) for _ in range(3)]
    assert len(set(refusals)) == 1
    assert not reader.broker.dispatcher._local.produce_memory._known
    reader.broker.close()
    side.broker._lock.acquire(0)  # for the fixture's end


def test_a_topic_that_went_and_came_is_another(sides: tuple[Side, Side]) -> None:
    for number in range(3):
        hold_beside(sides, usual_frame(number))
    for side in sides:
        delete_topic(side.broker, "plain")
    hold_beside(sides, usual_frame(3))
    for side in sides:
        add_topic(side.broker, "plain", partitions=2)
    for number in range(4, 7):
        hold_beside(sides, usual_frame(number))
    hold_logs_beside(sides)


def test_too_few_replicas_are_told_before_what_is_wrong_with_records(sides: tuple[Side, Side]) -> None:
    data = PartitionProduceData(0, bytes(make_batch(b"x", key=None).buffer))
    topic_data = [TopicProduceData("compacted", stand_in("compacted"), [data])]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topic_data)
    frame = bytes(encode_request(PRODUCE, 13, 7, "a", request)[4:])
    for side in sides:
        add_topic(side.broker, "compacted", partitions=2, cleanup_policy="compact")
    hold_beside(sides, frame)
    hold_beside(sides, frame)
    for side in sides:
        side.broker.services.configs.set(ConfigResourceType.TOPIC, "compacted", {"min.insync.replicas": "2"})
    hold_beside(sides, frame)
    assert sides[0].taken == 2


@pytest.mark.parametrize(("level", "lines_each", "taken"), [(logging.INFO, 0, 3), (logging.DEBUG, 6, 0)])
def test_who_watches_sees_the_same(
    sides: tuple[Side, Side], caplog: pytest.LogCaptureFixture, level: int, lines_each: int, taken: int
) -> None:
    """Metrics and the request log, of answers at once and of those that wait for the disk, and of errors. While the
    request log is on, no request is taken by its bytes.
    """
    told: list[tuple[object, ...]] = []
    for side in sides:
        flushing, timers = Background(), Timers()
        side.broker.runtime.use(run_flush=flushing, schedule=timers)
        metrics = side.broker.dispatcher.metrics = RequestMetrics()
        caplog.clear()
        with caplog.at_level(level, "plog.request"):
            for number, topic in enumerate(("plain", "plain", "small", "small", "synced", "synced")):
                answer = side.handle(usual_frame(number, topic=topic, size=400, client_id="watched"))
                if isinstance(answer, Pending):
                    answer.on_value = lambda _pieces: None
                    timers.fire(within_ms=50)
                    flushing.run()
        lines = [without_time(record.fields, side) for record in logged(caplog)]  # type: ignore[attr-defined]
        told.append((metrics.requests, metrics.errors, lines))
    assert told[0] == told[1]
    assert len(told[0][2]) == lines_each  # type: ignore[arg-type]
    assert sides[0].taken == taken
    assert metrics.errors == {("Produce", ErrorCode.NONE): 4, ("Produce", ErrorCode.MESSAGE_TOO_LARGE): 2}


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "plog.request"]


def without_time(fields: dict[str, Any], side: Side) -> str:
    text = json.dumps({name: value for name, value in fields.items() if name != "totalTimeMs"})
    for name, topic in side.broker.services.image.topics.items():
        text = text.replace(uuid_text(topic.topic_id), name)
    return text
