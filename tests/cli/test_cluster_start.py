"""`plog cluster start`: a whole cluster, stopped, killed and started again, and what keeps it from starting."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from core.files.directory_lock import DirectoryLock
from core.processes.local_cluster import ClusterOptions, LocalCluster
from tests.support.for_each import for_each
from tests.support.free_ports import free_ports
from tests.support.processes import children_of, is_running, name_of
from tests.support.server import PLOG, call_plog
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS, wait_for_exit, wait_until
from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper

pytestmark = pytest.mark.longer


class Started:
    """The process, and what it printed until it was ready."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        command = [PLOG, "cluster", "start", "--data-dir", directory, *arguments]
        self.directory = directory
        self.stderr = directory.with_name("stderr")
        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        self.brokers: dict[int, str] = {}
        self.pids: dict[int, int] = {}
        for line in self.process.stdout:
            found = re.fullmatch(rf"broker (\d) (\S+) pid (\d+) log {re.escape(str(directory))}/broker-\1\.log\n", line)
            if found is None:
                break
            self.brokers[int(found[1])], self.pids[int(found[1])] = found[2], int(found[3])
        log = f"{re.escape(str(directory))}/zookeeper/zookeeper.log"
        zookeeper = re.fullmatch(rf"zookeeper (\S+) pid (\d+) log {log}\n", line)
        assert zookeeper, (line, self.said())
        self.zookeeper, self.zookeeper_pid = zookeeper[1], int(zookeeper[2])
        self.servers = ",".join(self.brokers.values())
        its_own = f"pid {self.process.pid} data {directory} zookeeper {self.zookeeper}"
        assert self.process.stdout.readline() == f"ready {self.servers} {its_own}\n"

    def said(self) -> str:
        return self.stderr.read_text()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return wait_for_exit(self.process)


