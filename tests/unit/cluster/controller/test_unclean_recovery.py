"""Who leads after brokers have died: whoever surely has all that is committed, else the holder that has most, once all
holders have said what they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from core.cluster.controller.cluster_controller import ClusterController
from core.cluster.controller.controller_context import WITNESS, ControlledTopic, LiveBroker
from core.cluster.controller.controller_decisions import ControllerDecisions
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.controller_writes import Decision, StateWrite
from core.cluster.controller.elections import ElectionPolicy
from core.cluster.image.metadata_image import PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import LEADER_AND_ISR, LeaderAndIsrResponse, UpdateMetadataBroker
from core.protocol.schema.controller_request import AlteredPartition, AlteredTopic, AlterPartitionRequest, BrokerState
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.for_each import for_each

ID = bytes(15) + b"\x07"
T0 = TopicPartition("t", 0)
MINUTE_MS = 60_000


class End(NamedTuple):
    """What a replica answers: the epoch of its last record, and its log's end."""

    epoch: int
    offset: int


NEW_DISK = End(-1, 0)


class Cluster:
    """A controller, and brokers that live, die, stop and answer as a test says. An epoch is given to each life."""

    def __init__(self, *, min_isr: int = 2, leader: int = 1, isr: Sequence[int] = (1, 2, 3)) -> None:
        self.min_isr = min_isr
        self.wait_ms: int | None = None
        self.now_ms = 0
        self._zxid = 100
        self.sent: list[ControllerRequest] = []
        self.live: dict[int, LiveBroker] = {}
        self.written = PartitionState(leader, 4, tuple(isr), (1, 2, 3), 9)
        for one in (1, 2, 3):
            self._register(one)
        self.written = self._state(holders={one: self.live[one].epoch for one in isr})
        self.begin_term()

    def _state(self, **changes: Any) -> PartitionState:
        return replace(self.written, **changes)

    def _register(self, one: int, *, first: int | None = None, previous: int = -1, is_plog: bool = True) -> None:
        self._zxid += 1
        epoch = self._zxid
        self.live[one] = LiveBroker(
            epoch, UpdateMetadataBroker(id=one), {}, epoch if first is None else first, previous, self.now_ms, is_plog
        )

    def begin_term(self) -> None:
        """Another controller takes office, with what is written down."""
        policy = ElectionPolicy(min_isr=lambda _: self.min_isr, recovery_wait_ms=lambda: self.wait_ms)
        office = ControllerDecisions(1, 5, send=self.sent.append, policy=policy)
        self.context, self.controller = office.context, ClusterController(office)
        topics = {"t": ControlledTopic(ID, 0, {0: self.written})}
        self._drive(self.controller.take_office(dict(self.live), topics, ()))

    def _drive(self, decision: Decision[Any]) -> Any:
        try:
            writes = next(decision)
            while True:
                for write in writes:
                    self._zxid += 1
                    if isinstance(write, StateWrite):
                        self.written = replace(write.state, partition_epoch=write.state.partition_epoch + 1)
                writes = decision.send([self.written.partition_epoch for _ in writes])
        except StopIteration as end:
            self.controller.check_invariants()
            return end.value

    # --- what happens

    def die(self, *brokers: int) -> None:
        """Their sessions end, one after the other."""
        for one in brokers:
            del self.live[one]
            self._drive(self.controller.on_brokers(dict(self.live)))

    def come(self, *brokers: int, is_plog: bool = True) -> None:
        """They are back in other lives, and may have lost something."""
        for one in brokers:
            self._register(one, is_plog=is_plog)
            self._drive(self.controller.on_brokers(dict(self.live)))

    def come_cleanly(self, one: int, previous: int) -> None:
        self._register(one, previous=previous)
        self._drive(self.controller.on_brokers(dict(self.live)))

    def lose_session(self, one: int) -> None:
        """It lives, and is registered again."""
        self._register(one, first=self.live[one].first_epoch)
        self._drive(self.controller.on_brokers(dict(self.live)))

    def stop(self, one: int) -> int:
        """A controlled shutdown; gives the broker epoch that it had."""
        epoch = self.live[one].epoch
        self._drive(self.controller.shut_down(one, epoch))
        if self.leader != one:
            self.hear(self.leader)
        self.die(one)
        return epoch

    def hear(self, leader: int) -> None:
        """The leader answers the last LeaderAndIsr that it was sent."""
        request = next(one for one in self.sent[::-1] if one.broker_id == leader and one.api is LEADER_AND_ISR)
        answer = LeaderAndIsrResponse()
        self._drive(self.controller.on_roles_taken(leader, request.broker_epoch, request.request, answer))

    def sync(self, *isr: int) -> None:
        """The leader says who is in sync."""
        state = self.written
        proposed = AlteredPartition(
            0,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=[BrokerState(one, self.live[one].epoch if one in self.live else -1) for one in isr],
        )
        request = AlterPartitionRequest(
            state.leader, self.live[state.leader].epoch, [AlteredTopic(topic_id=ID, partitions=[proposed])]
        )
        answer = self._drive(self.controller.alter_partitions(request))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def answer(self, ends: Mapping[int, End | ErrorCode]) -> None:
        """They answer the questions that they were asked."""
        for one, end in ends.items():
            self.answer_to(self.asked(one)[-1], end)

    def asked(self, one: int) -> list[ControllerRequest]:
        return [request for request in self.sent if request.broker_id == one and request.api is LIST_OFFSETS]

    def answer_to(self, question: ControllerRequest, end: End | ErrorCode) -> None:
        told = ListOffsetsPartitionResponse(0)
        if isinstance(end, End):
            told.leader_epoch, told.offset = end
        else:
            told.error_code = end
        answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [told])])
        self._drive(self.controller.on_log_ends(question, answer))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self._drive(self.controller.look_at_recovery(self.now_ms))

    def elect_unclean(self) -> ErrorCode:
        results = self._drive(self.controller.elect_leaders([T0], is_unclean=True))
        return ErrorCode.of(results[T0])

    def forget(self, one: int) -> None:
        """An operator says that it is gone for good."""
        self._drive(self.controller.forget(one))

    def questions(self) -> list[int]:
        return [request.broker_id for request in self.sent if request.api is LIST_OFFSETS]

    @property
    def leader(self) -> int:
        return self.written.leader

    @property
    def holders(self) -> set[int]:
        return set(self.context.holders(T0))


