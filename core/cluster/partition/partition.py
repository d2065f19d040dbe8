"""A replica of a partition on this broker: its log, its role, and the records that consumers may see."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.leadership import IsrAnswer, IsrProposal, Leadership, Peers
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.partition_log import AppendResult, PartitionLog
from core.records.record_batch import RecordBatch

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

ALL_IN_SYNC = -1
"""The acks of a producer that waits for the whole ISR; 1 waits for the leader alone."""

NOTHING = 0
FLUSHED = 1
REPLICATED = 2
"""Bits of what records wait for before they are acknowledged: `FLUSHED | REPLICATED` is both."""


class Waiting(Protocol):
    def maybe_complete(self) -> None:
        """Called after events that it may have waited for."""


class Role(Enum):
    """The role of a broker for its replica. Any role may follow any other, as the controller decides.

    ALONE      leads, and no other replica counts: appended records are replicated at once
    LEADING    leads followers: records that the whole ISR has are replicated
    FOLLOWING  fetches from the leader
    OFFLINE    waits: the partition has no leader
    """

    ALONE = "alone"
    LEADING = "leading"
    FOLLOWING = "following"
    OFFLINE = "offline"


class Partition:
    """Owned by one task.

    I1 it leads exactly in the roles ALONE and LEADING
    I2 followers are known exactly in the role LEADING
    I3 high_watermark <= the replicated offset, for records appended in the role LEADING
    I4 its log notes no leader epoch above the partition's while it leads
    """

    def __init__(
        self,
        log: PartitionLog,
        topic_id: bytes,
        state: PartitionState,
        *,
        node_id: int,
        now_ms: int = 0,
        peers: Peers | None = None,
    ) -> None:
        """Enters the role that the state gives it. Without `peers` there are no other brokers, and a leader is alone
        whatever other replicas the state names. Raises the disk's OSError.
        """
        self.log = log
        self.topic_id = topic_id
        self.messages_in = self.bytes_in = self.bytes_out = 0
        """Appended records and bytes, and sent bytes, since the broker started."""
        self.is_served = True
        """Until its topic is deleted or its disk refuses; never again then."""
        self.commit_waits: dict[Waiting, None] = {}
        """Called when more may be committed or deleted, and when the partition stops being led or served."""
        self.role = Role.OFFLINE
        self.is_leading = False
        self.leader_epoch = self.partition_epoch = -1
        self._node_id = node_id
        self._peers = peers
        self._leadership: Leadership | None = None
        self._replicated_offset = log.high_watermark
        if log.config.plog_visible_after_flush:
            log.flush()
        self.take_up(state, now_ms)

    # --- its role

    def take_up(self, state: PartitionState, now_ms: int) -> bool:
        """Applies a state from the controller, unless a later one is known; returns whether it did. Raises the disk's
        OSError.

        Calls all waits for committed records: if another node leads now, they may never be committed here.
        """
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self.partition_epoch:
            return False
        if state.leader != self._node_id:
            self._stop_leading(state)
        elif self._peers is None or not set(state.others(self._node_id)):
            self._lead_alone(state)
        else:
            self._lead_others(state, self._peers, now_ms)
        self.state = state
        self.leader_epoch, self.partition_epoch = state.leader_epoch, state.partition_epoch
        self._move_high_watermark()
        self.notify_waiting()
        return True

    def _stop_leading(self, state: PartitionState) -> None:
        self.role = Role.FOLLOWING if state.has_leader else Role.OFFLINE
        self.is_leading = False
        self._leadership = None

    def _lead_alone(self, state: PartitionState) -> None:
        self._begin_epoch(state)
        self.role = Role.ALONE
        self.is_leading = True
        self._leadership = None
        self.isr_size = max(len(state.isr), 1)
        """The size of the ISR in the controller's state, while this node leads."""

    def _lead_others(self, state: PartitionState, peers: Peers, now_ms: int) -> None:
        self._begin_epoch(state)
        log_end_offset = self.log.log_end_offset
        if self._leadership is None:
            self._leadership = Leadership(self._node_id, peers, state, log_end_offset, now_ms)
            self._replicated_offset = self.log.high_watermark
        else:
            self._leadership.take_up(state, log_end_offset, now_ms)
        self.role = Role.LEADING
        self.is_leading = True
        self.isr_size = len(self._leadership.in_sync.committed)

    def _begin_epoch(self, state: PartitionState) -> None:
        """Notes the start of the epoch, even if nothing is ever written in it: followers may hold records of earlier
        epochs that this log lacks, and find by it where to truncate theirs (KIP-101).
        """
        if state.leader_epoch != self.leader_epoch:
            self.log.leader_epochs.assign(state.leader_epoch, self.log.log_end_offset)

    def ensure_leading(self) -> None:
        """Raises KafkaError(NOT_LEADER_OR_FOLLOWER) unless this broker leads the partition."""
        if not self.is_leading:
            leader = f"broker {self.state.leader} leads" if self.state.has_leader else "nobody leads"
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{leader} {self.log.partition} in epoch {self.leader_epoch}"
            )

    # --- producers

    def append(self, batch: RecordBatch, *, required_acks: int, from_client: bool = True) -> AppendResult:
        """Appends a batch, and makes it visible unless it must be flushed or replicated before.

        Raises what `PartitionLog.append_as_leader`, `ensure_leading` and `ensure_enough_replicas` raise.
        """
        if not self.is_leading:
            self.ensure_leading()
        log = self.log
        config = log.config
        if required_acks == -1 and self.isr_size < config.min_insync_replicas:
            self.ensure_enough_replicas()
        result = log.append_as_leader(batch, self.leader_epoch, from_client=from_client)
        if not result.is_duplicate:
            self.messages_in += result.last_offset - result.base_offset + 1
            self.bytes_in += batch.size_bytes
        if self._leadership is None:
            self._move_high_watermark()
        else:
            self._move_with_followers(self._leadership)
        return result

    def ensure_enough_replicas(self) -> None:
        """Raises KafkaError(NOT_ENOUGH_REPLICAS) if acks=all is impossible, and what `ensure_leading` raises."""
        self.ensure_leading()
        if self.isr_size < self._min_isr:
            are = "replica of {} is" if self.isr_size == 1 else "replicas of {} are"
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.isr_size} {are.format(self.log.partition)} in sync, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )

    @property
    def _min_isr(self) -> int:
        """Returns how many replicas must be in sync: at most as many as there are replicas
        (Partition.effectiveMinIsr).
        """
        min_isr = self.log.config.min_insync_replicas
        return min_isr if self._leadership is None else min(min_isr, self._leadership.replica_count)

    def must_wait_for(self, offset: int, required_acks: int = ALL_IN_SYNC) -> int:
        """Returns what records below `offset`, just appended, must wait for before they are acknowledged, until
        `is_committed`: FLUSHED, if as many as `flush.messages` wait for that, and REPLICATED if the producer wants it.
        NOTHING, if they may be acknowledged now.
        """
        log = self.log
        terms = NOTHING
        if log.config.is_flushed_while_appending:
            flushed = log.recovery_point
            if flushed < offset and log.log_end_offset - flushed >= log.config.flush_messages:
                terms = FLUSHED
        if self._leadership is not None and required_acks == ALL_IN_SYNC and self._replicated_offset < offset:
            terms |= REPLICATED
        return terms

    def is_committed(self, offset: int, terms: int) -> bool:
        """Returns whether all records below `offset` have what they had to wait for. Returns False for ever once
        another node leads, whatever that node has of them.
        """
        return (
            (not terms & FLUSHED or self.log.recovery_point >= offset)
            and self.is_leading
            and (self._leadership is None or not terms & REPLICATED or self._replicated_offset >= offset)
        )

    @property
    def is_short_of_replicas(self) -> bool:
        """Returns whether replicated records are in too few replicas to be acknowledged, because some have left the ISR
        since the append (Partition.checkEnoughReplicasReachOffset).
        """
        leadership = self._leadership
        return (
            leadership is not None
            and len(leadership.in_sync.maximal) < self.log.config.min_insync_replicas
            and len(leadership.in_sync.maximal) < self._min_isr
        )

    @property
    def is_under_replicated(self) -> bool:
        """Whether this node leads and the ISR is smaller than the replicas, without adding ones
        (Partition.isUnderReplicated).
        """
        if self._leadership is None:
            return False
        return self.isr_size < self._leadership.replica_count - len(self.state.adding_replicas)

    @property
    def has_others_in_sync(self) -> bool:
        """Whether another broker leads, or is in the ISR and could."""
        return self.isr_size > 1 if self._leadership is not None else self.role is Role.FOLLOWING

    @property
    def is_under_min_isr(self) -> bool:
        """Whether this node leads and the ISR is smaller than acks=all needs."""
        return self.is_leading and self.isr_size < self._min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """Returns whether this node leads and the ISR has exactly as many replicas as acks=all needs."""
        return self.is_leading and self.isr_size == self._min_isr

    @property
    def is_reassigning(self) -> bool:
        """Whether this node leads and a reassignment adds or removes replicas."""
        return self.is_leading and bool(self.state.adding_replicas or self.state.removing_replicas)

    def on_flushed(self) -> None:
        """Called when the log's recovery point moved."""
        self._move_high_watermark()
        self.notify_waiting()

    def _move_high_watermark(self) -> None:
        log = self.log
        if self._leadership is not None:
            self._move_with_followers(self._leadership)
        elif self.is_leading:
            log.update_high_watermark(log.recovery_point if log.config.plog_visible_after_flush else log.log_end_offset)

    def _move_with_followers(self, leadership: Leadership) -> None:
        """Moves it only while the ISR is large enough: else records that consumers have read could be lost with too few
        (KIP-966).
        """
        log = self.log
        if self.isr_size < log.config.min_insync_replicas and self.isr_size < self._min_isr:
            return
        replicated = leadership.replicated_offset(log.log_end_offset)
        if replicated > self._replicated_offset:
            self._replicated_offset = replicated
        visible = min(replicated, log.recovery_point) if log.config.plog_visible_after_flush else replicated
        log.update_high_watermark(visible)

    def notify_waiting(self) -> None:
        for waiting in list(self.commit_waits):
            waiting.maybe_complete()

    # --- followers

    def ensure_replica(self, replica: int, *, knows_epoch: bool) -> None:
        """Raises KafkaError unless that broker is another replica of this partition, which this node leads. It may
        become one, if it knows a later change than this broker: UNKNOWN_LEADER_EPOCH if it `knows_epoch`, the present
        one, NOT_LEADER_OR_FOLLOWER if it names none. It asks again either way.
        """
        if self._leadership is None or replica not in self._leadership.remotes:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica} is not known as a replica of {self.log.partition} in epoch {self.leader_epoch}",
            )

    def note_fetch(
        self, replica: int, offset: int, *, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> IsrProposal | None:
        """Notes that a replica fetches from `offset` on, and so has all records below it; returns a proposal for the
        controller if the replica may join the ISR now. Call it after `ensure_leader_epoch` and after the check that the
        logs do not diverge below `offset`, and before the next append.

        Raises what `ensure_leading` and `Leadership.note_fetch` raise, and KafkaError(OFFSET_OUT_OF_RANGE).
        """
        log, leadership = self.log, self._leadership
        if leadership is None:
            self.ensure_leading()
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{log.partition} has no other replica")
        log.ensure_in_range(offset)
        log_start, replicated = leadership.log_start_of(replica), self._replicated_offset
        proposal = leadership.note_fetch(
            replica,
            offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        self._move_with_followers(leadership)
        if self._replicated_offset != replicated or log_start_offset > log_start:
            self.notify_waiting()
        return proposal

    def look_at_followers(self, now_ms: int) -> IsrProposal | None:
        """Returns a proposal for the controller if followers are late, or None. Call it now and then: a late follower
        holds up the high watermark until then.
        """
        if self._leadership is None:
            return None
        proposal = self._leadership.look(self.log.log_end_offset, now_ms)
        self._on_progress()
        self.notify_waiting()  # a broker may be gone for which somebody waits
        return proposal

    def on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int) -> bool:
        """Applies the controller's answer to a proposal, and returns whether the proposal must be sent again."""
        leadership = self._leadership
        if leadership is None:
            return False
        must_send_again = leadership.on_answer(proposal, answer, self.log.log_end_offset, now_ms)
        self.partition_epoch = leadership.in_sync.partition_epoch
        self.isr_size = len(leadership.in_sync.committed)
        self._on_progress()
        return must_send_again

    def proposes(self, proposal: IsrProposal) -> bool:
        """Returns whether the proposal is still in flight: no later event has made it void."""
        return self.is_served and self._leadership is not None and self._leadership.in_sync.proposal is proposal

    def _on_progress(self) -> None:
        replicated = self._replicated_offset
        self._move_high_watermark()
        if self._replicated_offset != replicated:
            self.notify_waiting()

    @property
    def low_watermark(self) -> int:
        """The offset below which no replica has records any more; see `Leadership.low_watermark`."""
        log_start = self.log.log_start_offset
        return log_start if self._leadership is None else self._leadership.low_watermark(log_start)

    def has_in_sync(self, node_id: int) -> bool:
        """Returns whether that broker is in the controller's ISR; False if this node does not lead others."""
        return self._leadership is not None and node_id in self._leadership.in_sync.committed

    def followers_in_sync_with(self, offset: int) -> list[int]:
        """Returns what `Leadership.in_sync_with` returns; [] if this broker does not lead others."""
        return [] if self._leadership is None else self._leadership.in_sync_with(offset)

    # --- readers

    def end_offset(self, isolation_level: int, *, is_for_replica: bool = False) -> int:
        """Returns the offset below which consumers of that isolation level read; replicas read everything."""
        if is_for_replica:
            return self.log.log_end_offset
        return self.log.last_stable_offset if isolation_level == READ_COMMITTED else self.log.high_watermark

    def ensure_end_is_known(self) -> None:
        """Raises KafkaError(OFFSET_NOT_AVAILABLE) while a new leader does not know yet how much was committed before:
        its end could lie below one that consumers have seen (KIP-207).
        """
        if self._leadership is not None and self.log.high_watermark < self._leadership.epoch_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"epoch {self.leader_epoch} of {self.log.partition} began at {self._leadership.epoch_start_offset}, "
                f"and it is not known yet whether all before that is committed",
            )

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

    def check_invariants(self) -> None:
        assert self.is_leading == (self.role in (Role.ALONE, Role.LEADING)), "I1"
        assert (self._leadership is not None) == (self.role is Role.LEADING), "I2"
        if self._leadership is not None:
            assert self.log.high_watermark <= self._replicated_offset <= self.log.log_end_offset, "I3"
            assert self.isr_size == len(self._leadership.in_sync.committed)
            self._leadership.check_invariants()
        if self.is_leading:
            assert self.log.leader_epochs.latest_epoch <= self.leader_epoch, "I4"
        self.log.check_invariants()
