"""The rules that make a producer's retries harmless, batch by batch (KIP-98)."""

from __future__ import annotations

from itertools import product

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.producer_state import ProducerState
from core.records.control_record import EndTransactionMarker
from core.records.record_batch import RecordBatch, set_base_offset_and_leader_epoch
from tests.support.for_each import for_each
from tests.support.logs import make_batch, make_marker

MAX_SEQUENCE = 0x7FFFFFFF


def batch(sequence: int, *, epoch: int = 0, count: int = 1, txn: bool = False, offset: int = 0) -> RecordBatch:
    made = make_batch(
        *[b"x"] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence, is_transactional=txn
    )
    set_base_offset_and_leader_epoch(made, offset, 0)
    return made


def after(*batches: RecordBatch) -> ProducerState:
    state = ProducerState(7)
    for one in batches:
        state.append(one)
    return state


@pytest.mark.parametrize("sequence", [0, 1, 500])
def test_an_unknown_producer_may_start_anywhere(sequence: int) -> None:
    """What was known of it may have expired, or been deleted with its records."""
    ProducerState(7).ensure_may_append(batch(sequence))


@for_each(
    "last, following",
    [(0, 1), (41, 42), (MAX_SEQUENCE - 1, MAX_SEQUENCE), (MAX_SEQUENCE, 0)],
)
def test_sequences_follow_and_wrap(last: int, following: int) -> None:
    state = after(batch(last))
    state.ensure_may_append(batch(following))
    for other in {0, following + 1, following - 1, last} - {following, MAX_SEQUENCE + 1, -1}:
        with pytest.raises(KafkaError, match=f"{other}, the last sequence is {last}") as caught:
            state.ensure_may_append(batch(other))
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_wraps_within() -> None:
    state = after(batch(MAX_SEQUENCE - 1, count=4))
    assert state.last_sequence == 1
    assert state.find_duplicate(batch(MAX_SEQUENCE - 1, count=4)) is not None
    state.ensure_may_append(batch(2))


@pytest.mark.parametrize("is_open", [False, True], ids=["no transaction", "in a transaction"])
def test_what_comes_as_a_rule_is_no_repetition_and_may_be_appended(is_open: bool) -> None:
    states = [after(batch(MAX_SEQUENCE - 3, epoch=1, txn=is_open, count=3)), after(batch(4, epoch=1, txn=is_open))]
    usual = []
    for state in [*states, ProducerState.from_snapshot(states[1].to_snapshot())]:
        for sequence, epoch, txn in product((0, 4, 5, 6, MAX_SEQUENCE), (0, 1, 2), (False, True)):
            following = batch(sequence, epoch=epoch, txn=txn)
            if state.is_followed_by(following):
                usual.append((sequence, txn))
                assert state.find_duplicate(following) is None
                state.ensure_may_append(following)
    expected = {(sequence, txn) for sequence in (5, MAX_SEQUENCE) for txn in {is_open, True}}
    assert set(usual) == expected
    assert not ProducerState(7).is_followed_by(batch(0)), "nothing is known yet"


def test_a_new_epoch_starts_at_zero_and_an_older_one_is_fenced() -> None:
    state = after(batch(0), batch(1))
    state.ensure_may_append(batch(0, epoch=1))
    with pytest.raises(KafkaError, match="a new epoch starts at sequence 0") as caught:
        state.ensure_may_append(batch(2, epoch=1))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.append(batch(0, epoch=3))
    assert (state.last_sequence, len(state.batches)) == (0, 1), "the old batches are forgotten"
    with pytest.raises(KafkaError, match="epoch of producer 7 is 2, smaller than the last seen epoch 3") as caught:
        state.ensure_may_append(batch(1, epoch=2))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_last_five_batches_are_known_by_their_sequences() -> None:
    state = after(*(batch(3 * n, count=3, offset=100 + 3 * n) for n in range(7)))
    known = [state.find_duplicate(batch(3 * n, count=3)) for n in range(7)]
    assert [k and (k.first_offset, k.last_offset) for k in known] == [
        None,
        None,
        *((100 + 3 * n, 102 + 3 * n) for n in range(2, 7)),
    ]
    assert state.find_duplicate(batch(6, count=2)) is None
    assert state.find_duplicate(batch(6, count=3, epoch=1)) is None


def test_a_transaction_from_its_first_record_to_its_marker() -> None:
    state = ProducerState(7)
    assert state.append(batch(0, txn=True, offset=10))
    assert not state.append(batch(1, txn=True, offset=20))
    with pytest.raises(KafkaError, match="outside its open transaction, which began at offset 10") as caught:
        state.ensure_may_append(batch(2))
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    marker = make_marker(7, is_commit=False)
    set_base_offset_and_leader_epoch(marker, 30, 0)
    state.append_marker(marker, EndTransactionMarker(is_commit=False, coordinator_epoch=4))
    assert (state.coordinator_epoch, state.current_txn_first_offset) == (4, None)


def test_a_coordinator_that_is_over_ends_nothing() -> None:
    state = after(batch(0, txn=True))
    marker = make_marker(7, is_commit=True)
    state.append_marker(marker, EndTransactionMarker(is_commit=True, coordinator_epoch=4))
    for coordinator_epoch in (4, 5):
        state.ensure_may_end(marker, EndTransactionMarker(is_commit=True, coordinator_epoch=coordinator_epoch))
    with pytest.raises(KafkaError) as caught:
        state.ensure_may_end(marker, EndTransactionMarker(is_commit=True, coordinator_epoch=3))
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_of_a_new_epoch_makes_the_next_batch_start_at_zero() -> None:
    """Transactions of protocol 2 raise the epoch with every end (KIP-890)."""
    state = after(batch(0, txn=True))
    marker = make_marker(7, is_commit=True, producer_epoch=1)
    state.append_marker(marker, EndTransactionMarker(is_commit=True, coordinator_epoch=0))
    state.ensure_may_append(batch(0, epoch=1, txn=True))
    with pytest.raises(KafkaError):
        state.ensure_may_append(batch(5, epoch=1, txn=True))


@pytest.mark.parametrize("txn", [False, True])
def test_a_snapshot_keeps_the_last_batch(txn: bool) -> None:
    state = after(batch(0, count=5, txn=txn, offset=50), batch(5, count=2, txn=txn, offset=55))
    again = ProducerState.from_snapshot(state.to_snapshot())
    assert again.to_snapshot() == state.to_snapshot()
    assert again.batches[-1] == state.batches[-1]
    assert again.current_txn_first_offset == (50 if txn else None)


def test_a_snapshot_of_a_producer_that_only_ended_a_transaction() -> None:
    state = ProducerState(7)
    state.append_marker(make_marker(7, is_commit=True), EndTransactionMarker(is_commit=True, coordinator_epoch=2))
    entry = state.to_snapshot()
    assert (entry.last_sequence, entry.last_offset, entry.coordinator_epoch) == (-1, -1, 2)
    assert not ProducerState.from_snapshot(entry).batches
