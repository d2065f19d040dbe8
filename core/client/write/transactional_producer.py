"""Writes to topics in transactions, with offsets of groups on request: all of it counts, or none.

    InitProducerId            fences the earlier producer of the transactional id, and aborts its open transaction
    AddPartitionsToTxn        before the first batch of a partition
    Produce ..
    AddOffsetsToTxn, TxnOffsetCommit
    EndTxn                    commit or abort

This is the protocol of transaction.version 1 (KIP-98), which every broker since 0.11 speaks. In that of version 2
(KIP-890), used if the cluster has it, the brokers add partitions by themselves, and EndTxn returns the producer's next
epoch. A transaction that is `prepared` has all its records on the brokers, and may be ended by another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import CoordinatorType, KafkaClient, at_coordinator
from core.client.net.retry import RETRIABLE, Result, Retry
from core.client.write.producer import Producer, ProducerIdentity, RecordsToSend
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, ensure_success
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.protocol.message import MAX_VERSION
from core.protocol.schema.group_offsets import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from core.protocol.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)

TRANSACTION_TIMEOUT_MS = 60_000
_LAST_ADD_PARTITIONS = 3
_LAST_END_TXN = 4
_LAST_TXN_OFFSET_COMMIT = 4
_LAST_TXN_OFFSET_COMMIT_BY_NAME = 5
"""The last versions that clients of transaction.version 1 send (KIP-890)."""

_NEWEST = 2
"""The transaction.version of KIP-890."""

_SECONDS = 60.0
_PAUSE_SECONDS = 0.02
_RETRIABLE = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Errors to retry: the end of the transaction before may still be under way."""


class TransactionalProducer:
    """Owned by one task; one transaction at a time. After any error of its methods, except refused records, the caller
    must create another one: KafkaError (PRODUCER_FENCED if another has the id now), ConnectionFailedError.
    """

    def __init__(
        self,
        connect: Callable[[], KafkaClient],
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        transaction_version: int = _NEWEST,
        **options: Any,
    ) -> None:
        """`transaction_version` is the newest allowed. `options` are `Producer`'s."""
        self._client = connect()  # for records; answers of the other don't mix with theirs
        self._control = connect()
        self._options = options
        self._producer: Producer | None = None  # of this transaction's epoch
        self._partitions: set[TopicPartition] = set()
        self._has_offsets = False
        request = InitProducerIdRequest(transactional_id, timeout_ms)

        def ask(connection: ClientConnection) -> ProducerIdentity:
            answer = connection.call(INIT_PRODUCER_ID, request)
            ensure_success(answer.error_code, transactional_id)
            version = min(transaction_version, _version_of(connection))
            return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch, version)

        self.identity = _persistently(self._control, CoordinatorType.TRANSACTION, transactional_id, ask)

    @property
    def is_open(self) -> bool:
        """Whether the transaction holds records or offsets."""
        return bool(self._partitions) or self._has_offsets

    def partitions(self, topic: str) -> int:
        """Returns the partition count of the topic. Raises KafkaError if the topic does not exist."""
        return len(self._client.topic(topic).partitions)

    def send(self, records: RecordsToSend, topic: str) -> None:
        """Sends as `Producer.send` does, into the transaction, which begins with the first."""
        partition = TopicPartition(topic, records.partition)
        if partition not in self._partitions:
            self._partitions.add(partition)  # even without an answer: it may be in the transaction
            if self.identity.version < _NEWEST:
                self._add_partition(partition)
        if self._producer is None:
            self._producer = Producer(self._client, transaction=self.identity, **self._options)
        self._producer.send(records, topic)

    def push(self) -> None:
        """As `Producer.push`."""
        if self._producer is not None:
            self._producer.push()

    def _add_partition(self, partition: TopicPartition) -> None:
        topics = [AddPartitionsToTxnTopic(partition.topic, [partition.partition])]
        request = AddPartitionsToTxnRequest([], *self.identity[:3], topics)

        def ask(connection: ClientConnection) -> None:
            answer = connection.call(ADD_PARTITIONS_TO_TXN, request, at_most=_LAST_ADD_PARTITIONS)
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    ensure_success(result.partition_error_code, str(partition))

        _persistently(self._control, CoordinatorType.TRANSACTION, self.identity.transactional_id, ask)

    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits the group's offsets with the transaction."""
        add_offsets(self._control, self.identity, group_id, offsets, metadata)
        self._has_offsets = True

    @property
    def acknowledged(self) -> int:
        """Counts the records of the transaction that are on the brokers."""
        return 0 if self._producer is None else self._producer.acknowledged

    # --- its end

    def flush(self) -> None:
        """As `Producer.flush`."""
        self.prepare()

    def prepare(self) -> ProducerIdentity:
        """Waits until all records are on the brokers; then `end_transaction` commits them, from anywhere, within the
        timeout. Raises RecordRefusedError if one is refused.
        """
        if self._producer is not None:
            self._producer.flush()
        return self.identity

    def commit(self) -> None:
        self.prepare()
        self._end(is_commit=True)

    def abort(self) -> None:
        """Aborts the transaction. The caller may use it after an exception that came before an answer did."""
        self._control.forget_connections()
        self._end(is_commit=False)

    def _end(self, *, is_commit: bool) -> None:
        if self.is_open:
            following = end_transaction(self._control, self.identity, is_commit=is_commit)
            if following != self.identity:
                self._producer = None  # its sequences begin again
            self.identity = following
        self._partitions.clear()
        self._has_offsets = False

    def close(self) -> None:
        """Leaves an open transaction to its timeout, or to the next producer of the id."""
        self._client.close()
        self._control.close()


