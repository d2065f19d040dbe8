"""The README's first command: every step of `scripts/demo` checks what it did, and says so with its exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

ROOT = Path(__file__).parents[2]


def test_the_demo_checks_out_and_takes_no_folder_of_anybody_elses(tmp_path: Path) -> None:
    output = tmp_path / "demo-output"
    demo = [sys.executable, "-P", str(ROOT / "scripts" / "demo.py"), str(output)]
    done = subprocess.run(demo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "27,004 rows, each offset once" in done.stdout

    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "letter").write_text("mine")
    refused = subprocess.run([*demo[:-1], str(theirs)], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "name another folder" in refused.stdout
    assert (theirs / "letter").read_text() == "mine"
