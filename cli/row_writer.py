"""From rows of input to the producer: partitions, defaults, the pace, and the last word about what was written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cli.options import say
from cli.progress import Progress
from cli.records_in import OPEN, BadLineError, Lines, Parser, Rows, parse_until_bad
from core.client.admin import Admin
from core.client.kafka_client import KafkaClient
from core.client.partitioner import StickyPartitions, partitions_of_keys
from core.client.producer import Producer, RecordRefusedError, RecordsToSend
from core.client.transactional_producer import TRANSACTION_TIMEOUT_MS, TopicTransaction, TransactionalProducer
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, ConnectionFailedError, KafkaError, UsageError
from core.common.time_text import time_text
from core.records.compression import CompressionType

_PACE_SECONDS = 0.1

Int64s = npt.NDArray[np.int64]


class RowWriter:
    """Owned by one task. `write_lines` and `write_all` return when everything is acknowledged."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        *,
        partition: int | None,
        acks: int,
        compression: CompressionType,
        batch_bytes: int,
        header_section: bytes | None,
        rate: float | None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        """`transactional_id`: all that is written is one transaction of that id, committed at its end; aborted where
        that is not reached. UsageError for a partition that the topic does not have.
        """
        self._topic = topic
        self._partitions = len(client.topic(topic, may_create=True).partitions)
        self._ensure_partition(partition)
        self._partition = partition
        self._sticky = StickyPartitions(self._partitions, batch_bytes)
        self._header_section = header_section
        self._rate = rate
        self._started_s = time.monotonic()
        self._sent = 0
        self._retention_ms = _retention_ms(client, topic)
        self._progress = Progress("acknowledged", "records")
        options: dict[str, Any] = {
            "acks": acks,
            "compression": compression,
            "batch_bytes": batch_bytes,
            "on_acknowledged": self._progress.add,
        }
        self._transaction: TransactionalProducer | None = None
        if transactional_id is not None:
            self._transaction = TransactionalProducer(
                client.another, transactional_id, timeout_ms=transaction_timeout_ms, **options
            )
            self._out: Producer | TopicTransaction = self._transaction.to(topic)
        else:
            self._out = Producer(client, topic, **options)

    def _ensure_partition(self, partition: int | None) -> None:
        if partition is not None and not 0 <= partition < self._partitions:
            raise UsageError(f"topic {self._topic} has partitions 0 to {self._partitions - 1}, not {partition}")

    def write_lines(self, input_: Iterable[Lines], parser: Parser) -> None:
        """BadLineError at the first line that is no record, KafkaError naming the line that the broker refused: what
        came before is written then, and said."""

        def parse(lines: Lines) -> Rows:
            rows = parser(lines)
            self._ensure_partitions(rows)
            return rows

        with self._ending("line"):
            for lines in input_:
                rows, bad = parse_until_bad(parse, lines)
                if rows is not None:
                    self._write(rows)
                if bad is not None:
                    self._flush()
                    raise BadLineError(bad.row, f"{bad.problem}; {self._written_of_it(' before it, none after')}")
                if lines.is_idle:
                    self._out.flush()

    def _ensure_partitions(self, rows: Rows) -> None:
        if rows.partitions is None or self._partition is not None:
            return
        for row in np.flatnonzero((rows.partitions != OPEN) & (rows.partitions >= self._partitions)).tolist():
            raise BadLineError(
                rows.first_row + row,
                f"partition {rows.partitions[row]}, topic {self._topic} has partitions 0 to {self._partitions - 1}",
            )

    def write_all(self, rows: Iterable[Rows]) -> None:
        """As `write_lines`, for records that are not lines."""
        with self._ending("record"):
            for some in rows:
                self._write(some)

    @contextmanager
    def _ending(self, thing: str) -> Iterator[None]:
        """Says at the end what was written, and ends the transaction where it is one."""
        try:
            with self._transacting():
                yield
                self._flush()
                written = self._written()
        except RecordRefusedError as error:
            self._progress.done()
            beside = self._written_of_it(" beside it")
            raise KafkaError(
                error.code, f"{thing} {error.row + 1}: {error.message}; {beside}", hint=error.hint
            ) from error
        except KeyboardInterrupt:
            self._progress.done()
            say(f"interrupted: {self._written_of_it()}")
            raise
        say(written if self._transaction is None else f"{written}, committed as one transaction")

    @contextmanager
    def _transacting(self) -> Iterator[None]:
        """Commits at the end where it is a transaction; aborts it where the end is not reached."""
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
                transaction.commit()
            except ConnectionFailedError as error:
                name = transaction.identity.transactional_id
                raise AccessError(
                    f"{error.message}, while the transaction was committed: it may be, or not",
                    where=error.where,
                    hint=f"plog transaction describe {name}: CompleteCommit, or it is aborted in time",
                ) from error

    def _abort(self, transaction: TransactionalProducer) -> None:
        """One that can't be reached any more is left to its timeout."""
        try:
            transaction.abort()
        except (KafkaError, AccessError) as error:
            say(f"warning: its broker will abort the transaction in time, it could not be told: {error}")

    def _flush(self) -> None:
        self._out.flush()
        self._progress.done()

    def _written(self) -> str:
        count = self._out.acknowledged
        return f"{count:,} record{'' if count == 1 else 's'} written to {self._topic}"

    def _written_of_it(self, where: str = "") -> str:
        """Likewise, where not all of it was."""
        if self._transaction is not None:
            return "the transaction is aborted, nothing of it counts"
        return self._written() + where

    # --- rows to records

    def _write(self, rows: Rows) -> None:
        if self._rate is None:
            self._send(rows)
            return
        step = max(1, int(self._rate * _PACE_SECONDS))
        for start in range(0, len(rows), step):
            self._send(rows.slice(start, min(start + step, len(rows))))
            self._sent += min(step, len(rows) - start)
            ahead_s = self._sent / self._rate - (time.monotonic() - self._started_s)
            if ahead_s > 0:
                self._out.flush()
                time.sleep(ahead_s)

    def _send(self, rows: Rows) -> None:
        if not len(rows):
            return
        timestamps = self._timestamps(rows)
        headers = self._headers(rows)
        partitions = self._assign(rows)
        numbers = np.arange(rows.first_row, rows.first_row + len(rows), dtype=np.int64)
        for partition in np.unique(partitions).tolist():
            chosen = np.flatnonzero(partitions == partition)
            is_all = len(chosen) == len(rows)
            self._out.send(
                RecordsToSend(
                    partition,
                    timestamps if is_all else timestamps[chosen],
                    rows.keys if is_all or rows.keys is None else rows.keys.take(pa.array(chosen)),
                    rows.values if is_all else rows.values.take(pa.array(chosen)),
                    headers if is_all or headers is None else headers.take(pa.array(chosen)),
                    numbers if is_all else numbers[chosen],
                )
            )

    def _timestamps(self, rows: Rows) -> Int64s:
        now_ms = time.time_ns() // 1_000_000
        if rows.timestamps is None:
            return np.full(len(rows), now_ms, np.int64)
        timestamps: Int64s = np.where(rows.timestamps == OPEN, now_ms, rows.timestamps)
        if self._retention_ms is not None and int(timestamps.min()) < now_ms - self._retention_ms:
            row = int(np.argmax(timestamps < now_ms - self._retention_ms))
            say(
                f"warning: line {rows.first_row + row + 1} is of {time_text(int(timestamps[row]))}, already older than "
                f"the retention.ms={self._retention_ms} of {self._topic}: the broker may delete it at any time\n"
                f"hint: plog topic alter {self._topic} --set retention.ms=-1"
            )
            self._retention_ms = None
        return timestamps

    def _headers(self, rows: Rows) -> Any:  # pyarrow.BinaryArray of headers sections, or None
        if self._header_section is None:
            return rows.headers
        if rows.headers is not None:
            raise UsageError("--header does not go with --format envelope, whose records have headers of their own")
        return pa.array([self._header_section] * len(rows), pa.binary())

    def _assign(self, rows: Rows) -> Int64s:
        if self._partition is not None:
            return np.full(len(rows), self._partition, np.int64)
        sizes = np.asarray(pc.fill_null(pc.binary_length(rows.values), 0)).astype(np.int64)
        assigned = self._sticky.assign(sizes)
        if rows.keys is not None:
            assigned = partitions_of_keys(rows.keys, self._partitions, assigned)
        if rows.partitions is None:
            return assigned
        return np.where(rows.partitions == OPEN, assigned, rows.partitions)


def _retention_ms(client: KafkaClient, topic: str) -> int | None:
    """After how long the topic's records are deleted; None where they are kept, or the broker does not say."""
    try:
        values = {c.name: c.value for c in Admin(client).describe_configs(ConfigResourceType.TOPIC, topic)}
    except KafkaError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            return None
        raise
    retention_ms = int(values.get("retention.ms") or -1)
    return retention_ms if retention_ms >= 0 and "delete" in (values.get("cleanup.policy") or "") else None
