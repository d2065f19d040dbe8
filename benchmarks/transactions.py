"""Transactions beside Kafka's: how many of one record a producer commits a second, how long each takes; and what
read_committed costs a reader.

    .venv/bin/python -m benchmarks.transactions [--transactions 2000] [--rounds 5] [--pairs 25]

Commits: one producer, one transaction after the other, from its begin to the answer of its end. `requests`: Produce and
EndTxn of transaction.version 2, encoded before they are timed; a CONCURRENT_TRANSACTIONS is answered by asking again at
once. `Java`: Kafka's own producer, version 2 too. `librdkafka`: confluent-kafka, version 1. plog and Kafka in turns.

Reading: fetches of a whole partition, one in twenty of its transactions aborted, by read_committed and by
read_uncommitted in turns, on plog; wall seconds, and the broker's CPU seconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.peers import KafkaPeer, Peer, PlogPeer, cpu_seconds
from core.client.admin import LATEST, Admin
from core.client.client_connection import SocketTransport
from core.client.kafka_client import KafkaClient
from core.client.transactional_producer import TransactionalProducer
from core.cluster.partition import READ_COMMITTED, READ_UNCOMMITTED
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.end_txn import END_TXN, EndTxnRequest
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from core.protocol.schema.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.oracle import fetched_libs

PRODUCE_VERSION, FETCH_VERSION = 12, 12
VALUE = bytes(200)
_RECORDS_A_TRANSACTION = 500


def connect(peer: Peer) -> KafkaClient:
    return KafkaClient(parse_bootstrap(peer.address))


# --- commits


def commit_by_requests(peer: Peer, topic: str, count: int) -> list[float]:
    """Seconds of each transaction."""
    producer = TransactionalProducer(lambda: connect(peer), topic)
    _, producer_id, epoch, version = producer.identity
    assert version > 1
    host, _, port = peer.address.rpartition(":")
    transport = SocketTransport(host, int(port))

    def ask(frame: bytes) -> memoryview:
        transport.send(frame)
        return transport.receive()

    took = []
    for number in range(count):
        batch = batch_of(
            [Record(0, 1_700_000_000_000, b"key", VALUE)],
            producer_id=producer_id,
            producer_epoch=epoch + number,
            base_sequence=0,
            is_transactional=True,
        )
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
        produce = encode_request(PRODUCE, PRODUCE_VERSION, 1, "benchmark", ProduceRequest(topic, -1, 30_000, data))
        request = EndTxnRequest(topic, producer_id, epoch + number, True)
        end = encode_request(END_TXN, END_TXN.versions.last, 2, "benchmark", request)
        started = time.perf_counter()
        while True:
            answer = decode_response(PRODUCE, PRODUCE_VERSION, ask(produce))[1]
            code = answer.responses[0].partition_responses[0].error_code
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        ended = decode_response(END_TXN, END_TXN.versions.last, ask(end))[1]
        took.append(time.perf_counter() - started)
        assert (code, ended.error_code) == (0, 0), (code, ended)
    transport.close()
    producer.close()
    return took


def commit_by_librdkafka(peer: Peer, topic: str, count: int) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": peer.address, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    took = []
    for _ in range(count):
        started = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic, VALUE, b"key", partition=0)
        producer.commit_transaction(30)
        took.append(time.perf_counter() - started)
    return took


def commit_by_java(peer: Peer, topic: str, count: int) -> list[float]:
    program = Path(__file__).with_name("OneRecordTransactions.java")
    command = ["java", "-cp", f"{fetched_libs()}/*", str(program), peer.address, topic, str(count)]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == 0, (peer.name, done.stderr.decode())
    return [int(line) / 1e9 for line in done.stdout.split()]


COMMITS: dict[str, Callable[[Peer, str, int], list[float]]] = {
    "requests": commit_by_requests,
    "Java": commit_by_java,
    "librdkafka": commit_by_librdkafka,
}


def measure_commits(peers: Sequence[Peer], count: int, rounds: int) -> None:
    rates: dict[tuple[str, str], list[float]] = {}
    slowest: dict[tuple[str, str], list[float]] = {}
    burnt: dict[tuple[str, str], list[float]] = {}
    for number in range(-1, rounds):  # the first is for Java's compiler, and is not counted
        for how, commit in COMMITS.items():
            for peer in peers:
                topic = f"{how}-{number}".replace("--", "-warm-")
                client = connect(peer)
                Admin(client).create_topic(topic)
                client.close()
                before = sum(cpu_seconds(peer.pid))
                took = sorted(commit(peer, topic, count))
                if number >= 0:
                    key = how, peer.name
                    burnt.setdefault(key, []).append((sum(cpu_seconds(peer.pid)) - before) / count * 1e6)
                    rates.setdefault(key, []).append(count / sum(took))
                    slowest.setdefault(key, []).append(took[int(count * 0.99)] * 1000)
    print("| commits of one record | a second | p99, ms | broker CPU, us each |\n|---|---|---|---|")
    for how, name in rates:
        figures = [_said(found[how, name], places) for found, places in ((rates, 0), (slowest, 2), (burnt, 0))]
        print(f"| {name}, {how} | {' | '.join(figures)} |")
    for how in COMMITS:
        ratios = [ours / theirs for ours, theirs in zip(rates[how, "plog"], rates[how, "kafka"], strict=True)]
        print(f"{how}: plog's rate is {_said(ratios, 2)} times Kafka's")


# --- reading


def fill(peer: Peer, topic: str, size_bytes: int) -> None:
    """Transactions of 500 records of 200 bytes; one in twenty is aborted."""
    client = connect(peer)
    Admin(client).create_topic(topic)
    client.close()
    producer = TransactionalProducer(lambda: connect(peer), topic)
    host, _, port = peer.address.rpartition(":")
    transport = SocketTransport(host, int(port))
    records = [Record(0, 1_700_000_000_000, b"key", VALUE)] * _RECORDS_A_TRANSACTION
    _, producer_id, epoch, _ = producer.identity
    for number in range(size_bytes // (len(VALUE) * _RECORDS_A_TRANSACTION)):
        batch = batch_of(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
        transport.send(encode_request(PRODUCE, PRODUCE_VERSION, 1, "b", ProduceRequest(topic, -1, 30_000, data)))
        answer = decode_response(PRODUCE, PRODUCE_VERSION, transport.receive())[1]
        assert answer.responses[0].partition_responses[0].error_code == 0
        request = EndTxnRequest(topic, producer_id, epoch, number % 20 != 0)
        transport.send(encode_request(END_TXN, END_TXN.versions.last, 2, "b", request))
        ended = decode_response(END_TXN, END_TXN.versions.last, transport.receive())[1]
        producer_id, epoch = ended.producer_id, ended.producer_epoch
    transport.close()
    producer.close()


def read(peer: Peer, topic: str, isolation_level: int) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of the broker."""
    client = connect(peer)
    partition = TopicPartition(topic, 0)
    end = Admin(client).list_offsets({partition: LATEST})[partition]
    client.close()
    host, _, port = peer.address.rpartition(":")
    transport = SocketTransport(host, int(port))
    started, before = time.perf_counter(), sum(cpu_seconds(peer.pid))
    offset = 0
    while offset < end:
        wanted = [FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)])]
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, isolation_level=isolation_level, topics=wanted
        )
        transport.send(encode_request(FETCH, FETCH_VERSION, 1, "b", request))
        answer = decode_response(FETCH, FETCH_VERSION, transport.receive())[1]
        records = answer.responses[0].partitions[0].records
        offset = _next_offset(records, offset)
    took = time.perf_counter() - started
    transport.close()
    return took, sum(cpu_seconds(peer.pid)) - before


