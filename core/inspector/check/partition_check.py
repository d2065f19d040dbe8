"""Checks a partition's folder: its segments in order, and the files beside them against the segments.

`DataDirectoryMetadata` reads what the root's checkpoints and the metadata log say of the partition.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import AccessError, CorruptRecordError, PlogError, UnreadableFileError
from core.common.filesystem import File, FileSystem, access_error
from core.common.salvaging_file import read_small_text
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.files.checkpoint_file import EpochEntry, parse_leader_epochs, rising_epochs
from core.files.file_names import (
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    SNAPSHOT_SUFFIX,
    find_offset_files,
    find_unreadable_files,
)
from core.files.producer_snapshot import iter_producer_snapshot
from core.forensics.bit_flip import byte_fix, one_bit_apart
from core.forensics.known_offsets import KnownOffsets
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.log_scanner import LogScanner, SegmentReader
from core.forensics.missing_offsets import EXPECTED, LOSSES, HoleReason, TailKind, explain_holes, offsets_text
from core.inspector.check.findings import (
    Code,
    Finding,
    Severity,
    damage_finding,
    displaced_finding,
    hole_finding,
    misnamed_finding,
    unreadable_finding,
    useless_finding,
)
from core.inspector.check.producer_check import ProducerCheck
from core.inspector.check.segment_check import (
    EpochRun,
    OddLogError,
    OnBytes,
    SegmentCheck,
    VerifyOptions,
    check_again_if_odd,
)
from core.records.record_batch import LEADER_EPOCH_POSITION, RecordBatch

if TYPE_CHECKING:
    from core.cluster.image.metadata_image import MetadataImage
    from core.forensics.log_map import LogMap


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The facts in the data directory about a partition; None if absent.

    `is_compacted`: whether compaction may have been at work.
    """

    evidence: KnownOffsets = field(default_factory=KnownOffsets)
    is_compacted: bool | None = None


def check_partition(
    directory: Path, options: VerifyOptions, surroundings: Surroundings, on_bytes: OnBytes, *, is_live: bool
) -> Iterator[Finding]:
    """Checks one partition.

    Segments are read one after the other as long as each makes sense. At the first that does not, the whole partition
    is mapped (`LogMap`), which alone shows what is damaged, lost or out of place; then the segments are read once more.
    """

    def check(on_bytes: OnBytes, log_map: LogMap | None = None) -> Iterator[Finding]:
        return _Pass(directory, options, surroundings, log_map, is_live=is_live).run(on_bytes)

    def check_by_map(on_bytes: OnBytes) -> Iterator[Finding]:
        segments = []
        with contextlib.ExitStack() as opened:
            for base_offset, path in find_offset_files(directory, LOG_SUFFIX):
                with contextlib.suppress(OSError):  # it is among the unreadable ones, or gone
                    segments.append(SegmentReader(path, base_offset, _TellingFileSystem(on_bytes)))
                    opened.callback(segments[-1].close)
            yield from check(on_bytes, LogScanner(segments, surroundings.evidence, is_live=lambda: is_live).map)

    return check_again_if_odd(check, check_by_map, on_bytes)


class _TellingFile(File):
    """Calls `on_bytes` before each read, with 0: reading for a map is not progress, but the caller may want to stop it.
    It owns the file that it wraps.
    """

    __slots__ = ("_inner", "_on_bytes")

    def __init__(self, inner: File, on_bytes: OnBytes) -> None:
        super().__init__(inner.path, inner.fd)
        self._inner = inner
        self._on_bytes = on_bytes

    def read_at(self, size: int, position: int) -> bytes:
        self._on_bytes(0)
        return self._inner.read_at(size, position)

    def close(self) -> None:
        self.fd = -1
        self._inner.close()


class _TellingFileSystem(FileSystem):
    def __init__(self, on_bytes: OnBytes) -> None:
        self._on_bytes = on_bytes

    def open_read(self, path: Path) -> File:
        return _TellingFile(super().open_read(path), self._on_bytes)


