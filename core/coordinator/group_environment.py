"""What groups need of the world: settings, time, timers, and the log that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from core.cluster.image.metadata_image import TopicImage
from core.common.pending import TimerHandle
from core.coordinator.group_record_values import GroupRecord
from core.records.record_batch import ProducerIdAndEpoch


class ClientInfo(NamedTuple):
    """Who sends the request: the client's id, and its address as Kafka writes it, `/127.0.0.1`."""

    client_id: str
    client_host: str


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


class GroupEnvironment(Protocol):
    """Given by the broker."""

    config: GroupConfig

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """Gives the cluster's topics by name."""
        ...

    @property
    def metadata_version(self) -> int:
        """Gives another number whenever the topics may be others."""
        ...

    def session_timeout_ms(self, group_id: str) -> int:
        """Gives how long a member of a consumer group may be silent."""
        ...

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Gives how often such members send heartbeats."""
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

    def ensure_loaded(self, group_id: str, /) -> None:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while what is known of the group is still being read,
        COORDINATOR_NOT_AVAILABLE if it can't be.
        """

    def number_of(self, group_id: str) -> int:
        """Gives the group's partition of __consumer_offsets."""
        ...

    def write(self, group_id: str, records: list[GroupRecord], producer: ProducerIdAndEpoch | None = None, /) -> None:
        """Appends to the group's partition of __consumer_offsets, in the transaction of that producer if one is given.
        Raises KafkaError if that can't be, nothing written.
        """
