"""Opens a partition's folder: finishes what a crash left half done, checks what may be torn, rebuilds what is missing.

1. leftovers: `.deleted` and `.cleaned` files go; complete `.swap` segments take the place of those they replace
2. indexes: one without its log stays as long as it proves that a segment is missing, or is moved aside if the log ends
   before that segment; one that is not there, or can't be its segment's, is made again
3. after an unclean stop: every segment from the recovery point on is read whole; the first bad batch above it ends the
   log, what follows it is set aside (`log_cutter`); a bad batch below it is a gap (`damaged_ranges`), and stays
4. producers: the newest good snapshot, and the log read on from there

Source: org.apache.kafka.storage.internals.log.LogLoader.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.common.clock import Clock
from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import AbortedTransaction
from core.log.damage import DamagedRange, shows_compaction
from core.log.damaged_ranges import DamagedRanges
from core.log.file_names import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    find_offset_files,
    find_unreadable_files,
)
from core.log.hole import HoleReason, TailKind, explain_hole, offsets_text
from core.log.leader_epoch_cache import EpochEntry, LeaderEpochCache, rising_epochs
from core.log.log_arrangement import Arrangement, OpenTransactions, arrange
from core.log.log_config import LONG_MAX, LogConfig
from core.log.log_cutter import LogCutter
from core.log.log_evidence import DirectoryEvidence, LogEvidence
from core.log.log_segment import LogSegment
from core.log.log_segments import LogSegments
from core.log.lone_index import find_lone_indexes, find_traces, indexed_end
from core.log.open_files import OpenFiles
from core.log.partition_log import PartitionLog, log_damage, note_damage, rebuild_producer_state
from core.log.producer_state import CompletedTransaction
from core.log.producer_state_manager import ProducerStateManager
from core.log.recovery_journal import read_lost_offsets
from core.log.segment_deletion import finish_deletions
from core.log.segment_reading import DamagedBytes, SegmentReading
from core.log.segment_swap import finish_swaps
from core.records.batches import CURRENT_MAGIC, Batch
from core.records.record_batch import RecordBatch

_log = logging.getLogger("plog.log")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What every log of a directory is opened with."""

    clock: Clock
    filesystem: FileSystem
    producer_id_expiration_ms: int = 86_400_000
    open_files: OpenFiles = field(default_factory=OpenFiles)
    is_read_only: bool = False
    """Whether the logs lie in a shadow, to be served as the one reader reads them (core.log.log_arrangement)."""
    is_beside_writer: bool = False
    """Whether somebody writes to the logs that the shadow was made of: what other files know of may be newer."""
    keeps_cut_bytes: bool = True
    """Whether what is cut from a log's end is copied aside: not where the log's files are another's, and stay whole."""
    cuts_sound_records: bool = True
    """Whether a log ends at damage with sound records after it. Where each append is synced before the next, no crash
    leaves that, and opening it is a CorruptRecordError else.
    """


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """`was_cut`: records were dropped, so that the leader epoch must rise. In a shadow, `is_odd`: the log is not as it
    should be; and `has_wrong_tail`: bytes after its end that no crash explains are passed over. `has_wrong_start`: the
    log does not begin where its checkpoint says, which can't be. `unexplained` are offsets [start, end) that are
    missing for no known reason, of a log that is owned those between its segments; None if a shadow did not have to be
    arranged, so that nobody looked, or an owner found none.
    """

    log: PartitionLog
    was_cut: bool
    is_odd: bool = False
    has_wrong_tail: bool = False
    has_wrong_start: bool = False
    unexplained: Sequence[tuple[int, int]] | None = None


def load_log(
    directory: Path,
    partition: TopicPartition,
    config: LogConfig,
    settings: LogSettings,
    *,
    log_start_offset: int = 0,
    recovery_point: int | None = 0,
    high_watermark: int = 0,
    had_clean_shutdown: bool = True,
    evidence: DirectoryEvidence | None = None,
) -> LoadedLog:
    """Opens the log in `directory`, which exists, and makes it ready for appends.

    The offsets are those of the directory's checkpoints. Without a recovery point, for a folder that came without a
    checkpoint, only what is torn at the log's very end is cut. OSError where the disk refuses.
    """
    return _Loader(directory, partition, config, settings, evidence).load(
        log_start_offset, recovery_point, high_watermark, had_clean_shutdown=had_clean_shutdown
    )


