"""`plog produce` and `plog consume`, as in a shell pipeline, against a server and embedded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from core.files.directory_lock import find_lock_holder
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.server import PLOG, call_plog, run_plog
from tests.support.waiting import PROMPT_SECONDS, wait_for_exit


@pytest.fixture
def where(where: list[str]) -> list[str]:
    """A log with the topic t, of one partition."""
    ok("topic", "create", "t", "--set", "retention.ms=-1", *where)
    return where


def envelopes(where: list[str], *options: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in ok("consume", "t", "--format", "envelope", *options, *where).splitlines()]


# --- in


def test_lines_are_values(where: list[str]) -> None:
    ok("produce", "t", *where, stdin=b"a\n\nb c\r\nno newline")
    assert [(e["key"], e["value"]) for e in envelopes(where)] == [
        (None, "a"), (None, ""), (None, "b c\r"), (None, "no newline"),
    ]  # fmt: skip


def test_keys_before_a_separator(where: list[str]) -> None:
    ok("produce", "t", "--key-separator", "=>", *where, stdin=b"k=>v\n=>x\na=>b=>c\n")
    assert [(e["key"], e["value"]) for e in envelopes(where)] == [("k", "v"), ("", "x"), ("a", "b=>c")]


def test_keys_and_timestamps_from_json(where: list[str]) -> None:
    lines = (
        b'{"id": "x", "at": 1500000000000}',
        b'{"id": 7, "at": "2017-07-14T02:40:00.001Z"}',
        b'{"id": null, "at": "2017-07-14T04:40:00.002+02:00"}',
        b'{"id": {"b": 1}, "at": 1500000000003}',
    )
    ok("produce", "t", "--key-field", "id", "--timestamp-field", "at", *where, stdin=b"\n".join(lines))
    found = envelopes(where)
    assert [e["key"] for e in found] == ["x", "7", None, '{"b":1}']
    assert [e["timestamp"] for e in found] == [1500000000000 + n for n in range(4)]
    assert [str(e["value"]).encode() for e in found] == list(lines)


def test_csv(where: list[str]) -> None:
    ok("produce", "t", "--format", "csv", "--key-field", "b", *where, stdin=b'a,b\n1,x\n"2,5",y\n')
    found = envelopes(where)
    assert [e["key"] for e in found] == ["x", "y"]
    assert [json.loads(str(e["value"])) for e in found] == [{"a": "1", "b": "x"}, {"a": "2,5", "b": "y"}]


def test_files_and_raw(where: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"one\ntwo")
    second.write_bytes(b"three\n\xff\x00")
    ok("produce", "t", "--format", "raw", str(first), str(second), *where)
    assert [e["value"] for e in envelopes(where)] == ["one\ntwo", {"base64": "dGhyZWUK/wA="}]
    ok("produce", "t", str(first), str(second), *where)
    assert ok("consume", "t", "--from", "2", *where) == b"one\ntwo\nthree\n\xff\x00\n"


def test_headers_on_every_record(where: list[str]) -> None:
    ok("produce", "t", "--header", "source=shell", "--header", "empty=", *where, stdin=b"a\nb\n")
    assert [e["headers"] for e in envelopes(where)] == [[["source", "shell"], ["empty", ""]]] * 2


@for_each("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(codec: str, tmp_path: Path) -> None:
    options = ["--data-dir", str(tmp_path / "data")]
    lines = b"".join(b"the same words again and again %d\n" % n for n in range(2000))
    ok("produce", "t", "--compression", codec, *options, stdin=lines)
    assert ok("consume", "t", *options) == lines
    dump = ok("dump-segment", "--format", "ndjson", str(tmp_path / "data" / "t-0" / f"{0:020}.log"))
    assert {json.loads(line)["codec"] for line in dump.splitlines()} == {codec}


def test_acks(where: list[str]) -> None:
    for number, acks in enumerate(("0", "1", "all")):
        ok("produce", "t", "--acks", acks, *where, stdin=b"a\nb\n")
        assert ok("consume", "t", *where) == b"a\nb\n" * (number + 1)


def test_keys_go_where_kafka_puts_them(tmp_path: Path) -> None:
    """murmur2, as the Java client: which partition each key went to was read off kafka-console-producer's."""
    options = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", "--partitions", "4", *options)
    ok("produce", "t", "--key-separator", ":", *options, stdin=b"21:a\nfoobar:b\nabc:c\n")
    found = dict(line.split() for line in ok("consume", "t", "--format", "%k %p\n", *options).splitlines())
    assert found == {b"21": murmur2_partition(-973932308), b"foobar": murmur2_partition(-790332482),
                     b"abc": murmur2_partition(479470107)}  # fmt: skip


