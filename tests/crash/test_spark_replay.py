"""A replay killed in every way: what is in the folder at the end is in it once. scripts/torture does it longer."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from tests.support.spark.kills import KilledReplay, fill
from tests.support.spark.standalone import StandaloneCluster

ROUNDS = int(os.environ.get("PLOG_TORTURE_SPARK", "1"))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_replay_that_is_killed_is_exact_in_the_end(tmp_path: Path, seed: int) -> None:
    """Among its files, by Ctrl-C, a worker of it, at any time, and between the last file and the manifest."""
    fill(tmp_path / "data")
    replay = KilledReplay(tmp_path / "data", tmp_path / "out", Random(seed))
    replay.kill_among_files()
    assert not replay.is_done
    replay.interrupt()
    assert not replay.is_done
    replay.kill_worker()
    assert not replay.is_done
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


def test_a_cluster_that_loses_a_worker_goes_on_with_the_other(tmp_path: Path) -> None:
    """Its tasks, some of them in the middle of a file, are done again by the other."""
    fill(tmp_path / "data")
    with StandaloneCluster(tmp_path / "cluster", workers=2, cores=1) as cluster:
        replay = KilledReplay(tmp_path / "data", tmp_path / "out", Random(0), master=cluster.url)
        replay.lose_worker_of_cluster(cluster.kill_worker)
        replay.prove()
