"""Logs that are read when somebody first asks for them: who waits, for how long, and what the others get meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.broker.broker_config import BrokerConfig
from core.broker.late_loads import MOST_WAIT_MS
from core.broker.pending_answer import PendingAnswer
from core.common.clock import ManualClock
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.log.file_names import CLEAN_SHUTDOWN, OFFSET_CHECKPOINTS
from core.protocol.primitives import Piece
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.protocol.schema.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.schema.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.broker import (
    PRODUCE_BY_NAME,
    Background,
    Timers,
    add_topic,
    ask,
    decode,
    fetch_request,
    open_broker,
    produce_values,
    send,
    values_of,
)
from tests.support.logs import NOW, fingerprint

VALUES = {0: [b"a"], 1: [b"b", b"c"], 2: [b"d", b"e", b"f"]}


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.broker.late_loads.AT_ONCE_BYTES", 0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A topic of three partitions, each larger than the one before, and what a group committed, in a copy without
    checkpoints.
    """
    broker = open_broker(tmp_path / "data", offsets_topic_num_partitions="1")
    add_topic(broker, partitions=3)
    for partition, values in VALUES.items():
        produce_values(broker, *values, partition=partition)
    partitions = [OffsetCommitRequestPartition(1, 2)]
    ask(
        broker,
        OFFSET_COMMIT,
        OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=partitions)]),
        9,
    )
    broker.close()
    for name in (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN):
        (tmp_path / "data" / name).unlink(missing_ok=True)
    return tmp_path / "data"


class Served:
    """A broker that reads late, with a thread that works when it is told to."""

    def __init__(self, directory: Path, *, is_read_only: bool = True) -> None:
        self.broker = Broker(
            directory, BrokerConfig(), clock=ManualClock(NOW), is_read_only=is_read_only, loads_late=True
        )
        self.thread, self.timers = Background(), Timers()
        self.broker.run_loading = self.thread
        self.broker.schedule = self.timers
        self.answers: list[list[Piece]] = []

    def ask_later(self, api: Any, request: Any, version: int) -> PendingAnswer:
        """Its answer, which must wait, comes to `answers`."""
        answer = send(self.broker, api, request, version)
        assert isinstance(answer, PendingAnswer)
        answer.on_ready = self.answers.append
        return answer

    def fetched(self) -> dict[int, PartitionData]:
        """The answer to a Fetch that came."""
        response = decode(FETCH, self.answers.pop(), PRODUCE_BY_NAME)
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    @property
    def unloaded(self) -> list[int]:
        return sorted(name.partition for name in self.broker.log_manager.unloaded if name.topic == "t")


@pytest.fixture
def served(directory: Path) -> Served:
    return Served(directory)


def fetch_of(*partitions: int, max_wait_ms: int = 0) -> FetchRequest:
    wanted = [FetchPartition(number, fetch_offset=0, partition_max_bytes=1 << 20) for number in partitions]
    return FetchRequest(
        topics=[FetchTopic("t", partitions=wanted)], max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20
    )


def test_a_start_reads_nothing_and_says_what_there_is(served: Served, directory: Path) -> None:
    assert served.unloaded == [0, 1, 2]
    (topic,) = [topic for topic in ask(served.broker, METADATA, MetadataRequest(None)).topics if topic.name == "t"]
    assert [(p.error_code, p.leader_id) for p in topic.partitions] == [(0, served.broker.node_id)] * 3
    (logs,) = ask(served.broker, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None)).results
    sizes = {
        p.partition_index: p.partition_size for found in logs.topics if found.name == "t" for p in found.partitions
    }
    assert sizes == {n: sum(p.stat().st_size for p in (directory / f"t-{n}").glob("*.log")) for n in VALUES}
    assert not served.thread.waiting
    served.broker.close()


def test_what_is_small_is_read_at_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups' partitions before all others."""
    monkeypatch.setattr("core.broker.late_loads.AT_ONCE_BYTES", 3 * 256 * 1024 + 1000)
    served = Served(directory)
    assert list(served.broker.log_manager.unloaded) == [TopicPartition("t", 2)]
    response = decode(FETCH, send(served.broker, FETCH, fetch_of(1), PRODUCE_BY_NAME), PRODUCE_BY_NAME)
    assert values_of(response.responses[0].partitions[0]) == VALUES[1]
    served.broker.close()


