"""docs/runbook.md, typed as it stands there: to a cluster of real brokers, with a real ZooKeeper, all of it happens."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from core.common.endpoint import Endpoint
from core.processes.free_port import is_free
from tests.support.free_ports import FIRST
from tests.support.server import PLOG
from tests.support.shown_session import ShownCommand, read_session
from tests.support.terminal import Terminal
from tests.support.zookeeper_server import requires_zookeeper

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "runbook.md").read_text()
COLUMNS = 118
_TRIES = 100
_PAGES_BROKERS, _PAGES_ZOOKEEPER = "127.0.0.1:909", "127.0.0.1:2181"


def free_tens() -> str:
    """Gives N so that the ports N0 to N4 are free: the page's are 2181 and 9091 to 9094, and brokers keep theirs."""
    for _ in range(_TRIES):
        found = random.randrange(1100, FIRST // 10)
        if all(is_free(Endpoint("127.0.0.1", 10 * found + last)) for last in range(5)):
            return str(found)
    raise AssertionError("no ports are free")


def on_ports(text: str, tens: str) -> str:
    return text.replace(_PAGES_BROKERS, f"127.0.0.1:{tens}").replace(_PAGES_ZOOKEEPER, f"127.0.0.1:{tens}0")


@pytest.mark.longer
@requires_zookeeper
@pytest.mark.java
def test_all_that_the_runbook_says_is_so(tmp_path: Path) -> None:
    tens = free_tens()
    environment = {**os.environ, "PATH": f"{PLOG.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    with Terminal(tmp_path, environment, COLUMNS) as terminal:
        terminal.type("set -m")  # Ctrl-C is for the command that one waits for, not for the brokers
        for shown in read_session(PAGE):
            command = ShownCommand(on_ports(shown.command, tens), tuple(on_ports(line, tens) for line in shown.lines))
            assert command.type(terminal) == ""


def test_the_runbook_names_metrics_that_there_are() -> None:
    known = (ROOT / "docs" / "metrics.md").read_text()
    for name in re.findall(r"`kafka_(\w+)`", PAGE):
        group, _, last = name.rpartition("_")
        assert f"kafka_{group}_" in known
        assert f"_{last}`" in known, name
