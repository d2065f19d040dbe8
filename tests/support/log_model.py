"""What is in a partition's folder that may be damaged: the judge of tests/property/test_one_truth.py.

It is written from the rules of reading and from the byte formats alone, and shares no line with the readers that it
judges: nothing of `core` is imported. It is slow and reads everything into memory; where two ways lead to an answer, it
takes the one that is easier to check by eye.

    sound frames of each file   by bytes alone                                    tests/support/log_frames.py
    placement                   which of them are the log's, and in which order   `_Placement`
    the records                 of the log's frames                               tests/support/record_decoder.py
    the end                     what other files prove                            `_proven_end`
    how transactions ended      their markers, if nothing is missing before them  `_fates`
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path

from tests.support.log_frames import Damage, FileWalk, Frame, crc32c
from tests.support.record_decoder import CODEC_MASK, LEAST_LENGTH, Record, UndecodableError, decode, inner_offsets


@dataclass(frozen=True)
class Reading:
    """Where the rules leave something open, or lose records that are sound by the letter, how the judge takes them."""

    resumes_at_file_base: bool = True
    """After damage, a batch fits from the file's base offset on, not only from the end of the frame before: else one
    stray batch hides everything of lower offsets after it (39 written over 6 in a log of 40: 7 to 38).
    """

    moves_between_files: bool = True
    """A frame below its file's base offset is never accepted, but may be placed in a hole: else of two segments whose
    files were swapped one is lost.
    """

    flips_at_the_end: bool = True
    """What follows the last frame of the last file is the proven end: else a flipped bit in the last batch's base
    offset moves its records, and the log's end, by up to two milliards of offsets.
    """

    doubts_flips: bool = True
    """A frame is no flip if another states the very offset that is due in its place: batches 1 and 3, swapped, look
    like two flips, and are lost; with the bit mended they would have each other's offsets.
    """

    places_again: bool = True
    """The displaced are gone through until none finds a place: the first may fit only beside a later one."""

    places_at_the_ends: bool = True
    """What lies before the first accepted frame, and after the last but below the proven end, is a hole as well: old
    wrappers, whose first offsets the rules don't look at, fill no hole exactly.
    """


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    DOUBTFUL = "more than the log is needed to tell"


class LogModel:
    """`records` is S: the data records that a read_uncommitted reader has to get, by offset."""

    def __init__(
        self,
        directory: Path,
        reading: Reading = Reading(),
        *,
        believes_start: bool | None = None,
        believes_watermark: bool | None = None,
    ) -> None:
        """`believes_start`: whether the checkpointed log start counts, `believes_watermark`: whether the high watermark
        does; None: as the rules say.
        """
        self.directory = directory
        self.files = _offset_files(directory, ".log")
        if believes_watermark is None:
            believes_watermark = self._may_believe_watermark(reading)
        self.has_wrong_watermark = not believes_watermark
        if believes_start is None:
            believes_start = self._may_believe_start(reading, believes_watermark=believes_watermark)
        self.has_wrong_start = not believes_start
        proven_end = _proven_end(directory, believes_start=believes_start, believes_watermark=believes_watermark)
        self.frames_by_file: dict[Path, list[Frame]] = {}
        self.damage: list[Damage] = []
        for number, (base, path) in enumerate(self.files):
            next_base = self.files[number + 1][0] if number + 1 < len(self.files) else None
            walk = FileWalk(path, base, next_base, resumes_at_base=reading.resumes_at_file_base)
            self.frames_by_file[path] = walk.frames
            self.damage += walk.damage

        cleaned_below = _checkpointed(directory, "cleaner-offset-checkpoint")
        placement = _Placement(self.files, self.frames_by_file, proven_end, cleaned_below, reading)
        self.accepted = placement.accepted
        self.placed = placement.placed
        self.repeated = placement.repeated
        self.flipped = placement.flipped
        self.stray = placement.stray
        self.log = sorted(self.accepted + self.placed, key=lambda frame: frame.base)
        """The log's frames in order of offsets."""

        first_base = self.files[0][0] if self.files else 0
        last_base = max((base for base, path in self.files if not self._is_a_copy(path)), default=0)
        self.log_start = _log_start(directory, first_base if self.files else None, believes_start=believes_start)
        last_end = self.log[-1].end_offset if self.log else first_base
        ends_empty = bool(self.files) and self.files[-1][1].stat().st_size == 0
        self.sound_end = max(last_end, self.files[-1][0] if ends_empty else 0)
        """The offset after the last frame, or where an empty last file begins."""
        self.log_end = max(self._claimed_end(max(last_end, self.log_start, last_base)), proven_end)

        self.records: dict[int, Record] = {}
        self.control: set[int] = set()
        self.undecodable: set[int] = set()
        self.thinned: set[int] = set()
        self.transactional: list[Frame] = []
        """Batches of transactions, and the markers that end them, in order of offsets."""
        for frame in self.log:
            self._read(frame)
        # A wrapper of magic 0 or 1 counts as its last offset alone, but the others inside are its records' as well.
        spans = [range(frame.base, frame.end_offset) for frame in self.log]
        spans += [range(offset, offset + 1) for offset in self.records]
        self.missing = ranges_without(range(self.log_start, self.log_end), spans)
        """Offsets that no frame of the log covers, in order; one flipped bit can make them many."""
        self.cut_ends = [] if _is_being_cleaned(directory) else list(self._cut_ends())
        """Missing offsets at the end of files of which an index names some, though the log ends before: a loss, even
        where the cleaner was.
        """
        self.overwritten = [some for part in self._overwritten() for some in self.missing_in(part)]
        """Missing offsets of files that hold frames of the log, and none of their own: likewise."""
        self.cleaned_end = max(cleaned_below, self.files[-1][0] if self.files and self._was_cleaned() else 0)
        """No hole from there on is the cleaner's."""
        self.hidden = list(self._hidden())
        """Missing offsets between a batch and a damaged compressed message of an old format right after it, which names
        its last one alone: likewise.
        """
        self.unopened = [(frame.file_base, frame.base) for frame in self.log if frame.is_closed]
        """Compressed messages of old formats that do not open: where their file begins, and the offset they state."""
        self.fates: dict[int, Fate] = {}
        """By the offset of each record of a transaction."""
        for batches in self._transactional_by_producer():
            self._judge(batches)

    def _cut_ends(self) -> Iterator[range]:
        for (base, path), (next_base, _) in pairwise(self.files):
            heads = _heads(path.read_bytes())
            if heads is None or not _rise([base - 1, *(head.last for head in heads), next_base]):
                continue
            own = [frame.end_offset for frame in self.log if base <= frame.base < next_base]  # if files were swapped
            end = max([heads[-1].last + 1 if heads else base, *own])
            if _names_more(path, base, range(end, next_base), heads):
                yield from (r for r in self.missing_in(range(end, next_base)))

    def _overwritten(self) -> Iterator[range]:
        for (base, path), (next_base, _) in pairwise(self.files):
            offsets = range(base, next_base)
            holds_others = any(frame.path == path and frame.base not in offsets for frame in self.log)
            has_own = any(frame.base in offsets or frame.end_offset - 1 in offsets for frame in self.log)
            if holds_others and not has_own:
                yield offsets

    def _was_cleaned(self) -> bool:
        """Whether files of a cleaning are there, or a frame lacks records, or in a log with old messages a file before
        the last is empty that no recovery emptied.
        """
        set_aside = {path.name.partition(".log.")[0] for path in self.directory.iterdir() if ".log." in path.name}
        empty = [path for _, path in self.files[:-1] if not path.stat().st_size and path.stem not in set_aside]
        has_empty = bool(empty) and any(frame.magic < 2 for frame in self.log)
        return has_empty or _is_being_cleaned(self.directory) or any(frame.lacks_some for frame in self.log)

    @property
    def beside_damage(self) -> list[list[range]]:
        """For each damage in whose place offsets of its file are missing: those. Some of them were there."""
        order = {path: number for number, (_, path) in enumerate(self.files)}
        found = []
        for broken in self.damage:
            number, place = order[broken.path], (order[broken.path], broken.position)
            before = [frame.end_offset for frame in self.accepted if (order[frame.path], frame.position) < place]
            after = [frame.base for frame in self.accepted if (order[frame.path], frame.position) > place]
            start, end = [self.log_start, *before][-1], [*after, self.log_end][0]
            limit = self.files[number + 1][0] if number + 1 < len(self.files) else self.log_end
            found.append(self.missing_in(range(max(start, self.files[number][0]), min(end, limit))))
        return [missing for missing in found if missing]

    def _hidden(self) -> Iterator[range]:
        limits = {path: next_base for (_, path), (next_base, _) in pairwise(self.files)}
        for broken in self.damage:
            data = broken.path.read_bytes()[broken.position : broken.end]
            if len(data) < 12 + LEAST_LENGTH[0] or data[16] > 1 or not data[17] & CODEC_MASK:
                continue
            offset, length, crc = struct.unpack_from(">qiI", data)
            is_current = crc32c(data[21:]) == int.from_bytes(data[17:21], "big")
            if 12 + length != len(data) or zlib.crc32(data[16:]) == crc or is_current:
                continue
            before = [frame for frame in self.accepted if (frame.path, frame.end) == (broken.path, broken.position)]
            if before and before[0].end_offset <= offset < limits.get(broken.path, UNKNOWN):
                yield from self.missing_in(range(before[0].end_offset, offset))

    def missing_in(self, part: range) -> list[range]:
        """The missing offsets that lie within others."""
        both = [range(max(gap.start, part.start), min(gap.stop, part.stop)) for gap in self.missing]
        return [some for some in both if some]

    def _transactional_by_producer(self) -> Iterable[list[Frame]]:
        found = defaultdict[int, list[Frame]](list)
        for frame in self.transactional:
            found[frame.producer_id].append(frame)
        return found.values()

    def _judge(self, batches: list[Frame]) -> None:
        """Of one producer. A marker ends what came before it, if none can be missing between."""
        end, fate = self.log_end, Fate.DOUBTFUL if self.damage else Fate.OPEN
        for frame in reversed(batches):
            if frame.is_control:
                end, fate = frame.base, _said_by(frame)
            else:
                is_certain = self._is_whole(frame.end_offset, end)
                offsets = range(frame.base, frame.end_offset)
                self.fates |= dict.fromkeys(offsets, fate if is_certain else Fate.DOUBTFUL)

    def _is_whole(self, start: int, end: int) -> bool:
        return all(gap.stop <= start or end <= gap.start for gap in self.missing)

    def _was_stopped(self) -> bool:
        return (self.directory.resolve().parent / ".kafka_cleanshutdown").exists()

    def _may_believe_watermark(self, reading: Reading) -> bool:
        """After a clean stop it is not above the log's end, which the recovery point is."""
        point = _checkpointed(self.directory, "recovery-point-offset-checkpoint")
        watermark = _checkpointed(self.directory, "replication-offset-checkpoint")
        if not self._was_stopped() or not 0 < point < watermark or point == UNKNOWN:
            return True
        others = LogModel(self.directory, reading, believes_start=False, believes_watermark=False)
        return not others.sound_end == others.log_end == point

    def _may_believe_start(self, reading: Reading, *, believes_watermark: bool) -> bool:
        """After a clean stop the log reaches up to its start, by all else that is known, or else nothing is there; and
        its first epoch does not begin before, where that is in the first file.
        """
        start = _checkpointed(self.directory, "log-start-offset-checkpoint")
        if not self._was_stopped() or not start:
            return True
        others = LogModel(self.directory, reading, believes_start=False, believes_watermark=believes_watermark)
        if _proven_end(self.directory, believes_start=False, believes_watermark=believes_watermark) < start:
            return not 0 < others.log_end < start
        first = _first_epoch(self.directory)
        return first is None or not self.files or start <= max(first, self.files[0][0])

    def _claimed_end(self, end: int) -> int:
        """Where the log ended, by damaged batches after the last one that stands where it belongs, which lie whole in
        their files, and whose headers go on from there: to the next file's name at most, unless the file has a sound
        batch before that is there already. What a checksum covers counts in any file.
        """
        order = {path: number for number, (_, path) in enumerate(self.files)}
        limits = {path: next_base for (_, path), (next_base, _) in pairwise(self.files)}
        last = (order[self.accepted[-1].path], self.accepted[-1].end) if self.accepted else (0, 0)
        for broken in self.damage:
            if (order[broken.path], broken.position) < last:
                continue
            inside = _misstated(broken.path.read_bytes()[broken.position : broken.end])
            if inside:  # its checksum covers them, whatever the file's name is
                end = inside[-1] + 1 if inside[0] == end else end
                continue
            base, limit = self.files[order[broken.path]][0], limits.get(broken.path, UNKNOWN)
            before = [frame.end_offset for frame in self.frames_by_file[broken.path] if frame.end <= broken.position]
            claimed = _claimed_by(broken, end)
            if (base <= end and claimed <= limit) or (before[-1:] == [end] and end >= limit):
                end = claimed
        return end

    def _is_a_copy(self, path: Path) -> bool:
        """Whether all frames of the file are others' (a segment copied under another name): its name proves no end, but
        where the log ends.
        """
        frames = self.frames_by_file[path]
        if self.log and int(path.stem) == self.log[-1].end_offset:
            return False
        return bool(frames) and all(frame in self.repeated or frame in self.stray for frame in frames)

    @property
    def displaced(self) -> list[Frame]:
        """Sound frames that are not the log's, or do not stand where they belong."""
        return self.placed + self.repeated + self.flipped + self.stray

    @property
    def unread(self) -> list[range]:
        """The log's offsets that are in `records` not: missing, thinned, of control batches and undecodable ones."""
        records = [range(offset, offset + 1) for offset in self.records]
        return ranges_without(range(self.log_start, self.log_end), records)

    def _read(self, frame: Frame) -> None:
        offsets = {offset for offset in range(frame.base, frame.end_offset) if offset >= self.log_start}
        if frame.is_transactional:
            self.transactional.append(frame)
        if frame.is_control:
            self.control |= offsets
            return
        try:
            records = decode(frame.data)
        except UndecodableError:
            self.undecodable |= offsets
            return
        self.records |= {offset: record for offset, record in records.items() if offset >= self.log_start}
        self.thinned |= offsets - set(records)


