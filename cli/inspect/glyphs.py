"""The characters that screens draw with: those of Unicode, or plain ASCII for terminals that show no others."""

from __future__ import annotations

import locale
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
    """Chooses by the locale, as every program of the terminal does; the console of Linux itself has few characters."""
    encoding = locale.getpreferredencoding(do_setlocale=False).lower().replace("-", "")
    return UNICODE if encoding == "utf8" and os.environ.get("TERM") != "linux" else ASCII
