"""Which sound batches of a partition are its log, and in which order: offsets are in no checksum.

A base offset may have a flipped bit, a batch may stand twice or in another's place, a segment may have been copied
under another's name. No single batch tells, but all of them together do, as nearly all are right:

- A batch that begins where the one before it ended is accepted.
- One whose base offset differs by one bit from there, and after which the log goes on as if that bit were right, is
  flipped: what it holds is damage with a known remedy.
- Otherwise the heaviest chain of batches with rising offsets decides who stays; the others are displaced.
- A displaced batch is a copy of an accepted one (repeated); or it belongs into a hole between accepted ones (placed);
  or one bit explains it (flipped); or its offsets are others' (stray).

The log is the accepted and the placed batches. Works on pieces, which stand for many batches with rising offsets, so
that a sound segment is one piece; they are taken apart only where they contradict each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from itertools import pairwise

from core.index.abstract_index import MAX_RELATIVE_OFFSET

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Sound batches, one after the other in bytes [position, end_position) of a file, whose offsets rise.

    `file` counts the partition's log files. Offsets are [base_offset, end_offset), of which the batches cover `span`;
    the first batch ends below `first_end_offset`. `crc` is the first batch's.
    """

    file: int
    position: int
    end_position: int
    base_offset: int
    end_offset: int
    span: int
    first_end_offset: int
    batches: int
    crc: int

    def then(self, other: Piece) -> Piece:
        """This piece and the one that follows it in the file, as one."""
        return replace(
            self,
            end_position=other.end_position,
            end_offset=other.end_offset,
            span=self.span + other.span,
            batches=self.batches + other.batches,
        )

    @property
    def has_holes(self) -> bool:
        return self.span < self.end_offset - self.base_offset


FindBatches = Callable[[Piece], Iterable[Piece]]
"""Takes a piece apart: one piece for each of its batches."""


class Fate(StrEnum):
    """What becomes of a batch that does not stand where it belongs."""

    PLACED = "placed"
    REPEATED = "repeated"
    FLIPPED = "flipped"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class Displaced:
    """A piece that is not accepted where it stands. `right_base_offset` is the base offset that it had before a bit of
    it flipped, or the one that it has.
    """

    piece: Piece
    fate: Fate
    right_base_offset: int


@dataclass(frozen=True, slots=True)
class Placement:
    """`log` holds the accepted and the placed pieces in order of offsets, `displaced` the others and the placed ones in
    order of files and positions.
    """

    log: list[Piece]
    displaced: list[Displaced]


class PieceBuilder:
    """Puts the batches of the files together to pieces, in order of files and positions; owned by one task.

    Batches join a piece as long as their offsets rise. Where they do not, the batches between the contradiction and the
    nearest hole on either side become pieces of their own: among them is the one that is wrong.
    """

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._head: Piece | None = None  # up to the last hole
        self._tail: Piece | None = None  # from there on
        self._is_after_contradiction = True

    def add(self, piece: Piece) -> None:
        """The next batch, or the next few that follow one another without a hole."""
        tail = self._tail
        if tail is None or tail.file != piece.file or tail.end_position != piece.position:
            self.end_piece()
            self._tail = piece
        elif piece.base_offset == tail.end_offset:
            self._tail = tail.then(piece)
        elif piece.base_offset < tail.end_offset:
            self.end_piece()
            self._tail = piece
        else:
            if self._is_after_contradiction:
                self.end_piece()
            else:
                self._head = tail if self._head is None else self._head.then(tail)
            self._tail, self._is_after_contradiction = piece, False

    def end_piece(self) -> None:
        """What comes next is no part of what came before."""
        self.pieces += [piece for piece in (self._head, self._tail) if piece is not None]
        self._head = self._tail = None
        self._is_after_contradiction = True