def _next_offset(records: memoryview, offset: int) -> int:
    """Behind the last whole batch: its base offset, and the last offset's delta at 23."""
    position = 0
    while position + 61 <= len(records):
        size = int.from_bytes(records[position + 8 : position + 12]) + 12
        if position + size > len(records):
            break
        offset = int.from_bytes(records[position : position + 8]) + 1
        offset += int.from_bytes(records[position + 23 : position + 27])
        position += size
    return offset


def measure_reading(peer: Peer, size_bytes: int, rounds: int) -> None:
    fill(peer, "reading", size_bytes)
    read(peer, "reading", READ_COMMITTED)
    walls, cpus, rates = [], [], []
    sums = {READ_COMMITTED: [0.0, 0.0], READ_UNCOMMITTED: [0.0, 0.0]}
    for number in range(rounds):
        levels = [READ_COMMITTED, READ_UNCOMMITTED][:: 1 if number % 2 else -1]  # each is first as often
        found = {level: read(peer, "reading", level) for level in levels}
        for level, (wall, cpu) in found.items():
            sums[level] = [sums[level][0] + wall, sums[level][1] + cpu]
        committed, uncommitted = found[READ_COMMITTED], found[READ_UNCOMMITTED]
        walls.append(committed[0] / uncommitted[0])
        cpus.append(committed[1] / uncommitted[1] if uncommitted[1] else 1.0)
        rates.append(size_bytes / committed[0] / 1e6)
    print(f"read_committed over read_uncommitted, {peer.name}: wall {_said(walls, 3)}, broker CPU {_said(cpus, 3)}")
    wall, cpu = (ours / theirs for ours, theirs in zip(sums[READ_COMMITTED], sums[READ_UNCOMMITTED], strict=True))
    print(f"all {rounds} pairs together: wall {wall:.3f}, broker CPU {cpu:.3f}; {_said(rates, 0)} MB/s")


def _said(figures: Sequence[float], places: int) -> str:
    return f"{statistics.median(figures):.{places}f} ({min(figures):.{places}f}-{max(figures):.{places}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    parser.add_argument("--pairs", type=int, default=25)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        directory = Path(temporary)
        peers: list[Peer] = [PlogPeer(directory), KafkaPeer(directory)]
        try:
            measure_commits(peers, arguments.transactions, arguments.rounds)
            measure_reading(peers[0], arguments.bytes, arguments.pairs)
        finally:
            for peer in peers:
                peer.stop()


if __name__ == "__main__":
    main()
