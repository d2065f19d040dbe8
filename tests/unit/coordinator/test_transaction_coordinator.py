"""Transactional ids in a world in memory: what is told to whom, what is written first, what a restart makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.coordinator_environment import TransactionConfig
from core.coordinator.transaction_coordinator import Outcome, TransactionCoordinator, TransactionFilter
from core.coordinator.transaction_record_values import read_transaction, transaction_key, transaction_value
from core.coordinator.transaction_state import ALLOWED_TRANSITIONS, TransactionMetadata, TransactionState
from core.records.record_batch import ProducerIdAndEpoch
from tests.support.broker import Timers
from tests.support.for_each import for_each
from tests.support.groups import refused
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LAST_EPOCH = 32_766


class World:
    """As of `TransactionEnvironment`; `marked` are the markers, with who ended how."""

    def __init__(self) -> None:
        self.config = TransactionConfig()
        self.transaction_version = 2
        self.clock = ManualClock(NOW)
        self.timers = Timers()
        self.written: list[tuple[str, bytes | None]] = []
        self.marked: list[tuple[TopicPartition, ProducerIdAndEpoch, bool]] = []
        self.unreachable: set[TopicPartition] = set()
        self.refuses = self.is_loading = False
        self.numbers: dict[str, int] = {}  # ids' partitions; 0 where none is given
        self.is_flushed_later = False
        self.marks_later: list[Callable[[], None]] | None = None  # if it is a list, others have the markers to write
        self.waiting: list[Callable[[KafkaError | None], None]] = []
        self._next_id = 100
        self.coordinator = TransactionCoordinator(self)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def monotonic_ms(self) -> int:
        return self.clock.monotonic_ms()

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> object:
        return self.timers(delay_ms, function)

    def next_producer_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def ensure_loaded(self, transactional_id: str) -> None:
        if self.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def number_of(self, transactional_id: str) -> int:
        return self.numbers.get(transactional_id, 0)

    def write(self, transactional_id: str, value: bytes | None) -> None:
        if self.refuses:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.written.append((transactional_id, value))

    def call_when_committed(self, transactional_id: str, then: Callable[[KafkaError | None], None], /) -> None:
        if self.is_flushed_later:
            self.waiting.append(then)
        else:
            then(None)

    def write_markers(
        self,
        prepared: TransactionMetadata,
        partitions: frozenset[TopicPartition],
        then: Callable[[frozenset[TopicPartition]], None],
        /,
    ) -> None:
        if self.marks_later is not None:
            self.marks_later.append(lambda: then(frozenset()))
            return
        left = partitions & self.unreachable
        self.marked += [(p, prepared.producer, prepared.is_commit) for p in sorted(partitions - left)]
        then(left)

    # --- what a client does

    def begin(self, name: str = "x", *partitions: TopicPartition, version: int = 2) -> ProducerIdAndEpoch:
        producer = self.coordinator.init_producer_id(name, 1000)
        if partitions:
            self.coordinator.add_partitions(name, producer, frozenset(partitions), version)
        return producer

    def end(
        self, producer: ProducerIdAndEpoch, name: str = "x", *, is_commit: bool = True, version: int = 2
    ) -> list[Outcome]:
        """What was answered so far."""
        answers: list[Outcome] = []
        ended = self.coordinator.end(name, producer, is_commit=is_commit, transaction_version=version)
        if isinstance(ended, Pending):
            ended.on_value = answers.append
        else:
            answers.append(ended)
        return answers

    def state(self, name: str = "x") -> TransactionMetadata:
        return self.coordinator.describe(name)

    def load(self, metadata: TransactionMetadata) -> None:
        """As if the log said so."""
        name = metadata.transactional_id
        self.written.append((name, transaction_value(metadata, 2)))
        self.coordinator.replay(transaction_key(name), self.written[-1][1])

    def restarted(self) -> World:
        again = World()
        again.clock = self.clock
        again.written = list(self.written)
        again._next_id = self._next_id
        names = [again.coordinator.replay(transaction_key(name), value) for name, value in self.written]
        again.coordinator.begin(names)
        return again


@pytest.fixture
def world() -> World:
    return World()


PREVIOUS_STATES = {
    "EMPTY": "EMPTY COMPLETE_COMMIT COMPLETE_ABORT",
    "ONGOING": "ONGOING EMPTY COMPLETE_COMMIT COMPLETE_ABORT",
    "PREPARE_COMMIT": "ONGOING",
    "PREPARE_ABORT": "ONGOING PREPARE_EPOCH_FENCE EMPTY COMPLETE_COMMIT COMPLETE_ABORT",
    "COMPLETE_COMMIT": "PREPARE_COMMIT",
    "COMPLETE_ABORT": "PREPARE_ABORT",
    "DEAD": "EMPTY COMPLETE_ABORT COMPLETE_COMMIT",
}
"""As Kafka's TransactionState has them. It also has Ongoing before PrepareEpochFence, which plog never enters."""


