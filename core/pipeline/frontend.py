"""The pipeline's interface to the program that runs it: a command line, a terminal interface, a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from core.common.errors import AccessError, KafkaError


class Progress(Protocol):
    """Shows the progress of a long job."""

    def add(self, count: int, size_bytes: int = 0) -> None: ...

    def done(self) -> None: ...


class Undivided(Protocol):
    """Returns a block that a stop (Ctrl-C) does not interrupt. KeyboardInterrupt is raised at the block's end; or
    inside, if it goes on for `limit_s` after the stop.
    """

    def __call__(self, limit_s: float = ...) -> AbstractContextManager[None]: ...


class _NoProgress:
    def __init__(self, verb: str, things: str) -> None: ...

    def add(self, count: int, size_bytes: int = 0) -> None: ...

    def done(self) -> None: ...


@contextmanager
def _divided(limit_s: float = 0.0) -> Iterator[None]:  # noqa: ARG001 - a stop is raised wherever it comes
    yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontend:
    """Shows the pipeline's messages beside its result; immutable. The default shows nothing and catches no signals."""

    say: Callable[[str], None] = lambda _text: None
    """Called with warnings, notes and the final message."""
    show_progress: Callable[[str, str], Progress] = _NoProgress
    """Begins a job: (verb, things), as in "acknowledged", "records"."""
    undivided: Undivided = _divided

    def end_in_time(self, end: Callable[[], object], limit_s: float) -> object | None:
        """Calls `end` after a stop, for so long at most. Returns why it did not succeed, or None."""
        problem: object = f"no answer in {limit_s:g} s"
        try:
            with suppress(KeyboardInterrupt), self.undivided(limit_s):
                end()
                problem = None
        except (KafkaError, AccessError) as error:
            problem = error
        return problem


SILENT = Frontend()
