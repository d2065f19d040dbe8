"""Reports a group's offsets, and finds new ones for a reset."""

from __future__ import annotations

import contextlib
import csv
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.admin.group_admin import GroupDescription, GroupMember, GroupOffset
from core.client.net.kafka_client import KafkaClient, TopicInfo
from core.client.read.consumer import Consumer
from core.client.read.record_source import ReadOptions
from core.common.errors import AccessError, CorruptRecordError, KafkaError, UsageError
from core.common.time_text import parse_time
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch
from core.records.record import Record

Offsets = Mapping[TopicPartition, GroupOffset]

_DURATION = re.compile(r"-?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_ROUNDS = 3  # tries: a batch may hold nothing but a transaction's marker
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000)


@dataclass(frozen=True, slots=True)
class Reset:
    """The new place of offsets: one of these is set. Kafka's modes, by the names of their options."""

    to_earliest: bool | None = None
    to_latest: bool | None = None
    to_current: bool | None = None
    to_offset: int | None = None
    shift_by: int | None = None
    to_datetime: str | None = None
    by_duration: str | None = None
    from_file: Mapping[TopicPartition, int] | None = None

    @classmethod
    def of(cls, **modes: Any) -> Reset:
        """Makes one of the modes; raises UsageError unless just one is set."""
        asked = [name for name, value in modes.items() if value is not None]
        if len(asked) != 1:
            options = ", ".join("--" + field.name.replace("_", "-") for field in fields(cls))
            given = " and ".join("--" + name.replace("_", "-") for name in asked) or "none"
            raise UsageError(f"expected one option that says where to, found {given}", hint=f"one of {options}")
        return cls(**modes)


class LogBounds(NamedTuple):
    """A log of offsets [start, end). Unknown bounds are None, and `problem` says why."""

    start: int | None
    end: int | None
    problem: str = ""


class GroupPartition(NamedTuple):
    """A partition for which the group committed an offset, or that a member reads.

    `lag` is negative for an offset above the log's end, as in Kafka's tool. `lag_ms` is the age of the first record
    that the group has not read, by its timestamp; 0 if it has read all. Unknown values are None. `problem` says why the
    bounds are unknown, or how the offset lies outside them, or is "".
    """

    partition: TopicPartition
    offset: int | None
    end_offset: int | None
    lag: int | None
    lag_ms: int | None
    metadata: str | None
    member: GroupMember | None
    problem: str = ""


def partitions_of(group: GroupDescription, committed: Offsets) -> list[TopicPartition]:
    """Returns the partitions for which the group committed an offset, or that a member reads, in order."""
    return sorted({*committed, *_readers_of(group)})


def _readers_of(group: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {partition: member for member in group.members for partition in member.partitions or ()}


def find_group_partitions(
    client: KafkaClient, group: GroupDescription, committed: Offsets, now_ms: int
) -> list[GroupPartition]:
    """Returns a row for each of the group's partitions. Raises KafkaError if their leaders refuse to tell of them."""
    bounds = find_log_bounds(client, partitions_of(group, committed))
    return group_partitions(group, committed, bounds, partial(find_timestamps, client), now_ms)


def group_partitions(
    group: GroupDescription,
    committed: Offsets,
    bounds: Mapping[TopicPartition, LogBounds],
    timestamps_at: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]],
    now_ms: int,
) -> list[GroupPartition]:
    """Returns a row for each of the group's partitions, in order. `bounds` has the log of each; `timestamps_at` returns
    the timestamp of the first record from an offset on, for those partitions for which it finds one.
    """
    readers = _readers_of(group)
    waiting = {}
    for partition, known in committed.items():
        start, end, _ = bounds[partition]
        if end is not None and known.offset < end:
            waiting[partition] = max(known.offset, start or 0)
    oldest = timestamps_at(waiting)
    rows = []
    for partition in partitions_of(group, committed):
        start, end, problem = bounds[partition]
        offset = committed[partition].offset if partition in committed else None
        lag = None if offset is None or end is None else end - offset
        lag_ms = max(now_ms - oldest[partition], 0) if partition in oldest else None
        outside = None if offset is None else outside_text(offset, start, end)
        rows.append(
            GroupPartition(
                partition=partition,
                offset=offset,
                end_offset=end,
                lag=lag,
                lag_ms=0 if lag == 0 else lag_ms,
                metadata=(committed[partition].metadata or None) if partition in committed else None,
                member=readers.get(partition),
                problem=problem or outside or "",
            )
        )
    return rows


