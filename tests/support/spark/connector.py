"""Spark's own Kafka connector, spark-sql-kafka-0-10: the oracle of plog's data source."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tests.support.oracle import fetch_jars

_POM = Path(__file__).with_name("pom.xml")


@cache
def connector_jars() -> list[Path]:
    """Fetched by Maven at the first use on a machine; what Spark has itself is left out."""
    return sorted(fetch_jars(_POM, "spark-connector", "-DexcludeTransitive=true").glob("*.jar"))


def use_connector() -> None:
    """Every Spark that this process starts from here on has it."""
    jars = ",".join(map(str, connector_jars()))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
