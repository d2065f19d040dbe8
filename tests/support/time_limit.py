"""Ends a test that hangs, wherever it hangs: the one bound that every wait of the tests has.

A test may take MOST_SECONDS of the machine (`tests/support/waiting.py`), its fixtures included. After that it fails in
the main thread, wherever that waits in Python. If it waits in C and is not back after a tenth of that time, the stacks
of all threads are printed and the process ends; under pytest-xdist that costs one worker, which is replaced, and the
test is named. `-o time_limit=0` turns the limit off.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.support.waiting import machine_seconds

MOST_SECONDS = 600
_GRACE = 0.1  # of the limit
_LOOK_SECONDS = 0.2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("time_limit", "seconds of the machine for a test; 0 for no limit", default=str(MOST_SECONDS))


def pytest_configure(config: pytest.Config) -> None:
    seconds = float(config.getini("time_limit"))
    if seconds:
        stderr = os.dup(sys.__stderr__.fileno()) if sys.__stderr__ else 2  # capturing replaces it
        config.pluginmanager.register(_TimeLimit(seconds, stderr), "plog-time-limit")


class TestTakesTooLongError(SystemExit):
    """Fails the test. An event loop lets no other exception of a signal's handler through."""


class _TimeLimit:
    """The main thread begins and ends tests, the watching thread ends those that hang; `_deadline` and `_test` are each
    written in one step.
    """

    def __init__(self, seconds: float, stderr: int) -> None:
        self._seconds = seconds
        self._stderr = stderr
        self._test = ""
        self._deadline = float("inf")
        self._ended = ""
        threading.Thread(target=self._watch, name="time-limit", daemon=True).start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = signal.signal(signal.SIGALRM, self._fail)
        self._test = item.nodeid
        self._deadline = machine_seconds() + self._seconds
        try:
            return (yield)
        finally:
            self._deadline = float("inf")
            signal.signal(signal.SIGALRM, before)

    def _fail(self, _signal: int, _frame: FrameType | None) -> None:
        if self._deadline != float("inf"):
            raise TestTakesTooLongError(f"not done after {self._seconds:.0f} seconds of the machine")

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            test, deadline = self._test, self._deadline
            if machine_seconds() > deadline + _GRACE * self._seconds:
                os.write(self._stderr, f"\n{test} hangs where it can't be interrupted\n".encode())
                faulthandler.dump_traceback(self._stderr)
                os._exit(3)
            if machine_seconds() > deadline and self._ended != test:
                self._ended = test
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
