"""Checks indexes that were not used since the start: a few segments at a time, for a sixth of the time at most.

A start opens no index, and the first use of one checks it (`core/log/segment_recovery.py`). This checks the other
indexes in the background, and finds offsets that are missing between two segments. A request for the missing offsets of
a topic has its segments checked first (`steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic  # noqa: TID251  how long a turn takes

from core.broker.requests.fair_scheduler import TURN_SECONDS
from core.common.background import RunInBackground
from core.common.pending import Schedule
from core.common.task import Task
from core.log.partition_log import PartitionLog

_REST_MS = 10


class LazyIndexChecks:
    """Owned by the broker's task."""

    def __init__(
        self,
        find_logs: Callable[[], Iterable[PartitionLog]],
        schedule: Schedule,
        run_in_background: RunInBackground,
        on_holes: Callable[[PartitionLog, list[tuple[int, int]]], None] | None,
    ) -> None:
        """`on_holes` is called with the offsets [start, end) that are missing between segments of a log without a known
        reason; a first call may include offsets whose reason is found afterwards.
        """
        self._find_logs = find_logs
        self._schedule = schedule
        self._run_in_background = run_in_background
        self._on_holes = on_holes

    def begin(self) -> None:
        """Checks the present logs, once."""
        self._go_on(self._check_all(list(self._find_logs())))

    def add(self, log: PartitionLog) -> None:
        """Checks a log that was opened later."""
        self._schedule(_REST_MS, partial(self._go_on, self._check_all([log])))

    def _go_on(self, steps: Task[None]) -> None:
        end_s = monotonic() + TURN_SECONDS
        if any(monotonic() >= end_s for _ in steps):
            self._schedule(_REST_MS, partial(self._go_on, steps))

    def _check_all(self, logs: list[PartitionLog]) -> Task[None]:
        while logs:
            yield from self.steps(logs.pop(0))  # keeps no reference to a log that is deleted meanwhile

    def steps(self, log: PartitionLog) -> Task[None]:
        """Checks the indexes of a log that were not used yet, unless that was done."""
        late_check = log.late_check
        if late_check is None:
            return
        yield from late_check.steps()
        log.late_check = None
        holes = late_check.take_holes()
        on_holes = self._on_holes
        if not holes or on_holes is None:
            return
        if not log.config.is_compacted:
            on_holes(log, [(hole.start, hole.end) for hole in holes])
        found: list[tuple[int, int]] = []

        def explain() -> None:
            found.extend(late_check.explain(holes, log.config))

        self._run_in_background(explain, lambda: on_holes(log, found))
