from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.requests.handlers.produce import UnacknowledgedError
from core.common.error_code import ErrorCode
from core.log.producer_state_manager import ProducerStateManager
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema.transactions import INIT_PRODUCER_ID, InitProducerIdRequest
from core.records.compression import CompressionType
from tests.support.broker import (
    PRODUCE_BY_NAME,
    SteeredNode,
    add_topic,
    ask,
    delete_topic,
    fetch,
    open_broker,
    produce,
    produce_request,
    records_of,
    send,
    values_of,
)
from tests.support.for_each import for_each
from tests.support.logs import NOW, FullDisk, make_batch
from tests.support.manual_clock import ManualClock


def test_offsets_follow_one_another(broker: SteeredNode) -> None:
    add_topic(broker)
    answers = [produce(broker, make_batch(b"a", b"b")), produce(broker, make_batch(b"c"))]
    assert [(a.error_code, a.base_offset, a.log_append_time_ms, a.log_start_offset) for a in answers] == [
        (0, 0, -1, 0),
        (0, 2, -1, 0),
    ]
    assert values_of(fetch(broker, 0)) == [b"a", b"b", b"c"]


@for_each("version", range(3, 14))
def test_every_version_appends(broker: SteeredNode, version: int) -> None:
    """By name, or from version 13 by id."""
    name = f"t{version}"
    topic_id = add_topic(broker, name)
    request = produce_request(make_batch(b"a"), name)
    request.topic_data[0].topic_id = topic_id
    answer = ask(broker, PRODUCE, request, version).responses[0]
    assert (answer.name, answer.topic_id) == (("", topic_id) if version >= 13 else (name, bytes(16)))
    assert [(p.index, p.error_code, p.base_offset) for p in answer.partition_responses] == [(0, 0, 0)]
    assert values_of(fetch(broker, 0, name)) == [b"a"]


def test_an_error_of_one_partition_leaves_the_others_alone(broker: SteeredNode) -> None:
    add_topic(broker, partitions=2)
    good = bytes(make_batch(b"a").buffer)
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData("t", partition_data=[PartitionProduceData(n, good) for n in (0, 7, 1)]),
            TopicProduceData("nope", partition_data=[PartitionProduceData(0, good)]),
        ],
    )
    answer = ask(broker, PRODUCE, request, PRODUCE_BY_NAME)
    codes = [[(p.index, p.error_code) for p in topic.partition_responses] for topic in answer.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[(0, 0), (7, unknown), (1, 0)], [(0, unknown)]]
    assert values_of(fetch(broker, 0, partition=1)) == [b"a"]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (b"no batch at all, but words and words and words and words and words", ErrorCode.CORRUPT_MESSAGE),
        (bytes(make_batch(b"a").buffer)[:-1], ErrorCode.CORRUPT_MESSAGE),
        (flipped(bytes(make_batch(b"a").buffer)), ErrorCode.CORRUPT_MESSAGE),
        (bytes(make_batch(b"a").buffer) * 2, ErrorCode.INVALID_RECORD),
    ],
    ids=["empty", "words", "cut", "flipped", "two batches"],
)
def test_records_that_are_no_batch(broker: SteeredNode, data: bytes, code: ErrorCode) -> None:
    add_topic(broker)
    answer = produce(broker, data)
    assert answer.error_code == code
    assert answer.base_offset == -1
    assert answer.error_message
    assert values_of(fetch(broker, 0)) == []


