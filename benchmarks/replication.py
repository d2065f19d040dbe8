"""What following costs a broker: CPU seconds per GB that it fetches from a leader over loopback and appends.

    .venv/bin/python -m benchmarks.replication [--rounds 5] [--megabytes 300]

The leader is `plog serve` in a process of its own, with a topic of one partition in batches of 1, 16 or 128 KB. The
follower, in this process, begins with an empty log and fetches until it has all of it, in the leader's eyes as a
consumer, because that one knows no other brokers. The figures are user and system time of the two processes: medians,
with the least and the most. Nothing is synced.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.figures import spread
from benchmarks.follower import make_answers
from benchmarks.options import option_parser
from benchmarks.peers import Peer, PlogPeer, cpu_seconds, running, scratch_folder
from core.broker.broker_server import BrokerServer
from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.replica_fetcher import FollowingBroker, ReplicaFetcherManager
from core.broker.serving import loop_tasks
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage
from core.common.endpoint import parse_endpoint
from core.common.task import finish
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata_records import PartitionRecord, TopicRecord

LEADER, FOLLOWER, A_CONSUMER = 1, 2, -1
PARTITION = TopicPartition("t", 0)


def fill(directory: Path, batch_bytes: int, total_bytes: int) -> tuple[bytes, int]:
    """Makes the leader's topic, and gives its id and where it ends."""
    node = BrokerServer(directory, BrokerConfig.parse({"node.id": str(LEADER)}))
    topic_id = node.services.topics.create(NewTopic("t", 1, configs={"retention.ms": "-1"})).topic_id
    log = node.services.replicas.partitions[PARTITION].log
    for answer in make_answers(batch_bytes, total_bytes, with_producer=False):
        log.append_as_follower(answer, 0)
    node.close()
    return topic_id, log.log_end_offset


async def follow(directory: Path, leader: Peer, topic_id: bytes, end_offset: int) -> tuple[float, float, int]:
    """CPU seconds of the follower and of the leader, and the bytes that came."""
    runtime = LoopRuntime(asyncio.get_running_loop(), directory)
    node = BrokerServer(directory, BrokerConfig.parse({"node.id": str(FOLLOWER)}), runtime=runtime)
    replicas = node.services.replicas
    registration = PartitionRecord(
        0, topic_id, replicas=[LEADER, FOLLOWER], isr=[LEADER], leader=LEADER, leader_epoch=0
    )
    delta = MetadataDelta(MetadataImage()).replay([TopicRecord("t", topic_id), registration])
    for steps in replicas.apply(delta):
        finish(steps)
    log = replicas.partitions[PARTITION].log
    before = time.process_time(), sum(cpu_seconds(leader.pid))
    fetchers = ReplicaFetcherManager(
        FollowingBroker(
            node_id=A_CONSUMER,
            replicas=replicas,
            log_manager=node.services.log_manager,
            find_endpoint=lambda _: parse_endpoint(leader.address),
            broker_epoch=lambda: -1,
            config=lambda: node.services.config,
            runtime=runtime,
            buffers=ReceiveBuffers(),
            quota=node.services.quotas.follower,
        )
    )
    while log.log_end_offset < end_offset:
        await asyncio.sleep(0.005)
    taken = time.process_time() - before[0], sum(cpu_seconds(leader.pid)) - before[1]
    await fetchers.close()
    size_bytes = log.size_bytes
    runtime.stop(waits_for_loading=False)
    return *taken, size_bytes


def main() -> None:
    options = option_parser(__doc__, rounds=5, megabytes=300).parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs\n\n| batches | follower | leader |\n|---|---|---|")
    for kilobytes in (1, 16, 128):
        figures: dict[str, list[float]] = defaultdict(list)
        with scratch_folder() as folder:
            topic_id, end_offset = fill(folder / PlogPeer.name, kilobytes * 1024, options.megabytes * 10**6)
            with running(folder, PlogPeer) as (leader,):
                for _ in range(options.rounds):
                    with scratch_folder() as other, loop_tasks.new_runner() as runner:
                        ours, theirs, size_bytes = runner.run(follow(other, leader, topic_id, end_offset))
                    figures["follower"].append(ours / size_bytes * 1e9)
                    figures["leader"].append(theirs / size_bytes * 1e9)
        cells = [spread(found, ".2f") for found in figures.values()]
        print(f"| {kilobytes} KB | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
