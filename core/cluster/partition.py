"""A partition that this broker leads: its log, its leader epoch, and what consumers may see of it."""

from __future__ import annotations

from typing import Protocol

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.partition_log import AppendResult, PartitionLog
from core.protocol.schema.metadata_records import PartitionRecord
from core.records.record_batch import RecordBatch

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Waiting(Protocol):
    def maybe_complete(self) -> None:
        """Called when something happened that it may have waited for."""


class Partition:
    """Owned by one task. With one replica every appended record is at once replicated: the high watermark is the log
    end, or what is flushed of it if `plog.visible.after.flush` says so.
    """

    def __init__(self, log: PartitionLog, registration: PartitionRecord) -> None:
        self.log = log
        self.topic_id = registration.topic_id
        self.messages_in = self.bytes_in = self.bytes_out = 0
        """Records and bytes of batches that were appended, bytes that were sent, since the broker started."""
        self.is_served = True
        """Until its topic is deleted or its disk refuses; never again then."""
        self.commit_waits: dict[Waiting, None] = {}
        """Called whenever more of the partition may be committed, and when it is served no more."""
        self.lead(registration)
        if log.config.plog_visible_after_flush:
            log.flush()
        self._move_high_watermark()

    def lead(self, registration: PartitionRecord) -> None:
        """Leads it from here on as the metadata say: in that epoch, with those replicas in sync."""
        self.leader_epoch = registration.leader_epoch
        self._isr_size = max(len(registration.isr), 1)
        self.log.leader_epochs.assign(self.leader_epoch, self.log.log_end_offset)

    def append(self, batch: RecordBatch, *, required_acks: int, from_client: bool = True) -> AppendResult:
        """Appends a batch, and makes it visible unless it must be flushed before.

        Raises what `PartitionLog.append_as_leader` and `ensure_enough_replicas` raise.
        """
        log = self.log
        config = log.config
        if required_acks == -1 and self._isr_size < config.min_insync_replicas:
            self.ensure_enough_replicas()
        result = log.append_as_leader(batch, self.leader_epoch, from_client=from_client)
        if not result.is_duplicate:
            self.messages_in += result.last_offset - result.base_offset + 1
            self.bytes_in += batch.size_bytes
        self._move_high_watermark()
        return result

    def ensure_enough_replicas(self) -> None:
        """Raises KafkaError(NOT_ENOUGH_REPLICAS) if acks=all can't be obeyed."""
        if self._isr_size < self.log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._isr_size} replicas of {self.log.partition} are in sync, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )

    def must_wait_for(self, offset: int) -> bool:
        """Says whether records below `offset`, which were just appended, may not be acknowledged before `is_committed`
        says so: as many as `flush.messages` wait to be flushed.
        """
        log = self.log
        if not log.config.is_flushed_while_appending:
            return False
        flushed = log.recovery_point
        return flushed < offset and log.log_end_offset - flushed >= log.config.flush_messages

    def is_committed(self, offset: int) -> bool:
        """Says whether all below `offset` that had to be waited for is as safe as the topic wants: flushed."""
        return self.log.recovery_point >= offset

    def on_flushed(self) -> None:
        """Called when the log's recovery point moved."""
        self._move_high_watermark()
        self.notify_waiting()

    def _move_high_watermark(self) -> None:
        """Lets consumers see what the topic lets them see by now."""
        log = self.log
        log.update_high_watermark(log.recovery_point if log.config.plog_visible_after_flush else log.log_end_offset)

    def notify_waiting(self) -> None:
        for waiting in list(self.commit_waits):
            waiting.maybe_complete()

    def end_offset(self, isolation_level: int) -> int:
        """Gives the offset below which consumers of that isolation read."""
        return self.log.last_stable_offset if isolation_level == READ_COMMITTED else self.log.high_watermark

    def ensure_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises KafkaError if the client knows another epoch than this one; -1 checks nothing."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {current_leader_epoch} of {self.log.partition} is over, it is {self.leader_epoch} now",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {current_leader_epoch} of {self.log.partition} has not begun, it is {self.leader_epoch}",
        )
