"""plog's transactional producer against a real Kafka, and what its consumers then read."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
import pytest

from core.client.admin import group_admin
from core.client.admin.admin import LATEST, Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer
from core.client.read.record_source import ReadOptions
from core.client.write.producer import ProducerIdentity, RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer, end_transaction
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings
from core.records.compression import CompressionType
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka
from tests.support.server import Server
from tests.support.waiting import PROMPT_SECONDS, wait_until

pytestmark = [requires_kafka, pytest.mark.java]

T = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
def kafka(transactional_server: KafkaServer | Server) -> KafkaServer | Server:
    return transactional_server


@pytest.fixture
def topic(kafka: KafkaServer | Server, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    client = connect(kafka)
    Admin(client).create_topic(name, partitions=2)
    client.close()
    return str(name)


def connect(kafka: KafkaServer | Server) -> KafkaClient:
    return KafkaClient(parse_bootstrap(kafka.address))


def producer_of(kafka: KafkaServer | Server, transactional_id: str, **options: object) -> TransactionalProducer:
    return TransactionalProducer(partial(connect, kafka), transactional_id, **options)


def rows(partition: int, *numbers: int) -> RecordsToSend:
    values = ByteStrings.of_list([b"%d" % n for n in numbers])
    return RecordsToSend(
        partition, np.full(len(numbers), 1_700_000_000_000), None, values, None, np.array(numbers, np.int64)
    )


def values(
    kafka: KafkaServer | Server, topic: str, isolation_level: int = READ_COMMITTED, *, is_ended: bool = True
) -> list[int]:
    """When all transactions have ended: markers follow the answer to EndTxn."""
    client = connect(kafka)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    wanted = dict.fromkeys(partitions, LATEST)
    ends: dict[TopicPartition, int] = {}

    def is_so() -> bool:
        ends.update(Admin(client).list_offsets(wanted, isolation_level=isolation_level))
        return not is_ended or ends == Admin(client).list_offsets(wanted, isolation_level=READ_UNCOMMITTED)

    wait_until(is_so, "all transactions have ended", seconds=PROMPT_SECONDS)
    consumer = Consumer(client, ReadOptions(read_committed=isolation_level == READ_COMMITTED))
    found = [
        int(record.value or b"")
        for _, batches in consumer.read(dict.fromkeys(partitions, 0), ends)
        for batch in batches
        for record in batch.records()
    ]
    client.close()
    return sorted(found)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_transactions_one_after_the_other(
    kafka: KafkaServer | Server, topic: str, compression: CompressionType, version: int
) -> None:
    producer = producer_of(kafka, topic, compression=compression, transaction_version=version, batch_bytes=500)
    wanted: list[int] = []
    for turn in range(6):
        numbers = range(turn * 1000, turn * 1000 + 300)
        producer.send(rows(0, *numbers[:200]), topic)
        producer.send(rows(1, *numbers[200:]), topic)
        if turn % 3 == 2:
            producer.prepare()
            producer.abort()
        else:
            producer.commit()
            wanted += numbers
        assert values(kafka, topic) == wanted
    producer.commit()  # of nothing
    producer.close()
    assert len(values(kafka, topic, READ_UNCOMMITTED)) == 1800


def test_offsets_count_with_the_transaction(kafka: KafkaServer | Server, topic: str) -> None:
    client = connect(kafka)
    group, position = f"group-{topic}", TopicPartition(topic, 0)
    producer = producer_of(kafka, topic)
    for offset, is_commit in ((17, True), (99, False), (25, True)):
        producer.send(rows(0, offset), topic)
        producer.send_offsets(group, {position: offset}, f"up to {offset}")
        if is_commit:
            producer.commit()
        else:
            producer.prepare()
            producer.abort()
    producer.close()
    found = GroupAdmin(client).stable_offsets(group, [position])[position]
    client.close()
    assert (found.offset, found.metadata) == (25, "up to 25")
    assert values(kafka, topic) == [17, 25]


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_are_stable_when_no_transaction_is_about_to_move_them(
    kafka: KafkaServer | Server, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_admin, "_LAST_VERSION_BY_NAME", version)
    with contextlib.closing(connect(kafka)) as client, contextlib.closing(producer_of(kafka, topic)) as producer:
        admin, group = GroupAdmin(client), f"group-{topic}"
        position, new, other = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(f"{topic}-other", 0)
        admin.commit(group, {position: 3})
        producer.send_offsets(group, {position: 17, new: 5})
        assert {at: found.offset for at, found in admin.offsets(group).items()} == {position: 3}
        for partitions in ([position], [new], [other, new]):
            with pytest.raises(KafkaError, match=f"a transaction that moves group {group} on {topic}-") as caught:
                admin.stable_offsets(group, partitions, seconds=0)
            assert caught.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert admin.stable_offsets(group, [other]) == {}
        producer.commit()
        found = admin.stable_offsets(group, [position, new, other])  # the markers follow the answer to EndTxn
        assert {at: of.offset for at, of in found.items()} == {position: 17, new: 5}


def test_who_comes_next_under_an_id_fences_who_was_there(kafka: KafkaServer | Server, topic: str) -> None:
    first = producer_of(kafka, topic)
    first.send(rows(0, 1), topic)
    first.prepare()
    second = producer_of(kafka, topic)
    second.send(rows(0, 2), topic)
    with pytest.raises(KafkaError) as caught:
        first.commit()
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    second.commit()
    assert values(kafka, topic) == [2]
    first.close()
    second.close()


def test_another_process_ends_what_was_prepared(kafka: KafkaServer | Server, topic: str) -> None:
    prepared: list[ProducerIdentity] = []
    for number in range(4):
        producer = producer_of(kafka, f"{topic}-{number}")
        producer.send(rows(number % 2, number), topic)
        prepared.append(producer.prepare())
        producer.close()
    assert values(kafka, topic, is_ended=False) == []
    client = connect(kafka)
    for number, identity in enumerate(prepared):
        end_transaction(client, identity, is_commit=number != 2)
        end_transaction(client, identity, is_commit=number != 2)  # said twice
    client.close()
    assert values(kafka, topic) == [0, 1, 3]


def test_an_unknown_topic(kafka: KafkaServer | Server) -> None:
    producer = producer_of(kafka, "x")
    with pytest.raises(KafkaError) as caught:
        producer.partitions("nope")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.close()
