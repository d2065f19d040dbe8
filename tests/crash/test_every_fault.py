"""A file operation that fails, each in turn, reads too: what was acknowledged stays, what was refused never was.

The log goes on after the fault as a broker does, is dropped as a kill drops it, and opened again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.common.filesystem import Buffer, File
from core.compaction.cleaner import Cleaner
from core.compaction.log_to_clean import find_cleanable_part, log_to_clean
from core.files import file_records
from core.files.checkpoint_file import read_offset_checkpoint, write_offset_checkpoint
from core.index import offset_index
from core.log.partition_log import PartitionLog
from core.log.segment_swap import begin_swap, settle_swap
from core.records.record_batch import RecordBatch
from tests.support.asking_disk import NEVER, AskingFile, FailingDisk
from tests.support.logs import NOW, PARTITION, make_batch, make_marker, open_log

LIMITS = {"segment_bytes": 400, "index_interval_bytes": 100, "cleanup_policy": ("compact",)}

TRANSACTIONAL_ID = 7
STEP = int(os.environ.get("PLOG_EVERY_FAULT_STEP", "3"))
"""Which calls fail; `scripts/torture --every-byte` has each fail."""


class FaultyDisk(FailingDisk):
    """A write has written a part by the time it fails, or all if `is_short`: the system wrote less than it was asked
    to, and was asked again. Reads may fail, too.
    """

    def __init__(self, code: int, window: int, *, is_short: bool = False) -> None:
        super().__init__(code, window)
        self.is_short = is_short

    def ask(self, path: Path) -> None:
        if self.is_short:
            self.count += 1
        else:
            super().ask(path)

    def open_append(self, path: Path, *, creates: bool = True) -> File:
        return self._faulty(super().open_append(path, creates=creates))

    def open_read(self, path: Path) -> File:
        self.ask(path)
        return self._faulty(super().open_read(path))

    def _faulty(self, opened: File) -> File:
        fd, opened.fd = opened.fd, -1
        return FaultyFile(opened.path, fd, self)


class FaultyFile(AskingFile):
    __slots__ = ()
    _disk: FaultyDisk

    def read_at(self, size: int, position: int) -> bytes:
        self._disk.ask(self.path)
        return super().read_at(size, position)

    def size(self) -> int:
        self._disk.ask(self.path)
        return super().size()

    def write_at(self, data: Buffer, position: int) -> None:
        pwrite = os.pwrite

        def write_less(fd: int, some: Buffer, where: int) -> int:
            return pwrite(fd, memoryview(some)[: max(len(some) // 2, 1)], where)

        with pytest.MonkeyPatch.context() as patch:
            if self._disk.is_short and self._disk.count >= self._disk.fails_from:
                patch.setattr(os, "pwrite", write_less)
            super().write_at(data, position)


class Life:
    """A log's, and what it holds for certain: the acknowledged records by offset."""

    def __init__(self, directory: Path, disk: FaultyDisk, *, writes_ahead: bool = False) -> None:
        self.directory = directory
        self._writes_ahead = writes_ahead
        self.disk = disk
        self.acknowledged: dict[int, bytes] = {}
        self.trimmed: dict[int, bytes] = {}
        """Those that retention took; a start may find them again, if it could not delete their files."""
        self.refused: set[bytes] = set()
        self.checkpoint = directory / "recovery-point-offset-checkpoint"
        self._number = 0
        self.log = self._open(0)

    def _open(self, recovery_point: int) -> PartitionLog:
        """As the next start does, after a kill; a person starts it again where the disk refuses still."""
        while True:
            was_over = self.disk.is_over
            try:
                return open_log(
                    self.directory / "t-0",
                    filesystem=self.disk,
                    had_clean_shutdown=False,
                    recovery_point=recovery_point,
                    **LIMITS,
                )
            except OSError:
                assert not was_over

    def kill_and_start(self) -> None:
        recovery_point = self.log.recovery_point
        del self.log
        self.log = self._open(recovery_point)
        self.log.check_invariants()

    def change(self, work: Callable[[], None]) -> bool:
        """Whether it was done. Where the log says that it failed in the middle, it is opened again."""
        try:
            work()
        except OSError:
            if not self.log.is_settled:
                with pytest.raises(OSError, match="failed in the middle"):
                    self.log.append_as_leader(make_batch(b"no"), 0)
                self.kill_and_start()
            return False
        return True

    # --- what is done to it

    def append(self, batch: RecordBatch, value: bytes | None, epoch: int) -> None:
        end_offset = self.log.log_end_offset
        is_client = not batch.is_control
        if self._writes_ahead and is_client:
            self._write_ahead(batch, epoch)
        try:
            result = self.log.append_as_leader(batch, epoch, from_client=is_client)
        except OSError:
            assert self.log.is_settled
            assert self.log.log_end_offset == end_offset
            if value is not None:
                self.refused.add(value)
            return
        assert result.base_offset == end_offset
        self.log.update_high_watermark(self.log.log_end_offset)
        if value is not None:
            self.acknowledged[result.base_offset] = value

    def _write_ahead(self, batch: RecordBatch, epoch: int) -> None:
        """To its end, or to where the client goes, or where somebody else appends what is refused."""
        for number, _ in enumerate(self.log.write_ahead(batch, epoch)):
            if number == self._number % 5:
                if self._number % 2:
                    self.log.forget_ahead(batch)
                return

    def produce(self, count: int, *, epoch: int = 0, **fields: object) -> None:
        for _ in range(count):
            self._number += 1
            value = b"%d " % self._number + b"." * (self._number * 37 % 90)
            batch = make_batch(value, key=b"%d" % self._number, timestamp=NOW + self._number, **fields)
            self.append(batch, value, epoch)

    def abort(self, epoch: int) -> None:
        """Until it is done, as a coordinator."""
        end_offset = self.log.log_end_offset
        while self.log.log_end_offset == end_offset:
            self.append(make_marker(TRANSACTIONAL_ID, is_commit=False), None, epoch)

    def flush(self) -> None:
        if not self.change(self.log.flush):
            self.kill_and_start()

    def note_recovery_point(self) -> None:
        offsets = {PARTITION: self.log.recovery_point}
        before = read_offset_checkpoint(self.checkpoint)
        is_done = self.change(lambda: write_offset_checkpoint(self.checkpoint, offsets, self.disk))
        after = read_offset_checkpoint(self.checkpoint)
        assert after == offsets if is_done else after in (before, offsets)

    def trim(self) -> None:
        """Retention takes the first segment."""
        first = self.log.segments.first
        self.change(lambda: [path.unlink() for path in self.log.delete_oldest([first])] and None)
        start = self.log.log_start_offset
        self.trimmed = {o: v for o, v in self.acknowledged.items() if o < start}

    def truncate(self, offset: int) -> None:
        cut = {o: v for o, v in self.acknowledged.items() if o >= offset}
        kept = {o: v for o, v in self.acknowledged.items() if o < offset}
        if self.change(lambda: self.log.truncate_to(offset) and None):
            assert self.log.log_end_offset == offset
            self.acknowledged = kept
            return
        end_offset = self.log.log_end_offset
        assert end_offset >= offset
        self.acknowledged = kept | {o: v for o, v in cut.items() if o < end_offset}

    def swap(self) -> None:
        """The cleaned segments hold the same records: every key is there once."""
        if not self.change(self._swap):
            self.kill_and_start()

    def _swap(self) -> None:
        self.log.roll()
        self.log.flush()
        cleaner = Cleaner(filesystem=self.disk, leaves_unchanged=False)
        for segment in cleaner.clean(log_to_clean(self.log, find_cleanable_part(self.log, None, NOW)), NOW):
            begin_swap(self.log.directory, [segment.base_offset], self.disk)
            deleted = self.log.replace_segments(segment.base_offset, segment.replaced)
            settle_swap(self.log.directory, segment.base_offset, self.disk)
            for path in deleted:
                self.disk.unlink(path)

    # --- what must hold

    def check(self) -> None:
        batches = [b for segment in self.log.segments for b in segment.batches(0) if not b.is_control]
        records = [(r.offset, r.value) for b in batches for r in b.records() if r.offset >= self.log.log_start_offset]
        start = self.log.log_start_offset
        assert {o for o, _ in records} >= self.acknowledged.keys() - self.trimmed.keys()
        assert records == sorted((o, v) for o, v in self.acknowledged.items() if o >= start)
        values = [value for _, value in records]
        assert len(values) == len(set(values))
        assert not self.refused & set(values)
        self.log.check_invariants()


