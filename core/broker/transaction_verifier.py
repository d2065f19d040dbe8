"""Asks the broker that coordinates a transaction whether the transaction writes to partitions that are led here
(AddPartitionsToTxn with VerifyOnly, KIP-890).

What it says holds until a marker of that producer comes: the transaction that was asked for may be over then, and
nothing would end what is appended after it.

Source: kafka.server.AddPartitionsToTxnManager, org.apache.kafka.storage.internals.log.VerificationGuard.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.broker.peer_pool import PeerPool
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from core.records.record_batch import ProducerIdAndEpoch

_log = logging.getLogger("plog.transactions")

_VERSION = 4
"""The first that brokers send; later ones add an error that the clients of such a cluster do not know."""

_MOST_VERIFIED = 10_000

Verdicts = dict[TopicPartition, ErrorCode]
_Write = tuple[TopicPartition, ProducerIdAndEpoch]


@dataclass(eq=False)
class _Asked:
    producer_id: int
    names: frozenset[TopicPartition]
    ended: set[TopicPartition] = field(default_factory=set)
    """Partitions to which a marker of the producer came since it was asked."""


class TransactionVerifier:
    """Owned by the broker's loop."""

    def __init__(self, pool: PeerPool) -> None:
        self._pool = pool
        self._asked: dict[_Asked, None] = {}
        self._verified: dict[_Write, None] = {}  # the oldest first; who is forgotten is asked for again
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(
        self, coordinator: int, transactional_id: str, producer: ProducerIdAndEpoch, names: Sequence[TopicPartition]
    ) -> Pending[Verdicts]:
        """Gives an error for each partition, NONE if the transaction writes to it, which is noted then. NOT_COORDINATOR
        if nobody can be asked there: the client asks again.
        """
        pending = Pending[Verdicts]()
        task = asyncio.get_running_loop().create_task(
            self._ask(coordinator, transactional_id, producer, frozenset(names), pending)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    async def _ask(
        self,
        coordinator: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        names: frozenset[TopicPartition],
        pending: Pending[Verdicts],
    ) -> None:
        asked = _Asked(producer.producer_id, names)
        self._asked[asked] = None
        verdicts = dict.fromkeys(names, ErrorCode.NOT_COORDINATOR)
        try:
            answer = await self._pool.ask(
                coordinator, ADD_PARTITIONS_TO_TXN, _VERSION, _request(transactional_id, producer, names)
            )
        except ConnectionFailedError as error:
            _log.warning("transaction of %s could not be verified: %s", transactional_id, error)
        else:
            if answer.error_code:
                verdicts = dict.fromkeys(names, ErrorCode.of(answer.error_code))
            verdicts |= {
                TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.partition_error_code)
                for one in answer.results_by_transaction
                for topic in one.topic_results
                for result in topic.results_by_partition
            }
        finally:
            del self._asked[asked]
        verdicts |= dict.fromkeys(asked.ended, ErrorCode.NOT_COORDINATOR)
        for name, verdict in verdicts.items():
            if verdict is ErrorCode.NONE:
                self._verified[name, producer] = None
        while len(self._verified) > _MOST_VERIFIED:
            del self._verified[next(iter(self._verified))]
        pending.complete_with(verdicts)

    def is_verified(self, name: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Says whether the producer's transaction is known to write there."""
        return (name, producer) in self._verified

    def on_marker(self, name: TopicPartition, producer: ProducerIdAndEpoch) -> None:
        """Called when a marker of that producer was appended to the partition."""
        self._verified.pop((name, producer), None)
        for asked in self._asked:
            if asked.producer_id == producer.producer_id and name in asked.names:
                asked.ended.add(name)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _request(
    transactional_id: str, producer: ProducerIdAndEpoch, names: frozenset[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics = defaultdict[str, list[int]](list)
    for name in sorted(names):
        topics[name.topic].append(name.partition)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id,
                producer.producer_id,
                producer.epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in topics.items()],
            )
        ]
    )
