"""Holds the options of `plog consume`: the range, the filter, and the format of records.

`resolve` finds the offsets of a place.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from core.common.command_option import argument, ensure_compatible, excludes, flag, needs, option, options
from core.common.errors import CorruptRecordError, UsageError
from core.common.time_text import ensure_milliseconds, find_time
from core.common.topic_partition import TopicPartition, is_valid_topic_name
from core.records.side_format import (
    KEY_FORMAT,
    KEY_SCHEMA,
    NO_SCHEMA_JSON,
    SCHEMA_CONTEXT,
    SCHEMA_JSON,
    SCHEMA_REGISTRY,
    VALUE_FORMAT,
    VALUE_SCHEMA,
    SchemaJson,
    SideFormats,
)

if TYPE_CHECKING:
    from core.client.read.record_source import Offsets, RecordSource
    from core.records.record_filter import NotJson, RecordFilter


_FIRST_TIME = 100_000_000_000
"""Whole numbers from here on are epoch milliseconds (1973), below it they are offsets; with @ in front, always a time.
"""

_MOST_COUNTED = 10_000
"""The limit of counted records, which are read twice."""

_LAST_N = re.compile(r"-(\d+)")


_OF_PARTITION = re.compile(r"(\d+)=(.+)")


def resolve(text: str, source: RecordSource, partitions: Sequence[TopicPartition], ends: Offsets) -> Offsets:
    """Returns the offset, in each partition, of OFFSET, -N, beginning, end or TIME; or of several with commas between:
    `P=WHERE` is for partition P alone, and one place may be for the others. Raises UsageError for other text.
    """
    special: dict[int, str] = {}
    for piece in text.split(","):
        if match := _OF_PARTITION.fullmatch(piece):
            special[int(match[1])] = match[2]
    if not special:
        return _resolve_all(text, source, partitions, ends)
    general = [piece for piece in text.split(",") if not _OF_PARTITION.fullmatch(piece)]
    if len(general) > 1:
        raise UsageError(f"{text!r}: which of {' and '.join(general)} is for the other partitions?")
    unknown = special.keys() - {tp.partition for tp in partitions}
    if unknown:
        raise UsageError(f"{text!r}: partition {min(unknown)} is not read")
    rest = [tp for tp in partitions if tp.partition not in special]
    if rest and not general:
        raise UsageError(
            f"{text!r} says nothing of partition {rest[0].partition}", hint=f"{text},beginning, or --partition"
        )
    found = dict(_resolve_all(general[0], source, rest, ends)) if rest else {}
    for number, where in special.items():
        found |= _resolve_all(where, source, [tp for tp in partitions if tp.partition == number], ends)
    return {tp: found[tp] for tp in partitions}


def _resolve_all(text: str, source: RecordSource, partitions: Sequence[TopicPartition], ends: Offsets) -> Offsets:
    kind, number = _parse_place(text, time.time_ns() // 1_000_000)
    if kind == "edge":
        return {tp: ends[tp] for tp in partitions} if number else source.starts(partitions)
    if kind == "last":
        return _find_last(-number, source, partitions, ends)
    if kind == "offset":
        return dict.fromkeys(partitions, number)
    if kind == "time":
        return source.offsets_at(partitions, number)
    raise UsageError(
        f"{text!r} is no place in a topic",
        hint="an offset, -10 for the last ten, beginning, end, 2013-01-15T00:00:00Z, -2h, or @EPOCH_MS",
    )


def _find_last(count: int, source: RecordSource, partitions: Sequence[TopicPartition], ends: Offsets) -> Offsets:
    """Finds where the last `count` records begin that the source reads: markers, aborted records and holes do not
    count. For more than `_MOST_COUNTED`, and for a log that is damaged there, it counts offsets instead.
    """
    starts = source.starts(partitions)
    found = {tp: max(starts[tp], ends[tp] - count) for tp in partitions}
    left = {tp: found[tp] for tp in partitions if starts[tp] < ends[tp]} if 0 < count <= _MOST_COUNTED else {}
    span = count
    while left:
        try:
            offsets = _read_last_offsets(count, source, left, ends)
        except CorruptRecordError:
            return found
        span *= 2
        for tp, last in offsets.items():
            if len(last) == count or left[tp] == starts[tp]:
                found[tp] = last[0] if last else starts[tp]
                del left[tp]
            else:
                left[tp] = max(starts[tp], ends[tp] - span)
    return found


def _read_last_offsets(
    count: int, source: RecordSource, starts: Offsets, ends: Offsets
) -> dict[TopicPartition, deque[int]]:
    from core.records.columns import decode_whole_batches
    from core.records.record_batch import RecordBatch

    found = {tp: deque[int](maxlen=count) for tp in starts}
    unread = set(starts)
    for tp, batches in source.read(starts, ends):
        for batch in batches:
            if isinstance(batch, RecordBatch) and batch.count == batch.last_offset + 1 - batch.base_offset:
                offsets: Iterable[int] = range(batch.base_offset, batch.last_offset + 1)
            else:
                decoded = decode_whole_batches([batch], lambda *_: None)
                offsets = (offset for columns in decoded for offset in columns.offsets.tolist())
            found[tp].extend(offset for offset in offsets if starts[tp] <= offset < ends[tp])
        if not batches:
            unread.discard(tp)
        if not unread:  # later notes of the source are for the reading proper
            break
    return found


def ensure_in_order(start: str, end: str, options: tuple[str, str] = ("--from", "--until")) -> None:
    """Raises UsageError for a range that is visibly inverted: both places are of the same kind, and the end lies before
    the start. An empty range passes. Places that only the log can order are not checked, nor one partition's place
    against that of all others.
    """
    now_ms = time.time_ns() // 1_000_000
    starts, ends = _by_partition(start), _by_partition(end)
    for number in starts.keys() & ends.keys():
        first, last = starts[number], ends[number]
        (kind, at), (end_kind, end_at) = _parse_place(first, now_ms), _parse_place(last, now_ms)
        if kind == end_kind and end_at < at:
            raise UsageError(
                f"{options[0]} {first} lies after {options[1]} {last}",
                hint="the range ends before it starts; swap the two",
            )


def _by_partition(text: str) -> dict[int | None, str]:
    """Splits a list of places by partition; None is the one for all others."""
    found: dict[int | None, str] = {}
    for piece in text.split(","):
        match = _OF_PARTITION.fullmatch(piece)
        found |= {int(match[1]): match[2]} if match else {None: piece}
    return found


def _parse_place(text: str, now_ms: int) -> tuple[Literal["edge", "last", "offset", "time", "unknown"], int]:
    """Returns the kind of a place, and a number that orders places of its kind."""
    if text in ("beginning", "earliest", "end", "latest"):
        return "edge", int(text in ("end", "latest"))
    if last := _LAST_N.fullmatch(text):
        return "last", -int(last[1])
    if text.isdecimal() and int(text) < _FIRST_TIME:
        return "offset", int(text)
    timestamp = find_time(text, now_ms)
    if timestamp is None and text.removeprefix("@").isdecimal():
        timestamp = ensure_milliseconds(int(text.removeprefix("@")), text)
    return ("unknown", 0) if timestamp is None else ("time", timestamp)


def ensure_there(
    starts: Offsets, source: RecordSource, ends: Offsets, say: Callable[[str], None]
) -> dict[TopicPartition, int]:
    """Moves the starts into the logs' ranges, and reports that."""
    firsts = source.starts(list(starts))
    moved = {}
    for partition, start in starts.items():
        moved[partition] = min(max(start, firsts[partition]), max(ends[partition], firsts[partition]))
        if moved[partition] != start:
            say(
                f"warning: {partition} holds offsets {firsts[partition]} to {ends[partition]}, not {start}; "
                f"starting at {moved[partition]}"
            )
    return moved


