"""How `plog produce` reads records, where it sends them, and what it says of them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import termios
from array import array
from collections import Counter
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import PLOG, Server, call_plog, run_plog
from tests.support.waiting import wait_until


@pytest.fixture
def where(where: list[str]) -> list[str]:
    """A log with the topic t, of four partitions."""
    ok("topic", "create", "t", "--partitions", "4", *where)
    return where


def consumed(where: list[str], pattern: str, *options: str) -> list[bytes]:
    return ok("consume", "t", "--format", pattern + r"\x1e", *options, *where).split(b"\x1e")[:-1]


# --- how records stand in the input


def test_zero_bytes_between_records(where: list[str]) -> None:
    ok("produce", "t", "--delimiter", r"\0", "--partition", "0", *where, stdin=b"a\nb\0\0c\0")
    assert consumed(where, "%s") == [b"a\nb", b"", b"c"]


def test_delimiters_of_several_bytes(where: list[str]) -> None:
    ok("produce", "t", "--delimiter", "--", "--key-separator", "=>", "--partition", "0", *where, stdin=b"a=>1--b=>2\n")
    assert consumed(where, "%k %s") == [b"a 1", b"b 2\n"]


def test_lengths_in_front(where: list[str], tmp_path: Path) -> None:
    ok("produce", "t", "--partition", "0", "--format", "length-prefixed", *where, stdin=b"\0\0\0\2a\n\xff\xff\xff\xff")
    framed = ok("consume", "t", "--format", "%R%s", *where)
    assert framed == b"\0\0\0\2a\n\xff\xff\xff\xff"
    broken = call_plog("produce", "t", "--format", "length-prefixed", *where, stdin=framed + b"\0\0\0\5abc")
    assert broken.returncode == 1
    assert b"record 3: the input ends in the middle of it; 2 records written" in broken.stderr


def test_headers_of_each_line(where: list[str]) -> None:
    template = ["--template", r"%k|%h|%s\n", "--header", "all=x", "--partition", "0"]
    ok("produce", "t", *template, *where, stdin=b"k|a=1,b=2|v\nk2||w\n")
    assert consumed(where, "%k %s %h") == [b"k v a=1,b=2,all=x", b"k2 w all=x"]


def test_tombstones(where: list[str]) -> None:
    options = ["--key-separator", ":", "--null-value", "NULL", "--null-key", "", "--partition", "0"]
    ok("produce", "t", *options, *where, stdin=b"a:NULL\nb:\n:c\n:NULL\n")
    assert consumed(where, "%k{json} %s{json}") == [b'"a" null', b'"b" ""', b'null "c"', b"null null"]


@pytest.mark.longer
@pytest.mark.parametrize(("linger", "batches"), [("0", 5), ("600000", 1)])
def test_a_slow_writers_lines_wait_for_more(server: Server, tmp_path: Path, linger: str, batches: int) -> None:
    """The next line is written when the one before was read, and, without a linger, when it is in the log."""
    where = ["--bootstrap-server", server.address]
    ok("topic", "create", "t", *where)
    command = [PLOG, "produce", "t", "--linger", linger, *where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as producer:
        assert producer.stdin is not None
        for number in range(5):
            producer.stdin.write(b"line %d\n" % number)
            producer.stdin.flush()
            wait_until(lambda pipe=producer.stdin: unread_bytes(pipe) == 0)
            if linger == "0":
                lines = b"".join(b"line %d\n" % n for n in range(number + 1))
                wait_until(lambda lines=lines: ok("consume", "t", *where) == lines)
    dump = ok("dump-segment", str(tmp_path / "data" / "t-0"), "--format", "ndjson")
    found = [json.loads(line) for line in dump.splitlines()]
    assert sum("base_offset" in row or "baseOffset" in row for row in found) == batches, found[:2]


def unread_bytes(pipe: IO[bytes]) -> int:
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


# --- where to


def test_partitioners(where: list[str]) -> None:
    lines = b"".join(b"k%d:v\n" % n for n in range(40))
    ok("produce", "t", "--partitioner", "round_robin", "--key-separator", ":", *where, stdin=lines)
    assert Counter(consumed(where, "%p")) == dict.fromkeys([b"0", b"1", b"2", b"3"], 10)
    unknown = call_plog("produce", "t", "--partitioner", "nonsense", *where, stdin=lines)
    assert unknown.returncode == 2
    assert b"murmur2, murmur2_random, consistent_random" in unknown.stderr


@pytest.mark.longer
def test_a_partitioner_of_ones_own(where: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def by_length(key, value, partitions):\n    return len(value)\n")
    command = ("produce", "t", "--partitioner", "mine:by_length", *where)
    done = run_plog(*command, stdin=b"a\n\nabc\n", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(consumed(where, "%p %s")) == [b"0 ", b"1 a", b"3 abc"]
    bad = run_plog(*command, stdin=b"b\ntoo long\n", cwd=tmp_path)
    assert bad.returncode == 1
    assert b"line 2: partition 8, topic t has partitions 0 to 3; 1 record written to t before it" in bad.stderr
    (tmp_path / "mine.py").write_text("def raises(key, value, partitions):\n    return key[0]\n")
    raises = run_plog("produce", "t", "--partitioner", "mine:raises", *where, stdin=b"a\n", cwd=tmp_path)
    assert raises.returncode == 2
    assert b"raises of key None: TypeError: 'NoneType' object is not subscriptable" in raises.stderr
    none = call_plog("produce", "t", "--partitioner", "mine:nothing", *where, stdin=b"a\n")
    assert none.returncode == 2


# --- what is said


def test_a_report(where: list[str]) -> None:
    ok("produce", "t", "--partition", "1", *where, stdin=b"before\n")
    report = ok("produce", "t", "--partitioner", "round_robin", "--report", "json", *where, stdin=b"a\nb\nc\nd\ne\nf\n")
    assert json.loads(report) == [
        {"partition": 0, "records": 2, "first_offset": 0, "last_offset": 1},
        {"partition": 1, "records": 2, "first_offset": 1, "last_offset": 2},
        {"partition": 2, "records": 1, "first_offset": 0, "last_offset": 0},
        {"partition": 3, "records": 1, "first_offset": 0, "last_offset": 0},
    ]


def test_an_envelope_goes_where_its_key_belongs_or_stays(where: list[str]) -> None:
    ok("topic", "create", "wide", "--partitions", "4", *where)
    ok("topic", "create", "narrow", *where)
    ok("produce", "wide", "-K", ":", *where, stdin=b"".join(b"k%d:%d\n" % (n, n) for n in range(40)))
    lines = ok("consume", "wide", "--format", "envelope", *where)
    done = call_plog("produce", "narrow", "--format", "envelope", *where, stdin=lines)
    assert done.returncode == 1
    assert b"(--partitioner NAME passes over the partition of a record)" in done.stderr
    ok("produce", "all", "--format", "envelope", "--partitioner", "murmur2", *where, stdin=lines)
    assert sorted(map(int, ok("consume", "all", *where).split())) == list(range(40))
    ok("topic", "create", "again", "--partitions", "4", *where)
    moved = b"".join(line.replace(b'"partition": ', b'"partition": 9') + b"\n" for line in lines.splitlines())
    ok("produce", "again", "--format", "envelope", "--partitioner", "murmur2", *where, stdin=moved)
    pattern = ["--format", r"%p %k\n"]
    assert sorted(ok("consume", "again", *pattern, *where).splitlines()) == sorted(
        ok("consume", "wide", *pattern, *where).splitlines()
    )


def test_what_was_not_written_is_named(where: list[str]) -> None:
    ok("topic", "create", "small", "--partitions", "2", "--set", "max.message.bytes=1000", *where)
    lines = [b"0 ok", b"1 ok", b"0 " + b"x" * 2000, b"1 fine", b"0 behind"]
    options = ["--template", r"%p %s\n", "--batch-size", "100"]  # with which a batch is a record
    done = call_plog("produce", "small", *options, *where, stdin=b"\n".join([*lines, b""]))
    assert done.returncode == 1
    assert b"line 3: " in done.stderr
    assert b"3 records written to small; lines 3 and 5 and all that follow are not\n" in done.stderr
    written = ok("consume", "small", *where).splitlines()
    assert sorted(written) == [b"fine", b"ok", b"ok"]


@pytest.mark.longer
def test_a_broker_that_goes_away(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        where = ["--bootstrap-server", server.address]
        command = [PLOG, "produce", "t", "--acks", "1", *where]
        producer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert producer.stdin is not None
        producer.stdin.write(b"one\n")
        producer.stdin.flush()
        wait_until(lambda: call_plog("consume", "t", *where).stdout == b"one\n")
        server.pin(server.address)
        server.kill()
        producer.stdin.write(b"two\n")
        producer.stdin.flush()
        server.start()
        _, errors = producer.communicate()
        assert producer.returncode == 0, errors
        assert b"2 records written to t" in errors
        assert ok("consume", "t", *where) == b"one\ntwo\n"


def test_tee(where: list[str]) -> None:
    lines = b"a=1\nb=2\nno end"
    assert ok("produce", "t", "--key-separator", "=", "--tee", *where, stdin=b"a=1\nb=2") == b"a=1\nb=2"
    bad = call_plog("produce", "t", "--key-separator", "=", "--tee", *where, stdin=lines)
    assert (bad.returncode, bad.stdout) == (1, b"a=1\nb=2\n")


def test_a_dry_run_writes_nothing(where: list[str], tmp_path: Path) -> None:
    room = tmp_path / "room"
    done = call_plog("produce", "t", "--dry-run", "--claim-check", str(room), *where, stdin=b"a\nb\n")
    assert (done.returncode, done.stderr) == (0, b"2 records would be written to t\n")
    assert ok("consume", "t", *where) == b""
    assert not room.exists()
    bad = call_plog("produce", "t", "--dry-run", "--key-field", "k", *where, stdin=b'{"k": 1}\nnothing\n')
    assert bad.returncode == 1
    assert b"line 2: not JSON" in bad.stderr
    missing = call_plog("produce", "not-there", "--dry-run", *where, stdin=b"a\n")
    assert missing.returncode == 1
    assert b"not-there" not in ok("topic", "list", *where)


# --- large values


def test_claim_checks(where: list[str], tmp_path: Path) -> None:
    room = tmp_path / "room"
    large, small = os.urandom(3000).hex().encode(), b"small"
    options = ["--claim-check", str(room), "--claim-check-above", "1000", "--partition", "0"]
    ok("produce", "t", *options, "--header", "h=1", *where, stdin=large + b"\n" + small + b"\n" + large + b"\n")
    digest = hashlib.sha256(large).hexdigest()
    reference = b'{"claim_check": "sha256:%s", "size": 6000}' % digest.encode()
    assert consumed(where, "%s") == [reference, small, reference]
    assert consumed(where, "%h")[0] == b"h=1,plog-claim-check=sha256:" + digest.encode()
    assert [path.read_bytes() for path in room.rglob("*") if path.is_file()] == [large]
    assert consumed(where, "%s", "--claim-check", str(room)) == [large, small, large]
    (room / digest[:2] / digest).write_bytes(b"another")
    changed = call_plog("consume", "t", "--claim-check", str(room), *where)
    assert changed.returncode == 1
    assert b"is not the value that was stored there: its SHA-256 differs" in changed.stderr
    (room / digest[:2] / digest).unlink()
    gone = call_plog("consume", "t", "--claim-check", str(room), *where)
    assert gone.returncode == 1
    assert b"t-0 offset 0: its value is not in" in gone.stderr
    assert consumed(where, "%s", "--claim-check", str(room), "--filter", "offset == 1") == [small]
    for more in ([], ["--value-format", "string"], ["--value-format", "uuid", "--from", "0=2,end"]):
        marked = call_plog("consume", "t", "--claim-check", str(room), "--no-exit-on-error", *more, *where)
        assert (marked.returncode, marked.stdout.count(b"not_decoded")) == (1, 1 if "uuid" in more else 2)
        assert b" not decoded: " in marked.stderr and b" without their large value" in marked.stderr
    group = call_plog("consume", "t", "--claim-check", str(room), "--group", "g", "--from", "1", *where)
    assert (group.returncode, group.stdout) == (1, b"small\n")
    assert json.loads(ok("group", "describe", "g", "--output", "json", *where))[0]["offset"] == 2


def test_slices(where: list[str]) -> None:
    large = os.urandom(50_000)
    lines = [b"k:small", b"k:" + large.hex().encode(), b"x:", b"k:" + b"y" * 1001]
    ok("produce", "t", "--chunk", "1000", "--key-separator", ":", *where, stdin=b"\n".join(lines))
    slices = consumed(where, "%p %K %S")
    assert len(slices) == 1 + 100 + 1 + 2
    assert max(int(text.split()[2]) for text in slices) == 1000
    joined = consumed(where, "%k:%s%h", "--join")
    assert sorted(joined) == sorted(lines)
    one = consumed(where, "%k:%s", "--join", "--filter", 'value contains "yy"', "--max-messages", "1")
    assert one == [lines[3]]


def test_slices_of_which_some_are_missing(where: list[str]) -> None:
    ok("produce", "t", "--chunk", "10", "--partition", "0", *where, stdin=b"0123456789abcdef\nshort\n")
    done = call_plog("consume", "t", "--join", "--from", "0=1,end", *where)
    assert (done.returncode, done.stdout) == (0, b"short\n")
    assert b"t-0: a value that begins at offset 1 is not printed: slices of it were not read" in done.stderr


def test_slices_that_are_not_whole_are_not_committed(tmp_path: Path) -> None:
    """A group that stops in the middle of a value begins with it again."""
    where = ["--data-dir", str(tmp_path)]
    ok("topic", "create", "t", *where)
    ok("produce", "t", "--chunk", "4", *where, stdin=b"first\n0123456789\n")
    ok("produce", "t", "--format", "envelope", *where, stdin=envelope_of_a_slice(b"abcd", 0))
    assert ok("consume", "t", "--group", "g", "--join", *where) == b"first\n0123456789\n"
    ok("produce", "t", "--format", "envelope", *where, stdin=envelope_of_a_slice(b"efgh", 1))
    assert ok("consume", "t", "--group", "g", "--join", *where) == b"abcdefgh\n"
    for index, part in enumerate((b"wrong", b"efgh")):
        ok("produce", "t", "--format", "envelope", *where, stdin=envelope_of_a_slice(part, index))
    ok("produce", "t", *where, stdin=b"last\n")
    marked = call_plog("consume", "t", "--join", "--no-exit-on-error", *where)
    assert (marked.returncode, marked.stdout.splitlines()[0], marked.stdout.splitlines()[-1]) == (1, b"first", b"last")
    assert b"1 of 5 not decoded: 1 without their large value" in marked.stderr


def envelope_of_a_slice(part: bytes, index: int) -> bytes:
    mark = f"00000000000000ff/{index}/2 sha256:{hashlib.sha256(b'abcdefgh').hexdigest()}"
    return json.dumps({"value": part.decode(), "headers": [["plog-chunk", mark]]}).encode() + b"\n"


@for_each(
    "options, problem",
    [
        (["--template", "%s", "--key-separator", "x"], "--template alone"),
        (["--template", "%s", "--delimiter", "x"], "ends with its own delimiter"),
        (["--format", "csv", "--delimiter", "x"], "--delimiter goes with"),
        (["--tee", "--report", "json"], "one of them"),
        (["--delimiter", ""], "--delimiter is empty"),
        (["--claim-check-above", "-1"], "a number of bytes"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, options: list[str], problem: str) -> None:
    done = call_plog("produce", "t", *options, "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert problem in done.stderr.decode()


def test_a_file_that_is_taken_for_the_topic_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("a\n")
    done = call_plog("produce", "lines.txt", "--data-dir", "data")
    assert (done.returncode, b"for the file: plog produce TOPIC lines.txt" in done.stderr) == (0, True)
