"""What other programs find in a replay's folder: Spark, pyarrow and, if it is installed, DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[Any, ...]]


def read_by_all(directory: Path, kind: str, names: list[str], spark: SparkSession | None = None) -> Iterator[Rows]:
    """The rows of these columns as each reader finds them, in some order. Names of folders are columns, as in Hive."""
    yield _sorted(_by_pyarrow(directory, kind, names))
    if find_spec("duckdb") is not None:
        yield _sorted(_by_duckdb(directory, kind, names))
    if spark is not None:
        yield _sorted(_by_spark(spark, directory, kind, names))


def counts_by_all(directory: Path, kind: str, spark: SparkSession | None = None) -> Iterator[int]:
    """How many rows each reader finds."""
    yield ds.dataset(directory, format=kind, partitioning="hive").count_rows()
    if find_spec("duckdb") is not None:
        yield _by_duckdb(directory, kind, ["count(*)"])[0][0]
    if spark is not None:
        yield _load(spark, directory, kind).count()


def _sorted(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def _by_pyarrow(directory: Path, kind: str, names: list[str]) -> Rows:
    dataset = ds.dataset(directory, format=kind, partitioning="hive")
    columns = dataset.to_table(columns=names).columns
    plain = (c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in columns)
    return list(zip(*(column.to_pylist() for column in plain), strict=True))


def _by_duckdb(directory: Path, kind: str, names: list[str]) -> Rows:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

    is_partitioned = not any(directory.glob(f"*.{kind}"))
    pattern = f"{directory}/{'*=*/' if is_partitioned else ''}*.{kind}"
    options = "hive_partitioning = true" if is_partitioned else "hive_partitioning = false"
    options += ", all_varchar = true" if kind == "csv" else ""
    chosen = ", ".join(name if "(" in name else f'"{name}"' for name in names)
    with duckdb.connect() as connection:
        found: Rows = connection.execute(f"select {chosen} from read_{kind}('{pattern}', {options})").fetchall()
    return found


def _by_spark(spark: SparkSession, directory: Path, kind: str, names: list[str]) -> Rows:
    return [tuple(row) for row in _load(spark, directory, kind).select(*names).collect()]


def _load(spark: SparkSession, directory: Path, kind: str) -> DataFrame:
    reader = spark.read.option("header", True) if kind == "csv" else spark.read
    return reader.format(kind).load(str(directory))
