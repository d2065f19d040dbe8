"""A cluster of Kafka's brokers and plog's, killed and paused under load: `scripts/torture --cluster N`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.cluster.cluster_chaos import ClusterChaos
from tests.crash.cluster.replicas import differences, differences_of_keys
from tests.support.logs import append, make_batch, open_log
from tests.support.oracle import requires_kafka39

DEEDS = int(os.environ.get("PLOG_CLUSTER_DEEDS", "0"))
SEED = int(os.environ.get("PLOG_CLUSTER_SEED", "1"))
PLOG_CONTROLS = "plog" in os.environ.get("PLOG_CLUSTER_CONTROLLER", "")
ONLY = os.environ.get("PLOG_CLUSTER_ONLY", "")
KAFKAS, PLOGS = map(int, os.environ.get("PLOG_CLUSTER_BROKERS", "2 2").split())


@requires_kafka39
@pytest.mark.skipif(not DEEDS, reason="scripts/torture --cluster plays it")
def test_nothing_is_lost_doubled_or_mixed_up_in_a_cluster() -> None:
    """What a problem leaves is kept, outside of pytest's folders, which go with later runs."""
    directory = Path(tempfile.mkdtemp(prefix=f"plog-cluster-{SEED}-"))
    chaos = ClusterChaos(directory, seed=SEED, kafkas=KAFKAS, plogs=PLOGS, plog_controls=PLOG_CONTROLS, only=ONLY)
    report = chaos.run(DEEDS)
    sys.stdout.write(f"{report}\n")
    assert report.problems == [], f"the evidence is in {directory}"
    shutil.rmtree(directory)
    assert report.acknowledged > 20 * DEEDS
    assert report.transactions > DEEDS
    assert report.copies > DEEDS


def make_replica(folder: Path, values: Sequence[str], *, segment_bytes: int = 300) -> None:
    log = open_log(folder, segment_bytes=segment_bytes)
    for value in values:
        append(log, make_batch(value.encode()))
    log.close()


@pytest.mark.first
def test_equal_replicas_may_roll_and_begin_elsewhere(tmp_path: Path) -> None:
    folders = {1: tmp_path / "1", 5: tmp_path / "5"}
    make_replica(folders[1], list("abcdefgh"))
    make_replica(folders[5], list("abcdefgh"), segment_bytes=500)
    assert len({tuple(sorted(path.name for path in folder.glob("*.log"))) for folder in folders.values()}) == 2
    (folders[5] / "00000000000000000000.log").unlink()
    assert differences(folders) == differences_of_keys(folders) == []


@pytest.mark.first
@pytest.mark.parametrize("values", ["abcdefg", "abcdefgx", "abcdefghi"])
def test_unequal_replicas_are_found(values: str, tmp_path: Path) -> None:
    folders = {1: tmp_path / "1", 5: tmp_path / "5"}
    make_replica(folders[1], list("abcdefgh"))
    make_replica(folders[5], list(values))
    (difference,) = differences(folders)
    assert difference.startswith("brokers 1 and 5 differ at 1 of 8 batches, first at offset ")
    assert differences_of_keys(folders) == ["brokers 1 and 5 differ in 2 records of 1"]
