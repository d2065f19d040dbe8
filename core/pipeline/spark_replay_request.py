"""Holds the options of `plog spark-replay` that define its output."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.common.command_option import argument, ensure_compatible, excludes, flag, needs, option, options
from core.common.decompression_limit import parse_size
from core.common.errors import UsageError
from core.pipeline.consume_request import ensure_in_order
from core.records.side_format import (
    KEY_SCHEMA,
    NO_SCHEMA_JSON,
    SCHEMA_CONTEXT,
    SCHEMA_JSON,
    SCHEMA_REGISTRY,
    VALUE_SCHEMA,
    SchemaJson,
    SideFormat,
    SideFormats,
)

if TYPE_CHECKING:
    from core.spark.partition_expression import Partition

FILE_KINDS = ("parquet", "json", "csv", "orc", "delta")
KINDS = (*FILE_KINDS, "topic")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*", re.DOTALL)
_SECRET = re.compile(r"://[^/@:\[]*:(?!\d*/)[^@]*@")
"""Of a URL's user and password; the password may have a /, as secret keys of S3 do, and a port is none."""

_NO_URL = re.compile("(?i:file|(view|s?web)?hdfs|ofs|s3[an]?|gs|abfss?|wasbs?|https?|ftp):(?!/)")
"""Of a URL that would be a folder's name."""

_SINCE = (
    "bad_timestamps", "compression", "file_size", "schema_registry", "schema_context", "value_schema", "key_schema",
    "schema_json", "dead_letter", "timezone",
)  # fmt: skip
"""Options that plans of earlier releases don't have: plans without them go on."""
_OF_THE_RUN = ("continue_", "single_writer")
"""Options that say nothing about the output."""

