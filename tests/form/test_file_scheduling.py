"""The whole suite goes on when a test ends its worker, as one does that hangs for too long."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = 5
FILE = """
import os, pytest

@pytest.mark.parametrize("number", range({tests}))
def test(number):
    if number == {crashes_at}:
        os._exit(1)
"""


@pytest.mark.parametrize("crashes_at", [0, 2, TESTS - 1])
def test_a_crash_costs_one_test(crashes_at: int, tmp_path: Path) -> None:
    for name in "abcd":
        text = FILE.format(tests=TESTS, crashes_at=crashes_at if name in "bd" else -1)
        (tmp_path / f"test_{name}.py").write_text(text)
    plugins = ("-p", "tests.support.file_scheduling", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *plugins, f"--rootdir={tmp_path}"]
    done = subprocess.run([*command, tmp_path], cwd=ROOT, capture_output=True, check=False, text=True, timeout=60)
    assert re.search(rf"2 failed, {4 * TESTS - 2} passed", done.stdout), done.stdout
    assert done.returncode == 1
