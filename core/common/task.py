"""Work in steps: a generator that yields between steps, and returns its result.

Its driver may do something else meanwhile, or stop: a step is bounded, however much work there is.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

MUCH_FOLLOWS = True
"""Yielded before steps that hold much memory until they are done, and need the libraries of columns: a driver of many
generators may let some wait here.
"""

OTHERS_FIRST = "others first"
"""Yielded by a step that waits for work that others do in turns: its driver must not ask again before others had a
turn.
"""

Task = Generator[Any, None, T]  # nothing, MUCH_FOLLOWS, or OTHERS_FIRST


def finish(steps: Task[T]) -> T:
    """Returns their result, all at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


def made_in_one_step(steps: Task[T]) -> T | None:
    """Returns their result if one step is enough; otherwise ends them, and returns None."""
    try:
        next(steps)
    except StopIteration as end:
        made: T = end.value
        return made
    steps.close()
    return None
