"""Requests about transactions, from coordinators and partition leaders, to the other brokers of a cluster.

`MarkerSender` asks the brokers that lead a transaction's partitions to write its markers (WriteTxnMarkers, KIP-98).
Source: kafka.coordinator.transaction.TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from core.broker.config.broker_config import BrokerConfig
from core.broker.coordinators.transaction_verifier import TransactionVerifier
from core.broker.replication.peer_connection import PeerPool
from core.broker.serving.loop_tasks import LoopTasks
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.coordinator.transaction_state import TransactionMetadata
from core.protocol.schema.transactions import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from core.records.control_record import EndTransactionMarker

if TYPE_CHECKING:
    from core.broker.replication.peer_security import PeerSecurity

_log = logging.getLogger("plog.transactions")

_VERSION = 1
_VERSION_WITH_TRANSACTION_VERSION = 2  # KIP-1228

_NOT_NEEDED = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
"""Answers after which the marker is written, or must never be: a later producer epoch was seen. A fenced coordinator is
not among them: another broker must end the transaction then, and this one soon learns that.
"""


class MarkerSender:
    """Owned by the broker's loop."""

    def __init__(self, pool: PeerPool) -> None:
        self._pool = pool
        self._tasks = LoopTasks()
        self._failures: dict[int, str] = {}
        """By leader, the last logged reason why markers are not written: each transaction is tried every second."""

    def send(
        self,
        prepared: TransactionMetadata,
        marker: EndTransactionMarker,
        by_leader: Mapping[int, Iterable[TopicPartition]],
        then: Callable[[set[TopicPartition]], None],
        *,
        raises_epochs: bool = False,
    ) -> None:
        """Asks each leader, and, when all have answered or failed, calls `then` with the partitions that lack the
        marker. `raises_epochs`: the cluster has transaction.version 2, which the request carries, and all brokers
        understand that.
        """
        version = _VERSION_WITH_TRANSACTION_VERSION if raises_epochs else _VERSION

        async def send_all() -> None:
            sent = [self._send(leader, prepared, marker, set(names), version) for leader, names in by_leader.items()]
            then(set().union(*await asyncio.gather(*sent)))

        self._tasks.begin(send_all())

    async def _send(
        self,
        leader: int,
        prepared: TransactionMetadata,
        marker: EndTransactionMarker,
        names: set[TopicPartition],
        version: int,
    ) -> set[TopicPartition]:
        """Returns the partitions for which it failed."""
        topics = by_topic((name, name.partition) for name in sorted(names))
        request = WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    prepared.producer_id,
                    prepared.producer_epoch,
                    marker.is_commit,
                    [WritableTxnMarkerTopic(topic, numbers) for topic, numbers in topics.items()],
                    marker.coordinator_epoch,
                    prepared.client_transaction_version,
                )
            ]
        )
        try:
            answer = await self._pool.ask(leader, WRITE_TXN_MARKERS, version, request)
        except (ConnectionFailedError, KafkaError) as error:
            if self._failures.get(leader) != (reason := str(error)):
                self._failures[leader] = reason
                _log.warning("markers of %s are still to be written: %s", prepared.transactional_id, reason)
            return names
        codes = {
            partition: ErrorCode.of(result.error_code)
            for one in answer.markers
            for partition, result in by_partition(one.topics)
        }
        way = next(filter(None, (self._pool.missing_right(leader, code) for code in codes.values())), "")
        if way and self._failures.get(leader) != way:
            _log.warning("broker %d refuses markers of %s%s", leader, prepared.transactional_id, way)
        self._failures[leader] = way
        return {name for name in names if codes.get(name, ErrorCode.UNKNOWN_SERVER_ERROR) not in _NOT_NEEDED}

    async def close(self) -> None:
        """Ends the requests that wait for an answer: the next coordinator writes their markers again."""
        await self._tasks.close()


class TransactionPeers:
    """Owned by the broker's loop. Markers have connections of their own, because they are answered only when they are
    replicated, and verifying can't wait for that.
    """

    def __init__(
        self,
        find_endpoint: Callable[[int], Endpoint | None],
        config: BrokerConfig,
        buffers: ReceiveBuffers,
        client: str,
        security: PeerSecurity | None = None,
    ) -> None:
        """`client` names this broker in the others' logs."""
        self._pools = [
            PeerPool(find_endpoint, config, buffers, client_id=f"{client}-{what}", security=security)
            for what in ("markers", "verifier")
        ]
        self.markers = MarkerSender(self._pools[0])
        self.verifier = TransactionVerifier(self._pools[1])

    def on_brokers_changed(self) -> None:
        """Called when brokers have come or gone, or changed their addresses."""
        for pool in self._pools:
            pool.on_brokers_changed()

    async def close(self) -> None:
        await self.markers.close()
        await self.verifier.close()
        for pool in self._pools:
            pool.close()
