"""Says what the letters of a partition's map mean: all of them, or those that are to be seen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from cli.inspect.map_view import STYLES
from core.view.map.map_cell import Mark
from core.view.map.map_strips import MARK_LETTERS, Signs, legend

MAP_HELP = """
The bytes of the log from left to right, to scale; each letter stands for a stretch of them. Above are the offsets that
begin there, the part that is shown, and places that checkpoints name: S the log's start, F the first dirty offset, R
the recovery point, H the high watermark, * several of them.

Codecs: n none, g gzip, s snappy, l lz4, z zstd. Zoomed out, a letter is that of one batch in its stretch; zoomed in, of
most of its bytes.

Transactions: A aborted, O open, t committed, U nobody can tell. Compaction: c cleaned, d dirty, a in the active
segment. Index: i an entry, M the segment has none, X an entry leads to no batch, W plog verify finds it wrong.

Gaps, as plog gaps has them: D damaged, M missing, T truncated, N not known why, U aborted or not can't be told: those
are lost. c compacted, a aborted, o of an open transaction, t trimmed, k a control record; h missing between two
batches, and not read yet why. Damage, as plog verify has it: E an error, W a warning.

? is what was not read yet, or not found, and a dot says that there is nothing. Gaps and damage need all of the log: a
reads it, and stops that again; small logs are read at once.
"""


def legend_text(signs: Signs, marks: Sequence[Mark]) -> Text:
    """Explains the letters of these signs, and the marks that lie in the log."""
    text = Text()
    for name, some in legend(signs):
        text.append(f"{name}: ", "dim")
        for number, sign in enumerate(some):
            text.append(sign.letter, STYLES[sign.tone] + Style(bold=True))
            text.append(f" {sign.meaning}{', ' if number < len(some) - 1 else '  '}")
    placed = [mark for mark in marks if mark.position is not None]
    text.append("marks: " if placed else "", "dim")
    text.append(", ".join(f"{MARK_LETTERS[mark.name]} {mark.name} {mark.offset:,}" for mark in placed))
    return text
