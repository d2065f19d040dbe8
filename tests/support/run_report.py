"""Prints each failure of a run when it happens, and at the end its time and its processors' time.

A run that is ended by a signal prints the same, and the tests that were under way. Only the process that the user
started prints; it has waited for pytest-xdist's workers then, so their processors' time is its own.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.waiting import cpu_seconds


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Worker(config), "plog-run-report")
        return
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, signal.default_int_handler)  # as Ctrl-C: pytest prints what it knows
    config.pluginmanager.register(_Report(config), "plog-run-report")


class _Worker:
    """Tells why it collected nothing: a file or a test does not exist. pytest-xdist keeps that to itself."""

    def __init__(self, config: Any) -> None:
        self._output: dict[str, object] = config.workeroutput

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        try:
            return (yield)
        except pytest.UsageError as error:
            self._output["usage_error"] = "\n".join(error.args)
            raise


class _Report:
    """Owned by the main thread of the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started_s = time.monotonic()
        self._usage_error = ""
        self._under_way: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._under_way[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._under_way.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when not in ("setup", "call", "teardown"):  # the test crashed its worker
            self._under_way.pop(report.nodeid, None)
            self._name("worker", report.nodeid)
        elif report.failed:
            self._name(report.when, report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._name("collection", report.nodeid)

    def _name(self, what: str, nodeid: str) -> None:
        terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
        options = "--all " if self._config.getoption("--all") else ""
        terminal.ensure_newline()
        if terminal._tw.width_of_current_line:  # the dots of pytest-xdist's workers
            terminal.line("")
        terminal.write_line(f"{what} failed: scripts/test {options}{shlex.quote(nodeid)}", red=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._usage_error = getattr(node, "workeroutput", {}).get("usage_error", self._usage_error)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._usage_error:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        if self._usage_error:
            terminalreporter.write_line(f"ERROR: {self._usage_error}", red=True)
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            for nodeid in self._under_way:
                terminalreporter.write_line(f"under way when the run was ended: {nodeid}")
        taken = time.monotonic() - self._started_s
        terminalreporter.write_line(f"{taken:.0f} s, and {cpu_seconds():.0f} CPU seconds of {os.cpu_count()} cores")
