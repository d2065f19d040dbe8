"""Blocks of producer ids from the controller of the cluster; one is always fetched in advance.

Source: kafka.coordinator.transaction.RPCProducerIdManager.
"""

from __future__ import annotations

from collections.abc import Callable

from core.broker.replication.controller_channel import ControllerChannel, ControllerErrand
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.allocate_producer_ids import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

_VERSION = 0


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
        """Returns an id, whatever ids the logs of this broker hold: the controller allocates none twice. Raises what
        `take` raises.
        """
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
