"""Clients that log in at `plog serve` by SASL, each by each mechanism, and whose sessions end while they work."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.clients import FLUSH_SECONDS, kcat, requires_kcat
from tests.support.oracle import requires_kafka, run_tool
from tests.support.raw_sasl_client import JAAS
from tests.support.server import Server, call_plog
from tests.support.waiting import ANSWER_SECONDS, wait_until
from tests.support.ways_in import Way, write_properties

SESSION_MS = 3000
LOGINS = int(os.environ.get("PLOG_LOGINS", "4"))
"""How often clients log in again while they work."""
COUNT = 50
PASSWORD = "pw=1,2"
WAYS = {
    "PLAIN": Way(mechanism="PLAIN", user="alice", password="alice-secret"),
    "SCRAM-SHA-256": Way(mechanism="SCRAM-SHA-256", user="sam", password=PASSWORD),
    "SCRAM-SHA-512": Way(mechanism="SCRAM-SHA-512", user="sam", password=PASSWORD),
    "SCRAM-SHA-256 of odd names": Way(mechanism="SCRAM-SHA-256", user="a,b=c", password=PASSWORD),
}


class Logins(Server):
    """Its listener REAUTH lets sessions last for 3 s."""

    @property
    def reauth_address(self) -> str:
        found = re.search(r"REAUTH://(127\.0\.0\.1:\d+)", self.log.read_text())
        assert found is not None
        return found[1]

    def reauthentications(self) -> int:
        """How often clients have authenticated again at REAUTH, by the broker's metrics."""
        found = re.search(r" metrics (127\.0\.0\.1:\d+)", self.log.read_text())
        assert found is not None
        with urllib.request.urlopen(f"http://{found[1]}/metrics") as answer:
            text = answer.read().decode()
        counter = re.search(r'successful_reauthentication_total\{listener="REAUTH"\} (\d+)', text)
        return int(counter[1]) if counter else 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    folder = tmp_path_factory.mktemp("logins")
    settings = {
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,REAUTH:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": f"{JAAS};",
        "listener.name.reauth.plain.sasl.jaas.config": f"{JAAS};",
        "listener.name.reauth.connections.max.reauth.ms": str(SESSION_MS),
        "plog.request": "DEBUG",
    }
    config = write_properties(folder / "server.properties", settings)
    listeners = ["--listener", "LOGIN://127.0.0.1:0", "--listener", "REAUTH://127.0.0.1:0"]
    arguments = ["--config", str(config), "--metrics-listen", "127.0.0.1:0", *listeners]
    with Logins(folder / "data", *arguments) as running:
        for user in ("sam", "a,b=c"):
            where = ("--password-stdin", "--data-dir", str(running.data_dir))
            made = call_plog("user", "create", user, *where, stdin=PASSWORD.encode())
            assert made.returncode == 0, made.stderr
        yield running
    said = running.log.read_text()
    assert "Traceback" not in said
    for secret in (PASSWORD, "alice-secret"):
        assert secret not in said


def settings_of(way: str, address: str) -> dict[str, Any]:
    """librdkafka's."""
    return {"bootstrap.servers": address, **WAYS[way].librdkafka()}


