"""Gathers what other files than the logs state of the logs in a data directory (`KnownOffsets`), by reading alone.

Facts that were written, and synced, only after the records prove that these were there: the name of the next segment, a
producer snapshot, a leader epoch, the recovery point, the high watermark. An index of the last segment proves nothing
beside its log: a crash may keep it and lose the records. It does if the `.log` itself is gone, which no crash takes
away: an index has no entry before the log has its batch, so that the offset of the last entry was in the log. An index
in which anything is out of order proves nothing but its name. A file that does not parse counts for nothing here, `plog
verify` names it.

Where a log began is shown by what a deletion changes. A broker that deletes the first segments renames their files to
`.deleted`, the `.log` first, and raises the first entry of `leader-epoch-checkpoint` (Kafka's
UnifiedLog.deleteSegments). An entry, or an index, that lies below the first segment says that the segments there were
not deleted so. Snapshots say nothing of that: those of clean stops outlive the segments that they lie in.

The root's checkpoints have no checksum. After a clean stop all files agree, so that others show a wrong digit, which is
not believed then:

- A log start above everything else that is known of the log's end. Nobody deletes records that were never written.
- A log start above the first entry of `leader-epoch-checkpoint`, if the first segment begins below it. DeleteRecords
  raises that entry to the new start of the log; Kafka's start does it again.
- A high watermark above the recovery point, if the log ends at the recovery point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import AccessError, CorruptRecordError
from core.common.filesystem import scan_growing
from core.common.salvaging_file import read_small_file, read_small_text
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import UNKNOWN_RECOVERY_POINT, parse_leader_epochs, read_offset_checkpoint
from core.files.file_names import (
    CHECKPOINT_SUFFIX,
    CLEAN_SHUTDOWN,
    CLEANED_SUFFIX,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    DELETED_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    SPARSE_INDEXES,
    SWAP_SUFFIX,
    find_offset_files,
    is_file,
    locate_partition,
    offset_file_name,
    parse_offset_file_name,
)
from core.files.interrupted_deletion import was_replaced
from core.forensics.known_offsets import KnownOffsets, WrongLine
from core.forensics.recovery_journal import JOURNAL, gave_up_end, read_lost_offsets
from core.forensics.truncated_segments import rising_entries
from core.index.transaction_index import parse_transaction_index
from core.records.record_batch import MAGIC_POSITION

if TYPE_CHECKING:
    from core.forensics.log_scanner import LogScanner

_TIERED = b"remote.storage.enable"
_PIECE_BYTES = 1024 * 1024


class KnownOffsetsOfDirectory:
    """The facts in a data directory's root about its partitions; read once, until `forget`. Owned by one task."""

    def __init__(self, root: Path, *, origin: Path | None = None) -> None:
        """`origin` is the directory that `root` is a shadow of: a broker writes a metadata log of its own into that."""
        self.root = root
        self._origin = origin or root
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}

    def forget(self) -> None:
        """Reads everything again on its next use: a broker may have changed it meanwhile."""
        self._checkpoints.clear()
        self.__dict__.pop("was_stopped_cleanly", None)

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Reads the file as it is now; empty if it does not exist or does not parse."""
        try:
            return read_offset_checkpoint(self.root / name)
        except (CorruptRecordError, OSError):
            return {}

    def find_offset(self, name: str, partition: TopicPartition) -> int | None:
        """Finds the partition's offset in a checkpoint as it was at its first use; also None for a recovery point
        that stands for an unknown one.
        """
        if name not in self._checkpoints:
            self._checkpoints[name] = self.checkpoint(name)
        offset = self._checkpoints[name].get(partition)
        return None if (name, offset) == (RECOVERY_POINT_CHECKPOINT, UNKNOWN_RECOVERY_POINT) else offset

    @cached_property
    def was_stopped_cleanly(self) -> bool:
        return (self.root / CLEAN_SHUTDOWN).exists()

    def of(self, directory: Path, partition: TopicPartition | None = None) -> KnownOffsets:
        """Gathers the facts about a partition's folder, whose name says which partition it is, unless that is given.
        Raises OSError if the folder can't be read.
        """
        partition = partition or locate_partition(directory)[0]
        offsets: dict[str, set[int]] = {}
        entries = scan_growing(directory)
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
            known.append((self.find_offset(RECOVERY_POINT_CHECKPOINT, partition) or 0, RECOVERY_POINT_CHECKPOINT))
        known_end, source = max(known, key=lambda pair: pair[0])
        cleaned_below = 0 if partition is None else self.find_offset(CLEANER_CHECKPOINT, partition) or 0
        evidence = KnownOffsets(
            known_end=known_end,
            source=source,
            cleaned_below=max([cleaned_below, *(logs if is_being_cleaned else ())]),
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
            base_offsets=() if is_being_cleaned else tuple(sorted(logs)),
            given_up=read_lost_offsets(directory) if JOURNAL in names else (),
            origin=self._origin / directory.name if directory.parent == self.root else directory,
        )
        if partition is None:
            return evidence
        evidence = self._with_high_watermark(evidence, partition)
        return self._with_log_start(evidence, partition, min(epochs) if epochs and logs else None)

    def _with_high_watermark(self, evidence: KnownOffsets, partition: TopicPartition) -> KnownOffsets:
        """Adds the high watermark of `replication-offset-checkpoint`, unless it can't be right."""
        high_watermark = self.find_offset(HIGH_WATERMARK_CHECKPOINT, partition) or 0
        if high_watermark <= evidence.known_end:
            return evidence
        point = self.find_offset(RECOVERY_POINT_CHECKPOINT, partition) or 0
        if evidence.was_stopped_cleanly and 0 < point == evidence.known_end == _sound_end(evidence):
            why = (
                f"the high watermark of {partition} is {high_watermark}, it says, but the log was stopped cleanly and "
                f"ends at offset {point}, as {RECOVERY_POINT_CHECKPOINT} says, too"
            )
            wrong = self._wrong_line(HIGH_WATERMARK_CHECKPOINT, partition, point, why)
            return replace(evidence, wrong_watermark=wrong)
        return replace(evidence, known_end=high_watermark, source=HIGH_WATERMARK_CHECKPOINT)

    def _with_log_start(
        self, evidence: KnownOffsets, partition: TopicPartition, first_epoch: int | None
    ) -> KnownOffsets:
        """Adds the log start of `log-start-offset-checkpoint`, unless it can't be right. `first_epoch` is where the
        first leader epoch begins.
        """
        log_start = self.find_offset(LOG_START_OFFSET_CHECKPOINT, partition) or 0
        if first_epoch is not None and max(first_epoch, evidence.first_base_offset) < log_start:
            is_contradicted = True
        else:
            is_contradicted, first_epoch = False, None
        why = f"{partition} begins at offset {log_start}, it says, but "
        if log_start > evidence.known_end:
            log_end = self._find_end_before(evidence, log_start) if evidence.was_stopped_cleanly else None
            if log_end is None:
                return replace(
                    evidence, log_start_offset=log_start, known_end=log_start, source=LOG_START_OFFSET_CHECKPOINT
                )
            why += f"the log was stopped cleanly and ends at offset {log_end}, by all else that is known"
        elif is_contradicted and evidence.was_stopped_cleanly:
            why += f"{LEADER_EPOCH_CHECKPOINT} says offset {first_epoch}, and the log was stopped cleanly"
        else:
            return replace(evidence, log_start_offset=log_start, contradicted_start=first_epoch)
        right = self._start_by_epochs(evidence, first_epoch)
        wrong = self._wrong_line(LOG_START_OFFSET_CHECKPOINT, partition, right, why)
        return replace(evidence, wrong_start=wrong, log_start_offset=right)

    def _start_by_epochs(self, evidence: KnownOffsets, first_epoch: int | None) -> int:
        """Returns where the log begins if its checkpointed start is wrong: DeleteRecords raised the first entry, too.
        Messages of magic 0 and 1, which have no epochs, may lie before that entry otherwise.
        """
        if first_epoch is None or first_epoch <= evidence.first_base_offset:
            return 0
        path = evidence.directory / offset_file_name(evidence.first_base_offset, LOG_SUFFIX)
        magic = b""
        if path.is_file():
            with contextlib.suppress(OSError), path.open("rb") as file:
                magic = file.read(MAGIC_POSITION + 1)[MAGIC_POSITION:]
        return 0 if magic in (b"\0", b"\1") else first_epoch

    def _find_end_before(self, evidence: KnownOffsets, log_start: int) -> int | None:
        """Returns where the log ends if that is before its start, or None if it reaches up to there, or may have
        reached: segments can't be opened, a recovery gave its end up, or nothing is left of it.
        """
        log_end = _read_log(evidence, lambda reading: reading.end_offset)
        if not 0 < log_end < log_start or gave_up_end(evidence.directory, log_end):
            return None
        return log_end

    def _wrong_line(self, name: str, partition: TopicPartition, right: int, why: str) -> WrongLine:
        """Looks for the last line of the checkpoint that is about the partition."""
        path, position, found = self.root / name, 0, (0, 0, 0)
        with contextlib.suppress(OSError, CorruptRecordError):
            for number, line in enumerate(read_small_text(path).split("\n"), start=1):
                end_position = position + len(line.encode())
                if line.split()[:-1] == [partition.topic, str(partition.partition)]:
                    found = number, position, end_position
                position = end_position + 1
        return WrongLine(path, *found, right, why)

    def _known_start(
        self, partition: TopicPartition | None, logs: set[int], lone: set[int], epochs: list[int]
    ) -> int | None:
        """Returns the listed start, or None. A log that moved its first segments elsewhere keeps their epochs."""
        first = min(logs, default=None)
        log_start = None if partition is None else self.find_offset(LOG_START_OFFSET_CHECKPOINT, partition)
        is_moved = log_start is not None and first is not None and log_start < first and self._may_be_tiered
        starts = lone if is_moved else lone.union(epochs)
        return min((start for start in starts if first is None or start < first), default=None)

    @cached_property
    def _may_be_tiered(self) -> bool:
        """Whether topics may have segments on another store: the metadata log names the setting, or is not here."""
        directory = self._origin / f"{CLUSTER_METADATA_TOPIC}-0"
        try:
            paths = [path for path in directory.iterdir() if path.is_file()]
            return not paths or any(_contains(path, _TIERED) for path in paths)
        except OSError:
            return True


