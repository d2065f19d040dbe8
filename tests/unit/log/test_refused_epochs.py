"""Where DeleteRecords moved a log's start, and the disk refused `leader-epoch-checkpoint`, which says the same."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.inspector.check.verify import verify
from core.log.partition_log import PartitionLog
from tests.support.logs import append, make_batch, open_log


class RefusingDisk(FileSystem):
    refuses = False
    refuses_to_unlink = False

    def unlink(self, path: Path) -> None:
        if self.refuses_to_unlink and path.name == "leader-epoch-checkpoint":
            raise OSError(errno.EIO, "Input/output error", str(path))
        super().unlink(path)

    def write_atomic(self, path: Path, content: bytes, *, sync: bool = True) -> None:
        if self.refuses and path.name == "leader-epoch-checkpoint":
            raise OSError(errno.EIO, "Input/output error", str(path))
        super().write_atomic(path, content, sync=sync)


def refused_log(directory: Path, disk: RefusingDisk, *, move_start: bool = True) -> PartitionLog:
    log = open_log(directory, filesystem=disk, segment_bytes=200)
    for number in range(9):
        append(log, make_batch(b"%d" % number))
    disk.refuses = True
    if move_start:
        log.increment_log_start_offset(5)
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    return log


def test_a_clean_stop_writes_what_was_refused(tmp_path: Path) -> None:
    """Else the checkpoint of log starts would be taken for wrong, as after a clean stop all files agree."""
    disk = RefusingDisk()
    log = refused_log(tmp_path / "t-0", disk)
    disk.refuses = False
    log.close()
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 5\n"


def test_a_stop_is_no_clean_one_while_the_disk_refuses(tmp_path: Path) -> None:
    log = refused_log(tmp_path / "t-0", RefusingDisk())
    with pytest.raises(OSError, match="Input/output error"):
        log.close()


@pytest.mark.parametrize("what", ["retention", "DeleteRecords, then retention", "a start"])
def test_segments_that_went_are_not_missed(tmp_path: Path, what: str) -> None:
    """After a kill: their deletion is no loss, though the disk refused the file that would say so."""
    disk = RefusingDisk()
    log = refused_log(tmp_path / "t-0", disk, move_start=what != "retention")
    first = [segment for segment in log.segments if log.end_offset_of(segment) <= 5]
    assert first
    deleted = log.delete_oldest(first)
    start = log.log_start_offset
    if what == "a start":
        deleted = []
        open_log(tmp_path / "t-0", filesystem=disk, segment_bytes=200)
    for path in [*deleted, *(tmp_path / "t-0").glob("*.deleted")]:
        path.unlink(missing_ok=True)
    assert list(verify(tmp_path / "t-0")) == []
    disk.refuses = False
    again = open_log(tmp_path / "t-0", filesystem=disk, segment_bytes=200)
    assert again.log_start_offset in (start, again.segments.first.base_offset)
    assert again.leader_epochs.entries[0].start_offset <= again.log_start_offset


def test_segments_stay_where_the_disk_refuses_everything(tmp_path: Path) -> None:
    disk = RefusingDisk()
    log = refused_log(tmp_path / "t-0", disk, move_start=False)
    disk.refuses_to_unlink = True
    before = sorted(path.name for path in (tmp_path / "t-0").glob("*.log"))
    with pytest.raises(OSError, match="Input/output error"):
        log.delete_oldest([log.segments.first])
    assert sorted(path.name for path in (tmp_path / "t-0").glob("*.log")) == before
    disk.refuses = disk.refuses_to_unlink = False
    assert log.delete_oldest([log.segments.first])
    log.close()
    assert list(verify(tmp_path / "t-0")) == []
