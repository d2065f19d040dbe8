"""The figures of all topics that need no records: the first screen of `plog inspect`.

They come in steps: names first, then sizes and offsets, then group lags. Old figures stand there until new ones come.

`ServerFigures` asks a cluster's brokers about many topics at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.net.kafka_client import KafkaClient, TopicInfo
from core.common.clock import Clock, SystemClock
from core.common.errors import ConnectionFailedError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.log.damaged_ranges import DAMAGED_OFFSETS, parse_damaged_offsets
from core.view.target.inspect_target import InspectTarget
from core.view.target.live_server import ServerOrFiles
from core.view.target.log_figures import LogFigures, PartitionFigures, open_logs

if TYPE_CHECKING:
    from core.view.groups.known_groups import GroupListing, KnownGroups


_PARTITIONS_AT_ONCE = 500


class ServerFigures:
    """A server's figures; owned by one task. Its methods may raise PlogError."""

    problem = ""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._topics: dict[str, TopicInfo] = {}
        self._asked: dict[str, Mapping[int, PartitionFigures] | KafkaError] = {}

    @property
    def topics(self) -> dict[str, list[int]]:
        return {name: sorted(topic.partitions) for name, topic in self._topics.items()}

    def look_again(self) -> None:
        self._asked = {}
        self._topics = self._client.refresh()

    def of_topic(self, topic: str, numbers: list[int]) -> Mapping[int, PartitionFigures]:  # noqa: ARG002
        """Asks for this topic and the next ones, and keeps the answers for the next calls. Raises KafkaError if the
        topic is refused.
        """
        if topic not in self._asked:
            self._ask_from(topic)
        found = self._asked.pop(topic)
        if isinstance(found, KafkaError):
            raise found
        return found

    def _ask_from(self, topic: str) -> None:
        names: list[str] = []
        count = 0
        waiting = sorted(name for name in self._topics if name >= topic)
        for name in waiting:
            names.append(name)
            count += len(self._topics[name].partitions)
            if count >= _PARTITIONS_AT_ONCE:
                break
        try:
            self._asked.update(self._ask(names))
        except KafkaError:  # one topic that is refused must not hide the others
            for name in names:
                try:
                    self._asked.update(self._ask([name]))
                except KafkaError as error:
                    self._asked[name] = error

    def _ask(self, names: list[str]) -> dict[str, Mapping[int, PartitionFigures]]:
        admin = Admin(self._client)
        infos = {
            TopicPartition(name, number): info
            for name in names
            for number, info in self._topics[name].partitions.items()
        }
        led = [partition for partition, info in infos.items() if info.leader >= 0]
        starts = admin.list_offsets(dict.fromkeys(led, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(led, LATEST))
        sizes = admin.log_sizes(infos)
        damaged = self._damaged(admin, names)
        return {
            name: {
                number: PartitionFigures(
                    starts.get(TopicPartition(name, number)),
                    ends.get(TopicPartition(name, number)),
                    sizes.get(TopicPartition(name, number)),
                    tuple(f"{first}-{last}" for first, last in damaged.get(name, {}).get(number, ())),
                    "" if info.leader >= 0 else "it has no leader",
                )
                for number, info in sorted(self._topics[name].partitions.items())
            }
            for name in names
        }

    def _damaged(self, admin: Admin, names: list[str]) -> dict[str, dict[int, list[tuple[int, int]]]]:
        """Asks plog's brokers for known damage; other brokers do not have that setting."""
        try:
            found = admin.find_topic_setting(names, DAMAGED_OFFSETS)
        except KafkaError:
            return {}
        return {name: parse_damaged_offsets(text) for name, text in found.items() if text}


_STEP_MS = 100
"""The pause between progress reports of slow reads."""


class TopicRow(NamedTuple):
    """A topic. `records` is an upper bound: offsets from start to end. Rates are those of appends since the last look.
    Unknown values are None; `problem` says why they are unavailable. `damaged` is as in `plog topic describe`, with the
    partition in front.
    """

    topic: str
    partitions: int
    size_bytes: int | None = None
    records: int | None = None
    records_per_s: float | None = None
    bytes_per_s: float | None = None
    damaged: tuple[str, ...] = ()
    groups_behind: int | None = None
    largest_lag: int | None = None
    problem: str = ""


class TopicListing(NamedTuple):
    """The topics by name, as far as they are known; complete if `is_whole`. `problems` says what is missing."""

    rows: list[TopicRow]
    is_whole: bool
    problems: list[str]


class _Sample(NamedTuple):
    at_us: int
    figures: Mapping[int, PartitionFigures]


class TopicFigures(ServerOrFiles[ServerFigures, LogFigures]):
    """The figures of a server's topics, or of a directory's files, or of a partition's folder alone; owned by one task,
    with files and connections of its own.
    """

    def __init__(self, inspected: InspectTarget, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        read = partial(open_logs, clock=self._clock)
        super().__init__(inspected, ServerFigures, read, asks_owner=False)
        self._groups: KnownGroups | None = None
        self._rows: dict[str, TopicRow] = {}
        self._samples: dict[str, _Sample] = {}

    def close(self) -> None:
        super().close()
        if self._groups is not None:
            self._groups.close()

    def steps(self) -> Iterator[TopicListing]:
        """Looks again, and yields listings that are more complete with each step. Raises ConnectionFailedError if the
        server can't be reached, AccessError if the directory is gone.
        """
        with self._asked() as source:
            yield from self._steps(source)

    def _steps(self, source: ServerFigures | LogFigures) -> Iterator[TopicListing]:
        source.look_again()
        topics, reader = source.topics, self.inspected.reader
        if reader is not None and reader.directory != reader.root:
            topics = reader.topics
        self._rows = {
            name: self._rows.get(name, TopicRow(name, 0))._replace(partitions=len(topics[name]))
            for name in sorted(topics, key=lambda name: (name.startswith("__"), name))
        }
        self._samples = {name: sample for name, sample in self._samples.items() if name in topics}
        yield self._listing()
        shown_ms = self._clock.monotonic_ms()
        for name in list(self._rows):
            self._look_at(source, name, topics[name])
            if self._clock.monotonic_ms() - shown_ms >= _STEP_MS:
                yield self._listing()
                shown_ms = self._clock.monotonic_ms()
        yield self._listing()
        yield from self._look_at_groups(source)

    def _listing(self, *, is_whole: bool = False, problems: list[str] | None = None) -> TopicListing:
        own = [self._source.problem] if self._source is not None and self._source.problem else []
        return TopicListing(list(self._rows.values()), is_whole=is_whole, problems=[*own, *(problems or ())])

    # --- logs

    def _look_at(self, source: ServerFigures | LogFigures, topic: str, numbers: list[int]) -> None:
        try:
            figures = source.of_topic(topic, numbers)
        except ConnectionFailedError:
            raise
        except PlogError as error:
            self._rows[topic] = self._rows[topic]._replace(problem=error.message)
            return
        sample = _Sample(self._clock.monotonic_us(), figures)
        before = self._samples.get(topic)
        self._samples[topic] = sample
        known = [one for one in figures.values() if one.size_bytes is not None]
        ends = [
            one.end_offset - one.start_offset
            for one in figures.values()
            if one.start_offset is not None and one.end_offset is not None
        ]
        problems = [f"partition {number}: {one.problem}" for number, one in figures.items() if one.problem]
        self._rows[topic] = self._rows[topic]._replace(
            size_bytes=sum(one.size_bytes or 0 for one in known) if known else None,
            records=sum(ends) if ends else None,
            records_per_s=_rate(before, sample, "end_offset"),
            bytes_per_s=_rate(before, sample, "size_bytes"),
            damaged=tuple(f"{number}: {text}" for number, one in figures.items() for text in one.damaged),
            problem=_summed_up(problems),
        )

    # --- groups

    def _look_at_groups(self, source: ServerFigures | LogFigures) -> Iterator[TopicListing]:
        """Counts, for each topic, the groups with lag; for none, with the reason, if that fails."""
        if "__consumer_offsets" not in self._rows:
            yield self._listing(is_whole=True)
            return
        if self._groups is None:
            from core.view.groups.known_groups import KnownGroups  # which many directories do without

            logs = source if isinstance(source, LogFigures) else None
            self._groups = KnownGroups(self.inspected, self._clock, logs=logs)
        found: GroupListing | None = None
        try:
            for found in self._groups.steps():  # noqa: B007 - the last one counts
                yield self._listing()
        except PlogError as error:
            yield self._listing(is_whole=True, problems=[f"who is behind is not known: {error.message}"])
            return
        assert found is not None
        counts, largest = _behind(found)
        for name, row in self._rows.items():
            self._rows[name] = row._replace(groups_behind=counts.get(name, 0), largest_lag=largest.get(name))
        yield self._listing(is_whole=True, problems=found.problems)


def _rate(before: _Sample | None, sample: _Sample, name: str) -> float | None:
    """Returns the appends to all partitions per second; retention subtracts nothing. Returns None at the first look."""
    if before is None or sample.at_us <= before.at_us:
        return None
    grown = 0
    for number, one in sample.figures.items():
        was, now = getattr(before.figures.get(number), name, None), getattr(one, name)
        if was is not None and now is not None:
            grown += max(now - was, 0)
    return grown * 1_000_000 / (sample.at_us - before.at_us)


def _summed_up(problems: list[str]) -> str:
    if len(problems) < 2:
        return "".join(problems)
    return f"{problems[0]}; and {len(problems) - 1} more"


def _behind(found: GroupListing) -> tuple[dict[str, int], dict[str, int]]:
    """Returns, by topic, the number of groups with lag, and the largest lag of a group."""
    counts: dict[str, int] = defaultdict(int)
    largest: dict[str, int] = {}
    for group in found.groups:
        of_group: dict[str, int] = defaultdict(int)
        for partition, lag in group.lags:
            of_group[partition.topic] += lag
        for topic, lag in of_group.items():
            counts[topic] += lag > 0
            largest[topic] = max(largest.get(topic, 0), lag)
    return counts, largest
