from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.common.error_code import ErrorCode
from core.files.file_records import FileRegion
from core.log.partition_log import PartitionLog, ReadResult
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchResponse, FetchTopic, PartitionData
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.topic_changes import DELETE_RECORDS
from tests.support.broker import (
    PRODUCE_BY_NAME,
    SteeredNode,
    Timers,
    add_topic,
    ask,
    ask_later,
    decode,
    delete_topic,
    fetch,
    fetch_request,
    produce,
    produce_values,
    send,
    values_of,
)
from tests.support.for_each import for_each
from tests.support.logs import NOW, make_batch
from tests.support.requests import deletion_of


@for_each("version", range(4, 19))
def test_every_version_reads(broker: SteeredNode, version: int) -> None:
    topic_id = add_topic(broker, f"t{version}")
    produce_values(broker, b"a", b"b", topic=f"t{version}")
    request = fetch_request(1, f"t{version}")
    request.topics[0].topic_id = topic_id
    response = ask(broker, FETCH, request, version)
    (data,) = response.responses[0].partitions
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
    assert values_of(data) == [b"b"]


@pytest.mark.parametrize(("size_bytes", "kinds"), [(20_000, [bytes, FileRegion, bytes]), (100, [bytes])])
def test_records_leave_as_regions_of_the_file(broker: SteeredNode, size_bytes: int, kinds: list[type]) -> None:
    """So that they go out by sendfile. Few go out with the rest of the answer, by one system call."""
    add_topic(broker)
    produce_values(broker, bytes(size_bytes))
    pieces = send(broker, FETCH, fetch_request(0), PRODUCE_BY_NAME)
    assert [type(piece) for piece in pieces] == kinds


def fetch_with(broker: SteeredNode, offset: int, **fields: int) -> PartitionData:
    """`fields` are the partition's."""
    request = fetch_request(offset)
    for name, value in fields.items():
        setattr(request.topics[0].partitions[0], name, value)
    return ask(broker, FETCH, request, PRODUCE_BY_NAME).responses[0].partitions[0]


