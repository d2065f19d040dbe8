"""Clients of others at a test's `plog serve` with TLS and SASL, by the settings that the fixture gives for them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.security.client_security import PasswordLogin
from core.security.client_settings import parse_client_settings
from plog.testing import RunningServer, running_server
from tests.interop.clients import kcat
from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import run_plog
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", params=["ssl", "sasl_plaintext", "sasl_ssl"])
def broker(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    auth = {"ssl_client_auth": "required"} if request.param == "ssl" else {}
    with running_server(security=request.param, **auth) as server:
        yield server


@pytest.fixture
def config(broker: RunningServer, tmp_path: Path) -> str:
    return str(broker.write_client_properties(tmp_path / "client.properties"))


def ensure_hidden(broker: RunningServer, *texts: bytes) -> None:
    login = parse_client_settings(broker.client_settings).security.login
    if isinstance(login, PasswordLogin):
        assert not any(login.password.reveal().encode() in text for text in texts)


def test_confluent_kafka(broker: RunningServer) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer(broker.librdkafka_settings)
    producer.produce("by-confluent", b"one")
    assert producer.flush(FLUSH_SECONDS) == 0
    consumer = Consumer({**broker.librdkafka_settings, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["by-confluent"])
    (message,) = consumer.consume(1, ANSWER_SECONDS)
    assert message.value() == b"one"
    consumer.close()


def test_kafka_python(broker: RunningServer) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(**broker.python_settings)
    producer.send("by-kafka-python", b"one").get(FLUSH_SECONDS)
    producer.close()
    consumer = KafkaConsumer(
        "by-kafka-python", **broker.python_settings, group_id="kafka-python", auto_offset_reset="earliest"
    )
    assert next(consumer).value == b"one"
    consumer.close()


def test_aiokafka(broker: RunningServer) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run() -> None:
        async with AIOKafkaProducer(**broker.python_settings) as producer:
            await producer.send_and_wait("by-aiokafka", b"one")
        consumer = AIOKafkaConsumer(
            "by-aiokafka", **broker.python_settings, group_id="aiokafka", auto_offset_reset="earliest"
        )
        async with consumer:
            assert (await consumer.getone()).value == b"one"

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(broker: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "kcat.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in broker.librdkafka_settings.items()))
    kcat("-F", str(file), "-P", "-t", "by-kcat", stdin=b"one\ntwo\n")
    assert kcat("-F", str(file), "-C", "-t", "by-kcat", "-e", "-q") == b"one\ntwo\n"


@requires_kafka
@pytest.mark.java
def test_kafkas_own_tools(broker: RunningServer, config: str) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    done = run_tool("org.apache.kafka.tools.TopicCommand", *server, "--list", "--command-config", config)
    assert done.returncode == 0, done.stderr
    ensure_hidden(broker, done.stdout, done.stderr)


@requires_kafka
@pytest.mark.java
def test_spark_reads_and_writes_through_it(
    broker: RunningServer, config: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own connector, with each setting as an option, and by plog's, with the file."""
    theirs = {f"kafka.{name}": value for name, value in broker.client_settings.items()}
    ours = {"commandConfig": config}
    rows = spark.createDataFrame([(f"v{n}".encode(),) for n in range(20)], "value binary")
    expected = sorted(f"v{n}".encode() for n in range(20))
    for kind, options in (("kafka", theirs), ("plog", ours)):
        topic = f"by-spark-{kind}"
        broker.create_topic(topic)
        rows.write.format(kind).options(**options).option("topic", topic).mode("append").save()
        for reader, secured in (("kafka", theirs), ("plog", ours)):
            frame = spark.read.format(reader).options(**secured).option("subscribe", topic).load()
            assert sorted(bytes(row.value) for row in frame.collect()) == expected
            frame.explain(extended=True)
    ensure_hidden(broker, capsys.readouterr().out.encode())


@pytest.mark.java
@pytest.mark.parametrize("place", ["client", "owner"])
def test_a_replay_through_it(place: str, broker: RunningServer, config: str, tmp_path: Path) -> None:
    """Into Parquet and into a topic, as a client, and beside the broker; neither plans nor Spark's events show a
    secret.
    """
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    where = {"client": ("--command-config", config), "owner": ("--data-dir", str(broker.data_dir))}[place]
    login = ("--command-config", config)  # of Spark's tasks, which are nobody's owner
    source, target, out, events = f"from-{place}", f"to-{place}", tmp_path / "out", tmp_path / "events"
    for topic in (source, target):
        broker.create_topic(topic)
    for value in ("a", "b", "c"):
        broker.produce(source, value)
    events.mkdir()
    settings = ("enabled=true", "compress=false", f"dir=file://{events}")
    logged = " ".join(f"--conf spark.eventLog.{setting}" for setting in settings) + " pyspark-shell"
    for to in (f"parquet:{out}", f"topic:{target}"):
        environment = {"PYSPARK_SUBMIT_ARGS": logged}
        if place == "owner" and to.startswith("topic"):
            done = run_plog("spark-replay", source, "--to", to, *where, environment=environment)
            assert done.returncode == 2
            assert b"hint: --command-config FILE with security.protocol=" in done.stderr
            where = (*where, *login)
        done = run_plog("spark-replay", source, "--to", to, *where, environment=environment)
        assert done.returncode == 0, done.stderr.decode()
        ensure_hidden(broker, done.stdout, done.stderr)
    broker.expect(target, ["a", "b", "c"])
    logs = [path.read_bytes() for path in (*events.rglob("*"), *out.rglob("*")) if path.is_file()]
    assert any(b"SparkListenerJobEnd" in log for log in logs)
    ensure_hidden(broker, *logs)


def test_no_secret_is_among_the_arguments(broker: RunningServer) -> None:
    """`ps` shows them to everybody on the machine."""
    ensure_hidden(broker, subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True).stdout)
