"""Kafka's own Java tools: the console producer and consumer on `plog serve`, DumpLogSegments on its files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.interop.clients import CODECS, PRODUCERS, RECORDS
from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import Server, call_plog
from tests.support.ways_in import plog_options

pytestmark = [requires_kafka, pytest.mark.java]

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"

LINES = (
    b"h1:a,h2:b\tkey\tvalue\n"
    b"NULL\tNULL\tno key, no headers\n"
    b"h:\tk\tNULL\n" + b"".join(b"h:x\tk%d\tthe same words again %d\n" % (n % 5, n) for n in range(200))
)  # fmt: skip
PARSING = (
    "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
    "--reader-property", "null.marker=NULL",
)  # fmt: skip
PRINTING = (
    "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
    "--formatter-property", "print.offset=true", "--formatter-property", "print.timestamp=true",
    "--formatter-property", "null.literal=NULL",
)  # fmt: skip


def console_produce(address: str, topic: str, codec: str, lines: bytes) -> None:
    done = run_tool(
        CONSOLE_PRODUCER, *plog_options(address), "--topic", topic, "--compression-codec", codec, *PARSING,
        stdin=lines,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"ERROR" not in done.stderr


def console_consume(address: str, topic: str, count: int, *options: str) -> list[bytes]:
    done = run_tool(
        CONSOLE_CONSUMER, *plog_options(address), "--topic", topic, "--partition", "0", "--offset", "earliest",
        "--max-messages", str(count), "--timeout-ms", "30000", *PRINTING, *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_console_producer_wrote(broker: Server, topic: str, codec: str) -> None:
    """Java's producer is idempotent; what it wrote, kcat's and plog's readers get the same."""
    console_produce(broker.address, topic, codec, LINES)
    found = call_plog("consume", topic, "--format", r"%h\t%k\t%s\n", "--bootstrap-server", broker.address).stdout
    assert found == LINES.replace(b"h1:a,h2:b", b"h1=a,h2=b").replace(b"h:x", b"h=x").replace(b"h:", b"h=").replace(
        b"NULL", b""
    )
    dump = call_plog("dump-segment", str(broker.data_dir / f"{topic}-0"), "--format", "ndjson").stdout
    batches = [row for row in map(json.loads, dump.splitlines()) if row["kind"] == "log"]
    assert {b["codec"] for b in batches} == {codec}
    assert all(b["producer_id"] >= 0 for b in batches)


def test_the_console_consumer_reads_what_others_wrote(broker: Server, topic: str) -> None:
    for codec in CODECS:
        for produce in PRODUCERS.values():
            produce(broker.address, topic, RECORDS[:4], codec)
    count = len(CODECS) * len(PRODUCERS) * 4
    rows = console_consume(broker.address, topic, count)
    assert [row.split(b"\t", 1)[1] for row in rows] == [
        b"Offset:%d\tNO_HEADERS\t%b\t%b"
        % (offset, *(b"NULL" if field is None else field for field in (record.key, record.value)))
        for offset, record in enumerate(list(RECORDS[:4]) * (count // 4))
    ]
    assert [row.split(b"\t", 1)[0] for row in rows[:4]] == [b"CreateTime:%d" % r.timestamp for r in RECORDS[:4]]


def test_the_console_consumer_reads_what_the_console_producer_wrote(broker: Server, topic: str) -> None:
    """Both isolation levels; Java asks for the end of the topic by the one that it reads with."""
    console_produce(broker.address, topic, "lz4", LINES)
    count = LINES.count(b"\n")
    for isolation in ("read_committed", "read_uncommitted"):
        rows = console_consume(broker.address, topic, count, "--isolation-level", isolation)
        expected = LINES.replace(b"NULL\tNULL\tno", b"NO_HEADERS\tNULL\tno").splitlines()
        assert [row.split(b"\t", 2)[2] for row in rows] == expected


def test_dump_log_segments_reads_plogs_files(tmp_path: Path) -> None:
    """Several segments with their indexes and snapshots, written by plog alone: not a word of complaint."""
    options = ["--data-dir", str(tmp_path)]
    settings = ["internal.segment.bytes=20000", "index.interval.bytes=1000", "retention.ms=-1"]
    lines = b"".join(b'{"key": "k%d", "value": "%d", "timestamp": %d}\n' % (n, n**9, 10**12 + n) for n in range(5000))
    small = ("--format", "envelope", "--batch-size", "2000")
    files: list[Path] = []
    for codec in CODECS:
        call_plog("topic", "create", codec, *(f"--set={s}" for s in settings), *options)
        done = call_plog("produce", codec, "--compression", codec, *small, *options, stdin=lines)
        assert done.returncode == 0, done.stderr
        logs = sorted((tmp_path / f"{codec}-0").glob("*.log"))
        assert len(logs) > 1
        files += logs
    files += [path for suffix in ("index", "timeindex", "snapshot") for path in tmp_path.glob(f"*-0/*.{suffix}")]
    dump = run_tool(DUMP_LOG_SEGMENTS, "--print-data-log", "--deep-iteration", "--files", ",".join(map(str, files)))
    assert dump.returncode == 0
    said = dump.stdout + dump.stderr
    for complaint in (b"Mismatches", b"Found timestamp mismatch", b"out of order", b"isvalid: false", b"Exception"):
        assert complaint not in said
    before_gaps = re.findall(rb"(-?\d+) is followed by", said)
    assert set(before_gaps) <= {b"-1"}, "a segment that begins above 0 is all that the tool may find odd"
    records = [line for line in dump.stdout.splitlines() if line.startswith(b"| offset: ")]
    assert [line.split()[2] for line in records] == [b"%d" % n for n in range(5000)] * len(CODECS)
    assert all(b"key: k%d payload: %d" % (n % 5000, (n % 5000) ** 9) in line for n, line in enumerate(records))
    codecs = re.findall(rb"compresscodec: (\w+)", dump.stdout)
    assert list(dict.fromkeys(codecs)) == [codec.encode() for codec in CODECS]
    assert codecs == sorted(codecs, key=[codec.encode() for codec in CODECS].index)