def place(pieces: Sequence[Piece], base_offsets: Sequence[int], find_batches: FindBatches) -> Placement:
    """Decides over all pieces of a partition; `base_offsets` are those of its files, by their names."""
    if _is_in_order(pieces, base_offsets):
        return Placement(list(pieces), [])
    apart = _take_apart(pieces, base_offsets, find_batches)
    return _Placer(apart, base_offsets, find_batches).place()


def one_bit_apart(a: int, b: int) -> bool:
    """Whether two numbers of 64 bits differ in exactly one of them."""
    return ((a ^ b) & _WORD).bit_count() == 1


def _is_in_order(pieces: Sequence[Piece], base_offsets: Sequence[int]) -> bool:
    following = [*base_offsets[1:], 1 << 63]
    return all(before.end_offset <= after.base_offset for before, after in pairwise(pieces)) and all(
        _may_stand(piece, base_offsets) and piece.end_offset <= following[piece.file] for piece in pieces
    )


def _may_stand(piece: Piece, base_offsets: Sequence[int]) -> bool:
    """Whether offsets as these can be in a file of that name."""
    base_offset = base_offsets[piece.file]
    return base_offset <= piece.base_offset and piece.end_offset - 1 - base_offset <= MAX_RELATIVE_OFFSET


def _take_apart(pieces: Sequence[Piece], base_offsets: Sequence[int], find_batches: FindBatches) -> list[Piece]:
    """The same, with each piece cut where another one's offsets begin or end within it, or those of a file."""
    result = list(pieces)
    while True:
        edges = sorted({edge for piece in result for edge in (piece.base_offset, piece.end_offset)} | set(base_offsets))
        cut: list[Piece] = []
        for piece in result:
            inner = edges[bisect_right(edges, piece.base_offset) : bisect_left(edges, piece.end_offset)]
            cut += _cut(find_batches(piece), inner) if inner and piece.batches > 1 else [piece]
        if len(cut) == len(result):
            return result
        result = cut


def _cut(batches: Iterable[Piece], edges: Sequence[int]) -> list[Piece]:
    """Batches put together again, but for those that an edge lies in, or between."""
    result: list[Piece] = []
    is_open = False  # whether the next batch may join the last piece
    for batch in batches:
        at = bisect_right(edges, batch.base_offset)
        is_alone = at < len(edges) and edges[at] < batch.end_offset
        if is_open and not is_alone and bisect_right(edges, result[-1].end_offset - 1) == at:
            result[-1] = result[-1].then(batch)
        else:
            result.append(batch)
        is_open = not is_alone
    return result