def test_who_asks_waits_until_it_is_read(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
    assert "t-1 is read, as it was asked for" in caplog.text
    assert not served.answers
    served.thread.run()
    assert values_of(served.fetched()[1]) == VALUES[1]
    assert served.unloaded == [0, 2]
    served.broker.close()


def test_the_smallest_comes_first_and_others_are_served_meanwhile(served: Served) -> None:
    served.ask_later(FETCH, fetch_of(2), PRODUCE_BY_NAME)
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
    served.ask_later(FETCH, fetch_of(0), PRODUCE_BY_NAME)
    assert len(served.thread.waiting) == 1, "one at a time"
    served.thread.run()
    assert list(served.fetched()) == [2]
    served.thread.run()
    assert list(served.fetched()) == [0]
    answer = send(served.broker, FETCH, fetch_of(0), PRODUCE_BY_NAME)
    assert not isinstance(answer, PendingAnswer)
    served.thread.run()
    assert list(served.fetched()) == [1]
    assert not served.thread.waiting
    served.broker.close()


def test_who_has_waited_long_is_told_to_ask_again(served: Served) -> None:
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
    assert served.timers.delays == [MOST_WAIT_MS]
    served.timers.fire()
    assert served.fetched()[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    served.thread.run()
    response = decode(FETCH, send(served.broker, FETCH, fetch_of(1), PRODUCE_BY_NAME), PRODUCE_BY_NAME)
    assert values_of(response.responses[0].partitions[0]) == VALUES[1]
    served.broker.close()


def test_a_fetch_gets_what_is_there_and_is_told_to_ask_again_for_the_rest(served: Served) -> None:
    served.broker.late_loads.ask(TopicPartition("t", 0))
    served.thread.run()
    response = decode(FETCH, send(served.broker, FETCH, fetch_of(0, 1), PRODUCE_BY_NAME), PRODUCE_BY_NAME)
    first, second = response.responses[0].partitions
    assert values_of(first) == VALUES[0]
    assert (second.error_code, values_of(second)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    assert len(served.thread.waiting) == 1, "it is being read"
    served.broker.close()


def test_a_fetch_that_waits_for_records_gets_those_of_a_log_that_was_read_meanwhile(served: Served) -> None:
    served.broker.late_loads.ask(TopicPartition("t", 0))
    served.thread.run()
    wanted = [FetchPartition(0, fetch_offset=1, partition_max_bytes=99), FetchPartition(1, partition_max_bytes=1 << 20)]
    request = FetchRequest(topics=[FetchTopic("t", partitions=wanted)], max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
    served.ask_later(FETCH, request, PRODUCE_BY_NAME)
    assert not served.answers
    served.thread.run()
    assert values_of(served.fetched()[1]) == VALUES[1]
    served.broker.close()


def test_offsets_are_told_when_all_that_were_asked_for_are_read(served: Served) -> None:
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic("t", [ListOffsetsPartition(n, timestamp=-1) for n in VALUES])]
    )
    served.ask_later(LIST_OFFSETS, request, 7)
    for _ in VALUES:
        assert not served.answers
        served.thread.run()
    (topic,) = decode(LIST_OFFSETS, served.answers.pop(), 7).topics
    assert {p.partition_index: (p.error_code, p.offset) for p in topic.partitions} == {
        number: (0, len(values)) for number, values in VALUES.items()
    }
    served.broker.close()


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), CorruptRecordError("is damaged"), AssertionError("our own mistake")]
)
def test_a_log_that_can_not_be_opened_is_offline(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("core.log.log_manager.load_log", fail)
        served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME)
        served.thread.run()
    assert served.fetched()[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert str(error).rpartition("] ")[2].lower() in str(served.broker.log_manager.offline[TopicPartition("t", 1)])
    served.ask_later(FETCH, fetch_of(0), PRODUCE_BY_NAME)
    served.thread.run()
    assert values_of(served.fetched()[0]) == VALUES[0]
    served.broker.close()


def test_a_client_that_goes_leaves_nothing_behind(served: Served) -> None:
    served.ask_later(FETCH, fetch_of(1), PRODUCE_BY_NAME).cancel()
    assert not served.timers.delays
    served.thread.run()
    assert not served.answers
    assert served.unloaded == [0, 2], "what was begun is done"
    served.broker.close()


def test_a_group_is_known_when_its_partition_was_read(served: Served) -> None:
    """Kafka's own answer meanwhile, which clients know."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    (group,) = ask(served.broker, OFFSET_FETCH, request, 8).groups
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ask(served.broker, OFFSET_FETCH, request, 8)
    assert len(served.thread.waiting) == 1
    served.thread.run()
    (group,) = ask(served.broker, OFFSET_FETCH, request, 8).groups
    assert [(p.partition_index, p.committed_offset) for t in group.topics for p in t.partitions] == [(1, 2)]
    served.broker.close()


def test_nothing_is_written_to_the_directory(directory: Path) -> None:
    before = fingerprint(directory)
    served = Served(directory)
    served.broker.late_loads.ask(TopicPartition("t", 1))
    served.thread.run()
    served.broker.housekeep()
    served.broker.close()
    assert fingerprint(directory) == before


def test_a_writer_beside_it_is_read_as_of_when_it_was_asked_for(tmp_path: Path) -> None:
    live = open_broker(tmp_path)
    add_topic(live, internal_segment_bytes="100")
    produce_values(live, b"a", b"b")
    served = Served(tmp_path)
    produce_values(live, b"c", b"d")
    first = min((tmp_path / "t-0").glob("*.log"))
    served.ask_later(FETCH, fetch_request(3), PRODUCE_BY_NAME)
    served.thread.run()
    assert values_of(served.fetched()[0]) == [b"d"]
    assert served.broker.replicas.unexplained == {}
    assert first.exists()
    served.broker.close()
    live.close()
