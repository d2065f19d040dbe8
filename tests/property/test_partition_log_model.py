"""A partition's log against a plain list: whatever is done to both, they say the same."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.common.errors import KafkaError
from core.common.filesystem import FileSystem
from core.common.task import finish
from core.files.log_config import LogConfig
from core.forensics.partition_reader import PartitionReader
from core.log.log_loader import LogSettings, load_log
from core.log.partition_log import PartitionLog
from core.log.retention import delete_old_segments
from core.records.batches import iter_whole_batches
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import RecordBatch
from tests.support.given_log_start import GivenLogStart
from tests.support.logs import NOW, PARTITION, make_batch, make_marker
from tests.support.manual_clock import ManualClock

PRODUCERS = st.integers(1, 3)


@dataclass(frozen=True)
class Entry:
    """One record of the model, control records too."""

    offset: int
    batch_offset: int
    timestamp: int
    value: bytes
    producer_id: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_marker: bool = False
    is_commit: bool = False


class Model:
    """What the log holds, and what follows from it, worked out again each time it is called."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = self.end = self.high_watermark = 0
        self.forgotten: dict[int, int] = {}  # producer -> the offset below which nothing of it is known any more
        self.opened_at: dict[int, int] = {}  # producer -> where its open transaction begins, by all that is left of it

    def of_producer(self, producer_id: int) -> list[Entry]:
        """What the log should know of a producer."""
        since = self.forgotten.get(producer_id, 0)
        return [e for e in self.entries if e.producer_id == producer_id and e.offset >= since]

    def transactions(self) -> Iterator[tuple[int, int, Entry | None]]:
        """(producer, first offset, its marker or None where it is open)."""
        for producer_id in range(1, 4):
            first: int | None = None
            for entry in self.of_producer(producer_id):
                if entry.is_marker and first is not None:
                    yield producer_id, first, entry
                    first = None
                elif entry.is_transactional and not entry.is_marker and first is None:
                    first = max(entry.offset, self.opened_at.get(producer_id, 0))
            if first is not None:
                yield producer_id, first, None

    def has_open_transaction(self, producer_id: int) -> bool:
        return any(p == producer_id and marker is None for p, _, marker in self.transactions())

    def last_stable_offset(self) -> int:
        unstable = (
            first for _, first, marker in self.transactions() if marker is None or marker.offset >= self.high_watermark
        )
        return max(min([self.high_watermark, *unstable]), self.start)

    def visible(self, end: int, *, is_committed: bool) -> list[tuple[int, int, bytes]]:
        """What a consumer gets from the log start up to `end`: offset, timestamp, value."""
        aborted = set()
        for producer_id, first, marker in self.transactions():
            if marker is not None and not marker.is_commit:
                aborted |= {
                    e.offset for e in self.entries if e.producer_id == producer_id and first <= e.offset < marker.offset
                }
        return [
            (e.offset, e.timestamp, e.value)
            for e in self.entries
            if self.start <= e.offset < end and not e.is_marker and not (is_committed and e.offset in aborted)
        ]

    def next_sequence(self, producer_id: int) -> int:
        """0 for a producer of which no more is known than the end of a transaction."""
        known = self.of_producer(producer_id)
        sequences = [e.sequence for e in known if e.sequence >= 0]
        return sequences[-1] + 1 if sequences else 0

    def forget(self, producer_id: int) -> None:
        """The log read again from its start: of a producer whose data is deleted it knows markers at most."""
        left = [e for e in self.of_producer(producer_id) if e.offset >= self.start]
        assert all(e.is_marker for e in left)
        self.forgotten[producer_id] = self.start