_OF_COLUMNS = (
    SideFormat.registry, SideFormat.avro, SideFormat.protobuf, SideFormat.jsonschema, SideFormat.json,
    SideFormat.msgpack, SideFormat.cbor,
)  # fmt: skip
"""Formats whose values are JSON, and may become columns."""
OF_COLUMNS = f"--schema is of values that are JSON: --value-format {', '.join(_OF_COLUMNS)}"
_AS_TEXT = ("binary", "string", "base64")
"""Formats that the output has, without decoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The options that define the output, unchanged; `source` is a directory or servers. The plan keeps them: the same
    request again goes on with it.
    """

    topics: Sequence[str] = argument("The topics to replay.", default=(), metavar="TOPIC...")
    to: str | None = option(
        "Where to write: parquet:DIR, json:DIR, csv:DIR, orc:DIR, delta:DIR or topic:NAME; DIR may be a URL.",
        metavar="KIND:WHERE",
    )
    source: str = ""
    from_: str = option("A place as in plog consume.", default="beginning", metavar="WHERE")
    until: str = option("A place as in plog consume.", default="end", metavar="WHERE")
    from_group: str = option("Begin at the offsets that this group committed.", default="", metavar="GROUP")
    latest_per_key: bool = flag("Only the last record of each key, as compaction would leave it.")
    partition_by: Sequence[str] = options(
        "Write folders: by day, hour, COLUMN, date(timestamp), value.FIELD or NAME=EXPRESSION.", metavar="WHAT"
    )
    compression: str = option(
        "How files are compressed: zstd, snappy, gzip, lz4 or none. Default: zstd; none for json and csv.",
        default="",
        metavar="CODEC",
    )
    file_size: str = option(
        "About how large a file may become, as 256M. Default: one file a task.", default="", metavar="BYTES"
    )
    continue_: bool = flag("When the replay that is there is done, replay what came since to the same place.")
    single_writer: bool = flag("Write to a store that can't keep two replays apart: no other one runs there.")
    columns: str = option("Which columns of Spark's Kafka source to write. Default: all.", default="", metavar="A,B")
    key_format: str = option(
        "How keys are written: binary, or as text of a format of plog consume.", default="binary", metavar="FORMAT"
    )
    value_format: str = option(
        "How values are written: binary, or decoded as plog consume does it: registry, avro, protobuf[:Message], "
        "jsonschema, json, msgpack and cbor become columns; string, long, int, double, uuid and base64 text.",
        default="binary",
        metavar="FORMAT",
    )
    schema_registry: str | None = SCHEMA_REGISTRY
    schema_context: str | None = SCHEMA_CONTEXT
    value_schema: str | None = VALUE_SCHEMA
    key_schema: str | None = KEY_SCHEMA
    schema_json: SchemaJson | None = SCHEMA_JSON
    schema: str = option(
        "The columns of decoded values, such as 'id INT, name STRING'. Default: as the schema or a sample shows.",
        default="",
        metavar="DDL",
    )
    dead_letter: str = option(
        "Write records whose value does not decode or fit there, with the reason, and end with exit code 1.",
        default="",
        metavar="[parquet|json:]URL",
    )
    timezone: str = option(
        "The time zone of days and hours in names of folders, as Europe/Berlin.", default="UTC", metavar="ZONE"
    )
    transform: str = option("A function that takes a DataFrame and returns one.", default="", metavar="MODULE:FUNCTION")
    isolation: str = option(
        "Which records to replay: read_committed or read_uncommitted.", default="read_committed", metavar="LEVEL"
    )
    allow_loss: bool = flag("Go on after damaged or missing offsets, list them, and end with exit code 1.")
    bad_timestamps: str = option(
        "What to do with timestamps that Spark can't represent.", default="error", metavar="error|null"
    )

    @property
    def kind(self) -> str:
        return (self.to or "").partition(":")[0]

    @property
    def where(self) -> str:
        return (self.to or "").partition(":")[2]

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Raises what `parse_partitions` raises."""
        from core.spark.partition_expression import parse_partitions

        return parse_partitions(self.partition_by)

    @property
    def file_size_bytes(self) -> int:
        """Returns 0 for no limit. Raises UsageError."""
        return parse_size(self.file_size, "--file-size") if self.file_size else 0

    @property
    def formats(self) -> SideFormats:
        """Returns the formats for decoding. The registry alone makes no side its own: records stay as they are."""

        def named(format_: str, schema: str | None) -> str | None:
            return "none" if format_ == "binary" and schema is None else None if format_ == "binary" else format_

        return SideFormats(
            self.schema_registry,
            named(self.key_format, self.key_schema),
            named(self.value_format, self.value_schema),
            self.key_schema,
            self.value_schema,
            context=self.schema_context if self.decodes else None,
            schema_json=self.schema_json or SchemaJson.plain,
        )

    @property
    def decodes(self) -> bool:
        """Whether a side is more than bytes, text of bytes or base64."""
        formats = (self.key_format, self.value_format)
        return bool(set(formats) - {*_AS_TEXT} or self.key_schema or self.value_schema or self.dead_letter)

    @property
    def reads_sides(self) -> bool:
        """Whether a key or a value may be wrong."""
        return not self.formats.are_plain

    @property
    def needs_registry(self) -> bool:
        return self.decodes and any(map(self.formats.needs_registry, ("key", "value")))

    @property
    def has_fields(self) -> bool:
        """Whether values decode to JSON objects, whose fields may become columns."""
        return self.formats.find("value") in _OF_COLUMNS

    @property
    def has_schemas(self) -> bool:
        return self.decodes and self.formats.have_schemas()

    @property
    def is_of_times(self) -> bool:
        return any(one.is_of_time for one in self.partitions)

    @property
    def is_url(self) -> bool:
        return _URL.fullmatch(self.where) is not None

    @property
    def by_spark(self) -> bool:
        """Whether Spark's writer does it: all but records as they are, as Parquet in folders that every node sees."""
        is_own = self.kind in ("parquet", "delta") and not (self.is_url or self.decodes or self.transform)
        return self.kind != "topic" and not (is_own and all(one.is_simple for one in self.partitions))

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        fields["partition_by"] = ",".join(map(str, self.partitions))
        if not self.needs_registry:
            fields["schema_registry"] = None  # the environment's, for other commands
        defaults = {field.name: field.default for field in dataclass_fields(self)}
        left_out = [*_OF_THE_RUN, *(name for name in _SINCE if fields[name] == defaults[name])]
        return {name: value for name, value in fields.items() if name not in left_out}

    def ensure_sensible(self) -> None:
        """Raises UsageError for options that do not fit together."""
        if self.kind not in KINDS or not self.where:
            expected = f"{', '.join(f'{kind}:DIR' for kind in FILE_KINDS)} or topic:NAME"
            raise UsageError(f"--to {self.to}: expected {expected}" if self.to else f"name a target: --to {expected}")
        _ensure_place("--to", self.where)
        _ensure_place("--dead-letter", self.dead_letter)
        if self.compression == "zstd" and self.kind in ("json", "csv"):
            raise UsageError(f"--compression zstd: {self.kind} files can be compressed with gzip, snappy or lz4")
        for side in ("key", "value"):
            self.formats.find(side)
        if self.decodes:
            self.formats.ensure_consistent()
        ensure_zone(self.timezone)
        if "" in self.partition_by:
            raise UsageError("--partition-by: its text is empty", hint="--partition-by day")
        if self.dead_letter:
            ensure_apart(self.dead_letter, self.kind, self.where)
        if self.compression not in ("", *COMPRESSIONS):
            raise UsageError(f"--compression {self.compression}: expected {', '.join(COMPRESSIONS)}")
        if self.bad_timestamps not in ("error", "null"):
            raise UsageError(f"--bad-timestamps {self.bad_timestamps}: expected error or null")
        ensure_compatible(self, RULES)
        if not self.from_group:
            ensure_in_order(self.from_, self.until)


