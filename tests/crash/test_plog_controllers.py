"""Twelve rounds in which the controller of three plogs is killed, paused, stopped or deposed in the midst of its work.

Sessions are short, so that it goes quickly; on a busy machine one may expire all the same, which is one trouble more.
`scripts/torture --controllers` plays more rounds, `--cluster` has Kafka's brokers among them and more clients.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random

import pytest

from core.common.topic_partition import TopicPartition
from tests.crash.cluster.operators import BYSTANDERS, Operators
from tests.crash.cluster.replicas import Metadata, differences
from tests.support.load import Load
from tests.support.mixed_cluster import MixedCluster, PlogMember
from tests.support.oracle import requires_kafka39
from tests.support.waiting import wait_until

pytestmark = requires_kafka39

ROUNDS = int(os.environ.get("PLOG_CONTROLLER_ROUNDS", "12"))
FIRST = int(os.environ.get("PLOG_CONTROLLER_SEED", "0"))
NODES = (5, 6, 7)
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "log.segment.delete.delay.ms": "100",
}
LED = TopicPartition("led", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path_factory.mktemp("rounds"), 0, NODES, SETTINGS, plog_controls=True) as started:
        started.make_topic(LED.topic, NODES)
        yield started


@pytest.fixture(scope="module")
def metadata(cluster: MixedCluster) -> Iterator[Metadata]:
    with closing(Metadata(cluster.kafka.zookeeper.address)) as found:
        yield found


@pytest.fixture(scope="module")
def load(cluster: MixedCluster) -> Iterator[Load]:
    with Load(cluster.address, LED.topic) as producing:
        yield producing


def controller_of(cluster: MixedCluster, metadata: Metadata) -> PlogMember:
    wait_until(lambda: metadata.controller() in NODES, "somebody is the controller")
    return cluster.plogs[metadata.controller() or NODES[0]]


def kill(member: PlogMember, _metadata: Metadata) -> None:
    member.kill()
    member.start()


def stop(member: PlogMember, _metadata: Metadata) -> None:
    member.stop()
    member.start()


def pause(member: PlogMember, metadata: Metadata) -> None:
    """Until another one has the office; then it goes on as one that knows nothing of that."""
    member.pause()
    wait_until(lambda: metadata.controller() not in (None, member.node_id), "another one has the office")
    member.resume()


def depose(_member: PlogMember, metadata: Metadata) -> None:
    metadata.depose()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS // 4))
@pytest.mark.parametrize("harm", [kill, pause, depose, stop])
def test_whatever_was_begun_is_ended(
    cluster: MixedCluster,
    metadata: Metadata,
    load: Load,
    harm: Callable[[PlogMember, Metadata], None],
    seed: int,
) -> None:
    random = Random(f"{harm.__name__} {seed}")
    operators = Operators(cluster, metadata, random)
    name = f"{BYSTANDERS}{harm.__name__}-{seed}"
    works = [
        lambda: operators.make(name, random.randint(1, 10)),
        lambda: operators.reassign({LED: random.sample(NODES, 3)}),
        operators.come_and_go,
        operators.move,
    ]
    controller = controller_of(cluster, metadata)
    with ThreadPoolExecutor(1) as pool:
        asked = [pool.submit(work) for work in random.sample(works, 3)]
        wait_until(lambda: asked[random.randrange(2)].done() or metadata.unfinished(), "it is at work")
        harm(controller, metadata)
        for one in asked:
            one.result()
    metadata.settle(NODES)
    load.wait_for_more()


def test_nothing_was_lost_doubled_or_mixed_up(cluster: MixedCluster, metadata: Metadata, load: Load) -> None:
    load.__exit__()
    load.verify()
    metadata.settle(NODES)
    for name, state in metadata.states().items():
        folders = {node: cluster.brokers[node].data_dir / f"{name.topic}-{name.partition}" for node in state.replicas}
        wait_until(lambda folders=folders: differences(folders) == [], f"{name}: {differences(folders)}")
