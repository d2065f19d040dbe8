"""Sealed segments of compacted logs, cut where a batch ends: what their indexes say of it, and who tells."""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.files.file_names import CLEAN_SHUTDOWN, CLEANER_CHECKPOINT
from core.forensics.missing_offsets import Hole, HoleReason
from core.forensics.partition_reader import PartitionReader
from core.forensics.unexplained_gaps import UnexplainedGaps
from core.inspector.check.findings import Code, Severity
from tests.support import doors
from tests.support.golden import GOLDEN
from tests.support.log_model import LogModel
from tests.support.server import call_plog

COMPACTED = [
    pytest.param(path, marks=[] if path.name in ("compacted_txn", "v1_gzip_compacted") else pytest.mark.longer)
    for path in sorted(GOLDEN.glob("*compact*"))
    if path.is_dir() and len(list(path.glob("*.log"))) > 1
]
OTHERS = [
    GOLDEN / name for name in ("compacted_txn", "compacted_tombstones_kept", "v1_none_compacted", "deleterecords")
]


@pytest.fixture(params=COMPACTED, ids=lambda path: path.name)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Kafka's own, with the cleaner's checkpoint beside it."""
    folder = Path(shutil.copytree(request.param, tmp_path / f"{request.param.name}-0"))
    last = max(int(path.stem) for path in folder.glob("*.log"))
    (tmp_path / CLEANER_CHECKPOINT).write_text(f"0\n1\n{request.param.name} 0 {last}\n")
    return folder


def batch_ends(log: Path) -> list[int]:
    """By the lengths in the batches' frames."""
    data, ends = log.read_bytes(), [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 12 + struct.unpack_from(">i", data, ends[-1] + 8)[0])
    return ends


def cuts(directory: Path) -> Iterator[tuple[Path, int]]:
    for log in sorted(directory.glob("*.log"))[:-1]:
        for end in batch_ends(log)[:-1]:
            yield log, end


def unknown_by_reading(directory: Path, start: int = 0) -> list[range]:
    with contextlib.closing(PartitionReader(directory)) as reader:
        items = list(reader.reading.items(start))
        return [
            range(item.start, item.end)
            for item in items
            if isinstance(item, Hole) and item.reason is HoleReason.UNKNOWN
        ]


def unknown_at_a_look(directory: Path) -> UnexplainedGaps:
    with contextlib.closing(PartitionReader(directory)) as reader:
        return reader.unexplained(0, reader.end_offset, most_batches=None)


def test_a_cut_is_told_by_each_index_that_knows_of_it_and_the_judge_says_the_same(directory: Path) -> None:
    """By one alone if the other is garbage."""
    told = 0
    for log, end in cuts(directory):
        data = log.read_bytes()
        log.write_bytes(data[:end])
        expected = LogModel(directory).cut_ends
        assert unknown_by_reading(directory) == expected, f"{log.name} cut at {end}"
        for hole in expected:
            assert unknown_by_reading(directory, hole.stop - 1) == [range(hole.stop - 1, hole.stop)]
        if not directory.name.startswith("v"):  # the first offsets are within compressed messages
            assert unknown_at_a_look(directory).ranges == [(hole.start, hole.stop) for hole in expected]
        told += 1 if expected else -2
        for index in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
            content = index.read_bytes()
            for garbage in (b"", content[:-3], b"\0\0\0\7" * (len(content) // 4), content[:-8] + b"\0\0\0\1\0\0\0\5"):
                index.write_bytes(garbage)
                expected = LogModel(directory).cut_ends
                assert unknown_by_reading(directory) == expected, f"{index.name} is {garbage!r}, cut at {end}"
            index.write_bytes(content)
        log.write_bytes(data)
    assert told >= 0 or directory.name.startswith("v0")  # whose messages have no timestamps


def sealed_indexes(directory: Path) -> list[Path]:
    logs = sorted(directory.glob("*.log"))[:-1]
    return [log.with_suffix(suffix) for log in logs for suffix in (".index", ".timeindex")]


def test_a_flipped_bit_of_an_index_accuses_no_sound_log(directory: Path) -> None:
    for index in sealed_indexes(directory):
        data = index.read_bytes()
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            index.write_bytes(flipped)
            assert unknown_by_reading(directory) == [], f"bit {bit} of {index.name}"
        index.write_bytes(data)


def test_another_segments_index_accuses_no_sound_log(directory: Path) -> None:
    """Of the same partition, and of Kafka's others. That of a segment without entries in its `.index` may be believed:
    nothing tells such a file from the segment's own, after a cut.
    """
    for index in sealed_indexes(directory):
        data = index.read_bytes()
        for other in (other for folder in OTHERS for other in sorted(folder.glob(f"*{index.suffix}"))):
            index.write_bytes(other.read_bytes())
            accused = unknown_by_reading(directory)
            assert not accused or accused == LogModel(directory).cut_ends
            is_certain = index.suffix == ".index" or index.with_suffix(".index").stat().st_size
            assert not (is_certain and accused), f"{other} in the place of {index.name}"
        index.write_bytes(data)


def test_all_who_read_say_the_same_and_its_proof_stays_until_the_offsets_are_given_up(directory: Path) -> None:
    """At one cut of each folder, of which an index tells."""
    log, (hole,) = cut_where_it_is_told(directory)
    indexes = {path: path.read_bytes() for path in directory.glob(f"{log.stem}.*index")}
    lost = [(f.code, f.offset, f.last_offset) for f in doors.found(directory) if f.severity is Severity.ERROR]
    assert lost == [(Code.OFFSETS_MISSING, hole.start, hole.stop - 1)]
    assert doors.merged(doors.losses(doors.gaps(directory))) == [hole]
    consumed = call_plog("consume", directory.name[:-2], "--data-dir", str(directory.parent), "--format", "%o\\n")
    assert consumed.returncode == 1 and "was cut short: its ." in consumed.stderr.decode()
    assert call_plog("recover", str(directory), "--apply").returncode == 1
    assert {path: path.read_bytes() for path in indexes} == indexes
    assert call_plog("recover", str(directory), "--apply", "--accept-missing").returncode == 0
    assert call_plog("verify", str(directory)).returncode == 0
    assert call_plog("recover", str(directory), "--undo").returncode == 0
    assert {path: path.read_bytes() for path in indexes} == indexes


def cut_where_it_is_told(directory: Path) -> tuple[Path, list[range]]:
    for log, end in cuts(directory):
        data = log.read_bytes()
        log.write_bytes(data[:end])
        if found := LogModel(directory).cut_ends:
            return log, found
        log.write_bytes(data)
    pytest.skip("no index of it tells of any cut")


def test_an_owner_tells_it_too_and_so_does_everyone_after_its_start(directory: Path) -> None:
    """The start makes the indexes again, and keeps what they said."""
    _, (hole,) = cut_where_it_is_told(directory)
    shutil.copy(GOLDEN / "_root" / "meta.properties", directory.parent)
    (directory.parent / CLEAN_SHUTDOWN).touch()
    (directory / "partition.metadata").unlink(missing_ok=True)
    records = doors.consume(directory)
    for _ in range(2):
        answer = doors.ask_server(directory, read_committed=False, is_owner=True)
        assert answer.records == records
        assert any(f"offsets {hole.start} to {hole.stop - 1}" in told for told in answer.told), answer.told
    assert doors.merged(doors.losses(doors.gaps(directory))) == [hole]
    assert [f.code for f in doors.found(directory) if f.severity is Severity.ERROR] == [Code.OFFSETS_MISSING]
    assert call_plog("recover", str(directory), "--apply", "--accept-missing").returncode == 0
    assert not doors.found(directory)
