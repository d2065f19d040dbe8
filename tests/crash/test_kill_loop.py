"""Kills under real clients; `scripts/torture --kills N` does thousands. test_chaos.py knows other troubles, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.crash.chaos.chaos import Chaos

KILLS = int(os.environ.get("PLOG_KILLS", "6"))
CLIENTS = ("producer", "plain", "reader", "teller")


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.first), KILLS])
def test_nothing_is_lost_doubled_or_mixed_up_by_kills(tmp_path: Path, kills: int) -> None:
    report = Chaos(tmp_path, clients=CLIENTS, deeds=("kill", "kill twice"), compiler=None).run(kills)
    sys.stdout.write(f"{report}\n")
    assert report.problems == []
    assert sum(report.deeds.values()) == kills
    assert report.acknowledged > 20 * kills
    assert report.transactions > kills
