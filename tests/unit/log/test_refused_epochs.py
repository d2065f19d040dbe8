"""Where DeleteRecords moved a log's start, and the disk refused `leader-epoch-checkpoint`, which says the same."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.log.partition_log import PartitionLog
from tests.support.logs import append, make_batch, open_log


class RefusingDisk(FileSystem):
    refuses = False

    def write_atomic(self, path: Path, content: bytes, *, sync: bool = True) -> None:
        if self.refuses and path.name == "leader-epoch-checkpoint":
            raise OSError(errno.EIO, "Input/output error", str(path))
        super().write_atomic(path, content, sync=sync)


def refused_log(directory: Path, disk: RefusingDisk) -> PartitionLog:
    log = open_log(directory, filesystem=disk)
    for number in range(9):
        append(log, make_batch(b"%d" % number))
    disk.refuses = True
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
