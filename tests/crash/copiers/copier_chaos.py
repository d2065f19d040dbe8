"""Exactly-once copiers in a cluster that a nemesis troubles at length: `scripts/torture --copiers N`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

from core.broker.coordinators.consumer_offsets_topic import GROUPS_TOPIC
from core.broker.coordinators.transaction_state_topic import TRANSACTIONS_TOPIC
from core.client.cluster_admin.cluster_admin import ClusterAdmin
from core.client.net.kafka_client import KafkaClient
from core.cluster.image.feature_levels import FeatureUpdate, UpgradeType
from core.common.endpoint import parse_bootstrap
from core.files.file_names import partition_directory_name
from tests.crash.cluster.cluster_nemesis import ClusterNemesis
from tests.crash.cluster.network import Network
from tests.crash.cluster.operators import Operators
from tests.crash.cluster.replicas import Metadata, differences, differences_of_keys
from tests.crash.copiers.copier_crew import CopierCrew
from tests.crash.copiers.copier_process import COUNTS, SOURCE
from tests.crash.copiers.librdkafka_copier import PARTITIONS
from tests.interop.test_mixed_coordinators import kept_in
from tests.support.mixed_cluster import MixedCluster
from tests.support.waiting import wait_until

SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
_REST = 0.3
"""How often the next deed comes before all is well again."""


class CopierChaos:
    """`run` it once. What it leaves in `directory` after a failure is the evidence."""

    def __init__(self, directory: Path, *, seed: int, kafkas: int, plogs: int) -> None:
        """One of plog's is the first controller. With no Kafkas, `transaction.version` 2 is finalized half-way."""
        self._directory = directory
        self._random = Random(seed)
        self._kafkas = kafkas
        self._plogs = range(5, 5 + plogs)

    def run(self, deeds: int) -> CopierCrew:
        """AssertionError if anything is lost, doubled, mixed up, left open, or stands still."""
        with Network([*range(1, 1 + self._kafkas), *self._plogs], _note) as network:
            return self._run(deeds, network)

    def _run(self, deeds: int, network: Network) -> CopierCrew:
        self._make_cluster(network)
        with self._cluster, closing(Metadata(self._cluster.kafka.zookeeper.address)) as self._metadata:
            operators = Operators(self._cluster, self._metadata, self._random)
            nemesis = ClusterNemesis(
                self._cluster,
                self._metadata,
                self._random,
                operators,
                network,
                lambda _broker: None,
                has_disks=False,
            )
            make_topics(self._cluster, list(self._cluster.brokers))
            crew = CopierCrew(self._cluster.address, self._directory / "copiers", transactional_ids(), instances=2)
            with crew:
                crew.wait_for_progress()
                for number in range(deeds):
                    if number == deeds // 2 and not self._kafkas:
                        _note("transaction.version 2 is finalized")
                        finalize_transactions(self._cluster)
                    self._deed(nemesis, crew)
                self._wait_for_sync()
                crew.finish()
            wait_until_equal(self._cluster, self._metadata)
        return crew

    def _make_cluster(self, network: Network) -> None:
        self._cluster = MixedCluster(
            self._directory,
            self._kafkas,
            self._plogs,
            SETTINGS,
            plog_controls=True,
            place_of=network.place_of,
            zookeeper=network.zookeeper,
        )

    def _deed(self, nemesis: ClusterNemesis, crew: CopierCrew) -> None:
        deed = nemesis.draw()
        _note(f"{deed} ..")
        _note(f"{deed}: {nemesis.strike(deed)}")
        if self._random.random() < _REST:
            _note(f"rest: {nemesis.rest()}")
            return
        self._wait_for_sync()
        crew.wait_for_progress(self._ensure_running)
        _note(f"all is well; {crew.total} records, begun again {crew.begun_again()}")

    def _wait_for_sync(self) -> None:
        self._metadata.settle(self._cluster.brokers, self._ensure_running)

    def _ensure_running(self) -> None:
        """A plog that ends by itself is a failure; Kafka's brokers do so, and are started again."""
        for member in self._cluster.plogs.values():
            process = member.server.process
            assert process is not None
            assert process.poll() is None, f"plog {member.node_id} ended by itself with {process.poll()}"
        for broker in self._cluster.kafka.brokers.values():
            if not broker.is_running:
                _note(f"Kafka {broker.node_id} ended by itself")
                broker.start()


def make_topics(cluster: MixedCluster, nodes: Sequence[int]) -> None:
    """Each of three brokers is the preferred leader of one partition of each topic."""
    replicas = [[nodes[(turn + i) % len(nodes)] for i in range(3)] for turn in range(PARTITIONS)]
    for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        cluster.make_topic(topic, *replicas, cleanup_policy="compact", segment_bytes="104857600")
    for topic in (SOURCE, "out-confluent", "out-idempotent", "out-franz", COUNTS):
        cluster.make_topic(topic, *replicas)


def transactional_ids() -> dict[str, str]:
    """Each is kept in another partition."""
    return {name: kept_in(number, name) for number, name in enumerate(("confluent", "franz"))}


def finalize_transactions(cluster: MixedCluster) -> None:
    """Raises the cluster's `transaction.version` to 2."""
    with closing(KafkaClient(parse_bootstrap(cluster.address))) as client:
        update = FeatureUpdate("transaction.version", 2, UpgradeType.UPGRADE)
        assert ClusterAdmin(client).update_features([update]) == {}


def wait_until_equal(cluster: MixedCluster, metadata: Metadata) -> None:
    """Until the logs of all replicas are equal; in what each broker compacts or cuts by itself, the latest records."""
    for name, state in metadata.states().items():
        find = differences_of_keys if "__" in name.topic or name.topic.endswith("-changelog") else differences
        folders = {node: cluster.brokers[node].data_dir / partition_directory_name(name) for node in state.replicas}
        differ = partial(find, folders)
        wait_until(lambda differ=differ: differ() == [], lambda name=name, differ=differ: f"{name}: {differ()}")


def _note(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()
