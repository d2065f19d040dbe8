"""What `plog consume` chooses and how it writes it: several topics, filters, orders, ends, files of columns."""

from __future__ import annotations

import io
import json
import random
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import SAMPLE_DATA
from tests.support.server import PLOG, Server, call_plog
from tests.support.waiting import PROMPT_SECONDS, wait_for_exit, wait_until

START = 1_700_000_000_000


@pytest.fixture
def where(where: list[str]) -> list[str]:
    """Topics a, of three partitions, and b, of one; timestamps are spread over the partitions at random."""
    for topic, partitions in (("a", 3), ("b", 1)):
        ok("topic", "create", topic, "--partitions", str(partitions), "--set", "retention.ms=-1", *where)
    numbers = list(range(300))
    random.Random(5).shuffle(numbers)
    for partition in range(3):
        mine = sorted(numbers[partition::3])
        ok("produce", "a", "--format", "envelope", *where, stdin=b"".join(line(n, partition) for n in mine))
    ok("produce", "b", *where, stdin=b"one\ntwo\n")
    return where


def line(number: int, partition: int) -> bytes:
    value = json.dumps({"n": number, "even": number % 2 == 0})
    fields = {"key": f"k{number % 7}", "value": value, "timestamp": START + number, "partition": partition}
    fields["headers"] = [["n", str(number)], ["empty", None]]
    return json.dumps(fields).encode() + b"\n"


def numbers(text: bytes) -> list[int]:
    return [json.loads(one)["n"] for one in text.splitlines()]


def test_several_topics(where: list[str]) -> None:
    printed = ok("consume", "b", "a", "--format", r"%t %p\n", *where).split(b"\n")[:-1]
    assert sorted(set(printed)) == [b"a 0", b"a 1", b"a 2", b"b 0"]
    assert len(printed) == 302


@for_each("options", [["^[bc]$"], ["--regex", "b", "c.*"]])
def test_topics_by_pattern(where: list[str], options: list[str]) -> None:
    assert ok("consume", *options, *where) == b"one\ntwo\n"
    none = call_plog("consume", "--regex", "nothing", *where)
    assert (none.returncode, none.stdout) == (2, b"")
    assert b"no topic matches nothing\nhint: an expression must match the whole name" in none.stderr


def test_kafkas_word_for_the_beginning(where: list[str]) -> None:
    assert ok("consume", "b", "--from", "end", "--from-beginning", *where) == b"one\ntwo\n"


def test_filters(where: list[str]) -> None:
    both = ok("consume", "a", "--filter", "value.even == true and partition > 0", "--filter", 'key == "k1"', *where)
    everything = [json.loads(e) for e in ok("consume", "a", "--format", "envelope", *where).splitlines()]
    wanted = [
        number
        for number, record in ((json.loads(r["value"])["n"], r) for r in everything)
        if number % 2 == 0 and record["partition"] > 0 and record["key"] == "k1"
    ]
    assert sorted(numbers(both)) == sorted(wanted)
    assert wanted
    assert sorted(numbers(ok("consume", "a", "--grep", '"n": 29[0-9],', *where))) == list(range(290, 300))
    some = ok("consume", "a", "--filter", "value.n < 100", "--max-messages", "3", *where)
    assert len(numbers(some)) == 3
    assert max(numbers(some)) < 100


def test_a_merge_is_in_order_of_time(where: list[str]) -> None:
    assert numbers(ok("consume", "a", "--merge", *where)) == list(range(300))
    some = ok("consume", "a", "--merge", "--max-messages", "10", "--format", r"%i %T\n", *where)
    assert some == b"".join(b"%d %d\n" % (n, START + n) for n in range(10))
    odd = ok("consume", "a", "--merge", "--filter", "value.even == false", *where)
    assert numbers(odd) == list(range(1, 300, 2))


