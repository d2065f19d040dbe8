"""Kafka Connect on `plog serve`: its file connectors, standalone and as a group of workers; and the verifiable clients
that Kafka's own system tests are made of.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import waiting
from tests.support.free_ports import free_ports
from tests.support.oracle import KAFKA43_VERSION, java_command, requires_kafka, requires_kafka43, run_tool
from tests.support.server import Server, call_plog

pytestmark = [requires_kafka, requires_kafka43, pytest.mark.java]

LINES = [f"line {number}" for number in range(500)]
"""Once in a hundred times a worker is never done: `RestServer.stop` waits for threads of Jetty's, which idle on."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = ["--set", "group.initial.rebalance.delay.ms=0", "--set", "offsets.topic.num.partitions=2"]
    with Server(tmp_path / "data", *settings) as server:
        yield server


_PATIENCE_S = 15
"""How many of the machine's seconds Connect may take to stop."""


@contextmanager
def running(log: Path, main_class: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            java_command(main_class, *arguments, version=KAFKA43_VERSION), stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        process.terminate()  # it commits its offsets
        deadline = waiting.machine_seconds() + _PATIENCE_S
        while process.poll() is None and waiting.machine_seconds() < deadline:
            time.sleep(0.1)
        process.kill()
        process.wait()


def wait_until(is_there: Callable[[], Any], what: str, log: Path) -> None:
    waiting.wait_until(is_there, lambda: f"{what}: {log.read_text()[-3000:]}")


def worker_properties(path: Path, address: str, **settings: object) -> str:
    common = {
        "bootstrap.servers": address,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": 500,
        "plugin.discovery": "only_scan",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in common.items()))
    return str(path)


def source(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(file), "topic": topic}


def sink(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSink", "tasks.max": "2", "file": str(file), "topics": topic}


def lines_of(file: Path) -> list[str]:
    return sorted(file.read_text().splitlines()) if file.exists() else []


def test_files_through_a_topic_and_back(server: Server, tmp_path: Path) -> None:
    given, got, log = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "connect.log"
    given.write_text("".join(f"{line}\n" for line in LINES))
    worker = worker_properties(
        tmp_path / "worker.properties", server.address, listeners="HTTP://127.0.0.1:0",
        offset_storage_file_filename=tmp_path / "offsets",
    )  # fmt: skip
    connectors = []
    for name, settings in (("in", source(given, "lines")), ("out", sink(got, "lines"))):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"name": name, "config": settings}))
        connectors.append(str(path))
    with running(log, "org.apache.kafka.connect.cli.ConnectStandalone", worker, *connectors):
        wait_until(lambda: lines_of(got) == sorted(LINES), "the lines in the sink's file", log)
    consumed = call_plog("consume", "lines", "--bootstrap-server", server.address).stdout.decode().splitlines()
    assert consumed == LINES
    committed = call_plog("group", "describe", "connect-out", "--output", "json", "--bootstrap-server", server.address)
    assert [row["lag"] for row in json.loads(committed.stdout)] == [0]


