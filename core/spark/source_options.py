"""Options of the data source, by the names that Spark's own Kafka source gives them, and in its JSON.

Where from: `path` (a partition's folder, a data directory, several with commas between them) or
`kafka.bootstrap.servers` (with `kafka.*`, `commandConfig` and `resolve`, of cluster_access.py). Which
topics: `subscribe`, `assign`, `subscribePattern`. From where, until where: offsets or
times, for all partitions or for each. plog's own are `badTimestamps`, `columns`, `isolationLevel`, `latestPerKey`,
`maxExpansion` and `rangeBytes`; and how keys and values are decoded: `keyFormat`, `valueFormat`, `keySchema`,
`valueSchema`, `schemaRegistry`, `schemaContext`, `schemaJson` and `badValues`, as `plog consume` has them.

Source: Spark's Structured Streaming + Kafka Integration Guide; org.apache.spark.sql.kafka010.KafkaSourceProvider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from core.common.decompression_limit import parse_size
from core.common.errors import UsageError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.records.side_format import SchemaJson, SideFormats
from core.spark.cluster_access import COMMAND_CONFIG, RESOLVE, access_of, servers_of, settings_of
from core.spark.record_schema import COLUMNS, schema_of
from core.spark.value_decoding import RAW, REASON, Decoding, ensure_no_password

TARGET_BYTES = 64 * 1024 * 1024
"""About how much of the log is one task's, unless an option says so."""

EARLIEST = -2
LATEST = -1

TOPIC_IDS = "#topicIds"
"""A key beside the topics in a stream's offsets, which no topic's name can be: {"topic": "id"}."""

T = TypeVar("T")

