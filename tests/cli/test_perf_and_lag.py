"""`plog perf`, lag in time, and how even a topic's partitions are."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from core.common.time_text import duration_text
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import PLOG, Server, call_plog

HOUR_MS = 3_600_000


def test_perf_produce_and_consume(where: list[str], tmp_path: Path) -> None:
    options = ["--num-records", "5000", "--record-size", "50", "--warmup-records", "1000", "--output", "json"]
    made = json.loads(ok("perf", "produce", "p", *options, *where))
    assert made["records"] == 5000
    assert made["p50_ms"] <= made["p95_ms"] <= made["p99_ms"] <= made["max_ms"]
    assert sum(bar["records"] for bar in made["histogram"]) == 5000
    read = json.loads(ok("perf", "consume", "p", "--timeout", "0", "--output", "json", *where))
    assert read["records"] == 6000
    assert {len(line) for line in ok("consume", "p", *where).splitlines()} == {50}
    payloads = tmp_path / "payloads"
    payloads.write_bytes(b"one\ntwo\nthree\n")
    text = ok("perf", "produce", "q", "--payload-file", str(payloads), "--num-records", "7", *where).decode()
    assert text.startswith("7 records sent, ")
    assert "ms 99.9th" in text
    assert ok("consume", "q", *where).split() == b"one two three one two three one".split()


def test_perf_makes_few_large_payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def payload(size: int, _random: object) -> bytes:
        made.append(size)
        return b"x" * size

    monkeypatch.setattr("core.client.write.perf.random_payload", payload)
    where = ["--data-dir", str(tmp_path / "data")]
    for size, count, records in ((1_000_000, 3, 3), (900_000, 2, 2), (10, 1000, 5000)):
        ok("perf", "produce", "p", "--num-records", str(records), "--record-size", str(size), *where)
        assert made == [size] * count
        made.clear()
    ok("topic", "alter", "p", "--set", "max.message.bytes=20000000", *where)
    ok("perf", "produce", "p", "--num-records", "8", "--record-size", "12000000", *where)
    assert sum(made) <= 64 << 20
    made.clear()
    for command in ("produce", "latency"):
        done = call_plog("perf", command, "p", "--num-records", "1", "--record-size", "20000000", *where)
        assert (done.returncode, made) == (2, [])
        assert b"p takes batches of 20,000,000 bytes (max.message.bytes)" in done.stderr


def test_perf_at_a_pace(where: list[str]) -> None:
    started = time.monotonic()
    ok("perf", "produce", "p", "--num-records", "300", "--throughput", "1000", *where)
    assert time.monotonic() - started >= 0.28
    ok("perf", "produce", "p", "--num-records", "3", "--throughput", "1000000000", *where)  # nobody keeps up with that


def test_perf_latency(where: list[str]) -> None:
    done = call_plog("perf", "latency", "p", "--num-records", "20", "--histogram", "--output", "ndjson", *where)
    assert done.returncode == 0
    assert json.loads(done.stdout)["records"] == 20
    assert b"#" in done.stderr
    assert len(ok("consume", "p", *where).splitlines()) == 20


def test_perf_reads_what_there_is(where: list[str]) -> None:
    ok("produce", "p", *where, stdin=b"a\nb\n")
    done = call_plog("perf", "consume", "p", "--messages", "5", "--timeout", "0", *where)
    assert done.returncode == 0
    assert done.stdout.startswith(b"2 records read, ")
    assert b"warning: 2 records were found, fewer than 5" in done.stderr


def test_lag_in_time(where: list[str]) -> None:
    """How long the first record that is not read has been there."""
    ok("topic", "create", "t", "--partitions", "3", "--set", "retention.ms=-1", *where)
    now_ms = time.time_ns() // 1_000_000
    for partition, ages in enumerate(([5, 3, 1], [2], [])):
        lines = [json.dumps({"value": "x", "timestamp": now_ms - age * HOUR_MS}).encode() for age in ages]
        ok("produce", "t", "--format", "envelope", "--partition", str(partition), *where, stdin=b"\n".join(lines))
    offsets = "t,0,1\nt,1,1\nt,2,0\n"
    reset(where, offsets)
    rows = json.loads(ok("group", "describe", "g", "--output", "json", *where))
    assert [row["lag"] for row in rows] == [2, 0, 0]
    assert 3 * HOUR_MS <= rows[0]["lag_ms"] < 3 * HOUR_MS + 600_000
    assert [row["lag_ms"] for row in rows[1:]] == [0, 0]
    table = ok("group", "describe", "g", *where).decode()
    assert "lag_time" in table
    assert " 3h" in table


def reset(where: list[str], offsets: str) -> None:
    for line in offsets.split():
        topic, partition, offset = line.split(",")
        options = ["--topic", f"{topic}:{partition}", "--to-offset", offset, "--execute"]
        ok("group", "reset-offsets", "g", *options, *where)


@pytest.mark.longer
def test_a_group_that_is_watched(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--set", "group.initial.rebalance.delay.ms=0") as server:
        where = ["--bootstrap-server", server.address]
        ok("produce", "t", *where, stdin=b"a\nb\nc\n")
        ok("consume", "t", "--group", "g", "--max-messages", "1", *where)
        command = [PLOG, "group", "describe", "g", "--watch", "0.2", "--output", "ndjson", *where]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watcher:
            assert watcher.stdout is not None
            first = json.loads(watcher.stdout.readline())
            ok("consume", "t", "--group", "g", "--max-messages", "2", *where)
            row = json.loads(watcher.stdout.readline())
            while row["lag"]:
                row = json.loads(watcher.stdout.readline())
            watcher.send_signal(signal.SIGINT)
        assert (first["lag"], first["read_per_s"]) == (2, None)
        assert row["read_per_s"] > 0
        assert watcher.returncode == 130


@pytest.mark.longer
def test_a_group_that_is_watched_in_a_pipe(where: list[str]) -> None:
    """A listing is there when it was made, and not when the pipe has 8 KB of them: the next comes in an hour."""
    ok("produce", "t", *where, stdin=b"a\n")
    ok("consume", "t", "--group", "g", "--max-messages", "1", *where)
    for output in ("table", "json", "ndjson", "csv"):
        command = [PLOG, "group", "describe", "g", "--watch", "3600", "--output", output, *where]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watcher:
            assert watcher.stdout is not None
            assert watcher.stdout.read(1), output
            watcher.send_signal(signal.SIGINT)


def test_uneven_partitions(where: list[str]) -> None:
    ok("topic", "create", "t", "--partitions", "2", *where)
    for partition, count in ((0, 300), (1, 100)):
        ok("produce", "t", "--partition", str(partition), *where, stdin=b"x" * 99 + b"\n" + b"y\n" * count)
    done = call_plog("topic", "describe", "t", "--output", "json", *where)
    rows = json.loads(done.stdout)
    assert [row["offsets"] for row in rows] == [301, 101]
    sizes = [row["size_bytes"] for row in rows]
    assert [row["skew"] for row in rows] == [round(size * 2 / sum(sizes), 2) for size in sizes]
    table = call_plog("topic", "describe", "t", *where)
    assert b"402 offsets, " in table.stderr
    assert b"partition 0 is the largest, 1." in table.stderr


@for_each(
    "milliseconds, text",
    [
        (0, "0s"), (7, "7ms"), (1500, "1s"), (61_000, "1m 1s"), (3 * HOUR_MS, "3h"), (HOUR_MS + 5, "1h"),
        (26 * HOUR_MS + 61_000, "1d 2h"), (-5000, "-5s"),
    ],
)  # fmt: skip
def test_durations(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
