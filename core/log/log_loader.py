"""Opens a partition's folder: finishes what a crash left half done, checks what may be torn, rebuilds what is missing.

1. leftovers: `.deleted` and `.cleaned` files go; complete `.swap` segments take the place of those they replace
2. indexes: one without its log stays as long as it proves that a segment is missing, or is moved aside if the log ends
   before that segment; one that is not there, or can't be its segment's, is made again: the latter when it is first
   used, if that is wanted (`LazyIndexCheck`)
3. after an unclean stop: every segment from the recovery point on is read whole; the first bad batch above it ends the
   log, what follows it is set aside (`LogTruncation`); a bad batch below it is a gap (`damaged_ranges`), and stays
4. producers: the newest good snapshot, and the log read on from there

Leader epochs are made to fit the log: again, by its batches, if the file lacks them. `LogTruncation` cuts a log at the
bytes from which it can't be read on, or all of it if it can't begin there; every byte that goes is kept beside the log,
under the names of `core/forensics/cut_off_tails.py`.

`FolderListing` shows at one look which files of segments are in a folder, without opening any of them. A folder may
hold thousands of segments: the loader asks the listing instead of the disk, while nothing changes.

Source: org.apache.kafka.storage.internals.log.LogLoader.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from operator import attrgetter
from pathlib import Path

from core.common.clock import Clock
from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, copy_bytes
from core.common.java_limits import LONG_MAX
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import EpochEntry, rising_epochs
from core.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_unreadable_files,
    is_file,
    offset_file_name,
)
from core.files.interrupted_deletion import finish_deletions
from core.files.log_config import LogConfig
from core.forensics.cut_off_tails import cut_off_path, lost_end_path
from core.forensics.damage import DamagedRange
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import (
    KnownOffsetsOfDirectory,
    find_orphan_indexes,
    find_traces,
    indexed_end,
)
from core.forensics.log_scanner import compacted_below
from core.forensics.missing_offsets import EXPECTED, Tail, TailKind, explain_holes, offsets_text, tail_kind
from core.forensics.segment_scanner import DamagedBytes
from core.forensics.shadow_layout import OpenTransactions, ShadowLayout, arrange
from core.index.offset_index import OffsetPosition
from core.log.damaged_ranges import log_damage
from core.log.log_segment import ListedSegment, LogSegment
from core.log.open_files import OpenFiles
from core.log.partition_log import LogEvents, PartitionLog
from core.log.segment_recovery import (
    LazyIndexCheck,
    LogParts,
    SegmentHole,
    SegmentRecovery,
    check_indexes,
    find_indexed_end,
    warn_of_holes,
)
from core.log.segment_swap import finish_swaps
from core.records.batches import CURRENT_MAGIC
from core.records.record_batch import RecordBatch

_DIGITS = 20
_LEFT_OVER = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


class FolderListing:
    """As the folder was when this was made; immutable. Raises OSError if it can't be read."""

    def __init__(self, directory: Path) -> None:
        found = defaultdict[str, dict[int, os.DirEntry[str]]](dict)
        self.has_leftovers = False
        """Whether the folder has a file that an unfinished deletion or swap of segments leaves."""
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                offset = name[:_DIGITS]
                if len(offset) == _DIGITS and offset.isdecimal() and offset.isascii():
                    found[name[_DIGITS:]][int(offset)] = entry
                if name.endswith(_LEFT_OVER):
                    self.has_leftovers = True
        self._found: Mapping[str, Mapping[int, os.DirEntry[str]]] = found

    def _named(self, suffix: str) -> Mapping[int, os.DirEntry[str]]:
        return self._found.get(suffix, {})

    @property
    def has_lone_indexes(self) -> bool:
        """Says whether any name is an index of a segment that has no log."""
        logs = self._named(LOG_SUFFIX).keys()
        return any(not self._named(suffix).keys() <= logs for suffix in INDEX_SUFFIXES)

    @property
    def has_unreadable_logs(self) -> bool:
        """Whether anything is called a log and is no regular file, nor a link to one."""
        return not all(map(is_file, self._named(LOG_SUFFIX).values()))

    def log_sizes(self) -> dict[int, int]:
        """Returns the bytes of each log, by its base offset, in order. Raises the disk's OSError."""
        logs = self._named(LOG_SUFFIX)
        return {offset: logs[offset].stat().st_size for offset in sorted(logs) if is_file(logs[offset])}

    def without_indexes(self, sizes: Mapping[int, int]) -> set[int]:
        """Returns the segments that lack an index which they should have; `sizes` are `log_sizes`."""
        indexes, time_indexes = self._files(INDEX_SUFFIX), self._files(TIME_INDEX_SUFFIX)
        return {o for o, size in sizes.items() if o not in indexes or (size and o not in time_indexes)}

    def with_transaction_index(self) -> set[int]:
        """Returns the base offsets of transaction indexes, or of anything with such a name."""
        return set(self._named(TRANSACTION_INDEX_SUFFIX))

    def snapshots(self) -> list[tuple[int, Path]]:
        """Returns the snapshots of producers, in order of their offsets."""
        named = self._named(SNAPSHOT_SUFFIX)
        return [(offset, Path(named[offset].path)) for offset in sorted(self._files(SNAPSHOT_SUFFIX))]

    def _files(self, suffix: str) -> set[int]:
        return {offset for offset, entry in self._named(suffix).items() if is_file(entry)}


