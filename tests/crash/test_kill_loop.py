"""Kills under real clients; `scripts/torture --kills N` does thousands. test_chaos.py knows other troubles, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.crash.chaos.chaos import Chaos

KILLS = int(os.environ.get("PLOG_KILLS", "3"))
CLIENTS = ("producer", "plain", "reader", "teller")


@pytest.mark.first
def test_nothing_is_lost_doubled_or_mixed_up_by_kills(tmp_path: Path) -> None:
    report = Chaos(tmp_path, clients=CLIENTS, deeds=("kill", "kill twice"), compiler=None).run(KILLS)
    sys.stdout.write(f"{report}\n")
    assert report.problems == []
    assert sum(report.deeds.values()) == KILLS
    assert report.acknowledged > 20 * KILLS
    assert report.transactions > KILLS
