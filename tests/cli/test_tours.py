"""The tours of docs/tour.md, typed into a shell on a terminal of 80 columns, with plog as people install it; and how
what they left looks an hour later.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.installed import ROOT, Installed
from tests.support.oracle import why_not
from tests.support.server import Server
from tests.support.terminal import Terminal, Typed
from tests.support.waiting import wait_until

pytestmark = pytest.mark.longer

COLUMNS = 80
FINDS_SOMETHING = ("plog recover sample-data/damaged", "plog doctor sample-data/damaged")
"""End with exit code 1: it is damaged."""
AN_HOUR_LATER = """
import time
def moved(clock, by):
    return lambda: clock() + by

time.time, time.time_ns = moved(time.time, 3700), moved(time.time_ns, 3700 * 10**9)
"""


def tours() -> dict[str, list[str]]:
    """The commands of each tour by its heading; a pipeline that goes on in the next line is one command."""
    text = (ROOT / "docs" / "tour.md").read_text()
    sections = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    found = {}
    for heading, section in zip(sections[::2], sections[1::2], strict=True):
        joined = re.sub(r"\|\n +", "| ", section)
        found[heading] = re.findall(r"^    (?!def )(.*\bplog .*)", joined, re.MULTILINE)
    return found


def type_command(terminal: Terminal, command: str) -> Typed:
    """A server goes on when its command ends in `&`; else it is stopped once it is ready."""
    if not command.startswith("plog serve"):
        return terminal.type(command)
    command = re.sub(r" --listen \S+|(?= *&?$)", " --listen 127.0.0.1:0", command, count=1)
    ready = rb"ready 127[^\n]*\n"
    if not command.endswith("&"):
        return terminal.type_and_interrupt(command, ready)
    terminal.type(command)
    return Typed(0, terminal.wait_for(ready))


def problems_of(command: str, typed: Typed) -> list[str]:
    found = []
    if typed.code != (1 if command.startswith(FINDS_SOMETHING) else 0):
        found.append(f"{command}: exit code {typed.code}: {typed.text[-500:]}")
    wide = [line for line in typed.text.split("\n") if len(line) > COLUMNS and "   " in line.strip()]  # a table's row
    return found + [f"{command}: wider than {COLUMNS}: {line}" for line in wide]


def test_the_tours_and_a_look_an_hour_later(installed: Installed, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sample-data", tmp_path / "sample-data")
    environment = {**installed.environment, "HOME": str(tmp_path), "PLOG_CONFIG": ""}
    problems = []
    with Terminal(tmp_path, environment, COLUMNS) as terminal:
        for heading, commands in tours().items():
            assert len(commands) > 3, heading
            for command in commands:
                if "spark-replay" not in command or not why_not():
                    problems += problems_of(command, type_command(terminal, command))
        before = offsets_of(installed, tmp_path / "data")
    assert problems == []
    assert len(before) >= 4
    assert all(sum(offsets) for offsets in before.values())
    assert look_an_hour_later(installed, tmp_path / "data") == before


def look_an_hour_later(installed: Installed, data: Path) -> dict[str, list[int]]:
    """The topics' offsets after a server with a clock that was moved has looked for what is too old: by then it has
    deleted what a topic holds that keeps records for an hour.
    """
    where = ["--data-dir", str(data)]
    installed.run("plog", "topic", "create", "brief", "--set", "retention.ms=3600000", *where)
    installed.run("plog", "produce", "brief", *where, stdin=b"now\n")
    site = data.parent / "later"
    site.mkdir()
    (site / "sitecustomize.py").write_text(AN_HOUR_LATER)
    environment = {**installed.environment, "PYTHONPATH": str(site)}
    often = ["--set", "log.retention.check.interval.ms=100"]
    with Server(data, *often, command=[installed.bin / "plog", "serve"], environment=environment):
        wait_until(lambda: offsets_of(installed, data)["brief"] == [1, 1])
    after = offsets_of(installed, data)
    assert after.pop("brief") == [1, 1]
    return after


def offsets_of(installed: Installed, data: Path) -> dict[str, list[int]]:
    """Of each topic the start and end offsets of its partitions."""

    def ask(*arguments: str) -> list[dict[str, Any]]:
        where = ["--output", "json", "--data-dir", str(data)]
        return list(json.loads(installed.run("plog", "topic", *arguments, *where).stdout))

    found: dict[str, list[int]] = {}
    for row in ask("describe", *(row["topic"] for row in ask("list"))):
        found.setdefault(row["topic"], []).extend((row["start_offset"], row["end_offset"]))
    return found