class LogTruncation:
    """Cuts bytes off a log's segments, and keeps them beside it; owned by one task.

    Does not keep them if the files belong to another program, which still has them whole (`keeps_cut_bytes`).
    """

    def __init__(self, parts: LogParts, settings: LogSettings) -> None:
        self._directory = parts.directory
        self._partition = parts.partition
        self._segments = parts.segments
        self._filesystem = parts.filesystem
        self._keeps_bytes = settings.keeps_cut_bytes
        self._cuts_sound_records = settings.cuts_sound_records

    def cut(self, known: KnownOffsets, segment: LogSegment, damaged: DamagedBytes) -> bool:
        """Ends the log at the damaged bytes of that segment: later segments are removed, and the orphan indexes after
        it. Returns whether that may cost records: not if there were none, in a file of its full size.

        Raises CorruptRecordError, and cuts nothing, if there are sound records after them and those may not be cut.
        """
        position = damaged.range.position
        later = [one for one in self._segments if one.base_offset > segment.base_offset]
        lost = _count_sound_records(segment, position) + sum(_count_sound_records(one, 0) for one in later)
        if lost and not self._cuts_sound_records:
            cause = f"{damaged.cause}, and {lost} sound record{'s' * (lost > 1)} after it"
            raise CorruptRecordError(cause, position=position, path=str(segment.records.path))
        cut_bytes = segment.size_bytes - position + sum(one.size_bytes for one in later)
        kind = None if later else _tail_kind(known, segment, damaged)
        keeps_bytes = self._keeps_bytes and kind is not TailKind.PREALLOCATED
        if keeps_bytes and position < segment.size_bytes:
            beside = self._copy_beside(segment, position, segment.size_bytes)
            self._filesystem.rename(beside, cut_off_path(segment.records.path, position, same_as=beside))
            self._filesystem.sync_directory(self._directory)  # before the log loses them: a power cut may take the name
        what = _describe(segment, damaged, kind)
        if segment.records.path.lstat().st_nlink > 1:
            self._detach(segment, position)
        segment.truncate_position(position)
        self._remove(later)
        for offset, path in find_orphan_indexes(self._directory, {one.base_offset for one in self._segments}):
            if offset > segment.base_offset:
                self.take_index_away(path)
        self._filesystem.sync_directory(self._directory)
        _log.log(
            logging.INFO if kind is TailKind.PREALLOCATED else logging.WARNING,
            "%s: %s; the log ends there now, at offset %d; the %d bytes after it, %d sound records among them, are %s",
            self._partition,
            what,
            segment.next_offset(),
            cut_bytes,
            lost,
            f"kept aside in *.cut-at-* in {self._directory}" if keeps_bytes else "passed over",
        )
        return kind is not TailKind.PREALLOCATED

    def remove_all(self, log_start_offset: int) -> None:
        """Removes all segments of a log that ends below where it should begin, so that it begins again, empty, there.
        Its files were lost, or its start is wrong, which no checksum covers.
        """
        _log.warning(
            "%s: the log ends below its start offset %d; it goes on from there, empty; %s",
            self._partition,
            log_start_offset,
            f"what was there is kept aside in *.cut-at-0 in {self._directory}"
            if self._keeps_bytes
            else "what was there is left out",
        )
        self._remove(list(self._segments))
        self._filesystem.sync_directory(self._directory)

    def take_index_away(self, path: Path) -> None:
        """Removes an index whose segment would come after the log's end. New records get the segment's offsets, and
        only the index shows that it existed, so it is kept aside.
        """
        if self._keeps_bytes:
            self._filesystem.rename(path, cut_off_path(path, 0))
        else:
            self._filesystem.unlink(path)

    def note_lost_end(self, log_end: int, known_end: int) -> None:
        """Keeps a proof that the log reached up to `known_end`: the snapshot there, or an empty file in its name."""
        snapshot = self._directory / offset_file_name(known_end, SNAPSHOT_SUFFIX)
        proof = lost_end_path(snapshot, log_end)
        if proof.exists():
            return  # an earlier start was killed after this step
        if snapshot.exists():
            self._filesystem.rename(snapshot, proof)
        else:
            self._filesystem.write_atomic(proof, b"")
        self._filesystem.sync_directory(self._directory)

    def _remove(self, segments: Sequence[LogSegment]) -> None:
        """Takes segments out of the log; a `.log` is kept unless it is empty. The indexes go first: without their logs
        they would be the traces of segments that are lost.
        """
        for segment in segments:
            for index in segment.paths[1:]:
                self._filesystem.unlink(index)
        self._filesystem.sync_directory(self._directory)
        for segment in segments:
            self._segments.remove(segment)
            segment.on_removed()
            is_empty = segment.size_bytes == 0
            segment.records.close()
            path = segment.records.path
            if self._keeps_bytes and not is_empty:
                self._filesystem.rename(path, cut_off_path(path, 0))
            self._filesystem.unlink(path)

    def _detach(self, segment: LogSegment, end: int) -> None:
        """Copies a hard-linked file, up to that position, so that a cut leaves the file of the other name whole."""
        self._filesystem.rename(self._copy_beside(segment, 0, end), segment.records.path)
        segment.records.close()

    def _copy_beside(self, segment: LogSegment, start: int, end: int) -> Path:
        """Copies bytes [start, end) of the segment's log to a file beside it, and syncs that."""
        beside = segment.records.path.with_name(f"{segment.records.path.name}.tmp")
        self._filesystem.unlink(beside)
        with contextlib.closing(self._filesystem.open_append(beside)) as target:
            copy_bytes(segment.records.file, start, end, target, 0)
            target.sync()
        return beside


