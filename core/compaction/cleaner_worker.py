"""The child's side of `cleaner_process`: cleans the logs that the parent names."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable

from core.common.errors import CorruptRecordError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.compaction.cleaner import Cleaner
from core.compaction.cleaner_process import CleanerSettings, LogCleaned, SegmentReady
from core.compaction.log_to_clean import LogToClean
from core.log.segment_swap import begin_swap, drop_swaps

_CREDIT_SECONDS = 1.0
"""Seconds' worth of unused bandwidth that may be used later."""

_NICENESS = 19
"""The niceness of the process: producers and consumers go first."""


def main() -> None:
    """Cleans logs until standard input ends."""
    os.nice(_NICENESS)
    filesystem = FileSystem()
    while sys.stdin.buffer.peek(1):  # type: ignore[union-attr]  # it is a BufferedReader
        log, now_ms, settings = pickle.load(sys.stdin.buffer)  # noqa: S301  what our own parent says
        try:
            _answer(_clean(log, now_ms, settings, filesystem))
        except CorruptRecordError as error:
            _answer(error)
        except OSError as error:
            _answer(access_error(error, error.filename or log.directory, "clean"))
        except MemoryError:
            _answer(PlogError("there is not enough memory"))
        except Exception as error:  # noqa: BLE001 - a mistake of ours with one log must not stop the cleaning of others
            traceback.print_exc()
            what = f"plog met a bug of its own: {type(error).__name__}: {error}"
            _answer(CorruptRecordError(what, path=str(log.directory)))


def _clean(log: LogToClean, now_ms: int, settings: CleanerSettings, filesystem: FileSystem) -> LogCleaned:
    drop_swaps(log.directory, filesystem)
    cleaner = Cleaner(
        settings.dedupe_buffer_bytes, settings.load_factor, filesystem, on_bytes=Throttle(settings.max_bytes_per_second)
    )
    for segment in cleaner.clean(log, now_ms):
        begin_swap(log.directory, [segment.base_offset], filesystem)
        _answer(SegmentReady(segment.base_offset, segment.replaced))
        if not sys.stdin.buffer.readline():
            sys.exit(0)
    return LogCleaned(cleaner.end_offset, cleaner.stats)


def _answer(answer: SegmentReady | LogCleaned | PlogError) -> None:
    try:
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.flush()
    except BrokenPipeError:  # the parent was killed
        os._exit(1)


class Throttle:
    """Sleeps to keep to a number of bytes per second; ends the process once its parent is gone."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,  # noqa: TID251  a process of its own
        sleep: Callable[[float], None] = time.sleep,  # noqa: TID251  a process of its own
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._parent = os.getppid()
        self._due = clock()

    def __call__(self, size_bytes: int) -> None:
        if os.getppid() != self._parent:
            sys.exit(1)
        now = self._clock()
        self._due = max(self._due, now - _CREDIT_SECONDS) + size_bytes / self._bytes_per_second
        if self._due > now:
            self._sleep(self._due - now)
