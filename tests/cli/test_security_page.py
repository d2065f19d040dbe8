"""docs/security.md: the commands with a $, typed as they stand there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.free_ports import free_ports
from tests.support.server import PLOG
from tests.support.shown_session import ShownCommand, read_session
from tests.support.terminal import Terminal

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
COLUMNS = 118


@pytest.mark.longer
def test_all_that_the_page_says_is_so(tmp_path: Path) -> None:
    """Only the port is another one."""
    (port,) = free_ports(1)

    def here(text: str) -> str:
        return text.replace("localhost:9093", f"localhost:{port}")

    environment = {**os.environ, "PATH": f"{PLOG.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    with Terminal(tmp_path, environment, COLUMNS) as terminal:
        problems = []
        for shown in read_session(PAGE):
            problems.append(ShownCommand(here(shown.command), tuple(map(here, shown.lines))).type(terminal))
            for file in (tmp_path / "certs").glob("*.*") if shown.command.startswith("plog cert dev") else ():
                if file.suffix in (".properties", ".conf"):
                    file.write_text(here(file.read_text()))
        terminal.type("kill %1; wait")
        assert [problem for problem in problems if problem] == []
