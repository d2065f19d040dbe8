"""Small pieces of HTML. Every text goes through `text`: nothing of a log may become a tag, or control a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from core.common.printable import printable

LISTED = 50
"""The rows shown of a list without a bound."""


def text(value: object) -> str:
    """Escapes a text: tags do not work, and control characters are visible."""
    return escape(printable(str(value), keeps=""))


def section(title: str, *parts: str) -> str:
    """Returns a part with a heading of its own, or "" without contents."""
    body = "".join(parts)
    return f"<section><h2>{text(title)}</h2>{body}</section>" if body else ""


def paragraph(value: object) -> str:
    return f"<p>{text(value)}</p>"


def more(count: int, listed: int = LISTED) -> str:
    """Says how many rows are left out."""
    return paragraph(f"and {count - listed:,} more") if count > listed else ""


def table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Iterable[int] = (), wide: Iterable[int] = ()
) -> str:
    """Returns a table of texts; the columns `numbers` are right-aligned, and those `wide` may be broken into lines. A
    narrow page scrolls it.
    """
    classes = {**dict.fromkeys(numbers, " class=n"), **dict.fromkeys(wide, " class=wide")}

    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(
            f"<{tag}{classes.get(number, '')}>{text('' if value is None else value)}</{tag}>"
            for number, value in enumerate(values)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells("th", header)}</tr>{lines}</table></div>'


def tiles(values: Iterable[tuple[str, str]]) -> str:
    cells = (f'<div class="tile"><b>{text(value)}</b><span>{text(name)}</span></div>' for name, value in values)
    return f'<div class="tiles">{"".join(cells)}</div>'


def bars(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Draws for each its name, a bar as long as its share of the largest, the value, and a remark."""
    most = max((row[1] for row in rows), default=1) or 1
    head = f"<th>{text(header[0])}</th><th></th>" + "".join(f'<th class="n">{text(name)}</th>' for name in header[1:])
    lines = "".join(
        f'<tr><td>{text(row[0])}</td><td class="bar"><i style="width:{100 * row[1] / most:.1f}%"></i></td>'
        f'<td class="n">{row[1]:,}</td>' + "".join(f'<td class="n">{text(cell)}</td>' for cell in row[2:]) + "</tr>"
        for row in rows[:LISTED]
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{lines}</table>{more(len(rows))}</div>'


def columns(values: Sequence[tuple[str, int, str]]) -> str:
    """Draws a column chart; each column shows its time and value when the pointer rests on it."""
    most = max(value for _, value, _ in values) or 1
    rects = "".join(
        f'<rect x="{10 * number + 1}" y="{100 - 100 * value / most:.2f}" width="8" height="{100 * value / most:.2f}">'
        f"<title>{text(label)}: {value:,} {unit}</title></rect>"
        for number, (label, value, unit) in enumerate(values)
    )
    width = 10 * len(values)
    return (
        f'<svg class="chart" viewBox="0 0 {width} 101" preserveAspectRatio="none" role="img">{rects}'
        f'<line x1="0" y1="100.5" x2="{width}" y2="100.5"/></svg>'
    )
