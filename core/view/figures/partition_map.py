"""A partition's segments to scale, with their known damage and open transactions.

It comes from the folder's listing, the batches at the log's end, the newest snapshot and a broker's ledger of damage,
so that it takes no longer for a large log. Damage that only a reading of the whole log finds comes from `plog verify`,
if its findings are given; the map says if they are not.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from enum import Enum
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, accessing
from core.common.salvaging_file import unreadable_error
from core.files.file_names import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SPARSE_INDEXES,
    SWAP_SUFFIX,
    find_offset_files,
    parse_offset_file_name,
)
from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage
from core.forensics.log_scanner import AFTER_ALL_OFFSETS, SegmentReader
from core.forensics.missing_offsets import Tail, TailKind, offsets_are
from core.forensics.read_committed import find_open_transactions
from core.inspector.check.findings import Finding, Severity
from core.log.damaged_ranges import read_damaged_ranges
from core.records.batches import stated_offset
from core.records.record_batch import NO_TIMESTAMP

_MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of the log after the last entry of its index, or its newest snapshot, whose headers are read."""
_MOST_SEGMENTS = 128
"""How many segments are opened after the newest snapshot, and before it, for transactions that began there."""
_SMALL_BYTES = 4 * 1024 * 1024


class Sign(Enum):
    """The mark of a stretch of the log: a letter, so that a terminal without colours shows it as well."""

    UNKNOWN = "?"
    NONE = "."
    OPEN = "o"
    WARNING = "w"
    ERROR = "X"


class MapSegment(NamedTuple):
    """A segment's log, at bytes [start, end) of the map. `problem` says why it is unreadable, `missing` names its
    missing indexes.
    """

    path: Path
    base_offset: int
    start: int
    size_bytes: int
    missing: list[str]
    problem: str = ""

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    @property
    def name(self) -> str:
        return self.path.name


_BASE, _START, _END = map(attrgetter, ("base_offset", "start", "end"))


class Mark(NamedTuple):
    """A mark at bytes [start, end) of the map, in segment `number` or, for a transaction, from there on; `offset` is
    the place to look at. `what` is a text or a finding of `plog verify`.
    """

    start: int
    end: int
    number: int
    offset: int
    sign: Sign
    what: str | Finding


class MapCell(NamedTuple):
    """Bytes [start, end) of the map, of segments number `first` to `last`."""

    start: int
    end: int
    first: int
    last: int
    damage: Sign
    open: Sign


class SegmentFacts(NamedTuple):
    """Facts about a segment, whose offsets end before `end_offset`. Timestamps are that of its first batch, and the
    largest in its time index; -1 if it is unknown.
    """

    segment: MapSegment
    end_offset: int | None
    first_timestamp: int
    largest_timestamp: int
    damage: list[Mark]
    open: list[Mark]