@dataclass(frozen=True)
class _Head:
    """What a batch says of itself at the beginning, right or wrong: no checksum is looked at."""

    position: int
    first: int
    last: int
    timestamp: int
    """The largest one; -1 of messages that have none."""


def _heads(data: bytes) -> list[_Head] | None:
    """Of all batches of a file; None if they do not lead from one to the next up to its end."""
    heads, position = [], 0
    while position < len(data):
        if len(data) - position < 17:
            return None
        offset, length = struct.unpack_from(">qi", data, position)
        magic, end = data[position + 16], position + 12 + length
        if magic > 2 or end > len(data) or length < (49 if magic == 2 else LEAST_LENGTH[magic]):
            return None
        if magic == 2:
            (delta,) = struct.unpack_from(">i", data, position + 23)
            (timestamp,) = struct.unpack_from(">q", data, position + 35)
            heads.append(_Head(position, offset, offset + delta, timestamp))
        else:
            timestamp = struct.unpack_from(">q", data, position + 18)[0] if magic == 1 else -1
            heads.append(_Head(position, offset, offset, timestamp))
        position = end
    return heads


def _rise(numbers: Iterable[int]) -> bool:
    return all(one < other for one, other in pairwise(numbers))


def _names_more(log: Path, base: int, after: range, heads: list[_Head]) -> bool:
    """Whether an index, all of whose entries fit the batches or name offsets in `after`, names one of those."""
    if not all(one.last < two.first for one, two in pairwise(heads)) or (heads and heads[0].first < base):
        return False
    size = log.stat().st_size
    starts = {head.position: head.last for head in heads}
    largest = {}  # by last offset: the largest timestamp up to there
    for number, head in enumerate(heads):
        largest[head.last] = max([-1, *(other.timestamp for other in heads[: number + 1])])
    top = max([-1, *largest.values()])

    def is_lost_position(offset: int, position: int) -> bool:
        return position >= size and offset in after

    def is_own_position(offset: int, position: int) -> bool:
        return position in starts and offset >= starts[position]

    def is_lost_time(timestamp: int, offset: int) -> bool:
        return timestamp > top and offset in after

    def is_own_time(timestamp: int, offset: int) -> bool:
        holding = [last for last in largest if last >= offset]
        return bool(holding) and largest[min(holding)] == timestamp

    def tells(entries: list[tuple[int, int]], is_lost: _OfEntry, is_own: _OfEntry) -> tuple[bool, bool]:
        """Whether it says so, and whether it has an entry of a batch that is there."""
        lost = [entry for entry in entries if is_lost(*entry)]
        return bool(lost) and all(entry in lost or is_own(*entry) for entry in entries), len(lost) < len(entries)

    positions = [(base + offset, position) for offset, position in _rising_pairs(log.with_suffix(".index"))]
    times = [(timestamp, base + offset) for timestamp, offset in _rising_pairs(log.with_suffix(".timeindex"))]
    by_offset, is_anchored = tells(positions, is_lost_position, is_own_position)
    by_time, is_anchored_in_time = tells(times, is_lost_time, is_own_time)
    return (by_offset and (is_anchored or by_time)) or (by_time and (is_anchored_in_time or not positions))


