"""Exactly-once copiers of Kafka Streams, librdkafka and franz-go, whose brokers are killed and paused, in a cluster of
three plogs: at first with transactions as they always were, then with transaction.version 2, finalized in the midst of
it. Each record is copied once, in order, and no transaction is left open.

`scripts/torture --copiers N` has so many more deeds, drawn from a seed, also beside Kafka's brokers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.cluster.replicas import Metadata
from tests.crash.copiers.copier_chaos import (
    CopierChaos,
    finalize_transactions,
    make_topics,
    transactional_ids,
    wait_until_equal,
)
from tests.crash.copiers.copier_crew import CopierCrew
from tests.support.mixed_cluster import MixedCluster
from tests.support.oracle import requires_kafka, requires_kafka39
from tests.support.waiting import wait_until

pytestmark = [requires_kafka, requires_kafka39, pytest.mark.java]

DEEDS = int(os.environ.get("PLOG_COPIERS", "0"))
SEED = int(os.environ.get("PLOG_COPIERS_SEED", "1"))
KAFKAS, PLOGS = map(int, os.environ.get("PLOG_COPIERS_BROKERS", "0 3").split())

NODES = (5, 6, 7)
SETTINGS = {"zookeeper.session.timeout.ms": "4000", "replica.lag.time.max.ms": "6000"}


class Trouble:
    """Does harm to brokers, and has the copiers go on each time."""

    def __init__(self, cluster: MixedCluster, metadata: Metadata, crew: CopierCrew) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._crew = crew
        self._started_s = time.monotonic()

    def controller(self) -> int:
        wait_until(lambda: self._metadata.controller() in NODES, "somebody is the controller")
        return self._metadata.controller() or NODES[0]

    def others(self) -> list[int]:
        """All but the controller."""
        controller = self.controller()
        return [node for node in NODES if node != controller]

    def kill(self, *nodes: int) -> None:
        """They are started again when the others have gone on without them."""
        for node in nodes:
            self._cluster.plogs[node].kill()
        self._crew.wait_for_progress()
        for node in nodes:
            self._cluster.plogs[node].start()
        self._come_home()

    def pause(self, node: int) -> None:
        """Until it is taken for dead, and the others have gone on without it."""
        self._cluster.plogs[node].pause()
        wait_until(lambda: node not in self._metadata.alive(), "it is taken for dead")
        self._crew.wait_for_progress()
        self._cluster.plogs[node].resume()
        self._come_home()

    def _come_home(self) -> None:
        """Each leads again what it is to lead, so that whoever is next in trouble has its share."""
        self._metadata.settle(NODES)
        names = list(self._metadata.states())
        wait_until(lambda: self._cluster.elect_preferred(names) == 0, "all lead what they are to lead")
        self._crew.wait_for_progress()

    def tell(self, what: str) -> None:
        now_s = time.monotonic()
        sys.stdout.write(f"{what}: {now_s - self._started_s:.1f} s, {self._crew.total} records\n")
        self._started_s = now_s


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path, 0, NODES, SETTINGS, plog_controls=True) as started:
        yield started


@pytest.fixture
def metadata(cluster: MixedCluster) -> Iterator[Metadata]:
    with closing(Metadata(cluster.kafka.zookeeper.address)) as found:
        yield found


def test_each_record_is_copied_once_whatever_happens_to_brokers(
    cluster: MixedCluster, metadata: Metadata, tmp_path: Path
) -> None:
    make_topics(cluster, NODES)
    with CopierCrew(cluster.address, tmp_path / "copiers", transactional_ids(), instances=1) as crew:
        trouble = Trouble(cluster, metadata, crew)
        crew.wait_for_progress()
        trouble.tell("all copy")
        trouble.kill(trouble.controller())
        trouble.tell("the controller was killed")
        finalize_transactions(cluster)
        trouble.pause(trouble.controller())
        trouble.tell("transaction.version 2 was finalized, and the next controller paused")
        trouble.kill(*trouble.others())
        trouble.tell("all but the controller were killed")
        crew.finish()
        trouble.tell("the end")
    sys.stdout.write(f"begun again: {crew.begun_again()}\n")
    wait_until_equal(cluster, metadata)


@pytest.mark.skipif(not DEEDS, reason="scripts/torture --copiers plays it")
def test_copiers_go_on_at_length() -> None:
    """What a failure leaves is kept, outside of pytest's folders, which go with later runs."""
    directory = Path(tempfile.mkdtemp(prefix=f"plog-copiers-{SEED}-"))
    crew = CopierChaos(directory, seed=SEED, kafkas=KAFKAS, plogs=PLOGS).run(DEEDS)
    sys.stdout.write(f"{crew.total} records; begun again: {crew.begun_again()}\n")
    assert crew.total > 20 * DEEDS
    shutil.rmtree(directory)
