"""Offline compaction where the disk refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.clock import ManualClock
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.inspector.compaction import Compaction, CompactionOptions
from tests.support.compaction import log_files
from tests.support.logs import NOW, FullDisk, append, make_batch, open_log

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
    compaction = Compaction(tmp_path / "t-0", options, clock=ManualClock(NOW), filesystem=disk)
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
    compaction = Compaction(tmp_path / "t-0", CompactionOptions({"cleanup.policy": "compact"}), clock=ManualClock(NOW))
    assert compaction.plan(T0).stats is not None
    assert {path: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == before