class _Loader:
    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        config: LogConfig,
        settings: LogSettings,
        evidence: DirectoryEvidence | None,
    ) -> None:
        self._evidence = evidence
        self._arrangement: Arrangement | None = None
        self._open_transactions: OpenTransactions = {}
        self._directory = directory
        self._partition = partition
        self._config = config
        self._settings = settings
        self._filesystem = settings.filesystem
        self._segments = LogSegments()
        self._cutter = LogCutter(
            directory,
            partition,
            self._segments,
            settings.filesystem,
            keeps_bytes=settings.keeps_cut_bytes,
            cuts_sound_records=settings.cuts_sound_records,
        )
        self._leader_epochs = LeaderEpochCache(directory, settings.filesystem)
        self._damage = DamagedRanges(directory, settings.filesystem)
        self._producers = ProducerStateManager(
            directory, settings.filesystem, producer_id_expiration_ms=settings.producer_id_expiration_ms
        )
        self._log_end_offset = 0  # as far as it is known
        self._most_end_offset = LONG_MAX  # nothing beyond is believed
        self._was_cut = False
        self._has_unsound_end = False
        self._has_wrong_start = False
        self._unexplained: list[tuple[int, int]] = []

    def load(
        self, log_start_offset: int, known_point: int | None, high_watermark: int, *, had_clean_shutdown: bool
    ) -> LoadedLog:
        finish_deletions(self._directory, self._leader_epochs, self._filesystem)
        finish_swaps(self._directory, self._filesystem)
        recovery_point = known_point or 0
        if had_clean_shutdown:
            recovery_point = max(recovery_point, self._newest_snapshot())
            if log_start_offset > recovery_point:
                log_start_offset = self._believed_start(log_start_offset)
        self._log_end_offset = recovery_point
        if self._settings.is_read_only:
            self._arrange(recovery_point, had_clean_shutdown=had_clean_shutdown)
        is_all_checked = had_clean_shutdown or known_point is None  # else recovery reads what is above
        self._open_segments(None if is_all_checked else recovery_point, log_start_offset)
        if self._arrangement is not None:
            self._reindex_arranged(log_start_offset)
        elif had_clean_shutdown and self._is_end_sound(recovery_point) and not self._has_unsound_end:
            recovery_point = max(recovery_point, self._end_offset())
        else:
            known = self._known(had_clean_shutdown=had_clean_shutdown)
            self._recover(known, log_start_offset, LONG_MAX if known_point is None else recovery_point)
        if not len(self._segments):
            self._segments.add(self._new_segment(log_start_offset))
        end_offset = self._log_end_offset = self._end_offset()
        self._damage.keep_segments({segment.base_offset for segment in self._segments}, end_offset)
        log_start_offset = max(log_start_offset, self._segments.first.base_offset)
        if end_offset < recovery_point and not self._settings.is_read_only:
            self._warn_of_short_log(end_offset, recovery_point)
        if end_offset < log_start_offset:
            self._cutter.remove_all(log_start_offset)
            self._segments.add(self._new_segment(log_start_offset))
            end_offset = log_start_offset
        if self._leader_epochs.was_damaged or (self._leader_epochs.was_missing and self._has_leader_epochs()):
            self._past_damage(self._rebuild_leader_epochs)
        self._leader_epochs.truncate_from_end(end_offset + 1)  # one that begins at the end has no record yet
        self._producers.remove_stray_snapshots({s.base_offset for s in self._segments}, end_offset)
        self._rebuild_producer_state(log_start_offset, end_offset)
        self._past_damage(self._segments.active.find_newest_timestamp)  # which appends go on from
        log = self._make_log(log_start_offset, end_offset, min(recovery_point, end_offset))
        log.update_high_watermark(high_watermark)
        tail = None if self._arrangement is None else self._arrangement.tail
        return LoadedLog(
            log,
            self._was_cut,
            is_odd=self._is_odd(),
            has_wrong_tail=tail is not None and tail.kind is TailKind.WRONG,
            has_wrong_start=self._has_wrong_start,
            unexplained=self._unexplained or None if self._arrangement is None else self._arrangement.unexplained,
        )

    def _make_log(self, log_start_offset: int, end_offset: int, recovery_point: int) -> PartitionLog:
        return PartitionLog(
            self._directory,
            self._partition,
            self._config,
            segments=self._segments,
            producers=self._producers,
            leader_epochs=self._leader_epochs,
            damage=self._damage,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            clock=self._settings.clock,
            filesystem=self._filesystem,
            open_files=self._settings.open_files,
        )

    def _believed_start(self, log_start_offset: int) -> int:
        """Gives where a log begins that was stopped cleanly: by its checkpoint, or without it if it can't be right. No
        record is dropped for a number that no checksum covers.
        """
        known = self._known(had_clean_shutdown=True)
        if known.wrong_start is None:
            return log_start_offset
        self._has_wrong_start = True
        _log.error("%s: %s: %s; its records are kept", self._partition, known.wrong_start.path, known.wrong_start)
        return known.log_start_offset

    def _is_odd(self) -> bool:
        """Whether, in a shadow, the log had to be arranged, or its snapshot has open transactions that it has not."""
        if not self._settings.is_read_only:
            return False
        first = self._segments.first.base_offset
        ongoing = {p: offset for p, offset in self._producers.open_transactions.items() if offset >= first}
        return self._arrangement is not None or ongoing != self._open_transactions

    def _end_offset(self) -> int:
        return self._segments.active.next_offset() if len(self._segments) else 0

    def _warn_of_short_log(self, end_offset: int, known_end: int) -> None:
        """No crash explains it: what a snapshot or the recovery point knows of was flushed before."""
        offsets = offsets_text(end_offset, known_end)
        _log.error("%s: the log ends at offset %d; %s were there and are lost", self._partition, end_offset, offsets)

    def _newest_snapshot(self) -> int:
        """Its offset: a clean stop took it at the log's end."""
        return max((offset for offset, _ in find_offset_files(self._directory, SNAPSHOT_SUFFIX)), default=0)

    def _is_end_sound(self, known_end: int) -> bool:
        """Whether the log can be read to its end, past known damage, and nothing contradicts the offsets on the way:
        no checksum covers them. A clean stop left its end at `known_end`, if that is not 0; where one flipped bit has
        moved the last batch beyond, nothing is believed beyond.
        """
        try:
            if not len(self._segments):
                return True
            is_rising, is_moved = self._segments.active.look_at_end(known_end)
        except CorruptRecordError:
            return False
        if is_rising and is_moved:
            self._most_end_offset = known_end
        return is_rising and not is_moved

    def _rebuild_producer_state(self, log_start_offset: int, end_offset: int) -> None:
        now_ms = self._settings.clock.now_ms()
        self._past_damage(
            lambda: rebuild_producer_state(self._producers, self._segments, log_start_offset, end_offset, now_ms)
        )

    def _known(self, *, had_clean_shutdown: bool) -> LogEvidence:
        """What other files say of the log, before anything is changed."""
        known = self._evidence or DirectoryEvidence(self._directory.parent)
        return replace(known.of(self._directory, self._partition), was_stopped_cleanly=had_clean_shutdown)

    # --- in a shadow

    def _arrange(self, recovery_point: int, *, had_clean_shutdown: bool) -> None:
        """Brings the files in order; notes how they are to be read where that is not plain."""
        evidence = self._known(had_clean_shutdown=had_clean_shutdown)
        if self._settings.is_beside_writer:
            self._forget_deleted()
            evidence = replace(evidence, known_end=0, known_start=None, lone_indexes=())
        checked_from = None if had_clean_shutdown and self._is_last_indexed() else recovery_point
        found = arrange(self._directory, evidence, self._filesystem, checked_from)
        if isinstance(found, Arrangement):
            self._arrangement = found
        else:
            self._open_transactions = found

    def _is_last_indexed(self) -> bool:
        """Whether the indexes of the last segment can be its own. If not it is read whole, also after a clean stop."""
        logs = find_offset_files(self._directory, LOG_SUFFIX)
        if not logs:
            return True
        segment = self._open_segment(logs[-1][0], is_sealed=True)
        try:
            return _indexed_to(segment, LONG_MAX) is not None
        finally:
            segment.close_until_used()

    def _forget_deleted(self) -> None:
        """The shadow's links to what the writer has deleted since they were made."""
        for path in self._directory.iterdir():
            if path.is_symlink() and not path.exists():
                self._filesystem.unlink(path)

    def _take_up(self, arrangement: Arrangement) -> None:
        self._damage.set_segments(arrangement.gaps)
        for segment in self._segments:
            segment.gaps = arrangement.gaps[segment.base_offset]
            for gap in segment.gaps:
                log_damage(segment, gap, self._partition)
        if arrangement.tail is not None:
            _log.warning("%s: %s tail: %s", self._partition, arrangement.tail.kind, arrangement.tail)
        if arrangement.end_position is not None:
            self._segments.active.truncate_position(arrangement.end_position)

    def _reindex_arranged(self, log_start_offset: int) -> None:
        """Everything that says where batches are is made again."""
        for segment in self._segments:
            self._recover_segment(segment, 0, log_start_offset, is_judged=True)

    # --- damage below the recovery point

    def _take_up_known_damage(self) -> None:
        """What the ledger holds, unless it is sound now: somebody mended it."""
        known = defaultdict[int, list[DamagedRange]](list)
        for gap in self._damage.gaps:
            known[gap.segment_base_offset].append(gap)
        for segment in self._segments:
            reading = segment.reading(OffsetPosition(self._end_of(segment), segment.size_bytes))
            segment.gaps = [gap for gap in known[segment.base_offset] if not _is_mended(segment, gap, reading)]
        self._damage.set_segments({segment.base_offset: segment.gaps for segment in self._segments})

    def _past_damage(self, work: Callable[[], None]) -> None:
        """Does the work, again and again where it meets damage that was not known, which is noted then."""
        reading: SegmentReading | None = None
        while True:
            try:
                work()
            except CorruptRecordError as error:
                segment = next((s for s in self._segments if str(s.records.path) == error.path), None)
                if segment is None or any(gap.position == error.position for gap in segment.gaps):
                    raise
                end = OffsetPosition(self._end_of(segment, self._log_end_offset), segment.size_bytes)
                if reading is None or reading.path != segment.records.path:
                    reading = segment.reading(end)  # which knows a damaged segment after the first look
                gap = segment.find_gap(error.position, reading)
                note_damage(self._damage, segment, gap, self._partition)
            else:
                return

    def _end_of(self, segment: LogSegment, log_end_offset: int = LONG_MAX) -> int:
        """Where the segment's offsets end at the latest."""
        following = self._segments.higher(segment.base_offset)
        return log_end_offset if following is None else following.base_offset

    def _known_end_of(self, segment: LogSegment, damaged: DamagedBytes | None) -> int:
        """Where its offsets ended for certain: where the next one begins, unless the log is cut before."""
        if damaged is None and self._segments.higher(segment.base_offset) is not None:
            return self._end_of(segment)
        return max((gap.end_offset for gap in segment.gaps), default=0)

    # --- segments and their indexes

    def _open_segments(self, check_below: int | None, log_start_offset: int) -> None:
        """Indexes are checked where recovery will not make them anew: of segments that end below `check_below`."""
        for unreadable in find_unreadable_files(self._directory, opens_all=False):
            raise unreadable.error  # its offsets may be there: nothing must be appended in their place
        logs = {offset for offset, _ in find_offset_files(self._directory, LOG_SUFFIX)}
        self._remove_lone_indexes(logs, log_start_offset)
        last = max(logs, default=-1)
        for offset in sorted(logs):
            self._segments.add(self._open_segment(offset, is_sealed=offset != last))
        if self._arrangement is None:
            self._take_up_known_damage()
        else:
            self._take_up(self._arrangement)
            return
        self._check_indexes(check_below)

    def _open_segment(self, base_offset: int, *, is_sealed: bool) -> LogSegment:
        return LogSegment(
            self._directory,
            base_offset,
            self._config,
            self._filesystem,
            self._settings.open_files,
            created_ms=self._settings.clock.monotonic_ms(),
            is_sealed=is_sealed,
        )

    def _check_indexes(self, check_below: int | None) -> None:
        """Makes the indexes again that can't be their segment's, of segments that end at or below `check_below`, or of
        all; logs which offsets are missing between two segments.
        """
        holes = list[tuple[LogSegment, int, int]]()
        for segment in self._segments:
            following = self._segments.higher(segment.base_offset)
            if check_below is None or (following is not None and following.base_offset <= check_below):
                indexed_to = _indexed_to(segment, self._end_of(segment))
                if following is None:
                    self._has_unsound_end = indexed_to is None
                elif indexed_to is None:
                    self._rebuild_indexes(segment)
                elif indexed_to < following.base_offset:
                    holes.append((segment, indexed_to, following.base_offset))
            if segment.is_sealed:
                segment.close_until_used()
        if holes and self._settings.keeps_cut_bytes:
            self._warn_of_holes(holes)

    def _warn_of_holes(self, holes: list[tuple[LogSegment, int, int]]) -> None:
        """Logs each of the holes [start, end) after a segment that nothing explains; readers are told of it. That a
        cleaner took them needs no proof where one may be at work; elsewhere its traces are looked for, in the headers
        of all batches.
        """
        known, given_up = self._known(had_clean_shutdown=True), read_lost_offsets(self._directory)
        if self._config.is_compacted:
            compacted_below = LONG_MAX
        elif all(end <= known.cleaned_below for _, _, end in holes):
            compacted_below = known.cleaned_below
        else:
            compacted_below = self._compacted_below(known)
        for segment, start, end in holes:
            path = segment.records.path
            hole = explain_hole(start, end, known, given_up, path, 0, compacted_below=compacted_below)
            if hole.reason in (HoleReason.MISSING, HoleReason.UNKNOWN):
                _log.error("%s: %s", self._partition, hole.absence_text)
                self._unexplained.append((start, end))

    def _compacted_below(self, known: LogEvidence) -> int:
        """The offset up to which a cleaner was at work, by its checkpoint or by the headers of all batches."""
        is_thinned = shows_compaction(segment.records for segment in self._segments)
        return max(known.cleaned_below, self._segments.active.base_offset if is_thinned else 0)

    def _remove_lone_indexes(self, logs: set[int], log_start_offset: int) -> None:
        """Removes the indexes that have no log, but for those that prove to all who read the log that a segment is
        missing from its middle. One that proves a segment after the log's end is set aside.
        """
        lone, last_base_offset = find_lone_indexes(self._directory, logs), max(logs, default=-1)
        traces = find_traces(self._directory, {offset for offset, _ in lone}, logs)
        lost = {offset for offset in traces if self._is_lost(offset, last_base_offset)}
        for offset in sorted(lost) if self._settings.keeps_cut_bytes else ():
            _log.error("%s: segment %d is missing, an index of it is here", self._partition, offset)
        for offset, path in lone:
            if offset > last_base_offset and offset in lost and offset >= log_start_offset:
                self._cutter.take_index_away(path)
            elif (
                self._settings.is_read_only or offset not in traces or not log_start_offset <= offset < last_base_offset
            ):
                self._filesystem.unlink(path)

    def _is_lost(self, base_offset: int, last_base_offset: int) -> bool:
        """Whether the segment of a lone index was there: not a new one that a crash kept from being made, as its log
        comes last.
        """
        return base_offset < last_base_offset or indexed_end(self._directory, base_offset) > base_offset

    def _new_segment(self, base_offset: int) -> LogSegment:
        return LogSegment(
            self._directory,
            base_offset,
            self._config,
            self._filesystem,
            self._settings.open_files,
            created_ms=self._settings.clock.monotonic_ms(),
            is_new=True,
        )

    def _rebuild_indexes(self, segment: LogSegment) -> None:
        _log.info("%s: rebuilding the indexes of segment %d", self._partition, segment.base_offset)
        self._recover_segment(segment, self._end_of(segment))

    def _has_leader_epochs(self) -> bool:
        """Whether the log's batches carry epochs; those of magic 0 and 1 know none."""
        for segment in self._segments:
            if segment.size_bytes:
                try:
                    return segment.records.read_header(0).partition_leader_epoch >= 0
                except CorruptRecordError:
                    continue
        return False

    def _rebuild_leader_epochs(self) -> None:
        _log.info("%s: rebuilding the leader epochs from the log", self._partition)
        self._leader_epochs.clear()
        runs: list[EpochEntry] = []
        counts: list[int] = []
        for segment in self._segments:
            for batch in segment.batches(0):
                epoch = batch.partition_leader_epoch
                if epoch >= 0 and (not runs or runs[-1].epoch != epoch):
                    runs.append(EpochEntry(epoch, batch.base_offset))
                    counts.append(0)
                if epoch >= 0:
                    counts[-1] += 1
        weighed = [(run.epoch, count) for run, count in zip(runs, counts, strict=True)]
        for number in rising_epochs(weighed):  # without those that a flipped bit raised
            self._leader_epochs.assign(*runs[number])

    def _note_leader_epoch(self, batch: Batch) -> None:
        if batch.partition_leader_epoch > self._leader_epochs.latest_epoch:
            self._leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)

    # --- after an unclean stop

    def _recover(self, known: LogEvidence, log_start_offset: int, recovery_point: int) -> None:
        unflushed = self._segments.from_offset(recovery_point) if len(self._segments) else []
        for number, segment in enumerate(unflushed):
            damaged = self._recover_segment(segment, recovery_point, log_start_offset)
            later = unflushed[number + 1 :]
            if damaged is None and later:
                damaged = self._find_hole(known, segment, later[0], recovery_point)
            if damaged is not None:
                self._cutter.cut(known, segment, damaged)
                self._was_cut = True
                return

    def _find_hole(
        self, known: LogEvidence, segment: LogSegment, following: LogSegment, recovery_point: int
    ) -> DamagedBytes | None:
        """What a power cut took between two segments, if nothing else explains it. Topics that were compacted once keep
        their holes; messages of magic 0 and 1, which do not show that, come from before any stop of plog's.
        """
        start, end = segment.next_offset(), following.base_offset
        if self._config.is_compacted or not recovery_point <= start < end:
            return None
        later = next((s for s in self._segments.from_offset(end) if s.size_bytes), None)
        with contextlib.suppress(CorruptRecordError):
            if later is not None and later.records.read_header(0).magic < CURRENT_MAGIC:
                return None
        known = replace(known, lone_indexes=())  # where the cleaner was, no power cut is to blame
        compacted_below = self._compacted_below(known)
        path, position = segment.records.path, segment.size_bytes
        given_up = read_lost_offsets(self._directory)
        hole = explain_hole(start, end, known, given_up, path, position, compacted_below=compacted_below)
        if hole.reason in (HoleReason.COMPACTED, HoleReason.TRUNCATED):
            return None
        where = DamagedRange(start, end, segment.base_offset, position, position)
        return DamagedBytes(where, "the segment that followed is missing", None)

    def _recover_segment(
        self, segment: LogSegment, recovery_point: int, log_start_offset: int = 0, *, is_judged: bool = False
    ) -> DamagedBytes | None:
        """Checks the segment and makes its three indexes, the transaction index with what came before in mind. With
        `is_judged` its gaps are known, and nothing is checked.
        """
        producers = self._producers
        if producers.map_end_offset != segment.base_offset:
            self._rebuild_producer_state(log_start_offset, segment.base_offset)
        known = _read_aborted(segment)

        def end_aborted_before(offset: int) -> None:
            """Of transactions whose abort marker is damaged nothing tells but the entry that was there."""
            while known and known[0].last_offset < offset:
                entry = known.pop(0)
                if producers.abort_damaged(entry):
                    segment.transaction_index.append(entry)

        def on_batch(batch: RecordBatch) -> None:
            end_aborted_before(batch.base_offset)
            entry = known.pop(0) if known and known[0].last_offset == batch.last_offset else None
            self._note_leader_epoch(batch)
            completed = producers.update(batch, segment.base_offset, batch.position)
            if completed is not None and completed.is_aborted:
                if entry is not None and self._has_two(completed, entry):
                    completed = completed._replace(first_offset=entry.first_offset)
                stable = producers.last_stable_offset(completed)
                segment.transaction_index.append(
                    AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
                )

        damaged = None
        if is_judged:
            segment.reindex(on_batch)
        else:
            damaged = segment.recover(recovery_point, self._end_of(segment, self._most_end_offset), on_batch)
        end_aborted_before(self._known_end_of(segment, damaged))
        if not is_judged:
            self._damage.set_segments({segment.base_offset: segment.gaps})
            for gap in segment.gaps:
                log_damage(segment, gap, self._partition)
        segment.offset_index.flush()  # before they are released: without an entry they would be read from the old files
        segment.time_index.flush()
        if segment is self._segments.active or damaged is not None:
            segment.unseal()
        else:
            segment.on_become_inactive()
        return damaged

    def _has_two(self, aborted: CompletedTransaction, entry: AbortedTransaction) -> bool:
        """Whether what looks like one transaction is two, of which only the second was aborted, as its entry in the
        index has it: the marker that ended the first is damaged, and a batch of the producer begins where the entry
        says, or a cleaner took what did.
        """
        first_offset = entry.first_offset
        if entry.producer_id != aborted.producer_id or first_offset <= aborted.first_offset:
            return False
        gaps = [gap for segment in self._segments for gap in segment.gaps]
        segment = self._segments.floor(first_offset)
        if segment is None or not any(
            aborted.first_offset < gap.end_offset and gap.start_offset < first_offset for gap in gaps
        ):
            return False
        try:
            found = next((batch for batch in segment.batches(0) if batch.last_offset >= first_offset), None)
        except CorruptRecordError:
            return False
        if found is None or found.base_offset > first_offset:
            return True
        is_its_own = isinstance(found, RecordBatch) and found.producer_id == entry.producer_id
        return is_its_own and found.base_offset == first_offset and found.is_transactional


