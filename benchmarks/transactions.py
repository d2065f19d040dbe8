"""Transactions beside Kafka's: how many of one record a producer commits a second, how long each takes; and what
read_committed costs a reader.

    .venv/bin/python -m benchmarks.transactions [--transactions 2000] [--rounds 5] [--warm-up 1] [--pairs 25]
        [--bytes 2000000000]

Commits: one producer, one transaction after the other, from its begin to the answer of its end. `requests`: Produce and
EndTxn of transaction.version 2, encoded before they are timed; a CONCURRENT_TRANSACTIONS is answered by asking again at
once. `Java`: Kafka's own producer, version 2 too. `librdkafka`: confluent-kafka, version 1. plog and Kafka in turns.

Reading: fetches of a whole partition, one in twenty of its transactions aborted, by read_committed and by
read_uncommitted in turns, on plog; wall seconds, and the broker's CPU seconds.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import quotient, quotients, spread
from benchmarks.options import ensure_kafka, option_parser
from benchmarks.peers import KafkaPeer, Peer, PlogPeer, cpu_seconds, running, scratch_folder
from benchmarks.wire import next_offset, transport_to
from core.client.admin.admin import LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.write.transactional_producer import TransactionalProducer
from core.cluster.partition.partition import READ_COMMITTED, READ_UNCOMMITTED
from core.common.endpoint import parse_bootstrap
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.transactions import END_TXN, EndTxnRequest
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.broker import PRODUCE_BY_NAME, fetch_request, produce_request
from tests.support.oracle import fetched_libs

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
    transport = transport_to(peer.address)

    def ask(frame: bytearray) -> memoryview:
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
        produce = encode_produce(batch, topic)
        request = EndTxnRequest(topic, producer_id, epoch + number, True)
        end = encode_request(END_TXN, END_TXN.versions.last, 2, "benchmark", request)
        started = time.perf_counter()
        while True:
            answer = decode_response(PRODUCE, PRODUCE_BY_NAME, ask(produce))[1]
            code = answer.responses[0].partition_responses[0].error_code
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        ended = decode_response(END_TXN, END_TXN.versions.last, ask(end))[1]
        took.append(time.perf_counter() - started)
        assert (code, ended.error_code) == (0, 0), (code, ended)
    transport.close()
    producer.close()
    return took


def encode_produce(batch: bytes, topic: str) -> bytearray:
    """Of the transactional producer that has the topic's name."""
    request = produce_request(batch, topic)
    request.transactional_id = topic
    return encode_request(PRODUCE, PRODUCE_BY_NAME, 1, "benchmark", request)


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


def measure_commits(peers: Sequence[Peer], count: int, rounds: int, warm_up: int) -> None:
    rates: dict[tuple[str, str], list[float]] = {}
    slowest: dict[tuple[str, str], list[float]] = {}
    burnt: dict[tuple[str, str], list[float]] = {}
    for number in range(-warm_up, rounds):  # those for Java's compiler are not counted
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
        styles = ((rates, ".0f"), (slowest, ".2f"), (burnt, ".0f"))
        figures = [spread(found[how, name], style) for found, style in styles]
        print(f"| {name}, {how} | {' | '.join(figures)} |")
    for how in COMMITS:
        ratios = quotients(rates[how, "plog"], rates[how, "kafka"])
        print(f"{how}: plog's rate is {spread(ratios, '.2f')} times Kafka's")


# --- reading


def fill(peer: Peer, topic: str, size_bytes: int) -> None:
    """Transactions of 500 records of 200 bytes; one in twenty is aborted."""
    client = connect(peer)
    Admin(client).create_topic(topic)
    client.close()
    producer = TransactionalProducer(lambda: connect(peer), topic)
    transport = transport_to(peer.address)
    records = [Record(0, 1_700_000_000_000, b"key", VALUE)] * _RECORDS_A_TRANSACTION
    _, producer_id, epoch, _ = producer.identity
    for number in range(size_bytes // (len(VALUE) * _RECORDS_A_TRANSACTION)):
        batch = batch_of(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
        transport.send(encode_produce(batch, topic))
        answer = decode_response(PRODUCE, PRODUCE_BY_NAME, transport.receive())[1]
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
    transport = transport_to(peer.address)
    started, before = time.perf_counter(), sum(cpu_seconds(peer.pid))
    offset = 0
    while offset < end:
        request = fetch_request(offset, topic, max_wait_ms=500, isolation_level=isolation_level)
        transport.send(encode_request(FETCH, PRODUCE_BY_NAME, 1, "b", request))
        answer = decode_response(FETCH, PRODUCE_BY_NAME, transport.receive())[1]
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        offset = next_offset(records, offset)
    took = time.perf_counter() - started
    transport.close()
    return took, sum(cpu_seconds(peer.pid)) - before


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
        cpus.append(quotient(committed[1], uncommitted[1]))
        rates.append(size_bytes / committed[0] / 1e6)
    figures = f"wall {spread(walls, '.3f')}, broker CPU {spread(cpus, '.3f')}"
    print(f"read_committed over read_uncommitted, {peer.name}: {figures}")
    wall, cpu = quotients(sums[READ_COMMITTED], sums[READ_UNCOMMITTED])
    print(f"all {rounds} pairs together: wall {wall:.3f}, broker CPU {cpu:.3f}; {spread(rates, '.0f')} MB/s")


def main() -> None:
    parser = option_parser(__doc__, transactions=2000, rounds=5, warm_up=1, bytes=2_000_000_000, pairs=25)
    options = parser.parse_args()
    ensure_kafka()
    with scratch_folder() as directory, running(directory, PlogPeer, KafkaPeer) as peers:
        measure_commits(peers, options.transactions, options.rounds, options.warm_up)
        measure_reading(peers[0], options.bytes, options.pairs)


if __name__ == "__main__":
    main()