def test_what_is_refused_by_version_and_settings(broker: SteeredNode) -> None:
    add_topic(broker)
    add_topic(broker, "small", max_message_bytes="100")
    add_topic(broker, "replicated", min_insync_replicas="2")
    no_codec = bytearray(make_batch(b"a").buffer)
    no_codec[22] |= 7
    nothing = produce_request(b"")
    nothing.topic_data[0].partition_data[0].records = None
    zstd = produce_request(make_batch(b"a" * 100, compression=CompressionType.ZSTD))
    replicated = make_batch(b"a")
    for request, version, code, message in (
        (produce_request(bytes(no_codec)), 6, ErrorCode.CORRUPT_MESSAGE, ""),
        (produce_request(bytes(no_codec)), 12, ErrorCode.CORRUPT_MESSAGE, ""),
        (nothing, 12, ErrorCode.INVALID_RECORD, ""),
        (zstd, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ""),
        (zstd, 7, ErrorCode.NONE, ""),
        (produce_request(make_batch(b"a")), 13, ErrorCode.UNKNOWN_TOPIC_ID, ""),
        (produce_request(make_batch(b"x" * 100), "small"), 12, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes is 100"),
        (produce_request(replicated, "replicated"), 12, ErrorCode.NOT_ENOUGH_REPLICAS,
         "1 replica of replicated-0 is in sync, min.insync.replicas is 2"),
        (produce_request(replicated, "replicated", acks=1), 12, ErrorCode.NONE, ""),
        (produce_request(make_batch(b"5"), acks=5), 12, ErrorCode.INVALID_REQUIRED_ACKS, ""),
    ):  # fmt: skip
        answer = ask(broker, PRODUCE, request, version).responses[0].partition_responses[0]
        assert answer.error_code == code, (request, version)
        assert (answer.error_message or "").endswith(message)


def test_acks(broker: SteeredNode) -> None:
    add_topic(broker)
    for acks in (1, -1):
        assert produce(broker, make_batch(b"%d" % acks), acks=acks).error_code == 0
    assert send(broker, PRODUCE, produce_request(make_batch(b"0"), acks=0), PRODUCE_BY_NAME) is None
    assert values_of(fetch(broker, 0)) == [b"1", b"-1", b"0"]


def test_an_unacknowledged_failure_closes_the_connection(broker: SteeredNode) -> None:
    """There is no answer that could tell the client."""
    with pytest.raises(UnacknowledgedError):
        send(broker, PRODUCE, produce_request(make_batch(b"0"), acks=0), PRODUCE_BY_NAME)


def test_log_append_time(broker: SteeredNode, clock: ManualClock) -> None:
    add_topic(broker, message_timestamp_type="LogAppendTime")
    clock.advance(5)
    assert produce(broker, make_batch(b"a", b"b")).log_append_time_ms == NOW + 5
    assert [r.timestamp for r in records_of(fetch(broker, 0))] == [NOW + 5] * 2


# --- idempotent producers


def new_producer(broker: SteeredNode) -> int:
    answer = ask(broker, INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


def test_a_retry_is_answered_with_its_offset_and_written_once(broker: SteeredNode) -> None:
    add_topic(broker)
    producer = new_producer(broker)
    batches = [
        make_batch(b"%d" % n, b"+", producer_id=producer, producer_epoch=0, base_sequence=2 * n) for n in range(5)
    ]
    first = [produce(broker, bytes(b.buffer)).base_offset for b in batches]
    again = [produce(broker, bytes(b.buffer)) for b in batches]
    assert first == [0, 2, 4, 6, 8]
    assert [(a.error_code, a.base_offset) for a in again] == [(0, n) for n in first]
    assert len(records_of(fetch(broker, 0))) == 10


def test_a_gap_and_an_old_epoch(broker: SteeredNode) -> None:
    add_topic(broker)
    producer = new_producer(broker)
    fields = {"producer_id": producer, "producer_epoch": 1}
    assert produce(broker, make_batch(b"0", base_sequence=0, **fields)).error_code == 0
    gap = produce(broker, make_batch(b"2", base_sequence=2, **fields))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = produce(broker, make_batch(b"1", base_sequence=1, producer_id=producer, producer_epoch=0))
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values_of(fetch(broker, 0)) == [b"0"]


def test_nothing_but_a_first_batch_begins_an_empty_log(broker: SteeredNode) -> None:
    """KAFKA-15591: otherwise the first batch, refused before and sent again, would be out of order for ever. A log that
    has had records may have forgotten the producer.
    """
    add_topic(broker)
    producer = new_producer(broker)

    def write(value: bytes, sequence: int) -> int:
        batch = make_batch(value, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        return produce(broker, batch).error_code

    assert write(b"1", 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [write(b"0", 0), write(b"1", 1)] == [0, 0]
    producer = new_producer(broker)
    assert write(b"5", 5) == 0
    assert values_of(fetch(broker, 0)) == [b"0", b"1", b"5"]
    delete_topic(broker, "t")
    add_topic(broker)
    assert write(b"6", 6) == 0, "a producer of librdkafka goes on in the next topic of that name"


def test_a_retry_after_a_restart(tmp_path: Path) -> None:
    """Cleanly stopped or not: sequences are in the log."""
    for is_clean in (True, False):
        directory = tmp_path / str(is_clean)
        broker = open_broker(directory, log_retention_ms="-1")
        add_topic(broker)
        producer = new_producer(broker)
        batch = bytes(make_batch(b"a", producer_id=producer, producer_epoch=0, base_sequence=0).buffer)
        assert produce(broker, batch).base_offset == 0
        if is_clean:
            broker.close()
        else:
            broker._lock.release()  # a process that was killed
        broker = open_broker(directory, log_retention_ms="-1")
        assert (produce(broker, batch).error_code, produce(broker, batch).base_offset) == (0, 0)
        assert values_of(fetch(broker, 0)) == [b"a"]
        assert new_producer(broker) > producer
        broker.close()


def test_bad_requests_for_a_producer_id(broker: SteeredNode) -> None:
    for request in (
        InitProducerIdRequest(transactional_id=""),
        InitProducerIdRequest(transactional_id=None, producer_id=5),
        InitProducerIdRequest(transactional_id=None, producer_epoch=5),
    ):
        assert ask(broker, INIT_PRODUCER_ID, request).error_code == ErrorCode.INVALID_REQUEST


# --- the disk


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    disk = FullDisk()
    broker = SteeredNode(tmp_path, BrokerConfig(), clock=ManualClock(NOW), filesystem=disk)
    add_topic(broker)
    assert produce(broker, make_batch(b"a")).error_code == 0
    disk.is_full = True
    refused = produce(broker, make_batch(b"b"))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "no space left on device" in (refused.error_message or "")
    assert values_of(fetch(broker, 0)) == [b"a"]
    disk.is_full = False
    assert produce(broker, make_batch(b"c")).base_offset == 1
    assert values_of(fetch(broker, 0)) == [b"a", b"c"]


def test_an_append_that_fails_in_the_middle_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is in the file, and the log's end before it: nothing else may get its offset."""
    broker = open_broker(tmp_path)
    add_topic(broker)
    assert [produce(broker, make_batch(b"a")).error_code for _ in range(3)] == [0, 0, 0], "the short way is known"

    def refuse(*_args: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(ProducerStateManager, "update", refuse)
        of_producer = make_batch(b"b", producer_id=7, producer_epoch=0, base_sequence=0)
        assert produce(broker, of_producer).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "perhaps kept"
    assert produce(broker, make_batch(b"c")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetch(broker, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.close()
    again = open_broker(tmp_path)
    values = values_of(fetch(again, 0))
    assert values == [b"a", b"a", b"a", b"b"]
    assert produce(again, make_batch(b"d")).base_offset == 4
