"""Plans what `plog recover` does about the findings of `plog verify`. Reads only; `recovery` carries it out.

Salvage, the default: damaged bytes are taken out of their segment, every sound batch keeps its offset. Like Kafka: the
log ends where the first damage begins. With fixed bits: a batch that one known byte makes sound again is kept. The
files beside the logs are rebuilt from them.

Lost markers of transactions are written again. Every read_committed reader goes by markers, Kafka's clients too: they
hide a producer's records from the first aborted one up to its next abort marker. A transaction whose marker is gone
would be ended by the next marker of its producer, or never. If it is proven how it ended
(`core.forensics.transaction_resolution`), a marker that says so takes an offset that was lost; indexes and snapshots
can then be rebuilt from the log, by any program. If it is not proven, but the transaction has ended, its records can
only be shown or hidden: the user decides (`--accept-visible`).

The bytes that a start cut off a log's end (core.forensics.cut_off_tails) go back if nothing was written in their place
since: the log still ends where it was cut. The damage before and between their sound batches stays out, and its offsets
are given up. Everything else is the user's: its records can be read and produced again, under new offsets.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from core.common.errors import AccessError, CorruptRecordError
from core.common.salvaging_file import open_salvaging
from core.common.topic_partition import TopicPartition, uuid_text
from core.files.checkpoint_file import read_partition_metadata
from core.files.file_names import (
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SPARSE_INDEXES,
    base_offset_of,
    find_offset_files,
    locate_partition,
    offset_file_name,
    parse_offset_file_name,
    parse_partition_directory_name,
)
from core.files.file_records import FileRecords
from core.forensics.batch_order import Fate
from core.forensics.cut_off_tails import (
    CutOffTail,
    LostEnd,
    find_cut_off_tails,
    find_lost_ends,
    is_proof_of_lost_end,
)
from core.forensics.known_offsets import KnownOffsets
from core.forensics.log_map import LogFile, LogMap
from core.forensics.log_scanner import AFTER_ALL_OFFSETS
from core.forensics.missing_offsets import offsets_text
from core.forensics.partition_reader import PartitionReader
from core.forensics.recovered_layout import Stretch, lay_out
from core.forensics.recovery_journal import OffsetRange, joined_ranges
from core.forensics.transaction_resolution import LogContents, TransactionEvidence, TransactionFate
from core.index.transaction_index import AbortedTransaction
from core.inspector.check.file_kind import FileKind, ensure_there, kind_of
from core.inspector.check.findings import Code, Finding
from core.inspector.check.partition_check import DataDirectoryMetadata
from core.inspector.check.segment_check import OnBytes, VerifyOptions
from core.inspector.check.verify import verify
from core.inspector.recover.recovery_plan import Action, FolderPlan, RecoveryOptions, Step, gives_up
from core.records.batches import count_records
from core.records.control_record import FateKind, Marker


class _TransactionPlanner:
    def __init__(
        self,
        logs: Iterable[Path],
        lost: Sequence[OffsetRange],
        evidence: TransactionEvidence,
        fates: Sequence[TransactionFate],
    ) -> None:
        self._lost = joined_ranges((start, AFTER_ALL_OFFSETS if end is None else end) for start, end in lost)
        self._markers: dict[int, list[Marker]] = {}
        """By producer id, in order of offsets."""
        for event in evidence.events:
            if isinstance(event, Marker):
                self._markers.setdefault(event.producer_id, []).append(event)
        self._fates: dict[int, list[TransactionFate]] = {}
        """By producer id, in order of offsets: the transactions that keep records."""
        for fate in fates:
            if self._is_kept(fate):
                self._fates.setdefault(fate.producer_id, []).append(fate)
        self._logs = sorted((parsed[0], path) for path in logs if (parsed := parse_offset_file_name(path.name)))
        self._taken: set[int] = set()
        self._looked_to: dict[int, int] = {}
        """By the start of a range of missing offsets: the offset up to which none of them is free."""
        self._evidence = evidence

    def steps_of(self, fate: TransactionFate) -> Iterator[Step]:
        if not self._is_kept(fate) or fate.fate is FateKind.OPEN:
            return
        is_unknown = fate.fate is FateKind.UNKNOWN
        if is_unknown and not fate.is_ended:
            why = "whether its transaction ended can't be told; it stays open: plog transaction find-hanging"
            yield self._step(Action.LEAVE_OPEN, fate, f"{why}: {fate.evidence}")
            return
        if is_unknown and self._may_come_back(fate):
            why = "aborted or not can't be told; readers of the files leave them out, a broker goes by its producer's "
            why += "next marker, until the missing offsets are here or given up"
            yield self._step(Action.NONE, fate, f"{why}: {fate.evidence}")
            return
        is_commit = fate.fate is not FateKind.ABORTED
        ends_so = self._next_kept_marker(fate)
        marker = None
        is_ended_right = ends_so is not None and ends_so.is_commit == is_commit
        if not is_ended_right or self._is_followed_by_another(fate, ends_so):
            offset = self._find_place(fate)
            if offset is None and fate.fate is FateKind.ABORTED and fate.marker_offset is not None:
                return  # the missing marker may come back; until then the index shows the abort
            if offset is None and not is_unknown and is_ended_right:
                return
            if offset is None and not is_ended_right:
                why = "no offset is free for the marker of its transaction"
                yield self._step(Action.LEAVE_OPEN, fate, f"{why}: {fate.evidence}")
                return
            if offset is not None:
                marker = self._make_marker(fate, offset, is_commit=is_commit)
        if is_unknown:
            why = "aborted or not can't be told; they will be visible to read_committed"
            yield self._step(Action.SHOW, fate, f"{why}: {fate.evidence}", marker)
        elif marker is not None:
            why = f"the transaction of producer {fate.producer_id} was {fate.fate}, and its marker is lost"
            yield self._step(Action.WRITE_MARKER, fate, f"{why}: {fate.evidence}", marker)

    def left_open(self, fates: Sequence[TransactionFate]) -> Iterator[Step]:
        for fate in fates:
            if self._is_kept(fate) and fate.fate is not FateKind.OPEN and self._next_kept_marker(fate) is None:
                why = f"the transaction of producer {fate.producer_id} stays open, as with Kafka's own recovery"
                yield self._step(Action.LEAVE_OPEN, fate, f"{why}; plog transaction find-hanging")

    def still_proven(self) -> list[AbortedTransaction]:
        """Returns the transactions that only a transaction index shows, and must go on showing."""
        seen = {marker.offset for markers in self._markers.values() for marker in markers} | self._taken
        return [entry for entry in self._evidence.proven_aborted() if entry.last_offset not in seen]

    def _may_come_back(self, fate: TransactionFate) -> bool:
        """Says whether its marker may be among offsets that are missing, and not given up."""
        return any(not self._is_lost(offset) for gap in fate.missing for offset in self._ends_of_losses(*gap))

    def _ends_of_losses(self, start: int, end: int) -> Iterator[int]:
        """Yields some offsets of [start, end): if any of the range is kept, one of these is."""
        yield start
        yield from (last for _, last in self._lost if start < last < end)

    def _is_kept(self, fate: TransactionFate) -> bool:
        return any(not self._is_lost(base) for base, _ in fate.batches)

    def _is_lost(self, offset: int) -> bool:
        at = bisect_right(self._lost, offset, key=itemgetter(0))
        return at > 0 and offset < self._lost[at - 1][1]

    def _next_kept_marker(self, fate: TransactionFate) -> Marker | None:
        markers = self._markers.get(fate.producer_id, [])
        later = range(bisect_right(markers, fate.last_offset, key=attrgetter("offset")), len(markers))
        return next((markers[number] for number in later if not self._is_lost(markers[number].offset)), None)

    def _is_followed_by_another(self, fate: TransactionFate, marker: Marker | None) -> bool:
        """Says whether its producer's next transaction comes before the marker: that may get a marker of its own."""
        fates = self._fates[fate.producer_id]
        at = bisect_right(fates, fate.last_offset, key=attrgetter("first_offset"))
        if at == len(fates) or (marker is not None and fates[at].first_offset > marker.offset):
            return False
        return fate.marker_offset is None or fates[at].marker_offset != fate.marker_offset

    def _find_place(self, fate: TransactionFate) -> int | None:
        """Finds a lost offset for its marker: where it was, or where it may have been. Offsets that are missing, and
        not given up, may come back. Returns None if none is left.
        """
        wanted = [] if fate.marker_offset is None else [(fate.marker_offset, fate.marker_offset + 1)]
        for start, end in [*wanted, *fate.missing]:
            for offset in range(self._looked_to.get(start, start), min(end, start + len(self._taken) + 1)):
                self._looked_to[start] = offset + 1
                if offset not in self._taken and self._is_lost(offset):
                    self._taken.add(offset)
                    return offset
        return None

    def _make_marker(self, fate: TransactionFate, offset: int, *, is_commit: bool) -> Marker:
        """Makes one of the epoch that comes next, if that is one more: that is how transactions of version 2 end."""
        epoch = fate.producer_epoch
        if fate.next_epoch is not None and fate.next_epoch > epoch:
            epoch += 1
        markers = self._markers.get(fate.producer_id, [])
        before = bisect_right(markers, offset, key=attrgetter("offset"))
        known = markers[max(before - 1, 0)] if markers else None
        coordinator_epoch = 0 if known is None else known.coordinator_epoch
        timestamp = known.timestamp if known is not None and known.offset == offset else -1
        return Marker(fate.producer_id, epoch, offset, is_commit, coordinator_epoch, timestamp)

    def _step(self, action: Action, fate: TransactionFate, why: str, marker: Marker | None = None) -> Step:
        """Returns the treatment of the transaction's records that are kept; the step is of the log that the marker is
        written to.
        """
        at = fate.last_offset if marker is None else marker.offset
        path = [path for base, path in self._logs if base <= at][-1]
        why = f"{fate.records_text}: {why}"
        if marker is not None:
            why += f"; {'commit' if marker.is_commit else 'abort'} marker at offset {marker.offset}"
        is_doubtful = action in (Action.SHOW, Action.NONE)
        doubtful = sum(last + 1 - base for base, last in fate.batches if not self._is_lost(base)) if is_doubtful else 0
        span = -1, -1, fate.first_offset, fate.last_offset
        return Step(action, path, why, *span, marker=marker, doubtful=doubtful)


