"""Work that gives way to other work: a generator that yields between bounded steps, and returns its result.

A task yields a `Yield` where its driver may do something else meanwhile, or a `Pending` that it waits for
(`pending.wait_for`): the driver sends the value when it arrives, or throws its error. A driver may also drop the task.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from typing import Any, TypeVar

from core.common.pending import Pending

T = TypeVar("T")


class Yield(Enum):
    GIVE_WAY = auto()
    """A step is done: others may have a turn now."""
    MUCH_FOLLOWS = auto()
    """The next steps hold much memory until they are done, and need the libraries of columns: the driver of many tasks
    may let some wait here.
    """
    OTHERS_FIRST = auto()
    """The task waits for work that others do in turns: its driver must not go on before others had a turn."""


Step = Yield | Pending[Any]
Task = Generator[Step, Any, T]


def finish(task: Task[T]) -> T:
    """Returns the result of a task that waits for no value, all at once."""
    while True:
        try:
            step = next(task)
            assert isinstance(step, Yield), "it needs a driver that waits"
        except StopIteration as end:
            made: T = end.value
            return made


def made_in_one_step(task: Task[T]) -> T | None:
    """Returns its result if one step is enough; otherwise ends the task, and returns None."""
    try:
        next(task)
    except StopIteration as end:
        made: T = end.value
        return made
    task.close()
    return None
