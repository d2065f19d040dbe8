"""The map of a partition, against the frames of its files, what was planted in them, and what `plog verify` says."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from random import Random

import pytest

from core.common.errors import AccessError
from core.common.filesystem import File
from core.inspector.check.findings import Code, Finding, Severity
from core.inspector.check.verify import verify
from core.view.figures import partition_map
from core.view.figures.partition_map import PartitionMap, Sign, read_map
from tests.support.damage import places, plant, write_log
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, directories
from tests.support.logs import NOW, append, append_marker, fingerprint, make_batch, open_log
from tests.support.open_files import open_files

FOLDERS = [
    *(folder for name in ("*.corrupt", "*compacted*", "txn_*", "*multisegment*") for folder in directories(name)),
    *(GOLDEN / name for name in ("__consumer_offsets-0", "deleterecords_all", "empty_topic", "mixed_v0_v1_v2")),
]


def folder_id(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def whole(folder: Path, *, is_checked: bool = False) -> PartitionMap:
    return read_map(folder, list(verify(folder)) if is_checked else None).find_open()


def make_segments(folder: Path) -> list[Path]:
    """Makes a log of 80 batches, whose segments have entries for every few of them."""
    log = open_log(folder, segment_bytes=3000, index_interval_bytes=300)
    for number in range(80):
        append(log, make_batch(b"x" * 100, timestamp=NOW + number))
    log.close()
    return sorted(folder.glob("*.log"))


def ensure_cells(of: PartitionMap) -> None:
    """Asserts that cells lie end to end, name the segments that they are of, and show each mark."""
    for count in (1, 7, 60):
        cells = of.cells(count)
        assert [*(cell.start for cell in cells), of.size_bytes] == [0, *(cell.end for cell in cells)]
        for cell in cells:
            touched = [n for n, one in enumerate(of.segments) if one.start < cell.end and one.end > cell.start]
            assert (cell.first, cell.last) == (touched[0], touched[-1])
        for mark in of.damage if cells else ():
            at = min(mark.start, of.size_bytes - 1)
            here = next(cell for cell in cells if cell.start <= at < cell.end)
            assert here.damage in (mark.sign, Sign.ERROR)


@for_each("folder", FOLDERS, ids=folder_id)
def test_every_finding_of_verify_is_a_mark_and_nothing_is_written(folder: Path) -> None:
    before, files = fingerprint(folder), open_files()
    of, checked = whole(folder), whole(folder, is_checked=True)
    assert [one.size_bytes for one in of.segments] == [path.stat().st_size for path in sorted(folder.glob("*.log"))]
    findings = [finding for finding in verify(folder) if "checkpoint" not in Path(finding.path).name]
    assert [mark.what for mark in checked.damage] == findings
    for one in (of, checked):
        ensure_cells(one)
        for number in range(len(one.segments)):
            assert {mark.number for mark in one.facts(number).damage} <= {number}
    assert {cell.damage for cell in of.cells(60)} <= {Sign.UNKNOWN, Sign.WARNING}, "nobody has looked"
    assert (open_files(), fingerprint(folder)) == (files, before)


@for_each("seed", range(4))
def test_planted_damage_is_marked_where_it_was_planted_once_verify_has_run(seed: int, tmp_path: Path) -> None:
    random, folder = Random(seed), tmp_path / "t-0"
    write_log(folder, random, 60)
    planted = plant(folder, random)
    of = whole(folder, is_checked=True)
    assert of.is_checked
    if planted.first is not None:
        path, position = planted.first
        segment = next(one for one in of.segments if one.path == path)
        at = min(segment.start + position, of.size_bytes - 1)
        cell = next(cell for cell in of.cells(60) if cell.start <= at < cell.end)
        assert cell.damage in (Sign.ERROR, Sign.WARNING)


def test_places_and_facts_are_those_of_the_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_segments(tmp_path / "t-0")
    of, known = whole(tmp_path / "t-0"), places(tmp_path / "t-0")
    assert of.end_offset == known[-1].end_offset
    for number, segment in enumerate(of.segments):
        own = [place for place in known if place.path == segment.path]
        facts = of.facts(number)
        assert (segment.base_offset, facts.end_offset) == (own[0].offset, own[-1].end_offset)
        assert facts.first_timestamp == NOW + own[0].offset
        assert facts.largest_timestamp == NOW + own[-1].offset
        for place in own:
            for position in (place.position, place.end - 1):
                assert of.segment_at(segment.start + position) == number
                offset = of.offset_at(number, segment.start + position)
                assert own[0].offset <= offset <= place.offset
                assert place.offset - offset < 6, "the index has an entry for every few batches"
    monkeypatch.setattr(partition_map, "_SMALL_BYTES", 0)
    index = of.segments[-1].path.with_suffix(".timeindex")
    *_, (last, _), _ = struct.iter_unpack(">qi", index.read_bytes())
    os.truncate(index, index.stat().st_size - 12)
    assert of.facts(len(of.segments) - 1).largest_timestamp == last, "the headers of a large segment are not read"


def test_open_transactions_are_shown_from_where_they_begin(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder, segment_bytes=1000, index_interval_bytes=0)
    append(log, make_batch(b"x" * 300))
    append(log, make_batch(b"x" * 300, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 7, is_commit=False)
    append(log, make_batch(b"x" * 300))
    assert whole(folder).open == []
    torn = Path(shutil.copytree(folder, tmp_path / "torn-0"))
    with max(torn.glob("*.log")).open("ab") as file:
        file.write(b"\xee" * 40)
    assert whole(torn).open == []
    append(log, make_batch(b"x" * 300, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True))
    append(log, make_batch(b"x" * 300))
    log.close()
    of, known = whole(folder), places(folder)
    assert of.open is not None
    (mark,) = of.open
    began = next(place for place in known if place.offset == 4)
    segment = of.segments[mark.number]
    assert (mark.offset, mark.start - segment.start, segment.path) == (4, began.position, began.path)
    assert mark.what == "from offset 4 on, of producer 8"
    assert [cell.open is Sign.OPEN for cell in of.cells(60)] == [cell.end > mark.start for cell in of.cells(60)]
    for number in range(len(of.segments)):
        assert of.facts(number).open == ([mark] if number >= mark.number else [])
    last = known[-1].path
    with last.open("ab") as file:
        file.write(b"\xee" * 40)  # may have been a marker
    assert whole(folder).open is None
    assert {cell.open for cell in whole(folder).cells(9)} == {Sign.UNKNOWN}
    assert whole(folder).open_problem


def test_what_the_folder_shows_is_marked_before_verify_has_run(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    logs = sorted(folder.glob("*.log"))
    logs[1].with_suffix(".index").unlink()
    base = int(logs[2].stem)
    (folder / "damaged-ranges").write_text(f"0\n1\n{base + 1} {base + 4} {base} 100 200\n")
    of = whole(folder)
    missing, noted = of.damage
    start = sum(path.stat().st_size for path in logs[:2])
    assert (missing.number, missing.sign, missing.what) == (1, Sign.WARNING, f"{logs[1].stem}.index is missing")
    assert (noted.start, noted.end, noted.offset, noted.sign) == (start + 100, start + 200, base + 1, Sign.ERROR)
    assert "damaged, as a broker noted" in str(noted.what)
    assert of.cells(9)[-1].damage is Sign.UNKNOWN
    (folder / "damaged-ranges").write_bytes(b"\xff")
    assert any("damaged-ranges" in note for note in whole(folder).notes)


def test_findings_of_other_files_are_at_their_segment_or_counted(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    logs = make_segments(folder)
    for path in folder.glob(f"{logs[1].stem}.*"):
        path.unlink()
    index = logs[3].with_suffix(".index")
    index.write_bytes(struct.pack(">ii", 1, 1))
    (folder / "leader-epoch-checkpoint").write_text("nonsense")
    of = whole(folder, is_checked=True)
    gap = next(mark for mark in of.damage if mark.offset == int(logs[1].stem))
    assert (of.segments[gap.number].path, gap.start) == (logs[2], of.segments[1].start)
    (wrong,) = (mark for mark in of.damage if isinstance(mark.what, Finding) and mark.what.path == str(index))
    assert (of.segments[wrong.number].path, wrong.start) == (logs[3], of.segments[2].start)
    assert "1 of plog verify's findings are about files beside the log" in of.notes


def test_files_of_other_programs_and_what_can_not_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    first, second, third, fourth, *_ = make_segments(folder)
    first.unlink()
    first.mkdir()
    second.unlink()
    second.symlink_to("nowhere")
    third.unlink()
    os.mkfifo(third)
    fourth.with_suffix(".timeindex").unlink()
    fourth.with_suffix(".timeindex").mkdir()
    for name in ("notes.txt", "12.log", "x.log", f"{9:020d}.log.deleted", f"{9:020d}.log.orig"):
        (folder / name).write_bytes(b"x")
    of = whole(folder)
    assert [note.split(" can't")[0] for note in of.notes] == [first.name, second.name, third.name]
    assert [mark.number for mark in of.damage] == [0, 1, 2]
    assert [one.path for one in of.segments] == sorted(folder.glob("0*.log"))
    for number, segment in enumerate(of.segments):
        assert of.offset_at(number, segment.start) == segment.base_offset
        assert (of.facts(number).first_timestamp > 0) == (number > 2)
    for segment in of.segments[3:]:
        segment.path.write_bytes(b"\xee" * 5000)
    garbage = whole(folder)
    assert {garbage.facts(number).first_timestamp for number in range(len(garbage.segments))} == {-1}
    fourth.rename(f"{fourth}.swap")
    assert whole(folder).notes[-1].startswith("a compaction was not finished")


def test_a_segment_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    first, second, _ = sorted(folder.glob("*.log"))
    first.with_suffix(".index").unlink()
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != first)  # root may read everything
    mark, missing = whole(folder).damage
    assert (mark.start, mark.end) == (0, first.stat().st_size)
    assert mark.what == f"{first.name} can't be read: permission denied"
    assert (missing.sign, whole(folder).cells(9)[0].damage) == (Sign.WARNING, Sign.ERROR), "the worst of a cell"
    finding = Finding(Severity.ERROR, Code.UNREADABLE, str(second), "permission denied", offset=int(second.stem))
    (mark,) = read_map(folder, [finding]).damage
    assert (mark.start, mark.end) == (first.stat().st_size, first.stat().st_size + second.stat().st_size)


def test_a_folder_that_is_gone_is_an_error_and_one_without_batches_is_empty(tmp_path: Path) -> None:
    with pytest.raises(AccessError):
        read_map(tmp_path / "t-0")
    (tmp_path / "t-0").mkdir()
    of = whole(tmp_path / "t-0")
    assert (of.size_bytes, of.cells(9), of.marks, of.notes, of.end_offset, of.open) == (0, [], [], [], 0, [])
    (tmp_path / "t-0" / f"{5:020d}.log").write_bytes(b"")
    of = whole(tmp_path / "t-0")
    assert (of.size_bytes, of.cells(9), of.marks, of.end_offset, of.open) == (0, [], [], 5, [])
    assert (of.offset_at(0, 0), of.facts(0).largest_timestamp) == (5, -1)


def test_segments_that_go_while_one_looks_are_no_error(tmp_path: Path) -> None:
    of = read_map(Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0")))
    shutil.rmtree(of.directory)
    assert of.find_open().open_problem
    assert (of.facts(0).first_timestamp, of.offset_at(1, of.segments[1].end - 1)) == (-1, of.segments[1].base_offset)


def test_many_large_segments_take_a_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse files of 1 GB, each with a batch in the beginning and one at the end, to which the index leads."""
    folder, size_bytes = tmp_path / "t-0", 1 << 30
    folder.mkdir()
    batch = bytes(make_batch(b"x").buffer)
    second = size_bytes - len(batch)
    for number in range(0, 1000, 2):
        path = folder / f"{number:020d}.log"
        with path.open("wb") as file:
            file.write(struct.pack(">qi", number, second - 12) + batch[12:61])
            file.seek(second)
            file.write(struct.pack(">q", number + 1) + batch[8:])
        path.with_suffix(".index").write_bytes(struct.pack(">ii", 1, second))
        path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", NOW, 1))
    (folder / f"{5000:020d}.snapshot").write_bytes(b"")  # of another log
    reads: list[int] = []
    read_at = File.read_at

    def counted(file: File, size: int, position: int) -> bytes:
        reads.append(size)
        return read_at(file, size, position)

    monkeypatch.setattr(File, "read_at", counted)
    of = whole(folder)
    assert (of.size_bytes, of.end_offset, len(of.cells(100))) == (500 * size_bytes, 1000, 100)
    assert (of.offset_at(7, of.segments[7].end - 1), of.facts(7).largest_timestamp) == (15, NOW)
    assert sum(reads) < 100_000
    assert of.open_problem == "too much of the log follows its newest snapshot"
    monkeypatch.setattr(partition_map, "_MOST_BYTES", of.size_bytes)
    assert whole(folder).open_problem == of.open_problem, "so many files are not opened"
    monkeypatch.undo()
    of.segments[-1].path.with_suffix(".index").unlink()
    assert (whole(folder).end_offset, whole(folder).open_problem) == (None, "the log's end is not known")