class _Pass:
    def __init__(
        self,
        directory: Path,
        options: VerifyOptions,
        surroundings: Surroundings,
        log_map: LogMap | None,
        *,
        is_live: bool,
    ) -> None:
        self._directory = directory
        self._options = options
        self._surroundings = surroundings
        self._evidence = surroundings.evidence
        self._map = log_map
        self._is_live = is_live
        self._producers = ProducerCheck()
        self._epochs = self._read_epochs()
        self._epoch_runs: list[EpochRun] = []
        self._snapshots = dict(find_offset_files(directory, SNAPSHOT_SUFFIX))
        self._snapshot_findings: list[Finding] = []
        self._traces: list[Finding] = []
        self._lost = self._evidence.given_up
        self._producers.is_certain = not self._lost
        self._has_damage = False
        self._is_thinned = False
        self._holes: list[tuple[int, int, Path, int]] = []
        self._start_offset = self._end_offset = 0
        self._batches = 0

    def run(self, on_bytes: OnBytes) -> Iterator[Finding]:
        logs = yield from self._readable_logs()
        self._start_offset = logs[0][0] if logs else 0
        numbers = {file.path: number for number, file in enumerate(self._map.files if self._map is not None else ())}
        if logs and (start_offset := self._evidence.start_of(logs[0][0])) < logs[0][0]:
            self._holes.append((start_offset, *logs[0], 0))
        last: SegmentCheck | None = None
        last_epoch = -1
        for number, (base_offset, path) in enumerate(logs):
            if last is not None and base_offset > self._end_offset:
                self._note_traces(last.base_offset, base_offset)
                self._holes.append((self._end_offset, base_offset, path, 0))
                self._producers.meet_hole()
                if self._map is not None:
                    self._producers.forget()
            self._check_snapshot(base_offset)
            following = logs[number + 1][0] if number + 1 < len(logs) else None
            if self._map is not None and path not in numbers:
                continue  # it came after the map was made
            if self._map is not None and numbers[path] in self._map.copies:
                on_bytes(path.stat().st_size)
                continue
            check = SegmentCheck(
                path,
                base_offset,
                self._options,
                self._producers,
                self._epoch_runs.append,
                is_active=self._is_live and number == len(logs) - 1,
                is_last=number == len(logs) - 1,
                last_epoch=last_epoch,
                batches=self._batches,
                limit_offset=following,
                known_ends={o for o in (*self._snapshots, following) if o is not None and o > base_offset},
                log_start_offset=self._evidence.log_start_offset,
                log_map=self._map,
                number=numbers.get(path, number),
            )
            try:
                yield from check.run(on_bytes)
            except AccessError as error:
                if path.exists():
                    yield Finding(Severity.ERROR, Code.UNREADABLE, str(path), error.message, 0, base_offset)
                    self._has_damage = True
                self._producers.forget()  # else its broker deleted it meanwhile
                continue
            is_complete = logs[0][0] == 0 and not self._holes and not check.holes
            yield from check.check_transaction_index(is_complete=is_complete)
            last_epoch, self._batches = check.last_epoch, check.batches
            self._has_damage |= check.has_damage
            self._end_offset = max(self._end_offset, check.end_offset)
            self._is_thinned |= check.is_compacted
            self._holes += [(start, end, path, position) for start, end, position in check.holes]
            last = check
        self._check_snapshot(self._end_offset)
        if self._map is None:
            self._ensure_explained(logs)
        yield from self._traces
        yield from self._epoch_findings()
        if not self._is_thinned and not self._has_damage and not self._lost and not self._holes:
            if not self._surroundings.is_compacted:
                yield from self._producers.sequence_findings
            yield from self._snapshot_findings

    def _readable_logs(self) -> Generator[Finding, None, list[tuple[int, Path]]]:
        """Yields the map's findings on all logs, and those on unreadable logs; returns the readable logs."""
        unreadable = {error.path: error for error in find_unreadable_files(self._directory)}
        for error in unreadable.values():
            if self._map is None:
                raise OddLogError
            yield from self._unreadable(error)
        if self._map is not None:
            for finding in map_findings(self._map, is_live=self._is_live):
                self._has_damage |= finding.code is not Code.OFFSETS_MISSING
                yield finding
        logs = find_offset_files(self._directory, LOG_SUFFIX)
        return [(base_offset, path) for base_offset, path in logs if str(path) not in unreadable]

    def _unreadable(self, error: UnreadableFileError) -> Iterator[Finding]:
        """Reports a segment that exists, but can't be read. Its lost records are a hole of the map."""
        self._has_damage = True
        self._producers.forget()
        assert self._map is not None
        if not any(hole.path == Path(error.path) for hole in self._map.holes):
            yield unreadable_finding(error, records=0)

    def _ensure_explained(self, logs: Sequence[tuple[int, Path]]) -> None:
        """Raises OddLogError for a hole, or an end, that needs more than the batches beside it to be explained."""
        sizes = [(base_offset, path.stat().st_size) for base_offset, path in logs if self._is_thinned]
        compacted_below = self._evidence.compacted_below(sizes, is_thinned=self._is_thinned)
        for start, end, path, position in self._holes:
            holes = explain_holes(start, end, self._evidence, path, position, compacted_below=compacted_below)
            if any(hole.reason not in EXPECTED for hole in holes):
                raise OddLogError
        last_base_offset = logs[-1][0] if logs else 0
        if not self._is_live and self._evidence.known_end > max(self._end_offset, last_base_offset):
            raise OddLogError

    def _note_traces(self, base_offset: int, next_base_offset: int) -> None:
        """Notes snapshots in the hole between a segment of that base offset and the next. A broker writes one where a
        segment begins; or where it stops, but removes that when it starts again, or with the records after it. Offsets
        that are reported as lost, or were given up, need no trace.
        """
        lost = [*self._lost]
        lost += [(hole.start, hole.end) for hole in (self._map.holes if self._map else ()) if hole.reason in LOSSES]
        for offset, path in sorted(self._snapshots.items()):
            is_in_hole = base_offset < offset and self._end_offset <= offset < next_base_offset
            if is_in_hole and not any(start <= offset < end for start, end in lost):
                message = (
                    f"there is no segment {offset}, and no batch holds {offsets_text(offset, next_base_offset)}: its "
                    "files are gone, or the broker stopped there once and its cleaner took what followed"
                )
                self._traces.append(
                    Finding(Severity.WARNING, Code.SNAPSHOT_MISMATCH, str(path), message, offset=offset)
                )

    # --- leader epochs

    def _read_epochs(self) -> list[EpochEntry] | None:
        path = self._directory / LEADER_EPOCH_CHECKPOINT
        try:
            return parse_leader_epochs(read_small_text(path), str(path))
        except (FileNotFoundError, CorruptRecordError):  # the latter is a finding of its own
            return None
        except OSError as error:
            raise access_error(error, path, "read") from error

    def _epoch_findings(self) -> Iterator[Finding]:
        """Checks that epochs never fall: those of the fewest batches are wrong. The checkpoint must have the others."""
        runs, batches = self._epoch_runs, self._batches
        if self._map is not None and self._map.placed:
            runs, batches = list(_runs_in_order(self._map)), sum(piece.batches for piece in self._map.log)
        known = {entry.epoch for entry in self._epochs or ()}
        starts = [*(run.batches_before for run in runs), batches]
        counts = (max(after - before, 1) for before, after in pairwise(starts))
        weighed = [(run.epoch, count) for run, count in zip(runs, counts, strict=True)]
        chain = rising_epochs(weighed, known)
        for number, run in enumerate(runs):
            at = bisect_left(chain, number)
            if at < len(chain) and chain[at] == number:
                continue
            before = runs[chain[at - 1]].epoch if at else -1
            after = runs[chain[at]].epoch if at < len(chain) else before
            yield self._odd_epoch(run, before if before >= 0 else after)
        yield from self._check_epochs([runs[number] for number in chain])

    def _odd_epoch(self, run: EpochRun, expected: int) -> Finding:
        is_flipped = one_bit_apart(run.epoch, expected)
        fix = byte_fix(run.position + LEADER_EPOCH_POSITION, run.epoch, expected, 4) if is_flipped else None
        why = "" if fix is None else f": {fix} (in the leader epoch)"
        message = f"leader epoch {run.epoch}, the batches around have {expected}{why}"
        span = run.position, run.first_offset
        return Finding(Severity.ERROR, Code.EPOCHS_NOT_RISING, str(run.path), message, *span, fix=fix)

    def _check_epochs(self, runs: Sequence[EpochRun]) -> Iterator[Finding]:
        """Checks both ends of each, which is enough, as epochs rise."""
        epochs = self._epochs
        if epochs is None or any(after.start_offset < before.start_offset for before, after in pairwise(epochs)):
            return  # the latter is a finding of its own
        looked_at = [(run.epoch, run.first_offset) for run in runs]
        looked_at += [(before.epoch, after.offset_before) for before, after in pairwise(runs)]
        looked_at += [(runs[-1].epoch, self._end_offset - 1)] if runs else []
        for of_log, offset in sorted(looked_at, key=lambda pair: pair[1]):
            number = bisect_right(epochs, offset, key=lambda entry: entry.start_offset) - 1
            of_cache = epochs[number].epoch if number >= 0 else of_log  # below the log's start it knows nothing
            if of_log >= 0 and of_cache != of_log:
                message = f"epoch {of_cache} at offset {offset}, by the log {of_log}"
                path = self._directory / LEADER_EPOCH_CHECKPOINT
                yield Finding(Severity.WARNING, Code.LEADER_EPOCHS_MISMATCH, str(path), message, offset=offset)
                return

    # --- producers

    def _check_snapshot(self, offset: int) -> None:
        path = self._snapshots.get(offset)
        if path is None:
            return
        try:
            entries = iter_producer_snapshot(path)
            self._snapshot_findings += self._producers.check_snapshot(entries, path, self._start_offset)
        except (FileNotFoundError, CorruptRecordError):  # the latter is a finding of its own
            return
        except OSError as error:
            raise access_error(error, path, "read") from error


