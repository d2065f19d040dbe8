"""Makes text and bytes of others fit for a terminal: a peer's error message, names in a certificate, records."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
"""They have no width, and change only their neighbours: Persian, Hindi and families of emoji need them."""


def printable(text: str, keeps: str = "\n") -> str:
    """Writes what would drive a terminal as Python writes it: `\x1b`, `\x9b`, `\u202e`.

    Those are control characters, C1 too, and marks that turn the direction of writing. `keeps` are left as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c in keeps or _is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def printable_bytes(data: bytes | memoryview, keeps: str = "\n\t") -> bytes:
    """Does likewise for bytes that should be UTF-8; those that are not are written as `\xff`."""
    return printable(str(data, "utf-8", "backslashreplace"), keeps).encode()


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"
