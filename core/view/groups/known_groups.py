"""Finds the consumer groups that `plog inspect` shows: a server's (`ServerGroups`), or those of files (`FileGroups`).

Of a data directory, __consumer_offsets is read; no broker is asked, and none is opened. It shows what `plog group list`
and `plog group describe` show for the same directory, for the coordinator's own code takes up the records and describes
the groups. It shows the members that were written last; nobody knows whether they still run.

`CommitHistory` has the commits of one group for one partition that __consumer_offsets still holds: reading rate and
lag. A cleaner keeps only the last one, so these are the commits since its last run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from core.client.admin.group_admin import (
    GroupAdmin,
    GroupDescription,
    GroupOffset,
    ListedGroup,
    classic_description,
    consumer_description,
)
from core.client.net.kafka_client import KafkaClient
from core.client.read.group_offset_reset import (
    GroupPartition,
    LogBounds,
    Offsets,
    find_lags,
    find_log_bounds,
    find_timestamps,
    group_partitions,
    partitions_of,
)
from core.common.clock import Clock, SystemClock
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.coordinator.consumer_group import ConsumerGroup
from core.coordinator.group_coordinator import Group, GroupCoordinator
from core.coordinator.group_description import describe_classic_group, describe_consumer_group
from core.coordinator.group_record_values import read_record
from core.forensics.batch_location import find_file, undecodable
from core.forensics.missing_offsets import Hole
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.inspector.stats.trace import with_key
from core.protocol.schema.group_records import OffsetCommitKey, OffsetCommitValue
from core.records.batches import Batch
from core.view.groups.replayed_topic import GROUPS_TOPIC, ReplayedGroups, ReplayedTopic, key_ending
from core.view.target.inspect_target import InspectTarget
from core.view.target.live_server import ServerOrFiles
from core.view.target.log_figures import FolderMark, LogFigures, open_logs

_MOST_COMMITS = 1000
_MOST_LAGS = 100
"""The limit of computed lags: each needs a look into the time index, and one at the batch there."""


class Commit(NamedTuple):
    """`offset` is None if the group's offset was deleted. `rate` is the number of offsets a second since the commit
    before; `lag` counts offsets up to the log's end at that time, by its records' timestamps, or is None if that is
    unknown. Times are in ms.
    """

    time_ms: int
    offset: int | None
    metadata: str = ""
    rate: float | None = None
    lag: int | None = None


class CommitHistory:
    """Owned by one task. The last 1,000 commits are kept, the oldest first."""

    def __init__(self, logs: LogFigures, group_id: str, partition: TopicPartition) -> None:
        self._logs = logs
        self._group_id = group_id
        self._partition = partition
        self._commits: deque[Commit] = deque(maxlen=_MOST_COMMITS)
        self.count = 0
        """The number of commits read."""
        self.problems: list[str] = []
        """Reasons why commits may be missing."""

    @property
    def commits(self) -> list[Commit]:
        return list(self._commits)

    def read(self, number: int) -> Iterator[None]:
        """Reads that partition of __consumer_offsets in steps; its errors go to `problems`."""
        stored = TopicPartition(GROUPS_TOPIC, number)
        try:
            with closing(self._logs.reader.open(stored)) as log:
                yield from self._read(stored, log)
        except PlogError as error:
            self.problems.append(f"{stored}: {error.message}")

    def _read(self, stored: TopicPartition, log: PartitionReader) -> Iterator[None]:
        def note(hole: Hole) -> None:
            self.problems.append(f"{stored}: {hole.error()}")

        def note_undecodable(batch: Batch, error: CorruptRecordError) -> None:
            self.problems.append(undecodable(stored, batch, error, find_file(log, batch)).message)

        batches = log.read(log.start_offset, log.end_offset, on_hole=note)
        for columns in with_key(batches, key_ending(self._group_id, self._partition), note_undecodable, is_whole=False):
            for row, timestamp in enumerate(columns.timestamps.tolist()):
                self._take_up(columns.key(row) or b"", columns.value(row), timestamp)
            yield

    def _take_up(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        try:
            read = read_record(key, value)
        except CorruptRecordError:
            return
        if read is None or not isinstance(read[0], OffsetCommitKey):
            return
        if (read[0].group, read[0].topic, read[0].partition) != (self._group_id, *self._partition):
            return
        if not isinstance(read[1], OffsetCommitValue):
            self._append(Commit(timestamp, None))
            return
        committed = read[1]
        before = self._commits[-1] if self._commits else None
        rate = None
        if before is not None and before.offset is not None and committed.commit_timestamp > before.time_ms:
            seconds = (committed.commit_timestamp - before.time_ms) / 1000
            rate = (committed.offset - before.offset) / seconds
        self._append(Commit(committed.commit_timestamp, committed.offset, committed.metadata, rate))

    def _append(self, commit: Commit) -> None:
        self._commits.append(commit)
        self.count += 1

    def add_lags(self) -> Iterator[None]:
        """Finds the log's ends at the times of the last commits, in steps; leaves them unknown if it can't be read."""
        try:
            with closing(self._logs.reader.open(self._partition)) as log:
                for at in range(max(len(self._commits) - _MOST_LAGS, 0), len(self._commits)):
                    commit = self._commits[at]
                    if commit.offset is not None:
                        later = log.find_offset_by_timestamp(commit.time_ms + 1)
                        end = log.end_offset if later is None else later
                        self._commits[at] = commit._replace(lag=max(end - commit.offset, 0))
                    yield
        except PlogError as error:
            self.problems.append(f"how far the log reached then is not known: {error.message}")


class ServerGroups:
    """A server's groups; owned by one task. Each method may raise PlogError; a KafkaError is about that group only."""

    problems: list[str] = []  # noqa: RUF012 - never changed: a server answers as a whole, or not

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        admin = GroupAdmin(client)
        self.list_groups, self.describe, self.offsets = admin.list_groups, admin.describe, admin.offsets

    def refresh(self) -> Iterator[tuple[int, int]]:
        """Looks again; yields the steps done, and their total."""
        yield 1, 1  # each answer is the present one

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        wanted = sorted(partitions)
        try:
            return find_log_bounds(self._client, wanted)
        except KafkaError as error:
            if len(wanted) == 1:
                return {wanted[0]: LogBounds(None, None, error.message)}
        middle = len(wanted) // 2  # so that one that is refused does not hide the others
        return {**self.bounds(wanted[:middle]), **self.bounds(wanted[middle:])}

    def timestamps_at(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns the timestamp of the first record from each offset on, if there is one."""
        return find_timestamps(self._client, offsets)


_BATCHES_LOOKED_AT = 3
"""The most batches in which a record is searched, as in `core.client.read.group_offset_reset`."""


class FileGroups:
    """The groups of files, with the methods of `ServerGroups`; owned by one task."""

    def __init__(self, logs: LogFigures, clock: Clock) -> None:
        self.logs = logs
        self._clock = clock
        self._topic = ReplayedTopic(GROUPS_TOPIC, lambda number: ReplayedGroups(number, clock))
        self._timestamps: dict[TopicPartition, tuple[FolderMark, int, int | None]] = {}

    def refresh(self) -> Iterator[tuple[int, int]]:
        self.logs.look_again()
        yield from self._topic.refresh(self.logs)

    @property
    def problems(self) -> list[str]:
        """Errors of the groups that could not be read."""
        if GROUPS_TOPIC not in self.logs.reader.topics:
            return [f"{self.logs.reader.root} has no {GROUPS_TOPIC}, in which groups are kept"]
        return [*filter(None, [self.logs.problem]), *self._topic.problems]

    # --- groups

    def list_groups(self) -> list[ListedGroup]:
        found = {
            group.group_id: ListedGroup(group.group_id, group.protocol_type, str(group.state), _type_of(group))
            for coordinator in self._coordinators
            for group in coordinator.groups.values()
        }
        return [found[group_id] for group_id in sorted(found)]

    def describe(self, group_id: str) -> GroupDescription:
        coordinator = self._coordinator_of(group_id)
        if coordinator is None:
            known = [group.group_id for group in self.list_groups()]
            hint = did_you_mean(group_id, known) or "plog group list"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", hint=hint)
        topics = self.logs.directory_topics
        node_id = -1 if topics is None else topics.node_id
        group = coordinator.groups[group_id]
        if not isinstance(group, ConsumerGroup):
            return classic_description(describe_classic_group(group), node_id)
        by_id = {} if topics is None else topics.image.topics_by_id
        return consumer_description(describe_consumer_group(group, by_id), node_id)

    def offsets(self, group_id: str) -> Offsets:
        coordinator = self._coordinator_of(group_id)
        if coordinator is None:
            return {}
        return {
            partition: GroupOffset(committed.offset, committed.metadata)
            for partition, committed in coordinator.offsets(group_id).items()
        }

    def numbers_of(self, group_id: str) -> list[int]:
        """Returns the partitions of __consumer_offsets that know the group: one, as a rule."""
        return [number for number, part in self._topic.parts.items() if group_id in part.coordinator.groups]

    @property
    def _coordinators(self) -> list[GroupCoordinator]:
        return [part.coordinator for part in self._topic.parts.values()]

    def _coordinator_of(self, group_id: str) -> GroupCoordinator | None:
        return next((one for one in self._coordinators if group_id in one.groups), None)

    # --- how far they are

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogBounds]:
        found = {partition: self.logs.of(partition) for partition in partitions}
        return {p: LogBounds(one.start_offset, one.end_offset, one.problem) for p, one in found.items()}

    def timestamps_at(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        found = {partition: self._timestamp_at(partition, offset) for partition, offset in offsets.items()}
        return {partition: timestamp for partition, timestamp in found.items() if timestamp is not None}

    def _timestamp_at(self, partition: TopicPartition, offset: int) -> int | None:
        """Returns the timestamp of the first record from the offset on, or None if it has none, or can't be read."""
        try:
            mark = self.logs.mark(partition)
            known = self._timestamps.get(partition)
            if known is None or known[:2] != (mark, offset):
                known = self._timestamps[partition] = (mark, offset, self._read_timestamp(partition, offset))
        except PlogError:
            return None
        return known[2]

    def _read_timestamp(self, partition: TopicPartition, offset: int) -> int | None:
        with closing(self.logs.reader.open(partition)) as log:
            batches = log.read(
                offset, log.end_offset, read_committed=False, with_control=True, on_hole=lambda _hole: None
            )
            for _, batch in zip(range(_BATCHES_LOOKED_AT), batches, strict=False):
                if batch.is_control:
                    continue
                try:
                    found = next((r.timestamp for r in batch.records() if r.offset >= offset), -1)
                except CorruptRecordError:
                    continue
                if found >= 0:
                    return found
        return None


GroupSource = ServerGroups | FileGroups


def _type_of(group: Group) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


_STEP_MS = 250
"""The pause between progress reports of slow reads."""


class GroupSummary(NamedTuple):
    """A group in a list. `members`, `partitions` and `lag`, in records, are None while they are unknown or unavailable;
    `problem` gives the reason, or the partitions without a known lag.
    """

    group_id: str
    state: str
    type: str
    protocol_type: str
    members: int | None = None
    partitions: int | None = None
    lag: int | None = None
    problem: str = ""
    lags: tuple[tuple[TopicPartition, int], ...] = ()
    """The lag in records of each partition for which it is known."""


class GroupListing(NamedTuple):
    """The groups as far as they are known; complete after `done` of `total` steps. `problems` says what is missing."""

    groups: list[GroupSummary]
    done: int
    total: int
    problems: list[str]

    @property
    def is_whole(self) -> bool:
        return self.done >= self.total


class GroupView(NamedTuple):
    """One group, as `plog group describe` shows it. `lag` is the sum of the known ones."""

    group: GroupDescription
    rows: list[GroupPartition]
    problems: list[str]

    @property
    def lag(self) -> int | None:
        known = [max(row.lag, 0) for row in self.rows if row.lag is not None]
        return sum(known) if known else None


class History(NamedTuple):
    """A group's commits for a partition that __consumer_offsets still holds, the oldest first: the last of `total`. A
    server has none to show; then, and if some can't be read, `problem` says why.
    """

    commits: list[Commit]
    problem: str = ""
    total: int = 0
    is_whole: bool = True


class KnownGroups(ServerOrFiles[ServerGroups, FileGroups]):
    """Owned by one task, with files and connections of its own. Every method raises ConnectionFailedError if the server
    can't be reached, and AccessError if the directory is gone; called again, it tries again.
    """

    def __init__(self, inspected: InspectTarget, clock: Clock | None = None, *, logs: LogFigures | None = None) -> None:
        """`logs` are the directory's, if the caller has them open."""
        self._clock = clock or SystemClock()
        super().__init__(inspected, ServerGroups, self._open_files)
        self._logs = logs
        self._summaries: dict[str, GroupSummary] = {}
        self._history: tuple[object, History] = (None, History([]))  # the last one, after its marks

    def _open_files(self, reader: DirectoryReader) -> FileGroups:
        self._logs = self._logs or open_logs(reader, self._clock)
        return FileGroups(self._logs, self._clock)

    # --- the list

    def list_groups(self) -> GroupListing:
        *_, listing = self.steps()
        return listing

    def steps(self) -> Iterator[GroupListing]:
        """Yields the list as it becomes known: ids and states first, then the figures; old figures stand there until
        new ones come.
        """
        with self._asked() as source:
            yield from self._steps(source)

    def _steps(self, source: GroupSource) -> Iterator[GroupListing]:
        shown_ms = self._clock.monotonic_ms()
        for done, of in source.refresh():
            if self._clock.monotonic_ms() - shown_ms >= _STEP_MS:
                shown_ms = self._clock.monotonic_ms()
                found = [self._known(group) for group in source.list_groups()]
                yield GroupListing(found, done, of + max(len(found), 1), source.problems)
        summaries = {group.group_id: self._known(group) for group in source.list_groups()}
        total = len(summaries)
        yield GroupListing(list(summaries.values()), 0, total, source.problems)
        waiting: dict[str, Offsets] = {}
        for done, group_id in enumerate(list(summaries), 1):
            self._describe_into(summaries, waiting, source, group_id)
            if done == total or self._clock.monotonic_ms() - shown_ms >= _STEP_MS:
                _add_lags(summaries, waiting, source)
                waiting.clear()
                shown_ms = self._clock.monotonic_ms()
                yield GroupListing(list(summaries.values()), done, total, source.problems)
        self._summaries = summaries

    def _known(self, group: ListedGroup) -> GroupSummary:
        before = self._summaries.get(group.group_id) or GroupSummary(group.group_id, "", "", "")
        return before._replace(state=group.state, type=group.type.lower(), protocol_type=group.protocol_type)

    def _describe_into(
        self, summaries: dict[str, GroupSummary], waiting: dict[str, Offsets], source: GroupSource, group_id: str
    ) -> None:
        summary = summaries[group_id]
        try:
            group, committed = source.describe(group_id), source.offsets(group_id)
        except KafkaError as error:
            summaries[group_id] = summary._replace(problem=error.message)
            return
        count = len(partitions_of(group, committed))
        summaries[group_id] = summary._replace(state=group.state, members=len(group.members), partitions=count)
        waiting[group_id] = committed

    # --- one group

    def describe(self, group_id: str) -> GroupView:
        """Raises KafkaError(GROUP_ID_NOT_FOUND) if the group does not exist."""
        with self._asked() as source:
            for _ in source.refresh():
                pass
            group, committed = source.describe(group_id), source.offsets(group_id)
            bounds = source.bounds(partitions_of(group, committed))
            rows = group_partitions(group, committed, bounds, source.timestamps_at, self._clock.now_ms())
            return GroupView(group, rows, source.problems)

    def history(self, group_id: str, partition: TopicPartition) -> Iterator[History]:
        """Yields the commits of a group for a partition, more with each step."""
        with self._asked() as source:
            if isinstance(source, ServerGroups):
                yield History([], "not known from a server: it keeps the last commit alone")
                return
        for _ in source.refresh():
            pass
        of = (group_id, partition, *_marks(source, group_id, partition))
        if self._history[0] == of:
            yield self._history[1]
            return
        history = History([])
        for history in _history(source, group_id, partition):
            yield history
        self._history = (of, history)


def _marks(source: FileGroups, group_id: str, partition: TopicPartition) -> list[object]:
    marks: list[object] = []
    for one in (*(TopicPartition(GROUPS_TOPIC, number) for number in source.numbers_of(group_id)), partition):
        try:
            marks.append(source.logs.mark(one))
        except PlogError as error:
            marks.append(error.message)
    return marks


def _history(source: FileGroups, group_id: str, partition: TopicPartition) -> Iterator[History]:
    numbers = source.numbers_of(group_id)
    if not numbers:
        yield History([], f"no partition of __consumer_offsets here knows group {group_id}")
        return
    history = CommitHistory(source.logs, group_id, partition)
    for number in numbers:
        for _ in history.read(number):
            yield History(history.commits, total=history.count, is_whole=False)
    for _ in history.add_lags():
        yield History(history.commits, total=history.count, is_whole=False)
    yield History(history.commits, "; ".join(history.problems), history.count)


def _add_lags(summaries: dict[str, GroupSummary], waiting: dict[str, Offsets], source: GroupSource) -> None:
    """Asks at once for the logs of all committed partitions."""
    bounds = source.bounds({partition for committed in waiting.values() for partition in committed})
    for group_id, committed in waiting.items():
        lags, problem = find_lags(committed, bounds)
        total = sum(lags.values()) if lags else None
        summaries[group_id] = summaries[group_id]._replace(lag=total, lags=tuple(lags.items()), problem=problem)
