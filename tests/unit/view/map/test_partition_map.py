"""The map of a partition, against the frames of its files, and against what `plog gaps` and `plog verify` say."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from core.common.errors import AccessError
from core.files.file_names import locate_partition
from core.forensics.gap_ledger import LOSING_REASONS, GapReason
from core.inspector.check.data_directory_metadata import DataDirectoryMetadata
from core.inspector.check.findings import Severity
from core.inspector.check.verify import verify
from core.pipeline.gap_account import account_for
from core.pipeline.session import Session
from core.records.compression import CompressionType
from core.view.files.checking import CheckRun, CheckState
from core.view.map import map_account
from core.view.map.map_account import MapFound
from core.view.map.map_cell import Cell, Compaction, Fate, IndexCover, MapWindow, Span
from core.view.map.map_intervals import Intervals
from core.view.map.partition_map import PartitionMap
from tests.support.damage import places, plant, write_log
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA, directories
from tests.support.logs import append, append_marker, fingerprint, make_batch, open_log
from tests.support.open_files import open_files

FOLDERS = [
    *(folder for name in ("*.corrupt", "*compacted*", "txn_*", "*multisegment*") for folder in directories(name)),
    *(GOLDEN / name for name in ("__consumer_offsets-0", "deleterecords_all", "empty_topic", "mixed_v0_v1_v2")),
    *(log.parent for log in sorted(SAMPLE_DATA.glob("*/*/00000000000000000000.log"))),
]


def folder_id(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def whole(of: PartitionMap, count: int = 60) -> MapWindow:
    return of.window(of.whole, count)


def read_all(of: PartitionMap) -> None:
    of.account.start()()
    assert of.account.state is CheckState.FINISHED


def codecs_by_byte(folder: Path) -> Iterator[tuple[int, int, int, str]]:
    """(start, end, first offset, codec) of each batch on the axis; segments follow each other by their names."""
    base = 0
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for place in places(folder):
            if place.path == path:
                codec = CompressionType(data[place.position + 22] & 7).text
                yield base + place.position, base + place.end, place.offset, codec
        base += len(data)


# --- what the files say


@for_each("folder", FOLDERS, ids=folder_id)
def test_the_account_is_what_gaps_and_verify_say(folder: Path) -> None:
    """Each gap and each finding, with every word; and each is in a cell, unless it is of a file beside the log."""
    found = account_for([str(folder)], Session(directory=folder), start=0, end=None, read_committed=True)
    (account,) = found.partitions
    expected = [(row["start_offset"], row["end_offset"], row["reason"], row["evidence"]) for row in account["gaps"]]
    with closing(PartitionMap(folder)) as of:
        assert of.size_bytes == sum(path.stat().st_size for path in folder.glob("*.log"))
        assert not any(cell.is_accounted or cell.is_checked for cell in whole(of).cells)
        read_all(of)
        assert [run.gap for run in of.account.found.runs] == expected
        assert (of.account.found.records, of.account.found.hidden_records) == (
            account["records"],
            account["hidden_records"],
        )
        assert of.account.found.findings == list(verify(folder))
        cells = whole(of).cells
        assert all(cell.is_accounted and cell.is_checked for cell in cells)
        if cells:
            assert {reason for cell in cells for reason in cell.reasons} == {GapReason(row[2]) for row in expected}
        on_cells = {id(finding) for cell in cells for finding in of.at(cell).findings}
        of_indexes = {str(one.file(suffix)) for one in of.segments for suffix in (".index", ".timeindex", ".txnindex")}
        beside = {id(finding) for finding in of.beside}
        for finding in of.account.found.findings:
            assert (id(finding) in on_cells) + (id(finding) in beside) + (finding.path in of_indexes) == 1
        for count in (1, 7, 60):
            ensure_cover(of, whole(of, count).cells)


def ensure_cover(of: PartitionMap, cells: list[Cell]) -> None:
    """Asserts that cells, if there are any, lie end to end on the axis, and that each gap is in one where it begins."""
    of.check_invariants(MapWindow(of.whole, cells, is_exact=False))
    if cells:
        for run in of.account.found.runs:
            assert any(cell.offset <= run.start < cell.end_offset and run.reason in cell.reasons for cell in cells)


def test_codecs_and_offsets_are_those_of_the_frames(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, Random(5), 120)
    batches = list(codecs_by_byte(folder))
    with closing(PartitionMap(folder)) as of:
        for span in (of.whole, Span(100, 5000), Span(3000, 3200), Span(of.size_bytes - 900, of.size_bytes)):
            window = of.window(span, 50)
            assert window.is_exact
            for cell in window.cells:
                inside = [one for one in batches if one[0] < cell.end and one[1] > cell.start]
                by_codec: dict[str, int] = {}
                for start, end, _, codec in inside:
                    part = min(end, cell.end) - max(start, cell.start)
                    by_codec[codec] = by_codec.get(codec, 0) + part
                assert by_codec[cell.codec] == max(by_codec.values())
                assert cell.batches == sum(cell.start <= start < cell.end for start, *_ in batches)
                assert cell.batch_offset == inside[0][2]


def test_a_sampled_cell_has_the_codec_of_the_batch_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, Random(6), 300)
    batches = list(codecs_by_byte(folder))
    monkeypatch.setattr("core.view.map.map_sampling._MOST_EXACT", 10)
    with closing(PartitionMap(folder)) as of:
        before = of.headers_read
        window = whole(of, 30)
        assert not window.is_exact
        for cell in window.cells:
            start, _, offset, codec = next(one for one in batches if one[0] <= cell.start < one[1])
            assert (cell.codec, cell.batch_offset, cell.batches) == (codec, offset, None)
            assert of.position_of(offset) == start
        assert of.headers_read - before < 30 * 12, "the indexes have an entry for every few batches"


def test_offsets_are_found_where_their_batches_begin(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, Random(7), 80)
    batches = list(codecs_by_byte(folder))
    with closing(PartitionMap(folder)) as of:
        for (start, _, offset, _), place in zip(batches, places(folder), strict=True):
            assert of.position_of(offset) == of.position_of(place.end_offset - 1) == start
        assert of.end_offset == places(folder)[-1].end_offset
        assert of.position_of(of.end_offset) == of.size_bytes
        assert of.position_of(of.end_offset + 1) is None


# --- transactions, compaction, indexes


def test_aborted_and_open_transactions_are_shown_before_anything_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=2000, index_interval_bytes=200)
    append(log, make_batch(b"x" * 300))
    append(log, make_batch(b"x" * 300, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 7, is_commit=False)
    append(log, make_batch(b"x" * 300))
    append(log, make_batch(b"x" * 300, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True))
    append(log, make_batch(b"x" * 300))
    log.close()
    found = list(codecs_by_byte(tmp_path / "t-0"))
    with closing(PartitionMap(tmp_path / "t-0")) as of:
        assert not whole(of).cells[0].knows_fates
        of.look_closer()
        for cell in whole(of).cells:
            offsets = {offset for start, end, offset, _ in found if start < cell.end and end > cell.start}
            expected = {Fate.ABORTED} if offsets & {1, 2} else set()
            assert cell.fates == (expected | {Fate.OPEN} if max(offsets) >= 4 else expected)
            assert cell.knows_fates
        texts = of.at(whole(of).cells[-1]).transactions
        assert texts == ["open: from offset 4 on, of producer 8"]


def test_what_the_cleaner_did_is_by_its_checkpoint(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    dirty = bases[2]
    with closing(PartitionMap(folder)) as of:
        of.look_closer()
        assert {cell.compaction for cell in whole(of).cells} == {Compaction.UNKNOWN}
        (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {dirty}\n")
        assert of.look_again()
        assert not of.look_again()
        axis = {one.base_offset: one.start for one in of.segments}
        for cell in whole(of, 200).cells:
            if cell.start >= axis[bases[-1]]:
                assert cell.compaction is Compaction.ACTIVE
            elif cell.end <= axis[dirty]:
                assert cell.compaction is Compaction.CLEANED
            elif cell.start >= axis[dirty]:
                assert cell.compaction is Compaction.DIRTY
        (mark,) = of.marks
        assert mark == ("first dirty offset", dirty, axis[dirty])


@for_each("name", ["_root", "_root3"])
def test_whether_a_topic_is_compacted_is_what_verify_goes_by(name: str, tmp_path: Path) -> None:
    root = GOLDEN / name
    if not (root / "__cluster_metadata-0").is_dir():
        root = tmp_path
        for file in (GOLDEN / name).iterdir():
            shutil.copy(file, root)
        shutil.copytree(GOLDEN / "__cluster_metadata-0", root / "__cluster_metadata-0")
    surroundings = DataDirectoryMetadata(root)
    for topic in ("compacted_lz4", "multisegment", "__consumer_offsets", "nobody"):
        folder = root / f"{topic}-0"
        if not folder.exists():
            folder.mkdir()
        partition, _ = locate_partition(folder)
        with closing(PartitionMap(folder)) as of:
            of.look_closer()
            assert bool(of.is_compacted) == bool(surroundings.of(partition, folder).is_compacted)


def test_entries_of_the_index_are_in_the_cells_of_their_batches(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    write_log(folder, Random(8), 100)
    entries = set()
    base = 0
    for path in sorted(folder.glob("*.log")):
        data = path.with_suffix(".index").read_bytes()
        entries |= {base + position for _, position in struct.iter_unpack(">ii", data)}
        base += path.stat().st_size
    with closing(PartitionMap(folder)) as of:
        for cell in whole(of, 300).cells:
            has_entry = any(cell.start <= position < cell.end for position in entries)
            assert cell.cover is (IndexCover.COVERED if has_entry else IndexCover.NOT_DUE)
    next(iter(sorted(folder.glob("*.index")))).unlink()
    with closing(PartitionMap(folder)) as of:
        for cell in whole(of, 300).cells:
            assert (cell.cover is IndexCover.MISSING) == (cell.first == 0)


def test_batches_of_a_segment_without_an_index_are_found_once_all_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.view.map.map_segments._MOST_HEADERS", 4)
    monkeypatch.setattr("core.view.map.map_sampling._MOST_EXACT", 1)
    monkeypatch.setattr(map_account, "_LEAST_ANCHOR_BYTES", 200)
    folder = tmp_path / "t-0"
    write_log(folder, Random(9), 60)
    for index in folder.glob("*.index"):
        index.unlink()
    batches = list(codecs_by_byte(folder))
    with closing(PartitionMap(folder)) as of:
        assert None in {cell.batch_offset for cell in whole(of).cells}
        read_all(of)
        for cell in whole(of).cells:
            assert cell.batch_offset == next(offset for start, end, offset, _ in batches if start <= cell.start < end)


def test_a_wrong_index_is_said_so_at_once_where_it_misleads(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    index = sorted(folder.glob("*.index"))[0]
    entries = [(offset, position + 1) for offset, position in struct.iter_unpack(">ii", index.read_bytes())]
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    with closing(PartitionMap(folder)) as of:
        cells = whole(of, 100).cells
        assert IndexCover.ODD in {cell.cover for cell in cells if cell.first == 0}
        assert IndexCover.ODD not in {cell.cover for cell in cells if cell.first > 0}
        read_all(of)
        assert {cell.cover for cell in whole(of, 100).cells if cell.first == cell.last == 0} == {IndexCover.WRONG}


def test_entries_that_are_wrong_are_passed_over_for_those_before_them(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", index_interval_bytes=100)
    for _ in range(60):
        append(log, make_batch(b"x" * 100))
    log.close()
    index = tmp_path / "t-0" / "00000000000000000000.index"
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    assert len(entries) > 40
    wrong = [(offset, position + (number % 4 > 0)) for number, (offset, position) in enumerate(entries)]
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in wrong))
    batches = list(codecs_by_byte(tmp_path / "t-0"))
    with closing(PartitionMap(tmp_path / "t-0")) as of:
        for cell in whole(of).cells:
            assert cell.batch_offset == next(offset for start, end, offset, _ in batches if start <= cell.start < end)


# --- damage


@for_each("seed", range(6))
def test_planted_damage_is_red_where_it_was_planted(seed: int, tmp_path: Path) -> None:
    random, folder = Random(seed), tmp_path / "t-0"
    write_log(folder, random, 60)
    planted = plant(folder, random)
    with closing(PartitionMap(folder)) as of:
        before = whole(of)
        assert {cell.severity for cell in before.cells} == {None}
        read_all(of)
        window = whole(of)
        if planted.first is not None:
            path, position = planted.first
            segment = next(one for one in of.segments if one.path == path)
            at = min(segment.start + position, of.size_bytes - 1)
            number = window.cell_at(at)
            assert number is not None
            assert window.cells[number].severity is not None
        lost = {offset for cell in window.cells for run in of.at(cell).runs if run.reason in LOSING_REASONS
                for offset in range(run.start, run.end)}  # fmt: skip
        assert planted.lost <= lost
        if planted.codes:
            assert of.troubles()


def test_offsets_that_no_byte_is_left_of_are_in_the_cell_where_they_should_be(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    logs = sorted(folder.glob("*.log"))
    for path in folder.glob(f"{logs[1].stem}.*"):
        path.unlink()
    with closing(PartitionMap(folder)) as of:
        read_all(of)
        window = whole(of, 40)
        after = next(one for one in of.segments if one.path == logs[2])
        number = window.cell_at(after.start)
        assert number is not None
        near = window.cells[number - 1 : number + 1]
        assert any(cell.reasons & LOSING_REASONS for cell in near)
        losing = next(cell for cell in window.cells if cell.reasons & LOSING_REASONS)
        assert of.offset_of(losing) == int(logs[1].stem)
        assert any(abs(place - after.start) <= 1 for place in of.troubles())


def test_a_segment_under_a_wrong_name_is_drawn_and_has_no_offsets(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "codec_zstd_java", tmp_path / "t-0"))
    for path in folder.glob("00000000000000000000.*"):
        path.rename(path.with_stem("00000000000000900000"))
    with closing(PartitionMap(folder)) as of:
        cells = whole(of, 10).cells
        assert {cell.codec for cell in cells} == {"zstd"}
        assert {cell.batch_offset for cell in cells} == {None}


def test_what_can_not_be_read_is_said(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    first, second, third = sorted(folder.glob("*.log"))[:3]
    first.unlink()
    first.mkdir()
    second.unlink()
    second.symlink_to("nowhere")
    third.write_bytes(b"\xee" * 5000)
    with closing(PartitionMap(folder)) as of:
        of.look_closer()
        assert [note.split(" can't")[0] for note in of.notes] == [first.name, second.name]
        garbage = [cell for cell in whole(of).cells if cell.first == cell.last == 2]
        assert {(cell.codec, cell.batch_offset) for cell in garbage} == {("", None)}
        read_all(of)
        assert {cell.severity for cell in whole(of).cells if cell.first == 2} == {Severity.ERROR}


def test_a_folder_that_is_gone_is_an_error_and_one_without_segments_is_empty(tmp_path: Path) -> None:
    with pytest.raises(AccessError):
        PartitionMap(tmp_path / "t-0")
    (tmp_path / "t-0").mkdir()
    with closing(PartitionMap(tmp_path / "t-0")) as of:
        assert whole(of) == (Span(0, 0), [], True)
        assert (of.size_bytes, of.marks, of.notes, of.troubles()) == (0, [], [], [])
        (tmp_path / "t-0").rmdir()
        with pytest.raises(AccessError):
            of.look_again()


# --- while somebody writes


def test_a_log_that_grows_keeps_what_was_read_and_one_that_is_replaced_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder, segment_bytes=2000)
    for _ in range(20):
        append(log, make_batch(b"x" * 100))
    with closing(PartitionMap(folder)) as of:
        read_all(of)
        size_bytes, account = of.size_bytes, of.account
        for _ in range(20):
            append(log, make_batch(b"x" * 100))
        assert of.look_again()
        assert of.account is account
        for cell in whole(of).cells:
            assert cell.is_checked == cell.is_accounted == (cell.end <= size_bytes)
        log.close()
        data = of.segments[0].path.read_bytes()
        of.segments[0].path.unlink()
        (folder / "beside").write_bytes(b"")  # takes the inode
        of.segments[0].path.write_bytes(data)
        assert of.look_again()
        assert of.account is not account
        assert not any(cell.is_checked for cell in whole(of).cells)


def test_segments_that_go_while_one_looks_are_unknown_and_not_an_error(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    with closing(PartitionMap(folder)) as of:
        of.close()
        shutil.rmtree(folder)
        assert {(cell.codec, cell.batch_offset) for cell in whole(of).cells} == {("", None)}
        assert of.at(whole(of).cells[0]).batch is None
        of.account.start()()
        assert of.account.state is CheckState.FAILED


def test_reading_all_can_be_stopped_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = GOLDEN / "c_bitflip_middle.corrupt"
    before, files = fingerprint(folder), open_files()
    add_bytes, calls, stops_at = CheckRun.add_bytes, [0], [1 << 30]
    with closing(PartitionMap(folder)) as of:

        def add(run: CheckRun, size_bytes: int) -> None:
            calls[0] += 1
            if calls == stops_at:
                of.account.stop()
            found = of.account.found
            if seen and seen[-1][0] is found:
                found.check_invariants(seen[-1][1])
            seen.append((found, replace(found, findings=[*found.findings], runs=[*found.runs])))
            add_bytes(run, size_bytes)

        seen: list[tuple[MapFound, MapFound]] = []
        monkeypatch.setattr(CheckRun, "add_bytes", add)
        read_all(of)
        progress = of.account.progress
        assert progress.checked_bytes == progress.total_bytes == 2 * of.size_bytes
        for number in range(1, calls[0] + 1):
            calls[0], stops_at[0] = 0, number
            of.account.start()()
            assert of.account.state is CheckState.STOPPED
            assert not of.account.found.is_whole
        assert {cell.is_accounted for cell in whole(of).cells} == {False}
    assert open_files() == files
    assert fingerprint(folder) == before


def test_very_many_gaps_are_kept_as_fewer_and_none_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_account, "_MOST_RUNS", 8)
    folder = GOLDEN / "compacted_txn"
    with closing(PartitionMap(folder)) as of:
        read_all(of)
        runs = of.account.found.runs
        (account,) = account_for(
            [str(folder)], Session(directory=tmp_path), start=0, end=None, read_committed=True
        ).partitions
        assert len(runs) < len(account["gaps"])
        for reason in GapReason:
            rows = [row for row in account["gaps"] if row["reason"] == reason]
            some = [run for run in runs if run.reason is reason]
            assert sum(run.offsets for run in some) == sum(row["count"] for row in rows)
            assert sum(run.gaps for run in some) == len(rows)
            for row in rows:
                assert any(run.start <= row["start_offset"] and row["end_offset"] <= run.end for run in some)


# --- the window


def test_zooming_keeps_the_place_under_the_cursor_and_stays_on_the_axis() -> None:
    random = Random(1)
    span, size_bytes = Span(0, 10_000_000), 10_000_000
    for _ in range(500):
        at = random.randrange(span.start, span.end)
        zoomed = span.zoomed(at, random.choice((0.5, 2, 0.1)), size_bytes, 500)
        assert 0 <= zoomed.start < zoomed.end <= size_bytes
        assert zoomed.start <= at < zoomed.end or zoomed.end == at
        assert zoomed.size_bytes >= 500
        span = zoomed.moved(random.randrange(-5000, 5000), size_bytes)
        assert span.size_bytes == zoomed.size_bytes
        assert 0 <= span.start < span.end <= size_bytes
    assert Span(5, 9).zoomed(7, 100, 20, 4) == (0, 20)
    assert Span(3, 3).zoomed(3, 2, 0, 4) == (0, 0)


def test_stretches_that_touch_are_found_as_by_looking_at_all() -> None:
    random = Random(2)
    items = [(start, start + random.randint(1, 30), start) for start in (random.randrange(200) for _ in range(60))]
    intervals = Intervals(items)
    assert len(intervals) == 60
    for start in range(0, 230, 3):
        for end in range(start + 1, 240, 7):
            expected = sorted(value for first, last, value in items if first < end and last > start)
            assert sorted(intervals.touching(start, end)) == expected


def test_the_first_picture_of_many_large_segments_reads_a_few_pages(tmp_path: Path) -> None:
    """Sparse files: of batches of 4 MB each, the headers alone are on the disk."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    header = bytes(make_batch(b"x").buffer[:61])
    for number in range(20):
        _write_sparse(folder, number * 100, header, 4 * 1024 * 1024)
    with closing(PartitionMap(folder)) as of:
        assert of.size_bytes == 20 * 100 * 4 * 1024 * 1024
        tracemalloc.start()
        cells = whole(of, 72).cells
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert None not in {cell.batch_offset for cell in cells}
        assert of.headers_read < 72 * 8
        assert most < 5_000_000


