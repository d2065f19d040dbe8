"""What real Apache Kafka wrote, plog reads: every record, index, snapshot and checkpoint of every fixture."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.common.clock import SystemClock
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition, uuid_text
from core.files.checkpoint_file import read_offset_checkpoint, read_partition_metadata
from core.files.file_names import OFFSET_CHECKPOINTS
from core.files.log_config import LogConfig, stored_topic_values
from core.files.meta_properties import read_meta_properties
from core.files.producer_snapshot import iter_producer_snapshot
from core.forensics.partition_reader import PartitionReader
from core.log.log_loader import LogSettings, load_log
from core.records.batches import Batch, group_batches
from core.records.columns import decode_columns
from core.records.record import Record
from tests.support.for_each import for_each
from tests.support.given_log_start import GivenLogStart
from tests.support.golden import GOLDEN, GoldenCase, GoldenRecord, case, directories, golden_cases

UNDAMAGED = [c for c in golden_cases() if not c.name.startswith("c_") or c.name.endswith(".recovered")]
STOPPED = [c for c in UNDAMAGED if c.name != "live_unclean"]  # which was copied from a running broker
WITH_TOPIC_ID = [c for c in golden_cases() if c.truth.get("topic_id") and (c.directory / "partition.metadata").exists()]


def for_ever_ms() -> int:
    """The fixtures' producers are old by now; their state must not expire while it is compared."""
    return 10**15


def timestamp_type(batch: Batch) -> str:
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def assert_same(record: Record, batch: Batch, expected: GoldenRecord) -> None:
    assert record.offset == expected.offset
    assert record.timestamp == expected.timestamp
    assert record.key == expected.key
    assert expected.has_value(record.value)
    assert record.headers == expected.headers
    assert timestamp_type(batch) == expected.timestamp_type
    assert batch.partition_leader_epoch == expected.leader_epoch


@for_each("golden", golden_cases(), ids=lambda c: c.name)
@pytest.mark.parametrize("read_committed", [False, True], ids=["uncommitted", "committed"])
def test_every_record_is_read_as_a_kafka_consumer_reads_it(golden: GoldenCase, read_committed: bool) -> None:
    reader = PartitionReader(golden.directory, evidence=GivenLogStart(golden.directory, golden.truth["begin_offset"]))
    offsets = (reader.start_offset, reader.end_offset, reader.last_stable_offset)
    assert offsets == tuple(golden.truth[name] for name in ("begin_offset", "high_watermark", "last_stable_offset"))
    found = [
        (record, batch)
        for batch in reader.read(reader.start_offset, reader.end_offset, read_committed=read_committed)
        for record in batch.records()
        if record.offset >= reader.start_offset
    ]
    expected = golden.committed_records() if read_committed else golden.records()
    assert len(found) == len(expected)
    for (record, batch), wanted in zip(found, expected, strict=True):
        assert_same(record, batch, wanted)


@for_each("golden", golden_cases(), ids=lambda c: c.name)
def test_columns_are_the_same_records(golden: GoldenCase) -> None:
    reader = PartitionReader(golden.directory, evidence=GivenLogStart(golden.directory, golden.truth["begin_offset"]))
    found = []
    for group in group_batches(reader.read(reader.start_offset, reader.end_offset, read_committed=False), 20_000):
        columns = decode_columns(group)
        keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
        for row in range(len(columns)):
            if columns.offsets[row] < reader.start_offset:
                continue
            record = Record(
                int(columns.offsets[row]), int(columns.timestamps[row]), keys[row], values[row], columns.headers(row)
            )
            found.append((record, group[columns.batch_numbers[row]]))
    expected = golden.records()
    assert len(found) == len(expected)
    for (record, batch), wanted in zip(found, expected, strict=True):
        assert_same(record, batch, wanted)


def config_of(golden: GoldenCase) -> LogConfig:
    return LogConfig.from_values(stored_topic_values(golden.config))


def load_copy(golden: GoldenCase, tmp_path: Path, *, clean: bool) -> tuple[Path, tuple[int, int, int]]:
    """Opens a copy as a broker does and closes it; the folder then, and (start, stable, end)."""
    directory = tmp_path / golden.name
    shutil.copytree(golden.directory, directory)
    log = load_log(
        directory,
        TopicPartition(golden.name, 0),
        config_of(golden),
        LogSettings(SystemClock(), FileSystem(), for_ever_ms),
        log_start_offset=golden.truth["begin_offset"],
        high_watermark=golden.truth["high_watermark"],
        had_clean_shutdown=clean,
    ).log
    log.check_invariants()
    offsets = log.log_start_offset, log.last_stable_offset, log.log_end_offset
    log.close()
    return directory, offsets


