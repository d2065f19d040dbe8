"""One partition's log: segments end to end, appended to at one end, trimmed at the other.

        log start                       last stable   high watermark   log end
            |------- readable by read_committed -|            |           |
            |------------------ readable by consumers --------|           |
            |--------------------------- on this disk --------------------|

A record's offset never changes. The recovery point says up to where the files are safe on the disk: batches beyond it
are checked again after a crash. Source: org.apache.kafka.storage.internals.log.UnifiedLog.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.task import Task, Yield
from core.files.file_names import DELETED_SUFFIX
from core.files.file_records import LogRegion
from core.files.log_config import LogConfig
from core.forensics.damage import DamagedRange
from core.forensics.segment_lookup import FoundTimestamp
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import AbortedTransaction
from core.log.fetched_batches import out_of_order, read_fetched, run_from
from core.log.log_segment import LogSegment
from core.log.log_validator import CheckedBatch, validate_batch, validate_header, validate_in_steps
from core.log.open_files import OpenFiles
from core.log.producer_state import BatchMetadata
from core.log.producer_state_manager import rebuild_producer_state
from core.log.segment_swap import swap_files
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import (
    CONTROL_FLAG,
    LARGE_BATCH_BYTES,
    NO_TIMESTAMP,
    RecordBatch,
    set_base_offset_and_leader_epoch,
    set_log_append_time,
)

if TYPE_CHECKING:
    from core.forensics.read_committed import ServedTransactions
    from core.log.segment_recovery import LazyIndexCheck, LogParts

_log = logging.getLogger("plog.log")


class AppendResult(NamedTuple):
    """The answer to a produce request: the offsets its batches have now, or had already (`is_duplicate`)."""

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    is_duplicate: bool = False


class ReadResult(NamedTuple):
    """`region` is None if there is nothing to read yet. `aborted`: transactions that a read_committed reader skips."""

    region: LogRegion | None
    aborted: Sequence[AbortedTransaction] = ()


class LogEvents:
    """Whom the logs of a directory call; whoever wants to know appends itself. Owned by the task of the logs."""

    def __init__(self) -> None:
        self.on_roll: list[Callable[[PartitionLog], None]] = []
        """Called when a segment took its last append: the log up to its end should be flushed."""
        self.on_cut: list[Callable[[PartitionLog, int], None]] = []
        """Called before records from that offset on are cut from a log's end: other tasks must leave its files alone.
        May raise the disk's OSError.
        """


class PartitionLog:
    """Owned by one task, which does all but `sync_segments`; that may run in any thread. Opened by `log_loader`.

    I1 log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    I2 recovery_point <= log_end_offset
    I3 segments don't overlap, and the first begins at or below log_start_offset
    """

    def __init__(
        self,
        parts: LogParts,
        config: LogConfig,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        open_files: OpenFiles,
        events: LogEvents,
        late_check: LazyIndexCheck | None = None,
    ) -> None:
        self.directory = parts.directory
        self.partition = parts.partition
        self.segments = parts.segments
        self.producers = parts.producers
        self.leader_epochs = parts.leader_epochs
        self._damage = parts.damage
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.config = config
        self._clock = parts.clock
        self._filesystem = parts.filesystem
        self._open_files = open_files
        self._events = events
        self.late_check = late_check
        """Checks the indexes of segments when they are used; None once all are checked."""
        self.judged: ServedTransactions | None = None
        """Decides what a read_committed consumer gets, if the log is read-only and its markers and indexes don't."""
        self.cuts = 0
        """How often records were cut from its end: a sync that began before a cut proves nothing of later records."""
        self.succeeds_a_deleted_one = False
        """Whether its topic was deleted and created again: a producer may then begin it with any sequence number, as
        up to Kafka 4.4. librdkafka goes on with the next number, and a refusal would be fatal for it.
        """
        self._unsettled: str | None = None
        self.is_written_ahead = False
        """Whether a large batch is being written ahead, so that another append would undo its written part."""
        self._ensure_in_order()

    def configure(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments:
            segment.config = config

    def move_to(self, open_files: OpenFiles) -> None:
        """Counts its files in `open_files` from now on, for a log that was opened in another thread."""
        self._open_files = open_files
        for segment in self.segments:
            segment.move_to(open_files)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended, or its first records are deleted: the bound of read_committed."""
        if self.judged is not None:
            return max(min(self.judged.last_stable_offset, self.high_watermark), self.log_start_offset)
        producers = self.producers
        unstable = producers.first_unstable_offset if producers.ongoing or producers.ended else None
        if unstable is None or unstable.offset >= self.high_watermark:
            return self.high_watermark
        return max(unstable.offset, self.log_start_offset)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    # --- append

    def validate(self, batch: RecordBatch) -> Task[CheckedBatch]:
        """Checks in steps, as `append_as_leader` would at once, a client's batch that is large, or whose records the
        log's configuration has opened. Raises what `validate_batch` raises.
        """
        return validate_in_steps(batch, self.config, self._clock.now_ms())

    def write_ahead(self, batch: RecordBatch, leader_epoch: int) -> Task[None]:
        """Writes most of a checked batch in steps, so that `append_as_leader`, called right after the last one, has
        little left to do. Only that call puts the batch into the log. Another append before it takes away the bytes
        written, and the steps end; `forget_ahead` does so if the call never comes. Raises nothing: the call meets any
        error again.
        """
        if self._unsettled is not None or batch.size_bytes > self.config.segment_bytes:
            return
        try:
            if batch.producer_id >= 0 and self._find_duplicate(batch) is not None:
                return
            set_base_offset_and_leader_epoch(batch, self.log_end_offset, leader_epoch)
            segment = self.segments.active
            if segment.should_roll(batch, self._clock):
                segment = self.roll()
        except (KafkaError, OSError, CorruptRecordError):
            return
        self.is_written_ahead = True
        try:
            yield from segment.write_ahead(batch)
        finally:
            self.is_written_ahead = False

    def forget_ahead(self, batch: RecordBatch) -> None:
        """Takes away the bytes of a batch that `write_ahead` wrote, unless it was appended."""
        for segment in list(self.segments)[-1:]:
            if not segment.is_removed:  # else its file may be another log's by now
                segment.records.forget_ahead(batch)

    def append_as_leader(self, batch: RecordBatch, leader_epoch: int, *, from_client: bool = True) -> AppendResult:
        """Appends a producer's batch, with the next offsets; its buffer is changed in place.

        Raises KafkaError as `validate_batch` does, and for wrong sequences; the disk's OSError, and CorruptRecordError
        for damage met while reading the log. Nothing is appended then.
        """
        if self._unsettled is not None:
            self._ensure_settled()
        now_ms = self._clock.now_ms()
        config = self.config
        if from_client and (config.opens_records or batch.size_bytes > LARGE_BATCH_BYTES):
            batch = validate_batch(batch, config, now_ms)
        else:
            validate_header(batch, config, from_client=from_client, now_ms=now_ms)
        if batch.producer_id >= 0 and not from_client:
            self._ensure_epoch(batch)
        elif batch.producer_id >= 0 and not self.producers.is_in_order(batch):
            known = self._find_duplicate(batch)
            if known is not None:
                return AppendResult(
                    known.first_offset, known.last_offset, known.timestamp, self.log_start_offset, is_duplicate=True
                )
        base_offset = self.log_end_offset
        set_base_offset_and_leader_epoch(batch, base_offset, leader_epoch)
        log_append_time = NO_TIMESTAMP
        if config.is_log_append_time and not batch.is_control:
            set_log_append_time(batch, now_ms)
            log_append_time = now_ms
        self._append(batch)
        return AppendResult(base_offset, self.log_end_offset - 1, log_append_time, self.log_start_offset)

    def _find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """Finds the batch that a retry repeats; raises KafkaError if this does not follow its producer's last one."""
        state = self.producers.state_of(batch.producer_id)
        known = state.find_duplicate(batch)
        if known is None:
            state.ensure_may_append(batch)
            self.producers.ensure_none_awaited(batch)
            if not self.log_end_offset and not self.succeeds_a_deleted_one:
                state.ensure_begins_at_zero(batch)  # KAFKA-15591: its producer's earlier batches were refused
        return known

    def _ensure_epoch(self, batch: RecordBatch) -> None:
        """Raises KafkaError if a coordinator's batch, of records or a marker, is of a fenced producer."""
        state = self.producers.state_of(batch.producer_id)
        marker = read_end_transaction_marker(batch.records()[0]) if batch.is_control else None
        if marker is not None:
            self.segments.active.transaction_index.entries()  # this may fail before anything is written, not after
            state.ensure_may_end(batch, marker)
        else:
            state.ensure_epoch(batch)

    def _append(self, batch: RecordBatch) -> None:
        segment = self.segments.active
        if batch.size_bytes > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the record batch has {batch.size_bytes} bytes, segment.bytes is {self.config.segment_bytes}",
            )
        if segment.should_roll(batch, self._clock):
            segment = self.roll()
        if batch.partition_leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        position = segment.append(batch)
        self._unsettled = "an append"
        if batch.producer_id >= 0:
            self._note_producer(batch, segment, position)
        self.log_end_offset = self.producers.map_end_offset = batch.base_offset + batch.last_offset_delta + 1
        self._unsettled = None

    def _note_producer(self, batch: RecordBatch, segment: LogSegment, position: int) -> None:
        aborted = self.producers.update(batch, segment.base_offset, position)
        if aborted is not None:
            segment.transaction_index.append(aborted)

    def append_as_follower(self, records: memoryview, leader_epoch: int, *, leader_log_start: int = 0) -> None:
        """Appends a leader's Fetch answer of that epoch: its batches as they are, those of a segment by one write. A
        batch that is cut short at the end is left for the next fetch, which begins at `log_end_offset`.
        `leader_log_start` is the leader's log start offset, by the same answer.

        Raises what `read_fetched` raises, nothing appended then; the disk's OSError, and CorruptRecordError for damage
        met while reading the log: the batches of earlier segments may be appended then, and later ones are not.
        """
        if self._unsettled is not None:
            self._ensure_settled()
        batches = read_fetched(
            records,
            end_offset=self.log_end_offset,
            latest_epoch=self.leader_epochs.latest_epoch,
            leader_epoch=leader_epoch,
        )
        number = 0
        if batches and batches[0].base_offset < self.log_end_offset:
            self._begin_within(batches[0], leader_log_start)
            number = 1
        while number < len(batches):
            number += self._append_run(batches, number)

    def _begin_within(self, batch: RecordBatch, leader_log_start: int) -> None:
        """Begins the log again with a batch that begins below its end. That is right if the leader's records were
        deleted up to there, as the batch comes whole: this log has no records, or none that the leader still has.
        """
        end_offset = self.log_end_offset
        if end_offset not in (self.log_start_offset, leader_log_start):
            raise out_of_order(batch, end_offset)
        self.truncate_fully_and_start_at(batch.base_offset)
        self._append_run([batch], 0)
        self.update_high_watermark(end_offset)
        self.increment_log_start_offset(end_offset)

    def _append_run(self, batches: Sequence[RecordBatch], number: int) -> int:
        """Writes as many batches from `number` on as can be written at once; returns how many."""
        first, segment = batches[number], self.segments.active
        if segment.should_roll(first, self._clock):
            if not segment.may_hold(first):  # not even a new one at the log's end may hold it
                self.log_end_offset = self.producers.map_end_offset = first.base_offset  # the leader has nothing before
            segment = self.roll()
        run = run_from(batches, number, segment, self._clock)
        for batch in run:
            if batch.attributes & CONTROL_FLAG:
                segment.transaction_index.entries()  # this may fail before anything is written, not after
                break
        if first.partition_leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(first.partition_leader_epoch, first.base_offset)
        moved = segment.append_run(run) - first.start
        self._unsettled = "an append"
        for batch in run:
            self._note_producer(batch, segment, moved + batch.start)
        last = run[-1]
        self.log_end_offset = last.base_offset + last.last_offset_delta + 1
        self._unsettled = None
        return len(run)

    @property
    def is_settled(self) -> bool:
        """Whether memory agrees with the files. Not so after a change that failed in the middle: nothing is accepted
        then until the log is opened again.
        """
        return self._unsettled is None

    def _ensure_settled(self) -> None:
        if self._unsettled is not None:
            message = f"{self._unsettled} failed in the middle; the log must be opened again"
            raise OSError(errno.EIO, message, str(self.directory))

    @contextlib.contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        self._ensure_settled()
        self._unsettled = what
        yield
        self._unsettled = None  # an error leaves it as it is

    def roll(self) -> LogSegment:
        """Starts a new active segment at the log's end; an empty one stays. Raises the disk's OSError, and
        CorruptRecordError for damage met while reading; the log is unchanged then.
        """
        active = self.segments.active
        if active.base_offset == self.log_end_offset:
            return active
        active.write_indexes()
        self.producers.take_snapshot(sync=False)
        segment = self._make_segment(self.log_end_offset, is_new=True)
        active.seal()
        self.segments.add(segment)
        for on_roll in self._events.on_roll:
            on_roll(self)
        return segment

    def _make_segment(self, base_offset: int, *, is_new: bool = False) -> LogSegment:
        """Makes an empty segment, or one of files that are on the disk."""
        jitter = min(self.config.segment_jitter_ms, self.config.max_segment_ms) if is_new else 0
        jitter_ms = random.randrange(jitter) if jitter else 0  # noqa: S311 - spreads work, guards nothing
        return LogSegment(
            self.directory,
            base_offset,
            self.config,
            self._filesystem,
            self._open_files,
            created_ms=self._clock.monotonic_ms(),
            jitter_ms=jitter_ms,
            is_new=is_new,
            is_sealed=not is_new,
        )

    def update_high_watermark(self, offset: int) -> None:
        """Moves up to where consumers may read; never beyond the log's end, nor back."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.ended:
                self.producers.on_high_watermark(offset)

    # --- read

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool = True, with_aborted: bool = False
    ) -> ReadResult:
        """Returns batches from `offset` on that lie below `end_offset`, out of one segment.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) unless log start <= offset <= log end. The first batch may begin before
        `offset`, and is whole; it does not come if it is larger than `max_bytes`, unless `min_one_batch` wants it. The
        last may be cut short.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self.ensure_in_range(offset)
        if with_aborted and self.judged is not None:
            end_offset = self.judged.end_of_answer(offset, end_offset)
        segment: LogSegment | None = self.segments.active
        if offset < self.segments.active.base_offset:
            segment = self.segments.floor(offset)
        while segment is not None and offset < end_offset:
            end_position = self._end_position(segment, end_offset)
            region = segment.read(offset, max_bytes, end_position, min_one_batch=min_one_batch)
            if region is not None:
                if not region.size_bytes:
                    break
                aborted = self._aborted_transactions(segment, offset, region, end_offset) if with_aborted else ()
                return ReadResult(region, aborted)
            segment = self.segments.higher(segment.base_offset)
        return ReadResult(None)

    def ensure_in_range(self, offset: int) -> None:
        """Raises KafkaError(OFFSET_OUT_OF_RANGE) unless log start <= offset <= log end."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.partition} is outside {self.log_start_offset} to {self.log_end_offset}",
            )

    def _end_position(self, segment: LogSegment, end_offset: int) -> int:
        if end_offset >= self.log_end_offset or end_offset >= self.end_offset_of(segment):
            return segment.size_bytes
        unstable = self.producers.first_unstable_offset
        if unstable is not None and unstable.offset == end_offset and unstable.position >= 0:
            return unstable.position if unstable.segment_base_offset == segment.base_offset else segment.size_bytes
        return segment.position_of(end_offset)

    def _aborted_transactions(
        self, segment: LogSegment, offset: int, region: LogRegion, end_offset: int
    ) -> list[AbortedTransaction]:
        bound = segment.find_offset_after(region.position, region.size_bytes)
        if bound is None:
            bound = self.end_offset_of(segment)
        bound = min(bound, end_offset)
        if self.judged is not None:
            return self.judged.aborted(offset, bound)
        aborted: list[AbortedTransaction] = []
        for later in self.segments.from_offset(segment.base_offset):
            found, is_complete = later.aborted_transactions(offset, bound)
            aborted += found
            if is_complete:
                break
        return aborted

    def find_offset_by_timestamp(self, timestamp: int) -> Task[FoundTimestamp | None]:
        """Finds the first record whose timestamp is at or above `timestamp`, or None. If a batch does not decode,
        returns its first offset: a consumer that reads from there meets the damage, and skips nothing.

        The log may change between two steps: segments removed meanwhile are not searched.
        """
        offset, end_offset = self.log_start_offset, self.log_end_offset
        while offset < end_offset:
            segment = yield from self._find_segment(offset, timestamp)
            if segment is None:
                return None
            found = yield from segment.find_by_timestamp(timestamp, offset)
            if found is not None:
                return found
            offset = max(offset, self.log_start_offset) if segment.is_removed else self.end_offset_of(segment)
        return None

    def _find_segment(self, offset: int, timestamp: int) -> Task[LogSegment | None]:
        """Finds the first segment with a timestamp as high, from the segment that holds `offset` on, or None."""
        for segment in self.segments.from_offset(offset):
            if (yield from _max_timestamp(segment)) >= timestamp:
                return segment
        return None

    def find_max_timestamp(self) -> Task[FoundTimestamp | None]:
        """Finds the first record with the largest timestamp; None if the log is empty. Takes steps as
        `find_offset_by_timestamp` does.
        """
        newest = NO_TIMESTAMP
        for segment in self.segments:
            newest = max(newest, (yield from _max_timestamp(segment)))
        return None if newest == NO_TIMESTAMP else (yield from self.find_offset_by_timestamp(newest))

    # --- damage

    @property
    def gaps(self) -> list[DamagedRange]:
        return self._damage.gaps

    def note_damage(self, gap: DamagedRange) -> None:
        """Ends reads before it from now on, and after a restart too; the bytes stay as they are."""
        segment = self.segments.floor(gap.segment_base_offset)
        if segment is None or segment.base_offset != gap.segment_base_offset or gap in segment.gaps:
            return
        self._damage.note(segment, gap, self.partition)

    # --- cut and trim

    def truncate_to(self, offset: int) -> int:
        """Drops every record from `offset` on; returns the number of bytes cut. At or above the log's end, drops at
        most an epoch without records, whose leader wrote none before another took over. Raises the disk's OSError; the
        log must be opened again then.
        """
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return 0
        if offset <= self.segments.first.base_offset:
            cut = self.size_bytes
            self.truncate_fully_and_start_at(offset)
            return cut
        with self._changing("a truncation"):
            self._announce_cut(offset)
            later = [s for s in self.segments if s.base_offset > offset]
            cut = sum(s.size_bytes for s in later)
            self._delete_segments(reversed(later))  # a failure leaves no hole
            cut += self.segments.active.truncate_to(offset)
            self._end_at(self.segments.active.next_offset())
        return cut

    def forget_safety_from(self, offset: int) -> None:
        """Takes nothing from `offset` on for flushed or committed any more, as it is cut, or will be."""
        self.cuts += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = max(min(self.high_watermark, offset), self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops every record; the log continues, empty, at `offset`. Raises what `truncate_to` raises."""
        with self._changing("a truncation"):
            self._announce_cut(min(offset, self.log_start_offset))
            self._delete_segments(list(self.segments))
            segment = self._make_segment(offset, is_new=True)
            segment.note_change()  # the disk may have the old one of that name still
            self.segments.add(segment)
            self.log_start_offset = offset
            self.leader_epochs.clear()  # the former epochs have offsets that are no part of this log
            self._end_at(offset)

    def _announce_cut(self, offset: int) -> None:
        for on_cut in self._events.on_cut:
            on_cut(self, offset)

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.forget_safety_from(offset)
        self.leader_epochs.truncate_from_end(offset)
        self._forget_damage()
        self.producers.remove_snapshots_from(offset + 1)
        rebuild_producer_state(self.producers, self.segments, self.log_start_offset, offset, self._clock.now_ms())
        self.producers.on_high_watermark(self.high_watermark)
        self._ensure_in_order()

    def increment_log_start_offset(self, offset: int) -> None:
        """Begins the log at `offset`, for DeleteRecords and retention. Raises KafkaError(OFFSET_OUT_OF_RANGE) above the
        high watermark; a no-op below the present start. Retention deletes the segments that lie before it whole."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot move the log start of {self.partition} to {offset}, "
                f"the high watermark is {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self.producers.truncate_head(offset)
            self._ensure_in_order()

    def end_offset_of(self, segment: LogSegment) -> int:
        """Returns the offset after the segment's last."""
        following = self.segments.higher(segment.base_offset)
        return self.log_end_offset if following is None else following.base_offset

    def end_of(self, segment: LogSegment) -> OffsetPosition:
        """Returns where the segment ends now."""
        return OffsetPosition(self.end_offset_of(segment), segment.size_bytes)

    def delete_oldest(self, segments: list[LogSegment]) -> list[Path]:
        """Removes the first segments; the log starts after them. Their files are renamed to `.deleted`, and returned
        for the caller to delete later: a reader that knows only the name may still be opening them.

        Raises OSError if the disk refuses the new segment that an empty log needs, nothing changed then; or if it
        refuses everything: the log begins later, and the segments are still there.
        """
        if segments[-1] is self.segments.active:
            self.roll()
        start = self.end_offset_of(segments[-1])
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.leader_epochs.truncate_from_start(start)
            self.producers.truncate_head(start)
        self.leader_epochs.settle_before_deletion()
        for segment in segments:
            self._take_out(segment)
        self._forget_damage()
        paths = [path for segment in segments for path in segment.paths]
        paths += self.producers.snapshot_paths({segment.base_offset for segment in segments})
        self._ensure_in_order()
        return [self._rename_deleted(path) for path in paths if path.exists()]

    def replace_segments(self, base_offset: int, replaced: Sequence[int]) -> list[Path]:
        """Replaces sealed, adjacent segments by the cleaned segment of that base offset, the first one's, whose files
        end in `.swap`.

        The `.swap` files stay, as second names, until `settle_swap`: up to there a start does the same again. Returns
        the old files, as `delete_oldest` does. Raises OSError if the disk refuses: the log must be opened again then.
        """
        old = [segment for segment in self.segments if segment.base_offset in replaced]
        assert len(old) == len(replaced), f"{self.partition}: {replaced}"
        assert self.segments.active not in old
        assert swap_files(self.directory, base_offset), f"{self.partition}: no swap at {base_offset}"
        with self._changing("a swap"):
            for segment in old:
                self._take_out(segment)
            paths = [path for segment in old for path in segment.paths]
            following = self.segments.higher(replaced[-1])
            assert following is not None
            paths += self.producers.snapshot_paths(range(base_offset + 1, following.base_offset))  # also those of stops
            deleted = [self._rename_deleted(path) for path in paths if path.exists()]
            for swap, path in swap_files(self.directory, base_offset):
                self._filesystem.link(swap, path)
            self.segments.add(self._make_segment(base_offset))
        self._ensure_in_order()
        return deleted

    def _forget_damage(self) -> None:
        """Forgets the damage of removed segments, and damage above the log's end."""
        self._damage.keep_segments({segment.base_offset for segment in self.segments}, self.log_end_offset)

    def _rename_deleted(self, path: Path) -> Path:
        renamed = path.with_name(path.name + DELETED_SUFFIX)
        self._filesystem.rename(path, renamed)
        return renamed

    def _take_out(self, segment: LogSegment) -> None:
        self.segments.remove(segment)
        segment.on_removed()

    def _delete_segments(self, segments: Iterable[LogSegment]) -> None:
        """Takes the segments out and their files away. A read that was answered already keeps its file open."""
        for segment in segments:
            self._take_out(segment)
            for path in segment.paths:
                self._filesystem.unlink(path)

    # --- to the disk

    def unflushed_segments(self, offset: int) -> list[LogSegment]:
        """Returns the segments that `sync_segments` must sync before the recovery point may move to `offset`. Also the
        segment that ends at the recovery point: since its records were flushed it may have been sealed.
        """
        return [s for s in self.segments.from_offset(self.recovery_point - 1) if s.base_offset < offset]

    def mark_flushed(self, offset: int) -> None:
        """Notes that everything below `offset` is on the disk. Not to be called after a sync in another thread during
        which the log was cut: compare `cuts`.
        """
        for segment in self.unflushed_segments(offset):
            segment.settle()
        self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))

    def flush(self) -> None:
        """Returns when everything appended so far is on the disk."""
        offset = self.log_end_offset
        sync_segments(self.unflushed_segments(offset))
        self.mark_flushed(offset)

    def close(self, *, syncs_parent: bool = True) -> bool:
        """Stops cleanly: everything synced, indexes trimmed, a snapshot at the log's end, files closed. Leaves an
        unchanged log alone. Without `syncs_parent`, returns whether the caller must sync the directory that holds the
        log's folder. Raises the disk's OSError, and an OSError unless `is_settled`: the stop is not a clean one then.
        """
        self._ensure_settled()
        self.leader_epochs.settle()
        has_new_folder = any(segment.is_new and not segment.is_unchanged for segment in self.segments)
        for segment in self.segments:
            segment.close()
        is_folder_synced = self.producers.take_snapshot()  # after the segments are on the disk, not before
        if has_new_folder and not is_folder_synced:
            self._filesystem.sync_directory(self.directory)
        if has_new_folder and syncs_parent:
            self._filesystem.sync_directory(self.directory.parent)
        self.mark_flushed(self.log_end_offset)
        return has_new_folder

    def let_go(self) -> None:
        """Closes the files of a log that is not served any more, except files that an answer still points into. Others
        may still hold the log itself.
        """
        for segment in self.segments:
            segment.on_removed()
            segment.release_files()

    def _ensure_in_order(self) -> None:
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= self.log_end_offset, (
            f"{self.partition}: start {self.log_start_offset}, stable {self.last_stable_offset}, "
            f"high watermark {self.high_watermark}, end {self.log_end_offset}"
        )
        assert self.recovery_point <= self.log_end_offset
        assert self.segments.first.base_offset <= self.log_start_offset

    def check_invariants(self) -> None:
        """Asserts its own invariants and those of its parts in memory. Files may be damaged:
        `LogSegment.check_invariants` is for sound logs.
        """
        self._ensure_in_order()
        for part in (self.producers, self.leader_epochs, self._damage, self._open_files):
            part.check_invariants()


def _max_timestamp(segment: LogSegment) -> Task[int]:
    """Takes a step if the indexes are unchecked, as that takes long; NO_TIMESTAMP if the segment is removed."""
    if segment.is_unchecked:
        segment.ensure_checked()
        yield Yield.GIVE_WAY
    return NO_TIMESTAMP if segment.is_removed else segment.max_timestamp.timestamp


def sync_segments(segments: Iterable[LogSegment]) -> None:
    """Syncs the segments' files; from any thread."""
    for segment in segments:
        segment.sync()
