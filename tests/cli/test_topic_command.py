"""`plog topic`, against a server and embedded: the same answers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from core.common.time_text import parse_time
from tests.cli.conftest import ok
from tests.support.server import Server, call_plog, run_plog


def described(where: list[str], *names: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(ok("topic", "describe", *names, "--output", "json", *where))
    return rows


def test_a_topics_life(where: list[str]) -> None:
    settings = ["--set", "retention.ms=-1", "--set", "segment.bytes=1048576"]
    ok("topic", "create", "t", "--partitions", "2", *settings, *where)
    ok("produce", "t", "--partition", "1", *where, stdin=b"a\nb\nc\n")
    rows = described(where, "t")
    assert [(r["partition"], r["start_offset"], r["end_offset"]) for r in rows] == [(0, 0, 0), (1, 0, 3)]
    assert all(r["topic"] == "t" for r in rows)
    if where[0] == "--data-dir":
        assert rows[0]["size_bytes"] == 0
        assert rows[1]["size_bytes"]

    ok("topic", "alter", "t", "--partitions", "3", "--set", "retention.ms=60000", "--unset", "segment.bytes", *where)
    assert [r["partition"] for r in described(where, "t")] == [0, 1, 2]
    talk = call_plog("topic", "describe", "t", *where).stderr.decode()
    assert "retention.ms=60000" in talk
    assert "segment.bytes" not in talk

    ok("topic", "create", "u", *where)
    assert ok("topic", "list", "--output", "ndjson", *where).splitlines() == [
        b'{"topic": "t", "partitions": 3}',
        b'{"topic": "u", "partitions": 1}',
    ]
    ok("topic", "delete", "t", "u", *where)
    assert ok("topic", "list", "--output", "json", *where) == b"[]\n"
    ok("topic", "delete", "t", "--if-exists", *where)


def test_a_topic_made_again_is_empty(where: list[str]) -> None:
    ok("topic", "create", "t", *where)
    ok("produce", "t", *where, stdin=b"old\n")
    ok("topic", "delete", "t", *where)
    ok("topic", "create", "t", *where)
    assert ok("consume", "t", *where) == b""
    ok("produce", "t", *where, stdin=b"new\n")
    assert ok("consume", "t", *where) == b"new\n"


def test_partitions_are_never_taken_away(where: list[str]) -> None:
    ok("topic", "create", "t", "--partitions", "2", *where)
    done = call_plog("topic", "alter", "t", "--partitions", "1", *where)
    assert (done.returncode, b"INVALID_PARTITIONS" in done.stderr) == (1, True)
    assert call_plog("topic", "alter", "t", *where).returncode == 2, "nothing to change"


def test_delete_records(where: list[str]) -> None:
    ok("topic", "create", "t", "--partitions", "2", *where)
    for partition in ("0", "1"):
        ok("produce", "t", "--partition", partition, *where, stdin=b"a\nb\nc\n")
    done = call_plog("topic", "delete-records", "t", "--before", "2", "--partition", "1", *where)
    assert done.returncode == 0
    assert done.stderr.startswith(b"t-1 starts at offset 2 ")
    assert ok("consume", "t", *where).splitlines() == [b"a", b"b", b"c", b"c"]
    ok("topic", "delete-records", "t", "--before", "-1", *where)
    assert ok("consume", "t", *where).splitlines() == [b"c", b"c"]
    ok("topic", "delete-records", "t", "--before", "end", *where)
    assert ok("consume", "t", *where) == b""
    assert [(r["start_offset"], r["end_offset"]) for r in described(where, "t")] == [(3, 3), (3, 3)]
    for arguments, code in (
        (["--before", "9"], 1),
        (["--before", "soon"], 2),
        (["--before", "1", "--partition", "7"], 1),
    ):
        done = call_plog("topic", "delete-records", "t", *arguments, *where)
        assert done.returncode == code, done.stderr
        assert done.stderr.startswith(b"error: ")


@pytest.mark.longer
def test_damage_is_described(tmp_path: Path) -> None:
    """By the files, and by a server."""
    files = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", "--set", "retention.ms=-1", *files)
    for line in (b"a\n", b"b\n", b"c\n"):
        ok("produce", "t", *files, stdin=line)
    log = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    assert described(files, "t")[0]["damaged"] is None, "nobody looked yet"
    with Server(tmp_path / "data") as server:
        assert described(["--bootstrap-server", server.address], "t")[0]["damaged"] == ["1-1"]
        table = call_plog("topic", "describe", "t", "--bootstrap-server", server.address)
        assert b"damaged" in table.stdout
        assert b"plog.damaged.offsets" not in table.stderr, "it is no setting of the topic's"
        read = call_plog("consume", "t", "--bootstrap-server", server.address)
        assert (read.returncode, read.stdout) == (1, b"a\n")
    assert described(files, "t")[0]["damaged"] == ["1-1"]
    read = call_plog("consume", "t", *files)
    assert (read.returncode, read.stdout) == (1, b"a\n")


@pytest.mark.longer
def test_what_one_process_makes_the_next_one_finds(tmp_path: Path) -> None:
    """Embedded, then served, then embedded: one directory."""
    embedded = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", "--partitions", "2", *embedded)
    ok("produce", "t", *embedded, stdin=b"a\n")
    with Server(tmp_path / "data") as server:
        ok("produce", "t", "--bootstrap-server", server.address, stdin=b"b\n")
        ok("produce", "t", *embedded, stdin=b"c\n")  # talks to the server, which owns the directory
        assert sorted(ok("consume", "t", *embedded).split()) == [b"a", b"b", b"c"]
    assert sorted(ok("consume", "t", *embedded).split()) == [b"a", b"b", b"c"]


def test_a_table_for_a_pipe_is_plain(where: list[str]) -> None:
    ok("topic", "create", "topic-with-a-name", "--partitions", "12", *where)
    assert ok("topic", "list", *where) == b"topic              partitions\ntopic-with-a-name          12\n"


@pytest.mark.longer
def test_the_data_directory_by_environment(tmp_path: Path) -> None:
    environment = {"PLOG_DATA_DIR": str(tmp_path / "data")}
    assert run_plog("topic", "create", "t", environment=environment).returncode == 0
    assert (tmp_path / "data" / "t-0").is_dir()
    environment = {"XDG_DATA_HOME": str(tmp_path / "home"), "PLOG_DATA_DIR": ""}
    assert run_plog("topic", "create", "t", environment=environment).returncode == 0
    assert (tmp_path / "home" / "plog" / "t-0").is_dir()


def test_records_that_are_deleted_beside_a_refusal_are_told_of(where: list[str]) -> None:
    """One partition holds the offset, the other does not."""
    ok("topic", "create", "t", "--partitions", "2", *where)
    ok("produce", "t", "--partition", "0", *where, stdin=b"a\nb\n")
    done = call_plog("topic", "delete-records", "t", "--before", "1", *where)
    assert done.returncode == 1
    assert b"OFFSET_OUT_OF_RANGE: t-1: " in done.stderr
    assert b"; t-0 starts at offset 1 now" in done.stderr


def test_a_topic_that_is_not_there_keeps_no_other_from_being_deleted(where: list[str]) -> None:
    for name in ("a", "b"):
        ok("topic", "create", name, *where)
    done = call_plog("topic", "delete", "a", "nosuch", "b", *where)
    assert (done.returncode, ok("topic", "list", "--output", "csv", *where).split()) == (1, [b"topic,partitions"])
    assert b"error: UNKNOWN_TOPIC_OR_PARTITION: nosuch: " in done.stderr


def test_topics_by_a_regular_expression(where: list[str]) -> None:
    """As rpk has it: it matches whole names, and never Kafka's own topics (redpanda#2669)."""
    for name in ("orders.eu", "orders-eu", "keep"):
        ok("topic", "create", name, *where)
    ok("produce", "orders-eu", *where, stdin=b"a\nb\n")
    for group in "etl", "x\ny":
        ok("group", "reset-offsets", group, "--topic", "orders-eu", "--to-latest", "--apply", *where)

    def listed(*words: str) -> list[str]:
        return [row["topic"] for row in json.loads(ok("topic", "list", *words, "--output", "json", *where))]

    assert listed("orders.eu") == ["orders.eu"]
    assert listed("--regex", "orders.eu") == ["orders-eu", "orders.eu"]
    assert listed("-r", "rders.*|k.*", "__cons.*", "--internal") == ["__consumer_offsets", "keep"]
    assert listed("__consumer_offsets") == ["__consumer_offsets"]
    for words, code, message in (
        (["list", "orders.u"], 1, b"hint: did you mean orders.eu?"),
        (["list", "orders.*"], 1, b"hint: --regex takes regular expressions"),
        (["list", "--regex"], 2, b"--regex goes with NAME"),
        (["list", "--regex", "__cons.*"], 2, b"no topic matches __cons.*"),
        (["delete", "orders.*"], 1, b"hint: --regex takes regular expressions"),
        (["delete", "--regex", "("], 2, b"(: no regular expression"),
        (["delete", "--regex", "__consumer_offsets"], 2, b"no topic matches __consumer_offsets"),
        (["delete", "--regex", "x", "--if-exists"], 0, b"no topic matches x"),
        (["delete", "--regex", ".*", "--internal"], 2, b"--internal goes with names"),
        (["delete", "--regex", "orders.eu"], 2, b"error: 2 topics with 2 offsets would be deleted"),
    ):
        done = call_plog("topic", *words, *where)
        assert (done.returncode, message in done.stderr) == (code, True), (words, done.stderr)
    planned = call_plog("topic", "delete", "-r", "orders.eu", "--dry-run", *where).stderr.decode().splitlines()
    assert [line.partition(": ")[2].rpartition("; ")[2] for line in planned] == [
        r"read by etl (Empty), x\ny (Empty)",
        "no group reads it",
    ]
    assert len(listed()) == 3
    ok("group", "delete", "x\ny", *where)
    ok("topic", "delete", "--regex", "orders.eu", "--yes", *where)
    assert listed() == ["keep"]


