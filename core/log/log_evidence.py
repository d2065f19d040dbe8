"""What other files than the logs know of a partition's log: where it begins, how far it went, whether it was cleaned.

What was written, and synced, only after the records proves that they were there: the name of the next segment, a
producer snapshot, a leader epoch, the recovery point, the high watermark. An index of the last segment proves nothing
beside its log: a crash may keep it and lose the records. It does where the `.log` itself is gone, which no crash takes
away. Reads only; a file that does not parse says nothing here, `plog verify` names it.

Where a log began is told by what a deletion changes. Whoever deletes the first segments renames their files to
`.deleted`, the `.log` first, and raises the first entry of `leader-epoch-checkpoint` (Kafka's
UnifiedLog.deleteSegments). An entry, or an index, that lies below the first segment says that the segments there were
not deleted so. Snapshots say nothing of that: those of clean stops outlive the segments that they lie in.

`log-start-offset-checkpoint` has no checksum. After a clean stop, a log start above everything else that is known of
the log's end is wrong, and not believed: nobody deletes records that were never written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from core.common.bad_sectors import read_small_text
from core.common.errors import AccessError, CorruptRecordError, UnreadableFileError
from core.common.topic_partition import TopicPartition
from core.log.checkpoint_file import UNKNOWN_RECOVERY_POINT, read_offset_checkpoint
from core.log.file_names import (
    CHECKPOINT_SUFFIX,
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    DELETED_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    find_offset_files,
    is_file,
    locate_partition,
    parse_offset_file_name,
)
from core.log.leader_epoch_cache import parse_leader_epochs
from core.log.lone_index import INDEX_SUFFIXES, find_traces, indexed_end
from core.log.recovery_journal import gave_up_end, read_lost_offsets
from core.log.segment_deletion import was_replaced

_TIERED = b"remote.storage.enable"
_PIECE_BYTES = 1024 * 1024


class WrongStart(NamedTuple):
    """A line of `log-start-offset-checkpoint`, bytes [position, end_position), that is not believed: it lets the log of
    `partition` begin at `offset`, and the log ends at `log_end`, by all else that is known.
    """

    path: Path
    line: int
    position: int
    end_position: int
    partition: TopicPartition
    offset: int
    log_end: int

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.partition} begins at offset {self.offset}, it says, but the log was stopped "
            f"cleanly and ends at offset {self.log_end}, by all else that is known: it is not believed"
        )


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """What is known of one partition from outside its logs, in offsets.

    Records below `known_end` were in the log; `source` says who knows. The cleaner worked on what lies below
    `cleaned_below`. `lone_indexes` are the base offsets of segments of which an index is left and no log. `known_start`
    is where the log began before its first segments were lost; None if nothing says that any were. `first_base_offset`
    is that of the first log that is there, by its name.
    """

    log_start_offset: int = 0
    known_end: int = 0
    source: str = ""
    cleaned_below: int = 0
    newest_snapshot: int = 0
    lone_indexes: tuple[int, ...] = ()
    known_start: int | None = None
    first_base_offset: int = 0
    was_stopped_cleanly: bool = False
    directory: Path = Path()
    unreadable: tuple[UnreadableFileError, ...] = ()
    """Of log files that can't be opened; `offset` is where such a segment begins."""
    wrong_start: WrongStart | None = None
    """The log start that is not believed; `log_start_offset` is 0 then."""

    def start_of(self, first_base_offset: int | None) -> int:
        """Where a log begins whose first segment that can be read begins at that offset; None if there is none."""
        known = [first_base_offset, self.known_start, *(error.offset for error in self.unreadable)]
        return max(min((offset for offset in known if offset is not None), default=0), self.log_start_offset)


