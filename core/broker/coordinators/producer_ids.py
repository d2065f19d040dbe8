"""Allocates producer ids, each once: a lone broker in the life of its directory, a member of a cluster from blocks of
the controller, one of which is always fetched in advance.

Source: kafka.coordinator.transaction.RPCProducerIdManager.
"""

from __future__ import annotations

from collections.abc import Callable

from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.replication.controller_channel import ControllerChannel, ControllerErrand
from core.cluster.image.single_node_controller import SingleNodeController
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.log_manager import LogManager
from core.protocol.schema.controller_request import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

_VERSION = 0


class ProducerIds:
    """Owned by the broker's task. The controller allocates ids in blocks; the metadata have a block before its use. A
    member of a cluster has `ProducerIdBlocks`.
    """

    def __init__(
        self, controller: SingleNodeController, log_manager: LogManager, replicas: ReplicaManager, *, has_adopted: bool
    ) -> None:
        """`has_adopted` says that folders came without metadata: their logs may hold other ids."""
        self._controller = controller
        self._log_manager = log_manager
        self._replicas = replicas
        self._has_adopted = has_adopted
        self._left = iter(range(0))

    def next(self, load_transactions: Callable[[], ErrorCode | None], latest_of_transactions: Callable[[], int]) -> int:
        """Returns an id that was never used in this directory, and is in no log that came from elsewhere.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while that is not known. `load_transactions` starts to read the
        transactional ids, and returns why they are not all known; `latest_of_transactions` returns their highest id.
        """
        try:
            return next(self._left)
        except StopIteration:
            if not self._controller.image.next_producer_id and load_transactions() is not None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
            if self._must_know_all_logs and self._log_manager.unloaded:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
            known = [partition.log.producers.latest_producer_id for partition in self._replicas.partitions.values()]
            at_least = 1 + max(*known, latest_of_transactions(), -1)
            self._left = iter(self._controller.allocate_producer_ids(at_least))
            return next(self._left)

    @property
    def _must_know_all_logs(self) -> bool:
        """Whether logs may hold ids that are not in the metadata."""
        return not self._log_manager.is_read_only and (self._has_adopted or not self._controller.image.next_producer_id)


class ProducerIdBlocks:
    """Owned by the broker's loop. A block is allocated to this broker once; ids unused at the end are lost."""

    def __init__(self, channel: ControllerChannel, *, node_id: int, broker_epoch: Callable[[], int]) -> None:
        """`broker_epoch` returns that of the broker's present registration, or -1."""
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._block: range | None = None
        self._left = iter(range(0))
        self._errand = ControllerErrand(self._fetch)

    def begin(self) -> None:
        """Requests a block, unless one is there or requested."""
        if self._block is None:
            self._errand.begin()

    def next(self, _load_transactions: object, _latest_of_transactions: object) -> int:
        """Returns an id, whatever ids this broker's logs hold: none is allocated twice. Raises what `take` raises."""
        try:
            return next(self._left)
        except StopIteration:
            self._left = iter(self.take())
            return next(self._left)

    def take(self) -> range:
        """Returns a block, and requests the next one. Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while the
        controller has not answered: clients retry.
        """
        block, self._block = self._block, None
        self.begin()
        if block is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller has not given out producer ids yet"
            )
        return block

    async def close(self) -> None:
        """Stops requesting blocks."""
        await self._errand.close()

    async def _fetch(self) -> None:
        answer = await self._channel.ask(ALLOCATE_PRODUCER_IDS, _VERSION, self._make_request, _find_error)
        assert answer is not None
        self._block = range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    def _make_request(self) -> AllocateProducerIdsRequest:
        return AllocateProducerIdsRequest(self._node_id, self._broker_epoch())


def _find_error(answer: AllocateProducerIdsResponse) -> int:
    if answer.error_code == ErrorCode.NONE and answer.producer_id_len <= 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # a block without ids
    return answer.error_code
