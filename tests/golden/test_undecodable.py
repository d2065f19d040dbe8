"""Batches whose checksum is right and whose content is not what Kafka takes: each costs itself alone, whoever reads."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.common.decompression_limit import PLOG_MAX_EXPANSION
from core.common.varint import varint
from core.records.checksum import crc32c
from tests.support.for_each import for_each
from tests.support.logs import open_log
from tests.support.server import Server, call_plog

DAMAGE = Path(__file__).resolve().parent / "damage"
UNDECODABLE = DAMAGE / "11-undecodable-batch"
"""101 batches of 4 records, of which the 51st has a record that claims a negative number of headers."""

NULL_HEADER_KEY = DAMAGE / "22-null-header-key"
LARGE = DAMAGE / "23-40MB-batch-is-sound"
LOG = Path("t-0/00000000000000000000.log")
SOUND = [*range(200), *range(204, 404)]
NAMES_IT = "t-0: the records of offsets 200 to 203 do not decode"


# --- consume


FORMATS = {
    "value": lambda out: out.count(b"\n"),
    "envelope": lambda out: [json.loads(line)["offset"] for line in out.splitlines()],
    r"%o\n": lambda out: [int(line) for line in out.split()],
    "arrow": lambda out: pa.ipc.open_stream(io.BytesIO(out)).read_all()["offset"].to_pylist(),
}


@pytest.fixture(scope="module", params=["files", "server"])
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The options that name the log with the batch that does not decode."""
    if request.param == "files":
        yield ["--data-dir", str(UNDECODABLE)]
        return
    copy = tmp_path_factory.mktemp("served") / "data"
    (copy / "t-0").mkdir(parents=True)
    (copy / LOG).write_bytes((UNDECODABLE / LOG).read_bytes())
    with Server(copy, "--read-only") as running:
        yield ["--bootstrap-server", running.address]


@for_each("format_", FORMATS)
def test_every_format_passes_over_it_and_ends_with_1(where: list[str], format_: str) -> None:
    done = call_plog("consume", "t", "--no-exit-on-error", "--format", format_, *where)
    assert FORMATS[format_](done.stdout) == (len(SOUND) if format_ == "value" else SOUND)
    assert done.returncode == 1
    told = done.stderr.decode()
    assert told.count(NAMES_IT) == 1
    if "--data-dir" in where:
        assert f"{UNDECODABLE / LOG} at position 5250" in told


@for_each(
    "options",
    [
        ["--merge"],
        ["--filter", 'key != "x"'],
        ["--max-messages", "1000", "--per-partition"],
        ["--grep", "v"],
        ["--follow", "--max-messages", "400"],
        ["--latest-per-key"],
    ],
)
def test_so_does_every_way_of_reading(where: list[str], options: list[str]) -> None:
    done = call_plog("consume", "t", "--no-exit-on-error", "--format", r"%o\n", *options, *where)
    assert [int(line) for line in done.stdout.split()] == (SOUND[-4:] if options == ["--latest-per-key"] else SOUND)
    assert (done.returncode, done.stderr.decode().count(NAMES_IT)) == (1, 1)


