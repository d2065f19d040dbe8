"""Decides which sound batches of a partition are its log, and in which order: offsets are in no checksum.

A base offset may have a flipped bit, a batch may stand twice or in another's place, a segment may have been copied
under another's name. No single batch shows it, but all of them together do, as nearly all are right:

- A batch that begins where the one before it ended is accepted.
- A batch whose base offset differs by one bit from there, and after which the log continues as if that bit were
  right, is flipped: its records are damage with a known remedy.
- Otherwise the heaviest chain of batches with rising offsets decides which stay; the others are displaced.
- A displaced batch is a copy of an accepted one (repeated); or it belongs into a hole between accepted ones (placed);
  or one bit explains it (flipped); or its offsets are others' (stray).

The log is the accepted and the placed batches. Works on pieces, which stand for many batches with rising offsets, so
that a sound segment is one piece; they are taken apart only if they contradict each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import cached_property
from itertools import accumulate, pairwise
from operator import attrgetter

from core.forensics.bit_flip import is_odd_end, one_bit_apart
from core.index.offset_index import MAX_RELATIVE_OFFSET

_BASE_OFFSET = attrgetter("base_offset")
_NO_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class Piece:
    """Sound batches with rising offsets, one after the other in bytes [position, end_position) of a file.

    `file` counts the partition's log files. Offsets are [base_offset, end_offset); the batches cover `span` of them.
    The first batch ends below `first_end_offset`. `crc` is the first batch's; its header states an offset `shift` above
    its first one, as that of a compressed message of magic 0 or 1 does. `is_thinned`: a batch shows that a cleaner took
    records of it. `is_legacy`: a batch is a message of magic 0 or 1.
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
    shift: int = 0
    is_thinned: bool = False
    is_legacy: bool = False

    def is_one_bit_from(self, base_offset: int, *, fits: bool = False) -> bool:
        """Says whether one bit of its header stands between it and that base offset. If it `fits` there, which nothing
        else explains, old messages may have any other offset: not only disks, but brokers and tools wrote them again.
        """
        if fits and self.shift:
            return self.base_offset != base_offset
        return one_bit_apart(self.base_offset + self.shift, base_offset + self.shift)

    def then(self, other: Piece) -> Piece:
        """Joins this piece and the one that follows it in the file."""
        return replace(
            self,
            end_position=other.end_position,
            end_offset=other.end_offset,
            span=self.span + other.span,
            batches=self.batches + other.batches,
            is_thinned=self.is_thinned or other.is_thinned,
            is_legacy=self.is_legacy or other.is_legacy,
        )


FindBatches = Callable[[Piece], Iterable[Piece]]
"""Takes a piece apart: one piece for each of its batches."""


class Fate(StrEnum):
    """The verdict on a batch that does not stand where it belongs."""

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
class BatchOrder:
    """`log` holds the accepted and the placed pieces in order of offsets, `standing` the accepted ones alone;
    `displaced` the others and the placed ones in order of files and positions.
    """

    log: list[Piece]
    standing: list[Piece]
    displaced: list[Displaced]


class PieceBuilder:
    """Puts the batches of the files together into pieces, in order of files and positions; owned by one task.

    Batches join a piece as long as their offsets rise. If they do not, the batches between the contradiction and the
    nearest hole on either side become pieces of their own: among them is the one that is wrong.
    """

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._head: Piece | None = None  # up to the last hole
        self._tail: Piece | None = None  # from there on
        self._is_after_contradiction = True

    def add(self, piece: Piece) -> None:
        """Takes the next batch, or the next few that follow one another without a hole."""
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
        """Ends the piece: the next batch does not continue it."""
        self.pieces += [piece for piece in (self._head, self._tail) if piece is not None]
        self._head = self._tail = None
        self._is_after_contradiction = True


