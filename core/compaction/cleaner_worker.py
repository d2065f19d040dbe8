"""The child's side of `cleaner_process`: cleans the logs that the parent names."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict

from core.common.errors import CorruptRecordError, UndecodableError
from core.common.filesystem import FileSystem, access_error
from core.compaction.cleaner import Cleaner
from core.compaction.cleaner_process import CleanerSettings, parse_log
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
    for line in sys.stdin:
        request = json.loads(line)
        log = parse_log(request["log"])
        try:
            _clean(log, request["now_ms"], CleanerSettings(**request["settings"]), filesystem)
        except CorruptRecordError as error:
            where = {"position": error.position, "offset": error.offset, "path": error.path}
            _answer(corrupt=error.cause, **where, is_undecodable=isinstance(error, UndecodableError))
        except OSError as error:
            _answer(refused=str(access_error(error, error.filename or log.directory, "clean")))
        except MemoryError:
            _answer(refused="there is not enough memory")
        except Exception as error:  # noqa: BLE001 - a mistake of ours with one log must not stop the cleaning of others
            traceback.print_exc()
            _answer(corrupt=f"plog met a bug of its own: {type(error).__name__}: {error}", path=str(log.directory))


def _clean(log: LogToClean, now_ms: int, settings: CleanerSettings, filesystem: FileSystem) -> None:
    drop_swaps(log.directory, filesystem)
    cleaner = Cleaner(
        settings.dedupe_buffer_bytes, settings.load_factor, filesystem, on_bytes=Throttle(settings.max_bytes_per_second)
    )
    for segment in cleaner.clean(log, now_ms):
        begin_swap(log.directory, [segment.base_offset], filesystem)
        _answer(base_offset=segment.base_offset, replaced=segment.replaced)
        if not sys.stdin.readline():
            sys.exit(0)
    _answer(end_offset=cleaner.end_offset, stats=asdict(cleaner.stats))


def _answer(**fields: object) -> None:
    try:
        sys.stdout.write(json.dumps(fields) + "\n")
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