@contextmanager
def started(directory: Path, *arguments: str) -> Iterator[Started]:
    """Whatever happens, nothing of it is left."""
    one = Started(directory, *arguments)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def processes_of(directory: Path) -> list[int]:
    """Those whose command names the directory, or that hold its lock: the guard, which has no name, among them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def produce(servers: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    producer.produce("t", value)
    assert producer.flush(FLUSH_SECONDS) == 0


def finalized(servers: str) -> dict[str, int]:
    shown = call_plog("cluster", "features", "--bootstrap-server", servers.split(",")[-1], "--output", "json")
    return {row["feature"]: row["finalized"] for row in json.loads(shown.stdout)}


def settings_of(servers: str, broker: int) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    admin = AdminClient({"bootstrap.servers": servers})
    (asked,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in asked.result(ANSWER_SECONDS).items()}


def assert_same_settings(cluster: Started, arguments: list[str]) -> None:
    """Starts broker 2 by these arguments, and compares it with broker 1, which still has what it was started with."""
    own = {"node.id", "broker.id", "broker.rack", "listeners", "advertised.listeners", "log.dirs", "log.dir"}
    ready = cluster.directory.with_name("ready-again")
    command = [PLOG, "serve", "--node-id", "2", *arguments, "--ready-file", ready]
    with cluster.directory.with_name("by-hand").open("wb") as output:
        again = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(ready.exists, "it is there again")
        of_one, of_two = settings_of(cluster.brokers[1], 1), settings_of(cluster.brokers[2], 2)
        assert of_one["default.replication.factor"] == "2"
        assert {k: v for k, v in of_one.items() if k not in own} == {k: v for k, v in of_two.items() if k not in own}
        assert of_two["broker.rack"] == "b"
    finally:
        again.kill()
        again.wait()


def consume(servers: str, count: int, protocol: str = "consumer") -> list[bytes | None]:
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**settings, "group.id": f"of-{protocol}", "group.protocol": protocol})
    consumer.subscribe(["t"])
    found = [message.value() for _ in range(count) if (message := consumer.poll(ANSWER_SECONDS)) is not None]
    consumer.close()
    return found


@requires_zookeeper
@pytest.mark.java
def test_a_cluster_lives_dies_and_lives_again(tmp_path: Path) -> None:
    directory, ready_file = tmp_path / "a cluster ü", tmp_path / "ready"
    options = ["--brokers", "2", "--listen", "127.0.0.1:0", "--ready-file", str(ready_file)]
    with started(directory, *options, "--rack", "a,b", "--set", "num.partitions=1", "--verbose") as first:
        assert ready_file.read_text() == f"{first.servers}\n"
        assert list(first.brokers) == [1, 2]
        assert f"the logs are in {directory}: broker-1.log broker-2.log zookeeper/zookeeper.log" in first.said()
        create = r"hint: plog topic create \S+ --partitions 3 --replication-factor 2 --bootstrap-server"
        wait_until(lambda: re.search(create, first.said()), "it says what to type next")
        wait_until(lambda: f"hint: Ctrl-C, or kill {first.process.pid}, stops the cluster\n" in first.said())
        produce(first.servers, b"one")
        assert consume(first.servers, 1) == [b"one"]
        lower = ("--downgrade", "transaction.version=1", "--bootstrap-server", first.servers.split(",")[0])
        assert call_plog("cluster", "features", *lower).returncode == 0
        topics = AdminClient({"bootstrap.servers": first.servers}).list_topics(timeout=ANSWER_SECONDS).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 1, "__consumer_offsets": 4}
        assert all(len(one.replicas) == 2 for topic in topics.values() for one in topic.partitions.values())
        by_directory = call_plog("topic", "list", "--data-dir", str(directory), "--output", "json")
        assert [row["topic"] for row in json.loads(by_directory.stdout)] == ["t"], by_directory
        wait_until(lambda: "broker 2 | " in first.said(), "what it logs is shown")

        again = call_plog("cluster", "start", "--data-dir", str(directory))
        assert again.returncode == 3
        assert f"in use by process {first.process.pid}, listening on {first.servers}\n" in again.stderr.decode()
        assert b"hint: that cluster runs: use it, stop it, or take another --data-dir\n" in again.stderr

        os.kill(first.pids[2], signal.SIGKILL)
        wait_until(lambda: "error: broker 2 was killed (signal 9); the others go on\n" in first.said())
        again_by_hand = f"hint: {directory}/broker-2.log says more; plog serve --node-id 2 "
        wait_until(lambda: again_by_hand in first.said(), "and how it is started again")
        hint = first.said().partition(again_by_hand)[2].partition(" starts it again\n")[0]
        assert_same_settings(first, shlex.split(hint))
        os.kill(first.pids[1], signal.SIGSTOP)
        children = children_of(first.process.pid)
        assert len(children) == 3  # the guard, ZooKeeper, broker 1
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: not any(map(is_running, children)) and not processes_of(directory), "nothing is left")

    fewer = call_plog("cluster", "start", "--data-dir", str(directory), "--brokers", "1")
    assert fewer.returncode == 2
    assert b"has 2 brokers, and 1 of them would not have all its records\n" in fewer.stderr

    with started(directory, "--feature", "none") as second:
        assert "note: the cluster is there already, and keeps its features: plog cluster features" in second.said()
        assert finalized(second.servers) == {"group.version": 1, "transaction.version": 1}
        assert second.brokers == first.brokers
        lives = re.findall(r"ready \S+ data .* replicas (\d+) pid", (directory / "broker-1.log").read_text())
        assert lives == ["0", "5"], "it knows what it has before it hears of it"
        assert second.zookeeper == first.zookeeper
        produce(second.servers, b"two")
        assert consume(second.servers, 1) == [b"two"], "the group is remembered, too"
        assert name_of(second.zookeeper_pid) == "java"
        with (directory / "zookeeper" / "zookeeper.log").open("a") as log:
            log.write("2026-01-01T00:00:00,000 ERROR Error closing a command socket (ServerCnxn)\n")  # it lives on then
        os.kill(second.zookeeper_pid, signal.SIGKILL)
        wait_until(lambda: "error: ZooKeeper was killed (signal 9); the others go on\n" in second.said())
        hint = r"without it; plog (zookeeper start .*) starts it again\n"
        wait_until(lambda: re.search(hint, second.said()), "and how it is started again")
        (again_by_hand,) = re.findall(hint, second.said())
        settings = directory / "zookeeper" / "zookeeper.properties"
        before = settings.read_text()
        with subprocess.Popen([PLOG, *shlex.split(again_by_hand)], stdout=subprocess.PIPE, text=True) as by_hand:
            try:
                assert by_hand.stdout is not None
                assert by_hand.stdout.readline().startswith(f"ready {second.zookeeper} ")
                create = ("topic", "create", "new", "--partitions", "4", "--bootstrap-server", second.brokers[2])
                wait_until(
                    lambda: call_plog(*create).returncode == 0, "the controller has a session again, and decides"
                )
                assert settings.read_text() == before
            finally:
                by_hand.kill()
        os.kill(second.pids[1], signal.SIGTERM)
        ended = "error: broker 1 has ended with exit code 0; the others go on\n"
        wait_until(lambda: ended in second.said(), "although nobody takes over what it leads")
        assert second.end(signal.SIGINT) == 3, "because two had died"
        assert "did not stop in time" not in second.said(), "although ZooKeeper can't take its resignation"
        assert not processes_of(directory)
    assert sorted(path.name for path in directory.iterdir()) == [
        ".lock", "broker-1", "broker-1.log", "broker-2", "broker-2.log", "cluster.properties", "zookeeper",
    ]  # fmt: skip


@requires_zookeeper
@pytest.mark.java
def test_a_temporary_one_is_gone_when_it_is_stopped(tmp_path: Path) -> None:
    """It has finalized no feature, as it was told."""
    command = [PLOG, "cluster", "start", "--brokers", "1", "--listen", "127.0.0.1:0", "--feature", "none"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as one:
        assert one.stdout is not None
        assert one.stdout.readline().startswith("broker 1 ")
        assert one.stdout.readline().startswith("zookeeper ")
        servers = one.stdout.readline().split()[1]
        assert finalized(servers) == {"group.version": 0, "transaction.version": 0}
        (folder,) = tmp_path.iterdir()
        children = children_of(one.pid)
        one.send_signal(signal.SIGTERM)
        assert wait_for_exit(one) == 0
        assert one.stderr is not None
        assert "that directory is deleted at the end, with all records; --data-dir keeps them" in one.stderr.read()
    assert not list(tmp_path.iterdir())
    assert not any(map(is_running, children))
    assert not processes_of(folder)


def stop_twice_before_it_is_ready(folder: Path, *arguments: str | Path) -> str:
    """Stops the command by two signals while its ZooKeeper, which is paused, ends for none; gives what it said."""
    command = [PLOG, "cluster", "start", "--brokers", "2", *arguments]
    said, environment = folder / "said", {**os.environ, "TMPDIR": str(folder)}
    with said.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment)
    try:
        wait_until(lambda: list(folder.glob("*/zookeeper/zookeeper.log")), "ZooKeeper begins")
        (java,) = [n for n in children_of(process.pid) if name_of(n) == "java"]
        os.kill(java, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping the cluster .." in said.read_text(), "it stops")
        process.send_signal(signal.SIGINT)
        assert wait_for_exit(process) == 128 + signal.SIGINT
        wait_until(lambda: not is_running(java))
    finally:
        process.kill()
        process.wait()
    return said.read_text()


@requires_zookeeper
@pytest.mark.java
def test_a_temporary_one_is_gone_although_its_stop_was_cut_short(tmp_path: Path) -> None:
    assert "ready" not in stop_twice_before_it_is_ready(tmp_path, "--listen", "127.0.0.1:0")
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


@requires_zookeeper
@pytest.mark.java
def test_its_ports_are_remembered_although_it_was_never_ready(tmp_path: Path) -> None:
    """None of the brokers has any records yet: so the next start may have fewer of them."""
    first, second = sorted(free_ports(2))
    listen = f"127.0.0.1:{first},127.0.0.1:{second}"
    stop_twice_before_it_is_ready(tmp_path, "--data-dir", tmp_path / "c", "--listen", listen)
    with LocalCluster(tmp_path / "c", ClusterOptions()) as cluster:
        assert cluster.bootstrap_servers == listen
    with LocalCluster(tmp_path / "c", ClusterOptions(brokers=1)) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{first}"


@requires_zookeeper
@pytest.mark.java
def test_a_broker_that_refuses_is_named_with_its_reason(tmp_path: Path) -> None:
    """Here because its directory is another's."""
    (tmp_path / "c" / "broker-1").mkdir(parents=True)
    (tmp_path / "c" / "broker-1" / "meta.properties").write_text("version=0\nbroker.id=7\n")
    options = ["--brokers", "1", "--listen", "127.0.0.1:0"]
    refused = call_plog("cluster", "start", "--data-dir", str(tmp_path / "c"), *options)
    assert refused.returncode == 3
    said = refused.stderr.decode()
    assert re.search("error: broker 1 has ended with exit code 3: .*7", said), said
    assert f"hint: {tmp_path}/c/broker-1.log says more\n" in said
    assert not processes_of(tmp_path / "c")


