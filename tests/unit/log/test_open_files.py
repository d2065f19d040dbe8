from __future__ import annotations

from pathlib import Path

import pytest

from core.common.clock import ManualClock
from core.common.filesystem import FileSystem
from core.log.log_config import LogConfig
from core.log.log_loader import LogSettings, load_log
from core.log.open_files import OpenFiles
from core.log.partition_log import PartitionLog
from core.log.retention import delete_old_segments
from tests.support.logs import NOW, PARTITION, append, make_batch, open_log, read_all


def opened_below(directory: Path) -> list[str]:
    """Names of this process's open files in a folder, mapped ones included."""
    paths = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(path.name for path in paths if directory in path.parents)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Twenty segments of a batch each."""
    log = open_log(tmp_path / "t-0", segment_bytes=100, index_interval_bytes=0)
    for number in range(20):
        append(log, make_batch(b"%d" % number))
    log.close()
    return tmp_path / "t-0"


def load(directory: Path, limit: int, **config: object) -> PartitionLog:
    settings = LogSettings(ManualClock(NOW), FileSystem(), open_files=OpenFiles(limit))
    log = load_log(directory, PARTITION, LogConfig(segment_bytes=100, **config), settings).log  # type: ignore[arg-type]
    log.update_high_watermark(log.log_end_offset)
    return log


def test_opening_a_log_opens_its_last_segment_only(directory: Path) -> None:
    log = load(directory, 100)
    assert [name for name in opened_below(directory) if name.endswith(".log")] == [f"{19:020d}.log"]
    log.close()
    assert opened_below(directory) == []


def test_no_more_than_so_many_are_open(directory: Path) -> None:
    log = load(directory, 3)
    before = read_all(log)
    assert [r.value for r in before] == [b"%d" % number for number in range(20)]
    assert len([name for name in opened_below(directory) if name.endswith(".log")]) <= 4
    assert read_all(log) == before, "what was closed is opened again"
    for _ in range(5):
        append(log, make_batch(b"more"))
        log.flush()
    assert len([name for name in opened_below(directory) if name.endswith(".log")]) <= 4


def test_what_is_being_read_stays_open(directory: Path) -> None:
    log = load(directory, 1)
    region = log.read(0, 100, 20).region
    assert region is not None
    before = region.read()
    read_all(log, 5)
    assert region.read() == before


def test_a_deleted_segment_does_not_stay_open(directory: Path) -> None:
    log = load(directory, 100, retention_ms=1)
    read_all(log)
    for path in delete_old_segments(log, NOW + 10_000):
        path.unlink()
    assert [name for name in opened_below(directory) if name.endswith(".log")] == [f"{20:020d}.log"]


def test_unflushed_segments_stay_open(tmp_path: Path) -> None:
    """A file that is opened again would not be told that an earlier write failed."""
    settings = LogSettings(ManualClock(NOW), FileSystem(), open_files=OpenFiles(1))
    (tmp_path / "t-0").mkdir()
    log = load_log(tmp_path / "t-0", PARTITION, LogConfig(segment_bytes=100), settings).log
    for _ in range(5):
        append(log, make_batch(b"x"))
    assert len([name for name in opened_below(tmp_path) if name.endswith(".log")]) == 5
    log.flush()
    read_all(log)
    assert len([name for name in opened_below(tmp_path) if name.endswith(".log")]) == 2
