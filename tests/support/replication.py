"""A partition of several replicas, as the tests of its leader see it: states, and brokers that are there or not."""

from __future__ import annotations

from collections.abc import Sequence

from core.cluster.image.metadata_image import PartitionState

LEADER = 1
LAG_MS = 10_000


class KnownPeers:
    """`Peers` with the broker epochs of those that may join, by node id; all of them may."""

    def __init__(self, *node_ids: int, max_lag_ms: int = LAG_MS) -> None:
        self.max_lag_ms = max_lag_ms
        self.epochs: dict[int, int | None] = {node_id: 100 + node_id for node_id in node_ids}

    def find_broker_epoch(self, node_id: int) -> int | None:
        return self.epochs.get(node_id)


def partition_state(
    isr: Sequence[int],
    *,
    leader: int = LEADER,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    replicas: Sequence[int] = (1, 2, 3),
) -> PartitionState:
    return PartitionState(leader, leader_epoch, tuple(isr), tuple(replicas), partition_epoch)
