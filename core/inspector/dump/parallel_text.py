"""Text made by several processes at once and written in order, without passing through any other process.

Each of n workers makes every n-th text, and writes it to the shared descriptor when the one before it has passed the
turn on. The only bytes that pass between them are one a turn.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from core.inspector.dump.write_all import Buffer, write_all

_GO_ON, _ALL_IS_WRITTEN = b".", b"!"


class Turn(NamedTuple):
    """A worker's turn. `keeps_turn`: it keeps the turn for all its later texts; the others write none of theirs."""

    text: Sequence[Buffer]
    keeps_turn: bool = False


FairScheduler = Callable[[int], Iterable[Turn]]
"""Returns the turns of worker 0, 1 .. : the first, and every so many-th after it."""


def write_in_turns(fd: int, turns_of: FairScheduler, workers: int, outcome: Callable[[], Any]) -> list[Any]:
    """Writes all texts in order; returns each worker's `outcome` after its last turn, this process first.

    Raises a worker's exception. Raises OSError if writing fails.
    """
    import pickle  # which a small dump does not need

    turns = [os.pipe() for _ in range(workers)]
    children = []
    for number in range(1, workers):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_worker(fd, number, turns, turns_of, outcome, writing)
        os.close(writing)
        children.append((pid, reading))
    failure: BaseException | None = None
    outcomes = []
    try:
        outcomes.append(_work(fd, 0, turns, turns_of(0), outcome))
    except BaseException as error:  # noqa: BLE001 - raised below, once the others have ended
        failure = error
        if isinstance(error, KeyboardInterrupt):
            _kill(children)  # one whose turn it is may wait for a reader that is gone
    finally:
        _close(turns)
    for number, (pid, reading) in enumerate(children):
        try:
            with os.fdopen(reading, "rb") as pipe:
                data = pipe.read()
        except KeyboardInterrupt:
            _kill(children[number:])
            raise
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


def _kill(children: list[tuple[int, int]]) -> None:
    for pid, _ in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _be_worker(
    fd: int,
    number: int,
    turns: list[tuple[int, int]],
    turns_of: FairScheduler,
    outcome: Callable[[], Any],
    writing: int,
) -> None:
    """Lives the life of a forked process; does not return."""
    import pickle

    try:
        try:
            ended: Any = _work(fd, number, turns, turns_of(number), outcome)
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            ended = error
        os.write(writing, pickle.dumps(ended))
    finally:
        os._exit(0)


def _work(fd: int, number: int, turns: list[tuple[int, int]], mine: Iterable[Turn], outcome: Callable[[], Any]) -> Any:
    """Writes this worker's texts; returns the outcome after its last turn."""
    before, following = turns[number][0], turns[(number + 1) % len(turns)][1]
    for end in [end for pair in turns for end in pair if end not in (before, following)]:
        os.close(end)
    turns[:] = [(before, following)]
    has_turn, token = number == 0, _GO_ON
    result = outcome()
    for text, keeps_turn in mine:
        if not has_turn:
            token = os.read(before, 1)
            if not token:
                raise _TurnLostError
            if token == _ALL_IS_WRITTEN:
                break
        write_all(fd, text)
        result = outcome()
        has_turn = keeps_turn
        if not keeps_turn:
            _pass_on(following, _GO_ON)
    if has_turn:
        result = outcome()
    if has_turn or token == _ALL_IS_WRITTEN:
        _pass_on(following, _ALL_IS_WRITTEN)
    return result


def _pass_on(following: int, token: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # that one has nothing more to write
        os.write(following, token)


def _close(turns: list[tuple[int, int]]) -> None:
    for pair in turns:
        for end in pair:
            os.close(end)