def confluent(way: str, address: str, topic: str) -> list[bytes]:
    from confluent_kafka import Consumer, Producer

    producer = Producer({**settings_of(way, address), "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, str(number).encode())
    assert producer.flush(FLUSH_SECONDS) == 0
    consumer = Consumer({**settings_of(way, address), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [one.value() for one in consumer.consume(COUNT, timeout=ANSWER_SECONDS)]
    consumer.close()
    return found


def kafka_python(way: str, address: str, topic: str) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer

    settings = {"bootstrap_servers": address, **WAYS[way].python()}
    name = settings["sasl_plain_username"].replace("=", "=3D").replace(",", "=2C")
    settings["sasl_plain_username"] = name  # it leaves that to its caller
    producer = KafkaProducer(**settings)
    for number in range(COUNT):
        producer.send(topic, str(number).encode())
    producer.flush(FLUSH_SECONDS)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    found = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    return found


def aiokafka(way: str, address: str, topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run() -> list[bytes]:
        settings = {"bootstrap_servers": address, **WAYS[way].python()}
        async with AIOKafkaProducer(**settings) as producer:
            for number in range(COUNT):
                await producer.send_and_wait(topic, str(number).encode())
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await consumer.getone()).value for _ in range(COUNT)]

    return asyncio.run(run())


def by_kcat(way: str, address: str, topic: str) -> list[bytes]:
    options = [f"-X{name}={value}" for name, value in settings_of(way, address).items()]
    kcat("-P", "-t", topic, *options, stdin="".join(f"{number}\n" for number in range(COUNT)).encode())
    return kcat("-C", "-t", topic, "-o", "beginning", "-c", str(COUNT), *options).split()


CLIENTS: dict[str, Callable[[str, str, str], list[bytes]]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
NUMBERS = [str(number).encode() for number in range(COUNT)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_python_clients_log_in(client: str, way: str, server: Logins, topic: str) -> None:
    assert sorted(CLIENTS[client](way, server.address, topic)) == sorted(NUMBERS)


@requires_kcat
@pytest.mark.parametrize("way", WAYS)
def test_kcat_logs_in(way: str, server: Logins, topic: str) -> None:
    assert by_kcat(way, server.address, topic) == NUMBERS


@requires_kafka
@pytest.mark.java
@pytest.mark.parametrize("way", WAYS)
def test_kafkas_tools_log_in(way: str, server: Logins, topic: str, tmp_path: Path) -> None:
    config = str(WAYS[way].write_java(tmp_path / "client.properties"))
    where = ("--bootstrap-server", server.address, "--command-config", config, "--topic", topic)
    made = run_tool("org.apache.kafka.tools.ConsoleProducer", *where, stdin=b"\n".join(NUMBERS) + b"\n")
    assert b"ERROR" not in made.stderr
    read = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--from-beginning", "--max-messages", str(COUNT),
        "--timeout-ms", "30000",
    )  # fmt: skip
    assert read.stdout.split() == NUMBERS, read.stderr


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_authenticates_again_under_load(way: str, server: Logins, topic: str) -> None:
    """No record is lost, none comes twice, and each client keeps on."""
    from confluent_kafka import Consumer, Producer

    settings = settings_of(way, server.reauth_address)
    errors: list[str] = []
    common = {**settings, "error_cb": lambda error: errors.append(str(error))}
    producer = Producer({**common, "enable.idempotence": True, "linger.ms": 1})
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[int] = []
    is_over = threading.Event()

    def consume() -> None:
        while not is_over.is_set():
            found.extend(int(one.value()) for one in consumer.consume(1000, timeout=0.2) if one.error() is None)

    reading = threading.Thread(target=consume)
    reading.start()
    sent = 0
    wanted = server.reauthentications() + LOGINS
    while server.reauthentications() < wanted:
        for _ in range(20):
            producer.produce(topic, str(sent).encode())
            sent += 1
        producer.poll(0.01)
    assert producer.flush(FLUSH_SECONDS) == 0
    wait_until(lambda: len(found) >= sent)
    is_over.set()
    reading.join()
    consumer.close()
    assert sorted(found) == list(range(sent))
    assert not [error for error in errors if "uthenticat" in error]


@requires_kafka
@pytest.mark.java
def test_java_authenticates_again_under_load(server: Logins, topic: str, tmp_path: Path) -> None:
    """Its producer is idempotent: as many records are there as it says that it sent."""
    count = LOGINS * SESSION_MS // 10
    before = server.reauthentications()
    config = str(WAYS["SCRAM-SHA-256"].write_java(tmp_path / "client.properties"))
    done = run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size",
        "100", "--throughput", "100", "--bootstrap-server", server.reauth_address, "--command-config", config,
    )  # fmt: skip
    assert f"{count} records sent".encode() in done.stdout, done.stdout + done.stderr
    assert b"ERROR" not in done.stderr
    assert server.reauthentications() > before
    counted = call_plog("consume", topic, "--data-dir", str(server.data_dir), "--from-beginning", "--format", r"%o\n")
    assert counted.stdout.split() == [str(number).encode() for number in range(count)]
