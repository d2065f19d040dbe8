"""Writes times as text, whatever their year: years of more than four digits have a sign, as in ISO 8601 and Spark.

Arrow's own functions keep a year in 16 bits and Python's datetime has none beyond 9999; NumPy has all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def time_texts(times: Any) -> list[str | None]:
    """Writes pyarrow.TimestampArray's times as 2013-01-15T10:00:00.000000, in UTC."""
    return [None if text == "NaT" else _with_sign(text) for text in np.datetime_as_string(_cut(times, "us")).tolist()]


def few_time_texts(times: Any, unit: str) -> Any:  # pyarrow.StringArray
    """Does the same to a unit of NumPy's ("D" for days), once for each time that occurs."""
    found, places = np.unique(_cut(times, unit), return_inverse=True)
    texts = [None if text == "NaT" else _with_sign(text) for text in np.datetime_as_string(found).tolist()]
    return pa.array(texts, pa.string()).take(pa.array(places))


def _cut(times: Any, unit: str) -> Any:
    return times.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).astype(f"M8[{unit}]")


def _with_sign(text: str) -> str:
    return f"+{text}" if text[4:5].isdigit() and text[0] != "-" else text
