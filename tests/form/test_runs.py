"""What a run of the tests says of a test that hangs, fails or does not exist, and of itself when it is ended."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.for_each import for_each
from tests.support.tiers import has_first
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = [part for name in ("tiers", "time_limit", "run_report") for part in ("-p", f"tests.support.{name}")]
HANGS_IN_PYTHON = """
import threading

def test_that_hangs():
    threading.Event().wait()

def test_after_it():
    pass
"""
HANGS_IN_A_LOOP = """
import threading, uvloop

def test_that_hangs():
    async def wait():
        threading.Event().wait()
    uvloop.run(wait())

def test_after_it():
    pass
"""
HANGS_IN_C = """
import ctypes

def test_that_hangs():
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
HANGS_IN_IMPORT = """
import threading
threading.Event().wait()
"""
IS_LONGER = """
import pytest

@pytest.mark.longer
def test_that_takes_long():
    pass
"""
IN_A_WORKER = ("-p", "xdist", "-n", "1")
IS_ENDED = """
import pathlib, threading

def test_that_fails():
    assert 1 == 2

def test_that_takes_long():
    pathlib.Path("is-under-way").touch()
    threading.Event().wait()
"""


def start(folder: Path, tests: str, *options: str) -> subprocess.Popen[str]:
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", *PLUGINS, "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    return subprocess.Popen(
        [*command, f"--rootdir={folder}", *options, "test_it.py"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.longer
def test_a_test_that_hangs_fails_and_the_next_one_is_run(tmp_path: Path) -> None:
    for tests in (HANGS_IN_PYTHON, HANGS_IN_A_LOOP):
        told, _ = start(tmp_path, tests, "-o", "time_limit=0.5").communicate()
        assert "call failed: scripts/test test_it.py::test_that_hangs" in told
        assert "1 failed, 1 passed" in told


@pytest.mark.longer
def test_a_test_that_hangs_in_c_ends_its_process_with_the_stacks(tmp_path: Path) -> None:
    run = start(tmp_path, HANGS_IN_C, "-o", "time_limit=0.5")
    told, _ = run.communicate()
    assert "test_it.py::test_that_hangs hangs where it can't be interrupted" in told
    assert "in test_that_hangs" in told
    assert run.returncode == 3


@pytest.mark.longer
def test_a_module_that_hangs_while_it_is_imported_is_named(tmp_path: Path) -> None:
    run = start(tmp_path, HANGS_IN_IMPORT, "-o", "time_limit=0.5")
    told, _ = run.communicate()
    assert "collection failed: scripts/test test_it.py" in told
    assert "threading.Event().wait()" in told
    assert run.returncode == 2


def test_a_test_that_does_not_exist_is_named(tmp_path: Path) -> None:
    run = start(tmp_path, "", *IN_A_WORKER, "test_it.py::test_nothing")
    told, _ = run.communicate()
    assert re.search("ERROR: not found: .*test_it.py::test_nothing", told)
    assert run.returncode == 4


def test_tests_of_the_longer_tier_that_are_left_out_are_named(tmp_path: Path) -> None:
    told, _ = start(tmp_path, IS_LONGER, *IN_A_WORKER).communicate()
    assert "left out: 1 of the longer tier, such as test_it.py::test_that_takes_long" in told


def test_a_run_that_is_ended_says_what_it_knows(tmp_path: Path) -> None:
    run = start(tmp_path, IS_ENDED)
    wait_until((tmp_path / "is-under-way").exists, "the second test begins")
    run.send_signal(signal.SIGTERM)
    told, _ = run.communicate()
    assert "call failed: scripts/test test_it.py::test_that_fails" in told
    assert "assert 1 == 2" in told
    assert "under way when the run was ended: test_it.py::test_that_takes_long" in told
    assert "CPU seconds" in told
    assert run.returncode == 2


def test_each_case_of_a_law_that_fails_is_named(tmp_path: Path) -> None:
    tried = []

    @for_each("number, word", [(1, "a"), (2, "b"), (3, "c")])
    async def law(number: int, word: str, tmp_path: Path) -> None:
        tried.append(tmp_path.name)
        assert number == 2, "it is not two"

    with pytest.raises(pytest.fail.Exception) as failure:
        law(tmp_path=tmp_path)
    told = str(failure.value)
    assert "2 of 3 cases fail" in told
    assert "1, a: it is not two" in told
    assert "3, c: it is not two" in told
    assert len(set(tried)) == 3


def test_some_cases_of_a_law_are_of_the_first_tier_and_the_others_of_the_longer() -> None:
    @for_each("seed", range(250), first=10)
    def law(seed: int) -> None: ...

    (marker,) = law.pytestmark  # type: ignore[attr-defined]
    first, *longer = [getattr(part, "values", (part,))[0] for part in marker.args[1]]
    assert len(first) == 10
    assert sorted([*first, *(number for part in longer for number in part)]) == list(range(250))
    assert all(part.marks for part in marker.args[1][1:])
    assert not marker.args[1][0].marks


def test_a_module_without_a_test_of_the_first_tier_is_not_imported(tmp_path: Path) -> None:
    for marks, has_one in {
        "pytestmark = pytest.mark.longer": False,
        "pytestmark = [pytest.mark.java, pytest.mark.longer]": False,
        "@pytest.mark.longer": True,
        "": True,
    }.items():
        module = tmp_path / f"test_{len(list(tmp_path.iterdir()))}.py"
        module.write_text(f"import pytest\n\n{marks}\ndef test(): ...\n")
        assert has_first(module) is has_one, marks
    assert not has_first(ROOT / "tests/interop/test_spark.py")


def test_each_option_of_torture_stands_once_and_names_tests_that_exist() -> None:
    text = (ROOT / "scripts" / "torture").read_text()
    cases = re.findall(r"^    (--[a-z-]+)\)$", text, re.MULTILINE)
    said = re.findall(r"^#   scripts/torture (--[a-z-]+)", text, re.MULTILINE)
    assert sorted(cases) == sorted(said)
    assert len(set(cases)) == len(cases), "bash takes the first case of two"
    missing = [name for name in re.findall(r"tests/[\w/.]+", text) if not (ROOT / name).exists()]
    assert missing == []
