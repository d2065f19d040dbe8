"""Every command with a full disk behind stdout, and with each standard stream closed: no traceback, no bug of ours, and
the exit code says what became of the data.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import COMMANDS
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.plog_forks import PlogForks
from tests.support.server import run_plog

SAMPLE = str(SAMPLE_DATA / "partition" / "txn_multisegment-0")
DAMAGED = str(GOLDEN / "c_torn_tail.corrupt")

PRINTING = [
    *(["topic", "list", "--output", output, "DIR"] for output in ("table", "csv")),
    *(["consume", "t", "--format", format_, "DIR"] for format_ in ("value", "envelope", "arrow", r"%o %s\n")),
    *(["dump-segment", SAMPLE, "--format", format_] for format_ in ("kafka", "table", "ndjson", "csv", "arrow")),
    *([command, DAMAGED] for command in ("verify", "recover", "doctor")),
    ["topic", "describe", "t", "DIR"],
    ["produce", "t", "--report", "table", "DIR"],
    ["produce", "t", "--tee", "DIR"],
    ["redrive", "t", "--dry-run", "DIR"],
    ["group", "list", "DIR"],
    ["transaction", "list", "DIR"],
    ["config", "describe", "topic", "t", "--all", "DIR"],
    ["cluster", "status", "DIR"],
    ["acl", "list", "DIR"],
    ["user", "list", "DIR"],
    ["compact", SAMPLE],
    ["diff", SAMPLE, SAMPLE],
    ["stats", SAMPLE],
    ["gaps", SAMPLE],
    ["trace", "t@0", "DIR"],
    ["perf", "produce", "p", "--num-records", "10", "DIR"],
    ["cert", "show", "CERTIFICATE"],
    ["spark-replay", "t", "--to", "json:/tmp/none", "--dry-run", "DIR"],
    ["help"],
    ["help", "offset"],
    ["--help"],
    ["--version"],
    ["serve", "--help"],
    ["zookeeper", "start", "--help"],
    ["inspect", "--help"],
]
"""Commands that have something to print. Each command has a line here."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams")
    ok("produce", "t", "--data-dir", str(path / "data"), stdin=b"a\nb\n")
    ok("consume", "t", "--group", "g", "--max-messages", "1", "--data-dir", str(path / "data"))
    ok("cert", "dev", "--out", str(path / "certs"))
    (path / "in").write_bytes(b"x\n")
    return path


def test_each_command_is_tried() -> None:
    assert {command[0] for command in PRINTING if not command[0].startswith("-")} == COMMANDS.keys()


@for_each("command", PRINTING)
def test_no_stream_is_a_bug(command: list[str], forks: PlogForks, folder: Path) -> None:
    placed = {"DIR": ["--data-dir", str(folder / "data")], "CERTIFICATE": [str(folder / "certs" / "ca.pem")]}
    arguments = [part for word in command for part in placed.get(word, [word])]
    said = folder / "said"

    def call(stdout: str | None, stderr: str | None) -> int:
        return forks.call(*arguments, stdin=str(folder / "in"), stdout=stdout, stderr=stderr)

    usual = call("/dev/null", str(said))
    assert usual in (0, 1)
    assert call("/dev/full", str(said)) == 3
    assert "error: could not write stdout: no space left on device\nhint: the disk is full" in said.read_text()
    assert call(None, str(said)) == 3
    assert said.read_text().endswith("error: could not write stdout: it is closed\n")
    printed = folder / "printed"
    assert call(str(printed), None) == usual
    assert printed.stat().st_size


@for_each("stderr", [None, "/dev/full"])
def test_talk_that_nobody_can_read_changes_no_exit_code(stderr: str | None, forks: PlogForks, folder: Path) -> None:
    for command, stdout, code in (
        (["verify", DAMAGED], "/dev/null", 1),
        (["help", "offset"], None, 3),
        (["frobnicate"], "/dev/null", 2),
    ):
        assert forks.call(*command, stdin="/dev/null", stdout=stdout, stderr=stderr) == code


def test_a_closed_stdin(forks: PlogForks, folder: Path) -> None:
    said = folder / "said"
    arguments = ["produce", "t", "--dry-run", "--data-dir", str(folder / "data")]
    assert forks.call(*arguments, stdin=None, stdout="/dev/null", stderr=str(said)) == 3
    assert said.read_text() == "error: could not read stdin: it is closed\n"


def test_what_is_written_to_a_closed_stream_goes_into_no_log(forks: PlogForks, folder: Path) -> None:
    """The descriptors of closed streams are the first ones that the system gives to files."""
    data = folder / "other"
    for name in ("t", "no-such-file"):
        arguments = ["produce", "t", str(folder / ("in" if name == "t" else name)), "--report", "json"]
        assert forks.call(*arguments, "--data-dir", str(data), stdin=None, stdout=None, stderr=None) == 3
    assert ok("consume", "t", "--data-dir", str(data)) == b"x\n"
    assert run_plog("verify", str(data)).returncode == 0