def murmur2_partition(hash_: int) -> bytes:
    """`hash_` as of Kafka's own test of murmur2 (org.apache.kafka.common.utils.UtilsTest)."""
    return b"%d" % ((hash_ & 0x7FFFFFFF) % 4)


def test_nothing_to_produce(where: list[str]) -> None:
    ok("produce", "t", *where)
    assert ok("consume", "t", *where) == b""


def test_old_records_are_warned_of(tmp_path: Path) -> None:
    options = ["--data-dir", str(tmp_path)]
    line = b'{"at": "2013-01-01T00:00:00Z"}\n'
    done = call_plog("produce", "t", "--timestamp-field", "at", *options, stdin=line * 3)
    assert done.returncode == 0
    assert done.stderr.count(b"already older than the retention.ms=604800000 of t") == 1
    assert b"hint: plog topic alter t --set retention.ms=-1" in done.stderr


def test_a_pace(where: list[str]) -> None:
    ok("produce", "t", "--rate", "1000", *where, stdin=b"a\n" * 250)
    assert len(ok("consume", "t", *where)) == 500


# --- out


@pytest.fixture
def ten(where: list[str]) -> list[str]:
    """t holds 0 to 9; record n is of n minutes past 2020-01-01T00:00Z."""
    lines = b"".join(b'{"value": "%d", "timestamp": %d}\n' % (n, 1577836800000 + n * 60_000) for n in range(10))
    ok("produce", "t", "--format", "envelope", *where, stdin=lines)
    return where


@for_each(
    "options, expected",
    [
        ([], "0123456789"),
        (["--from", "beginning", "--until", "end"], "0123456789"),
        (["--from", "7"], "789"),
        (["--offset", "7"], "789"),
        (["--from", "-3"], "789"),
        (["--from", "end"], ""),
        (["--until", "3"], "012"),
        (["--from", "3", "--until", "5"], "34"),
        (["--from", "5", "--until", "5"], ""),
        (["--from", "2020-01-01T00:03:00Z", "--until", "2020-01-01T00:05:30Z"], "345"),
        (["--from", "1577837040000"], "456789"),
        (["--from", "2030-01-01T00:00:00Z"], ""),
        (["--until", "2019-01-01T00:00:00Z"], ""),
        (["--from", "-2h"], ""),
        (["--max-messages", "4"], "0123"),
        (["--max-messages", "0"], ""),
        (["--from", "8", "--max-messages", "9"], "89"),
        (["--partition", "0", "--until", "2"], "01"),
    ],
)  # fmt: skip
def test_where_from_and_until(ten: list[str], options: list[str], expected: str) -> None:
    assert ok("consume", "t", *options, *ten).decode().split() == list(expected)


def test_an_offset_that_is_gone_or_not_there_yet_is_said(ten: list[str]) -> None:
    done = call_plog("consume", "t", "--from", "50", *ten)
    assert done.returncode == 0
    assert done.stdout == b""
    assert b"t-0 holds offsets 0 to 10, not 50; starting at 10" in done.stderr


def test_patterns(where: list[str]) -> None:
    record = b'{"key": "k", "value": "val", "timestamp": 1577836800000, "headers": [["h", "1"], ["n", null]]}\n'
    ok("produce", "t", "--format", "envelope", *where, stdin=record + b'{"timestamp": 5}\n')
    pattern = r"%t|%p|%o|%T|%k|%K|%s|%S|%h|%%|\t\x41\n"
    assert ok("consume", "t", "--format", pattern, *where) == (
        b"t|0|0|1577836800000|k|1|val|3|h=1,n=|%|\tA\nt|0|1|5||-1||-1||%|\tA\n"
    )
    assert ok("consume", "t", "--format", "%R%s", *where) == b"\0\0\0\3val\xff\xff\xff\xff"


