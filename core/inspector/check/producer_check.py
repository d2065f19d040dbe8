"""Checks a log's idempotent and transactional batches by Kafka's rules, and snapshots and transaction indexes against
the log: a small model of a partition's producers, apart from the broker's (core.log.producer_state_manager).

Unknown state is not reported: a producer's batches before the log's start, or after damage.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.files.producer_snapshot import ProducerSnapshotEntry
from core.index.transaction_index import AbortedTransaction
from core.inspector.check.findings import Code, Finding, Severity, batch_finding
from core.records.control_record import EndTransactionMarker, read_end_transaction_marker
from core.records.record import MAX_SEQUENCE
from core.records.record_batch import CONTROL_FLAG, NO_SEQUENCE, TRANSACTIONAL_FLAG, RecordBatch

_UNKNOWN = -2
_OF_TRANSACTIONS = TRANSACTIONAL_FLAG | CONTROL_FLAG


@dataclass(slots=True)
class Producer:
    """The state of a producer by the log, with -1 for unknown numbers. `next_sequence` is `_UNKNOWN` if any may follow,
    as after a batch without one: then its last sequence and offset mean nothing.
    """

    epoch: int
    next_sequence: int = _UNKNOWN
    last_sequence: int = NO_SEQUENCE
    last_offset: int = -1
    coordinator_epoch: int = -1
    first_offset: int | None = None
    """The first offset of the open transaction."""
    holes: int = 0
    """How many holes were met up to its last record."""

    @property
    def is_sequence_known(self) -> bool:
        return self.next_sequence != _UNKNOWN


class ProducerCheck:
    """Checks one partition's producers, fed batch after batch; owned by one task."""

    def __init__(self) -> None:
        self.is_certain = True
        """Whether there was no damage so far: after damage, what is unknown counts as right."""
        self.sequence_findings: list[Finding] = []
        """True only of a log that was not compacted, which takes batches out."""
        self.bad_batches: set[tuple[Path, int]] = set()
        """Files and positions of the batches that there is such a finding about."""
        self._findings: list[Finding] = []
        self._holes = 0
        self._producers: dict[int, Producer] = {}
        self._open: list[tuple[int, int]] = []  # (first offset, producer id) of open transactions, rising
        self._aborted: dict[int, AbortedTransaction] = {}  # by last offset; of the segment that is read
        self._markers: dict[int, int] = {}  # last offset -> producer id; abort markers, seen data or not

    def forget(self) -> None:
        """Forgets all after damage: batches of any producer may have been in it."""
        self.is_certain = False
        self._producers.clear()
        self._open.clear()

    def meet_hole(self) -> None:
        """Takes in offsets without a batch, which a cleaner may have taken."""
        self._holes += 1

    def find_producer(self, producer_id: int) -> Producer | None:
        """Returns what was seen of a producer so far, or None."""
        return self._producers.get(producer_id)

    def goes_on(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        last_offset: int,
        attributes: int,
    ) -> bool:
        """Takes a batch that follows simply on its producer's last one; False, and nothing done, for any other."""
        producer = self._producers.get(producer_id)
        if (
            producer is None
            or base_sequence != producer.next_sequence
            or producer_epoch != producer.epoch
            or attributes & _OF_TRANSACTIONS
            or producer.first_offset is not None
            or base_sequence + last_offset_delta >= MAX_SEQUENCE
        ):
            return False
        producer.last_sequence = last = base_sequence + last_offset_delta
        producer.next_sequence = last + 1
        producer.last_offset = last_offset
        return True

    def see(self, batch: RecordBatch, path: Path) -> list[Finding]:
        """Checks a batch that has a producer id; returns the findings."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = Producer(batch.producer_epoch)
        if batch.is_control:
            if batch.count:
                self._see_marker(producer, batch, path)
        else:
            self._see_data(producer, batch, path)
        found, self._findings = self._findings, []
        return found

    def _see_data(self, producer: Producer, batch: RecordBatch, path: Path) -> None:
        epoch, sequence = batch.producer_epoch, batch.base_sequence
        if producer.first_offset is not None and epoch > producer.epoch and producer.holes < self._holes:
            first_offset = self._close(producer, batch.producer_id)
            what = f"epoch {epoch} of producer {batch.producer_id}, it was {producer.epoch} in its transaction"
            what += f" from offset {first_offset} on, whose marker is missing before this batch"
            self._report(batch, path, what)
        gap = ""
        if epoch < producer.epoch:
            gap = f"epoch {epoch} of producer {batch.producer_id}, it was {producer.epoch}"
        elif epoch > producer.epoch and sequence > 0:
            gap = f"sequence {sequence} of producer {batch.producer_id} begins its epoch {epoch}"
        elif epoch == producer.epoch and producer.next_sequence not in (_UNKNOWN, sequence):
            gap = f"sequence {sequence} of producer {batch.producer_id}, expected {producer.next_sequence}"
        if gap:  # records lost with it, if any, are a hole in the offsets, and counted there
            self.sequence_findings.append(_finding(Code.SEQUENCE_GAP, batch, path, gap, Severity.WARNING))
        producer.epoch = max(epoch, producer.epoch)
        self._set_sequence(producer, batch)
        if not batch.is_transactional:
            if producer.first_offset is not None:
                what = f"producer {batch.producer_id} wrote outside its transaction"
                self._report(batch, path, f"{what}, which began at offset {producer.first_offset}")
        elif producer.first_offset is None:
            producer.first_offset = batch.base_offset
            insort(self._open, (batch.base_offset, batch.producer_id))
        producer.holes = self._holes

    def _set_sequence(self, producer: Producer, batch: RecordBatch) -> None:
        producer.last_sequence = batch.last_sequence
        producer.last_offset = batch.last_offset
        producer.next_sequence = (
            _UNKNOWN if batch.base_sequence == NO_SEQUENCE else (batch.last_sequence + 1) & MAX_SEQUENCE
        )

    def _see_marker(self, producer: Producer, batch: RecordBatch, path: Path) -> None:
        try:
            marker = read_end_transaction_marker(batch.records()[0])
        except CorruptRecordError as error:
            self._findings.append(_finding(Code.BAD_BATCH, batch, path, error.cause, Severity.ERROR))
            self.bad_batches.add((path, batch.position))
            return
        if marker is None:
            return
        if batch.producer_epoch < producer.epoch:
            self._report(batch, path, f"marker of epoch {batch.producer_epoch}, the producer's is {producer.epoch}")
        elif batch.producer_epoch > producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.last_sequence, producer.last_offset, producer.next_sequence = NO_SEQUENCE, -1, 0
        if marker.coordinator_epoch < producer.coordinator_epoch:
            what = f"marker of coordinator epoch {marker.coordinator_epoch}"
            self._report(batch, path, f"{what}, the one before was of {producer.coordinator_epoch}")
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        self._end_transaction(producer, batch, marker)

    def _end_transaction(self, producer: Producer, batch: RecordBatch, marker: EndTransactionMarker) -> None:
        first_offset = self._close(producer, batch.producer_id)
        if marker.is_commit:
            return
        self._markers[batch.last_offset] = batch.producer_id
        if first_offset is None:
            return
        stable = self._open[0][0] if self._open else batch.last_offset + 1
        self._aborted[batch.last_offset] = AbortedTransaction(
            batch.producer_id, first_offset, batch.last_offset, stable
        )

    def _close(self, producer: Producer, producer_id: int) -> int | None:
        first_offset, producer.first_offset = producer.first_offset, None
        if first_offset is not None:
            del self._open[bisect_left(self._open, (first_offset, producer_id))]
        return first_offset

    def _report(self, batch: RecordBatch, path: Path, message: str) -> None:
        self._findings.append(_finding(Code.TRANSACTION_ORDER, batch, path, message, Severity.ERROR))

    # --- the files beside the log

    def check_transaction_index(
        self, entries: Sequence[AbortedTransaction], path: Path, end_offset: int, *, is_complete: bool
    ) -> Iterator[Finding]:
        """Checks a segment's index once the segment was read; then the next one's begins. Entries from `end_offset` on,
        the log's end, are no fault of the index. `is_complete`: the log was read from offset 0 without a hole, so that
        every transaction's beginning and every open one is known.
        """
        seen, markers = self._aborted, self._markers
        self._aborted, self._markers = {}, {}
        listed = set()
        for number, entry in enumerate(entries):
            listed.add(entry.last_offset)
            if entry.last_offset >= end_offset or self._ends(entry, markers):
                continue
            problem = self._problem_of(entry, seen, markers, is_complete=is_complete)
            if problem is not None:
                yield _index_finding(path, f"entry {number}: {problem}", entry.last_offset, number)
        for aborted in seen.values():  # those with a record and a marker, and no damage between them
            if aborted.last_offset not in listed:
                what = f"the transaction of producer {aborted.producer_id} that was aborted at offset"
                message = f"no entry for {what} {aborted.last_offset}"
                yield _index_finding(path, message, aborted.last_offset, -1)

    def _problem_of(
        self,
        entry: AbortedTransaction,
        seen: dict[int, AbortedTransaction],
        markers: dict[int, int],
        *,
        is_complete: bool,
    ) -> str | None:
        producer_id = markers.get(entry.last_offset)
        if producer_id is None:
            return f"no transaction was aborted at offset {entry.last_offset} of the log" if self.is_certain else None
        if producer_id != entry.producer_id:
            return f"producer {producer_id} aborted at offset {entry.last_offset}, the index says {entry.producer_id}"
        aborted = seen.get(entry.last_offset)
        if aborted is None or not self.is_certain:
            return None
        is_first_known = is_complete or entry.first_offset > aborted.first_offset
        if is_first_known and entry.first_offset != aborted.first_offset:
            return f"first offset {entry.first_offset}, by the log {aborted.first_offset}"
        if is_complete and entry.last_stable_offset != aborted.last_stable_offset:
            return f"last stable offset {entry.last_stable_offset}, by the log {aborted.last_stable_offset}"
        return None

    def _ends(self, entry: AbortedTransaction, markers: dict[int, int]) -> bool:
        """Believes an index entry that a transaction was aborted if the log shows its beginning, but no end: the marker
        is lost.
        """
        producer = self._producers.get(entry.producer_id)
        if producer is None or producer.first_offset != entry.first_offset or entry.last_offset in markers:
            return False
        self._close(producer, entry.producer_id)
        return True

    def check_snapshot(
        self, entries: Iterable[ProducerSnapshotEntry], path: Path, start_offset: int
    ) -> Iterator[Finding]:
        """Checks a snapshot at the offset up to which the log was read. It is believed where the log shows nothing:
        other producers, and where an open transaction began below the log's `start_offset`.
        """
        if not self.is_certain:
            return
        for entry in entries:
            producer = self._producers.get(entry.producer_id)
            if producer is None:
                continue
            first_offset = -1 if producer.first_offset is None else producer.first_offset
            if first_offset >= 0 and 0 <= entry.current_txn_first_offset < start_offset:
                first_offset = entry.current_txn_first_offset
            for name, in_snapshot, in_log in (
                ("epoch", entry.producer_epoch, producer.epoch),
                ("last sequence", entry.last_sequence, producer.last_sequence),
                ("last offset", entry.last_offset, producer.last_offset),
                ("open transaction from offset", entry.current_txn_first_offset, first_offset),
            ):
                is_known = producer.is_sequence_known or name in ("epoch", "open transaction from offset")
                if is_known and in_snapshot != in_log:
                    message = f"producer {entry.producer_id}: {name} {in_snapshot}, by the log {in_log}"
                    yield Finding(Severity.WARNING, Code.SNAPSHOT_MISMATCH, str(path), message)
                    break


def _index_finding(path: Path, message: str, offset: int, number: int) -> Finding:
    position = -1 if number < 0 else number * 34
    return Finding(Severity.ERROR, Code.TRANSACTION_INDEX_MISMATCH, str(path), message, position, offset)


def _finding(code: Code, batch: RecordBatch, path: Path, message: str, severity: Severity) -> Finding:
    return batch_finding(code, batch, path, message, batch.base_offset, severity=severity)
