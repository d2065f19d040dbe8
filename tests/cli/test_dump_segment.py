"""plog dump-segment, in every format, of files that Kafka wrote, against what a real consumer read of them."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, GoldenRecord, case
from tests.support.server import call_plog

CASES = ["headers", "nulls", "binary", "codec_zstd_java", "logappendtime_lz4", "mixed_v0_v1_v2", "txn_interleaved"]
SEGMENTS = GOLDEN / "multisegment"
FIRST = SEGMENTS / "00000000000000000000.log"


def logs(directory: Path) -> list[str]:
    return [str(path) for path in sorted(directory.glob("*.log"))]


def ndjson(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ok("dump-segment", "--format", "ndjson", *arguments).splitlines()]


def raw(value: Any) -> bytes | None:
    """What a key or value of the rows stands for."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else str(value).encode()


def data_records(name: str) -> list[GoldenRecord]:
    return case(name).records()


@for_each("name", CASES)
def test_ndjson(name: str) -> None:
    rows = ndjson(*logs(GOLDEN / name), "--print-data-log")
    expected = data_records(name)
    by_offset = {row["offset"]: row for row in rows}
    for record in expected:
        row = by_offset[record.offset]
        assert (row["timestamp"], row["timestamp_type"]) == (record.timestamp, record.timestamp_type)
        assert raw(row["key"]) == record.key
        assert record.has_value(raw(row["value"]))
        assert row["key_size"] == (-1 if record.key is None else len(record.key))
        assert [(raw(name), raw(value)) for name, value in row["headers"]] == list(record.headers)
    batches = ndjson(*logs(GOLDEN / name))
    others = len(rows) - len(expected)
    assert others == sum(b["is_control"] for b in batches), "all else are control records"


@for_each("name", CASES)
def test_arrow(name: str) -> None:
    stream = ok("dump-segment", "--format", "arrow", *logs(GOLDEN / name))
    table = pa.ipc.open_stream(stream).read_all()
    rows = [row for row in table.to_pylist() if not row["is_control"]]
    expected = data_records(name)
    assert [r["offset"] for r in rows] == [r.offset for r in expected]
    for row, record in zip(rows, expected, strict=True):
        assert (row["timestamp"], row["timestamp_type"]) == (record.timestamp, record.timestamp_type)
        assert row["key"] == record.key
        assert record.has_value(row["value"])
        assert [(h["name"], h["value"]) for h in row["headers"]] == list(record.headers)
        assert row["leader_epoch"] == record.leader_epoch


def test_csv() -> None:
    text = ok("dump-segment", "--format", "csv", "--print-data-log", *logs(GOLDEN / "headers")).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    expected = data_records("headers")
    assert [(int(r["offset"]), r["value"]) for r in rows] == [(r.offset, (r.value or b"").decode()) for r in expected]
    headers = [[(raw(name), raw(value)) for name, value in json.loads(r["headers"] or "[]")] for r in rows]
    assert headers == [list(r.headers) for r in expected]


def test_table() -> None:
    text = ok("dump-segment", "--format", "table", str(SEGMENTS)).decode()
    for path in sorted(SEGMENTS.iterdir()):
        assert f"{path}: " in text
    assert "00000000000000000118.snapshot: producer snapshot" in text
    assert "last_offset" in text


def test_batches() -> None:
    batches = ndjson(str(FIRST))
    assert [b["base_offset"] for b in batches[1:]] == [b["last_offset"] + 1 for b in batches[:-1]]
    assert batches[0]["position"] == 0
    assert batches[-1]["position"] + batches[-1]["size"] == FIRST.stat().st_size
    assert {(b["magic"], b["is_valid"], b["is_control"]) for b in batches} == {(2, True, False)}
    assert sum(b["count"] for b in batches) == 118


def test_deep_iteration_shows_no_data() -> None:
    rows = ndjson(str(FIRST), "--deep-iteration")
    assert [row["offset"] for row in rows] == list(range(118))
    assert not {"key", "value"} & rows[0].keys()


@for_each("suffix, columns", [("index", ["offset", "position"]), ("timeindex", ["timestamp", "offset"])])
def test_indexes(suffix: str, columns: list[str]) -> None:
    rows = ndjson(str(FIRST.with_suffix(f".{suffix}")))
    assert rows
    for row in rows:
        assert [key for key in row if key not in ("schema", "file", "kind")] == columns


