"""A kill or power cut while retention deletes segments: nothing calls them lost, before the next start or after it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.inspector.check.verify import verify
from core.log.retention import delete_old_segments
from tests.support.disk import RecordingFileSystem, crash_states, disk_after
from tests.support.logs import NOW, append, make_batch, open_log

DAY_MS = 86_400_000


@pytest.mark.first
def test_segments_that_retention_was_deleting_are_not_lost(scratch: Path) -> None:
    disk = RecordingFileSystem()
    root = scratch / "life"
    log = open_log(root / "t-0", filesystem=disk, segment_bytes=100, retention_ms=DAY_MS)
    for number in range(6):
        append(log, make_batch(b"x", timestamp=NOW - (9 if number < 4 else 0) * DAY_MS))
    disk.operations.clear()
    disk.adopt(root)
    before = len(disk.operations)
    assert delete_old_segments(log, NOW)
    assert len(disk.operations) > before + 8, "the files of four segments are renamed"

    for at in range(before, len(disk.operations) + 1):
        state = disk_after(root, disk.operations[:at]).write_to(scratch / "state")
        assert not [finding for finding in verify(state / "t-0") if finding.records]
        ensure_start_is_explained(state)
        assert not [finding for finding in verify(state / "t-0") if finding.records]
        for torn in crash_states(root, disk.operations[:at], random.Random(at), subsets_up_to=2, samples=1):
            ensure_start_is_explained(torn.write_to(scratch / "state"))


def ensure_start_is_explained(root: Path) -> None:
    """Before a start, which takes the `.deleted` files away, and after it."""
    assert KnownOffsetsOfDirectory(root).of(root / "t-0").known_start is None
    open_log(root / "t-0", had_clean_shutdown=False, segment_bytes=100).close()
    assert KnownOffsetsOfDirectory(root).of(root / "t-0").known_start is None
