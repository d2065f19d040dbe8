"""Group commit: one flush at a time, in the background; whatever asks while it runs shares the next.

A flush syncs the files of every log that asked before it began. The next one begins when as many asked as the broker
can handle while it runs, so that neither waits for the other: those who were answered by one flush ask again during the
next.

If the disk takes longer than all of them do, a flush is to be shared by all. They ask again one after the other: it
waits for those that the last one answered, for as long as that took, within 1 to 20 ms. It waits for seven of eight:
the others come while the thread wakes, and what is appended until it syncs is synced.

Who waits for a flush (an acknowledgement under `flush.messages`, a consumer under `plog.visible.after.flush`) is called
in the broker's own task.
"""

from __future__ import annotations

from collections.abc import Callable

from core.broker.requests.runtime import Runtime
from core.common.pending import TimerHandle
from core.log.partition_log import PartitionLog, sync_segments

_LEAST_GATHER_MS, _MOST_GATHER_MS = 1, 20
_REQUEST_US = 30
"""About what a request that asks for a flush takes the broker."""


class _Sync:
    """What one log has to sync; its records below `offset` are safe then, if there is no error."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.offset = log.log_end_offset
        self._segments = log.unflushed_segments(self.offset)
        self._cuts = log.cuts
        self.late_asks = 0  # that are answered too
        self.error: OSError | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether the log was cut since: nobody knows which of its records were synced."""
        return self.log.cuts != self._cuts

    def run(self, asked: dict[PartitionLog, int]) -> None:
        """Runs in the flusher's thread, while the broker's task appends on; the order of the lines matters. Who asked
        by now had appended before, so the end that is read next covers them; and all below it is in these segments, if
        the last one takes appends still. Then they are synced.
        """
        late_asks = asked.get(self.log, 0)
        offset = self.log.log_end_offset
        if self._segments and not self._segments[-1].is_sealed:
            self.late_asks, self.offset = late_asks, offset
        try:
            sync_segments(self._segments)
        except OSError as error:
            self.error = error.with_traceback(None)  # which would hold this, the log and its files


class Flusher:
    """Owned by the broker's task.

    `on_flushed` is called with each log that was flushed, its recovery point moved; `on_failed` with one whose disk
    refused. What the kernel could not write once it may have thrown away: such a log must not be asked to flush again.
    """

    def __init__(
        self,
        runtime: Runtime,
        on_flushed: Callable[[PartitionLog], None],
        on_failed: Callable[[PartitionLog, OSError], None],
    ) -> None:
        self._run_flush = runtime.run_flush
        self._schedule = runtime.schedule
        self._clock = runtime.clock
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._asked: dict[PartitionLog, int] = {}  # how often, since the last flush began
        self._due: dict[PartitionLog, tuple[int, TimerHandle]] = {}  # by when, ms, and the timer for it
        self._asks = 0
        self._answered = 0  # how many asked for the flush that is done now
        self._enough_asks = 1
        self._started_us = self._gather_ms = 0
        self._is_flushing = False
        self._gathering: TimerHandle | None = None

    def flush(self, log: PartitionLog) -> None:
        """Brings everything that the log holds now to the disk."""
        self._ask(log)
        if not self._is_flushing:
            self._start_when_shared()

    def _ask(self, log: PartitionLog) -> None:
        self._asked[log] = self._asked.get(log, 0) + 1
        self._asks += 1

    def flush_within(self, log: PartitionLog, delay_ms: int) -> None:
        """Does the same, `delay_ms` from now at the latest. If no timers run, at the first call after that."""
        now_ms = self._clock.monotonic_ms()
        if log not in self._due:
            self._due[log] = now_ms + delay_ms, self._schedule(delay_ms, lambda: self.flush(log))
        elif now_ms >= self._due[log][0]:
            self.flush(log)

    def forget(self, log: PartitionLog) -> None:
        """Forgets a log that is not served any more."""
        self._asks -= self._asked.pop(log, 0)
        self._cancel_timer(log)

    def _cancel_timer(self, log: PartitionLog) -> None:
        due = self._due.pop(log, None)
        if due is not None:
            due[1].cancel()

    def _start_when_shared(self) -> None:
        if self._asks >= self._enough_asks:
            self._start()
        elif self._gathering is None:
            self._gathering = self._schedule(self._gather_ms, self._start)

    def _start(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._answered, self._asks = self._asks, 0
        self._started_us = self._clock.monotonic_us()
        syncs = [_Sync(log) for log in self._asked]
        for log in self._asked:
            self._cancel_timer(log)
        self._asked = {}
        self._is_flushing = True

        def run() -> None:
            for sync in syncs:
                sync.run(self._asked)

        self._run_flush(run, lambda: self._finish(syncs))

    def _finish(self, syncs: list[_Sync]) -> None:
        self._is_flushing = False
        took_us = self._clock.monotonic_us() - self._started_us
        ask_again = self._answered + self._asks
        self._enough_asks = min(ask_again - ask_again // 8, took_us // _REQUEST_US)
        self._gather_ms = min(max(took_us // 1000, _LEAST_GATHER_MS), _MOST_GATHER_MS)
        for sync in syncs:
            self._forget_late_asks(sync)
        flushed = []
        for sync in syncs:
            if sync.error is not None:
                self._on_failed(sync.log, sync.error)
            elif sync.is_outdated:
                self._ask(sync.log)
            else:
                sync.log.mark_flushed(sync.offset)
                flushed.append(sync.log)
        if self._asked:
            self._start_when_shared()  # the disk works while those are answered who waited for this one
        for log in flushed:
            self._on_flushed(log)

    def _forget_late_asks(self, sync: _Sync) -> None:
        asks = self._asked.pop(sync.log, 0)
        late_asks = min(sync.late_asks, asks)
        self._asks -= late_asks
        if asks > late_asks:
            self._asked[sync.log] = asks - late_asks