def _read_log(evidence: KnownOffsets, ask: Callable[[LogScanner], int]) -> int:
    """Asks the log, judged by `evidence` alone; returns 0 if it can't be read."""
    from core.forensics.log_scanner import open_reading  # most logs don't need it

    try:
        files = find_offset_files(evidence.directory, LOG_SUFFIX)
        with open_reading(files, evidence, is_locked=True) as reading:
            return ask(reading)
    except AccessError:
        return 0


def _sound_end(evidence: KnownOffsets) -> int:
    """Returns the offset after the log's last batch if nothing is lost after that, or 0 if something is. Reads all of
    the log: the last batches alone may mislead.
    """
    return _read_log(
        evidence, lambda reading: reading.map.sound_end * (reading.map.sound_end == reading.map.end_offset)
    )


def _has_snapshot_of(names: Iterable[str], offset: int) -> bool:
    """Says whether a metadata snapshot holds the metadata log's state up to that offset: the log was deleted there."""
    snapshots = (name.partition("-")[0] for name in names if name.endswith(CHECKPOINT_SUFFIX))
    return any(end.isdecimal() and int(end) >= offset for end in snapshots)


def _contains(path: Path, text: bytes) -> bool:
    """Says whether the file contains the text; reads in pieces. Raises the system's OSError."""
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


