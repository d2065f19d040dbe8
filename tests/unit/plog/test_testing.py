"""A Kafka for other people's tests: `plog.testing`, its pytest fixtures, and `plog serve --ephemeral`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from plog.testing import (
    AccessError,
    KafkaError,
    RunningBroker,
    UsageError,
    running_broker,
    running_cluster,
    running_server,
)
from tests.support.for_each import for_each
from tests.support.free_ports import free_ports
from tests.support.waiting import ANSWER_SECONDS, wait_for_exit, wait_until


def work(broker: RunningBroker) -> None:
    """Produces to a topic that is made by that, and reads it in a group."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", b"one")
    assert producer.flush() == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll()
    consumer.close()
    assert message is not None
    assert message.value() == b"one"


@pytest.mark.parametrize("start", [running_broker, running_server])
def test_a_broker_for_a_test(start: type[RunningBroker]) -> None:
    with start() as broker:  # type: ignore[attr-defined]  # both give a context manager
        work(broker)
        directory = broker.data_dir
        assert (directory / "orders-0").is_dir()
    assert not directory.exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("plog-")]


def test_two_at_once(tmp_path: Path) -> None:
    with running_broker() as first, running_broker(str(tmp_path / "data"), num_partitions="3") as second:
        first.create_topic("t", 2, retention_ms="-1")
        for broker in (first, second):
            work(broker)
        assert (second.data_dir / "orders-2").is_dir()
    assert (tmp_path / "data" / "orders-2").is_dir(), "a directory of one's own stays"


def test_one_that_does_not_start(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        with pytest.raises(AccessError, match="in use"), running_broker(tmp_path):
            pass
        with pytest.raises(RuntimeError, match="in use"), running_server(tmp_path):
            pass
        with pytest.raises(KafkaError):
            broker.create_topic("..")
    with pytest.raises(KafkaError), running_broker(num_partitions="many"):
        pass


@pytest.mark.longer
def test_a_server_keeps_its_address_and_its_data() -> None:
    with running_server() as server:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "acks": "all"})
        for number, (end, begin) in enumerate(
            [(server.kill, server.start), (server.stop, server.start), (server.pause, server.resume)]
        ):
            producer.produce("t", str(number).encode())
            assert producer.flush(ANSWER_SECONDS) == 0
            end()
            producer.produce("t", b"while it was away")
            assert producer.flush(0.05) == 1
            begin()
            assert producer.flush(ANSWER_SECONDS) == 0
        server.start()  # which runs
        assert AdminClient({"bootstrap.servers": server.bootstrap_servers}).list_topics("t").topics["t"].partitions
        consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), ANSWER_SECONDS) == (0, 6)
        consumer.close()


@pytest.mark.longer
@for_each("run", [running_broker, running_server])
def test_listeners_are_where_they_should_be(run: Any) -> None:
    inside, outside = (f"127.0.0.1:{port}" for port in free_ports(2))
    listeners = f"PLAINTEXT://{inside},OUTSIDE://{outside}"
    names = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
    for _ in range(2):  # the same again after a restart
        with run(listeners=listeners, listener_security_protocol_map=names) as broker:
            assert broker.bootstrap_servers == inside
            for address in (inside, outside):
                (told,) = (
                    AdminClient({"bootstrap.servers": address}).list_topics(timeout=ANSWER_SECONDS).brokers.values()
                )
                assert f"{told.host}:{told.port}" == address
    with run(listeners="PLAINTEXT://127.0.0.1:0", node_id="7") as broker:
        (told,) = (
            AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=ANSWER_SECONDS).brokers
        )
        assert told == 7


@for_each(
    "name, value",
    [
        ("num_partition", "1"),
        ("num_io_threads", "8"),  # Kafka's alone
        ("log_preallocate", "true"),  # kept, and not acted on
        ("log_dirs", "data"),
        ("zookeeper_session_timeout_ms", "1000"),
    ],
)
def test_settings_that_would_change_nothing_are_refused(name: str, value: str) -> None:
    for run in (running_broker, running_server):
        with pytest.raises(UsageError, match=name), run(**{name: value}):
            pass


@for_each("name", ["num_partition", "log_preallocate", "log_dirs", "listeners", "node_id", "broker_rack"])
def test_settings_that_brokers_of_a_cluster_can_not_share_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name), running_cluster(**{name: "1"}):  # type: ignore[arg-type]
        pass


ONE_THAT_WAITS = """
import pathlib, time

def test_it(plog_server):
    plog_server.pause()
    pathlib.Path("pid").write_text(str(plog_server._process.pid))
    time.sleep(600)
"""


@pytest.mark.longer
@for_each("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_its_tests(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "test_it.py").write_text(ONE_THAT_WAITS)
    pid = tmp_path / "pid"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, env=environment) as tests:
        wait_until(lambda: pid.exists() and pid.read_text().isdecimal(), lambda: "the test has not begun")
        tests.send_signal(number)
        wait_for_exit(tests)
    wait_until(lambda: not is_alive(int(pid.read_text())), lambda: "plog serve goes on")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SOMEBODYS_TESTS = """
import pytest
from confluent_kafka import Producer

def write(broker):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("t", b"x")
    assert producer.flush(600) == 0

def test_in_process(plog_broker):
    write(plog_broker)

@pytest.mark.plog(num_partitions="2")
def test_as_a_process(plog_server):
    write(plog_server)
    assert (plog_server.data_dir / "t-1").is_dir()

def test_that_fails(plog_broker):
    write(plog_broker)
    assert False

@pytest.mark.plog(num_partition="2")
def test_mistyped(plog_broker):
    pass

@pytest.mark.plog("num.partitions=2")
def test_without_a_name(plog_server):
    pass
"""


@pytest.mark.longer
def test_the_pytest_fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_somebodys.py").write_text(SOMEBODYS_TESTS)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", "test_somebodys.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 2 passed, 2 errors" in done.stdout, done.stdout
    assert "plog(num_partition=..): no such setting; did you mean num_partitions?" in done.stdout
    assert "plog('num.partitions=2'): expected SETTING=VALUE, with _ for a dot" in done.stdout
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"the broker's data is kept in {kept}/data" in done.stdout
    assert (kept / "data" / "t-0").is_dir()