def place(
    pieces: Sequence[Piece],
    base_offsets: Sequence[int],
    known_end: int,
    find_batches: FindBatches,
    *,
    own_end: int | None = None,
    cleaned_below: int = 0,
) -> BatchOrder:
    """Decides over all pieces of a partition. `base_offsets` are those of its files, by their names; the log is known
    to have reached to `known_end`, and a cleaner worked below `cleaned_below`. `own_end` is where the last file ends
    soundly by itself, if it does: batches that stand elsewhere follow it only up to `known_end`.
    """
    files = _Files(pieces, base_offsets, known_end, cleaned_below, own_end)
    if files.are_in_order():
        is_after_hole = bool(pieces) and pieces[-1].batches == 1  # a batch joins those that it goes on from
        if not (pieces and is_odd_end(pieces[-1].end_offset, known_end, is_after_hole=is_after_hole)):
            return BatchOrder(list(pieces), list(pieces), [])
    apart = _take_apart(pieces, base_offsets, find_batches)
    return _Placer(replace(files, pieces=apart), find_batches).place()


@dataclass(frozen=True)
class _Files:
    """The pieces where they stand in the files, and how far other files know the log to have reached: the arguments of
    `place`. A cleaner's checkpoint does not say that the log ended there.
    """

    pieces: Sequence[Piece]
    base_offsets: Sequence[int]
    stated_end: int
    cleaned_below: int
    own_end: int | None

    @property
    def known_end(self) -> int:
        return max(self.stated_end, self.base_offsets[-1])

    @property
    def last_end(self) -> int:
        """Returns where a batch may end at most that is put after all others."""
        return _NO_LIMIT if self.own_end is None else max(self.own_end, self.known_end)

    def limit(self, piece: Piece) -> int:
        """Returns where the next file begins, by its name."""
        return self.base_offsets[piece.file + 1] if piece.file + 1 < len(self.base_offsets) else _NO_LIMIT

    def end_before(self, number: int) -> int:
        """Returns where the piece before it in the file ends, or the file's base offset."""
        file = self.pieces[number].file
        before = self.pieces[number - 1] if number else None
        return self.base_offsets[file] if before is None or before.file != file else before.end_offset

    def piece_after(self, number: int) -> Piece | None:
        """Returns the piece after it in the file, or None."""
        after = self.pieces[number + 1] if number + 1 < len(self.pieces) else None
        return after if after is not None and after.file == self.pieces[number].file else None

    def are_in_order(self) -> bool:
        return all(before.end_offset <= after.base_offset for before, after in pairwise(self.pieces)) and all(
            may_stand and piece.end_offset <= self.limit(piece)
            for piece, may_stand in zip(self.pieces, self.may_stand, strict=True)
        )

    def is_beyond_reach(self, piece: Piece) -> bool:
        """Says whether no index of a file of that name can name its offsets."""
        return piece.end_offset - 1 - self.base_offsets[piece.file] > MAX_RELATIVE_OFFSET

    @cached_property
    def borne_out(self) -> AbstractSet[int]:
        """Returns the numbers of the pieces beyond the reach of their files that others confirm: such a piece continues
        the one before it, or another such piece with offsets that rise with its own is before or after it in the file.
        """
        far = [number for number, piece in enumerate(self.pieces) if self.is_beyond_reach(piece)]
        found = {n for n in far if self.pieces[n].batches > 1 or self.end_before(n) == self.pieces[n].base_offset}
        least_end, largest_base = dict[int, int](), dict[int, int]()
        for number in far:
            piece = self.pieces[number]
            if least_end.setdefault(piece.file, piece.end_offset) <= piece.base_offset:
                found.add(number)
            least_end[piece.file] = min(least_end[piece.file], piece.end_offset)
        for number in reversed(far):
            piece = self.pieces[number]
            if largest_base.setdefault(piece.file, piece.base_offset) >= piece.end_offset:
                found.add(number)
            largest_base[piece.file] = max(largest_base[piece.file], piece.base_offset)
        return found

    @cached_property
    def may_stand(self) -> list[bool]:
        """Says of each piece whether offsets as these can be in a file of that name."""
        return [self._may_stand(number, piece) for number, piece in enumerate(self.pieces)]

    def _may_stand(self, number: int, piece: Piece) -> bool:
        """Old cleaners made segments with more than an index can name (KAFKA-5413), and another such batch in the file
        bears it out, or the next file's name; one that stands alone may rather have a flipped bit.
        """
        base_offset, limit = self.base_offsets[piece.file], self.limit(piece)
        has_own_end = self.own_end is not None and self.own_end > self.base_offsets[-1]
        if has_own_end and limit < _NO_LIMIT and piece.end_offset > self.last_end:
            return False  # no batch of another file follows the records of the last one
        if not self.is_beyond_reach(piece):
            return base_offset <= piece.base_offset
        if number in self.borne_out or piece.end_offset <= limit < _NO_LIMIT:
            return True
        if self.stated_end or piece.end_offset <= self.cleaned_below:
            return piece.end_offset <= max(self.stated_end, self.cleaned_below)
        end_before = self.end_before(number)
        if end_before - base_offset > MAX_RELATIVE_OFFSET + 1:  # nor does anything bear that one out
            end_before = base_offset
        bits = (1 << bit for bit in range(MAX_RELATIVE_OFFSET.bit_length(), 63))
        without_a_bit = (piece.base_offset - bit for bit in bits if piece.base_offset & bit)
        return not any(end_before <= right <= base_offset + MAX_RELATIVE_OFFSET for right in without_a_bit)


