"""The groups that read a topic: those that committed an offset of it, or have a member that one of its partitions is
assigned to. Their last commits are in __consumer_offsets alone: OffsetFetch has no times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from core.broker.coordinators.coordinator_log import partition_of
from core.client.admin.group_admin import GroupAdmin, GroupDescription, GroupOffset, ListedGroup
from core.client.admin.group_survey import look_at
from core.client.net.kafka_client import KafkaClient
from core.client.read.cluster_source import ClusterSource
from core.client.read.consumer import Consumer
from core.client.read.group_offset_reset import LogBounds, counted, find_lags, find_log_bounds, partitions_of
from core.client.read.record_source import ReadOptions
from core.common.errors import CorruptRecordError, KafkaError
from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import read_record
from core.protocol.schema.group_records import OffsetCommitValue
from core.records.batches import Batch, group_batches
from core.records.columns import decode_whole_batches
from core.view.groups.replayed_topic import GROUPS_TOPIC, key_ending

_REBALANCING = ("PreparingRebalance", "CompletingRebalance")
_TYPE_BYTES = 2  # in front of the key of a commit, which may be of two types


class TopicReader(NamedTuple):
    """A group that reads a topic. `members` counts all of the group's, or is None if its type keeps them to itself;
    `partitions` are those of the topic that it reads. `lag` is the sum in records over the partitions for which it is
    known, or None; `problem` says which are missing, or is "". `last_commit_ms` is None if it is unknown.
    """

    group_id: str
    topic: str
    state: str
    type: str
    members: int | None
    partitions: int
    lag: int | None
    last_commit_ms: int | None = None
    problem: str = ""


def find_topic_readers(
    client: KafkaClient,
    partitions: Collection[TopicPartition],
    note: Callable[[str], None],
    add: Callable[[int], None] = lambda _: None,
    *,
    with_times: bool = True,
) -> list[TopicReader]:
    """Returns the groups that read these partitions: a row for each group and topic, by group. `note` is called with
    what is left out, and why; `add` with the number of groups that were asked about. Raises KafkaError if the
    coordinators or leaders refuse to answer.
    """
    wanted = set(partitions)
    reading: list[tuple[ListedGroup, GroupDescription | None, dict[TopicPartition, GroupOffset]]] = []
    rebalancing, unknown = [], []
    for group, described, offsets in look_at(client, GroupAdmin(client).list_groups(), wanted):
        add(1)
        committed = {partition: offset for partition, offset in offsets.items() if partition in wanted}
        if committed or (described is not None and wanted.intersection(partitions_of(described, {}))):
            reading.append((group, described, committed))
        elif described is None:
            unknown.append(group.group_id)
        elif described.state in _REBALANCING:
            rebalancing.append(group.group_id)
    if rebalancing:
        note(f"not known while it rebalances: whether {', '.join(rebalancing)} reads it")
    if unknown:
        note(f"not known from a group of its type: whether {', '.join(unknown)} reads it")
    bounds = find_log_bounds(client, sorted({partition for _, _, committed in reading for partition in committed}))
    times = (
        _find_commit_times(client, {g.group_id: committed for g, _, committed in reading}, note) if with_times else {}
    )
    return [
        row
        for group, described, committed in sorted(reading, key=lambda one: one[0].group_id)
        for row in _rows(group, described, committed, wanted, bounds, times)
    ]


def _rows(
    group: ListedGroup,
    described: GroupDescription | None,
    committed: Mapping[TopicPartition, GroupOffset],
    wanted: Collection[TopicPartition],
    bounds: Mapping[TopicPartition, LogBounds],
    times: Mapping[tuple[str, TopicPartition], int],
) -> Iterator[TopicReader]:
    read = sorted(committed) if described is None else [p for p in partitions_of(described, committed) if p in wanted]
    for topic in dict.fromkeys(partition.topic for partition in read):
        here = [partition for partition in read if partition.topic == topic]
        offsets = {partition: committed[partition] for partition in here if partition in committed}
        lags, problem = find_lags(offsets, bounds)
        if len(offsets) < len(here):
            problem += "; " * bool(problem) + f"no commit on {counted(len(here) - len(offsets))}"
        commits = [times[group.group_id, partition] for partition in here if (group.group_id, partition) in times]
        yield TopicReader(
            group.group_id,
            topic,
            group.state if described is None else described.state,
            group.type.lower() if described is None else described.type,
            members=None if described is None else len(described.members),
            partitions=len(here),
            lag=sum(lags.values()) if lags else None,
            last_commit_ms=max(commits, default=None),
            problem=problem,
        )


def _find_commit_times(
    client: KafkaClient, committed: Mapping[str, Collection[TopicPartition]], note: Callable[[str], None]
) -> dict[tuple[str, TopicPartition], int]:
    """Reads the partitions of __consumer_offsets that hold these groups; returns the time of the newest commit for each
    group and partition (ms). Calls `note` with what could not be read.
    """
    if not any(committed.values()):
        return {}
    options = ReadOptions(skips_damage=True, tell=note, note=note, tell_left_out=note)
    source = ClusterSource(client, options)
    found: dict[tuple[str, TopicPartition], int] = {}
    try:
        count = len(source.partitions(GROUPS_TOPIC))
        by_key = {key_ending(group, p): (group, p) for group, partitions in committed.items() for p in partitions}
        stored = sorted({TopicPartition(GROUPS_TOPIC, partition_of(group, count)) for group, _ in by_key.values()})
        ends = source.ends(stored)
        for partition, batches in Consumer(client, options).read(source.starts(stored), ends):

            def leave_out(batch: Batch, error: CorruptRecordError, partition: TopicPartition = partition) -> None:
                source.leave_out(partition, batch, error)

            for place, time_ms in _commits(batches, by_key, leave_out):
                if time_ms is None:
                    found.pop(place, None)
                else:
                    found[place] = time_ms
        source.note_held_back(ends)
    except KafkaError as error:
        note(f"the last commits are not known: {error.message}")
    return found


def _commits(
    batches: Sequence[Batch],
    by_key: Mapping[bytes, tuple[str, TopicPartition]],
    leave_out: Callable[[Batch, CorruptRecordError], None],
) -> Iterator[tuple[tuple[str, TopicPartition], int | None]]:
    """Yields the time of each commit in the batches, in order; None if the commit was deleted."""
    lengths = np.array(sorted({len(key) + _TYPE_BYTES for key in by_key}))
    for group in group_batches(iter(batches)):
        for columns in decode_whole_batches(group, leave_out):
            for row in np.flatnonzero(np.isin(columns.key_lengths, lengths)).tolist():
                key = columns.key(row) or b""
                place = by_key.get(key[_TYPE_BYTES:])
                if place is None:
                    continue
                try:
                    read = read_record(key, columns.value(row))
                except CorruptRecordError:
                    continue
                if read is not None:
                    value = read[1]
                    yield place, value.commit_timestamp if isinstance(value, OffsetCommitValue) else None