def cut_off() -> Cluster:
    """All three are cut off from power at once."""
    cluster = Cluster()
    cluster.live.clear()
    cluster.begin_term()
    assert cluster.leader == -1
    return cluster


# --- after a power cut of all


def test_nobody_leads_before_all_are_back_and_the_one_that_has_most_leads_then() -> None:
    """Two that have lost their tails are back, nothing happens for two minutes, then comes the third."""
    cluster = cut_off()
    cluster.come(1, 2)
    cluster.answer({1: End(4, 10), 2: End(4, 7)})
    cluster.pass_time(2 * MINUTE_MS)
    assert cluster.leader == -1
    cluster.come(3)
    cluster.answer({3: End(4, 1000)})
    assert (cluster.leader, cluster.written.isr) == (3, (3,))
    assert cluster.written.leader_recovery_state == 0


@for_each(
    "first, second, third, leader",
    [
        (End(4, 10), End(5, 7), End(4, 90), 2),  # an epoch without its end is not enough, nor an end without its epoch
        (End(5, 7), End(5, 8), End(5, 8), 2),  # of equals the first in the assignment
        (NEW_DISK, End(3, 1), NEW_DISK, 2),
        (NEW_DISK, NEW_DISK, NEW_DISK, 1),
        (End(-1, 50), NEW_DISK, NEW_DISK, 1),  # retention has deleted all its records
    ],
)
def test_the_greatest_epoch_and_then_the_longest_log_wins(first: End, second: End, third: End, leader: int) -> None:
    cluster = cut_off()
    cluster.come(1, 2, 3)
    cluster.answer({1: first, 2: second, 3: third})
    assert cluster.leader == leader


