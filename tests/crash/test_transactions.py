"""Kills at every step of transactions; `scripts/torture --transaction-kills N` does hundreds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest

from tests.crash.transaction_kills import STEPS, TransactionKills
from tests.crash.transaction_life import transaction_life
from tests.support.disk import crash_states

KILLS = int(os.environ.get("PLOG_TRANSACTION_KILLS", "20"))
SAMPLES = int(os.environ.get("PLOG_CRASH_SAMPLES", "1"))
STEP = 1 if SAMPLES > 1 else 3


@pytest.mark.parametrize("version", [1, pytest.param(2, marks=pytest.mark.first)])
def test_transactions_are_whole_whenever_the_broker_dies(tmp_path: Path, version: int) -> None:
    kills = TransactionKills(tmp_path, Random(version), version)
    kills.run(KILLS // 2)
    sys.stdout.write(f"{kills.kills}, {len(kills.wanted)} of {kills.number} transactions committed\n")
    assert sum(kills.kills.values()) == KILLS // 2
    assert set(STEPS) <= kills.kills.keys()
    assert len(kills.wanted) > KILLS // 4
    assert kills.left_to_time


@pytest.mark.parametrize("version", [1, pytest.param(2, marks=pytest.mark.first)])
def test_transactions_are_whole_after_a_power_cut_where_every_record_is_flushed(scratch: Path, version: int) -> None:
    life = transaction_life(scratch / "life", version)
    random = Random(version)
    states = 0
    for at in range(life.begun[0] - version, len(life.disk.operations) + 1, STEP):
        operations = life.disk.operations[:at]
        for disk in crash_states(life.directory, operations, random, subsets_up_to=2, samples=SAMPLES):
            life.check(disk.write_to(scratch / "state"), at)
            states += 1
    sys.stdout.write(f"{states} states of the disk\n")
    assert states > 100
