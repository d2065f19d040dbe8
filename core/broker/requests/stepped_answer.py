"""An answer whose work is done in steps, perhaps many: other requests are served in between. Such work reads records by
columns: another thread loads the libraries for it before the first such step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import GEN_RUNNING, getgeneratorstate
from time import monotonic  # noqa: TID251  how long a turn takes
from typing import Any, TypeVar

from core.broker.requests.fair_scheduler import TURN_SECONDS, FairScheduler
from core.broker.requests.runtime import Runtime
from core.common.pending import Pending
from core.common.task import Step, Task, Yield
from core.records.record_walk import load_libraries

T = TypeVar("T")


class SteppedAnswers:
    """Answers that take work in steps; owned by the broker's task."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.has_libraries = False
        """Whether the libraries of columns are loaded."""
        self.owed: set[SteppedAnswer[Any]] = set()
        """The answers whose work must be done."""

    def answer(self, task: Task[T | Pending[T]], *, is_owed: bool = False) -> T | Pending[T]:
        """Returns the result of the task if one turn is enough, or no turns are taken; otherwise a `SteppedAnswer`.

        `is_owed` marks work that completes a change already begun: it is done even if the client disconnects, and
        before the broker closes. While it waits for a value, it has not begun.
        """
        try:
            step = next(task)
        except StopIteration as end:
            made: T | Pending[T] = end.value
            return made
        answer = SteppedAnswer[T](self, task, self._runtime.turns, is_owed=is_owed)
        answer.go_on_after(step)
        return answer.made if answer.is_done else answer  # type: ignore[return-value]  # made, also if that is None

    def finish_owed(self) -> None:
        """Does the owed work, before the broker closes."""
        for answer in list(self.owed):
            if not answer.is_waiting:
                answer.complete_now()

    def load_libraries(self, then: Callable[[], None]) -> None:
        """Loads them in another thread, and calls `then`; also if they can't be loaded, so that the work that needs
        them raises the error.
        """

        def load() -> None:
            with suppress(Exception):
                if not self.has_libraries:
                    load_libraries()
                self.has_libraries = True

        self._runtime.run_in_background(load, then)


class SteppedAnswer(Pending[T]):
    """The driver of one task; owned by the broker's task. Ends the task early once no client waits for the answer."""

    def __init__(
        self, answers: SteppedAnswers, task: Task[T | Pending[T]], turns: FairScheduler | None, *, is_owed: bool
    ) -> None:
        """Without `turns` all steps follow at once. If it is owed, it is among those of `answers` until it is done."""
        self._answers = answers
        self._task = task
        self._is_owed = is_owed
        if is_owed:
            answers.owed.add(self)
        self._turns = turns
        self.is_done = False
        """Whether no steps are left; `made` is their result."""
        self.made: T | Pending[T] | None = None
        self._followed: Pending[Any] | None = None  # the value that the task, or its result, waits for

    @property
    def is_at_work(self) -> bool:
        return not self.is_done or super().is_at_work

    @property
    def is_waiting(self) -> bool:
        """Whether the task waits for a value."""
        return not self.is_done and self._followed is not None

    def go_on_after(self, step: Step) -> None:
        """Takes the first turn after that step, and later ones as they come. If all places are taken, the first turn is
        one more step, and none that holds much memory. Owed work holds none, and needs no place.
        """
        turns = self._turns
        has_place = turns is None or self._is_owed or not turns.has_enough_work
        if not self._waits_after(step, has_place=has_place) and self._take_turn(has_place=has_place) and turns:
            take_turns = turns.take if self._is_owed else turns.work
            take_turns(self.take_turn)

    def _waits_after(self, step: Step, *, has_place: bool) -> bool:
        """Returns whether the task waits for a value, or for a place; it goes on by itself then."""
        turns = self._turns
        if isinstance(step, Pending):
            self._followed = step
            step.on_value = self._resume
            step.on_failure = lambda error: self._resume(error=error)
            return True
        if step is Yield.MUCH_FOLLOWS and turns is not None and not (has_place and self._answers.has_libraries):
            if self._answers.has_libraries:
                turns.work(self.take_turn)
            else:
                self._answers.load_libraries(lambda: turns.work(self.take_turn))
            return True
        return False

    def _resume(self, value: Any = None, error: Exception | None = None) -> None:
        self._followed = None
        step = self._next_step(value, error)
        if step is not None:
            self.go_on_after(step)

    def take_turn(self) -> bool:
        """Works for one turn; returns whether there is more to do."""
        return self._take_turn(has_place=True)

    def _take_turn(self, *, has_place: bool) -> bool:
        end_s = monotonic() + (TURN_SECONDS if has_place else 0)
        while not self.is_done:
            step = self._next_step()
            if step is None or self._waits_after(step, has_place=has_place):
                return False
            if self._turns is not None and (step is Yield.OTHERS_FIRST or monotonic() >= end_s):
                return True
        return False

    def _next_step(self, value: Any = None, error: Exception | None = None) -> Step | None:
        """Takes one step; returns None if it is the last one."""
        try:
            step = self._task.send(value) if error is None else self._task.throw(error)
        except StopIteration as end:
            self._set_done()
            self.made = end.value
            self.follow(end.value)
        except Exception as raised:  # noqa: BLE001 - the door of a connection's loop
            self._set_done()
            self.fail(raised)
        else:
            if not self.is_done:
                return step
            self._task.close()  # it was cancelled in the middle of the step
        return None

    def _set_done(self) -> None:
        self.is_done = True
        self._answers.owed.discard(self)

    def complete_now(self) -> None:
        self._turns = None
        while not self.is_done:
            if self._followed is not None:
                self._followed.complete_now()
            else:
                self._take_turn(has_place=True)
        super().complete_now()

    def cancel(self) -> None:
        is_dropped = not self._is_owed or self.is_waiting
        super().cancel()
        if is_dropped:
            self._set_done()
            if getgeneratorstate(self._task) != GEN_RUNNING:
                self._task.close()
