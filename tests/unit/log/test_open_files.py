from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from core.common.filesystem import Buffer, File, FileSystem
from core.files.file_records import FileRegion
from core.files.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.log.open_files import OpenFiles
from core.log.partition_log import PartitionLog
from core.log.retention import delete_old_segments
from core.records.batches import iter_whole_batches
from core.records.record_batch import PIECE_BYTES
from tests.support.logs import NOW, PARTITION, append, make_batch, open_log, read_all
from tests.support.manual_clock import ManualClock


def opened_below(directory: Path) -> list[str]:
    """Names of this process's open files in a folder, mapped ones included."""
    paths = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(path.name for path in paths if directory in path.parents)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Twenty segments of a batch each, which is too large to be copied."""
    log = open_log(tmp_path / "t-0", segment_bytes=10_000, index_interval_bytes=0)
    for number in range(20):
        append(log, make_batch(b"%09900d" % number))
    log.close()
    return tmp_path / "t-0"


def load(directory: Path, limit: int, **config: object) -> PartitionLog:
    settings = LogSettings(ManualClock(NOW), FileSystem(), open_files=OpenFiles(limit))
    log = load_log(directory, PARTITION, LogConfig(segment_bytes=10_000, **config), settings).log  # type: ignore[arg-type]
    log.update_high_watermark(log.log_end_offset)
    return log


def test_opening_a_log_opens_its_last_segment_only_and_a_deleted_one_does_not_stay_open(directory: Path) -> None:
    log = load(directory, 100, retention_ms=1)
    assert [name for name in opened_below(directory) if name.endswith(".log")] == [f"{19:020d}.log"]
    read_all(log)
    for path in delete_old_segments(log, NOW + 10_000):
        path.unlink()
    assert [name for name in opened_below(directory) if name.endswith(".log")] == [f"{20:020d}.log"]
    log.close()
    assert opened_below(directory) == []


def test_a_segment_that_is_written_ahead_stays_open(directory: Path) -> None:
    """Others are opened meanwhile, and what is not on the disk must not be closed."""
    log = load(directory, 100)
    log.flush()
    batch = make_batch(bytes(2 * PIECE_BYTES))
    next(log.segments.active.write_ahead(batch))
    assert log.segments.active.is_kept_open


def test_no_more_than_so_many_are_open(directory: Path) -> None:
    log = load(directory, 3)
    before = read_all(log)
    assert [r.value for r in before] == [b"%09900d" % number for number in range(20)]
    assert len([name for name in opened_below(directory) if name.endswith(".log")]) <= 4
    assert read_all(log) == before, "what was closed is opened again"
    for _ in range(5):
        append(log, make_batch(b"more"))
        log.flush()
    assert len([name for name in opened_below(directory) if name.endswith(".log")]) <= 4


def test_what_is_being_read_stays_open(directory: Path) -> None:
    log = load(directory, 1)
    held = log.read(0, 100, 20).region
    assert isinstance(held, FileRegion)
    before = held.read()
    read_all(log, 5)
    assert held.read() == before
    again = log.read(0, 100, 20).region
    assert isinstance(again, FileRegion)
    assert again.file is held.file, "it is not opened twice"


class WatchfulFile(File):
    """Notes itself in `closed_unsynced` if it is closed with something in it that was not synced."""

    __slots__ = ("_disk", "_is_dirty")

    def __init__(self, path: Path, fd: int, disk: WatchfulDisk) -> None:
        super().__init__(path, fd)
        self._disk = disk
        self._is_dirty = False

    def write_at(self, data: Buffer, position: int) -> None:
        self._is_dirty = True
        super().write_at(data, position)

    def truncate(self, size: int) -> None:
        self._is_dirty = True
        super().truncate(size)

    def sync(self) -> None:
        if str(self.path) in self._disk.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        self._is_dirty = False  # before: what is written meanwhile may not be on the disk
        self._disk.syncs += 1
        super().sync()

    def close(self) -> None:
        if self.fd >= 0 and self._is_dirty and self.path.suffix == ".log":
            self._disk.closed_unsynced.append(self.path)
        super().close()


class WatchfulDisk(FileSystem):
    def __init__(self) -> None:
        self.closed_unsynced: list[Path] = []
        self.failing: set[str] = set()
        self.syncs = 0

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        opened = super().open_append(path, creates=creates)
        fd, opened.fd = opened.fd, -1
        return WatchfulFile(path, fd, self)


def many_logs(
    tmp_path: Path, count: int, limit: int, disk: FileSystem, segment_bytes: int = 1000
) -> list[PartitionLog]:
    settings = LogSettings(ManualClock(NOW), disk, open_files=OpenFiles(limit))
    logs = []
    for number in range(count):
        (tmp_path / f"t-{number}").mkdir()
        logs.append(load_log(tmp_path / f"t-{number}", PARTITION, LogConfig(segment_bytes=segment_bytes), settings).log)
    return logs


def logs_opened_below(directory: Path) -> int:
    return len([name for name in opened_below(directory) if name.endswith(".log")])


def test_what_is_written_is_synced_before_it_is_closed(tmp_path: Path) -> None:
    disk = WatchfulDisk()
    logs = many_logs(tmp_path, 12, 5, disk)
    assert (logs_opened_below(tmp_path) <= 5, disk.syncs) == (True, 0), "what is only made needs no sync"
    for round_number in range(20):  # of which some roll
        for number, log in enumerate(logs):
            append(log, make_batch(b"%d" % round_number))
            if number % 3 == 0:
                log.flush()
            assert logs_opened_below(tmp_path) <= 5
    assert disk.closed_unsynced == []
    for log in logs:
        assert [r.value for r in read_all(log)] == [b"%d" % number for number in range(20)]
        log.close()
    assert disk.closed_unsynced == []


def test_a_log_that_can_not_be_synced_stays_open_and_holds_up_no_other(tmp_path: Path) -> None:
    disk = WatchfulDisk()
    first, *others = many_logs(tmp_path, 12, 5, disk)
    append(first, make_batch(b"a"))
    disk.failing.add(str(first.segments.active.records.path))
    for log in others:
        append(log, make_batch(b"b"))
    assert disk.closed_unsynced == []
    disk.failing.clear()  # asked again, the system says that all is well
    with pytest.raises(OSError, match="a sync failed before"):
        first.flush()
    for log in others:
        log.flush()


def test_a_closed_segment_that_was_deleted_is_not_made_again(directory: Path) -> None:
    """Of an empty file in its place the next start would make a segment."""
    log = load(directory, 1)
    segment = log.segments.first
    read_all(log)
    assert segment.records.find_open() is None
    segment.records.path.unlink()
    with pytest.raises(FileNotFoundError):
        log.read(0, 100, 20)
    assert not segment.records.path.exists()


def test_a_closed_log_is_cut(tmp_path: Path) -> None:
    logs = many_logs(tmp_path, 3, 1, FileSystem())
    for log in logs:
        append(log, make_batch(b"a"))
        append(log, make_batch(b"b"))
        log.flush()
    assert logs[0].segments.active.records.find_open() is None
    logs[0].truncate_to(1)
    append(logs[0], make_batch(b"c"))
    assert [r.value for r in read_all(logs[0])] == [b"a", b"c"]


def test_what_answers_hold_is_bounded(tmp_path: Path) -> None:
    logs = many_logs(tmp_path, 20, 6, FileSystem(), segment_bytes=1 << 20)
    for number, log in enumerate(logs):
        append(log, make_batch(b"%d" % number, bytes(200_000)))
        append(log, make_batch(b"more"))
        log.update_high_watermark(log.log_end_offset)
    answers = [log.read(0, 1 << 20, log.log_end_offset).region for log in logs]
    assert logs_opened_below(tmp_path) <= 6 + 6 // 2 + 1
    for number, answer in enumerate(answers):
        assert answer is not None
        batches = list(iter_whole_batches(memoryview(answer.read())))
        assert batches[0].records()[0].value == b"%d" % number, "the first batch comes whole, however large"
    del answers, answer
    assert logs_opened_below(tmp_path) <= 6
    again = logs[0].read(0, 1 << 20, logs[0].log_end_offset).region
    assert isinstance(again, FileRegion)


def test_other_threads_close_nothing_that_is_being_written(tmp_path: Path) -> None:
    disk = WatchfulDisk()
    logs = many_logs(tmp_path, 6, 3, disk)
    for log in logs:
        append(log, make_batch(b"a"))
        log.flush()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for log in logs[:4]:
                log.segments.first.records.read_header(0)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(120):
            append(logs[number % 6], make_batch(b"b"))
            if number % 2:
                logs[number % 6].flush()
    finally:
        is_over.set()
        reader.join()
    assert disk.closed_unsynced == []


def test_mapped_indexes_count(directory: Path) -> None:
    log = load(directory, 9)
    read_all(log)
    for number in range(20):
        log.segments.floor(number).time_index.last_entry()  # type: ignore[union-attr]
    assert len(opened_below(directory)) <= 9 + 1
