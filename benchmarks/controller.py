"""plog as the controller of a cluster: what taking office costs, and how long a cluster waits for it, beside Kafka's.

    .venv/bin/python -m benchmarks.controller [--rounds 5] [--partitions 10000] [--of-a-topic 100] [--topics 1000]
        [--idle-seconds 10] [--only take-over]

take-over  a ZooKeeper with so many partitions on three brokers: CPU seconds of this process from winning /controller to
           the last control request queued and the nodes of all topics watched, and memory for each partition
cluster    three plogs, then three of Kafka 3.9's, on this machine: so many topics of one partition and three replicas
           made by one request, until all are led; a broker killed, until nobody is told that it leads something, less
           the session timeout; and the share of a processor that the controller takes while nothing happens

Kafka runs with its default flags but for the heap (256 MB).
"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import spread
from benchmarks.mixed_cluster import pid_of
from benchmarks.options import add_only, ensure_kafka, ensure_packages, option_parser
from benchmarks.peers import cpu_seconds, scratch_folder
from core.broker.controller.active_controller import ActiveController
from core.cluster.controller.elections import DEFAULT_POLICY
from core.common.clock import SystemClock
from core.common.topic_partition import random_uuid
from core.zookeeper.controller_election import ControllerElection, WonElection
from core.zookeeper.controller_store import ControllerStore
from core.zookeeper.znodes import (
    PERSISTENT_PATHS,
    BrokerEndpoint,
    BrokerNode,
    PartitionStateNode,
    TopicNode,
    Uuid,
    broker_path,
    partition_state_path,
    topic_path,
)
from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Create, Operation
from tests.support.mixed_cluster import SESSION_MS, MixedCluster
from tests.support.oracle import KAFKA39_VERSION
from tests.support.waiting import wait_until
from tests.support.zookeeper_server import ZooKeeperServer

_BROKERS = (1, 2, 3)
_PATIENCE_S = 120


# --- take-over


class _Unsent:
    """Takes control requests as `ControllerSender` does, and sends none."""

    def __init__(self) -> None:
        self.count = 0

    def put(self, _request: object) -> None:
        self.count += 1

    def __len__(self) -> int:
        return self.count

    def close(self) -> None:
        pass


async def _fill(session: ZooKeeperSession, partitions: int, of_a_topic: int) -> None:
    await session.ensure_paths(PERSISTENT_PATHS)
    for one in _BROKERS:
        node = BrokerNode((BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9090 + one),), 0)
        await session.commit([Create(broker_path(one), node.encode(), is_ephemeral=True)])
    registered = await session.read_many([broker_path(one) for one in _BROKERS])
    epochs = {one: node.stat.czxid for one, node in zip(_BROKERS, registered, strict=True) if node is not None}
    for number in range(partitions // of_a_topic):
        name = f"t{number}"
        replicas = {one: tuple(_BROKERS[(one + k) % 3] for k in range(3)) for one in range(of_a_topic)}
        operations: list[Operation] = [
            Create(topic_path(name), TopicNode(replicas, Uuid(random_uuid())).encode()),
            Create(f"{topic_path(name)}/partitions"),
        ]
        for one, held in replicas.items():
            state = PartitionStateNode(held[0], 0, held, 1, holders=epochs)
            operations += [
                Create(f"{topic_path(name)}/partitions/{one}"),
                Create(partition_state_path(name, one), state.encode()),
            ]
        await session.commit(operations)


async def _take_over(address: str, partitions: int, of_a_topic: int, rounds: int) -> tuple[list[float], float]:
    """Gives the CPU seconds of each round, and the bytes of memory for a partition in one more."""
    servers, chroot = parse_zookeeper_connect(address)
    session = ZooKeeperSession(ZooKeeperConfig(servers, chroot, 30_000))
    await session.open()
    await _fill(session, partitions, of_a_topic)
    seconds = [(await _one_term(session))[0] for _ in range(rounds)]
    tracemalloc.start()
    _, held_bytes = await _one_term(session)
    tracemalloc.stop()
    await session.close()
    return seconds, held_bytes / partitions


async def _one_term(session: ZooKeeperSession) -> tuple[float, int]:
    """Is elected, takes office, and resigns; gives the CPU seconds, and the bytes that are held then."""
    loop = asyncio.get_running_loop()
    won: asyncio.Future[WonElection] = loop.create_future()
    election = ControllerElection(session, 2, clock=SystemClock(), on_elected=won.set_result, on_lost=lambda: None)
    await election.start()
    elected = await won
    start_s = time.process_time()
    term = ActiveController(
        session,
        ControllerStore(session, elected.epoch, elected.epoch_version),
        node_id=2,
        epoch=elected.epoch,
        make_queue=lambda *_: _Unsent(),  # type: ignore[arg-type]
        ask=lambda *_: asyncio.sleep(0),
        policy=DEFAULT_POLICY,
        clock=SystemClock(),
        read_settings=lambda: asyncio.sleep(0),
        on_over=lambda: None,
    )
    begun: asyncio.Future[Any] = loop.create_future()
    term.do(lambda: asyncio.sleep(0)).on_value = begun.set_result
    await begun
    spent_s = time.process_time() - start_s
    held = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
    term.close()
    election.stop()
    await election.resign()
    return spent_s, held


# --- whole clusters


def _make_topics(cluster: MixedCluster, count: int) -> float:
    """Gives the seconds until all are led and all replicas are in sync, as each broker tells."""
    topics = [NewTopic(f"t{number}", 1, 3) for number in range(count)]
    start_s = time.monotonic()
    admin = _admin(cluster.address)
    for one in admin.create_topics(topics, operation_timeout=_PATIENCE_S, request_timeout=_PATIENCE_S).values():
        one.result()
    wait_until(lambda: len(_led_by(cluster, None)) >= count, "all are led")
    return time.monotonic() - start_s


def _admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": _PATIENCE_S * 1000})


def _controller_of(cluster: MixedCluster) -> int:
    node_id: int = _admin(cluster.address).list_topics(timeout=_PATIENCE_S).controller_id
    return node_id


def _led_by(cluster: MixedCluster, node_id: int | None) -> list[str]:
    """The partitions that a broker, or any, leads, as one that lives says."""
    living = next(iter(one.address for key, one in cluster.brokers.items() if key != node_id))
    topics = _admin(living).list_topics(timeout=_PATIENCE_S).topics.values()
    return [
        f"{topic.topic}-{number}"
        for topic in topics
        for number, partition in topic.partitions.items()
        if partition.leader == node_id or (node_id is None and partition.leader >= 0)
    ]


def _fail_over(cluster: MixedCluster) -> tuple[int, float]:
    """Kills a broker that is not the controller; gives what it led, and the seconds until nobody is told so."""
    controller = _controller_of(cluster)
    victim = next(one for one in cluster.brokers if one != controller)
    led = len(_led_by(cluster, None)) // len(cluster.brokers)
    start_s = time.monotonic()
    cluster.brokers[victim].kill()
    wait_until(lambda: not _led_by(cluster, victim), "others lead")
    return led, time.monotonic() - start_s


def _idle_share(cluster: MixedCluster, seconds: float) -> tuple[float, float]:
    """The share of a processor that the controller takes, and the least of the others, while nothing happens."""
    controller = _controller_of(cluster)
    before = {one: sum(cpu_seconds(pid_of(cluster, one))) for one in cluster.brokers}
    time.sleep(seconds)
    shares = {one: (sum(cpu_seconds(pid_of(cluster, one))) - before[one]) / seconds for one in cluster.brokers}
    return shares[controller], min(share for one, share in shares.items() if one != controller)


def _measure_cluster(folder: Path, topics: int, idle_s: float, *, kafkas: int, plogs: Sequence[int]) -> str:
    with MixedCluster(folder, kafkas, plogs, plog_controls=not kafkas) as cluster:
        made_s = _make_topics(cluster, topics)
        idle, others = _idle_share(cluster, idle_s)
        led, failed_over_s = _fail_over(cluster)
    return (
        f"{topics} topics made in {made_s:.1f} s; idle: controller {idle:.2%}, another {others:.2%}; "
        f"{led} partitions of a killed broker led by others after {failed_over_s - SESSION_MS / 1000:.1f} s more than "
        "the session timeout"
    )


def main() -> None:
    parser = option_parser(__doc__, rounds=5, partitions=10_000, of_a_topic=100, topics=1000, idle_seconds=10.0)
    add_only(parser, ["take-over", "plog", "Kafka"])
    options = parser.parse_args()
    ensure_packages("pyspark", extra="spark")  # which brings ZooKeeper's jars
    ensure_kafka(KAFKA39_VERSION)
    if "take-over" in options.only:
        with scratch_folder() as folder, ZooKeeperServer(folder / "zookeeper") as zookeeper:
            seconds, held = asyncio.run(
                _take_over(zookeeper.address, options.partitions, options.of_a_topic, options.rounds)
            )
        found = spread(seconds, ".2f", "CPU s")
        print(f"take-over of {options.partitions} partitions: {found}, {held:.0f} bytes a partition")
    for name, kafkas, plogs in (("plog", 0, (1, 2, 3)), ("Kafka", 3, ())):
        if name in options.only:
            with scratch_folder() as folder:
                found = _measure_cluster(folder, options.topics, options.idle_seconds, kafkas=kafkas, plogs=plogs)
            print(f"{name}: {found}")


if __name__ == "__main__":
    main()
