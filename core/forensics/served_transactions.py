"""Decides what a server sends to read_committed consumers if a log has lost markers of transactions.

A consumer is sent parts of files as they lie, and with them the aborted transactions in them: from the first offset of
one on it leaves out its producer's records, up to that producer's next marker of an abort. If that marker is lost, it
would leave out records that were committed later. But a consumer keeps nothing of this from one answer to the next
(`CompletedFetch` of Kafka's clients, `rd_kafka_aborted_txns_t` of librdkafka, `core.client.read.consumer`). So an
answer ends after the last record of such a transaction, and the list of the next answer is without it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING

from core.files.end_transaction_marker import FateKind
from core.index.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from core.forensics.transaction_resolution import TransactionFate


class ServedTransactions:
    """Judges one log, by the fates of its transactions (`core.forensics.transaction_resolution`); immutable. A
    transaction that is not proven to be committed counts as aborted.
    """

    def __init__(self, fates: Iterable[TransactionFate], last_stable_offset: int) -> None:
        """Takes as `last_stable_offset` where the first transaction begins that is not proven to have ended."""
        self.last_stable_offset = last_stable_offset
        hidden = [fate for fate in fates if fate.fate is not FateKind.COMMITTED]
        self._aborted = sorted(map(_as_aborted, hidden), key=attrgetter("last_offset"))
        firsts = (entry.first_offset for entry in reversed(self._aborted))
        self._first_after = list(accumulate(firsts, min))[::-1]
        """The smallest first offset of each entry and those after it."""
        self._ends = sorted({fate.last_offset + 1 for fate in hidden if not _has_abort_marker(fate)})

    def end_of_answer(self, offset: int, end_offset: int) -> int:
        """Returns where an answer from `offset` on must end, at `end_offset` at the latest; batches end there."""
        number = bisect_left(self._ends, offset + 1)
        return min(end_offset, self._ends[number]) if number < len(self._ends) else end_offset

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that an answer with records of [start_offset, end_offset) must name."""
        found = []
        number = bisect_left(self._aborted, start_offset, key=attrgetter("last_offset"))
        while number < len(self._aborted) and self._first_after[number] < end_offset:
            if self._aborted[number].first_offset < end_offset:
                found.append(self._aborted[number])
            number += 1
        return found


def _as_aborted(fate: TransactionFate) -> AbortedTransaction:
    has_marker = fate.marker is not None and not fate.marker.is_mended
    last_offset = fate.marker.offset if fate.marker is not None and has_marker else fate.last_offset
    return AbortedTransaction(fate.producer_id, fate.first_offset, last_offset, -1)


def _has_abort_marker(fate: TransactionFate) -> bool:
    return fate.marker is not None and not fate.marker.is_commit and not fate.marker.is_mended