_REGEX_SIGN = "^"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    """Holds the options of `plog consume`; immutable."""

    topics: Sequence[str] = argument(
        "Which topics; ^pattern is a regular expression.", metavar="TOPIC...", completes="topic"
    )
    regex: bool = flag("Take TOPIC as a regular expression for the whole name.", "-r")
    partitions: Sequence[int] = options("Only this partition.", "--partition", metavar="N")
    from_: str = option(
        "Where to begin: OFFSET, -N (the last N), beginning, end, TIME; by partition: 0=WHERE,1=WHERE.",
        "--from",
        "--offset",
        default="beginning",
        metavar="WHERE",
    )
    from_beginning: bool = flag("The same as --from beginning, which is the default.")
    until: str = option(
        "Where to stop: OFFSET, end (as it is at the start), or TIME. That record is not included.",
        default="end",
        metavar="WHERE",
    )
    latest_per_key: bool = flag("Only the last record of each key, as compaction would leave it.")
    as_of: str | None = option(
        "With --latest-per-key: the view as it was when the log ended at OFFSET or TIME.", metavar="WHERE"
    )
    max_messages: int | None = option("Stop after N records.", metavar="N", min=0)
    per_partition: bool = flag("With --max-messages: N records of each partition.")
    last: int | None = option(
        "Only the newest N records by timestamp, of all partitions together; with a filter, of those that match.",
        metavar="N",
        min=1,
    )
    newest_first: bool = flag("With --last: the newest record comes first.")
    follow: bool = flag("At the end, wait for new records.", "-f")
    timeout_ms: int | None = option("Stop when no record has come for this time.", metavar="MS", min=0)
    merge: bool = flag("Merge the partitions by timestamp; each keeps its own order.")
    key: str | None = option(
        "Only records of this key: its partition is read. --key-format says what it is.", metavar="KEY"
    )
    partitioner: str | None = option(
        "With --key: who chose the partition, as for produce. Default: what the newest keys show.", metavar="NAME"
    )
    all_partitions: bool = flag("With --key: read all partitions.")
    filters: Sequence[str] = option(
        "Only records that match, as in 'value.carrier == \"UA\" and offset > 99'.",
        "--filter",
        default=(),
        metavar="EXPR",
    )
    grep: str | None = option("Only records whose value matches this regular expression somewhere.", metavar="REGEX")
    group: str | None = option(
        "Join this consumer group: read on where it stopped, and commit.", metavar="GROUP", completes="group"
    )
    commit: Literal["after", "before"] = option(
        "Commit after printing (at least once) or before (at most once).", default="after"
    )
    group_protocol: Literal["consumer", "classic"] | None = option(
        "consumer (KIP-848) or classic. Default: consumer, if the cluster supports it."
    )
    group_instance_id: str | None = option(
        "Be a static member, which keeps its partitions over a restart.", metavar="ID"
    )
    is_in_zookeeper: bool = False  # of the group, if there is one
    isolation: Literal["read_committed", "read_uncommitted"] = option(
        "read_committed leaves out records of open and aborted transactions.",
        "--isolation",
        "--isolation-level",
        default="read_committed",
    )
    print_control_records: bool = flag("Print the markers that end transactions too.")
    claim_check: Path | None = option(
        "Replace references by the values that produce --claim-check kept in DIR.", metavar="DIR"
    )
    join: bool = flag("Put values together again that produce --chunk sliced.")
    schema_registry: str | None = SCHEMA_REGISTRY
    schema_context: str | None = SCHEMA_CONTEXT
    key_format: str | None = KEY_FORMAT
    value_format: str | None = VALUE_FORMAT
    value_schema: str | None = VALUE_SCHEMA
    key_schema: str | None = KEY_SCHEMA
    schema_json: SchemaJson | None = SCHEMA_JSON
    is_for_people: bool = False  # text on a terminal, columns
    exit_on_error: bool | None = option(
        "End at the first error, or read on past damage. Default: end at damage, wait for a lost broker.",
        "--exit-on-error/--no-exit-on-error",
        show_default=False,
    )
    format: str = option(
        r"The format: value, envelope (JSON), csv, arrow, parquet, or a pattern such as '%o %k %s\n'.",
        default="value",
        metavar="FMT",
    )
    fields: str | None = option(
        "Columns of csv, parquet or arrow: carrier,id=customer.id,late:int64,_offset; * is all others. In csv: *.",
        metavar="NAMES",
    )
    raw: bool = flag(r"Print control characters as they are, even on a terminal, which gets ESC as \x1b otherwise.")
    out: Path | None = option("Write to this file instead of stdout.", metavar="FILE")

    @property
    def is_endless(self) -> bool:
        return self.follow or self.group is not None

    @property
    def is_latest(self) -> bool:
        """Returns whether only the last record of each key is read."""
        return self.latest_per_key or self.as_of is not None

    @property
    def reads_internal(self) -> bool:
        """Returns whether Kafka's internal topics may be read, and their records decoded."""
        is_plain = self.key_format is None and self.value_format is None
        return is_plain and any(topic.removeprefix(_REGEX_SIGN).startswith("__") for topic in self.topics)

    @property
    def begins_by_partition(self) -> bool:
        return "=" in self.from_

    @property
    def formats(self) -> SideFormats:
        formats = SideFormats(
            self.schema_registry,
            self.key_format,
            self.value_format,
            self.key_schema,
            self.value_schema,
            context=self.schema_context,
            schema_json=self.schema_json,
        )
        return formats.for_people() if self.is_for_people else formats

    @property
    def has_schemas(self) -> bool:
        return self.formats.have_schemas()

    def ensure_consistent(self) -> None:
        """Raises UsageError for options that do not go together, and for a path instead of a topic."""
        for topic in self.topics if self.find_pattern() is None else ():
            if "/" in topic:
                raise _path_error(topic)
            if not is_valid_topic_name(topic):
                raise UsageError(
                    f"{topic!r} is no name of a topic",
                    hint="--regex takes patterns, as in 'flights.*'; --partition and --from say where to begin",
                )
        ensure_compatible(self, RULES)
        if (self.last or 0) > _MOST_COUNTED:
            raise UsageError(f"--last {self.last}: at most {_MOST_COUNTED:,}", hint="--from TIME --merge")
        self.formats.ensure_consistent()
        if self.is_in_zookeeper and self.group is not None:
            self._ensure_registrable(self.group)
        ensure_in_order(self.from_, self.until)
        if self.as_of is not None:
            ensure_in_order(self.from_, self.as_of, ("--from", "--as-of"))

    def _ensure_registrable(self, group: str) -> None:
        """Raises UsageError for a group, or a pattern of topics, that ZooKeeper's registries can't hold."""
        from core.zookeeper.group_registry import ensure_group_name, ensure_registrable_pattern

        ensure_group_name(group)
        if self.find_pattern() is not None:
            for topic in self.topics:
                ensure_registrable_pattern(topic)

    @property
    def has_filter(self) -> bool:
        return self.grep is not None or bool(self.filters)

    def find_filter(self, not_json: NotJson) -> RecordFilter:
        """Combines all filters into one, which counts by `not_json`."""
        from core.records.record_filter import both, grep, parse_filter

        now_ms = time.time_ns() // 1_000_000
        found: RecordFilter | None = grep(self.grep) if self.grep is not None else None
        for text in self.filters:
            parsed = parse_filter(text, now_ms, not_json)
            found = parsed if found is None else both(found, parsed)
        assert found is not None  # `has_filter` says so
        return found

    def no_topic_error(self) -> UsageError:
        """Returns the error for a pattern that matches no topic."""
        return UsageError(
            f"no topic matches {' '.join(self.topics)}",
            hint="an expression must match the whole name, as ^fl.* does flights, and none matches Kafka's own topics",
        )

    def find_pattern(self) -> re.Pattern[str] | None:
        """Returns the pattern of --regex, or of topics that begin as kcat's patterns do, or None if they are names."""
        if not self.regex and not all(topic.startswith(_REGEX_SIGN) for topic in self.topics):
            return None
        try:
            return re.compile("|".join(f"(?:{topic})" for topic in self.topics))
        except re.error as error:
            raise UsageError(f"{' '.join(self.topics)}: no regular expression: {error}") from error


