"""The state of one producer in a partition, and the check of the producer's next batch.

Kafka's rules, which make retries harmless (KIP-98, org.apache.kafka.storage.internals.log.ProducerStateEntry,
ProducerAppendInfo):

- the last five batches are remembered; one of them sent again is answered with its first offsets
- otherwise a batch's first sequence must follow the last one, wrapping from 2**31 - 1 to 0
- a new epoch starts at sequence 0; an older epoch is refused
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.files.producer_snapshot import ProducerSnapshotEntry
from core.records.control_record import EndTransactionMarker
from core.records.record import MAX_SEQUENCE
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_FLAG, RecordBatch

BATCHES_TO_RETAIN = 5
NO_OFFSET = -1


class LogOffsetMetadata(NamedTuple):
    """An offset and where its batch lies: the base offset of its segment and the position there."""

    offset: int
    segment_base_offset: int
    position: int


class BatchMetadata(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerState:
    """One producer of one partition; owned by the partition log's task."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "slot",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.current_txn_first_offset: int | None = None
        self.slot: int | None = None
        """Its place in `PackedProducers`, if it has one."""

    @classmethod
    def from_snapshot(cls, entry: ProducerSnapshotEntry) -> ProducerState:
        state = cls(entry.producer_id)
        state.producer_epoch = entry.producer_epoch
        state.coordinator_epoch = entry.coordinator_epoch
        state.last_timestamp = entry.timestamp
        if entry.last_offset >= 0:
            state.batches.append(
                BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            )
        if entry.current_txn_first_offset >= 0:
            state.current_txn_first_offset = entry.current_txn_first_offset
        return state

    def to_snapshot(self) -> ProducerSnapshotEntry:
        last = self.batches[-1] if self.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
        first = self.current_txn_first_offset
        return ProducerSnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=last.last_sequence,
            last_offset=last.last_offset,
            offset_delta=last.offset_delta,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET if first is None else first,
        )

    def is_in_transaction(self, producer_epoch: int) -> bool:
        return self.current_txn_first_offset is not None and self.producer_epoch == producer_epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_written(self) -> tuple[int, int]:
        """Returns a value that changes with each batch, and with each epoch."""
        return self.producer_epoch, self.batches[-1].last_offset if self.batches else NO_OFFSET

    def is_followed_by(self, batch: RecordBatch) -> bool:
        """Says whether the batch is a normal next one: of the same epoch, after the last one, and of the open
        transaction if there is one. Any other may be a repetition, or may not be appended.
        """
        batches = self.batches
        return (
            bool(batches)
            and batch.base_sequence == batches[-1].last_sequence + 1
            and batch.producer_epoch == self.producer_epoch
            and (self.current_txn_first_offset is None or batch.is_transactional)
        )

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """Finds the remembered batch that this one repeats; None if it is new."""
        if batch.producer_epoch != self.producer_epoch or self._follows(batch.base_sequence):
            return None
        last_sequence = batch.last_sequence
        for known in self.batches:
            if known.first_sequence == batch.base_sequence and known.last_sequence == last_sequence:
                return known
        return None

    def ensure_may_append(self, batch: RecordBatch) -> None:
        """Raises KafkaError if a client's batch does not follow the known state of its producer."""
        self.ensure_epoch(batch)
        if batch.producer_epoch != self.producer_epoch:
            if batch.base_sequence != 0 and self.producer_epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(batch, "a new epoch starts at sequence 0")
        elif not self._follows(batch.base_sequence):
            raise self._out_of_order(batch, f"the last sequence is {self.last_sequence}")
        if self.current_txn_first_offset is not None and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {self.producer_id} wrote outside its open transaction, "
                f"which began at offset {self.current_txn_first_offset}",
            )

    def ensure_begins_at_zero(self, batch: RecordBatch) -> None:
        """Raises KafkaError if nothing is known of the producer, and its batch is not its first one."""
        if self.producer_epoch == NO_PRODUCER_EPOCH and batch.base_sequence > 0:
            raise self._out_of_order(batch, "the broker knows nothing of it, so it must start at 0")

    def ensure_may_end(self, batch: RecordBatch, marker: EndTransactionMarker) -> None:
        """Raises KafkaError if a marker is of an epoch, or of a coordinator, that is over."""
        self.ensure_epoch(batch)
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of coordinator epoch {marker.coordinator_epoch} for producer {self.producer_id}, "
                f"whose last one was of {self.coordinator_epoch}",
            )

    def ensure_epoch(self, batch: RecordBatch) -> None:
        """Raises KafkaError(INVALID_PRODUCER_EPOCH) if the producer has a later epoch already."""
        if batch.producer_epoch < self.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch of producer {self.producer_id} is {batch.producer_epoch}, "
                f"smaller than the last seen epoch {self.producer_epoch}",
            )

    def _follows(self, first_sequence: int) -> bool:
        last = self.last_sequence
        if last == NO_SEQUENCE:
            # After a transaction's end in protocol 2 the marker's epoch is known, but no sequence of it yet.
            return self.producer_epoch == NO_PRODUCER_EPOCH or first_sequence == 0
        return first_sequence == last + 1 or (first_sequence == 0 and last == MAX_SEQUENCE)

    def _out_of_order(self, batch: RecordBatch, why: str) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"out of order sequence number of producer {self.producer_id}: {batch.base_sequence}, {why}",
        )

    def append(self, batch: RecordBatch) -> bool:
        """Takes note of a data batch, its offsets set; True if it starts a transaction."""
        if batch.producer_epoch != self.producer_epoch:
            self._start_epoch(batch.producer_epoch)
        delta, timestamp = batch.last_offset_delta, batch.max_timestamp
        self.batches.append(BatchMetadata(batch.last_sequence, batch.base_offset + delta, delta, timestamp))
        self.last_timestamp = timestamp
        if batch.attributes & TRANSACTIONAL_FLAG and self.current_txn_first_offset is None:
            self.current_txn_first_offset = batch.base_offset
            return True
        return False

    def append_marker(self, batch: RecordBatch, marker: EndTransactionMarker) -> None:
        """Takes note of a transaction's end; perhaps nothing was written in it here."""
        if batch.producer_epoch != self.producer_epoch:
            self._start_epoch(batch.producer_epoch)
        self.current_txn_first_offset = None
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp = batch.max_timestamp

    def _start_epoch(self, epoch: int) -> None:
        self.batches.clear()
        self.producer_epoch = epoch
