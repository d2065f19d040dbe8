"""Work in steps: a generator that gives way between two of them, and returns what it made.

Whoever drives it may do something else meanwhile, or stop: a step is bounded, however much work there is.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

MUCH_FOLLOWS = True
"""Is given by the step before those that hold much memory until they are done, and need the libraries of columns:
whoever drives many may let them wait there.
"""

OTHERS_FIRST = "others first"
"""Is given by a step that waits for what somebody else does in turns: whoever drives both must not ask again before
others had a turn.
"""

Steps = Generator[Any, None, T]  # nothing, MUCH_FOLLOWS, or OTHERS_FIRST


def finish(steps: Steps[T]) -> T:
    """Gives what they make, all at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made


def made_in_one_step(steps: Steps[T]) -> T | None:
    """Gives what they make if one is enough; None, and they are ended, if there are more."""
    try:
        next(steps)
    except StopIteration as end:
        made: T = end.value
        return made
    steps.close()
    return None
