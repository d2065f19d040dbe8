"""What the coordinators need from the broker: settings, time, timers, and the log that keeps their state. A transaction
coordinator needs other partitions as well, for its markers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from core.cluster.image.metadata_image import TopicImage
from core.common.errors import KafkaError
from core.common.pending import TimerHandle
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import GroupRecord
from core.coordinator.transaction_state import TransactionMetadata
from core.records.record_batch import ProducerIdAndEpoch


class CoordinatorEnvironment(Protocol):
    """What both need; the broker implements it. A key is a group id or a transactional id."""

    def now_ms(self) -> int:
        """Returns ms since the epoch, by a clock that may be set: for timestamps in records."""
        ...

    def monotonic_ms(self) -> int:
        """Returns ms since some moment, by a clock that is never set: for deadlines."""
        ...

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        """See `core.common.pending.Schedule`."""
        ...

    def ensure_loaded(self, key: str, /) -> None:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the key's records are still being read,
        COORDINATOR_NOT_AVAILABLE if they can't be.
        """

    def number_of(self, key: str, /) -> int:
        """Returns the key's partition of the coordinator's topic."""
        ...


def _sees_all(_topic: str) -> bool:
    return True


class ClientInfo(NamedTuple):
    """The client that sends the request: its id, its address as Kafka writes it, `/127.0.0.1`, and whether it may
    describe a topic: regular expressions find no others.
    """

    client_id: str
    client_host: str
    may_see: Callable[[str], bool] = _sees_all


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the broker, by Kafka's names."""

    group_min_session_timeout_ms: int = 6000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3000
    group_max_size: int = 0x7FFFFFFF
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10080
    group_consumer_max_size: int = 0x7FFFFFFF
    group_consumer_migration_policy: str = "bidirectional"


class GroupEnvironment(CoordinatorEnvironment, Protocol):
    config: GroupConfig

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """The cluster's topics by name."""
        ...

    @property
    def metadata_version(self) -> int:
        """A number that changes whenever the topics may have changed."""
        ...

    def session_timeout_ms(self, group_id: str) -> int:
        """Returns how long a member of a consumer group may be silent."""
        ...

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Returns how often members of a consumer group send heartbeats."""
        ...

    def write(self, group_id: str, records: list[GroupRecord], producer: ProducerIdAndEpoch | None = None, /) -> None:
        """Appends to the group's partition of __consumer_offsets, in the producer's transaction if one is given. Raises
        KafkaError, with nothing written, if that fails.
        """


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """As `GroupConfig`."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000


class TransactionEnvironment(CoordinatorEnvironment, Protocol):
    @property
    def config(self) -> TransactionConfig: ...

    @property
    def transaction_version(self) -> int:
        """The level of the feature transaction.version: 0, 1, or 2 (KIP-890)."""
        ...

    def next_producer_id(self) -> int:
        """Returns a producer id that was never used. Raises KafkaError if none is available."""
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
