"""Which scheduling policy of Linux a broker takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.server import PLOG, Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="scheduling policies are Linux's")

AS_IDLE = (
    f"import os, sys; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); os.execv({str(PLOG)!r}, sys.argv)"
)
REFUSED = """
import errno, os, sys
from cli.main import run
def refuse(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")
os.sched_setscheduler = refuse
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("command", "policy"),
    [
        pytest.param([PLOG, "serve"], "SCHED_BATCH", id="interrupts nobody"),
        pytest.param([sys.executable, "-c", AS_IDLE, "serve"], "SCHED_IDLE", id="what was chosen is kept"),
        pytest.param([sys.executable, "-c", REFUSED, "serve"], "SCHED_OTHER", id="where it is not allowed"),
    ],
)
def test_the_policy(command: Sequence[str | Path], policy: str, tmp_path: Path) -> None:
    with Server(tmp_path / "data", command=command) as server:
        assert server.process is not None
        threads = Path(f"/proc/{server.process.pid}/task").iterdir()
        assert {os.sched_getscheduler(int(thread.name)) for thread in threads} == {getattr(os, policy)}
