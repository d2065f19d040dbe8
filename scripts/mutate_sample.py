"""The other half of `scripts/mutate`: a sample of mutants that a program makes, each tried on the tests that touch it.

Each mutant is a fork of one process that has imported the libraries, but nothing of plog: it loads the wrong file in
the right one's place, and runs the tests that the map of lines names. Commands that the tests start have it, too.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.support.line_map import LineMap, function_of
from tests.support.mutant_sample import ROOT, SampledMutant, sample
from tests.support.wrong_file import SITE, install

_LIBRARIES = (
    "_pytest.python", "_pytest.assertion.rewrite", "hypothesis.stateful", "numpy", "pyarrow.parquet", "rich.console",
    "rich.table", "rich.progress", "typer.testing", "asyncio", "uvloop", "confluent_kafka.admin", "textual.app",
    "textual.pilot", "backports.zstd", "re2",
    "lz4.frame", "snappy", "isal.igzip", "msgspec", "prometheus_client", "kazoo.client", "kio", "fastavro",
    "cryptography.x509", "yaml", "jsonschema", "aiohttp.web", "multiprocessing.pool", "unittest.mock", "urllib.request",
)  # fmt: skip
"""What most tests import."""
_MOST_SECONDS = 3.0
"""What the tests of one mutant may take, by the map: the quickest are asked, as far as this goes."""
_HANGS_AFTER_CPU_SECONDS, _HANGS_AFTER_SECONDS = 15, 150

CAUGHT, SURVIVED, UNTOUCHED, BROKEN = "caught", "SURVIVED", "not touched", "BROKEN"
NOT_RUN = "not run"
"""It survived on a line that no test of the map runs: what imports it, or other processes, may do."""
_OUTCOMES = {
    pytest.ExitCode.OK: SURVIVED,
    pytest.ExitCode.NO_TESTS_COLLECTED: UNTOUCHED,
    pytest.ExitCode.INTERNAL_ERROR: BROKEN,
}


@dataclass
class Outcome:
    """`by` is the test that noticed, or a word if the run ended in another way."""

    mutant: str
    outcome: str
    by: str
    seconds: float


def make_map(folder: Path, arguments: Sequence[str]) -> int:
    """Runs tests with the plugin that notes the lines; returns pytest's exit code."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.line_map",
        "--numprocesses",
        str(os.cpu_count() or 1),
    ]
    environment = {**os.environ, "PLOG_LINE_MAP": str(folder)}
    return subprocess.run(
        [*command, "--dist", "loadfile", *arguments], cwd=ROOT, env=environment, check=False
    ).returncode


def run_sample(count: int, seed: int, folder: Path, out: Path, *, again: Path | None) -> int:
    """Tries the mutants, a line of JSON each to `out`; goes on where an earlier run left it. Returns 1 if one survives
    that was caught in the run whose lines are in `again`.
    """
    before = {one["mutant"]: one for one in _lines(again)} if again else {}
    done = {one["mutant"] for one in _lines(out)}
    lines = LineMap.read(folder)
    for name in _LIBRARIES:
        importlib.import_module(name)
    waiting = [mutant for mutant in sample(count, seed) if str(mutant) not in done]
    running: dict[int, _Try] = {}
    with out.open("a") as file:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                mutant = waiting.pop(0)
                started = _Try(
                    mutant,
                    _tests(lines, mutant, before.get(str(mutant))),
                    is_run=bool(lines.runs_of(mutant.file, mutant.line)),
                )
                running[started.pid] = started
            for pid in [pid for pid, one in running.items() if one.has_ended()]:
                one = running.pop(pid)
                file.write(json.dumps(asdict(one.outcome())) + "\n")
                file.flush()
            time.sleep(0.01)
    return _report(_lines(out), before)


def _lines(path: Path | None) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def _tests(lines: LineMap, mutant: SampledMutant, before: dict[str, str] | None) -> list[str]:
    """Those that touch its line: the one that caught it before, then its package's unit tests, the quickest first."""
    units = f"tests/unit/{mutant.file.split('/')[1]}/"
    touching = lines.tests_of(mutant.file, mutant.line)
    tests = sorted(touching, key=lambda test: (not test.startswith(units), lines.costs.get(test, 0.0)))
    caught_by = function_of(before["by"]) if before and before["outcome"] == CAUGHT else ""
    if caught_by in lines.costs:
        tests = [caught_by, *(test for test in tests if test != caught_by)]
    cost, chosen = 0.0, []
    for test in tests:
        cost += lines.costs.get(test, 0.0)
        if cost < _MOST_SECONDS or not chosen:
            chosen.append(test)
    return chosen


class _Try:
    """One mutant in a process of its own."""

    def __init__(self, mutant: SampledMutant, tests: Sequence[str], *, is_run: bool) -> None:
        self._mutant = mutant
        self._tests = tests
        self._is_run = is_run
        self._started_s = time.monotonic()
        self._note: IO[str] = tempfile.NamedTemporaryFile("w+", suffix=".mutant")  # noqa: SIM115
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(self._run())

    def _run(self) -> int:
        os.setsid()
        os.nice(10)
        if not self._tests:
            return int(pytest.ExitCode.NO_TESTS_COLLECTED)
        silent = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(silent, number)
        resource.setrlimit(resource.RLIMIT_CPU, (_HANGS_AFTER_CPU_SECONDS, _HANGS_AFTER_CPU_SECONDS))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
        install(self._mutant.file, self._mutant.applied_to((ROOT / self._mutant.file).read_text()), self._note.name)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers"]
        return int(pytest.main([*options, "-o", "tmp_path_retention_policy=none", *self._tests], [_Noter(self._note)]))

    def has_ended(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0 and time.monotonic() - self._started_s < _HANGS_AFTER_SECONDS:
            return False
        if pid == 0:
            os.killpg(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        self._code = os.waitstatus_to_exitcode(status)
        return True

    def outcome(self) -> Outcome:
        self._note.seek(0)
        by = self._note.read()
        self._note.close()
        Path(f"{self._note.name}.py").unlink(missing_ok=True)
        outcome = _OUTCOMES.get(self._code or 0, CAUGHT)  # a test that ends its process, or hangs, has noticed
        if outcome == SURVIVED and not self._is_run:
            outcome = NOT_RUN
        return Outcome(
            str(self._mutant), outcome, by or f"exit code {self._code}", round(time.monotonic() - self._started_s, 2)
        )


class _Noter:
    """Writes down the first test that fails."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._file.tell():
            self._file.write(report.nodeid)
            self._file.flush()


def _report(outcomes: Sequence[dict[str, str]], before: dict[str, dict[str, str]]) -> int:
    for name, count in Counter(one["outcome"] for one in outcomes).most_common():
        print(f"{name:12} {count:5}  {100 * count / len(outcomes):.1f} %")
    lost = [
        one for one in outcomes
        if one["outcome"] != CAUGHT and before.get(one["mutant"], {}).get("outcome") == CAUGHT
    ]  # fmt: skip
    for one in lost:
        print(f"{one['outcome']}: {one['mutant']}, which {before[one['mutant']]['by']} caught")
    return 1 if lost else 0