def test_a_parquet_file_is_whole(where: list[str], tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    done = call_plog("consume", "t", "--no-exit-on-error", "--format", "parquet", "--out", str(out), *where)
    assert done.returncode == 1
    assert pq.read_table(out)["offset"].to_pylist() == SOUND


@for_each("options", [[], ["--merge"], ["--follow"], ["--exit-on-error"]])
def test_without_the_option_all_that_comes_before_it_is_printed(where: list[str], options: list[str]) -> None:
    done = call_plog("consume", "t", "--format", r"%o\n", *options, *where)
    assert [int(line) for line in done.stdout.split()] == list(range(200))
    assert done.returncode == 1
    assert NAMES_IT in done.stderr.decode()
    assert "--no-exit-on-error" in done.stderr.decode()


@for_each("option, value, code", [("--until", 200, 0), ("--max-messages", 200, 0), ("--max-messages", 201, 1)])
def test_what_ends_before_it_ends_well(where: list[str], option: str, value: int, code: int) -> None:
    done = call_plog("consume", "t", option, str(value), "--format", r"%o\n", *where)
    assert (done.returncode, len(done.stdout.split())) == (code, 200)


@pytest.mark.longer
def test_a_time_that_may_lie_within_it_begins_with_it(tmp_path: Path) -> None:
    """Which of its records is as new can't be told: none is left out without a word."""
    (tmp_path / "t-0").mkdir()
    undecodable = bytearray(batch(record(0, headers=varint(-1))))
    old, newer = bytearray(batch(record(0))), bytearray(batch(record(0)))
    for offset, (data, timestamp) in enumerate(((old, 0), (undecodable, 50), (newer, 100))):
        struct.pack_into(">q", data, 0, offset)
        struct.pack_into(">qq", data, 27, timestamp, timestamp)
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    (tmp_path / LOG).write_bytes(bytes(old + undecodable + newer))
    wanted = ["consume", "t", "--no-exit-on-error", "--format", r"%o\n", "--from", "@50"]
    of_files = call_plog(*wanted, "--data-dir", str(tmp_path))
    with Server(tmp_path, "--read-only") as running:
        of_server = call_plog(*wanted, "--bootstrap-server", running.address)
    for done in (of_files, of_server):
        assert (done.stdout, done.returncode) == (b"2\n", 1)
        assert "the records of offset 1 do not decode" in done.stderr.decode()


def test_a_group_reads_on_behind_it_and_commits(tmp_path: Path) -> None:
    (tmp_path / "data/t-0").mkdir(parents=True)
    (tmp_path / "data" / LOG).write_bytes((UNDECODABLE / LOG).read_bytes())
    where = ["--data-dir", str(tmp_path / "data")]
    wanted = ["consume", "t", "--group", "g", "--from", "beginning", "--format", r"%o\n", *where]
    stopped = call_plog(*wanted)
    assert [int(line) for line in stopped.stdout.split()] == list(range(200))
    assert (stopped.returncode, NAMES_IT in stopped.stderr.decode()) == (1, True)
    done = call_plog(*wanted, "--no-exit-on-error")
    assert [int(line) for line in done.stdout.split()] == list(range(204, 404))
    assert done.returncode == 1
    again = call_plog(*wanted)
    assert (again.stdout, again.returncode) == (b"", 0)


@for_each("format_", ["value", "envelope", "%o %h\n"])
def test_no_format_takes_a_header_without_a_key(format_: str) -> None:
    done = call_plog("consume", "t", "--no-exit-on-error", "--format", format_, "--data-dir", str(NULL_HEADER_KEY))
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 8)
    assert "offsets 4 to 5 do not decode: record 1 of the batch: header without a key" in done.stderr.decode()


# --- others


@for_each(
    "command, says",
    [
        (["verify", "--deep", str(UNDECODABLE)], "position 5250 offset 200 to 203: bad-batch"),
        (["stats", str(UNDECODABLE / "t-0")], "position 5250 offset 200 to 203: bad-batch"),
        (["diff", str(UNDECODABLE / "t-0"), str(LARGE / "t-0")], "position 5250 offset 200 to 203: bad-batch"),
        (["dump-segment", "--print-data-log", str(UNDECODABLE / LOG)], "position 5250 offset 200 to 203: bad-batch"),
        (["trace", "t@201", "--data-dir", str(UNDECODABLE)], f"{UNDECODABLE / LOG} at position 5250"),
        (["trace", "t@201", "--data-dir", str(UNDECODABLE)], NAMES_IT),
        (["gaps", str(UNDECODABLE)], "position 5250: bad-batch: its records can't be read"),
        (["gaps", str(UNDECODABLE)], "400 records, 4 offsets without one, 4 of them lost or unexplained"),
        (["gaps", str(UNDECODABLE), "--from", "202"], "200 records, 2 offsets without one, 2 of them lost"),
        (["trace", "t", "--key", "k1", "--data-dir", str(UNDECODABLE)], "offsets 200 to 203 do not decode"),
        (
            ["compact", str(UNDECODABLE), "--set", "cleanup.policy=compact", "--roll"],
            f"{UNDECODABLE / LOG} at position 5250 (offset 200)",
        ),
        (
            ["compact", str(UNDECODABLE), "--set", "cleanup.policy=compact", "--roll", "--explain", "--key", "k1"],
            f"{UNDECODABLE / LOG} at position 5250 (offset 200)",
        ),
    ],
)
def test_every_reader_names_it(command: list[str], says: str) -> None:
    done = call_plog(*command)
    assert done.returncode == 1
    assert says in (done.stdout + done.stderr).decode()