def test_the_last_ones_of_the_whole_topic(where: list[str]) -> None:
    assert numbers(ok("consume", "a", "--last", "5", *where)) == [295, 296, 297, 298, 299]
    both = ["--newest-first", "--format", "%i %T %k %h{%k=%v;}\n"]
    newest = ok("consume", "a", "--tail", "2", *both, *where)
    assert newest == b"0 %d k5 n=299;empty=;\n1 %d k4 n=298;empty=;\n" % (START + 299, START + 298)
    rare = ok("consume", "a", "--last", "4", "--filter", "value.n < 200", "--filter", 'key == "k1"', *where)
    assert numbers(rare) == [176, 183, 190, 197]
    few = ok("consume", "a", "--last", "3", "--filter", "value.n < 2", *where)
    assert numbers(few) == [0, 1]
    assert numbers(ok("consume", "a", "--last", "1000", "--newest-first", *where)) == list(range(299, -1, -1))
    assert numbers(ok("consume", "a", "--last", "2", "--until", str(START + 100), "--partition", "0", *where)) != []
    assert ok("consume", "b", "--last", "1", "--from", "end", *where) == b""
    too_many = call_plog("consume", "a", "--last", "10001", *where)
    assert too_many.returncode == 2
    assert too_many.stderr == b"error: --last 10001: at most 10,000\nhint: --from TIME --merge\n"


def test_the_last_ones_by_time_then_partition_then_offset(where: list[str], tmp_path: Path) -> None:
    ok("topic", "create", "late", "--partitions", "2", "--set", "retention.ms=-1", *where)
    for partition, times in ((1, (5, 9, 7)), (0, (7, 8, 7))):
        rows = [{"partition": partition, "timestamp": START + time, "value": "v"} for time in times]
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        ok("produce", "late", "--format", "envelope", "--compression", "zstd", *where, stdin=text)
    shown = ok("consume", "late", "--last", "5", "--format", r"%p %o\n", *where)
    assert shown == b"0 0\n0 2\n1 2\n0 1\n1 1\n"
    path = tmp_path / "newest.parquet"
    ok("consume", "late", "--last", "2", "--newest-first", "--format", "parquet", "--out", str(path), *where)
    assert pq.read_table(path)["offset"].to_pylist() == [1, 1]


def test_the_last_one_is_a_record_that_counts(where: list[str]) -> None:
    ok("produce", "tx", "--transactional-id", "one", *where, stdin=b'{"n": 0}\n{"n": 1}\n')
    bad = ["--transactional-id", "bad", "--key-field", "n", *where]
    assert call_plog("produce", "tx", *bad, stdin=b'{"n": 7}\n{"n": 8}\nbad\n').returncode == 1
    assert numbers(ok("consume", "tx", "--last", "1", *where)) == [1]
    assert numbers(ok("consume", "tx", "--last", "1", "--isolation-level", "read_uncommitted", *where)) == [8]


def test_more_than_there_is_from_the_end_is_all_and_nothing_is_said(where: list[str]) -> None:
    for count in "-1000", "-20000":
        done = call_plog("consume", "a", "--from", count, "--partition", "0", *where)
        assert (done.returncode, len(numbers(done.stdout))) == (0, 100)
        assert b"warning" not in done.stderr


def test_the_last_ones_are_records_that_count(where: list[str]) -> None:
    """Neither markers nor what was aborted: the log ends with a marker, two records and another marker."""
    for name, lines in ("one", b'{"n": 0}\n{"n": 1}\n'), ("two", b'{"n": 2}\n'):
        ok("produce", "tx", "--transactional-id", name, *where, stdin=lines)
    bad = ["--transactional-id", "bad", "--key-field", "n", *where]
    assert call_plog("produce", "tx", *bad, stdin=b'{"n": 7}\n{"n": 8}\nbad\n').returncode == 1
    for count in range(1, 5):
        assert numbers(ok("consume", "tx", "--from", f"-{count}", *where)) == [0, 1, 2][-count:]
    assert numbers(ok("consume", "tx", "--from", "-3", "--until", "-1", *where)) == [0, 1]
    both = ok("consume", "tx", "--from", "-1", "--isolation-level", "read_uncommitted", *where)
    assert numbers(both) == [8]


def test_places_by_partition(where: list[str]) -> None:
    options = ["--from", "0=-1,2=98", "--from", "0=-1,2=98,95", "--until", "0=end,97", "--format", r"%p %o\n"]
    printed = ok("consume", "a", *options[2:], *where).split(b"\n")[:-1]
    assert sorted(printed) == [b"0 99", b"1 95", b"1 96"]
    unsaid = call_plog("consume", "a", *options[:2], *where)
    assert unsaid.returncode == 2
    assert b"says nothing of partition 1" in unsaid.stderr
    assert b"partition 7 is not read" in call_plog("consume", "a", "--from", "7=1,0", *where).stderr