@requires_zookeeper
@pytest.mark.java
def test_a_new_cluster_gets_its_path_in_somebodys_zookeeper(tmp_path: Path) -> None:
    """A path that is mistyped later would be another cluster, without any topics: it is not made."""
    command = [PLOG, "cluster", "start", "--data-dir", tmp_path / "c", "--brokers", "1", "--listen", "127.0.0.1:0"]
    with ZooKeeperServer(tmp_path / "z") as zookeeper:
        begins = [*command, "--zookeeper", f"{zookeeper.address}/my/own"]
        with subprocess.Popen(begins, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
            try:
                assert one.stdout is not None
                assert one.stdout.readline().startswith("broker 1 ")
                assert one.stdout.readline().endswith(f" zookeeper {zookeeper.address}/my/own\n")
            finally:
                one.send_signal(signal.SIGTERM)
            assert wait_for_exit(one) == 0
            assert one.stderr is not None
            assert "note: ZooKeeper had no node /my/own: it is made for the new cluster\n" in one.stderr.read()
        mistyped = call_plog("cluster", *map(str, command[2:]), "--zookeeper", f"{zookeeper.address}/my/onw")
        assert mistyped.returncode == 3
        assert f"ZooKeeper at {zookeeper.address} has no node /my/onw\n" in mistyped.stderr.decode()
        alone = ["--node-id", "9", "--data-dir", str(tmp_path / "b9"), "--listen", "127.0.0.1:0"]
        cut_off = call_plog("serve", "--zookeeper", f"{zookeeper.address}/my", *alone)
        assert cut_off.returncode == 2
        assert "hint: is the path after the address right? --new-cluster begins a cluster" in cut_off.stderr.decode()
        assert not (tmp_path / "b9").exists()


# --- what is refused before anything starts


def refusal(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    done = call_plog("cluster", "start", "--data-dir", str(tmp_path / "c"), *arguments)
    assert not done.stdout
    assert not list((tmp_path / "c").glob("[a-z]*"))
    return done.returncode, done.stderr.decode()


@requires_zookeeper
@for_each(
    "arguments, said",
    [
        (["--brokers", "0"], "0 is not in the range"),
        (["--brokers", "17"], "17 is not in the range"),
        (["--listen", "nowhere:x"], "is no HOST:PORT"),
        (
            ["--brokers", "3", "--listen", "127.0.0.1:1,127.0.0.1:2"],
            "there are 3 brokers, and --listen has 2 addresses",
        ),
        (["--brokers", "2", "--listen", "127.0.0.1:{0},127.0.0.1:{0}"], "names 127.0.0.1:{0} twice"),
        (["--listen", "127.0.0.1:65535"], "need ports up to 65537, and 65535 is the last one"),
        (["--rack", "a,,b"], "a rack without a name"),
        (["--rack", "a,b,c,d"], "there are 4 racks for 3 brokers"),
        (["--set", "node.id=4"], "--set node.id: each broker has its own"),
        (["--set", "listeners"], "expected KEY=VALUE"),
        (["--zookeeper", "zk:1//x"], "is no chroot"),
        (["--feature", "group.version=2"], "expected none, or FEATURE=LEVEL of group.version 0 to 1, transaction"),
        (["--release-version", "3.9"], "did you mean --feature FEATURE=LEVEL, or --feature none?"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, arguments: list[str], said: str) -> None:
    (port,) = free_ports(1)
    code, text = refusal(tmp_path, *(one.format(port) for one in arguments))
    assert said.format(port) in text
    assert code == 2


@requires_zookeeper
def test_settings_that_are_none(tmp_path: Path) -> None:
    code, said = refusal(tmp_path, "--set", "num.partitoins=3", "--rack", "a,b,c,d")
    assert "warning: num.partitoins is not known to plog and changes nothing\nhint: " in said
    code, said = refusal(tmp_path, "--set", "num.partitions=x")
    assert (code, "num.partitions" in said) == (1, True)


@requires_zookeeper
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        code, said = refusal(tmp_path, "--brokers", "1", "--listen", taken)
    assert code == 3
    assert f"could not listen on {taken}: address already in use" in said


@requires_zookeeper
def test_its_zookeeper_runs_already_by_hand(tmp_path: Path) -> None:
    """It is found before ports are chosen: that of the ZooKeeper is taken for this reason."""
    (tmp_path / "c" / "zookeeper").mkdir(parents=True)
    lock = DirectoryLock(tmp_path / "c" / "zookeeper")
    lock.acquire()
    refused = call_plog("cluster", "start", "--data-dir", str(tmp_path / "c"))
    lock.release()
    assert refused.returncode == 3
    assert refused.stderr.decode() == (
        f"error: ZooKeeper's directory {tmp_path}/c/zookeeper is in use by process {os.getpid()}\n"
        "hint: somebody has started this ZooKeeper by hand: stop it, and the cluster starts it again\n"
    )


def test_without_an_extra_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.processes import local_cluster, zookeeper_process

    monkeypatch.setattr(local_cluster, "find_spec", lambda _name: None)
    code, said = refusal(tmp_path)
    assert (code, "pip install 'plog-kafka[cluster,spark]'" in said) == (3, True)
    assert not (tmp_path / "c").exists()
    monkeypatch.undo()
    monkeypatch.setattr(zookeeper_process, "find_spec", lambda _name: None)
    code, said = refusal(tmp_path)
    assert code == 3
    assert "error: ZooKeeper comes with PySpark, which is not installed\n" in said
