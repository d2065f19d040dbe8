"""`df.write.format("plog")` and `df.writeStream.format("plog")`: to topics, each job or batch exactly once.

Columns are those of Spark's Kafka sink (value; key, topic, partition, headers if they are there), and `timestamp`.
Every task writes in a transaction of its own, and leaves it prepared; when all tasks are done the driver commits them,
one after the other. A task that is tried again fences the try before it.

A batch of a stream may be done twice, if the driver ends between its commit and Spark's note of it. So the driver
commits with each task's transaction an offset of a group, of the transactional id's name: the number of the batch + 1.
A task whose group is past the batch is not committed again.

A stream is known by the id that Spark writes into `metadata` of its checkpoint when that is new, wherever the
checkpoint lies and however it was named. The id is part of the transactional ids, so a checkpoint that is deleted and
begun again is another stream, and its batches count from 0.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from core.client.group_admin import GroupAdmin
from core.client.kafka_client import KafkaClient
from core.client.producer import ProducerIdentity
from core.client.transactional_producer import TransactionalProducer, add_offsets, end_transaction
from core.common.endpoint import parse_bootstrap
from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.records.compression import CompressionType
from core.spark.cluster_access import access_of, connect, servers_of
from core.spark.records_to_send import RecordCutter, ensure_writable

_TIMEOUT_MS = 15 * 60_000
"""The most that brokers allow by default (transaction.max.timeout.ms)."""

_STREAM_ID = "sql.streaming.queryId"
"""The local property of every job of a stream: the id in its checkpoint's `metadata` (Spark's `StreamExecution`)."""


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
        """Raises UsageError for what is not understood. `transactional_id_prefix` is "" if it is not given."""
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


class PreparedTask(WriterCommitMessage):
    """What a task leaves; `identity` is None if it had no records. `topic` is one that it wrote to."""

    def __init__(self, number: int, identity: ProducerIdentity | None, topic: str) -> None:
        self.number = number
        self.identity = identity
        self.topic = topic


class _TopicWriter:
    """The side of its tasks, and what the driver's have in common."""

    def __init__(self, options: WriterOptions, schema: StructType) -> None:
        self._options = options
        ensure_writable(to_arrow_schema(schema, timezone="UTC"), options.topic)

    def _connect(self) -> KafkaClient:
        return connect(self._options.servers, self._options.access)

    def _task_prefix(self, context: TaskContext) -> str:
        """Begins the transactional ids of all tasks: the same for each try of a task."""
        raise NotImplementedError

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # of pyarrow.RecordBatch
        context = TaskContext.get()
        assert context is not None
        number, options = context.partitionId(), self._options
        transactional_id = f"{self._task_prefix(context)}-{number}"
        with contextlib.closing(
            TransactionalProducer(
                self._connect, transactional_id, timeout_ms=options.timeout_ms, compression=options.compression
            )
        ) as producer:
            cutter = RecordCutter(options.topic, producer.partitions)
            last_topic = ""
            for batch in iterator:
                for topic, records in cutter.cut(batch):
                    producer.send(topic, records)
                    last_topic = topic
            identity = producer.prepare() if producer.is_open else None
            return PreparedTask(number, identity, last_topic)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with contextlib.closing(self._connect()) as client:
            for task in _with_records(messages):
                assert task.identity is not None
                with contextlib.suppress(PlogError):  # it times out by itself
                    end_transaction(client, task.identity, is_commit=False)


def _with_records(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedTask]:
    return [task for task in messages if isinstance(task, PreparedTask) and task.identity is not None]


class TopicBatchWriter(_TopicWriter, DataSourceArrowWriter):
    """Writes one job: when all of its tasks are prepared, they are committed. Without a prefix its ids are new."""

    def __init__(self, options: WriterOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._prefix = options.transactional_id_prefix or f"plog-{uuid.uuid4().hex[:16]}"

    def _task_prefix(self, context: TaskContext) -> str:  # noqa: ARG002 - a stream's needs it
        return self._prefix

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with contextlib.closing(self._connect()) as client:
            for task in _with_records(messages):
                assert task.identity is not None
                end_transaction(client, task.identity, is_commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class TopicStreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Writes a stream's batches, of which the last may be done more than once."""

    def _task_prefix(self, context: TaskContext) -> str:
        stream = context.getLocalProperty(_STREAM_ID)
        if not stream:
            raise PlogError(
                "Spark does not say which stream this is: a batch that is done again could not be told from a new one",
                hint=f"the local property {_STREAM_ID} of Spark's stream execution is missing",
            )
        return f"{self._options.transactional_id_prefix or 'plog'}-{stream}"

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        tasks = _with_records(messages)
        layout = f"{len(messages)} tasks"
        with contextlib.closing(self._connect()) as client:
            admin = GroupAdmin(client)
            for task in tasks:
                assert task.identity is not None
                group, place = task.identity.transactional_id, TopicPartition(task.topic, 0)
                committed = admin.stable_offsets(group, {place, *admin.offsets(group)})  # of other topics, too
                done = [found for found in committed.values() if found.offset > batchId]
                if done and done[0].offset > batchId + 1:
                    raise PlogError(
                        f"batch {batchId} is written after batch {done[0].offset - 1} of the same stream: "
                        "its checkpoint was set back, or copied",
                        hint="a new checkpointLocation begins a new stream, whose batches are all written",
                    )
                if done and done[0].metadata != layout:
                    raise PlogError(
                        f"batch {batchId} was half committed by {done[0].metadata}, and is done again by {layout}",
                        hint="start the stream with the number of tasks that it had",
                    )
                if not done:
                    add_offsets(client, task.identity, group, {place: batchId + 1}, layout)
                end_transaction(client, task.identity, is_commit=not done)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's
        self._abort(messages)