def outside_text(offset: int, start: int | None, end: int | None) -> str | None:
    """Says how an offset lies outside a log of offsets [start, end]; returns None if it is inside or unknown."""
    if end is not None and offset > end:
        return f"{offset - end} above the log's end: the next fetch is out of range"
    if start is not None and end is not None and offset < start:
        return f"{start - offset} below the log's start: deleted before they were read; {end - start} can still be read"
    return None


def find_lags(committed: Offsets, bounds: Mapping[TopicPartition, LogBounds]) -> tuple[dict[TopicPartition, int], str]:
    """Returns the lag in records of each partition for which it is known, and of how many it is not, and why, or ""."""
    ends = {partition: bounds[partition].end for partition in sorted(committed)}
    lags = {p: max(end - committed[p].offset, 0) for p, end in ends.items() if end is not None}
    whys = [bounds[partition].problem for partition, end in ends.items() if end is None]
    return lags, f"the lag of {counted(len(whys))} is not known: {whys[0]}" if whys else ""


def counted(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions != 1)}"


def find_log_bounds(client: KafkaClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
    """Asks the leaders of the partitions; those without one are unknown, as in Kafka's tool, and so are deleted ones.
    Raises KafkaError if a leader refuses.
    """
    topics = client.refresh({p.topic for p in partitions}, skips_unknown=True) if partitions else {}
    found = {p: LogBounds(None, None, why) for p in partitions if (why := _why_unknown(p, topics))}
    led = [p for p in partitions if p not in found]
    admin = Admin(client)
    starts = admin.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(led, LATEST))
    return found | {p: LogBounds(starts[p], ends[p]) for p in led}


def _why_unknown(partition: TopicPartition, topics: Mapping[str, TopicInfo]) -> str:
    """Returns why the partition has no bounds to ask for, or ""."""
    topic = topics.get(partition.topic)
    if topic is None:
        return f"there is no topic {partition.topic} any more"
    info = topic.partitions.get(partition.partition)
    if info is None:
        return f"there is no partition {partition}"
    return "" if info.leader >= 0 else f"{partition} has no leader"