def test_dead_letters_of_a_sink_go_back(server: Server, tmp_path: Path) -> None:
    """What its JSON converter could not read comes back as it was, with `plog redrive`."""
    where = ("--bootstrap-server", server.address)
    for topic in ("orders", "dlq"):
        assert call_plog("topic", "create", topic, *where).returncode == 0
    lines = b'k1:{"a":1}\nk2:no json\n'
    assert call_plog("produce", "orders", "-K", ":", "-H", "own=x", *where, stdin=lines).returncode == 0
    log, config = tmp_path / "connect.log", tmp_path / "out.json"
    worker = worker_properties(
        tmp_path / "worker.properties", server.address, listeners="HTTP://127.0.0.1:0",
        offset_storage_file_filename=tmp_path / "offsets",
    )  # fmt: skip
    settings = {
        **sink(tmp_path / "out.txt", "orders"),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    config.write_text(json.dumps({"name": "out", "config": settings}))
    with running(log, "org.apache.kafka.connect.cli.ConnectStandalone", worker, str(config)):
        wait_until(lambda: call_plog("consume", "dlq", *where).stdout == b"no json\n", "the dead letter", log)
    done = call_plog("redrive", "dlq", "--each", "--output", "csv", *where)
    assert (done.returncode, done.stderr) == (0, b"1 record sent back\n")
    row = "orders,dlq-0@0,orders,0,1,0,org.apache.kafka.connect.errors.DataException,"
    assert done.stdout.decode().splitlines()[1:] == [row]
    consumed = call_plog("consume", "orders", "--from", "2", "--format", r"%k %s %h\n", *where).stdout
    assert consumed == b"k2 no json own=x,plog.redrive.tries=1,plog.redrive.from=dlq-0@0\n"


class Worker:
    """Of a distributed Connect."""

    def __init__(self, folder: Path, address: str) -> None:
        port, _ = free_ports()
        self._url = f"http://127.0.0.1:{port}"
        self.log = folder / f"worker-{port}.log"
        storage = {
            f"{name}_storage_{key}": value
            for name in ("config", "offset", "status")
            for key, value in (("topic", f"connect-{name}"), ("replication_factor", 1))
        }
        self.properties = worker_properties(
            folder / f"worker-{port}.properties", address, group_id="workers", listeners=f"HTTP://127.0.0.1:{port}",
            scheduled_rebalance_max_delay_ms=0, offset_storage_partitions=2, status_storage_partitions=2, **storage,
        )  # fmt: skip

    def running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return running(self.log, "org.apache.kafka.connect.cli.ConnectDistributed", self.properties)

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """None where it is not ready yet."""
        request = urllib.request.Request(
            f"{self._url}{path}", None if body is None else json.dumps(body).encode(), method=method,
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request) as response:
                return json.loads(response.read() or "null")
        except (OSError, ValueError):
            return None

    def workers_of_tasks(self, connector: str) -> list[str]:
        status = self.ask(f"/connectors/{connector}/status") or {"tasks": []}
        return [task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"]


def test_workers_share_tasks(server: Server, tmp_path: Path) -> None:
    """Connect's own group protocol: two workers divide a connector's tasks, and the one that is left takes all."""
    call_plog("topic", "create", "lines", "--partitions", "2", "--bootstrap-server", server.address)
    got = tmp_path / "out.txt"
    first, second = Worker(tmp_path, server.address), Worker(tmp_path, server.address)

    def workers() -> list[str]:
        """Those that run a task, by task."""
        return first.workers_of_tasks("out")

    with first.running():
        wait_until(lambda: first.ask("/connectors") == [], "the first worker", first.log)
        wait_until(lambda: first.ask("/connectors/out/config", "PUT", sink(got, "lines")), "the connector", first.log)
        wait_until(lambda: len(workers()) == 2, "two tasks", first.log)
        assert len(set(workers())) == 1
        with second.running():
            wait_until(lambda: len(set(workers())) == 2, "tasks on both workers", second.log)
            text = "".join(f"{line}\n" for line in LINES)
            call_plog("produce", "lines", "--bootstrap-server", server.address, stdin=text.encode())
            wait_until(lambda: lines_of(got) == sorted(LINES), "the lines in the sinks' file", second.log)
        wait_until(
            lambda: len(tasks := workers()) == 2 and len(set(tasks)) == 1, "all tasks on the worker left", first.log
        )


def events(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_clients(server: Server, protocol: str) -> None:
    call_plog("topic", "create", "v", "--partitions", "2", "--bootstrap-server", server.address)
    where = ["--bootstrap-server", server.address, "--topic", "v"]
    produced = run_tool("org.apache.kafka.tools.VerifiableProducer", *where, "--max-messages", "1000", "--acks", "-1")
    assert produced.returncode == 0, produced.stderr
    told = events(produced.stdout)
    assert told[-1]["name"] == "tool_data"
    assert (told[-1]["sent"], told[-1]["acked"]) == (1000, 1000)
    written = {(e["partition"], e["offset"]): e["value"] for e in told if e["name"] == "producer_send_success"}
    assert len(written) == 1000
    options = ["--group-id", "g", "--group-protocol", protocol, "--max-messages", "1000", "--verbose"]
    consumed = run_tool("org.apache.kafka.tools.VerifiableConsumer", *where, *options, "--reset-policy", "earliest")
    assert consumed.returncode == 0, consumed.stderr
    told = events(consumed.stdout)
    read = {(e["partition"], e["offset"]): e["value"] for e in told if e["name"] == "record_data"}
    assert read == written
    commits = [e for e in told if e["name"] == "offsets_committed"]
    assert commits
    assert all(e["success"] for e in commits)
    last = {p["partition"]: p["offset"] for commit in commits for p in commit["offsets"]}
    assert sum(last.values()) == 1000
