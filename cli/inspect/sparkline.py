"""A series of numbers in one line of bars."""

from __future__ import annotations

from collections.abc import Sequence

from cli.inspect.line_view import Glyphs


def sparkline(values: Sequence[float | None], glyphs: Glyphs, width: int) -> str:
    """Draws the last `width` values, each as high as its share of the largest; an unknown value is a space, and 0 the
    lowest bar.
    """
    shown = list(values)[-width:]
    largest = max((value for value in shown if value is not None), default=0)
    steps = len(glyphs.blocks) - 1
    bars = []
    for value in shown:
        if value is None:
            bars.append(" ")
        else:
            part = value / largest if largest > 0 else 0
            bars.append(glyphs.blocks[min(max(round(part * steps), 1 if value > 0 else 0), steps)])
    return "".join(bars)
