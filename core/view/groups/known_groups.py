"""Consumer groups, as `plog inspect` shows them: of a server, or of the files of a directory that nobody serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.client.admin.group_admin import GroupDescription, ListedGroup
from core.common.clock import Clock, SystemClock
from core.common.errors import ConnectionFailedError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.view.groups.commit_history import Commit, CommitHistory
from core.view.groups.group_files import FileGroups
from core.view.groups.group_rows import GroupPartition, GroupSource, Offsets, partitions_of
from core.view.groups.group_server import ServerGroups
from core.view.groups.replayed_topic import GROUPS_TOPIC
from core.view.target.inspect_target import InspectTarget
from core.view.target.live_server import LiveServer
from core.view.target.log_figures import LogFigures, open_logs

_STEP_MS = 250
"""How often something is shown while much is read or asked."""


class GroupSummary(NamedTuple):
    """A group in a list. `members`, `partitions` and `lag`, in records, are None while they are not known, and if they
    can't be; `problem` says why then, or of which partitions the lag is not known.
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
    """The lag in records of each partition of which it is known."""


class GroupListing(NamedTuple):
    """The groups as far as they are known: all of it after `done` of `total` steps. `problems` says what is missing."""

    groups: list[GroupSummary]
    done: int
    total: int
    problems: list[str]

    @property
    def is_whole(self) -> bool:
        return self.done >= self.total


class GroupView(NamedTuple):
    """One group: what `plog group describe` says of it. `lag` adds up those that are known."""

    group: GroupDescription
    rows: list[GroupPartition]
    problems: list[str]

    @property
    def lag(self) -> int | None:
        known = [row.lag for row in self.rows if row.lag is not None]
        return sum(known) if known else None


class History(NamedTuple):
    """What __consumer_offsets still holds of a group's commits for a partition, the oldest first: the last of `total`.
    A server has none to show, and then, or if some can't be read, `problem` says why.
    """

    commits: list[Commit]
    problem: str = ""
    total: int = 0
    is_whole: bool = True


class KnownGroups:
    """Owned by one task, with files and connections of its own. Every method raises ConnectionFailedError if the server
    can't be reached, and AccessError if the directory is gone; called again, it tries again.
    """

    def __init__(self, inspected: InspectTarget, clock: Clock | None = None, *, logs: LogFigures | None = None) -> None:
        """`logs` are the directory's, if the caller has them already."""
        self._clock = clock or SystemClock()
        self._server = LiveServer(inspected)
        self._reader = inspected.reader
        self._logs = logs
        self._source: ServerGroups | FileGroups | None = None
        self._summaries: dict[str, GroupSummary] = {}
        self._history: tuple[object, History] = (None, History([]))  # the last one, after what it was read from

    @property
    def note(self) -> str:
        """Says where the answers come from; nothing for a server that was named."""
        return self._server.note

    def close(self) -> None:
        self._server.close()

    def _find_source(self) -> ServerGroups | FileGroups:
        client = self._server.find_client()
        source = self._source
        if client is not None and not (isinstance(source, ServerGroups) and source.client is client):
            source = ServerGroups(client)
        elif client is None and not isinstance(source, FileGroups):
            assert self._reader is not None
            self._logs = self._logs or open_logs(self._reader, self._clock)
            source = FileGroups(self._logs, self._clock)
        assert source is not None
        self._source = source
        return source

    # --- the list

    def list_groups(self) -> GroupListing:
        """Gives all of them with all figures."""
        listing = GroupListing([], 0, 0, [])
        for listing in self.steps():  # noqa: B007 - the last one counts
            pass
        return listing

    def steps(self) -> Iterator[GroupListing]:
        """Gives the list as it becomes known: ids and states first, then the figures, which stand there as they were
        until there are others.
        """
        source = self._find_source()
        try:
            yield from self._steps(source)
        except ConnectionFailedError:
            self._server.forget()
            raise

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
        """Gives the group with the figures of before, if there are any."""
        before = self._summaries.get(group.group_id)
        figures = {} if before is None else before._asdict()
        return GroupSummary(
            **{
                **figures,
                "group_id": group.group_id,
                "state": group.state,
                "type": group.type.lower(),
                "protocol_type": group.protocol_type,
            }
        )

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
        """Raises KafkaError(GROUP_ID_NOT_FOUND) if there is no such group."""
        source = self._find_source()
        try:
            for _ in source.refresh():
                pass
            group = source.describe(group_id)
            return GroupView(group, source.rows(group, source.offsets(group_id)), source.problems)
        except ConnectionFailedError:
            self._server.forget()
            raise

    def history(self, group_id: str, partition: TopicPartition) -> Iterator[History]:
        """Gives the commits of a group for a partition, more with each step."""
        source = self._find_source()
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
    """Gives something that changes when the history may."""
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
    """Asks at once for the ends of all that the groups committed."""
    ends = source.ends({partition for committed in waiting.values() for partition in committed})
    for group_id, committed in waiting.items():
        lags, whys = [], []
        for partition, known in sorted(committed.items()):
            end = ends[partition]
            if end.offset is None:
                whys.append(end.problem)
            else:
                lags.append((partition, max(end.offset - known.offset, 0)))
        problem = f"the lag of {_count(len(whys))} is not known: {whys[0]}" if whys else ""
        total = sum(lag for _, lag in lags) if lags else None
        summaries[group_id] = summaries[group_id]._replace(lag=total, lags=tuple(lags), problem=problem)


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions != 1)}"
