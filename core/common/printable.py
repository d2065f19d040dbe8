"""Makes text and bytes of others fit for a terminal (error messages, records), and guesses the name that was meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Returns `did you mean X?`, if one of the known names is much like it, or None."""
    from difflib import get_close_matches

    by_lower = {other.lower(): other for other in known}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[found[0]]}?" if found else None


_JOINERS = "\u200c\u200d"
"""They have no width, and change only their neighbours: Persian, Hindi and families of emoji need them."""


def printable(text: str, keeps: str = "\n") -> str:
    r"""Escapes characters that control a terminal, as Python does: `\x1b`, `\x9b`, `\u202e`.

    Those are control characters, C1 too, and marks that turn the direction of writing. `keeps` are left as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c in keeps or _is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def printable_bytes(data: bytes | memoryview) -> bytes:
    """Makes bytes printable that should be UTF-8, and keeps tabs; bytes that are not UTF-8 are written as `\xff`."""
    return printable(str(data, "utf-8", "backslashreplace"), "\n\t").encode()


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"
