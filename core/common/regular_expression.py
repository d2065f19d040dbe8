"""Regular expressions of clients and users: RE2's, as Kafka's (KIP-848).

RE2 takes time in proportion to the text, whatever the expression: no client can hold up the broker with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any


def matching(pattern: str, texts: Sequence[str]) -> list[str]:
    """Returns the texts that match as a whole. Raises ValueError if the pattern is invalid."""
    expression = _compiled(pattern.encode(), is_text=True)
    return [text for text in texts if expression.fullmatch(text.encode()) is not None]


def searcher(pattern: str, *, is_text: bool) -> Callable[[bytes], bool]:
    """Returns a function that says whether the pattern is found in bytes, by characters if these are UTF-8 (`is_text`),
    else by bytes. Raises ValueError if the pattern is invalid.
    """
    search = _compiled(pattern.encode(), is_text=is_text).search
    return lambda text: search(text) is not None


def compiled(pattern: str) -> Any:
    """Returns the package's own object, for texts. Raises ValueError if the pattern is invalid."""
    return _compiled(pattern.encode(), is_text=True)


@lru_cache(64)
def _compiled(pattern: bytes, *, is_text: bool) -> Any:  # the package has no types
    import re2

    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.UTF8 if is_text else re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace")) from error
