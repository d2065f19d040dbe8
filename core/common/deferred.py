"""An answer that comes later, and timers for those that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


Schedule = Callable[[int, Callable[[], None]], TimerHandle]
"""Calls the function after so many ms, in the task of who asks, unless the handle is cancelled before."""


class Deferred(Generic[T]):
    """Is given its value once, now or later; owned by one task.

    Whoever waits sets `on_complete`, unless `value` is there already.
    """

    def __init__(self, fallback: T) -> None:
        """`fallback` is what `complete` gives where there is no better value."""
        self.on_complete: Callable[[T], None] | None = None
        self.on_failure: Callable[[Exception], None] | None = None
        """Called in place of `on_complete` where an error comes of it that nobody foresaw."""
        self.value: T | None = None
        self._fallback = fallback

    @property
    def is_at_work(self) -> bool:
        """Whether there is work left for it, which holds the request."""
        return False

    def complete_with(self, value: T) -> None:
        """The first value counts."""
        if self.value is None:
            self.value = value
            on_complete = self.on_complete
            self.on_complete = self.on_failure = None
            if on_complete is not None:
                on_complete(value)

    def fail(self, error: Exception) -> None:
        """There will be no value; the error is raised where nobody wants to be told."""
        on_failure = self.on_failure
        self.on_complete = self.on_failure = None
        if on_failure is None:
            raise error
        on_failure(error)

    def complete(self) -> None:
        self.complete_with(self._fallback)

    def cancel(self) -> None:
        """Nobody waits any more; the value may still come."""
        self.on_complete = self.on_failure = None
