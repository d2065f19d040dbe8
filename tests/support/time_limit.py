"""Ends a test that hangs, wherever it hangs: the one bound that every wait of the tests has.

A test with its fixtures may take MOST_SECONDS of the machine (`tests/support/waiting.py`), and so may the import of a
module of tests. After that the main thread raises, if it waits in Python. If the test does not end within a tenth of
the limit, as in C, the stacks of all threads are printed and the process ends; under pytest-xdist that costs one
worker, which is replaced, and the test is named. `-o time_limit=0` turns the limit off.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator
from types import FrameType

import pytest

from tests.support.waiting import machine_seconds

MOST_SECONDS = 600
HANGS = "hangs where it can't be interrupted"
_GRACE, _LEAST_GRACE_SECONDS = 0.1, 1.0  # the first is a share of the limit
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
        self._grace_seconds = max(_GRACE * seconds, _LEAST_GRACE_SECONDS)
        self._stderr = stderr
        self._test = ""
        self._error: type[BaseException] = TestTakesTooLongError
        self._deadline = float("inf")
        threading.Thread(target=self._watch, name="time-limit", daemon=True).start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._limit(item.nodeid, TestTakesTooLongError))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        if not isinstance(collector, pytest.Module):
            return (yield)
        return (yield from self._limit(collector.nodeid, pytest.fail.Exception))  # SystemExit would end the run

    def _limit(self, nodeid: str, error: type[BaseException]) -> Generator[None]:
        signal.signal(signal.SIGALRM, self._fail)  # and stays so: the alarm may come when the test has just ended
        self._test = nodeid
        self._error = error
        self._deadline = machine_seconds() + self._seconds
        try:
            return (yield)
        finally:
            self._deadline = float("inf")

    def _fail(self, _signal: int, _frame: FrameType | None) -> None:
        if machine_seconds() > self._deadline:
            raise self._error(f"not done after {self._seconds:.0f} seconds of the machine")

    def _watch(self) -> None:
        alarmed = dies_at = float("inf")
        while True:
            time.sleep(_LOOK_SECONDS)
            test, deadline = self._test, self._deadline
            now = machine_seconds()
            if now > deadline != alarmed:
                alarmed, dies_at = deadline, now + self._grace_seconds
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            elif now > deadline and now > dies_at:
                os.write(self._stderr, f"\n{test} {HANGS}\n".encode())
                faulthandler.dump_traceback(self._stderr)
                os._exit(3)
