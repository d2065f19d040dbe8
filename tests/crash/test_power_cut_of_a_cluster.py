"""Three brokers lose power at once, and what was acknowledged is there in the end. `scripts/torture
--cluster-power-cuts` plays more histories, on more brokers, also with Kafka's among them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.cluster.power_cuts import (
    HISTORIES,
    NEEDS_PLOGS_ALONE,
    History,
    PowerCuts,
    play,
    stopped,
    two_back_then_the_third,
)
from tests.support.oracle import requires_kafka39

pytestmark = requires_kafka39

RUNS = int(os.environ.get("PLOG_CLUSTER_POWER_CUTS", "0"))
SEED = int(os.environ.get("PLOG_CLUSTER_POWER_CUTS_SEED", "1"))
KAFKAS, PLOGS = map(int, os.environ.get("PLOG_CLUSTER_POWER_CUTS_BROKERS", "0 4").split())
ONLY = os.environ.get("PLOG_CLUSTER_POWER_CUTS_ONLY", "")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerCuts]:
    with PowerCuts(tmp_path_factory.mktemp("cuts"), Random(1), plogs=3) as cuts:
        yield cuts


@pytest.mark.parametrize("history", [two_back_then_the_third, stopped])
def test_what_was_acknowledged_is_kept(three: PowerCuts, history: History) -> None:
    play(three, history, Random(1), with_transfers=False)


@pytest.mark.skipif(not RUNS, reason="scripts/torture --cluster-power-cuts plays it")
@pytest.mark.parametrize("run", range(RUNS))
def test_histories_of_power_cuts(run: int) -> None:
    """What a problem leaves is kept, outside of pytest's folders, which go with later runs."""
    random = Random(SEED + run)
    directory = Path(tempfile.mkdtemp(prefix=f"plog-power-cuts-{SEED + run}-"))
    histories = [one for one in HISTORIES if not (KAFKAS and one in NEEDS_PLOGS_ALONE)]
    with PowerCuts(directory, random, kafkas=KAFKAS, plogs=PLOGS) as cuts:
        cuts.note(f"seed {SEED + run}, the evidence is in {directory}")
        for history in random.sample(histories, len(histories)):
            if ONLY in history.__name__:
                play(cuts, history, random)
    shutil.rmtree(directory)
