"""A start opens no index of a sealed segment, and whoever uses one gets the records of the log all the same."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest

from core.common.filesystem import File, FileSystem
from core.common.task import finish
from core.files.file_names import TRANSACTION_INDEX_SUFFIX
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog
from core.log.segment_recovery import LazyIndexCheck
from core.records.batches import iter_whole_batches
from tests.support.logs import NOW, open_log, read_all
from tests.unit.forensics.test_garbage_in_indexes import FORMS, GARBAGE, transactions

SEGMENTS = 6
PER_SEGMENT = 12
END = SEGMENTS * PER_SEGMENT
TRUTH = {3 * n + k: b"%s%d" % (b"ab"[k : k + 1], n) for n in range(END // 3) for k in (0, 1)}
ABORTED = [(3 * n, 3 * n + 2) for n in range(0, END // 3, 3)]
"""First offset and marker of each transaction that was aborted."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return transactions(tmp_path / "t-0", SEGMENTS)


def opened_late(directory: Path, filesystem: FileSystem | None = None) -> PartitionLog:
    return open_log(directory, checks_late=True, filesystem=filesystem, index_interval_bytes=64)


def unchecked(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments if segment.is_unchecked]


def records_of(log: PartitionLog) -> dict[int, bytes | None]:
    return {r.offset: r.value for r in read_all(log, max_bytes=200) if r.offset in TRUTH}


def aborted_of(log: PartitionLog) -> list[tuple[int, int]]:
    """As readers of committed records are told, batch by batch."""
    found = set[tuple[int, int]]()
    for offset in range(0, END, 3):
        result = log.read(offset, 1, log.high_watermark, with_aborted=True)
        found |= {(one.first_offset, one.last_offset) for one in result.aborted}
    return sorted(found)


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (*FORMS, ".txnindex")}


class WatchedDisk(FileSystem):
    def __init__(self) -> None:
        self.opened = set[str]()

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        self.opened.add(path.name)
        return super().open_append(path, creates=creates)


def test_one_look_at_the_folder_opens_a_log(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Counter[str]()
    scan = os.scandir

    def counting(path: str | Path) -> object:
        looks[str(path)] += 1
        return scan(path)

    disk = WatchedDisk()
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", counting)
        log = opened_late(directory, disk)
    assert looks[str(directory)] == 1
    assert unchecked(log) == [PER_SEGMENT * number for number in range(SEGMENTS - 1)]
    assert not [name for name in disk.opened if name.endswith(".log") and name != f"{END - PER_SEGMENT:020d}.log"]
    assert log.size_bytes == sum(path.stat().st_size for path in directory.glob("*.log"))
    log.close()
    assert not [name for name in disk.opened if name.endswith(".log") and name != f"{END - PER_SEGMENT:020d}.log"]


def test_what_is_used_is_checked_and_nothing_else(directory: Path) -> None:
    log = opened_late(directory)
    assert [r.offset for r in read_all(log, END - 3)] == [END - 3, END - 2, END - 1]
    assert len(unchecked(log)) == SEGMENTS - 1
    log.read(2 * PER_SEGMENT, 1, log.high_watermark)
    assert unchecked(log) == [0, PER_SEGMENT, 3 * PER_SEGMENT, 4 * PER_SEGMENT]
    log.close()


def test_a_log_without_aborted_transactions_is_read_as_committed_without_a_look_at_the_others(directory: Path) -> None:
    """Whether a later segment has any is told by its file, which is not there."""
    for path in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}"):
        path.unlink()
    log = opened_late(directory)
    assert log.read(0, 1, log.high_watermark, with_aborted=True).aborted == []
    assert unchecked(log) == [PER_SEGMENT * number for number in range(1, SEGMENTS - 1)]
    log.close()


@pytest.mark.parametrize("suffix", FORMS)
def test_garbage_in_an_index_is_found_at_its_first_use(directory: Path, suffix: str) -> None:
    for number, garbage in enumerate(GARBAGE):
        ensure_found(Path(shutil.copytree(directory, directory.parent / f"u-{number}" / "t-0")), suffix, garbage)