class _Placer:
    def __init__(self, pieces: Sequence[Piece], base_offsets: Sequence[int], find_batches: FindBatches) -> None:
        self._pieces = pieces
        self._base_offsets = base_offsets
        self._find_batches = find_batches
        self._right_bases = [self._find_right_base(number) for number in range(len(pieces))]
        self._is_usable = [
            right is None and _may_stand(piece, base_offsets)
            for piece, right in zip(pieces, self._right_bases, strict=True)
        ]
        self._weights, self._successors = self._weigh()

    def _find_right_base(self, number: int) -> int | None:
        """The base offset that a batch had before a flipped bit took it out of a log without holes; None of others."""
        piece = self._pieces[number]
        if piece.batches > 1:
            return None
        before = self._pieces[number - 1] if number else None
        is_first = before is None or before.file != piece.file
        expected = self._base_offsets[piece.file] if is_first else self._pieces[number - 1].end_offset
        after = self._pieces[number + 1] if number + 1 < len(self._pieces) else None
        if after is not None and after.file == piece.file:
            following: int | None = after.base_offset
        else:
            following = self._base_offsets[piece.file + 1] if piece.file + 1 < len(self._base_offsets) else None
        is_flipped = one_bit_apart(piece.base_offset, expected) and following == expected + piece.span
        return expected if is_flipped else None

    # --- the heaviest chain

    def _weigh(self) -> tuple[list[int], list[int | None]]:
        """Of each piece, the weight of the heaviest chain that begins with it, and the next piece of that chain."""
        count = len(self._pieces)
        weights = [0] * count
        bases = sorted({piece.base_offset for piece in self._pieces})
        best: list[int | None] = [None] * (len(bases) + 1)  # a Fenwick tree over the bases from the largest down
        found: list[int | None] = [None] * count
        for number in reversed(range(count)):
            if not self._is_usable[number]:
                continue
            piece = self._pieces[number]
            at = len(bases) - bisect_left(bases, piece.end_offset)
            successor: int | None = None
            while at > 0:
                successor = self._better(weights, successor, best[at])
                at -= at & -at
            found[number] = successor
            weights[number] = piece.span + (0 if successor is None else weights[successor])
            at = len(bases) - bisect_left(bases, piece.base_offset)
            while at <= len(bases):
                best[at] = self._better(weights, best[at], number)
                at += at & -at
        return weights, found

    def _better(self, weights: Sequence[int], one: int | None, other: int | None) -> int | None:
        """The heavier; of equals the one that ends first, then the one that stands first."""
        if one is None or other is None:
            return other if one is None else one
        return min(one, other, key=lambda n: (-weights[n], self._pieces[n].first_end_offset, n))

    def _heaviest(self, start: int, next_offset: int) -> int | None:
        found: int | None = None
        for number in range(start, len(self._pieces)):
            if self._is_usable[number] and self._pieces[number].base_offset >= next_offset:
                found = self._better(self._weights, found, number)
        return found

    def place(self) -> Placement:
        next_offset = self._base_offsets[0]
        heaviest = self._heaviest(0, next_offset)
        accepted: list[int] = []
        displaced: list[int] = []
        for number, piece in enumerate(self._pieces):
            right = self._right_bases[number]
            limit = self._base_offsets[piece.file + 1] if piece.file + 1 < len(self._base_offsets) else 1 << 63
            goes_on = piece.base_offset == next_offset and piece.end_offset <= limit
            if self._is_usable[number] and (goes_on or number == heaviest):
                accepted.append(number)
                next_offset, heaviest = piece.end_offset, self._successors[number]
                continue
            displaced.append(number)
            if right == next_offset:
                next_offset += piece.span
                if heaviest is not None and self._pieces[heaviest].base_offset < next_offset:
                    heaviest = self._heaviest(number + 1, next_offset)
        return _Fitting(
            self._pieces, accepted, displaced, self._right_bases, self._base_offsets, self._find_batches
        ).fit()


class _Room(Enum):
    NONE = 0
    ROOM = 1
    EXACT = 2
    """The piece fills the hole, and nothing is left of it."""


