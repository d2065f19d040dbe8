"""Text of others, such as a peer's error message or the names in a certificate, on its way to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with what would drive a terminal written as Python writes it, `\\x1b`; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
