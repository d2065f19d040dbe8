"""The directory of `plog cluster start`, of which nobody serves the brokers just now: every command that takes the
directory of one broker refuses it, and changes nothing in it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core.broker.broker_server import BrokerServer
from core.broker.config.broker_config import BrokerConfig
from core.common.endpoint import Endpoint
from core.common.errors import DirectoryLockedError
from core.processes.local_cluster import ClusterAddresses, ClusterDirectory
from tests.cli.conftest import ok
from tests.support.all_commands import all_commands
from tests.support.for_each import for_each
from tests.support.server import call_plog
from tests.support.zookeeper_server import requires_zookeeper

ITS_OWN = {"cluster start": "it is for this directory"}
WITHOUT_DIRECTORY = {"cert dev", "cert show", "help"}
LINES = [
    "serve --listen 127.0.0.1:0 --data-dir DIR",
    "serve --listen 127.0.0.1:0 --read-only --data-dir DIR",
    "serve --listen 127.0.0.1:0 --zookeeper 127.0.0.1:1 --node-id 1 --data-dir DIR",
    "topic create t --data-dir DIR",
    "topic list --data-dir DIR",
    "topic describe broker --data-dir DIR",
    "topic alter broker --partitions 9 --data-dir DIR",
    "topic delete-records broker --before now --data-dir DIR",
    "topic delete broker --data-dir DIR",
    "produce broker --data-dir DIR",
    "consume broker --data-dir DIR",
    "group list --data-dir DIR",
    "group describe g --data-dir DIR",
    "group reset-offsets g --topic broker --to-earliest --apply --data-dir DIR",
    "group delete g --data-dir DIR",
    "group delete-offsets g --topic broker --data-dir DIR",
    "group remove-members g --all --data-dir DIR",
    "redrive broker --data-dir DIR",
    "transaction list --data-dir DIR",
    "transaction describe x --data-dir DIR",
    "transaction find-hanging --data-dir DIR",
    "transaction abort x --data-dir DIR",
    "config list topic --data-dir DIR",
    "config describe topic broker --data-dir DIR",
    "config diff topic broker other --data-dir DIR",
    "config alter topic broker --set retention.ms=1 --data-dir DIR",
    "acl list --data-dir DIR",
    "acl add --allow-principal User:a --topic broker --data-dir DIR",
    "acl remove --topic broker --yes --data-dir DIR",
    "acl export --data-dir DIR",
    "acl import /dev/null --data-dir DIR",
    "acl explain --principal User:a --operation Read --topic broker --data-dir DIR",
    "user list --data-dir DIR",
    "user create alice --password-stdin --data-dir DIR",
    "user delete alice --data-dir DIR",
    "dump-segment DIR",
    "inspect --web DIR",
    "inspect --web --data-dir DIR",
    "doctor DIR",
    "verify DIR",
    "verify --deep DIR",
    "compact DIR",
    "compact --apply DIR",
    "recover DIR",
    "recover --apply DIR",
    "recover --undo DIR",
    "stats DIR",
    "stats broker --data-dir DIR",
    "gaps DIR",
    "gaps broker --data-dir DIR",
    "trace DIR@0",
    "trace broker@0 --data-dir DIR",
    "cluster status --data-dir DIR",
    "cluster brokers --data-dir DIR",
    "cluster topics --data-dir DIR",
    "cluster describe broker-1 --data-dir DIR",
    "cluster controller --data-dir DIR",
    "cluster features --data-dir DIR",
    "cluster elect --preferred --data-dir DIR",
    "cluster reassign --status --data-dir DIR",
    "cluster forget-replica 1 --data-dir DIR",
    "cluster drain 1 --data-dir DIR",
    "cluster check --data-dir DIR",
    "zookeeper start --listen 127.0.0.1:0 --data-dir DIR",
    "perf produce t --data-dir DIR",
    "perf consume broker --data-dir DIR",
    "perf latency t --data-dir DIR",
    "spark-replay broker --to topic:t --data-dir DIR",
    "diff DIR DIR",
]
FINDS_NO_SEGMENTS = {"diff DIR DIR"}
"""It wants a partition's folder, and takes no data directory at all."""

NEED_SPARK = [line for line in LINES if line.startswith(("spark-replay", "zookeeper"))]
"""They look for PySpark first, with which ZooKeeper comes."""


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """What a start leaves: two brokers, of which the first has a topic, and their logs."""
    directory = tmp_path / "c 1"
    for name in ("broker-1", "broker-2"):
        ok("topic", "create", "letters", "--data-dir", str(directory / name))
        (directory / f"{name}.log").write_text("what it has printed\n")
    (directory / "zookeeper").mkdir()
    (directory / ".lock").touch()
    ClusterDirectory(directory).write(ClusterAddresses((Endpoint("127.0.0.1", 9092), Endpoint("127.0.0.1", 9093))))
    return directory


def state_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(directory.rglob("*"))
    }


def test_no_command_is_forgotten() -> None:
    known = set(all_commands()) - WITHOUT_DIRECTORY - set(ITS_OWN)
    assert {name for name in known if any(f"{line} ".startswith(f"{name} ") for line in LINES)} == known


@for_each("line", [line for line in LINES if line not in NEED_SPARK])
def test_it_is_no_data_directory(line: str, stopped: Path) -> None:
    refuse(line, stopped)


@requires_zookeeper
@pytest.mark.longer
@for_each("line", NEED_SPARK)
def test_nor_is_it_one_for_spark_or_zookeeper(line: str, stopped: Path) -> None:
    refuse(line, stopped)


def refuse(line: str, stopped: Path) -> None:
    before = state_of(stopped)
    done = call_plog(*(word.replace("DIR", str(stopped)) for word in line.split()), stdin=b"a\n")
    said = done.stderr.decode()
    if line in FINDS_NO_SEGMENTS:
        assert (done.returncode, f"error: no segments in {stopped}\n" in said) == (3, True)
    else:
        assert f"error: {stopped} is the directory of a whole cluster, not of one broker\n" in said
        hint = f"plog cluster start --data-dir '{stopped}' serves it; one broker's logs are in '{stopped}/broker-1'\n"
        assert f"hint: {hint}" in said
        assert done.returncode == 2
    assert not done.stdout
    assert state_of(stopped) == before


def test_its_brokers_directories_are_read_as_ever(stopped: Path) -> None:
    assert b"letters" in ok("topic", "list", "--data-dir", str(stopped / "broker-1"))
    ok("verify", str(stopped / "broker-1"), str(stopped / "broker-1" / "letters-0"))


def test_a_cluster_that_was_taken_for_a_broker_is_one_still(stopped: Path) -> None:
    """As earlier versions left it after `plog produce --data-dir`."""
    (stopped / "meta.properties").write_text("version=1\n")
    ClusterDirectory(stopped).acquire()
    refused = call_plog("topic", "list", "--data-dir", str(stopped))
    assert b"is the directory of a whole cluster" in refused.stderr


_HOLD = """
import sys
from pathlib import Path
from core.files.directory_lock import DirectoryLock
DirectoryLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.longer
def test_a_cluster_that_is_starting_is_waited_for(stopped: Path) -> None:
    """Whoever was started beside it talks to it as soon as it says where."""
    command = [sys.executable, "-c", _HOLD, str(stopped)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starting:
        assert starting.stdout is not None
        assert starting.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLockedError, match="in use by process"):
            BrokerServer(stopped, BrokerConfig(), lock_timeout_s=0.1)
        starting.kill()