def test_the_epoch_is_above_that_of_all_records_though_zookeeper_is_of_an_older_backup() -> None:
    """Otherwise followers would have records of later epochs than the leader's."""
    cluster = cut_off()
    cluster.come(1, 2, 3)
    cluster.answer({1: End(7, 10), 2: End(9, 7), 3: End(9, 8)})
    assert (cluster.leader, cluster.written.leader_epoch) == (3, 10)
    cluster = cut_off()
    cluster.come(1)
    cluster.answer({1: End(7, 10)})
    cluster.elect_unclean()
    assert (cluster.leader, cluster.written.leader_epoch) == (1, 8)


def test_who_can_not_say_yet_is_asked_again() -> None:
    cluster = cut_off()
    cluster.come(1, 2, 3)
    cluster.answer({1: End(4, 10), 2: End(4, 7), 3: ErrorCode.REPLICA_NOT_AVAILABLE})
    assert (cluster.leader, cluster.questions()) == (-1, [1, 2, 3])
    cluster.pass_time(250)
    assert cluster.questions() == [1, 2, 3, 3]
    cluster.answer({3: End(4, 11)})
    assert cluster.leader == 3


def test_the_log_says_once_for_whom_a_partition_waits(caplog: pytest.LogCaptureFixture) -> None:
    """When that has been so for a moment; and again when it is somebody else."""
    caplog.set_level("INFO", "plog.controller")
    cluster = cut_off()
    cluster.pass_time(250)
    cluster.come(1, 2)
    cluster.answer({1: End(4, 10)})
    for _ in range(5):
        cluster.pass_time(250)
    cluster.answer({2: End(4, 7)})
    for _ in range(5):
        cluster.pass_time(250)
    cluster.come(3)
    cluster.answer({3: End(4, 11)})
    for _ in range(5):
        cluster.pass_time(250)
    waits = "1 partition has no leader while waiting for"
    second, third = "broker 2, which has not said where its log ends", "broker 3, which is away"
    ends = "1 ends at offset 10 in epoch 4; 2 ends at offset 7 in epoch 4; 3 ends at offset 11 in epoch 4"
    assert caplog.messages == [
        f"{waits} {second} and {third}: t-0",
        f"{waits} {third}: t-0",
        f"t-0: broker 3 leads, as it has the most records ({ends})",
    ]


def test_an_answer_counts_for_the_life_that_gave_it() -> None:
    cluster = cut_off()
    cluster.come(1, 2)
    cluster.answer({1: End(4, 10), 2: End(4, 7)})
    cluster.die(1)
    cluster.come(1, 3)
    cluster.answer({3: End(4, 5)})
    assert cluster.leader == -1
    cluster.answer({1: NEW_DISK})
    assert cluster.leader == 2


def test_an_answer_to_a_question_of_before_an_election_counts_for_nothing() -> None:
    """Whoever gave it may have fetched more from the leader since."""
    cluster = Cluster()
    cluster.die(3)
    cluster.live.clear()
    cluster.begin_term()
    cluster.come(1, 2, 3)
    question = cluster.asked(3)[-1]
    cluster.answer({1: End(4, 10), 2: End(4, 7)})
    cluster.pass_time(5 * MINUTE_MS)
    assert cluster.leader == 1
    cluster.die(1)
    cluster.come(1)
    cluster.answer({1: NEW_DISK, 2: End(4, 7)})
    cluster.answer_to(question, End(4, 5))
    assert cluster.leader == -1
    cluster.answer({3: End(5, 1000)})
    assert cluster.leader == 3


