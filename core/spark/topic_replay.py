"""Replays ranges of offsets into a topic, exactly once: by transactions that say how far they came.

Each partition of the source is a lane, with a transactional id and a consumer group of that name:

    plog-replay-<id>-<topic>-<partition>     committed offset: the source's, up to where records are in the topic
                                             metadata: its `LanePlan`, {"start": 0, "end": 180, "topic_id": "..",
                                             "groups": {}, "lanes": 6, "is_lacking": false}

`<id>` is a digest of the request, so that the same command finds its lanes again, also with `--allow-loss`. A task goes
through a lane's ranges in order; the records of one are a transaction, and its end offset is committed with them.
Another task that takes the lane over fences the first. A lane's plan is written before any of its records. A replay
that begins at a group's offsets is a job that is run again and again: its lanes keep their plan until it is done and
the group is at its end; then they are planned again, from there. With `--continue` a lane that is done is planned again
from its own end. That is done in a transaction of the lane, so that it fences whatever still works in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.admin.group_admin import GroupAdmin, GroupOffset
from core.client.net.kafka_client import KafkaClient
from core.client.write.transactional_producer import TransactionalProducer
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.forensics.missing_offsets import offsets_are
from core.spark.cluster_access import connect
from core.spark.group_commit import CommitNote, Notes
from core.spark.offset_range import OffsetRange, ensure_allowed, read_range
from core.spark.range_output import OutputFormat
from core.spark.records_to_send import RecordCutter
from core.spark.replay_plan import ReplayPlan
from core.spark.spark_session import run_interruptibly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = ("key", "value", "partition", "timestamp", "headers")
_TIMEOUT_MS = 15 * 60_000


@dataclass(frozen=True, slots=True)
class LanePlan:
    """The metadata of a lane's offset: it is planned from `start` to `end`. `groups`: those that its end was committed
    to; `lanes`: how many the first plan had; `is_lacking`: the log had lost records of it, which were left out. Plans
    of earlier releases have neither groups nor lanes.
    """

    start: int
    end: int
    topic_id: str
    groups: dict[str, CommitNote] = field(default_factory=dict)
    lanes: int = 0
    is_lacking: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition of the source. `name`: of the transactional id and the group; `done_offset`: up to there its
    records are in the topic.
    """

    name: str
    partition: TopicPartition
    plan: LanePlan
    ranges: tuple[OffsetRange, ...]
    done_offset: int

    @property
    def missing(self) -> list[OffsetRange]:
        return [range_ for range_ in self.ranges if range_.end_offset > self.done_offset]

    @property
    def is_done(self) -> bool:
        return self.done_offset >= self.plan.end

    def as_planned(self, found: GroupOffset) -> Lane:
        """Returns the lane as its committed offset says, with the present ranges."""
        planned = _planned(self.name, found)
        inside = _within(self.ranges, planned.start, planned.end)
        if self.ranges and not self.ranges[0].fails_if_gone:
            inside = _from(inside, self.ranges[0], found.offset, planned.end)
        return replace(self, plan=planned, ranges=inside, done_offset=found.offset)

    def at(self, found: GroupOffset) -> Lane:
        """Returns the lane with the progress of its committed offset."""
        plan = replace(self.plan, is_lacking=_planned(self.name, found).is_lacking)
        return replace(self, plan=plan, done_offset=found.offset)

    @property
    def metadata(self) -> str:
        """Returns the metadata that is committed with the offset."""
        return json.dumps(asdict(self.plan))