@for_each("golden", STOPPED, ids=lambda c: c.name)
def test_a_clean_start_changes_no_file(golden: GoldenCase, tmp_path: Path) -> None:
    directory, offsets = load_copy(golden, tmp_path, clean=True)
    truth = golden.truth
    assert offsets == (truth["begin_offset"], truth["last_stable_offset"], truth["high_watermark"])
    assert content(directory) == content(golden.directory)


def content(directory: Path) -> dict[str, object]:
    """Every file's bytes; of snapshots their entries, whose order means nothing. An epoch that holds no record is
    noted when a leader takes office, not when the log is opened."""
    files: dict[str, object] = {}
    for path in directory.iterdir():
        data = path.read_bytes()
        if path.suffix == ".snapshot":
            files[path.name] = sorted(iter_producer_snapshot(path))
        elif path.name != "leader-epoch-checkpoint":
            files[path.name] = data
    return files


NOT_REBUILT = {"compacted_txn": "00000000000000000047.txnindex"}
"""Compaction took all of the aborted records there, and what is rebuilt from the log has nothing to say of them."""


@for_each("golden", [c for c in STOPPED if not c.name.endswith(".recovered")], ids=lambda c: c.name)
def test_recovery_makes_the_indexes_that_kafka_made(golden: GoldenCase, tmp_path: Path) -> None:
    """Those of a clean stop with the topic's own configuration."""
    directory, _ = load_copy(golden, tmp_path, clean=False)
    expected, found = content(golden.directory), content(directory)
    expected.pop(NOT_REBUILT.get(golden.name, ""), None)
    assert found == expected


@for_each("directory", directories("c_*.corrupt"), ids=lambda d: d.name)
def test_recovery_keeps_what_kafka_keeps_and_no_byte_is_lost(directory: Path, tmp_path: Path) -> None:
    intact = case(directory.name.removesuffix(".corrupt"))
    copy = tmp_path / intact.name
    shutil.copytree(directory, copy)
    settings = LogSettings(SystemClock(), FileSystem(), for_ever_ms)
    partition = TopicPartition(intact.name, 0)
    loaded = load_log(copy, partition, config_of(intact), settings, had_clean_shutdown=False)
    offsets = [
        record.offset
        for segment in loaded.log.segments
        for batch in segment.records.iter_batches()
        if not batch.is_control
        for record in batch.records()
    ]
    log_files = {path.name: path.read_bytes() for path in copy.iterdir() if ".log" in path.name}
    assert b"".join(log_files[name] for name in sorted(log_files)) == b"".join(
        path.read_bytes() for path in sorted(directory.glob("*.log"))
    )
    if intact.name == "c_bad_magic":
        # Kafka keeps the batch of magic 7, and its consumers die of it.
        assert offsets == [record.offset for record in intact.records() if record.offset < 17]
    else:
        recovered = case(intact.name + ".recovered")
        assert offsets == [record.offset for record in recovered.records()]


@pytest.mark.parametrize("root", ["_root", "_root3"])
def test_the_files_of_a_log_directory_parse(root: str) -> None:
    for name in OFFSET_CHECKPOINTS:
        if name != "cleaner-offset-checkpoint" or (GOLDEN / root / name).stat().st_size:
            assert isinstance(read_offset_checkpoint(GOLDEN / root / name), dict)
    assert read_offset_checkpoint(GOLDEN / "_root" / "log-start-offset-checkpoint") == {
        TopicPartition("deleterecords", 0): 180,
        TopicPartition("deleterecords_all", 0): 20,
    }
    meta = read_meta_properties(GOLDEN / root)
    assert meta is not None
    assert meta.node_id == 1
    assert meta.cluster_id in ("MkU3OEVBNTcwNTJENDM2Qk", "2ADgtbYHTT-YPzerznhQvw")


@for_each("golden", WITH_TOPIC_ID, ids=lambda c: c.name)
def test_partition_metadata_holds_the_topic_id(golden: GoldenCase) -> None:
    topic_id = read_partition_metadata(golden.directory)
    assert topic_id is not None
    assert uuid_text(topic_id) == golden.truth["topic_id"]