def add_offsets(
    client: KafkaClient,
    identity: ProducerIdentity,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    metadata: str = "",
) -> None:
    """Adds offsets of a group to a transaction, which may have been prepared by another process."""
    transactional_id, producer_id, epoch, version = identity
    request = AddOffsetsToTxnRequest(transactional_id, producer_id, epoch, group_id)

    def add(connection: ClientConnection) -> None:
        ensure_success(connection.call(ADD_OFFSETS_TO_TXN, request).error_code, group_id)

    if version < _NEWEST:
        _persistently(client, CoordinatorType.TRANSACTION, transactional_id, add)
    topics = by_topic(
        (partition, TxnOffsetCommitRequestPartition(partition.partition, offset, committed_metadata=metadata))
        for partition, offset in offsets.items()
    )
    wanted = [TxnOffsetCommitRequestTopic(name, partitions=partitions) for name, partitions in topics.items()]
    commit = TxnOffsetCommitRequest(transactional_id, group_id, producer_id, epoch, topics=wanted)

    def ask(connection: ClientConnection) -> None:
        last = _LAST_TXN_OFFSET_COMMIT_BY_NAME if version >= _NEWEST else _LAST_TXN_OFFSET_COMMIT
        answer = connection.call(TXN_OFFSET_COMMIT, commit, at_most=last)
        for partition, result in by_partition(answer.topics):
            ensure_success(result.error_code, str(partition))

    _persistently(client, CoordinatorType.GROUP, group_id, ask)


def end_transaction(client: KafkaClient, identity: ProducerIdentity, *, is_commit: bool) -> ProducerIdentity:
    """Ends a prepared transaction; returns the producer's identity for the next one. Raises KafkaError
    (PRODUCER_FENCED, INVALID_TXN_STATE) if the transaction is gone.
    """
    transactional_id, producer_id, epoch, version = identity
    request = EndTxnRequest(transactional_id, producer_id, epoch, is_commit)

    def end(connection: ClientConnection) -> ProducerIdentity:
        answer = connection.call(END_TXN, request, at_most=MAX_VERSION if version >= _NEWEST else _LAST_END_TXN)
        ensure_success(answer.error_code, transactional_id)
        if version < _NEWEST:
            return identity
        return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch, version)

    return _persistently(client, CoordinatorType.TRANSACTION, transactional_id, end)


def _version_of(connection: ClientConnection) -> int:
    """Returns the transaction.version that the cluster has finalized and both its broker and plog support."""
    is_finalized = connection.features.get("transaction.version", 0) >= _NEWEST
    return _NEWEST if is_finalized and connection.version_of(END_TXN) > _LAST_END_TXN else 1


def _persistently(
    client: KafkaClient, type_: CoordinatorType, key: str, ask: Callable[[ClientConnection], Result]
) -> Result:
    """Retries, for a while, also if the connection breaks: all these requests may be sent twice."""

    def once() -> Result:
        try:
            return at_coordinator(client, type_, key, ask)
        except ConnectionFailedError:
            client.forget_connections()
            return at_coordinator(client, type_, key, ask)

    return Retry(_SECONDS, first_s=_PAUSE_SECONDS).call(once, _RETRIABLE)
