"""Each command says what it does, and its example works when pasted."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from pathlib import Path

import pytest

from cli.commands.help import find_text
from cli.completion import complete_help
from cli.main import COMMANDS
from core.common.errors import UsageError
from tests.support.for_each import for_each
from tests.support.server import PLOG, Server, call_plog, run_plog

ROOT = Path(__file__).resolve().parents[2]
SUBCOMMANDS = {
    "perf": ["produce", "consume", "latency"],
    "topic": ["create", "list", "describe", "alter", "delete-records", "delete"],
    "config": ["list", "describe", "alter"],
    "group": ["list", "describe", "reset-offsets", "delete", "delete-offsets"],
    "cluster": [
        "status", "brokers", "topics", "describe", "controller", "features", "elect", "forget-replica", "reassign",
        "drain", "check", "start",
    ],
    "cert": ["dev", "show"],
    "transaction": ["list", "describe", "find-hanging", "abort"],
    "zookeeper": ["start"],
}  # fmt: skip
WITH_EXAMPLE = [*([c] for c in COMMANDS), *([c, s] for c, subcommands in SUBCOMMANDS.items() for s in subcommands), []]


def example_of(command: list[str]) -> str:
    text = call_plog(*command, "--help").stdout.decode()
    found = re.search(r"Example:\n +(\S.*)\n", text)
    assert found, text
    return found[1]


def test_plain_plog_lists_the_commands() -> None:
    done = call_plog("--help")
    assert done.returncode == 0
    for name, line in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", done.stdout.decode(), re.MULTILINE)


@for_each("command", WITH_EXAMPLE)
def test_help_has_an_example_of_the_command(command: list[str]) -> None:
    assert " ".join(["plog", *command]) in example_of(command)


def test_the_page_of_a_command_is_found_by_its_whole_name() -> None:
    for command, subcommands in SUBCOMMANDS.items():
        for subcommand in subcommands:
            assert find_text([command, subcommand]) == find_text([command])
        for word in ("frob", "the"):
            with pytest.raises(UsageError, match=f"no page about '{command} {word}'"):
                find_text([command, word])


@for_each("command", [[], *([group] for group in SUBCOMMANDS)])
def test_a_group_without_a_command_shows_its_help(command: list[str]) -> None:
    done = call_plog(*command)
    assert done.returncode == 2
    assert done.stderr.startswith(b"Usage: plog")
    assert done.stdout == b""


def paste(command: str, data_dir: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": f"{PLOG.parent}:{os.environ['PATH']}", "PLOG_DATA_DIR": str(data_dir)},
    )


@pytest.mark.longer
def test_the_examples_work_when_pasted(tmp_path: Path) -> None:
    """In the order in which somebody would paste them; `serve` and `spark-replay` have tests of their own."""
    data_dir = tmp_path / "data"
    printed = {}
    for command in (
        ["topic", "create"], ["produce"], ["consume"], ["topic", "list"], ["topic", "describe"], ["topic", "alter"],
        ["topic", "delete-records"], ["topic", "delete"], ["dump-segment"], ["verify"], [],
    ):  # fmt: skip
        done = paste(example_of(command), data_dir)
        assert done.returncode == 0, (command, done.stderr)
        printed[" ".join(command)] = done.stdout
    sample = gzip.decompress((ROOT / "sample-data" / "flights-2013-01.ndjson.gz").read_bytes())
    assert printed["consume"].count(b"\n") == sample.count(b'{"time":"2013-01-15T')
    assert printed["dump-segment"].count(b"\n| offset") > 5
    assert b"baseOffset: 0 " in printed[""]


@pytest.mark.longer
def test_the_example_of_serve(tmp_path: Path) -> None:
    arguments = example_of(["serve"]).split()[2:]
    listen = arguments.index("--listen")
    data_dir = arguments.index("--data-dir")
    assert data_dir > listen
    settings = arguments[data_dir + 2 :]
    with Server(tmp_path / "data", *settings) as server:
        run_plog("produce", "fresh", "--bootstrap-server", server.address, stdin=b"a\n")
        listed = run_plog("topic", "list", "--output", "csv", "--bootstrap-server", server.address)
    assert listed.stdout == b"topic,partitions\nfresh,4\n"


def test_names_of_pages_are_completed() -> None:
    found = complete_help("clu")
    assert "cluster" in found
    assert all(name.startswith("clu") for name in found)
    assert set(found) < set(complete_help(""))
