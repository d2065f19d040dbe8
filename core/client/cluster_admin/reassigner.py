"""Moves replicas of partitions from broker to broker, from the request to its end, and cancels moves.

A reassignment is the cluster's: it goes on when nobody watches, and a later process can watch or cancel it, Kafka's own
tool as well. Only the throttle does not go away by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from core.client.admin.admin import brief_admin
from core.client.cluster_admin.cluster_admin import ClusterAdmin, OngoingReassignment, Refusals
from core.client.cluster_admin.reassignment_watch import MovedSoFar, ReassignmentWatch
from core.client.cluster_admin.replication_throttle import ReplicationThrottle
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import METADATA_SECONDS, Retry
from core.cluster.assignment.planned_move import PlannedMove
from core.cluster.description.cluster_health import names_text
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition

_CANCEL_FIRST = "plog cluster reassign --status shows it, --cancel ends it"
_NO_REASSIGNMENT = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class Reassigner:
    """Owned by one task. Every method raises KafkaError if the cluster refuses the whole."""

    def __init__(self, client: KafkaClient, throttle: ReplicationThrottle, say: Callable[[str], None]) -> None:
        """`say` is called with messages for the user."""
        self._client = client
        self._admin = ClusterAdmin(client)
        self._throttle = throttle
        self._say = say

    def start(self, moves: Sequence[PlannedMove], bytes_per_second: int | None) -> Refusals:
        """Begins the moves, with a throttle if one is given; returns the refusals. Tells the user if that throttle
        replaces the one of earlier moves.
        """
        if bytes_per_second is not None:
            self._say_replaced(self.change_throttle(moves, bytes_per_second), bytes_per_second)
        try:
            return self._admin.alter_reassignments({move.partition: move.target for move in moves})
        except KafkaError:
            self.remove_throttle()
            raise

    def watch(self, moves: Sequence[PlannedMove]) -> Iterator[MovedSoFar]:
        """Yields the progress until all moves are done; then removes the throttle."""
        watch = ReassignmentWatch(self._client, moves, note=self._say, is_throttled=self.has_throttle)
        yield from watch.watch()
        self.remove_throttle()

    def look(self, moves: Sequence[PlannedMove], *, is_quiet: bool) -> MovedSoFar:
        """Returns the present progress. If it `is_quiet`, `watch` follows, and reports problems."""
        note: Callable[[str], None] = (lambda _text: None) if is_quiet else self._say
        return ReassignmentWatch(self._client, moves, note=note).look()

    def find_missed(self, moves: Iterable[PlannedMove]) -> list[PlannedMove]:
        """Returns moves whose partitions did not arrive: somebody cancelled or changed them. Deleted partitions are
        left out. The controller confirms the end of a move a moment before other brokers know of it, so this asks again
        for some seconds.
        """
        missed = self._elsewhere(moves)
        waiting = Retry(METADATA_SECONDS)
        while missed and waiting.wait():
            missed = self._elsewhere(missed)
        return missed

    def _elsewhere(self, moves: Iterable[PlannedMove]) -> list[PlannedMove]:
        there = self._client.refresh()
        return [
            move
            for move in moves
            if (topic := there.get(move.partition.topic)) is not None
            and (found := topic.partitions.get(move.partition.partition)) is not None
            and found.replicas != tuple(move.target)
        ]

    @property
    def has_throttle(self) -> bool:
        """Whether this machine has set a throttle that is still there."""
        return self._throttle.is_set

    def find_ongoing(self, topics: Iterable[str] | None = None) -> list[PlannedMove]:
        """Returns the ongoing moves, whoever began them: of these topics, or of all. The size of each is that of the
        old replicas: new replicas have a part of it.
        """
        names = None if topics is None else set(topics)
        found = {p: one for p, one in self._admin.list_reassignments().items() if names is None or p.topic in names}
        with brief_admin(self._client) as admin:
            sizes = admin.replica_sizes(found)
        return [_as_move(partition, one, sizes[partition]) for partition, one in sorted(found.items())]

    def change_throttle(self, moves: Sequence[PlannedMove], bytes_per_second: int) -> dict[int, int]:
        """Sets the rate of moves that are under way; returns brokers and the rates they had."""
        self._client.refresh([])
        return self._throttle.set(moves, bytes_per_second, self._client.node_ids)

    def _say_replaced(self, replaced: Mapping[int, int], bytes_per_second: int) -> None:
        for before in sorted(set(replaced.values())):
            brokers = [broker for broker, rate in replaced.items() if rate == before]
            self._say(
                f"note: broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))} copied at most "
                f"{before:,} bytes/s, and may copy {bytes_per_second:,} now, also for moves that are under way"
            )

    def cancel(self, moves: Iterable[PlannedMove]) -> Refusals:
        """Cancels the moves: the partitions get their old replicas again. Returns the refusals, without moves that
        ended meanwhile.
        """
        refused = self._admin.alter_reassignments({move.partition: None for move in moves})
        self.remove_throttle()
        return {partition: error for partition, error in refused.items() if error.code is not _NO_REASSIGNMENT}

    def remove_throttle(self) -> None:
        """Removes the throttle that this machine has set, if all its moves have ended."""
        if self._throttle.is_set and self._throttle.remove(self._admin.list_reassignments()):
            self._say("the throttle is removed")


def ensure_free(client: KafkaClient, partitions: Iterable[TopicPartition]) -> None:
    """Raises KafkaError(REASSIGNMENT_IN_PROGRESS) if one of these is being moved already: a plan depends on how that
    move ends.
    """
    ongoing = ClusterAdmin(client).list_reassignments()
    busy = [partition for partition in partitions if partition in ongoing]
    if busy:
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"{names_text(busy)} {'is' if len(busy) == 1 else 'are'} being moved already",
            hint=_CANCEL_FIRST,
        )


def _as_move(partition: TopicPartition, one: OngoingReassignment, sizes: Mapping[int, int]) -> PlannedMove:
    size_bytes = max((size for broker, size in sizes.items() if broker not in one.adding), default=None)
    return PlannedMove(partition, one.before, one.target, size_bytes)