_OfEntry = Callable[[int, int], bool]


def _rising_pairs(path: Path) -> list[tuple[int, int]]:
    """The entries of an `.index` or `.timeindex` as they stand; none if they are not in order."""
    size, form = {".index": (8, ">ii"), ".timeindex": (12, ">qi")}[path.suffix]
    data = path.read_bytes() if path.is_file() else b""
    while data and not any(data[-size:]):
        data = data[:-size]
    if len(data) % size:
        return []
    entries = list(struct.iter_unpack(form, data))
    is_in_order = all(_rise([-1, *column]) for column in zip(*entries, strict=True))
    return entries if is_in_order else []


def _is_being_cleaned(directory: Path) -> bool:
    return any(path.suffix in (".cleaned", ".swap") for path in directory.iterdir())


def _said_by(marker: Frame) -> Fate:
    """The record's key is int16 version, int16 type: 0 aborts, 1 commits."""
    try:
        keys = [key or b"" for key, _ in decode(marker.data).values()]
    except UndecodableError:
        return Fate.DOUBTFUL
    types = [int.from_bytes(key[2:4], "big") for key in keys if len(key) >= 4]
    return {0: Fate.ABORTED, 1: Fate.COMMITTED}.get(types[0], Fate.DOUBTFUL) if types else Fate.DOUBTFUL


