"""Group commit: one flush at a time, in the background; whatever asks while it runs shares the next.

A flush syncs the files of every log that asked since the last one began. Clients that were answered by one flush ask
again one after the other: the next one waits for them, for as long as the last one took, within 1 to 20 ms, so that
they share it again, and with those that asked meanwhile.

Who waits for a flush (an acknowledgement under `flush.messages`, a consumer under `plog.visible.after.flush`) is told
in the broker's own task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from core.common.background import RunInBackground
from core.common.clock import Clock
from core.common.deferred import Schedule, TimerHandle
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog, sync_segments

_LEAST_GATHER_MS, _MOST_GATHER_MS = 1, 20


class _Sync(NamedTuple):
    """What one log has to sync, and the offset up to which its records are safe then."""

    log: PartitionLog
    offset: int
    segments: list[LogSegment]


class Flusher:
    """Owned by the broker's task.

    `on_flushed` is told each log that was flushed, its recovery point moved; `on_failed` one whose disk refused. What
    the kernel could not write once it may have thrown away: such a log must not be asked to flush again.
    """

    def __init__(
        self,
        run_in_background: RunInBackground,
        schedule: Schedule,
        clock: Clock,
        on_flushed: Callable[[PartitionLog], None],
        on_failed: Callable[[PartitionLog, OSError], None],
    ) -> None:
        self._run_in_background = run_in_background
        self._schedule = schedule
        self._clock = clock
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._asked: dict[PartitionLog, None] = {}
        self._due: dict[PartitionLog, tuple[int, TimerHandle]] = {}  # by when, ms, and the timer for it
        self._asks = 0
        self._answered = 0  # how many asked for the flush that is done now
        self._expected_asks = 1
        self._started_ms = self._gather_ms = 0
        self._is_flushing = False
        self._gathering: TimerHandle | None = None

    def flush(self, log: PartitionLog) -> None:
        """Brings everything that the log holds now to the disk."""
        self._asked[log] = None
        self._asks += 1
        if not self._is_flushing:
            self._start_when_shared()

    def flush_within(self, log: PartitionLog, delay_ms: int) -> None:
        """The same, `delay_ms` from now at the latest. Where no timers run, at the first call after that."""
        now_ms = self._clock.now_ms()
        if log not in self._due:
            self._due[log] = now_ms + delay_ms, self._schedule(delay_ms, lambda: self.flush(log))
        elif now_ms >= self._due[log][0]:
            self.flush(log)

    def forget(self, log: PartitionLog) -> None:
        """The log is not served any more."""
        self._asked.pop(log, None)
        self._cancel_timer(log)

    def _cancel_timer(self, log: PartitionLog) -> None:
        due = self._due.pop(log, None)
        if due is not None:
            due[1].cancel()

    def _start_when_shared(self) -> None:
        if self._asks >= self._expected_asks:
            self._start()
        elif self._gathering is None:
            self._gathering = self._schedule(self._gather_ms, self._start)

    def _start(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._answered, self._asks = self._asks, 0
        self._started_ms = self._clock.now_ms()
        syncs = [_Sync(log, log.log_end_offset, log.unflushed_segments(log.log_end_offset)) for log in self._asked]
        for log in self._asked:
            self._cancel_timer(log)
        self._asked = {}
        self._is_flushing = True
        failures: dict[PartitionLog, OSError] = {}

        def sync() -> None:
            for log, _, segments in syncs:
                try:
                    sync_segments(segments)
                except OSError as error:
                    failures[log] = error

        self._run_in_background(sync, lambda: self._finish(syncs, failures))

    def _finish(self, syncs: list[_Sync], failures: dict[PartitionLog, OSError]) -> None:
        self._is_flushing = False
        self._expected_asks = self._answered + self._asks
        took_ms = self._clock.now_ms() - self._started_ms  # by a clock that may be set
        self._gather_ms = min(max(took_ms, _LEAST_GATHER_MS), _MOST_GATHER_MS)
        for log, offset, _ in syncs:
            if log in failures:
                self._on_failed(log, failures[log])
            else:
                log.mark_flushed(offset)
                self._on_flushed(log)
        if self._asked:
            self._start_when_shared()
