"""A record's life, told from the files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import offset_commit_record, tombstone
from core.forensics.gap_ledger import GapReason
from core.forensics.partition_reader import DirectoryReader
from core.inspector.stats.trace import Trace, Tracer
from core.protocol.schema.group_records import OffsetCommitValue
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, case
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.server import call_plog

T = TopicPartition("t", 0)
TRANSACTIONAL = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    log = open_log(tmp_path / "t-0", segment_bytes=100_000)
    append(log, make_batch(b"a", b"b", key=b"k1"))  # 0, 1
    append(log, make_batch(b"c", key=b"k2", base_sequence=0, **TRANSACTIONAL))  # 2
    append(log, make_batch(b"d", b"e", key=b"k3", base_sequence=1, **TRANSACTIONAL))  # 3, 4
    append_marker(log, 7, is_commit=False)  # 5
    append(log, make_batch(b"f", base_sequence=3, **TRANSACTIONAL))  # 6
    append_marker(log, 7, is_commit=True)  # 7
    append(log, make_batch(b"g", base_sequence=4, **TRANSACTIONAL))  # 8
    log.close()
    offsets = open_log(tmp_path / "__consumer_offsets-0")
    for group, offset, time in (("fast", 1, NOW), ("fast", 3, NOW + 1), ("slow", 2, NOW + 2), ("fast", 6, NOW + 3),
                                ("gone", 9, NOW + 4)):  # fmt: skip
        record = offset_commit_record(group, T, OffsetCommitValue(offset, -1, "", time))
        append(offsets, make_batch(record.value or b"", key=record.key))
    record = tombstone(OffsetCommitValue, "gone", *T)
    batch = make_batch(b"", key=record.key)
    append(offsets, batch)
    other = offset_commit_record("elsewhere", TopicPartition("u", 0), OffsetCommitValue(100, -1, "", NOW))
    append(offsets, make_batch(other.value or b"", key=other.key))
    offsets.close()
    return tmp_path


def trace(data_dir: Path, offset: int) -> Trace:
    return Tracer(DirectoryReader(data_dir), NOW).trace(T, offset)


def test_a_plain_record(data_dir: Path) -> None:
    found = trace(data_dir, 1)
    assert found.record is not None
    assert (found.record.key, found.record.value, found.sequence, found.transaction) == (b"k1", b"b", None, None)
    assert found.batch is not None
    assert (found.batch.position, found.batch.base_offset) == (0, 0)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(2, ("aborted", 2, 5)), (4, ("aborted", 2, 5)), (6, ("committed", 6, 7)), (8, ("open", 8, None))],
)
def test_transactions(data_dir: Path, offset: int, expected: tuple[str, int, int | None]) -> None:
    transaction = trace(data_dir, offset).transaction
    assert transaction is not None
    assert (transaction.state, transaction.first_offset, transaction.marker_offset) == expected
    assert trace(data_dir, 4).sequence == 2


def test_who_has_read_it(data_dir: Path) -> None:
    groups = {group.group: group for group in trace(data_dir, 2).groups}
    assert set(groups) == {"fast", "slow", "gone"}
    assert (groups["fast"].committed_offset, groups["fast"].passed_offset) == (6, 3)
    assert groups["fast"].passed_timestamp == NOW + 1
    assert (groups["slow"].committed_offset, groups["slow"].passed_timestamp) == (2, None)


def test_why_there_is_none(data_dir: Path) -> None:
    marker = trace(data_dir, 5)
    assert marker.record is not None, "a control record is one"
    assert trace(data_dir, 99).gap is None
    compacted = GOLDEN / "compacted_zstd"
    reader = DirectoryReader(compacted)
    (partition,) = reader.partitions
    there = {record.offset for record in case("compacted_zstd").records()}
    missing = next(offset for offset in range(34, 200) if offset not in there)
    found = Tracer(reader, NOW).trace(partition, missing)
    assert found.record is None
    assert found.gap is not None
    assert found.gap.reason is GapReason.COMPACTED


def test_by_key(data_dir: Path) -> None:
    tracer = Tracer(DirectoryReader(data_dir), NOW)
    assert tracer.find_key(T, b"k3", pytest.fail) == 4
    assert tracer.find_key(T, b"nobody", pytest.fail) is None


@for_each("name", ["compacted_zstd", "txn_multisegment", "binary", "big_value_lz4", "c_missing_index"])
def test_every_key_of_a_log(name: str) -> None:
    """Against a dict of all records."""
    expected: dict[bytes, int] = {}
    for record in case(name).records():
        if record.key is not None:
            expected[record.key] = record.offset
    reader = DirectoryReader(GOLDEN / name)
    (partition,) = reader.partitions
    tracer = Tracer(reader, NOW)
    assert {key: tracer.find_key(partition, key, pytest.fail) for key in expected} == expected
    assert tracer.find_key(partition, b"nobody has this key", pytest.fail) is None


def test_its_fate_by_the_topics_settings(tmp_path: Path) -> None:
    data = str(tmp_path)
    options = ["--set", "cleanup.policy=compact", "--set", "retention.ms=-1", "--data-dir", data]
    assert call_plog("topic", "create", "t", *options).returncode == 0
    lines = b"k1\tone\nk2\ttwo\nk1\tthree\n\n"
    done = call_plog("produce", "t", "--key-separator", "\t", "--data-dir", data, stdin=lines[:-1])
    assert done.returncode == 0, done.stderr
    fates = [" ".join(trace(tmp_path, offset).fate) for offset in range(3)]
    assert "superseded by offset 2" in fates[0]
    assert "the last record of its key, kept" in fates[1]
    assert "the last record of its key, kept" in fates[2]
    assert all("in the active segment" in fate for fate in fates)
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(None, key=b"k2"))
    log.close()
    assert "superseded by offset 3" in " ".join(trace(tmp_path, 1).fate)
    assert "a tombstone, kept until delete.retention.ms after its first cleaning" in " ".join(trace(tmp_path, 3).fate)


def test_the_newest_record_of_a_key_is_doubted_where_later_offsets_are_missing(tmp_path: Path) -> None:
    """For no known reason: whole batches at the end of a segment that is not the last one. What is missing before it
    casts no doubt on it.
    """
    folder = shutil.copytree(GOLDEN / "v2_txn_tv1", tmp_path / "t-0")
    with (folder / "00000000000000000033.log").open("r+b") as file:
        file.truncate(1363)  # offsets 46 to 68 were there
    told: list[str] = []
    assert Tracer(DirectoryReader(tmp_path), NOW).find_key(T, b"k766", told.append) == 25
    assert [text.partition(" are ")[0] for text in told] == ["offsets 46 to 68"]
    newest = case("v2_txn_tv1").records()[-1]
    assert newest.key is not None
    assert Tracer(DirectoryReader(tmp_path), NOW).find_key(T, newest.key, pytest.fail) == newest.offset
    done = call_plog("trace", "t", "--key", "k766", "--data-dir", str(tmp_path), "--output", "json")
    assert (done.returncode, json.loads(done.stdout)[0]["offset"]) == (1, 25)
    assert b"warning: t-0: a later record with this key may be lost: offsets 46 to 68 are not" in done.stderr


def test_a_transaction_of_a_log_whose_segments_have_changed_names(tmp_path: Path) -> None:
    """Its marker is looked for in the order of the log, not in that of the files."""
    folder = shutil.copytree(GOLDEN / "txn_multisegment", tmp_path / "t-0")
    first, second = sorted(folder.glob("*.log"))
    whole = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(whole)
    golden = case("txn_multisegment")
    committed = {record.offset for record in golden.committed_records()}
    tracer = Tracer(DirectoryReader(tmp_path), NOW)
    for record in golden.records()[::7]:
        found = tracer.trace(T, record.offset).transaction
        assert found is not None
        assert (found.state == "committed") == (record.offset in committed), record.offset
