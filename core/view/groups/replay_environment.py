"""What coordinators need of the world while they only take up what a log says: nothing happens in it.

A coordinator has one partition of its topic here. So every key is that partition's, whatever the number of partitions:
a copied directory may lack some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from core.broker.coordinators.latest_by_key import ReadRecord
from core.cluster.image.metadata_image import TopicImage
from core.common.clock import Clock
from core.common.pending import TimerHandle
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.group_environment import GroupConfig
from core.coordinator.group_record_values import read_record
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.coordinator.transaction_environment import TransactionConfig
from core.coordinator.transaction_record_values import read_transaction


class _NoTimer:
    def cancel(self) -> None:
        """There is nothing to cancel."""


class _StillWorld:
    """What both kinds of coordinators ask for; immutable."""

    def __init__(self, number: int, clock: Clock) -> None:
        self._number = number
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:  # noqa: ARG002
        return _NoTimer()

    def ensure_loaded(self, key: str, /) -> None:
        """What is asked for has been read."""

    def number_of(self, key: str, /) -> int:  # noqa: ARG002
        return self._number

    def write(self, *_: object, **__: object) -> None:
        raise AssertionError("who only reads writes nothing")


class _StillGroups(_StillWorld):
    """A `GroupEnvironment`."""

    config = GroupConfig()
    topics: Mapping[str, TopicImage] = MappingProxyType({})
    metadata_version = 0

    def session_timeout_ms(self, group_id: str) -> int:  # noqa: ARG002
        return 0

    def heartbeat_interval_ms(self, group_id: str) -> int:  # noqa: ARG002
        return 0


class _StillTransactions(_StillWorld):
    """A `TransactionEnvironment`."""

    config = TransactionConfig()
    transaction_version = 0
    call_when_committed = write_markers = _StillWorld.write

    def next_producer_id(self) -> int:
        raise AssertionError("who only reads gives no ids")


class ReplayedGroups:
    """The groups of one partition of __consumer_offsets; owned by one task."""

    def __init__(self, number: int, clock: Clock) -> None:
        self.coordinator = GroupCoordinator(_StillGroups(number, clock))
        self._number = number

    def take_up(self, read: ReadRecord) -> None:
        """Takes up a record. Raises CorruptRecordError if it is none of a coordinator's; what is known stays."""
        if not read.key:
            self.coordinator.replay_end_of_transaction(self._number, read.producer_id, is_commit=read.is_commit)
            return
        read_record(read.key, read.value)
        self.coordinator.replay(read.key, read.value, read.producer_id)


class ReplayedTransactions:
    """The transactional ids of one partition of __transaction_state; owned by one task."""

    def __init__(self, number: int, clock: Clock) -> None:
        self.coordinator = TransactionCoordinator(_StillTransactions(number, clock))

    def take_up(self, read: ReadRecord) -> None:
        """Does as `ReplayedGroups.take_up`."""
        if read.key:
            read_transaction(read.key, read.value)
            self.coordinator.replay(read.key, read.value)
