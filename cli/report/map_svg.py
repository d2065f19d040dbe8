"""Draws a partition's map as SVG: its segments as a strip to scale, and below it damage and open transactions.

Places are in per cent, so that the picture is as wide as the page and letters keep their shape. A letter, the tooltip
and the legend say the same as a colour.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from cli.progress import size_text
from cli.report.markup import paragraph, text
from core.view.figures.partition_map import MapCell, PartitionMap, Sign

_CELLS = 240
_LABEL, _BAR, _STEP = 12, 14, 32
_LEAST_LETTER = 1.5
"""Per cent of the width that a letter needs on a wide page; the narrowest has a third of its pixels."""
_MOST_SEGMENTS = 500
"""The most segments that are drawn one by one; of more, those of each cell are."""
_LOOKS = {
    Sign.UNKNOWN: ("unknown", "not looked for"),
    Sign.NONE: ("nothing", "none"),
    Sign.OPEN: ("mild", "an open transaction"),
    Sign.WARNING: ("mild", "a warning"),
    Sign.ERROR: ("grave", "an error"),
}
"""The class of its colour, and its meaning."""


def map_svg(of: PartitionMap) -> str:
    """Draws the map, with its legend and notes."""
    notes = [*of.notes, *([f"open transactions are not known: {of.open_problem}"] if of.open_problem else [])]
    if not of.size_bytes:
        return "".join(map(paragraph, ["the log is empty", *notes]))
    cells = of.cells(_CELLS)
    damage, opened = [cell.damage for cell in cells], [cell.open for cell in cells]
    rows = {"segments": _segments(of, cells), "damage": _signs(damage, cells), "transactions": _signs(opened, cells)}
    drawn = "".join(
        f'<svg y="{number * _STEP}" height="{_STEP}"><text x="0" y="{_LABEL - 3}">{name}</text>{"".join(row)}</svg>'
        for number, (name, row) in enumerate(rows.items())
    )
    svg = f'<svg class="map" height="{_STEP * len(rows)}" role="img" aria-label="map of the log">{drawn}</svg>'
    count = len(of.segments)
    scale = f"{size_text(of.size_bytes)} of log from left to right, {count:,} segment{'s' * (count != 1)}"
    return svg + "".join(map(paragraph, [scale, *notes])) + _legend({*damage, *opened})


def _segments(of: PartitionMap, cells: list[MapCell]) -> Iterator[str]:
    segments = of.segments
    if len(segments) > _MOST_SEGMENTS:
        parts = [(one.start, one.end, f"{segments[one.first].name} to {segments[one.last].name}") for one in cells]
    else:
        parts = [(one.start, one.end, f"{one.name}, {size_text(one.size_bytes)}") for one in segments if one.size_bytes]
    for number, (start, end, title) in enumerate(parts):
        yield _rect(start, end, of.size_bytes, ("plain", "odd")[number % 2], title)


def _signs(signs: list[Sign], cells: list[MapCell]) -> Iterator[str]:
    size_bytes = cells[-1].end
    bounds = [0, *(at for at, (one, other) in enumerate(pairwise(signs), 1) if one is not other), len(signs)]
    for first, after in pairwise(bounds):
        sign, start, end = signs[first], cells[first].start, cells[after - 1].end
        yield _rect(start, end, size_bytes, _LOOKS[sign][0], f"{_LOOKS[sign][1]}: bytes {start:,} to {end - 1:,}")
        if sign is not Sign.NONE and 100 * (end - start) / size_bytes >= _LEAST_LETTER:
            kind = "" if sign is Sign.UNKNOWN else ' class="on"'
            middle = 50 * (start + end) / size_bytes
            yield f'<text{kind} x="{middle:.2f}%" y="{_LABEL + 11}" text-anchor="middle">{sign.value}</text>'


def _rect(start: int, end: int, size_bytes: int, kind: str, title: str) -> str:
    x, width = 100 * start / size_bytes, max(100 * (end - start) / size_bytes, 0.15)
    return (
        f'<rect class="{kind}" x="{x:.3f}%" y="{_LABEL}" width="{width:.3f}%" height="{_BAR}">'
        f"<title>{text(title)}</title></rect>"
    )


def _legend(signs: set[Sign]) -> str:
    shown = "".join(
        f'<svg><rect class="{_LOOKS[sign][0]}" width="100%" height="100%"/></svg><b>{sign.value}</b> {_LOOKS[sign][1]}'
        for sign in Sign
        if sign in signs
    )
    return f'<ul class="legend"><li>{shown}</li></ul>'
