"""Draws a partition's map as SVG: strips over one axis of bytes, with a letter wherever there is room for one.

Places are given in per cent, so that the picture is as wide as the page and letters keep their shape. What a colour
says, a letter, the text that a pointer shows, and the legend say as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from cli.progress import size_text
from cli.report.markup import paragraph, text
from core.view.figures.stats_report import MapPicture
from core.view.map.map_cell import Cell, MapWindow, Mark
from core.view.map.map_segments import MapSegment
from core.view.map.map_strips import MARK_LETTERS, SEGMENTS, STRIPS, Sign, Signs, Tone, legend, signs_of

_LABEL, _BAR, _SPACE = 12, 14, 6
_STEP = _LABEL + _BAR + _SPACE
_AXIS = 34
_LEAST_LETTER = 1.5
"""Per cent of the width that a letter needs on a wide page; the narrowest has a third of its pixels."""
_LAST_PERCENTS = 90
_LABELS = 4
_MOST_MARKS = 20
_MOST_SEGMENTS = 500
"""How many segments are drawn one by one; of more, those of each cell are."""


def map_svg(picture: MapPicture) -> str:
    """Draws it, with its legend and what is to be said of it."""
    window = picture.window
    if not window.cells:
        return paragraph("the log is empty")
    height = _AXIS + _STEP * len(STRIPS)
    size_bytes = window.span.size_bytes
    parts = [*_axis(window), *_marks(picture.marks, size_bytes)]
    signs = signs_of(window.cells)
    for number, (name, some) in enumerate(signs.items()):
        top = _AXIS + number * _STEP
        parts.append(f'<text x="0" y="{top + _LABEL - 3}">{text(name)}</text>')
        if name == SEGMENTS and len(picture.segments) <= _MOST_SEGMENTS:
            parts += _segments(picture.segments, size_bytes, top + _LABEL)
        else:
            parts += _strip(list(zip(some, window.cells, strict=True)), size_bytes, top + _LABEL)
    names = ", ".join(signs)
    svg = f'<svg class="map" height="{height}" role="img" aria-label="map of the log: {names}">{"".join(parts)}</svg>'
    return svg + _notes(picture) + _legend(signs, picture.marks)


def _percent(position: float, size_bytes: int) -> float:
    return 100 * position / size_bytes


def _axis(window: MapWindow) -> Iterator[str]:
    """Writes some offsets where their batches begin."""
    last, before = len(window.cells), None
    for number in range(_LABELS):
        cell = window.cells[number * last // _LABELS]
        if cell.batch_offset not in (None, before):
            before = cell.batch_offset
            at = f"{_percent(cell.start, window.span.size_bytes):.2f}%"
            yield f'<line x1="{at}" x2="{at}" y1="2" y2="14"/><text x="{at}" dx="3" y="12">{cell.batch_offset:,}</text>'


def _marks(marks: Sequence[Mark], size_bytes: int) -> Iterator[str]:
    """Writes the letters of those at one place together."""
    placed: dict[int, list[Mark]] = {}
    for mark in marks[:_MOST_MARKS]:
        if mark.position is not None:
            placed.setdefault(mark.position, []).append(mark)
    for position, there in placed.items():
        at = _percent(position, size_bytes)
        anchor = ' text-anchor="end"' if at > _LAST_PERCENTS else ""
        letters = "".join(MARK_LETTERS[mark.name] for mark in there)
        title = ", ".join(f"{mark.name} {mark.offset:,}" for mark in there)
        yield f'<text x="{at:.2f}%" y="28"{anchor}>{letters}<title>{text(title)}</title></text>'


def _segments(segments: Sequence[MapSegment], size_bytes: int, top: int) -> Iterator[str]:
    for number, segment in enumerate(segments):
        if segment.size_bytes:
            tone = Tone.ODD if number % 2 else Tone.PLAIN
            title = f"{segment.name}, {size_text(segment.size_bytes)}"
            yield _rect(segment.start, segment.end, size_bytes, top, tone, title)


def _strip(signs: Sequence[tuple[Sign, Cell]], size_bytes: int, top: int) -> Iterator[str]:
    """Draws neighbours with one sign as one."""
    for sign, found in groupby(signs, key=lambda pair: pair[0]):
        cells = [cell for _, cell in found]
        start, end = cells[0].start, cells[-1].end
        title = f"{sign.meaning}: {_offsets_text(cells)}"
        yield _rect(start, end, size_bytes, top, sign.tone, title)
        if sign.tone is not Tone.NOTHING and _percent(end - start, size_bytes) >= _LEAST_LETTER:
            kind = "" if sign.tone is Tone.UNKNOWN else ' class="on"'
            middle = _percent((start + end) / 2, size_bytes)
            yield f'<text{kind} x="{middle:.2f}%" y="{top + 11}" text-anchor="middle">{text(sign.letter)}</text>'


def _offsets_text(cells: Sequence[Cell]) -> str:
    start = cells[0].batch_offset
    where = f"bytes {cells[0].start:,} to {cells[-1].end - 1:,}"
    return where if start is None else f"{where}, from offset {start:,}"


def _rect(start: int, end: int, size_bytes: int, top: int, tone: Tone, title: str) -> str:
    x, width = _percent(start, size_bytes), _percent(end - start, size_bytes)
    return (
        f'<rect class="{tone.value}" x="{x:.3f}%" y="{top}" width="{max(width, 0.15):.3f}%" height="{_BAR}">'
        f"<title>{text(title)}</title></rect>"
    )


def _notes(picture: MapPicture) -> str:
    window = picture.window
    cell = window.cells[0]
    how = "every batch was looked at" if window.is_exact else "codecs are those of one batch in each of its parts"
    first = (
        f"{size_text(window.span.size_bytes)} of log from left to right, {len(window.cells)} parts of "
        f"{size_text(cell.end - cell.start)}; {how}"
    )
    return "".join(map(paragraph, [first, *picture.notes]))


def _legend(signs: Signs, marks: Sequence[Mark]) -> str:
    """Explains the letters that occur, and the marks."""
    items = []
    for name, some in legend(signs):
        shown = "".join(
            f'<svg><rect class="{sign.tone.value}" width="100%" height="100%"/></svg>'
            f"<b>{text(sign.letter)}</b> {text(sign.meaning)}"
            for sign in some
        )
        items.append(f"<li>{text(name)}:{shown}</li>")
    there = (mark for mark in marks if mark.position is not None)
    placed = [f"<b>{MARK_LETTERS[mark.name]}</b> {text(mark.name)} {mark.offset:,}" for mark in there]
    if placed:
        items.append(f"<li>marks: {', '.join(placed[:_MOST_MARKS])}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'