def _take_apart(pieces: Sequence[Piece], base_offsets: Sequence[int], find_batches: FindBatches) -> list[Piece]:
    """Returns the pieces, each cut where the offsets of another piece, or of a file, begin or end within it."""
    cut = _cut_all(pieces, _edges_of(pieces) | set(base_offsets), find_batches)
    if len(cut) == len(pieces):
        return cut
    # A batch that stands alone now has edges of its own, which may lie within batches of other pieces.
    edges = _edges_of(cut) | set(base_offsets)
    _spread(edges, [piece for piece in cut if piece.batches > 1], find_batches)
    return _cut_all(cut, edges, find_batches)


def _edges_of(pieces: Iterable[Piece]) -> set[int]:
    return {edge for piece in pieces for edge in (piece.base_offset, piece.end_offset)}


def _spread(edges: set[int], pieces: Iterable[Piece], find_batches: FindBatches) -> None:
    """Adds to `edges` where the batches beside each edge begin and end (`_edges_beside`), and does so for the added
    edges until none is new. For each edge it looks at the few pieces that hold the offset.
    """
    rest = sorted(pieces, key=_BASE_OFFSET)
    furthest = list(accumulate((piece.end_offset for piece in rest), max))  # end of this piece and those before it
    opened: dict[int, list[tuple[int, int]]] = {}
    todo = list(edges)
    while todo:
        edge = todo.pop()
        number = bisect_left(rest, edge, key=_BASE_OFFSET) - 1
        while number >= 0 and furthest[number] > edge:
            if rest[number].end_offset > edge:
                if number not in opened:
                    opened[number] = [(batch.base_offset, batch.end_offset) for batch in find_batches(rest[number])]
                found = _edges_beside(edge, opened[number]) - edges
                edges |= found
                todo += found
            number -= 1


def _edges_beside(edge: int, batches: Sequence[tuple[int, int]]) -> set[int]:
    """Finds where batches are cut from one another because of an edge between two of them, or within one."""
    after = bisect_left(batches, (edge,))
    found = {start for start, _ in batches[after : after + 1]}
    for start, end in batches[max(after - 1, 0) : after]:
        found.add(end)
        if edge < end:
            found |= {start, *(end_before for _, end_before in batches[max(after - 2, 0) : after - 1])}
    return found


def _cut_all(pieces: Iterable[Piece], edges: Iterable[int], find_batches: FindBatches) -> list[Piece]:
    edges = sorted(edges)
    result: list[Piece] = []
    for piece in pieces:
        inner = edges[bisect_right(edges, piece.base_offset) : bisect_left(edges, piece.end_offset)]
        result += _cut(find_batches(piece), inner) if inner and piece.batches > 1 else [piece]
    return result


