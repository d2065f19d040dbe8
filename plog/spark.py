"""plog in Spark, for jobs and notebooks.

    from plog.spark import register

    register(spark)
    flights = spark.read.format("plog").option("path", "/data/kafka").option("subscribe", "flights").load()

The options are those of Spark's own Kafka source; docs/spark.md has them all, with examples. `between` reads a part of
the log, and no segment beside it:

    from plog.spark import between

    night = between(spark, "flights", path="/data/kafka", start="2013-01-15T00:00:00Z", end="2013-01-15T06:00:00Z")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.spark.spark_session import ensure_pyspark, is_local, send

ensure_pyspark()

from core.spark.between import between  # noqa: E402
from core.spark.data_source import PlogDataSource  # noqa: E402 - an older PySpark lacks what it imports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PlogDataSource", "between", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("plog")` known to the session. If that is of a cluster, the executors get plog, as an archive of
    its Python files; NumPy, pyarrow, crcmod, lz4 and python-snappy must be there.
    """
    spark.dataSource.register(PlogDataSource)
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None and not is_local(context.master):
        send(context)
