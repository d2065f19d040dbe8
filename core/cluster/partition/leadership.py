"""A leader's knowledge of its partition's replicas: their end offsets, the ISR, and which records are therefore
replicated. It reads no log: the caller passes the end of the leader's. It learns the time in `note_fetch` and `look`
alone. Between two of them a replica that is about to join may count for longer than it should, which is safe, and
appending costs no look at the clock.

Of the ISR the leader knows what the controller has written down, and a change that it has itself proposed by
AlterPartition and that is not answered yet (KIP-497):

    COMMITTED --expand--> EXPANDING --+
        |  ^---- answer, new state ---+
        +------shrink---> SHRINKING --+

Only one proposal is in flight. Until it is answered nobody knows whether the controller has taken it, so both outcomes
must be safe: a replica that is to join counts already, and one that is to leave counts still. These are the `maximal`
in-sync replicas; the controller's are always among them.

Source: kafka.cluster.Partition (updateFollowerFetchState, maybeExpandIsr, maybeShrinkIsr, maybeIncrementLeaderHW, and
the classes PartitionState); `RemoteReplica`, how far a follower is by its fetches, is kafka.cluster.Replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from core.cluster.image.metadata_image import LeaderRecoveryState, PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

UNKNOWN_BROKER_EPOCH = -1
UNKNOWN_OFFSET = -1
_NEVER_MS = -(1 << 62)


class IsrState(Enum):
    COMMITTED = "committed"
    EXPANDING = "expanding"
    SHRINKING = "shrinking"


ALLOWED_TRANSITIONS = {
    IsrState.COMMITTED: {IsrState.COMMITTED, IsrState.EXPANDING, IsrState.SHRINKING},
    IsrState.EXPANDING: {IsrState.COMMITTED},
    IsrState.SHRINKING: {IsrState.COMMITTED},
}

NOT_APPLIED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Refusals by which the controller says that the partition epoch was right and nothing is changed: no other controller
can have applied the proposal, so the committed ISR is known (KIP-841).
"""

SUPERSEDED = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals of an outdated leader. The proposal stays until the new state comes: an earlier try may be applied."""


@dataclass(frozen=True, slots=True, eq=False)
class IsrProposal:
    """The ISR that the leader proposes, valid while the partition is in both epochs. Immutable; each differs from all
    before it, even with equal values.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    """By node id, the broker epoch that was found in sync: a later life may lack records (KIP-903). -1 if unknown."""
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    """A leader is recovered when it leads: it trusts its own log (KIP-704)."""


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """The controller's answer to a proposal: the error, or the state that is written now. `error` may also be the error
    of the whole request, or of a connection on which no answer came.
    """

    error: ErrorCode = ErrorCode.NONE
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1
    partition_epoch: int = -1


