"""A replica in its roles: what it takes, what it acknowledges, and what it shows. The numbers are those of rules that
lose data when they are broken.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.leadership import IsrAnswer, IsrProposal
from core.cluster.partition.partition import (
    ALL_IN_SYNC,
    FLUSHED,
    NOTHING,
    READ_UNCOMMITTED,
    REPLICATED,
    Partition,
    Role,
)
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.partition_log import AppendResult
from core.protocol.schema.metadata_records import PartitionRecord
from tests.support.for_each import for_each
from tests.support.logs import make_batch, open_log
from tests.support.refusals import refused
from tests.support.replication import LAG_MS, LEADER, KnownPeers, partition_state

ID = b"\7" * 16


class Replica:
    """Broker 1's replica of a partition, with a real log."""

    def __init__(self, folder: Path, state: PartitionState, *, has_peers: bool = True, **config: object) -> None:
        self.peers = KnownPeers(1, 2, 3)
        self.now_ms = 0
        self.log = open_log(folder / "t-0", **config)
        peers = self.peers if has_peers else None
        self.partition = Partition(self.log, ID, state, node_id=LEADER, peers=peers)
        self.partition.check_invariants()

    def append(self, *values: bytes, acks: int = ALL_IN_SYNC) -> AppendResult:
        result = self.partition.append(make_batch(*values), required_acks=acks)
        self.partition.check_invariants()
        return result

    def fetch(self, replica: int, offset: int) -> IsrProposal | None:
        proposal = self.partition.note_fetch(
            replica, offset, log_start_offset=0, broker_epoch=100 + replica, now_ms=self.now_ms
        )
        self.partition.check_invariants()
        return proposal

    def take_up(self, state: PartitionState) -> bool:
        took = self.partition.take_up(state, self.now_ms)
        self.partition.check_invariants()
        return took

    def answer(self, proposal: IsrProposal | None, answer: IsrAnswer) -> bool:
        assert proposal is not None
        must_send_again = self.partition.on_isr_answer(proposal, answer, self.now_ms)
        self.partition.check_invariants()
        return must_send_again

    def accept(self, proposal: IsrProposal | None) -> None:
        assert proposal is not None
        epoch = proposal.partition_epoch + 1
        assert not self.answer(
            proposal, IsrAnswer(isr=proposal.isr, leader_epoch=proposal.leader_epoch, partition_epoch=epoch)
        )


class Waiting:
    def __init__(self, partition: Partition, offset: int, terms: int) -> None:
        self.states: list[bool] = []
        self._is_committed = lambda: partition.is_committed(offset, terms)
        partition.commit_waits[self] = None

    def maybe_complete(self) -> None:
        self.states.append(self._is_committed())


def raised_by(replica: Replica, *values: bytes, acks: int = ALL_IN_SYNC) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        replica.append(*values, acks=acks)
    return raised.value.code


# --- roles


def test_a_leader_whose_partition_has_no_other_replica_is_alone(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1,), replicas=(1,)))
    assert replica.partition.role is Role.ALONE
    replica.append(b"a", b"b")
    assert (replica.log.high_watermark, replica.partition.must_wait_for(2)) == (2, NOTHING)


def test_a_broker_without_others_is_alone_whatever_its_metadata_name(tmp_path: Path) -> None:
    """A directory that was copied from a cluster."""
    replica = Replica(tmp_path, partition_state((1,)), has_peers=False, min_insync_replicas=2)
    assert replica.partition.role is Role.ALONE
    assert raised_by(replica, b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
    replica.append(b"a", acks=1)
    assert replica.log.high_watermark == 1


@for_each("leader, role", [(2, Role.FOLLOWING), (-1, Role.OFFLINE)])
def test_who_does_not_lead_takes_no_records_and_hears_no_followers(tmp_path: Path, leader: int, role: Role) -> None:
    replica = Replica(tmp_path, partition_state((2, 3), leader=leader))
    assert replica.partition.role is role
    for acks in (0, 1, ALL_IN_SYNC):
        assert raised_by(replica, b"a", acks=acks) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        replica.fetch(3, 0)
    assert replica.log.log_end_offset == 0


def test_every_role_may_follow_every_other(tmp_path: Path) -> None:
    states = {
        Role.ALONE: lambda epoch: partition_state((1,), replicas=(1,), leader_epoch=epoch, partition_epoch=epoch),
        Role.LEADING: lambda epoch: partition_state((1, 2), leader_epoch=epoch, partition_epoch=epoch),
        Role.FOLLOWING: lambda epoch: partition_state((1, 2), leader=2, leader_epoch=epoch, partition_epoch=epoch),
        Role.OFFLINE: lambda epoch: partition_state((1, 2), leader=-1, leader_epoch=epoch, partition_epoch=epoch),
    }
    replica = Replica(tmp_path, states[Role.ALONE](0))
    epoch = 0
    for first in Role:
        for second in Role:
            for role in (first, second):
                epoch += 1
                assert replica.take_up(states[role](epoch))
                assert replica.partition.role is role


def test_what_is_older_than_what_is_known_changes_nothing(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2), leader_epoch=5, partition_epoch=8))
    assert not replica.take_up(partition_state((1, 2), leader=2, leader_epoch=4, partition_epoch=9))
    assert not replica.take_up(partition_state((1, 2, 3), leader_epoch=5, partition_epoch=7))
    assert (replica.partition.role, replica.partition.leader_epoch) == (Role.LEADING, 5)


