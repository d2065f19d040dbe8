"""The same logs, cleaned by Apache Kafka's cleaner and by plog's: the same batches, byte for byte."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_offset_checkpoint
from core.files.file_names import CLEANER_CHECKPOINT
from core.files.log_config import LogConfig
from core.forensics.partition_reader import DirectoryReader
from core.log.log_loader import LogSettings, load_log
from core.records.batches import Batch
from core.records.compression import CompressionType
from core.records.record_batch import RecordBatch
from tests.support.broker import SteeredNode, add_topic, open_broker
from tests.support.compaction import RandomWriter, compact, log_files
from tests.support.kafka_server import KafkaServer
from tests.support.logs import iter_batches
from tests.support.oracle import requires_kafka, run_tool
from tests.support.topic_reader import read_partitions
from tests.support.waiting import wait_until

pytestmark = [requires_kafka, pytest.mark.java]

PARTITIONS = int(os.environ.get("PLOG_CLEANED_PARTITIONS", "6"))
TURNS = 3 if "PLOG_CLEANED_PARTITIONS" in os.environ else 2
RETENTION_MS = {"kept": 3_600_000, "gone": 0, "plain": 3_600_000}
"""delete.retention.ms of each topic. In `plain` nobody writes transactions, and nothing is compressed."""

SEGMENT_BYTES = {"kept": 3000, "gone": 3000, "plain": 40_000}
ALL = [TopicPartition(topic, number) for topic in RETENTION_MS for number in range(PARTITIONS)]
CODECS = (CompressionType.NONE,), (CompressionType.NONE,), tuple(CompressionType)


def is_compressed(tp: TopicPartition) -> bool:
    return tp.topic != "plain" and len(CODECS[tp.partition % 3]) > 1


def write(broker: SteeredNode, topic: str, seed: int, *, is_last: bool) -> None:
    for number in range(PARTITIONS):
        random = Random(f"{topic} {seed} {number}")
        log = broker.services.replicas.find(topic, number).log
        writer = RandomWriter(
            log,
            random,
            SystemClock().now_ms() - 100_000,
            codecs=CODECS[number % 3] if is_compressed(log.partition) else CODECS[0],
            with_transactions=topic != "plain",
            keys=random.choice((3, 12, 200)),
            producer_id=1000 * seed + 10 * number,
        )
        writer.write(random.randint(20, 120) * (4 if topic == "plain" else 1))
        if not is_last or random.random() < 0.7:
            writer.end_all()
        log.roll()


def clean_by_kafka(directory: Path, expected: dict[TopicPartition, int]) -> None:
    """Returns when its cleaner came as far as is expected."""
    with KafkaServer(directory, log_cleaner_backoff_ms="100"):

        def missing() -> dict[TopicPartition, int]:
            done = read_offset_checkpoint(directory / CLEANER_CHECKPOINT)
            return {tp: offset for tp, offset in expected.items() if done.get(tp, 0) < offset}

        wait_until(lambda: not missing(), lambda: f"Kafka's cleaner comes to {missing()}")


def clean_by_plog(directory: Path, topic: str, checkpoint: int | None, retention_ms: int, now_ms: int) -> int:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES[topic], delete_retention_ms=retention_ms
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


def has_many(directory: Path) -> bool:
    """Whether a segment has so many batches that they are worked on together."""
    return max(len(list(iter_batches(memoryview(data)))) for data in log_files(directory).values()) > 40


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


def test_kafkas_cleaner_and_plogs_leave_the_same(tmp_path: Path) -> None:
    """In turns of appends, of which each cleaning finds what the last one left; and Kafka serves plog's."""
    root = tmp_path / "kafka"
    checkpoints: dict[TopicPartition, int] = {}
    met: Counter[str] = Counter()
    for turn in range(1, TURNS + 1):
        write_turn(root, turn)
        before, planned = tmp_path / f"before-{turn}", tmp_path / f"planned-{turn}"
        shutil.copytree(root, before)
        shutil.copytree(root, planned)
        met["many plain"] += sum(has_many(before / str(tp)) for tp in ALL if tp.topic == "plain")
        expected = {tp: clean_by_plog(planned / str(tp), tp.topic, checkpoints.get(tp), 0, 0) for tp in ALL}
        clean_by_kafka(root, expected)
        for tp, offset in expected.items():
            new = horizons(root / str(tp)) - horizons(before / str(tp))
            retention_ms = RETENTION_MS[tp.topic]
            now_ms = new.pop() - retention_ms if new else SystemClock().now_ms()
            assert not new
            assert clean_by_plog(before / str(tp), tp.topic, checkpoints.get(tp), retention_ms, now_ms) == offset
            met += what_is_in(root / str(tp))
            assert_same(before / str(tp), root / str(tp), is_compressed=is_compressed(tp))
        checkpoints = expected
    assert all(met[what] > 10 for what in ("empty", "partial", "horizon", "marker", "aborted")), met
    assert met["many plain"] > 10, met
    assert_kafka_serves(before)


def write_turn(root: Path, turn: int) -> None:
    broker = open_broker(root, SystemClock())
    for topic, retention_ms in RETENTION_MS.items():
        if turn == 1:
            add_topic(
                broker, topic, PARTITIONS, internal_segment_bytes=str(SEGMENT_BYTES[topic]), index_interval_bytes="300"
            )
        broker.services.configs.set(
            ConfigResourceType.TOPIC, topic, {"cleanup.policy": "delete"}
        )  # takes records without keys
        write(broker, topic, turn, is_last=turn == TURNS)
        configs = {"cleanup.policy": "compact", "retention.ms": "-1", "delete.retention.ms": str(retention_ms)}
        broker.services.configs.set(ConfigResourceType.TOPIC, topic, {"min.cleanable.dirty.ratio": "0.001", **configs})
    broker.close()


def assert_kafka_serves(directory: Path) -> None:
    """A real broker opens what plog cleaned, real clients read it, and Kafka's own dump finds nothing wrong."""
    wanted = {tp: committed(directory / str(tp)) for tp in ALL}
    with KafkaServer(directory, log_cleaner_enable="false", offsets_topic_num_partitions="1") as server:
        found = read_partitions(server.address, *ALL)
        assert {tp: [(m.offset(), m.key(), m.value()) for m in messages] for tp, messages in found.items()} == wanted
        records = {tp: records for tp, records in wanted.items() if tp.topic == "kept"}
        printed = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", server.address,
            "--topic", "kept", "--from-beginning",
            "--isolation-level", "read_committed", "--formatter-property", "print.value=false",
            "--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true",
            "--max-messages", str(sum(map(len, records.values()))),
            "--timeout-ms", "120000",
        )  # fmt: skip
        lines = sorted(printed.stdout.decode().splitlines())
        offsets = [(tp.partition, record[0]) for tp, of_one in records.items() for record in of_one]
        assert lines == sorted(f"Partition:{number}\tOffset:{offset}" for number, offset in offsets), printed.stderr
    logs = ",".join(str(path) for tp in ALL[::5] for path in sorted((directory / str(tp)).glob("*.log")))
    dumped = run_tool("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", logs)
    assert dumped.returncode == 0
    assert b"isvalid: false" not in dumped.stdout
    assert b"Exception" not in dumped.stderr


def committed(directory: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    """By plog's own reader."""
    reader = DirectoryReader(directory)
    (partition,) = reader.partitions
    log = reader.open(partition)
    batches = log.read(log.start_offset, log.last_stable_offset, read_committed=True)
    return [(r.offset, r.key, r.value) for batch in batches for r in batch.records()]
