"""plog in Spark, for jobs and notebooks.

    from plog.spark import register

    register(spark)
    flights = spark.read.format("plog").option("path", "/data/kafka").option("subscribe", "flights").load()

The options are those of Spark's own Kafka source; docs/spark.md has them all, with examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.spark.pyspark_version import ensure_pyspark

ensure_pyspark()

from core.spark.data_source import PlogDataSource  # noqa: E402 - an older PySpark lacks what it imports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PlogDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("plog")` known to the session, and changes nothing else of it."""
    spark.dataSource.register(PlogDataSource)
