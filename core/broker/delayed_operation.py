"""A request whose answer must wait: for data, or until its time is up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from core.common.deferred import Deferred, Schedule, TimerHandle


class DelayedOperation(ABC):
    """Completes once: when what it waits for is there, or when its time is up; owned by the broker's task.

    Whoever handles the request sets `on_complete`, which gets the response.
    """

    def __init__(self) -> None:
        self.on_complete: Callable[[Any], None] | None = None  # a response message of the request's API
        self._is_over = False
        self._timer: TimerHandle | None = None

    def start_timer(self, schedule: Schedule, delay_ms: int) -> None:
        self._timer = schedule(delay_ms, self.complete)

    def maybe_complete(self) -> None:
        """Something happened that it may have waited for."""
        if not self._is_over and self.is_satisfied():
            self.complete()

    def complete(self) -> None:
        """Gives the answer with what there is, if it was not given."""
        if self._is_over:
            return
        on_complete = self.on_complete
        self.cancel()
        if on_complete is not None:
            on_complete(self.response())

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self.on_complete = self._timer = None  # they hold the operation: no work for the garbage collector
        self.forget()

    @abstractmethod
    def is_satisfied(self) -> bool:
        """Whether what it waits for is there."""

    @abstractmethod
    def response(self) -> Any:  # a response message of the request's API
        """The answer as of now."""

    @abstractmethod
    def forget(self) -> None:
        """Takes the operation from wherever it is being watched."""


def forward(answer: DelayedOperation | Deferred[Any], to: Deferred[Any]) -> None:
    """What the answer comes to, `to` comes to."""
    answer.on_complete = to.complete_with
    if isinstance(answer, Deferred):
        answer.on_failure = to.fail
