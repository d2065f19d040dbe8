"""The metadata of a transactional id: its producer, the state of its transaction, and the transitions of the state.

    Empty ──────────► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing ..
                         └──────► PrepareAbort  ──► CompleteAbort  ──► Ongoing ..

Once a Prepare state is written the outcome is final, and the markers will be written. In transaction.version 2
(KIP-890) every end raises the producer's epoch, so that a late request can't write to a later transaction; and a
transaction without partitions may be aborted. Source: org.apache.kafka.coordinator.transaction.TransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from core.common.topic_partition import TopicPartition
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerIdAndEpoch

_MAX_EPOCH = 0x7FFF
_LAST_EPOCH = _MAX_EPOCH - 1
"""The last epoch that a producer gets; one more is reserved for fencing it."""

RAISES_EPOCH = 2
"""From this transaction.version on, each end of a transaction raises its producer's epoch (KIP-890)."""


class TransactionState(IntEnum):
    """The states, by their numbers in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The protocol's name for the state: PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is final, and the markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_expiration_allowed(self) -> bool:
        return TransactionState.DEAD in ALLOWED_TRANSITIONS[self]


_BETWEEN_TRANSACTIONS = frozenset(
    {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
)
ALLOWED_TRANSITIONS: Mapping[TransactionState, Collection[TransactionState]] = {
    TransactionState.EMPTY: _BETWEEN_TRANSACTIONS,
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: _BETWEEN_TRANSACTIONS,
    TransactionState.COMPLETE_ABORT: _BETWEEN_TRANSACTIONS,
    TransactionState.DEAD: set(),
    # No broker writes this state to the log; an id that has it there may go on like one between transactions.
    TransactionState.PREPARE_EPOCH_FENCE: _BETWEEN_TRANSACTIONS - {TransactionState.DEAD},
}


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """Times in ms, -1 if absent. `last_producer_epoch` is the epoch before the last raise, for a producer that retries;
    the log does not keep it. `next_producer_id` becomes the producer id when the transaction is complete, if this one's
    epochs are used up.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    def _enter(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        assert state in ALLOWED_TRANSITIONS[self.state], (
            f"{self.transactional_id}: from {self.state.text} to {state.text}"
        )
        return replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    # --- InitProducerId

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Returns a copy with that producer epoch and no transaction."""
        return self._emptied(timeout_ms, now_ms, producer_epoch=epoch, last_producer_epoch=last_epoch)

    def with_producer_id(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Returns a copy with a new producer id, because the epochs of this one are used up, and no transaction."""
        return self._emptied(
            timeout_ms, now_ms, producer_id=producer_id, producer_epoch=0, last_producer_epoch=last_epoch
        )

    def _emptied(self, timeout_ms: int, now_ms: int, **changes: int) -> TransactionMetadata:
        return self._enter(
            TransactionState.EMPTY,
            now_ms,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            client_transaction_version=0,
            **changes,
        )

    # --- the transaction

    def with_partitions(
        self, partitions: frozenset[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> TransactionMetadata:
        """Returns a copy with these partitions added; the first ones open the transaction."""
        return self._enter(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            client_transaction_version=client_transaction_version,
        )

    def prepared(
        self, *, is_commit: bool, transaction_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """Returns a copy with the outcome that the producer chose."""
        raises_epoch = transaction_version >= RAISES_EPOCH
        return self._enter(
            TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            now_ms,
            next_producer_id=next_producer_id,
            producer_epoch=self.producer_epoch + 1 if raises_epoch else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if raises_epoch else self.last_producer_epoch,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            client_transaction_version=transaction_version,
        )

    def fenced(self, transaction_version: int, now_ms: int) -> TransactionMetadata:
        """Returns a copy that is aborted with a raised epoch, which fences the producer; if every end raises the epoch,
        the producer may go on with the new one.
        """
        raises_epoch = transaction_version >= RAISES_EPOCH
        return self._enter(
            TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, _MAX_EPOCH),
            last_producer_epoch=self.producer_epoch if raises_epoch else NO_PRODUCER_EPOCH,
            client_transaction_version=transaction_version if raises_epoch else 0,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Returns a copy with all markers written."""
        is_over = self.next_producer_id != NO_PRODUCER_ID
        return self._enter(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=self.next_producer_id if is_over else self.producer_id,
            producer_epoch=0 if is_over else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )


def is_epoch_exhausted(epoch: int) -> bool:
    return epoch >= _LAST_EPOCH
