"""Looks how far a reassignment has come, until all its partitions are where they are to be.

What is left is what the new replicas lack of the size of the others, as DescribeLogDirs tells them. Segments that are
deleted or compacted meanwhile make sizes differ a little; whether a partition is done, the controller says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.client.cluster_admin import ClusterAdmin, OngoingReassignment
from core.client.failover import ride_over
from core.client.kafka_client import KafkaClient
from core.client.replica_sizes import ReplicaSizes
from core.cluster.planned_move import PlannedMove
from core.common.topic_partition import TopicPartition

LOOK_SECONDS = 1.0
STALL_SECONDS = 30.0
"""After so long without progress the user hears of it."""


@dataclass(frozen=True, slots=True)
class MovedSoFar:
    """`left` are the partitions that are still under way; `bytes_left` is None if nobody tells sizes."""

    partitions: int
    left: list[TopicPartition]
    moved_bytes: int
    bytes_left: int | None

    @property
    def done(self) -> int:
        return self.partitions - len(self.left)


class ReassignmentWatch:
    """Owned by one task."""

    def __init__(
        self,
        client: KafkaClient,
        moves: Iterable[PlannedMove],
        *,
        note: Callable[[str], None] = lambda _text: None,
        stall_seconds: float = STALL_SECONDS,
        is_throttled: bool = False,
    ) -> None:
        """`note` is called with what the user should know: a broker that is away, or that nothing moves."""
        self._client = client
        self._admin = ClusterAdmin(client)
        self._moves = {move.partition: move for move in moves}
        self._note = note
        self._stall_seconds = stall_seconds
        self._is_throttled = is_throttled
        self._least_left: tuple[int, int] | None = None
        self._progress_s = time.monotonic()
        self._noted: set[int] = set()
        self._sent = dict[TopicPartition, int]()

    def watch(self) -> Iterator[MovedSoFar]:
        """Gives how far it has come, once in a while; ends after the state in which nothing is left."""
        with ReplicaSizes(self._client) as sizes:
            while True:
                state = ride_over(self._client, lambda: self._look(sizes))
                yield state
                if not state.left:
                    return
                self._note_stall(state)
                time.sleep(LOOK_SECONDS)

    def _look(self, sizes: ReplicaSizes) -> MovedSoFar:
        ongoing = self._admin.list_reassignments()
        left = [partition for partition in self._moves if partition in ongoing]
        self._note_brokers({partition: ongoing[partition] for partition in left})
        found = sizes.find(left)
        bytes_left, is_known = 0, not left
        for partition in left:
            of_partition, adding = found[partition], ongoing[partition].adding
            whole = max((size for broker, size in of_partition.items() if broker not in adding), default=0)
            there = [min(of_partition.get(broker, 0), whole) for broker in adding]
            self._sent[partition] = sum(there)
            bytes_left += whole * len(adding) - sum(there)
            is_known = is_known or bool(of_partition)
        for partition in self._moves.keys() - set(left):
            self._sent[partition] = max(self._sent.get(partition, 0), self._moves[partition].moved_bytes)
        return MovedSoFar(len(self._moves), left, sum(self._sent.values()), bytes_left if is_known else None)

    def _note_brokers(self, ongoing: Mapping[TopicPartition, OngoingReassignment]) -> None:
        """Says which brokers are awaited that are away."""
        self._client.refresh([])
        living = set(self._client.node_ids)
        for partition, one in ongoing.items():
            for broker in one.adding:
                if broker in living:
                    self._noted.discard(broker)
                elif broker not in self._noted:
                    self._noted.add(broker)
                    self._note(
                        f"warning: broker {broker} is away, to which {partition} moves; that goes on when it is back"
                    )

    def _note_stall(self, state: MovedSoFar) -> None:
        measure = (len(state.left), state.bytes_left or 0)
        now_s = time.monotonic()
        if self._least_left is None or measure < self._least_left:
            self._least_left, self._progress_s = measure, now_s
        elif now_s - self._progress_s > self._stall_seconds:
            self._progress_s = now_s
            why = (
                "with a throttle below what is produced to these partitions it never ends: --status --throttle RATE "
                "sets another"
                if self._is_throttled
                else "plog cluster describe says how far each replica is"
            )
            self._note(f"warning: there is not less left than {self._stall_seconds:.0f} s ago; {why}")
