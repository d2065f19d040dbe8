"""Asks a transaction's coordinator on another broker whether the transaction includes partitions that are led here
(AddPartitionsToTxn with VerifyOnly, KIP-890), or to add them for clients that leave that to the leader.

The answer holds until a marker of that producer comes: the verified transaction may have ended then, and a marker for
later records would never come. It also holds only while this broker leads the partition in the same leader epoch:
markers that another leader has written come with its records.

Source: kafka.server.AddPartitionsToTxnManager, org.apache.kafka.storage.internals.log.VerificationGuard.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.broker.replication.peer_connection import PeerPool
from core.broker.serving.loop_tasks import LoopTasks
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition, by_topic
from core.protocol.schema.transactions import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from core.records.record_batch import ProducerIdAndEpoch

_log = logging.getLogger("plog.transactions")

_VERSION = 4
"""The first version that brokers send; later ones add an error that clients may not know."""

_VERSION_OF_ADDING = 5
"""For clients of transaction.version 2, which know that error."""

_MOST_VERIFIED = 1000
"""Producers per partition."""

Verdicts = dict[TopicPartition, ErrorCode]


@dataclass(eq=False)
class _Asked:
    producer_id: int
    names: frozenset[TopicPartition]
    ended: set[TopicPartition] = field(default_factory=set)
    """Partitions whose answer will not count: a marker came since the request, or their leader epoch changed."""


class TransactionVerifier:
    """Owned by the broker's loop."""

    def __init__(self, pool: PeerPool) -> None:
        self._pool = pool
        self._asked: dict[_Asked, None] = {}
        self._verified: dict[TopicPartition, dict[int, int]] = {}
        """The epochs of producers, by their ids and by partition; the oldest first."""
        self._tasks = LoopTasks()

    def ask(
        self,
        coordinator: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        names: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Pending[Verdicts]:
        """Returns an error code for each partition, NONE if the transaction includes it; that is remembered.
        NOT_COORDINATOR if the broker does not answer: the client retries. With `adds` the coordinator adds them.
        """
        request = _request(transactional_id, producer, frozenset(names), adds=adds)
        return self._tasks.pending(self._ask(coordinator, request, producer, frozenset(names)))

    async def _ask(
        self,
        coordinator: int,
        request: AddPartitionsToTxnRequest,
        producer: ProducerIdAndEpoch,
        names: frozenset[TopicPartition],
    ) -> Verdicts:
        (transaction,) = request.transactions
        asked = _Asked(producer.producer_id, names)
        self._asked[asked] = None
        verdicts = dict.fromkeys(names, ErrorCode.NOT_COORDINATOR)
        version = _VERSION if transaction.verify_only else _VERSION_OF_ADDING
        try:
            answer = await self._pool.ask(coordinator, ADD_PARTITIONS_TO_TXN, version, request)
            verdicts |= _verdicts_in(answer, transaction.transactional_id, names)
        except (ConnectionFailedError, KafkaError) as error:
            _log.warning("transaction of %s could not be verified: %s", transaction.transactional_id, error)
        finally:
            del self._asked[asked]
        verdicts |= dict.fromkeys(asked.ended, ErrorCode.NOT_COORDINATOR)
        for name, verdict in verdicts.items():
            if verdict is ErrorCode.NONE:
                self._note(name, producer)
        return verdicts

    def _note(self, name: TopicPartition, producer: ProducerIdAndEpoch) -> None:
        """Notes that the producer may write there; the oldest note is dropped if there are too many."""
        verified = self._verified.setdefault(name, {})
        verified[producer.producer_id] = producer.epoch
        if len(verified) > _MOST_VERIFIED:
            del verified[next(iter(verified))]

    def is_verified(self, name: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Returns whether the producer's transaction is known to include the partition."""
        return self._verified.get(name, {}).get(producer.producer_id) == producer.epoch

    def on_marker(self, name: TopicPartition, producer_id: int) -> None:
        """Called when a marker of that producer, of any epoch, was appended to the partition."""
        self._verified.get(name, {}).pop(producer_id, None)
        for asked in self._asked:
            if asked.producer_id == producer_id and name in asked.names:
                asked.ended.add(name)

    def forget(self, name: TopicPartition) -> None:
        """Called when the partition's leader epoch changed, or it left this broker: earlier answers no longer count."""
        self._verified.pop(name, None)
        for asked in self._asked:
            if name in asked.names:
                asked.ended.add(name)

    async def close(self) -> None:
        await self._tasks.close()


def _verdicts_in(
    answer: AddPartitionsToTxnResponse, transactional_id: str, names: frozenset[TopicPartition]
) -> Verdicts:
    if answer.error_code:
        return dict.fromkeys(names, ErrorCode.of(answer.error_code))
    found = {
        TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.partition_error_code)
        for one in answer.results_by_transaction
        if one.transactional_id == transactional_id
        for topic in one.topic_results
        for result in topic.results_by_partition
    }
    return {name: verdict for name, verdict in found.items() if name in names}


def _request(
    transactional_id: str, producer: ProducerIdAndEpoch, names: frozenset[TopicPartition], *, adds: bool
) -> AddPartitionsToTxnRequest:
    topics = by_topic((name, name.partition) for name in sorted(names))
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id,
                producer.producer_id,
                producer.epoch,
                verify_only=not adds,
                topics=[AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in topics.items()],
            )
        ]
    )
