"""Looks at several things, of which some may not be readable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from core.common.errors import AccessError

Thing = TypeVar("Thing")
Found = TypeVar("Found")


def skip_unreadable(
    things: Iterable[Thing], look_at: Callable[[Thing], Iterable[Found]], failures: list[AccessError]
) -> Iterator[Found]:
    """Gives what is found in each of the paths or partitions that a command works on; why one can't be read is kept in
    `failures`, and the others are looked at all the same.
    """
    for thing in things:
        try:
            yield from look_at(thing)
        except AccessError as error:
            failures.append(error)
