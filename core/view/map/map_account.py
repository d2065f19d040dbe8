"""What a partition's map knows only after all of the log was read: gaps, as `plog gaps` has them, damage and wrong
indexes, as `plog verify` does, and where batches begin in segments without an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from core.common.clock import Clock
from core.common.errors import CorruptRecordError, UnreadableFileError
from core.common.filesystem import File, FileSystem
from core.common.salvaging_file import open_salvaging
from core.common.topic_partition import TopicPartition
from core.files.file_records import FileRecords
from core.forensics.directory_reader import DirectoryReader
from core.forensics.gap_ledger import Gap, GapLedger
from core.forensics.partition_reader import PartitionReader
from core.inspector.check.findings import Finding
from core.view.files.checking import Checking, CheckProgress, CheckRun
from core.view.map.map_cell import GapRun
from core.view.map.map_segments import MapSegment

_MOST_FINDINGS = 10_000
_MOST_RUNS = 1 << 14
"""Gaps of one reason are kept as one if the log is not this many times as long as both together."""
_LOOK_BACK = 4
_LEAST_ANCHOR_BYTES = 4096
_MOST_ANCHORS = 4096
AFTER_ALL = 1 << 63


@dataclass(slots=True)
class MapFound:
    """What one run has found so far; written by its thread, read by any.

    I1 `runs` and `findings` only grow; runs are in order of where they begin
    I2 the gaps below `known_offset` are all in `runs`
    """

    findings: list[Finding] = field(default_factory=list)
    findings_left_out: int = 0
    is_verified: bool = False
    """Whether `findings` are all."""
    runs: list[GapRun] = field(default_factory=list)
    known_offset: int = 0
    start_offset: int = 0
    end_offset: int = 0
    records: int = 0
    hidden_records: int = 0
    problem: str = ""
    """Why the gaps can't be accounted for, if they can't."""
    anchors: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    """(last offset, position) of some batches of segments without an index."""

    @property
    def is_whole(self) -> bool:
        return self.known_offset == AFTER_ALL

    def check_invariants(self, before: MapFound) -> None:
        """Raises AssertionError if one does not hold; `before` is a copy of what it was earlier in the run."""
        assert self.findings[: len(before.findings)] == before.findings, "findings are gone"
        starts = [run.start for run in self.runs]
        assert starts == sorted(starts), "runs are not in order"
        assert all(run.start >= before.known_offset for run in self.runs[len(before.runs) :]), "a gap came late"


class MapAccount(Checking):
    """Reads a partition's folder as it was at the map's last look; locking as of `Checking`."""

    def __init__(self, path: Path, segments: list[MapSegment], *, clock: Clock | None = None) -> None:
        super().__init__(path, clock=clock)
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        """Of the axis that it is an account of."""
        self.found = MapFound()
        """Another one after the next start."""
        self._segments = segments

    def take(self, findings: Iterable[Finding], gaps: Iterable[Gap] | None) -> None:
        """Takes what somebody else has found, of the log as it was then: all findings of `plog verify`, and all gaps;
        None if they are not known. Not while a run is on.
        """
        found = self.found = MapFound(findings=list(findings), is_verified=True)
        for gap in gaps or ():
            _take_gap(found.runs, gap, 0)
        found.known_offset = 0 if gaps is None else AFTER_ALL

    def _begin(self) -> None:
        self.found = MapFound()

    @property
    def progress(self) -> CheckProgress:
        """Counts bytes that are read twice as two; whatever is read more often does not go beyond the total."""
        known = super().progress
        return known._replace(checked_bytes=min(known.checked_bytes, known.total_bytes))

    def _work(self, run: CheckRun) -> Callable[[], None]:
        part = _Part(self.found, run)
        run.total_bytes = 2 * self.size_bytes
        part.find_anchors(self._segments)
        part.verify(self.path)
        part.account(self.path)
        return lambda: None


class _Part:
    """One run's work."""

    def __init__(self, found: MapFound, run: CheckRun) -> None:
        self._found = found
        self._run = run

    def find_anchors(self, segments: list[MapSegment]) -> None:
        """Walks the headers of segments without an index."""
        for segment in segments:
            if segment.index_bytes or segment.problem or segment.size_bytes <= _LEAST_ANCHOR_BYTES:
                continue
            try:
                self._found.anchors[segment.path] = self._walk(segment)
            except OSError:
                continue  # verify says so, or it is gone

    def _walk(self, segment: MapSegment) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        distance = max(_LEAST_ANCHOR_BYTES, segment.size_bytes // _MOST_ANCHORS)
        with closing(FileRecords(segment.path, open_salvaging, size_bytes=segment.size_bytes)) as records:
            try:
                for number, batch in enumerate(records.iter_headers(0)):
                    if number % 64 == 0:
                        self._run.ensure_wanted()
                    if batch.position - (found[-1][1] if found else 0) >= distance:
                        found.append((batch.last_offset, batch.position))
            except CorruptRecordError:
                pass  # what follows is looked for in vain
        return found

    def verify(self, path: Path) -> None:
        from core.inspector.check.verify import verify  # a map that is only looked at does without

        found = self._found
        for finding in verify(path, self._run.add_bytes):
            self._run.ensure_wanted()
            if len(found.findings) < _MOST_FINDINGS:
                found.findings.append(finding)
            else:
                found.findings_left_out += 1
        found.is_verified = True

    def account(self, path: Path) -> None:
        reader = _CountedDirectory(path)
        partition = next(iter(reader.partitions), None)
        if partition is None or reader.partitions[partition] != path:
            self._found.problem = f"{path} has no segments any more"
            return
        try:
            with closing(reader.open_counted(partition, _CountedFileSystem(self._run.add_bytes))) as log:
                self._take_gaps(GapLedger(log, 0, log.end_offset), max(log.end_offset - log.start_offset, 0))
        except UnreadableFileError as error:
            self._found.problem = error.message

    def _take_gaps(self, ledger: GapLedger, length: int) -> None:
        found, close = self._found, length // _MOST_RUNS
        for gap in ledger:
            self._run.ensure_wanted()
            _take_gap(found.runs, gap, close)
            found.known_offset = gap.start
        found.start_offset, found.end_offset = ledger.start, ledger.end
        found.records, found.hidden_records = ledger.records, ledger.hidden_records
        found.known_offset = AFTER_ALL


def _take_gap(runs: list[GapRun], gap: Gap, close: int) -> None:
    """Adds a gap to one of the last runs, if that is of its reason and both together are shorter than `close`."""
    offsets = gap.end - gap.start
    for number in range(len(runs) - 1, max(len(runs) - _LOOK_BACK, 0) - 1, -1):
        last = runs[number]
        if last.reason is gap.reason and gap.end - last.start <= close:
            runs[number] = last._replace(end=gap.end, gaps=last.gaps + 1, offsets=last.offsets + offsets)
            return
    runs.append(GapRun(*gap, 1, offsets))


class _CountedDirectory(DirectoryReader):
    """A partition's folder whose files are opened by another file system."""

    def open_counted(self, partition: TopicPartition, filesystem: FileSystem) -> PartitionReader:
        """Raises what `open` raises."""
        return PartitionReader(
            self.partitions[partition],
            evidence=self._evidence,
            find_high_watermark=lambda: self._find_high_watermark(partition),
            filesystem=filesystem,
        )


class _CountedFile(File):
    """Counts what is read, which whoever counts may end by an error. It owns the file that it is made of."""

    __slots__ = ("_inner", "_on_bytes")

    def __init__(self, inner: File, on_bytes: Callable[[int], None]) -> None:
        super().__init__(inner.path, inner.fd)
        self._inner = inner
        self._on_bytes = on_bytes

    def read_at(self, size: int, position: int) -> bytes:
        data = self._inner.read_at(size, position)
        self._on_bytes(len(data))
        return data

    def close(self) -> None:
        self.fd = -1
        self._inner.close()


class _CountedFileSystem(FileSystem):
    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self._on_bytes = on_bytes

    def open_read(self, path: Path) -> File:
        file = super().open_read(path)
        return _CountedFile(file, self._on_bytes)
