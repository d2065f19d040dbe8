"""Writes columns of records to topics: batches, in order, each acknowledged or reported.

Idempotent unless acks is less than all: sequences make a retry harmless, and a batch that the broker refuses holds back
those after it in its partition. At most five requests are under way. After a lost connection the producer connects
again and resends unacknowledged batches, until `delivery_timeout_s` has passed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from core.client.net.kafka_client import KafkaClient, KnownLeaders
from core.client.net.retry import RETRIABLE, Retry
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError, ensure_success
from core.common.topic_partition import TopicPartition
from core.protocol.primitives import Spans
from core.protocol.schema.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from core.protocol.schema.transactions import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from core.records.byte_strings import ByteStrings
from core.records.column_encoder import encode_columns
from core.records.compression import CompressionType
from core.records.record import increment_sequence
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordBatch
from core.records.record_batch_builder import batch_of, batch_parts

MAX_IN_FLIGHT = 5
ACKS_ALL = -1
NO_OFFSET = -1
_REQUEST_TIMEOUT_MS = 30_000
_MAX_REQUEST_BYTES = 1024 * 1024
_MOST_WAITING_BYTES = 32 * 1024 * 1024
"""Limit of batches that wait for a leader while others are written; `buffer.memory` of Kafka's producer."""
_LAST_OF_TV1 = 11
"""The last version of Produce before brokers take a partition into its transaction by themselves (KIP-890)."""

_RETRIABLE = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors to try again: the end of the transaction before may still be under way, and a new leader may not know yet that
it leads. The metadata tell whether the topic exists.
"""


class ProducerIdentity(NamedTuple):
    """The producer of a transaction, and the version of its transactions (transaction.version)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class RecordsToSend:
    """Rows for one partition; `rows` are the caller's own numbers for them, to be named when one is refused.

    `headers` are encoded sections (`record.encode_headers`); keys and headers may be None for all.
    """

    partition: int
    timestamps: npt.NDArray[np.int64]
    keys: ByteStrings | None
    values: ByteStrings
    headers: ByteStrings | None
    rows: npt.NDArray[np.int64]


OnAcknowledged = Callable[[TopicPartition, int, int], None]
"""(partition, offset of the first or -1 if unknown, number of records)."""


class RecordRefusedError(KafkaError):
    """The broker refused a batch for good; `row` is the caller's number of the first record in it."""

    def __init__(self, error: KafkaError, row: int) -> None:
        super().__init__(error.code, error.message, hint=error.hint)
        self.row = row


@dataclass(slots=True)
class _PendingBatch:
    partition: TopicPartition
    data: Spans
    count: int
    base_sequence: int
    rows: npt.NDArray[np.int64]
    created_s: float