class PartitionMap(NamedTuple):
    """The segments lie end to end in order of their offsets. The log's last sound batch ends before `end_offset`, None
    if it is unknown, at byte `sound_end`.
    """

    directory: Path
    segments: list[MapSegment]
    end_offset: int | None
    sound_end: int
    damage: list[Mark]
    is_checked: bool
    """Whether `damage` comes from `plog verify`."""
    notes: list[str]
    """Problems of the folder, and of files without a place in the log."""
    open: list[Mark] | None = None
    """The open transactions, each up to the log's end; None while they are not known."""
    open_problem: str = ""
    """Why they are unknown, after a search."""

    @property
    def size_bytes(self) -> int:
        return self.segments[-1].end if self.segments else 0

    @property
    def marks(self) -> list[Mark]:
        return sorted([*self.damage, *(self.open or ())], key=lambda mark: mark.start)

    def segment_at(self, position: int) -> int:
        """Returns the number of the segment that holds a byte of the map."""
        return min(bisect_right(self.segments, position, key=_END), len(self.segments) - 1)

    # --- transactions

    def find_open(self) -> PartitionMap:
        """Adds the transactions that are open at the log's end, or why they are unknown: from the newest snapshot and
        the headers of the batches after it.
        """
        held = [one for one in self.segments if one.size_bytes]
        if self.end_offset is None:
            return self._replace(open_problem="the log's end is not known")
        if not held:
            return self._replace(open=[])
        try:
            found = find_offset_files(self.directory, SNAPSHOT_SUFFIX)
            snapshot = max((offset for offset, _ in found if offset <= self.end_offset), default=0)
            first = max(bisect_right(held, snapshot, key=_BASE) - 1, 0)
            if self.size_bytes - held[first].start > _MOST_BYTES or len(held) - first > _MOST_SEGMENTS:
                return self._replace(open_problem="too much of the log follows its newest snapshot")
            with ExitStack() as opened:
                wanted = held[max(first - _MOST_SEGMENTS, 0) :]
                readers = [opened.enter_context(closing(_open(one))) for one in wanted]
                start_offset = wanted[0].base_offset
                ongoing = find_open_transactions(
                    self.directory, readers, start_offset, self.end_offset, lambda: _find_tail(held[-1], self.sound_end)
                )
                if ongoing is None:
                    return self._replace(open_problem="files are missing or damaged that would say so")
                return self._replace(open=[self._open_mark(readers, *one) for one in sorted(ongoing.items())])
        except (PlogError, OSError) as error:
            return self._replace(open_problem=str(error))

    def _open_mark(self, readers: Sequence[SegmentReader], producer_id: int, offset: int) -> Mark:
        number = max(bisect_right(self.segments, offset, key=_BASE) - 1, 0)
        segment = self.segments[number]
        position = max((one.position_before(offset) for one in readers if one.path == segment.path), default=0)
        text = f"from offset {offset} on, of producer {producer_id}"
        return Mark(_within(segment, position, 0)[0], self.size_bytes, number, offset, Sign.OPEN, text)

    # --- places

    def cells(self, count: int) -> list[MapCell]:
        """Cuts the map into so many cells of one size, or one for each byte if there are fewer."""
        size_bytes = self.size_bytes
        count = min(count, size_bytes)
        if not count:
            return []
        damage = [Sign.NONE if self.is_checked else Sign.UNKNOWN] * count
        opened = [Sign.UNKNOWN if self.open is None else Sign.NONE] * count
        for row, marks in ((damage, self.damage), (opened, self.open or ())):
            for mark in marks:
                first, last = (
                    ((min(byte, size_bytes - 1) + 1) * count - 1) // size_bytes
                    for byte in (mark.start, max(mark.end - 1, mark.start))
                )
                for number in range(first, last + 1):
                    if row[number] is not Sign.ERROR:
                        row[number] = mark.sign
        bounds = pairwise([number * size_bytes // count for number in range(count + 1)])
        return [
            MapCell(start, end, self.segment_at(start), bisect_left(self.segments, end, key=_START) - 1, *signs)
            for (start, end), *signs in zip(bounds, damage, opened, strict=True)
        ]

    def facts(self, number: int) -> SegmentFacts:
        """Reads a segment's first header and its time index."""
        segment = self.segments[number]
        first = largest = NO_TIMESTAMP
        with suppress(OSError, CorruptRecordError), closing(_open(segment)) as reader:
            is_small = segment.size_bytes <= _SMALL_BYTES
            largest = reader.max_timestamp if is_small else reader.time_index.last_entry().timestamp
            first = reader.records.read_header(0).max_timestamp
        is_last = number + 1 == len(self.segments)
        return SegmentFacts(
            segment=segment,
            end_offset=self.end_offset if is_last else self.segments[number + 1].base_offset,
            first_timestamp=first,
            largest_timestamp=largest,
            damage=[mark for mark in self.damage if mark.number == number],
            open=[mark for mark in self.open or () if mark.number <= number],
        )

    def offset_at(self, number: int, position: int) -> int:
        """Returns the first offset of the last batch that a segment's index has at or before a byte of the map, or else
        the segment's first offset.
        """
        segment = self.segments[number]
        with suppress(OSError, CorruptRecordError), closing(_open(segment)) as reader:
            index = reader.offset_index
            at = bisect_right(range(len(index)), position - segment.start, key=lambda entry: index.entry(entry)[1])
            if at:
                return max(stated_offset(reader.records.read_header(index.entry(at - 1)[1])), segment.base_offset)
        return segment.base_offset


# --- the listing


def read_map(directory: Path, findings: Sequence[Finding] | None = None) -> PartitionMap:
    """Lists the segments as they are now. `findings` are those of `plog verify` for the partition, None if it did not
    run. Raises AccessError if the folder can't be read.
    """
    segments = _list_segments(directory)
    notes = [f"{one.name} can't be read: {one.problem}" for one in segments if one.problem]
    if any(one.name.endswith(SWAP_SUFFIX) for one in segments):
        notes.append("a compaction was not finished: its segments wait to take the places of others")
    if findings is None:
        damage = [*_evident(segments), *_noted(directory, segments, notes)]
    else:
        damage = [mark for finding in findings if (mark := _placed(finding, segments)) is not None]
        if len(damage) < len(findings):
            notes.append(f"{len(findings) - len(damage)} of plog verify's findings are about files beside the log")
    end_offset, sound_end = _find_end(segments)
    is_checked = findings is not None
    return PartitionMap(directory, segments, end_offset, sound_end, damage, is_checked=is_checked, notes=notes)


def _list_segments(directory: Path) -> list[MapSegment]:
    """Lists the segments; a waiting `.swap` replaces the one of its name."""
    with accessing(directory):
        entries = {entry.name: entry for entry in os.scandir(directory)}
    logs: dict[int, str] = {}
    for name in sorted(entries):  # `.log.swap` after `.log`
        base_offset, suffix = parse_offset_file_name(name.removesuffix(SWAP_SUFFIX)) or (0, "")
        if suffix == LOG_SUFFIX:
            logs[base_offset] = name
    segments: list[MapSegment] = []
    for base_offset, name in sorted(logs.items()):
        path, size_bytes, problem = Path(entries[name].path), 0, "it is no file"
        try:
            if stat.S_ISREG((found := entries[name].stat()).st_mode):
                size_bytes, problem = found.st_size, "" if os.access(path, os.R_OK) else "permission denied"
        except OSError as error:
            problem = unreadable_error(error, path).cause
        indexes = [name.replace(LOG_SUFFIX, suffix) for suffix in SPARSE_INDEXES] if size_bytes else []
        missing = [index for index in indexes if index not in entries]
        start = segments[-1].end if segments else 0
        segments.append(MapSegment(path, base_offset, start, size_bytes, missing, problem))
    return segments


def _open(segment: MapSegment) -> SegmentReader:
    """Raises OSError if it can't be opened."""
    if segment.problem:
        raise OSError(f"{segment.name} can't be read")
    return SegmentReader(segment.path, segment.base_offset, FileSystem())


def _find_end(segments: Sequence[MapSegment]) -> tuple[int | None, int]:
    """Returns the offset after the last sound batch, and the byte where it ends; walks headers from the last index
    entry on. The offset is None if that is far from the log's end.
    """
    last = next((one for one in reversed(segments) if one.size_bytes or one.problem), None)
    if last is None:
        return segments[-1].base_offset if segments else 0, 0
    with suppress(OSError), closing(_open(last)) as reader:
        position, end_offset = reader.position_before(AFTER_ALL_OFFSETS), segments[-1].base_offset
        if last.size_bytes - position <= _MOST_BYTES:
            with suppress(CorruptRecordError):
                for batch in reader.records.iter_headers(position):
                    end_offset, position = max(end_offset, batch.next_offset), batch.position + batch.size_bytes
            return end_offset, last.start + position
    return None, 0


def _find_tail(last: MapSegment, sound_end: int) -> Tail | None:
    """Finds the bytes after the last sound batch, if they are only damage, and few."""
    if not 0 < last.end - sound_end <= _SMALL_BYTES:
        return None
    found = list(BatchScanner(last.path, last.base_offset, None).walk_from(sound_end - last.start))
    if len(found) != 1 or not isinstance(found[0], Damage):
        return None
    return Tail(TailKind.TORN, last.path, found[0])


# --- damage


def _evident(segments: Sequence[MapSegment]) -> Iterator[Mark]:
    for number, one in enumerate(segments):
        if one.problem:
            text = f"{one.name} can't be read: {one.problem}"
            yield Mark(one.start, one.end, number, one.base_offset, Sign.ERROR, text)
        for name in one.missing:
            yield Mark(one.start, one.start, number, one.base_offset, Sign.WARNING, f"{name} is missing")


def _noted(directory: Path, segments: Sequence[MapSegment], notes: list[str]) -> Iterator[Mark]:
    numbers = {one.base_offset: number for number, one in enumerate(segments)}
    try:
        ranges = read_damaged_ranges(directory)
    except (PlogError, OSError) as error:
        notes.append(str(error))
        return
    for one in ranges:
        if one.segment_base_offset in numbers:
            number = numbers[one.segment_base_offset]
            start, end = _within(segments[number], one.position, one.end_position)
            text = f"{offsets_are(one.start_offset, one.end_offset)} damaged, as a broker noted"
            yield Mark(start, end, number, one.start_offset, Sign.ERROR, text)


def _within(segment: MapSegment, position: int, end_position: int) -> tuple[int, int]:
    start = segment.start + min(position, max(segment.size_bytes - 1, 0))
    return start, max(min(segment.start + end_position, segment.end), start)


def _placed(finding: Finding, segments: Sequence[MapSegment]) -> Mark | None:
    """Places a finding: at its bytes of a log, or at all of it without any; at the first byte of the segment that
    follows missing ones, or whose index or snapshot it is about. Returns None for files without a segment.
    """
    name = Path(finding.path).name
    parsed = parse_offset_file_name(name.removesuffix(SWAP_SUFFIX))
    is_hole = finding.offset >= 0 and finding.position < 0 and name.endswith(LOG_SUFFIX)
    about = max(finding.offset, finding.last_offset + 1) if parsed is None or is_hole else parsed[0]
    if not segments or (parsed is None and finding.offset < 0):
        return None
    number = max(bisect_right(segments, about, key=_BASE) - 1, 0)
    segment = segments[number]
    start, end = _within(segment, 0, 0)
    if segment.name == name:
        start, end = _within(segment, max(finding.position, 0), finding.end_position)
        end = segment.end if finding.position < 0 else end
    offset = finding.offset if finding.offset >= 0 else segment.base_offset
    sign = Sign.ERROR if finding.severity is Severity.ERROR else Sign.WARNING
    return Mark(start, end, number, offset, sign, finding)
