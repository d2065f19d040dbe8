"""A value that arrives once, now or later, and timers for its receivers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar, overload

T = TypeVar("T")
U = TypeVar("U")


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


Schedule = Callable[[int, Callable[[], None]], TimerHandle]
"""Calls the function after so many ms, in the caller's task, unless the handle is cancelled before."""


class Pending(Generic[T]):
    """A value, or an unforeseen error, that arrives once; owned by one task.

    The waiting side sets `on_value`, and `on_failure` for the error. One of the two is called, once, unless `cancel`
    comes first. To stop waiting it calls `complete_now`.

    The completing side calls `complete_with`, `fail`, or `follow`: the first call counts. A function or a subclass
    returns in `value_now` the value that counts if it is needed at once, and ends in `forget` whatever it watches.
    """

    on_value: Callable[[T], None] | None = None
    on_failure: Callable[[Exception], None] | None = None
    value: T | None = None
    error: Exception | None = None
    """What it has ended with."""
    is_over = False
    """Whether it is complete, has failed, or was cancelled."""
    _timer: TimerHandle | None = None
    _followed: Pending[Any] | None = None
    _make: Callable[[Any], Any] | None = None  # makes the result of the value
    _value_now: Callable[[], T] | None = None
    _forget: Callable[[Pending[T]], object] | None = None

    def __init__(
        self, value_now: Callable[[], T] | None = None, forget: Callable[[Pending[T]], object] | None = None
    ) -> None:
        """The functions are for a Pending without a subclass; `forget` gets the Pending, perhaps twice."""
        self._value_now, self._forget = value_now, forget

    # --- for the waiting side

    @property
    def is_at_work(self) -> bool:
        """Returns whether work is left for it, which holds the request, and not only a wait."""
        return self._followed is not None and self._followed.is_at_work

    def complete_now(self) -> None:
        """Completes with the value as it is now, unless it is complete."""
        if self._followed is not None:
            self._followed.complete_now()
        elif not self.is_over:
            self.complete_with(self.value_now())

    def cancel(self) -> None:
        """Notes that nobody waits any more: neither `on_value` nor `on_failure` is called."""
        self._end()
        if self._followed is not None:
            self._followed.cancel()

    def map(self, function: Callable[[T], U]) -> Pending[U]:
        """Applies `function` to the value when it arrives, and returns the same object."""
        assert not self.is_over, "nobody would ever be called"
        mapped: Pending[Any] = self
        make = self._make
        mapped._make = function if make is None else lambda value: function(make(value))
        return mapped

    def then(self, work: Callable[[T], U | Pending[U]], *, is_at_work: bool = True) -> Pending[U]:
        """Returns the result of `work`, which may itself wait. `work` runs when the value arrives, and not at all if
        that is cancelled first; until then it counts as work that holds the request, unless `is_at_work` is False.
        """
        assert not self.is_over, "nobody would ever be called"
        return _Then(self, work, is_at_work=is_at_work)

    # --- for the completing side

    def complete_with(self, value: T) -> None:
        if not self.is_over:
            on_value, on_failure, make = self.on_value, self.on_failure, self._make
            self._end()
            if make is not None:
                try:
                    value = make(value)
                except Exception as error:  # not for the completing side, which may have others to complete
                    if on_failure is None:
                        raise
                    on_failure(error)
                    return
            self.value = value
            if on_value is not None:
                on_value(value)

    def fail(self, error: Exception) -> None:
        """Fails: there will be no value. The error is raised here if nobody waits for it."""
        if not self.is_over:
            on_failure, self.error = self.on_failure, error
            self._end()
            if on_failure is None:
                raise error
            on_failure(error)

    def follow(self, other: T | Pending[T]) -> None:
        """Completes with `other`, or its value; if nobody waits any more, cancels `other`."""
        if isinstance(other, Pending) and self.is_over:
            other.cancel()
        elif isinstance(other, Pending):
            self._followed = other
            other.on_value, other.on_failure = self.complete_with, self.fail
        else:
            self.complete_with(other)

    def limit(self, schedule: Schedule, delay_ms: int) -> None:
        """Completes after that time with the value as it is then."""
        self._timer = schedule(delay_ms, self.complete_now)

    def _end(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self.on_value = self.on_failure = self._make = self._timer = None  # else cycles would be left
        self.forget()

    # --- for subclasses

    def value_now(self) -> T:
        """Returns the value that counts when the wait ends early."""
        if self._value_now is None:
            raise NotImplementedError
        return self._value_now()

    def forget(self) -> None:
        if self._forget is not None:
            self._forget(self)


class _Then(Pending[U]):
    """Owned by the task of its source."""

    def __init__(self, source: Pending[Any], work: Callable[[Any], U | Pending[U]], *, is_at_work: bool) -> None:
        self._work = work
        self._has_work = is_at_work
        self._followed = source
        source.on_value, source.on_failure = self._take, self.fail

    @property
    def is_at_work(self) -> bool:
        return self._has_work or super().is_at_work

    def complete_now(self) -> None:
        super().complete_now()
        if self._followed is not None:  # the value that the work waits for
            super().complete_now()

    def _take(self, value: Any) -> None:
        self._has_work = False
        self._followed = None
        try:
            made = self._work(value)
        except Exception as error:  # noqa: BLE001 - as in `complete_with`
            self.fail(error)
        else:
            self.follow(made)


@overload
def wait_for(value: Pending[T]) -> Generator[Pending[Any], Any, T]: ...
@overload
def wait_for(value: T | Pending[T]) -> Generator[Pending[Any], Any, T]: ...
def wait_for(value: T | Pending[T]) -> Generator[Pending[Any], Any, T]:
    """Returns the value, when it has arrived: for a task, whose driver waits."""
    if not isinstance(value, Pending):
        return value
    if value.error is not None:
        raise value.error
    return value.value if value.is_over else (yield value)  # type: ignore[return-value]  # it may be None, too
