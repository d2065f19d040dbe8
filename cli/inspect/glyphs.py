"""The characters that screens draw with: those of Unicode, or plain ASCII for terminals that show no others."""

from __future__ import annotations

import os
from typing import NamedTuple


class Glyphs(NamedTuple):
    """`blocks` are eight steps of a bar, from the lowest to the full one; `thumb` and `track` draw a scroll bar."""

    is_unicode: bool
    more: str
    line: str
    column: str
    blocks: str
    full: str
    shade: str
    light: str
    thumb: str
    track: str
    up: str
    down: str
    dot: str
    branch: str
    last_branch: str


UNICODE = Glyphs(
    is_unicode=True,
    more="…",
    line="─",
    column="│",
    blocks="▁▂▃▄▅▆▇█",
    full="█",
    shade="▒",
    light="░",
    thumb="█",
    track="│",
    up="▲",
    down="▼",
    dot="·",
    branch="├─",
    last_branch="└─",
)
ASCII = Glyphs(
    is_unicode=False,
    more="~",
    line="-",
    column="|",
    blocks="_.-=+*%#",
    full="#",
    shade="=",
    light=".",
    thumb="#",
    track="|",
    up="^",
    down="v",
    dot=".",
    branch="|-",
    last_branch="`-",
)


def glyphs_of_terminal() -> Glyphs:
    """Chooses by the locale, as every program of the terminal does; the console of Linux itself has few characters, and
    a browser all. Python itself takes UTF-8 in the locale C, so the environment is asked.
    """
    if "TEXTUAL_DRIVER" in os.environ:
        return UNICODE
    named = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    is_unicode = not named or "utf" in named.lower()
    return UNICODE if is_unicode and os.environ.get("TERM") != "linux" else ASCII


def drawable(text: str, glyphs: Glyphs) -> str:
    """Writes what the terminal can't show as Python writes it: `\\u65e5`."""
    return text if glyphs.is_unicode or text.isascii() else text.encode("ascii", "backslashreplace").decode()
