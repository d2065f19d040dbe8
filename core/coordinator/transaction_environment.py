"""What transactions need of the world: settings, time, timers, the log that keeps them, and the partitions."""

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
    """Given by the broker."""

    @property
    def config(self) -> TransactionConfig: ...

    @property
    def transaction_version(self) -> int:
        """Gives the level of the feature transaction.version: 0, 1, or 2 for that of KIP-890."""
        ...

    def now_ms(self) -> int:
        """Gives ms since the epoch, by a clock that may be set: for what is written down."""
        ...

    def monotonic_ms(self) -> int:
        """Gives ms since some moment, by a clock that nobody sets: for what is due."""
        ...

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        """See `core.common.pending.Schedule`."""
        ...

    def next_producer_id(self) -> int:
        """Gives one that was never given. Raises KafkaError if none can be had."""
        ...

    def ensure_loaded(self, transactional_id: str, /) -> None:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while what is known of the id is still being read,
        COORDINATOR_NOT_AVAILABLE if it can't be.
        """

    def number_of(self, transactional_id: str) -> int:
        """Gives the id's partition of __transaction_state."""
        ...

    def write(self, transactional_id: str, value: bytes | None) -> None:
        """Appends to the id's partition of __transaction_state; raises KafkaError if that can't be, nothing written."""

    def call_when_committed(self, transactional_id: str, then: Callable[[KafkaError | None], None], /) -> None:
        """Calls `then` when what was written of the id is as safe as its topic's flush.messages requires, at once if it
        is already; with an error if it never will be.
        """

    def write_markers(
        self,
        prepared: TransactionMetadata,
        partitions: frozenset[TopicPartition],
        then: Callable[[frozenset[TopicPartition]], None],
        /,
    ) -> None:
        """Appends the transaction's markers to those of its partitions that still exist, and calls `then`, when the
        markers are as safe as `flush.messages` of the topics requires, with those for which that could not be done.
        """
