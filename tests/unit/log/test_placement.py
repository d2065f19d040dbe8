"""Which batches are the log: small pictures of what can have happened to their order, and what must come of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from core.log.placement import Fate, Piece, PieceBuilder, Placement, place

SIZE = 100
"""Bytes of each batch of these pictures."""


def batches(*offsets: tuple[int, int], file: int = 0) -> list[Piece]:
    """One after the other in a file: (base offset, end offset) of each."""
    return [
        Piece(file, at * SIZE, at * SIZE + SIZE, base, end, end - base, end, 1, crc=hash((base % 1000, end - base)))
        for at, (base, end) in enumerate(offsets)
    ]


def placed(*files: list[Piece], bases: Sequence[int] = (0,), known_end: int = 0) -> Placement:
    builder = PieceBuilder()
    for of_file in files:
        for batch in of_file:
            builder.add(batch)
        builder.end_piece()
    everything = [batch for of_file in files for batch in of_file]

    def find_batches(piece: Piece) -> Iterable[Piece]:
        return [b for b in everything if b.file == piece.file and piece.position <= b.position < piece.end_position]

    return place(builder.pieces, bases, known_end, find_batches)


def offsets(placement: Placement) -> list[tuple[int, int]]:
    """Of the log, with neighbours joined."""
    joined: list[tuple[int, int]] = []
    for piece in placement.log:
        if joined and joined[-1][1] == piece.base_offset:
            joined[-1] = joined[-1][0], piece.end_offset
        else:
            joined.append((piece.base_offset, piece.end_offset))
    return joined


def fates(placement: Placement) -> list[tuple[Fate, int, int]]:
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


@pytest.mark.parametrize("wrong", [8 ^ 1 << 62, 8 ^ 1 << 40, 8 ^ 16, 8 ^ 1])
def test_a_flipped_bit_of_a_base_offset_is_named(wrong: int) -> None:
    placement = placed(batches((0, 8), (wrong, wrong + 8), (16, 24), (24, 32)))
    assert fates(placement) == [(Fate.FLIPPED, SIZE, 8)]
    assert offsets(placement) == [(0, 8), (16, 32)]


def test_a_flipped_bit_before_the_next_segment_is_judged_by_its_name() -> None:
    placement = placed(batches((0, 8), (8 ^ 32, 48)), batches((16, 24), file=1), bases=(0, 16))
    assert fates(placement) == [(Fate.FLIPPED, SIZE, 8)]


def test_a_flipped_bit_at_the_end_is_judged_by_the_end_that_is_known() -> None:
    placement = placed(batches((0, 8), (8 ^ 32, 48)), known_end=16)
    assert fates(placement) == [(Fate.FLIPPED, SIZE, 8)]


def test_neighbours_that_changed_places_are_both_the_log() -> None:
    placement = placed(batches((0, 8), (20, 25), (8, 20), (25, 30)))
    assert offsets(placement) == [(0, 30)]
    assert [fate for fate, _, _ in fates(placement)] == [Fate.PLACED]


def test_distant_batches_that_changed_places_and_look_like_flipped_bits_are_both_the_log() -> None:
    placement = placed(batches((0, 1), (3, 4), (2, 3), (1, 2), (4, 5)))
    assert offsets(placement) == [(0, 5)]
    assert {fate for fate, _, _ in fates(placement)} == {Fate.PLACED}


def test_the_last_two_that_changed_places_are_both_the_log() -> None:
    assert offsets(placed(batches((0, 8), (16, 24), (8, 16)))) == [(0, 24)]


def test_what_follows_two_that_changed_places_is_the_log_though_they_look_like_flipped_bits() -> None:
    """33 is one bit away from 35, where 34 ends, and the log goes on after a hole as if it were 35."""
    placement = placed(batches((0, 33), (34, 35), (33, 34), (36, 38)))
    assert offsets(placement) == [(0, 35), (36, 38)]
    assert fates(placement) == [(Fate.PLACED, SIZE, 34)]


def test_a_batch_that_stands_twice_is_the_log_once() -> None:
    placement = placed(batches((0, 8), (0, 8), (8, 16)))
    assert offsets(placement) == [(0, 16)]
    assert fates(placement) == [(Fate.REPEATED, SIZE, 0)]


def test_the_last_batch_at_the_front_as_well_takes_nothing_away() -> None:
    placement = placed(batches((24, 32), (0, 8), (8, 16), (16, 24), (24, 32)))
    assert offsets(placement) == [(0, 32)]
    assert fates(placement) == [(Fate.REPEATED, 0, 24)]


def test_a_batch_whose_offsets_others_have_is_a_stray() -> None:
    placement = placed(batches((0, 8), (8, 16), (3, 6), (16, 24)))
    assert offsets(placement) == [(0, 24)]
    assert fates(placement) == [(Fate.STRAY, 2 * SIZE, 3)]


def test_segments_that_have_each_others_names_are_all_the_log() -> None:
    placement = placed(
        batches((115, 120), (120, 229)), batches((0, 60), (60, 115), file=1), batches((229, 240), file=2),
        bases=(0, 115, 229),
    )  # fmt: skip
    assert offsets(placement) == [(0, 240)]


def test_a_segment_copied_under_another_name_is_repeated() -> None:
    placement = placed(
        batches((0, 4)), batches((4, 5), (5, 9), (9, 10), file=1), batches((4, 5), (5, 9), (9, 10), file=2),
        bases=(0, 4, 5),
    )  # fmt: skip
    assert offsets(placement) == [(0, 10)]
    assert {fate for fate, _, _ in fates(placement)} == {Fate.REPEATED}


def test_a_long_log_is_not_taken_apart_for_one_stray() -> None:
    long = [(n, n + 1) for n in range(10_000)]
    placement = placed(batches(*long[:5000], (2, 3), *long[5000:]))
    assert offsets(placement) == [(0, 10_000)]
    assert len(placement.log) < 10


def test_what_lies_below_the_files_name_is_not_the_logs() -> None:
    placement = placed(batches((3, 5), (10, 15)), bases=(10,))
    assert offsets(placement) == [(10, 15)]
    assert fates(placement) == [(Fate.STRAY, 0, 3)]