def ranges_without(whole: range, holes: Iterable[range]) -> list[range]:
    """What is left of a range without others, in order."""
    left = []
    start = whole.start
    for hole in sorted(holes, key=lambda hole: (hole.start, hole.stop)):
        if start < min(hole.start, whole.stop):
            left.append(range(start, min(hole.start, whole.stop)))
        start = max(start, hole.stop)
    if start < whole.stop:
        left.append(range(start, whole.stop))
    return left


# --- which frames are the log's


class _Placement:
    def __init__(
        self,
        files: list[tuple[int, Path]],
        frames_by_file: dict[Path, list[Frame]],
        proven_end: int,
        cleaned_below: int,
        reading: Reading,
    ) -> None:
        self.accepted: list[Frame] = []
        self.placed: list[Frame] = []
        self.repeated: list[Frame] = []
        self.flipped: list[Frame] = []
        self.stray: list[Frame] = []
        self._reading = reading
        self._by_file = frames_by_file
        self._first_base = files[0][0] if files else 0
        self._proven_end = max(proven_end, files[-1][0] if files else 0)
        self._reached = max(proven_end, cleaned_below)
        self._is_end_known = proven_end > 0
        """A cleaner's checkpoint alone does not say where the log ends."""
        own_end = _own_end(*files[-1], frames_by_file) if files else 0
        self._last_end = max(self._proven_end, own_end) if files else 0
        """What stands elsewhere goes after the log's last frame up to there at most."""
        has_records = bool(files) and own_end > files[-1][0]
        self._end_of_others = self._last_end if has_records else math.inf
        """Beyond that no frame of another file is accepted."""
        self._next_bases = {
            path: files[number + 1][0] if number + 1 < len(files) else None for number, (_, path) in enumerate(files)
        }
        self._order = [frame for _, path in files for frame in frames_by_file[path]]
        self._weights: dict[int, int] | None = None
        self._displaced: list[Frame] = []
        self._flips: list[tuple[Frame, int]] = []
        """With the offset that is due in the frame's place."""
        self._accept(self._first_base)
        self._doubt_flips()
        self._place_all()

    # accepted where they stand

    def _accept(self, next_offset: int) -> None:
        for number, frame in enumerate(self._order):
            next_base = self._next_bases[frame.path]
            is_in_turn = frame.base == next_offset and (next_base is None or frame.end_offset <= next_base)
            if is_in_turn and self._may_be_accepted(frame):
                self.accepted.append(frame)
                next_offset = frame.end_offset
            elif self._is_flip(frame, next_offset):
                self._flips.append((frame, next_offset))
                next_offset += frame.span
            elif self._begins_heaviest_chain(number, next_offset):
                self.accepted.append(frame)
                next_offset = frame.end_offset
            else:
                self._displaced.append(frame)

    def _may_be_accepted(self, frame: Frame) -> bool:
        """By its file. Beyond what an index can name, old cleaners left batches: those go on from the one before, or
        others of the file rise with it as far, or the next file's name or other files know of them; or no bit brings a
        lone one within reach.
        """
        if self._next_bases[frame.path] is not None and frame.end_offset > self._end_of_others:
            return False
        if frame.base < frame.file_base or not frame.is_beyond_reach:
            return frame.base >= max(frame.file_base, 0)
        of_file = self._by_file[frame.path]
        number = of_file.index(frame)
        before = of_file[number - 1].end_offset if number else frame.file_base
        if frame.base == before or self._rises_with_others_as_far(frame):
            return True
        next_base = self._next_bases[frame.path]
        if next_base is not None and frame.end_offset <= next_base:
            return True
        if self._is_end_known or frame.end_offset <= self._reached:
            return frame.end_offset <= self._reached
        before = frame.file_base if number and of_file[number - 1].is_beyond_reach else before
        mended = (frame.base - (1 << bit) for bit in range(31, 63) if frame.base & 1 << bit)
        return not any(before <= base < frame.file_base + 2**31 for base in mended)

    def _rises_with_others_as_far(self, frame: Frame) -> bool:
        """Whether before or after it the file holds another batch beyond its reach, of offsets that rise with its."""
        of_file = self._by_file[frame.path]
        number = of_file.index(frame)
        return any(other.is_beyond_reach and other.end_offset <= frame.base for other in of_file[:number]) or any(
            other.is_beyond_reach and frame.end_offset <= other.base for other in of_file[number + 1 :]
        )

    def _is_flip(self, frame: Frame, next_offset: int) -> bool:
        """Whether one bit of its base offset stands between the frame and the place where offset `next_offset` is due,
        and what follows bears that out.
        """
        of_file = self._by_file[frame.path]
        number = of_file.index(frame)
        if next_offset < frame.file_base or (number and of_file[number - 1].end_offset == frame.base):
            return False  # it was never in the file, or it goes on from the frame before
        if number + 1 < len(of_file):
            following: int | None = of_file[number + 1].base
        else:
            at_the_end = self._proven_end if self._reading.flips_at_the_end else None
            next_base = self._next_bases[frame.path]
            following = at_the_end if next_base is None else next_base
        return frame.is_one_bit_from(next_offset, fits=True) and following == next_offset + frame.span

    def _is_flip_alone(self, frame: Frame) -> bool:
        """The same, where nothing is known of the log before: the frame before in the file says what is due, or else
        the file's name. (The rules say "looked at alone" and leave this open.)
        """
        of_file = self._by_file[frame.path]
        number = of_file.index(frame)
        return self._is_flip(frame, of_file[number - 1].end_offset if number else frame.file_base)

    def _is_flip_upwards(self, frame: Frame) -> bool:
        """Whether it goes beyond the frame that follows it in the file, up to which it would lead but for one bit, and
        that one is no old message with another's offset.
        """
        of_file = self._by_file[frame.path]
        number = of_file.index(frame)
        due = of_file[number - 1].end_offset if number else frame.file_base
        if number + 1 == len(of_file) or due == frame.base:
            return False
        following = of_file[number + 1]
        is_flip = frame.end_offset > following.base and frame.is_one_bit_from(following.base - frame.span)
        is_wrapper = following.stated != following.base
        return is_flip and not (is_wrapper and self._is_flip(following, frame.end_offset))

    def _begins_heaviest_chain(self, number: int, next_offset: int) -> bool:
        if self._weights is None:
            self._weights = self._chain_weights()
        rivals = {i: w for i, w in self._weights.items() if i >= number and self._order[i].base >= next_offset}
        if number not in rivals:
            return False
        return number == min(rivals, key=lambda i: (-rivals[i], self._order[i].end_offset, i))

    def _chain_weights(self) -> dict[int, int]:
        """By the frame's number in order, the offsets in the best chain that begins with it."""
        weights: dict[int, int] = {}
        for number in reversed(range(len(self._order))):
            frame = self._order[number]
            is_flip = self._is_flip_alone(frame) or self._is_flip_upwards(frame)
            if self._may_be_accepted(frame) and not is_flip:
                after = [weight for i, weight in weights.items() if self._order[i].base >= frame.end_offset]
                weights[number] = frame.span + max(after, default=0)
        return weights

    # the others

    def _doubt_flips(self) -> None:
        claimed = {frame.base for frame in self._displaced} | {frame.base for frame, _ in self._flips}
        self._mended: list[range] = []
        """The offsets that flipped frames had."""
        for frame, due in self._flips:
            is_doubted = due in claimed and self._reading.doubts_flips
            (self._displaced if is_doubted else self.flipped).append(frame)
            self._mended += [] if is_doubted else [range(due, due + frame.span)]
        self._displaced.sort(key=self._order.index)

    def _place_all(self) -> None:
        left = self._displaced
        while True:
            self.stray = []
            for run in _runs(left, self._by_file):
                self._place(run)
            if len(self.stray) == len(left) or not self._reading.places_again:
                break
            left = self.stray

    def _place(self, run: list[Frame]) -> None:
        """A run that does not find a place as a whole is tried frame by frame. A single frame's flipped bit comes
        before its place in a larger hole.
        """
        if all(self._is_repeated(frame) for frame in run):
            self.repeated += run
        elif self._fits(run) and (self._fills_hole(run) or (len(run) > 1 and self._is_in_hole(run))):
            self.placed += run
        elif len(run) > 1:
            for frame in run:
                self._place([frame])
        elif (right := self._would_fit_with_one_bit(run[0])) is not None:
            self._mended.append(range(right, right + run[0].span))
            self.flipped += run
        elif self._fits(run) and self._is_in_hole(run):
            self.placed += run
        else:
            self.stray += run

    def _is_repeated(self, frame: Frame) -> bool:
        return any(
            (frame.base, frame.end_offset, frame.crc) == (other.base, other.end_offset, other.crc)
            for other in self.accepted + self.placed
        )

    def _fits(self, run: list[Frame]) -> bool:
        moves = self._reading.moves_between_files
        may_be = all(self._may_be_moved(frame) if moves else self._may_be_accepted(frame) for frame in run)
        return may_be and self._first_base <= run[0].base and self._is_free(run[0].base, run[-1].end_offset)

    def _may_be_moved(self, frame: Frame) -> bool:
        of_file = self._by_file[frame.path]
        number = of_file.index(frame)
        goes_on = number > 0 and of_file[number - 1].end_offset == frame.base
        is_believed = not frame.is_beyond_reach or goes_on or self._rises_with_others_as_far(frame)
        return frame.base >= 0 and is_believed

    def _is_free(self, start: int, end: int) -> bool:
        return all(end <= frame.base or frame.end_offset <= start for frame in self.accepted + self.placed)

    def _fills_hole(self, run: list[Frame]) -> bool:
        log = self.accepted + self.placed
        if not log:
            return False
        start, end = run[0].base, run[-1].end_offset
        touches_before = any(frame.end_offset == start for frame in log)
        touches_after = any(frame.base == end for frame in log)
        is_last = start == max(frame.end_offset for frame in log) and end <= self._last_end
        is_first = end == min(frame.base for frame in log)
        return (touches_before and touches_after) or is_last or is_first

    def _is_in_hole(self, run: list[Frame]) -> bool:
        """Between two frames of the log; whether it overlaps one was looked at already."""
        log = self.accepted + self.placed
        start, end = run[0].base, run[-1].end_offset
        if self._reading.places_at_the_ends:
            return end <= max([self._proven_end, *(frame.end_offset for frame in log)])
        return any(frame.end_offset <= start for frame in log) and any(end <= frame.base for frame in log)

    def _would_fit_with_one_bit(self, frame: Frame) -> int | None:
        """The base offset that it would have between the accepted frames before and after it in its file, touching one
        of them, where no other flipped frame was.
        """
        accepted = [other for other in self.accepted if other.path == frame.path]
        before = max((o for o in accepted if o.position < frame.position), key=lambda o: o.position, default=None)
        after = min((o for o in accepted if o.position > frame.position), key=lambda o: o.position, default=None)
        due = []
        if before is not None:
            due.append(before.end_offset)
        if after is not None:
            due.append(after.base - frame.span)
        for base in due:
            if (
                frame.is_one_bit_from(base)
                and base >= frame.file_base
                and (before is None or before.end_offset <= base)
                and (after is None or base + frame.span <= after.base)
                and self._is_free(base, base + frame.span)
                and all(base + frame.span <= other.start or other.stop <= base for other in self._mended)
            ):
                return base
        return None


