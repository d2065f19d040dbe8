"""Text made by several processes at once and written in order, without passing through any other process.

Every worker goes through the same items; each makes the text of every n-th, and writes it to the shared descriptor when
the one before it has passed the turn on. What passes between them is one byte a turn.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from core.inspector.output import Buffer, write_all

T = TypeVar("T")


def write_in_turns(
    fd: int,
    items: Callable[[], Iterable[T]],
    text_of: Callable[[T], Sequence[Buffer]],
    workers: int,
    outcome: Callable[[], Any],
) -> list[Any]:
    """Writes the text of all items; gives what `outcome` says in each worker when it is done, this process first.

    What a worker raises is raised here. OSError where the descriptor takes no more.
    """
    turns = [os.pipe() for _ in range(workers)]
    children = []
    for number in range(1, workers):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_worker(fd, number, turns, items, text_of, outcome, writing)
        os.close(writing)
        children.append((pid, reading))
    failure: BaseException | None = None
    outcomes = []
    try:
        _work(fd, 0, turns, items(), text_of)
        outcomes.append(outcome())
    except BaseException as error:  # noqa: BLE001 - raised below, once the others have ended
        failure = error
    finally:
        _close(turns)
    for pid, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(pid, 0)
        ended = pickle.loads(data) if data else RuntimeError("a worker was killed")  # noqa: S301 - from our own child
        if isinstance(ended, BaseException):
            failure = ended if failure is None or isinstance(failure, _TurnLostError) else failure
        else:
            outcomes.append(ended)
    if failure is not None:
        raise failure
    return outcomes


class _TurnLostError(Exception):
    """The worker before ended without passing the turn on."""


def _be_worker(
    fd: int,
    number: int,
    turns: list[tuple[int, int]],
    items: Callable[[], Iterable[T]],
    text_of: Callable[[T], Sequence[Buffer]],
    outcome: Callable[[], Any],
    writing: int,
) -> None:
    """The life of a forked process; does not return."""
    try:
        try:
            _work(fd, number, turns, items(), text_of)
            ended: Any = outcome()
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            ended = error
        os.write(writing, pickle.dumps(ended))
    finally:
        os._exit(0)


def _work(
    fd: int,
    number: int,
    turns: list[tuple[int, int]],
    items: Iterable[T],
    text_of: Callable[[T], Sequence[Buffer]],
) -> None:
    workers = len(turns)
    mine, following = turns[number][0], turns[(number + 1) % workers][1]
    for turn in [end for pair in turns for end in pair if end not in (mine, following)]:
        os.close(turn)
    turns[:] = [(mine, following)]
    for count, item in enumerate(items):
        if count % workers != number:
            continue
        text = text_of(item)
        if count and not os.read(mine, 1):
            raise _TurnLostError
        write_all(fd, text)
        with contextlib.suppress(BrokenPipeError):  # the next one has nothing more to write
            os.write(following, b".")


def _close(turns: list[tuple[int, int]]) -> None:
    for pair in turns:
        for end in pair:
            os.close(end)
