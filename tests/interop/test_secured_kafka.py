"""plog's commands against an Apache Kafka with TLS and SASL: each way of authenticating, and each way of failing."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.client.client_config import read_settings_file
from core.client.consumer import Consumer
from core.client.kafka_client import KafkaClient
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.security.client_settings import parse_client_settings
from tests.support.certificates import make_ca
from tests.support.oracle import java_command, requires_kafka
from tests.support.secured_kafka import PASSWORD, REAUTHENTICATION_MS, SecuredKafka, other_client
from tests.support.server import PLOG, call_plog, run_plog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [requires_kafka, pytest.mark.java]

WAYS = [
    "PLAIN",
    "PLAIN over TLS",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "delegation token",
    "OAUTHBEARER",
    "TLS",
    "mTLS",
    "renewed",
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    kafka = SecuredKafka(tmp_path_factory.mktemp("secured-kafka"))
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


def plog(*arguments: str | Path, stdin: bytes = b"", code: int = 0) -> tuple[bytes, str]:
    done = call_plog(*map(str, arguments), stdin=stdin)
    told = done.stderr.decode()
    assert done.returncode == code, told
    assert b"marked" not in done.stdout
    assert "marked" not in told
    return done.stdout, told


@pytest.mark.parametrize("way", WAYS)
def test_a_life_of_a_topic(way: str, kafka: SecuredKafka) -> None:
    secured = ("--command-config", kafka.write(way))
    topic = way.replace(" ", "-")
    plog("topic", "create", topic, "--partitions", "2", *secured)
    plog("produce", topic, *secured, stdin=b"a\nb\nc\n")
    plog("produce", topic, "--transactional-id", topic, *secured, stdin=b"d\n")
    printed, said = plog("consume", topic, *secured)
    while "wait for an open transaction" in said:  # Kafka writes the marker after its answer
        printed, said = plog("consume", topic, *secured)
    assert sorted(printed.split()) == [b"a", b"b", b"c", b"d"]
    for protocol in ("classic", "consumer"):
        group = f"{topic}-{protocol}"
        options = ("--group", group, "--group-protocol", protocol, "--from", "earliest", "--max-messages", "4")
        assert sorted(plog("consume", topic, *options, *secured)[0].split()) == [b"a", b"b", b"c", b"d"]
        plog("group", "describe", group, *secured)
    assert topic.encode() in plog("topic", "list", *secured)[0]
    assert topic.encode() in plog("group", "list", *secured)[0]
    assert topic.encode() in plog("transaction", "list", *secured)[0]
    plog("config", "alter", "topic", topic, "--set", "retention.ms=-1", *secured)
    assert b"retention.ms" in plog("config", "describe", "topic", topic, *secured)[0]
    assert b"reachable" in plog("cluster", "status", *secured)[0]
    plog("topic", "delete", topic, *secured)


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-512", "mTLS"])
def test_kafkas_own_tools_take_the_same_file(way: str, kafka: SecuredKafka) -> None:
    config = kafka.write(way)
    address = next(line for line in config.read_text().splitlines() if line.startswith("bootstrap")).partition("=")[2]
    command = java_command("org.apache.kafka.tools.TopicCommand", "--list")
    done = subprocess.run(
        [*command, "--bootstrap-server", address, "--command-config", str(config)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    plog("topic", "list", "--command-config", config)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_takes_the_same_file(kafka: SecuredKafka, tmp_path: Path) -> None:
    config = tmp_path / "kcat.conf"
    config.write_text(
        f"bootstrap.servers=127.0.0.1:{kafka.ports['SASLS']}\nsecurity.protocol=sasl_ssl\n"
        f"sasl.mechanisms=PLAIN\nsasl.username=alice\nsasl.password={PASSWORD}\n"
        f"ssl.ca.location={kafka.folder / 'ca.pem'}\nenable.auto.commit=false\n"
    )
    config.chmod(0o600)
    done = subprocess.run(["kcat", "-F", str(config), "-L"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    plog("topic", "list", "--command-config", config)


def test_mechanisms_that_the_broker_takes_are_named(kafka: SecuredKafka) -> None:
    _, told = plog(
        "topic",
        "list",
        "--command-config",
        kafka.write("PLAIN", "OAUTH", ssl_truststore_location=kafka_ca(kafka)),
        code=1,
    )
    assert "does not take PLAIN on this listener; it takes OAUTHBEARER" in told


def kafka_ca(kafka: SecuredKafka) -> str:
    return str(kafka.folder / "ca.pem")


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(way: str, kafka: SecuredKafka, tmp_path: Path) -> None:
    config = tmp_path / "wrong.properties"
    config.write_text(kafka.write(way).read_text().replace(PASSWORD, "marked-wrong"))
    config.chmod(0o600)
    _, told = plog("topic", "list", "--command-config", config, code=1)
    assert f"error: SASL_AUTHENTICATION_FAILED: {way} for 'alice': Authentication failed" in told


def test_a_token_that_has_expired(kafka: SecuredKafka, tmp_path: Path) -> None:
    now = int(time.time())
    token = tmp_path / "token"
    token.write_text(kafka.bearer_token(iat=now - 900, exp=now - 300))
    config = kafka.write("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=f"file://{token}")
    _, told = plog("topic", "list", "--command-config", config, code=1)
    assert 'OAUTHBEARER: {"status":"invalid_token"}' in told
    assert "the token: of alice, for plog, by https://issuer.example, expires " in told
    assert "the clock here says " in told


@pytest.mark.parametrize("who", ["nobody", "a stranger"])
def test_no_certificate_that_the_broker_takes(who: str, kafka: SecuredKafka) -> None:
    way = "TLS" if who == "nobody" else "mTLS"
    more = {} if who == "nobody" else {"ssl_keystore_location": str(other_client(kafka.folder, make_ca("other")))}
    _, told = plog("topic", "list", "--command-config", kafka.write(way, "MTLS", **more), code=3)
    if "lost the connection" in told:  # the alert came after we had sent more, and was lost
        assert "wants the client's certificate" in told
    else:
        assert ("and we have none to show" if who == "nobody" else "refuses our certificate") in told


@pytest.mark.parametrize(
    ("listener", "protocol", "words"),
    [
        ("SASLP", "PLAINTEXT", ["lost the connection to", "with SASL closes like this"]),
        ("TLS", "PLAINTEXT", ["TLS"]),
        ("SASLS", "SASL_PLAINTEXT", ["TLS"]),
        ("SASLP", "SSL", ["it closed the connection when TLS began", "it may speak plaintext"]),
        ("TLS", "SASL_SSL", ["the listener does not authenticate", "security.protocol=PLAINTEXT or SSL"]),
    ],
)
def test_the_wrong_protocol(listener: str, protocol: str, words: list[str], kafka: SecuredKafka) -> None:
    config = kafka.write("PLAIN over TLS", listener, security_protocol=protocol)
    done = call_plog("topic", "list", "--command-config", str(config))
    told = done.stderr.decode()
    assert done.returncode in (1, 3), told
    assert all(word in told for word in words), told


def test_a_certificate_of_another_name(kafka: SecuredKafka) -> None:
    config = kafka.write("TLS")
    server = f"127.0.0.2:{kafka.ports['TLS']}"
    done = call_plog("topic", "list", "--command-config", str(config), "--bootstrap-server", server)
    told = done.stderr.decode()
    assert done.returncode == 3
    if "could not connect" not in told:  # where it listens on that address, too
        assert "it is not for 127.0.0.2, but for localhost, 127.0.0.1" in told


def test_sessions_are_renewed_while_records_go_in_and_out(kafka: SecuredKafka) -> None:
    """For three sessions' time, on one connection each; nothing is lost, nothing comes twice."""
    settings, _ = read_settings_file(kafka.write("renewed"))
    security = parse_client_settings(settings).security
    secured = ("--command-config", kafka.write("renewed"))
    plog("topic", "create", "sessions", *secured)
    partition = TopicPartition("sessions", 0)
    client = KafkaClient([("127.0.0.1", kafka.ports["REAUTH"])], security=security)
    with contextlib.closing(client):
        connection = client.connection_to(client.leader_of(partition))
        authenticator = connection._authenticator
        assert authenticator is not None
        renewals, due_s = 0, authenticator._due_s
        positions = {partition: 0}
        offsets: list[int] = []
        sent = 0
        consumer = Consumer(client, max_wait_ms=100)
        deadline = time.monotonic() + 3 * REAUTHENTICATION_MS / 1000
        while time.monotonic() < deadline or renewals < 2:
            plog("produce", "sessions", *secured, stdin=b"x\n")
            sent += 1
            for _, _, batches in consumer.poll(positions):
                offsets += [offset for batch in batches for offset in range(batch.base_offset, batch.next_offset)]
            connection.call(METADATA, MetadataRequest([]))
            if authenticator._due_s != due_s:
                renewals, due_s = renewals + 1, authenticator._due_s
        for _ in range(50):
            if len(offsets) == sent:
                break
            for _, _, batches in consumer.poll(positions):
                offsets += [offset for batch in batches for offset in range(batch.base_offset, batch.next_offset)]
        assert client.connection_to(client.leader_of(partition)) is connection
    assert offsets == list(range(sent))