class InSyncReplicas:
    """Owned by one task.

    I1 there is a proposal exactly if the state is not COMMITTED
    I2 the maximal replicas hold the committed ones
    I3 a proposal is of the current epochs: one of others is forgotten
    I4 a proposal adds one replica (EXPANDING), or removes some and leaves some (SHRINKING)
    """

    def __init__(self, state: PartitionState) -> None:
        self.state = IsrState.COMMITTED
        self.committed = frozenset(state.isr)
        self.maximal = self.committed
        self.proposal: IsrProposal | None = None
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch

    def on_new_state(self, state: PartitionState) -> None:
        """Applies a state from the controller. Forgets an earlier proposal: the new state contains its ISR, or the
        controller will refuse it for its epochs (KAFKA-12686).

        The state of the same epochs changes nothing. It comes after the answer with the same content, when the next
        proposal may be under way, and that proposal counts.
        """
        if (state.leader_epoch, state.partition_epoch) == (self.leader_epoch, self.partition_epoch):
            return
        self._commit(state.isr, state.leader_epoch, state.partition_epoch)

    def expand(self, replica: int, broker_epochs: Mapping[int, int]) -> IsrProposal | None:
        """Returns a proposal that the replica joins, or None if it is in, or a proposal is in flight."""
        if self.proposal is not None or replica in self.committed:
            return None
        self.maximal = self.committed | {replica}
        return self._propose(IsrState.EXPANDING, self.maximal, broker_epochs)

    def shrink(self, replicas: Iterable[int], broker_epochs: Mapping[int, int]) -> IsrProposal | None:
        """Returns a proposal that the replicas leave, or None if none is in, or a proposal is in flight."""
        remaining = self.committed.difference(replicas)
        if self.proposal is not None or remaining == self.committed:
            return None
        return self._propose(IsrState.SHRINKING, remaining, broker_epochs)

    def _propose(self, state: IsrState, isr: frozenset[int], broker_epochs: Mapping[int, int]) -> IsrProposal:
        self._enter(state)
        members = tuple(sorted(isr))
        epochs = {member: broker_epochs.get(member, UNKNOWN_BROKER_EPOCH) for member in members}
        self.proposal = IsrProposal(members, self.leader_epoch, self.partition_epoch, epochs)
        return self.proposal

    def on_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> bool:
        """Applies the controller's answer, and returns whether the proposal must be sent again. Ignores the answer to a
        forgotten proposal.
        """
        if proposal is not self.proposal:
            return False
        if answer.error is not ErrorCode.NONE:
            return self._on_refusal(answer.error)
        if answer.leader_epoch == self.leader_epoch and answer.partition_epoch >= self.partition_epoch:
            self._commit(answer.isr, answer.leader_epoch, answer.partition_epoch)
        return False

    def _on_refusal(self, error: ErrorCode) -> bool:
        if error in NOT_APPLIED:
            self._commit(self.committed, self.leader_epoch, self.partition_epoch)
        return error not in NOT_APPLIED and error not in SUPERSEDED

    def _commit(self, isr: Iterable[int], leader_epoch: int, partition_epoch: int) -> None:
        self._enter(IsrState.COMMITTED)
        self.committed = self.maximal = frozenset(isr)
        self.proposal = None
        self.leader_epoch, self.partition_epoch = leader_epoch, partition_epoch

    def _enter(self, state: IsrState) -> None:
        assert state in ALLOWED_TRANSITIONS[self.state], f"from {self.state} to {state}"
        self.state = state

    def check_invariants(self) -> None:
        assert (self.proposal is None) == (self.state is IsrState.COMMITTED), "I1"
        assert self.maximal >= self.committed, "I2"
        if self.proposal is not None:
            proposed = frozenset(self.proposal.isr)
            epochs = self.proposal.leader_epoch, self.proposal.partition_epoch
            assert epochs == (self.leader_epoch, self.partition_epoch), "I3"
            is_expanding = proposed > self.committed and len(proposed) == len(self.committed) + 1
            is_shrinking = self.committed > proposed > frozenset()
            assert is_expanding if self.state is IsrState.EXPANDING else is_shrinking, "I4"
            assert self.maximal == self.committed | proposed, "I4"


class RemoteReplica:
    """Owned by the task of the partition that has it. A fetch from an offset says that the follower has all below it.

    I1 it was not caught up later than it fetched, but for the moment at which the leader's epoch began
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.begin_epoch(0, is_in_sync=False)

    def begin_epoch(self, now_ms: int, *, is_in_sync: bool) -> None:
        """Resets the replica's state for a new leader epoch: it may have been truncated, or have lost records in a
        crash, and reports its position again. A replica in sync has the whole lag time to do so.
        """
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.last_caught_up_ms = now_ms if is_in_sync else _NEVER_MS
        self._last_fetch_ms = _NEVER_MS
        self._leader_end_at_last_fetch = UNKNOWN_OFFSET
        self._epoch_began_ms = now_ms

    def note_fetch(
        self, offset: int, *, leader_end_offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Notes that the broker, in that life of its, fetched from `offset` on, when the leader's log ended there.

        It is caught up now if there was nothing more. If it has by now what there was when it fetched before, it was
        caught up then: a follower that is always some records away from the end of a busy log is in sync, too.
        """
        if broker_epoch != self.broker_epoch and self.broker_epoch != UNKNOWN_BROKER_EPOCH:
            self.begin_epoch(now_ms, is_in_sync=False)  # it was started again, and may have lost records
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self._leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_ms = now_ms
        self._leader_end_at_last_fetch = max(self._leader_end_at_last_fetch, leader_end_offset)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Returns whether it is caught up, or was at most `max_lag_ms` ago (replica.lag.time.max.ms)."""
        return self.end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms

    def check_invariants(self) -> None:
        assert self.last_caught_up_ms <= max(self._last_fetch_ms, self._epoch_began_ms), "I1"


class Peers(Protocol):
    """The other brokers of the cluster, as a leader sees them."""

    max_lag_ms: int
    """How long a replica may be behind the leader's end and count as in sync: replica.lag.time.max.ms."""

    def find_broker_epoch(self, node_id: int) -> int | None:
        """Returns the broker epoch of a live broker, -1 if it is not known. Returns None if the broker may not join the
        ISR: it is not registered, is fenced, or shuts down (KIP-841).
        """


