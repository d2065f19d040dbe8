"""Strangers' clients through plog's locked doors: what other modules do with each client at an open broker, done here
over TLS, with a password or with a certificate.

The longer tier has each client come in by one way or two; `scripts/torture --doors-clients` has each by each way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.interop import (
    test_acls,
    test_admin_tools,
    test_groups,
    test_java_clients,
    test_kcat,
    test_other_languages,
    test_python_clients,
    test_transactions,
)
from tests.interop.clients import CONSUMERS, PRODUCERS, RECORDS, requires_kcat
from tests.support.kafka_tools import KafkaTools
from tests.support.oracle import requires_kafka
from tests.support.secured_plog import MECHANISMS, MTLS, SecuredPlog
from tests.support.server import call_plog
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS, wait_until
from tests.support.ways_in import WAYS, librdkafka, plog_options, spark_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = (*MECHANISMS, MTLS)
EVERYTHING = os.environ.get("PLOG_DOORS_CLIENTS") == "all"
SCRAM = "SCRAM-SHA-512"


def by(*chosen: str) -> pytest.MarkDecorator:
    """The ways that the longer tier takes."""
    return pytest.mark.parametrize("server", ALL if EVERYTHING else chosen, indirect=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPlog]:
    with SecuredPlog(tmp_path_factory.mktemp("secured-plog")) as server:
        yield server


@pytest.fixture
def server(secured: SecuredPlog, request: pytest.FixtureRequest) -> Iterator[SecuredPlog]:
    """Without topics and groups, entered by one way."""
    secured.take(request.param)
    yield secured
    admin = AdminClient(librdkafka(secured.address))
    topics = list(admin.list_topics(timeout=ANSWER_SECONDS).topics)
    if topics:
        for future in admin.delete_topics(topics).values():
            future.result()
    groups = [group.group_id for group in admin.list_consumer_groups().result().valid or ()]
    if groups:
        for deleted in admin.delete_consumer_groups(groups).values():
            deleted.result()


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


# --- librdkafka, kafka-python, aiokafka, kcat


@by(SCRAM, MTLS)
@pytest.mark.parametrize("client", PRODUCERS)
def test_a_client_reads_what_it_wrote(server: SecuredPlog, topic: str, client: str) -> None:
    test_python_clients.test_a_client_reads_what_it_wrote(server, topic, client, "zstd")


@by(SCRAM)
def test_admin_clients(server: SecuredPlog) -> None:
    test_python_clients.test_admin_clients(server)


@by(SCRAM)
def test_each_client_goes_on_where_another_stopped(server: SecuredPlog) -> None:
    test_groups.test_each_client_goes_on_where_another_stopped(server)


@by(MTLS)
def test_members_of_one_group_share_the_partitions(server: SecuredPlog) -> None:
    test_groups.test_members_of_one_group_share_the_partitions(server, "consumer")


@by(SCRAM)
def test_librdkafka_moves_records_and_offsets_together_and_is_fenced(server: SecuredPlog) -> None:
    test_transactions.test_librdkafka_moves_records_and_offsets_together_and_is_fenced(server)


@by(MTLS)
def test_aiokafka_commits_and_aborts(server: SecuredPlog) -> None:
    test_transactions.test_aiokafka_commits_and_aborts(server)


@requires_kcat
@by(SCRAM, MTLS)
def test_kcat_reads_what_it_wrote(server: SecuredPlog, topic: str) -> None:
    test_kcat.test_kcat_reads_what_it_wrote(server, topic, "lz4")


# --- Go, JavaScript


@test_other_languages.needs_go
@by(SCRAM)
def test_franz_go(server: SecuredPlog) -> None:
    test_other_languages.use_franz_go(server)


@test_other_languages.needs_go
@by(MTLS)
def test_franz_go_copies_each_record_once_and_is_fenced(server: SecuredPlog) -> None:
    test_transactions.test_franz_go_copies_each_record_once_and_is_fenced(server)


@test_other_languages.needs_node
@by(SCRAM)
def test_kafkajs(server: SecuredPlog) -> None:
    test_other_languages.use_kafkajs(server)


# --- Java: one JVM for all tools


@requires_kafka
@pytest.mark.java
@by(SCRAM, MTLS)
def test_kafkas_admin_tools(server: SecuredPlog, tools: KafkaTools, tmp_path: Path) -> None:
    where = plog_options(server.address)
    call_plog("topic", "create", "t", "--partitions", "2", "--set", "retention.ms=-1", *where)
    call_plog("produce", "t", "--partition", "0", *where, stdin=b"record\n" * 10)

    def tool(name: str, *options: str) -> str:
        done = tools.run(test_admin_tools.TOOLS[name], *where, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.decode()

    test_admin_tools.test_topics(tool)
    test_admin_tools.test_configs(tool)
    test_admin_tools.test_partitions(tool, tmp_path)
    test_admin_tools.test_what_lies_where(tool, server)


@requires_kafka
@pytest.mark.java
@by(SCRAM)
def test_kafkas_console_and_groups(
    server: SecuredPlog, topic: str, tools: KafkaTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of both protocols, transactional markers, what the console's clients wrote and read."""
    for module in (test_java_clients, test_groups):
        monkeypatch.setattr(module, "run_tool", tools.run)
    test_java_clients.test_the_console_consumer_reads_what_the_console_producer_wrote(server, topic)
    test_groups.test_java_reads_on_and_its_tool_sees_the_group(server)


