"""Logs that are compressed well, as JSON that repeats its schema: the limit is of one batch, and memory is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.common.decompression_limit import PLOG_MAX_EXPANSION, expansion_limit
from core.common.errors import CorruptRecordError, UsageError
from core.records.compression import CompressionType
from core.spark.offset_range import OffsetRange, read_columns
from core.spark.source_options import SourceOptions
from core.spark.source_reader import PlogReader
from plog.testing import running_broker
from tests.support.logs import NOW, append, make_batch, open_log

pytestmark = pytest.mark.longer

MIB = 1024 * 1024
BATCHES, IN_A_BATCH = 400, 40
RECORDS = BATCHES * IN_A_BATCH
MOST_BYTES = 208 * MIB
"""A process that has imported everything takes 90 MB, batches that are decoded together 64 MB."""

ENVELOPE = {
    "schema": {"fields": [{"name": f"field_{n}", "doc": "every record repeats its schema"} for n in range(440)]},
    "payload": {"op": "c"},
}

_PEAK = """
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")))
"""

_SOURCE = """
import sys
from core.spark.source_reader import PlogReader
from core.spark.source_options import SourceOptions
reader = PlogReader(SourceOptions.parse({sys.argv[1]: sys.argv[2], "subscribe": "docs"}), ("offset", "value"))
found = [(batch.num_rows, batch.nbytes) for part in reader.partitions() for batch in reader.read(part)]
print(sum(rows for rows, _ in found), sum(size for _, size in found))
"""

_REPLAY = """
import sys
from pathlib import Path
from core.spark.offset_range import OffsetRange
from core.spark.range_output import OutputFormat
from core.spark.replay import write_range
from core.spark.replay_plan import ReplayPlan
out = Path(sys.argv[2])
out.mkdir()
range_ = OffsetRange("docs", 0, 0, int(sys.argv[3]), 1, directory=sys.argv[1] + "/docs-0")
plan = ReplayPlan({}, (range_,), OutputFormat("parquet", "binary", "binary"))
print(write_range(out, range_, plan).records, 0)
"""

_CONSUME = """
import os, sys
from cli.main import run
out, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
os.dup2(null, 1)
code = run(["consume", "docs", "--from-beginning", "--data-dir", sys.argv[1]])
os.dup2(out, 1)
print(code, 0)
"""


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 400 MB of JSON, in about half a megabyte of zstd."""
    directory = tmp_path_factory.mktemp("docs")
    value = json.dumps(ENVELOPE).encode()
    batch = make_batch(*[value] * IN_A_BATCH, compression=CompressionType.ZSTD)
    log = open_log(directory / "docs-0")
    for _ in range(BATCHES):
        append(log, batch)
    log.close()
    assert sum(path.stat().st_size for path in (directory / "docs-0").glob("*.log")) < MIB
    assert len(value) * RECORDS > 3 * 128 * MIB
    return directory


def measured(script: str, *arguments: str) -> tuple[int, int, int]:
    """The two numbers that the script prints, and the largest memory of its process, in bytes."""
    command = [sys.executable, "-c", script + _PEAK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second, peak = map(int, done.stdout.split())
    return first, second, peak


def test_the_source_reads_them_from_files(docs: Path) -> None:
    records, size, peak = measured(_SOURCE, "path", str(docs))
    assert records == RECORDS
    assert size > 3 * 128 * MIB
    assert peak < MOST_BYTES, peak // MIB


def test_the_source_reads_them_from_servers(docs: Path) -> None:
    with running_broker(docs) as broker:
        records, size, peak = measured(_SOURCE, "kafka.bootstrap.servers", broker.bootstrap_servers)
    assert records == RECORDS
    assert size > 3 * 128 * MIB
    assert peak < MOST_BYTES, peak // MIB


def test_a_replay_reads_them(docs: Path, tmp_path: Path) -> None:
    records, _, peak = measured(_REPLAY, str(docs), str(tmp_path / "out"), str(RECORDS))
    assert records == RECORDS
    assert peak < MOST_BYTES, peak // MIB


def test_consume_reads_them(docs: Path) -> None:
    code, _, peak = measured(_CONSUME, str(docs))
    assert code == 0
    assert peak < MOST_BYTES, peak // MIB


# --- the limit


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Batches of 100 KB, 300 KB and 100 KB."""
    log = open_log(tmp_path / "data" / "t-0")
    for size in (100_000, 300_000, 100_000):
        append(log, make_batch(bytes(size), timestamp=NOW, compression=CompressionType.ZSTD))
    log.close()
    return tmp_path / "data"


def reader_of(directory: Path, **options: str) -> PlogReader:
    return PlogReader(SourceOptions.parse({"path": str(directory), **options}), ("offset", "value"))


def offsets_of(reader: PlogReader) -> list[int]:
    return [row["offset"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("latest_per_key", ["false", "true"])
def test_the_option_sets_the_limit_of_a_batch(
    large: Path, latest_per_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment says, which is for the other readers of the process."""
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "200K")
    options = {"latestPerKey": latest_per_key}
    with pytest.raises(CorruptRecordError, match=r"t-0: the records of offset 1 do not .*the option maxExpansion"):
        offsets_of(reader_of(large, **options))
    expected = [2] if latest_per_key == "true" else [0, 1, 2]
    assert offsets_of(reader_of(large, **options, maxExpansion="310K")) == expected
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "1M")
    with pytest.raises(CorruptRecordError, match="offset 1 do not"):
        offsets_of(reader_of(large, **options, maxExpansion="200K"))


def test_the_option_holds_while_times_are_looked_up(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "1K")
    reader = reader_of(large, startingTimestamp=str(NOW), maxExpansion="1M")
    assert offsets_of(reader) == [0, 1, 2]


def test_the_limit_of_one_reading_is_not_that_of_another(large: Path) -> None:
    before = expansion_limit()
    narrow = OffsetRange("t", 0, 0, 3, 1, directory=str(large / "t-0"), max_expansion=310_000)
    for _ in read_columns(narrow):
        assert expansion_limit() == before
    assert expansion_limit() == before


def test_a_limit_that_is_no_size(large: Path) -> None:
    with pytest.raises(UsageError, match="option maxExpansion: many: expected a number of bytes"):
        reader_of(large, maxExpansion="many")
