"""An answer that may not be given before what it acknowledges is on the disk, as `flush.messages` asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from core.broker.delayed_operation import DelayedOperation, forward
from core.cluster.partition import Partition
from core.common.deferred import Deferred
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

if TYPE_CHECKING:
    from core.broker.broker import Broker


PERHAPS_KEPT = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
"""What a producer is told of a batch that is in the log, and of which nobody knows whether the disk has it. Clients
send it again as it was, so that it is recognized if it is there. After KAFKA_STORAGE_ERROR they may take it for not
written."""


class Unflushed(NamedTuple):
    """Records below `offset` that are not flushed yet; `refuse` puts into the answer why they never were."""

    partition: Partition
    offset: int
    refuse: Callable[[ErrorCode], None]


def unflushed(partition: Partition, refuse: Callable[[ErrorCode], None]) -> list[Unflushed]:
    """What the partition holds, where that may not be acknowledged before it is flushed."""
    end_offset = partition.log.log_end_offset
    if partition.log.config.is_flushed_while_appending and partition.must_flush(end_offset):
        return [Unflushed(partition, end_offset, refuse)]
    return []


def when_flushed(broker: Broker, response: Any, waiting: list[Unflushed], timeout_ms: int | None = None) -> Any:
    """The response where nothing must be waited for, else one that waits."""
    return DelayedFlush(broker, response, waiting).answer(timeout_ms) if waiting else response


def after_flush(broker: Broker, waiting: list[Unflushed], work: Callable[[], Any], fallback: Any) -> Any:
    """What `work` answers, which may have to wait itself; it is done when everything is flushed. `fallback` is the
    answer where the broker stops before.
    """
    if not waiting:
        return work()
    answer = _AfterFlush(work, fallback)
    flush = DelayedFlush(broker, None, waiting)
    flush.on_complete = answer.go_on
    if flush.answer() is not flush:
        answer.go_on()
    return answer if answer.value is None else answer.value


class _AfterFlush(Deferred[Any]):
    """The answer that work makes after a flush; the work is not done if the client leaves before. Owned by the broker's
    task.
    """

    def __init__(self, work: Callable[[], Any], fallback: Any) -> None:
        super().__init__(fallback)
        self._work: Callable[[], Any] | None = work
        self._following: DelayedOperation | Deferred[Any] | None = None

    @property
    def is_at_work(self) -> bool:
        if isinstance(self._following, Deferred):
            return self._following.is_at_work
        return self._work is not None

    def go_on(self, _response: None = None) -> None:
        if self._work is None:
            return  # the client is gone
        work, self._work = self._work, None
        made = work()
        if isinstance(made, DelayedOperation | Deferred):
            self._following = made
            forward(made, self)
        else:
            self.complete_with(made)

    def cancel(self) -> None:
        super().cancel()
        self._work = None
        if self._following is not None:
            self._following.cancel()


def find_error(broker: Broker, partition: Partition) -> ErrorCode | None:
    """Why the partition is not served any more; None while it is."""
    if partition.is_served:
        return None
    name = partition.log.partition
    try:
        broker.replicas.find(name.topic, name.partition)
    except KafkaError as error:
        return error.code
    return None


def error_of_unflushed(code: ErrorCode) -> ErrorCode:
    """What a producer is told of a batch that was appended and not flushed, for that reason."""
    return PERHAPS_KEPT if code is ErrorCode.KAFKA_STORAGE_ERROR else code


class DelayedFlush(DelayedOperation):
    """Answered when the records are on the disk, or refused when its time is up."""

    def __init__(self, broker: Broker, response: Any, waiting: list[Unflushed]) -> None:
        """`response`: a message of the request's API, as it is where all goes well."""
        super().__init__()
        self._broker = broker
        self._response = response
        self._unflushed = waiting

    def answer(self, timeout_ms: int | None = None) -> Any:
        """The response where nothing must be waited for, else this, which waits so long; without a timeout for as long
        as it takes.
        """
        if self.is_satisfied():
            return self.response()
        for partition, _, _ in self._unflushed:
            partition.waiting_for_flush[self] = None
        if timeout_ms is not None:
            self.start_timer(self._broker.schedule, timeout_ms)
        return self

    def forget(self) -> None:
        for partition, _, _ in self._unflushed:
            partition.waiting_for_flush.pop(self, None)

    def is_satisfied(self) -> bool:
        for partition, offset, _ in self._unflushed:
            if partition.log.recovery_point < offset and partition.is_served:
                return False
        return True

    def response(self) -> Any:
        for partition, offset, refuse in self._unflushed:
            if partition.log.recovery_point < offset:
                refuse(find_error(self._broker, partition) or ErrorCode.REQUEST_TIMED_OUT)
        return self._response
