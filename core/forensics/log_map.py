"""Reads all of a partition's log files once: which batches are its log, what is damaged, and what is missing.

The files are walked by bytes alone (core.forensics.batch_scanner); all sound batches together show which of them are
the log (core.forensics.batch_order); the facts in other files show where it ends, and why offsets are missing
(core.forensics.missing_offsets). docs/reading.md has the rules.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby, pairwise, takewhile
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from core.common.filesystem import File
from core.files.file_names import LOG_SUFFIX, offset_file_name
from core.files.file_records import FileRecords
from core.forensics.batch_order import Displaced, Fate, Piece, PieceBuilder, place
from core.forensics.batch_scanner import BatchScanner, SoundRun
from core.forensics.bit_flip import byte_fix
from core.forensics.damage import Damage, DamageKind, lacks_some, was_emptied
from core.forensics.known_offsets import KnownOffsets
from core.forensics.missing_offsets import (
    Hole,
    HoleReason,
    Tail,
    claimed_end,
    damaged_hole,
    explain_holes,
    offsets_text,
    tail_kind,
)
from core.index.offset_index import MAX_RELATIVE_OFFSET
from core.records.batches import Batch, count_records, first_offset_of, inner_offsets, stated_offset
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record_batch import CODEC_MASK, HEADER, LOG_OVERHEAD, RecordBatch, is_thinned

_READ_BYTES = 1024 * 1024
_PLACE, _NAMED_OFFSET = attrgetter("place"), attrgetter("damage.offset")
_BASE_OFFSET, _END_OFFSET = attrgetter("base_offset"), attrgetter("end_offset")


class LogFile(NamedTuple):
    """One `.log` of a partition, open, or to be opened when it is read."""

    base_offset: int
    path: Path
    opened: File | FileRecords

    @property
    def file(self) -> File:
        return self.opened.file if isinstance(self.opened, FileRecords) else self.opened


class FileDamage(NamedTuple):
    """Damage in the partition's log file of that number."""

    number: int
    damage: Damage

    @property
    def place(self) -> tuple[int, int]:
        return self.number, self.damage.position