def test_an_answer_makes_an_older_state_old(tmp_path: Path) -> None:  # rule 5
    replica = Replica(tmp_path, partition_state((1, 2)))
    replica.accept(replica.fetch(3, 0))
    assert replica.partition.partition_epoch == 1
    assert not replica.take_up(partition_state((1, 2), partition_epoch=0))


def test_an_epoch_begins_at_the_end_of_the_log_even_if_nothing_is_written_in_it(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1,), leader_epoch=1))
    replica.append(b"a", b"b")
    replica.take_up(partition_state((1, 2), leader=2, leader_epoch=2, partition_epoch=1))
    replica.take_up(partition_state((1, 2), leader_epoch=3, partition_epoch=2))
    assert replica.log.leader_epochs.entries == [(1, 0), (3, 2)]
    replica.take_up(partition_state((1,), leader_epoch=3, partition_epoch=3))
    replica.append(b"c")
    assert replica.log.leader_epochs.entries == [(1, 0), (3, 2)], "only the replicas in sync have changed"


# --- the high watermark


def test_records_are_visible_when_all_in_sync_have_them(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2, 3)))
    replica.append(b"a", b"b")
    replica.fetch(2, 2)
    assert replica.partition.end_offset(READ_UNCOMMITTED) == 0
    replica.fetch(3, 1)
    assert replica.partition.end_offset(READ_UNCOMMITTED) == 1


def test_one_that_takes_office_shows_no_more_than_it_did_before_it_is_asked_for(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2), leader=2))
    replica.log.append_as_leader(make_batch(b"a", b"b", b"c"), 0)  # as it would come from the leader
    replica.log.update_high_watermark(1)
    replica.take_up(partition_state((1, 2), leader_epoch=1, partition_epoch=1))
    assert replica.log.high_watermark == 1
    with refused(ErrorCode.OFFSET_NOT_AVAILABLE):
        replica.partition.ensure_end_is_known()
    replica.append(b"d")
    replica.fetch(2, 3)
    assert replica.log.high_watermark == 3
    replica.partition.ensure_end_is_known()


def test_replicas_read_what_consumers_do_not_see_yet(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2)))
    replica.append(b"a")
    assert replica.partition.end_offset(READ_UNCOMMITTED) == 0
    assert replica.partition.end_offset(READ_UNCOMMITTED, is_for_replica=True) == 1


def test_nothing_becomes_visible_while_too_few_are_in_sync(tmp_path: Path) -> None:  # rule 7
    replica = Replica(tmp_path, partition_state((1,)), min_insync_replicas=2)
    replica.append(b"a", acks=1)
    assert replica.log.high_watermark == 0
    proposal = replica.fetch(2, 1)
    assert replica.log.high_watermark == 0, "the controller has not answered"
    replica.accept(proposal)
    assert replica.log.high_watermark == 1


def test_no_more_must_be_in_sync_than_there_are_replicas(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2), replicas=(1, 2)), min_insync_replicas=3)
    replica.append(b"a")
    replica.fetch(2, 1)
    assert replica.log.high_watermark == 1


def test_a_partition_that_lost_its_followers_goes_on_alone_in_sync(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2, 3)))
    replica.append(b"a")
    replica.now_ms = LAG_MS + 1
    proposal = replica.partition.look_at_followers(replica.now_ms)
    assert replica.log.high_watermark == 0
    replica.accept(proposal)
    assert replica.log.high_watermark == 1
    replica.append(b"b")
    assert replica.log.high_watermark == 2


