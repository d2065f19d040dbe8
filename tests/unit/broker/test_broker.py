"""A broker's life: what a stop, a crash and a restart leave of it, and what it does from time to time."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import AccessError
from core.files.checkpoint_file import read_offset_checkpoint
from core.files.log_config import LogConfig
from core.files.meta_properties import read_meta_properties
from core.log.log_segment import LogSegment
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.broker import (
    Background,
    SteeredNode,
    add_topic,
    ask,
    delete_topic,
    fetch,
    open_broker,
    produce,
    produce_values,
    records_of,
    values_of,
)
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock

DAY_MS = 86_400_000


def crash(broker: SteeredNode) -> None:
    """As a killed process leaves it: nothing closed, the lock gone."""
    broker._lock.release()


def values(broker: SteeredNode, topic: str = "t") -> list[bytes | None]:
    return values_of(fetch(broker, 0, topic))


@pytest.mark.parametrize("is_clean", [True, False])
def test_records_are_there_after_a_restart(tmp_path: Path, is_clean: bool) -> None:
    first = open_broker(tmp_path)
    topic_id = add_topic(first, retention_ms="-1")
    produce_values(first, b"a", b"b", b"c")
    if is_clean:
        first.close()
    else:
        crash(first)
    assert (tmp_path / ".kafka_cleanshutdown").exists() == is_clean
    second = open_broker(tmp_path)
    assert values(second) == [b"a", b"b", b"c"]
    assert second.services.image.topics["t"].topic_id == topic_id
    assert second.services.node.cluster_id == first.services.node.cluster_id
    assert not (tmp_path / ".kafka_cleanshutdown").exists(), "a crash from now on is known as one"


def test_a_deleted_topic_does_not_come_back(tmp_path: Path) -> None:
    """Its folder goes later; a crash before that leaves it, and a new topic of the same name must not find it."""
    first = open_broker(tmp_path)
    add_topic(first)
    produce_values(first, b"old")
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "t-0", saved)
    delete_topic(first, "t")
    crash(first)
    shutil.move(saved, tmp_path / "t-0")
    second = open_broker(tmp_path)
    second.begin_serving(Endpoint("127.0.0.1", 1))
    assert "t" not in second.services.image.topics
    add_topic(second)
    produce_values(second, b"new")
    assert values(second) == [b"new"]
    assert not list(tmp_path.glob("*-delete")), "what an earlier stop left to delete is gone"
    assert len(list(tmp_path.glob("t-0.*-stray"))) == 1


def test_a_partition_that_the_disk_refuses_is_offline_alone(tmp_path: Path) -> None:
    first = open_broker(tmp_path)
    add_topic(first, "t")
    add_topic(first, "other")
    produce_values(first, b"x")
    produce_values(first, b"y", topic="other")
    first.close()
    (tmp_path / "t-0" / "00000000000000000000.log").unlink()
    (tmp_path / "t-0" / "00000000000000000000.log").mkdir()
    second = open_broker(tmp_path)
    assert produce(second, make_batch(b"z")).error_code == 56, "KAFKA_STORAGE_ERROR"
    assert values(second, "other") == [b"y"]
    second.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("settings", [{"node_id": "9"}, {"broker_id": "9"}])
def test_another_nodes_directory(tmp_path: Path, settings: dict[str, str]) -> None:
    open_broker(tmp_path, node_id="4").close()
    with pytest.raises(AccessError, match=r"belongs to node 4, node\.id is 9"):
        open_broker(tmp_path, **settings)
    again = open_broker(tmp_path)
    assert again.services.node.node_id == 4
    again.close()
    meta = read_meta_properties(tmp_path)
    assert meta is not None
    assert meta.node_id == 4


def test_a_directory_in_use(tmp_path: Path) -> None:
    first = open_broker(tmp_path)
    with pytest.raises(AccessError, match="is in use"):
        open_broker(tmp_path)
    first.close()
    open_broker(tmp_path).close()


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    given: set[int] = set()
    for is_clean in (True, False, True):
        broker = open_broker(tmp_path)
        ids = [broker.services.transaction_log.next_producer_id() for _ in range(1500)]
        assert not given & set(ids)
        assert len(set(ids)) == len(ids)
        given.update(ids)
        if is_clean:
            broker.close()
        else:
            crash(broker)


def test_producer_ids_of_logs_from_elsewhere_are_not_given(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    add_topic(broker)
    batch = make_batch(b"x", producer_id=5000, producer_epoch=0, base_sequence=0)
    assert produce(broker, batch).error_code == 0
    assert broker.services.transaction_log.next_producer_id() > 5000


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000])
def test_checkpoints_are_written_when_their_time_comes(tmp_path: Path, step_ms: int) -> None:
    """Whenever that is by the wall clock, which may be set meanwhile."""
    clock = ManualClock(NOW)
    broker = open_broker(tmp_path, clock)
    add_topic(broker)
    broker.housekeeping.step()
    produce_values(broker, b"a", b"b")
    high_watermarks = tmp_path / "replication-offset-checkpoint"
    clock.set_wall_by(step_ms)
    clock.advance(4_999)
    broker.housekeeping.step()
    assert not high_watermarks.exists()
    clock.advance(1)
    broker.housekeeping.step()
    assert list(read_offset_checkpoint(high_watermarks).values()) == [2]
    clock.advance(60_000)
    broker.housekeeping.step()
    assert list(read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint").values()) == [0]


def test_what_was_recovered_need_not_be_recovered_again(tmp_path: Path) -> None:
    first = open_broker(tmp_path)
    add_topic(first, retention_ms="-1")
    produce_values(first, b"a", b"b")
    crash(first)
    second = open_broker(tmp_path)
    flushing = Background()
    second.runtime.use(run_flush=flushing)
    second.begin_serving(Endpoint("127.0.0.1", 1))
    assert second.services.replicas.find("t", 0).log.recovery_point == 0, "in the background"
    flushing.run()
    assert second.services.replicas.find("t", 0).log.recovery_point == 2
    assert list(read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint").values()) == [2]


def test_what_was_recovered_behind_a_roll_is_flushed_once(tmp_path: Path) -> None:
    """The recovery point is where a segment begins: the one that ends there is done."""
    first = open_broker(tmp_path)
    add_topic(first, retention_ms="-1", internal_segment_bytes="100")
    produce_values(first, b"a", b"b", b"c")
    log = first.services.replicas.find("t", 0).log
    assert log.recovery_point == log.segments.active.base_offset == 2, "rolling flushed the others"
    first.services.log_manager.checkpoints.write_recovery_points()
    crash(first)
    second = open_broker(tmp_path)
    flushing = Background()
    second.runtime.use(run_flush=flushing)
    second.begin_serving(Endpoint("127.0.0.1", 1))
    for _ in range(3):
        if flushing.waiting:
            flushing.run()
    assert flushing.waiting == []
    assert second.services.replicas.find("t", 0).log.recovery_point == 3


def test_what_was_recovered_where_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_broker(tmp_path)
    for topic in ("t", "other"):
        add_topic(first, topic)
        produce_values(first, b"a", topic=topic)
    crash(first)
    second = open_broker(tmp_path)
    sync = LogSegment.sync

    def refuse(segment: LogSegment, *, syncs_folder: bool = True) -> None:
        if "/t-0/" in str(segment.records.path):
            raise OSError(5, "Input/output error")
        sync(segment, syncs_folder=syncs_folder)

    monkeypatch.setattr(LogSegment, "sync", refuse)
    second.begin_serving(Endpoint("127.0.0.1", 1))
    assert second.services.replicas.find("other", 0).log.recovery_point == 1
    assert fetch(second, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    broker = open_broker(tmp_path, clock, producer_id_expiration_ms=str(DAY_MS))
    add_topic(broker, retention_ms="-1")
    assert produce(broker, make_batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)).error_code == 0
    producers = broker.services.replicas.find("t", 0).log.producers
    clock.set_wall_by(2 * DAY_MS)
    clock.advance(600_000)
    broker.housekeeping.step()
    clock.advance(DAY_MS - 1)
    broker.housekeeping.step()
    assert producers.find(7) is not None
    clock.advance(600_000)
    broker.housekeeping.step()
    assert producers.find(7) is None


def test_strays_are_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = open_broker(tmp_path)
    add_topic(first)
    first.close()
    (tmp_path / "nobodys-3").mkdir()
    (tmp_path / "nobodys-3" / "00000000000000000000.log").touch()
    with caplog.at_level(logging.WARNING):
        open_broker(tmp_path).close()
    assert "nobodys-3 belongs to no topic of the metadata; it is kept as nobodys-3." in caplog.text


def test_damage_in_a_log_is_an_answer_not_the_end_of_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that went bad under a running broker."""
    broker = open_broker(tmp_path)
    add_topic(broker, retention_ms="-1")
    produce_values(broker, b"a", b"b", b"c")
    assert produce(broker, make_batch(b"d", timestamp=NOW + 1)).error_code == 0
    log = broker.services.replicas.find("t", 0).log
    third = log.segments.active.translate_offset(2)
    assert third is not None
    path = log.segments.active.records.path
    data = bytearray(path.read_bytes())
    data[third[0] + 16] = 99  # the magic
    path.write_bytes(data)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=NOW + 1)])])
    with caplog.at_level(logging.ERROR):
        answer = ask(broker, LIST_OFFSETS, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetch(broker, 2).error_code == ErrorCode.CORRUPT_MESSAGE
    assert f"unknown magic 99 in {path} at position {third[0]} (offset 2)" in caplog.text
    assert [r.value for r in records_of(fetch(broker, 0, partition_max_bytes=1))] == [b"a"]
    assert fetch(broker, 4).error_code == 0
    answer = ask(broker, LIST_OFFSETS, request)
    assert answer.topics[0].partitions[0].offset == 3, "the way past the damage is known now"


def test_a_start_works_out_a_topics_settings_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_broker(tmp_path)
    add_topic(first, "t", 5)
    first.close()
    asked: list[Mapping[str, Any]] = []
    from_values = LogConfig.from_values

    def count(values: Mapping[str, Any]) -> LogConfig:
        asked.append(values)
        return from_values(values)

    monkeypatch.setattr(LogConfig, "from_values", count)
    open_broker(tmp_path).close()
    assert len(asked) == 1