def consume(log: PartitionLog, offset: int, max_bytes: int, *, is_committed: bool) -> list[tuple[int, int, bytes]]:
    """As a consumer reads: aborted transactions are dropped by what the reads say of them."""
    end = log.last_stable_offset if is_committed else log.high_watermark
    records: list[tuple[int, int, bytes]] = []
    start = offset
    while offset < end:
        result = log.read(offset, max_bytes, end, with_aborted=is_committed)
        assert result.region is not None
        pending = sorted(result.aborted, key=lambda a: a.first_offset)
        aborting: set[int] = set()
        for batch in iter_whole_batches(memoryview(result.region.read())):
            while pending and pending[0].first_offset <= batch.last_offset:
                aborting.add(pending.pop(0).producer_id)
            offset = batch.next_offset
            if batch.is_control:
                marker = read_end_transaction_marker(batch.records()[0])
                assert marker is not None
                if not marker.is_commit:
                    aborting.discard(batch.producer_id)
            elif not (is_committed and batch.is_transactional and batch.producer_id in aborting):
                records += [(r.offset, r.timestamp, r.value or b"") for r in batch.records() if r.offset >= start]
    return records


class PartitionLogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="plog-model-"))
        self.model = Model()
        self.number = 0
        self.sent: dict[int, list[tuple[RecordBatch, int]]] = {}  # idempotent batches by producer, and their offsets

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @initialize(segment_bytes=st.sampled_from([200, 700, 1 << 20]), interval=st.sampled_from([0, 150, 4096]))
    def make(self, segment_bytes: int, interval: int) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, max_message_bytes=10_000)
        self.log = self.load(had_clean_shutdown=True, recovery_point=0)

    def load(self, *, had_clean_shutdown: bool, recovery_point: int) -> PartitionLog:
        return load_log(
            self.directory,
            PARTITION,
            self.config,
            LogSettings(ManualClock(NOW), FileSystem()),
            log_start_offset=self.model.start,
            recovery_point=recovery_point,
            high_watermark=self.model.high_watermark,
            had_clean_shutdown=had_clean_shutdown,
        ).log

    def note(self, batch: RecordBatch, **fields: object) -> None:
        for record in batch.records():
            at = record.offset - batch.base_offset
            sequence = batch.base_sequence + at if batch.base_sequence >= 0 else -1
            self.model.entries.append(
                Entry(record.offset, batch.base_offset, record.timestamp, record.value or b"",
                      batch.producer_id, sequence, batch.is_transactional, **fields)  # type: ignore[arg-type]
            )  # fmt: skip
        self.model.end = batch.next_offset

    def append(self, batch: RecordBatch, **fields: object) -> int:
        result = self.log.append_as_leader(batch, 0, from_client=not batch.is_control)
        assert (result.base_offset, result.is_duplicate) == (self.model.end, False)
        self.note(batch, **fields)
        return result.base_offset

    def commit(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.model.high_watermark = self.model.end

    def note_forgotten(self) -> None:
        """The log read again: from its start, or from a snapshot, which may know more than it did before."""
        for producer_id in range(1, 4):
            state = self.log.producers.find(producer_id)
            if state is None or not state.batches:
                self.model.forget(producer_id)
                continue
            newest = [e for e in self.model.entries if e.producer_id == producer_id and not e.is_marker][-1]
            assert state.last_sequence == newest.sequence
            if newest.offset < self.model.forgotten.get(producer_id, 0):
                del self.model.forgotten[producer_id]
            self.note_opened(producer_id, state.current_txn_first_offset)

    def note_opened(self, producer_id: int, first_offset: int | None) -> None:
        """A transaction that began before the log's start begins with the first of its records that are left, or where
        that one's batch begins, which is there whole.
        """
        held = {p: first for p, first, marker in self.model.transactions() if marker is None}
        if first_offset != held.get(producer_id):
            assert first_offset is not None
            left = [e for e in self.model.of_producer(producer_id) if e.offset >= self.model.start]
            assert first_offset in (left[0].offset, left[0].batch_offset)
            self.model.opened_at[producer_id] = first_offset

    def values(self, count: int) -> list[bytes]:
        self.number += count
        return [b"value %d" % n for n in range(self.number - count, self.number)]

    # --- what can be done

    @rule(count=st.integers(1, 4), delay=st.integers(-5, 20), commits=st.booleans())
    def produce(self, count: int, delay: int, commits: bool) -> None:
        self.append(make_batch(*self.values(count), timestamp=NOW + delay))
        if commits:
            self.commit()

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), opens=st.booleans())
    def produce_idempotent(self, producer_id: int, count: int, opens: bool) -> None:
        batch = make_batch(
            *self.values(count),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self.model.next_sequence(producer_id),
            is_transactional=opens or self.model.has_open_transaction(producer_id),
        )
        raw = bytes(batch.buffer)
        offset = self.append(batch)
        self.sent.setdefault(producer_id, []).append((RecordBatch(memoryview(bytearray(raw))), offset))
        self.commit()

    @rule(producer_id=PRODUCERS, back=st.integers(0, 4))
    def retry(self, producer_id: int, back: int) -> None:
        """What the log was told twice it holds once; after a restart it knows each producer's last batch at least."""
        sent = self.sent.get(producer_id, [])
        state = self.log.producers.find(producer_id)
        if state is None or back >= min(len(sent), len(state.batches)):
            return
        batch, offset = sent[-1 - back]
        result = self.log.append_as_leader(RecordBatch(memoryview(bytearray(batch.buffer))), 0)
        assert (result.is_duplicate, result.base_offset) == (True, offset)

    @rule(producer_id=PRODUCERS, ahead=st.integers(1, 3))
    def produce_with_a_gap(self, producer_id: int, ahead: int) -> None:
        following = self.model.next_sequence(producer_id)
        if following == 0 or self.log.producers.find(producer_id) is None:
            return
        is_transactional = self.model.has_open_transaction(producer_id)
        batch = make_batch(
            b"x", producer_id=producer_id, producer_epoch=0, base_sequence=following + ahead,
            is_transactional=is_transactional,
        )  # fmt: skip
        with pytest.raises(KafkaError):
            self.log.append_as_leader(batch, 0)

    @rule(producer_id=PRODUCERS, is_commit=st.booleans(), commits=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool, commits: bool) -> None:
        if self.model.has_open_transaction(producer_id):
            marker = make_marker(producer_id, is_commit=is_commit)
            self.append(marker, is_marker=True, is_commit=is_commit)
            if commits:
                self.commit()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        self.commit()  # a snapshot knows nothing of transactions that ended, but above the high watermark
        offset = max(self.model.end - back, self.model.start)
        held = [e for e in self.model.entries if e.offset == offset]
        offset = held[0].batch_offset if held else offset
        self.log.truncate_to(offset)
        self.model.entries = [e for e in self.model.entries if e.offset < offset]
        self.sent = {producer: [s for s in sent if s[1] < offset] for producer, sent in self.sent.items()}
        self.model.end = min(self.model.end, offset)
        self.model.high_watermark = min(self.model.high_watermark, self.model.end)
        self.model.start = min(self.model.start, self.model.end)
        self.note_forgotten()

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.model.start + int((self.model.high_watermark - self.model.start) * part)
        self.log.increment_log_start_offset(offset)
        self.model.start = max(self.model.start, offset)

    @rule()
    def delete_old_segments(self) -> None:
        """Those before the log's start; nothing that anybody can read."""
        for path in delete_old_segments(self.log, NOW):
            path.unlink()
        self.note_forgotten()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        """A clean stop, or a killed process: what was written stays, what was in memory goes."""
        recovery_point = self.log.recovery_point
        if is_clean:
            self.log.close()
        self.log = self.load(had_clean_shutdown=is_clean, recovery_point=recovery_point)
        self.note_forgotten()
        self.commit()

    # --- what must hold

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def offsets_agree(self) -> None:
        log, model = self.log, self.model
        log.check_invariants()
        for segment in log.segments:
            segment.check_invariants()
            assert segment.next_offset() <= log.end_offset_of(segment)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
            model.start,
            model.high_watermark,
            model.end,
        )
        assert log.last_stable_offset == model.last_stable_offset()

    @precondition(lambda self: hasattr(self, "log"))
    @rule(part=st.floats(0, 1), max_bytes=st.sampled_from([1, 150, 1 << 20]), is_committed=st.booleans())
    def read(self, part: float, max_bytes: int, is_committed: bool) -> None:
        offset = self.model.start + int((self.model.end - self.model.start) * part)
        end = self.model.last_stable_offset() if is_committed else self.model.high_watermark
        expected = [v for v in self.model.visible(end, is_committed=is_committed) if v[0] >= offset]
        assert consume(self.log, offset, max_bytes, is_committed=is_committed) == expected

    @precondition(lambda self: hasattr(self, "log"))
    @rule(timestamp=st.integers(NOW - 8, NOW + 26))
    def find_by_timestamp(self, timestamp: int) -> None:
        found = finish(self.log.find_offset_by_timestamp(timestamp))
        expected = next(
            ((e.timestamp, e.offset) for e in self.model.entries
             if e.offset >= self.model.start and e.timestamp >= timestamp),
            None,
        )  # fmt: skip
        assert (found and (found.timestamp, found.offset)) == expected

    @precondition(lambda self: hasattr(self, "log"))
    @rule(part=st.floats(0, 1), is_committed=st.booleans(), timestamp=st.integers(NOW - 8, NOW + 26))
    def read_from_outside(self, part: float, is_committed: bool, timestamp: int) -> None:
        """Beside the live log, with no more than its files and checkpoints."""
        model = self.model
        offset = model.start + int((model.high_watermark - model.start) * part)
        reader = PartitionReader(
            self.directory,
            evidence=GivenLogStart(self.directory, model.start),
            find_high_watermark=lambda: model.high_watermark,
        )
        try:
            batches = reader.read(offset, reader.end_offset, read_committed=is_committed)
            got = [(r.offset, r.timestamp, r.value) for b in batches for r in b.records() if r.offset >= offset]
            end = min(self.log.last_stable_offset, reader.last_stable_offset) if is_committed else model.high_watermark
            assert got == [v for v in model.visible(end, is_committed=is_committed) if v[0] >= offset]
            expected = (
                e.offset
                for e in model.entries
                if model.start <= e.offset < model.high_watermark and e.timestamp >= timestamp
            )
            assert reader.find_offset_by_timestamp(timestamp) == next(expected, None)
            assert max(reader.last_stable_offset, model.start) <= self.log.last_stable_offset
        finally:
            reader.close()


TestPartitionLog = PartitionLogMachine.TestCase
TestPartitionLog.settings = settings(stateful_step_count=40)


def test_a_transaction_whose_beginning_was_deleted_begins_with_what_is_left() -> None:
    state = PartitionLogMachine()
    state.make(segment_bytes=700, interval=0)
    state.produce_idempotent(count=1, opens=True, producer_id=3)
    state.produce_idempotent(count=1, opens=False, producer_id=1)
    state.delete_records(part=0.5)
    state.produce_idempotent(count=1, opens=False, producer_id=3)
    state.produce(commits=False, count=1, delay=0)
    state.truncate(back=1)
    state.offsets_agree()
    state.teardown()


def test_a_truncation_may_know_more_of_a_producer_than_the_start_did() -> None:
    state = PartitionLogMachine()
    state.make(segment_bytes=200, interval=0)
    state.produce_idempotent(count=1, opens=False, producer_id=3)
    state.roll()
    state.produce(commits=True, count=2, delay=0)
    state.delete_records(part=0.75)
    state.restart(is_clean=False)
    state.truncate(back=1)
    state.produce_idempotent(count=3, opens=False, producer_id=3)
    state.teardown()