def _read_aborted(segment: LogSegment) -> list[AbortedTransaction]:
    """What the segment's transaction index says; nothing if it can't be read."""
    try:
        return list(segment.transaction_index.entries())
    except (CorruptRecordError, OSError):
        return []


def _is_mended(segment: LogSegment, gap: DamagedRange, reading: SegmentReading) -> bool:
    """Whether batches that may stand there fill the gap now. A sound one alone does not tell: a flipped bit of its base
    offset is in no checksum.
    """
    try:
        batch = segment.records.read_batch(gap.position)
        batch.ensure_valid()
    except CorruptRecordError:
        return gap.position >= segment.size_bytes
    if not gap.start_offset <= batch.last_offset < gap.end_offset:
        return False
    for item in reading.items(gap.position, gap.start_offset):
        if isinstance(item, DamagedBytes):
            return item.range.position >= gap.end_position
        if item.position + item.size_bytes >= gap.end_position:
            break
    return True


def _indexed_to(segment: LogSegment, end_offset: int) -> int | None:
    """Where the segment's offsets end, if its index files are there and can be its own: by their form, by what the last
    entry points at, and if nothing after it has offsets from `end_offset` on, which are the next segment's. None if
    not; `end_offset` if that is LONG_MAX.
    """
    try:
        if not segment.offset_index.path.exists() or (segment.size_bytes and not segment.time_index.path.exists()):
            return None
        segment.offset_index.sanity_check()
        segment.time_index.sanity_check()
        segment.transaction_index.sanity_check()
        last = segment.offset_index.last_entry()
        if last.position < 0:  # a flipped bit
            return None
        if len(segment.offset_index) and segment.records.read_header(last.position).last_offset > last.offset:
            return None
        next_offset = end_offset if end_offset == LONG_MAX else segment.next_offset()
        if end_offset == LONG_MAX and len(segment.offset_index) and last.offset >= segment.next_offset():
            return None
    except CorruptRecordError:
        return None
    return next_offset if next_offset <= end_offset else None
