"""What other brokers, cleaners and people left in a folder: what the inspector, a start, the cleaner and Spark's reader
make of it.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.common.errors import AccessError
from core.compaction.cleaner_process import CleanerProcess
from core.inspector.check.findings import Code, Severity
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import find_unchecked, verify
from core.inspector.stats.log_diff import LogDiff
from core.spark.offset_range import OffsetRange, read_columns
from core.spark.replay import find_gaps
from tests.support import crafted, doors
from tests.support.broker import SteeredNode, add_topic, fetch, open_broker, records_of
from tests.support.crafted import Record
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock

INDEXES = {Code.INDEX_MISSING, Code.TIME_INDEX_MISSING}
FAR = 2**31 + 5

MIXED = {
    0: crafted.wrapper([0, 1], [(b"a", b"0"), (b"b", b"1")], 1, inner_magic=0)
    + crafted.wrapper([2, 3], [(b"c", b"2"), (b"d", b"3")], 0, inner_magic=1)
    + crafted.message(4, b"a", b"4", 0),
    5: crafted.message(5, b"e", b"5", 1)
    + crafted.batch(6, [(b"b", b"6"), (b"f", b"7")], codec=crafted.LZ4, compress=crafted.lz4_frame),
    8: crafted.batch(8, [(b"g", b"8")]),
}
BEYOND = {
    0: crafted.batch(0, [(b"a", b"0"), (b"b", b"1")])
    + crafted.batch(FAR, [(b"a", b"2"), (b"c", b"3")])
    + crafted.batch(2**33, [(b"d", b"4")]),
    2**33 + 1: crafted.batch(2**33 + 1, [(b"d", b"5")]),
}
LOGS: Mapping[str, tuple[Mapping[int, bytes], dict[int, Record]]] = {
    "of all formats": (MIXED, {n: (k, b"%d" % n) for n, k in enumerate((b"a", b"b", b"c", b"d", b"a", b"e"))}
                       | {6: (b"b", b"6"), 7: (b"f", b"7"), 8: (b"g", b"8")}),
    "beyond an index": (BEYOND, {0: (b"a", b"0"), 1: (b"b", b"1"), FAR: (b"a", b"2"), FAR + 1: (b"c", b"3"),
                                 2**33: (b"d", b"4"), 2**33 + 1: (b"d", b"5")}),
}  # fmt: skip
"""The segments by their base offsets, and the records by theirs."""


def write(directory: Path, segments: Mapping[int, bytes] = MIXED) -> Path:
    return crafted.write_partition(directory, segments)


def codes(path: Path, *, is_deep: bool = False) -> set[Code]:
    return {finding.code for finding in verify(path, options=VerifyOptions(is_deep=is_deep))} - INDEXES


@for_each("segment_bytes", [1 << 20, 1_500_000])
def test_zeros_up_to_the_full_size_of_a_file_are_a_note_and_a_start_keeps_nothing_of_them(
    tmp_path: Path, segment_bytes: int
) -> None:
    broker = open_broker(tmp_path / "data")
    add_topic(broker)
    broker.close()
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    batch = crafted.batch(0, [(b"k", b"v")])
    folder = write(tmp_path / "data" / "t-0", {0: batch})
    log = folder / "00000000000000000000.log"
    os.truncate(log, segment_bytes)
    assert codes(folder) == set()
    assert find_unchecked(folder) == [log]
    open_broker(tmp_path / "data").close()
    assert log.stat().st_size == len(batch)
    assert not list(folder.glob("*.cut-at-*"))
    os.truncate(log, segment_bytes + 1)  # no size that anybody sets
    assert codes(folder) == {Code.ZEROED}


def test_what_only_looks_like_kafkas_is_no_finding(tmp_path: Path) -> None:
    write(tmp_path / "t-0")
    (tmp_path / "serve.log").write_text("INFO started\n")
    (tmp_path / "backup-2024").mkdir()
    (tmp_path / "backup-2024" / "notes.txt").touch()
    assert codes(tmp_path) == set()
    assert set(find_unchecked(tmp_path)) == {tmp_path / "serve.log", tmp_path / "backup-2024"}
    shutil.copy(GOLDEN / "_root" / "bootstrap.checkpoint", tmp_path)
    assert codes(tmp_path) == set()
    assert set(find_unchecked(tmp_path)) == {tmp_path / "serve.log", tmp_path / "backup-2024"}, "this one is Kafka's"
    (tmp_path / "bootstrap.checkpoint").unlink()
    (tmp_path / "backup-7").mkdir()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nbackup 7 5\n")
    errors = [one for one in verify(tmp_path) if one.severity is Severity.ERROR]
    assert [Path(one.path).parent.name for one in errors] == ["backup-7"], "a checkpoint knows of what is gone"
    (tmp_path / "replication-offset-checkpoint").unlink()
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(AccessError, match="holds no file of Kafka's or plog's"):
        list(verify(tmp_path))


def test_a_snapshot_in_a_hole_of_a_compacted_log_is_the_trace_of_a_segment(tmp_path: Path) -> None:
    thinned = crafted.batch(0, [(b"a", b"0"), (b"b", b"2")], deltas=[0, 2])
    folder = write(tmp_path / "t-0", {0: thinned, 9: crafted.batch(9, [(b"c", b"9")])})
    assert codes(folder) == set()
    trace = folder / "00000000000000000005.snapshot"
    trace.write_bytes(b"\0\1\x7e\xb5\xfe\x8c\0\0\0\0")  # version 1, checksum, no producer
    found = [finding for finding in verify(folder) if finding.path == str(trace)]
    assert [finding.offset for finding in found if "there is no segment 5" in finding.message] == [5]


@for_each("old", [False, True])
def test_linked_lz4_blocks_are_read_and_verify_deep_names_them(tmp_path: Path, *, old: bool) -> None:
    def linked(data: bytes) -> bytes:
        return crafted.ODD_FRAMES["lz4 with linked blocks"][1](data)

    records: list[Record] = [(b"k", b"v" * 200_000), (b"l", b"w")]
    data = (
        crafted.wrapper([0, 1], records, 1, codec=crafted.LZ4, compress=linked)
        if old
        else crafted.batch(0, records, codec=crafted.LZ4, compress=linked)
    )
    folder = write(tmp_path / "t-0", {0: data})
    assert doors.consume(folder) == dict(enumerate(records))
    assert codes(folder) == set()
    (found,) = [one for one in verify(folder, options=VerifyOptions(is_deep=True)) if one.code not in INDEXES]
    assert (found.code, found.records) == (Code.BAD_BATCH, 0)


def test_a_compressed_old_message_that_does_not_open_is_known_to_hold_one_record(tmp_path: Path) -> None:
    """Its offsets may be more: a cleaner leaves messages with fewer records."""
    wrapper = crafted.wrapper([0, 1, 2], [(b"k", b"v")] * 3, 1, compress=lambda _: b"junk")
    folder = write(tmp_path / "t-0", {0: wrapper + crafted.message(3, b"k", b"v", 1)})
    (found,) = [one for one in verify(folder, options=VerifyOptions(is_deep=True)) if one.code is Code.BAD_BATCH]
    assert (found.offset, found.last_offset, found.records) == (0, 2, 1)


@for_each(
    "field, data, detail", [(0, struct.pack(">q", 9), "base offset 8 and 9"), (12, b"\0\0\0\7", "leader epoch 0 and 7")]
)
def test_a_header_that_no_checksum_covers_is_told_by_diff(tmp_path: Path, field: int, data: bytes, detail: str) -> None:
    """Of a batch that a cleaner emptied."""
    emptied = crafted.batch(8, [], last_offset_delta=0)
    a = write(tmp_path / "a-0", {0: emptied})
    b = write(tmp_path / "b-0", {0: emptied[:field] + data + emptied[field + len(data) :]})
    assert [difference.detail for difference in LogDiff(a, b)] == [detail]


@for_each("name", LOGS)
def test_a_start_reads_it_and_the_cleaner_leaves_the_last_of_each_key(tmp_path: Path, name: str) -> None:
    segments, records = LOGS[name]
    active = max(segments)
    latest = {key: offset for offset, (key, _) in records.items() if offset < active}
    broker = open_broker(tmp_path / "data")
    add_topic(broker, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    broker.close()
    folder = tmp_path / "data" / "t-0"
    for path in (*folder.glob("0*"), folder.parent / ".kafka_cleanshutdown"):
        path.unlink(missing_ok=True)
    write(folder, segments)
    clock = ManualClock(NOW)
    broker = open_broker(tmp_path / "data", clock=clock, log_cleaner_backoff_ms="1000")
    try:
        assert _fetched(broker) == records
        broker.cleaning.cleaner._make_process = CleanerProcess
        clock.advance(1000)
        broker.housekeeping.step()
        kept = _fetched(broker)
    finally:
        broker.close()
    assert kept == {o: r for o, r in records.items() if o >= active or latest[r[0]] == o}
    assert doors.consume(folder) == kept


def test_a_start_keeps_a_lone_batch_beyond_an_index_that_a_checkpoint_knows(tmp_path: Path) -> None:
    """Without one it may as well have a flipped bit."""
    broker = open_broker(tmp_path / "data")
    add_topic(broker)
    broker.close()
    folder = tmp_path / "data" / "t-0"
    for path in (*folder.glob("0*"), *folder.parent.glob("*-checkpoint"), folder.parent / ".kafka_cleanshutdown"):
        path.unlink(missing_ok=True)
    write(folder, {0: crafted.batch(0, [(b"a", b"0"), (b"b", b"1")]) + crafted.batch(FAR, [(b"c", b"2")])})
    (folder.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    (folder.parent / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {FAR + 1}\n")
    expected = {0: (b"a", b"0"), 1: (b"b", b"1"), FAR: (b"c", b"2")}
    assert doors.consume(folder) == expected
    broker = open_broker(tmp_path / "data")
    assert _fetched(broker) == expected
    broker.close()
    assert doors.consume(folder) == expected


def _fetched(broker: SteeredNode) -> dict[int, Record]:
    found: dict[int, Record] = {}
    offset, end = 0, broker.services.replicas.find("t", 0).log.log_end_offset
    while offset < end:
        records = [record for record in records_of(fetch(broker, offset)) if record.offset >= offset]
        found |= {record.offset: (record.key, record.value) for record in records}
        offset = records[-1].offset + 1
    return found


@for_each("name", LOGS)
def test_spark_reads_it(tmp_path: Path, name: str) -> None:
    segments, records = LOGS[name]
    folder = write(tmp_path / "t-0", segments)
    range_ = OffsetRange("t", 0, 0, max(records) + 1, 1, directory=str(folder), fails_if_gone=False)
    left_out: list[str] = []
    found = {
        offset: (key, value)
        for columns in read_columns(range_, left_out.append)
        for offset, key, value in zip(
            columns.offsets.tolist(), columns.keys().to_pylist(), columns.values().to_pylist(), strict=True
        )
    }
    assert found == records
    assert find_gaps(range_, fails=False)[0] == len(records)
