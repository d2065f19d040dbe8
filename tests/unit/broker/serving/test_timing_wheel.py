"""Timers that share those of the loop."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.broker.serving.loop_runtime import TimingWheel


class ManualLoop(asyncio.AbstractEventLoop):
    """A loop whose time passes when it is told to."""

    def __init__(self) -> None:
        self._now = 1000.003
        self._due: list[tuple[float, int, asyncio.TimerHandle, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self.started = self.woken = 0

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, **_: Any) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self)
        heapq.heappush(self._due, (when, next(self._numbers), timer, callback, args))
        self.started += 1
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by handles that are cancelled."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, **_: Any) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args)

    def advance(self, ms: int) -> None:
        end = self._now + ms / 1000
        while self._due and self._due[0][0] <= end:
            self._now, _, timer, callback, args = heapq.heappop(self._due)
            if not timer.cancelled():
                self.woken += 1
                callback(*args)
        self._now = end


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def wheel(loop: ManualLoop) -> Iterator[TimingWheel]:
    wheel = TimingWheel(loop)
    wheel.check_invariants()
    yield wheel
    wheel.check_invariants()


@pytest.mark.parametrize("delay_ms", [1, 99, 100, 105, 500, 30_000])
def test_never_early_and_hardly_late(loop: ManualLoop, wheel: TimingWheel, delay_ms: int) -> None:
    fired: list[int] = []
    wheel.schedule(delay_ms, lambda: fired.append(delay_ms))
    loop.advance(delay_ms - 1)
    assert not fired
    loop.advance(11)
    assert fired == [delay_ms]
    loop.advance(60_000)
    assert fired == [delay_ms], "once"


def test_those_that_come_due_together_share_a_timer(loop: ManualLoop, wheel: TimingWheel) -> None:
    fired: list[int] = []
    handles = [wheel.schedule(500, lambda number=number: fired.append(number)) for number in range(100)]  # type: ignore[misc]
    assert loop.started == 1
    for handle in handles[:98]:
        handle.cancel()
        handle.cancel()
    loop.advance(1000)
    assert sorted(fired) == [98, 99]


def test_one_that_cancels_another_of_its_tick(loop: ManualLoop, wheel: TimingWheel) -> None:
    fired: list[str] = []
    handles = {
        name: wheel.schedule(200, lambda name=name: (fired.append(name), [h.cancel() for h in handles.values()]))  # type: ignore[misc]
        for name in ("a", "b")
    }
    loop.advance(1000)
    assert len(fired) == 1


def test_one_that_fails_holds_up_no_other(loop: ManualLoop, wheel: TimingWheel) -> None:
    fired: list[str] = []
    wheel.schedule(200, lambda: fired.append("first"))
    wheel.schedule(200, lambda: [].pop())
    wheel.schedule(200, lambda: fired.append("last"))
    with pytest.raises(IndexError):
        loop.advance(250)
    loop.advance(250)
    assert fired == ["first", "last"]


def test_one_that_starts_another(loop: ManualLoop, wheel: TimingWheel) -> None:
    fired: list[str] = []
    wheel.schedule(200, lambda: wheel.schedule(200, lambda: fired.append("again")))
    loop.advance(390)
    assert not fired
    loop.advance(30)
    assert fired == ["again"]


def test_no_wakening_for_what_was_cancelled(loop: ManualLoop, wheel: TimingWheel) -> None:
    fired: list[float] = []
    for _ in range(50):
        wheel.schedule(500, lambda: fired.append(0.0)).cancel()
        loop.advance(20)
    wheel.schedule(500, lambda: fired.append(loop.time()))
    due = loop.time() + 0.5
    loop.advance(490)
    assert loop.woken <= 3, "one each half second"
    loop.advance(60_000)
    assert len(fired) == 1
    assert due <= fired[0] <= due + 0.011
    assert loop.woken <= 4


def test_one_that_comes_before_those_that_wait_already(loop: ManualLoop, wheel: TimingWheel) -> None:
    fired: list[int] = []
    for delay_ms in (30_000, 500, 200, 1000):
        wheel.schedule(delay_ms, lambda delay_ms=delay_ms: fired.append(delay_ms))  # type: ignore[misc]
    loop.advance(300)
    assert fired == [200]
    loop.advance(60_000)
    assert fired == [200, 500, 1000, 30_000]


def test_one_that_starts_and_cancels_another_leaves_nothing(loop: ManualLoop, wheel: TimingWheel) -> None:
    fired: list[str] = []
    wheel.schedule(200, lambda: wheel.schedule(200, lambda: fired.append("never")).cancel())
    loop.advance(300)
    woken = loop.woken
    loop.advance(60_000)
    assert (fired, loop.woken) == ([], woken)
