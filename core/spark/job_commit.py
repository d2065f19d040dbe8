"""Commits what a Spark job's tasks have written to topics, all or nothing, even if attempts come late.

Spark may try a task several times, also at once (speculation), and takes one attempt of each. An attempt writes in a
transaction of its own, whose id no other attempt at the task has, and leaves it prepared. When all tasks are done, the
driver

    closes the job      an attempt looks after its InitProducerId whether the job is closed: then it writes nothing
    ends all others     it lists the job's transactional ids, and fences those of attempts that were not taken; one
                        that is not listed yet will find the job closed
    looks once more     whether all that were taken are still open: if not, the job fails, and nothing counts
    commits them        one after the other

If the driver ends among those commits, another one may do the job, or a stream's batch, again. So of a stream, and of
a job whose user has named it by a prefix, each task's transaction carries an offset of a group: the number of the batch
+ 1, or of the job. A task whose group has the number is not committed again.

    <prefix>-<run>-<task>-<attempt>            transactional ids of a job; <prefix>-<run> is one, too: it is closed
    <prefix>                                   group: the number of the prefix's last job; its metadata say what that
                                               is made of, until all of it is committed, and nothing after that
    <prefix>-<task>                            groups of its tasks
    <prefix>-<stream>-<task>-<number of try>   transactional ids of a stream: the same for all batches, as there may be
                                               many, and coordinators keep ids for a week
    <prefix>-<stream>                          group: the last batch + 1 that is closed; its metadata name the run
    <prefix>-<stream>-<task>                   groups of its tasks
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.write.producer import ProducerIdentity
from core.client.write.transaction_admin import TransactionAdmin
from core.client.write.transactional_producer import TransactionalProducer, add_offsets, end_transaction
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.records.checksum import crc32c
from core.spark.records_to_send import RecordCutter

_OPEN = "Ongoing"
_UNUSED = "Empty"
"""States of transactional ids; an id is unused after InitProducerId."""


class Attempt(NamedTuple):
    """Spark's numbers of an attempt: `id` is unique among all attempts, `number` among those at the task."""

    task: int
    id: int
    number: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of the attempt at a task that Spark accepts. `identity` is its transaction's. `topic` is one that it
    wrote to. `group` holds how much of the task was committed. `digest` tells its records from others.
    """

    number: int
    identity: ProducerIdentity
    topic: str
    group: str = ""
    digest: int = 0


def write_attempt(
    job: Job,
    attempt: Attempt,
    topic: str,
    batches: Iterable[Any],  # of pyarrow.RecordBatch
    connect: Callable[[], KafkaClient],
    **options: Any,
) -> Prepared | None:
    """Writes the records that `RecordCutter` takes; returns None if there are none. `options` are those of
    `TransactionalProducer`. Raises PlogError if the attempt comes too late, and what `TransactionalProducer` raises.
    """
    name = job.transactional_id(attempt)
    with contextlib.closing(TransactionalProducer(connect, name, **options)) as producer:
        with contextlib.closing(connect()) as client:
            if job.is_closed(client):
                raise PlogError(f"attempt {name} comes too late: the job is being ended, or has ended")
        cutter = RecordCutter(topic, producer.partitions)
        last_topic, digest = "", 0
        for batch in batches:
            digest = crc32c(memoryview(batch.serialize()), digest)
            for last_topic, records in cutter.cut(batch):
                producer.send(records, last_topic)
        if not producer.is_open:
            return None
        return Prepared(attempt.task, producer.prepare(), last_topic, job.group(attempt.task), digest)


@dataclass(frozen=True, slots=True)
class BatchJob:
    """`run` is unique among all jobs; `is_named`: the user chose the prefix. Sent to tasks on other machines."""

    prefix: str
    run: str
    is_named: bool

    def transactional_id(self, attempt: Attempt) -> str:
        return f"{self._name}-{attempt.task}-{attempt.id}"

    def group(self, task: int) -> str:
        return f"{self.prefix}-{task}"

    @property
    def _name(self) -> str:
        return f"{self.prefix}-{self.run}"

    def is_closed(self, client: KafkaClient) -> bool:
        return TransactionAdmin(client).find(self._name) is not None

    def commit(self, client: KafkaClient, tasks: Sequence[Prepared], count: int) -> None:
        """Commits the tasks that have records, of `count` tasks in all. Raises PlogError if they can't be committed,
        with nothing committed; KafkaError or ConnectionFailedError if the brokers fail in the middle.
        """
        self._close(client, tasks)
        if self.is_named and tasks:
            self._commit_noted(client, tasks, count)
            return
        for task in tasks:
            end_transaction(client, task.identity, is_commit=True)

    def _close(self, client: KafkaClient, tasks: Sequence[Prepared]) -> None:
        TransactionAdmin(client).fence(self._name)
        runs = "[0-9a-f]{16}" if self.is_named else self.run  # of a named job: those of drivers that ended, too
        _end_others(client, rf"{re.escape(self.prefix)}-{runs}-\d+-\d+", tasks, of_run=f"{self._name}-")

    def _commit_noted(self, client: KafkaClient, tasks: Sequence[Prepared], count: int) -> None:
        """Commits the job as the next one of its prefix, or completes the commit that another driver began. Raises
        PlogError if that driver committed another job.
        """
        place, admin = TopicPartition(tasks[0].topic, 0), GroupAdmin(client)
        records = hashlib.sha256(repr([(task.number, task.digest) for task in tasks]).encode()).hexdigest()[:16]
        layout = f"{count} tasks with records {records}"
        last = max(admin.offsets(self.prefix).values(), key=lambda found: found.offset, default=None)
        if last is not None and last.metadata not in ("", layout):
            raise PlogError(
                f"a driver ended while it committed another job of transactionalIdPrefix {self.prefix}: of "
                f"{last.metadata}, and this one is of {layout}",
                hint="that job run again completes it; give this one another transactionalIdPrefix",
            )
        number = last.offset if last is not None and last.metadata else _next_number(last.offset if last else 0)
        admin.commit(self.prefix, {place: number}, metadata=layout)
        _commit_once(client, tasks, number, layout)
        admin.commit(self.prefix, {place: number})

    def abort(self, client: KafkaClient, tasks: Sequence[Prepared]) -> None:
        """Aborts the transactions that are not committed."""
        _abort(client, tasks)
        self._close(client, ())


def _next_number(last: int) -> int:
    """Returns a number for the next job of a prefix, above those of all its earlier jobs. It is a time, because the
    prefix's group, which has the `last` one, may expire before the groups of its tasks.
    """
    return max(last + 1, time.time_ns() // 1_000_000)


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a stream, `name`, in one `run` of its query; with the methods of `BatchJob`."""

    name: str
    run: str
    number: int

    def transactional_id(self, attempt: Attempt) -> str:
        return f"{self.group(attempt.task)}-{attempt.number}"

    def group(self, task: int) -> str:
        return f"{self.name}-{task}"

    def is_closed(self, client: KafkaClient) -> bool:
        closed = GroupAdmin(client).offsets(self.name).values()
        return any(found.offset > self.number and found.metadata == self.run for found in closed)

    def commit(self, client: KafkaClient, tasks: Sequence[Prepared], count: int) -> None:
        if tasks:
            self._close(client, tasks[0].topic, tasks)
            _commit_once(client, tasks, self.number + 1, f"{count} tasks")

    def _close(self, client: KafkaClient, topic: str, tasks: Sequence[Prepared]) -> None:
        GroupAdmin(client).commit(self.name, {TopicPartition(topic, 0): self.number + 1}, metadata=self.run)
        _end_others(client, rf"{re.escape(self.name)}(-\d+){{1,2}}", tasks)

    def abort(self, client: KafkaClient, tasks: Sequence[Prepared]) -> None:
        _abort(client, tasks)
        if tasks:
            self._close(client, tasks[0].topic, ())