def test_what_is_refused(broker: SteeredNode) -> None:
    add_topic(broker)
    produce_values(broker, b"a", b"b")
    for offset, fields, code in (
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, {}, 0),
        (2, {}, 0),
        (3, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, {"current_leader_epoch": -1}, 0),
        (0, {"current_leader_epoch": 0}, 0),
        (0, {"current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, {"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert fetch_with(broker, offset, **fields).error_code == code, (offset, fields)
    assert fetch(broker, 0, "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = ask(broker, FETCH, fetch_request(0), 13)
    assert by_id.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_where_logs_part_ways(broker: SteeredNode) -> None:
    """A fetcher whose last epoch ended earlier here is told where (KIP-595). As Kafka 4.3.1 answers: divergence goes
    before range, but for what is below the log's start, where there is nothing to go back to.
    """
    add_topic(broker)
    produce_values(broker, *[b"a"] * 10)
    log = broker.services.replicas.find("t", 0).log
    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)

    def found(offset: int, last_epoch: int) -> tuple[int, int, int]:
        data = fetch_with(broker, offset, last_fetched_epoch=last_epoch)
        assert not data.records or offset < 10
        return data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset

    assert found(1, 0) == found(10, 0) == (0, -1, -1), "also just at the end of the epoch"
    assert [found(15, last_epoch) for last_epoch in (0, -1, 1)] == [(0, 0, 10), out_of_range, out_of_range]
    log.leader_epochs.assign(2, 10)
    assert found(10, 0) == (0, -1, -1), "at the end of an epoch that another follows"
    log.increment_log_start_offset(5)
    assert found(4, 1) == out_of_range
    assert found(5, 1)[2] == 10
    log.increment_log_start_offset(10)
    assert found(5, 0) == out_of_range


# --- how much


def test_the_first_batch_comes_whole_however_small_the_limits(broker: SteeredNode) -> None:
    add_topic(broker)
    produce_values(broker, b"a" * 1000, b"b" * 1000)
    assert values_of(fetch(broker, 0, partition_max_bytes=1)) == [b"a" * 1000]
    assert values_of(fetch(broker, 0, max_bytes=1)) == [b"a" * 1000]


def test_later_partitions_obey_the_limit_of_all(broker: SteeredNode) -> None:
    add_topic(broker, partitions=3)
    for partition in range(3):
        produce_values(broker, b"x" * 1000, partition=partition)
    request = fetch_request(0, max_bytes=1500)
    request.topics = [
        FetchTopic("t", partitions=[FetchPartition(n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(3)])
    ]
    data = ask(broker, FETCH, request, PRODUCE_BY_NAME).responses[0].partitions
    assert [values_of(d) for d in data] == [[b"x" * 1000], [], []]
    assert [len(d.records or b"") for d in data[1:]] == [0, 0]
    assert [d.high_watermark for d in data] == [1, 1, 1]


def test_a_later_partitions_first_batch_comes_whole_or_not_at_all(broker: SteeredNode) -> None:
    """A consumer that got a part of it gave up ("Failed to make progress reading messages"). One batch is 1071 bytes,
    every partition holds three, and the sizes follow `ReplicaManager.readFromLog`.
    """
    add_topic(broker, partitions=3)
    for partition in range(3):
        for _ in range(3):
            produce_values(broker, b"x" * 1000, partition=partition)
    one = 1071
    whole = {  # (limit of all, limit of a partition): bytes of each partition's records
        (1, one): (one, 0, 0),
        (one, one): (one, 0, 0),
        (2 * one - 1, one): (one, 0, 0),
        (2 * one, one): (one, one, 0),
        (3 * one, one): (one, one, one),
        (3 * one, one - 1): (one, 0, 0),
        (3 * one, one + 1): (one + 1, one + 1, 0),
        (7 * one, 2 * one): (2 * one, 2 * one, 2 * one),
    }
    for (max_bytes, partition_max_bytes), sizes in whole.items():
        request = fetch_request(0, max_bytes=max_bytes)
        request.topics = [
            FetchTopic(
                "t",
                partitions=[
                    FetchPartition(n, fetch_offset=0, partition_max_bytes=partition_max_bytes) for n in range(3)
                ],
            )
        ]
        data = ask(broker, FETCH, request, PRODUCE_BY_NAME).responses[0].partitions
        assert tuple(len(d.records or b"") for d in data) == sizes, (max_bytes, partition_max_bytes)


# --- waiting


def waiting(broker: SteeredNode, **fields: int) -> list[FetchResponse]:
    """The answer, once it is there."""
    return ask_later(broker, FETCH, fetch_request(0, **{"max_wait_ms": 500, **fields}), PRODUCE_BY_NAME)


def answered(answers: list[FetchResponse]) -> list[PartitionData]:
    return [answer.responses[0].partitions[0] for answer in answers]


def test_a_fetch_waits_until_records_come(broker: SteeredNode, timers: Timers) -> None:
    add_topic(broker)
    answers = waiting(broker)
    assert timers.delays == [500]
    assert answers == []
    produce_values(broker, b"a")
    assert [values_of(data) for data in answered(answers)] == [[b"a"]]
    assert timers.delays == []
    produce_values(broker, b"b")
    assert len(answers) == 1, "answered once"


def test_a_fetch_waits_for_min_bytes(broker: SteeredNode) -> None:
    add_topic(broker)
    answers = waiting(broker, min_bytes=300)
    for value in (b"a", b"b", b"c"):
        assert answers == []
        produce_values(broker, value * 60)
    assert len(answers) == 1


def test_an_append_makes_a_fetch_look_at_its_partition_alone(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_topic(broker, partitions=50)
    partitions = [FetchPartition(number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(50)]
    request = fetch_request(0, min_bytes=250, max_wait_ms=500)
    request.topics = [FetchTopic("t", partitions=partitions)]
    answers = ask_later(broker, FETCH, request, PRODUCE_BY_NAME)
    looked_at = 0
    read = PartitionLog.read

    def counting(self: PartitionLog, *arguments: Any, **options: Any) -> ReadResult:
        nonlocal looked_at
        looked_at += 1
        return read(self, *arguments, **options)

    monkeypatch.setattr(PartitionLog, "read", counting)
    for number in range(3):
        produce_values(broker, b"x" * 10, partition=number)
    assert (looked_at, answers) == (3, [])
    produce_values(broker, b"x" * 10, partition=3)
    assert len(answers) == 1


def test_a_fetch_waits_for_no_more_than_it_may_get(broker: SteeredNode) -> None:
    """As Kafka: `min_bytes` above `max_bytes` would never be there."""
    add_topic(broker)
    answers = waiting(broker, min_bytes=10_000, max_bytes=200)
    produce_values(broker, b"x" * 50)
    assert answers == []
    produce_values(broker, b"x" * 50, b"x" * 50)
    assert len(answers) == 1


def test_a_batch_that_left_no_room_and_is_not_the_first_any_more(broker: SteeredNode) -> None:
    """The partition behind it had nothing to give, and has now."""
    add_topic(broker, partitions=3)
    for partition, size in ((1, 400), (2, 300)):
        assert produce(broker, make_batch(bytes(size)), partition=partition).error_code == 0
    request = fetch_request(0, max_wait_ms=500, min_bytes=560, max_bytes=600)
    request.topics[0].partitions = [FetchPartition(n, partition_max_bytes=1 if n == 1 else 1 << 20) for n in range(3)]
    answers = ask_later(broker, FETCH, request, PRODUCE_BY_NAME)
    assert produce(broker, make_batch(bytes(150)), partition=0).error_code == 0
    assert len(answers) == 1


def test_records_that_go_under_a_waiting_fetch(broker: SteeredNode) -> None:
    add_topic(broker)
    produce_values(broker, b"a", b"b")
    answers = waiting(broker, min_bytes=1000)
    assert ask(broker, DELETE_RECORDS, deletion_of("t", 0, 1)).topics[0].partitions[0].error_code == 0
    assert [data.error_code for data in answered(answers)] == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_a_fetch_ends_with_its_time(broker: SteeredNode, timers: Timers) -> None:
    add_topic(broker)
    answers = waiting(broker)
    timers.fire()
    assert [values_of(data) for data in answered(answers)] == [[]]


def test_a_topic_that_is_deleted_under_a_waiting_fetch(broker: SteeredNode) -> None:
    add_topic(broker)
    answers = waiting(broker)
    delete_topic(broker, "t")
    assert [data.error_code for data in answered(answers)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_client_that_is_gone_is_forgotten(broker: SteeredNode) -> None:
    add_topic(broker)
    pending = send(broker, FETCH, fetch_request(0, max_wait_ms=500), PRODUCE_BY_NAME)
    pending.on_value = lambda pieces: pytest.fail("answered")
    pending.cancel()
    assert broker.services.replicas._waiting == {}
    produce_values(broker, b"a")


def test_errors_do_not_wait(broker: SteeredNode) -> None:
    add_topic(broker)
    for request in (fetch_request(9, max_wait_ms=500), fetch_request(0, "nope", max_wait_ms=500)):
        assert isinstance(send(broker, FETCH, request, PRODUCE_BY_NAME), list)


def test_a_segment_that_is_deleted_under_an_answer(broker: SteeredNode, tmp_path: Path) -> None:
    """The answer was made before; its bytes still go out."""
    add_topic(broker)
    produce_values(broker, b"a")
    pieces = send(broker, FETCH, fetch_request(0), PRODUCE_BY_NAME)
    delete_topic(broker, "t")
    assert values_of(decode(FETCH, pieces, PRODUCE_BY_NAME).responses[0].partitions[0]) == [b"a"]


# --- offsets by time


def offset_at(broker: SteeredNode, timestamp: int, version: int = 11, isolation: int = 0) -> tuple[int, int, int]:
    """(error code, offset, timestamp)."""
    wanted = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])]
    answer = ask(broker, LIST_OFFSETS, ListOffsetsRequest(-1, isolation, wanted), version).topics[0].partitions[0]
    return answer.error_code, answer.offset, answer.timestamp


def test_list_offsets(broker: SteeredNode) -> None:
    add_topic(broker)
    for n in range(5):
        assert produce(broker, make_batch(b"a", b"b", timestamp=NOW + 100 * n)).error_code == 0
    assert offset_at(broker, -1) == (0, 10, -1)
    assert offset_at(broker, -2) == (0, 0, -1)
    assert offset_at(broker, -3) == (0, 9, NOW + 401)
    assert offset_at(broker, -4) == (0, 0, -1)
    assert offset_at(broker, -5) == offset_at(broker, -6) == (0, -1, -1)
    assert offset_at(broker, 0) == (0, 0, NOW)
    assert offset_at(broker, NOW + 101) == (0, 3, NOW + 101)
    assert offset_at(broker, NOW + 102) == (0, 4, NOW + 200)
    assert offset_at(broker, NOW + 1000) == (0, -1, -1)


def test_list_offsets_refuses_times_and_isolation_levels_that_its_version_does_not_know(broker: SteeredNode) -> None:
    add_topic(broker)
    for timestamp, isolation in ((-7, 0), (-99, 0), (-1, 2), (-1, -1), (5, 7)):
        assert offset_at(broker, timestamp, isolation=isolation) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    for timestamp, first in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
        assert offset_at(broker, timestamp, first - 1)[0] == ErrorCode.UNSUPPORTED_VERSION
        assert offset_at(broker, timestamp, first)[0] == 0


def test_list_offsets_of_one_partition_twice(broker: SteeredNode) -> None:
    add_topic(broker)
    wanted = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1), ListOffsetsPartition(0, -1, -2)])]
    answers = ask(broker, LIST_OFFSETS, ListOffsetsRequest(-1, 0, wanted)).topics[0].partitions
    assert [a.error_code for a in answers] == [ErrorCode.INVALID_REQUEST] * 2
