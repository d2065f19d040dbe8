"""What a run says of itself: each failure when it happens, and at its end the time and the processors' time.

A run that is ended by a signal says the same, and which tests were under way. pytest-xdist's workers tell the process
that the user started, which alone prints.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from typing import Any

import pytest

from tests.support.tiers import is_longer

_IS_LONGER = "longer"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Worker(config), "plog-run-report")
        return
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, signal.default_int_handler)  # as Ctrl-C: pytest prints what it knows
    config.pluginmanager.register(_Report(config), "plog-run-report")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties.append((_IS_LONGER, is_longer(item)))


class _Worker:
    """Tells what its process, and those that it waited for, have used."""

    def __init__(self, config: Any) -> None:
        self._output: dict[str, object] = config.workeroutput

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._output["cpu_seconds"] = _cpu_seconds()


class _Report:
    """Owned by the main thread of the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started_s = time.monotonic()
        self._workers_seconds = 0.0
        self._under_way: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._under_way[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._under_way.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
            options = "--all " if dict(report.user_properties).get(_IS_LONGER) else ""
            terminal.ensure_newline()
            terminal.write_line(f"{report.when} failed: scripts/test {options}{shlex.quote(report.nodeid)}", red=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._workers_seconds += getattr(node, "workeroutput", {}).get("cpu_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            for nodeid in self._under_way:
                terminalreporter.write_line(f"under way when the run was ended: {nodeid}")
        # workers are children of this process, and are waited for at some time: they are counted once, as they tell
        used = sum(os.times()[:2]) + self._workers_seconds if self._workers_seconds else _cpu_seconds()
        taken = time.monotonic() - self._started_s
        terminalreporter.write_line(f"{taken:.0f} s, and {used:.0f} CPU seconds of {os.cpu_count()} cores")


def _cpu_seconds() -> float:
    """What this process, and those that it has waited for, have used."""
    return sum(os.times()[:4])