def _own_end(base: int, path: Path, frames_by_file: dict[Path, list[Frame]]) -> float:
    """Where the last file ends, if it does so soundly from its last index entry on; infinite if it does not."""
    frames = frames_by_file[path]
    start = _last_indexed(path, base, frames)
    last = [frame for frame in frames if frame.position >= start]
    if not last:
        return math.inf if start or path.stat().st_size else base
    rises = all(one.end == two.position and one.end_offset == two.base for one, two in pairwise(last))
    is_sound = rises and last[0].position == start and (start > 0 or last[0].base == base)
    return last[-1].end_offset if is_sound and frames[0].end_offset <= last[-1].end_offset else math.inf


def _last_indexed(path: Path, base: int, frames: list[Frame]) -> int:
    """The position that the last entry of the `.index` has, if a frame stands there; entries are int32 offset above the
    base, int32 position.
    """
    index = path.with_suffix(".index")
    data = index.read_bytes() if index.is_file() else b""
    entries = [(offset, position) for offset, position in struct.iter_unpack(">ii", data[: len(data) // 8 * 8])]
    while entries and entries[-1] == (0, 0):  # it is allocated ahead
        entries.pop()
    if not entries:
        return 0
    offset, position = entries[-1]
    fits = any(frame.position == position and frame.end_offset - 1 <= base + offset for frame in frames)
    return position if fits else 0


def _runs(frames: list[Frame], by_file: dict[Path, list[Frame]]) -> Iterator[list[Frame]]:
    """Neighbours in a file whose offsets follow one another."""
    run: list[Frame] = []
    for frame in frames:
        of_file = by_file[frame.path]
        number = of_file.index(frame)
        if run and number and of_file[number - 1] == run[-1] and run[-1].end_offset == frame.base:
            run.append(frame)
            continue
        if run:
            yield run
        run = [frame]
    if run:
        yield run


def _claimed_by(broken: Damage, end: int) -> int:
    """Where the log ends by that header, if it ended at `end` before."""
    data, position, stop = broken.path.read_bytes(), broken.position, broken.end
    mended = data[position : position + 16] + b"\2" + data[position + 17 : stop]
    is_current = data[position + 16 : position + 17] == b"\2" or crc32c(mended[21:]) == int.from_bytes(
        mended[17:21], "big"
    )
    if data[position + 16 : position + 17] in (b"\0", b"\1") and not is_current:  # of an old format
        offset, length = struct.unpack_from(">qi", data, position)
        least = LEAST_LENGTH[data[position + 16]]
        is_sound = zlib.crc32(data[position + 16 : stop]) == int.from_bytes(data[position + 12 : position + 16], "big")
        if not is_sound:  # else the zeros before it may have taken its offset
            end += offset == end and length >= least and position + 12 + length == stop
    if stop - position < 61 or not is_current:
        return end
    base, length = struct.unpack_from(">qi", data, position)
    wrong_bits = crc32c(mended[21:]) ^ int.from_bytes(mended[17:21], "big")
    if data[position + 16] == 2 and not wrong_bits and position + 12 + length == stop:
        return end  # it is sound, but for the zeros before it, of which its base offset may be a part
    has_one_bit = data[position + 16] == 2 and _is_one_bit(length & 0xFFFF_FFFF, stop - position - 12)
    if has_one_bit and not wrong_bits:  # with another bit in the magic it would be no sound batch
        length = stop - position - 12
    (delta,) = struct.unpack_from(">i", data, position + 23)
    (count,) = struct.unpack_from(">i", data, position + 57)
    fixed = _mended_header(data[position:stop])
    is_explained = fixed is not None or wrong_bits.bit_count() < 2  # of the checksum itself
    delta = delta if fixed is None else fixed[0]
    if is_explained or (count < delta + 1 and stop - position < 1000 and _has_flipped_bit(data[position:stop])):
        count = delta + 1  # a cleaner may have been at it, and the header is right
    if base == end and position + 12 + length == stop and count == delta + 1 > 0:
        end += count
    return end


def _is_one_bit(one: int, other: int) -> bool:
    return ((one ^ other) & 0xFFFF_FFFF_FFFF_FFFF).bit_count() == 1


def _mended_header(frame: bytes) -> tuple[int, int] | None:
    """(last offset delta, count) of a batch with one flipped bit in its header, as they were; None of any other."""
    for at in range(21 * 8, 61 * 8):
        fixed = bytearray(frame)
        fixed[at // 8] ^= 1 << at % 8
        if crc32c(bytes(fixed[21:])) == int.from_bytes(fixed[17:21], "big"):
            return struct.unpack_from(">i", fixed, 23)[0], struct.unpack_from(">i", fixed, 57)[0]
    return None


def _misstated(frame: bytes) -> list[int]:
    """The offsets in a sound compressed message of magic 0, which states another one."""
    if len(frame) < 12 + LEAST_LENGTH[0]:
        return []
    _, length, crc = struct.unpack_from(">qiI", frame)
    is_sound = 12 + length == len(frame) and zlib.crc32(frame[16:]) == crc
    return inner_offsets(frame) if is_sound and frame[16] == 0 and frame[17] & CODEC_MASK else []


def _has_flipped_bit(frame: bytes) -> bool:
    """Whether one flipped bit of its records explains the checksum."""
    right = int.from_bytes(frame[17:21], "big")
    for bit in range(61 * 8, len(frame) * 8):
        fixed = bytearray(frame)
        fixed[bit // 8] ^= 1 << bit % 8
        if crc32c(bytes(fixed[21:])) == right:
            return True
    return False


# --- what other files say


def _offset_files(directory: Path, suffix: str) -> list[tuple[int, Path]]:
    """Regular files that are named by an offset, in its order."""
    named = [path for path in directory.iterdir() if re.fullmatch(r"\d{20}" + re.escape(suffix), path.name)]
    return sorted((int(path.stem), path) for path in named if path.is_file())


UNKNOWN = (1 << 63) - 1
"""A recovery point that says no more than that nobody knows."""


def _proven_end(directory: Path, *, believes_start: bool, believes_watermark: bool) -> int:
    """The largest offset below which the log has reached, whatever its files hold.

    Index entries prove nothing more: those of a segment that is not the last lie below the next one's base offset, or
    else it is they that are wrong.
    """
    proven = [0]
    proven += [offset for offset, _ in _offset_files(directory, ".snapshot")]
    logs = {offset for offset, _ in _offset_files(directory, ".log")}
    for offset, path in _lone_indexes(directory):  # where the .log is there too, it says more
        proven.append(offset)
        if all(offset > base for base in logs):
            proven += [named + 1 for named in _indexed_offsets(offset, path)]
    proven += [start for _, start in _read_checkpoint(directory / "leader-epoch-checkpoint", 2)]
    names = ["recovery-point-offset-checkpoint"]
    names += ["replication-offset-checkpoint"] * believes_watermark
    for name in [*names, "log-start-offset-checkpoint"] if believes_start else names:
        proven.append(_checkpointed(directory, name))
    return max(offset for offset in proven if offset != UNKNOWN)


def _lone_indexes(directory: Path) -> list[tuple[int, Path]]:
    """Index files whose .log is not there, with their base offsets. Not those of a segment between others that has
    empty ones only: its .log may never have been made.
    """
    logs = {offset for offset, _ in _offset_files(directory, ".log")}
    found = [one for suffix in (".index", ".timeindex", ".txnindex") for one in _offset_files(directory, suffix)]
    lone = [(offset, path) for offset, path in found if offset not in logs]
    told = {offset for offset, path in lone if any(path.read_bytes())}
    return [(o, path) for o, path in lone if o in told or not min(logs, default=o) < o < max(logs, default=o)]


def _indexed_offsets(base: int, path: Path) -> list[int]:
    """Offsets that the entries of an index name, before the zeros at its end; none if anything in it is out of order.

    .index      int32 relative offset, int32 position         both rise
    .timeindex  int64 timestamp, int32 relative offset        both rise
    .txnindex   int16 0, int64 producer, first, last, stable offset
    """
    size, form = {".index": (8, ">ii"), ".timeindex": (12, ">qi"), ".txnindex": (34, ">hqqqq")}[path.suffix]
    data = path.read_bytes()
    if len(data) % size:
        return []
    if path.suffix == ".txnindex":
        entries = list(struct.iter_unpack(form, data))
        lasts = [last for _, _, _, last, _ in entries]
        is_whole = all(version == 0 and first <= last >= 0 for version, _, first, last, _ in entries)
        return lasts if is_whole and lasts == sorted(set(lasts)) else []
    while data and not any(data[-size:]):
        data = data[:-size]
    entries = list(struct.iter_unpack(form, data))
    columns = [[entry[0] for entry in entries], [entry[1] for entry in entries]]
    rises = all(column == sorted(set(column)) and column[:1] >= [0] for column in columns) if entries else True
    return [base + entry[0 if path.suffix == ".index" else 1] for entry in entries] if rises else []


def _log_start(directory: Path, first_base: int | None, *, believes_start: bool) -> int:
    """Where the log begins: at its first segment, unless something shows that there were segments before it that nobody
    deleted: an index of one, or leader-epoch-checkpoint, whose first entry rises with the log's start.
    """
    began = [offset for offset, _ in _lone_indexes(directory)]
    listed = _listed(directory, "log-start-offset-checkpoint")
    if not (listed is not None and first_base is not None and listed < first_base and _may_be_tiered(directory)):
        began += [start for _, start in _read_checkpoint(directory / "leader-epoch-checkpoint", 2)]
    if first_base is not None:
        began = [first_base, *(offset for offset in began if offset < first_base)]
    if not believes_start:
        listed = _start_by_epochs(directory, listed or 0)
    return max(min(began, default=0), listed or 0)


def _first_epoch(directory: Path) -> int | None:
    """Where the first entry of leader-epoch-checkpoint begins, which DeleteRecords raises to the new log start."""
    return min((start for _, start in _read_checkpoint(directory / "leader-epoch-checkpoint", 2)), default=None)


def _start_by_epochs(directory: Path, listed: int) -> int:
    """The log start where the listed one is wrong; 0 where the epochs say no other, or the first file begins with a
    message of an old format, which has none.
    """
    first, files = _first_epoch(directory), _offset_files(directory, ".log")
    if (
        first is None
        or not files
        or not files[0][0] < first < listed
        or files[0][1].read_bytes()[16:17] in (b"\0", b"\1")
    ):
        return 0
    return first


def _may_be_tiered(directory: Path) -> bool:
    """Whether segments may be on another store: if the metadata log has a topic's setting for it, or is not there."""
    files = list((directory.resolve().parent / "__cluster_metadata-0").glob("*"))
    return not files or any(b"remote.storage.enable" in path.read_bytes() for path in files if path.is_file())


def _checkpointed(directory: Path, name: str) -> int:
    """The partition's offset in a checkpoint of the data directory; 0 if there is none."""
    return _listed(directory, name) or 0


def _listed(directory: Path, name: str) -> int | None:
    """The same; None if there is none."""
    directory = directory.resolve()
    parsed = re.fullmatch(r"(.+)-(\d+)", directory.name)
    if parsed is None:
        return None
    entries = _read_checkpoint(directory.parent / name, 3)
    found = [offset for topic, number, offset in entries if (topic, number) == (parsed[1], int(parsed[2]))]
    return found[-1] if found else None


def _read_checkpoint(path: Path, columns: int) -> Sequence[tuple]:  # type: ignore[type-arg]
    """The lines of a checkpoint, [topic and] numbers; none of a file that is not there or broken in any line.

    0               version
    2               how many lines follow
    topic 0 330     or, in leader-epoch-checkpoint: epoch and start offset
    """
    try:
        lines = path.read_bytes().decode("ascii").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        return []
    pattern = re.compile(r"(\S+) (\d+) (\d+)" if columns == 3 else r"(\d+) (\d+)")
    matches = [pattern.fullmatch(line) for line in lines[2:]]
    if len(lines) < 2 or lines[0] != "0" or lines[1] != str(len(matches)) or not all(matches):
        return []
    if columns == 3:
        return [(match[1], int(match[2]), int(match[3])) for match in matches if match]
    return [(int(match[1]), int(match[2])) for match in matches if match]
