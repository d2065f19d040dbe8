"""A Kafka for other people's tests: `plog.testing`, its pytest fixtures, and `plog serve --ephemeral`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from plog.testing import (
    AccessError,
    KafkaError,
    RunningBroker,
    UsageError,
    ensure_obeyed,
    running_broker,
    running_server,
)


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


@pytest.mark.parametrize("start", [running_broker, running_server])
def test_an_authorizer_refuses_clients_and_not_the_test_itself(start: type[RunningBroker]) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    rights = {"authorizer_class_name": authorizer, "super_users": "User:admin"}
    with start(**rights) as broker:  # type: ignore[attr-defined]
        broker.create_topic("orders")
        broker.produce("orders", b"one")
        seen = Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics("orders", 30)
        assert seen.topics["orders"].error.code() == 29, "TOPIC_AUTHORIZATION_FAILED"
        broker.expect("orders", [b"one"])


def test_records_are_written_waited_for_and_compared() -> None:
    with running_broker(num_partitions="2") as broker:
        late = threading.Thread(target=lambda: broker.produce("orders", {"id": 1}, key="42", headers={"h": "x"}))
        late.start()
        (first,) = broker.records("orders", 1)
        late.join()
        assert first == ("orders", 0, 0, first.timestamp, b"42", b'{"id": 1}', (("h", b"x"),))  # murmur2("42") is even
        broker.produce("orders", "text", partition=1, timestamp_ms=7)
        broker.produce("orders", None, key=b"gone", partition=1)
        found = broker.expect("orders", [None, b"text", {"id": 1}])
        assert [(record.partition, record.offset) for record in found] == [(0, 0), (1, 0), (1, 1)]
        assert found[1].timestamp == 7
        with pytest.raises(AssertionError) as caught:
            broker.expect("orders", ["text", {"id": 2}, None])
        assert str(caught.value).splitlines() == [
            "topic orders has 3 records, expected 3",
            "  missing: {'id': 2}",
            """  not expected: orders-0 offset 0 key b'42': b'{"id": 1}'""",
        ]
        with pytest.raises(AssertionError, match="has 3 records after 0 s, expected 4\n  missing: b'x'"):
            broker.expect("orders", ["text", {"id": 1}, None, b"x"], timeout_s=0)
        with pytest.raises(AssertionError, match="topic none has 0 records after 0 s, expected 1"):
            broker.expect("none", [b"x"], timeout_s=0)
        with pytest.raises(TimeoutError, match=r"(?s)has 3 records after 0 s, expected 4.*key b'gone': None"):
            broker.records("orders", 4, timeout_s=0)
        with pytest.raises(KafkaError):
            broker.records("none")
        with pytest.raises(UsageError, match="orders has 2 partitions"):
            broker.produce("orders", b"x", partition=2)


def test_a_group_is_waited_for_until_it_has_committed_all() -> None:
    with running_broker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        broker.produce("orders", b"one")
        producer = Producer({**settings, "transactional.id": "t"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("orders", b"two")
        producer.commit_transaction()  # offset 2 is its end, which no consumer gets
        with pytest.raises(TimeoutError, match="group g has no members"):
            broker.wait_until_read("g", timeout_s=0)
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        first, second = consumer.consume(2)
        with pytest.raises(TimeoutError, match="orders-0: 0 of 3 is committed, lag 3"):
            broker.wait_until_read("g", timeout_s=0)
        consumer.commit(first, asynchronous=False)
        with pytest.raises(TimeoutError, match="orders-0: 1 of 3 is committed, lag 2"):
            broker.wait_until_read("g", "orders", timeout_s=0)
        commit = threading.Thread(target=lambda: consumer.commit(second, asynchronous=False))
        commit.start()
        broker.wait_until_read("g")
        commit.join()
        consumer.close()
        broker.produce("other", b"x")  # not of this group
        broker.wait_until_read("g")
        broker.produce("orders", b"three")
        with pytest.raises(TimeoutError, match="g has no members; \n  orders-0: 2 of 4 is committed"):
            broker.wait_until_read("g", timeout_s=0)


@pytest.mark.parametrize("security", ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"])
def test_a_client_logs_in_by_the_settings_and_the_test_itself_needs_none(security: str, tmp_path: Path) -> None:
    with running_broker(security=security) as broker:
        assert broker.client_settings.get("security.protocol", "PLAINTEXT") == security.upper()
        broker.create_topic("orders")
        producer = Producer(broker.librdkafka_settings)
        producer.produce("orders", b"one")
        assert producer.flush() == 0
        broker.expect("orders", [b"one"])
        config = broker.write_client_properties(tmp_path / "client.properties")
        assert config.stat().st_mode & 0o777 == 0o600
        lines = [line for line in config.read_text().splitlines() if not line.startswith("#")]
        settings = dict(line.split("=", 1) for line in lines)
        remote = RunningBroker(broker.bootstrap_servers, tmp_path, settings)
        remote.produce("orders", b"two")  # not the owner, who has another directory
        assert [record.value for record in remote.records("orders", 2)] == [b"one", b"two"]
        folder = broker.client_settings.get("ssl.truststore.location", str(tmp_path / "none" / "x"))
    assert not Path(folder).parent.exists()


def test_a_wrong_password_and_no_login_at_all() -> None:
    with running_broker(security="sasl_ssl") as broker:
        wrong = {**broker.client_settings, "sasl.username": "admin", "sasl.password": "wrong"}
        del wrong["sasl.jaas.config"]
        with pytest.raises(KafkaError, match="SCRAM-SHA-512 for 'admin': Authentication failed"):
            RunningBroker(broker.bootstrap_servers, Path(), wrong).create_topic("t")
        with pytest.raises(AccessError, match="speaks TLS"):
            RunningBroker(broker.bootstrap_servers, Path(), {"security.protocol": "PLAINTEXT"}).create_topic("t")
    with pytest.raises(UsageError, match="expected one of plaintext, ssl, sasl_plaintext, sasl_ssl"):
        running_broker(security="tls").__enter__()


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


SOMEBODYS_TESTS = """
import pytest
from confluent_kafka import Producer

