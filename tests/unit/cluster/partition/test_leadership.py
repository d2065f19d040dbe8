"""Who joins the replicas in sync, who leaves them, and what is replicated. The numbers are those of rules that lose
data when they are broken.
"""

from __future__ import annotations

from core.cluster.partition.leadership import IsrAnswer, IsrProposal, Leadership
from core.common.error_code import ErrorCode
from tests.support.for_each import for_each
from tests.support.refusals import refused
from tests.support.replication import LAG_MS, LEADER, KnownPeers, partition_state


class Led:
    """A partition that broker 1 leads, of replicas 1, 2 and 3."""

    def __init__(self, *isr: int, end: int = 10, high_watermark: int = 0) -> None:
        self.peers = KnownPeers(1, 2, 3)
        self.end, self.high_watermark, self.now_ms = end, high_watermark, 0
        self.leadership = Leadership(LEADER, self.peers, partition_state(isr), end, 0)

    def fetch(self, replica: int, offset: int, broker_epoch: int | None = None) -> IsrProposal | None:
        proposal = self.leadership.note_fetch(
            replica,
            offset,
            log_end_offset=self.end,
            high_watermark=self.high_watermark,
            log_start_offset=0,
            broker_epoch=100 + replica if broker_epoch is None else broker_epoch,
            now_ms=self.now_ms,
        )
        self.leadership.check_invariants()
        return proposal

    def look(self) -> IsrProposal | None:
        proposal = self.leadership.look(self.end, self.now_ms)
        self.leadership.check_invariants()
        return proposal

    @property
    def replicated(self) -> int:
        return self.leadership.replicated_offset(self.end)


def isr_of(proposal: IsrProposal | None) -> tuple[int, ...] | None:
    return None if proposal is None else proposal.isr


def test_what_all_in_sync_have_is_replicated() -> None:
    led = Led(1, 2, 3)
    assert led.replicated == -1
    led.fetch(2, 8)
    led.fetch(3, 6)
    assert led.replicated == 6
    led.fetch(3, 10)
    assert led.replicated == 8


def test_one_that_has_what_is_committed_and_what_the_epoch_began_with_may_join() -> None:  # rule 4
    led = Led(1, 2, end=10, high_watermark=4)
    led.end = 20
    assert isr_of(led.fetch(3, 9)) is None, "the leader before may have committed up to 10"
    assert isr_of(led.fetch(3, 10)) == (1, 2, 3)


def test_one_below_the_high_watermark_may_not_join() -> None:  # rule 4
    led = Led(1, 2, end=10)
    led.end = led.high_watermark = 20
    assert isr_of(led.fetch(3, 19)) is None
    assert isr_of(led.fetch(3, 20)) == (1, 2, 3)


def test_one_that_is_to_join_counts_before_the_controller_has_answered() -> None:  # rule 3
    led = Led(1, end=10)
    led.end = 100
    led.now_ms = 2 * LAG_MS
    assert isr_of(led.fetch(3, 10)) == (1, 3)
    assert led.replicated == 10


def test_one_that_is_to_leave_counts_until_the_controller_has_answered() -> None:  # rule 3
    led = Led(1, 2, 3)
    led.fetch(2, 10)
    led.now_ms = LAG_MS + 1
    led.fetch(2, 10)
    proposal = led.look()
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert led.replicated == -1
    answer = IsrAnswer(isr=(1, 2), leader_epoch=0, partition_epoch=1)
    led.leadership.on_answer(proposal, answer, led.end, led.now_ms)
    assert led.replicated == 10


def test_one_that_is_caught_up_counts_although_it_is_not_in_sync_yet() -> None:
    """Or a busy leader that is alone in sync would be ahead of it for ever."""
    led = Led(1, 2, end=10)
    led.leadership.in_sync.shrink([2], {})  # so that no other proposal can be made
    led.fetch(3, 10)
    led.fetch(2, 10)
    led.end = 20
    assert led.replicated == 10
    led.fetch(2, 20)
    assert led.replicated == 10
    led.now_ms = LAG_MS + 1
    led.look()
    assert led.replicated == 20


