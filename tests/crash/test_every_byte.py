"""Every byte of a directory flipped, every file cut at every length: nothing crashes or hangs, and no wrong record is
read unless `plog verify` says so, or docs/findings.md lists the damage as undetectable.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.errors import CorruptRecordError, PlogError
from core.common.filesystem import FileSystem
from core.files.log_config import LogConfig
from core.inspector.check.verify import verify
from core.log.log_loader import LogSettings, load_log
from core.records.batches import iter_whole_batches
from core.records.record import Record
from tests.support.logs import NOW, PARTITION, append, iter_batches, make_batch, open_log
from tests.support.manual_clock import ManualClock

STEP = int(os.environ.get("PLOG_EVERY_BYTE_STEP", "17"))
"""`scripts/torture --every-byte` leaves none out."""

UNDETECTABLE_HEADER_BYTES = {*range(8), *range(12, 16)}
"""Base offset and leader epoch of a batch: they are in no checksum."""


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="plog-bytes-", dir=memory if memory.is_dir() else None) as directory:
        log = open_log(Path(directory) / "original" / "t-0", segment_bytes=2200, index_interval_bytes=300)
        for number in range(34):
            batch = make_batch(
                b"a %d " % number + b"." * (number * 53 % 190), b"b" * 40, producer_id=7, producer_epoch=0,
                base_sequence=2 * number,
            )  # fmt: skip
            append(log, batch)
        log.close()
        yield Path(directory)


class Found:
    """What a reader gets of a folder: records by offset, offsets known to be damaged, the log's end."""

    def __init__(self, folder: Path, *, clean: bool) -> None:
        self.records: dict[int, Record] = {}
        self.damaged: set[int] = set()
        log = load_log(
            folder,
            PARTITION,
            LogConfig(segment_bytes=2200, index_interval_bytes=300),
            LogSettings(ManualClock(NOW), FileSystem()),
            recovery_point=68,
            had_clean_shutdown=clean,
        ).log
        log.update_high_watermark(log.log_end_offset)
        log.check_invariants()
        self.end_offset = log.log_end_offset
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                region = log.read(offset, 1 << 20, log.log_end_offset).region
            except CorruptRecordError as error:
                gap = next((g for g in log.gaps if g.start_offset <= offset < g.end_offset), None)
                if gap is None:  # what a broker does when a reader meets it
                    segment = next(s for s in log.segments if str(s.records.path) == error.path)
                    log.note_damage(segment.find_gap(error.position, segment.reading(log.end_of(segment))))
                    continue
                self.damaged |= set(range(gap.start_offset, gap.end_offset))
                offset = gap.end_offset
                continue
            if region is None:
                break
            offset = self._take(region.read(), offset)
        log.close()

    def _take(self, data: bytes, offset: int) -> int:
        """As a client does, which then seeks past what is no sound batch: that is an error, not a record."""
        start = offset
        try:
            for batch in iter_whole_batches(memoryview(data)):
                batch.ensure_valid()
                records = {r.offset: r for r in batch.records()}
                self.records |= {o: r for o, r in records.items() if o >= start}
                offset = max(offset, batch.next_offset)
        except PlogError:
            if offset == start:
                self.damaged.add(offset)
        return max(offset, start + 1)


def is_undetectable(name: str, data: bytes, position: int) -> bool:
    if not name.endswith(".log"):
        return False
    return any(position - batch.position in UNDETECTABLE_HEADER_BYTES for batch in iter_batches(memoryview(data)))


def check(original: Path, name: str, content: bytes, *, clean: bool, may_be_silent: bool) -> None:
    folder = original / "work" / "t-0"
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(original / "original", folder.parent)
    (folder / name).write_bytes(content)
    findings = list(verify(folder))
    assert (folder / name).read_bytes() == content
    found = Found(folder, clean=clean)
    missing = set(range(68)) - set(found.records) - found.damaged
    wrong = {o for o, r in found.records.items() if TRUTH.get(o) != r}
    assert findings or may_be_silent or not (missing or wrong), (name, missing, wrong)


TRUTH: dict[int, Record] = {}


@pytest.fixture(autouse=True, scope="module")
def truth(original: Path) -> None:
    found = Found(Path(shutil.copytree(original / "original", original / "truth")) / "t-0", clean=True)
    assert sorted(found.records) == list(range(68))
    assert not found.damaged
    TRUTH.update(found.records)
    files = list((original / "original" / "t-0").iterdir())
    assert len([f for f in files if f.suffix == ".log"]) > 2
    assert 7000 < sum(f.stat().st_size for f in files) < 10_000


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_every_byte_flipped(original: Path, clean: bool) -> None:
    for path in sorted((original / "original" / "t-0").iterdir()):
        data = path.read_bytes()
        for position in range(0, len(data), STEP if clean else STEP * 5):
            changed = bytearray(data)
            changed[position] ^= 1 << (position % 8)
            silent = is_undetectable(path.name, data, position)
            check(original, path.name, bytes(changed), clean=clean, may_be_silent=silent)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_every_length(original: Path, clean: bool) -> None:
    for path in sorted((original / "original" / "t-0").iterdir()):
        data = path.read_bytes()
        for length in range(0, len(data), STEP if clean else STEP * 5):
            check(original, path.name, data[:length], clean=clean, may_be_silent=False)
