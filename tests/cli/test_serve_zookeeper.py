"""`plog serve` with a configuration that names a ZooKeeper: it joins a cluster by `--zookeeper` alone."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from cli.main import run
from tests.support.for_each import for_each
from tests.support.server import PLOG
from tests.support.waiting import wait_for_exit, wait_until

_JOINS_NOTHING = """\
warning: zookeeper.connect joins no cluster: what is here is served by a broker of its own
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
