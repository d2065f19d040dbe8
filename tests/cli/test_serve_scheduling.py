"""Which scheduling policy of Linux a broker takes, and how its threads share the interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.server import Server

pytestmark = pytest.mark.longer

STARTED_UNDER = """
import os, sys
from cli.main import run
os.sched_setscheduler(0, os.{policy}, os.sched_param(0))
sys.exit(run(sys.argv[1:]))
"""
REFUSED = """
import errno, os, sys
from cli.main import run
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
def refuse(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")
os.sched_setscheduler = refuse
sys.exit(run(sys.argv[1:]))
"""
HANDED_OVER = """
import atexit, sys
from pathlib import Path
from cli.main import run
atexit.register(lambda: Path({path!r}).write_text(str(sys.getswitchinterval())))
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling policies are Linux's")
@pytest.mark.parametrize(
    ("program", "policy"),
    [
        pytest.param(STARTED_UNDER.format(policy="SCHED_OTHER"), "SCHED_BATCH", id="interrupts nobody"),
        pytest.param(STARTED_UNDER.format(policy="SCHED_IDLE"), "SCHED_IDLE", id="what was chosen is kept"),
        pytest.param(REFUSED, "SCHED_OTHER", id="where it is not allowed"),
    ],
)
def test_the_policy(program: str, policy: str, tmp_path: Path) -> None:
    with Server(tmp_path / "data", command=(sys.executable, "-c", program, "serve")) as server:
        assert server.process is not None
        threads = Path(f"/proc/{server.process.pid}/task").iterdir()
        assert {os.sched_getscheduler(int(thread.name)) for thread in threads} == {getattr(os, policy)}


def test_no_thread_waits_long_for_the_interpreter(tmp_path: Path) -> None:
    told = tmp_path / "interval"
    program = HANDED_OVER.format(path=str(told))
    with Server(tmp_path / "data", command=(sys.executable, "-c", program, "serve")) as server:
        server.stop()
    assert float(told.read_text()) == pytest.approx(0.0001)
