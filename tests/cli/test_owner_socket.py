"""The socket in the data directory of `plog serve` as a process: other users, kills, and many connections."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from core.client.net.connect_notice import ConnectNotice
from core.client.net.owner_socket import OwnerNotice
from core.common.errors import AccessError
from tests.support.server import Server, call_plog
from tests.support.waiting import PROMPT_SECONDS, wait_for_exit

pytestmark = pytest.mark.longer

GUARDED = ["--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
NOBODY = 65534


def as_nobody(directory: Path, work: Callable[[], str]) -> str:
    """What the work returns in a process of another user, which begins in the directory."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(directory)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def connect(directory: Path) -> socket.socket:
    address = "127.0.0.1", 1
    return OwnerNotice(ConnectNotice(), directory, [address]).connect(address, PROMPT_SECONDS)


def connect_by_api() -> str:
    try:
        connect(Path())
    except AccessError as error:
        return error.message
    return "connected"


def connect_by_system() -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(".plog.sock")
        return repr(sock.recv(1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Server(directory, *GUARDED) as server:
        directory.chmod(0o755)
        refusal = ". is served by a broker of user root (id 0), whose socket there is for that user and root alone"
        assert as_nobody(directory, connect_by_api) == refusal
        (directory / ".plog.sock").chmod(0o777)
        assert as_nobody(directory, connect_by_api) == refusal
        assert as_nobody(directory, connect_by_system) == "b''"
    assert "closing a connection to the socket in the data directory: it is of user id 65534" in server.log.read_text()


def test_a_killed_broker_and_the_next_one(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Server(directory, *GUARDED) as server:
        assert call_plog("topic", "create", "t", "--data-dir", str(directory)).returncode == 0
        server.kill()
    assert stat.S_ISSOCK((directory / ".plog.sock").lstat().st_mode)
    assert call_plog("topic", "list", "--data-dir", str(directory)).returncode == 0  # nobody serves
    with Server(directory, *GUARDED) as server:
        rival = call_plog("serve", "--listen", "127.0.0.1:0", "--data-dir", str(directory), "--lock-timeout", "0")
        assert rival.returncode == 3
        done = call_plog("topic", "describe", "t", "--data-dir", str(directory))
        assert done.returncode == 0, done.stderr
        assert call_plog("topic", "describe", "t", "--bootstrap-server", server.address).returncode == 1
    assert not os.path.lexists(directory / ".plog.sock")


def test_a_broker_of_another_container(tmp_path: Path) -> None:
    """There it may have the id that this process has here."""
    directory = tmp_path / "data"
    with Server(directory, *GUARDED) as server:
        (directory / ".lock").write_text(f'{{"pid": {os.getpid()}, "address": "{server.address}"}}\n')
        assert call_plog("topic", "create", "t", "--data-dir", str(directory)).returncode == 0


def test_a_thousand_connections_and_a_stop(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Server(directory) as server:
        open_ones = [connect(directory) for _ in range(1000)]
        for sock in open_ones[::2]:
            sock.sendall(b"\0\0\0\x40\0")  # half a frame
        assert call_plog("topic", "create", "t", "--bootstrap-server", server.address).returncode == 0
        assert b"t" in call_plog("topic", "list", "--data-dir", str(directory)).stdout
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert wait_for_exit(server.process) == 0
        for sock in open_ones:
            assert sock.recv(1) == b""
            sock.close()
