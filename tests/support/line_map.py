"""Which tests touch which line: a plugin for pytest, and the map that it leaves.

    PLOG_LINE_MAP=FOLDER python -m pytest -p tests.support.line_map ..

Each process of the run leaves a file of coverage.py in the folder, with branches, and with the test function as the
context of each line; `LineMap.read` puts them together. Code that runs in other processes is not seen.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "cli", "plog")


def function_of(nodeid: str) -> str:
    """The test without its parameters."""
    return nodeid.partition("[")[0]


class _Recorder:
    """Owned by the main thread of one of the run's processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}"
        self._coverage = Coverage(
            data_file=folder / f"{name}.coverage", branch=True, source=[str(ROOT / package) for package in PACKAGES]
        )
        self._costs_file = folder / f"{name}.json"
        self._costs: dict[str, float] = defaultdict(float)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(function_of(item.nodeid))
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._costs[function_of(item.nodeid)] += time.monotonic() - began
            self._coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        # xdist waits for this, but kills a worker that takes 10 s to unconfigure
        self._coverage.stop()
        self._coverage.save()
        self._costs_file.write_text(json.dumps(self._costs))


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get("PLOG_LINE_MAP")
    if folder:
        config.pluginmanager.register(_Recorder(Path(folder)), "plog-line-map")


class LineMap:
    """Which test functions touch a line or a file, and the seconds that each takes. Immutable."""

    def __init__(self, data: CoverageData, costs: dict[str, float]) -> None:
        self.data = data
        self.costs = costs
        self._lines: dict[str, dict[int, list[str]]] = {}

    @classmethod
    def read(cls, folder: Path) -> LineMap:
        data = CoverageData(str(folder / "all"))
        for part in sorted(folder.glob("*.coverage")):
            read = CoverageData(str(part))
            read.read()
            data.update(read)
        costs: dict[str, float] = {}
        for part in sorted(folder.glob("*.json")):
            for test, seconds in json.loads(part.read_text()).items():
                costs[test] = costs.get(test, 0.0) + seconds
        return cls(data, costs)

    def tests_of(self, file: str, line: int) -> list[str]:
        """Returns the test functions that run the line; if an import alone runs it, all that touch the file."""
        lines = self._contexts_of(file)
        return self.runs_of(file, line) or self._known({test for tests in lines.values() for test in tests})

    def runs_of(self, file: str, line: int) -> list[str]:
        """Returns the test functions that run the line."""
        return self._known(self._contexts_of(file).get(line, ()))

    def _known(self, tests: Iterable[str]) -> list[str]:
        return sorted(test for test in tests if test)

    def _contexts_of(self, file: str) -> dict[int, list[str]]:
        if file not in self._lines:
            self._lines[file] = self.data.contexts_by_lineno(str(ROOT / file))
        return self._lines[file]
