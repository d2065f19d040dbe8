"""Flushes recovered logs after a start, and checkpoints their recovery points: a crash soon afterwards must not cost
the same recovery again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.runtime import Runtime
from core.log.log_manager import LogManager
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog

_CHECKPOINT_EVERY_MS = 100


class PostRecoveryFlush:
    """Owned by the broker's task; the flusher's thread flushes one segment after the other."""

    def __init__(self, log_manager: LogManager, replicas: ReplicaManager, runtime: Runtime) -> None:
        self._log_manager = log_manager
        self._replicas = replicas
        self._runtime = runtime
        self._is_needed = not log_manager.had_clean_shutdown and not log_manager.is_read_only
        self._noted_ms = runtime.clock.monotonic_ms()

    def begin(self, logs: Iterable[PartitionLog]) -> None:
        """Flushes the recovered part of those logs."""
        if self._is_needed:
            logs = [log for log in logs if log.unflushed_messages]
            found = [(log, s, log.cuts) for log in logs for s in log.unflushed_segments(log.log_end_offset)]
            if found:
                self._flush_next(iter(found))

    def _flush_next(self, recovered: Iterator[tuple[PartitionLog, LogSegment, int]]) -> None:
        served = self._log_manager.logs
        following = next(
            ((log, s) for log, s, cuts in recovered if served.get(log.partition) is log and log.cuts == cuts), None
        )
        if following is None:
            self._note(is_last=not self._log_manager.unloaded)
            return
        log, segment = following
        offset, cuts = log.end_offset_of(segment), log.cuts
        failures: list[OSError] = []

        def sync() -> None:
            try:
                segment.sync()
            except OSError as error:
                failures.append(error.with_traceback(None))  # the traceback would keep the segment

        def then() -> None:
            if failures:
                self._replicas.on_flush_failed(log, failures[0])
            elif log.cuts == cuts:
                log.mark_flushed(offset)
            self._note()
            self._flush_next(recovered)

        self._runtime.run_flush(sync, then)

    def _note(self, *, is_last: bool = False) -> None:
        """Writes the recovery points, unless that was just done and more follow: the file has a line for each log."""
        now_ms = self._runtime.clock.monotonic_ms()
        if is_last or now_ms - self._noted_ms >= _CHECKPOINT_EVERY_MS:
            self._noted_ms = now_ms
            self._log_manager.checkpoints.write_recovery_points(self._runtime.run_in_background)
