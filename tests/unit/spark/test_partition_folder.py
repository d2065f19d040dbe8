"""Names of folders by what Spark documents; tests/interop/test_spark_folders.py compares them with Spark's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from core.common.errors import PlogError, UsageError
from core.spark import range_output
from core.spark.offset_range import OffsetRange
from core.spark.partition_expression import Partition, parse_partitions
from core.spark.partition_folder import folder_name, partition_texts, value_of_folder
from core.spark.range_output import OutputFormat, ensure_writable, written_schema
from tests.support.for_each import for_each
from tests.support.spark.placed_files import write_placed
from tests.support.spark.readers import read_by_all

CITY = OutputFormat("parquet", "binary", "binary", parse_partitions(["city"]))


def table_of(*cities: str | None) -> Any:
    return pa.record_batch({"i": pa.array(range(len(cities)), pa.int64()), "city": pa.array(cities, pa.string())})


def write(directory: Path, batch: Any, format_: OutputFormat = CITY) -> list[str]:
    return [file.name for file in write_placed(directory, "unit", format_, [batch], batch.schema)]


@for_each(
    "value, folder",
    [
        ("Zürich", "city=Zürich"),
        ("東京 😀", "city=東京 😀"),
        ("a/b", "city=a%2Fb"),
        ("a%2Fb", "city=a%252Fb"),
        ("a=b:c", "city=a%3Db%3Ac"),
        ("\x00\t\n\x7f", "city=%00%09%0A%7F"),
        ("\"#'*?\\{[]^", "city=%22%23%27%2A%3F%5C%7B%5B%5D%5E"),
        ("} <>|&,;~$!()+@", "city=} <>|&,;~$!()+@"),
        ("..", "city=.."),
    ],
)
def test_what_spark_escapes_is_escaped_and_nothing_else(value: str, folder: str) -> None:
    assert folder_name("city", value) == folder
    assert value_of_folder(folder) == value


def test_null_and_the_empty_text_have_hives_own_folder(tmp_path: Path) -> None:
    assert folder_name("city", None) == "city=__HIVE_DEFAULT_PARTITION__"
    assert value_of_folder("city=__HIVE_DEFAULT_PARTITION__") is None
    names = write(tmp_path, table_of("x", "", None, "x", ""))
    assert names == ["city=__HIVE_DEFAULT_PARTITION__/unit.parquet", "city=x/unit.parquet"]
    null = pq.read_table(tmp_path / names[0], partitioning=None)
    assert null["i"].to_pylist() == [1, 2, 4]


def test_a_value_too_long_for_a_name_is_told(tmp_path: Path) -> None:
    write(tmp_path / "out", table_of("x" * 250))
    with pytest.raises(PlogError, match=r"--partition-by city: the folder of a value that begins 'éé.* of 257 bytes"):
        write(tmp_path / "other", table_of("é" * 126))
    assert list((tmp_path / "other").rglob("*.*")) == []


def test_other_types_are_text_as_spark_casts_them() -> None:
    times = pa.array([1_358_208_000_100_000, 0, 1_700_000_000_000_000_000, None], pa.int64())
    assert partition_texts(times.cast(pa.timestamp("us", tz="UTC"))).to_pylist() == [
        "2013-01-15 00:00:00.1",
        "1970-01-01 00:00:00",
        "+55840-11-08 22:13:20",
        None,
    ]


@for_each("by, folder", [("day", "day=+55840-11-08"), ("hour", "hour=+55840-11-08-22")])
def test_years_of_more_digits_are_no_other_years(tmp_path: Path, by: str, folder: str) -> None:
    times = pa.array([1_700_000_000_000_000_000, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"timestamp": times})
    names = write(tmp_path, batch, OutputFormat("parquet", "binary", "binary", parse_partitions([by])))
    assert names == [f"{folder}/unit.parquet", f"{by}=__HIVE_DEFAULT_PARTITION__/unit.parquet"]


# --- readers


@for_each("most", [256, 3])
def test_readers_find_the_rows_of_many_folders(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than files may be open."""
    monkeypatch.setattr(range_output, "_MOST_OPEN_FILES", most)
    cities = [None, "", *(f"c{n % 9}" for n in range(100)), "Zürich", "a/b", "x:y", "%", "t\tn\n"]
    whole = table_of(*cities)
    batches = [whole.slice(start, 20) for start in range(0, len(cities), 20)]
    files = write_placed(tmp_path, "unit", CITY, batches, whole.schema)
    assert sum(file.rows for file in files) == len(cities)
    assert len(files) == len({file.name for file in files})
    folders = [file.name.rpartition("/")[0] for file in files]
    assert len(set(folders)) == 15
    assert (len(files) == 15) is (most == 256)
    assert all((tmp_path / folder / "unit.parquet").is_file() for folder in folders)
    assert [file.name for file in files] == sorted(file.name for file in files)
    expected = sorted(((n, city or None) for n, city in enumerate(cities)), key=repr)
    for rows in read_by_all(tmp_path, "parquet", ["i", "city"]):
        assert rows == expected
    assert list((tmp_path / "_plog").glob("*.tmp")) == []