_DECODING = (
    "keyFormat", "valueFormat", "keySchema", "valueSchema", "schemaRegistry", "schemaContext", "schemaJson",
)  # fmt: skip
_OWN = (
    "path", "paths", "kafka.bootstrap.servers", "subscribe", "assign", "subscribePattern",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "columns", "isolationLevel", "latestPerKey", "rangeBytes", "ranges",
    "badTimestamps", "maxExpansion", COMMAND_CONFIG, RESOLVE,
    *_DECODING, "badValues", "decoding",
)  # fmt: skip
_REFUSED = (
    "auto.offset.reset", "enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer",
)  # fmt: skip
"""Consumer settings that the Kafka source does not let users set."""
_METADATA_TTL = "partition.metadata.cache.ttl.ms"
_WITHOUT_EFFECT = ("kafkaconsumer.polltimeoutms", "groupidprefix", _METADATA_TTL)
"""Options of the Kafka source that tune its consumers and the age of its metadata: accepted, and without effect here.
"""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or to end: each partition at its own of `places`, or all at one. They are offsets, EARLIEST and
    LATEST among them, or with `is_time` epoch milliseconds. `option`: the name of the one that says so.
    """

    option: str
    places: int | Mapping[TopicPartition, int]
    is_time: bool = False

    def begins_or_ends_at(self, word: int) -> bool:
        """Returns whether `word`, EARLIEST or LATEST, is the bound of at least one partition; a time never is."""
        places = self.places
        return not self.is_time and word in ([places] if isinstance(places, int) else places.values())


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """`topics`, `assigned`, `pattern`: one of them is given, or none for all topics of `paths`. `starting` is None if
    no option says it: the earliest offset for a batch, the latest for a stream; `ending` likewise: the latest for a
    batch, and a stream has none. `is_time_met`: a starting time must have a record that is as new. `ranges`: JSON of
    the very ranges to read, and nothing else counts then. `max_expansion`: bytes that one batch may decompress to, 0
    for the limit that is set for everyone. `access`: how the servers are reached, as `cluster_access.connect` takes it.
    `decoding`: None if keys and values stay bytes.
    """

    paths: tuple[str, ...]
    servers: str
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    pattern: str
    starting: Bound | None
    ending: Bound | None
    is_time_met: bool
    min_partitions: int
    max_records_per_partition: int
    range_bytes: int
    fails_on_data_loss: bool
    columns: tuple[str, ...]
    read_committed: bool
    latest_per_key: bool
    max_offsets_per_trigger: int
    min_offsets_per_trigger: int
    max_trigger_delay_ms: int
    ranges: str
    nulls_bad_timestamps: bool = False
    max_expansion: int = 0
    access: str = ""
    decoding: Decoding | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parses the options; raises UsageError with the option's name for a value that is invalid."""
        given = {name.lower(): value for name, value in options.items()}
        _ensure_known(given)
        read = _Reader(given)
        paths = read.paths()
        parsed = cls(
            paths=paths,
            servers=given.get("kafka.bootstrap.servers", "") if paths else servers_of(given),
            topics=read.parsed("subscribe", _parse_topics, ()),
            assigned=read.parsed("assign", _parse_assign, ()),
            pattern=read.parsed("subscribePattern", _parse_pattern, ""),
            starting=read.bound("starting"),
            ending=read.bound("ending"),
            is_time_met=read.one_of("startingOffsetsByTimestampStrategy", ("error", "latest")) == "error",
            min_partitions=read.number("minPartitions"),
            max_records_per_partition=read.number("maxRecordsPerPartition"),
            range_bytes=read.number("rangeBytes") or TARGET_BYTES,
            fails_on_data_loss=read.one_of("failOnDataLoss", ("true", "false")) == "true",
            columns=read.columns(),
            read_committed=read.isolation_level() == "read_committed",
            latest_per_key=read.one_of("latestPerKey", ("false", "true")) == "true",
            max_offsets_per_trigger=read.number("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=read.number("minOffsetsPerTrigger"),
            max_trigger_delay_ms=read.parsed("maxTriggerDelay", _parse_delay, 15 * 60_000),
            ranges=given.get("ranges", ""),
            nulls_bad_timestamps=read.one_of("badTimestamps", ("error", "null")) == "null",
            max_expansion=parse_size(given["maxexpansion"], "option maxExpansion:") if "maxexpansion" in given else 0,
            access=access_of(given),
            decoding=read.decoding(),
        )
        ttl_ms = read.parsed(_METADATA_TTL, int, -1)
        if ttl_ms < 1 and ttl_ms != -1:
            raise UsageError(f"option {_METADATA_TTL}: {ttl_ms}, expected 1 or more, or -1")
        parsed._ensure_whole()
        return parsed

    def _ensure_whole(self) -> None:
        if self.ranges:
            return
        if bool(self.paths) == bool(self.servers):
            raise UsageError(
                "read from where? give either path or kafka.bootstrap.servers, which commandConfig may have"
            )
        if self.paths and self.access:  # nobody connects, who would find out
            settings_of(self.access)
        ways = [bool(self.topics), bool(self.assigned), bool(self.pattern)]
        if sum(ways) > 1 or (self.servers and not any(ways)):
            raise UsageError("which topics? give one of subscribe, assign and subscribePattern")
        if self.latest_per_key and (self.min_partitions or self.max_records_per_partition):
            raise UsageError(
                "latestPerKey reads each partition by one task: no minPartitions, no maxRecordsPerPartition"
            )
        if self.ending is not None and self.ending.begins_or_ends_at(EARLIEST):
            raise UsageError("endingOffsets can't be earliest (-2)")
        self._ensure_bounds_fit()
        if 0 < self.max_offsets_per_trigger < self.min_offsets_per_trigger:
            raise UsageError(
                f"minOffsetsPerTrigger is {self.min_offsets_per_trigger}, more than maxOffsetsPerTrigger, "
                f"{self.max_offsets_per_trigger}"
            )

    def _ensure_bounds_fit(self) -> None:
        if self.starting is None or self.ending is None or self.starting.is_time is not self.ending.is_time:
            return
        starts, ends = self.starting.places, self.ending.places
        if isinstance(starts, int) or isinstance(ends, int):
            return
        if differing := sorted(starts.keys() ^ ends.keys()):
            raise UsageError(
                f"{self.starting.option} and {self.ending.option} are not of the same partitions: {differing[0]}"
            )
        for partition, start in starts.items():
            if start > ends[partition] >= 0:
                raise UsageError(
                    f"{self.starting.option} of {partition} is {start}, greater than {self.ending.option}, "
                    f"{ends[partition]}"
                )


class _Reader:
    """Takes values from options whose names are in lower case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"option {name}: {text!r} is not understood: {error}") from None

    def number(self, name: str) -> int:
        """Reads a number; returns 0 if it is not given."""
        found = self.parsed(name, partial(_parse_whole, what="a whole number"), 0)
        if name.lower() in self._given and found <= 0:
            raise UsageError(f"option {name}: {found}, expected 1 or more")
        return found

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """Reads one of the choices; returns the first if none is given."""
        text = self._given.get(name.lower(), choices[0]).lower()
        if text not in choices:
            raise UsageError(f"option {name}: {text!r}, expected {' or '.join(choices)}")
        return text

    def isolation_level(self) -> str:
        choices = ("read_committed", "read_uncommitted")
        if "kafka.isolation.level" in self._given:
            return self.one_of("kafka.isolation.level", choices)
        return self.one_of("isolationLevel", choices)

    def paths(self) -> tuple[str, ...]:
        """Reads `paths`, which Spark makes of load(["a", "b"])."""
        several: list[str] = self.parsed("paths", json.loads, [])
        return (*filter(None, self._given.get("path", "").split(",")), *map(str, several))

    def columns(self) -> tuple[str, ...]:
        """Reads `columns` if they are named; else all, headers only on request, as the Kafka source does."""
        text = self._given.get("columns")
        if text:
            chosen = tuple(name.strip() for name in text.split(","))
            schema_of([name for name in chosen if name not in (REASON, *RAW)])
            return chosen
        has_headers = self.one_of("includeHeaders", ("false", "true")) == "true"
        columns = COLUMNS if has_headers else tuple(name for name in COLUMNS if name != "headers")
        return (*columns, REASON) if self.one_of("badValues", ("error", "reason")) == "reason" else columns

    def decoding(self) -> Decoding | None:
        """Reads how keys and values are decoded; returns None if they are not."""
        if "decoding" in self._given:
            return Decoding.from_json(json.loads(self._given["decoding"]))
        named = {name: self._given.get(name.lower()) for name in _DECODING}
        has_reasons = self.one_of("badValues", ("error", "reason")) == "reason"
        url = named["schemaRegistry"]
        ensure_no_password(url, "option schemaRegistry")
        formats = SideFormats(
            url,
            named["keyFormat"] or (None if named["keySchema"] else "none"),
            named["valueFormat"],
            named["keySchema"],
            named["valueSchema"],
            context=named["schemaContext"], schema_json=SchemaJson(self.one_of("schemaJson", ("plain", "tagged"))),
        )  # fmt: skip
        decoding = Decoding(formats, access_of(self._given), has_reasons=has_reasons)
        if not decoding.sides:
            formats.ensure_consistent()
            needing = [name for name in (*_DECODING, "badValues") if name not in ("keyFormat", "valueFormat")]
            if given := [name for name in needing if name.lower() in self._given]:
                raise UsageError(f"option {given[0]} goes with valueFormat or keyFormat")
            return None
        return decoding

    def bound(self, which: str) -> Bound | None:
        """Reads a bound: a time for all partitions takes precedence over times for each, and these over offsets."""
        timestamp = self.parsed(f"{which}Timestamp", partial(_parse_whole, what="milliseconds since 1970"), None)
        if timestamp is not None:
            return Bound(f"{which}Timestamp", timestamp, is_time=True)
        times = self.parsed(f"{which}OffsetsByTimestamp", _parse_offsets, None)
        if times is not None:
            return Bound(f"{which}OffsetsByTimestamp", times, is_time=True)
        name = f"{which}Offsets"
        words = {"earliest": Bound(name, EARLIEST), "latest": Bound(name, LATEST)}
        text = self._given.get(name.lower(), "").strip().lower()
        if text in words:
            return words[text]
        offsets = self.parsed(name, _parse_offsets, None)
        for partition, offset in (offsets or {}).items():
            if offset < EARLIEST:
                raise UsageError(f"option {name}: {partition} at {offset}, expected an offset, -2 or -1")
        return None if offsets is None else Bound(name, offsets)


def _ensure_known(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in _OWN}
    for name in _REFUSED:
        if f"kafka.{name}" in given:
            raise UsageError(f"option kafka.{name}: the source itself says where to read, and gives bytes as they are")
    for name in given:
        if name in known or name in _WITHOUT_EFFECT or name.startswith(("kafka.", "fetchoffset.")):
            continue
        raise UsageError(f"no option {name!r}", hint=did_you_mean(name, _OWN))


def _parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Reads {"topic": {"0": 23, "1": -2}}; topics' ids may be there, as in a stream's checkpoint, and don't count."""
    expected = ValueError('expected a number for each partition, as {"topic": {"0": 23, "1": 42}}')
    found = _parse_object(text, expected)
    found.pop(TOPIC_IDS, None)
    if not all(isinstance(partitions, dict) for partitions in found.values()):
        raise expected
    return {
        TopicPartition(topic, _parse_number(number, expected)): _parse_number(offset, expected)
        for topic, partitions in found.items()
        for number, offset in partitions.items()
    }


def _parse_object(text: str, expected: ValueError) -> dict[str, Any]:
    def only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a topic or partition is named twice")
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=only_once)
    except json.JSONDecodeError:
        raise expected from None
    if not isinstance(found, dict):
        raise expected
    return found


