"""Kills under real clients; `scripts/torture --kills N` does thousands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.crash.kill_loop import KillLoop

KILLS = int(os.environ.get("PLOG_KILLS", "3"))


@pytest.mark.first
def test_nothing_is_lost_doubled_or_mixed_up_by_kills(tmp_path: Path) -> None:
    report = KillLoop(tmp_path).run(KILLS)
    sys.stdout.write(f"{report}\n")
    assert report.problems == []
    assert report.kills == KILLS
    assert report.acknowledged > 20 * KILLS
    assert report.seen > 20 * KILLS
    assert report.topics_made
