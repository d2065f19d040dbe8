"""Gives producer ids, each once in the life of the directory."""

from __future__ import annotations

from collections.abc import Callable

from core.broker.partitions.storage_services import StorageServices
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError


class ProducerIds:
    """Owned by the broker's task. The controller gives ids in blocks, which are in the metadata before one is used."""

    def __init__(self, services: StorageServices, *, has_adopted: bool, is_member: bool = False) -> None:
        """`has_adopted` says that folders came without metadata: their logs may know of ids that nobody gave here. To a
        member of a cluster the controller gives what it gives to nobody else, whatever the logs here know.
        """
        self._services = services
        self._is_member = is_member
        self._has_adopted = has_adopted
        self._left = iter(range(0))

    def next(self, load_transactions: Callable[[], ErrorCode | None], latest_of_transactions: Callable[[], int]) -> int:
        """Gives an id that was never given in this directory, nor lies in a log that came from elsewhere.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while that is not known. `load_transactions` begins to read the
        transactional ids, and says why they are not all known; `latest_of_transactions` is the highest id among them.
        """
        try:
            return next(self._left)
        except StopIteration:
            if self._is_member:
                self._left = iter(self._services.controller.allocate_producer_ids(0))
                return next(self._left)
            if not self._services.image.next_producer_id and load_transactions() is not None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
            if self._must_know_all_logs and self._services.log_manager.unloaded:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
            known = [
                partition.log.producers.latest_producer_id for partition in self._services.replicas.partitions.values()
            ]
            at_least = 1 + max(*known, latest_of_transactions(), -1)
            self._left = iter(self._services.controller.allocate_producer_ids(at_least))
            return next(self._left)

    @property
    def _must_know_all_logs(self) -> bool:
        """Says whether ids may stand in logs that the metadata do not know."""
        return not self._services.node.is_read_only and (self._has_adopted or not self._services.image.next_producer_id)