def test_a_second_cut_finds_the_same_holders() -> None:
    """It comes before enough are in sync again: all are asked once more."""
    cluster = cut_off()
    cluster.come(1, 2, 3)
    cluster.answer({1: End(4, 10), 2: End(4, 7), 3: End(4, 1000)})
    assert (cluster.leader, cluster.holders) == (3, {1, 2, 3})
    cluster.live.clear()
    cluster.begin_term()
    cluster.come(1, 2)
    cluster.answer({1: End(4, 10), 2: End(4, 7)})
    assert cluster.leader == -1
    cluster.come(3)
    cluster.answer({3: End(4, 900)})
    assert cluster.leader == 3


def test_once_enough_are_in_sync_again_they_are_the_holders() -> None:
    cluster = cut_off()
    cluster.come(1, 2, 3)
    cluster.answer({1: End(4, 10), 2: End(4, 7), 3: End(4, 1000)})
    cluster.sync(3, 1)
    assert cluster.holders == {1, 3}


def test_a_kafka_wins_only_if_no_plog_has_anything() -> None:
    """It can't say the epoch of its last record."""
    for others, leader in ((End(2, 5), 1), (NEW_DISK, 3)):
        cluster = cut_off()
        cluster.come(1, 2)
        cluster.come(3, is_plog=False)
        cluster.answer({1: others, 2: NEW_DISK, 3: End(9, 1000)})
        assert cluster.leader == leader


# --- who surely has all


def test_who_stopped_cleanly_leads_at_once() -> None:
    """All are stopped, and two of three start."""
    cluster = Cluster()
    stopped = {one: cluster.stop(one) for one in (3, 2)}
    assert cluster.written.isr == (1,)
    cluster.live.clear()
    cluster.begin_term()
    cluster.come_cleanly(3, stopped[3])
    assert cluster.leader == -1  # it had left before, and others may have committed more
    cluster.come_cleanly(2, stopped[2])
    assert (cluster.leader, cluster.written.isr) == (2, (2,))
    assert cluster.questions() == []


def test_a_stop_in_an_earlier_life_is_no_clean_one() -> None:
    cluster = Cluster()
    cluster.stop(3)
    epoch = cluster.stop(2)
    cluster.die(1)
    cluster.come_cleanly(2, epoch - 1)
    assert (cluster.leader, cluster.holders) == (-1, {1, 2})


def test_who_lives_and_has_lost_its_session_leads_at_once() -> None:
    """Sessions end one after the other until one is in sync; that one loses its tail, and is the first to be back."""
    cluster = Cluster()
    cluster.die(3)
    cluster.hear(1)
    before = cluster.live[2]
    cluster.die(2, 1)
    cluster.come(1)
    cluster.answer({1: End(4, 5)})
    assert (cluster.leader, cluster.holders) == (-1, {1, 2})
    cluster._register(2, first=before.first_epoch)
    cluster._drive(cluster.controller.on_brokers(dict(cluster.live)))
    assert (cluster.leader, cluster.written.isr) == (2, (2,))


def test_who_leaves_while_enough_are_in_sync_holds_nothing_of_what_comes_then() -> None:
    cluster = Cluster()
    epoch = cluster.stop(3)
    cluster.die(1, 2)
    cluster.come_cleanly(3, epoch)
    assert (cluster.leader, cluster.holders) == (-1, {1, 2})


def test_no_other_election_takes_somebody_who_is_not_sure() -> None:
    """Neither the preferred one, nor one for a reassignment: all are there, and have not said what they have."""
    cluster = cut_off()
    cluster.come(1, 2, 3)
    results = cluster._drive(cluster.controller.elect_leaders([T0], is_unclean=False))
    assert results == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    cluster._drive(cluster.controller.reassignments.alter({T0: [3, 2]}))
    assert cluster.leader == -1


def test_who_is_in_sync_comes_before_who_has_left() -> None:
    """Both have all that is committed, and who is in sync has perhaps more."""
    cluster = Cluster()
    cluster.written = replace(cluster.written, leader=-1, isr=(2,), holders={1: 101, 2: 102})
    cluster.begin_term()
    assert (cluster.leader, cluster.written.isr) == (2, (2,))


