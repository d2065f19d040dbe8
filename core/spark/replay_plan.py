"""The plan of a replay, to the offset: made once, and frozen before anything is written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from core.common.errors import AccessError, PlogError
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import PartitionReader
from core.spark.offset_range import OffsetRange
from core.spark.partition_expression import parse_partitions
from core.spark.range_output import OutputFormat
from core.spark.record_schema import COLUMNS
from core.spark.source import Offsets, ServersSource, topic_id_in

WHOLE = "all"
"""The unit of a replay of nothing; earlier releases had one unit of jobs that shuffle, too."""

_VERSION = 4
_WITHOUT_ROUNDS = 3
"""The version before Spark wrote files: units of its own code for frames, json and csv."""
_FOLDERS_IN_A_WORD = 2
"""The version whose output has one column of folders at the most, and no word of compression."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """`request`: the request in the user's words; the same request again is the same replay, however the log has
    changed. `schema`: the columns that values become, in Spark's words: given, or derived when the plan was made;
    `decoding`: a `Decoding` as JSON, {} if keys and values stay bytes; `dead_letter`: where records go that it can't
    decode; `transform`: module:function. `topic_ids` by topic, if they are known. `ends`: (topic, partition, offset)
    where the next plan begins, of each partition that was there; `number`: which plan it is of an output that grows;
    `rounds`: how many jobs of Spark's writer it takes; 0 for the own writer.
    """

    request: dict[str, Any]
    ranges: tuple[OffsetRange, ...]
    output: OutputFormat
    columns: tuple[str, ...] = COLUMNS
    schema: str = ""
    transform: str = ""
    decoding: dict[str, Any] = field(default_factory=dict)
    dead_letter: str = ""
    topic_ids: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    ends: tuple[tuple[str, int, int], ...] = ()
    number: int = 1

    @property
    def is_of_older_release(self) -> bool:
        """Whether plog's own code of an older release wrote what Spark's writer writes now."""
        is_own = self.output.kind == "parquet" and not (self.transform or self.decoding or self.schema)
        return not (self.rounds or is_own)

    @property
    def is_of_table(self) -> bool:
        """Whether the files are those of a Delta table."""
        return str(self.request.get("to")).startswith("delta:")

    @property
    def is_committed_at_end(self) -> bool:
        """Whether plog commits the files to a Delta table, at the end; else Spark commits those of each round."""
        return self.is_of_table and self.output.kind != "delta"

    @property
    def prefix(self) -> str:
        """Returns what the names of units and files that are no range's begin with: each plan has its own."""
        return "" if self.number == 1 else f"{self.number}-"

    @property
    def units(self) -> dict[str, tuple[OffsetRange, ...]]:
        """Returns the ranges of each unit, in order: of a round of Spark's writer, or one range."""
        if not self.rounds:
            return {range_.name: (range_,) for range_ in self.ranges} or {self.prefix + WHOLE: ()}
        cuts = [len(self.ranges) * n // self.rounds for n in range(self.rounds + 1)]
        return {f"{self.prefix}{n:05d}": self.ranges[cuts[n] : cuts[n + 1]] for n in range(self.rounds)}

    def reached_by(self, access: str) -> ReplayPlan:
        """Returns the plan with `access` for its servers; an empty `access` keeps that of the plan."""
        if not access:
            return self
        ranges = tuple(replace(r, access=access) if r.servers else r for r in self.ranges)
        decoding = self.decoding and self.decoding | {"access": access}
        return replace(self, ranges=ranges, decoding=decoding)

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        for range_ in self.ranges:
            ends[range_.topic_partition] = max(ends.get(range_.topic_partition, 0), range_.end_offset)
        return ends

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Returns where the next plan begins. Plans of earlier releases know only of partitions that had records."""
        return {TopicPartition(topic, number): offset for topic, number, offset in self.ends} or self.end_offsets

    def ranges_after(self, ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """Returns each partition's ranges from these offsets on; all of one without an offset."""
        later = [replace(r, start_offset=max(r.start_offset, ends.get(r.topic_partition, 0))) for r in self.ranges]
        return [range_ for range_ in later if range_.start_offset < range_.end_offset]

    def to_json(self) -> dict[str, Any]:
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ReplayPlan:
        """Raises PlogError for a plan of another version; KeyError, TypeError, ValueError for JSON that is no plan."""
        given = dict(fields)
        version = given.pop("version")
        if version == _FOLDERS_IN_A_WORD:
            by = given["output"]["partition_by"]
            given["output"] = given["output"] | {"partition_by": parse_partitions([by] if by else [])}
        elif version not in (_WITHOUT_ROUNDS, _VERSION):
            raise PlogError(
                f"the replay's plan is of version {version}, expected {_VERSION}",
                hint="another release of plog began it: finish it with that one, or replay to a new folder",
            )
        return msgspec.convert(given, cls)


def find_topic_ids(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Finds the present ids of topics that have one. Raises AccessError and ConnectionFailedError."""
    ids: dict[str, str] = {}
    for topic, range_ in {r.topic: r for r in ranges}.items():
        if range_.servers:
            with closing(_servers_of(range_)) as source:
                ids[topic] = source.topic_id(range_.topic_partition)
        else:
            ids[topic] = topic_id_in(Path(range_.directory))
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id}


class SourceChangedError(PlogError):
    """The log does not have the planned records any more: the same command does not go on."""


def ensure_source_is_the_same(plan: ReplayPlan, missing: Sequence[OffsetRange]) -> None:
    """Raises SourceChangedError if records that are still to be read are deleted, or the topic was made again;
    AccessError if the log ends before them; and what reading their bounds raises.
    """
    ensure_same_topics(plan.topic_ids, find_topic_ids(missing))
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    for range_ in missing:
        if range_.topic_partition not in bounds:
            bounds[range_.topic_partition] = _find_bounds(range_)
        _ensure_there(range_, *bounds[range_.topic_partition])


def ensure_same_topics(planned_ids: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises SourceChangedError for a topic whose id is another one; one that has none, or had none, may be any."""
    for topic, topic_id in now.items():
        planned = planned_ids.get(topic, topic_id)
        if planned != topic_id:
            raise SourceChangedError(
                f"topic {topic} was made again since the replay was planned: its id was {planned}, and is {topic_id}",
                hint="replay to a new folder",
            )


def ensure_goes_on(after: Offsets, starts: Offsets, ends: Offsets, *, fails_if_gone: bool) -> None:
    """Raises PlogError or AccessError if a log, which has the offsets from `starts` to `ends` now, does not go on at
    `after`, where the last replay ended.
    """
    for partition, offset in after.items():
        if partition not in starts:
            raise AccessError(
                f"{partition} is not there any more, and was replayed up to {offset}", where=str(partition)
            )
        if fails_if_gone and starts[partition] > offset:
            raise PlogError(
                f"{partition}: offsets from {offset} on come next, and are deleted already: the log begins at "
                f"{starts[partition]}",
                hint="replay what is left to a new folder, with --from beginning; a replay that was begun with "
                "--allow-loss goes on after them",
            )
        if ends[partition] < offset:
            raise AccessError(
                f"{partition} ends at offset {ends[partition]}, and was replayed up to {offset}",
                where=str(partition),
                hint="plog verify tells whether it is damaged; if it was cut since, replay to a new folder",
            )


def _find_bounds(range_: OffsetRange) -> tuple[int, int]:
    """Finds the start of the log of the range's partition, and the end of its readable records."""
    partition = range_.topic_partition
    if range_.servers:
        with closing(_servers_of(range_)) as source:
            return source.records.starts([partition])[partition], source.records.ends([partition])[partition]
    with closing(PartitionReader(Path(range_.directory))) as reader:
        return reader.start_offset, reader.reading.sound_end if range_.fails_if_gone else reader.end_offset


def _servers_of(range_: OffsetRange) -> ServersSource:
    return ServersSource(range_.servers, range_.access, read_committed=range_.read_committed)


def _ensure_there(range_: OffsetRange, start: int, end: int) -> None:
    if range_.fails_if_gone and start > range_.start_offset:
        raise SourceChangedError(
            f"{range_.topic_partition}: offsets from {range_.start_offset} on were planned to be replayed, and are "
            f"deleted since: the log begins at {start}",
            hint="replay what is left to a new folder, with --from beginning",
        )
    if end < range_.end_offset:
        raise AccessError(
            f"{range_.topic_partition} ends at offset {end}, and was planned to be replayed up to {range_.end_offset}",
            where=range_.directory or range_.servers,
            hint="plog verify tells whether it is damaged; if it was cut since, replay to a new folder",
        )
