"""Guesses the name that somebody meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Gives `did you mean X?`, if one of the known names is much like it; else None."""
    from difflib import get_close_matches

    by_lower = {other.lower(): other for other in known}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[found[0]]}?" if found else None