def test_what_must_be_flushed_before_it_is_visible_is_flushed_and_replicated(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2)), plog_visible_after_flush=True)
    replica.append(b"a", b"b")
    replica.fetch(2, 2)
    assert replica.log.high_watermark == 0
    assert replica.partition.is_committed(2, REPLICATED), "acks=all waits for replicas alone, as before"
    replica.log.flush()
    replica.partition.on_flushed()
    assert replica.log.high_watermark == 2


def test_a_fetch_beyond_the_end_says_nothing(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2)))
    replica.append(b"a")
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        replica.fetch(2, 2)
    assert replica.log.high_watermark == 0


def test_a_follower_of_one_that_is_alone_is_told_to_ask_again(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1,), replicas=(1,)))
    with refused(ErrorCode.UNKNOWN_LEADER_EPOCH):
        replica.fetch(2, 0)


# --- what is acknowledged


def test_acks_of_all_wait_for_the_replicas_and_acks_of_one_do_not(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2)))
    replica.append(b"a")
    terms = replica.partition.must_wait_for(1)
    assert (terms, replica.partition.must_wait_for(1, 1)) == (REPLICATED, NOTHING)
    waiting = Waiting(replica.partition, 1, terms)
    replica.fetch(2, 0)
    assert waiting.states == []
    replica.fetch(2, 1)
    assert waiting.states == [True]
    assert replica.partition.must_wait_for(1) == NOTHING, "a retry of what is there already"


def test_both_may_have_to_be_waited_for(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2)), flush_messages=1)
    replica.append(b"a")
    assert replica.partition.must_wait_for(1, 1) == FLUSHED
    terms = replica.partition.must_wait_for(1)
    assert terms == FLUSHED | REPLICATED
    replica.fetch(2, 1)
    assert not replica.partition.is_committed(1, terms)
    replica.log.flush()
    assert replica.partition.is_committed(1, terms)


def test_too_few_in_sync_take_no_records_that_all_are_to_have(tmp_path: Path) -> None:  # rule 8
    replica = Replica(tmp_path, partition_state((1,)), min_insync_replicas=2)
    assert raised_by(replica, b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replica.log.log_end_offset == 0
    replica.append(b"a", acks=1)


def test_too_few_in_sync_at_the_acknowledgement_are_noticed(tmp_path: Path) -> None:  # rule 8
    replica = Replica(tmp_path, partition_state((1, 2)), min_insync_replicas=2)
    replica.append(b"a")
    terms = replica.partition.must_wait_for(1)
    replica.fetch(2, 1)
    assert not replica.partition.is_short_of_replicas
    replica.take_up(partition_state((1,), partition_epoch=1))
    assert replica.partition.is_committed(1, terms)
    assert replica.partition.is_short_of_replicas


def test_what_waits_is_never_committed_here_once_another_leads(tmp_path: Path) -> None:  # rule 17
    replica = Replica(tmp_path, partition_state((1, 2)))
    replica.append(b"a")
    waiting = Waiting(replica.partition, 1, replica.partition.must_wait_for(1))
    replica.take_up(partition_state((1, 2), leader=2, leader_epoch=1, partition_epoch=1))
    assert waiting.states == [False]
    replica.log.update_high_watermark(1)
    assert not replica.partition.is_committed(1, REPLICATED)


def test_what_waits_goes_on_waiting_in_another_epoch_of_the_same_leader(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2)))
    replica.append(b"a")
    waiting = Waiting(replica.partition, 1, replica.partition.must_wait_for(1))
    replica.take_up(partition_state((1, 2), leader_epoch=1, partition_epoch=1))
    assert waiting.states == [False]
    replica.fetch(2, 1)
    assert waiting.states == [False, True]


def test_the_answer_to_a_proposal_of_before_says_nothing_to_a_follower(tmp_path: Path) -> None:
    replica = Replica(tmp_path, partition_state((1, 2)))
    proposal = replica.fetch(3, 0)
    replica.take_up(partition_state((1, 2), leader=2, leader_epoch=1, partition_epoch=1))
    assert not replica.answer(proposal, IsrAnswer(isr=(1, 2, 3), leader_epoch=0, partition_epoch=1))
    assert replica.partition.partition_epoch == 1


# --- where the states come from


def test_a_registration_says_all_of_a_state() -> None:
    registration = PartitionRecord(
        4, ID, [1, 2], [1], [3], [2], leader=1, leader_recovery_state=1, leader_epoch=6, partition_epoch=9
    )
    assert PartitionState.of_registration(registration) == PartitionState(
        leader=1,
        leader_epoch=6,
        isr=(1,),
        replicas=(1, 2),
        partition_epoch=9,
        leader_recovery_state=1,
        adding_replicas=(2,),
        removing_replicas=(3,),
    )