@for_each("command", ["verify", "recover"])
def test_who_does_not_decode_says_so(command: str) -> None:
    done = call_plog(command, str(UNDECODABLE))
    assert b"bad-batch" not in done.stdout
    assert b"records were not decoded" in done.stderr.splitlines()[0]
    assert b"not decoded" not in call_plog("verify", "--deep", str(UNDECODABLE)).stderr


def test_gaps_decodes_what_a_reader_would_be_given_and_no_more(tmp_path: Path) -> None:
    """Of a batch that was aborted nobody decodes anything, and of a batch in a group it costs itself alone."""
    sound, broken = bytearray(batch(record(0), record(1))), bytearray(batch(record(0, headers=varint(-1)), record(1)))
    directory = tmp_path / "t-0"
    directory.mkdir()
    with (directory / LOG.name).open("wb") as log:
        for number in range(100):
            data = bytes(broken if number in (30, 31, 99) else sound)
            log.write(struct.pack(">q", 2 * number) + data[8:])
    done = call_plog("gaps", str(directory), "--output", "json")
    rows = json.loads(done.stdout)
    assert [(row["start_offset"], row["end_offset"], row["reason"]) for row in rows] == [
        (60, 62, "damaged"), (62, 64, "damaged"), (198, 200, "damaged")
    ]  # fmt: skip
    deep = json.loads(call_plog("verify", "--deep", str(directory), "--output", "json").stdout)
    bad = [(row["offset"], row["last_offset"] + 1) for row in deep if row["code"] == "bad-batch"]
    assert bad == [(60, 62), (62, 64), (198, 200)]


@for_each("broken", [30, 31])
def test_deep_finds_it_out_of_order_too(broken: int, tmp_path: Path) -> None:
    """Two batches that stand in each other's places, one of which does not decode: gaps and verify agree."""
    sound, bad = batch(record(0), record(1)), batch(record(0, headers=varint(-1)), record(1))
    batches = [struct.pack(">q", 2 * n) + (bad if n == broken else sound)[8:] for n in range(60)]
    batches[30], batches[31] = batches[31], batches[30]
    (tmp_path / "t-0").mkdir()
    (tmp_path / LOG).write_bytes(b"".join(batches))
    rows = json.loads(call_plog("gaps", str(tmp_path), "--output", "json").stdout)
    assert [(row["start_offset"], row["end_offset"]) for row in rows] == [(2 * broken, 2 * broken + 2)]
    deep = json.loads(call_plog("verify", "--deep", str(tmp_path), "--output", "json").stdout)
    assert [(f["offset"], f["last_offset"]) for f in deep if f["code"] == "bad-batch"] == [(2 * broken, 2 * broken + 1)]