@for_each("topic", ["_under", ".dot", "__x", "plain"])
def test_no_topics_files_are_hidden(tmp_path: Path, topic: str) -> None:
    unit = OffsetRange(topic, 0, 0, 3, 1).name
    batch = table_of("a", "b", "c")
    write_placed(tmp_path, unit, OutputFormat("parquet", "binary", "binary"), [batch], batch.schema)
    assert not unit.startswith(("_", "."))
    assert topic in unit
    assert ds.dataset(tmp_path, format="parquet").count_rows() == 3


def test_names_of_topics_stay_apart() -> None:
    names = ["_a", ".a", "a", "-a", "__a"]
    assert len({OffsetRange(name, 0, 0, 3, 1).name for name in names}) == len(names)


# --- more folders and more files


def test_folders_in_folders(tmp_path: Path) -> None:
    times = pa.array([1_358_208_000_000_000, 1_358_294_400_000_000, None], pa.int64())
    batch = pa.record_batch(
        {"i": pa.array([1, 2, 3]), "timestamp": times.cast(pa.timestamp("us", tz="UTC")),
         "city": pa.array(["a/b", None, "a/b"])}
    )  # fmt: skip
    by = parse_partitions(["city,day", "date(timestamp)", "c=city"])
    names = write(tmp_path, batch, OutputFormat("parquet", "binary", "binary", by))
    null = "__HIVE_DEFAULT_PARTITION__"
    assert names == [
        f"city={null}/day=2013-01-16/date=2013-01-16/c={null}/unit.parquet",
        "city=a%2Fb/day=2013-01-15/date=2013-01-15/c=a%2Fb/unit.parquet",
        f"city=a%2Fb/day={null}/date={null}/c=a%2Fb/unit.parquet",
    ]
    table = ds.dataset(tmp_path, format="parquet", partitioning="hive").to_table().sort_by("i")
    assert table.select(["i", "day", "c"]).to_pydict() == {
        "i": [1, 2, 3], "day": ["2013-01-15", "2013-01-16", None], "c": ["a/b", None, "a/b"]
    }  # fmt: skip
    assert pq.read_schema(tmp_path / names[0]).names == ["i", "timestamp"]


