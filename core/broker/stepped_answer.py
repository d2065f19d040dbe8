"""An answer that takes work in steps, of which there may be many: others are served in between."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from core.broker.delayed_operation import DelayedOperation, forward
from core.broker.turns import TURN_SECONDS
from core.common.deferred import Deferred
from core.common.steps import MUCH_FOLLOWS, Steps, finish

if TYPE_CHECKING:
    from core.broker.broker import Broker


def answer_in_turns(broker: Broker, steps: Steps[Any], *, is_owed: bool = False) -> Any:
    """What the steps make where one turn is enough for them, or nobody takes turns; else a `SteppedAnswer`.

    Work that `is_owed` changes something that has begun: it is done though the client goes, and before the broker
    closes.
    """
    if broker.turns is None:
        return finish(steps)
    try:
        step = next(steps)
    except StopIteration as end:
        return end.value
    answer = SteppedAnswer(steps, broker.owed if is_owed else None)
    must_wait = broker.turns.has_enough_work
    if not (must_wait and step is MUCH_FOLLOWS) and not answer.take_turn(may_hold_much=not must_wait):
        return answer.made
    broker.turns.work(answer.take_turn)
    return answer


class SteppedAnswer(Deferred[Any]):
    """Owned by the broker's task. What the steps make may have to wait itself; they end early when nobody waits for the
    answer any more.
    """

    def __init__(self, steps: Steps[Any], owed: set[SteppedAnswer] | None = None) -> None:
        """`owed` holds the answers whose work must be done, this one too until it is."""
        super().__init__(None)
        self._steps = steps
        self._owed = owed
        if owed is not None:
            owed.add(self)
        self._is_over = False
        self._is_in_turn = False
        self.made: Any = None

    @property
    def is_at_work(self) -> bool:
        return not self._is_over

    def take_turn(self, *, may_hold_much: bool = True) -> bool:
        """Works as long as a turn lasts, or until it would hold much and may not; whether there is more to do."""
        end_s = monotonic() + TURN_SECONDS
        self._is_in_turn = True
        while not self._is_over:
            try:
                if next(self._steps) is MUCH_FOLLOWS and not may_hold_much:
                    break
            except StopIteration as end:
                self._end(end.value)
            except Exception as error:  # noqa: BLE001 - the door of a connection's loop
                self._set_over()
                self.fail(error)
            if monotonic() >= end_s:
                break
        self._is_in_turn = False
        if self._is_over:
            self._steps.close()  # of who was cancelled in the middle of a step
        return not self._is_over

    def _set_over(self) -> None:
        self._is_over = True
        if self._owed is not None:
            self._owed.discard(self)

    def _end(self, made: Any) -> None:
        self._set_over()
        self.made = made
        if isinstance(made, DelayedOperation | Deferred):
            forward(made, self)
        else:
            self.complete_with(made)

    def complete(self) -> None:
        if not self._is_over:
            self._end(finish(self._steps))
        if isinstance(self.made, DelayedOperation | Deferred):
            self.made.complete()

    def cancel(self) -> None:
        super().cancel()
        if self._owed is not None:
            return
        self._is_over = True
        if not self._is_in_turn:
            self._steps.close()
        if isinstance(self.made, DelayedOperation | Deferred):
            self.made.cancel()
