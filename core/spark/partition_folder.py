"""Names a partitioned output's folders, `city=a%2Fb` as Hive does: as Spark's own writer would.

    <column>=<value>     both escaped: %XX for the characters that Spark escapes, everything else as UTF-8
    <column>=__HIVE_DEFAULT_PARTITION__     null, and the empty text

A value becomes text as Spark's cast to a string makes it, times in UTC. Readers find the values in the names, and guess
types: a column of the texts "1" and "2" is one of numbers to Spark, pyarrow and DuckDB, whoever wrote it.

Source: org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils (escapePathName, getPartitionPathString).
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.common.errors import PlogError, UsageError

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = re.compile("[\\x00-\\x1f\"#%'*/:=?\\\\\\x7f{\\[\\]^]")
_MOST_BYTES = 255
"""The most bytes of a file name in common file systems."""


def folder_name(column: str, value: str | None) -> str:
    """Returns the folder's name; raises PlogError for a value that is too long for a name."""
    name = f"{_escape(column)}={_escape(value) if value else NULL_PARTITION}"
    size = len(os.fsencode(name))
    if size > _MOST_BYTES:
        raise PlogError(
            f"--partition-by {column}: the folder of a value that begins {(value or '')[:40]!r} needs a name of {size} "
            f"bytes, expected {_MOST_BYTES} at the most"
        )
    return name


def value_of_folder(name: str) -> str | None:
    """Reads the value back."""
    text = name.partition("=")[2]
    return None if text == NULL_PARTITION else re.sub("%([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), text)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def ensure_names_folders(column: str, kind: Any) -> None:
    """Raises UsageError for a column whose type (pyarrow.DataType) has no text, or whose name hides its folders."""
    if pa.types.is_nested(kind):
        raise UsageError(f"--partition-by {column}: a value of {kind} can't name a folder")
    if column.startswith(("_", ".")):
        raise UsageError(
            f"--partition-by {column}: folders whose names begin with {column[0]} are hidden from readers",
            hint="give the column another name, by --schema or --transform",
        )


def partition_texts(values: Any) -> Any:
    """Returns the text of each value of a record's column (pyarrow.Array), as Spark casts it; null also for an empty
    text.
    """
    if pa.types.is_timestamp(values.type):
        texts = pc.replace_substring_regex(pc.replace_substring(time_texts(values, "us"), "T", " "), r"\.?0+$", "")
    else:
        texts = values.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def time_texts(times: Any, unit: str) -> Any:  # pyarrow.StringArray
    """Writes pyarrow.TimestampArray's times in UTC, to a unit of NumPy's: 2013-01-15T10 for "h". Years of more than
    four digits have a sign, as in ISO 8601 and Spark. Arrow's own functions keep a year in 16 bits, Python's datetime
    has none beyond 9999; NumPy has all of them.
    """
    cut = times.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).astype(f"M8[{unit}]")
    found, places = np.unique(cut, return_inverse=True)
    texts = [None if text == "NaT" else _with_sign(text) for text in np.datetime_as_string(found).tolist()]
    return pa.array(texts, pa.string()).take(pa.array(places))


def _with_sign(text: str) -> str:
    return f"+{text}" if text[4:5].isdigit() and text[0] != "-" else text
