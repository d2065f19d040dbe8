"""A log as rows, against the batches' own records (tests/property/test_one_truth.py has the other commands)."""

from __future__ import annotations

import itertools
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_bootstrap
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.records.record_filter import parse_filter
from core.view.records.log_rows import DirectoryRows, LogRow, RowKind, ServerRows
from plog.testing import running_broker
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA, GoldenCase, golden_cases
from tests.support.server import call_plog


def rows_of(folder: Path) -> DirectoryRows:
    reader = DirectoryReader(folder)
    (partition,) = reader.partitions
    return DirectoryRows(reader.open(partition), partition)


def listed(rows: DirectoryRows, start: int = 0) -> list[LogRow]:
    return [row for row in rows.rows_from(start) if row is not None]


@for_each("golden", golden_cases(), ids=lambda case: case.name)
def test_records_are_those_that_kafkas_consumer_got(golden: GoldenCase) -> None:
    start = golden.truth["begin_offset"]  # which is in a checkpoint beside the folder
    rows = [row for row in listed(rows_of(golden.directory)) if row.kind is RowKind.RECORD and row.offset >= start]
    expected = {record.offset: record for record in golden.records()}
    for row in rows:
        if row.offset in expected:  # those of an open transaction at the end are not known for every folder
            record = expected[row.offset]
            assert (row.key, row.timestamp, tuple(row.headers)) == (record.key, record.timestamp, record.headers)
            assert record.has_value(row.value)
    assert {row.offset for row in rows} >= expected.keys()
    committed = {record.offset for record in golden.committed_records()}
    assert {row.offset for row in rows if not row.fate} == committed


def test_every_stretch_is_the_same_from_wherever_it_is_read() -> None:
    rows = rows_of(GOLDEN / "compacted_txn")
    whole = listed(rows)
    starts = [row.offset for row in whole]
    for start in starts:
        assert [row.offset for row in listed(rows, start)] == starts[starts.index(start) :]
    for end, count in itertools.product((*starts, rows.end_offset), (1, 2, 5, 40)):
        *_, before = rows.rows_before(end, count)
        assert [row.offset for row in before] == [offset for offset in starts if offset < end][-count:]


def test_a_place_inside_a_gap_is_found_with_the_whole_gap_before_it() -> None:
    rows = rows_of(GOLDEN / "compacted_txn")
    gap = next(row for row in listed(rows) if row.kind is RowKind.GAP and row.end - row.offset > 2 and row.offset > 0)
    *_, before = rows.rows_before(gap.offset + 1, 3)
    assert (before[-1].offset, before[-1].end) == (gap.offset, gap.end)


def test_a_filter_leaves_records_out_and_no_loss() -> None:
    rows = rows_of(SAMPLE_DATA / "damaged" / "c_bitflip_middle-0")
    whole = listed(rows)
    wanted = parse_filter("offset >= 5 and key is not null", 0)
    found = [row for row in rows.rows_from(0, wanted) if row is not None]
    assert [row.offset for row in found if row.kind is RowKind.RECORD] == [
        row.offset for row in whole if row.kind is RowKind.RECORD and row.offset >= 5 and row.key is not None
    ]
    assert [row for row in found if row.kind is RowKind.GAP] == [row for row in whole if row.is_loss]
    *_, before = rows.rows_before(rows.end_offset, 4, wanted)
    assert [row.offset for row in before] == [row.offset for row in found][-4:]


def test_a_search_that_finds_nothing_says_how_far_it_is() -> None:
    rows = rows_of(SAMPLE_DATA / "partition" / "txn_multisegment-0")
    steps = list(rows.rows_from(0, parse_filter('key == "nobody"', 0)))
    assert steps
    assert set(steps) == {None}
    assert rows.position == rows_of(SAMPLE_DATA / "partition" / "txn_multisegment-0").end_offset - 2  # two markers


def test_a_row_knows_the_file_and_the_position_of_its_batch() -> None:
    folder = SAMPLE_DATA / "partition" / "txn_multisegment-0"
    rows = rows_of(folder)
    for row in listed(rows)[::9]:
        path, position = rows.file_of(row)
        header = path.read_bytes()[position : position + 61]
        base_offset, last_delta = int.from_bytes(header[:8], "big"), int.from_bytes(header[23:27], "big")
        assert base_offset <= row.offset <= base_offset + last_delta


def test_damage_leads_to_its_byte() -> None:
    rows = rows_of(SAMPLE_DATA / "damaged" / "c_bitflip_middle-0")
    lost = next(row for row in listed(rows) if row.is_loss)
    assert rows.file_of(lost) == (SAMPLE_DATA / "damaged" / "c_bitflip_middle-0" / f"{0:020}.log", 2533)


def test_a_log_without_segments_has_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "empty-0"
    folder.mkdir()
    rows = DirectoryRows(PartitionReader(folder), TopicPartition("empty", 0))
    assert listed(rows) == []
    with pytest.raises(AccessError):
        rows.file_of(LogRow(0, 1, RowKind.GAP))


def test_what_lies_at_no_offset_is_noted() -> None:
    rows = rows_of(GOLDEN / "c_garbage_tail.corrupt")
    listed(rows)
    (note,) = rows.notes
    assert "position 4268: garbage" in note


def test_a_log_start_that_moves_is_seen(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "multisegment", tmp_path / "multisegment-0")
    reader = DirectoryReader(tmp_path)
    partition = TopicPartition("multisegment", 0)
    rows = DirectoryRows(reader.open(partition), partition, reader)
    assert rows.start_offset == 0
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nmultisegment 0 7\n")
    rows.refresh()
    assert rows.start_offset == 7
    assert listed(rows)[0].offset == 7


def test_a_servers_rows_follow_each_other() -> None:
    """Three batches of two records."""
    with running_broker() as broker, closing(KafkaClient(parse_bootstrap(broker.bootstrap_servers))) as client:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        assert call_plog("topic", "create", "t", *where).returncode == 0
        for _ in range(3):
            assert call_plog("produce", "t", *where, stdin=b"a\nb\n").returncode == 0
        told: list[str] = []
        rows = [row for row in ServerRows(client, TopicPartition("t", 0), told.append).rows_from(0) if row is not None]
    assert [(row.kind, row.offset, row.end) for row in rows] == [(RowKind.RECORD, n, n + 1) for n in range(6)]
    assert told == []