@requires_kafka
@pytest.mark.java
@by(SCRAM)
def test_kafkas_tools_make_rights_and_users(
    server: SecuredPlog, tools: KafkaTools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_acls, "run_tool", tools.run)
    test_acls.test_kafkas_tools_on_plog(server, tmp_path)


@requires_kafka
@pytest.mark.java
def test_a_user_that_kafkas_tool_made(
    secured: SecuredPlog, topic: str, tools: KafkaTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carol comes in at once, may do nothing until she is given rights, and doesn't come in once she is deleted. The
    broker, which has held alice from its start, doesn't say that it obeys no users.
    """
    monkeypatch.setattr(test_acls, "run_tool", tools.run)
    secured.take(SCRAM)
    address, alice = secured.address, WAYS[secured.address]
    carol = replace(alice, user="carol", password="secret", properties=secured.folder / "carol.properties")
    carol.write_java(secured.folder / "carol.properties")
    configs = "org.apache.kafka.tools.ConfigCommand"
    user = ["--alter", "--entity-type", "users", "--entity-name", "carol"]
    test_acls.tool(configs, address, *user, "--add-config", "SCRAM-SHA-512=[iterations=4096,password=secret]")

    monkeypatch.setitem(WAYS, address, carol)
    refused = call_plog("produce", topic, *plog_options(address), stdin=b"x\n")
    assert (refused.returncode, b"TOPIC_AUTHORIZATION_FAILED" in refused.stderr) == (1, True), refused.stderr
    monkeypatch.setitem(WAYS, address, alice)
    rights = ["--producer", "--consumer", "--topic", topic, "--group", "*"]
    test_acls.acls_tool(address, "--add", "--allow-principal", "User:carol", *rights)
    monkeypatch.setitem(WAYS, address, carol)
    PRODUCERS["kafka-python"](address, topic, RECORDS[:3], "none")
    assert CONSUMERS["confluent-kafka"](address, topic, 3) == list(RECORDS[:3])

    monkeypatch.setitem(WAYS, address, alice)
    test_acls.tool(configs, address, *user, "--delete-config", "SCRAM-SHA-512")
    monkeypatch.setitem(WAYS, address, carol)
    done = tools.run(test_admin_tools.TOOLS["topics"], "--list", *plog_options(address))
    assert "warning" not in secured.log.read_text()
    assert (done.returncode, b"due to invalid credentials" in done.stdout) == (1, True), done


# --- sessions that end


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPlog]:
    """Sessions by SASL end after two seconds."""
    with SecuredPlog(tmp_path_factory.mktemp("short"), lifetime_ms=2000) as server:
        yield server


def test_librdkafka_authenticates_again_while_records_go_in_and_out(short: SecuredPlog, topic: str) -> None:
    """On the connections that it has, several times, without a record lost or doubled."""
    short.take(SCRAM)
    logins: dict[str, int] = {}
    connects: dict[str, int] = {}

    def note(statistics: str) -> None:
        found = json.loads(statistics)
        for name, broker in found["brokers"].items():
            if broker["nodeid"] >= 0:
                logins[f"{found['name']} {name}"] = broker["req"]["SaslHandshake"]
                connects[f"{found['name']} {name}"] = broker["connects"]

    settings = {**librdkafka(short.address), "stats_cb": note, "statistics.interval.ms": 100, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 1})
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    assert call_plog("topic", "create", topic, *plog_options(short.address)).returncode == 0
    consumer.subscribe([topic])
    failures: list[object] = []
    sent: list[bytes] = []
    got: list[bytes | None] = []

    def have_logged_in_again() -> bool:
        for _ in range(20):
            sent.append(b"%d" % len(sent))
            producer.produce(topic, sent[-1], on_delivery=lambda error, _: failures.append(error))
        producer.poll(0)
        got.extend(message.value() for message in consumer.consume(100, 0.02))
        return len(logins) >= 2 and min(logins.values()) >= 3

    wait_until(have_logged_in_again, lambda: str(logins))
    assert producer.flush(FLUSH_SECONDS) == 0
    if len(got) < len(sent):
        got.extend(message.value() for message in consumer.consume(len(sent) - len(got), ANSWER_SECONDS))
    consumer.close()
    assert set(failures) == {None}
    assert got == sent
    assert set(connects.values()) == {1}


# --- Spark


@requires_kafka
@pytest.mark.java
@by(SCRAM)
def test_sparks_own_connector(server: SecuredPlog, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    """In batches and in a stream, with its options `kafka.*`."""
    options = spark_options(server.address)
    rows = spark.createDataFrame([(f"k{n}".encode(), f"v{n}".encode()) for n in range(20)], "key binary, value binary")
    rows.write.format("kafka").options(**options).option("topic", topic).save()
    frame = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    expected = sorted((f"k{n}", f"v{n}") for n in range(20))
    assert sorted((bytes(row.key).decode(), bytes(row.value).decode()) for row in frame.collect()) == expected
    stream = spark.readStream.format("kafka").options(**options).option("subscribe", topic)
    writer = stream.option("startingOffsets", "earliest").load().selectExpr("key", "value").writeStream
    writer = writer.format("kafka").options(**options).option("topic", f"{topic}-copy")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    copied = call_plog("consume", f"{topic}-copy", "--format", r"%k %s\n", *plog_options(server.address)).stdout
    assert sorted(tuple(line.split()) for line in copied.decode().splitlines()) == expected
