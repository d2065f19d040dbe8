"""Reads several things, some of which may not be readable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from core.common.errors import AccessError

Thing = TypeVar("Thing")
Found = TypeVar("Found")


def skip_unreadable(
    things: Iterable[Thing], look_at: Callable[[Thing], Iterable[Found]], failures: list[AccessError]
) -> Iterator[Found]:
    """Yields the results for each of the paths or partitions of a command; errors of unreadable ones go to `failures`,
    and the others are read all the same.
    """
    for thing in things:
        try:
            yield from look_at(thing)
        except AccessError as error:
            failures.append(error)