class LogMap:
    """The map of all files of a partition. Immutable; it reads the files again if batches are wanted.

    I1 the batches of the log and the holes cover [start_offset, end_offset) without overlap
    """

    def __init__(
        self,
        files: Sequence[LogFile],
        evidence: KnownOffsets,
        *,
        own_end: int | None = None,
        own_from: int | None = None,
    ) -> None:
        """Reads the files, in order of their base offsets. Raises AccessError if one can't be read. `own_end` is
        that of `place`, if `own_from` does not say that the batches from this position of the last file on are to tell.
        """
        self.files = files
        self.evidence = evidence
        self.damage: list[FileDamage] = []
        """In order of files and positions: damaged bytes, batches whose base offset has a flipped bit, and strays."""
        builder = PieceBuilder()
        for number in range(len(files)):
            self._walk_file(number, builder)
            builder.end_piece()
        bases = [file.base_offset for file in files]
        if own_from is not None:
            own_end = _own_end([piece for piece in builder.pieces if piece.file == len(files) - 1], bases[-1], own_from)
        placement = place(
            builder.pieces,
            bases,
            evidence.known_end,
            self._batches_of,
            own_end=own_end,
            cleaned_below=evidence.cleaned_below,
        )
        self.log = placement.log
        """The batches of the log, in order of offsets."""
        self.standing = placement.standing
        """Those of them that stand where they should."""
        self.displaced = placement.displaced
        """Batches that do not stand where they should, in order of files and positions; some belong to the log."""
        self.placed = [one.piece for one in self.displaced if one.fate is Fate.PLACED]
        """Those of them that belong elsewhere in the log."""
        self.damage += [
            FileDamage(one.piece.file, self._displacement(one))
            for one in self.displaced
            if one.fate in (Fate.FLIPPED, Fate.STRAY)
        ]
        self.damage.sort(key=_PLACE)
        self._bases = bases
        self._edges = sorted({*bases, *evidence.lone_indexes})
        """Where a segment begins, or began."""

    def _walk_file(self, number: int, builder: PieceBuilder) -> None:
        zeroed_end = -1  # where damage ends in zeros
        for run in self._walk(number).runs_from(0):
            if isinstance(run, Damage):
                builder.end_piece()
                self.damage.append(FileDamage(number, run))
                is_zeroed = self.files[number].file.read_at(1, run.end_position - 1) == b"\0"
                zeroed_end = run.end_position if is_zeroed else -1
                continue
            batches = [run.batch(start) for start in run.starts[:2]] if isinstance(run, SoundRun) else [run]
            is_doubtful = batches[0].position == zeroed_end and stated_offset(batches[0]) == 0
            if is_doubtful and not _covered_offsets(batches[0]):
                self.damage.append(FileDamage(number, _zeroed_offset(*batches)))
                if not isinstance(run, SoundRun):
                    continue
                run = run._replace(starts=run.starts[1:])
            if isinstance(run, SoundRun):
                self._add_run(number, run, builder)
                continue
            if (damage := _misstated(run)) is not None:
                builder.end_piece()
                self.damage.append(FileDamage(number, damage))
            else:
                builder.add(_piece_of(number, run))

    def _add_run(self, number: int, run: SoundRun, builder: PieceBuilder) -> None:
        for start in run.starts:
            base, length, _, _, crc, attributes, delta, _, _, _, _, _, count = HEADER.unpack_from(run.data, start)
            position, end_offset = run.position + start, base + delta + 1
            piece = Piece(
                file=number,
                position=position,
                end_position=position + LOG_OVERHEAD + length,
                base_offset=base,
                end_offset=end_offset,
                span=delta + 1,
                first_end_offset=end_offset,
                batches=1,
                crc=crc,
                is_thinned=is_thinned(count, delta, attributes),
            )
            builder.add(piece)

    def _walk(self, number: int, read_bytes: int = _READ_BYTES) -> BatchScanner:
        file = self.files[number]
        return BatchScanner(file.path, file.base_offset, self._limit(number), file=file.file, read_bytes=read_bytes)

    def _limit(self, number: int) -> int:
        if number + 1 < len(self.files):
            return self.files[number + 1].base_offset
        return self.files[number].base_offset + MAX_RELATIVE_OFFSET + 1

    def _batches_of(self, piece: Piece) -> Iterator[Piece]:
        for batch in self.read(piece):
            yield _piece_of(piece.file, batch)

    def read(self, piece: Piece) -> Iterator[Batch]:
        size = piece.end_position - piece.position
        for batch in self._walk(piece.file, min(size, _READ_BYTES)).walk_from(piece.position):
            if isinstance(batch, Damage) or batch.position >= piece.end_position:
                return
            yield batch

    def _displacement(self, one: Displaced) -> Damage:
        piece = one.piece
        batch = next(self.read(piece))
        kind, is_negative = DamageKind.OFFSETS_NOT_RISING, piece.base_offset < 0
        offsets = "its offsets are negative" if is_negative else offsets_text(piece.base_offset, piece.end_offset)
        if one.fate is Fate.STRAY:
            why = "" if is_negative else ": other batches hold them, or no segment of that name may"
            message = f"a batch that does not belong here, {offsets}{why}"
            return Damage(kind, message, piece.position, piece.end_position, piece.base_offset, batch=batch)
        first, end = one.right_base_offset, one.right_base_offset + piece.span
        fix = byte_fix(piece.position, piece.base_offset + piece.shift, first + piece.shift, 8)
        message = f"{offsets}, expected {offsets_text(first, end)}"
        message += "" if fix is None else f": {fix} (in the base offset)"
        records = count_records([batch]) if isinstance(batch, RecordBatch) else piece.span
        span = piece.position, piece.end_position, first, end
        return Damage(kind, message, *span, records, batch, fix)

    # --- where the log begins and ends

    @property
    def start_offset(self) -> int:
        return self.evidence.start_of(self.files[0].base_offset if self.files else None)

    @cached_property
    def sound_end(self) -> int:
        """Returns the offset after the last batch of the log, or where an empty last file begins."""
        first_base_offset = self.files[0].base_offset if self.files else 0
        end_offset = self.log[-1].end_offset if self.log else first_base_offset
        if self.files and self.files[-1].file.size() == 0:
            end_offset = max(end_offset, self.files[-1].base_offset)
        return max(end_offset, self.start_offset)

    @cached_property
    def end_offset(self) -> int:
        """Returns the offset after the last batch of the log, or further, if there is proof that more was there."""
        after = [one.damage for one in self._damage_after(len(self.log) - 1)]
        reached = max(self.sound_end, self._last_base_offset)
        return max(self.evidence.known_end, claimed_end(reached, after))

    @cached_property
    def _last_base_offset(self) -> int:
        """Returns the base offset of the last file that is not just a copy of others: the log reached to it."""
        return max((file.base_offset for n, file in enumerate(self.files) if n not in self.copies), default=0)

    @cached_property
    def copies(self) -> set[int]:
        """Returns the numbers of the files that hold nothing but batches that other files hold, or strays; not one that
        begins where the log ends.
        """
        return {n for n in self._hollow if not self.log or self._bases[n] != self.log[-1].end_offset}

    @cached_property
    def _hollow(self) -> set[int]:
        hollow = {one.piece.file for one in self.displaced} - {piece.file for piece in self.log}
        return hollow - {one.piece.file for one in self.displaced if one.fate in (Fate.PLACED, Fate.FLIPPED)}

    @cached_property
    def misnamed(self) -> set[int]:
        """Returns the numbers of the files whose base offset lies within a batch of the log: no segment can begin
        there, but the first, as a log may.
        """
        return {number for number, base_offset in enumerate(self._bases) if number and self._is_within(base_offset)}

    def _is_within(self, offset: int) -> bool:
        """Says whether a batch of the log begins below the offset, and ends above it."""
        at = bisect_right(self.log, offset, key=_END_OFFSET)
        return any(
            batch.base_offset < offset < batch.end_offset
            for piece in self.log[at : at + 1]
            if piece.base_offset < offset
            for batch in self._batches_of(piece)
        )

    @cached_property
    def unused(self) -> set[int]:
        """Returns the numbers of the files that no offsets belong into; not the first, where the log begins."""
        return (self.copies | self.misnamed) - {0}

    def file_of(self, offset: int) -> int:
        """Returns the number of the file that such an offset belongs into, by the files' names."""
        return self._used[max(bisect_right(self._used, offset, key=lambda number: self._bases[number]) - 1, 0)]

    @cached_property
    def _used(self) -> list[int]:
        return [number for number in range(len(self.files)) if number not in self.unused]

    @cached_property
    def tail(self) -> Tail | None:
        """Returns the bytes that follow the last sound batch of the last file, or None."""
        if not self.damage:
            return None
        number, damage = self.damage[-1]
        file = self.files[-1]
        if number != len(self.files) - 1 or damage.end_position < file.file.size():
            return None
        return Tail(tail_kind(damage, self.evidence, self.sound_end, file.base_offset), file.path, damage)

    @cached_property
    def is_thinned(self) -> bool:
        """Says whether a batch shows that the cleaner changed this log: only it takes records from within a batch. In a
        log of messages of magic 0 and 1 it leaves empty files as well; a file whose batches stand elsewhere is no such
        file, nor is one that a recovery emptied. Damaged batches show nothing: a recovery cuts them out.
        """
        homes = {self.file_of(piece.base_offset) for piece in self.placed}
        empty = (number for number in self._used[:-1] if not self.files[number].file.size())
        has_legacy = any(piece.is_legacy for piece in self.log)
        has_empty = has_legacy and any(n not in homes and not was_emptied(self.files[n].path) for n in empty)
        return has_empty or any(piece.is_thinned for piece in self.log)

    @cached_property
    def compacted_below(self) -> int:
        """Returns the offset below which holes are the cleaner's. A file with batches, but none of the log, proves
        nothing: a recovery sets it aside.
        """
        sizes = [(self._bases[n], self.files[n].file.size()) for n in self._used if n not in self._hollow]
        return self.evidence.compacted_below(sizes, is_thinned=self.is_thinned)

    # --- batches and holes

    @cached_property
    def holes(self) -> list[Hole]:
        """Returns all offsets of [start_offset, end_offset) that no batch of the log holds, in order."""
        return [item for item in self.items(self.start_offset) if isinstance(item, Hole)]

    def end_before(self, offset: int) -> int:
        """Returns where the log's last batch before that offset ends."""
        at = bisect_right(self.log, offset, key=_END_OFFSET)
        end = self.log[at - 1].end_offset if at else self.start_offset
        ends = (batch.last_offset + 1 for piece in self.log[at : at + 1] for batch in self.read(piece))
        bases = (self._bases[piece.file] for piece in self.log[at : at + 1] if self._bases[piece.file] <= offset)
        return max([end, *bases, *takewhile(lambda end: end <= offset, ends)])

    def _least_offset(self, piece: Piece, batch: Batch, next_offset: int) -> int:
        """Returns where a batch that does not show it may begin: not before its file, if it is in its own."""
        base_offset = self._bases[piece.file]
        return max(next_offset, base_offset) if base_offset <= batch.last_offset else next_offset

    def items(self, start_offset: int) -> Iterator[Batch | Hole]:
        """Yields the batches of the log that hold offsets from there on, and the holes between them, in order. A hole
        that begins before is explained whole, and yielded from there on.
        """
        start = max(start_offset, self.start_offset)
        first = bisect_right(self.log, start, key=_END_OFFSET)
        before = self.log[first - 1].end_offset if first else self.start_offset
        for item in self._items_after(first, max(before, self.start_offset)):
            if not isinstance(item, Hole):
                if item.last_offset >= start:
                    yield item
            elif item.end > start:
                yield item if item.start >= start else replace(item, start=start)

    def _items_after(self, first: int, next_offset: int) -> Iterator[Batch | Hole]:
        for number in range(first, len(self.log)):
            piece = self.log[number]
            for batch in self.read(piece):
                first_offset = first_offset_of(batch, self._least_offset(piece, batch, next_offset))
                if first_offset > next_offset:
                    if batch.position == piece.position:
                        yield from self._explain(number - 1, next_offset, first_offset)
                    else:
                        yield from self._explain_undamaged(next_offset, first_offset, piece.file, batch.position)
                yield batch
                next_offset = max(next_offset, batch.last_offset + 1)
        if next_offset < self.end_offset:
            yield from self._explain(len(self.log) - 1, next_offset, self.end_offset)

    def _explain(self, number: int, start: int, end: int) -> Iterator[Hole]:
        """Yields the holes in [start, end), which lies after the log's piece of that number. Damage answers for offsets
        that its file may hold, or that its header names.
        """
        found = _together(self._damage_after(number), self._naming(start, end))
        inner = self._edges[bisect_right(self._edges, start) : bisect_left(self._edges, end)]
        for first, last in pairwise([start, *inner, end]):
            low, high = bisect_right(self._bases, first) - 1, bisect_left(self._bases, last)
            part = found[_first_of(found, low, 0) : _first_of(found, high, 0)]
            part = [one for one in part if first < self._limit(one.number)]
            part = _together(part, self._naming(first, last)) or self._damage_of_swapped(low)
            yield from _merged(self._explain_part(number, first, last, part))

    def _damage_of_swapped(self, number: int) -> list[FileDamage]:
        """Finds the damage in the files whose offsets that file holds: its own batches may be there after a swap."""
        hosts = self._guests.get(number)
        return [one for one in self.damage if one.number in hosts] if hosts else []

    @cached_property
    def _guests(self) -> dict[int, set[int]]:
        """Maps files that hold batches of the log but none of their own offsets to the files of those offsets."""
        found: dict[int, set[int]] = {}
        for piece in self.log:
            found.setdefault(piece.file, set()).add(self.file_of(piece.base_offset))
        return {number: others for number, others in found.items() if number not in others}

    def _naming(self, start: int, end: int) -> Iterator[FileDamage]:
        """Yields damaged batches whose headers say that they held some of these offsets, and no others."""
        first = bisect_left(self._named, start, key=_NAMED_OFFSET)
        for one in self._named[first : bisect_left(self._named, end, key=_NAMED_OFFSET)]:
            if one.damage.end_offset is not None and one.damage.offset < one.damage.end_offset <= end:
                yield one

    @cached_property
    def _named(self) -> list[FileDamage]:
        """Sorts them by the offsets that their headers name."""
        return sorted((one for one in self.damage if one.damage.batch is not None), key=_NAMED_OFFSET)

    def _explain_part(self, number: int, start: int, end: int, found: Sequence[FileDamage]) -> Iterator[Hole]:
        """Explains first the offsets that headers of damaged batches name; the offsets between those are lost to the
        damage that stands there, or beside.
        """
        named = [(-1, start, start)]  # a number in `found`, and the offsets [first, last) that it names
        for at, one in enumerate(found):
            first, last_end = one.damage.offset, one.damage.end_offset
            if last_end is not None and named[-1][2] <= first < last_end <= end:
                named.append((at, first, last_end))
        named.append((len(found), end, end))
        file, position = (self.log[number].file, self.log[number].end_position) if number >= 0 else (0, 0)
        is_end = number == len(self.log) - 1
        for (before, _, rest_start), (after, first, last_end) in pairwise(named):
            if rest_start < first and before + 1 < after:
                yield self._damaged(rest_start, first, found[before + 1])
            elif rest_start < first:
                rest = self._explain_undamaged(rest_start, first, file, position, is_end=is_end, whole=(start, end))
                yield from self._lost_beside(rest, found[max(before, 0) : after], found[after : after + 1])
            if first < last_end:
                yield self._damaged(first, last_end, found[after])

    def _lost_beside(
        self, holes: Iterable[Hole], before: Sequence[FileDamage], after: Sequence[FileDamage]
    ) -> Iterator[Hole]:
        """Takes holes for lost that nothing else explains, to the damaged batch before them, or else after them."""
        for hole in holes:
            lost_to: Sequence[FileDamage] = ()
            if hole.reason in (HoleReason.UNKNOWN, HoleReason.MISSING):
                lost_to = before or after
            elif hole.reason is HoleReason.COMPACTED and after and _hides_first_offset(after[0].damage):
                lost_to = after
            yield self._damaged(hole.start, hole.end, lost_to[0]) if lost_to else hole

    def _explain_undamaged(
        self,
        start: int,
        end: int,
        file: int,
        position: int,
        *,
        is_end: bool = False,
        whole: tuple[int, int] | None = None,
    ) -> Iterator[Hole]:
        """Explains offsets to which no damage answers. `whole` is the hole that they are a part of, if it is more."""
        if self.files:
            path = self.files[-1 if is_end else file].path
        else:  # all of them are gone
            path = self.evidence.directory / offset_file_name(start, LOG_SUFFIX)
        holes = explain_holes(
            start, end, self.evidence, path, position, compacted_below=self.compacted_below,
            is_end=is_end and end > self._last_base_offset,
        )  # fmt: skip
        own = bisect_right(self._bases, start) - 1
        first, last = whole or (start, end)
        is_all_of_it = (
            own in self._overwritten and first <= max(self._bases[own], self.start_offset) and last >= self._limit(own)
        )
        for hole in holes:
            if hole.reason is HoleReason.COMPACTED and is_all_of_it:
                path = self.files[own].path
                why = f"the cleaner was at this log, but {path.name} holds batches of other offsets in their place"
                yield replace(hole, reason=HoleReason.UNKNOWN, evidence=why, path=path, position=0, end_position=0)
            else:
                yield hole

    @cached_property
    def _overwritten(self) -> set[int]:
        """Returns the numbers of the files that hold batches of the log, but none that begins with an offset of the
        file; the last file takes all.
        """
        holding, own = set[int](), set[int]()
        for piece in self.log:
            holding.add(piece.file)
            if self._bases[piece.file] <= piece.base_offset < self._limit(piece.file):
                own.add(piece.file)
        return holding - own - {len(self.files) - 1}

    def _damaged(self, start: int, end: int, one: FileDamage) -> Hole:
        return damaged_hole(start, end, self.files[one.number].path, one.damage)

    def _damage_after(self, number: int) -> list[FileDamage]:
        """Returns the damage in the files between the log's piece of that number and the next; batches that stand
        elsewhere do not count.
        """
        at = bisect_right(self.standing, self.log[number].base_offset, key=_BASE_OFFSET) if number >= 0 else 0
        before = self.standing[at - 1] if at else None
        after = self.standing[at] if at < len(self.standing) else None
        start = 0 if before is None else _first_of(self.damage, before.file, before.end_position)
        end = None if after is None else _first_of(self.damage, after.file, after.position)
        return self.damage[start:end]


