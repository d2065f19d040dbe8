"""The whole suite goes on when a test ends its worker, as one does that hangs for too long."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.file_scheduling import LONGEST, FileScheduling

ROOT = Path(__file__).resolve().parents[2]
TESTS = 5
FILE = """
import os, pytest

@pytest.mark.parametrize("number", range({tests}))
def test(number):
    if number == {crashes_at}:
        os._exit(1)
"""


@pytest.mark.longer
@pytest.mark.parametrize("crashes_at", [0, 2, TESTS - 1])
def test_a_crash_costs_one_test(crashes_at: int, tmp_path: Path) -> None:
    for name in "abcd":
        text = FILE.format(tests=TESTS, crashes_at=crashes_at if name in "bd" else -1)
        (tmp_path / f"test_{name}.py").write_text(text)
    plugins = ("-p", "tests.support.file_scheduling", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *plugins, f"--rootdir={tmp_path}"]
    done = subprocess.run([*command, tmp_path], cwd=ROOT, capture_output=True, check=False, text=True)
    assert re.search(rf"2 failed, {4 * TESTS - 2} passed", done.stdout), done.stdout
    assert done.returncode == 1


@pytest.mark.longer
def test_the_longest_files_are_begun_first(tmp_path: Path) -> None:
    for name in ("cli/test_a.py", "cli/test_b.py", "cli/test_c.py", LONGEST[0], LONGEST[1]):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test(): pass\ndef test_more(): pass\n" if name not in LONGEST else "def test(): pass\n")
    plugins = ("-p", "tests.support.file_scheduling", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "1", "--dist", "loadfile", *plugins, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    order = re.findall(r"PASSED \S*?(\w+/test_\w+\.py)::", done.stdout)
    assert order[:2] == list(LONGEST[:2])
    assert len(order) == 8


def test_the_longest_files_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).exists()] == []


class Worker:
    """A worker as the scheduler sees it: it is sent the numbers of tests, and told that no more will come."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id="a worker")

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_worker_that_still_collects_gets_its_tests_afterwards() -> None:
    tests = [f"test_{name}.py::test[{number}]" for name in "abcd" for number in range(3)]
    scheduling = FileScheduling(pytest.Config.fromdictargs({}, ["--tx", "2*popen"]))
    first, second, third, fourth = (Worker() for _ in range(4))
    for worker in (first, second):
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, tests)
    scheduling.schedule()
    assert (first.sent, second.sent) == ([0, 1, 2], [3, 4, 5])
    assert scheduling.remove_node(first) == tests[0]
    scheduling.add_node(third)
    assert scheduling.remove_node(second) == tests[3]
    scheduling.add_node(fourth)
    assert third.sent == fourth.sent == []
    for worker in (third, fourth):
        scheduling.add_node_collection(worker, tests)
        scheduling.schedule()
    run = set()
    while waiting := [worker for worker in (third, fourth) if worker.sent]:
        for worker in waiting:
            run.add(tests[index := worker.sent.pop(0)])
            scheduling.mark_test_complete(worker, index)
    assert run == {*tests} - {tests[0], tests[3]}
    assert third.shutting_down and fourth.shutting_down
