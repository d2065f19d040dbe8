"""Writes a DataFrame's tasks as a replay's files: a sink for Spark, used by replays only.

It is a data source because that is how PySpark hands Arrow batches to Python without pandas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from core.spark.offset_range import OffsetRange
from core.spark.range_output import Receipt, write_files, write_part, write_receipt
from core.spark.replay import Replay, account
from core.spark.replay_lock import Claim

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def save(frame: DataFrame, claim: Claim, ranges: Sequence[OffsetRange] | None) -> None:
    """Writes each task's files by the replay's plan, and the receipt of its range if each task has the records of one
    range.
    """
    writer = frame.write.format(ReplayFiles.name()).mode("append").option("directory", str(claim.directory))
    writer = writer.option("lock", claim.number)
    if ranges is not None:
        writer = writer.option("ranges", json.dumps([range_.to_json() for range_ in ranges]))
    writer.save()


class ReplayFiles(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "plog-replay"

    def writer(self, schema: StructType, overwrite: bool) -> ReplayWriter:  # noqa: ARG002, FBT001 - Spark's
        ranges = [OffsetRange(**fields) for fields in json.loads(self._options.get("ranges", "[]"))]
        claim = Claim(Path(self._options["directory"]), int(self._options["lock"]))
        return ReplayWriter(claim, ranges, schema)


class ReplayWriter(DataSourceArrowWriter):
    def __init__(self, claim: Claim, ranges: Sequence[OffsetRange], schema: StructType) -> None:
        self._claim = claim
        self._ranges = ranges
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # of pyarrow.RecordBatch
        plan = Replay(self._claim.directory).plan
        assert plan is not None
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        unit = self._ranges[number].name if self._ranges else f"{plan.prefix}part-{number:05d}"
        schema = to_arrow_schema(self._schema, timezone="UTC")
        files = write_files(self._claim, unit, plan.output, (batch.cast(schema) for batch in iterator), schema)
        if self._ranges:
            write_receipt(self._claim, Receipt(unit, files, *account(self._ranges[number])))
        else:
            write_part(self._claim, unit, files)
        return WriterCommitMessage()