@for_each("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_files_that_begin_when_one_is_large_enough(tmp_path: Path, codec: str) -> None:
    random = np.random.default_rng(1)
    batch = pa.record_batch({"i": np.arange(5000), "x": random.integers(0, 1 << 60, 5000)})
    output = OutputFormat("parquet", "binary", "binary", compression=codec, file_size=10_000)
    files = write_placed(tmp_path, "unit", output, [batch, batch], batch.schema)
    names = [f"unit{f'-{n}' if n else ''}.parquet" for n in range(len(files))]
    assert sorted(file.name for file in files) == sorted(names)
    assert 5 < len(files) < 40
    assert all(4_000 < file.size_bytes < 25_000 for file in files)
    read = pa.concat_tables(pq.read_table(tmp_path / name) for name in names)
    assert read["i"].to_pylist() == [*range(5000)] * 2
    used = {pq.ParquetFile(tmp_path / name).metadata.row_group(0).column(0).compression for name in names}
    assert used == {"UNCOMPRESSED" if codec == "none" else codec.upper()}


# --- columns that collide


@for_each(
    "names, by, said",
    [
        (("topic", "i", "Topic"), "", "topic and Topic"),
        (("i", "i"), "", "i and i"),
        (("Day", "timestamp"), "day", "Day and day"),
        (("i", "city", "CITY"), "city", "city and CITY"),
    ],
)
def test_columns_that_are_one_to_others_are_refused(names: tuple[str, ...], by: str, said: str) -> None:
    schema = pa.schema([(name, pa.string()) for name in names])
    with pytest.raises(UsageError, match=f"two columns of the output are one to Spark and others: {said}"):
        written_schema(OutputFormat("parquet", "binary", "binary", parse_partitions([by])), schema)


@for_each(
    "name, kind, said",
    [
        ("headers", pa.list_(pa.string()), "a value of list<item: string> can't name a folder"),
        ("_city", pa.string(), "folders whose names begin with _ are hidden from readers"),
        (".city", pa.string(), "folders whose names begin with . are hidden from readers"),
    ],
)
def test_columns_that_no_folder_can_be_named_by(name: str, kind: Any, said: str) -> None:
    schema = pa.schema([(name, kind), ("i", pa.int64())])
    with pytest.raises(UsageError, match=said):
        ensure_writable(OutputFormat("parquet", "binary", "binary", (Partition(name, f"`{name}`"),)), schema)


@for_each(
    "zone, folders",
    [
        ("UTC", {"2013-03-31-00": 2, "2013-03-31-01": 2, "2013-10-26-23": 2, "2013-10-27-00": 2, "2013-10-27-01": 2}),
        # Berlin's clocks go from 2 to 3, and from 3 back to 2, at 01:00 UTC
        ("Europe/Berlin", {"2013-03-31-01": 2, "2013-03-31-03": 2, "2013-10-27-01": 2, "2013-10-27-02": 4}),
        ("America/New_York", {"2013-03-30-20": 2, "2013-03-30-21": 2, "2013-10-26-19": 2, "2013-10-26-20": 2,
                              "2013-10-26-21": 2}),
        ("Asia/Kathmandu", {"2013-03-31-05": 1, "2013-03-31-06": 2, "2013-03-31-07": 1, "2013-10-27-04": 1,
                            "2013-10-27-05": 2, "2013-10-27-06": 2, "2013-10-27-07": 1}),
    ],
)  # fmt: skip
def test_hours_are_those_of_the_zones_clocks(tmp_path: Path, zone: str, folders: dict[str, int]) -> None:
    march, october = 1364688000, 1382828400  # 2013-03-31T00:00Z, 2013-10-26T23:00Z
    seconds = [march + n * 1800 for n in range(4)] + [october + n * 1800 for n in range(6)]
    times = pa.array([second * 1_000_000 for second in seconds]).cast(pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"i": pa.array(range(10)), "timestamp": times})
    hours = OutputFormat("parquet", "binary", "binary", parse_partitions(["hour"]), timezone=zone)
    files = write_placed(tmp_path / "hours", "unit", hours, [batch], batch.schema)
    assert {file.name.split("/")[0].removeprefix("hour="): file.rows for file in files} == folders
    days = OutputFormat("parquet", "binary", "binary", parse_partitions(["date(timestamp)"]), timezone="Asia/Tokyo")
    assert write(tmp_path / "days", batch, days) == ["date=2013-03-31/unit.parquet", "date=2013-10-27/unit.parquet"]
