"""Which batches are the log: small pictures of what can have happened to their order, and what must come of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from core.forensics.batch_order import BatchOrder, Fate, Piece, PieceBuilder, place
from tests.support.for_each import for_each

SIZE = 100
"""Bytes of each batch of these pictures."""


def batches(*offsets: tuple[int, int], file: int = 0) -> list[Piece]:
    """One after the other in a file: (base offset, end offset) of each."""
    return [
        Piece(file, at * SIZE, at * SIZE + SIZE, base, end, end - base, end, 1, crc=hash((base % 1000, end - base)))
        for at, (base, end) in enumerate(offsets)
    ]


def placed(*files: list[Piece], bases: Sequence[int] = (0,), known_end: int = 0) -> BatchOrder:
    builder = PieceBuilder()
    for of_file in files:
        for batch in of_file:
            builder.add(batch)
        builder.end_piece()
    everything = [batch for of_file in files for batch in of_file]

    def find_batches(piece: Piece) -> Iterable[Piece]:
        return [b for b in everything if b.file == piece.file and piece.position <= b.position < piece.end_position]

    return place(builder.pieces, bases, known_end, find_batches)


def offsets(placement: BatchOrder) -> list[tuple[int, int]]:
    """Of the log, with neighbours joined."""
    joined: list[tuple[int, int]] = []
    for piece in placement.log:
        if joined and joined[-1][1] == piece.base_offset:
            joined[-1] = joined[-1][0], piece.end_offset
        else:
            joined.append((piece.base_offset, piece.end_offset))
    return joined


def fates(placement: BatchOrder) -> list[tuple[Fate, int, int]]:
    """(fate, position, the base offset that is right) of what does not stand where it should."""
    return [(one.fate, one.piece.position, one.right_base_offset) for one in placement.displaced]


def test_a_sound_log_is_one_piece() -> None:
    placement = placed(batches((0, 5), (5, 7), (7, 20)))
    assert [(p.base_offset, p.end_offset, p.batches) for p in placement.log] == [(0, 20, 3)]
    assert placement.displaced == []


def test_holes_that_compaction_left_part_no_piece() -> None:
    placement = placed(batches(*((10 * n, 10 * n + 3) for n in range(1000))))
    assert len(placement.log) <= 3
    assert sum(piece.span for piece in placement.log) == 3000
    assert placement.displaced == []


def test_a_long_log_is_not_taken_apart_for_one_stray() -> None:
    long = [(n, n + 1) for n in range(10_000)]
    placement = placed(batches(*long[:5000], (2, 3), *long[5000:]))
    assert offsets(placement) == [(0, 10_000)]
    assert len(placement.log) < 10


FAR = 1 << 31
FLIPPED, PLACED, REPEATED, STRAY = Fate.FLIPPED, Fate.PLACED, Fate.REPEATED, Fate.STRAY
PICTURES: dict[str, tuple[BatchOrder, list[tuple[int, int]], list[tuple[Fate, int, int]]]] = {
    **{
        f"a flipped bit of a base offset, {wrong:#x}": (
            placed(batches((0, 8), (wrong, wrong + 8), (16, 24), (24, 32))), [(0, 8), (16, 32)], [(FLIPPED, SIZE, 8)],
        )
        for wrong in (8 ^ 1 << 62, 8 ^ 1 << 40, 8 ^ 16, 8 ^ 1)
    },
    "a flipped bit before the next segment is judged by its name": (
        placed(batches((0, 8), (8 ^ 32, 48)), batches((16, 24), file=1), bases=(0, 16)),
        [(0, 8), (16, 24)], [(FLIPPED, SIZE, 8)],
    ),
    "a flipped bit at the end is judged by the end that is known": (
        placed(batches((0, 8), (8 ^ 32, 48)), known_end=16), [(0, 8)], [(FLIPPED, SIZE, 8)],
    ),
    "neighbours that changed places are both the log": (
        placed(batches((0, 8), (20, 25), (8, 20), (25, 30))), [(0, 30)], [(PLACED, SIZE, 20)],
    ),
    "distant batches that changed places and look like flipped bits are both the log": (
        placed(batches((0, 1), (3, 4), (2, 3), (1, 2), (4, 5))), [(0, 5)], [(PLACED, SIZE, 3), (PLACED, 3 * SIZE, 1)],
    ),
    "the last two that changed places are both the log": (
        placed(batches((0, 8), (16, 24), (8, 16))), [(0, 24)], [(PLACED, SIZE, 16)],
    ),
    # 33 is one bit away from 35, where 34 ends, and the log goes on after a hole as if it were 35
    "what follows two that changed places is the log though they look like flipped bits": (
        placed(batches((0, 33), (34, 35), (33, 34), (36, 38))), [(0, 35), (36, 38)], [(PLACED, SIZE, 34)],
    ),
    "a batch that stands twice is the log once": (
        placed(batches((0, 8), (0, 8), (8, 16))), [(0, 16)], [(REPEATED, SIZE, 0)],
    ),
    "the last batch at the front as well takes nothing away": (
        placed(batches((24, 32), (0, 8), (8, 16), (16, 24), (24, 32))), [(0, 32)], [(REPEATED, 0, 24)],
    ),
    "a batch whose offsets others have is a stray": (
        placed(batches((0, 8), (8, 16), (3, 6), (16, 24))), [(0, 24)], [(STRAY, 2 * SIZE, 3)],
    ),
    "a batch beyond an index that goes on from one within moves as that does, though a stray lies in it": (
        placed(
            batches((FAR + 6, FAR + 9), (FAR + 9, FAR + 30)),
            batches((FAR + 1, FAR + 3), (FAR + 3, FAR + 6), (FAR + 4, FAR + 5), file=1),
            batches((0, 3), file=2),
            bases=(0, 3, FAR + 6),
        ),
        [(0, 3), (FAR + 1, FAR + 30)], [(PLACED, 0, FAR + 1), (STRAY, 2 * SIZE, FAR + 4), (PLACED, 0, 0)],
    ),
    "what lies below the file's name is not the log's": (
        placed(batches((3, 5), (10, 15)), bases=(10,)), [(10, 15)], [(STRAY, 0, 3)],
    ),
    "no flipped bit leads below the file's name": (
        placed(batches((0, 1)), batches((9, 10), (2, 8), (10, 12), file=1), bases=(0, 8)),
        [(0, 1), (2, 8), (9, 12)], [(PLACED, 0, 9), (PLACED, SIZE, 2)],
    ),
    "a batch beyond an index is not borne out by a name that lies below it": (
        placed(batches((0, 1), (FAR + 10, FAR + 90)), batches((2, 3), file=1), bases=(0, 2)),
        [(0, 1), (2, 3)], [(STRAY, SIZE, FAR + 10)],
    ),
    "a lone batch beyond an index is the log's if the log is known to have reached there": (
        placed(batches((0, 8), (FAR + 100, FAR + 108)), known_end=FAR + 108), [(0, 8), (FAR + 100, FAR + 108)], [],
    ),
    "a lone batch beyond an index to whose offset no flipped bit leads is the log's": (
        placed(batches((0, 8), (5 * FAR + 100, 5 * FAR + 108))), [(0, 8), (5 * FAR + 100, 5 * FAR + 108)], [],
    ),
    "a batch that begins within an index and ends beyond it has no flipped bit": (
        placed(batches((0, 8), (FAR - 4, FAR + 4))), [(0, 8), (FAR - 4, FAR + 4)], [],
    ),
    "a lone batch beyond an index does not show that the one after it has no flipped bit": (
        placed(batches((0, 8), ((1 << 40) + 3000, (1 << 40) + 3010), (FAR + 20, FAR + 25))),
        [(0, 8)], [(STRAY, SIZE, (1 << 40) + 3000), (STRAY, 2 * SIZE, FAR + 20)],
    ),
    "a batch after a hole has no flipped bit if the old message after it states a wrong offset": (
        placed([replace(one, shift=one.base_offset == 10) for one in batches((0, 7), (24, 26), (10, 12), (28, 30))]),
        [(0, 7), (24, 26), (28, 30)], [(FLIPPED, 2 * SIZE, 26)],
    ),
    "of batches that overlap crosswise those are the log that have the most offsets": (
        placed(batches((4, 5), (5, 9)), batches((2, 7), (7, 12), file=1), bases=(0, 4)),
        [(4, 5), (7, 12)], [(STRAY, SIZE, 5), (STRAY, 0, 2)],
    ),
    "segments that have each other's names are all the log": (
        placed(batches((115, 120), (120, 229)), batches((0, 60), (60, 115), file=1), batches((229, 240), file=2),
               bases=(0, 115, 229)),
        [(0, 240)], [(PLACED, 0, 0)],
    ),
    "a segment copied under another name is repeated": (
        placed(batches((0, 4)), *(batches((4, 5), (5, 9), (9, 10), file=file) for file in (1, 2)), bases=(0, 4, 5)),
        [(0, 10)], [(REPEATED, 0, 4)],
    ),
}  # fmt: skip
"""What came of it: the log, and what does not stand where it should."""


@for_each("picture", PICTURES)
def test_what_comes_of_a_picture(picture: str) -> None:
    placement, log, displaced = PICTURES[picture]
    assert (offsets(placement), fates(placement)) == (log, displaced)
