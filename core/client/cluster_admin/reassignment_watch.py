"""Watches a reassignment until all its partitions are at their targets.

The bytes left are those that the new replicas lack of the size of the others, as DescribeLogDirs reports them. For a
broker that is away, its last reported size counts. Segments that are deleted or compacted meanwhile make sizes differ a
little; whether a partition is done, the controller says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from core.client.admin.admin import Admin, Sizes, brief_admin
from core.client.cluster_admin.cluster_admin import ClusterAdmin, OngoingReassignment
from core.client.net.kafka_client import KafkaClient
from core.cluster.assignment.planned_move import PlannedMove
from core.common.topic_partition import TopicPartition

LOOK_SECONDS = 1.0
STALL_SECONDS = 30.0
"""Time without progress after which the user is told."""


class CopiedBytes(NamedTuple):
    """Bytes that the new replicas of a partition have, and bytes that they lack, together."""

    copied: int
    left: int


@dataclass(frozen=True, slots=True)
class MovedSoFar:
    """`left` are the partitions that are still under way, `copies` has those with known sizes; `bytes_left` is None if
    no size is known.
    """

    partitions: int
    left: list[TopicPartition]
    moved_bytes: int
    bytes_left: int | None
    copies: dict[TopicPartition, CopiedBytes]

    @property
    def done(self) -> int:
        return self.partitions - len(self.left)

    @property
    def of_unknown_size(self) -> int:
        """The number of moving partitions without a known size: the bytes do not count them."""
        return len(self.left) - len(self.copies)


class ReassignmentWatch:
    """Owned by one task."""

    def __init__(
        self,
        client: KafkaClient,
        moves: Iterable[PlannedMove],
        *,
        note: Callable[[str], None] = lambda _text: None,
        is_throttled: bool = False,
    ) -> None:
        """`note` is called with messages for the user: a broker is away, or nothing moves."""
        self._client = client
        self._admin = ClusterAdmin(client)
        self._moves = {move.partition: move for move in moves}
        self._note = note
        self._is_throttled = is_throttled
        self._least_left: tuple[int, int] | None = None
        self._progress_s = time.monotonic()
        self._noted: set[int] = set()
        self._sizes: Sizes = {partition: {} for partition in self._moves}
        self._sent = dict[TopicPartition, int]()

    def look(self) -> MovedSoFar:
        return next(self.watch())

    def watch(self) -> Iterator[MovedSoFar]:
        """Yields the progress every `LOOK_SECONDS`; ends after a state in which no move is left."""
        with brief_admin(self._client) as admin:
            while True:
                state = self._client.retry_while_leader_moves(lambda: self._look(admin))
                yield state
                if not state.left:
                    return
                self._note_stall(state)
                time.sleep(LOOK_SECONDS)

    def _look(self, admin: Admin) -> MovedSoFar:
        ongoing = self._admin.list_reassignments()
        left = [partition for partition in self._moves if partition in ongoing]
        self._note_brokers({partition: ongoing[partition] for partition in left})
        for partition, told in admin.replica_sizes(left).items():
            self._sizes[partition].update(told)
        known = {partition: self._copies(partition, ongoing[partition].adding) for partition in left}
        copies = {partition: found for partition, found in known.items() if found is not None}
        self._sent |= {partition: found.copied for partition, found in copies.items()}
        for partition in self._moves.keys() - set(left):
            self._sent[partition] = max(self._sent.get(partition, 0), self._moves[partition].moved_bytes)
        bytes_left = sum(found.left for found in copies.values())
        is_known = bool(copies) or not left
        return MovedSoFar(len(self._moves), left, sum(self._sent.values()), bytes_left if is_known else None, copies)

    def _copies(self, partition: TopicPartition, adding: Collection[int]) -> CopiedBytes | None:
        """Returns the bytes, or None if the partition's size, or the size of each replica, is unknown."""
        sizes = self._sizes[partition]
        planned = self._moves[partition].size_bytes
        whole = max((size for broker, size in sizes.items() if broker not in adding), default=planned)
        if whole is None or not sizes:
            return None
        copied = sum(min(sizes.get(broker, 0), whole) for broker in adding)
        return CopiedBytes(copied, whole * len(adding) - copied)

    def _note_brokers(self, ongoing: Mapping[TopicPartition, OngoingReassignment]) -> None:
        self._client.refresh([])
        living = set(self._client.node_ids)
        for partition, one in ongoing.items():
            for broker in one.adding:
                if broker in living:
                    self._noted.discard(broker)
                elif broker not in self._noted:
                    self._noted.add(broker)
                    self._note(
                        f"warning: broker {broker}, to which {partition} moves, is away; the move goes on when "
                        "it is back"
                    )

    def _note_stall(self, state: MovedSoFar) -> None:
        measure = (len(state.left), state.bytes_left or 0)
        now_s = time.monotonic()
        if self._least_left is None or measure < self._least_left:
            self._least_left, self._progress_s = measure, now_s
        elif now_s - self._progress_s > STALL_SECONDS:
            self._progress_s = now_s
            why = (
                "a move never ends if its throttle is below what is produced to the partitions: --status --throttle "
                "RATE sets another"
                if self._is_throttled
                else "plog cluster describe says how far each replica is"
            )
            self._note(f"warning: as much is left to copy as {STALL_SECONDS:.0f} s ago; {why}")