RULES = (
    needs("schema_json", "has_schemas", NO_SCHEMA_JSON),
    excludes("follow", "until", "--follow has no --until"),
    excludes("as_of", "until", "--as-of and --until: one of them"),
    excludes("is_latest", "is_endless", "--latest-per-key and --as-of read to an end: not with --follow or --group"),
    excludes("merge", "is_endless", "--merge puts what is there in order: not with --follow or --group"),
    excludes("group", "partitions until", "--group has neither --partition nor --until: the group says what is read"),
    needs("group_protocol group_instance_id commit", "group",
          "--group-protocol, --group-instance-id and --commit go with --group"),
    excludes("is_in_zookeeper", "group_protocol group_instance_id",
             "a group of --zookeeper has no coordinator: not with --group-protocol or --group-instance-id"),
    excludes("group", "begins_by_partition",
             "--group begins in one place on all partitions, whoever reads them: --from WHERE, without a partition"),
    excludes("key", "partitions", "--key chooses the partition: without --partition"),
    excludes("key", "group", "--key reads without a group: --filter 'key == \"K\"' goes with --group"),
    excludes("key", "print_control_records", "--key and --print-control-records: markers have no keys of yours"),
    needs("all_partitions partitioner", "key", "--all-partitions and --partitioner go with --key"),
    excludes("all_partitions", "partitioner", "--all-partitions and --partitioner: one of them"),
    excludes("last", "is_endless", "--last N stops at the end: --from -N goes with --follow and --group"),
    excludes("last", "max_messages", "--last and --max-messages: one of them"),
    excludes("last", "merge", "--last is in order of time anyway: without --merge"),
    excludes("last", "is_latest join", "--last does not go with --latest-per-key, --as-of or --join"),
    needs("newest_first", "last", "--newest-first goes with --last N"),
    needs("per_partition", "max_messages", "--per-partition goes with --max-messages"),
    excludes("per_partition", "merge is_endless", "--per-partition does not go with --merge, --follow or --group"),
    needs("fields", "format=csv format=parquet format=arrow", "--fields goes with --format csv, parquet or arrow"),
    excludes("group", "format=parquet",
             "--format parquet does not go with --group: what is committed would not be written yet"),
)  # fmt: skip


def _path_error(path: str) -> UsageError:
    from core.files.file_names import parse_partition_directory_name

    partition = parse_partition_directory_name(Path(path).name)
    hint = f"plog consume {partition.topic if partition else 'TOPIC'} --data-dir {path}"
    return UsageError(f"{path} is a path: topics are named, and --data-dir says where their files are", hint=hint)
