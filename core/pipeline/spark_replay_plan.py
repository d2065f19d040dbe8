"""Plans a replay from the options of `plog spark-replay`, and commits its offsets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from core.client.admin.group_admin import GroupAdmin
from core.common.endpoint import Endpoint, parse_bootstrap
from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import find_lock_holder
from core.pipeline.consume_request import ensure_there, resolve
from core.pipeline.session import Session
from core.pipeline.spark_replay_request import ReplayRequest
from core.spark.offset_range import OffsetRange
from core.spark.range_output import OutputFormat, ensure_writable
from core.spark.record_schema import COLUMNS, schema_of
from core.spark.replay_plan import ReplayPlan, ensure_goes_on, ensure_same_topics
from core.spark.source import open_source, plan_ranges
from core.spark.source_options import SourceOptions

_MOST_ROUNDS = 10
_LEAST_RANGES = 16
"""The least ranges of a round, if there are more rounds than one."""


def make_plan(
    request: ReplayRequest, session: Session, range_bytes: int, access: str = "", *, after: ReplayPlan | None = None
) -> ReplayPlan:
    """Finds the ranges. `access`: how processes reach a secured cluster themselves. `after`: the plan that this one
    follows: it begins where that one ended, and writes the same columns. Raises KafkaError if a topic is not there;
    PlogError if offsets are not, or if a log does not go on where it ended; errors of the source.
    """
    request.ensure_sensible()
    columns = tuple(name.strip() for name in request.columns.split(",")) if request.columns else COLUMNS
    schema_of(columns)
    found = _find_ranges(request, session, max(range_bytes, request.file_size_bytes), access, after)
    ranges = found.ranges
    kind = "parquet" if request.kind == "delta" and not request.is_url else request.kind
    key_format, value_format = (request.key_format, request.value_format) if not request.decodes else ("binary",) * 2
    schema = request.schema
    decoding: dict[str, Any] = {}
    if after is not None and after.schema:
        schema, decoding = after.schema, after.decoding
    elif request.decodes:
        schema, decoding = _find_schema(request, ranges, access)
        if request.schema and "value" not in columns:
            raise UsageError("--columns leaves out value, which --value-format makes into columns")
    codec = request.compression or ("none" if kind in ("json", "csv") else "zstd")
    output = OutputFormat(
        kind,
        key_format,
        value_format,
        partition_by=request.partitions,
        compression=codec,
        file_size=request.file_size_bytes,
        timezone=request.timezone,
    )
    is_known = not decoding and not request.transform and all(one.is_simple for one in request.partitions)
    if is_known:  # else Spark says which columns they have
        ensure_writable(output, schema_of(columns))
    return ReplayPlan(
        request=request.to_json(),
        ranges=tuple(ranges),
        output=output,
        columns=columns,
        schema=schema,
        transform=request.transform,
        decoding=decoding,
        dead_letter=request.dead_letter,
        topic_ids=found.topic_ids,
        ends=tuple((*partition, end) for partition, end in sorted(found.ends.items())),
        number=after.number + 1 if after else 1,
        rounds=_rounds_of(request, len(ranges)) if request.by_spark else 0,
    )


def _rounds_of(request: ReplayRequest, ranges: int) -> int:
    """Returns how many jobs of Spark's write the ranges: a function sees all records at once."""
    return 1 if request.transform else min(_MOST_ROUNDS, max(ranges // _LEAST_RANGES, 1))


class _Found(NamedTuple):
    """The ranges, and of every partition where they end, of every topic that has an id that id."""

    ranges: list[OffsetRange]
    ends: Mapping[TopicPartition, int]
    topic_ids: dict[str, str]


def _find_ranges(
    request: ReplayRequest, session: Session, range_bytes: int, access: str, after: ReplayPlan | None
) -> _Found:
    servers = session.find_named_server()
    where = {"kafka.bootstrap.servers": servers} if servers else {"paths": json.dumps([str(session.directory)])}
    options = SourceOptions.parse(
        where
        | {
            "subscribe": ",".join(request.topics),
            "isolationLevel": request.isolation,
            "failOnDataLoss": str(not request.allow_loss).lower(),
            "latestPerKey": str(request.latest_per_key).lower(),
            "rangeBytes": str(range_bytes),
            "badTimestamps": request.bad_timestamps,
        }
    )
    options = replace(options, access=access if servers else "")
    with contextlib.closing(open_source(options)) as source:
        records = source.records
        partitions = [TopicPartition(topic, number) for topic in request.topics for number in records.partitions(topic)]
        limits = records.ends(partitions)
        ids = {tp.topic: source.topic_id(tp) for tp in {tp.topic: tp for tp in partitions}.values()}
        ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id}
        lost: dict[TopicPartition, int] = {}
        if after is None:
            starts = resolve(request.from_, records, partitions, limits)
            if request.from_group:
                starts = {**starts, **group_offsets(request.from_group, session, partitions)}
            starts = ensure_there(starts, records, limits, session.frontend.say)
        else:
            firsts = records.starts(partitions)
            before = after.next_offsets
            ensure_same_topics(after.topic_ids, ids)
            ensure_goes_on(before, firsts, limits, fails_if_gone=not request.allow_loss)
            came = firsts if after.ends else resolve(request.from_, records, partitions, limits)
            lost = {tp: offset for tp, offset in before.items() if offset < firsts[tp]}
            starts = {**came, **before, **{tp: firsts[tp] for tp in lost}}
        ends = resolve(request.until, records, partitions, limits)
        ends = {tp: max(min(ends[tp], limits[tp]), starts[tp]) for tp in partitions}
        return _Found(plan_ranges(source, options, starts, ends, lost), ends, ids)


def _find_schema(request: ReplayRequest, ranges: Sequence[OffsetRange], access: str) -> tuple[str, dict[str, Any]]:
    """Returns the columns of the values, and how keys and values are decoded."""
    from core.spark.value_decoding import Decoding, ensure_no_password
    from core.spark.value_schema import derive_schema

    ensure_no_password(request.schema_registry, "--schema-registry")
    decoding = Decoding(request.formats, access, has_reasons=bool(request.dead_letter))
    schema, decoding = derive_schema(decoding, ranges, given=request.schema)
    return schema, decoding.to_json()


def find_target(request: ReplayRequest, session: Session) -> str:
    """Returns the servers of the topic to write to: those of --to, else those of the source; the one that owns the
    source's directory begins with its protocol if that is not plaintext. Raises UsageError without any.
    """
    named = request.where.partition("@")[2]
    if named:
        parse_bootstrap(named)
        return named
    holder = find_lock_holder(session.directory) if session.find_named_server() is None else None
    if holder is not None and "://" in holder.address:
        return holder.address
    found = session.find_server()
    if found is None:
        raise UsageError(f"--to {request.to}: which server?", hint=f"--to {request.to}@HOST:PORT")
    return ",".join(str(Endpoint(*address)) for address in found.addresses)


def group_offsets(group: str, session: Session, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the group's committed offsets of these partitions. Raises PlogError without any."""
    offsets = all_group_offsets(group, session)
    found = {tp: offsets[tp] for tp in partitions if tp in offsets}
    if not found:
        raise PlogError(f"group {group} has committed nothing of these topics", hint=f"plog group describe {group}")
    return found


def all_group_offsets(group: str, session: Session) -> dict[TopicPartition, int]:
    """Returns all of the group's committed offsets."""
    with session.open_client(is_read_only=True) as client:
        return {partition: offset.offset for partition, offset in GroupAdmin(client).offsets(group).items()}


def commit_to_group(group: str, session: Session, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits these offsets. Raises KafkaError while the group has members."""
    with session.open_client() as client:
        GroupAdmin(client).commit(group, offsets)
