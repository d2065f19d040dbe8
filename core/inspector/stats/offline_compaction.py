"""Compaction of logs that nobody serves: plans what the broker's cleaner would do to them now, and does it.

A log is opened by the engine in a shadow of its folder, so that planning writes nothing. Then the segments that can be
cleaned are cleaned, for a plan without writing, else into the folder itself, where all of them come in at once: a crash
at any moment leaves the old log or the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from core.common.clock import Clock, SystemClock
from core.common.errors import CorruptRecordError, KafkaError, PlogError, UndecodableError, UsageError
from core.common.filesystem import FileSystem, access_error, accessing
from core.common.path_alias import PathAlias
from core.common.salvaging_file import unreadable_error
from core.common.shadow_filesystem import ShadowFileSystem, link_tree, temporary_shadow
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.compaction.cleaned_segment import CleanedSegment
from core.compaction.cleaner import Cleaner
from core.compaction.cleaner_stats import CleanerStats
from core.compaction.log_to_clean import CleanablePart, find_cleanable_part, log_to_clean
from core.files.checkpoint_file import write_offset_checkpoint
from core.files.directory_lock import DirectoryLock, FolderLock
from core.files.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    SPARSE_INDEXES,
    offset_file_name,
)
from core.files.log_config import LogConfig, parse_topic_configs, stored_topic_values
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.missing_offsets import PROVEN_LOSSES, Hole
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.inspector.check.partition_check import DataDirectoryMetadata
from core.log.log_loader import LogSettings, load_log
from core.log.partition_log import PartitionLog
from core.log.segment_swap import begin_swap, finish_swaps, swapped_below

_INTERNAL = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
"""The settings that Kafka gives each of its own topics, if no metadata says so."""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """`overrides`: topic settings by Kafka's names, over the stored ones. `rolls`: the active segment is sealed first,
    so that it is cleaned too.
    """

    overrides: Mapping[str, str]
    rolls: bool = False
    dedupe_buffer_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The plan for one partition. `refusal`: why it can't be cleaned, or not from `end_offset` on after some rounds;
    `waits`: why a broker would not clean it yet. `stats` is None if nothing is done. `end_offset`: up to where it is
    clean then.
    """

    partition: TopicPartition
    config: LogConfig
    part: CleanablePart | None = None
    stats: CleanerStats | None = None
    end_offset: int = 0
    refusal: str | None = None
    waits: str | None = None

    @property
    def fillings(self) -> float:
        """Says how often the buffer for keys must be filled to clean all that can be cleaned, if the keys are spread
        evenly over the offsets; 1 if it was enough.
        """
        if self.part is None or self.end_offset <= self.part.first_dirty_offset:
            return 1.0
        first = self.part.first_dirty_offset
        return max((self.part.first_uncleanable_offset - first) / (self.end_offset - first), 1.0)


