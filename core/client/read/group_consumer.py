"""Reads topics as a member of a group: the partitions that it is assigned, from the group's committed offsets.

Offsets of processed records are committed every few seconds, before a partition is given up, and at the end; or, at
most once, before the records are processed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import Retry
from core.client.read.consumer import Consumer
from core.client.read.group_membership import TRY_AGAIN, CommittedOffsets, Membership
from core.client.read.record_source import ReadOptions, Watermarks
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch

Reset = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns where to begin with partitions without a committed offset."""

_COMMIT_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class Fetched(NamedTuple):
    """Batches of a partition, from whose `start_offset` the records count; after them, all records below `next_offset`
    are processed.
    """

    partition: TopicPartition
    start_offset: int
    batches: list[Batch]
    next_offset: int


class GroupConsumer:
    """Owned by one task."""

    def __init__(
        self,
        client: KafkaClient,
        offsets: CommittedOffsets,
        membership: Membership,
        reset: Reset,
        options: ReadOptions,
        *,
        commits_first: bool = False,
        watermarks: dict[TopicPartition, Watermarks] | None = None,
    ) -> None:
        """`commits_first`: at most once, instead of at least once."""
        self._offsets = offsets
        self._options = options
        self.leave_out = options.leave_out
        self._consumer = Consumer(client, options, watermarks=watermarks)
        self._commits_first = commits_first
        self._membership = membership
        self._reset = reset
        self._positions: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}  # processed and not committed yet
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS
        self._idle = Retry(math.inf, most_s=_PAUSE_SECONDS)

    def read(self) -> Iterator[Fetched | None]:
        """Reads for ever; yields None after an empty round. The caller reports processed records by `done`.

        Raises what `Consumer.read` raises, and PlogError if the group refuses.
        """
        while True:
            try:
                self._follow_assignment()
                if time.monotonic() >= self._next_commit_s:
                    self.commit()
                if not self._positions:  # nothing is fetched, so no broker answers
                    self._consumer.reached()
            except ConnectionFailedError as error:
                self._consumer.reconnect(error)
                continue
            started, before = time.monotonic(), dict(self._positions)
            found = [Fetched(*polled, self._positions[polled[0]]) for polled in self._consumer.poll(self._positions)]
            if found and self._commits_first and not self._is_committed_first():
                self._positions = before
                self._idle.wait()
                continue
            if self._commits_first:  # a stop in the middle takes back unprocessed records
                self._done |= {fetched.partition: fetched.start_offset for fetched in found}
            yield from found
            with_records = {fetched.partition for fetched in found}
            for partition, offset in self._positions.items():
                if partition not in with_records and offset != before[partition]:  # only ends of transactions
                    self.done(partition, offset)
            if not found:
                yield None
                if time.monotonic() - started < _PAUSE_SECONDS:
                    self._idle.wait()

    def done(self, partition: TopicPartition, next_offset: int) -> None:
        """Notes that this partition's records below the offset were processed."""
        self._done[partition] = next_offset

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Returns the next offset of each partition that is read."""
        return self._positions

    def _follow_assignment(self) -> None:
        owned = frozenset(self._positions)
        assigned = self._membership.assignment(owned)
        if owned - assigned:
            self.commit()
            for partition in owned - assigned:
                del self._positions[partition]
                self._done.pop(partition, None)  # others have it now, and may have read on
        added = sorted(assigned - owned)
        committed = self._offsets.find(added) if added else None
        if committed is not None:
            new = [partition for partition in added if partition not in committed]
            self._positions |= committed
            self._positions |= self._reset(new) if new else {}

    def _is_committed_first(self) -> bool:
        try:
            return self._offsets.commit(self._positions) is ErrorCode.NONE
        except ConnectionFailedError as error:
            self._consumer.reconnect(error)
            return False

    def commit(self) -> None:
        """Commits processed offsets. A fenced member has nothing to commit: others read its records again."""
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS
        if self._done and self._offsets.commit(self._done) not in TRY_AGAIN:
            self._done = {}

    def close(self) -> None:
        """Commits and leaves. Reports a commit that is not possible now, and does not repeat it."""
        self._consumer.report_damaged(self._positions)
        self.commit()
        if self._done:
            self._options.tell(
                f"offsets read in the last {_COMMIT_SECONDS:g} s were not committed; the group will read them again"
            )
        self._membership.leave()