class Leadership:
    """Owned by the task of the led partition. It begins with a leader epoch in which this node leads, and goes on
    through later ones without a break.

    I1 the remote replicas are the partition's replicas without this node
    I2 this node is in sync
    I3 every replica of the maximal ISR that has fetched in this epoch has all replicated records
    """

    def __init__(self, node_id: int, peers: Peers, state: PartitionState, log_end_offset: int, now_ms: int) -> None:
        self._node_id = node_id
        self._peers = peers
        self.remotes: dict[int, RemoteReplica] = {}
        """The other replicas, by their brokers."""
        self.in_sync = InSyncReplicas(state)
        self._begin_epoch(state, log_end_offset, now_ms)

    def take_up(self, state: PartitionState, log_end_offset: int, now_ms: int) -> None:
        """Applies a later state in which this node still leads: another leader epoch, or other replicas."""
        is_new_epoch = state.leader_epoch > self.in_sync.leader_epoch
        self.in_sync.on_new_state(state)
        if is_new_epoch:
            self._begin_epoch(state, log_end_offset, now_ms)
        else:
            self._assign(state)
            self._find_who_counts(log_end_offset, now_ms)

    def _begin_epoch(self, state: PartitionState, log_end_offset: int, now_ms: int) -> None:
        self.epoch_start_offset = log_end_offset
        self._assign(state)
        for remote in self.remotes.values():
            remote.begin_epoch(now_ms, is_in_sync=remote.node_id in state.isr)
        self._find_who_counts(log_end_offset, now_ms)

    def _assign(self, state: PartitionState) -> None:
        known = self.remotes
        self.remotes = {other: known.get(other) or RemoteReplica(other) for other in state.others(self._node_id)}

    # --- followers fetch, and fall behind

    def note_fetch(
        self,
        replica: int,
        offset: int,
        *,
        log_end_offset: int,
        high_watermark: int,
        log_start_offset: int,
        broker_epoch: int,
        now_ms: int,
    ) -> IsrProposal | None:
        """Notes a follower's position, and returns a proposal that it joins if it may. Raises KafkaError:
        UNKNOWN_LEADER_EPOCH if it is not a known replica (it may know more, and asks again), NOT_LEADER_OR_FOLLOWER if
        a later life of its broker is known: the request was late (KIP-903).
        """
        remote = self.remotes.get(replica)
        if remote is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {replica} is not known as a replica in leader epoch {self.in_sync.leader_epoch}",
            )
        known_epoch = self._peers.find_broker_epoch(replica)
        latest_epoch = max(UNKNOWN_BROKER_EPOCH if known_epoch is None else known_epoch, remote.broker_epoch)
        if UNKNOWN_BROKER_EPOCH < broker_epoch < latest_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica} fetches in epoch {broker_epoch}, and has started again in epoch {latest_epoch}",
            )
        remote.note_fetch(
            offset,
            leader_end_offset=log_end_offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        if self.remotes.keys() <= self.in_sync.committed:
            return None  # nobody may join, and all count, as they did before
        proposal = self._expand(remote, high_watermark)
        self._find_who_counts(log_end_offset, now_ms)
        return proposal

    def _expand(self, remote: RemoteReplica, high_watermark: int) -> IsrProposal | None:
        """Proposes that the replica joins if it has all committed records. These may reach beyond the high watermark:
        an earlier leader may have committed all that is in this log, and told nobody. So the replica must also have
        everything up to the start of this epoch.
        """
        if remote.node_id in self.in_sync.committed or remote.end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        if not self._may_join(remote):
            return None
        return self.in_sync.expand(remote.node_id, self._broker_epochs())

    def look(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """Returns a proposal that late replicas leave, or None."""
        self._find_who_counts(log_end_offset, now_ms)
        late = [
            node_id
            for node_id in self.in_sync.committed - {self._node_id}
            if node_id not in self.remotes or not self._is_caught_up(self.remotes[node_id], log_end_offset, now_ms)
        ]
        return self.in_sync.shrink(late, self._broker_epochs())

    def on_answer(self, proposal: IsrProposal, answer: IsrAnswer, log_end_offset: int, now_ms: int) -> bool:
        """Does what `InSyncReplicas.on_answer` does."""
        must_send_again = self.in_sync.on_answer(proposal, answer)
        self._find_who_counts(log_end_offset, now_ms)
        return must_send_again

    def _is_caught_up(self, remote: RemoteReplica, log_end_offset: int, now_ms: int) -> bool:
        return remote.is_caught_up(log_end_offset, now_ms, self._peers.max_lag_ms)

    def _may_join(self, remote: RemoteReplica) -> bool:
        """Returns whether the broker that fetched is still in that life. Brokers of ZooKeeper clusters fetch without an
        epoch: -1.
        """
        epoch = self._peers.find_broker_epoch(remote.node_id)
        if epoch is None:
            return False
        return epoch == remote.broker_epoch or UNKNOWN_BROKER_EPOCH in (epoch, remote.broker_epoch)

    def _broker_epochs(self) -> dict[int, int]:
        return {remote.node_id: remote.broker_epoch for remote in self.remotes.values()}

    def in_sync_with(self, offset: int) -> list[int]:
        """Returns the followers that are in the controller's ISR and have the records at `offset`; first those that
        have most, and were caught up last.
        """
        held = [
            remote
            for remote in self.remotes.values()
            if remote.node_id in self.in_sync.committed and remote.log_start_offset <= offset <= remote.end_offset
        ]
        held.sort(key=lambda remote: (remote.end_offset, remote.last_caught_up_ms, remote.node_id), reverse=True)
        return [remote.node_id for remote in held]

    def log_start_of(self, node_id: int) -> int:
        """Returns the least offset at which that broker's log can start, as far as it has reported."""
        remote = self.remotes.get(node_id)
        return 0 if remote is None else max(remote.log_start_offset, 0)

    def low_watermark(self, log_start_offset: int) -> int:
        """Returns the offset below which no replica on a live broker has records, as far as replicas have reported. The
        leader's log begins at `log_start_offset`.
        """
        lives = self._peers.find_broker_epoch
        return min([log_start_offset, *(self.log_start_of(one) for one in self.remotes if lives(one) is not None)])

    # --- replicated records

    def _find_who_counts(self, log_end_offset: int, now_ms: int) -> None:
        """Finds whose end offsets count: the maximal ISR, and replicas that are caught up and may join. If these did
        not count, a busy leader alone in the ISR would move its high watermark ahead of them for ever.
        """
        self._counting = [
            remote
            for remote in self.remotes.values()
            if remote.node_id in self.in_sync.maximal
            or (self._is_caught_up(remote, log_end_offset, now_ms) and self._may_join(remote))
        ]

    def replicated_offset(self, log_end_offset: int) -> int:
        """Returns the offset below which all counted replicas have everything; -1 until all have reported."""
        for remote in self._counting:
            if remote.end_offset < log_end_offset:
                log_end_offset = remote.end_offset
        return log_end_offset

    @property
    def replica_count(self) -> int:
        return len(self.remotes) + 1

    def check_invariants(self) -> None:
        assert self._node_id not in self.remotes, "I1"
        assert self._node_id in self.in_sync.committed, "I2"
        counting = {remote.node_id for remote in self._counting}
        assert self.in_sync.maximal & self.remotes.keys() <= counting, "I3"
        self.in_sync.check_invariants()
        for remote in self.remotes.values():
            remote.check_invariants()