class DirectoryEvidence:
    """What a data directory's root says of its partitions; read once, owned by one task."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def log_starts(self) -> dict[TopicPartition, int]:
        return self.checkpoint(LOG_START_OFFSET_CHECKPOINT)

    def why_no_log_starts(self) -> str | None:
        """What is wrong with the file that says where logs begin after DeleteRecords; None if nothing is."""
        try:
            read_offset_checkpoint(self.root / LOG_START_OFFSET_CHECKPOINT)
        except (CorruptRecordError, OSError) as error:
            return str(error)
        return None

    @cached_property
    def _recovery_points(self) -> dict[TopicPartition, int]:
        """Leaves out those that say no more than that nobody knows."""
        found = self.checkpoint(RECOVERY_POINT_CHECKPOINT)
        return {partition: offset for partition, offset in found.items() if offset != UNKNOWN_RECOVERY_POINT}

    @cached_property
    def _high_watermarks(self) -> dict[TopicPartition, int]:
        return self.checkpoint(HIGH_WATERMARK_CHECKPOINT)

    @cached_property
    def cleaned(self) -> dict[TopicPartition, int]:
        """Offsets below which the cleaner worked."""
        return self.checkpoint(CLEANER_CHECKPOINT)

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Reads it as it is now; gives nothing if it is not there or does not parse."""
        try:
            return read_offset_checkpoint(self.root / name)
        except (CorruptRecordError, OSError):
            return {}

    @cached_property
    def was_stopped_cleanly(self) -> bool:
        return (self.root / CLEAN_SHUTDOWN).exists()

    def of(self, directory: Path, partition: TopicPartition | None = None) -> LogEvidence:
        """Gathers what is known of a partition's folder; its name says which one it is, unless that is given. Raises
        OSError if the folder can't be read.
        """
        partition = partition or locate_partition(directory)[0]
        offsets: dict[str, set[int]] = {}
        entries = list(os.scandir(directory))
        names = {entry.name for entry in entries}
        for entry in entries:
            parsed = parse_offset_file_name(entry.name)
            if parsed is not None and (parsed[1] == LOG_SUFFIX or is_file(entry)):
                offsets.setdefault(parsed[1], set()).add(parsed[0])
        logs = offsets.get(LOG_SUFFIX, set())
        is_being_cleaned = any(name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)) for name in names)
        is_deleted_just_now = is_being_cleaned or any(name.endswith(DELETED_SUFFIX) for name in names)
        lone = {offset for suffix in INDEX_SUFFIXES for offset in offsets.get(suffix, set()) - logs}
        lone = find_traces(directory, lone, logs) | {base for base in lone if was_replaced(names, base)}
        if is_deleted_just_now:
            lone = {base for base in lone if not is_being_cleaned and was_replaced(names, base)}
        last_base_offset = max(logs, default=-1)
        indexed = [indexed_end(directory, base) for base in lone if base > last_base_offset]
        epochs = _epoch_starts(directory)
        newest_snapshot = max(offsets.get(SNAPSHOT_SUFFIX, ()), default=0)
        known = [
            (newest_snapshot, "a producer snapshot"),
            (max([*lone, *indexed], default=0), "an index without its log"),
            (max(epochs, default=0), LEADER_EPOCH_CHECKPOINT),
        ]
        if partition is not None:
            known += [
                (self._recovery_points.get(partition, 0), RECOVERY_POINT_CHECKPOINT),
                (self._high_watermarks.get(partition, 0), HIGH_WATERMARK_CHECKPOINT),
            ]
        known_end, source = max(known, key=lambda pair: pair[0])
        evidence = LogEvidence(
            known_end=known_end,
            source=source,
            cleaned_below=max(
                self.cleaned.get(partition, 0) if partition else 0, max(logs, default=0) if is_being_cleaned else 0
            ),
            newest_snapshot=newest_snapshot,
            lone_indexes=tuple(sorted(lone)),
            known_start=(
                None
                if is_deleted_just_now or _has_snapshot_of(names, min(logs, default=0))
                else self._known_start(partition, logs, lone, epochs)
            ),
            first_base_offset=min(logs, default=0),
            was_stopped_cleanly=self.was_stopped_cleanly,
            directory=directory,
        )
        return evidence if partition is None else self._with_log_start(evidence, partition)

    def _with_log_start(self, evidence: LogEvidence, partition: TopicPartition) -> LogEvidence:
        """Takes up what `log-start-offset-checkpoint` says, unless it can't be so."""
        log_start = self.log_starts.get(partition, 0)
        if log_start <= evidence.known_end:
            return replace(evidence, log_start_offset=log_start)
        wrong = self._find_wrong_start(evidence, partition, log_start) if evidence.was_stopped_cleanly else None
        if wrong is not None:
            return replace(evidence, wrong_start=wrong)
        return replace(evidence, log_start_offset=log_start, known_end=log_start, source=LOG_START_OFFSET_CHECKPOINT)

    def _find_wrong_start(self, evidence: LogEvidence, partition: TopicPartition, log_start: int) -> WrongStart | None:
        """Gives None if the log reaches up to its start, or may have reached: segments can't be opened, a recovery gave
        its end up, or nothing is left of it.
        """
        from core.log.partition_reader import open_reading  # which imports this module, and most logs don't need it

        given_up = read_lost_offsets(evidence.directory)
        try:
            files = find_offset_files(evidence.directory, LOG_SUFFIX)
            with open_reading(files, evidence, given_up, is_locked=True) as reading:
                log_end = reading.end_offset
        except AccessError:
            return None
        if not 0 < log_end < log_start or gave_up_end(evidence.directory, log_end):
            return None
        line, position, end_position = self._place_of_log_start(partition)
        path = self.root / LOG_START_OFFSET_CHECKPOINT
        return WrongStart(path, line, position, end_position, partition, log_start, log_end)

    def _place_of_log_start(self, partition: TopicPartition) -> tuple[int, int, int]:
        """Gives (line, position, end position) of the last line of the checkpoint that is about the partition."""
        position, found = 0, (0, 0, 0)
        with contextlib.suppress(OSError, CorruptRecordError):
            text = read_small_text(self.root / LOG_START_OFFSET_CHECKPOINT)
            for number, line in enumerate(text.split("\n"), start=1):
                end_position = position + len(line.encode())
                if line.split()[:-1] == [partition.topic, str(partition.partition)]:
                    found = number, position, end_position
                position = end_position + 1
        return found

    def _known_start(
        self, partition: TopicPartition | None, logs: set[int], lone: set[int], epochs: list[int]
    ) -> int | None:
        """A log whose first segments were moved to another store keeps their epochs, and its start is listed."""
        first = min(logs, default=None)
        log_start = self.log_starts.get(partition) if partition is not None else None
        is_moved = log_start is not None and first is not None and log_start < first and self._may_be_tiered
        starts = lone if is_moved else lone.union(epochs)
        return min((start for start in starts if first is None or start < first), default=None)

    @cached_property
    def _may_be_tiered(self) -> bool:
        """Whether topics may have segments on another store: the metadata log names the setting, or is not here."""
        directory = self.root / f"{CLUSTER_METADATA_TOPIC}-0"
        try:
            paths = [path for path in directory.iterdir() if path.is_file()]
            return not paths or any(_contains(path, _TIERED) for path in paths)
        except OSError:
            return True


def _has_snapshot_of(names: Iterable[str], offset: int) -> bool:
    """Whether a snapshot of the metadata holds what the metadata log had below that offset: there it was deleted."""
    snapshots = (name.partition("-")[0] for name in names if name.endswith(CHECKPOINT_SUFFIX))
    return any(end.isdecimal() and int(end) >= offset for end in snapshots)


def _contains(path: Path, text: bytes) -> bool:
    """Reads the file in pieces. Raises OSError as the system says."""
    with path.open("rb") as file:
        before = b""
        while data := file.read(_PIECE_BYTES):
            if text in before + data:
                return True
            before = data[-len(text) :]
    return False


def _epoch_starts(directory: Path) -> list[int]:
    with contextlib.suppress(OSError, CorruptRecordError, ValueError):
        path = directory / LEADER_EPOCH_CHECKPOINT
        return [entry.start_offset for entry in parse_leader_epochs(read_small_text(path), str(path))]
    return []
