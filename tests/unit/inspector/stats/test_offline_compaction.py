"""Offline compaction where the disk refuses, or files are odd."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.inspector.stats.offline_compaction import CompactionOptions, OfflineCompaction
from tests.support import crafted, doors
from tests.support.compaction import log_files
from tests.support.logs import NOW, FullDisk, append, make_batch, open_log
from tests.support.manual_clock import ManualClock

T0 = TopicPartition("t", 0)


def test_a_full_disk_leaves_the_old_log_and_nothing_else(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=500)
    for number in range(40):
        append(log, make_batch(b"%d" % number, key=b"k%d" % (number % 5)))
    log.roll()
    log.close()
    before = log_files(tmp_path / "t-0")
    disk = FullDisk()
    disk.is_full = True
    options = CompactionOptions({"cleanup.policy": "compact"})
    compaction = OfflineCompaction(tmp_path / "t-0", options, clock=ManualClock(NOW), filesystem=disk)
    with pytest.raises(AccessError, match="no space left"):
        compaction.apply(T0)
    assert log_files(tmp_path / "t-0") == before
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    disk.is_full = False
    stats = compaction.apply(T0).stats
    assert stats is not None
    assert stats.records_after == 5


def test_a_plan_writes_nothing_where_an_index_leads_astray(tmp_path: Path) -> None:
    """The cleaner makes such an index again when it meets it; a plan does so in the shadow of the folder."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=64)
    for number in range(40):
        append(log, make_batch(b"%d" % number, key=b"k%d" % (number % 5)))
    log.roll()
    append(log, make_batch(b"40", key=b"k0"))
    log.close()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    index = tmp_path / "t-0" / f"{0:020d}.index"
    entries = bytearray(index.read_bytes())
    for position in range(7, len(entries) - 8, 8):  # but for the last one, which a start looks at
        entries[position] ^= 1
    index.write_bytes(entries)
    before = {path: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    compaction = OfflineCompaction(
        tmp_path / "t-0", CompactionOptions({"cleanup.policy": "compact"}), clock=ManualClock(NOW)
    )
    assert compaction.plan(T0).stats is not None
    assert {path: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == before


def folder_of_sealed_segments(tmp_path: Path) -> Path:
    """Three sealed segments with index entries, and an active one; the cleaner came to offset 20, amid the second."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=64)
    for number in range(48):
        append(log, make_batch(b"%d" % number, key=b"k%d" % (number % 5)))
        if number % 16 == 15:
            log.roll()
    append(log, make_batch(b"48", key=b"k0"))
    log.close()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    return tmp_path / "t-0"


def plan(directory: Path) -> tuple[str | None, int, int]:
    """Gives what is refused, how many records there are, and how many would be left."""
    options = CompactionOptions({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    found = OfflineCompaction(directory, options, clock=ManualClock(NOW)).plan(T0)
    assert found.stats is not None, found.refusal or found.waits
    return found.refusal, found.stats.records_before, found.stats.records_after


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_plan_is_the_same_whatever_an_index_says(tmp_path: Path, suffix: str) -> None:
    """Of 48 records in the sealed segments the last one of each of five keys stays."""
    folder = folder_of_sealed_segments(tmp_path)
    for content in (b"", b"x" * 7, b"\xff" * 24, bytes(24), b"\x7f" * 48, None):
        for base_offset in (0, 16, 32):
            path = folder / f"{base_offset:020d}{suffix}"
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        before = {path: path.read_bytes() for path in folder.iterdir()}
        assert plan(folder) == (None, 48, 5), content
        assert {path: path.read_bytes() for path in folder.iterdir()} == before, content


def test_a_plan_tells_of_damage_in_a_segment_without_a_sound_index(tmp_path: Path) -> None:
    folder = folder_of_sealed_segments(tmp_path)
    (folder / f"{16:020d}.index").write_bytes(b"x" * 7)
    log = folder / f"{16:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    found = OfflineCompaction(folder, CompactionOptions({"cleanup.policy": "compact"}), clock=ManualClock(NOW)).plan(T0)
    assert found.stats is None
    assert found.refusal is not None
    assert "offset 31" in found.refusal


def test_an_empty_segment_needs_no_time_index(tmp_path: Path) -> None:
    folder = folder_of_sealed_segments(tmp_path)
    (folder / f"{48:020d}.log").unlink()
    for suffix in (".index", ".timeindex"):
        (folder / f"{48:020d}{suffix}").unlink()
    for base_offset, suffix in ((48, ".log"), (48, ".index"), (49, ".log"), (49, ".index")):
        (folder / f"{base_offset:020d}{suffix}").touch()
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert plan(folder) == (None, 48, 5)


def test_zeros_up_to_a_files_full_size_are_no_damage_but_the_segment_is_not_sealed_over_them(tmp_path: Path) -> None:
    """`plog recover`, to which damage is referred, would find nothing to mend."""
    first, last = crafted.batch(0, [(b"a", b"1"), (b"a", b"2")]), crafted.batch(2, [(b"b", b"1")])
    folder = crafted.write_partition(tmp_path / "t-0", {0: first, 2: last + bytes((1 << 18) - len(last))})
    for rolls, refusal in ((True, "zeros follow the last batch"), (False, "")):
        plan = OfflineCompaction(folder, CompactionOptions({"cleanup.policy": "compact"}, rolls=rolls)).apply(T0)
        assert (plan.refusal or "").partition(",")[0] == refusal
    assert sorted(doors.consume(folder)) == [1, 2]
