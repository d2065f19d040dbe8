"""Numbers and times out of range, given to every option of every command: none is a bug of ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import ok
from tests.support.all_commands import all_commands
from tests.support.for_each import for_each
from tests.support.golden import SAMPLE_DATA
from tests.support.server import call_plog

SAMPLE = SAMPLE_DATA / "partition" / "txn_multisegment-0"

ARGUMENTS = {
    "serve": ["--data-dir", "/dev/null"],
    "topic create": ["new", "--dry-run", "DIR"],
    "topic alter": ["t", "--dry-run", "DIR"],
    "topic delete": ["t", "--dry-run", "DIR"],
    "topic delete-records": ["t", "--before", "0", "--dry-run", "DIR"],
    "produce": ["t", "--dry-run", "DIR"],
    "consume": ["t", "DIR"],
    "group describe": ["g", "DIR"],
    "group reset-offsets": ["g", "--topic", "t", "--dry-run", "DIR"],
    "group delete": ["g", "--dry-run", "DIR"],
    "group delete-offsets": ["g", "--topic", "t", "--dry-run", "DIR"],
    "group remove-members": ["g", "--all", "--dry-run", "DIR"],
    "redrive": ["t", "--dry-run", "DIR"],
    "transaction list": ["DIR"],
    "transaction abort": ["--topic", "t", "--partition", "0", "--start-offset", "0", "--dry-run", "DIR"],
    "config alter": ["topic", "t", "--set", "retention.ms=1", "--dry-run", "DIR"],
    "acl add": ["--allow-principal", "User:a", "--topic", "t", "--dry-run", "DIR"],
    "acl remove": ["--topic", "t", "--dry-run", "DIR"],
    "acl import": ["/dev/null", "--dry-run", "DIR"],
    "user create": ["alice", "--dry-run", "DIR"],
    "user delete": ["alice", "--dry-run", "DIR"],
    "dump-segment": ["SAMPLE"],
    "compact": ["SAMPLE"],
    "gaps": ["SAMPLE"],
    "cluster reassign": ["--topics", "t", "--dry-run", "DIR"],
    "cluster start": ["DIR"],
    "perf produce": ["p", "--num-records", "1", "--warmup-records", "0", "DIR"],
    "perf consume": ["p", "--num-records", "1", "--timeout", "0", "DIR"],
    "perf latency": ["p", "--num-records", "1", "DIR"],
    "spark-replay": ["t", "--to", "json:/dev/null/x", "--dry-run", "DIR"],
}
"""What each command needs besides the option. A command with a number among its options has a line here."""

PLACES = {
    "consume": ["--from", "--until", "--as-of"],
    "topic delete-records": ["--before"],
    "dump-segment": ["--time"],
    "group reset-offsets": ["--to-datetime", "--by-duration"],
    "spark-replay": ["--from", "--until"],
}
"""Options that take numbers and times as text."""

NUMBERS = ["99999999999999999999999", "-99999999999999999999999", "9223372036854775808", "nan", "-inf", ""]
TIMES = [
    "99999999999999999999999", "-9223372036854775809", "9223372036854775807", "nan", "", "@99999999999999999999999",
    "9999-12-31T23:59:59-12:00", "0000-01-01", "0001-01-01T00:00:00+14:00", "-99999999999999999999w",
    "P99999999999999999999D", "9" * 5000,
]  # fmt: skip


NUMERIC = [
    (name, option.opts[0])
    for name, command in all_commands().items()
    for option in command.params
    if option.param_type_name == "option" and not option.is_flag
    if option.type.name.split()[0] in ("int", "integer", "float")
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "data"
    ok("produce", "t", "--data-dir", str(path), stdin=b"a\nb\n")
    ok("consume", "t", "--group", "g", "--max-messages", "1", "--data-dir", str(path))
    return path


def test_each_command_with_numbers_is_tried() -> None:
    assert {name for name, _ in NUMERIC} | PLACES.keys() == ARGUMENTS.keys()


@for_each("command, option", NUMERIC, first=18)
def test_numbers_out_of_range_are_refused(command: str, option: str, directory: Path) -> None:
    for number in NUMBERS:
        done = called(directory, command, option, number)
        assert done.returncode == 2, (number, done.stderr)
        assert f"'{option}'" in done.stderr.decode()
        assert "Traceback" not in done.stderr.decode()


@for_each("command, option", [(name, option) for name in PLACES for option in PLACES[name]], first=3)
def test_no_place_or_time_is_a_bug(command: str, option: str, directory: Path) -> None:
    for text in TIMES:
        done = called(directory, command, option, text)
        assert done.returncode in (0, 1, 2, 3), (text, done.stderr)
        assert "Traceback" not in done.stderr.decode()


def called(directory: Path, command: str, option: str, value: str) -> subprocess.CompletedProcess[bytes]:
    placed = {"DIR": ["--data-dir", str(directory)], "SAMPLE": [str(SAMPLE)]}
    arguments = [part for word in ARGUMENTS[command] for part in placed.get(word, [word])]
    return call_plog(*command.split(), *arguments, f"{option}={value}", stdin=b"x\n")
