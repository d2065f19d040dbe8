"""Formats the figures of all rounds: the median, with the least and the most."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def spread(figures: Iterable[float], style: str = ".3g", unit: str = "") -> str:
    """Returns `MEDIAN UNIT (LEAST-MOST)`; `style` is the format of each number, as in an f-string."""
    found = sorted(figures)
    after = f" {unit}" if unit else ""
    return f"{statistics.median(found):{style}}{after} ({found[0]:{style}}-{found[-1]:{style}})"


def quotient(one: float, other: float) -> float:
    """Returns NaN if `other` is zero: a tiny run may be too short to be measured."""
    return one / other if other else math.nan


def quotients(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Divides the figures of the rounds in pairs."""
    return [quotient(one, other) for one, other in zip(ours, theirs, strict=True)]


def ratio(ours: Sequence[float], theirs: Sequence[float], style: str = ".2f") -> str:
    """Returns the median of the rounds' quotients."""
    return f"{statistics.median(quotients(ours, theirs)):{style}}"