# --- indexes of segments whose `.log` is gone


def find_orphan_indexes(directory: Path, logs: Container[int]) -> list[tuple[int, Path]]:
    """Returns the index files of segments that have no log; `logs` are the base offsets of the segments with one."""
    found = (one for suffix in INDEX_SUFFIXES for one in find_offset_files(directory, suffix))
    return [(offset, path) for offset, path in found if offset not in logs]


def find_traces(directory: Path, bases: Iterable[int], logs: Collection[int]) -> set[int]:
    """Returns the base offsets of lone indexes that are traces of a segment. Between existing segments, indexes without
    any entry may have been made for a segment whose `.log` the disk then refused.
    """
    between = range(min(logs, default=0) + 1, max(logs, default=0))
    return {base for base in bases if base not in between or _holds_anything(directory, base)}


def _holds_anything(directory: Path, base_offset: int) -> bool:
    """Says whether one of the segment's indexes has entries, or can't be read."""
    for suffix in INDEX_SUFFIXES:
        try:
            if any(read_small_file(directory / offset_file_name(base_offset, suffix))):
                return True
        except FileNotFoundError:
            continue
        except (OSError, CorruptRecordError):
            return True
    return False


def indexed_end(directory: Path, base_offset: int) -> int:
    """Returns the offset after the last one that a segment's indexes name, or its base offset."""
    return max(
        index_end(directory / offset_file_name(base_offset, suffix), suffix, base_offset) for suffix in INDEX_SUFFIXES
    )


def index_end(path: Path, suffix: str, base_offset: int) -> int:
    """Returns the same for one file, of any name; `suffix` says which index it is."""
    with contextlib.suppress(OSError, CorruptRecordError):
        return _end_of(read_small_file(path), suffix, base_offset)
    return base_offset


def _end_of(data: bytes, suffix: str, base_offset: int) -> int:
    kind = SPARSE_INDEXES.get(suffix)
    if kind is None:
        return max((entry.last_offset + 1 for entry in parse_transaction_index(data)), default=base_offset)
    entries = rising_entries(kind.ENTRY, data)
    return base_offset + entries[-1][kind.OFFSET_FIELD] + 1 if entries else base_offset
