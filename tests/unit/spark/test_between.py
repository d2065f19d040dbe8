"""`between` without a JVM: which offsets and segments a call chooses. tests/interop/test_spark_values.py has Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from core.common.errors import KafkaError, UsageError
from core.spark.between import between
from core.spark.source_options import SourceOptions
from core.spark.source_reader import PlogReader
from tests.support.for_each import for_each
from tests.support.logs import NOW, append, make_batch, open_log

pytestmark = pytest.mark.longer

MOMENT = datetime.fromtimestamp(NOW / 1000, UTC)


@pytest.fixture(autouse=True)
def _no_columns() -> Iterator[None]:
    """Columns need a JVM."""
    with patch("core.spark.between.sql") as sql:
        sql.col.return_value = sql.lit.return_value = 1
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """t with two partitions of 300 and 200 records, one for each millisecond, in segments of some 40 records."""
    for name, count in (("t-0", 300), ("t-1", 200)):
        log = open_log(tmp_path / "data" / name, segment_bytes=4000, index_interval_bytes=200)
        for n in range(0, count, 2):
            append(log, make_batch(b"%d" % n, b"%d" % (n + 1), timestamp=NOW + n))
        log.close()
    return tmp_path / "data"


def chosen(data: Path, *places: Any, **arguments: Any) -> dict[int, tuple[int, int]]:
    """Returns the offsets that the DataFrame would read, by partition."""
    spark = MagicMock()
    reader = spark.read.format.return_value.options.return_value.option
    frame = reader.return_value.load.return_value
    frame.columns, frame.where.return_value = ["timestamp"], frame
    between(spark, "t", *places, path=str(data), **arguments)
    options = spark.read.format.return_value.options.call_args.kwargs | dict([reader.call_args.args])
    found: dict[int, tuple[int, int]] = {}
    for partition in PlogReader(SourceOptions.parse(options), ("offset",)).partitions():
        one = partition.range  # type: ignore[attr-defined]
        before = found.get(one.partition, (one.start_offset, 0))
        found[one.partition] = before[0], one.end_offset
    return found


def test_places_are_offsets_and_times(data: Path) -> None:
    assert chosen(data) == {0: (0, 300), 1: (0, 200)}
    assert chosen(data, 250, 280) == {0: (250, 280)}
    assert chosen(data, 190, partitions=[1]) == {1: (190, 200)}
    assert chosen(data, {0: 10}, {0: 20, 1: 5}) == {0: (10, 20), 1: (0, 5)}
    assert chosen(data, -5, 1 << 60) == {0: (0, 300), 1: (0, 200)}
    assert chosen(data, 7, 7) == {}
    of_times = MOMENT + timedelta(milliseconds=100), (MOMENT + timedelta(milliseconds=110)).isoformat()
    assert chosen(data, *of_times) == {0: (100, 110), 1: (100, 110)}
    assert chosen(data, *of_times, late=timedelta(milliseconds=5)) == {0: (100, 115), 1: (100, 115)}


def test_segments_beside_the_part_are_not_read(data: Path) -> None:
    segments = sorted((data / "t-0").glob("*.log"))
    assert len(segments) > 3
    segments[0].write_bytes(b"\xff" * segments[0].stat().st_size)
    start = int(segments[2].stem)
    options = {"path": str(data), "assign": '{"t": [0]}', "startingOffsets": json.dumps({"t": {"0": start}})}
    assert chosen(data, start, start + 5, partitions=[0]) == {0: (start, start + 5)}
    reader = PlogReader(
        SourceOptions.parse(options | {"endingOffsets": json.dumps({"t": {"0": start + 5}})}), ("offset",)
    )
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch["offset"].to_pylist()]
    assert found == list(range(start, start + 5))


@for_each(
    "arguments, message",
    [
        ({"start": {7: 1}}, "partition 7 is not read"),
        ({"start": "yesterday"}, "'yesterday' is no time"),
        ({"partitions": [9]}, "option assign: there is no partition t-9"),
        ({"options": {"startingOffsets": "earliest"}}, "option startingOffsets: between has an argument for it"),
        ({"options": {"valueFormatt": "json"}}, "no option 'valueformatt'"),
        ({"servers": "127.0.0.1:1"}, "read from where?"),
    ],
)
def test_arguments_that_do_not_fit(data: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(data, **arguments)
    assert message in str(caught.value)


def test_a_topic_that_is_not_there_is_an_error(data: Path) -> None:
    with pytest.raises(KafkaError):
        between(MagicMock(), "u", path=str(data))
