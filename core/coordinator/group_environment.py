"""What a group coordinator needs from the broker: settings, time, timers, and the log that keeps the groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from core.cluster.image.metadata_image import TopicImage
from core.common.pending import TimerHandle
from core.coordinator.group_record_values import GroupRecord
from core.records.record_batch import ProducerIdAndEpoch


class ClientInfo(NamedTuple):
    """The client that sends the request: its id, and its address as Kafka writes it, `/127.0.0.1`."""

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
    """The broker implements it."""

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

    def now_ms(self) -> int:
        """Returns ms since the epoch, by a clock that may be set: for timestamps in records."""
        ...

    def monotonic_ms(self) -> int:
        """Returns ms since some moment, by a clock that is never set: for deadlines."""
        ...

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        """See `core.common.pending.Schedule`."""
        ...

    def ensure_loaded(self, group_id: str, /) -> None:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the group's records are still being read,
        COORDINATOR_NOT_AVAILABLE if they can't be.
        """

    def number_of(self, group_id: str) -> int:
        """Returns the group's partition of __consumer_offsets."""
        ...

    def write(self, group_id: str, records: list[GroupRecord], producer: ProducerIdAndEpoch | None = None, /) -> None:
        """Appends to the group's partition of __consumer_offsets, in the producer's transaction if one is given. Raises
        KafkaError, with nothing written, if that fails.
        """
