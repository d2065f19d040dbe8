"""The transactions that are open on a partition, by its files: what its leader would say of its producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.files.file_names import SNAPSHOT_SUFFIX, find_offset_files
from core.files.producer_snapshot import read_producer_snapshot
from core.forensics.open_transactions import find_open_transactions
from core.forensics.partition_reader import PartitionReader
from core.forensics.read_committed import checked_headers
from core.log.producer_state import ProducerState
from core.records.batches import Batch
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import RecordBatch

MOST_BYTES_OF_DAMAGED = 256 * 1024 * 1024
"""How large a log may be that has to be read as a whole, because damage hides which transactions ended."""


class OpenHere(NamedTuple):
    """An open transaction of one producer, as its partition has it. `first_timestamp` is -1 if it can't be read,
    `coordinator_epoch`, that of the last marker, if none was met.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    first_timestamp: int
    last_timestamp: int


class PartitionTransactions(NamedTuple):
    """What is open on a partition, by producer id, of a log of [start_offset, end_offset). `problem` says why that is
    not known, if it is not.
    """

    start_offset: int
    end_offset: int
    found: tuple[OpenHere, ...] = ()
    problem: str = ""

    @property
    def last_stable_offset(self) -> int:
        return min([*(one.start_offset for one in self.found), self.end_offset])


def read_open_transactions(log: PartitionReader, before: PartitionTransactions | None = None) -> PartitionTransactions:
    """Reads the newest snapshot of the log, and headers of the batches after it; all of a log that is damaged there, if
    it is not too large. If it is known what was open `before`, reads headers of what was appended since. Raises
    PlogError if the files can't be read.
    """
    if before is not None and not before.problem and before.end_offset <= log.end_offset:
        read = _read_on(log, before)
        if read is not None:
            return read
    ongoing = find_open_transactions(
        log.directory, log.segments, log.start_offset, log.end_offset, lambda: log.reading.tail
    )
    if ongoing is None:
        if sum(segment.records.size_bytes for segment in log.segments) > MOST_BYTES_OF_DAMAGED:
            problem = "the log is damaged, and too large to be read as a whole for what is open"
            return PartitionTransactions(log.start_offset, log.end_offset, problem=problem)
        ongoing = {fate.producer_id: fate.first_offset for fate in log.transaction_fates if not fate.is_ended}
    states = _producers(log, ongoing) if ongoing else {}
    found = tuple(_open_here(log, states, producer_id, first) for producer_id, first in sorted(ongoing.items()))
    return PartitionTransactions(log.start_offset, log.end_offset, found)


def _read_on(log: PartitionReader, before: PartitionTransactions) -> PartitionTransactions | None:
    """Takes up what was appended since; None if something is not as it has to be, so that more must be read."""
    known = {one.producer_id: one for one in before.found if one.start_offset >= log.start_offset}
    states = {one.producer_id: _state_of(one) for one in known.values()}
    next_offset = before.end_offset
    try:
        for batch in _checked_from(log, before.end_offset):
            if batch.base_offset != next_offset:
                return None
            if batch.base_offset >= log.end_offset:
                break
            next_offset = batch.next_offset
            if not isinstance(batch, RecordBatch) or not batch.is_transactional or not batch.has_producer_id:
                continue
            _take_up(states.setdefault(batch.producer_id, ProducerState(batch.producer_id)), batch, log)
    except CorruptRecordError:
        return None
    found = []
    for producer_id, state in sorted(states.items()):
        first = state.current_txn_first_offset
        if first is not None and producer_id in known and first == known[producer_id].start_offset:
            found.append(_described(state, first, known[producer_id].first_timestamp))
        elif first is not None:
            found.append(_described(state, first, _timestamp_at(log, first)))
    return PartitionTransactions(log.start_offset, log.end_offset, tuple(found))


def _checked_from(log: PartitionReader, offset: int) -> Iterator[Batch]:
    """Gives headers of the log's batches from that offset on, as `checked_headers` does."""
    following = [segment.base_offset for segment in log.segments[1:]]
    for number, segment in enumerate(log.segments):
        if number < len(following) and following[number] <= offset:
            continue
        position = segment.position_of(offset)
        yield from checked_headers(segment.records, position, segment.records.size_bytes)


def _state_of(one: OpenHere) -> ProducerState:
    state = ProducerState(one.producer_id)
    state.producer_epoch, state.coordinator_epoch = one.producer_epoch, one.coordinator_epoch
    state.last_timestamp, state.current_txn_first_offset = one.last_timestamp, one.start_offset
    return state


def _open_here(log: PartitionReader, states: dict[int, ProducerState], producer_id: int, first: int) -> OpenHere:
    return _described(states.get(producer_id) or ProducerState(producer_id), first, _timestamp_at(log, first))


def _described(state: ProducerState, first: int, first_timestamp: int) -> OpenHere:
    return OpenHere(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        coordinator_epoch=state.coordinator_epoch,
        start_offset=first,
        first_timestamp=first_timestamp,
        last_timestamp=state.last_timestamp,
    )


def _producers(log: PartitionReader, wanted: dict[int, int]) -> dict[int, ProducerState]:
    """Makes the state of these producers as the log engine does: of the newest sound snapshot, and what follows."""
    states = {producer_id: ProducerState(producer_id) for producer_id in wanted}
    offset = log.start_offset
    for at, path in reversed(find_offset_files(log.directory, SNAPSHOT_SUFFIX)):
        if not log.start_offset <= at <= log.end_offset:
            continue
        try:
            entries = read_producer_snapshot(path)
        except (CorruptRecordError, OSError):
            continue
        offset = at
        states |= {e.producer_id: ProducerState.from_snapshot(e) for e in entries if e.producer_id in wanted}
        break
    for batch in log.headers(offset):
        if batch.base_offset >= log.end_offset:
            break
        if isinstance(batch, RecordBatch) and batch.producer_id in wanted:
            _take_up(states[batch.producer_id], batch, log)
    return states


def _take_up(state: ProducerState, header: RecordBatch, log: PartitionReader) -> None:
    if not header.is_control:
        state.append(header)
        return
    try:
        records = log.whole(header).records()
        marker = read_end_transaction_marker(records[0]) if records else None
    except CorruptRecordError:
        return
    if marker is not None:
        state.append_marker(header, marker)


def _timestamp_at(log: PartitionReader, offset: int) -> int:
    try:
        batch = next(log.read(offset, offset + 1, read_committed=False, on_hole=lambda _hole: None), None)
        return -1 if batch is None else min((record.timestamp for record in batch.records()), default=-1)
    except CorruptRecordError:
        return -1