def _own_end(pieces: Sequence[Piece], base_offset: int, position: int) -> int | None:
    """Returns where a file ends if its batches follow one another from that position on, or None."""
    last = pieces[-1] if pieces else None
    if last is None or last.span < last.end_offset - last.base_offset or last.end_offset < pieces[0].first_end_offset:
        return None
    is_whole = last.position <= position < last.end_position and (position > 0 or last.base_offset == base_offset)
    return last.end_offset if is_whole else None


def _piece_of(number: int, batch: Batch) -> Piece:
    base_offset, end_offset = first_offset_of(batch, batch.last_offset), batch.last_offset + 1
    if isinstance(batch, RecordBatch):
        is_of_cleaner = is_thinned(batch.count, batch.last_offset_delta, batch.attributes)
    else:
        is_of_cleaner = lacks_some(batch)
    return Piece(
        file=number,
        position=batch.position,
        end_position=batch.position + batch.size_bytes,
        base_offset=base_offset,
        end_offset=end_offset,
        span=end_offset - base_offset,
        first_end_offset=end_offset,
        batches=1,
        crc=batch.crc,
        shift=stated_offset(batch) - base_offset,
        is_thinned=is_of_cleaner,
        is_legacy=not isinstance(batch, RecordBatch),
    )


def _hides_first_offset(damage: Damage) -> bool:
    """Says whether a damaged batch may have held offsets before those that its header names: the header of a compressed
    message of magic 0 or 1 names only the last.
    """
    batch = damage.batch
    if not isinstance(batch, LegacyRecordBatch) or not batch.attributes & CODEC_MASK:
        return False
    is_believed = batch.computed_crc() == batch.crc and bool(_covered_offsets(batch))
    return damage.end_offset == damage.offset + 1 and not is_believed


