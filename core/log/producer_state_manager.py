"""The producers of one partition, the transactions open there, and their snapshots on disk.

A snapshot is taken when a segment is rolled and at a clean stop, and named by the offset up to which it holds; after a
crash the last good one is loaded and the log after it read again
(org.apache.kafka.storage.internals.log.ProducerStateManager).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.filesystem import FileSystem
from core.files.file_names import SNAPSHOT_SUFFIX, find_offset_files, offset_file_name
from core.files.producer_snapshot import ENTRY_BYTES, format_producer_snapshot, iter_producer_snapshot, pack_producer
from core.index.transaction_index import AbortedTransaction
from core.log.producer_state import LogOffsetMetadata, ProducerState
from core.records.control_record import read_end_transaction_marker
from core.records.record import MAX_SEQUENCE
from core.records.record_batch import CONTROL_FLAG, RecordBatch

if TYPE_CHECKING:
    from core.log.log_segment import LogSegments

_MOST_AWAITED = 1000
"""Producers whose transactions are about to begin; of more, which came first is forgotten."""


class ProducerStateManager:
    """Owned by one task (the partition log's).

    I1 every open transaction belongs to a producer that is known
    I2 a transaction counts as unstable from its first record until the high watermark has passed its marker
    """

    def __init__(
        self, directory: Path, filesystem: FileSystem, *, producer_id_expiration_ms: Callable[[], int]
    ) -> None:
        """`producer_id_expiration_ms` is asked each time: it may be altered while the log is open."""
        self._directory = directory
        self._filesystem = filesystem
        self._find_expiration_ms = producer_id_expiration_ms
        self.producers: dict[int, ProducerState] = {}
        self._packed = PackedProducers()
        self.ongoing: dict[int, LogOffsetMetadata] = {}
        """Where open transactions begin, by producer id, in order of offsets."""
        self.ended: list[tuple[LogOffsetMetadata, int]] = []
        """Transactions whose marker is not below the high watermark: (first offset, last offset)."""
        self._idle: dict[int, tuple[tuple[int, int], int]] = {}  # their last batch, and since when none came
        self._awaited: dict[int, tuple[int, int]] = {}  # producer id -> (-epoch, sequence) its transaction begins with
        self._last_snapshot_offset = -1
        self.map_end_offset = 0
        self.listed_snapshots: list[tuple[int, Path]] | None = None
        """The result of `_find_snapshots`, if the caller listed the folder, until somebody else removes a snapshot."""

    @property
    def open_transactions(self) -> dict[int, int]:
        """Returns the first offsets of the open transactions, by producer id."""
        return {producer_id: first.offset for producer_id, first in self.ongoing.items()}

    @property
    def first_unstable_offset(self) -> LogOffsetMetadata | None:
        """Finds where the first transaction begins that is open, or whose marker lies above the high watermark, or
        None.
        """
        if not self.ongoing and not self.ended:
            return None
        ongoing = next(iter(self.ongoing.values()), None)
        ended = self.ended[0][0] if self.ended else None
        return min((o for o in (ongoing, ended) if o is not None), default=None)

    @property
    def latest_producer_id(self) -> int:
        """Returns the largest known producer id, or -1."""
        return max(self.producers, default=-1)

    def check_invariants(self) -> None:
        assert self.ongoing.keys() <= self.producers.keys()
        ongoing = list(self.ongoing.values())
        assert ongoing == sorted(ongoing)
        assert self.ended == sorted(self.ended)
        self._packed.check_invariants()

    def find(self, producer_id: int) -> ProducerState | None:
        return self.producers.get(producer_id)

    def state_of(self, producer_id: int) -> ProducerState:
        """Returns a producer's state, known or new; only `update` remembers a new one."""
        return self.producers.get(producer_id) or ProducerState(producer_id)

    def is_in_order(self, batch: RecordBatch) -> bool:
        """Returns what `ProducerState.is_followed_by` returns; False if its producer is unknown, or another batch may
        have to be appended before.
        """
        state = self.producers.get(batch.producer_id)
        return state is not None and batch.producer_id not in self._awaited and state.is_followed_by(batch)

    def await_first(self, batch: RecordBatch) -> None:
        """Notes a transaction's batch that came, and is not appended yet. It may be refused for a while, or taken for
        one of an earlier transaction: until the transaction has begun here, or a marker comes, no batch that would
        follow it is appended (`VerificationStateEntry.lowestSequence` of Kafka).
        """
        producer_id = batch.producer_id
        if not self.state_of(producer_id).is_in_transaction(batch.producer_epoch):
            came = (-batch.producer_epoch, batch.base_sequence)  # the latest epoch counts, and its lowest sequence
            self._awaited[producer_id] = min(self._awaited.get(producer_id, came), came)
            if len(self._awaited) > _MOST_AWAITED:
                del self._awaited[next(iter(self._awaited))]

    def ensure_none_awaited(self, batch: RecordBatch) -> None:
        """Raises KafkaError(OUT_OF_ORDER_SEQUENCE_NUMBER) if the producer's transaction begins with another one."""
        _, first = self._awaited.get(batch.producer_id, (0, MAX_SEQUENCE))
        if batch.base_sequence > first:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"out of order sequence number of producer {batch.producer_id}: {batch.base_sequence}, "
                f"its transaction begins with {first} here",
            )

    def update(self, batch: RecordBatch, segment_base_offset: int, position: int) -> AbortedTransaction | None:
        """Notes a batch that was appended at that position; returns the transaction that it aborted, or None."""
        self.map_end_offset = batch.base_offset + batch.last_offset_delta + 1
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        self._awaited.pop(producer_id, None)
        if batch.attributes & CONTROL_FLAG:
            return self._update_by_marker(batch)
        state = self.producers.get(producer_id)
        if state is None:
            state = self.producers[producer_id] = ProducerState(producer_id)
        if state.append(batch):
            self.ongoing[producer_id] = LogOffsetMetadata(batch.base_offset, segment_base_offset, position)
        self._packed.note_change(state)
        return None

    def _update_by_marker(self, batch: RecordBatch) -> AbortedTransaction | None:
        try:
            records = batch.records()
            marker = read_end_transaction_marker(records[0]) if records else None
        except CorruptRecordError:  # an unreadable marker ends nothing, and costs nobody the partition
            marker = None
        if marker is None:
            return None
        state = self.state_of(batch.producer_id)
        self.producers[batch.producer_id] = state
        state.append_marker(batch, marker)
        self._packed.note_change(state)
        first, last_offset = self.ongoing.pop(batch.producer_id, None), batch.last_offset
        if first is None:
            return None
        insort(self.ended, (first, last_offset))  # they become many when a log is read again
        if marker.is_commit:
            return None
        stable = next((other.offset for other in self.ongoing.values()), last_offset + 1)
        return AbortedTransaction(batch.producer_id, first.offset, last_offset, stable)

    def abort_damaged(self, aborted: AbortedTransaction) -> bool:
        """Ends a transaction whose marker can't be read, and which the transaction index has as aborted. Returns False,
        and does nothing, unless it is open from that offset on.
        """
        first = self.ongoing.get(aborted.producer_id)
        if first is None or first.offset != aborted.first_offset:
            return False
        del self.ongoing[aborted.producer_id]
        state = self.producers[aborted.producer_id]
        state.current_txn_first_offset = None
        self._packed.note_change(state)
        return True

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forgets ended transactions whose marker is below the high watermark."""
        self.ended = [u for u in self.ended if u[1] >= high_watermark]

    def remove_expired(self, now_ms: int) -> None:
        """Forgets producers without an open transaction that wrote nothing for `producer.id.expiration.ms`, counted by
        the monotonic clock between calls. Kafka goes by their last records' timestamps; a clock that is set, or records
        that are old, would make it forget a producer that still writes.
        """
        idle, expiration_ms = {}, self._find_expiration_ms()
        for producer_id, state in list(self.producers.items()):
            if state.current_txn_first_offset is not None:
                continue
            last, since_ms = self._idle.get(producer_id, (None, now_ms))
            if last != state.last_written:
                since_ms = now_ms
            if now_ms - since_ms >= expiration_ms:
                del self.producers[producer_id]
                self._packed.remove(state)
            else:
                idle[producer_id] = state.last_written, since_ms
        self._idle = idle

    # --- snapshots

    def take_snapshot(self, *, sync: bool = True) -> bool:
        """Writes `<map end offset>.snapshot`, unless it is the last one already; returns whether it was written."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return False
        path = self._path(self.map_end_offset)
        self._filesystem.write_atomic(path, self._packed.snapshot(), sync=sync)
        self._last_snapshot_offset = self.map_end_offset
        return True

    def reset(self, end_offset: int) -> None:
        """Forgets everything; the log is read again from `end_offset`."""
        self.producers.clear()
        self._packed = PackedProducers()
        self.ongoing.clear()
        self.ended.clear()
        self._last_snapshot_offset = self.map_end_offset = end_offset

    def load(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> int:
        """Loads the newest good snapshot in that range, and returns the offset from which the log must be read on.

        One that doesn't parse is removed: it can be rebuilt. Expired producers are left out: by the timestamps of their
        last records, as Kafka does, but compared with the newest of them, not with a clock that is ahead of all. That
        clock may have been set, and a retried batch would be appended twice.
        """
        self.reset(log_start_offset)
        expiration_ms = self._find_expiration_ms()
        for offset, path in reversed(self._find_snapshots()):
            if not log_start_offset <= offset <= log_end_offset:
                continue
            try:
                entries = list(iter_producer_snapshot(path))
            except CorruptRecordError:
                self._remove_snapshot(path)
                continue
            newest_ms = min(now_ms, max((entry.timestamp for entry in entries), default=now_ms))
            for entry in entries:
                state = ProducerState.from_snapshot(entry)
                if state.current_txn_first_offset is not None:
                    self.ongoing[entry.producer_id] = LogOffsetMetadata(state.current_txn_first_offset, -1, -1)
                elif newest_ms - entry.timestamp >= expiration_ms:
                    continue
                self.producers[entry.producer_id] = state
                self._packed.note_change(state)
            self.ongoing = dict(sorted(self.ongoing.items(), key=lambda item: item[1]))
            self._last_snapshot_offset = self.map_end_offset = offset
            return offset
        return log_start_offset

    def truncate_head(self, log_start_offset: int) -> None:
        """Moves its start: ended transactions below it are no longer of interest, nor their snapshots."""
        self.ended = [u for u in self.ended if u[1] >= log_start_offset]
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def remove_stray_snapshots(self, segment_offsets: Container[int], log_end_offset: int) -> None:
        """Removes all snapshots but the newest and those where a segment begins: others are of no use, as in Kafka."""
        snapshots = self._find_snapshots()
        newest = max((offset for offset, _ in snapshots if offset <= log_end_offset), default=-1)
        for offset, path in snapshots:
            if offset > log_end_offset or (offset not in segment_offsets and offset != newest):
                self._remove_snapshot(path)

    def remove_snapshots_from(self, offset: int) -> None:
        """Removes the snapshots at `offset` and above: the log was cut there."""
        for snapshot_offset, path in self._find_snapshots():
            if snapshot_offset >= offset:
                self._remove_snapshot(path)
        self._last_snapshot_offset = min(self._last_snapshot_offset, offset - 1)

    def snapshot_paths(self, offsets: Container[int]) -> list[Path]:
        """Returns the snapshots at those offsets, except the newest, which the next start needs."""
        snapshots = self._find_snapshots()
        return [path for offset, path in snapshots[:-1] if offset in offsets]

    def _find_snapshots(self) -> list[tuple[int, Path]]:
        if self.listed_snapshots is not None:
            return list(self.listed_snapshots)
        return find_offset_files(self._directory, SNAPSHOT_SUFFIX)

    def _remove_snapshot(self, path: Path) -> None:
        self._filesystem.unlink(path)
        if self.listed_snapshots is not None:
            self.listed_snapshots = [(offset, other) for offset, other in self.listed_snapshots if other != path]

    def _path(self, offset: int) -> Path:
        return self._directory / offset_file_name(offset, SNAPSHOT_SUFFIX)


def rebuild_producer_state(
    producers: ProducerStateManager, segments: LogSegments, log_start_offset: int, log_end_offset: int, now_ms: int
) -> None:
    """Loads the newest snapshot up to `log_end_offset` and reads the batches after it, up to there.

    Producers that wrote only before the log's start are forgotten unless the snapshot has them, as Kafka does.
    """
    offset = producers.load(log_start_offset, log_end_offset, now_ms)
    for segment in segments.from_offset(offset):
        if segment.base_offset >= log_end_offset:
            break
        start = segment.position_of(offset) if offset > segment.base_offset else 0  # a start at 0 needs no index
        for batch in dropwhile(lambda batch: batch.last_offset < offset, segment.batches(start)):
            if batch.last_offset >= log_end_offset:
                break
            if isinstance(batch, RecordBatch):
                producers.update(batch, segment.base_offset, batch.position)
    producers.map_end_offset = max(producers.map_end_offset, log_end_offset)


_MOST_CHANGED = 1024


class PackedProducers:
    """The producers of one partition as their snapshot holds them, packed while batches are appended. Owned by one task
    (the partition log's).

    A roll writes a snapshot of all producers, and appends wait meanwhile. Packing 100,000 of them takes 150 ms; writing
    packed ones takes 5. So a producer that changed is packed together with a thousand others, soon after it changed;
    one that writes all the time is among the changed ones all the time, and is packed once.

    I1 a producer that was packed has a slot of its own, and its `slot` says which
    I2 a slot holds its producer as it is, unless the producer is among those that changed
    """

    def __init__(self) -> None:
        self._packed = bytearray()
        self._by_slot: list[ProducerState] = []
        self._changed: dict[ProducerState, None] = {}  # in their order, so that equal logs have equal snapshots

    def note_change(self, state: ProducerState) -> None:
        """Is called when the producer is new, or another than it was."""
        self._changed[state] = None
        if len(self._changed) >= _MOST_CHANGED:
            self._pack()

    def remove(self, state: ProducerState) -> None:
        """Forgets the producer; the last one takes its slot."""
        self._changed.pop(state, None)
        slot, state.slot = state.slot, None
        if slot is None:
            return
        last = self._by_slot.pop()
        if last is not state:
            self._by_slot[slot], last.slot = last, slot
            self._packed[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES] = self._packed[-ENTRY_BYTES:]
        del self._packed[-ENTRY_BYTES:]

    def snapshot(self) -> bytes:
        """Returns the content of a `.snapshot` file."""
        self._pack()
        return format_producer_snapshot(self._packed)

    def _pack(self) -> None:
        for state in self._changed:
            if state.slot is None:
                state.slot = len(self._by_slot)
                self._by_slot.append(state)
                self._packed += bytes(ENTRY_BYTES)
            pack_producer(state.to_snapshot(), self._packed, state.slot * ENTRY_BYTES)
        self._changed.clear()

    def check_invariants(self) -> None:
        assert len(self._packed) == len(self._by_slot) * ENTRY_BYTES
        for slot, state in enumerate(self._by_slot):
            assert state.slot == slot
            if state not in self._changed:
                expected = bytearray(ENTRY_BYTES)
                pack_producer(state.to_snapshot(), expected, 0)
                assert self._packed[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES] == expected