def _runs_in_order(log_map: LogMap) -> Iterator[EpochRun]:
    """Yields the runs of one leader epoch as they will be when each batch stands where it belongs."""
    last_epoch, next_offset, batches = -1, log_map.start_offset, 0
    for piece in log_map.log:
        for batch in log_map.read(piece):
            if isinstance(batch, RecordBatch) and batch.partition_leader_epoch != last_epoch:
                last_epoch = batch.partition_leader_epoch
                path = log_map.files[piece.file].path
                yield EpochRun(last_epoch, batch.base_offset, next_offset - 1, path, batch.position, batches)
            next_offset, batches = batch.last_offset + 1, batches + 1


def map_findings(log_map: LogMap, *, is_live: bool = False) -> Iterator[Finding]:
    """Reports each damage once, with all its losses; missing offsets; and files and batches out of place. If somebody
    writes to the log, ignores the bytes at its end.
    """
    from core.forensics.batch_order import Displaced, Fate

    end_offset = log_map.sound_end if is_live else 1 << 63
    holes = [hole for hole in log_map.holes if hole.reason in LOSSES and hole.start < end_offset]
    costly = {id(hole.damage) for hole in holes if hole.damage is not None}
    for hole in holes:
        if hole.reason is not HoleReason.TRUNCATED:
            yield hole_finding(hole)
    yield from _wrong_files(log_map)
    tail = log_map.tail
    for number, damage in log_map.damage:
        if number in log_map.copies:
            continue
        is_tail = tail is not None and damage is tail.damage
        if is_tail and tail is not None and tail.kind is TailKind.PREALLOCATED:
            continue
        if id(damage) not in costly and not (is_live and is_tail):
            offset = log_map.sound_end if is_tail else -1
            yield damage_finding(damage, log_map.files[number].path, offset)
    for one in log_map.displaced:
        if one.fate in (Fate.PLACED, Fate.REPEATED) and one.piece.file not in log_map.copies:
            yield displaced_finding(one, log_map.files[one.piece.file].path)
    out_of_order = {(one.piece.file, one.piece.position) for one in log_map.displaced}
    for piece in log_map.log:
        if (piece.file, piece.position) not in out_of_order and log_map.file_of(piece.base_offset) != piece.file:
            one = Displaced(piece, Fate.PLACED, piece.base_offset)
            yield displaced_finding(one, log_map.files[piece.file].path)


