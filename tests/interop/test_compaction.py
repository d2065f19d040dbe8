"""The same logs, cleaned by Apache Kafka's cleaner and by plog's: the same batches, byte for byte."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from core.broker.broker import Broker
from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.log.checkpoint_file import read_offset_checkpoint
from core.log.file_names import CLEANER_CHECKPOINT
from core.log.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.records.batches import Batch, iter_batches
from core.records.compression import CompressionType
from core.records.record_batch import RecordBatch
from tests.support.broker import add_topic, open_broker
from tests.support.compaction import RandomWriter, compact, log_files
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka

pytestmark = [requires_kafka, pytest.mark.java]

PARTITIONS = 24
SEGMENT_BYTES = 3000
RETENTION_MS = 3_600_000
CODECS = (CompressionType.NONE,), (CompressionType.NONE,), tuple(CompressionType)


def write(broker: Broker, topic: str, seed: int, *, is_last: bool) -> None:
    for number in range(PARTITIONS):
        random = Random(seed + number)
        log = broker.replicas.find(topic, number).log
        writer = RandomWriter(
            log,
            random,
            SystemClock().now_ms() - 100_000,
            codecs=CODECS[number % len(CODECS)],
            keys=random.choice((3, 12, 200)),
            producer_id=1000 * seed + 10 * number,
        )
        writer.write(random.randint(20, 120))
        if not is_last or random.random() < 0.7:
            writer.end_all()
        log.roll()


def clean_by_kafka(directory: Path, expected: dict[TopicPartition, int]) -> None:
    """Returns when its cleaner came as far as is expected."""
    with KafkaServer(directory, log_cleaner_backoff_ms="100"):
        deadline = time.monotonic() + 60
        while True:
            done = read_offset_checkpoint(directory / CLEANER_CHECKPOINT)
            missing = {tp: offset for tp, offset in expected.items() if done.get(tp, 0) < offset}
            if not missing:
                break
            assert time.monotonic() < deadline, (missing, done)
            time.sleep(0.2)


def clean_by_plog(directory: Path, checkpoint: int | None, retention_ms: int, now_ms: int) -> int:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES, delete_retention_ms=retention_ms
    )
    log = load_log(directory, TopicPartition("t", 0), config, LogSettings(SystemClock(), FileSystem())).log
    log.update_high_watermark(log.log_end_offset)
    end_offset, _ = compact(log, checkpoint, now_ms)
    return end_offset


def what_is_in(directory: Path) -> Counter[str]:
    """Whether a comparison saw what it is for."""
    met: Counter[str] = Counter()
    for data in log_files(directory).values():
        for batch in iter_batches(memoryview(data)):
            assert isinstance(batch, RecordBatch)
            met["empty"] += batch.count == 0
            met["partial"] += 0 < batch.count < batch.last_offset_delta + 1
            met["horizon"] += batch.delete_horizon_ms is not None
            met["marker"] += batch.is_control
    met["aborted"] = sum(path.stat().st_size for path in directory.glob("*.txnindex"))
    return met


def horizons(directory: Path) -> set[int]:
    return {
        batch.delete_horizon_ms
        for data in log_files(directory).values()
        for batch in iter_batches(memoryview(data))
        if batch.delete_horizon_ms is not None
    }


def content(batch: Batch) -> tuple[object, ...]:
    """All but the bytes: codecs' libraries differ."""
    assert isinstance(batch, RecordBatch)
    left_out = ("buffer", "start", "position", "crc", "length", "size_bytes")
    fields = {name: getattr(batch, name) for name in RecordBatch.__slots__ if name not in left_out}
    return tuple(fields.items()), tuple(batch.records())


def assert_same(by_plog: Path, by_kafka: Path, *, is_compressed: bool) -> None:
    ours, theirs = log_files(by_plog), log_files(by_kafka)
    assert ours.keys() == theirs.keys()
    for name, data in ours.items():
        mine, other = list(iter_batches(memoryview(data))), list(iter_batches(memoryview(theirs[name])))
        assert list(map(content, mine)) == list(map(content, other)), (by_plog, name)
        if not is_compressed:
            assert data == theirs[name], (by_plog, name)
    for index in by_kafka.glob("*.txnindex"):
        mine_ = by_plog / index.name
        assert (mine_.read_bytes() if mine_.exists() else b"") == index.read_bytes(), mine_


@pytest.mark.parametrize("retention_ms", [RETENTION_MS, 0])
def test_kafkas_cleaner_and_plogs_leave_the_same(tmp_path: Path, retention_ms: int) -> None:
    root = tmp_path / "kafka"
    configs = {
        "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": str(retention_ms), "retention.ms": "-1",
    }  # fmt: skip
    checkpoints: dict[TopicPartition, int] = {}
    met: Counter[str] = Counter()
    for turn in (1, 2, 3):
        broker = open_broker(root, SystemClock())
        if turn == 1:
            add_topic(broker, "t", PARTITIONS, internal_segment_bytes=str(SEGMENT_BYTES), index_interval_bytes="300")
        broker.set_configs(ConfigResourceType.TOPIC, "t", {"cleanup.policy": "delete"})
        write(broker, "t", turn, is_last=turn == 3)
        broker.set_configs(ConfigResourceType.TOPIC, "t", configs | {"cleanup.policy": "compact"})
        broker.close()
        before = tmp_path / f"before-{turn}"
        shutil.copytree(root, before)
        planned = tmp_path / f"planned-{turn}"
        shutil.copytree(root, planned)
        expected = {
            (tp := TopicPartition("t", number)): clean_by_plog(planned / str(tp), checkpoints.get(tp), 0, 0)
            for number in range(PARTITIONS)
        }
        clean_by_kafka(root, expected)
        for tp, offset in expected.items():
            new = horizons(root / str(tp)) - horizons(before / str(tp))
            now_ms = new.pop() - retention_ms if new else SystemClock().now_ms()
            assert not new
            assert clean_by_plog(before / str(tp), checkpoints.get(tp), retention_ms, now_ms) == offset
            met += what_is_in(root / str(tp))
            assert_same(before / str(tp), root / str(tp), is_compressed=len(CODECS[tp.partition % 3]) > 1)
        checkpoints = expected
    assert all(met[what] > 20 for what in ("empty", "partial", "horizon", "marker", "aborted")), met