def _tail_kind(known: KnownOffsets, segment: LogSegment, damaged: DamagedBytes) -> TailKind | None:
    """Returns the kind of damage that reaches the end of the last segment, or None if sound bytes follow it."""
    if damaged.damage is None or damaged.range.end_position < segment.size_bytes:
        return None
    return tail_kind(damaged.damage, known, damaged.range.start_offset, segment.base_offset)


def _describe(segment: LogSegment, damaged: DamagedBytes, kind: TailKind | None) -> str:
    """Says whether it is a tail that a crash left, or one that is wrong, or damage with more of the log after it."""
    if damaged.damage is None or kind is None:
        return f"damage: {segment.records.path} position {damaged.range.position}: {damaged.cause}"
    return f"{kind} tail: {Tail(kind, segment.records.path, damaged.damage)}"


def _count_sound_records(segment: LogSegment, position: int) -> int:
    batches = segment.reading(OffsetPosition(LONG_MAX, segment.size_bytes)).items()
    return sum(one.count for one in batches if isinstance(one, RecordBatch) and one.position >= position)


_log = logging.getLogger("plog.log")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings that every log of a directory is opened with."""

    clock: Clock
    filesystem: FileSystem
    producer_id_expiration_ms: Callable[[], int] = lambda: 86_400_000
    open_files: OpenFiles = field(default_factory=OpenFiles)
    events: LogEvents = field(default_factory=LogEvents)
    is_read_only: bool = False
    """Whether the logs lie in a shadow, to be served as the one reader reads them (core.forensics.shadow_layout)."""
    is_beside_writer: bool = False
    """Whether somebody writes to the logs that the shadow was made of: checkpoints and indexes may then be newer."""
    keeps_cut_bytes: bool = True
    """Whether bytes cut from a log's end are copied aside: not if the log's files are another's, and stay whole."""
    cuts_sound_records: bool = True
    """Whether a log ends at damage with sound records after it. If each append is synced before the next, no crash
    leaves that, and opening it raises CorruptRecordError unless this is set.
    """
    checks_late: bool = False
    """Whether the indexes of sealed segments are checked against their logs when they are used, not at once."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """`was_cut`: records were dropped, so that the leader epoch must rise. In a shadow, `is_odd`: the log is not as it
    should be; and `has_wrong_tail`: bytes after its end that no crash explains are passed over. `has_wrong_start`: the
    log does not begin where its checkpoint says, which can't be. `unexplained` are offsets [start, end) that are
    missing for no known reason; in a log that we own, those between its segments. None if nobody looked for them,
    because a shadow did not have to be arranged, or if an owner found none.
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
    evidence: KnownOffsetsOfDirectory | None = None,
) -> LoadedLog:
    """Opens the log in `directory`, which exists, and makes it ready for appends.

    The offsets are those of the directory's checkpoints. Without a recovery point, for a folder that came without a
    checkpoint, only a torn batch at the log's very end is cut. Raises OSError if the disk refuses.
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
        evidence: KnownOffsetsOfDirectory | None,
    ) -> None:
        self._evidence = evidence
        self._arrangement: ShadowLayout | None = None
        self._open_transactions: OpenTransactions = {}
        self._directory = directory
        self._partition = partition
        self._config = config
        self._settings = settings
        self._filesystem = settings.filesystem
        self._parts = parts = LogParts(
            directory, partition, settings.clock, settings.filesystem, settings.producer_id_expiration_ms
        )
        self._segments, self._producers = parts.segments, parts.producers
        self._leader_epochs, self._damage = parts.leader_epochs, parts.damage
        self._cutter = LogTruncation(parts, settings)
        self._recovery = SegmentRecovery(parts, parts.producers, on_batch=parts.leader_epochs.note)
        self._recovery.log_end_offset = 0
        self._late_check = LazyIndexCheck(parts)
        self._opened_ms = settings.clock.monotonic_ms()
        self._reached = 0
        self._was_cut = False
        self._has_unsound_end = False
        self._has_wrong_start = False
        self._unexplained: list[tuple[int, int]] = []

    def load(
        self, log_start_offset: int, known_point: int | None, high_watermark: int, *, had_clean_shutdown: bool
    ) -> LoadedLog:
        listing = FolderListing(self._directory)
        if listing.has_leftovers:
            finish_deletions(self._directory, self._leader_epochs, self._filesystem)
            finish_swaps(self._directory, self._filesystem)
            listing = FolderListing(self._directory)
        recovery_point = known_point or 0
        if had_clean_shutdown:
            # a clean stop took the newest snapshot at the log's end
            recovery_point = max([recovery_point, *(offset for offset, _ in listing.snapshots())])
            if log_start_offset > min([recovery_point, *(entry.start_offset for entry in self._leader_epochs.entries)]):
                log_start_offset = self._believed_start(log_start_offset)
        self._recovery.log_end_offset = self._reached = recovery_point
        if known_point is None:
            known = self._known(had_clean_shutdown=had_clean_shutdown)
            self._reached = max(known.known_end, known.cleaned_below)
        if self._settings.is_read_only:
            self._arrange(listing, recovery_point, had_clean_shutdown=had_clean_shutdown)
            listing = FolderListing(self._directory)
        self._producers.listed_snapshots = listing.snapshots()
        is_all_checked = had_clean_shutdown or known_point is None  # else recovery reads the batches above
        self._open_segments(listing, None if is_all_checked else recovery_point, log_start_offset)
        if self._arrangement is not None:
            self._reindex_arranged(log_start_offset)
        elif (
            had_clean_shutdown and not self._has_unsound_end and self._is_end_sound(max(recovery_point, self._reached))
        ):
            recovery_point = max(recovery_point, self._end_offset())
        else:
            known = self._known(had_clean_shutdown=had_clean_shutdown)
            self._recover(known, log_start_offset, LONG_MAX if known_point is None else recovery_point)
        if not len(self._segments):
            self._segments.add(self._segment(log_start_offset, is_new=True))
        end_offset = self._recovery.log_end_offset = self._end_offset()
        self._damage.keep_segments({segment.base_offset for segment in self._segments}, end_offset)
        log_start_offset = max(log_start_offset, self._segments.first.base_offset)
        known_end = recovery_point
        if had_clean_shutdown and high_watermark > max(recovery_point, end_offset):
            known_end = self._known(had_clean_shutdown=True).known_end
        if end_offset < known_end and not self._settings.is_read_only:
            self._report_short_log(end_offset, known_end)
        if end_offset < log_start_offset:
            self._cutter.remove_all(log_start_offset)
            self._segments.add(self._segment(log_start_offset, is_new=True))
            end_offset = log_start_offset
        self._recover_epochs(log_start_offset, end_offset)
        self._producers.remove_stray_snapshots({s.base_offset for s in self._segments}, end_offset)
        self._recovery.rebuild_producer_state(log_start_offset, end_offset)
        self._producers.listed_snapshots = None
        self._recovery.past_damage(self._segments.active.find_newest_timestamp)  # appends go on from it
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
            self._parts,
            self._config,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=recovery_point,
            open_files=self._settings.open_files,
            events=self._settings.events,
            late_check=self._late_check if self._settings.checks_late else None,
        )

    def _believed_start(self, log_start_offset: int) -> int:
        """Returns where a cleanly stopped log begins: at the checkpoint's offset, unless other files show that this is
        wrong. No record is dropped for a number that no checksum covers.
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

    def _report_short_log(self, end_offset: int, known_end: int) -> None:
        """Logs the loss, and keeps a proof of it beside the log, as new records get these offsets. No crash explains
        it: all that a snapshot or the recovery point knows of was flushed before.
        """
        offsets = offsets_text(end_offset, known_end)
        _log.error(
            "%s: the log ends at offset %d; %s were in it before and are lost", self._partition, end_offset, offsets
        )
        if self._settings.keeps_cut_bytes:
            self._cutter.note_lost_end(end_offset, known_end)

    def _is_end_sound(self, known_end: int) -> bool:
        """Says whether the log can be read to its end, past known damage, and nothing contradicts the offsets on the
        way: no checksum covers them. A clean stop left its end at `known_end`, if that is not 0; if one flipped bit has
        moved the last batch beyond, nothing is believed beyond.
        """
        known_end = max(known_end, self._reached)
        try:
            if not len(self._segments):
                return True
            is_moved = self._segments.active.is_end_moved(known_end)
        except CorruptRecordError:
            return False
        if is_moved:
            self._recovery.believed_end = known_end
        return not is_moved

    def _known(self, *, had_clean_shutdown: bool) -> KnownOffsets:
        """Returns the offsets that other files state of the log, before any change."""
        known = self._evidence or KnownOffsetsOfDirectory(self._directory.parent)
        return replace(known.of(self._directory, self._partition), was_stopped_cleanly=had_clean_shutdown)

    # --- in a shadow

    def _arrange(self, listing: FolderListing, recovery_point: int, *, had_clean_shutdown: bool) -> None:
        """Puts the files in order; notes the arrangement if they can't be read plainly."""
        evidence = self._known(had_clean_shutdown=had_clean_shutdown)
        if self._settings.is_beside_writer:
            self._forget_deleted()
            evidence = replace(evidence, known_end=0, known_start=None, lone_indexes=())
        checked_from = None if had_clean_shutdown and self._is_last_indexed(listing) else recovery_point
        found = arrange(self._directory, evidence, self._filesystem, checked_from)
        if isinstance(found, ShadowLayout):
            self._arrangement = found
        else:
            self._open_transactions = found

    def _is_last_indexed(self, listing: FolderListing) -> bool:
        """Says whether the last segment's indexes can be its own. If not it is read whole, also after a clean stop."""
        logs = listing.log_sizes()
        if not logs:
            return True
        segment = self._segment(max(logs), is_sealed=True)
        try:
            return find_indexed_end(segment, LONG_MAX) is not None
        finally:
            segment.close_until_used()

    def _forget_deleted(self) -> None:
        """Drops the shadow's links to files that the writer has deleted since the links were made."""
        for path in self._directory.iterdir():
            if path.is_symlink() and not path.exists():
                self._filesystem.unlink(path)

    def _take_up(self, arrangement: ShadowLayout) -> None:
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
        """Rebuilds the indexes of every segment."""
        for segment in self._segments:
            self._recovery.recover(segment, 0, log_start_offset, is_judged=True)

    # --- segments and their indexes

    def _open_segments(self, listing: FolderListing, check_below: int | None, log_start_offset: int) -> None:
        """Opens the segments, and checks the indexes that recovery will not rebuild: of segments that end at or below
        `check_below`, or of all; late, if that will do.
        """
        for error in find_unreadable_files(self._directory, opens_all=False) if listing.has_unreadable_logs else ():
            raise error  # its offsets may be there: nothing must be appended in their place
        sizes = listing.log_sizes()
        if listing.has_lone_indexes:
            self._remove_lone_indexes(set(sizes), log_start_offset)
        is_late = self._settings.checks_late and self._arrangement is None
        not_late = listing.without_indexes(sizes) if is_late else set()
        aborted = listing.with_transaction_index()
        for (offset, size), end_offset in zip(sizes.items(), [*sizes, LONG_MAX][1:], strict=True):
            may_be_late = end_offset <= (LONG_MAX - 1 if check_below is None else check_below)
            listed = None
            if is_late and may_be_late and offset not in not_late:
                listed = ListedSegment(
                    size, end_offset, offset in aborted, self._late_check.check, self._late_check.lock
                )
            self._segments.add(self._segment(offset, is_sealed=end_offset != LONG_MAX, listed=listed))
        if self._arrangement is None:
            self._recovery.take_up_known_damage()
            self._check_indexes(check_below)
        else:
            self._take_up(self._arrangement)

    def _segment(
        self, base_offset: int, *, is_sealed: bool = False, is_new: bool = False, listed: ListedSegment | None = None
    ) -> LogSegment:
        segment = LogSegment(
            self._directory,
            base_offset,
            self._config,
            self._filesystem,
            self._settings.open_files,
            created_ms=self._opened_ms,
            is_sealed=is_sealed,
            is_new=is_new,
            listed=listed,
        )
        segment.reached = self._reached
        return segment

    def _check_indexes(self, check_below: int | None) -> None:
        """Rebuilds the indexes that can't be their segment's, of segments that end at or below `check_below`, or of
        all, except segments that are checked late; logs which offsets are missing between two segments.
        """
        holes = list[SegmentHole]()
        for segment in self._segments:
            if segment.is_unchecked:
                continue
            following = self._segments.higher(segment.base_offset)
            if check_below is None or (following is not None and following.base_offset <= check_below):
                if following is None:
                    self._has_unsound_end = find_indexed_end(segment, LONG_MAX) is None
                    continue
                hole = check_indexes(
                    self._parts,
                    segment,
                    following.base_offset,
                    self._recovery.recover,
                    keeps_proof=self._settings.keeps_cut_bytes,
                )
                if hole is not None:
                    holes.append(hole)
            if segment.is_sealed:
                segment.close_until_used()
        if holes and self._settings.keeps_cut_bytes:
            known = self._known(had_clean_shutdown=True)
            self._unexplained += warn_of_holes(self._parts, self._config, known, holes)

    def _remove_lone_indexes(self, logs: set[int], log_start_offset: int) -> None:
        """Removes the indexes that have no log, except those that prove to every reader that a segment is missing from
        the middle of the log. One that proves a segment after the log's end is set aside.
        """
        lone, last_base_offset = find_orphan_indexes(self._directory, logs), max(logs, default=-1)
        traces = find_traces(self._directory, {offset for offset, _ in lone}, logs)
        middle = range(log_start_offset, last_base_offset)
        lost = {offset for offset in traces if self._is_lost(offset, last_base_offset)}
        for offset in sorted(lost) if self._settings.keeps_cut_bytes else ():
            _log.error("%s: segment %d is missing, an index of it is here", self._partition, offset)
        for offset, path in lone:
            if offset > last_base_offset and offset in lost and offset >= log_start_offset:
                self._cutter.take_index_away(path)
            elif self._settings.is_read_only or offset not in traces or offset not in middle:
                self._filesystem.unlink(path)

    def _is_lost(self, base_offset: int, last_base_offset: int) -> bool:
        """Says whether the segment of a lone index was there: not a new one that a crash kept from being made, as its
        log comes last.
        """
        return base_offset < last_base_offset or indexed_end(self._directory, base_offset) > base_offset

    # --- after an unclean stop

    def _recover(self, known: KnownOffsets, log_start_offset: int, recovery_point: int) -> None:
        if len(self._segments):
            self._segments.active.reached = max(known.known_end, known.cleaned_below)
        unflushed = self._segments.from_offset(recovery_point) if len(self._segments) else []
        for number, segment in enumerate(unflushed):
            damaged = self._recovery.recover(segment, recovery_point, log_start_offset)
            later = unflushed[number + 1 :]
            if damaged is None and later and not self._settings.is_read_only:
                damaged = self._find_hole(known, segment, later[0], recovery_point)
            if damaged is not None:
                self._was_cut = self._cutter.cut(known, segment, damaged)
                return

    def _find_hole(
        self, known: KnownOffsets, segment: LogSegment, following: LogSegment, recovery_point: int
    ) -> DamagedBytes | None:
        """Finds the offsets that a power cut took between two segments, if nothing else explains them. Topics once
        compacted keep their holes; messages of magic 0 and 1, which do not show that, precede any stop of plog's.
        """
        start, end = segment.next_offset(), following.base_offset
        if self._config.is_compacted or not recovery_point <= start < end:
            return None
        later = next((s for s in self._segments.from_offset(end) if s.size_bytes), None)
        with contextlib.suppress(CorruptRecordError):
            if later is not None and later.records.read_header(0).magic < CURRENT_MAGIC:
                return None
        known = replace(known, lone_indexes=())  # where the cleaner was, no power cut is to blame
        compacted = compacted_below(known, self._segments)
        path, position = segment.records.path, segment.size_bytes
        holes = explain_holes(start, end, known, path, position, compacted_below=compacted)
        if all(hole.reason in EXPECTED for hole in holes):
            return None
        where = DamagedRange(start, end, segment.base_offset, position, position)
        return DamagedBytes(where, "the segment that followed is missing", None)

    # --- leader epochs

    def _recover_epochs(self, start_offset: int, end_offset: int) -> None:
        """Makes the leader epochs fit a log of those offsets, which has a segment."""
        epochs = self._leader_epochs
        lacks_first = epochs.was_missing or (epochs.entries and epochs.entries[0].start_offset > start_offset)
        if epochs.was_damaged or (lacks_first and self._has_epochs()):
            self._recovery.past_damage(self._rebuild_epochs)
        epochs.truncate_from_end(end_offset + 1)  # an epoch that begins at the end has no record yet
        self._raise_first_epoch(start_offset)

    def _has_epochs(self) -> bool:
        """Says whether the log's batches carry epochs; those of magic 0 and 1 have none."""
        for segment in self._segments:
            if segment.size_bytes:
                try:
                    return segment.records.read_header(0).partition_leader_epoch >= 0
                except CorruptRecordError:
                    continue
        return False

    def _rebuild_epochs(self) -> None:
        """Makes the entries before those that the file has. If it has any, a crash has taken back a deletion of
        records, but not that of their epochs: the log begins where it did before, and only they show where it diverges
        from another replica.
        """
        epochs = self._leader_epochs
        entries = [] if epochs.was_damaged or epochs.was_missing else epochs.entries
        runs = self._read_epochs(entries[0].start_offset if entries else LONG_MAX)
        if not entries:
            _log.info("%s: rebuilding the leader epochs from the log", self._partition)
        elif runs:
            _log.info("%s: rebuilding the leader epochs below %d", self._partition, entries[0].start_offset)
            runs = [run for run in runs if run.epoch <= entries[0].epoch]
        epochs.make_again(runs + entries)

    def _read_epochs(self, end_offset: int) -> list[EpochEntry]:
        """Reads the epochs of the batches below that offset, and where each begins, without epochs that a flipped bit
        raised.
        """
        batches = (batch for one in self._segments if one.base_offset < end_offset for batch in one.batches(0))
        below = takewhile(lambda batch: batch.base_offset < end_offset, batches)
        runs, weighed = list[EpochEntry](), list[tuple[int, int]]()
        for epoch, run in groupby(below, key=attrgetter("partition_leader_epoch")):
            if epoch >= 0:
                runs.append(EpochEntry(epoch, next(run).base_offset))
                weighed.append((epoch, 1 + sum(1 for _ in run)))
        return [runs[number] for number in rising_epochs(weighed)]

    def _raise_first_epoch(self, log_start_offset: int) -> None:
        """Raises the first entry as DeleteRecords does, which a crash may have prevented, and which the log's batches
        do not show. An entry below the first segment that begins the log shows that segments are lost.
        """
        epochs = self._leader_epochs.entries
        if not epochs or max(epochs[0].start_offset, self._segments.first.base_offset) >= log_start_offset:
            return
        if not (self._leader_epochs.was_damaged or self._leader_epochs.was_missing):
            _log.warning(
                "%s: %s says that the log begins at offset %d, %s says offset %d, and is believed",
                self._partition, LEADER_EPOCH_CHECKPOINT, epochs[0].start_offset, LOG_START_OFFSET_CHECKPOINT,
                log_start_offset,
            )  # fmt: skip
        self._leader_epochs.truncate_from_start(log_start_offset)
