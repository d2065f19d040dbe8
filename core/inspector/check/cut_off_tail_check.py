"""Reports sound records that no reader gets: files hold what starts cut off a log's end (`cut_off_tails`).

The bytes were not flushed when the machine or the process stopped, and stood after damage; but what was acknowledged
may be among them. Also what was gone at the log's end, by the indexes and snapshots that starts set aside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core.common.salvaging_file import open_salvaging, unreadable_error
from core.forensics.batch_order import Fate
from core.forensics.cut_off_tails import CutOffTail, find_cut_off_tails, find_lost_ends
from core.forensics.known_offsets import KnownOffsets
from core.forensics.log_map import LogFile, LogMap
from core.forensics.missing_offsets import Hole, offsets_are, offsets_text
from core.forensics.partition_reader import PartitionReader
from core.inspector.check.findings import Code, Finding, Severity, unreadable_finding
from core.records.batches import Batch, count_records, first_offset_of


class _Extent(NamedTuple):
    start: int
    end: int
    crc: int


def cut_off_findings(reader: PartitionReader) -> Iterator[Finding]:
    """Yields a finding for each file that holds sound records which the log has not, or that can't be read; and for
    each segment, or end of the log, that was gone when a start opened it.
    """
    yield from _lost_end_findings(reader)
    for cut in find_cut_off_tails(reader.directory):
        try:
            batches = _batches_of(cut)
        except OSError as error:
            yield unreadable_finding(unreadable_error(error, cut.path))
            continue
        log = _extents_of_log(reader, [extent for extent, _ in batches])
        left = [(extent, records) for extent, records in batches if extent not in log]
        records = sum(records for _, records in left)
        if records:
            extents = [extent for extent, _ in left]
            start, end = extents[0].start, max(extent.end for extent in extents)
            used = _used(start, end, log)
            became = "nothing was appended in their place since"
            if used is not None:
                became = f"{offsets_are(*used)} in the log with other records since"
            what = f"a start cut off {records} sound record{'s' * (records > 1)}, {offsets_text(start, end)}: "
            yield _finding(cut.path, what, became, (start, end), records, reader.start_offset)


def _finding(path: Path, what: str, became: str, offsets: tuple[int, int], records: int, log_start: int) -> Finding:
    start, end = offsets
    is_deleted = end <= log_start
    text = what + (f"they lie below the log's start at offset {log_start}" if is_deleted else became)
    severity, span = Severity.WARNING if is_deleted else Severity.ERROR, (-1, start, -1, end - 1)
    return Finding(severity, Code.CUT_OFF, str(path), text, *span, records)


def _used(start: int, end: int, log: Collection[_Extent]) -> tuple[int, int] | None:
    """Returns the range from the first to after the last of offsets [start, end) that the log holds, or None."""
    used = [(max(start, one.start), min(end, one.end)) for one in log if start < one.end and one.start < end]
    return (min(used)[0], max(used_end for _, used_end in used)) if used else None


def _lost_end_findings(reader: PartitionReader) -> Iterator[Finding]:
    for lost in find_lost_ends(reader.directory):
        start, end = lost.start, lost.end
        used = _used(start, end, _extents_of_log(reader, [_Extent(start, end, 0)]))
        became = "none of them was given again since"
        if used is not None:
            became = f"{offsets_are(*used)} in the log since, as other records unless somebody put the old ones back"
        what = f"the log ended at offset {start} when a start took it up, and had {offsets_text(start, end)} before"
        if lost.is_segment:
            what = (
                f"segment {start} was missing when a start set its indexes aside: at least {offsets_text(start, end)}"
            )
        yield _finding(lost.paths[0], f"{what}; ", became, (start, end), end - start, reader.start_offset)


def _batches_of(cut: CutOffTail) -> list[tuple[_Extent, int]]:
    """Returns the file's sound batches in order, as the one reader takes them, each with its number of records.
    Includes batches of other offsets than its name says: the log may have been cut because its files had swapped names.
    """
    with contextlib.closing(open_salvaging(cut.path)) as file:
        log_map = LogMap([LogFile(cut.base_offset, cut.path, file)], KnownOffsets())
        others = [one.piece for one in log_map.displaced if one.fate in (Fate.STRAY, Fate.REPEATED)]
        pieces = sorted([*log_map.log, *others], key=lambda piece: piece.base_offset)
        return [(_extent_of(batch), count_records([batch])) for piece in pieces for batch in log_map.read(piece)]


def _extents_of_log(reader: PartitionReader, wanted: Sequence[_Extent]) -> set[_Extent]:
    if not wanted or wanted[0].start >= reader.reading.end_offset:
        return set()
    found, end = set[_Extent](), max(extent.end for extent in wanted)
    for item in reader.reading.items(wanted[0].start):
        if isinstance(item, Hole):
            continue
        found.add(_extent_of(item))
        if item.last_offset + 1 >= end:
            break
    return found


def _extent_of(batch: Batch) -> _Extent:
    return _Extent(first_offset_of(batch, 0), batch.last_offset + 1, batch.crc)