def write(broker):
    producer = Producer(broker.librdkafka_settings)
    producer.produce("t", b"x")
    assert producer.flush(600) == 0

@pytest.mark.plog(security="sasl_ssl", num_partitions="2")
def test_with_a_login(plog_server):
    write(plog_server)
    plog_server.kill()
    plog_server.start()
    write(plog_server)

@pytest.mark.plog(security="tls")
def test_a_protocol_that_is_none(plog_broker):
    pass

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


def test_what_a_mark_of_the_other_kind_is_told() -> None:
    for is_cluster, name, hint in (
        (True, "broker", "did you mean brokers?"),
        (False, "brokers", "plog_cluster has brokers"),
    ):
        with pytest.raises(UsageError, match="no such setting") as raised:
            ensure_obeyed({name: "2"}, is_cluster=is_cluster)
        assert raised.value.hint == hint


@pytest.mark.longer
def test_the_pytest_fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_somebodys.py").write_text(SOMEBODYS_TESTS)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", "test_somebodys.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 3 passed, 3 errors" in done.stdout, done.stdout
    assert "plog(security='tls'): expected one of plaintext, ssl, sasl_plaintext, sasl_ssl" in done.stdout
    assert "plog(num_partition=..): no such setting; did you mean num_partitions?" in done.stdout
    assert "plog('num.partitions=2'): expected SETTING=VALUE, with _ for a dot" in done.stdout
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"the broker's data is kept in {kept}/data" in done.stdout
    assert (kept / "data" / "t-0").is_dir()


@pytest.mark.longer
def test_the_helpers_with_kafka_python() -> None:
    from kafka import KafkaConsumer, KafkaProducer

    with running_broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        producer.send("orders", b'{"id": 1}', key=b"a").get()
        producer.close()
        broker.produce("orders", "two", headers={"h": None})
        broker.expect("orders", ["two", {"id": 1}])
        consumer = KafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="g",
                                 auto_offset_reset="earliest", auto_commit_interval_ms=100)  # fmt: skip
        found = [next(consumer), next(consumer)]
        assert [(record.value, list(record.headers)) for record in found] == [
            (b'{"id": 1}', []),
            (b"two", [("h", None)]),
        ]
        committed = threading.Thread(target=consumer.close)  # which commits
        committed.start()
        broker.wait_until_read("g")
        committed.join()


@pytest.mark.longer
def test_the_helpers_with_aiokafka() -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def use(broker: RunningBroker) -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"one", key=b"a")
        await asyncio.to_thread(broker.produce, "orders", {"id": 2})
        await asyncio.to_thread(broker.expect, "orders", ["one", {"id": 2}])
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="g",
                                    auto_offset_reset="earliest", auto_commit_interval_ms=100)  # fmt: skip
        async with consumer:
            assert [(await consumer.getone()).value for _ in range(2)] == [b"one", b'{"id": 2}']
            await asyncio.to_thread(broker.wait_until_read, "g", "orders")

    with running_broker() as broker:
        asyncio.run(use(broker))
