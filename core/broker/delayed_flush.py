"""An answer that may not be given before what it acknowledges is on the disk, as `flush.messages` asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from core.broker.delayed_operation import DelayedOperation
from core.cluster.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

if TYPE_CHECKING:
    from core.broker.broker import Broker


class Unflushed(NamedTuple):
    """Records below `offset` that are not flushed yet; `refuse` puts into the answer why they never were."""

    partition: Partition
    offset: int
    refuse: Callable[[ErrorCode], None]


class DelayedFlush(DelayedOperation):
    """Answered when the records are on the disk, or refused when its time is up."""

    def __init__(self, broker: Broker, response: Any, unflushed: list[Unflushed]) -> None:
        """`response`: a message of the request's API, as it is where all goes well."""
        super().__init__()
        self._broker = broker
        self._response = response
        self._unflushed = unflushed
        self._watched = [waiting.partition.log.partition for waiting in unflushed]

    def answer(self, timeout_ms: int) -> Any:
        """The response where nothing must be waited for, else this."""
        if self.is_satisfied():
            return self.response()
        self._broker.replicas.watch(self, self._watched, for_flush=True)
        self.start_timer(self._broker.schedule, timeout_ms)
        return self

    def forget(self) -> None:
        self._broker.replicas.unwatch(self, self._watched)

    def is_satisfied(self) -> bool:
        for partition, offset, _ in self._unflushed:
            if partition.log.recovery_point < offset and self._find_error(partition) is None:
                return False
        return True

    def response(self) -> Any:
        for partition, offset, refuse in self._unflushed:
            if partition.log.recovery_point < offset:
                refuse(self._find_error(partition) or ErrorCode.REQUEST_TIMED_OUT)
        return self._response

    def _find_error(self, partition: Partition) -> ErrorCode | None:
        """Why the partition is not served any more; None while it is."""
        name = partition.log.partition
        try:
            self._broker.replicas.find(name.topic, name.partition)
        except KafkaError as error:
            return error.code
        return None