def test_the_transitions_are_kafkas() -> None:
    ours = {(before.name, after.name) for before, states in ALLOWED_TRANSITIONS.items() for after in states}
    kafkas = {(before, after) for after, states in PREVIOUS_STATES.items() for before in states.split()}
    of_what_is_in_the_log = {("PREPARE_EPOCH_FENCE", "EMPTY"), ("PREPARE_EPOCH_FENCE", "ONGOING")}
    assert ours == kafkas | of_what_is_in_the_log


@for_each("state", TransactionState)
def test_no_other_transition_is_made(state: TransactionState) -> None:
    known = TransactionMetadata("x", 7, 1000, state=state)
    steps = {
        TransactionState.EMPTY: lambda: known.with_epoch(1, 0, 1000, NOW),
        TransactionState.ONGOING: lambda: known.with_partitions(frozenset([T0]), NOW, 2),
        TransactionState.PREPARE_COMMIT: lambda: known.prepared(is_commit=True, transaction_version=2, now_ms=NOW),
        TransactionState.PREPARE_ABORT: lambda: known.fenced(2, NOW),
    }
    for after, step in steps.items():
        if after in ALLOWED_TRANSITIONS[state]:
            assert step().state is after
        else:
            with pytest.raises(AssertionError):
                step()


@pytest.mark.parametrize("version", [1, 2])
def test_a_state_that_nobody_writes_ends_all_the_same(world: World, version: int) -> None:
    world.transaction_version = version
    world.load(TransactionMetadata("x", 7, 1000, producer_epoch=3, state=TransactionState.PREPARE_EPOCH_FENCE))
    assert world.begin("x", T0) == (7, 4)
    assert world.state().state is TransactionState.ONGOING


# --- producers


def test_each_producer_of_an_id_gets_the_next_epoch(world: World) -> None:
    assert [world.begin() for _ in range(3)] == [(101, 0), (101, 1), (101, 2)]
    assert world.begin("y") == (102, 0)
    assert world.state("y").next_producer_id == -1, "which is none to Kafka"


def test_a_producer_whose_epochs_are_used_up_gets_another_id(world: World) -> None:
    world.load(TransactionMetadata("x", 7, 1000, producer_epoch=LAST_EPOCH))
    before = ProducerIdAndEpoch(7, LAST_EPOCH)
    assert world.coordinator.init_producer_id("x", 1000, before) == (101, 0)
    assert world.state().previous_producer_id == 7
    assert world.coordinator.init_producer_id("x", 1000, before) == (101, 0), "it asks again"
    assert world.coordinator.init_producer_id("x", 1000) == (101, 1)
    assert refused(world.coordinator.init_producer_id, "x", 1000, before) == ErrorCode.PRODUCER_FENCED


def test_an_end_that_uses_up_the_epochs_gives_another_id(world: World) -> None:
    world.load(TransactionMetadata("x", 7, 1000, producer_epoch=LAST_EPOCH))
    last = ProducerIdAndEpoch(7, LAST_EPOCH)
    world.coordinator.add_partitions("x", last, frozenset([T0]), 2)
    assert world.end(last) == [(101, 0)]
    assert world.marked == [(T0, (7, LAST_EPOCH + 1), True)]
    assert world.end(last) == [(101, 0)], "it asks again"
    world.coordinator.add_partitions("x", ProducerIdAndEpoch(101, 0), frozenset([T0]), 2)
    assert refused(world.end, last) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_who_comes_next_ends_what_was_open(world: World) -> None:
    first = world.begin("x", T0, T1)
    second = world.coordinator.init_producer_id("x", 1000)
    assert world.marked == [(T0, (101, 1), False), (T1, (101, 1), False)]
    assert second == (101, 2)
    assert refused(world.end, first) == ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_with_the_last_epoch_makes_room_for_another_id(world: World) -> None:
    world.load(TransactionMetadata("x", 7, 1000, producer_epoch=LAST_EPOCH))
    world.coordinator.add_partitions("x", ProducerIdAndEpoch(7, LAST_EPOCH), frozenset([T0]), 2)
    assert world.begin() == (101, 0)
    assert world.marked == [(T0, (7, LAST_EPOCH + 1), False)]