_DAMAGE = {
    Code.CRC_MISMATCH,
    Code.BAD_MAGIC,
    Code.BAD_LENGTH,
    Code.TORN_TAIL,
    Code.ZEROED,
    Code.GARBAGE,
    Code.OFFSETS_NOT_RISING,
    Code.UNREADABLE,
}
_DISPLACED = {Code.BATCH_REPEATED, Code.BATCH_OUT_OF_ORDER, Code.SEGMENT_MISNAMED}
_OF_BATCHES = _DISPLACED | {Code.SEGMENT_MISSING, Code.OFFSETS_MISSING, Code.EPOCHS_NOT_RISING}
_MENDED_BY_NOBODY = {Code.OFFSETS_MISSING, Code.SEQUENCE_GAP}
"""Offsets missing before a log's end do not keep bytes from being put back there."""
_REBUILT = {
    Code.INDEX_MISSING,
    Code.INDEX_CORRUPT,
    Code.INDEX_MISMATCH,
    Code.TIME_INDEX_MISSING,
    Code.TIME_INDEX_CORRUPT,
    Code.TIME_INDEX_MISMATCH,
    Code.TRANSACTION_INDEX_CORRUPT,
    Code.TRANSACTION_INDEX_MISMATCH,
    Code.SNAPSHOT_CORRUPT,
    Code.SNAPSHOT_MISMATCH,
    Code.LEADER_EPOCHS_MISMATCH,
    Code.UNFINISHED_SWAP,
}


