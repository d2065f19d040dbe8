"""Plans a replay from the options of `plog spark-replay`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.client.admin.group_admin import GroupAdmin
from core.common.endpoint import parse_bootstrap
from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.pipeline.consume_request import ensure_in_order, ensure_there, resolve
from core.pipeline.session import Session
from core.spark.offset_range import OffsetRange
from core.spark.range_output import BYTES_FORMATS, OutputFormat, ensure_writable
from core.spark.record_schema import COLUMNS, schema_of
from core.spark.replay_plan import ReplayPlan, find_topic_ids
from core.spark.source import open_source, plan_ranges
from core.spark.source_options import SourceOptions

FILE_KINDS = ("parquet", "json", "csv", "delta")
KINDS = (*FILE_KINDS, "topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The options that define the output, unchanged; `source` is a directory or servers. The plan keeps them: the same
    request again goes on with it.
    """

    topics: tuple[str, ...]
    to: str
    source: str
    from_: str
    until: str
    from_group: str
    latest_per_key: bool
    partition_by: str
    columns: str
    key_format: str
    value_format: str
    schema: str
    transform: str
    isolation: str
    allow_loss: bool
    bad_timestamps: str = "error"

    @property
    def kind(self) -> str:
        return self.to.partition(":")[0]

    @property
    def where(self) -> str:
        return self.to.partition(":")[2]

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if self.bad_timestamps == "error":
            del fields["bad_timestamps"]  # plans that were frozen before there was the option go on
        return fields

    def ensure_sensible(self) -> None:
        """Raises UsageError for options that do not fit together."""
        if self.kind not in KINDS or not self.where:
            expected = f"{', '.join(f'{kind}:DIR' for kind in FILE_KINDS)} or topic:NAME"
            raise UsageError(f"--to {self.to}: expected {expected}" if self.to else f"name a target: --to {expected}")
        if "://" in self.where:
            raise UsageError(f"--to {self.to}: expected a folder that every node sees, not a URL")
        if bool(self.schema) != (self.value_format == "json"):
            raise UsageError("--value-format json goes with --schema, and it with that")
        for option, text in (("--key-format", self.key_format), ("--value-format", self.value_format)):
            allowed = (*BYTES_FORMATS, "json") if option == "--value-format" else BYTES_FORMATS
            if text not in allowed:
                raise UsageError(f"{option} {text}: expected {', '.join(allowed)}")
        if self.bad_timestamps not in ("error", "null"):
            raise UsageError(f"--bad-timestamps {self.bad_timestamps}: expected error or null")
        if self.bad_timestamps == "null" and self.kind == "topic":
            raise UsageError("a topic's records have a timestamp: no --bad-timestamps null")
        if self.latest_per_key and self.from_group:
            raise UsageError("--latest-per-key is of the whole topic: not with --from-group")
        if not self.from_group:
            ensure_in_order(self.from_, self.until)
        of_files = self.partition_by or self.columns or self.schema or self.transform
        if self.kind == "topic" and (of_files or "base64" in (self.key_format, self.value_format)):
            raise UsageError("a topic gets records as they are: no columns, formats or --transform")


def make_plan(request: ReplayRequest, session: Session, range_bytes: int, access: str = "") -> ReplayPlan:
    """Finds the ranges. `access`: how processes reach a secured cluster themselves. Raises KafkaError if a topic is not
    there; PlogError if offsets are not; errors of the source.
    """
    request.ensure_sensible()
    columns = tuple(name.strip() for name in request.columns.split(",")) if request.columns else COLUMNS
    schema_of(columns)
    ranges = _find_ranges(request, session, range_bytes, access)
    kind = "parquet" if request.kind == "delta" else request.kind
    value_format = "binary" if request.schema else request.value_format
    output = OutputFormat(kind, request.key_format, value_format, request.partition_by)
    if not request.schema and not request.transform:  # of those, Spark says which columns they have
        ensure_writable(output, schema_of(columns))
    return ReplayPlan(
        request=request.to_json(),
        ranges=tuple(ranges),
        output=output,
        columns=columns,
        schema=request.schema,
        transform=request.transform,
        topic_ids=find_topic_ids(ranges),
    )


def _find_ranges(request: ReplayRequest, session: Session, range_bytes: int, access: str) -> list[OffsetRange]:
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
        starts = resolve(request.from_, records, partitions, limits)
        if request.from_group:
            starts = {**starts, **group_offsets(request.from_group, session, partitions)}
        starts = ensure_there(starts, records, limits, session.frontend.say)
        ends = resolve(request.until, records, partitions, limits)
        ends = {tp: max(min(ends[tp], limits[tp]), starts[tp]) for tp in partitions}
        return plan_ranges(source, options, starts, ends)


def find_target(request: ReplayRequest, session: Session) -> str:
    """Returns the servers of the topic to write to: those of --to, else those of the source. Raises UsageError without
    any.
    """
    named = request.where.partition("@")[2]
    if named:
        parse_bootstrap(named)
        return named
    found = session.find_server()
    if found is None:
        raise UsageError(f"--to {request.to}: which server?", hint=f"--to {request.to}@HOST:PORT")
    return ",".join(f"{host}:{port}" for host, port in found.addresses)


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