def _cut(batches: Iterable[Piece], edges: Sequence[int]) -> list[Piece]:
    """Joins batches into pieces again, except where an edge lies in a batch, or between two."""
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
    """Says which pieces are accepted where they stand."""

    def __init__(self, files: _Files, find_batches: FindBatches) -> None:
        self._files = files
        self._find_batches = find_batches
        self._pieces = files.pieces
        self._may_be_accepted = [
            may_stand
            and not self._is_flipped(number, files.end_before(number))
            and not self._is_flipped_upwards(number)
            for number, may_stand in enumerate(files.may_stand)
        ]
        self._weights, self._successors = self._weigh()

    def place(self) -> BatchOrder:
        next_offset = self._files.base_offsets[0]
        heaviest = self._heaviest(0, next_offset)
        accepted: list[int] = []
        displaced: list[int] = []
        flips: dict[int, int] = {}
        for number, piece in enumerate(self._pieces):
            is_in_turn = piece.base_offset == next_offset and piece.end_offset <= self._files.limit(piece)
            if is_in_turn and self._files.may_stand[number]:
                accepted.append(number)
                next_offset, heaviest = piece.end_offset, self._successors[number]
            elif self._is_flipped(number, next_offset):
                flips[number] = next_offset
                next_offset += piece.span
                if heaviest is not None and self._pieces[heaviest].base_offset < next_offset:
                    heaviest = self._heaviest(number + 1, next_offset)
            elif number == heaviest:
                accepted.append(number)
                next_offset, heaviest = piece.end_offset, self._successors[number]
            else:
                displaced.append(number)
        # Two batches that changed places may look like two flips: a flip is none if another batch has its offset.
        claimed = {self._pieces[number].base_offset for number in (*displaced, *flips)}
        doubted = [number for number, due in flips.items() if due in claimed]
        flips = {number: due for number, due in flips.items() if due not in claimed}
        return _Fitting(self._files, self._find_batches, accepted, sorted([*displaced, *doubted]), flips).fit()

    # --- flipped bits

    def _is_flipped(self, number: int, due: int) -> bool:
        """Says whether one flipped bit of its base offset keeps a batch from offset `due`, and the log continues as if
        the bit were right.
        """
        piece = self._pieces[number]
        if (
            piece.batches > 1
            or due < self._files.base_offsets[piece.file]
            or self._files.end_before(number) == piece.base_offset
            or not piece.is_one_bit_from(due, fits=True)
        ):
            return False
        after, limit = self._files.piece_after(number), self._files.limit(piece)
        following = limit if limit < _NO_LIMIT else self._files.known_end
        return due + piece.span == (following if after is None else after.base_offset)

    def _is_flipped_upwards(self, number: int) -> bool:
        """Says whether a batch goes beyond the next one of its file, and one bit of its base offset explains it: the
        batch before it may stand elsewhere, and proves nothing. Not where it is the next one, an old message, that
        states a wrong offset.
        """
        piece = self._pieces[number]
        after = self._files.piece_after(number)
        if piece.batches > 1 or after is None or piece.end_offset <= after.base_offset:
            return False
        right = after.base_offset - piece.span
        if self._files.end_before(number) == piece.base_offset or not piece.is_one_bit_from(right):
            return False
        return not after.shift or not self._is_flipped(number + 1, piece.end_offset)

    # --- the heaviest chain

    def _weigh(self) -> tuple[list[int], list[int | None]]:
        """Returns for each piece the weight of the heaviest chain that begins with it, and that chain's next piece. One
        that may not be accepted follows no other in a chain; but if the log continues with it, its own is needed.
        """
        count = len(self._pieces)
        weights = [0] * count
        successors: list[int | None] = [None] * count
        bases = sorted({piece.base_offset for piece in self._pieces})
        best: list[int | None] = [None] * (len(bases) + 1)  # a Fenwick tree over the bases from the largest down
        for number in reversed(range(count)):
            piece = self._pieces[number]
            at = len(bases) - bisect_left(bases, piece.end_offset)
            successor: int | None = None
            while at > 0:
                successor = self._better(weights, successor, best[at])
                at -= at & -at
            successors[number] = successor
            weights[number] = piece.span + (0 if successor is None else weights[successor])
            if not self._may_be_accepted[number]:
                continue
            at = len(bases) - bisect_left(bases, piece.base_offset)
            while at <= len(bases):
                best[at] = self._better(weights, best[at], number)
                at += at & -at
        return weights, successors

    def _better(self, weights: Sequence[int], one: int | None, other: int | None) -> int | None:
        """Returns the heavier piece; of equals the one that ends first, then the one that stands first."""
        if one is None or other is None:
            return other if one is None else one
        return min(one, other, key=lambda n: (-weights[n], self._pieces[n].first_end_offset, n))

    def _heaviest(self, start: int, next_offset: int) -> int | None:
        found: int | None = None
        for number in range(start, len(self._pieces)):
            if self._may_be_accepted[number] and self._pieces[number].base_offset >= next_offset:
                found = self._better(self._weights, found, number)
        return found


