"""`plog consume` and `plog produce` with --zookeeper: what is refused, and what is said if no ZooKeeper is there.

`tests/interop/test_old_consumers.py` has the cluster of Kafka's that they are for.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.zookeeper import session_thread
from tests.support.for_each import for_each
from tests.support.server import call_plog

pytest.importorskip("kazoo", reason="the extra cluster is not installed")


@pytest.fixture
def silent() -> Iterator[str]:
    """Somewhere that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_thread, "_OPEN_SECONDS", 0.5)


@for_each(
    "arguments, problem",
    [
        (["--zookeeper", "h:1", "--bootstrap-server", "h:2"], "names two places, --bootstrap-server and --zookeeper"),
        (["--zookeeper", "h:1", "--data-dir", "d"], "names two places, --data-dir and --zookeeper"),
        (["--zookeeper", "h:port"], "'h:port' is no HOST:PORT"),
        (["--zookeeper", ""], "--zookeeper got an empty value"),
        (["--zookeeper", "h:1/a//b"], "'/a//b' is no chroot"),
        (["--zookeeper", "h:1", "--group", "g", "--group-protocol", "classic"], "has no coordinator"),
        (["--zookeeper", "h:1", "--group", "g", "--group-instance-id", "i"], "has no coordinator"),
        (["--zookeeper", "h:1", "--group", "g", "--until", "7"], "--group has neither --partition nor --until"),
        (["--zookeeper", "h:1", "--group", "a/b"], "a group of --zookeeper is a node in ZooKeeper"),
        (["--zookeeper", "h:1", "--group", ""], "a group of --zookeeper is a node in ZooKeeper"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(arguments: list[str], problem: str) -> None:
    done = call_plog("consume", "t", *arguments)
    assert done.returncode == 2
    assert problem in " ".join(done.stderr.decode().split())


def test_a_pattern_that_old_consumers_read_otherwise_is_refused_too() -> None:
    done = call_plog("consume", "^a,b", "--zookeeper", "h:1", "--group", "g")
    assert done.returncode == 2
    assert "a pattern has no commas, spaces or quotes" in " ".join(done.stderr.decode().split())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", [["consume", "t"], ["consume", "t", "--group", "g"], ["produce", "t"]])
def test_a_zookeeper_that_is_not_there_or_silent_is_not_waited_for_long(command: list[str], silent: str) -> None:
    for address in ("127.0.0.1:1", silent):
        done = call_plog(*command, "--zookeeper", f"{address}/kafka")
        assert done.returncode == 3
        said = " ".join(done.stderr.decode().split())
        assert f"error: no ZooKeeper answers at {address}/kafka in 0.5 s" in said
        assert "hint: is it running, and is the address right?" in said


def test_a_broker_may_have_a_directory_and_a_zookeeper(tmp_path: Path) -> None:
    done = call_plog("serve", "--zookeeper", "h:port", "--data-dir", str(tmp_path / "data"), "--node-id", "1")
    assert done.returncode == 2
    assert b"'h:port' is no HOST:PORT" in done.stderr


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("config", ["", '[default]\nbootstrap-server = "127.0.0.1:2"\n'])
def test_the_place_nearest_to_the_command_counts(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLOG_CONFIG", str(tmp_path / "typed.toml"))
    (tmp_path / "typed.toml").write_text(config)
    assert b"no ZooKeeper answers" in call_plog("consume", "t", "--zookeeper", "127.0.0.1:1").stderr
    monkeypatch.setenv("PLOG_CONFIG", str(tmp_path / "kept.toml"))
    (tmp_path / "kept.toml").write_text(f'{config}[consume]\nzookeeper = "127.0.0.1:1"\n')
    assert b"no ZooKeeper answers" in call_plog("consume", "t").stderr
    for place in (["--data-dir", str(tmp_path / "none")], ["--bootstrap-server", "127.0.0.1:3"]):
        done = call_plog("consume", "t", *place)
        assert done.returncode == 3
        assert b"ZooKeeper" not in done.stderr


def test_without_the_option_nothing_of_it_is_imported(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path)]
    assert call_plog("produce", "t", *where, stdin=b"a\n").returncode == 0
    program = (
        "import sys; from cli.main import run; run(sys.argv[1:]); "
        "print(*[name for name in sys.modules if name.startswith(('core.zookeeper', 'core.pipeline.zoo', 'kazoo'))])"
    )
    done = subprocess.run([sys.executable, "-c", program, "consume", "t", *where], capture_output=True, check=True)
    assert done.stdout.split() == [b"a"]
