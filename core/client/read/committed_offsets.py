"""What a group has committed, wherever that is kept: how far it has read its partitions.

`CoordinatorOffsets` asks the group's coordinator. Groups of ZooKeeper keep them there (core/zookeeper), behind the same
two methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import RETRIABLE, KafkaClient
from core.client.net.read_options import ReadOptions
from core.client.read.group_membership import FENCED, OUTSIDE_EPOCH, Membership
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition

TRY_AGAIN = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS, *RETRIABLE})
"""What a commit answers that was not done, and may be done later."""


class CommittedOffsets(Protocol):
    def find(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Gives the offset that the group reads next, for each partition of which it has committed one; None if that
        can't be known now: it is asked for again in the next round.
        """

    def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """Commits; answers NONE, one of TRY_AGAIN, or one of FENCED if others have the partitions by now. Raises
        PlogError if it is refused for good.
        """


class CoordinatorOffsets:
    """Owned by one task."""

    def __init__(self, client: KafkaClient, group_id: str, membership: Membership, patience: ReadOptions) -> None:
        """Commits as that member."""
        self._admin = GroupAdmin(client, rides_over=False)
        self._group_id = group_id
        self._membership = membership
        self._patience = patience

    def find(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Gives None while a transaction is about to move what is committed."""
        try:
            found = self._admin.stable_offsets(self._group_id, partitions, seconds=0)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            self._patience.note(f"{error.message}; reading waits for that: {error.hint}")
            return None
        return {partition: committed.offset for partition, committed in found.items()}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """See `CommittedOffsets.commit`."""
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
            if not is_fenced and error.code not in TRY_AGAIN:
                raise
            return error.code
        return ErrorCode.NONE