def test_the_preferred_leader_waits_until_it_is_in_sync_again() -> None:
    cluster = Cluster(leader=2)
    cluster.die(3)
    cluster.hear(2)
    before = cluster.live[1]
    cluster.die(1)
    cluster._register(1, first=before.first_epoch)
    cluster._drive(cluster.controller.on_brokers(dict(cluster.live)))
    assert (cluster.written.isr, cluster.context.sure(T0)) == ((2,), [1, 2])
    results = cluster._drive(cluster.controller.elect_leaders([T0], is_unclean=False))
    assert (results, cluster.leader) == ({T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}, 2)


# --- witnesses


def test_who_was_in_sync_is_asked_until_the_leader_was_heard_of() -> None:
    """All are cut off at once, and the session of one ends before the others': the leader is dead, too."""
    cluster = Cluster()
    cluster.die(1)
    assert (cluster.leader, dict(cluster.context.holders(T0))) == (2, {2: 102, 3: 103, 1: WITNESS})
    cluster.die(3, 2)
    cluster.come(2, 3)
    cluster.answer({2: End(4, 1), 3: End(4, 2)})
    cluster.pass_time(MINUTE_MS)
    assert cluster.leader == -1
    cluster.come(1)
    cluster.answer({1: End(4, 1000)})
    assert cluster.leader == 1


def test_a_leader_that_was_heard_of_has_no_witnesses() -> None:
    cluster = Cluster()
    cluster.die(1)
    cluster.hear(2)
    assert cluster.holders == {2, 3}


def test_witnesses_are_not_waited_for_for_ever() -> None:
    """Whoever takes office may not know that the leader was heard of, and the witness may be gone for good."""
    cluster = Cluster()
    cluster.die(1)
    cluster.live.clear()
    cluster.begin_term()
    cluster.come(2, 3)
    cluster.answer({2: End(4, 1), 3: End(4, 2)})
    cluster.pass_time(5 * MINUTE_MS - 1)
    assert cluster.leader == -1
    cluster.pass_time(1)
    assert (cluster.leader, cluster.written.leader_recovery_state) == (3, 0)


# --- min.insync.replicas


@for_each("is_next_controller", [False, True])
def test_lowering_min_insync_replicas_makes_the_holders_those_in_sync(*, is_next_controller: bool) -> None:
    """The controller looks when the setting changes; the next one looks when it takes office."""
    cluster = Cluster()
    cluster.die(3)
    cluster.hear(1)
    before = cluster.live[2]
    cluster.die(2)
    assert cluster.holders == {1, 2}
    cluster.min_isr = 1
    if is_next_controller:
        cluster.begin_term()
    else:
        cluster._drive(cluster.controller.settle_holders())
    epoch = cluster.written.leader_epoch
    cluster.min_isr = 2
    cluster._drive(cluster.controller.settle_holders())
    assert (cluster.holders, cluster.written.leader_epoch) == ({1}, epoch)
    cluster.die(1)
    cluster._register(2, first=before.first_epoch)
    cluster._drive(cluster.controller.on_brokers(dict(cluster.live)))
    assert cluster.leader == -1


# --- giving up


