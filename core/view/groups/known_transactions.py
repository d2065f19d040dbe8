"""Transactions, as `plog inspect` shows them: of a server, or of the files of a directory without one.

For a data directory, they come from the logs of the partitions, as from their leaders, and from __transaction_state.
They agree with `plog transaction list`, `describe` and `find-hanging` for the same directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import NamedTuple

from core.client.net.kafka_client import KafkaClient
from core.client.write.transaction_admin import (
    TRANSACTIONS_TOPIC,
    ListedTransaction,
    OpenTransaction,
    TransactionAdmin,
    TransactionDescription,
)
from core.common.clock import Clock, SystemClock
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_state import TransactionMetadata
from core.files.producer_snapshot import believable_snapshots
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.forensics.read_committed import checked_headers, find_open_transactions
from core.log.producer_state import ProducerState
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import RecordBatch
from core.view.groups.replayed_topic import ReplayedTopic, ReplayedTransactions
from core.view.target.inspect_target import InspectTarget
from core.view.target.live_server import ServerOrFiles
from core.view.target.log_figures import FolderMark, LogFigures, open_logs


class KnownId(NamedTuple):
    """A transactional id with its state, and with its description if that was requested and is available: a server is
    asked only about ids with a transaction that is not over. `problem` says why it is unavailable.
    """

    found: ListedTransaction | TransactionDescription
    problem: str = ""


class TransactionListing(NamedTuple):
    """The open transactions of partitions, and the ids of coordinators; complete after `done` of `total` steps.
    `problems` says what is missing.
    """

    open_transactions: list[OpenTransaction]
    ids: list[KnownId]
    done: int
    total: int
    problems: list[str]

    @property
    def is_whole(self) -> bool:
        return self.done >= self.total


MOST_BYTES_OF_DAMAGED = 256 * 1024 * 1024
"""The limit of a log that must be read as a whole, because damage hides which transactions ended."""


class PartitionTransactions(NamedTuple):
    """The open transactions of a log of [start_offset, end_offset), by producer id. `first_timestamps` has the time of
    each first record by its offset, -1 if it can't be read. `problem` says why they are unknown, or is "".
    """

    start_offset: int
    end_offset: int
    found: Mapping[int, ProducerState] = MappingProxyType({})
    first_timestamps: Mapping[int, int] = MappingProxyType({})
    problem: str = ""

    @property
    def last_stable_offset(self) -> int:
        return min([*map(_first_offset, self.found.values()), self.end_offset])


def _first_offset(state: ProducerState) -> int:
    assert state.current_txn_first_offset is not None
    return state.current_txn_first_offset


def read_open_transactions(log: PartitionReader, before: PartitionTransactions | None = None) -> PartitionTransactions:
    """Finds the open transactions by the log's newest snapshot, and the headers of the batches after it. If the log is
    damaged there, reads all of it, or returns a `problem` if it is larger than `MOST_BYTES_OF_DAMAGED`. With `before`,
    reads only headers of the batches since, unless these do not continue it. Raises PlogError if the files can't be
    read.
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
    for producer_id, first_offset in ongoing.items():
        states[producer_id].current_txn_first_offset = first_offset
    return _timed(log, states, {})


def _read_on(log: PartitionReader, before: PartitionTransactions) -> PartitionTransactions | None:
    """Reads on after `before`; returns None if the new batches do not fit, so that more must be read."""
    states = {p: state for p, state in before.found.items() if _first_offset(state) >= log.start_offset}
    next_offset = before.end_offset
    try:
        for batch in checked_headers(log.segments, before.end_offset):
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
    still_open = {p: state for p, state in states.items() if state.current_txn_first_offset is not None}
    return _timed(log, still_open, before.first_timestamps)


def _timed(log: PartitionReader, found: Mapping[int, ProducerState], known: Mapping[int, int]) -> PartitionTransactions:
    """Adds the times of the first records; `known` are those that were read before."""
    firsts = map(_first_offset, found.values())
    times = {first: known[first] if first in known else _timestamp_at(log, first) for first in firsts}
    return PartitionTransactions(log.start_offset, log.end_offset, found, times)


def _producers(log: PartitionReader, wanted: dict[int, int]) -> dict[int, ProducerState]:
    """Returns the state of these producers, from the newest sound snapshot and the batches after it."""
    states = {producer_id: ProducerState(producer_id) for producer_id in wanted}
    offset, entries = next(believable_snapshots(log.directory, log.end_offset), (0, []))
    if offset >= log.start_offset:
        states |= {e.producer_id: ProducerState.from_snapshot(e) for e in entries if e.producer_id in wanted}
    for batch in log.headers(max(offset, log.start_offset)):
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


_OVER = ("Empty", "CompleteCommit", "CompleteAbort")
"""States of an id without an open transaction."""

_STEP_MS = 250
"""The pause between progress reports of slow reads."""


class KnownTransactions(ServerOrFiles["ServerTransactions", "FileTransactions"]):
    """Owned by one task, with files and connections of its own; `steps` raises ConnectionFailedError if the server
    can't be reached, and AccessError if the directory is gone; called again, it tries again.
    """

    def __init__(self, inspected: InspectTarget) -> None:
        self._clock = SystemClock()
        super().__init__(inspected, ServerTransactions, self._open_files)

    def _open_files(self, reader: DirectoryReader) -> FileTransactions:
        return FileTransactions(open_logs(reader, self._clock), self._clock)

    def steps(self) -> Iterator[TransactionListing]:
        """Yields the listing again and again while it grows."""
        shown_ms = self._clock.monotonic_ms()
        with self._asked() as source:
            for done, total in source.look():
                if done < total and self._clock.monotonic_ms() - shown_ms >= _STEP_MS:
                    shown_ms = self._clock.monotonic_ms()
                    yield source.listing(done, total)
            yield source.listing(1, 1)


