"""A coordinator's state, replayed from the records of its topic in the files: read once, and then the new ones.

Only the newest record of each key is replayed, as at a coordinator's start. A partition is read again as a whole if its
log was truncated or created again.

Coordinators need a world even to replay a log: nothing happens in this one. A coordinator has one partition of its
topic here. So every key is that partition's, whatever the number of partitions: a copied directory may lack some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Generic, TypeVar

from core.broker.coordinators.latest_by_key import ReadRecord, newest_records
from core.cluster.image.metadata_image import TopicImage
from core.common.clock import Clock
from core.common.errors import CorruptRecordError, PlogError
from core.common.pending import TimerHandle
from core.common.topic_partition import TopicPartition
from core.coordinator.coordinator_environment import GroupConfig, TransactionConfig
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.group_record_values import read_record
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.coordinator.transaction_record_values import read_transaction
from core.forensics.batch_location import find_file, undecodable
from core.forensics.missing_offsets import Hole
from core.forensics.partition_reader import PartitionReader
from core.records.batches import Batch
from core.view.target.log_figures import FolderMark, LogFigures


class _NoTimer:
    def cancel(self) -> None:
        """Does nothing."""


class _StillWorld:
    def __init__(self, number: int, clock: Clock) -> None:
        self._number = number
        self.now_ms, self.monotonic_ms = clock.now_ms, clock.monotonic_ms

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:  # noqa: ARG002
        return _NoTimer()

    def ensure_loaded(self, key: str, /) -> None:
        """Does nothing: every key has been read."""

    def number_of(self, key: str, /) -> int:  # noqa: ARG002
        return self._number

    def write(self, *_: object, **__: object) -> None:
        raise AssertionError("who only reads writes nothing")


class _StillGroups(_StillWorld):
    config = GroupConfig()
    topics: Mapping[str, TopicImage] = MappingProxyType({})
    metadata_version = 0

    def session_timeout_ms(self, group_id: str) -> int:  # noqa: ARG002
        return 0

    def heartbeat_interval_ms(self, group_id: str) -> int:  # noqa: ARG002
        return 0


class _StillTransactions(_StillWorld):
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
        """Replays a record. Raises CorruptRecordError if it is not a coordinator's; the state stays."""
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
        """As `ReplayedGroups.take_up`."""
        if read.key:
            read_transaction(read.key, read.value)
            self.coordinator.replay(read.key, read.value)


GROUPS_TOPIC = "__consumer_offsets"

_MOST_PROBLEMS = 5
"""The most problems of one partition that are listed one by one."""

R = TypeVar("R", bound=ReplayedGroups | ReplayedTransactions)


class _Part(Generic[R]):
    """One partition, read up to `next_offset`, with its unread parts."""

    def __init__(self, replay: R, start_offset: int) -> None:
        self.replay = replay
        self.first_offset = start_offset
        self.next_offset = start_offset
        self.mark: FolderMark | None = None
        self.problems: list[str] = []

    def note(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) <= _MOST_PROBLEMS:
            self.problems.append(problem if len(self.problems) < _MOST_PROBLEMS else "and more")


class ReplayedTopic(Generic[R]):
    """Owned by one task. `parts` has the replay of each partition; one that can't be read is missing, and `problems`
    has the reason, and the losses of the others.
    """

    def __init__(self, topic: str, begin: Callable[[int], R]) -> None:
        """`begin` creates the replay of the partition of that number."""
        self._topic = topic
        self._begin = begin
        self._parts: dict[int, _Part[R]] = {}
        self._unread: dict[int, str] = {}

    @property
    def parts(self) -> dict[int, R]:
        return {number: part.replay for number, part in sorted(self._parts.items())}

    @property
    def problems(self) -> list[str]:
        """Errors of unread records, in words."""
        told = [f"{self._topic}-{number}: {problem}" for number, problem in sorted(self._unread.items())]
        for number, part in sorted(self._parts.items()):
            told += [f"{self._topic}-{number}: {problem}" for problem in part.problems]
        return told

    def refresh(self, logs: LogFigures) -> Iterator[tuple[int, int]]:
        """Reads new records; yields the number of partitions done, and their total."""
        numbers = logs.reader.topics.get(self._topic, [])
        for gone in (self._parts.keys() | self._unread.keys()) - set(numbers):
            self._parts.pop(gone, None)
            self._unread.pop(gone, None)
        for done, number in enumerate(numbers, 1):
            try:
                self._refresh(number, logs)
                self._unread.pop(number, None)
            except PlogError as error:
                self._parts.pop(number, None)  # a partial state is wrong
                self._unread[number] = error.message
            yield done, len(numbers)

    def _refresh(self, number: int, logs: LogFigures) -> None:
        partition = TopicPartition(self._topic, number)
        mark = logs.mark(partition)
        part = self._parts.get(number)
        if part is not None and part.mark == mark:
            return
        with closing(logs.reader.open(partition)) as log:
            if part is None or not part.first_offset <= log.start_offset or log.end_offset < part.next_offset:
                part = _Part(self._begin(number), log.start_offset)
            self._take_up(part, log, partition)
        part.mark = mark
        self._parts[number] = part

    def _take_up(self, part: _Part[R], log: PartitionReader, partition: TopicPartition) -> None:
        def note(hole: Hole) -> None:
            part.note(str(hole.error()))

        def note_undecodable(batch: Batch, error: CorruptRecordError) -> None:
            part.note(undecodable(partition, batch, error, find_file(log, batch)).message)

        end_offset = log.end_offset
        batches = log.read(part.next_offset, end_offset, read_committed=False, with_control=True, on_hole=note)
        for fields in newest_records(batches, note_undecodable):
            try:
                part.replay.take_up(ReadRecord(*fields))
            except CorruptRecordError as error:
                part.note(f"offset {fields[-1]}: a record is passed over: {error}")
        part.next_offset = end_offset


def key_ending(group_id: str, partition: TopicPartition) -> bytes:
    """Writes an `OffsetCommitKey` without its type, which may be one of two."""
    texts = [text.encode() for text in (group_id, partition.topic)]
    return b"".join(len(text).to_bytes(2) + text for text in texts) + partition.partition.to_bytes(4)
