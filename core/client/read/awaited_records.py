"""Waits until a topic has so many records, or until a group has read what there is: for tests of applications."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import Retry
from core.client.read.consumer import READ_COMMITTED, Consumer
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition

_POLL_SECONDS = 0.05
_MOST_NAMED = 20


class Record(NamedTuple):
    """A record of a topic; `timestamp` in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset} key {self.key!r}: {self.value!r}"


def read_records(client: KafkaClient, topic: str, count: int, timeout_s: float) -> list[Record]:
    """Returns the committed records, by partition and offset, once there are `count`; there may be more. Raises
    TimeoutError, which shows what came, and KafkaError for a topic that does not exist if no record is waited for.
    """
    found: list[Record] = []
    positions: dict[TopicPartition, int] = {}

    def look() -> bool | None:
        client.forget_topic(topic)
        try:
            partitions = [TopicPartition(topic, number) for number in client.topic(topic).partitions]
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not count:
                raise
            return None
        admin = Admin(client)
        new = [partition for partition in partitions if partition not in positions]
        positions.update(admin.list_offsets(dict.fromkeys(new, EARLIEST)) if new else {})
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
        starts = {partition: positions[partition] for partition in partitions}
        for partition, batches in Consumer(client).read(starts, ends):
            for record in (record for batch in batches for record in batch.records()):
                if starts[partition] <= record.offset < ends[partition]:
                    headers = tuple((name.decode(errors="replace"), value) for name, value in record.headers)
                    found.append(Record(*partition, record.offset, record.timestamp, record.key, record.value, headers))
        positions.update(ends)
        return True if len(found) >= count else None

    is_there = Retry(timeout_s, first_s=_POLL_SECONDS, most_s=_POLL_SECONDS).until(look)
    found.sort(key=lambda record: record[:3])
    if not is_there:
        listed = "".join(f"\n  {record}" for record in found[:_MOST_NAMED])
        raise TimeoutError(f"topic {topic} has {len(found)} records after {timeout_s:g} s, expected {count}{listed}")
    return found


def expect_values(client: KafkaClient, topic: str, expected: Sequence[Any], timeout_s: float) -> list[Record]:
    """Returns the records, whose values must be these, in any order: bytes, text or None; other values are compared as
    JSON. Raises AssertionError, which shows the missing and the unexpected values, after `timeout_s` if records are
    missing.
    """
    try:
        found = read_records(client, topic, len(expected), timeout_s)
        how_long = ""
    except TimeoutError:
        found = read_records(client, topic, 0, timeout_s) if topic in client.refresh() else []
        how_long = f" after {timeout_s:g} s"
    left = list(found)
    missing = []
    for value in expected:
        record = next((record for record in left if _is_value(record.value, value)), None)
        if record is None:
            missing.append(value)
        else:
            left.remove(record)
    if missing or left:
        lines = [f"topic {topic} has {len(found)} records{how_long}, expected {len(expected)}"]
        lines += [f"  missing: {value!r}" for value in missing[:_MOST_NAMED]]
        lines += [f"  not expected: {record}" for record in left[:_MOST_NAMED]]
        raise AssertionError("\n".join(lines))
    return found


def encoded(value: Any) -> bytes | None:
    """Returns the bytes of a key or a value: bytes and None as they are, text in UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _is_value(found: bytes | None, expected: Any) -> bool:
    if expected is None or isinstance(expected, bytes | str) or found is None:
        return found == encoded(expected) and (found is None) == (expected is None)
    try:
        return bool(json.loads(found) == expected)
    except ValueError:
        return False


def await_group(client: KafkaClient, group: str, topics: Iterable[str] | None, timeout_s: float) -> None:
    """Returns once the group has committed all that was in its topics at the call: those that are assigned to its
    members, or that it has committed offsets for; or `topics`. Records that come later are not waited for, nor those of
    open transactions. Raises TimeoutError, which names the partitions and their lag.
    """
    admin, groups = Admin(client), GroupAdmin(client)
    names = [topic.name for topic in client.refresh().values() if not topic.is_internal] if topics is None else topics
    at_call = [TopicPartition(name, number) for name in names for number in client.topic(name).partitions]
    starts = admin.list_offsets(dict.fromkeys(at_call, EARLIEST)) if at_call else {}
    ends = admin.list_offsets(dict.fromkeys(at_call, LATEST), isolation_level=READ_COMMITTED) if at_call else {}
    problem = ""

    def look() -> bool | None:
        nonlocal problem
        committed = {partition: found.offset for partition, found in groups.offsets(group).items()}
        description = groups.find(group)
        members = description.members if description is not None else ()
        assigned = {partition.topic for member in members for partition in member.partitions or ()}
        wanted = set(names) if topics is not None else assigned | {partition.topic for partition in committed}
        behind = [
            f"{partition}: {max(committed.get(partition, -1), 0)} of {end} is committed, "
            f"lag {end - max(committed.get(partition, -1), starts[partition])}"
            for partition, end in sorted(ends.items())
            if partition.topic in wanted
            and _has_records(client, partition, max(committed.get(partition, -1), starts[partition]), end)
        ]
        if not wanted:
            problem = "it has committed nothing"
        elif description is not None and members and description.state not in ("Stable", "STABLE"):
            problem = f"it is {description.state}"
        elif behind:
            problem = "".join(f"\n  {text}" for text in behind[:_MOST_NAMED])
        else:
            return True
        if not members:
            problem = f"group {group} has no members; {problem}" if wanted else f"group {group} has no members"
        return None

    if not Retry(timeout_s, first_s=_POLL_SECONDS, most_s=_POLL_SECONDS).until(look):
        raise TimeoutError(f"group {group} has not read everything after {timeout_s:g} s: {problem}")


def _has_records(client: KafkaClient, partition: TopicPartition, start: int, end: int) -> bool:
    """Returns whether a consumer gets a record between the offsets. A marker is no record: a member that commits the
    offset after its last record stays before the marker.
    """
    found = Consumer(client).read({partition: start}, {partition: end}) if start < end else ()
    return any(batch.last_offset >= start for _, batches in found for batch in batches)
