"""Keeps the known damage of a partition's log: `damaged-ranges`, in its folder.

Damage below the recovery point was acknowledged and flushed: it is never cut away. It is noted here, so that reads end
before it and report it, and other records stay readable. A line is

    start_offset end_offset segment_base_offset position end_position

in the frame of Kafka's checkpoints (a version line 0, a line with the number of entries). Kafka passes over the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.salvaging_file import read_small_text
from core.files.checkpoint_file import format_checkpoint, parse_checkpoint
from core.files.file_names import DAMAGED_RANGES
from core.forensics.damage import DamagedRange
from core.forensics.missing_offsets import offsets_are

if TYPE_CHECKING:
    import logging

    from core.common.topic_partition import TopicPartition
    from core.log.log_segment import LogSegment

DAMAGED_OFFSETS = "plog.damaged.offsets"
UNEXPLAINED_OFFSETS = "plog.unexplained.offsets"
UNDECIDED_OFFSETS = "plog.undecided.offsets"
WRONG_TAIL = "plog.wrong.tail"
WRONG_START = "plog.wrong.start"
DOCS_OF_DAMAGE: Mapping[str, str] = {
    DAMAGED_OFFSETS: "Offsets that can't be read, as the disk holds damaged bytes in their place.",
    UNEXPLAINED_OFFSETS: "Offsets that no batch holds, without proof that the cleaner removed their records.",
    UNDECIDED_OFFSETS: "Offsets of transactional records whose marker is lost: they may be committed or aborted.",
    WRONG_TAIL: "The log's end, after which the disk holds bytes that are not the log's.",
    WRONG_START: "The end of a log whose line in log-start-offset-checkpoint is wrong, and ignored.",
}
"""The names under which DescribeConfigs reports a topic's damage, and what is listed by partition: no Kafka API has a
field for damage, and every client shows the settings. A broker that only reads looks for unexplained offsets.
"""


def offset_ranges_text(ranges: Mapping[int, Iterable[tuple[int, int]]]) -> str:
    """Formats offsets [start, end) as `damaged_offsets_text` does."""
    return ",".join(f"{number}:{start}-{end - 1}" for number, some in sorted(ranges.items()) for start, end in some)


def damaged_offsets_text(gaps: Mapping[int, Iterable[DamagedRange]]) -> str:
    """Writes by partition: `PARTITION:FIRST-LAST,..`."""
    with_offsets = {n: [gap[:2] for gap in some if gap.end_offset > gap.start_offset] for n, some in gaps.items()}
    return offset_ranges_text(with_offsets)


def parse_damaged_offsets(text: str) -> dict[int, list[tuple[int, int]]]:
    """Returns the (first, last) offset of each range, by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    for entry in text.split(","):
        number, _, offsets = entry.partition(":")
        first, _, last = offsets.partition("-")
        found.setdefault(int(number), []).append((int(first), int(last)))
    return found


def read_damaged_ranges(directory: Path) -> list[DamagedRange]:
    """Reads the folder's ledger, in order; empty without a file. Raises CorruptRecordError if it does not parse."""
    path = directory / DAMAGED_RANGES
    try:
        text = read_small_text(path)
    except FileNotFoundError:
        return []
    return parse_damaged_ranges(text, str(path))


def parse_damaged_ranges(text: str, path: str) -> list[DamagedRange]:
    """Reads them in order; raises CorruptRecordError if the text is no ledger."""
    try:
        return sorted(
            DamagedRange(*map(int, words)) for words in parse_checkpoint(text, len(DamagedRange._fields), path)
        )
    except ValueError as error:
        raise CorruptRecordError(
            f"expected {len(DamagedRange._fields)} numbers in a line: {error}", path=path
        ) from error


class DamagedRanges:
    """Owned by one task (the partition log's); written through.

    I1 gaps of one segment don't overlap, and rise in offsets and positions alike
    """

    def __init__(self, directory: Path, filesystem: FileSystem) -> None:
        self._path = directory / DAMAGED_RANGES
        self._filesystem = filesystem
        self._gaps: list[DamagedRange] = []
        try:
            self._gaps = read_damaged_ranges(directory)
        except CorruptRecordError as error:
            _logger().warning("%s; damage will be noted again when it is met", error)

    @property
    def gaps(self) -> list[DamagedRange]:
        return list(self._gaps)

    def of_segment(self, base_offset: int) -> list[DamagedRange]:
        return [gap for gap in self._gaps if gap.segment_base_offset == base_offset]

    def add(self, gap: DamagedRange) -> None:
        """Adds a range in the place of the ranges that it overlaps."""
        kept = [
            g
            for g in self._gaps
            if g.segment_base_offset != gap.segment_base_offset
            or g.end_position <= gap.position
            or g.position >= gap.end_position
        ]
        self._replace(sorted([*kept, gap]))

    def note(self, segment: LogSegment, gap: DamagedRange, partition: TopicPartition) -> None:
        """Adds the gap, and notes it in the segment and the operator's log."""
        self.add(gap)
        segment.gaps = self.of_segment(segment.base_offset)
        log_damage(segment, gap, partition)

    def set_segments(self, gaps: Mapping[int, list[DamagedRange]]) -> None:
        """Sets these and no others of the segments, by base offset."""
        kept = [g for g in self._gaps if g.segment_base_offset not in gaps]
        self._replace(sorted([*kept, *(gap for of_segment in gaps.values() for gap in of_segment)]))

    def keep_segments(self, base_offsets: set[int], end_offset: int) -> None:
        """Keeps the ranges in segments that still exist, below the log's end."""
        kept = [g for g in self._gaps if g.segment_base_offset in base_offsets and g.start_offset < end_offset]
        self._replace(kept)

    def check_invariants(self) -> None:
        by_segment = sorted(self._gaps, key=attrgetter("segment_base_offset"))  # a stable sort
        for gap, following in pairwise(by_segment):
            if gap.segment_base_offset == following.segment_base_offset:
                is_after = gap.end_offset <= following.start_offset and gap.end_position <= following.position
                assert is_after, f"{self._path}: {gap}, {following}"

    def _replace(self, gaps: list[DamagedRange]) -> None:
        if gaps == self._gaps:
            return
        self._gaps = gaps
        try:
            if gaps:
                self._filesystem.write_atomic(self._path, format_checkpoint(gaps))
            else:
                self._filesystem.unlink(self._path)
        except OSError as error:
            _logger().warning("could not write %s: %s; a restart will have to find the damage again", self._path, error)


def log_damage(segment: LogSegment, gap: DamagedRange, partition: TopicPartition) -> None:
    """Logs the gap for the operator. One without bytes is a hole between batches."""
    path = segment.records.path
    if gap.end_offset <= gap.start_offset:
        what = "damage without offsets"
    elif gap.position == gap.end_position:
        missing = offsets_are(gap.start_offset, gap.end_offset)
        _logger().error("%s: %s missing after position %d of %s", partition, missing, gap.position, path)
        return
    else:
        what = f"{offsets_are(gap.start_offset, gap.end_offset)} damaged"
    _logger().error(
        "%s: %s: bytes %d to %d of %s; they stay as they are, and readers are told",
        partition,
        what,
        gap.position,
        gap.end_position,
        path,
    )


def _logger() -> logging.Logger:
    import logging  # a reader of a log does not need it

    return logging.getLogger("plog.log")