def ensure_found(directory: Path, suffix: str, garbage: str) -> None:
    for number in range(SEGMENTS):
        path = directory / f"{number * PER_SEGMENT:020d}{suffix}"
        path.write_bytes(GARBAGE[garbage](FORMS[suffix], path.read_bytes()))
    eager = directory.with_name("eager")
    shutil.copytree(directory, eager)
    log = opened_late(directory)
    assert records_of(log) == TRUTH, garbage
    assert aborted_of(log) == ABORTED, garbage
    for number in range(END // 3):
        found = finish(log.find_offset_by_timestamp(NOW + 10 * number))
        assert found is not None
        assert found.offset == 3 * number, garbage
    log.close()
    before = open_log(eager, index_interval_bytes=64)
    assert records_of(before) == TRUTH
    for number in range(END // 3):
        finish(before.find_offset_by_timestamp(NOW + 10 * number))
    before.close()
    assert files_of(directory) == files_of(eager), garbage


@pytest.mark.parametrize("data", [b"\xff" * 34, b"\0" * 68, b"no index"], ids=["version", "zeros", "torn"])
def test_garbage_in_a_transaction_index_is_found_at_its_first_use(directory: Path, data: bytes) -> None:
    right = files_of(directory)
    for name in right:
        if name.endswith(TRANSACTION_INDEX_SUFFIX):
            (directory / name).write_bytes(data)
    log = opened_late(directory)
    assert aborted_of(log) == ABORTED
    log.close()
    assert files_of(directory) == right


@pytest.mark.parametrize("suffix", [*FORMS, "both"])
def test_a_missing_index_is_made_again_at_once(directory: Path, suffix: str) -> None:
    right = files_of(directory)
    for name in FORMS if suffix == "both" else [suffix]:
        (directory / f"{PER_SEGMENT:020d}{name}").unlink()
    log = opened_late(directory)
    assert PER_SEGMENT not in unchecked(log)
    assert files_of(directory) == right
    assert records_of(log) == TRUTH
    log.close()


def test_damage_after_the_last_entry_is_known_before_the_first_read(directory: Path) -> None:
    path = directory / f"{PER_SEGMENT:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[:-20])  # into the last marker, offset 23
    log = opened_late(directory)
    region = log.read(PER_SEGMENT + 9, 1 << 20, log.high_watermark).region
    assert region is not None
    assert [batch.base_offset for batch in iter_whole_batches(memoryview(region.read()))] == [21]
    assert [(gap.start_offset, gap.end_offset) for gap in log.gaps] == [(23, 24)]
    log.close()


def test_two_threads_that_use_an_index_first_have_it_checked_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither sees the index before it was made again."""
    path = directory / f"{0:020d}.index"
    path.write_bytes(GARBAGE["the first too small"](FORMS[".index"], path.read_bytes()))
    entered, both = threading.Event(), threading.Event()
    check, checks, found = LazyIndexCheck.check, list[int](), list[tuple[int, int]]()

    def slow(self: LazyIndexCheck, checked: LogSegment, end_offset: int) -> None:
        checks.append(checked.base_offset)
        entered.set()
        both.wait()
        check(self, checked, end_offset)

    monkeypatch.setattr(LazyIndexCheck, "check", slow)
    log = opened_late(directory)
    segment = log.segments.first
    threads = [threading.Thread(target=lambda: found.append(segment.offset_index.lookup(8))) for _ in range(2)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    both.set()
    for thread in threads:
        thread.join()
    assert checks == [0]
    assert found[0] == found[1]
    assert segment.records.read_header(found[0][1]).last_offset <= 8
    assert records_of(log) == TRUTH
    log.close()


def test_a_disk_that_refuses_the_check_is_asked_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:

        def refuse(_self: LazyIndexCheck, _segment: LogSegment, _end_offset: int) -> None:
            raise OSError(5, "Input/output error")

        patched.setattr(LazyIndexCheck, "check", refuse)
        log = opened_late(directory)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                log.read(0, 1, log.high_watermark)
    log.close()
    path = directory / f"{0:020d}.index"
    path.write_bytes(b"\xff" * len(path.read_bytes()))
    log = opened_late(directory)
    failed = [True]
    read = LogSegment.recover

    def fails_once(self: LogSegment, *arguments: object) -> object:
        if failed.pop() if failed else False:
            raise OSError(5, "Input/output error")
        return read(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LogSegment, "recover", fails_once)
    with pytest.raises(OSError, match="Input/output"):
        log.read(0, 1, log.high_watermark)
    assert records_of(log) == TRUTH
    log.close()


def test_the_rest_is_checked_a_segment_a_step(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And what is missing between two segments is told of."""
    for path in directory.glob(f"{PER_SEGMENT:020d}.*"):
        path.unlink()
    path = directory / f"{3 * PER_SEGMENT:020d}.index"
    right = path.read_bytes()
    path.write_bytes(b"\xff" * len(right))
    log = opened_late(directory)
    assert log.late_check is not None
    steps = log.late_check.steps()
    left = len(unchecked(log))
    for _ in steps:
        left -= 1
        assert len(unchecked(log)) == left
    assert left == 0
    assert path.read_bytes() == right
    assert "not in the log" not in caplog.text
    assert log.late_check.explain(log.late_check.take_holes(), log.config) == [(12, 24)]
    assert "offsets 12 to 23 are not in the log" in caplog.text
    assert not log.late_check.take_holes()
    log.close()


def test_segments_that_go_before_they_are_checked(directory: Path) -> None:
    log = opened_late(directory)
    assert log.late_check is not None
    steps = log.late_check.steps()
    next(steps)
    deleted = log.delete_oldest(list(log.segments)[:3])
    assert deleted
    finish(steps)
    assert unchecked(log) == []
    assert [r.offset for r in read_all(log, 3 * PER_SEGMENT)] == list(range(3 * PER_SEGMENT, END))
    log.close()


def test_after_a_crash_what_lies_below_the_recovery_point_is_checked_late(directory: Path) -> None:
    log = open_log(
        directory, checks_late=True, had_clean_shutdown=False, recovery_point=3 * PER_SEGMENT, index_interval_bytes=64
    )
    assert unchecked(log) == [0, PER_SEGMENT, 2 * PER_SEGMENT]
    assert records_of(log) == TRUTH
    assert aborted_of(log) == ABORTED
    log.close()
