"""Allocates producer ids, each once in the life of the directory of a lone broker."""

from __future__ import annotations

from collections.abc import Callable

from core.broker.partitions.replica_manager import ReplicaManager
from core.cluster.image.single_node_controller import SingleNodeController
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.log_manager import LogManager


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
