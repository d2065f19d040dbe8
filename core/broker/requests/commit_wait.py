"""An answer that must wait for the disk or for followers: until the records that it acknowledges are committed
(`Partition.is_committed`), or those that were deleted are gone from all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from core.broker.partitions.replica_manager import PERHAPS_KEPT, ReplicaManager
from core.cluster.partition.partition import REPLICATED, Partition
from core.common.error_code import ErrorCode
from core.common.pending import Pending

T = TypeVar("T")


class Unfinished(Protocol):
    """What is not done yet in a partition."""

    @property
    def partition(self) -> Partition: ...

    @property
    def is_done(self) -> bool: ...

    def note_result(self, replicas: ReplicaManager) -> None:
        """Puts into the answer what became of it, when it is done or nobody waits for it any more."""


class Uncommitted(NamedTuple):
    """Records below `offset` that are not committed yet, on the `terms` of `Partition.must_wait_for`. `refuse` puts
    into the answer why they never were.
    """

    partition: Partition
    offset: int
    terms: int
    refuse: Callable[[ErrorCode], None]

    @property
    def is_done(self) -> bool:
        return self.partition.is_committed(self.offset, self.terms)

    def note_result(self, replicas: ReplicaManager) -> None:
        if not self.is_done:
            self.refuse(replicas.find_error(self.partition) or ErrorCode.REQUEST_TIMED_OUT)
        elif self.terms & REPLICATED and self.partition.is_short_of_replicas:
            self.refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def find_uncommitted(partition: Partition, refuse: Callable[[ErrorCode], None]) -> list[Uncommitted]:
    """Returns the partition's records, if they must be committed before they are acknowledged."""
    end_offset = partition.log.log_end_offset
    terms = partition.must_wait_for(end_offset)
    return [Uncommitted(partition, end_offset, terms, refuse)] if terms else []


def when_committed(
    replicas: ReplicaManager, waiting: Sequence[Unfinished], answer: T, timeout_ms: int | None = None
) -> T | Pending[T]:
    """Returns the answer, the one for success, if it need not wait; otherwise a Pending that waits at most
    `timeout_ms`, if that is given.
    """
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
    """Completes with the answer when all is done; what is not when the time is up, or never will be, is refused in the
    answer. Owned by the broker's task.
    """

    def __init__(self, replicas: ReplicaManager, answer: T, waiting: Sequence[Unfinished]) -> None:
        self._replicas = replicas
        self._answer = answer
        self._waiting = waiting
        for one in waiting:
            one.partition.commit_waits[self] = None

    def maybe_complete(self) -> None:
        """Completes if no partition can do more: it is done there, or the partition is no longer served or led here."""
        for one in self._waiting:
            if not one.is_done and one.partition.is_served and one.partition.is_leading:
                return
        self.complete_with(self.value_now())

    def value_now(self) -> T:
        for one in self._waiting:
            one.note_result(self._replicas)
        return self._answer

    def forget(self) -> None:
        for one in self._waiting:
            one.partition.commit_waits.pop(self, None)