class OfflineCompaction:
    """Compacts the partitions of a data directory, or one partition's folder; owned by one task.

    Raises AccessError if it can't be read, UsageError for a setting that does not exist.
    """

    def __init__(
        self,
        path: Path,
        options: CompactionOptions,
        *,
        clock: Clock | None = None,
        filesystem: FileSystem | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        try:
            parse_topic_configs(options.overrides)
        except KafkaError as error:
            raise UsageError(str(error)) from error
        self._reader = DirectoryReader(path, hint="name partition folders, or a data directory")
        self._root = self._reader.root
        self._is_alone = path.resolve() != self._root.resolve()
        self._surroundings = DataDirectoryMetadata(self._root)
        self._options = options
        self._clock = clock or SystemClock()
        self._filesystem = filesystem or FileSystem()
        self._on_bytes = on_bytes
        self._cleaned_up_to: dict[TopicPartition, int] = {}
        self._is_locked = False

    @property
    def settings_error(self) -> PlogError | None:
        """Returns the error if the metadata log can't be read, or None. It is then unknown which topics are compacted,
        and how: each is refused unless the options say it.
        """
        return None if "cleanup.policy" in self._options.overrides else self._surroundings.image_error

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions of topics that are compacted, or may be; for a partition's own folder, that one."""
        is_each = self._is_alone or self.settings_error is not None
        return [tp for tp in sorted(self._reader.partitions) if is_each or self.config_of(tp.topic).is_compacted]

    def config_of(self, topic: str) -> LogConfig:
        image = self._surroundings.image
        stored = dict(image.topic_configs(topic)) if image is not None else {}
        values = stored_topic_values({**(_INTERNAL if topic in INTERNAL_TOPICS else {}), **stored})
        return LogConfig.from_values(values | parse_topic_configs(self._options.overrides))

    # --- plans

    def plan(self, partition: TopicPartition) -> CompactionPlan:
        """Plans the cleaning of a partition; refuses a log that can't be read."""
        try:
            self._ensure_there(partition)
            with self._opened(partition) as opened:
                return self._clean(opened, self._cleaner(None, ShadowFileSystem(opened.paths)), opened.log.directory)[0]
        except CorruptRecordError as error:
            return self._refused(partition, error)

    def _ensure_there(self, partition: TopicPartition) -> None:
        directory = self._reader.partitions[partition]
        try:
            os.scandir(directory).close()
        except OSError as error:
            raise unreadable_error(error, directory) from error

    def _refused(self, partition: TopicPartition, error: PlogError) -> CompactionPlan:
        config = self.config_of(partition.topic)
        return CompactionPlan(partition, config, refusal=str(error))

    def _clean(
        self, opened: OpenedLog, cleaner: Cleaner, directory: Path, *, is_begun: bool = False
    ) -> tuple[CompactionPlan, list[CleanedSegment]]:
        """Has the cleaner, which may only count, clean the log's files in that folder; returns the new segments, too.
        `is_begun`: all that is dirty is worth cleaning.
        """
        plan = CompactionPlan(opened.log.partition, opened.log.config, refusal=self._refusal(opened))
        if plan.refusal is not None:
            return plan, []
        try:
            part = self._part(opened)
            plan = replace(plan, part=part, end_offset=part.first_dirty_offset, waits=waits_for(part, plan.config))
            if plan.waits is not None and not (is_begun and part.cleanable_bytes):
                return plan, []
            to_clean = replace(log_to_clean(opened.log, part), directory=directory)
            cleaned = list(cleaner.clean(to_clean, self._clock.now_ms()))
        except CorruptRecordError as error:
            return replace(plan, refusal=opened.refusal(error)), []
        return replace(plan, waits=None, stats=cleaner.stats, end_offset=cleaner.end_offset), cleaned

    def _refusal(self, opened: OpenedLog) -> str | None:
        config, topic = opened.log.config, opened.log.partition.topic
        if self.settings_error is not None:
            return f"the settings of {topic} can't be read; --set cleanup.policy=compact compacts it by those of --set"
        if not config.is_compacted:
            known = self._surroundings.image is not None and topic in self._surroundings.image.topics
            why = "is delete" if known else "is not known here"
            return f"cleanup.policy of {topic} {why}; --set cleanup.policy=compact compacts it nevertheless"
        if opened.was_cut:
            return f"its end is not sound; mend it first: plog recover {opened.directory}"
        if self._options.rolls and opened.has_zeros_at_end:
            return "zeros follow the last batch, as preallocate=true leaves them; without --roll it can be compacted"
        for segment in opened.log.segments:
            for gap in segment.gaps:
                if gap.end_position > gap.position:  # else there is a hole alone, of which the reader knows more
                    where = f"bytes {gap.position} to {gap.end_position - 1} of {segment.records.path.name}"
                    return f"{where} are damaged or out of order; mend it first: plog recover {opened.directory}"
        lost = self._find_loss(opened.directory)
        if lost is not None:
            where = f"{lost.offsets_text} of {lost.path.name}"
            return f"{where} can't be read: {lost.evidence}; mend it first: plog recover {opened.directory}"
        return None

    def _find_loss(self, directory: Path) -> Hole | None:
        """Finds the log's first lost records, or None: once compacted, they can't be told from superseded ones."""
        with contextlib.closing(
            PartitionReader(directory, filesystem=self._filesystem, is_locked=self._is_locked)
        ) as log:
            holes = (item for item in log.reading.items(0) if isinstance(item, Hole))
            return next((hole for hole in holes if hole.reason in PROVEN_LOSSES), None)

    def _part(self, opened: OpenedLog) -> CleanablePart:
        return find_cleanable_part(opened.log, self._checkpoint(opened.log.partition), self._clock.now_ms())

    def _cleaner(self, filesystem: FileSystem | None, reading: FileSystem) -> Cleaner:
        return Cleaner(
            self._options.dedupe_buffer_bytes,
            filesystem=filesystem,
            reading=reading,
            leaves_unchanged=False,
            on_bytes=self._on_bytes,
        )

    def _checkpoint(self, partition: TopicPartition) -> int | None:
        """Returns where a cleaning, first one of this run, ended, or None: the disk's may be of another log."""
        return self._cleaned_up_to.get(partition, self._offsets(CLEANER_CHECKPOINT).get(partition))

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        return KnownOffsetsOfDirectory(self._root).checkpoint(name)

    # --- opening

    @contextlib.contextmanager
    def opened(self, partition: TopicPartition) -> Iterator[OpenedLog]:
        """Opens the log for reading, as the engine finds it; yields it with the part that can be cleaned."""
        with self._opened(partition) as opened:
            with contextlib.suppress(CorruptRecordError):
                opened.part = self._part(opened)
            yield opened

    @contextlib.contextmanager
    def _opened(self, partition: TopicPartition) -> Iterator[OpenedLog]:
        directory = self._reader.partitions[partition]
        with temporary_shadow(directory, "plog-compact-") as temporary:
            shadow = Path(temporary) / directory.name
            paths = PathAlias(shadow, directory)
            try:
                with paths:
                    shadow.mkdir()
                    link_tree(directory, shadow, on_unreadable=_ensure_no_log, depth=0)
                    yield self._load(partition, directory, shadow, paths)
            except OSError as error:
                failure = access_error(error, error.filename or directory, "compact")
                paths.rename(failure)
                raise failure from error

    def _load(self, partition: TopicPartition, directory: Path, shadow: Path, paths: PathAlias) -> OpenedLog:
        recovery_points, high_watermarks = (
            self._offsets(RECOVERY_POINT_CHECKPOINT),
            self._offsets(HIGH_WATERMARK_CHECKPOINT),
        )
        loaded = load_log(
            shadow,
            partition,
            self.config_of(partition.topic),
            LogSettings(self._clock, ShadowFileSystem(paths), keeps_cut_bytes=False, checks_late=True),
            log_start_offset=self._offsets(LOG_START_OFFSET_CHECKPOINT).get(partition, 0),
            recovery_point=recovery_points.get(partition),
            had_clean_shutdown=(self._root / CLEAN_SHUTDOWN).exists(),
            evidence=KnownOffsetsOfDirectory(self._root),
        )
        log = loaded.log
        active = log.segments.active.records
        own = directory / active.path.name
        has_zeros_at_end = own.exists() and active.size_bytes < own.stat().st_size
        log.update_high_watermark(high_watermarks.get(partition, log.log_end_offset))
        if self._options.rolls and log.segments.active.size_bytes:
            log.roll()
        return OpenedLog(directory, log, loaded.was_cut, paths, has_zeros_at_end=has_zeros_at_end)

    # --- doing it

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps others from writing to the folders, and to the checkpoints beside them. Raises DirectoryLockedError if
        somebody does.
        """
        is_directory = (self._root / META_PROPERTIES).exists() or (self._root / LOCK).exists()
        lock = DirectoryLock(self._root) if is_directory else FolderLock(self._root)
        lock.acquire()
        self._is_locked = True
        self._surroundings = DataDirectoryMetadata(self._root, is_locked=True)
        try:
            yield
        finally:
            self._is_locked = False
            lock.release()

    def apply(self, partition: TopicPartition) -> CompactionPlan:
        """Plans again, and cleans, in as many rounds as the keys need; the plan's `stats` are of all of them. The
        caller must hold the directory's lock. Raises AccessError if the disk refuses: the log is the old or the new one
        then.
        """
        try:
            self._ensure_there(partition)
            return self._apply(partition)
        except CorruptRecordError as error:
            return self._refused(partition, error)

    def _apply(self, partition: TopicPartition) -> CompactionPlan:
        directory = self._reader.partitions[partition]
        with accessing(directory, "compact"):
            clean_offset = swapped_below(directory, self._filesystem)
            if clean_offset > (self._checkpoint(partition) or 0):
                self._write_checkpoint(partition, clean_offset)
            finish_swaps(directory, self._filesystem)  # until then `.swap` shows that a cleaner took records
            done: CompactionPlan | None = None
            while True:
                with self._opened(partition) as opened:
                    plan = self._apply_once(opened, is_begun=done is not None)
                if done is not None and done.stats is not None and plan.stats is not None:
                    plan.stats.continue_from(done.stats)
                if plan.stats is None:
                    return replace(done, refusal=plan.refusal) if done is not None else plan
                done = plan
                if plan.part is None or plan.end_offset >= plan.part.first_uncleanable_offset:
                    return done

    def _apply_once(self, opened: OpenedLog, *, is_begun: bool) -> CompactionPlan:
        directory, cleaner = opened.directory, self._cleaner(self._filesystem, self._filesystem)
        try:
            plan, cleaned = self._clean(opened, cleaner, directory, is_begun=is_begun)
        except OSError:
            self._drop_cleaned(directory)
            raise
        if plan.stats is None:
            self._drop_cleaned(directory)
            return plan
        if self._options.rolls:
            self._write_active_segment(opened)
        self._swap(plan.partition, directory, cleaned, plan.end_offset)
        return plan

    def _swap(self, partition: TopicPartition, directory: Path, cleaned: list[CleanedSegment], end_offset: int) -> None:
        """Puts the segments in their places, unless they are the same."""
        is_changed = any(segment.is_changed for segment in cleaned)
        if is_changed:
            begin_swap(directory, [segment.base_offset for segment in cleaned], self._filesystem)
        else:
            self._drop_cleaned(directory)
        self._write_checkpoint(partition, end_offset)
        if is_changed:
            finish_swaps(directory, self._filesystem)

    def _drop_cleaned(self, directory: Path) -> None:
        for path in directory.glob("*.cleaned"):
            self._filesystem.unlink(path)

    def _write_active_segment(self, opened: OpenedLog) -> None:
        end_offset = opened.log.log_end_offset
        for suffix in (LOG_SUFFIX, *SPARSE_INDEXES):
            self._filesystem.open_append(opened.directory / offset_file_name(end_offset, suffix)).close()
        snapshot = offset_file_name(end_offset, SNAPSHOT_SUFFIX)
        if (opened.log.directory / snapshot).exists() and not (opened.directory / snapshot).exists():
            content = (opened.log.directory / snapshot).read_bytes()
            self._filesystem.write_atomic(opened.directory / snapshot, content)

    def _write_checkpoint(self, partition: TopicPartition, end_offset: int) -> None:
        """Writes it beside the folder, of a data directory or not: it proves that a cleaning took the offsets."""
        self._cleaned_up_to[partition] = end_offset
        offsets = self._offsets(CLEANER_CHECKPOINT) | {partition: end_offset}
        write_offset_checkpoint(self._root / CLEANER_CHECKPOINT, offsets, self._filesystem)


@dataclass(slots=True)
class OpenedLog:
    """A log to be read: `directory` is the partition's own folder; the log's is the shadow."""

    directory: Path
    log: PartitionLog
    was_cut: bool
    paths: PathAlias
    part: CleanablePart | None = None
    has_zeros_at_end: bool = False
    """Whether the file of the last segment goes on after the log's end; if no record was cut there, with zeros."""

    def refusal(self, error: CorruptRecordError) -> str:
        """Says why the log can't be compacted as it is, and how to change that."""
        if isinstance(error, UndecodableError):
            return (
                f"{self.paths.text(str(error))}; its checksum is right, so there is nothing to mend: plog topic "
                "delete-records gives it up with what is before it, plog consume --no-exit-on-error reads the others"
            )
        return f"{self.paths.text(str(error))}; mend it first: plog recover {self.directory}"


def _ensure_no_log(error: OSError, path: Path) -> None:
    """Raises `error` for a segment: one that can't be read must not be compacted away; other files are made again."""
    if path.suffix == LOG_SUFFIX:
        raise unreadable_error(error, path)


def waits_for(part: CleanablePart, config: LogConfig) -> str | None:
    """Says why a broker would not clean it now; None if it would."""
    if part.is_worth_cleaning(config):
        return None
    if not part.cleanable_bytes:
        return (
            f"nothing that can be cleaned is dirty: {part.bound.value} from offset {part.first_uncleanable_offset} on"
        )
    return (
        f"below min.cleanable.dirty.ratio: {part.cleanable_ratio:.2f} of the bytes are dirty, "
        f"cleaned above {config.min_cleanable_dirty_ratio:g}"
    )
