"""Holds the options of `plog spark-replay` that define its output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from core.common.command_option import Argument, Option, ensure_compatible, excludes, needs
from core.common.errors import UsageError
from core.pipeline.consume_request import ensure_in_order

FILE_KINDS = ("parquet", "json", "csv", "delta")
KINDS = (*FILE_KINDS, "topic")
_OF_JSON = "--value-format json goes with --schema, and it with that"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The options that define the output, unchanged; `source` is a directory or servers. The plan keeps them: the same
    request again goes on with it.
    """

    topics: Annotated[Sequence[str], Argument("The topics to replay.", metavar="TOPIC...")] = ()
    to: Annotated[
        str | None,
        Option("Where to write: parquet:DIR, json:DIR, csv:DIR, delta:DIR or topic:NAME.", metavar="KIND:WHERE"),
    ] = None
    source: str = ""
    from_: Annotated[str, Option("A place as in plog consume.", metavar="WHERE")] = "beginning"
    until: Annotated[str, Option("A place as in plog consume.", metavar="WHERE")] = "end"
    from_group: Annotated[str, Option("Begin at the offsets that this group committed.", metavar="GROUP")] = ""
    latest_per_key: Annotated[bool, Option("Only the last record of each key, as compaction would leave it.")] = False
    partition_by: Annotated[str, Option("Write folders by time or by a column.", metavar="day|hour|COLUMN")] = ""
    columns: Annotated[str, Option("Which columns of Spark's Kafka source to write. Default: all.", metavar="A,B")] = ""
    key_format: Annotated[str, Option("How keys are written: binary, string or base64.", metavar="FORMAT")] = "binary"
    value_format: Annotated[
        str, Option("How values are written: binary, string, base64, or json with --schema.", metavar="FORMAT")
    ] = "binary"
    schema: Annotated[str, Option("The fields of JSON values, such as 'id INT, name STRING'.", metavar="DDL")] = ""
    transform: Annotated[
        str, Option("A function that takes a DataFrame and returns one.", metavar="MODULE:FUNCTION")
    ] = ""
    isolation: Annotated[
        str, Option("Which records to replay: read_committed or read_uncommitted.", metavar="LEVEL")
    ] = "read_committed"
    allow_loss: Annotated[
        bool, Option("Go on after damaged or missing offsets, list them, and end with exit code 1.")
    ] = False
    bad_timestamps: Annotated[
        str, Option("What to do with timestamps that Spark can't represent.", metavar="error|null")
    ] = "error"

    @property
    def kind(self) -> str:
        return (self.to or "").partition(":")[0]

    @property
    def where(self) -> str:
        return (self.to or "").partition(":")[2]

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
        from core.spark.range_output import BYTES_FORMATS

        for option, text in (("--key-format", self.key_format), ("--value-format", self.value_format)):
            allowed = (*BYTES_FORMATS, "json") if option == "--value-format" else BYTES_FORMATS
            if text not in allowed:
                raise UsageError(f"{option} {text}: expected {', '.join(allowed)}")
        if self.bad_timestamps not in ("error", "null"):
            raise UsageError(f"--bad-timestamps {self.bad_timestamps}: expected error or null")
        ensure_compatible(self, RULES)
        if not self.from_group:
            ensure_in_order(self.from_, self.until)


RULES = (
    needs("schema", "value_format=json", _OF_JSON),
    needs("value_format=json", "schema", _OF_JSON),
    excludes("bad_timestamps=null", "kind=topic", "a topic's records have a timestamp: no --bad-timestamps null"),
    excludes("latest_per_key", "from_group", "--latest-per-key is of the whole topic: not with --from-group"),
    excludes("kind=topic", "partition_by columns schema transform key_format=base64 value_format=base64",
             "a topic gets records as they are: no columns, formats or --transform"),
)  # fmt: skip
