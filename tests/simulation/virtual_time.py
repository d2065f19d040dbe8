"""Time that passes only from one event to the next, and a network on which everything takes some of it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any


class VirtualTime:
    """What is due when. Events of one moment come in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def call_later(self, delay_ms: int, function: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now_ms + max(delay_ms, 0), next(self._numbers), function))

    def step(self) -> None:
        """Does what is due next."""
        self.now_ms, _, function = heapq.heappop(self._events)
        function()


class Network:
    """Requests and answers between nodes. Each takes its own time, so that later ones may overtake it: they may be on
    other connections. Some are lost; who asked learns that by a timeout, and knows nothing of whether it was done.

    A request to a life of a node that is over is lost, and so is an answer to one.
    """

    TIMEOUT_MS = 1500

    def __init__(self, time: VirtualTime, random: Random) -> None:
        self._time = time
        self._random = random
        self.loss = random.choice((0.0, 0.02, 0.1))
        self.slow = random.choice((0.0, 0.08, 0.3, 0.6))

    def call(
        self,
        source: Endpoint,
        target: Endpoint,
        handle: Callable[[], Any],
        on_answer: Callable[[Any], None],
    ) -> None:
        """Has `handle` called at the target, and `on_answer` at the source with what it gave, or with None."""
        asking_life, asked_life = source.life, target.life

        def lost() -> None:
            self._time.call_later(self.TIMEOUT_MS, lambda: source.receive(asking_life, lambda: on_answer(None)))

        def arrive() -> None:
            target.receive(asked_life, answer, lost)

        def answer() -> None:
            given = handle()
            if self._random.random() < self.loss:
                lost()
            else:
                self._deliver(lambda: source.receive(asking_life, lambda: on_answer(given)))

        if self._random.random() < self.loss:
            lost()
        else:
            self._deliver(arrive)

    def _deliver(self, function: Callable[[], object]) -> None:
        random = self._random
        delay_ms = random.randint(200, 4000) if random.random() < self.slow else random.randint(0, 8)
        self._time.call_later(delay_ms, function)


class Endpoint:
    """What can be reached: it may be paused, and then does later what reached it, or be in another life by now."""

    life = 0
    is_up = True

    def __init__(self, random: Random) -> None:
        self._shuffled = random
        self._held: list[tuple[Callable[[], None], Callable[[], None] | None]] | None = None

    @property
    def is_paused(self) -> bool:
        return self._held is not None

    def receive(self, life: int, work: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
        """Does the work, now or after a pause; `otherwise` if it was for another life, or this one ends before."""
        if self.is_up and life == self.life:
            if self._held is None:
                work()
            else:
                self._held.append((work, otherwise))
        elif otherwise is not None:
            otherwise()

    def pause(self) -> None:
        if self._held is None:
            self._held = []

    def resume(self) -> None:
        """What came meanwhile lies in the buffers of several connections, which are read in any order."""
        held, self._held = self._held or [], None
        self._shuffled.shuffle(held)
        for work, _ in held:
            work()

    def _end_life(self) -> None:
        held, self._held = self._held or [], None
        self.life += 1
        for _, otherwise in held:
            if otherwise is not None:
                otherwise()
