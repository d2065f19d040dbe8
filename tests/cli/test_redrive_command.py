"""`plog redrive`: dead letters go back from the shell, on a server and in a directory."""

from __future__ import annotations

import base64
import csv
import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import ok
from tests.support.server import PLOG, Server, call_plog
from tests.support.waiting import wait_until

Headers = list[tuple[str, bytes]]

SPRING: Headers = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\0\0\0\3"),
    ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x11"),
    ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
]
CONNECT: Headers = [("__connect.errors.topic", b"orders"), ("__connect.errors.partition", b"3")]
STREAMS: Headers = [("__streams.errors.topic", b"app-x-repartition"), ("__streams.errors.offset", b"5")]
SHARE: Headers = [("__dlq.errors.topic", b"orders"), ("__dlq.errors.partition", b"0"), ("__dlq.errors.offset", b"0")]


def envelope(value: str | None, headers: Headers) -> bytes:
    shown = [[name, {"base64": base64.b64encode(text).decode()}] for name, text in headers]
    return json.dumps({"value": value, "headers": shown}).encode() + b"\n"


LETTERS = b"".join(
    [envelope("s", [("own", b"\xff"), *SPRING]), envelope("c", CONNECT), envelope("none", []), envelope("i", STREAMS),
     envelope(None, SHARE), envelope("self", [("dead-letter-topic", b"dlq")]),
     envelope("gone", [("original_topic", b"x")])]
)  # fmt: skip


@pytest.fixture
def where(where: list[str]) -> list[str]:
    for topic in ("orders", "dlq"):
        ok("topic", "create", topic, *where)
    ok("produce", "dlq", "--format", "envelope", *where, stdin=LETTERS)
    return where


def test_a_dry_run_says_where_each_came_from_and_writes_nothing(where: list[str]) -> None:
    done = call_plog("redrive", "dlq", "--dry-run", "--each", "--output", "csv", *where)
    assert (done.returncode, done.stderr) == (1, b"2 records would be sent back; 5 stay\n")
    rows = list(csv.DictReader(done.stdout.decode().splitlines()))
    assert [tuple(rows[0].values())] == [
        ("orders", "dlq-0@0", "orders", "3", "17", "0", "java.lang.IllegalStateException", "")
    ]
    assert [row["problem"] for row in rows[1:]] == [
        "",
        "no header names a topic",
        "app-x-repartition is internal: --internal",
        "neither key nor value were copied: --fetch-original reads them",
        "its topic is that of the dead letters",
        "no topic 'x'",
    ]
    assert ok("consume", "orders", *where) == b""
    assert b"plog-redrive" not in ok("group", "list", "--output", "csv", *where)


def test_each_goes_back_once(where: list[str]) -> None:
    first = call_plog("redrive", "dlq", "--limit", "1", *where)
    assert (first.returncode, first.stderr) == (0, b"1 record sent back\n")
    second = call_plog("redrive", "dlq", "--output", "json", *where)
    assert (second.returncode, second.stderr) == (1, b"1 record sent back; 5 stay\n")
    assert [row["dead_letter"] for row in json.loads(second.stdout)] == [f"dlq-0@{number}" for number in range(1, 7)]
    found = [json.loads(line) for line in ok("consume", "orders", "--format", "envelope", *where).splitlines()]
    tries = ["plog.redrive.tries", "1"]
    assert [(record["value"], record["headers"]) for record in found] == [
        ("s", [["own", {"base64": "/w=="}], tries, ["plog.redrive.from", "dlq-0@0"]]),
        ("c", [tries, ["plog.redrive.from", "dlq-0@1"]]),
    ]
    parked = call_plog("redrive", "dlq", "--park", "orders", *where)
    assert (parked.returncode, parked.stderr) == (0, b"0 records sent back; 5 parked in orders\n")
    assert call_plog("redrive", "dlq", *where).stderr == b"0 records sent back\n"
    assert len(ok("consume", "orders", "--format", "envelope", *where).splitlines()) == 7


def test_a_filter_chooses(where: list[str]) -> None:
    wanted = 'header["kafka_dlt-exception-fqcn"] contains "IllegalState"'
    done = call_plog("redrive", "dlq", "--filter", wanted, *where)
    assert (done.returncode, done.stderr) == (0, b"1 record sent back; 6 left out by --filter\n")
    wrong = call_plog("redrive", "dlq", "--filter", "offset ==", *where)
    assert wrong.returncode == 2


def test_what_is_typed_wrongly(where: list[str]) -> None:
    for options, code, problem in (
        (["--to", "dlq"], 2, b"error: --to dlq: that is the topic of the dead letters itself"),
        (["--park", "nowhere"], 1, b"error: UNKNOWN_TOPIC_OR_PARTITION: no topic 'nowhere'"),
        (["--rate", "0"], 2, b"error: --rate 0: expected a number above 0 of records a second"),
        (["--group", ""], 2, b"error: --group is empty"),
        (["--max-tries", "0"], 2, b"error: "),
    ):
        done = call_plog("redrive", "dlq", *options, *where)
        assert (done.returncode, done.stdout) == (code, b""), options
        assert done.stderr.startswith(problem), done.stderr
    unknown = call_plog("redrive", "dlw", *where)
    assert unknown.returncode == 1
    assert unknown.stderr.startswith(b"error: UNKNOWN_TOPIC_OR_PARTITION: no topic 'dlw'\nhint: did you mean")


@pytest.mark.longer
def test_killed_in_the_middle_and_begun_again(server: Server, tmp_path: Path) -> None:
    where = ["--bootstrap-server", server.address]
    for topic in ("orders", "dlq"):
        ok("topic", "create", topic, *where)
    letters = b"".join(envelope(str(number), CONNECT) for number in range(3000))
    ok("produce", "dlq", "--format", "envelope", *where, stdin=letters)

    def sent() -> list[int]:
        read = ok("consume", "orders", "--isolation", "read_committed", "--format", r"%s\n", *where)
        return [int(value) for value in read.split()]

    with subprocess.Popen([PLOG, "redrive", "dlq", "--rate", "400", *where], stderr=subprocess.DEVNULL) as first:
        wait_until(lambda: len(sent()) > 0)
        first.kill()
    assert len(sent()) < 3000
    ok("redrive", "dlq", *where)
    assert sent() == list(range(3000))
