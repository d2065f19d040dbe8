"""A cluster of Kafka's brokers and plog's, killed and paused under load: `scripts/torture --cluster N`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.crash.cluster.cluster_chaos import ClusterChaos
from tests.support.oracle import requires_kafka39

DEEDS = int(os.environ.get("PLOG_CLUSTER_DEEDS", "0"))
SEED = int(os.environ.get("PLOG_CLUSTER_SEED", "1"))


@requires_kafka39
@pytest.mark.skipif(not DEEDS, reason="scripts/torture --cluster plays it")
def test_nothing_is_lost_doubled_or_mixed_up_in_a_cluster() -> None:
    """What a problem leaves is kept, outside of pytest's folders, which go with later runs."""
    directory = Path(tempfile.mkdtemp(prefix=f"plog-cluster-{SEED}-"))
    report = ClusterChaos(directory, seed=SEED).run(DEEDS)
    sys.stdout.write(f"{report}\n")
    assert report.problems == [], f"the evidence is in {directory}"
    shutil.rmtree(directory)
    assert report.acknowledged > 20 * DEEDS
    assert report.transactions > DEEDS
    assert report.copies > DEEDS
