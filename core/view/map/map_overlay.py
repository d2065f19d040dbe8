"""What a reading of the whole log says of the cells of a map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from core.files.file_names import INDEX_SUFFIXES
from core.forensics.gap_ledger import LOSING_REASONS, GapReason
from core.inspector.check.findings import Finding, Severity
from core.view.map.map_account import AFTER_ALL, MapAccount, MapFound
from core.view.map.map_cell import Fate, GapRun
from core.view.map.map_intervals import Intervals
from core.view.map.map_segments import MapSegment

_FATES = {GapReason.ABORTED: Fate.ABORTED, GapReason.OPEN: Fate.OPEN, GapReason.UNDECIDED: Fate.UNDECIDED}


class MapOverlay:
    """What was found until it was made; immutable."""

    def __init__(
        self, account: MapAccount, segments: Sequence[MapSegment], position_of: Callable[[int], int | None]
    ) -> None:
        """`position_of` gives the place of an offset on the axis."""
        self.found: MapFound = account.found
        self.mark = _mark_of(self.found)
        self._size_bytes = account.size_bytes
        known_offset, runs, findings = self.found.known_offset, list(self.found.runs), list(self.found.findings)
        self._known_offset = known_offset
        self._is_verified = self.found.is_verified
        self._runs = Intervals((run.start, run.end, run) for run in runs)
        self.losses = [run for run in runs if run.reason in LOSING_REASONS]
        """The gaps that a reader should not pass over in silence."""
        self.wrong_indexes: set[int] = set()
        """The numbers of segments with an index that `plog verify` finds something wrong with."""
        self.beside: list[Finding] = []
        """What is wrong with files that have no place on the axis."""
        self.places = sorted(self._place(findings, segments, position_of), key=lambda place: place[:2])
        self._findings = Intervals(self.places)

    def is_of(self, account: MapAccount) -> bool:
        """Whether the account has found nothing since."""
        return self.found is account.found and self.mark == _mark_of(account.found)

    def _place(
        self,
        findings: Iterable[Finding],
        segments: Sequence[MapSegment],
        position_of: Callable[[int], int | None],
    ) -> Iterator[tuple[int, int, Finding]]:
        logs = {str(segment.path): segment for segment in segments}
        indexes = {str(segment.file(suffix)): at for at, segment in enumerate(segments) for suffix in INDEX_SUFFIXES}
        for finding in findings:
            segment = logs.get(finding.path)
            if finding.path in indexes:
                self.wrong_indexes.add(indexes[finding.path])
            elif segment is not None and segment.size_bytes:
                yield *_bytes_of(finding, segment), finding
            else:
                position = position_of(finding.offset) if finding.offset >= 0 else None
                if position is None:
                    self.beside.append(finding)
                else:
                    yield position, position + 1, finding

    # --- cells

    def is_checked(self, end: int) -> bool:
        """Says whether a cell that ends there was checked."""
        return self._is_verified and end <= self._size_bytes

    def severity(self, start: int, end: int) -> Severity | None:
        found = {finding.severity for finding in self._findings.touching(start, end)}
        return next((one for one in (Severity.ERROR, Severity.WARNING) if one in found), None)

    def findings(self, start: int, end: int) -> list[Finding]:
        """Gives those of the bytes, in order."""
        return list(self._findings.touching(start, end))[::-1]

    def is_accounted(self, end: int, end_offset: int) -> bool:
        """Says whether all gaps of a cell are known that ends there."""
        return end <= self._size_bytes and not self.found.problem and self._known_offset >= min(end_offset, AFTER_ALL)

    def reasons(self, offset: int, end_offset: int) -> frozenset[GapReason]:
        return frozenset(run.reason for run in self._runs.touching(offset, end_offset))

    def runs(self, offset: int, end_offset: int) -> list[GapRun]:
        """Gives those that have some of the offsets, in order."""
        return list(self._runs.touching(offset, end_offset))[::-1]


def _mark_of(found: MapFound) -> tuple[object, ...]:
    return len(found.findings), len(found.runs), found.known_offset, found.is_verified, found.problem


def _bytes_of(finding: Finding, segment: MapSegment) -> tuple[int, int]:
    """Gives the finding's part of the axis: at least a byte of its segment, and all of it if no position is named."""
    if finding.position < 0:
        return segment.start, segment.end
    start = segment.start + min(finding.position, segment.size_bytes - 1)
    return start, max(min(segment.start + finding.end_position, segment.end), start + 1)


def fates_of(reasons: Iterable[GapReason]) -> frozenset[Fate]:
    """Gives what gaps say of transactions."""
    return frozenset(_FATES[reason] for reason in reasons if reason in _FATES)