def test_small_files() -> None:
    (metadata,) = ndjson(str(SEGMENTS / "partition.metadata"))
    assert f"topic_id: {metadata['topic_id']}" in (SEGMENTS / "partition.metadata").read_text()
    (epoch,) = ndjson(str(SEGMENTS / "leader-epoch-checkpoint"))
    assert (epoch["epoch"], epoch["start_offset"]) == (0, 0)
    (meta,) = ndjson(str(GOLDEN / "_root" / "meta.properties"))
    assert f"cluster.id={meta['cluster_id']}\n" in (GOLDEN / "_root" / "meta.properties").read_text()
    offsets = ndjson(str(GOLDEN / "_root" / "recovery-point-offset-checkpoint"))
    lines = (GOLDEN / "_root" / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    assert [f"{o['topic']} {o['partition']} {o['offset']}" for o in offsets] == lines


# --- a part of it


def offsets_of_text(*arguments: str) -> list[int]:
    lines = ok("dump-segment", "--format", "kafka", "--print-data-log", *arguments).decode().splitlines()
    return [int(line.split()[2]) for line in lines if line.startswith("| offset:")]


def offsets_of_arrow(*arguments: str) -> list[int]:
    table = pa.ipc.open_stream(ok("dump-segment", "--format", "arrow", *arguments)).read_all()
    return list(table.column("offset").to_pylist())


def offsets_of_rows(*arguments: str) -> list[int]:
    return [row["offset"] for row in ndjson("--print-data-log", *arguments)]


READERS = [offsets_of_text, offsets_of_arrow, offsets_of_rows]


@for_each("read", READERS)
@for_each(
    "arguments, expected",
    [
        ([], range(118)),
        (["--offset", "100"], range(100, 118)),
        (["--offset", "117"], range(117, 118)),
        (["--offset", "118"], range(0)),
        (["--max-records", "7"], range(7)),
        (["--offset", "33", "--max-records", "5"], range(33, 38)),
        (["--max-records", "0"], range(0)),
    ],
)
def test_by_offset_and_count(read: Any, arguments: list[str], expected: range) -> None:
    assert read(str(FIRST), *arguments) == list(expected)


@for_each("read", READERS)
def test_by_time(read: Any) -> None:
    """From the first batch on that is as new, whatever the times behind it."""
    records = data_records("timestamps")
    batches = ndjson(*logs(GOLDEN / "timestamps"))
    assert [b["max_timestamp"] for b in batches] != sorted(b["max_timestamp"] for b in batches), "out of order"
    for batch in batches:
        wanted = batch["max_timestamp"]
        first = next(b["base_offset"] for b in batches if b["max_timestamp"] >= wanted)
        got = read(*logs(GOLDEN / "timestamps"), "--time", str(wanted))
        assert got == [r.offset for r in records if r.offset >= first]


# --- damage


def damaged_copy(tmp_path: Path, position: int, of: Path = FIRST) -> Path:
    path = tmp_path / of.name
    data = bytearray(of.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
    return path


@for_each("format_", ["kafka", "ndjson", "csv", "table", "arrow"])
def test_a_wrong_checksum_is_said_and_the_rest_is_shown(tmp_path: Path, format_: str) -> None:
    batches = ndjson(str(FIRST))
    third = batches[2]
    path = damaged_copy(tmp_path, third["position"] + 23 + 3)  # last offset delta, or so
    done = call_plog("dump-segment", str(path), "--print-data-log", "--format", format_)
    assert done.returncode == 1
    message = done.stderr.decode()
    where = f"{path} position {third['position']} offset {third['base_offset']} to {third['last_offset']}"
    assert f"error: {where}: crc-mismatch: " in message
    if format_ == "ndjson":
        shown = {json.loads(line)["offset"] for line in done.stdout.splitlines()}
        assert set(range(third["base_offset"])) < shown
        assert set(range(third["last_offset"] + 1, 118)) < shown


def test_a_message_that_does_not_decompress_costs_itself_alone(tmp_path: Path) -> None:
    path = damaged_copy(tmp_path, 50, GOLDEN / "v1_gzip_java" / FIRST.name)
    done = call_plog("dump-segment", str(path), "--print-data-log")
    assert done.returncode == 1
    assert "offset 14: bad-batch: its records can't be read: gzip data does not decompress" in done.stderr.decode()
    shown = [int(line.split()[2]) for line in done.stdout.decode().splitlines() if line.startswith("| offset: ")]
    assert shown == [record.offset for record in data_records("v1_gzip_java") if record.offset > 14]


def test_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / FIRST.name
    path.write_bytes(FIRST.read_bytes()[:-9])
    done = call_plog("dump-segment", str(path), "--format", "kafka")
    assert done.returncode == 1
    assert b"invalid bytes at the end of 00000000000000000000.log\n" in done.stdout
    assert "torn-tail" in done.stderr.decode()


@for_each("option", ["--verify-index-only", "--index-sanity-check"])
def test_indexes_are_checked_alone(option: str) -> None:
    sound = call_plog("dump-segment", option, str(SEGMENTS))
    assert (sound.returncode, sound.stdout, sound.stderr) == (0, b"", b"")
    name = "c_bad_index.corrupt/00000000000000000000.index"
    bad = call_plog("dump-segment", option, str(GOLDEN / name))
    assert bad.returncode == (1 if option == "--verify-index-only" else 0)
    assert (name in bad.stderr.decode()) == (option == "--verify-index-only")


def test_an_index_named_alone_is_held_against_its_log(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    shutil.copytree(GOLDEN / "c_bad_index.corrupt", directory)
    bad = call_plog("verify", str(directory / "00000000000000000000.index"))
    assert bad.returncode == 1
    assert b"index-mismatch" in bad.stdout
    good = call_plog("verify", str(directory / "00000000000000000000.timeindex"))
    assert good.returncode == 0
    (directory / "00000000000000000000.log").unlink()
    assert call_plog("verify", str(directory / "00000000000000000000.index")).returncode == 1