_MADE_FROM_THE_LOG = {
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
    FileKind.PRODUCER_SNAPSHOT,
    FileKind.LEADER_EPOCHS,
    FileKind.DAMAGED_RANGES,
}
_WHAT_TO_DO = "; make it readable (a permission, a disk that is not mounted) or move it away, then run this again"


def plan_recovery(
    path: Path, options: RecoveryOptions, *, is_locked: bool = False, on_bytes: OnBytes = lambda _size: None
) -> Iterator[FolderPlan]:
    """Yields the plan of each folder in which something is wrong: a data directory's partitions, then its root.

    `is_locked`: the caller holds the directory's lock. Raises AccessError if the path can't be read, or is a file.
    """
    ensure_there(path)
    if not path.is_dir():
        raise AccessError(
            f"{path} is no directory: a file is recovered with what stands beside it",
            where=str(path),
            hint="name the partition's folder, or the data directory",
        )
    by_folder: dict[Path, list[Finding]] = {}
    for finding in verify(path, on_bytes, VerifyOptions(is_locked=is_locked)):
        by_folder.setdefault(Path(finding.path).parent, []).append(finding)
    seen: set[Path] = set()
    for directory, findings in sorted(by_folder.items(), key=lambda item: (item[0] == path, item[0])):
        if directory.resolve() in seen:
            continue  # another link to a folder that is mended already
        seen.add(directory.resolve())
        if locate_partition(directory)[0] or find_offset_files(directory, LOG_SUFFIX):
            yield _Planner(directory, options, is_locked=is_locked).plan(findings)
        else:
            yield _plan_root(directory, findings)


