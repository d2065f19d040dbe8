"""The runtime of a server: the timers of its event loop, and its threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.broker.requests.fair_scheduler import FairScheduler
from core.broker.serving.timing_wheel import TimingWheel
from core.common.clock import Clock, SystemClock
from core.common.filesystem import access_error

_log = logging.getLogger("plog.server")


class LoopRuntime:
    """A `Runtime`; owned by the loop's task. It may be made, and work be given to it, before the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path, clock: Clock | None = None) -> None:
        """`directory` is named in the log if an OSError does not say where it happened."""
        self.clock: Clock = clock or SystemClock()
        self.turns = FairScheduler(loop)
        self.schedule = TimingWheel(loop).schedule
        self._loop = loop
        self._directory = directory
        self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plog-background")
        self._flushing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plog-flusher")
        self._cleaning = ThreadPoolExecutor(thread_name_prefix="plog-cleaner")
        self._loading: threading.Thread | None = None
        self._is_stopped = False

    def run_in_background(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self._submit(self._background, work, then)

    def run_flush(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self._submit(self._flushing, work, then)

    def run_cleaning(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self._submit(self._cleaning, work, then)

    def _submit(self, thread: ThreadPoolExecutor, work: Callable[[], None], then: Callable[[], None] | None) -> None:
        if self._is_stopped:
            return  # the broker's end does what is left

        def run() -> None:
            try:
                work()
            except OSError as error:  # a checkpoint's, say; it is written again when it is due
                _log.error("%s", access_error(error, error.filename or self._directory, "write to"))
                return
            except Exception:  # noqa: BLE001 - the door of the background thread
                _log.exception("background work failed")
                return
            if then is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(then)

        thread.submit(run)

    def run_loading(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Works in a thread of its own, for which a broker that only reads need not wait at its end."""

        def run() -> None:
            work()
            if then is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(then)

        self._loading = threading.Thread(target=run, name="plog-load", daemon=True)
        self._loading.start()

    def stop_taking(self) -> None:
        """Takes no further work."""
        self._is_stopped = True

    def stop(self, *, waits_for_loading: bool) -> None:
        """Takes no further work, and returns when what was begun is done. What is being loaded is left alone unless
        `waits_for_loading`: a broker that only reads loses nothing, and it may take minutes.
        """
        self._is_stopped = True
        if self._loading is not None and waits_for_loading:
            self._loading.join()
        for pool in (self._cleaning, self._background, self._flushing):
            pool.shutdown(wait=True)
