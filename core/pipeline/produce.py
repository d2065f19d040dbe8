"""Writes the records of an input to a topic, or each to the topic that it names, from the options of `plog produce` to
the last acknowledgement.

`RowWriter` passes rows of input to the producer: partitions, defaults, the pace, and the report of written records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import RETRIABLE, Retry
from core.client.write.partitioner import PARTITIONERS, Partitioner, by_function
from core.client.write.producer import OnAcknowledged, Producer, RecordRefusedError, RecordsToSend
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, ConnectionFailedError, KafkaError, MalformedMessageError, UsageError
from core.common.time_text import duration_text, time_text
from core.common.topic_partition import TopicPartition
from core.common.user_function import load_function
from core.pipeline.input_lines import BadLineError, Quiet
from core.pipeline.line_parsers import OPEN, Batch, Rows
from core.pipeline.produce_request import ProduceRequest, acks_number
from core.pipeline.session import Session
from core.records.compression import CompressionType

if TYPE_CHECKING:
    from core.client.write.transactional_producer import TransactionalProducer


_PACE_SECONDS = 0.1
_MOST_RANGES = 8
_MOST_NAMED = 10
"""How many created topics are named, each with its retention."""
_FOR_EVER = 1 << 62
_END_SECONDS = 10.0
"""How long to wait for the end of a transaction after a signal."""
_NOT_HEARD_YET = RETRIABLE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors of a broker that does not know a new topic yet."""

Int64s = npt.NDArray[np.int64]
_PARTITIONER = "murmur2"


class PartitionReport:
    """The records that a partition got: their number, first and last offset; -1 if it is unknown."""

    def __init__(self) -> None:
        self.records = 0
        self.first_offset = self.last_offset = -1

    def add(self, base_offset: int, count: int) -> None:
        self.records += count
        if base_offset < 0:
            return
        self.first_offset = base_offset if self.first_offset < 0 else min(self.first_offset, base_offset)
        self.last_offset = max(self.last_offset, base_offset + count - 1)


class _DryRun:
    def __init__(self, on_acknowledged: OnAcknowledged) -> None:
        self.acknowledged = 0
        self._on_acknowledged = on_acknowledged

    def send(self, records: RecordsToSend, topic: str) -> None:
        self.acknowledged += len(records.rows)
        self._on_acknowledged(TopicPartition(topic, records.partition), -1, len(records.rows))

    def push(self) -> None:
        """Does nothing: nothing is under way."""

    def flush(self) -> None:
        """Does nothing."""


@dataclass(slots=True, kw_only=True)
class _Topic:
    """A topic that gets records; owned by the writer."""

    name: str
    number: int
    """In the order of first records."""
    partitions: int
    partitioner: Partitioner
    is_new: bool
    """Whether it was made for this, and is empty still."""
    may_be_too_old: bool = True
    """Whether nobody was warned yet of a record that its retention deletes."""

    def which_partitions(self) -> str:
        return f"partitions 0 to {self.partitions - 1}" if self.partitions > 1 else "only partition 0"


