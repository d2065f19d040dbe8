"""A replay that is stopped while Spark starts: nothing that was started stays."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.processes import children_of, is_running, name_of
from tests.support.server import PLOG, call_plog
from tests.support.waiting import wait_for_exit, wait_until

pytestmark = pytest.mark.longer

pytest.importorskip("pyspark", reason="the extra spark is not installed")

JAVA = """#!/bin/sh
[ "$*" = -version ] || exec sleep 600
echo 'openjdk version "17.0.1"' >&2
"""
"""A JVM that does not come up."""


def descendants(pid: int) -> dict[int, str]:
    """Process -> the name of its program."""
    found = {}
    for child in children_of(pid):
        found |= {child: name_of(child)} | descendants(child)
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_jvm_stays(number: signal.Signals, code: int, tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    where = ["--data-dir", str(tmp_path / "data")]
    assert call_plog("produce", "t", *where, stdin=b"a\n").returncode == 0
    replay = subprocess.Popen(
        [PLOG, "spark-replay", "t", "--to", f"parquet:{tmp_path / 'out'}", *where],
        env={**os.environ, "JAVA_HOME": str(java.parent.parent)},
    )
    started: dict[int, str] = {}

    def has_a_jvm() -> bool:
        nonlocal started
        assert replay.poll() is None
        with suppress(FileNotFoundError, ProcessLookupError):  # one has ended meanwhile
            started = descendants(replay.pid)
        return "sleep" in started.values()

    wait_until(has_a_jvm, "it starts a JVM, of which it says nothing")
    replay.send_signal(number)
    assert wait_for_exit(replay) == code
    wait_until(lambda: not any(map(is_running, started)), f"one of {started} stays")  # a signal may take a moment
