"""Rounds in which the controller of three plogs is killed, paused, stopped, deposed or cut off in the midst of
its work, or its disk is full.

Sessions are short, so that it goes quickly; on a busy machine one may expire all the same, which is one trouble more.
`scripts/torture --controllers` plays more rounds, `--cluster` has Kafka's brokers among them and more clients.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from random import Random
from typing import NamedTuple

import pytest

from core.common.topic_partition import TopicPartition
from tests.crash.chaos.small_disk import SmallDisk, filled, may_mount
from tests.crash.cluster.network import Network
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
HARMS = 6
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "log.segment.delete.delay.ms": "100",
}
LED = TopicPartition("led", 0)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(NODES, sys.stdout.write) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[MixedCluster]:
    """Each broker has a disk that can be filled, if that may be."""
    folder = tmp_path_factory.mktemp("rounds")
    made = MixedCluster(
        folder, 0, NODES, SETTINGS, plog_controls=True, place_of=network.place_of, zookeeper=network.zookeeper
    )
    with ExitStack() as disks:
        for member in made.plogs.values() if may_mount(folder) else ():
            disks.enter_context(SmallDisk(member.data_dir))
        with made:
            made.make_topic(LED.topic, NODES)
            yield made


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


class Round(NamedTuple):
    """What a harm is done to, `member` first, and with what."""

    member: PlogMember
    metadata: Metadata
    network: Network
    load: Load
    random: Random

    def wait_for_another(self) -> None:
        wait_until(lambda: self.metadata.controller() not in (None, self.member.node_id), "another one has the office")


def kill(done: Round) -> None:
    done.member.kill()
    done.member.start()


def stop(done: Round) -> None:
    done.member.stop()
    done.member.start()


def pause(done: Round) -> None:
    """Until another one has the office; then it goes on as one that knows nothing of that."""
    done.member.pause()
    done.wait_for_another()
    done.member.resume()


def depose(done: Round) -> None:
    done.metadata.depose()


def cut_off(done: Round) -> None:
    """From everybody, or only from ZooKeeper: then it goes on to lead and to follow as if nothing had happened."""
    if not done.network.is_possible:
        pytest.skip(done.network.reason)
    ways = (done.network.cut_off, done.network.cut_from_zookeeper)
    with done.random.choice(ways)(done.member.node_id):
        done.wait_for_another()


def fill_disk(done: Round) -> None:
    """Others lead what it led and can't write, until it is started again with room on its disk."""
    if not done.member.data_dir.is_mount():
        pytest.skip("only root may mount disks that can be filled")
    with filled(done.member.data_dir):
        done.load.wait_for_more()
    stop(done)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS // HARMS))
@pytest.mark.parametrize("harm", [kill, pause, depose, stop, cut_off, fill_disk])
def test_whatever_was_begun_is_ended(
    cluster: MixedCluster,
    metadata: Metadata,
    network: Network,
    load: Load,
    harm: Callable[[Round], None],
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
        harm(Round(controller, metadata, network, load, random))
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
        differ = partial(differences, folders)
        wait_until(lambda differ=differ: differ() == [], lambda name=name, differ=differ: f"{name}: {differ()}")
