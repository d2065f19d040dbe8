"""A replay killed in every way: what is in the folder at the end is in it once. scripts/torture does it longer."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from tests.support.spark.kills import KilledReplay, fill

IS_TORTURE = "PLOG_TORTURE_SPARK" in os.environ
ROUNDS = int(os.environ.get("PLOG_TORTURE_SPARK", "1"))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_replay_that_is_killed_is_exact_in_the_end(tmp_path: Path, seed: int) -> None:
    """Among its files, by Ctrl-C, a worker of it, and between the last file and the manifest; in torture also at any
    time.
    """
    fill(tmp_path / "data")
    replay = KilledReplay(tmp_path / "data", tmp_path / "out", Random(seed))
    replay.kill_among_files()
    assert not replay.is_done
    replay.interrupt()
    assert not replay.is_done
    replay.kill_worker()
    assert not replay.is_done
    if IS_TORTURE:
        replay.kill_any_time()
    if not replay.is_done:
        replay.kill_before_manifest()
        assert not replay.is_done
    replay.prove()
    assert replay.kills >= 3


def test_a_killed_drivers_tasks_write_no_more_when_another_took_over(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    replay = KilledReplay(tmp_path / "data", tmp_path / "out", Random(0))
    tasks = replay.kill_driver_while_tasks_stand_still()
    replay.take_over(tasks)
    replay.prove()
