"""Group commit: one flush at a time, in the background; requests that come while it runs share the next one.

A flush syncs the files of every log that was asked for before it began. The next one begins when as many requests have
come as the broker can handle during a flush, so that neither waits for the other: clients answered by one flush send
their next requests during the next one.

If the disk takes longer than all requests, one flush should serve them all. They come one after the other: the flush
waits for as many as the last one answered, for as long as that took, within 1 to 20 ms. Seven of eight are enough: the
others come while the thread wakes, and records that are appended before it syncs are synced, too.

Callbacks that wait for a flush (an acknowledgement under `flush.messages`, a consumer under `plog.visible.after.flush`)
run in the broker's own task.
"""

from __future__ import annotations

from collections.abc import Callable

from core.broker.requests.runtime import Runtime
from core.common.pending import TimerHandle
from core.log.partition_log import PartitionLog, sync_segments

_LEAST_GATHER_MS, _MOST_GATHER_MS = 1, 20
_REQUEST_US = 30
"""About how long the broker works on a request that asks for a flush."""


class _Sync:
    """The sync of one log; if there is no error, its records below `offset` are on the disk afterwards."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.offset = log.log_end_offset
        self._segments = log.unflushed_segments(self.offset)
        self._cuts = log.cuts
        self.late_asks = 0  # answered by this sync, too
        self.error: OSError | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether the log was truncated since: it is unknown which of its records were synced."""
        return self.log.cuts != self._cuts

    def run(self, asked: dict[PartitionLog, int]) -> None:
        """Runs in the flusher's thread, while the broker's task goes on to append; the order of the lines matters.
        Requests counted here have appended before, so the end offset that is read next covers them; and these segments
        hold all records below it, if the last one is not sealed. Then they are synced.
        """
        late_asks = asked.get(self.log, 0)
        offset = self.log.log_end_offset
        if self._segments and not self._segments[-1].is_sealed:
            self.late_asks, self.offset = late_asks, offset
        try:
            sync_segments(self._segments)
        except OSError as error:
            self.error = error.with_traceback(None)  # the traceback would keep this object, the log and its files


class Flusher:
    """Owned by the broker's task.

    `on_flushed` is called with each log that was flushed, its recovery point moved; `on_failed` with each log whose
    disk refused. The kernel may have dropped the data of a failed write: such a log must not be flushed again.
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
        self._asked: dict[PartitionLog, int] = {}  # requests per log since the last flush began
        self._due: dict[PartitionLog, tuple[int, TimerHandle]] = {}  # the deadline in ms, and its timer
        self._asks = 0
        self._answered = 0  # requests for the current flush
        self._enough_asks = 1
        self._started_us = self._gather_ms = 0
        self._is_flushing = False
        self._gathering: TimerHandle | None = None

    def flush(self, log: PartitionLog) -> None:
        """Flushes the log up to its present end."""
        self._ask(log)
        if not self._is_flushing:
            self._start_when_shared()

    def _ask(self, log: PartitionLog) -> None:
        self._asked[log] = self._asked.get(log, 0) + 1
        self._asks += 1

    def flush_within(self, log: PartitionLog, delay_ms: int) -> None:
        """Flushes within `delay_ms`; if no timers run, at the first call after that time."""
        now_ms = self._clock.monotonic_ms()
        if log not in self._due:
            self._due[log] = now_ms + delay_ms, self._schedule(delay_ms, lambda: self.flush(log))
        elif now_ms >= self._due[log][0]:
            self.flush(log)

    def forget(self, log: PartitionLog) -> None:
        """Forgets a log that is no longer served."""
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
            self._start_when_shared()  # the disk works while the callbacks of this flush run
        for log in flushed:
            self._on_flushed(log)

    def _forget_late_asks(self, sync: _Sync) -> None:
        asks = self._asked.pop(sync.log, 0)
        late_asks = min(sync.late_asks, asks)
        self._asks -= late_asks
        if asks > late_asks:
            self._asked[sync.log] = asks - late_asks