class ServerTransactions:
    """The transactions that a cluster's brokers know; owned by one task. Its methods may raise PlogError."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self._admin = TransactionAdmin(client)
        self._ids: list[KnownId] = []
        self._open: list[OpenTransaction] = []
        self._problems: list[str] = []

    def look(self) -> Iterator[tuple[int, int]]:
        """Looks again; yields the steps done, and their total."""
        self._problems = []
        self._ids = self._find_ids()
        yield 0, 1
        try:
            self._open = self._admin.open_transactions()
        except KafkaError:  # one topic must not hide the others
            topics = sorted(name for name in self.client.refresh() if name != TRANSACTIONS_TOPIC)
            found: list[OpenTransaction] = []
            for done, topic in enumerate(topics, 1):
                found += self._of_topic(topic)
                yield done, len(topics)
            self._open = found

    def listing(self, done: int, total: int) -> TransactionListing:
        """Returns the present state; `done` and `total` become those of the listing."""
        return TransactionListing(list(self._open), self._ids, done, total, list(self._problems))

    def _find_ids(self) -> list[KnownId]:
        try:
            listed = self._admin.list_transactions()
        except KafkaError as error:
            self._problems.append(f"the transactional ids can't be listed: {error.message}")
            return []
        ids = []
        for one in listed:
            known = KnownId(one)
            if one.state not in _OVER:
                try:
                    known = KnownId(self._admin.describe(one.transactional_id))
                except KafkaError as error:
                    known = KnownId(one, error.message)
            ids.append(known)
        return ids

    def _of_topic(self, topic: str) -> list[OpenTransaction]:
        try:
            return self._admin.open_transactions([topic])
        except KafkaError as error:
            self._problems.append(f"{topic}: {error.message}")
            return []


class FileTransactions:
    """The transactions of files, with the methods of `ServerTransactions`; owned by one task."""

    def __init__(self, logs: LogFigures, clock: Clock) -> None:
        self.logs = logs
        self._topic = ReplayedTopic(TRANSACTIONS_TOPIC, lambda number: ReplayedTransactions(number, clock))
        self._known: dict[TopicPartition, tuple[FolderMark, PartitionTransactions]] = {}
        self._unread: dict[TopicPartition, str] = {}

    def look(self) -> Iterator[tuple[int, int]]:
        """Reads the coordinator's topic, then each partition whose log has changed."""
        self.logs.look_again()
        partitions = sorted(p for p in self.logs.reader.partitions if p.topic != TRANSACTIONS_TOPIC)
        parts = len(self.logs.reader.topics.get(TRANSACTIONS_TOPIC, ()))
        total = parts + len(partitions)
        for done, _ in self._topic.refresh(self.logs):
            yield done, total
        for gone in (self._known.keys() | self._unread.keys()) - set(partitions):
            self._known.pop(gone, None)
            self._unread.pop(gone, None)
        for done, partition in enumerate(partitions, parts + 1):
            self._look_at(partition)
            yield done, total

    def _look_at(self, partition: TopicPartition) -> None:
        """Reads the open transactions of the partition, unless its log has not changed."""
        try:
            mark = self.logs.mark(partition)
            known = self._known.get(partition)
            if known is not None and known[0] == mark:
                return
            with closing(self.logs.reader.open(partition)) as log:
                self._known[partition] = mark, read_open_transactions(log, None if known is None else known[1])
            self._unread.pop(partition, None)
        except PlogError as error:
            self._known.pop(partition, None)
            self._unread[partition] = error.message

    def listing(self, done: int, total: int) -> TransactionListing:
        described = self._described()
        problems = [*filter(None, [self.logs.problem]), *self._topic.problems]
        if TRANSACTIONS_TOPIC not in self.logs.reader.topics:
            problems.append(f"{self.logs.reader.root} has no {TRANSACTIONS_TOPIC}: no transactional id is known")
        problems += [f"{partition}: {why}" for partition, why in sorted(self._unread.items())]
        problems += [f"{p}: {known.problem}" for p, (_, known) in sorted(self._known.items()) if known.problem]
        return TransactionListing(self._open(described), list(map(KnownId, described)), done, total, problems)

    def _described(self) -> list[TransactionDescription]:
        topics = self.logs.directory_topics
        node_id = -1 if topics is None else topics.node_id
        found = {
            metadata.transactional_id: _description(metadata, node_id)
            for part in self._topic.parts.values()
            for metadata in part.coordinator.all()
        }
        return [found[transactional_id] for transactional_id in sorted(found)]

    def _open(self, described: list[TransactionDescription]) -> list[OpenTransaction]:
        by_producer = {found.producer_id: found for found in described}
        return [
            OpenTransaction(
                partition=partition,
                producer_id=producer_id,
                producer_epoch=state.producer_epoch,
                coordinator_epoch=state.coordinator_epoch,
                start_offset=_first_offset(state),
                first_timestamp=here.first_timestamps[_first_offset(state)],
                last_timestamp=state.last_timestamp,
                last_stable_offset=here.last_stable_offset,
                high_watermark=here.end_offset,
                known=by_producer.get(producer_id),
            )
            for partition, (_, here) in sorted(self._known.items())
            for producer_id, state in sorted(here.found.items())
        ]


def _description(metadata: TransactionMetadata, node_id: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=metadata.transactional_id,
        coordinator=node_id,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        state=metadata.state.text,
        timeout_ms=metadata.timeout_ms,
        started_ms=metadata.start_ms,
        partitions=metadata.partitions,
    )