def test_one_that_may_not_join_holds_nothing_up() -> None:
    led = Led(1, end=10)
    led.peers.epochs[3] = None
    led.fetch(3, 10)
    led.end = 20
    assert led.replicated == 20


@for_each("gone", [None, 999])
def test_one_whose_broker_is_not_there_any_more_may_not_join(gone: int | None) -> None:  # rules 12 and 13
    led = Led(1, 2)
    led.fetch(3, 5)
    led.peers.epochs[3] = gone
    if gone is None:
        assert led.fetch(3, 10) is None
    else:
        with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            led.fetch(3, 10)
    assert led.leadership.in_sync.maximal == {1, 2}


def test_one_whose_life_is_not_known_yet_may_not_join() -> None:  # rule 12
    led = Led(1, 2)
    assert led.fetch(3, 10, broker_epoch=203) is None
    led.peers.epochs[3] = 203
    assert isr_of(led.fetch(3, 10, broker_epoch=203)) == (1, 2, 3)


def test_one_that_does_not_say_which_life_it_is_may_join() -> None:
    """As Kafka's brokers do under a ZooKeeper."""
    proposal = Led(1, 2).fetch(3, 10, broker_epoch=-1)
    assert proposal is not None
    assert proposal.broker_epochs == {1: -1, 2: -1, 3: -1}


def test_a_proposal_is_of_the_life_that_fetched_whatever_comes_until_it_is_sent() -> None:  # rule 12
    led = Led(1, 2)
    proposal = led.fetch(3, 10)
    led.peers.epochs[3] = 203
    led.fetch(3, 0, broker_epoch=203)
    assert proposal is not None
    assert proposal.broker_epochs[3] == 103


def test_a_late_request_of_an_earlier_life_says_nothing() -> None:  # rule 12
    led = Led(1, 2, 3)
    led.peers.epochs[3] = -1  # not known here
    led.fetch(3, 4, broker_epoch=203)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        led.fetch(3, 10, broker_epoch=103)
    led.fetch(2, 10)
    assert led.replicated == 4


def test_one_that_is_no_replica_is_told_to_ask_again() -> None:
    with refused(ErrorCode.UNKNOWN_LEADER_EPOCH):
        Led(1, 2).fetch(4, 10)


def test_those_that_are_late_leave_together_and_the_leader_stays() -> None:
    led = Led(1, 2, 3)
    led.now_ms = LAG_MS
    assert led.look() is None
    led.now_ms = LAG_MS + 1
    proposal = led.look()
    assert isr_of(proposal) == (1,)
    assert led.look() is None, "one is in flight"


def test_one_that_is_no_replica_any_more_leaves() -> None:
    led = Led(1, 2, 3)
    state = partition_state((1, 2, 3), partition_epoch=1, replicas=(1, 2))
    led.leadership.take_up(state, led.end, led.now_ms)
    assert isr_of(led.look()) == (1, 2)


def test_another_epoch_asks_all_again_where_they_are() -> None:
    led = Led(1, 2)
    led.fetch(2, 10)
    led.end = 30
    led.leadership.take_up(partition_state((1, 2), leader_epoch=1, partition_epoch=1), led.end, led.now_ms)
    assert led.replicated == -1
    assert led.fetch(3, 29) is None, "the epoch began at 30"


def test_other_replicas_in_sync_in_the_same_epoch_leave_the_followers_where_they_are() -> None:
    led = Led(1, 2)
    led.fetch(2, 10)
    led.leadership.take_up(partition_state((1, 2), partition_epoch=1, replicas=(1, 2, 3, 4)), led.end, led.now_ms)
    assert led.replicated == 10
    assert led.leadership.replica_count == 4
