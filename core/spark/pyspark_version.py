"""Checks that the installed PySpark can run plog's jobs and its data source."""

from __future__ import annotations

import re

from core.common.errors import AccessError

MINIMUM_VERSION = (4, 2)  # the first that hands Arrow batches to a data source's writers, and admission control


def ensure_pyspark() -> None:
    """Raises AccessError if PySpark is missing or too old, or if it lacks a package that it needs."""
    try:
        from pyspark.version import __version__ as version
    except ImportError as error:
        if getattr(error, "name", None) in ("pyspark", "pyspark.version"):
            raise AccessError("spark-replay needs PySpark", hint="pip install 'plog-kafka[spark]'") from None
        raise AccessError(
            f"PySpark is there and can't be used: {error}",
            hint="pip install --upgrade --force-reinstall 'plog-kafka[spark]'",
        ) from error
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < MINIMUM_VERSION:
        expected = ".".join(map(str, MINIMUM_VERSION))
        raise AccessError(
            f"PySpark {version} is too old, expected {expected} or newer",
            hint="pip install --upgrade 'plog-kafka[spark]'",
        )
