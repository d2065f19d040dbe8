"""An answer whose work is done in steps, perhaps many: other requests are served in between. Such work reads records by
columns. `LazyNumpy` lets another thread load the libraries for it before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic  # noqa: TID251  how long a turn takes
from typing import Any, TypeVar

from core.broker.requests.fair_scheduler import TURN_SECONDS, FairScheduler
from core.broker.requests.runtime import Runtime
from core.common.background import RunInBackground
from core.common.pending import Pending
from core.common.task import Task, Yield, finish
from core.records.record_walk import load_libraries


class LazyNumpy:
    """Loads the libraries once, and keeps the work that waits for them; owned by the broker's task."""

    def __init__(self, run_in_background: RunInBackground) -> None:
        self.are_loaded = False
        self._run_in_background = run_in_background
        self._waiting: list[Callable[[], None]] = []

    def when_loaded(self, work: Callable[[], None]) -> None:
        """Calls `work` once: now or when they are loaded, also if they can't be, so that `work` raises the error."""
        if self.are_loaded:
            work()
            return
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._run_in_background(self._load, self._go_on)

    def _load(self) -> None:
        with suppress(Exception):  # the waiting work raises it again
            load_libraries()
            self.are_loaded = True

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()


T = TypeVar("T")


class SteppedAnswers:
    """Answers that take work in steps; owned by the broker's task."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._libraries = LazyNumpy(runtime.run_in_background)
        self._owed: set[SteppedAnswer[Any]] = set()

    def answer(self, steps: Task[T | Pending[T]], *, is_owed: bool = False) -> T | Pending[T]:
        """Returns the result of the steps if one turn is enough, or no turns are taken; otherwise a `SteppedAnswer`.

        `is_owed` marks work that completes a change already begun: it is done even if the client disconnects, and
        before the broker closes.
        """
        turns = self._runtime.turns
        if turns is None:
            return finish(steps)
        try:
            step = next(steps)
        except StopIteration as end:
            made: T | Pending[T] = end.value
            return made
        answer = SteppedAnswer[T](steps, turns, self._libraries, self._owed if is_owed else None)
        answer.begin(step)
        return answer.made if answer.is_done else answer  # type: ignore[return-value]  # made, also if that is None

    def finish_owed(self) -> None:
        """Does the owed work, before the broker closes."""
        for answer in list(self._owed):
            answer.complete_now()


class SteppedAnswer(Pending[T]):
    """Owned by the broker's task. The steps' result may wait, too; they end early once no client waits for them."""

    def __init__(
        self,
        steps: Task[T | Pending[T]],
        turns: FairScheduler,
        libraries: LazyNumpy,
        owed: set[SteppedAnswer[Any]] | None,
    ) -> None:
        """`owed` holds the answers whose work must be done, including this one until it is."""
        self._steps = steps
        self._owed = owed
        if owed is not None:
            owed.add(self)
        self._turns = turns
        self._libraries = libraries
        self.is_done = False
        """Whether no steps are left; `made` is their result."""
        self._is_in_turn = False
        self.made: T | Pending[T] | None = None

    @property
    def is_at_work(self) -> bool:
        return not self.is_done or super().is_at_work

    def begin(self, step: object) -> None:
        """Takes the first turn after that step, and later ones as they come. If all places are taken, the first turn is
        one more step, and none that holds much memory. Owed work holds none, and needs no place.
        """
        has_place = self._owed is not None or not self._turns.has_enough_work
        if self._must_wait_after(step, has_place=has_place):
            self._wait_for_place()
        elif self._take_turn(has_place=has_place):
            take_turns = self._turns.work if self._owed is None else self._turns.take
            take_turns(self.take_turn)

    def _must_wait_after(self, step: object, *, has_place: bool) -> bool:
        return step is Yield.MUCH_FOLLOWS and not (has_place and self._libraries.are_loaded)

    def _wait_for_place(self) -> None:
        self._libraries.when_loaded(lambda: self._turns.work(self.take_turn))

    def take_turn(self) -> bool:
        """Works for one turn; returns whether there is more to do."""
        return self._take_turn(has_place=True)

    def _take_turn(self, *, has_place: bool) -> bool:
        end_s = monotonic() + (TURN_SECONDS if has_place else 0)
        must_wait = False
        step = None
        self._is_in_turn = True
        while not self.is_done and not must_wait and step is not Yield.OTHERS_FIRST:
            try:
                step = next(self._steps)
                must_wait = self._must_wait_after(step, has_place=has_place)
            except StopIteration as end:
                self._finish(end.value)
            except Exception as error:  # noqa: BLE001 - the door of a connection's loop
                self._set_done()
                self.fail(error)
            if monotonic() >= end_s:
                break
        self._is_in_turn = False
        if self.is_done:
            self._steps.close()  # if it was cancelled in the middle of a step
        elif must_wait:
            self._wait_for_place()
        return not self.is_done and not must_wait

    def _set_done(self) -> None:
        self.is_done = True
        if self._owed is not None:
            self._owed.discard(self)

    def _finish(self, made: T | Pending[T]) -> None:
        self._set_done()
        self.made = made
        self.follow(made)

    def complete_now(self) -> None:
        if not self.is_done:
            try:
                made = finish(self._steps)
            except Exception as error:  # noqa: BLE001 - other answers must be completed all the same
                self._set_done()
                self.fail(error)
            else:
                self._finish(made)
        super().complete_now()

    def cancel(self) -> None:
        super().cancel()
        if self._owed is None:
            self.is_done = True
            if not self._is_in_turn:
                self._steps.close()