def test_a_spark_task_names_it() -> None:
    from core.common.errors import CorruptRecordError
    from core.spark.offset_range import OffsetRange, read_columns

    found: list[int] = []

    def read() -> None:
        for columns in read_columns(range_):
            found.extend(columns.offsets.tolist())

    range_ = OffsetRange("t", 0, 0, 404, 0, directory=str(UNDECODABLE / "t-0"))
    with pytest.raises(CorruptRecordError, match="t-0: the records of offsets 200 to 203") as caught:
        read()
    assert found == list(range(200))
    assert caught.value.path == str(UNDECODABLE / LOG)


# --- a batch that expands to much


def test_forty_megabytes_are_sound_to_everyone() -> None:
    done = call_plog("verify", "--deep", str(LARGE))
    assert b"bad-batch" not in done.stdout
    printed = call_plog("consume", "t", "--data-dir", str(LARGE), "--format", r"%o %S\n")
    assert printed.returncode == 0
    assert [tuple(map(int, line.split())) for line in printed.stdout.splitlines()] == [
        (offset, 10_000_000 if 4 <= offset < 8 else 2) for offset in range(12)
    ]
    dumped = call_plog("dump-segment", "--format", "csv", "--deep-iteration", str(LARGE / LOG))
    assert (dumped.returncode, len(dumped.stdout.splitlines())) == (0, 13)


@for_each(
    "command",
    [
        ["verify", "--deep", str(LARGE)],
        ["consume", "t", "--no-exit-on-error", "--data-dir", str(LARGE)],
        ["dump-segment", "--print-data-log", str(LARGE / LOG)],
        ["stats", str(LARGE / "t-0")],
        ["trace", "t@5", "--data-dir", str(LARGE)],
    ],
)
def test_the_limit_is_one_setting_and_the_message_says_so(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "")  # put back afterwards, whatever the command sets
    done = call_plog("--max-expansion", "10M", *command)
    assert done.returncode == 1
    told = (done.stdout + done.stderr).decode()
    assert "more than 10485760 bytes, which is the limit" in told
    assert "plog --max-expansion" in told


def test_the_configuration_file_may_set_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "")
    config = tmp_path / "config.toml"
    config.write_text('[default]\nmax-expansion = "1M"\n[profile.large.default]\nmax-expansion = "1G"\n')
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    assert b"more than 1048576 bytes" in call_plog("verify", "--deep", str(LARGE)).stdout
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "")
    assert b"bad-batch" not in call_plog("--profile", "large", "verify", "--deep", str(LARGE)).stdout


# --- what Kafka refuses: hand-made batches, the verdicts those of Kafka 4.3.1's own classes


def record(delta: int, key: bytes | int = b"k", value: bytes | int = b"v", headers: bytes = b"\0") -> bytes:
    """One record; a key or value that is a number is a length without bytes."""
    parts = [b"\0", varint(0), varint(delta)]
    for field in (key, value):
        parts += [varint(field)] if isinstance(field, int) else [varint(len(field)), field]
    body = b"".join(parts) + headers
    return varint(len(body)) + body


def batch(
    *records: bytes, attributes: int = 0, producer: tuple[int, int, int] = (-1, -1, -1), count: int | None = None
) -> bytes:
    """One batch of magic 2 with a right checksum."""
    count = len(records) if count is None else count
    body = struct.pack(">hiqqqhii", attributes, max(count - 1, 0), 0, 0, *producer, count) + b"".join(records)
    return struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body


TRANSACTIONAL, CONTROL = 0x10, 0x20
MARKER = TRANSACTIONAL | CONTROL
PRODUCER = (5, 1, -1)
COMMIT, ABORT = struct.pack(">hh", 0, 1), struct.pack(">hh", 0, 0)
VALUE = struct.pack(">hi", 0, 7)

