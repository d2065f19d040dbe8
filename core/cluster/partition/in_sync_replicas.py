"""The in-sync replicas of a partition as its leader knows them: those that the controller has written down, and a
change that the leader has proposed by AlterPartition and that is not answered yet (KIP-497).

    COMMITTED --expand--> EXPANDING --+
        |  ^---- answer, new state ---+
        +------shrink---> SHRINKING --+

Only one proposal is in flight. Until it is answered nobody knows whether the controller has taken it, so both outcomes
must be safe: a replica that is to join counts already, and one that is to leave counts still. These are the `maximal`
in-sync replicas; the controller's are always among them.

Source: kafka.cluster.Partition, the classes PartitionState.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from core.cluster.partition.partition_state import LeaderRecoveryState, PartitionState
from core.common.error_code import ErrorCode

UNKNOWN_BROKER_EPOCH = -1


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
