"""Reads topics as a member of a group: what the group's coordinator assigns, from where the group stopped.

What was made use of is committed every few seconds, before a partition is given up, and at the end; or, at most once,
before it is made use of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from core.client.consumer import Consumer
from core.client.group_admin import GroupAdmin, GroupOffset
from core.client.kafka_client import RETRIABLE, KafkaClient
from core.client.membership import FENCED, OUTSIDE_EPOCH, Membership
from core.client.patience import Patience
from core.client.watermarks import Watermarks
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, CorruptRecordError, KafkaError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch

Reset = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Where to begin with partitions for which the group committed nothing."""

_COMMIT_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_TRY_AGAIN = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS, *RETRIABLE})


class Fetched(NamedTuple):
    """Batches of a partition, of which the records from `start_offset` on are wanted; whoever has made use of them has
    made use of all below `next_offset`.
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
        group_id: str,
        membership: Membership,
        reset: Reset,
        *,
        isolation_level: int,
        with_control: bool = False,
        patience: Patience | None = None,
        commits_first: bool = False,
        watermarks: dict[TopicPartition, Watermarks] | None = None,
    ) -> None:
        """`commits_first`: at most once, instead of at least once."""
        self._admin = GroupAdmin(client, rides_over=False)
        self._patience = patience or Patience()
        self._consumer = Consumer(
            client,
            isolation_level=isolation_level,
            with_control=with_control,
            patience=self._patience,
            watermarks=watermarks,
        )
        self._commits_first = commits_first
        self._group_id = group_id
        self._membership = membership
        self._reset = reset
        self._positions: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}  # what is not committed yet
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS

    def read(self) -> Iterator[Fetched | None]:
        """Reads for ever; gives None after a round that brought nothing. What was used is reported by `done`.

        Raises what `Consumer.read` raises, and KafkaError if the coordinator refuses.
        """
        while True:
            try:
                self._follow_assignment()
                if time.monotonic() >= self._next_commit_s:
                    self.commit()
                if not self._positions:  # nothing is fetched that could be answered
                    self._consumer.reached()
            except ConnectionFailedError as error:
                self._consumer.reconnect(error)
                continue
            started, before = time.monotonic(), dict(self._positions)
            found = [Fetched(*polled, self._positions[polled[0]]) for polled in self._consumer.poll(self._positions)]
            if found and self._commits_first and not self._is_committed_first():
                self._positions = before
                continue
            if self._commits_first:  # a stop in the middle puts back what was not made use of
                self._done |= {fetched.partition: fetched.start_offset for fetched in found}
            yield from found
            with_records = {fetched.partition for fetched in found}
            for partition, offset in self._positions.items():
                if partition not in with_records and offset != before[partition]:  # only ends of transactions
                    self.done(partition, offset)
            if not found:
                yield None
                if time.monotonic() - started < _PAUSE_SECONDS:
                    time.sleep(_PAUSE_SECONDS)

    def done(self, partition: TopicPartition, next_offset: int) -> None:
        """Notes that this partition's records below the offset were made use of."""
        self._done[partition] = next_offset

    def leave_out(self, partition: TopicPartition, batch: Batch, error: CorruptRecordError) -> None:
        """See `RecordSource.leave_out`."""
        self._consumer.leave_out(partition, batch, error)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Gives what comes next of each partition that is read."""
        return self._positions

    def _follow_assignment(self) -> None:
        owned = frozenset(self._positions)
        assigned = self._membership.assignment(owned)
        if owned - assigned:
            self.commit()
            for partition in owned - assigned:
                del self._positions[partition]
        added = sorted(assigned - owned)
        committed = self._find_committed(added) if added else None
        if committed is not None:
            new = [partition for partition in added if partition not in committed]
            self._positions |= {tp: found.offset for tp, found in committed.items()}
            self._positions |= self._reset(new) if new else {}

    def _find_committed(self, added: Sequence[TopicPartition]) -> Mapping[TopicPartition, GroupOffset] | None:
        """Gives what the group committed of them; None while a transaction is about to move that: they are asked for
        again in the next round.
        """
        try:
            return self._admin.stable_offsets(self._group_id, added, seconds=0)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            self._patience.note(f"{error.message}; reading waits for that: {error.hint}")
            return None

    def _is_committed_first(self) -> bool:
        try:
            return self._try_to_commit(self._positions) is ErrorCode.NONE
        except ConnectionFailedError as error:
            self._consumer.reconnect(error)
            return False

    def commit(self) -> None:
        """Commits what is done. A member that was fenced meanwhile has nothing to commit: others read it again."""
        self._next_commit_s = time.monotonic() + _COMMIT_SECONDS
        if self._done and self._try_to_commit(self._done) not in _TRY_AGAIN:
            self._done = {}

    def _try_to_commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """Commits; raises KafkaError unless others have the partitions by now, or it may be tried again."""
        member = self._membership
        try:
            self._admin.commit(
                self._group_id,
                offsets,
                member_id=member.member_id,
                epoch=member.epoch,
                group_instance_id=member.group_instance_id,
            )
        except KafkaError as error:
            is_fenced = member.epoch != OUTSIDE_EPOCH and error.code in FENCED
            if not is_fenced and error.code not in _TRY_AGAIN:
                raise
            return error.code
        return ErrorCode.NONE

    def close(self) -> None:
        """Commits and leaves."""
        self._consumer.report_damaged(self._positions)
        self.commit()
        self._membership.leave()