class TopicReplay:
    """Replays into one topic; owned by one task."""

    def __init__(self, servers: str, topic: str, access: str = "") -> None:
        """Takes `access` as `cluster_access.connect` does."""
        self.servers = servers
        self.topic = topic
        self.access = access

    def connect(self) -> KafkaClient:
        return connect(self.servers, self.access)

    def find_progress(self, request: Mapping[str, Any]) -> ReplayPlan | None:
        """Returns a plan that ends where the lanes are, for the next one to go on from; None if the request is new, or
        if a first run did not come to write all lanes' plans. Raises PlogError for a request without lanes if the topic
        has records: the cluster may have forgotten the lanes. KafkaError if the topic is not there.
        """
        prefix = _prefix_of(request)
        with contextlib.closing(self.connect()) as client:
            count = len(client.topic(self.topic).partitions)
            admin = GroupAdmin(client)
            names = [group.group_id for group in admin.list_groups() if group.group_id.startswith(prefix)]
            found = {name: offset for name in names if (offset := admin.offsets(name).get(self._place)) is not None}
            partitions = [TopicPartition(self.topic, number) for number in range(count)]
            offsets = [Admin(client).list_offsets(dict.fromkeys(partitions, bound)) for bound in (EARLIEST, LATEST)]
        if not found and offsets[0] != offsets[1]:
            raise PlogError(
                f"{self.topic} has records, and its cluster has no offsets of this replay: --continue would write them "
                "once more, if they were forgotten",
                hint="a cluster has them for the same command alone (topics, options, addresses), and forgets them "
                "offsets.retention.minutes after its last run; for a first run into a topic with other records: the "
                "same command without --continue",
            )
        planned = {name: _planned(name, offset) for name, offset in found.items()}
        if not found or len(found) < min(lane.lanes for lane in planned.values()):
            return None
        ends, topic_ids = [], {}
        for name, offset in found.items():
            topic, _, number = name.removeprefix(prefix).rpartition("-")
            ends.append((topic, int(number), offset.offset))
            if topic_id := planned[name].topic_id:
                topic_ids[topic] = topic_id
        output = OutputFormat("topic", "binary", "binary")
        return ReplayPlan(dict(request), (), output, topic_ids=topic_ids, ends=tuple(sorted(ends)))

    def freeze(self, plan: ReplayPlan, *, goes_on: bool = False) -> list[Lane]:
        """Writes the lanes' plans, or reads those that were written before; returns the lanes of partitions that have
        records. With `goes_on` lanes that are done are planned again up to the plan's end, and all are returned. Raises
        PlogError if the topic is not the same any more, or the group to begin from was set back to what is replayed;
        KafkaError if the topic to write to is not there.
        """
        from_group = plan.request.get("from_group", "")
        prefix = _prefix_of(plan.request)
        ends = plan.next_offsets
        by_partition: dict[TopicPartition, list[OffsetRange]] = {partition: [] for partition in ends}
        for range_ in plan.ranges:
            by_partition[range_.topic_partition].append(range_)
        with contextlib.closing(self.connect()) as client:
            client.topic(self.topic)
            admin = GroupAdmin(client)
            lanes = []
            for partition, ranges in sorted(by_partition.items()):
                start = ranges[0].start_offset if ranges else ends[partition]
                topic_id = plan.topic_ids.get(partition.topic, "")
                planned = LanePlan(start, ends[partition], topic_id, lanes=len(ends))
                new = Lane(f"{prefix}{partition}", partition, planned, tuple(ranges), start)
                lane = self._freeze_lane(admin, new, from_group, goes_on=goes_on)
                if ranges or goes_on:
                    lanes.append(lane)
        return lanes

    def _freeze_lane(self, admin: GroupAdmin, new: Lane, from_group: str, *, goes_on: bool) -> Lane:
        found = admin.offsets(new.name).get(self._place)
        if found is None:
            self._commit(admin, new)
            return new
        if not (new.ranges or goes_on):
            return new
        partition, name = new.partition, new.name
        planned_id = _planned(name, found).topic_id
        if planned_id and new.plan.topic_id and planned_id != new.plan.topic_id:
            raise PlogError(
                f"{partition} is of another topic than when its replay began, by the topic's id",
                hint=f"plog group delete {name} forgets what was replayed",
            )
        lane = new.as_planned(found)
        if goes_on and lane.is_done:
            return self._go_on(new)
        start, groups = new.plan.start, lane.plan.groups
        if not lane.is_done:
            if not _covers(lane):
                raise PlogError(
                    f"{partition}: {offsets_are(found.offset, lane.plan.end)} still to be replayed, "
                    f"and the log has {start} to {new.plan.end} now",
                    hint=f"--allow-loss goes on with what there is; plog group delete {name} forgets what was "
                    "replayed, and begins again",
                )
            return lane
        if from_group and start >= lane.plan.end:
            self._commit(admin, new)
            return new
        if from_group in groups and groups[from_group].is_done:
            raise PlogError(
                f"group {from_group} was set back to offset {start} of {partition}, and offsets up to "
                f"{lane.plan.end} are in {self.topic} already",
                hint=f"plog group delete {name} forgets what was replayed",
            )
        return lane

    def _go_on(self, new: Lane) -> Lane:
        """Plans the next part of a lane that is done, from its end to the end of `new`, and commits that plan. Returns
        the lane as it is if it is not done, because another driver has just planned its next part. Also commits the
        plan of a lane without new records again, so that the broker keeps its offset for longer.
        """
        with contextlib.closing(TransactionalProducer(self.connect, new.name, timeout_ms=_TIMEOUT_MS)) as producer:
            with contextlib.closing(self.connect()) as client:
                found = GroupAdmin(client).stable_offsets(new.name, [self._place])[self._place]
            lane = new.as_planned(found)
            if not lane.is_done:
                return lane
            if found.offset < new.plan.end:
                groups = {group: note for group, note in lane.plan.groups.items() if not note.is_done}
                planned = replace(new.plan, start=found.offset, groups=groups, lanes=lane.plan.lanes)
                inside = _within(new.ranges, found.offset, new.plan.end)
                lane = replace(new, plan=planned, ranges=inside, done_offset=found.offset)
            producer.send_offsets(new.name, {self._place: found.offset}, lane.metadata)
            producer.commit()
        return lane

    def _commit(self, admin: GroupAdmin, lane: Lane) -> None:
        admin.commit(lane.name, {self._place: lane.done_offset}, metadata=lane.metadata)

    @property
    def _place(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def run(self, session: SparkSession, lanes: Sequence[Lane], look: Callable[[], None] = lambda: None) -> list[str]:
        """Writes what is missing, a task for each lane, and calls `look` now and then; returns what was left out.
        Raises PySparkException if a task fails.
        """
        todo = [lane for lane in lanes if lane.missing]
        servers, topic, access = self.servers, self.topic, self.access

        def write(some: Iterable[Lane]) -> Iterator[str]:
            for lane in some:
                yield from write_lane(lane, servers, topic, access)

        left_out: list[str] = []
        if todo:
            tasks = session.sparkContext.parallelize(todo, len(todo)).mapPartitions(write)
            run_interruptibly(session, lambda: left_out.extend(tasks.collect()), look)
        return left_out

    def look(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Returns the lanes with their present progress."""
        with contextlib.closing(self.connect()) as client:
            admin = GroupAdmin(client)
            found = {lane.name: admin.offsets(lane.name).get(self._place) for lane in lanes}
        return [lane if (offset := found[lane.name]) is None else lane.at(offset) for lane in lanes]

    def note_commits(self, lanes: Sequence[Lane], group: str, notes: Notes) -> None:
        """Adds notes about commits to a group to the lanes, which are done."""
        noted = {lane.partition: lane for lane in lanes if lane.partition in notes}
        with contextlib.closing(self.connect()) as client:
            admin = GroupAdmin(client)
            for partition, lane in noted.items():
                planned = replace(lane.plan, groups={**lane.plan.groups, group: notes[partition]})
                self._commit(admin, replace(lane, plan=planned, done_offset=planned.end))


def _prefix_of(request: Mapping[str, Any]) -> str:
    """Returns what the names of the request's lanes begin with."""
    request = dict(request)  # the same with and without --allow-loss: no record is to be replayed again
    if "allow_loss" in request:
        request["allow_loss"] = False
    return f"plog-replay-{hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]}-"


def _planned(name: str, found: GroupOffset) -> LanePlan:
    """Returns the lane's plan, as its metadata has it. Raises PlogError for an offset that somebody else committed."""
    try:
        return msgspec.json.decode(found.metadata, type=LanePlan)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise PlogError(
            f"group {name} is at offset {found.offset} and has no plan of a replay: somebody else committed to it "
            f"({error})",
            hint=f"plog group delete {name} forgets what was replayed; the same command without --continue begins "
            "again, and writes it once more",
        ) from error


def _covers(lane: Lane) -> bool:
    ranges = lane.ranges
    return bool(ranges) and ranges[0].start_offset <= lane.done_offset and ranges[-1].end_offset >= lane.plan.end


def _within(ranges: tuple[OffsetRange, ...], start: int, end: int) -> tuple[OffsetRange, ...]:
    """Returns the part of the present ranges that was planned at first."""
    inside = [range_ for range_ in ranges if range_.start_offset < end and range_.end_offset > start]
    return tuple(replace(r, start_offset=max(r.start_offset, start), end_offset=min(r.end_offset, end)) for r in inside)


def _from(ranges: tuple[OffsetRange, ...], like: OffsetRange, start: int, end: int) -> tuple[OffsetRange, ...]:
    """Returns the ranges, extended by deleted offsets before them, so that the reader reports these."""
    if not ranges:
        return (replace(like, start_offset=start, end_offset=end),) if start < end else ()
    return (replace(ranges[0], start_offset=min(start, ranges[0].start_offset)), *ranges[1:])


# --- in a task


def write_lane(lane: Lane, servers: str, topic: str, access: str = "") -> list[str]:
    """Writes the missing records of the lane, range by range; returns what was left out. Raises what `read_range`,
    `ensure_allowed` and `TransactionalProducer` raise.
    """
    reach = partial(connect, servers, access)
    with contextlib.closing(TransactionalProducer(reach, lane.name, timeout_ms=_TIMEOUT_MS)) as producer:
        place = TopicPartition(topic, 0)
        with contextlib.closing(reach()) as client:  # what it left open is ended now, and what it committed counts
            found = GroupAdmin(client).stable_offsets(lane.name, [place])[place]
        lane = replace(lane, done_offset=found.offset)
        partitions = producer.partitions(topic)
        cutter = RecordCutter(topic, lambda _: partitions)
        left_out: dict[str, None] = {}
        for range_ in lane.missing:
            start = max(range_.start_offset, lane.done_offset)
            for batch in read_range(replace(range_, start_offset=start), _COLUMNS, left_out.setdefault):
                for _, records in cutter.cut(_for_target(batch, partitions)):
                    producer.send(records, topic)
            ensure_allowed(range_, left_out)
            metadata = json.dumps(json.loads(found.metadata) | {"is_lacking": True}) if left_out else found.metadata
            producer.send_offsets(lane.name, {place: range_.end_offset}, metadata)
            producer.commit()
        return list(left_out)


def _for_target(batch: Any, partitions: int) -> Any:  # pyarrow.RecordBatch
    """Keeps the source's partition if the target topic has it; otherwise keys decide, as for a producer."""
    if len(batch) and batch.column("partition")[0].as_py() < partitions:
        return batch
    return batch.drop_columns(["partition"])