@for_each(
    "min_isr, wait_ms, waited_ms, leader",
    [
        (2, None, 100 * MINUTE_MS, -1),
        (1, None, 5 * MINUTE_MS - 1, -1),
        (1, None, 5 * MINUTE_MS, 1),
        (2, MINUTE_MS, MINUTE_MS, 1),
        (1, -1, 100 * MINUTE_MS, -1),
        (2, 0, 0, 1),
    ],
)
def test_how_long_holders_are_waited_for(min_isr: int, wait_ms: int | None, waited_ms: int, leader: int) -> None:
    cluster = Cluster(min_isr=min_isr)
    cluster.wait_ms = wait_ms
    cluster.live.clear()
    cluster.begin_term()
    cluster.come(2)
    cluster.come(1)
    cluster.answer({1: End(4, 10), 2: End(4, 7)})
    cluster.pass_time(waited_ms - waited_ms // 2)
    cluster.begin_term()  # which does not begin to count again
    cluster.answer({1: End(4, 10), 2: End(4, 7)})
    cluster.pass_time(waited_ms // 2)
    assert cluster.leader == leader
    assert cluster.written.leader_recovery_state == int(leader == 1)


def test_nobody_is_given_up_before_a_holder_is_back() -> None:
    cluster = Cluster(min_isr=1, isr=(1,))
    cluster.die(1)
    cluster.pass_time(100 * MINUTE_MS)
    assert cluster.leader == -1


def test_an_operators_word_takes_who_has_most(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cut_off()
    cluster.come(1, 2)
    cluster.answer({1: End(4, 7), 2: End(4, 10)})
    assert cluster.elect_unclean() is ErrorCode.NONE
    assert (cluster.leader, cluster.holders, cluster.written.leader_recovery_state) == (2, {2}, 1)
    assert "1 ends at offset 7 in epoch 4; 2 ends at offset 10 in epoch 4" in caplog.text
    assert "records that only 3 may have are given up" in caplog.text


# --- gone for good


def test_who_is_gone_for_good_is_waited_for_no_more(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cut_off()
    cluster.come(1, 2)
    cluster.answer({1: End(4, 7), 2: End(4, 10)})
    epoch = cluster.written.leader_epoch
    cluster.forget(3)
    assert (cluster.leader, cluster.written.isr, cluster.holders) == (2, (2,), {1, 2})
    assert cluster.written.leader_epoch > epoch
    assert (
        "records that only 3 may have are given up (1 ends at offset 7 in epoch 4; 2 ends at offset 10" in caplog.text
    )


def test_the_others_are_waited_for_still() -> None:
    cluster = cut_off()
    cluster.come(1)
    cluster.answer({1: End(4, 7)})
    cluster.forget(3)
    cluster.begin_term()  # it is written down
    cluster.answer({1: End(4, 7)})
    assert (cluster.leader, cluster.holders, cluster.written.isr) == (-1, {1, 2}, (1, 2))
    cluster.come(2)
    cluster.answer({2: End(4, 10)})
    assert cluster.leader == 2


def test_who_was_forgotten_and_comes_back_holds_nothing() -> None:
    cluster = cut_off()
    before = cluster.written.holders[3]
    cluster.come(1)
    cluster.forget(3)
    cluster._register(3, first=before)
    cluster._drive(cluster.controller.on_brokers(dict(cluster.live)))
    assert (cluster.leader, cluster.holders) == (-1, {1, 2})


def test_if_the_only_holder_is_gone_for_good_all_other_replicas_are_asked() -> None:
    """Whoever has most of what it had leads."""
    cluster = Cluster(isr=(1,), min_isr=1)
    cluster.die(1)
    assert cluster.holders == {1}
    cluster.forget(1)
    assert (cluster.leader, cluster.written.isr) == (-1, ())
    assert dict(cluster.written.holders) == {2: WITNESS, 3: WITNESS}
    cluster.answer({2: End(3, 90)})
    assert cluster.leader == -1
    cluster.answer({3: End(4, 10)})
    assert (cluster.leader, cluster.written.isr) == (3, (3,))


def test_a_partition_that_is_led_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.die(3)
    cluster.hear(1)
    cluster.die(2)
    assert (cluster.leader, cluster.holders) == (1, {1, 2})
    cluster.forget(2)
    assert (cluster.leader, cluster.written.isr, cluster.holders) == (1, (1,), {1})
    assert "given up" not in caplog.text


def test_who_lives_is_not_forgotten_nor_a_broker_that_nobody_knows() -> None:
    cluster = Cluster()
    for one, code in ((3, ErrorCode.INVALID_REQUEST), (9, ErrorCode.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(KafkaError) as caught:
            cluster.forget(one)
        assert caught.value.code is code
    assert cluster.holders == {1, 2, 3}
