"""confluent-kafka, kafka-python, aiokafka on `plog serve`: each reads what it wrote, and what the others did."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.error_code import ErrorCode
from core.forensics.partition_reader import PartitionReader
from core.records.compression import CompressionType
from tests.interop.clients import CODECS, CONSUMERS, PRODUCERS, RECORDS, Sent
from tests.support.server import Server, call_plog
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS
from tests.support.ways_in import librdkafka, python

pytestmark = pytest.mark.first


def stored(directory: Path) -> list[Sent]:
    """What lies in a partition's files."""
    reader = PartitionReader(directory)
    records = [
        Sent(r.key, r.value, r.timestamp, tuple((name.decode(), value) for name, value in r.headers))
        for batch in reader.read(0, reader.end_offset)
        for r in batch.records()
    ]
    reader.close()
    return records


def stored_codecs(directory: Path) -> set[CompressionType]:
    reader = PartitionReader(directory)
    codecs = {batch.compression for batch in reader.read(0, reader.end_offset)}
    reader.close()
    return codecs


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", PRODUCERS)
def test_a_client_reads_what_it_wrote(broker: Server, topic: str, client: str, codec: str) -> None:
    PRODUCERS[client](broker.address, topic, RECORDS, codec)
    directory = broker.data_dir / f"{topic}-0"
    assert stored(directory) == list(RECORDS)
    assert CompressionType.parse(codec) in stored_codecs(directory)
    assert CONSUMERS[client](broker.address, topic, len(RECORDS)) == list(RECORDS)


@pytest.mark.parametrize("client", CONSUMERS)
def test_a_client_reads_what_all_others_wrote(broker: Server, topic: str, client: str) -> None:
    """A batch by each producer and each codec, one behind the other in one partition."""
    for produce in PRODUCERS.values():
        for codec in CODECS:
            produce(broker.address, topic, RECORDS[:100], codec)
    expected = list(RECORDS[:100]) * (len(PRODUCERS) * len(CODECS))
    assert CONSUMERS[client](broker.address, topic, len(expected)) == expected


@pytest.mark.parametrize("client", CONSUMERS)
def test_a_client_reads_what_plog_produce_wrote(broker: Server, topic: str, client: str) -> None:
    for codec in CODECS:
        done = call_plog(
            "produce", topic, "--key-separator", "=", "--header", "h=x", "--compression", codec,
            "--bootstrap-server", broker.address, stdin=b"k=" + codec.encode() * 100 + b"\n",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    found = CONSUMERS[client](broker.address, topic, len(CODECS))
    assert [(r.key, r.value, r.headers) for r in found] == [
        (b"k", codec.encode() * 100, (("h", b"x"),)) for codec in CODECS
    ]


@pytest.mark.parametrize("client", CONSUMERS)
def test_a_null_header(broker: Server, topic: str, client: str) -> None:
    """Of the producers, librdkafka's alone sends one."""
    record = Sent(b"k", b"v", RECORDS[0].timestamp, (("null", None), ("empty", b"")))
    PRODUCERS["confluent-kafka"](broker.address, topic, [record], "none")
    assert CONSUMERS[client](broker.address, topic, 1) == [record]


def test_log_append_time(broker: Server, topic: str) -> None:
    """The broker's clock, not the producer's; each client says so in its own way."""
    settings = ["--set", "message.timestamp.type=LogAppendTime", "--bootstrap-server", broker.address]
    assert call_plog("topic", "create", topic, *settings).returncode == 0
    PRODUCERS["confluent-kafka"](broker.address, topic, RECORDS[:3], "none")
    for consume in CONSUMERS.values():
        found = consume(broker.address, topic, 3)
        assert [(r.key, r.value) for r in found] == [(r.key, r.value) for r in RECORDS[:3]]
        assert all(r.timestamp > RECORDS[0].timestamp for r in found)
        assert len({r.timestamp for r in found}) == 1


def test_a_record_that_is_too_large_is_refused_by_its_name(broker: Server, topic: str) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    settings = ["--set", "max.message.bytes=1000", "--bootstrap-server", broker.address]
    assert call_plog("topic", "create", topic, *settings).returncode == 0
    errors: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        errors.append(0 if error is None else error.code())

    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"x" * 2000, on_delivery=delivered)
    assert producer.flush(FLUSH_SECONDS) == 0
    producer.produce(topic, b"x" * 500, on_delivery=delivered)
    assert producer.flush(FLUSH_SECONDS) == 0
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE, 0]


def test_acls_of_a_broker_without_an_authorizer(broker: Server) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient(librdkafka(broker.address))
    name = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:ann", "*")
    acl = AclBinding(*name, AclOperation.READ, AclPermissionType.ALLOW)
    wanted = AclBindingFilter(*name, AclOperation.ANY, AclPermissionType.ANY)
    assert admin.describe_acls(wanted).result(ANSWER_SECONDS) == []  # it keeps the error to itself
    for future in (admin.create_acls([acl])[acl], admin.delete_acls([wanted])[wanted]):
        with pytest.raises(KafkaException, match="No Authorizer is configured") as refused:
            future.result(ANSWER_SECONDS)
        assert refused.value.args[0].code() == ErrorCode.SECURITY_DISABLED


def test_admin_clients(broker: Server) -> None:
    """Topics made, described and deleted by confluent-kafka, kafka-python and aiokafka."""
    import asyncio

    from aiokafka.admin import AIOKafkaAdminClient
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic as KafkaPythonTopic

    confluent = AdminClient(librdkafka(broker.address))
    for future in confluent.create_topics([NewTopic("admin-1", 3, 1, config={"retention.ms": "12345"})]).values():
        future.result()
    kafka_python = KafkaAdminClient(**python(broker.address))
    kafka_python.create_topics([KafkaPythonTopic("admin-2", 2, 1)])

    metadata = confluent.list_topics(timeout=ANSWER_SECONDS)
    assert {name: len(t.partitions) for name, t in metadata.topics.items() if name.startswith("admin")} == {
        "admin-1": 3,
        "admin-2": 2,
    }
    resource = ConfigResource(ConfigResource.Type.TOPIC, "admin-1")
    configs = confluent.describe_configs([resource])[resource].result()
    assert configs["retention.ms"].value == "12345"
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default

    async def delete() -> list[str]:
        admin = AIOKafkaAdminClient(**python(broker.address))
        await admin.start()
        await admin.delete_topics(["admin-1", "admin-2"])
        topics: list[str] = await admin.list_topics()
        await admin.close()
        return topics

    assert not {"admin-1", "admin-2"} & set(asyncio.run(delete()))
    kafka_python.close()
