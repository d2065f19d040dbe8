"""Commands that a signal stops: SIGINT, SIGTERM and SIGHUP end them alike, once what is under way is through; and
`plog serve` that is told to stop more than once."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from core.files.directory_lock import DirectoryLock
from core.files.file_names import CLEAN_SHUTDOWN
from tests.cli.conftest import ok
from tests.support.server import PLOG, Server
from tests.support.waiting import PROMPT_SECONDS, wait_for_exit, wait_until

pytestmark = pytest.mark.longer

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

each_signal = pytest.mark.parametrize("number", EXIT_CODES, ids=lambda number: number.name)


@contextlib.contextmanager
def running(
    *arguments: str, command: Sequence[str | Path] = (PLOG,), ignored: signal.Signals | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A command of plog's that goes on until it is stopped."""
    before = signal.getsignal(signal.SIGHUP)
    if ignored is not None:
        signal.signal(ignored, signal.SIG_IGN)
    process = subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": "1"},
    )
    signal.signal(signal.SIGHUP, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> str:
    """What it says when the signal ends it, with the exit code that is the signal's."""
    assert process.stderr is not None
    process.send_signal(number)
    assert wait_for_exit(process, seconds=PROMPT_SECONDS) == EXIT_CODES[number], process.stderr.read()
    said = process.stderr.read().decode()
    assert "Traceback" not in said
    return said


def produce_some(process: subprocess.Popen[bytes], count: int) -> None:
    """Returns when `produce --tee` has printed what was acknowledged."""
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(count):
        process.stdin.write(b"%d\n" % number)
    process.stdin.flush()
    for _ in range(count):
        process.stdout.readline()


def committed(group: str, *where: str) -> int:
    (row,) = (json.loads(line) for line in ok("group", "describe", group, "--output", "ndjson", *where).splitlines())
    assert row["member_id"] is None
    return int(row["offset"])


# --- produce


@each_signal
def test_produce_that_waits_for_input_says_what_is_written(number: signal.Signals, shared_server: Server) -> None:
    where = ["--bootstrap-server", shared_server.address]
    topic = f"produced-{number.name}"
    with running("produce", topic, "--tee", *where) as process:
        produce_some(process, 3)
        assert f"interrupted: 3 records written to {topic}" in stop(process, number)
    assert ok("consume", topic, *where).count(b"\n") == 3


def test_a_transaction_is_aborted(where: list[str]) -> None:
    ok("topic", "create", "t", *where)
    with running("produce", "t", "--tee", "--transactional-id", "x", *where) as process:
        produce_some(process, 3)
        assert "the transaction is aborted, and none of its records counts" in stop(process, signal.SIGHUP)
    assert ok("consume", "t", *where) == b""
    (row,) = json.loads(ok("transaction", "describe", "x", "--output", "json", *where))
    assert row["state"] == "CompleteAbort"


def test_the_second_signal_ends_a_command_at_once(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        where = ["--bootstrap-server", server.address]
        ok("topic", "create", "t", *where)
        with running("produce", "t", "--tee", "--transactional-id", "x", *where) as process:
            produce_some(process, 1)
            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)  # it can't abort the transaction
            try:
                process.send_signal(signal.SIGINT)
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.5)
                process.send_signal(signal.SIGTERM)
                assert wait_for_exit(process) == -signal.SIGTERM
            finally:
                server.process.send_signal(signal.SIGCONT)


def test_a_hangup_that_is_ignored_stays_ignored(shared_server: Server) -> None:
    """As `nohup` starts it."""
    where = ["--bootstrap-server", shared_server.address]
    with running("produce", "of-nohup", "--tee", *where, ignored=signal.SIGHUP) as process:
        produce_some(process, 1)
        process.send_signal(signal.SIGHUP)
        produce_some(process, 1)
        assert "interrupted: 2 records" in stop(process, signal.SIGTERM)


# --- consume


def test_following_prints_what_comes_until_it_is_stopped(where: list[str]) -> None:
    ok("produce", "t", *where, stdin=b"a\n")
    with running("consume", "t", "--follow", *where) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        ok("produce", "t", *where, stdin=b"b\nc\n")
        assert [process.stdout.readline() for _ in "bc"] == [b"b\n", b"c\n"]
        assert stop(process, signal.SIGTERM) == ""