class RowWriter:
    """Owned by one task. `write` returns when everything is acknowledged."""

    def __init__(self, client: KafkaClient, options: ProduceRequest, session: Session) -> None:
        """Begins a transaction, if there is an id: it commits all records at the end, or aborts if the end is not
        reached. Raises UsageError for a partition that the topic does not have.
        """
        self._session = session
        self._say = session.frontend.say
        self._options = options
        self._preparations = options.preparations(session)
        self._client = client
        self._topics: dict[str, _Topic] = {}
        self._created = 0
        self._retention = cache(self._find_retention_ms)
        partition = options.partition
        if options.topic is not None:
            topic = self._find_topic(options.topic)
            if partition is not None and not 0 <= partition < topic.partitions:
                raise UsageError(f"topic {topic.name} has {topic.which_partitions()}, not {partition}")
        self._started_s = time.monotonic()
        self._sent = 0
        self._unsent = np.empty(0, np.int64)  # those of the rows that are being sent
        self._progress = session.frontend.show_progress("acknowledged", "records")
        self.report: dict[TopicPartition, PartitionReport] = {}
        self._transaction: TransactionalProducer | None = None
        self._fate = "the transaction is aborted, and none of its records counts"
        self._is_cut = False  # a stop came in the middle of a request, so its outcome is unknown
        self._out = self._open(client)

    def _find_topic(self, name: str) -> _Topic:
        """Finds the topic when its first record comes, and reports it if it had to be created."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        options = self._options
        is_new, may_create = False, not (options.dry_run or options.no_create)
        try:
            found = self._client.topic(name, guesses=not may_create)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not may_create:
                raise
            found = self._client.topic(name, may_create=True)
            is_new = True
        count = len(found.partitions)
        if is_new:
            self._created += 1
        if is_new and self._created <= _MOST_NAMED:
            retention_ms = self._retention(name)
            keeps = "kept for ever" if retention_ms == _FOR_EVER else f"kept {duration_text(retention_ms)}"
            self._say(f"created topic {name} {self._client.place}: {count} partition{'s' * (count != 1)}, {keeps}")
        topic = self._topics[name] = _Topic(
            name=name,
            number=len(self._topics),
            partitions=count,
            partitioner=find_partitioner(options.partitioner or _PARTITIONER, count, options.batch_size),
            is_new=is_new,
        )
        return topic

    def _open(self, client: KafkaClient) -> Producer | TransactionalProducer | _DryRun:
        options = self._options
        if options.dry_run:
            return _DryRun(self._acknowledged)
        how: dict[str, Any] = {
            "acks": acks_number(options.acks),
            "compression": CompressionType.parse(options.compression),
            "batch_bytes": options.batch_size,
            "on_acknowledged": self._acknowledged,
            "tell": self._say,
        }
        if options.transactional_id is None:
            return Producer(client, **how)
        from core.client.write.transactional_producer import TransactionalProducer

        self._transaction = TransactionalProducer(
            client.another, options.transactional_id, timeout_ms=options.transaction_timeout_ms, **how
        )
        return self._transaction

    def _acknowledged(self, partition: TopicPartition, base_offset: int, count: int) -> None:
        self.report.setdefault(partition, PartitionReport()).add(base_offset, count)
        self._progress.add(count)

    def write(self, batches: Iterable[Batch], tee: Callable[[memoryview], None] | None = None) -> None:
        """Writes all of it. Raises BadLineError at the first line that is not a record, KafkaError naming the lines
        that the broker refused: the lines before are written then, and reported. `tee` gets `Batch.text` once
        it is acknowledged.
        """
        with self._ending():
            for batch in batches:
                rows, bad = self._prepare(batch)
                if len(rows):
                    self._write(rows)
                if bad is not None:
                    self._flush()
                    before = self._written_of_it(" before it, and none after it")
                    raise BadLineError(bad.row, f"{bad.problem}; {before}", thing=bad.thing)
                with self._undivided():
                    if batch.quiet is Quiet.LONG or tee is not None:
                        self._out.flush()
                    elif batch.quiet is Quiet.BRIEF:
                        self._out.push()
                if tee is not None:
                    tee(batch.text)

    def _prepare(self, batch: Batch) -> tuple[Rows, BadLineError | None]:
        rows, bad = batch.rows, batch.bad
        while True:
            try:
                return self._prepared(rows), bad
            except BadLineError as error:
                rows, bad = rows.slice(0, int(np.searchsorted(rows.numbers, error.row))), error

    def _prepared(self, rows: Rows) -> Rows:
        for prepare in self._preparations:
            rows = prepare(rows)
        if not len(rows):
            return rows
        rows = rows.with_columns(partitions=self._assign(rows))
        if self._options.chunk is None:
            return rows
        from core.pipeline.large_values import slice_values

        return slice_values(rows, self._options.chunk)

    def _assign(self, rows: Rows) -> Int64s:
        """Raises BadLineError for the first record of a topic that it can't be written to."""
        partitions = np.empty(len(rows), np.int64)
        for name, chosen in self._by_topic(rows):
            some = rows if len(chosen) == len(rows) else rows.take(chosen)
            try:
                topic = self._find_topic(name)
            except KafkaError as error:
                if rows.topics is None:
                    raise
                raise BadLineError(int(some.numbers[0]), error.message) from error
            partitions[chosen] = self._assign_in(topic, some)
        return partitions

    def _by_topic(self, rows: Rows) -> Iterable[tuple[str, Int64s]]:
        """Yields each topic, in the order of its first row, and its rows: no later one is created if a line is bad."""
        if rows.topics is None:
            assert self._options.topic is not None
            return [(self._options.topic, np.arange(len(rows)))]
        found: dict[str, list[int]] = {}
        for row, name in enumerate(rows.topics.tolist()):
            found.setdefault(name, []).append(row)
        return [(name, np.array(chosen, np.int64)) for name, chosen in found.items()]

    def _assign_in(self, topic: _Topic, rows: Rows) -> Int64s:
        options = self._options
        if options.partition is not None:
            assigned = np.full(len(rows), options.partition, np.int64)
        else:
            assigned = topic.partitioner(rows.keys, rows.values)
            if rows.partitions is not None and options.partitioner is None:
                assigned = np.where(rows.partitions == OPEN, assigned, rows.partitions)
        is_own = options.partition is None and options.partitioner is None
        for row in np.flatnonzero((assigned < 0) | (assigned >= topic.partitions)).tolist():
            raise BadLineError(
                int(rows.numbers[row]),
                f"partition {assigned[row]}, topic {topic.name} has {topic.which_partitions()}"
                + " (--partitioner NAME passes over the partition of a record)" * is_own,
            )
        return assigned

    # --- the last word

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Reports written records at the end, and ends the transaction if there is one."""
        try:
            with self._transacting(), self._settling():
                yield
                self._flush()
        except RecordRefusedError as error:
            self._progress.done()
            raise KafkaError(
                error.code,
                f"line {error.row + 1}: {error.message}; {self._beside()}",
                hint=error.hint or _HINTS.get(error.code),
            ) from error
        except (ConnectionFailedError, MalformedMessageError):
            self._progress.done()
            if isinstance(self._out, Producer):
                self._say(self._beside(are_known=False))
            raise
        except KeyboardInterrupt:
            self._progress.done()
            is_open = self._is_cut and self._transaction is None
            doubt = "; records that were under way just then may be written, too" * is_open
            self._say(f"interrupted: {self._written_of_it()}{doubt}")
            raise
        if self._created > _MOST_NAMED:
            self._say(f"created {self._created:,} topics in all")
        self._say(self._written_of_it())

    @contextmanager
    def _undivided(self) -> Iterator[None]:
        """Delays a stop until requests and their answers are through, for a while."""
        self._is_cut = True
        with self._session.frontend.undivided():
            yield
            self._is_cut = False

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """On a stop, waits for acknowledgements of sent records, so that the report of written records is complete."""
        try:
            yield
        except KeyboardInterrupt:
            if not self._is_cut:
                with suppress(KeyboardInterrupt, KafkaError, AccessError), self._undivided():
                    self._out.flush()
            raise

    def _beside(self, *, are_known: bool = True) -> str:
        """Reports written and unwritten records, if any is unwritten; without `are_known`, some may be written."""
        if not isinstance(self._out, Producer):
            return self._written_of_it()
        missing = np.concatenate([self._unsent, self._out.unacknowledged_rows()])
        if not len(missing):
            return f"{self._written()}; none that follow are"
        if are_known:
            return f"{self._written()}; {ranges_text(missing)} and all that follow are not"
        return f"{self._written()}; some of {ranges_text(missing)} may be written, too, and none that follow"

    @contextmanager
    def _transacting(self) -> Iterator[None]:
        """Commits the transaction at the end, if there is one; aborts it if the end is not reached."""
        transaction = self._transaction
        if transaction is None:
            yield
            return
        is_whole = False
        with closing(transaction):
            try:
                yield
                is_whole = True
            finally:
                if not is_whole:
                    self._abort(transaction)
            try:
                self._commit(transaction)
            except ConnectionFailedError as error:
                name = transaction.identity.transactional_id
                raise AccessError(
                    f"{error.message}, while the transaction was being committed: it may be committed or not",
                    where=error.where,
                    hint=f"plog transaction describe {name}{self._session.options}: CompleteCommit, or it is aborted "
                    "in time",
                ) from error

    def _commit(self, transaction: TransactionalProducer) -> None:
        """Commits; a stop comes too late for an abort, and waits for the end."""
        name = transaction.identity.transactional_id
        written = self._written()
        self._fate = f"the transaction may be committed or not (plog transaction describe {name})"
        with self._session.frontend.undivided(_END_SECONDS):
            transaction.commit()
            self._fate = f"{written}, committed as one transaction"

    def _abort(self, transaction: TransactionalProducer) -> None:
        """Aborts; a transaction that can't be reached any more is left to its timeout."""
        problem = self._session.frontend.end_in_time(transaction.abort, _END_SECONDS)
        if problem is not None:
            self._fate = "the transaction is not committed, and none of its records counts"
            self._say(f"warning: its broker will abort the transaction in time, it could not be told: {problem}")

    def _flush(self) -> None:
        with self._undivided():
            self._out.flush()
        self._progress.done()

    def _written(self) -> str:
        count = self._out.acknowledged
        done = "would be written" if self._options.dry_run else "written"
        names = [self._options.topic] if self._options.topic is not None else list(self._topics)
        where = f" to {names[0]}" if len(names) == 1 else f" to {len(names):,} topics" if names else ""
        return f"{count:,} record{'' if count == 1 else 's'} {done}{where}"

    def _written_of_it(self, where: str = "") -> str:
        if self._transaction is not None:
            return self._fate
        return self._written() + where

    # --- rows to records

    def _write(self, rows: Rows) -> None:
        rate = self._options.rate
        if rate is None:
            self._send(rows)
            return
        pace = max(int(rate * _PACE_SECONDS), 1)
        for start in range(0, len(rows), pace):
            some = rows.slice(start, min(start + pace, len(rows)))
            self._send(some)
            self._sent += len(some)
            ahead_s = self._sent / rate - (time.monotonic() - self._started_s)
            if ahead_s > 0:
                with self._undivided():
                    self._out.flush()
                time.sleep(ahead_s)

    def _send(self, rows: Rows) -> None:
        timestamps = self._timestamps(rows)
        assert rows.partitions is not None
        groups = rows.partitions
        if rows.topics is not None:
            groups = groups + (np.array([self._topics[name].number for name in rows.topics.tolist()], np.int64) << 32)
        topics = list(self._topics)
        ordered = np.sort(groups)  # np.unique imports numpy.ma
        for group in ordered[np.flatnonzero(np.diff(ordered, prepend=-1))].tolist():
            self._unsent = rows.numbers[groups > group]
            chosen = np.flatnonzero(groups == group)
            some = rows if len(chosen) == len(rows) else rows.take(chosen)
            topic = self._topics[topics[group >> 32]]
            topic.is_new = False
            records = RecordsToSend(
                partition=group & 0xFFFFFFFF,
                timestamps=timestamps[chosen],
                keys=some.keys,
                values=some.values,
                headers=some.headers,
                rows=some.numbers,
            )
            with self._undivided():
                self._out.send(records, topic.name)

    def _timestamps(self, rows: Rows) -> Int64s:
        now_ms = time.time_ns() // 1_000_000
        if rows.timestamps is None:
            return np.full(len(rows), now_ms, np.int64)
        timestamps: Int64s = np.where(rows.timestamps == OPEN, now_ms, rows.timestamps)
        for name, chosen in self._by_topic(rows):
            topic = self._topics[name]
            if topic.may_be_too_old:
                self._ensure_young(topic, timestamps[chosen], rows.numbers[chosen], now_ms)
        return timestamps

    def _ensure_young(self, topic: _Topic, timestamps: Int64s, numbers: Int64s, now_ms: int) -> None:
        """Warns of the first record that the topic's retention deletes; raises KafkaError if a new topic would lose all
        that was copied into it.
        """
        retention_ms = self._retention(topic.name)
        if int(timestamps.min()) >= now_ms - retention_ms:
            return
        row = int(np.argmax(timestamps < now_ms - retention_ms))
        what = (
            f"line {numbers[row] + 1} is of {time_text(int(timestamps[row]))}, already older than the "
            f"retention.ms={retention_ms} of {topic.name}: the broker may delete it at any time"
        )
        hint = f"plog topic alter {topic.name} --set retention.ms=-1{self._session.options}"
        if topic.is_new and self._options.format == "envelope":
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"{what}; nothing was sent" + " to it" * (self._options.topic is None),
                hint=f"{hint}; plog topic create NAME --like TOPIC makes a twin",
            )
        self._say(f"warning: {what}\nhint: {hint}")
        topic.may_be_too_old = False

    def _find_retention_ms(self, topic: str) -> int:
        """Returns how long the topic keeps records: its `retention.ms`, or `_FOR_EVER` if that is -1 or unknown, or if
        `cleanup.policy` does not have `delete`.
        """
        from core.client.admin.admin import Admin

        with closing(self._client.another()) as client:  # its connections have no requests under way
            find = partial(Admin(client).find_configs, ConfigResourceType.TOPIC, topic)
            configs = Retry().call(find, _NOT_HEARD_YET)
        values = {config.name: config.value for config in configs}
        retention_ms = int(values.get("retention.ms") or -1)
        return retention_ms if retention_ms >= 0 and "delete" in (values.get("cleanup.policy") or "") else _FOR_EVER