def test_so_many_of_each_partition(where: list[str]) -> None:
    options = ["--max-messages", "2", "--per-partition", "--format", r"%t %p %o\n"]
    printed = ok("consume", "a", "b", *options, *where).split(b"\n")[:-1]
    expected = [b"a %d %d" % (p, o) for p in range(3) for o in range(2)] + [b"b 0 0", b"b 0 1"]
    assert sorted(printed) == sorted(expected)


def test_it_stops_when_nothing_comes(where: list[str]) -> None:
    started = time.monotonic()
    assert ok("consume", "b", "--follow", "--timeout-ms", "300", *where) == b"one\ntwo\n"
    assert time.monotonic() - started >= 0.3


def rows_of(envelopes: bytes) -> list[dict[str, object]]:
    """As Arrow has them."""
    rows = []
    for text in envelopes.splitlines():
        row = json.loads(text)
        row["timestamp"] = datetime.fromtimestamp(row["timestamp"] / 1000, UTC)
        for name in ("key", "value"):
            row[name] = None if row[name] is None else row[name].encode()
        row["headers"] = [
            {"name": name.encode(), "value": None if value is None else value.encode()}
            for name, value in row["headers"]
        ]
        rows.append(row)
    return rows


def test_arrow_and_parquet(where: list[str], tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    ok("consume", "a", "b", "--merge", "--format", "parquet", "--out", str(path), *where)
    envelopes = ok("consume", "a", "b", "--merge", "--format", "envelope", *where)
    assert pq.read_table(path).to_pylist() == rows_of(envelopes)
    assert not list(tmp_path.glob("*.partial"))
    arrow = ok("consume", "a", "b", "--merge", "--format", "arrow", *where)
    assert arrow.endswith(b"\xff\xff\xff\xff\0\0\0\0"), "the end of a stream that is whole"
    with pa.ipc.open_stream(io.BytesIO(arrow)) as stream:
        assert stream.read_all().to_pylist() == rows_of(envelopes)
    to_file = tmp_path / "out.txt"
    assert ok("consume", "b", "--out", str(to_file), *where) == b""
    assert to_file.read_bytes() == b"one\ntwo\n"
    nothing = tmp_path / "nothing.parquet"
    ok("consume", "a", "--from", "end", "--format", "parquet", "--out", str(nothing), *where)
    assert pq.read_table(nothing).num_rows == 0


def test_a_parquet_file_that_is_not_whole_has_another_name(tmp_path: Path) -> None:
    damaged = damaged_copy(tmp_path)
    path = tmp_path / "out.parquet"
    done = call_plog("consume", "t", "--format", "parquet", "--out", str(path), "--data-dir", str(damaged))
    assert done.returncode == 1
    assert not path.exists()
    assert pq.read_table(tmp_path / "out.parquet.partial").num_rows == 20
    assert b"the records so far are in" in done.stderr


def test_a_parquet_file_is_not_kept_if_no_record_came(tmp_path: Path) -> None:
    options = ["--format", "parquet", "--out", str(tmp_path / "out.parquet"), "--bootstrap-server", "127.0.0.1:1"]
    done = call_plog("consume", "t", *options)
    assert (done.returncode, list(tmp_path.iterdir())) == (3, [])
    assert b"the records so far" not in done.stderr


@pytest.mark.longer
def test_a_follower_that_is_stopped_leaves_a_whole_file(where: list[str], tmp_path: Path) -> None:
    path = tmp_path / "out.arrow"
    command = [PLOG, "consume", "b", "--follow", "--format", "arrow", "--out", str(path), *where]
    with subprocess.Popen(command) as reader:
        wait_until(lambda: path.exists() and path.stat().st_size >= 1000)
        reader.send_signal(signal.SIGINT)
    with pa.ipc.open_stream(path) as stream:
        assert stream.read_all()["value"].to_pylist() == [b"one", b"two"]


# --- what is not data


def test_control_records_where_they_are_asked_for() -> None:
    where, topic = ["--data-dir", str(SAMPLE_DATA / "partition")], "txn_multisegment"
    options = ["--isolation", "read_uncommitted", "--print-control-records"]
    printed = ok("consume", topic, *options, "--format", r"%a{control} %s\n", *where).splitlines()
    ends = [text.split()[1] for text in printed if text.startswith(b"true")]
    assert set(ends) == {b"COMMIT", b"ABORT"}
    without = ok("consume", topic, *options[:2], *where).splitlines()
    assert len(printed) == len(without) + len(ends)
    envelopes = [json.loads(e) for e in ok("consume", topic, *options, "--format", "envelope", *where).splitlines()]
    assert sum(e.get("control", False) for e in envelopes) == len(ends)


def damaged_copy(tmp_path: Path) -> Path:
    """A directory with t, sixty records in three batches, of which the second has a flipped bit."""
    data = tmp_path / "data"
    where = ["--data-dir", str(data)]
    ok("topic", "create", "t", *where)
    for batch in range(3):
        ok("produce", "t", *where, stdin=b"".join(b"line %d\n" % n for n in range(batch * 20, batch * 20 + 20)))
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(data / "t-0", copy / "t-0")
    log = copy / "t-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 4
    log.write_bytes(content)
    return copy


@pytest.mark.parametrize("with_server", [False, pytest.param(True, marks=pytest.mark.longer)])
def test_damage_ends_it_unless_it_may_be_passed_over(tmp_path: Path, with_server: bool) -> None:
    copy = damaged_copy(tmp_path)
    if with_server:
        with Server(copy, "--read-only") as server:
            look_at_damage(["--bootstrap-server", server.address])
    else:
        look_at_damage(["--data-dir", str(copy)])


def look_at_damage(where: list[str]) -> None:
    sound = [b"line %d" % n for n in (*range(20), *range(40, 60))]
    stopped = call_plog("consume", "t", *where)
    assert stopped.returncode == 1
    assert stopped.stdout.splitlines() == sound[:20]
    passed = call_plog("consume", "t", "--no-exit-on-error", *where)
    assert (passed.returncode, passed.stdout.splitlines()) == (1, sound)  # what was left out is not forgotten
    assert b"passed over" in passed.stderr


@pytest.mark.longer
def test_a_follower_waits_for_its_broker(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        server.pin(server.address)
        where = ["--bootstrap-server", server.address]
        ok("produce", "t", *where, stdin=b"before\n")
        out = tmp_path / "out"
        with out.open("wb") as stdout:
            reader = subprocess.Popen([PLOG, "consume", "t", "-f", *where], stdout=stdout, stderr=subprocess.PIPE)
            strict = subprocess.Popen(
                [PLOG, "consume", "t", "-f", "--exit-on-error", *where],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        wait_until(lambda: out.read_bytes().count(b"\n") == 1)
        server.kill()
        assert wait_for_exit(strict, seconds=PROMPT_SECONDS) == 3
        strict.communicate()
        server.start()
        ok("produce", "t", *where, stdin=b"after\n")
        wait_until(lambda: out.read_bytes().count(b"\n") == 2)
        reader.send_signal(signal.SIGINT)
        assert wait_for_exit(reader, seconds=PROMPT_SECONDS) == 130
        _, errors = reader.communicate()
    assert out.read_bytes() == b"before\nafter\n"
    assert errors.count(b"it is tried again until it is back") == 1
    assert errors.count(b"reading goes on, after") == 1


@for_each(
    "options, problem",
    [
        (["--merge", "--follow"], "--merge puts what is there in order"),
        (["--per-partition"], "--per-partition goes with --max-messages"),
        (["--group-protocol", "classic"], "--group-protocol, --group-instance-id and --commit go with --group"),
        (["--group-instance-id", "x"], "go with --group"),
        (["--commit", "before"], "go with --group"),
        (["--per-partition", "--max-messages", "1", "--follow"], "does not go with --merge, --follow"),
        (["--group", "g", "--from", "0=5,end"], "begins in one place"),
        (["--format", "parquet"], "--format parquet goes into a file"),
        (["--format", "parquet", "--out", "x", "--group", "g"], "does not go with --group"),
        (["--filter", "key =="], "expected a"),
        (["--grep", "("], "no regular expression"),
        (["--regex", "("], "no regular expression"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, options: list[str], problem: str) -> None:
    done = call_plog("consume", "t", *options, "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert problem in done.stderr.decode()
    assert list(tmp_path.iterdir()) == []