def live(life: Life) -> None:
    """A little of everything."""
    life.produce(8)
    life.flush()
    life.note_recovery_point()
    life.trim()
    life.produce(6, epoch=1)
    life.truncate(life.log.log_end_offset - 4)
    life.produce(5, epoch=2)
    life.truncate(life.log.log_end_offset - 1)
    life.swap()
    fields = {"producer_id": TRANSACTIONAL_ID, "producer_epoch": 0, "is_transactional": True}
    life.produce(1, epoch=3, base_sequence=0, **fields)
    life.abort(epoch=3)
    life.produce(4, epoch=3)


@pytest.mark.parametrize(
    ("code", "window", "is_short", "step", "writes_ahead"),
    [
        (errno.EIO, 1, False, STEP, False),
        pytest.param(errno.EIO, 4, False, 9, False, marks=pytest.mark.first),
        (errno.ENOSPC, 2, False, 9, False),
        (errno.EIO, 1, True, 9, False),
        (errno.EIO, 1, False, STEP + 1, True),
        pytest.param(errno.ENOSPC, 3, False, 9, True, marks=pytest.mark.first),
        (errno.EIO, 1, True, 9, True),
    ],
    ids=[
        "EIO", "EIO four times", "ENOSPC twice", "short writes", "EIO, written ahead", "ENOSPC, written ahead",
        "short writes, written ahead",
    ],
)  # fmt: skip
def test_a_fault_at_every_call(
    code: int,
    window: int,
    is_short: bool,
    step: int,
    writes_ahead: bool,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where batches are written in pieces before they are appended, as large ones are."""
    disk = FaultyDisk(code, window, is_short=is_short)
    monkeypatch.setattr(offset_index, "FileSystem", lambda: disk)
    monkeypatch.setattr(file_records, "PIECE_BYTES", 30)
    opening = count_calls(disk, scratch, lambda life: None, writes_ahead=writes_ahead)
    total = count_calls(disk, scratch, live, writes_ahead=writes_ahead)
    assert total > opening + 100
    refusals = 0
    for number in range(opening, total - window + 1, step):
        disk.count, disk.fails_from = 0, number
        life = Life(scratch / f"{window} {number}", disk, writes_ahead=writes_ahead)
        live(life)
        assert disk.count > number
        disk.fails_from = NEVER
        life.check()
        life.kill_and_start()
        life.check()
        life.produce(4, epoch=4)
        life.kill_and_start()
        life.check()
        refusals += len(life.refused)
    assert is_short or refusals


def count_calls(disk: FaultyDisk, scratch: Path, work: Callable[[Life], None], *, writes_ahead: bool) -> int:
    disk.count, disk.fails_from = 0, NEVER
    life = Life(scratch / f"none {work.__name__}", disk, writes_ahead=writes_ahead)
    work(life)
    count = disk.count
    life.check()
    assert not life.refused
    return count