def test_a_round_trip_by_envelopes_changes_offsets_alone(where: list[str]) -> None:
    """Bytes that are no text, nulls, duplicate headers."""
    records = (
        {"key": None, "value": None, "headers": []},
        {"key": "", "value": "", "headers": [["a", ""], ["a", None], ["", "x"]]},
        {"key": {"base64": "/w=="}, "value": {"base64": "AP8="}, "headers": [["b", {"base64": "/v8="}]]},
        {"key": "schlüssel\n", "value": "“wert”\u2028\t\x00", "headers": []},
    )
    lines = b"".join(json.dumps({**r, "timestamp": n}).encode() + b"\n" for n, r in enumerate(records))
    ok("produce", "t", "--format", "envelope", *where, stdin=lines)
    once = ok("consume", "t", "--format", "envelope", *where)
    ok("topic", "create", "u", "--set", "retention.ms=-1", *where)
    ok("produce", "u", "--format", "envelope", *where, stdin=once)
    twice = ok("consume", "u", "--format", "envelope", *where)
    assert [json.loads(line) | {"topic": "t"} for line in twice.splitlines()] == [
        {
            "topic": "t",
            "partition": 0,
            "offset": n,
            "timestamp": n,
            "timestamp_type": "CreateTime",
            **r,
            "leader_epoch": 0,
        }
        for n, r in enumerate(records)
    ]


@pytest.mark.longer
def test_consume_piped_into_produce_on_one_directory(tmp_path: Path) -> None:
    options = f"--data-dir {tmp_path / 'data'}"
    lines = b"".join(b"line %d\n" % n for n in range(20_000))
    ok("produce", "a", *options.split(), stdin=lines)
    pipeline = f"{PLOG} consume a --format envelope {options} | {PLOG} produce b --format envelope {options}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", pipeline], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ok("consume", "b", *options.split()) == lines


@pytest.mark.longer
def test_a_reader_that_goes_away(ten: list[str]) -> None:
    """SIGPIPE is quiet."""
    ok("produce", "t", *ten, stdin=b"more than a pipe holds\n" * 100_000)
    command = f"{PLOG} consume t {' '.join(ten)} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n", b"")


@pytest.mark.longer
@pytest.mark.parametrize("first", ["reader", "writer"])
def test_what_a_slow_writer_types_is_there_at_once(ten: list[str], first: str) -> None:
    """Each line of a terminal is sent before the next one comes."""
    follow = [PLOG, "consume", "t", "--follow", "--from", "10", *ten]
    if first == "reader":
        reader = subprocess.Popen(follow, stdout=subprocess.PIPE)
    writer = subprocess.Popen([PLOG, "produce", "t", *ten], stdin=subprocess.PIPE)
    if first == "writer":
        while ten[0] == "--data-dir" and find_lock_holder(Path(ten[1])) is None:
            assert writer.poll() is None
        reader = subprocess.Popen(follow, stdout=subprocess.PIPE)
    assert writer.stdin is not None and reader.stdout is not None
    for line in (b"one\n", b"two\n"):
        writer.stdin.write(line)
        writer.stdin.flush()
        assert reader.stdout.readline() == line
    writer.stdin.close()
    assert wait_for_exit(writer, seconds=PROMPT_SECONDS) == 0
    reader.kill()
    reader.wait()
    reader.stdout.close()


def test_a_partition_folder_is_a_data_directory_too() -> None:
    assert ok("consume", "binary", "--data-dir", str(GOLDEN / "binary"), "--format", "%o ").startswith(b"0 1 2 ")


@pytest.mark.longer
def test_a_strangers_core_in_the_working_directory(tmp_path: Path) -> None:
    """`core` and `cli` are common names; the command finds its own."""
    for name in ("core", "cli"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not plog')")
    environment = {"PLOG_DATA_DIR": str(tmp_path / "data")}
    assert run_plog("topic", "list", environment=environment, cwd=tmp_path).returncode == 3
    assert run_plog("produce", "t", stdin=b"a\n", environment=environment, cwd=tmp_path).returncode == 0
