"""Proposals to change the replicas in sync, and what comes of them. The numbers are those of rules that lose data when
they are broken.
"""

from __future__ import annotations

import pytest

from core.cluster.partition.leadership import (
    ALLOWED_TRANSITIONS,
    InSyncReplicas,
    IsrAnswer,
    IsrProposal,
    IsrState,
)
from core.common.error_code import ErrorCode
from tests.support.for_each import for_each
from tests.support.replication import partition_state


def in_sync(*isr: int, leader_epoch: int = 5, partition_epoch: int = 7) -> InSyncReplicas:
    return InSyncReplicas(partition_state(isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch))


def expanding(*isr: int, replica: int = 3) -> tuple[InSyncReplicas, IsrProposal]:
    replicas = in_sync(*isr)
    proposal = replicas.expand(replica, {})
    assert proposal is not None
    replicas.check_invariants()
    return replicas, proposal


def shrinking(*isr: int, replica: int = 3) -> tuple[InSyncReplicas, IsrProposal]:
    replicas = in_sync(*isr)
    proposal = replicas.shrink([replica], {})
    assert proposal is not None
    replicas.check_invariants()
    return replicas, proposal


def test_who_is_to_join_counts_already_and_who_is_to_leave_still() -> None:  # rule 3
    assert expanding(1, 2)[0].maximal == {1, 2, 3}
    assert shrinking(1, 2, 3)[0].maximal == {1, 2, 3}


def test_a_proposal_names_both_epochs_and_the_life_of_each_broker() -> None:  # rules 5 and 12
    proposal = in_sync(1, 2).expand(3, {1: 101, 3: 103, 4: 104})
    assert proposal is not None
    assert (proposal.isr, proposal.leader_epoch, proposal.partition_epoch) == ((1, 2, 3), 5, 7)
    assert proposal.broker_epochs == {1: 101, 2: -1, 3: 103}
    assert proposal.leader_recovery_state == 0, "whoever leads has recovered"  # rule 15


def test_one_proposal_is_in_flight() -> None:  # rule 5
    for replicas, _ in (expanding(1, 2), shrinking(1, 2, 3)):
        assert replicas.expand(4, {}) is None
        assert replicas.shrink([2], {}) is None


def test_nothing_is_proposed_that_is_so_already() -> None:
    replicas = in_sync(1, 2)
    assert replicas.expand(2, {}) is None
    assert replicas.shrink([3], {}) is None
    assert replicas.shrink([], {}) is None
    assert replicas.state is IsrState.COMMITTED


def test_what_the_controller_wrote_down_is_committed() -> None:
    replicas, proposal = shrinking(1, 2, 3)
    assert not replicas.on_answer(proposal, IsrAnswer(isr=(1, 2), leader_epoch=5, partition_epoch=8))
    assert (replicas.committed, replicas.maximal, replicas.partition_epoch) == ({1, 2}, {1, 2}, 8)
    assert replicas.expand(3, {}) is not None


def test_an_answer_that_changes_nothing_commits_too() -> None:
    """The controller had written it down already, and its first answer was lost."""
    replicas, proposal = expanding(1, 2)
    replicas.on_answer(proposal, IsrAnswer(isr=(1, 2, 3), leader_epoch=5, partition_epoch=7))
    assert (replicas.committed, replicas.state) == ({1, 2, 3}, IsrState.COMMITTED)


@for_each("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_what_was_certainly_not_applied_is_dropped(code: ErrorCode) -> None:  # rule 13
    replicas, proposal = expanding(1, 2)
    assert not replicas.on_answer(proposal, IsrAnswer(code))
    assert (replicas.maximal, replicas.state) == ({1, 2}, IsrState.COMMITTED)


@for_each(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_an_outdated_leader_waits_for_news_with_the_larger_set(code: ErrorCode) -> None:
    """An earlier try may have been applied, and its answer lost."""
    replicas, proposal = expanding(1, 2)
    assert not replicas.on_answer(proposal, IsrAnswer(code))
    assert (replicas.maximal, replicas.proposal) == ({1, 2, 3}, proposal)
    replicas.on_new_state(partition_state((1, 2), leader_epoch=5, partition_epoch=9))
    assert (replicas.maximal, replicas.state) == ({1, 2}, IsrState.COMMITTED)


@for_each(
    "code",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_may_help_is_tried_again(code: ErrorCode) -> None:
    replicas, proposal = expanding(1, 2)
    assert replicas.on_answer(proposal, IsrAnswer(code))
    assert replicas.proposal is proposal


def test_a_new_state_forgets_the_proposal_and_its_answer() -> None:  # rule 5, KAFKA-12686
    replicas, proposal = expanding(1, 2)
    replicas.on_new_state(partition_state((1,), leader_epoch=6, partition_epoch=9))
    again = replicas.expand(3, {})
    assert again is not None
    assert not replicas.on_answer(proposal, IsrAnswer(isr=(1, 2, 3), leader_epoch=6, partition_epoch=10))
    assert (replicas.committed, replicas.maximal, replicas.proposal) == ({1}, {1, 3}, again)


def test_an_answer_of_another_leader_epoch_or_an_older_partition_epoch_says_nothing() -> None:
    replicas, proposal = shrinking(1, 2, 3)
    replicas.on_answer(proposal, IsrAnswer(isr=(1, 2), leader_epoch=6, partition_epoch=8))
    replicas.on_answer(proposal, IsrAnswer(isr=(1, 2), leader_epoch=5, partition_epoch=6))
    assert (replicas.committed, replicas.proposal) == ({1, 2, 3}, proposal)


def test_news_that_an_answer_told_before_leave_the_next_proposal_alone() -> None:
    """Else the high watermark would count without a replica that the controller may have let in already."""
    replicas, proposal = expanding(1, replica=2)
    replicas.on_answer(proposal, IsrAnswer(isr=(1, 2), leader_epoch=5, partition_epoch=8))
    following = replicas.expand(3, {})
    replicas.on_new_state(partition_state((1, 2), leader_epoch=5, partition_epoch=8))
    assert (replicas.proposal, replicas.maximal) == (following, {1, 2, 3})


def test_a_transition_that_is_not_in_the_table_is_a_mistake() -> None:
    replicas, _ = expanding(1, 2)
    with pytest.raises(AssertionError):
        replicas._enter(IsrState.SHRINKING)
    assert set(ALLOWED_TRANSITIONS) == set(IsrState)
