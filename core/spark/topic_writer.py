"""`df.write.format("plog")` and `df.writeStream.format("plog")`: to topics, each job or batch exactly once.

Columns are those of Spark's Kafka sink (value; key, topic, partition, headers if they are there), and `timestamp`.
Each attempt at a task writes in a transaction of its own, and leaves it prepared; the driver ends them (job_commit.py).

A stream is identified by the id that Spark writes into `metadata` of a new checkpoint, wherever the checkpoint is. The
id is part of the transactional ids, so a checkpoint that is deleted and begun again is another stream, and its batches
count from 0.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_bootstrap
from core.common.errors import PlogError, UsageError
from core.records.compression import CompressionType
from core.spark.cluster_access import access_of, connect, servers_of
from core.spark.job_commit import Attempt, BatchJob, Job, Prepared, StreamBatch, write_attempt
from core.spark.records_to_send import ensure_writable

_TIMEOUT_MS = 15 * 60_000
"""The most that brokers allow by default (transaction.max.timeout.ms)."""

_STREAM_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""Local properties of every job of a stream: the id in its checkpoint's `metadata` (Spark's `StreamExecution`), and the
batch's number (`MicroBatchExecution`).
"""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    servers: str
    topic: str
    transactional_id_prefix: str
    compression: CompressionType
    timeout_ms: int
    access: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriterOptions:
        """Parses the options; raises UsageError for an invalid one. `transactional_id_prefix` is "" by default."""
        given = {name.lower(): value for name, value in options.items()}
        servers = servers_of(given)
        if not servers:
            raise UsageError(
                "write to where? give kafka.bootstrap.servers, or commandConfig, a file with bootstrap.servers"
            )
        parse_bootstrap(servers)
        name = given.get("kafka.compression.type", "none").upper()
        if name not in CompressionType.__members__:
            raise UsageError(f"option kafka.compression.type: {name.lower()}, expected none, gzip, snappy, lz4 or zstd")
        timeout = given.get("kafka.transaction.timeout.ms", str(_TIMEOUT_MS))
        if not timeout.isdecimal() or not int(timeout):
            raise UsageError(f"option kafka.transaction.timeout.ms: {timeout}, expected milliseconds")
        prefix = given.get("transactionalidprefix", "")
        codec = CompressionType[name]
        return cls(servers, given.get("topic", ""), prefix, codec, int(timeout), access_of(given))


class PreparedTask(Prepared, WriterCommitMessage):
    """The result of a task that Spark hands to the driver."""


class _TopicWriter:
    """The part that runs in tasks, and what the drivers' parts have in common."""

    def __init__(self, options: WriterOptions, schema: StructType) -> None:
        self._options = options
        self._prefix = options.transactional_id_prefix or "plog"
        self._run = uuid.uuid4().hex[:16]
        ensure_writable(to_arrow_schema(schema, timezone="UTC"), options.topic)

    def _connect(self) -> KafkaClient:
        return connect(self._options.servers, self._options.access)

    def _job(self, context: TaskContext) -> Job:
        raise NotImplementedError

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # of pyarrow.RecordBatch
        context = TaskContext.get()
        assert context is not None
        attempt = Attempt(context.partitionId(), context.taskAttemptId(), context.attemptNumber())
        prepared = write_attempt(
            self._job(context),
            attempt,
            self._options.topic,
            iterator,
            self._connect,
            timeout_ms=self._options.timeout_ms,
            compression=self._options.compression,
        )
        return WriterCommitMessage() if prepared is None else PreparedTask(**asdict(prepared))


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedTask]:
    return [message for message in messages if isinstance(message, PreparedTask)]


class TopicBatchWriter(_TopicWriter, DataSourceArrowWriter):
    """Writes one job: when all of its tasks are prepared, they are committed."""

    def _job(self, context: TaskContext | None = None) -> BatchJob:  # noqa: ARG002 - a stream's needs it
        return BatchJob(self._prefix, self._run, is_named=bool(self._options.transactional_id_prefix))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with contextlib.closing(self._connect()) as client:
            self._job().commit(client, _prepared(messages), len(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with contextlib.closing(self._connect()) as client:
            self._job().abort(client, _prepared(messages))


class TopicStreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Writes a stream's batches; Spark may run the last one more than once."""

    def _job(self, context: TaskContext) -> StreamBatch:
        stream, batch = (context.getLocalProperty(name) for name in (_STREAM_ID, _BATCH_ID))
        if not stream or not batch:
            raise PlogError(
                "Spark does not say which stream this is: a batch that is done again could not be told from a new one",
                hint=f"the local property {_BATCH_ID if stream else _STREAM_ID} of Spark's stream execution is missing",
            )
        return StreamBatch(f"{self._prefix}-{stream}", self._run, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        tasks = _prepared(messages)
        if tasks:
            with contextlib.closing(self._connect()) as client:
                self._batch(tasks, batchId).commit(client, tasks, len(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        tasks = _prepared(messages)
        if tasks:  # else nobody knows here which stream it is: its next start ends what is open
            with contextlib.closing(self._connect()) as client:
                self._batch(tasks, batchId).abort(client, tasks)

    def _batch(self, tasks: Sequence[PreparedTask], number: int) -> StreamBatch:
        return StreamBatch(tasks[0].group.rpartition("-")[0], self._run, number)
