"""Several brokers of Apache Kafka in one cluster, each with two disks, of which the second is `bN-second-disk`.

The first broker is the controller too, so it must live as long as the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.class_archives import kafka_options
from tests.support.kafka_server import KafkaServer

_SETTINGS = {
    "broker_session_timeout_ms": "9000",  # how long a broker that was killed counts as alive
    "broker_heartbeat_interval_ms": "300",
    "auto_leader_rebalance_enable": "false",
    "replica_fetch_max_bytes": "65536",  # a throttled move gets as much at once every 11 s
    "replica_high_watermark_checkpoint_interval_ms": "500",  # how soon a broker notices that a disk failed
}


@contextmanager
def kafka_cluster(folder: Path, *, brokers: int = 3) -> Iterator[dict[int, KafkaServer]]:
    """Starts them, with little memory each; gives them by node id."""
    servers = dict[int, KafkaServer]()
    for node_id in range(1, brokers + 1):
        servers[node_id] = KafkaServer(
            folder / f"b{node_id}",
            java_options=("-Xmx256M", *kafka_options()),
            node_id=node_id,
            joins=servers.get(1),
            broker_rack=f"r{node_id}",
            log_dirs=f"{folder}/b{node_id},{folder}/b{node_id}-second-disk",
            **_SETTINGS,
        )
        servers[node_id].format()
    try:
        for server in servers.values():
            server.start_without_waiting()
        for server in servers.values():
            server.wait_until_ready()
        yield servers
    finally:
        for server in reversed(servers.values()):
            if server.process is not None and server.process.poll() is None:
                server.kill()