@dataclass(slots=True)
class _InFlight:
    node_id: int
    batches: list[_PendingBatch]
    topics: dict[bytes, str]
    """The topics by their ids, which answers name instead since Produce version 13."""

    def answers(self, response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
        """Returns the answer for each batch. Raises MalformedMessageError if one is missing."""
        found = {
            TopicPartition(topic.name or self.topics.get(topic.topic_id, ""), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        missing = [str(batch.partition) for batch in self.batches if batch.partition not in found]
        if missing:
            raise MalformedMessageError(f"a Produce answer of broker {self.node_id} lacks {', '.join(missing)}")
        return found


_Refused = list[tuple[_PendingBatch, KafkaError]]
"""The batches of a request that the broker refused, and why."""


class Producer:
    """Owned by one task. `acknowledged` counts the records that are written (with acks=0: sent)."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str = "",
        *,
        acks: int = ACKS_ALL,
        compression: CompressionType = CompressionType.NONE,
        batch_bytes: int = 128 * 1024,
        delivery_timeout_s: float = 120.0,
        on_acknowledged: OnAcknowledged | None = None,
        transaction: ProducerIdentity | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`topic` gets the records for which `send` names no other. With `transaction` it writes as that producer,
        within its transaction, which it neither begins nor ends. `tell` is called with the reasons of long delays.
        """
        self.acknowledged = 0
        self._client = client
        self._topic = topic
        self._acks = acks
        self._tell = tell
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._delivery_timeout_s = delivery_timeout_s
        self._leaders = KnownLeaders(client, tell)
        self._delay = Retry(delivery_timeout_s, tell=tell)
        self._on_acknowledged = on_acknowledged
        self._queues: dict[TopicPartition, deque[_PendingBatch]] = {}
        self._queued_bytes = 0
        self._in_flight: deque[_InFlight] = deque()
        self._refused: list[_PendingBatch] = []
        self._unsent: npt.NDArray[np.int64] = np.empty(0, np.int64)  # rows of the last call of `send`
        self._sequences: dict[TopicPartition, int] = {}
        self._known_to_broker: set[TopicPartition] = set()
        self._producer_id, self._producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._transactional_id: str | None = None
        self._last_version = PRODUCE.versions.last
        if transaction is not None:
            self._transactional_id, self._producer_id, self._producer_epoch, version = transaction
            self._last_version = PRODUCE.versions.last if version > 1 else _LAST_OF_TV1
        elif acks == ACKS_ALL:
            self._initialize()

    def _initialize(self) -> None:
        request = InitProducerIdRequest(None, 60_000)

        def ask() -> InitProducerIdResponse:
            response = self._client.any_connection().call(INIT_PRODUCER_ID, request)
            ensure_success(response.error_code, "InitProducerId")
            return response

        # A broker that has just started, or whose cluster has just lost its controller, may not have an id to give yet.
        response = self._delay.call(ask)
        self._end_delay()
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

    # --- in

    def send(self, records: RecordsToSend, topic: str | None = None) -> None:
        """Queues the rows, for the producer's own topic by default, and sends full requests; waits while more than five
        are under way. Raises RecordRefusedError as soon as an earlier batch is refused: nothing is sent after that.
        """
        partition = TopicPartition(self._topic if topic is None else topic, records.partition)
        queue = self._queues.setdefault(partition, deque())
        first = 0
        self._unsent = records.rows
        for part in encode_columns(
            records.timestamps, records.keys, records.values, records.headers, batch_bytes=self._batch_bytes
        ):
            sequence = self._next_sequence(partition, part.count)
            parts = batch_parts(
                part.section,
                count=part.count,
                base_timestamp=part.base_timestamp,
                max_timestamp=part.max_timestamp,
                compression=self._compression,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=sequence,
                is_transactional=self._transactional_id is not None,
            )
            rows = records.rows[first : first + part.count]
            first += part.count
            self._unsent = records.rows[first:]
            batch = _PendingBatch(partition, Spans(parts), part.count, sequence, rows, time.monotonic())
            queue.append(batch)
            self._queued_bytes += len(batch.data)
            is_full = len(batch.data) >= self._batch_bytes // 2 or len(queue) > 1
            if is_full or self._queued_bytes > _MOST_WAITING_BYTES:
                self._dispatch()

    def _next_sequence(self, partition: TopicPartition, count: int) -> int:
        if self._producer_id == NO_PRODUCER_ID:
            return NO_SEQUENCE
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = increment_sequence(sequence, count)
        return sequence

    def push(self) -> None:
        """Sends queued batches, as far as it may now; does not wait."""
        while len(self._in_flight) < MAX_IN_FLIGHT and (chosen := self._next_batches()):
            self._send_all(chosen)

    def flush(self) -> None:
        """Waits until everything sent is acknowledged. Raises RecordRefusedError if a batch was refused."""
        while self._in_flight or any(self._queues.values()):
            if any(self._queues.values()):
                self._dispatch(must_send=True)
            else:
                self._await_oldest()  # which puts batches to resend back into their queue

    # --- out

    def _dispatch(self, *, must_send: bool = False) -> None:
        """Sends one request to each broker that has batches waiting, with one batch a partition at most. If none of
        these partitions has a leader, waits for one with `must_send`, unless answers are due.
        """
        while len(self._in_flight) >= MAX_IN_FLIGHT:
            self._await_oldest()
        chosen = self._next_batches(must_find=must_send and not self._in_flight)
        if not chosen and self._in_flight:
            self._await_oldest()
        self._send_all(chosen)

    def _send_all(self, chosen: dict[int, list[_PendingBatch]]) -> None:
        """Sends each broker its batches. If one can't be reached, unsent batches go back, too: they must not overtake
        the sent ones, which are sent again.
        """
        unsent = dict(chosen)
        for node_id, batches in chosen.items():
            del unsent[node_id]
            try:
                self._send(node_id, batches)
            except ConnectionFailedError as error:
                self._send_again(error, failed=[batch for left in unsent.values() for batch in left])
                return

    def _next_batches(self, *, must_find: bool = False) -> dict[int, list[_PendingBatch]]:
        waiting = self._waiting()
        try:
            leaders = self._leaders.find(waiting, self._may_wait, must_find=must_find)
        except ConnectionFailedError as error:
            self._send_again(error, failed=[])
            return {}
        except KafkaError as error:
            oldest = [queue[0] for queue in waiting.values()]
            if error.code is not ErrorCode.LEADER_NOT_AVAILABLE or self._is_too_old(oldest):
                raise
            self._send_again(error, failed=[], since_s=min(batch.created_s for batch in oldest))
            return {}
        chosen: dict[int, list[_PendingBatch]] = {}
        for partition, leader in leaders.items():
            batches, queue = chosen.setdefault(leader, []), waiting[partition]
            if not batches or sum(len(b.data) for b in batches) + len(queue[0].data) <= _MAX_REQUEST_BYTES:
                self._queued_bytes -= len(queue[0].data)
                batches.append(queue.popleft())
        return chosen

    def _may_wait(self, leaderless: list[TopicPartition]) -> bool:
        """Returns whether the queued batches of these partitions are neither too large nor too old to wait for a leader
        while others are written.
        """
        queued = [batch for partition in leaderless for batch in self._queues[partition]]
        size = sum(len(batch.data) for batch in queued)
        return size <= _MOST_WAITING_BYTES and not self._is_too_old(queued)

    def _is_too_old(self, batches: Iterable[_PendingBatch]) -> bool:
        return time.monotonic() - min(batch.created_s for batch in batches) > self._delivery_timeout_s

    def _waiting(self) -> dict[TopicPartition, deque[_PendingBatch]]:
        """Returns the queues that may be sent from. A partition waits while the first batch of the producer is under
        way to it: a broker that does not know the producer accepts any sequence, so it would accept the second batch,
        and refuse the first if that had to be sent again.
        """
        if self._producer_id == NO_PRODUCER_ID:
            return {partition: queue for partition, queue in self._queues.items() if queue}
        first = {batch.partition for request in self._in_flight for batch in request.batches} - self._known_to_broker
        return {partition: queue for partition, queue in self._queues.items() if queue and partition not in first}

    def _send(self, node_id: int, batches: list[_PendingBatch]) -> None:
        """Raises ConnectionFailedError if the broker can't be reached; the batches are in flight then."""
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, number = batch.partition
            if name not in topics:
                topics[name] = TopicProduceData(name, self._client.topic(name).topic_id, [])
            topics[name].partition_data.append(PartitionProduceData(number, batch.data))
        request = ProduceRequest(self._transactional_id, self._acks, _REQUEST_TIMEOUT_MS, list(topics.values()))
        self._in_flight.append(_InFlight(node_id, batches, {topic.topic_id: name for name, topic in topics.items()}))
        try:
            connection = self._client.connection_to(node_id)
        except KafkaError as error:  # it has just left the cluster
            raise ConnectionFailedError(error.message, where=f"broker {node_id}") from error
        connection.send(PRODUCE, request, at_most=self._last_version)
        if self._acks == 0:
            connection.expect_no_answer()
            self._in_flight.pop()
            for batch in batches:
                self._acknowledge(batch, NO_OFFSET)

    def _await_oldest(self) -> None:
        oldest = self._in_flight[0]
        try:
            response = self._client.receive_from_leader(
                oldest.node_id,
                [batch.partition for batch in oldest.batches],
                may_repeat=self._producer_id != NO_PRODUCER_ID,  # sequences make that harmless
            )
        except ConnectionFailedError as error:
            self._send_again(error, failed=[])
            return
        refused = self._acknowledge_written(oldest, response)
        self._in_flight.popleft()
        if refused:
            self._handle(refused)

    def _acknowledge_written(self, request: _InFlight, response: ProduceResponse) -> _Refused:
        """Handles the response. Raises MalformedMessageError if it lacks a batch."""
        answers = request.answers(response)
        refused: _Refused = []
        for batch in request.batches:
            answer = answers[batch.partition]
            if answer.error_code:
                refused.append((batch, KafkaError(ErrorCode.of(answer.error_code), answer.error_message)))
            else:
                self._acknowledge(batch, answer.base_offset)
        return refused

    def _acknowledge(self, batch: _PendingBatch, base_offset: int) -> None:
        self._known_to_broker.add(batch.partition)
        self._end_delay()
        self.acknowledged += batch.count
        if self._on_acknowledged is not None:
            self._on_acknowledged(batch.partition, base_offset, batch.count)

    def _end_delay(self) -> None:
        delay_s = self._delay.end()
        if delay_s is not None:
            self._tell(f"it goes on, after {delay_s:.1f} s")

    def unacknowledged_rows(self) -> npt.NDArray[np.int64]:
        """Returns the caller's numbers, in order, of rows that are not known to be written."""
        batches = [
            *self._refused,
            *(batch for queue in self._queues.values() for batch in queue),
            *(batch for request in self._in_flight for batch in request.batches),
        ]
        return np.sort(np.concatenate([self._unsent, *(batch.rows for batch in batches)]))

    # --- when it goes wrong

    def _handle(self, refused: _Refused) -> None:
        failed, error = [batch for batch, _ in refused], refused[0][1]
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and all(b.count > 1 for b in failed):
            self._send_again(error, failed=[half for batch in failed for half in self._split(batch)])
            return
        for batch, reason in refused:
            if not self._may_pass(batch, reason.code):
                self._refused += failed
                self._drain()
                raise RecordRefusedError(reason, int(batch.rows[0]))
        self._send_again(error, failed=failed)

    def _may_pass(self, batch: _PendingBatch, code: ErrorCode) -> bool:
        """Returns whether the batch may succeed if it is sent again: a disk that refuses it is only the leader's."""
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            return self._client.has_other_replicas(batch.partition)
        return code in _RETRIABLE

    def _split(self, batch: _PendingBatch) -> list[_PendingBatch]:
        """Splits the batch in two, with the sequences that their records had."""
        records = RecordBatch(memoryview(bytes(batch.data))).records()
        middle = batch.count // 2
        halves = []
        for start, end in ((0, middle), (middle, batch.count)):
            sequence = batch.base_sequence
            if sequence != NO_SEQUENCE:
                sequence = increment_sequence(sequence, start)
            data = batch_of(
                records[start:end],
                compression=self._compression,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=sequence,
                is_transactional=self._transactional_id is not None,
            )
            rows = batch.rows[start:end]
            halves.append(_PendingBatch(batch.partition, Spans((data,)), end - start, sequence, rows, batch.created_s))
        return halves

    def _drain(self) -> None:
        """Receives the answers to the requests under way, so that `acknowledged` is correct."""
        while self._in_flight:
            oldest = self._in_flight.popleft()
            try:
                self._refused += self._not_acknowledged(oldest)
            except (ConnectionFailedError, MalformedMessageError):
                self._in_flight.appendleft(oldest)
                return

    def _send_again(
        self, error: KafkaError | ConnectionFailedError, failed: list[_PendingBatch], since_s: float | None = None
    ) -> None:
        """Puts unacknowledged batches back in front of their queues, in order, and waits a little. `since_s` is when
        the delay began, if that was before this failure.
        """
        again = list(failed)
        is_connected = not isinstance(error, ConnectionFailedError)
        while self._in_flight:
            under_way = self._in_flight.popleft()
            try:
                again += self._not_acknowledged(under_way) if is_connected else under_way.batches
            except ConnectionFailedError:
                is_connected = False
                again += under_way.batches
        if not is_connected:
            self._client.forget_connections()
        for batch in sorted(again, key=lambda b: int(b.rows[0]), reverse=True):
            self._queues.setdefault(batch.partition, deque()).appendleft(batch)
            self._queued_bytes += len(batch.data)
        if (again and self._is_too_old(again)) or not self._delay.wait(error, since_s):
            raise error
        topics = {partition.topic for partition, queue in self._queues.items() if queue}
        for topic in topics:
            self._client.forget_topic(topic)
        self._delay.call(
            lambda: [self._client.topic(topic) for topic in topics],
            ConnectionFailedError,
            before_next=lambda _: self._client.forget_connections(),
        )

    def _not_acknowledged(self, request: _InFlight) -> list[_PendingBatch]:
        """Returns the unwritten batches of a request after a failed one: those of a failed partition failed, too."""
        response = self._client.connection_to(request.node_id).receive()
        return [batch for batch, _ in self._acknowledge_written(request, response)]
