"""Work that must not hold up the keyboard: reading files, asking brokers, checking a whole log.

Exit would wait for threads of asyncio's pool, which may be long if one of them checks 10 GB; these are daemons, so that
quitting takes no time. They only read.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class StoppedError(Exception):
    """Raised inside work by `Job.ensure_wanted` once nobody waits for it any more."""


@dataclass(slots=True)
class Job:
    """One piece of work; `stop` may be called from any thread."""

    run: Callable[[Job], None]
    _stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def ensure_wanted(self) -> None:
        """Raises StoppedError if the job was stopped; long work calls it every few milliseconds."""
        if self._stopped.is_set():
            raise StoppedError


class InspectWorker:
    """One thread, which does its jobs one after the other; guarded by its queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending = 0
        self.is_closed = False
        self._lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """Whether no job waits or runs."""
        return not self._pending

    def submit(self, job: Job) -> Job:
        """Runs the job after those that were submitted before it, unless it is stopped by then."""
        with self._lock:
            self._pending += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"inspect-{self._name}", daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Ends the thread after its jobs; does not wait for it."""
        self.is_closed = True
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if not job.is_stopped:
                    job.run(job)
            except Exception:
                logging.getLogger("plog.inspect").exception("a job of %s failed", self._name)
            finally:
                with self._lock:
                    self._pending -= 1