class _Fitting:
    """What becomes of the displaced pieces."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        accepted: Sequence[int],
        displaced: Sequence[int],
        right_bases: Sequence[int | None],
        base_offsets: Sequence[int],
        find_batches: FindBatches,
    ) -> None:
        self._pieces = pieces
        self._find_batches = find_batches
        self._opened: tuple[Piece, dict[int, Piece]] | None = None
        self._accepted = accepted
        self._displaced = displaced
        self._right_bases = right_bases
        self._base_offsets = base_offsets
        self._log = sorted((pieces[n] for n in accepted), key=_base_offset)
        self._result: list[Displaced] = []

    def fit(self) -> Placement:
        for run in self._runs():
            first = self._pieces[run[0]]
            right = self._right_bases[run[0]]
            if right is not None:
                self._result.append(Displaced(first, Fate.FLIPPED, right))
                continue
            whole = first
            for number in run[1:]:
                whole = whole.then(self._pieces[number])
            if whole.batches > 1 and self._find_room(whole) is not _Room.NONE:
                self._put(whole)
                continue
            for number in run:
                piece = self._pieces[number]
                for batch in self._find_batches(piece) if piece.batches > 1 else [piece]:
                    self._fit_batch(number, batch)
        return Placement(self._log, self._result)

    def _runs(self) -> Iterable[list[int]]:
        """Displaced pieces that stand one after the other, and whose offsets follow one another."""
        run: list[int] = []
        for number in self._displaced:
            piece = self._pieces[number]
            before = self._pieces[run[-1]] if run else None
            if (
                before is not None
                and number == run[-1] + 1
                and self._right_bases[number] is None
                and self._right_bases[run[-1]] is None
                and (before.file, before.end_position, before.end_offset)
                == (piece.file, piece.position, piece.base_offset)
            ):
                run.append(number)
                continue
            if run:
                yield run
            run = [number]
        if run:
            yield run

    def _fit_batch(self, number: int, batch: Piece) -> None:
        room = self._find_room(batch)
        if self._is_repeated(batch):
            self._tell(batch, Fate.REPEATED)
        elif room is _Room.EXACT:
            self._put(batch)
        elif (right := self._find_one_bit(number, batch)) is not None:
            self._result.append(Displaced(batch, Fate.FLIPPED, right))
        elif room is _Room.ROOM:
            self._put(batch)
        else:
            self._tell(batch, Fate.STRAY)

    def _put(self, piece: Piece) -> None:
        insort(self._log, piece, key=_base_offset)
        self._tell(piece, Fate.PLACED)

    def _tell(self, piece: Piece, fate: Fate) -> None:
        """Neighbours that share their fate are one."""
        last = self._result[-1] if self._result else None
        if (
            last is not None
            and last.fate is fate
            and (last.piece.file, last.piece.end_position, last.piece.end_offset)
            == (piece.file, piece.position, piece.base_offset)
        ):
            self._result[-1] = replace(last, piece=last.piece.then(piece))
        else:
            self._result.append(Displaced(piece, fate, piece.base_offset))

    def _find_room(self, piece: Piece) -> _Room:
        """Whether the piece lies in a hole of the log."""
        at = bisect_right(self._log, piece.base_offset, key=_base_offset)
        before = self._log[at - 1] if at else None
        after = self._log[at] if at < len(self._log) else None
        touches_before = before is not None and before.end_offset == piece.base_offset
        touches_after = after is not None and after.base_offset == piece.end_offset
        if before is None and after is None:
            return _Room.NONE
        if before is None:
            return _Room.EXACT if touches_after and piece.base_offset >= self._base_offsets[0] else _Room.NONE
        if after is None:
            return _Room.EXACT if touches_before else _Room.NONE
        if before.end_offset > piece.base_offset or piece.end_offset > after.base_offset:
            return _Room.NONE
        return _Room.EXACT if touches_before and touches_after else _Room.ROOM

    def _is_repeated(self, batch: Piece) -> bool:
        """Whether the log has the same batch elsewhere."""
        at = bisect_right(self._log, batch.base_offset, key=_base_offset)
        if at == 0 or self._log[at - 1].end_offset < batch.end_offset:
            return False
        piece = self._log[at - 1]
        if self._opened is None or self._opened[0] is not piece:
            self._opened = piece, {one.base_offset: one for one in self._find_batches(piece)}
        other = self._opened[1].get(batch.base_offset)
        return other is not None and (other.end_offset, other.crc) == (batch.end_offset, batch.crc)

    def _find_one_bit(self, number: int, batch: Piece) -> int | None:
        """The base offset with which the batch would fit where it stands, next to an accepted one, if that is one bit
        away from the one it has.
        """
        at = bisect_left(self._accepted, number)
        low = self._pieces[self._accepted[at - 1]].end_offset if at else self._base_offsets[batch.file]
        high = self._pieces[self._accepted[at]].base_offset if at < len(self._accepted) else 1 << 63
        for right in (low, high - batch.span):
            if low <= right and right + batch.span <= high and one_bit_apart(batch.base_offset, right):
                return right
        return None


def _base_offset(piece: Piece) -> int:
    return piece.base_offset