class _Planner:
    def __init__(self, directory: Path, options: RecoveryOptions, *, is_locked: bool) -> None:
        self._options = options
        self._directory = directory
        self._is_locked = is_locked
        self._plan = FolderPlan(directory)
        self._put_back: RestorePlan | None = None
        self._cut_off: list[Finding] = []

    def plan(self, findings: list[Finding]) -> FolderPlan:
        damage = [f for f in findings if f.code in _DAMAGE and f.end_position >= 0]
        cut_off = self._cut_off = [f for f in findings if f.code is Code.CUT_OFF]
        others = [f for f in findings if f not in damage and f not in cut_off]
        damage.sort(key=lambda f: (f.path, f.position))
        self._plan.keeps_epochs = _keeps_epochs(findings)
        is_out_of_order = any(
            f.code in (Code.BATCH_OUT_OF_ORDER, Code.SEGMENT_MISNAMED) and not _is_useless(f) for f in others
        )
        if self._options.is_like_kafka and damage and is_out_of_order:
            # a log that has no single place to end at its first damage
            more = (
                "; batches of this log stand out of order, so that --like-kafka can't end it here; without that they "
            )
            more += "are put in order"
            self._plan.steps = [_step_for(finding, Action.NONE, more) for finding in findings]
            return self._plan
        if self._options.is_like_kafka and damage:
            self._truncate(damage)
        else:
            self._salvage(damage)
            if is_out_of_order:
                self._plan.layout = self._lay_out()
        self._plan.steps += _rebuilt_once([self._step_beside(finding) for finding in others])
        if cut_off:
            is_whole = not damage and all(f.code in _REBUILT or f.code in _MENDED_BY_NOBODY for f in others)
            with self._open() as reader:
                back = plan_restore(
                    cut_off, reader.reading.end_offset, is_whole=is_whole, accepts_missing=self._options.accepts_missing
                )
            self._plan.steps += back.steps
            self._plan.layout |= back.layout
            self._put_back = back if back.layout else None
        self._leave_traces()
        changed = {Path(f.path) for f in findings if f.code in _DAMAGE | _DISPLACED and f.end_position >= 0}
        changed -= {step.path for step in self._plan.steps if step.action is Action.SET_ASIDE}
        self._rebuild_beside(changed | self._plan.layout.keys())
        of_transactions = self._transaction_steps()
        self._plan.steps = _without_markers(self._plan.steps, of_transactions) + of_transactions
        return self._plan

    def _leave_traces(self) -> None:
        """Leaves the files of a missing segment as they are, until it is given up."""
        logs = {base_offset for base_offset, _ in find_offset_files(self._directory, LOG_SUFFIX)}
        for number, step in enumerate(self._plan.steps):
            name = step.path.name
            is_made_again = step.action is Action.REBUILD and base_offset_of(step.path) not in logs
            if is_made_again and self._plan.is_trace(name, logs):
                why = f"{step.why}; it stays as long as the segment is missing, whose trace it is"
                self._plan.steps[number] = replace(step, action=Action.NONE, why=why)

    def _open(self) -> contextlib.closing[PartitionReader]:
        return contextlib.closing(PartitionReader(self._directory, is_locked=self._is_locked))

    def _transaction_steps(self) -> list[Step]:
        """Plans for transactions of a partition that will have lost what the plan gives up; others may be missing."""
        plan, lost = self._plan, self._plan.lost()
        if not lost and not (plan.is_needed and plan.leaves_missing()):
            return []
        with self._open() as reader:
            known = reader.transaction_evidence
        logs = {path for _, path in find_offset_files(self._directory, LOG_SUFFIX)}
        logs -= {step.path for step in plan.steps if step.action is Action.SET_ASIDE}
        if self._put_back is not None:
            known = known.with_appended(self._put_back.contents, self._put_back.log_end)
            logs |= self._put_back.layout.keys()
        fates = known.fates()
        planner = _TransactionPlanner(logs, lost, known, fates)
        ordered = sorted(fates, key=lambda fate: (fate.fate is FateKind.UNKNOWN, fate.first_offset))
        if self._options.is_like_kafka:  # no marker is written, the transactions that the cut leaves open are named
            steps = list(planner.left_open(fates))
        else:
            steps = [step for fate in ordered for step in planner.steps_of(fate)]
        plan.aborted = planner.still_proven()
        return steps

    def _salvage(self, damage: list[Finding]) -> None:
        for finding in damage:
            path = Path(finding.path)
            if finding.fix is not None and self._options.fixes_bits:
                for fix in filter(None, (finding.fix, finding.base_offset_fix)):
                    span = fix.position, fix.position + 1, finding.offset, finding.last_offset
                    self._plan.steps.append(Step(Action.FIX, path, str(fix), *span, fix=fix))
                continue
            more = "" if finding.fix is None else "; --fix-bits would mend it"
            given_up = _count_sound(finding)
            if given_up:
                more += f"; its {given_up} records are sound, but nothing tells which offsets are theirs"
            offset = finding.offset if finding.last_offset >= 0 else -1
            counts = {"records": finding.records, "given_up": given_up}
            step = _step_for(finding, Action.CUT_OUT, more, offset=offset, **counts)
            self._plan.steps.append(step)

    def _lay_out(self) -> dict[Path, list[Stretch]]:
        """Plans every log that is to hold other batches than it does, or in another order."""
        with self._open() as reader:
            return lay_out(reader.reading.map, fixes_bits=self._options.fixes_bits)

    def _truncate(self, damage: list[Finding]) -> None:
        if self._options.fixes_bits:
            fixed = [f for f in damage if f.fix is not None]
            damage = [f for f in damage if f.fix is None]
            self._salvage(
                [f for f in fixed if not damage or (f.path, f.position) < (damage[0].path, damage[0].position)]
            )
        if not damage:
            return
        first = damage[0]
        path = Path(first.path)
        with self._open() as reader:
            log_map = reader.reading.map
            number = [file.path for file in log_map.files].index(path)
            after = [p for p in log_map.log if (p.file, p.position) >= (number, first.position)]
            given_up = sum(count_records(log_map.read(piece)) for piece in after)
            log_end = log_map.end_offset
        end_offset = min((p.base_offset for p in after), default=first.offset if first.offset >= 0 else log_end)
        offset = min(end_offset, first.offset) if first.offset >= 0 else end_offset
        why = f"{_why(first)}; the log ends here, as with Kafka's own recovery"
        lost = sum(f.records or 0 for f in damage)
        span = first.position, path.stat().st_size, offset, _last_offset(offset, log_end)
        step = Step(Action.TRUNCATE, path, why, *span, records=lost, given_up=given_up, is_to_end=True)
        self._plan.steps.append(step)
        self._set_aside_after(path, offset, log_end)

    def _set_aside_after(self, path: Path, offset: int, log_end: int) -> None:
        """Sets aside the segments after the one in which the log ends now, at that offset."""
        logs = find_offset_files(self._directory, LOG_SUFFIX)
        for number, (base_offset, later) in enumerate(logs):
            if base_offset <= base_offset_of(path):
                continue
            why = f"after the log's end at offset {offset}"
            last_offset = _last_offset(base_offset, logs[number + 1][0] if number + 1 < len(logs) else log_end)
            span = 0, later.stat().st_size, base_offset, last_offset
            self._plan.steps.append(Step(Action.SET_ASIDE, later, why, *span, is_to_end=True))

    def _rebuild_beside(self, logs: set[Path]) -> None:
        planned = {step.path for step in self._plan.steps}
        for log in sorted(logs):
            for suffix in SPARSE_INDEXES:
                path = log.with_suffix(suffix)
                if path not in planned:
                    self._plan.steps.append(Step(Action.REBUILD, path, "its log changes"))

    def _step_beside(self, finding: Finding) -> Step:
        code, path = finding.code, Path(finding.path)
        if code is Code.LOG_SHORT:
            more = "; files that name later offsets are made to fit"
            return _step_for(finding, Action.REBUILD, more, records=finding.records, is_to_end=True)
        if code in _OF_BATCHES:
            return self._step_for_batches(finding, path)
        if code is Code.LEADER_EPOCHS_MISMATCH and self._plan.keeps_epochs:
            return _step_for(finding, Action.NONE, "; it stays, as some batches' epochs are wrong")
        if code in _REBUILT:
            return _step_for(finding, Action.REBUILD)
        kind = kind_of(path)
        is_remade = code is Code.UNREADABLE and kind in _MADE_FROM_THE_LOG
        if is_remade or (code is Code.CHECKPOINT_CORRUPT and kind in (FileKind.LEADER_EPOCHS, FileKind.DAMAGED_RANGES)):
            return Step(Action.REBUILD, path, _why(finding))
        is_id_lost = code in (Code.METADATA_CORRUPT, Code.TOPIC_ID_MISMATCH, Code.UNREADABLE)
        if is_id_lost and path.name == PARTITION_METADATA:
            topic_id = _find_topic_id(self._directory)
            if topic_id is not None and topic_id != _topic_id_of(self._directory):
                self._plan.topic_id = topic_id
                return Step(Action.RESTORE, path, f"{_why(finding)}; the topic's id is {uuid_text(topic_id)}")
        return _step_for(finding, Action.NONE, _WHAT_TO_DO if code is Code.UNREADABLE else "")

    def _count_strays(self, path: Path) -> int:
        """The records of the sound batches of a log that no other file holds, and that are no part of the log."""
        with self._open() as reader:
            log_map = reader.reading.map
            strays = [
                one.piece
                for one in log_map.displaced
                if one.fate is Fate.STRAY and log_map.files[one.piece.file].path == path
            ]
            return sum(count_records(log_map.read(piece)) for piece in strays)

    def _say_at_hand(self, missing: Finding) -> str:
        """Names the files that a start set aside with records of missing offsets, before the user gives those up."""
        files = [
            f"{Path(found.path).name} ({offsets_text(found.offset, found.last_offset + 1)})"
            for found in self._cut_off
            if found.offset <= missing.last_offset
            and missing.offset <= found.last_offset
            and not is_proof_of_lost_end(Path(found.path).name)
        ]
        if not files:
            return ""
        return (
            f"; sound records of them are at hand in {', '.join(files)}: {_BY_HAND}; "
            "--accept-missing gives the offsets up when that is moved away"
        )

    def _step_for_batches(self, finding: Finding, path: Path) -> Step:
        if finding.code is Code.EPOCHS_NOT_RISING:
            fix = finding.fix
            if fix is None:
                return _step_for(finding, Action.NONE)
            return _step_for(finding, Action.FIX, position=fix.position, end_position=fix.position + 1, fix=fix)
        if finding.code in _DISPLACED:
            return replace(self._step_for_displaced(finding, path), offset=-1, last_offset=-1)
        at_hand = self._say_at_hand(finding)
        if self._options.accepts_missing and not at_hand:
            return _step_for(finding, Action.GIVE_UP, records=finding.records)
        missing = finding.last_offset + 1 - finding.offset
        if finding.code is Code.SEGMENT_MISSING:
            more = at_hand or "; --accept-missing gives them up; until then the segment's other files stay"
            return _step_for(finding, Action.MISSING, more, missing=missing)
        more = at_hand or "; ask a replica, or --accept-missing gives them up"
        return _step_for(finding, Action.NONE, more, missing=missing)

    def _step_for_displaced(self, finding: Finding, path: Path) -> Step:
        if finding.code is Code.SEGMENT_MISNAMED and not _is_useless(finding):
            return _step_for(finding, Action.SET_ASIDE)
        if finding.code is Code.BATCH_OUT_OF_ORDER:
            return _step_for(finding, Action.PUT_IN_ORDER)
        if finding.position > 0 or finding.end_position < path.stat().st_size:
            return _step_for(finding, Action.CUT_OUT)
        is_first = path == find_offset_files(self._directory, LOG_SUFFIX)[0][1]  # where the log begins
        action = Action.CUT_OUT if is_first else Action.SET_ASIDE
        return _step_for(finding, action, given_up=self._count_strays(path))