Job = BatchJob | StreamBatch


def _abort(client: KafkaClient, tasks: Sequence[Prepared]) -> None:
    for task in tasks:
        with contextlib.suppress(PlogError):  # it times out by itself
            end_transaction(client, task.identity, is_commit=False)


def _end_others(client: KafkaClient, names: str, tasks: Sequence[Prepared], of_run: str = "") -> None:
    """Fences the producers of open transactions whose id matches the pattern `names`, except the tasks' own; for ids
    that begin with `of_run`, also producers that may still open one. Brokers that can't list transactions (before 3.0)
    let them time out. Raises PlogError if a task's transaction is no longer open.
    """
    admin = TransactionAdmin(client)
    try:
        listed = client.retry_while_leader_moves(partial(admin.list_transactions, states=[_OPEN, _UNUSED]))
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return
    taken = {task.identity.transactional_id for task in tasks}
    for name, state in [(transaction.transactional_id, transaction.state) for transaction in listed]:
        is_at_work = state == _OPEN or (of_run and name.startswith(of_run))
        if is_at_work and name not in taken and re.fullmatch(names, name):
            admin.fence(name)
    are_open = {transaction.transactional_id for transaction in listed if transaction.state == _OPEN}
    for name in sorted(taken - are_open):  # or its coordinator died a moment ago
        found = admin.find(name)
        if found is None or found.state != _OPEN:
            raise PlogError(
                f"transaction {name} has ended before the job: it timed out, or another client ended it; nothing is "
                "committed",
                hint="kafka.transaction.timeout.ms must be at least as long as the job takes",
            )


def _commit_once(client: KafkaClient, tasks: Sequence[Prepared], number: int, layout: str) -> None:
    """Commits each task's transaction with `number` as its group's offset, unless the group has that offset already.
    `layout` describes the parts of the job. Raises PlogError if the number was committed by another layout.
    """
    admin = GroupAdmin(client)
    for task in tasks:
        place = TopicPartition(task.topic, 0)
        committed = admin.stable_offsets(task.group, {place, *admin.offsets(task.group)})  # also for other topics
        done = [found for found in committed.values() if found.offset >= number]
        if done and done[0].offset > number:
            raise PlogError(
                f"batch {number - 1} is written after batch {done[0].offset - 1} of the same stream: "
                "its checkpoint was set back, or copied",
                hint="a new checkpointLocation begins a new stream, whose batches are all written",
            )
        if done and done[0].metadata != layout:
            raise PlogError(
                f"batch {number - 1} was half committed by {done[0].metadata}, and is done again by {layout}",
                hint="start the stream with the number of tasks that it had",
            )
        if not done:
            add_offsets(client, task.identity, task.group, {place: number}, layout)
        end_transaction(client, task.identity, is_commit=not done)
