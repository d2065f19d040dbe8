"""Regular expressions from clients: RE2's, as Kafka's (KIP-848), through pyarrow, which has it.

RE2 takes time in proportion to the text, whatever the expression: no client can hold up the broker with one.
"""

from __future__ import annotations

from collections.abc import Sequence


def matching(pattern: str, texts: Sequence[str]) -> list[str]:
    """Returns the texts that match as a whole. Raises ValueError if the pattern is invalid."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.match_substring_regex(pa.array([""]), pattern=pattern)  # by itself: in brackets a stray one may find its match
    strings = pa.array(texts, pa.string())
    found: list[str] = strings.filter(pc.match_substring_regex(strings, pattern=rf"\A(?:{pattern})\z")).to_pylist()
    return found