def test_who_uses_a_topic(where: list[str]) -> None:
    before_ms = time.time_ns() // 1_000_000
    ok("topic", "create", "t", "--partitions", "2", "--set", "retention.ms=-1", *where)
    ok("topic", "create", "empty", *where)
    times = {"0": ["2023-01-03T00:00:00.000Z", "2023-01-02T00:00:00.000Z"], "1": ["2023-01-01T00:00:00.000Z"]}
    for partition, texts in times.items():
        lines = [json.dumps({"value": "a", "timestamp": parse_time(text, 0)}) for text in texts]
        ok("produce", "t", "--partition", partition, "--format", "envelope", *where, stdin="\n".join(lines).encode())
    ok("produce", "copy", "--transactional-id", "copier", *where, stdin=b"a\n")
    ok("group", "reset-offsets", "etl", "--topic", "t", "--to-earliest", "--apply", *where)
    done = call_plog("topic", "describe", "t", "empty", "--usage", "--output", "json", *where)
    rows = json.loads(done.stdout)
    created = rows.pop(0)
    if where[0] == "--data-dir":
        assert before_ms <= parse_time(created["time"], 0) <= time.time_ns() // 1_000_000
        assert created["note"] == "by whom is not recorded"
    else:
        assert (created["time"], created["note"].partition(";")[0]) == (None, "a server does not tell")
    assert [(r["what"], r["who"], r["time"], r["partition"], r["offset"]) for r in rows[:2]] == [
        ("first write", None, times["1"][0], 1, 0),
        ("last write", None, times["0"][0], 0, 0),
    ]
    producers = [r for r in rows if r["what"] == "producer"]
    assert [(r["who"], r["partition"], r["time"]) for r in producers] == [
        (None, 0, times["0"][-1]), (None, 1, times["1"][0])
    ]  # fmt: skip
    copied = json.loads(ok("topic", "describe", "copy", "--usage", "--output", "json", *where))
    assert [r["who"] for r in copied if r["what"] == "producer"] == ["copier"]
    assert [r["offset"] for r in copied if r["what"] == "last write"] == [1], "the end of the transaction"
    (group,) = [r for r in rows if r["what"] == "group"]
    assert (group["who"], group["note"]) == ("etl", "Empty, 0 members, lag 3")
    assert parse_time(group["time"], 0) >= before_ms
    assert [(r["what"], r["note"]) for r in rows[-2:]] == [
        ("created", created["note"]), ("last write", "the topic holds no record")
    ]  # fmt: skip
    assert b"note: no producer is known" in done.stderr


def test_more_partitions_come_with_a_word_about_keys(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path)]
    ok("topic", "create", "keyed", *where)
    for words, warnings in ((["--partitions", "6"], 1), (["--set", "retention.ms=-1"], 0)):
        done = call_plog("topic", "alter", "keyed", *words, *where)
        assert done.returncode == 0
        assert done.stderr.count(b"warning: a key's partition depends on the number of partitions") == warnings