RULES = (
    needs("schema", "has_fields", OF_COLUMNS),
    needs("schema_json", "has_schemas", NO_SCHEMA_JSON),
    needs("schema_context", "has_schemas", "--schema-context goes with --value-format registry, or a schema's subject"),
    needs("dead_letter", "reads_sides", "--dead-letter is of keys and values that are decoded: --value-format FORMAT"),
    needs("timezone", "is_of_times", "--timezone goes with --partition-by day, hour or date(timestamp)"),
    excludes("bad_timestamps=null", "kind=topic", "a topic's records have a timestamp: no --bad-timestamps null"),
    excludes("latest_per_key", "from_group", "--latest-per-key is of the whole topic: not with --from-group"),
    excludes("kind=topic", "partition_by columns schema transform key_format=base64 value_format=base64 compression "
             "file_size decodes", "a topic gets records as they are: no columns, formats or --transform"),
    excludes("continue_", "latest_per_key", "--latest-per-key is of the whole topic: not with --continue"),
    needs("single_writer", "is_url", "--single-writer is of stores: a folder that every node sees has a lock"),
)  # fmt: skip


def _ensure_place(option: str, where: str) -> None:
    """Raises UsageError for a URL with a password, and for a place that is a folder's name, and was not meant so."""
    if _SECRET.search(where):
        raise UsageError(
            f"{option}: plans, manifests and logs keep the URL, and it has a password",
            hint="write the URL without it, and --conf 'spark.hadoop.fs.s3a.secret.key=${env:KEY}' or the like",
        )
    place = re.sub("^(json|parquet):", "", where)
    if place == "~" or place.startswith("~/"):
        raise UsageError(f"{option} {where}: shells leave ~ as it is after a colon", hint="write $HOME for it")
    if found := _NO_URL.match(place):
        raise UsageError(f"{option} {where}: a URL has a / after {found[0]}", hint="a folder of that name: ./NAME")


def ensure_zone(name: str) -> None:
    """Raises UsageError for a time zone that is not known, or not the same on all nodes."""
    from zoneinfo import available_timezones

    if name != "UTC" and name not in available_timezones() - {"Factory", "localtime"}:
        raise UsageError(f"--timezone {name}: no such zone", hint="as UTC, Europe/Berlin or America/New_York")


def ensure_apart(dead_letter: str, kind: str, directory: str) -> None:
    """Raises UsageError if bad records can't be kept at `dead_letter`: it is no place for files, or it lies in the
    folder of the output, whose readers would find them.
    """
    named, colon, where = dead_letter.partition(":")
    if named not in ("parquet", "json"):
        where = "" if colon and named in KINDS else dead_letter
    if not where:
        raise UsageError(f"--dead-letter {dead_letter}: expected parquet:URL, json:URL, or the URL of a folder")
    path = Path(where.removeprefix("file://").removeprefix("file:")).resolve()
    if (
        kind in FILE_KINDS
        and "://" not in where.removeprefix("file://")
        and path.is_relative_to(Path(directory).resolve())
    ):
        raise UsageError(
            f"--dead-letter {dead_letter}: bad records can't be in the folder of the others, {directory}",
            hint="its readers would find them: name a folder beside it",
        )
