"""An answer that must wait until the records that it acknowledges are committed (`Partition.is_committed`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from core.broker.partitions.replica_manager import PERHAPS_KEPT, ReplicaManager
from core.cluster.partition.partition import REPLICATED, Partition
from core.common.error_code import ErrorCode
from core.common.pending import Pending

T = TypeVar("T")


class Uncommitted(NamedTuple):
    """Records below `offset` that are not committed yet, on the `terms` of `Partition.must_wait_for`. `refuse` puts
    into the answer why they never were.
    """

    partition: Partition
    offset: int
    terms: int
    refuse: Callable[[ErrorCode], None]


def find_uncommitted(partition: Partition, refuse: Callable[[ErrorCode], None]) -> list[Uncommitted]:
    """Returns the partition's records, if they must be committed before they are acknowledged."""
    end_offset = partition.log.log_end_offset
    terms = partition.must_wait_for(end_offset)
    return [Uncommitted(partition, end_offset, terms, refuse)] if terms else []


def when_committed(
    replicas: ReplicaManager, waiting: Sequence[Uncommitted], answer: T, timeout_ms: int | None = None
) -> T | Pending[T]:
    """Returns the answer if it need not wait, otherwise a Pending that waits at most `timeout_ms`, if that is given."""
    if not waiting:
        return answer
    wait = CommitWait(replicas, answer, waiting)
    if timeout_ms is not None:
        wait.limit(replicas.schedule, timeout_ms)
    wait.maybe_complete()  # the disk may have refused already
    return wait.value_now() if wait.is_over else wait


def error_of_uncommitted(code: ErrorCode) -> ErrorCode:
    """Returns a producer's error for a batch that was appended but not committed for that reason."""
    return PERHAPS_KEPT if code is ErrorCode.KAFKA_STORAGE_ERROR else code


class CommitWait(Pending[T]):
    """Completes with the answer when all records are committed; records that are not when the time is up, or never will
    be, are refused in the answer. Owned by the broker's task.
    """

    def __init__(self, replicas: ReplicaManager, answer: T, waiting: Sequence[Uncommitted]) -> None:
        """`answer` is the one for success."""
        self._replicas = replicas
        self._answer = answer
        self._waiting = waiting
        for partition, _, _, _ in waiting:
            partition.commit_waits[self] = None

    def maybe_complete(self) -> None:
        """Completes if no partition can commit more of the records: they are committed, or it is no longer served or
        led here.
        """
        for partition, offset, terms, _ in self._waiting:
            if not partition.is_committed(offset, terms) and partition.is_served and partition.is_leading:
                return
        self.complete_with(self.value_now())

    def value_now(self) -> T:
        for partition, offset, terms, refuse in self._waiting:
            if not partition.is_committed(offset, terms):
                refuse(self._replicas.find_error(partition) or ErrorCode.REQUEST_TIMED_OUT)
            elif terms & REPLICATED and partition.is_short_of_replicas:
                refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return self._answer

    def forget(self) -> None:
        for partition, _, _, _ in self._waiting:
            partition.commit_waits.pop(self, None)
