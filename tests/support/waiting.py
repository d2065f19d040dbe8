"""Waits whose bounds hold on a slow machine: they count the machine's seconds, not the clock's.

A second of the machine is a second of a processor that has nothing else to do. While 20 processes want 2 cores, it
lasts ten seconds of the clock; while the machine stands still, it does not end. So a test says how much work it waits
for, not how busy the machine may be. Where a test need not bound a wait at all, it does not:
`tests/support/time_limit.py` ends a test that hangs, wherever it hangs.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

MOST_SECONDS = 120.0
"""Of the machine: what a wait may take unless it says otherwise."""
ANSWER_SECONDS = 600.0
"""Of the clock: for a library that wants a bound, and blocks in C until then. As long as a test may take."""
FLUSH_SECONDS = 240.0
"""Of the clock, for a producer of librdkafka's: after its message.timeout.ms, 300 s, it has lost all records, and says
that it holds none.
"""
PROMPT_SECONDS = 20.0
"""Of the machine, for what is to come at once: after 30 s a request is given up, and a reader's patience is over, which
would end a wait that something else has to end.
"""

_TICK_SECONDS = 0.1
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 0.3
_WORTH = 2
_LOOP = 100_000
_LOOP_SECONDS = 0.003  # what a machine of 2026 needs for the loop


def machine_seconds() -> float:
    """Seconds of the machine since this process began to count; never rises by more than the clock."""
    return _ticker.counted


def wait_until(
    is_so: Callable[[], object], what: str | Callable[[], str] = "", *, seconds: float = MOST_SECONDS
) -> None:
    """Asks again and again until the answer is yes; fails the test, with `what` was waited for, if it is no for so many
    `seconds` of the machine. Between two questions the machine is left to the process that is waited for: the longer,
    the more a question takes of it.
    """
    deadline = machine_seconds() + seconds
    while True:
        before = cpu_seconds()
        if is_so():
            return
        assert machine_seconds() < deadline, what if isinstance(what, str) else what()
        pause = _WORTH * (cpu_seconds() - before)
        time.sleep(min(max(pause, _PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))


def wait_for_exit(process: subprocess.Popen[bytes] | subprocess.Popen[str], *, seconds: float = MOST_SECONDS) -> int:
    """Returns the exit code of a process that ends by itself or was told to; fails the test if it does not."""
    wait_until(lambda: process.poll() is not None, f"{process.args} ends", seconds=seconds)
    assert process.returncode is not None
    return process.returncode


def cpu_seconds() -> float:
    """The processors' time of this process, and of the children that it has waited for."""
    return sum(os.times()[:4])


class _Ticker:
    """Counts the machine's seconds in a thread. A tick that comes late counts as one: the process, or all of the
    machine, stood still. Owned by its thread; others read `counted`.
    """

    def __init__(self) -> None:
        self.counted = 0.0
        self._weight = 1 / _slowness_of_one_core()
        self.start()

    def start(self) -> None:
        threading.Thread(target=self._run, name="machine-seconds", daemon=True).start()

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(_TICK_SECONDS)
            now = time.monotonic()
            self.counted += min(now - last, 2 * _TICK_SECONDS) * self._weight / _processes_for_a_core()
            last = now


def _slowness_of_one_core() -> float:
    """1 for a core as fast as usual, or faster."""
    began = time.thread_time()
    for _ in range(_LOOP):
        pass
    return max(1.0, (time.thread_time() - began) / _LOOP_SECONDS)


def _processes_for_a_core() -> float:
    """How many want to run for each core that there is; at least 1."""
    running = os.getloadavg()[0] if _LOAD is None else int(os.pread(_LOAD, 100, 0).split()[3].partition(b"/")[0])
    return max(1.0, running / (os.cpu_count() or 1))


_LOAD = os.open("/proc/loadavg", os.O_RDONLY) if Path("/proc/loadavg").exists() else None
"""Kept open: some tests count the open files of their process."""
_ticker = _Ticker()
os.register_at_fork(after_in_child=_ticker.start)