def find_timestamps(client: KafkaClient, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns the timestamp of the first record at or after each offset, if there is one: from one batch each."""
    found = {}
    positions = dict(offsets)
    consumer = Consumer(client, ReadOptions(read_committed=False), max_wait_ms=0, partition_bytes=1)
    try:
        for _ in range(_ROUNDS):
            for partition, start, batches in consumer.poll(positions):
                record = next((r for r in _readable(batches) if r.offset >= start), None)
                if record is not None and record.timestamp >= 0:
                    found[partition] = record.timestamp
            for partition in set(offsets) & found.keys():
                positions.pop(partition, None)
            if not positions:
                break
    except KafkaError:  # an offset that is out of range says nothing of time
        pass
    return found


def _readable(batches: Iterable[Batch]) -> Iterator[Record]:
    for batch in batches:
        with contextlib.suppress(CorruptRecordError):
            yield from batch.records()


def parse_topics(client: KafkaClient, texts: Iterable[str]) -> list[TopicPartition]:
    """Finds the partitions of `TOPIC` or `TOPIC:N,N..`; raises UsageError and KafkaError for others."""
    found = []
    for text in texts:
        name, separator, numbers = text.partition(":")
        present = client.topic(name).partitions
        if not separator:
            found += [TopicPartition(name, number) for number in sorted(present)]
            continue
        for number in numbers.split(","):
            if not number.strip().isdecimal() or int(number) not in present:
                there = f"0 to {max(present)}" if len(present) > 1 else "partition 0"
                raise UsageError(f"--topic {text}: topic {name} has no partition {number!r}, only {there}")
            found.append(TopicPartition(name, int(number)))
    return found


def find_partitions(
    client: KafkaClient, committed: Offsets, topics: Sequence[str], reset: Reset, *, all_topics: bool
) -> list[TopicPartition]:
    """Finds the partitions whose offsets are to move."""
    if reset.from_file is not None and not topics and not all_topics:
        return list(reset.from_file)
    if bool(topics) == all_topics:
        raise UsageError("expected either --topic or --all-topics", hint="for example --topic flights")
    if topics:
        return parse_topics(client, topics)
    return [p for name in sorted({p.topic for p in committed}) for p in parse_topics(client, [name])]


def new_offsets(
    client: KafkaClient,
    committed: Offsets,
    partitions: Sequence[TopicPartition],
    reset: Reset,
    *,
    say: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """Returns the new offset of each partition, moved into its log's range, which `say` reports."""
    admin = Admin(client)
    starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    wanted: Mapping[TopicPartition, int]
    if reset.to_earliest:
        wanted = starts
    elif reset.to_latest:
        wanted = ends
    elif reset.to_current:
        wanted = {p: committed[p].offset if p in committed else ends[p] for p in partitions}
    elif reset.to_offset is not None:
        wanted = dict.fromkeys(partitions, reset.to_offset)
    elif reset.shift_by is not None:
        missing = [str(p) for p in partitions if p not in committed]
        if missing:
            raise UsageError(f"--shift-by: the group committed no offset of {', '.join(missing)}")
        wanted = {p: committed[p].offset + reset.shift_by for p in partitions}
    elif reset.from_file is not None:
        wanted = {p: reset.from_file[p] for p in partitions if p in reset.from_file}
    else:
        timestamp = _timestamp(reset)
        before_1970 = timestamp < 0  # to ListOffsets negative numbers are words: -1 is the end
        at = starts if before_1970 else admin.list_offsets(dict.fromkeys(partitions, timestamp))
        wanted = {p: offset if offset >= 0 else ends[p] for p, offset in at.items()}
        for partition in (p for p, offset in at.items() if offset < 0):
            say(f"warning: {partition} has no record of that time or later; taking its end, {ends[partition]}")
    moved = {}
    for partition, offset in wanted.items():
        moved[partition] = min(max(offset, starts[partition]), ends[partition])
        if moved[partition] != offset:
            say(
                f"warning: {partition} holds offsets {starts[partition]} to {ends[partition]}, not {offset}; "
                f"taking {moved[partition]}"
            )
    return moved


def _timestamp(reset: Reset) -> int:
    now_ms = time.time_ns() // 1_000_000
    if reset.to_datetime is not None:
        return parse_time(reset.to_datetime, now_ms)
    assert reset.by_duration is not None
    match = _DURATION.fullmatch(reset.by_duration)
    if match is None or not any(match.groups()):
        raise UsageError(f"--by-duration {reset.by_duration}: expected PnDTnHnMnS", hint="PT2H is two hours, P1D a day")
    return now_ms - round(sum(float(n or 0) * unit for n, unit in zip(match.groups(), _UNITS_MS, strict=True)))


def read_offsets_file(path: Path) -> dict[TopicPartition, int]:
    """Reads lines of topic,partition,offset; with a header or a group in front, as `--output csv` and Kafka's tool
    write.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"could not read {path}: {error}", where=str(path)) from error
    header = rows[0] if rows and "topic" in rows[0] else None
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, start=1):
        if not row or row is header:
            continue
        try:
            topic, partition, offset = _columns(row, header)
            found, wanted = TopicPartition(topic, int(partition)), int(offset)
        except (ValueError, IndexError):
            raise UsageError(f"{path}:{number}: {','.join(row)!r} is not topic,partition,offset") from None
        if offsets.setdefault(found, wanted) != wanted:
            raise UsageError(f"{path}:{number}: {found} has another offset in a line before, {offsets[found]}")
    if not offsets:
        raise UsageError(f"{path} has no line of topic,partition,offset")
    return offsets


def _columns(row: list[str], header: list[str] | None) -> tuple[str, str, str]:
    if header is not None:
        offset = "new_offset" if "new_offset" in header else "offset"
        return row[header.index("topic")], row[header.index("partition")], row[header.index(offset)]
    topic, partition, offset = row[-3:] if len(row) in (3, 4) else row
    return topic, partition, offset
