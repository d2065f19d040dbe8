"""What `plog produce` writes, others read to the byte; and `plog consume` in a group with other libraries' members."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.interop.clients import CODECS, kcat, requires_kcat
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import QUICK_PLOG, Server, call_plog, complaints
from tests.support.waiting import wait_until

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
LINES = (
    b"k1|a=1,b=2|1600000000001|first\n"
    b"|h=|1600000000002|key is empty\n"
    b"k2||1600000000003|NULL\n"
    b"\xc3\xa9\xff|x=\xfe|1600000000004|\x01 not \xff text\n"
    b"k1||1600000000005|\n"
) + b"".join(b"k%d||%d|the same words again %d\n" % (n % 5, 1_600_000_000_010 + n, n) for n in range(300))


def produce(address: str, topic: str, codec: str) -> None:
    options = ["--template", r"%k|%h|%T|%s\n", "--null-value", "NULL", "--partition", "0", "--compression", codec]
    done = call_plog("produce", topic, *options, "--bootstrap-server", address, stdin=LINES)
    assert done.returncode == 0, done.stderr


@requires_kcat
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_plog_wrote(broker: Server, topic: str, codec: str) -> None:
    produce(broker.address, topic, codec)
    pattern = "%o %T %K %k %S %s %h\x1e"
    theirs = kcat("-C", "-b", broker.address, "-t", topic, "-o", "beginning", "-e", "-q", "-f", pattern)
    ours = call_plog("consume", topic, "--format", pattern, "--bootstrap-server", broker.address).stdout
    assert theirs == ours
    assert theirs.split(b"\x1e")[:5] == [
        b"0 1600000000001 2 k1 5 first a=1,b=2",
        b"1 1600000000002 0  12 key is empty h=",
        b"2 1600000000003 2 k2 -1  ",
        b"3 1600000000004 3 \xc3\xa9\xff 12 \x01 not \xff text x=\xfe",
        b"4 1600000000005 2 k1 0  ",
    ]


@requires_kafka
@pytest.mark.java
def test_the_console_consumer_reads_what_plog_wrote(broker: Server, topic: str) -> None:
    for codec in CODECS:
        produce(broker.address, topic, codec)
    count = len(CODECS) * LINES.count(b"\n")
    properties = ("print.key=true", "print.headers=true", "print.timestamp=true", "null.literal=NULL")
    printing = [option for text in properties for option in ("--formatter-property", text)]
    done = run_tool(
        CONSOLE_CONSUMER, "--bootstrap-server", broker.address, "--topic", topic, "--partition", "0", "--offset",
        "earliest", "--max-messages", str(count), "--timeout-ms", "30000", *printing,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert len(rows) == count
    assert rows[:3] == [
        b"CreateTime:1600000000001\ta:1,b:2\tk1\tfirst",
        b"CreateTime:1600000000002\th:\t\tkey is empty",
        b"CreateTime:1600000000003\tNO_HEADERS\tk2\tNULL",
    ]
    assert [row.split(b"\t")[3] for row in rows[5:305]] == [b"the same words again %d" % n for n in range(300)]


@requires_kcat
def test_a_framed_stream_between_kcat_and_plog(broker: Server, topic: str) -> None:
    """kcat's %R and %s, whatever is in the values."""
    values = [os.urandom(n) for n in (0, 1, 17, 5000)]
    framed = b"".join(len(value).to_bytes(4, "big") + value for value in values)
    options = ["--format", "length-prefixed", "--partition", "0", "--bootstrap-server", broker.address]
    assert call_plog("produce", topic, *options, stdin=framed).returncode == 0
    consume = ["-C", "-b", broker.address, "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%R%s"]
    assert kcat(*consume) == framed


@pytest.fixture(params=["plog", "kafka"])
def address(request: pytest.FixtureRequest, broker: Server) -> str:
    if request.param == "plog":
        return broker.address
    kafka: KafkaServer = request.getfixturevalue("transactional_kafka")
    return kafka.address


@requires_kafka
@pytest.mark.java
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_plog_shares_a_classic_group_with_librdkafka(address: str, strategy: str, topic: str, tmp_path: Path) -> None:
    """Whoever leads; then it reads on alone."""
    where = ["--bootstrap-server", address]
    assert call_plog("topic", "create", topic, "--partitions", "4", *where).returncode == 0
    group, out = f"{topic}-group", tmp_path / "out"
    with out.open("wb") as stdout:
        command = [*QUICK_PLOG, "consume", topic, "--group", group, "--group-protocol", "classic", *where]
        reader = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE)
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200})
    consumer.subscribe([topic])
    theirs: list[bytes] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            theirs.append(message.value() or b"")

    wait_until(lambda: poll() or partitions_of_members(group, where) == [2, 2], "each has two")
    lines = [b"line %d" % number for number in range(200)]
    done = call_plog("produce", topic, "--partitioner", "round_robin", *where, stdin=b"".join(x + b"\n" for x in lines))
    assert done.returncode == 0
    wait_until(lambda: poll() or len(theirs) + len(out.read_bytes().splitlines()) >= len(lines), "all is read")
    assert len(theirs) == 100
    assert sorted(theirs + out.read_bytes().splitlines()) == sorted(lines)
    consumer.close()
    wait_until(lambda: partitions_of_members(group, where) == [4], "plog has all")
    reader.send_signal(signal.SIGINT)
    _, errors = reader.communicate()
    assert (reader.returncode, complaints(errors)) == (130, [])
    rows = json.loads(call_plog("group", "describe", group, "--output", "json", *where).stdout)
    assert [row["lag"] for row in rows] == [0, 0, 0, 0]


def partitions_of_members(group: str, where: list[str]) -> list[int]:
    done = call_plog("group", "describe", group, "--members", "--output", "json", *where)
    return sorted(len(row["partitions"] or ()) for row in json.loads(done.stdout or b"[]"))
