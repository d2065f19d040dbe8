"""Puts a log's batches in order: which bytes of which files each of its segments should hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from core.forensics.log_map import LogMap


class Stretch(NamedTuple):
    """Bytes [start, end) of a log."""

    path: Path
    start: int
    end: int


def lay_out(log_map: LogMap, *, fixes_bits: bool) -> dict[Path, list[Stretch]]:
    """Returns the new contents of every log that is to hold other batches, or in another order. `fixes_bits` keeps
    damaged batches that one flipped bit explains.
    """
    pieces = [(p.base_offset, p.file, p.position, p.end_position) for p in log_map.log]
    if fixes_bits:
        pieces += [
            (one.damage.offset, one.number, one.damage.position, one.damage.end_position)
            for one in log_map.damage
            if one.damage.fix is not None
        ]
    layout: dict[int, list[tuple[int, int, int]]] = {}
    for base_offset, number, position, end_position in sorted(pieces):
        layout.setdefault(log_map.file_of(base_offset), []).append((number, position, end_position))
    moved = {number for number, places in layout.items() if places != sorted(places)}
    for number, places in layout.items():
        moved |= {n for file, _, _ in places if file != number for n in (file, number)}
    paths = [file.path for file in log_map.files]
    return {
        paths[number]: [Stretch(paths[file], start, end) for file, start, end in layout.get(number, [])]
        for number in sorted(moved)
    }
