"""Compares the files of a replay by --schema or --transform with the log: their offsets and counts. The columns that
Spark or a function made of the values are not made again, so they are not checked. The columns in the files decide what
can be checked:

    --schema, with the column offset        each range's files have each of its offsets once
    --schema, without it                    each range's files have as many rows as it has records
    --transform, with the column offset     no file of a range has an offset that the range does not have
    --transform, anything else              as many records were read as the log has
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from core.common.errors import PlogError
from core.spark.offset_range import OffsetRange, read_columns
from core.spark.range_output import Receipt, WrittenFile, read_receipt
from core.spark.replay import WHOLE, Replay
from core.spark.replay_plan import ReplayPlan

_OFFSET = "offset"


def what_is_not_checked(plan: ReplayPlan) -> str:
    """Describes what is not checked, for a plan that is not `is_direct`."""
    if not plan.transform:
        return "the columns that --schema makes of values are not compared with the log: offsets and counts are"
    return f"what {plan.transform} makes of records is not compared with the log: which offsets were read is"


def compare_offsets(replay: Replay, plan: ReplayPlan) -> Iterator[tuple[OffsetRange, str, bool]]:
    """Yields each range, the problem of its offsets or counts ("" for none), and whether it could be compared."""
    whole = read_receipt(replay.directory, plan.prefix + WHOLE)
    records = 0
    for range_ in plan.ranges:
        try:
            found = [records.offsets for records in read_columns(range_, lambda _: None)]
            offsets = np.concatenate(found) if found else np.empty(0, np.int64)
        except PlogError as error:
            yield range_, f"the log can't be compared: {error}", False
            records = -1
            continue
        if whole is not None:
            records = records + len(offsets) if records >= 0 else records
            yield range_, "", True
            continue
        receipt = read_receipt(replay.directory, range_.name)
        if receipt is None:
            yield range_, f"_plog/receipts/{range_.name}.json is missing: its rows can't be told from others", False
        else:
            yield range_, _compare_range(replay.directory, receipt, offsets, plan), True
    if whole is not None and whole.records >= 0 and records >= 0 and whole.records != records:
        yield plan.ranges[0], f"{whole.records} records were read, the log has {records}", True


def _compare_range(directory: Path, receipt: Receipt, offsets: Any, plan: ReplayPlan) -> str:
    if receipt.records >= 0 and receipt.records != len(offsets):
        return f"{receipt.unit}: {receipt.records} records were read, the log has {len(offsets)}"
    rows = sum(file.rows for file in receipt.files)
    if not plan.transform and rows != len(offsets):
        return f"{receipt.unit} has {rows} rows, the log {len(offsets)} records"
    written = _offsets_of_files(directory, receipt.files, plan.output.kind)
    if written is None:
        return ""
    strange = np.setdiff1d(written, offsets)
    if len(strange):
        return f"{receipt.unit} has offset {strange[0]}, and the log has no such record"
    if not plan.transform and len(np.unique(written)) != len(offsets):
        lacking = np.setdiff1d(offsets, written)
        return f"{receipt.unit} lacks offset {lacking[0]}"
    return ""


def _offsets_of_files(directory: Path, files: tuple[WrittenFile, ...], kind: str) -> Any | None:  # numpy.ndarray
    """Reads the offsets in the files; returns None if they have no integer column of that name."""
    found = [np.empty(0, np.int64)]
    for file in files:
        column = _OFFSETS[kind](directory / file.name)
        if column is None or not pa.types.is_integer(column.type) or column.null_count:
            return None
        found.append(column.to_numpy())
    return np.concatenate(found)


def _of_parquet(path: Path) -> Any | None:  # pyarrow.ChunkedArray
    file = pq.ParquetFile(path)
    return file.read([_OFFSET])[_OFFSET] if _OFFSET in file.schema_arrow.names else None


def _of_csv(path: Path) -> Any | None:
    options = pa_csv.ConvertOptions(include_columns=[_OFFSET], include_missing_columns=True)
    column = pa_csv.read_csv(path, convert_options=options, parse_options=pa_csv.ParseOptions(newlines_in_values=True))[
        _OFFSET
    ]
    return column if len(column) else pa.chunked_array([pa.array([], pa.int64())])


def _of_json(path: Path) -> Any | None:
    with path.open("rb") as lines:
        offsets = [json.loads(line).get(_OFFSET) for line in lines]
    is_whole = all(isinstance(offset, int) for offset in offsets)
    return pa.chunked_array([pa.array(offsets, pa.int64())]) if is_whole else None


_OFFSETS = {"parquet": _of_parquet, "csv": _of_csv, "json": _of_json}
