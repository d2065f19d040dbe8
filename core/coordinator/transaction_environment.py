"""What a transaction coordinator needs from the broker: settings, time, timers, its log, and other partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from core.common.errors import KafkaError
from core.common.pending import TimerHandle
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_state import TransactionMetadata


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of the broker, by Kafka's names."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000


class TransactionEnvironment(Protocol):
    """The broker implements it."""

    @property
    def config(self) -> TransactionConfig: ...

    @property
    def transaction_version(self) -> int:
        """The level of the feature transaction.version: 0, 1, or 2 (KIP-890)."""
        ...

    def now_ms(self) -> int:
        """Returns ms since the epoch, by a clock that may be set: for timestamps in records."""
        ...

    def monotonic_ms(self) -> int:
        """Returns ms since some moment, by a clock that is never set: for deadlines."""
        ...

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        """See `core.common.pending.Schedule`."""
        ...

    def next_producer_id(self) -> int:
        """Returns a producer id that was never used. Raises KafkaError if none is available."""
        ...

    def ensure_loaded(self, transactional_id: str, /) -> None:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the id's records are still being read,
        COORDINATOR_NOT_AVAILABLE if they can't be.
        """

    def number_of(self, transactional_id: str) -> int:
        """Returns the id's partition of __transaction_state."""
        ...

    def write(self, transactional_id: str, value: bytes | None) -> None:
        """Appends to the id's partition of __transaction_state. Raises KafkaError, with nothing written, on failure."""

    def call_when_committed(self, transactional_id: str, then: Callable[[KafkaError | None], None], /) -> None:
        """Calls `then` when the id's records are as safe as its topic's flush.messages requires, at once if they are
        already; with an error if they never will be.
        """

    def write_markers(
        self,
        prepared: TransactionMetadata,
        partitions: frozenset[TopicPartition],
        then: Callable[[frozenset[TopicPartition]], None],
        /,
    ) -> None:
        """Appends markers to the transaction's partitions that still exist. When these are as safe as `flush.messages`
        of the topics requires, calls `then` with the partitions whose marker could not be written.
        """
