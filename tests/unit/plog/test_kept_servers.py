"""Servers of tests keep their addresses and data through a restart, and their settings; none outlives its tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from plog.testing import UsageError, running_broker, running_cluster, running_server
from tests.support.for_each import for_each
from tests.support.free_ports import free_ports
from tests.support.waiting import ANSWER_SECONDS, wait_for_exit, wait_until


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