def _parse_number(value: object, expected: ValueError) -> int:
    """Reads a whole number from JSON or text; refuses 1.5 and true, which Python would convert."""
    if type(value) is int or (isinstance(value, str) and re.fullmatch(r"-?\d+", value, re.ASCII)):
        return int(value)
    raise expected


def _parse_whole(text: str, what: str) -> int:
    return _parse_number(text.strip(), ValueError(f"expected {what}"))


def _parse_topics(text: str) -> tuple[str, ...]:
    """Reads t, u"""
    topics = tuple(filter(None, map(str.strip, text.split(","))))
    if not topics:
        raise ValueError("expected topics, with commas between them")
    return topics


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Reads {"topic": [0, 1]}"""
    expected = ValueError('expected partitions, as {"topic": [0, 1]}')
    found = _parse_object(text, expected)
    if not any(found.values()) or not all(isinstance(numbers, list) for numbers in found.values()):
        raise expected
    return tuple(TopicPartition(topic, _parse_number(n, expected)) for topic, numbers in found.items() for n in numbers)


def _parse_pattern(text: str) -> str:
    text = text.strip()
    if not text:
        raise ValueError("expected a regular expression")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from None
    return text


def _parse_delay(text: str) -> int:
    """Reads 15m, 30s, 500ms, as Spark's times."""
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", text.strip().lower())
    if match is None:
        raise ValueError("expected a number with ms, s, m, h or d")
    unit_ms = {"ms": 1, None: 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}[match[2]]
    return int(match[1]) * unit_ms