def _why(finding: Finding) -> str:
    return f"{finding.code}: {finding.message}"


def _step_for(finding: Finding, action: Action, more: str = "", **changes: Any) -> Step:
    """Makes a step of a finding's bytes and offsets, with `more` after its message; `changes` are fields of `Step`."""
    span = finding.position, finding.end_position, finding.offset, finding.last_offset
    return replace(Step(action, Path(finding.path), _why(finding) + more, *span), **changes)


def _is_useless(finding: Finding) -> bool:
    return finding.code is Code.SEGMENT_MISNAMED and finding.offset >= 0


def _rebuilt_once(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, with one for each file that is made again, however much is wrong with it."""
    count = Counter(step.path for step in steps if step.action is Action.REBUILD and not step.is_to_end)
    for step in steps:
        more = count[step.path] - 1
        if step.action is not Action.REBUILD or step.is_to_end or not more:
            yield step
        elif more > 0:
            yield replace(step, why=f"{step.why}; and {more} finding{'s' * (more > 1)} more")
            count[step.path] = 0


def _keeps_epochs(findings: Sequence[Finding]) -> bool:
    """Says whether some epochs in the log are wrong, and the checkpoint, which has the right ones, can be read."""
    is_wrong = any(f.code is Code.EPOCHS_NOT_RISING and f.fix is None for f in findings)
    return is_wrong and not any(
        f.code is Code.CHECKPOINT_CORRUPT and kind_of(Path(f.path)) is FileKind.LEADER_EPOCHS for f in findings
    )


def _count_sound(finding: Finding) -> int:
    """Counts the records of a batch that is sound, but no part of the log: its offsets are others'."""
    if finding.code is not Code.OFFSETS_NOT_RISING or finding.fix is not None:
        return 0
    with contextlib.closing(FileRecords(Path(finding.path), open_salvaging)) as records:
        return count_records(records.iter_batches(finding.position, finding.end_position))


def _without_markers(steps: Sequence[Step], of_transactions: Sequence[Step]) -> list[Step]:
    """The steps, with no marker counted as a lost record that is known to have been one, and is written again."""
    counted = list(steps)
    for marker in (one.marker for one in of_transactions if one.action is Action.WRITE_MARKER):
        for number, step in enumerate(counted):
            is_among = marker is not None and step.offset <= marker.offset <= step.last_offset
            if is_among and gives_up(step) and step.records:
                counted[number] = replace(step, records=step.records - 1)
                break
    return counted


def _last_offset(offset: int, end_offset: int) -> int:
    """Returns the last of offsets [offset, end_offset), or -1."""
    return end_offset - 1 if end_offset > offset else -1


def _find_topic_id(directory: Path) -> bytes | None:
    """Returns a partition's topic id by the metadata log, or by the topic's other partitions if they agree, or None."""
    partition, root = locate_partition(directory)
    if partition is None:
        return None
    known = DataDirectoryMetadata(root).topic_ids.get(partition.topic)
    if known is not None:
        return known
    found = {_topic_id_of(path) for path in root.iterdir() if _is_sibling(path, partition)} - {None}
    return found.pop() if len(found) == 1 else None


def _is_sibling(path: Path, partition: TopicPartition) -> bool:
    other = parse_partition_directory_name(path.name)
    return other is not None and other.topic == partition.topic and other != partition


def _topic_id_of(directory: Path) -> bytes | None:
    try:
        return read_partition_metadata(directory)
    except (CorruptRecordError, OSError):
        return None


# --- bytes that a start cut off

_BY_HAND = "plog dump-segment shows its records, plog help 3am says how to produce them again"
_MEND_FIRST = "what else is wrong with the log is mended first; then run this again"


@dataclass(slots=True)
class RestorePlan:
    """`layout` is the new contents of each log, as in `FolderPlan`; `contents` are of the transactions that come back,
    after `log_end`.
    """

    log_end: int
    steps: list[Step] = field(default_factory=list)
    layout: dict[Path, list[Stretch]] = field(default_factory=dict)
    contents: LogContents = field(default_factory=LogContents)


def plan_restore(
    findings: Sequence[Finding], log_end: int, *, is_whole: bool, accepts_missing: bool = False
) -> RestorePlan:
    """Plans by a folder's findings; its log ends at `log_end`, and `is_whole` if nothing else has to be mended."""
    directory = Path(findings[0].path).parent
    by_path = {Path(finding.path): finding for finding in findings}
    lost = [(one, by_path.pop(one.paths[0])) for one in find_lost_ends(directory) if one.paths[0] in by_path]
    targets = _targets([cut for cut in find_cut_off_tails(directory) if cut.path in by_path], by_path, log_end)
    plan = RestorePlan(log_end)
    if targets and is_whole:
        _put_back(plan, targets, by_path)
    for path, finding in by_path.items():
        is_fitting = any(cut.path == path for cut in targets)
        if not is_fitting or not is_whole:
            plan.steps.append(_step_for(finding, Action.NONE, f"; {_MEND_FIRST if is_fitting else _BY_HAND}"))
    for end, finding in lost:
        plan.steps += _steps_for_lost_end(end, finding, accepts_missing=accepts_missing)
    return plan


def _steps_for_lost_end(end: LostEnd, finding: Finding, *, accepts_missing: bool) -> list[Step]:
    """Leaves the files that a start set aside as proof, until the user gives the records up."""
    if accepts_missing:
        return [Step(Action.SET_ASIDE, path, _why(finding)) for path in end.paths]
    more = "; ask a replica; --accept-missing gives them up, until then this file stays"
    return [_step_for(finding, Action.NONE, more)]


def _targets(cuts: Sequence[CutOffTail], by_path: Mapping[Path, Finding], log_end: int) -> dict[CutOffTail, Path]:
    """Returns the files that can go back, in order, and the log that each is a part of. None if one that holds offsets
    after the log's end can't: records were appended since the cut, or two hold the same offsets, and which to keep is
    no choice of ours.
    """
    targets: dict[CutOffTail, Path] = {}
    logs = find_offset_files(cuts[0].path.parent, LOG_SUFFIX) if cuts else []
    cuts = [cut for cut in cuts if by_path[cut.path].last_offset >= log_end]  # other records have all of the others'
    if not logs or not cuts:
        return targets
    ranges = sorted((by_path[cut.path].offset, by_path[cut.path].last_offset) for cut in cuts)
    if ranges[0][0] < log_end or any(start <= last for (_, last), (start, _) in pairwise(ranges)):
        return targets
    base_offset, path = logs[-1]
    for cut in cuts:
        log = path.with_name(offset_file_name(cut.base_offset, LOG_SUFFIX))
        is_its_end = cut.base_offset == base_offset and cut.position == path.stat().st_size
        is_segment = cut.base_offset > base_offset and cut.position == 0
        is_between = cut.base_offset >= log_end and not any(start < cut.base_offset <= last for start, last in ranges)
        if log in targets.values() or not (is_its_end or (is_segment and is_between)):
            return {}
        targets[cut] = log
    return targets


def _put_back(plan: RestorePlan, targets: Mapping[CutOffTail, Path], by_path: Mapping[Path, Finding]) -> None:
    cuts = list(targets)
    with contextlib.ExitStack() as opened:
        files = []
        for number, cut in enumerate(cuts):
            file = open_salvaging(cut.path)
            opened.callback(file.close)
            files.append(LogFile(cut.base_offset if number else plan.log_end, cut.path, file))
        log_map = LogMap(files, KnownOffsets())
        kept = dict.fromkeys(cuts, 0)
        for piece in log_map.log:
            cut = cuts[log_map.file_of(piece.base_offset)]
            stretches = plan.layout.setdefault(targets[cut], [])
            if not stretches and targets[cut].exists():
                stretches.append(Stretch(targets[cut], 0, targets[cut].stat().st_size))
            stretches.append(Stretch(cuts[piece.file].path, piece.position, piece.end_position))
            for batch in log_map.read(piece):
                kept[cuts[piece.file]] += count_records([batch])
                plan.contents.take(batch)
        log_end = log_map.log[-1].end_offset
        for cut in cuts:
            finding = by_path[cut.path]
            given_up = (finding.records or 0) - kept[cut]
            plan.steps.append(_step_for(finding, Action.PUT_BACK, given_up=given_up))
        for hole in log_map.holes:
            if hole.start < log_end:
                plan.contents.pass_over(hole)
                why = f"{hole.reason}: {hole.evidence}"
                span = -1, -1, hole.start, hole.end - 1
                plan.steps.append(Step(Action.GIVE_UP, hole.path, why, *span, records=hole.records))


# --- a data directory's root

_STARTS_ARE_LOST = (
    "; the file holds where logs begin after DeleteRecords: without it, deleted records come back if their segment "
    "is still there; restore the file from a copy if there is one"
)


def _plan_root(directory: Path, findings: list[Finding]) -> FolderPlan:
    plan = FolderPlan(directory)
    for finding in findings:
        path = Path(finding.path)
        why = _why(finding)
        # a folder would be a partition's under the name that it is set aside by
        is_checkpoint = kind_of(path) is FileKind.OFFSET_CHECKPOINT and not path.is_dir()
        action = Action.NONE
        if finding.code is Code.CHECKPOINT_CORRUPT or (finding.code is Code.UNREADABLE and is_checkpoint):
            action = Action.SET_ASIDE
            if path.name == LOG_START_OFFSET_CHECKPOINT:
                why += _STARTS_ARE_LOST
        elif finding.code in (Code.LOG_START_WRONG, Code.HIGH_WATERMARK_WRONG):
            action, right = Action.RESTORE, max(finding.offset, 0)
            topic, partition, _ = path.read_bytes()[finding.position : finding.end_position].decode().split()
            plan.right_lines[path.name, TopicPartition(topic, int(partition))] = right
            is_out = "; the line is removed: the log begins with its first segment"
            why += f"; the line is set to {right}" if right else is_out
        elif finding.code is Code.UNREADABLE:
            why += _WHAT_TO_DO
        plan.steps.append(Step(action, path, why))
    return plan