def _wrong_files(log_map: LogMap) -> Iterator[Finding]:
    """Reports files without a batch of the log, and those whose name can't be right."""
    from core.forensics.batch_order import Fate

    for number in sorted(log_map.copies):
        file = log_map.files[number]
        strays = [one for one in log_map.displaced if one.piece.file == number and one.fate is Fate.STRAY]
        yield useless_finding(file.path, file.file.size(), strays)
    for number in sorted(log_map.misnamed - log_map.copies):
        file = log_map.files[number]
        yield misnamed_finding(file.path, file.base_offset, file.file.size())


# --- what the data directory says of its partitions


class DataDirectoryMetadata:
    """Reads one root once, before its logs, which only grow. Files that don't parse are findings of their own.
    `is_locked`: the caller holds the directory's lock.
    """

    def __init__(self, root: Path, *, is_locked: bool = False) -> None:
        self._root = root
        self._is_locked = is_locked
        self._evidence = KnownOffsetsOfDirectory(root)
        self._is_root = (root / META_PROPERTIES).exists()

    @property
    def image(self) -> MetadataImage | None:
        """Returns the image that the metadata log adds up to, or None if there is no log, or it can't be read."""
        return None if isinstance(self._image_or_error, PlogError) else self._image_or_error

    @property
    def image_error(self) -> PlogError | None:
        """Returns why the metadata log can't be read, or None: AccessError if the system refuses it."""
        return self._image_or_error if isinstance(self._image_or_error, PlogError) else None

    @property
    def why_no_image(self) -> str:
        """Says why there is no `image`, in words."""
        error = self.image_error
        return "the directory has no metadata log" if error is None else error.message

    @cached_property
    def _image_or_error(self) -> MetadataImage | PlogError | None:
        folder = self._root / f"{CLUSTER_METADATA_TOPIC}-0"
        if not os.path.lexists(folder):
            return None
        what = "the metadata log can't be read"
        if not folder.is_dir():
            return AccessError(f"{what}: {folder} is no folder", where=str(folder))
        from core.cluster.image.metadata_log import read_metadata_image

        try:
            return read_metadata_image(self._root, is_locked=self._is_locked)
        except (AccessError, UnreadableFileError, OSError) as error:
            return AccessError(f"{what}: {error}", where=str(folder))
        except PlogError as error:
            return PlogError(f"{what}: {error}")

    @property
    def topic_ids(self) -> dict[str, bytes]:
        return {} if self.image is None else {name: topic.topic_id for name, topic in self.image.topics.items()}

    def of(self, partition: TopicPartition | None, directory: Path) -> Surroundings:
        """Returns the facts about the partition in that folder. Raises OSError if the folder can't be read."""
        unreadable = tuple(find_unreadable_files(directory))
        evidence = replace(self._evidence.of(directory, partition), unreadable=unreadable)
        return Surroundings(evidence, None if partition is None else self._is_compacted(partition))

    def _is_compacted(self, partition: TopicPartition) -> bool | None:
        """Says whether compaction may have been at work, as in each internal topic, where Kafka's coordinators do not
        number their records, either; None if that is not known.
        """
        is_cleaned = self._evidence.find_offset(CLEANER_CHECKPOINT, partition) is not None
        if is_cleaned or partition.topic in INTERNAL_TOPICS:
            return True
        if self.image is not None and "compact" in self.image.topic_configs(partition.topic).get("cleanup.policy", ""):
            return True
        return False if self._is_root else None
