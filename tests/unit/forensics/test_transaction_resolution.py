"""Which batches of a producer are one transaction, where offsets between them are missing."""

from __future__ import annotations

from core.forensics.transaction_resolution import (
    MissingRange,
    SegmentIndex,
    TransactionalBatch,
    TransactionEvidence,
)
from core.index.transaction_index import AbortedTransaction
from core.records.control_record import Marker
from tests.support.for_each import for_each

FIRST = TransactionalBatch(7, 3, base_offset=10, last_offset=11, base_sequence=0, last_sequence=1)
CASES = {
    "the sequences leave no room for a marker": (
        FIRST, TransactionalBatch(7, 3, 13, 13, base_sequence=3, last_sequence=3), [[10, 13]],
    ),
    "the sequences go on, so that the missing offset was no record of it": (
        FIRST, TransactionalBatch(7, 3, 13, 13, base_sequence=2, last_sequence=2), [[10], [13]],
    ),
    "nobody knows the first batch's sequences": (
        FIRST._replace(base_sequence=-1, last_sequence=-1), TransactionalBatch(7, 3, 13, 13, 0, 0), [[10], [13]],
    ),
    "nobody knows the next batch's sequences": (FIRST, TransactionalBatch(7, 3, 13, 13), [[10], [13]]),
    "the next batch has a lower epoch, though its sequences would go on": (
        FIRST, TransactionalBatch(7, 2, 13, 13, base_sequence=3, last_sequence=3), [[10], [13]],
    ),
}  # fmt: skip
"""Two batches, between which offset 12 is missing, and the first offsets of the batches of each transaction."""


@for_each("case", CASES)
def test_batches_with_a_missing_offset_between_them(case: str) -> None:
    first, following, expected = CASES[case]
    fates = TransactionEvidence([first, following], [MissingRange(12, 13)], [], []).fates()
    assert [[base for base, _ in fate.batches] for fate in fates] == expected


def test_of_two_entries_with_one_marker_the_whole_transactions_is_taken() -> None:
    """A broker that read its log again from a later offset on wrote the other one."""
    events = [FIRST, FIRST._replace(base_offset=12, last_offset=13), Marker(7, 3, 14, is_commit=False)]
    whole, rest = (AbortedTransaction(7, first, 14, 10) for first in (10, 12))
    for entries in ((whole, rest), (rest, whole)):
        indexes = [SegmentIndex(0, 20, entries, is_synced=True)]
        assert TransactionEvidence(events, [], indexes, []).proven_aborted() == [whole]


def test_ones_marker_is_not_where_the_index_has_that_of_another_producer() -> None:
    other = TransactionalBatch(9, 0, base_offset=5, last_offset=5, base_sequence=0, last_sequence=0)
    index = SegmentIndex(0, 20, (AbortedTransaction(9, 5, 12, 5),), is_synced=False)
    for indexes, missing in (([], ((12, 14),)), ([index], ((13, 14),))):
        evidence = TransactionEvidence([other, FIRST], [MissingRange(12, 14)], indexes, [])
        (fate,) = [one for one in evidence.fates() if one.producer_id == 7]
        assert fate.missing == missing
