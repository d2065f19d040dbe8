"""A partition that this broker follows, in one leader epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.cluster.fetch_plan import Position
from core.cluster.partition import Partition, Role
from core.common.topic_partition import TopicPartition
from core.log.partition_log import PartitionLog


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """Owned by the loop's task. Another leader epoch makes another one, and whoever waited meanwhile looks whether this
    one `is_current`.
    """

    partition: Partition
    leader_epoch: int
    is_over: bool = False
    """Whether it is followed no more, or in another epoch."""
    complaint: str = ""
    """Why nothing is appended to it, as it was logged last; empty if nothing is wrong."""
    first_sign: str = ""
    """What is usual for a moment, and is logged if it comes again before anything is fetched."""
    log: PartitionLog = field(init=False)
    name: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.partition.log
        self.name = self.log.partition

    @property
    def is_current(self) -> bool:
        """Whether its log may be changed by what the leader of that epoch answers."""
        partition = self.partition
        return (
            not self.is_over
            and partition.is_served
            and partition.role is Role.FOLLOWING
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def position(self) -> Position:
        """Gives where the log ends now."""
        log = self.log
        return Position(log.log_end_offset, log.leader_epochs.latest_epoch, log.log_start_offset)
