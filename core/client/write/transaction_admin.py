"""Requests of the command line about transactions: open ones, the state of each id, and how to end them.

A transaction hangs if its partition has it open and its coordinator does not know it: nobody will ever end it, and
consumers with read_committed stop before it (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from core.client.admin.admin import LATEST, Admin
from core.client.net.client_connection import ClientConnection, ensure_as_many
from core.client.net.kafka_client import CoordinatorType, KafkaClient, at_coordinator, find_coordinator
from core.client.net.retry import RETRIABLE, Retry
from core.client.read.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer
from core.client.read.record_source import ReadOptions
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, ensure_success
from core.common.topic_partition import TopicPartition, by_partition
from core.protocol.schema.transaction_states import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TopicRequest,
)
from core.protocol.schema.transactions import (
    INIT_PRODUCER_ID,
    WRITE_TXN_MARKERS,
    InitProducerIdRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TRANSACTIONS_TOPIC = "__transaction_state"
_BEING_WRITTEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
_FENCING_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`started_ms` is -1 if nothing was written yet; `partitions` are those of a transaction that is not over."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction as its partition has it, from `start_offset` on; `first_timestamp` and `last_timestamp` (ms) are
    its records', -1 if they can't be read. `known` is the coordinator's state of the producer, or None if it has none.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    first_timestamp: int
    last_timestamp: int
    last_stable_offset: int
    high_watermark: int
    known: TransactionDescription | None

    @property
    def is_hanging(self) -> bool:
        known = self.known
        return (
            known is None
            or known.state not in _BEING_WRITTEN
            or self.partition not in known.partitions
            or not self.producer_epoch <= known.producer_epoch <= self.producer_epoch + 1
        )

    @property
    def since_ms(self) -> int:
        """Returns its start by its coordinator's clock if that has it, else by its first record's; -1 if unknown."""
        return self.first_timestamp if self.known is None or self.is_hanging else self.known.started_ms

    @property
    def pins_last_stable_offset(self) -> bool:
        return self.start_offset <= self.last_stable_offset


class TransactionAdmin:
    """Owned by one task. Every method raises KafkaError with the broker's code if it is refused."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Returns the transactions of every broker, by id. Raises KafkaError(INVALID_REQUEST) for an unknown state."""
        self._client.refresh([])
        request = ListTransactionsRequest(list(states), list(producer_ids), longer_than_ms, pattern)
        found = []
        for node_id in self._client.node_ids:
            connection = self._client.connection_to(node_id)
            answer = Retry().call(partial(_list, connection, request))
            if answer.unknown_state_filters:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"unknown transaction state {', '.join(answer.unknown_state_filters)}",
                    hint="Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort",
                )
            found += [
                ListedTransaction(t.transactional_id, node_id, t.producer_id, t.transaction_state)
                for t in answer.transaction_states
            ]
        return sorted(found, key=lambda transaction: transaction.transactional_id)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND) if the id does not exist."""
        self._client.refresh([])
        request = DescribeTransactionsRequest([transactional_id])
        failure: KafkaError | None = None
        for node_id in self._client.node_ids:  # FindCoordinator would create the topic
            connection = self._client.connection_to(node_id)
            try:
                return Retry().call(partial(_describe, connection, request, node_id), RETRIABLE - _ELSEWHERE)
            except KafkaError as error:
                if error.code not in _ELSEWHERE | {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}:
                    raise
                failure = error
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"no transactional id {transactional_id!r}",
            hint="plog transaction list shows those that there are",
        ) from failure

    def find(self, transactional_id: str) -> TransactionDescription | None:
        """Asks only the id's coordinator, and survives its death. Returns None if the id was never used, and for
        brokers that can't tell (before 3.0).
        """
        request = DescribeTransactionsRequest([transactional_id])

        def ask() -> TransactionDescription:
            node_id = find_coordinator(self._client, CoordinatorType.TRANSACTION, transactional_id)
            return _describe(self._client.connection_to(node_id), request, node_id)

        try:
            return self._client.retry_while_leader_moves(ask)
        except KafkaError as error:
            if error.code not in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
            return None

    def producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        found = {}
        for leader, topics in self._client.by_leader((p, p.partition) for p in partitions).items():
            request = DescribeProducersRequest([TopicRequest(*topic) for topic in topics.items()])
            response = self._client.connection_to(leader).call(DESCRIBE_PRODUCERS, request)
            for partition, answer in by_partition(response.topics):
                ensure_success(answer.error_code, str(partition), answer.error_message)
                found[partition] = answer.active_producers
        return found

    def open_transactions(self, topics: Sequence[str] = ()) -> list[OpenTransaction]:
        """Returns the open transactions on partitions of these topics, or of all topics."""
        partitions = self._partitions(topics)
        first_seen = self._open(partitions)
        if not first_seen:
            return []
        known = {
            t.producer_id: t.transactional_id for t in self.list_transactions(producer_ids=[p for _, p in first_seen])
        }
        described = {producer_id: self.describe(name) for producer_id, name in known.items()}
        still_open = self._open({partition for partition, _ in first_seen})  # or they ended in the meantime
        stable = self._ends(still_open, READ_COMMITTED)
        ends = self._ends(still_open, READ_UNCOMMITTED)
        return [
            OpenTransaction(
                partition=partition,
                producer_id=producer_id,
                producer_epoch=state.producer_epoch,
                coordinator_epoch=state.coordinator_epoch,
                start_offset=state.current_txn_start_offset,
                first_timestamp=self._timestamp(partition, state.current_txn_start_offset),
                last_timestamp=state.last_timestamp,
                last_stable_offset=stable[partition],
                high_watermark=ends[partition],
                known=described.get(producer_id),
            )
            for (partition, producer_id), state in sorted(still_open.items(), key=lambda item: item[0])
            if (partition, producer_id) in first_seen
            and first_seen[partition, producer_id].current_txn_start_offset == state.current_txn_start_offset
        ]

    def _partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        found = self._client.refresh(topics or None)
        return [
            TopicPartition(name, number)
            for name, topic in found.items()
            for number, info in topic.partitions.items()
            if name != TRANSACTIONS_TOPIC and info.leader >= 0
        ]

    def _open(self, partitions: Iterable[TopicPartition]) -> dict[tuple[TopicPartition, int], ProducerState]:
        return {
            (partition, state.producer_id): state
            for partition, states in self.producers(partitions).items()
            for state in states
            if state.current_txn_start_offset >= 0
        }

    def _ends(
        self, transactions: Mapping[tuple[TopicPartition, int], ProducerState], isolation_level: int
    ) -> dict[TopicPartition, int]:
        wanted = {partition: LATEST for partition, _ in transactions}
        return Admin(self._client).list_offsets(wanted, isolation_level=isolation_level)

    def _timestamp(self, partition: TopicPartition, offset: int) -> int:
        """Returns the timestamp of the batch there, or -1 if it can't be read."""
        consumer = Consumer(self._client, ReadOptions(read_committed=False))
        try:
            for _, batches in consumer.read({partition: offset}, {partition: offset + 1}):
                for batch in batches:
                    return min((record.timestamp for record in batch.records()), default=-1)
        except (KafkaError, CorruptRecordError):
            pass
        return -1

    # --- ending them

    def fence(self, transactional_id: str) -> None:
        """Aborts the id's open transaction, and fences its producer."""
        request = InitProducerIdRequest(transactional_id, _FENCING_TIMEOUT_MS)

        def ask(connection: ClientConnection) -> None:
            ensure_success(connection.call(INIT_PRODUCER_ID, request).error_code, transactional_id)

        Retry().call(
            lambda: at_coordinator(self._client, CoordinatorType.TRANSACTION, transactional_id, ask),
            frozenset({ErrorCode.CONCURRENT_TRANSACTIONS}),
        )

    def abort_on_partition(self, transaction: OpenTransaction) -> None:
        """Writes an abort marker to that one partition: for a hanging transaction, which nobody else ends."""
        partition = transaction.partition
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(partition.topic, [partition.partition])],
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )
        connection = self._client.connection_to(self._client.leader_of(partition))
        for result in connection.call(WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker])).markers:
            for partition, answer in by_partition(result.topics):
                ensure_success(answer.error_code, str(partition))


_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR})
"""Errors that mean that another broker has the id, or none: there is no __transaction_state."""


def _list(connection: ClientConnection, request: ListTransactionsRequest) -> ListTransactionsResponse:
    answer = connection.call(LIST_TRANSACTIONS, request)
    ensure_success(answer.error_code, "ListTransactions")
    return answer


def _describe(
    connection: ClientConnection, request: DescribeTransactionsRequest, node_id: int
) -> TransactionDescription:
    answer = connection.call(DESCRIBE_TRANSACTIONS, request)
    (found,) = ensure_as_many(answer.transaction_states, 1, DESCRIBE_TRANSACTIONS)
    ensure_success(found.error_code, found.transactional_id)
    return TransactionDescription(
        transactional_id=found.transactional_id,
        coordinator=node_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.transaction_state,
        timeout_ms=found.transaction_timeout_ms,
        started_ms=found.transaction_start_time_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions
        ),
    )