REFUSED = {
    "a null header key": batch(record(0, headers=varint(1) + varint(-1) + varint(1) + b"x")),
    "a negative number of headers": batch(record(0, headers=varint(-1))),
    "a header that is cut": batch(record(0, headers=varint(2) + varint(1) + b"h" + varint(-1))),
    "bytes behind the headers": batch(record(0, headers=b"\0\0")),
    "bytes behind the records": batch(record(0), b"\0\0\0", count=1),
    "fewer records than it says": batch(record(0), record(1), count=3),
    "transactional without producer id": batch(record(0), attributes=TRANSACTIONAL),
    "a producer without a sequence": batch(record(0), producer=(5, 1, -1)),
    "a producer with a negative epoch": batch(record(0), producer=(5, -1, 0)),
    "a marker without producer id": batch(record(0, COMMIT, VALUE), attributes=MARKER),
    "a marker outside a transaction": batch(record(0, COMMIT, VALUE), attributes=CONTROL, producer=PRODUCER),
    "two markers": batch(record(0, COMMIT, VALUE), record(1, ABORT, VALUE), attributes=MARKER, producer=PRODUCER),
    "a marker's key of version -1": batch(
        record(0, struct.pack(">hh", -1, 1), VALUE), attributes=MARKER, producer=PRODUCER
    ),
    "a marker of version -1": batch(record(0, COMMIT, struct.pack(">hi", -1, 7)), attributes=MARKER, producer=PRODUCER),
    "a marker that is too short": batch(record(0, COMMIT, b"\0\0\0"), attributes=MARKER, producer=PRODUCER),
    "a marker without a value": batch(record(0, COMMIT, -1), attributes=MARKER, producer=PRODUCER),
    "a control record without a key": batch(record(0, -1, VALUE), attributes=MARKER, producer=PRODUCER),
    "a producer's control record of an unknown type": batch(
        record(0, struct.pack(">hh", 0, 99), VALUE), attributes=MARKER, producer=PRODUCER
    ),
}

TAKEN = {
    "a key of length -5": batch(record(0, key=-5)),
    "a value of length -5": batch(record(0, value=-5)),
    "a header value of length -5": batch(record(0, headers=varint(1) + varint(1) + b"h" + varint(-5))),
    "a header name that is no UTF-8": batch(record(0, headers=varint(1) + varint(1) + b"\xff" + varint(-1))),
    "an idempotent batch": batch(record(0), producer=(5, 1, 0)),
    "a marker": batch(record(0, COMMIT, VALUE), attributes=MARKER, producer=PRODUCER),
    "a marker of version 1": batch(record(0, COMMIT, struct.pack(">hi", 1, 7)), attributes=MARKER, producer=PRODUCER),
    "a marker with more behind it": batch(record(0, COMMIT, VALUE + b"more"), attributes=MARKER, producer=PRODUCER),
    "a marker's key of version 1": batch(
        record(0, struct.pack(">hh", 1, 1), VALUE), attributes=MARKER, producer=PRODUCER
    ),
    "a marker that the cleaner emptied": batch(attributes=MARKER, producer=PRODUCER),
    "a leader's change": batch(record(0, struct.pack(">hh", 0, 2), bytes(9)), attributes=CONTROL),
    "a control record of an unknown type": batch(record(0, struct.pack(">hh", 0, 99), b""), attributes=CONTROL),
}


def bad_batches(data: bytes, tmp_path: Path) -> list[str]:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / LOG.name).write_bytes(data)
    done = call_plog("verify", "--deep", str(directory))
    return [line for line in done.stdout.decode().splitlines() if ": bad-batch: " in line or ": bad-count: " in line]


@for_each("what", REFUSED | TAKEN)
def test_deep_finds_what_kafka_refuses_and_nothing_else(what: str, tmp_path: Path) -> None:
    assert len(bad_batches((REFUSED | TAKEN)[what], tmp_path)) == (what in REFUSED)


@for_each("what", ["a marker of version -1", "a control record without a key"])
def test_a_marker_that_cant_be_read_takes_no_partition_offline(what: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / LOG.name).write_bytes(REFUSED[what])
    log = open_log(directory, had_clean_shutdown=False)
    assert log.log_end_offset == 1
    log.close()
