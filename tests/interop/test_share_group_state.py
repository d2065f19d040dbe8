"""A real share group's state, as a real Kafka wrote it: decoded as Kafka's own tool decodes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka_server import KafkaServer
from tests.support.oracle import java_command, requires_kafka, run_tool
from tests.support.server import call_plog
from tests.support.waiting import FLUSH_SECONDS

pytestmark = [requires_kafka, pytest.mark.java]


def work(address: str) -> None:
    """Ten records, read and acknowledged by a share group."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("shared", 2, 1)])["shared"].result()
    producer = Producer({"bootstrap.servers": address})
    for number in range(10):
        producer.produce("shared", b"%d" % number, key=b"k%d" % number)
    assert producer.flush(FLUSH_SECONDS) == 0
    configs = ["--bootstrap-server", address, "--alter", "--entity-type", "groups", "--entity-name", "sharers",
               "--add-config", "share.auto.offset.reset=earliest"]  # fmt: skip
    assert run_tool("org.apache.kafka.tools.ConfigCommand", *configs).returncode == 0
    command = java_command(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", address, "--topic", "shared",
        "--group", "sharers", "--max-messages", "10", "--timeout-ms", "120000",
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, check=False)
    assert sorted(done.stdout.split()) == [b"%d" % number for number in range(10)], done.stderr


def test_share_group_state_is_decoded_as_kafka_decodes_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    kafka = KafkaServer(data_dir)
    kafka.format()
    with kafka:
        work(kafka.address)
    logs = [log for log in sorted(data_dir.glob("__share_group_state-*/*.log")) if log.stat().st_size]
    assert logs
    for log in logs:
        theirs = run_tool("org.apache.kafka.tools.DumpLogSegments", "--share-group-state-decoder", "--files", str(log))
        ours = call_plog("dump-segment", str(log), "--print-data-log", "--format", "kafka")
        assert ours.stdout == theirs.stdout
        assert b'"snapshotEpoch":' in ours.stdout
    for log in sorted(data_dir.glob("__consumer_offsets-*/*.log")):
        if log.stat().st_size:  # the group's own records
            theirs = run_tool("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(log))
            ours = call_plog("dump-segment", str(log), "--print-data-log", "--format", "kafka")
            assert ours.stdout == theirs.stdout
    assert call_plog("verify", str(data_dir), "--deep").returncode == 0