_HINTS = {
    ErrorCode.MESSAGE_TOO_LARGE: "--chunk BYTES sends a large value as slices, --claim-check DIR leaves it in a "
    "folder; or raise the topic's max.message.bytes"
}


def ranges_text(rows: Int64s) -> str:
    """Formats numbers of rows, from 0 and in order, as those of lines: `lines 3-10, 12 and 15-20`."""
    lines = np.unique(rows) + 1
    starts = np.flatnonzero(np.diff(lines, prepend=lines[0] - 2) != 1)
    ends = np.append(starts[1:], len(lines)) - 1
    texts = [
        f"{lines[start]}" if start == end else f"{lines[start]}-{lines[end]}"
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    if len(texts) > _MOST_RANGES:
        rest = len(lines) - int(starts[_MOST_RANGES])
        texts = [*texts[:_MOST_RANGES], f"{rest:,} more"]
    named = f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
    return f"line{'' if len(lines) == 1 else 's'} {named}"


def produce(
    request: ProduceRequest, session: Session, tee: Callable[[memoryview], None] | None = None
) -> dict[TopicPartition, PartitionReport]:
    """Writes all of the input, and returns each partition's report when everything is acknowledged. `tee` gets the
    input, unchanged, once it is acknowledged.
    """
    makes_directory = not (request.no_create or request.dry_run)
    with session.open_client(is_read_only=request.dry_run, makes_directory=makes_directory) as client:
        writer = RowWriter(client, request, session)
        writer.write(request.batches(session.frontend.say), tee=tee)
    return writer.report


def find_partitioner(name: str, partitions: int, batch_bytes: int) -> Partitioner:
    """Returns the partitioner of that name, or `module:function`. Raises UsageError for an unknown name."""
    if ":" in name:
        return by_function(load_function(name, "--partitioner"), partitions)
    if name not in PARTITIONERS:
        raise UsageError(
            f"--partitioner {name}: there is none", hint=f"{', '.join(PARTITIONERS)}, or module:function of your own"
        )
    return PARTITIONERS[name](partitions, batch_bytes)