class _Room(Enum):
    NONE = 0
    ROOM = 1
    EXACT = 2
    """The piece fills the hole, and nothing is left of it."""


class _Fitting:
    """Decides the fate of the displaced pieces."""

    def __init__(
        self,
        files: _Files,
        find_batches: FindBatches,
        accepted: Sequence[int],
        displaced: Sequence[int],
        flips: Mapping[int, int],
    ) -> None:
        self._files = files
        self._find_batches = find_batches
        self._pieces = files.pieces
        self._opened: tuple[Piece, dict[int, Piece]] | None = None
        self._accepted = accepted
        self._left: list[tuple[int, Piece]] = [(number, self._pieces[number]) for number in displaced]
        self._standing = sorted((self._pieces[n] for n in accepted), key=_BASE_OFFSET)
        self._log = [*self._standing]
        self._mended = sorted((due, due + self._pieces[number].span) for number, due in flips.items())
        """The offsets [start, end) of flipped batches as they were."""
        self._result = [Displaced(self._pieces[number], Fate.FLIPPED, due) for number, due in flips.items()]

    def fit(self) -> BatchOrder:
        """Tries the pieces until none finds a place: the first may fit only beside a later one."""
        while True:
            before = len(self._left)
            left, self._left = self._left, []
            for run in _runs(left):
                self._fit_run(run)
            if len(self._left) == before:
                break
        strays = [Displaced(piece, Fate.STRAY, piece.base_offset) for _, piece in self._left]
        found = sorted([*self._result, *strays], key=lambda one: (one.piece.file, one.piece.position))
        return BatchOrder(self._log, self._standing, _joined(found))

    def _fit_run(self, run: Sequence[tuple[int, Piece]]) -> None:
        whole = run[0][1]
        for _, piece in run[1:]:
            whole = whole.then(piece)
        if whole.batches > 1 and self._find_room(run[-1][0], whole) is not _Room.NONE:
            self._put(whole)
            return
        for number, piece in run:
            for batch in self._find_batches(piece) if piece.batches > 1 else [piece]:
                self._fit_batch(number, batch)

    def _fit_batch(self, number: int, batch: Piece) -> None:
        room = self._find_room(number, batch)
        if self._is_repeated(batch):
            self._result.append(Displaced(batch, Fate.REPEATED, batch.base_offset))
        elif room is _Room.EXACT:
            self._put(batch)
        elif (right := self._find_one_bit(number, batch)) is not None:
            insort(self._mended, (right, right + batch.span))
            self._result.append(Displaced(batch, Fate.FLIPPED, right))
        elif room is _Room.ROOM:
            self._put(batch)
        else:
            self._left.append((number, batch))

    def _put(self, piece: Piece) -> None:
        insort(self._log, piece, key=_BASE_OFFSET)
        self._result.append(Displaced(piece, Fate.PLACED, piece.base_offset))

    def _find_room(self, number: int, piece: Piece) -> _Room:
        """Says whether the piece, which is that number or ends with it, lies in a hole of the log."""
        start, end = piece.base_offset, piece.end_offset
        is_possible = not self._files.is_beyond_reach(piece) or number in self._files.borne_out
        if start < self._files.base_offsets[0] or not is_possible or not self._is_free(start, end):
            return _Room.NONE
        at = bisect_right(self._log, start, key=_BASE_OFFSET)
        before = self._log[at - 1].end_offset if at else None
        after = self._log[at].base_offset if at < len(self._log) else None
        touches_before, touches_after = before == start, after == end
        if (touches_before and touches_after) or (touches_before and after is None and end <= self._files.last_end):
            return _Room.EXACT
        if before is None and touches_after:
            return _Room.EXACT
        return _Room.ROOM if after is not None or end <= max(self._files.known_end, before or 0) else _Room.NONE

    def _is_free(self, start: int, end: int) -> bool:
        at = bisect_right(self._log, start, key=_BASE_OFFSET)
        return (at == 0 or self._log[at - 1].end_offset <= start) and (
            at == len(self._log) or end <= self._log[at].base_offset
        )

    def _is_repeated(self, batch: Piece) -> bool:
        at = bisect_right(self._log, batch.base_offset, key=_BASE_OFFSET)
        if at == 0 or self._log[at - 1].end_offset < batch.end_offset:
            return False
        piece = self._log[at - 1]
        if self._opened is None or self._opened[0] is not piece:
            self._opened = piece, {one.base_offset: one for one in self._find_batches(piece)}
        other = self._opened[1].get(batch.base_offset)
        return other is not None and (other.end_offset, other.crc) == (batch.end_offset, batch.crc)

    def _find_one_bit(self, number: int, batch: Piece) -> int | None:
        """Finds the base offset with which the batch would fit where it stands, next to an accepted one of its file, if
        that is one bit away from the one it has.
        """
        at = bisect_left(self._accepted, number)
        neighbours = [self._pieces[n] for n in self._accepted[max(at - 1, 0) : at + 1]]
        same = [piece for piece in neighbours if piece.file == batch.file]
        before = next((piece.end_offset for piece in same if piece.position < batch.position), None)
        after = next((piece.base_offset for piece in same if piece.position > batch.position), None)
        for right in (before, None if after is None else after - batch.span):
            if (
                right is not None
                and batch.is_one_bit_from(right)
                and max(before or 0, self._files.base_offsets[batch.file]) <= right
                and (after is None or right + batch.span <= after)
                and self._is_free(right, right + batch.span)
                and not self._is_mended(right, right + batch.span)
            ):
                return right
        return None

    def _is_mended(self, start: int, end: int) -> bool:
        """Says whether a flipped batch had some of these offsets."""
        at = bisect_left(self._mended, (end, end))
        return at > 0 and self._mended[at - 1][1] > start


def _runs(pieces: Iterable[tuple[int, Piece]]) -> list[list[tuple[int, Piece]]]:
    """Puts pieces together that stand one after the other, and whose offsets follow one another."""
    runs: list[list[tuple[int, Piece]]] = []
    for number, piece in pieces:
        if runs and _follows(runs[-1][-1][1], piece):
            runs[-1].append((number, piece))
        else:
            runs.append([(number, piece)])
    return runs


def _joined(displaced: Iterable[Displaced]) -> list[Displaced]:
    result: list[Displaced] = []
    for one in displaced:
        last = result[-1] if result else None
        if last is not None and last.fate is one.fate is not Fate.FLIPPED and _follows(last.piece, one.piece):
            result[-1] = replace(last, piece=last.piece.then(one.piece))
        else:
            result.append(one)
    return result


def _follows(piece: Piece, other: Piece) -> bool:
    return (piece.file, piece.end_position, piece.end_offset) == (other.file, other.position, other.base_offset)
