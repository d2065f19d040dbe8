"""What somebody looks for in a file's bytes: a text, or bytes in hex."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.common.errors import UsageError

Needles = Sequence[bytes]
"""Any of these is what is looked for."""

_HEX = re.compile(r"(0[xX])?((?:\s*[0-9a-fA-F]{2})+)\s*")
_QUOTED = re.compile(r"([\"'])(.+)\1")


def parse_needles(text: str) -> Needles:
    """Reads what was typed: `"in quotes"` is text, `0x6b31` is hex, and what may be either is looked for as both:
    `6b 31`, `6b31`. Raises UsageError if there is nothing to look for.
    """
    quoted = _QUOTED.fullmatch(text.strip())
    if quoted is not None:
        return (quoted[2].encode("utf-8", "surrogateescape"),)
    if not text.strip():
        raise UsageError("nothing to look for", hint='a text, "a text in quotes", or hex as 6b 31 or 0x6b31')
    as_text = text.encode("utf-8", "surrogateescape")
    found = _HEX.fullmatch(text)
    if found is None:
        return (as_text,)
    as_hex = bytes.fromhex("".join(found[2].split()))
    return (as_hex,) if found[1] else (as_hex, as_text)


def find_first(needles: Needles, data: bytes, start: int = 0) -> tuple[int, int] | None:
    """Finds the first of them, and where it ends; None if there is none."""
    found = ((data.find(needle, start), len(needle)) for needle in needles)
    first = min((one for one in found if one[0] >= 0), default=None)
    return None if first is None else (first[0], first[0] + first[1])