@pytest.mark.parametrize(
    ("number", "protocol"), [(signal.SIGINT, "consumer"), (signal.SIGTERM, "classic"), (signal.SIGHUP, "consumer")]
)
def test_a_group_has_what_was_printed_and_nobody_is_in_it(
    number: signal.Signals, protocol: str, shared_server: Server
) -> None:
    where = ["--bootstrap-server", shared_server.address]
    topic = group = f"of-{number.name}-{protocol}"
    ok("produce", topic, *where, stdin=b"a\nb\n")
    with running("consume", topic, "--group", group, "--group-protocol", protocol, *where) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
        assert stop(process, number) == ""
    assert committed(group, *where) == 2
    states = {row["group"]: row["state"] for row in map(json.loads, listed_groups(where))}
    assert states[group] == "Empty"


def listed_groups(where: list[str]) -> list[bytes]:
    return ok("group", "list", "--output", "ndjson", *where).splitlines()


def test_a_command_ends_that_nobody_reads_from(tmp_path: Path) -> None:
    """What is in the pipe then is committed, but for the page that does not fit any more; and no more than that, though
    Python, asked not to buffer, takes half a page for a whole one when a signal comes.
    """
    where = ["--data-dir", str(tmp_path / "data")]
    ok("produce", "t", *where, stdin=b"".join(b"%0999d\n" % number for number in range(5000)))
    with running("consume", "t", "--group", "g", *where) as process:
        assert process.stdout is not None
        process.stdout.readline()
        await_blocked(process)
        stop(process, signal.SIGTERM)
        lines = 1 + process.stdout.read().count(b"\n")
    assert 0 < committed("g", *where) <= lines < 5000
    with running("dump-segment", "--print-data-log", str(tmp_path / "data" / "t-0")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        await_blocked(process)
        stop(process, signal.SIGTERM)


def await_blocked(process: subprocess.Popen[bytes]) -> None:
    """Until it waits for somebody who reads its pipe."""
    wait_until(lambda: "pipe_w" in Path(f"/proc/{process.pid}/wchan").read_text())


def test_the_end_of_the_terminal_is_that_of_the_command(shared_server: Server) -> None:
    """The group is left though nothing can be said any more."""
    where = ["--bootstrap-server", shared_server.address]
    ok("produce", "of-terminal", *where, stdin=b"a\n")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(PLOG, [str(PLOG), "consume", "of-terminal", "--group", "of-terminal", *where])
    assert os.read(terminal, 1) == b"a"
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert committed("of-terminal", *where) == 1


# --- before there is anything to end


def test_who_waits_for_an_answer_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with running("topic", "list", "--bootstrap-server", address) as process:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1)
                assert stop(process, signal.SIGTERM) == ""


WAITING = """
import os, signal, sys
from cli.main import run
from core.files import directory_lock

directory_lock.sleep = lambda _: os.kill(os.getpid(), signal.SIGTERM)
sys.exit(run())
"""


def test_who_waits_for_a_lock_ends(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    try:
        arguments = ("produce", "t", "--data-dir", str(tmp_path), "--lock-timeout", "60")
        with running(*arguments, command=(sys.executable, "-c", WAITING)) as process:
            assert wait_for_exit(process) == 143
    finally:
        lock.release()


# --- serve


STOPPED_AGAIN = """
import os, signal, sys
from cli.main import run
from core.log.log_manager import LogManager
close = LogManager._write_at_end

def close_and_be_told_again(self, broker_epoch):
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    close(self, broker_epoch)

LogManager._write_at_end = close_and_be_told_again
sys.exit(run())
"""
"""The signals come while logs are closed, whatever that takes."""


def test_a_stop_that_is_asked_for_again_says_how_far_it_is_and_stays_clean(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", command=(sys.executable, "-c", STOPPED_AGAIN, "serve"))
    with server:
        pass
    said = server.log.read_text()
    assert said.count("stopping: 0 of 0 partitions closed; kill -9 ends it at once") == 2, said
    assert "Traceback" not in said
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_a_hangup_stops_a_server_cleanly(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        assert wait_for_exit(server.process) == 0
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
