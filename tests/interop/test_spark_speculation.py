"""A job that writes to a topic, on a cluster of two hosts, with a second attempt at one of its tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from core.client.admin.admin import LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_COMMITTED
from core.common.endpoint import parse_bootstrap
from core.common.topic_partition import TopicPartition
from core.spark.java_home import java_environment
from tests.support.server import Server, run_plog
from tests.support.spark.standalone import StandaloneCluster
from tests.support.topic_reader import read_topic

ROOT = Path(__file__).parents[2]


def test_a_speculative_attempt_changes_nothing_and_leaves_nothing_open(
    broker: Server, topic: str, tmp_path: Path
) -> None:
    assert run_plog("topic", "create", topic, "--bootstrap-server", broker.address).returncode == 0
    job = tmp_path / "job"
    job.mkdir()
    with StandaloneCluster(tmp_path / "cluster", workers=2, cores=1, has_hosts=True) as cluster:
        command = [sys.executable, "-m", "tests.support.spark.speculating_job", cluster.url, broker.address, topic]
        environment = {**os.environ, **java_environment(tmp_path / "java"), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run([*command, str(job)], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for path in job.rglob("events_*") for line in path.read_text().splitlines()]
    starts = [event["Task Info"] for event in events if event["Event"] == "SparkListenerTaskStart"]
    attempts = [(start["Index"], start["Host"]) for start in starts if start["Speculative"]]
    assert attempts, "Spark has started no second attempt"
    assert "/plog.zip/" in (job / "where").read_text()  # `register` has sent it
    values = [message.value() or b"" for message in read_topic(broker.address, topic)]
    committed = sorted(value.rstrip(b"-").decode() for value in values)
    assert committed == sorted(f"task{task}-{n}" for task in range(3) for n in range(10))
    assert len(read_topic(broker.address, topic, isolation="read_uncommitted")) > len(committed)
    place = {TopicPartition(topic, 0): LATEST}
    with closing(KafkaClient(parse_bootstrap(broker.address))) as client:
        assert Admin(client).list_offsets(place, isolation_level=READ_COMMITTED) == Admin(client).list_offsets(place)
