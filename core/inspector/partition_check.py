"""Checks a partition's folder: its segments in order, and what is kept beside them against what they hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from core.common.bad_sectors import read_small_text
from core.common.errors import AccessError, CorruptRecordError, UnreadableFileError
from core.common.filesystem import access_error
from core.index.transaction_index import read_transaction_index
from core.inspector.findings import Code, Finding, Severity, corrupt_finding, unreadable_finding
from core.inspector.producer_check import ProducerCheck
from core.inspector.segment_check import OnBytes, SegmentCheck, VerifyOptions
from core.log.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_offset_files,
    find_unreadable_files,
)
from core.log.leader_epoch_cache import EpochEntry, parse_leader_epochs
from core.log.producer_snapshot import iter_producer_snapshot
from core.log.recovery_journal import is_lost, read_lost_offsets


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the data directory says of a partition; None where nothing does.

    `end_offset`: the largest that a checkpoint names, `end_source` which. `is_compacted`: whether its cleaner was here.
    """

    end_offset: int = 0
    end_source: str = ""
    is_compacted: bool | None = None


class PartitionCheck:
    """One partition; owned by one task."""

    def __init__(
        self,
        directory: Path,
        options: VerifyOptions,
        surroundings: Surroundings,
        *,
        is_live: bool = False,
    ) -> None:
        self._directory = directory
        self._options = options
        self._surroundings = surroundings
        self._is_live = is_live
        self._producers = ProducerCheck()
        self._epochs = self._read_epochs()
        self._epoch_findings: list[Finding] = []
        self._snapshots = dict(find_offset_files(directory, SNAPSHOT_SUFFIX))
        self._snapshot_findings: list[Finding] = []
        self._last_epoch = -1
        self._lost = read_lost_offsets(directory)
        self._producers.is_certain = not self._lost
        self._has_damage = False
        self.end_offset = 0

    def run(self, on_bytes: OnBytes) -> Iterator[Finding]:
        unreadable = {file.path: file for file in find_unreadable_files(self._directory)}
        logs = sorted(
            {*find_offset_files(self._directory, LOG_SUFFIX), *((f.offset, f.path) for f in unreadable.values())}
        )
        is_compacted = False
        holes: list[Finding] = []
        last: SegmentCheck | None = None
        for number, (base_offset, path) in enumerate(logs):
            if path in unreadable:
                yield self._unreadable(unreadable[path].error, logs[number + 1][0] if number + 1 < len(logs) else None)
                last = None
                continue
            if last is not None:
                yield from self._check_seam(last, base_offset, path, holes)
            self._check_snapshot(base_offset)
            following = logs[number + 1][0] if number + 1 < len(logs) else None
            check = SegmentCheck(
                path,
                base_offset,
                self._options,
                self._producers,
                self._see_epoch,
                is_active=self._is_live and number == len(logs) - 1,
                last_epoch=self._last_epoch,
                limit_offset=following,
                known_ends={o for o in (*self._snapshots, following) if o is not None and o > base_offset},
                expected_end=self._known_end()[0] if following is None else following,
            )
            try:
                yield from check.run(on_bytes)
            except AccessError as error:
                if path.exists():
                    yield Finding(Severity.ERROR, Code.UNREADABLE, str(path), error.message, 0, base_offset)
                    self._has_damage = True
                self._producers.forget()  # else its broker deleted it meanwhile
                last = None
                continue
            yield from self._check_transaction_index(check, is_complete=logs[0][0] == 0)
            self._last_epoch = check.last_epoch
            self._has_damage |= check.has_damage
            self.end_offset = check.end_offset
            is_compacted |= check.is_compacted
            holes += [self._hole(path, *hole) for hole in check.holes if not is_lost(self._lost, *hole[:2])]
            last = check
        self._check_snapshot(self.end_offset)
        self._check_epoch(self._last_epoch, self.end_offset - 1)
        if last is not None and not last.is_active:
            yield from self._check_end(last)
        yield from self._epoch_findings
        if not is_compacted and not self._has_damage and not self._lost:
            yield from self._uncompacted_findings(holes)
            yield from self._snapshot_findings

    def _unreadable(self, error: UnreadableFileError, following: int | None) -> Finding:
        """A segment of which nothing is known but that it is there."""
        self._has_damage = True
        self._producers.forget()
        finding = unreadable_finding(error)
        if following is None:
            return finding
        return replace(finding, last_offset=following - 1, records=following - finding.offset)

    def _uncompacted_findings(self, holes: list[Finding]) -> Iterator[Finding]:
        """Of a log that shows no compaction; holes between its batches may still be of it, and batches that they
        took then leave gaps in sequences as well.
        """
        if self._surroundings.is_compacted is False:
            yield from holes
            yield from self._producers.sequence_findings
        elif not holes and not self._surroundings.is_compacted:
            yield from self._producers.sequence_findings

    def _hole(self, path: Path, start: int, end: int, position: int) -> Finding:
        return Finding(
            Severity.WARNING,
            Code.OFFSETS_MISSING,
            str(path),
            f"no batch holds offsets {start} to {end - 1}; only compaction takes batches out, and this broker's "
            "cleaner was not here",
            position,
            start,
            last_offset=end - 1,
            records=end - start,
        )

    # --- where segments meet, and the end

    def _check_seam(
        self, before: SegmentCheck, base_offset: int, path: Path, holes: list[Finding]
    ) -> Iterator[Finding]:
        end_offset = before.end_offset
        if base_offset < end_offset:
            yield Finding(
                Severity.ERROR,
                Code.OFFSETS_NOT_RISING,
                str(path),
                f"the segment begins at offset {base_offset}, the one before ends at {end_offset - 1}",
                0,
                base_offset,
            )
        elif base_offset > end_offset and not before.has_damaged_end:
            if end_offset < before.known_end <= base_offset and not self._lost:
                yield _short(before, before.known_end, f"its index knows of offset {before.known_end - 1}")
            elif not is_lost(self._lost, end_offset, base_offset):
                holes.append(self._hole(path, end_offset, base_offset, 0))

    def _check_end(self, last: SegmentCheck) -> Iterator[Finding]:
        if last.has_damaged_end:
            return
        known_end, source = max(self._known_end(), (last.known_end, "its index"))
        if known_end > last.end_offset:
            yield _short(last, known_end, f"{source} knows of offset {known_end - 1}")

    def _known_end(self) -> tuple[int, str]:
        """What other files know of the log's end, and which."""
        return max(
            (max(self._snapshots, default=0), "a producer snapshot"),
            (self._surroundings.end_offset, self._surroundings.end_source),
        )

    # --- leader epochs

    def _read_epochs(self) -> list[EpochEntry] | None:
        path = self._directory / LEADER_EPOCH_CHECKPOINT
        try:
            return parse_leader_epochs(read_small_text(path), str(path))
        except FileNotFoundError:
            return None
        except CorruptRecordError:
            return None  # a finding of its own
        except OSError as error:
            raise access_error(error, path, "read") from error

    def _see_epoch(self, epoch: int, first_offset: int, last_offset_before: int) -> None:
        """A batch of another epoch than the one before: epochs rise, so that a look at both ends of each is enough."""
        self._check_epoch(self._last_epoch, last_offset_before)
        self._last_epoch = epoch
        self._check_epoch(epoch, first_offset)

    def _check_epoch(self, of_log: int, offset: int) -> None:
        if self._epochs is None or of_log < 0 or self._epoch_findings:
            return
        if any(after.start_offset < before.start_offset for before, after in pairwise(self._epochs)):
            return  # a finding of its own
        number = bisect_right(self._epochs, offset, key=lambda entry: entry.start_offset) - 1
        of_cache = self._epochs[number].epoch if number >= 0 else of_log  # below the log's start it knows nothing
        if of_cache != of_log:
            message = f"epoch {of_cache} at offset {offset}, by the log {of_log}"
            path = self._directory / LEADER_EPOCH_CHECKPOINT
            self._epoch_findings.append(
                Finding(Severity.WARNING, Code.LEADER_EPOCHS_MISMATCH, str(path), message, offset=offset)
            )

    # --- producers

    def _check_snapshot(self, offset: int) -> None:
        path = self._snapshots.get(offset)
        if path is None:
            return
        try:
            self._snapshot_findings += self._producers.check_snapshot(iter_producer_snapshot(path), path)
        except CorruptRecordError:
            return  # a finding of its own
        except FileNotFoundError:
            return
        except OSError as error:
            raise access_error(error, path, "read") from error

    def _check_transaction_index(self, segment: SegmentCheck, *, is_complete: bool) -> Iterator[Finding]:
        path = segment.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        try:
            entries = read_transaction_index(path)
        except FileNotFoundError:
            entries = []
        except OSError as error:
            raise access_error(error, path, "read") from error
        except CorruptRecordError as error:
            yield corrupt_finding(Code.TRANSACTION_INDEX_CORRUPT, error, path)
            list(self._producers.check_transaction_index([], path, 0, is_complete=False))
            return
        is_end_known = segment.end_offset in segment.known_ends  # an entry behind it is wrong then
        limit = 1 << 63 if is_end_known else segment.end_offset
        yield from self._producers.check_transaction_index(entries, path, limit, is_complete=is_complete)
        if not segment.is_active and not is_end_known:
            segment.known_end = max([segment.known_end, *(entry.last_offset + 1 for entry in entries)])


def _short(segment: SegmentCheck, known_end: int, how: str) -> Finding:
    return Finding(
        Severity.ERROR,
        Code.LOG_SHORT,
        str(segment.path),
        f"the log ends at offset {segment.end_offset}, {how}",
        offset=segment.end_offset,
        last_offset=known_end - 1,
        records=known_end - segment.end_offset,
    )
