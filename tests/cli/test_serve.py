"""How `plog serve` starts: its listeners, its threads, and a configuration that names a ZooKeeper, whose cluster it
joins by `--zookeeper` alone.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import run
from tests.support.for_each import for_each
from tests.support.server import PLOG, Server, call_plog
from tests.support.waiting import wait_for_exit, wait_until

# --- listeners


@pytest.mark.longer
def test_clients_of_each_listener_get_its_address(tmp_path: Path) -> None:
    arguments = ["--listener", "INSIDE://127.0.0.1:0", "--listener", "OUTSIDE://127.0.0.1:0"]
    with Server(tmp_path / "data", *arguments, "--advertise", "OUTSIDE://localhost:0") as server:
        ready = re.search(r"ready (\S+) .* listeners INSIDE://(\S+),OUTSIDE://(\S+)\n", server.log.read_text())
        assert ready is not None
        first, inside, outside = ready.groups()
        assert first == inside == server.address
        assert told(inside) == [inside]
        assert told(outside) == [outside.replace("127.0.0.1", "localhost")]


def told(address: str) -> list[str]:
    done = call_plog("cluster", "brokers", "--bootstrap-server", address, "--output", "json")
    return [row["address"] for row in json.loads(done.stdout)]


@for_each(
    "arguments, message, hint",
    [
        (["--listen", ":1", "--listener", "A://:2"], "use one of them", "--listener PLAINTEXT://:1"),
        (["--listener", "127.0.0.1:1"], "'127.0.0.1:1' is no NAME://HOST:PORT", "INTERNAL://127.0.0.1:9093"),
        (["--listener", "A://:1", "--listener", "a://:2"], "A is there twice", "INTERNAL://"),
        (["--listener", "SSL://:1"], "asks for security", "--insecure-ignore-security"),
        (["--listener", "A://:1", "--listener", "B://:2", "--advertise", "h:3"],
         "--advertise h:3 does not say which listener it is for: A, B", "--advertise A://h:3"),
        (["--listener", "A://:1", "--advertise", "B://h:3"], "--advertise B://h:3: there is no such listener", "A"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, arguments: list[str], message: str, hint: str) -> None:
    done = call_plog("serve", "--data-dir", str(tmp_path / "data"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert hint in done.stderr.decode()
    assert not (tmp_path / "data").exists()


# --- which scheduling policy of Linux it takes, and how its threads share the interpreter

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


@pytest.mark.longer
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


@pytest.mark.longer
def test_no_thread_waits_long_for_the_interpreter(tmp_path: Path) -> None:
    told = tmp_path / "interval"
    program = HANDED_OVER.format(path=str(told))
    with Server(tmp_path / "data", command=(sys.executable, "-c", program, "serve")) as server:
        server.stop()
    assert float(told.read_text()) == pytest.approx(0.0001)


# --- a ZooKeeper

_JOINS_NOTHING = """\
warning: zookeeper.connect joins no cluster: this broker serves its directory alone
hint: --zookeeper zk:1//x joins the cluster, with the same data directory and node id
"""
_ANOTHER = "warning: zookeeper.connect is zk:1//x, and --zookeeper wins: zk:2//x\n"


@for_each(
    "arguments, said",
    [(["--read-only"], _JOINS_NOTHING), (["--zookeeper", "zk:1//x"], ""), (["--zookeeper", "zk:2//x"], _ANOTHER)],
)
def test_a_configuration_alone_joins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """A copy of a broker's disk comes with its server.properties: whoever looks at it must not join by that. What is
    started here ends with an error: there is no such directory, and //x is no chroot.
    """
    config = tmp_path / "server.properties"
    config.write_text("zookeeper.connect=zk:1//x\nbroker.id=3\n")
    directory = str(tmp_path / "missing")
    assert run(["serve", "--config", str(config), "--data-dir", directory, "--listen", ":0", *arguments]) != 0
    warnings, error, _ = capsys.readouterr().err.partition("error: ")
    assert (warnings, error) == (said, "error: ")


def test_a_new_member_needs_a_node_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default could be that of a broker which is away just now: its replicas would begin with nothing."""
    new = tmp_path / "new"
    assert run(["serve", "--zookeeper", "127.0.0.1:1/x", "--data-dir", str(new), "--listen", "127.0.0.1:0"]) == 2
    error = f"error: {new} has no node id yet, and a member of a cluster needs one of its own\nhint: --node-id N\n"
    assert capsys.readouterr().err == error
    assert not new.exists()


@pytest.mark.longer
def test_a_signal_ends_the_wait_for_a_zookeeper_that_hangs(tmp_path: Path) -> None:
    """It takes connections, and says nothing: closing the session would wait for it in vain."""
    new, said = tmp_path / "new", tmp_path / "said"
    with socket.create_server(("127.0.0.1", 0)) as hangs, said.open("wb") as log:
        where = f"127.0.0.1:{hangs.getsockname()[1]}/x"
        command = [PLOG, "serve", "--zookeeper", where, "--node-id", "3", "--data-dir", new, "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: "waiting for it" in said.read_text(), "it says that it waits")
            process.send_signal(signal.SIGTERM)
            assert wait_for_exit(process) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert said.read_text().count("\n") == 1, said.read_text()
    assert not new.exists()