# --- the two phases


def test_the_outcome_is_written_before_the_markers_and_the_end_behind_them(world: World) -> None:
    steps: list[str] = []
    world.coordinator.on_step = steps.append
    producer = world.begin("x", T0)
    world.is_flushed_later = True
    answers = world.end(producer)
    assert steps == ["Empty", "Ongoing", "PrepareCommit"]
    assert (answers, world.marked) == ([], [])
    assert refused(world.end, producer) == ErrorCode.CONCURRENT_TRANSACTIONS
    following = ProducerIdAndEpoch(101, 1)
    add = lambda: world.coordinator.add_partitions("x", following, frozenset([T1]), 2)  # noqa: E731
    assert refused(add) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(world.begin) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.waiting.pop()(None)
    assert steps[-1] == "CompleteCommit"
    assert answers == [following]
    assert world.marked == [(T0, following, True)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_who_asks_again_for_an_end_is_not_told_of_the_other(world: World, version: int, is_commit: bool) -> None:
    """A commit that is sent again after the abort that it did not hear of, as by a timeout, must not look like one."""
    producer = world.begin("x", T0, version=version)
    (ended,) = world.end(producer, is_commit=is_commit, version=version)
    assert not isinstance(ended, KafkaError)
    (again,) = world.end(producer, is_commit=is_commit, version=version)
    assert again == ended
    marked = list(world.marked)
    code = refused(lambda: world.end(producer, is_commit=not is_commit, version=version))
    assert code is ErrorCode.INVALID_TXN_STATE
    assert world.marked == marked


def test_an_outcome_that_could_not_be_kept_is_not_told_as_one(world: World) -> None:
    producer = world.begin("x", T0)
    world.is_flushed_later = True
    answers = world.end(producer)
    world.waiting.pop()(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert [answer.code for answer in answers if isinstance(answer, KafkaError)] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    ]
    assert world.marked == []


def test_markers_that_cant_be_written_are_written_when_they_can(world: World) -> None:
    producer = world.begin("x", T0, T1)
    world.unreachable = {T1}
    assert world.end(producer) == [(101, 1)], "the outcome is decided"
    assert world.state().state is TransactionState.PREPARE_COMMIT
    world.timers.fire()
    assert [partition for partition, _, _ in world.marked] == [T0]
    world.unreachable = set()
    world.timers.fire()
    assert [partition for partition, _, _ in world.marked] == [T0, T1]
    assert world.state().state is TransactionState.COMPLETE_COMMIT
    world.timers.fire()
    assert len(world.marked) == 2


def test_an_end_that_cant_be_written_is_written_when_it_can(world: World) -> None:
    producer = world.begin("x", T0)

    def fill_disk(step: str) -> None:
        world.refuses = step == "PrepareAbort"

    world.coordinator.on_step = fill_disk
    assert world.end(producer, is_commit=False) == [(101, 1)]
    assert world.state().state is TransactionState.PREPARE_ABORT
    world.refuses = False
    world.timers.fire()
    assert world.state().state is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_what_was_being_ended_is_ended_at_the_next_start(world: World, state: TransactionState) -> None:
    world.load(TransactionMetadata("x", 7, 1000, producer_epoch=3, state=state, partitions=frozenset([T0, T1])))
    again = world.restarted()
    is_commit = state is TransactionState.PREPARE_COMMIT
    assert again.marked == [(T0, (7, 3), is_commit), (T1, (7, 3), is_commit)]
    assert again.state().state.text == state.text.replace("Prepare", "Complete")
    assert again.restarted().marked == []


# --- from time to time


@pytest.mark.parametrize(("version", "step_ms"), [(1, 0), (2, 0), (2, -3_600_000), (2, 3_600_000)])
def test_a_transaction_that_takes_too_long_is_aborted(world: World, version: int, step_ms: int) -> None:
    """However the wall clock is set meanwhile."""
    world.transaction_version = version
    producer = world.begin("x", T0, version=version)
    world.clock.set_wall_by(step_ms)
    world.clock.advance(1000)
    world.coordinator.abort_timed_out()
    assert world.state().state is TransactionState.ONGOING
    world.clock.advance(1)
    world.coordinator.abort_timed_out()
    assert world.marked == [(T0, (101, 1), False)]
    assert world.state().state is TransactionState.COMPLETE_ABORT
    assert refused(lambda: world.coordinator.add_partitions("x", producer, frozenset([T0]), version)) == (
        ErrorCode.PRODUCER_FENCED
    )


def test_a_timeout_goes_on_over_a_restart(world: World) -> None:
    """By the time that is written down; set back meanwhile, the transaction has its whole time once more."""
    world.begin("x", T0)
    world.clock.advance(800)
    again = world.restarted()
    again.clock.advance(201)
    again.coordinator.abort_timed_out()
    assert again.state().state is TransactionState.COMPLETE_ABORT
    world = World()
    world.begin("x", T0)
    world.clock.set_wall_by(-3_600_000)
    again = world.restarted()
    again.clock.advance(1000)
    again.coordinator.abort_timed_out()
    assert again.state().state is TransactionState.ONGOING
    again.clock.advance(1)
    again.coordinator.abort_timed_out()
    assert again.state().state is TransactionState.COMPLETE_ABORT


def test_ids_that_nobody_used_are_forgotten(world: World) -> None:
    world.begin("idle")
    world.begin("open", T0)
    world.clock.advance(604_800_000 - 1)
    world.begin("fresh")
    world.coordinator.expire()
    assert {m.transactional_id for m in world.coordinator.all()} == {"idle", "open", "fresh"}
    world.clock.advance(1)
    world.coordinator.expire()
    assert {m.transactional_id for m in world.coordinator.all()} == {"open", "fresh"}
    assert {m.transactional_id for m in world.restarted().coordinator.all()} == {"open", "fresh"}
    assert world.begin("idle").epoch == 0


def test_a_disk_that_is_full_when_time_is_up_is_tried_again(world: World) -> None:
    world.begin("idle")
    world.begin("open", T0)
    world.clock.advance(604_800_000)
    world.refuses = True
    world.coordinator.abort_timed_out()
    world.coordinator.expire()
    world.refuses = False
    assert world.state("open").state is TransactionState.ONGOING
    world.coordinator.abort_timed_out()
    world.coordinator.expire()
    assert [m.transactional_id for m in world.coordinator.all()] == ["open"]


# --- what goes wrong


def test_nothing_changes_where_nothing_can_be_written(world: World) -> None:
    world.refuses = True
    assert refused(world.begin) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refused(world.state) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    world.refuses = False
    producer = world.begin("x", T0)
    before = world.state()
    world.refuses = True
    for call in (
        lambda: world.coordinator.add_partitions("x", producer, frozenset([T1]), 2),
        lambda: world.end(producer),
        lambda: world.coordinator.init_producer_id("x", 1000),
    ):
        assert refused(call) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.state() == before
    assert world.marked == []


def test_nothing_is_said_while_it_is_not_all_read(world: World) -> None:
    producer = world.begin("x", T0)
    world.is_loading = True
    for call in (
        lambda: world.begin(),
        lambda: world.coordinator.add_partitions("x", producer, frozenset([T1]), 2),
        lambda: world.coordinator.ensure_in_transaction("x", producer, T0),
        lambda: world.end(producer),
        lambda: world.state(),
    ):
        assert refused(call) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_ids_of_a_partition_that_is_led_elsewhere_are_let_go(world: World) -> None:
    world.numbers = {"x": 1, "y": 2}
    world.begin("x", T0)
    world.begin("y", T0)
    world.coordinator.forget(1)
    assert [metadata.transactional_id for metadata in world.coordinator.all()] == ["y"]
    world.coordinator._check_invariants()


@pytest.mark.parametrize("let_go", ["its partition", "all"])
def test_markers_of_an_id_that_was_let_go_are_for_others_to_write(world: World, let_go: str) -> None:
    """It was prepared here, and was let go before that was committed, or before the markers were tried again."""
    world.numbers = {"x": 1}
    producer = world.begin("x", T0)
    world.is_flushed_later = True
    answers = world.end(producer)
    if let_go == "all":
        world.coordinator.forget_all()
    else:
        world.coordinator.forget(1)
    world.waiting.pop()(None)
    assert isinstance(answers[0], KafkaError)
    assert answers[0].code is ErrorCode.NOT_COORDINATOR
    assert world.marked == list(world.coordinator.all()) == []


@pytest.mark.parametrize("value", [b"", b"\0\1\0", b"\0\x63" + bytes(60), b"\0\0" + bytes(30)])
def test_a_record_that_is_none_is_passed_over(world: World, value: bytes) -> None:
    world.begin()
    assert world.coordinator.replay(transaction_key("x"), value) == ""
    assert world.coordinator.replay(b"\0\7what", b"") == ""
    assert world.coordinator.replay(b"\0", None) == ""
    assert world.state().producer_epoch == 0


def test_a_state_that_is_none_is_passed_over(world: World) -> None:
    bent = bytearray(transaction_value(TransactionMetadata("x", 7, 1000), 0))
    bent[16] = 99
    assert world.coordinator.replay(transaction_key("x"), bytes(bent)) == ""


# --- reports


def test_what_is_listed(world: World) -> None:
    world.begin("a", T0)
    world.clock.advance(500)
    world.begin("b", T1)
    world.begin("c")

    def names(**wanted: object) -> list[str]:
        return [m.transactional_id for m in world.coordinator.all(TransactionFilter(**wanted))]  # type: ignore[arg-type]

    assert names() == ["a", "b", "c"]
    assert names(states=[TransactionState.ONGOING]) == ["a", "b"]
    assert names(producer_ids=[102]) == ["b"]
    assert names(states=[TransactionState.ONGOING], longer_than_ms=499) == ["a"]


def test_an_old_cluster_writes_old_records(world: World) -> None:
    world.transaction_version = 0
    producer = world.begin("x", T0, version=0)
    assert world.end(producer, version=0) == [producer]
    assert all(value is not None and value[:2] == b"\0\0" for _, value in world.written)
    assert world.restarted().state().state is TransactionState.COMPLETE_COMMIT


# --- anything, in any order


@for_each("seed", range(30), first=20)
def test_what_is_written_is_what_is_known_whatever_happens(seed: int) -> None:
    """And a transaction's markers say one thing, on each of its partitions."""
    random = Random(seed)
    world = World()
    producers: dict[str, ProducerIdAndEpoch] = {}
    for _ in range(300):
        name = random.choice("xyz")
        producer = producers.get(name, ProducerIdAndEpoch(1, 0))
        if random.random() < 0.1:
            producer = producer._replace(epoch=producer.epoch - 1)
        world.refuses = random.random() < 0.05
        version = random.choice((1, 2))
        try:
            match random.randrange(6):
                case 0:
                    producers[name] = world.coordinator.init_producer_id(name, 1000)
                case 1:
                    producers[name] = world.coordinator.init_producer_id(name, 1000, producer)
                case 2 | 3:
                    world.coordinator.add_partitions(name, producer, frozenset([random.choice((T0, T1))]), version)
                case 4:
                    for outcome in world.end(producer, name, is_commit=random.random() < 0.6, version=version):
                        assert isinstance(outcome, ProducerIdAndEpoch)
                        producers[name] = outcome
                case _:
                    world.clock.advance(random.choice((1, 600)))
                    world.coordinator.abort_timed_out()
        except KafkaError:
            pass
        world.refuses = False
        world.timers.fire()
        for known in world.coordinator.all():
            last = [value for written, value in world.written if written == known.transactional_id][-1]
            read = read_transaction(transaction_key(known.transactional_id), last)
            assert read is not None
            assert read[1] == replace(known, last_producer_epoch=-1)
            assert not known.state.is_prepared
        world.coordinator._check_invariants()
    assert {is_commit for _, _, is_commit in world.marked} == {True, False}


def test_whoever_holds_markers_up_does_not_hold_up_the_answer(world: World) -> None:
    """The outcome is kept: the producer hears of it, and its next transaction waits."""
    producer = world.begin("x", T0)
    world.marks_later = []
    answers = world.end(producer, version=0)
    assert not answers
    world.timers.fire()
    assert answers == [producer]
    assert world.state().state is TransactionState.PREPARE_COMMIT
    assert refused(lambda: world.coordinator.add_partitions("x", producer, frozenset([T0]), 0)) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    (mark,) = world.marks_later
    mark()
    assert world.state().state is TransactionState.COMPLETE_COMMIT
    assert answers == [producer]