def _covered_offsets(batch: Batch) -> list[int]:
    """Returns the offsets inside a compressed message of magic 0, which its checksum covers; of other batches, none."""
    if not isinstance(batch, LegacyRecordBatch) or batch.magic or not batch.attributes & CODEC_MASK:
        return []
    return inner_offsets(batch)


def _misstated(batch: Batch) -> Damage | None:
    """Returns a compressed message of magic 0 as damage if its offset is not that of the last one inside, or None."""
    offsets = _covered_offsets(batch)
    if not offsets or offsets[-1] == batch.last_offset:
        return None
    fix = byte_fix(batch.position, batch.last_offset, offsets[-1], 8)
    inside = offsets_text(offsets[0], offsets[-1] + 1)
    message = f"offset {batch.last_offset} of a compressed message with {inside} in it"
    message += "" if fix is None else f": {fix}"
    span = batch.position, batch.position + batch.size_bytes, offsets[0], offsets[-1] + 1
    return Damage(DamageKind.OFFSETS_NOT_RISING, message, *span, len(offsets), batch, fix)


def _zeroed_offset(batch: Batch, following: Batch | None = None) -> Damage:
    """Returns a batch right after zeros as damage: they may have taken its base offset too. Its records are sound, but
    their offsets are unknown, unless the batch that follows shows them.
    """
    first, end = 0, None
    if isinstance(batch, RecordBatch) and following is not None:
        end = stated_offset(following)
        first = end - batch.last_offset_delta - 1
    message = "the zeros before it reach into its base offset"
    span = batch.position, batch.position + batch.size_bytes, first, end
    return Damage(DamageKind.ZEROED, message, *span, batch=batch)


def _merged(holes: Iterable[Hole]) -> Iterator[Hole]:
    """Names each damage once, with all that it costs."""
    for _, same in groupby(holes, key=lambda hole: (id(hole.damage), hole.damage is None and hole.start)):
        first, *others = same
        yield replace(first, end=others[-1].end) if others else first


def _together(found: Iterable[FileDamage], others: Iterable[FileDamage]) -> list[FileDamage]:
    return sorted({one.place: one for one in (*found, *others)}.values(), key=_PLACE)


def _first_of(found: Sequence[FileDamage], number: int, position: int) -> int:
    return bisect_left(found, (number, position), key=_PLACE)