@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "mTLS"])
def test_spark_reads_and_writes_through_it(way: str, kafka: SecuredKafka, spark: SparkSession) -> None:
    config = kafka.write(way)
    listener = kafka.ways()[way][0]
    secured = {"kafka.bootstrap.servers": f"127.0.0.1:{kafka.ports[listener]}", "commandConfig": str(config)}
    topic = f"spark-{way}"
    plog("topic", "create", topic, "--command-config", config)
    rows = spark.createDataFrame([(f"k{n}".encode(), f"v{n}".encode()) for n in range(20)], "key binary, value binary")
    rows.write.format("plog").options(**secured).option("topic", topic).mode("append").save()
    frame = spark.read.format("plog").options(**secured).option("subscribe", topic).load()
    assert sorted(row.value for row in frame.collect()) == sorted(f"v{n}".encode() for n in range(20))
    shown = str(frame._jdf.queryExecution().toString())
    store = spark._jsparkSession.sharedState().statusStore()
    done = store.executionsList()
    shown += "".join(done.apply(number).physicalPlanDescription() for number in range(done.size()))
    assert topic in shown or "plog" in shown
    assert "marked" not in shown


def test_a_replay_through_it(kafka: SecuredKafka, tmp_path: Path) -> None:
    """Into Parquet and into a topic; the plan and the manifest name no secret."""
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    config = kafka.write("SCRAM-SHA-512")
    secured = ("--command-config", str(config))
    plog("topic", "create", "replayed", *secured)
    plog("topic", "create", "replayed-into", *secured)
    plog("produce", "replayed", *secured, stdin=b"a\nb\nc\n")
    target = tmp_path / "out"
    for to in (f"parquet:{target}", "topic:replayed-into"):
        done = run_plog("spark-replay", "replayed", "--to", to, *secured)
        assert done.returncode == 0, done.stderr.decode()
        assert b"marked" not in done.stdout + done.stderr
    done = run_plog("spark-replay", "--verify", str(target), "--output", "json", *secured)
    assert done.returncode == 0, done.stderr.decode()
    assert sorted(plog("consume", "replayed-into", *secured)[0].split()) == [b"a", b"b", b"c"]
    written = b"".join(path.read_bytes() for path in target.rglob("*") if path.is_file())
    assert b"marked" not in written


def test_a_broker_that_is_killed_in_the_middle_of_sessions(kafka: SecuredKafka, tmp_path: Path) -> None:
    """A producer that renews its sessions sees the broker die and come back; each line is there once."""
    config = kafka.write("renewed")
    secured = ("--command-config", str(config))
    plog("topic", "create", "killed", *secured)
    log = tmp_path / "stderr"
    with log.open("wb") as errors:
        command = [PLOG, "produce", "killed", *secured]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=errors, stderr=errors)
        assert process.stdin is not None
        sent = 0
        for part in range(3):
            deadline = time.monotonic() + REAUTHENTICATION_MS * 1.2 / 1000
            while time.monotonic() < deadline:
                process.stdin.write(f"{sent}\n".encode())
                process.stdin.flush()
                sent += 1
                time.sleep(0.02)  # lines that come while time goes by, as sessions need it
            if part == 1:
                kafka.server.kill()
                kafka.server.start()
        process.stdin.close()
        assert process.wait(120) == 0, log.read_text()
    found = plog("consume", "killed", *secured)[0].split()
    assert sorted(map(int, found)) == list(range(sent))
    assert b"marked" not in log.read_bytes()