def _write_sparse(folder: Path, base_offset: int, header: bytes, size_bytes: int) -> None:
    """A log of 100 batches of one record, with an entry for every tenth in its index."""
    with (folder / f"{base_offset:020d}.log").open("wb") as file:
        for number in range(100):
            frame = struct.pack(">qi", base_offset + number, size_bytes - 12)
            os.pwrite(file.fileno(), frame + header[12:], number * size_bytes)
        file.truncate(100 * size_bytes)
    entries = [(number, number * size_bytes) for number in range(10, 100, 10)]
    index = b"".join(struct.pack(">ii", *entry) for entry in entries)
    (folder / f"{base_offset:020d}.index").write_bytes(index)


def test_a_cell_is_a_cell_of_one_segment_or_names_all_that_it_is_of() -> None:
    with closing(PartitionMap(GOLDEN / "multisegment")) as of:
        for count in (3, 50):
            for cell in whole(of, count).cells:
                numbers = [n for n, one in enumerate(of.segments) if one.start < cell.end and one.end > cell.start]
                assert (cell.first, cell.last) == (numbers[0], numbers[-1])
                assert of.at(cell).segments == of.segments[cell.first : cell.last + 1]


def test_enter_goes_to_the_first_offset_of_a_cell_that_the_log_still_has(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    base = min(int(path.stem) for path in folder.glob("*.log"))
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {base + 5}\n")
    with closing(PartitionMap(folder)) as of:
        cells: list[Cell] = whole(of).cells
        assert of.offset_of(cells[0]) == base + 5
        assert of.offset_of(cells[-1]) == cells[-1].batch_offset
