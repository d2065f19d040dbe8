"""Holds the options of `plog produce`, and reads the input by them: its format, and how records are prepared."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from core.common.command_option import argument, ensure_compatible, excludes, flag, needs, option, options
from core.common.errors import UsageError
from core.common.filesystem import accessing
from core.records.side_format import (
    KEY_FORMAT,
    NO_SCHEMA_JSON,
    SCHEMA_CONTEXT,
    SCHEMA_REGISTRY,
    VALUE_FORMAT,
    SchemaJson,
    SideFormat,
    SideFormats,
)

if TYPE_CHECKING:
    from core.pipeline.line_parsers import Batch, Parser, Rows
    from core.pipeline.session import Session
    from core.pipeline.timestamp_field import TimestampField
    from core.records.byte_strings import ByteStrings

    Prepare = Callable[[Rows], Rows]

_LENGTH_PREFIXED = "%R%s"
_OF_FIELDS = "--key-field, --timestamp-field and --topic-field go with lines of JSON, or with --format csv"
_OF_REFERENCES = "--schema-reference goes with --schema-registry, and a file in --value-schema or --key-schema"
_OF_TEMPLATE = (
    "--template alone describes the input: not with --format, --key-separator, --key-field, --timestamp-field or "
    "--topic-field"
)
_OF_CRLF = "--crlf goes with lines that end in \\n: with --format lines, envelope or csv, and without --delimiter"
_AS_JSON = (SideFormat.json, SideFormat.msgpack, SideFormat.cbor)
_OF_KEY = "--key is for records without a key of their own: not with --key-field, --template, or envelopes"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


Acks = Literal["0", "1", "all"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def acks_number(acks: Acks) -> int:
    return -1 if acks == "all" else int(acks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    """Holds the options of `plog produce`; immutable."""

    topic: str | None = argument(
        "The topic to write to; none with --topic-field or --own-topics.", default=None, completes="topic"
    )
    files: Sequence[Path] = argument("Files to read instead of stdin.", default=(), metavar="[FILE]...")
    inputs: Sequence[Path | BinaryIO] = ()  # the files, or the stream that is called stdin
    format: Literal["lines", "envelope", "raw", "json", "ndjson", "csv", "length-prefixed"] = option(
        "The format of the input.", default="lines"
    )
    template: str | None = option(
        r"What a record looks like in the input, in consume's tokens: '%k\t%h\t%s\n'.", metavar="PATTERN"
    )
    delimiter: str | None = option(
        r"What ends a record in the input; \0 is a zero byte. Default: a newline.", "-D", metavar="S"
    )
    key_separator: str | None = option("What separates the key from the value in a line.", "-K", metavar="S")
    key: str | None = option("The key of every record; with -K, of lines without a separator.", metavar="KEY")
    key_field: str | None = option("The field of JSON lines to take the key from.", metavar="F")
    timestamp_field: str | None = option("The field of JSON lines to take the timestamp from.", metavar="F")
    timestamp_unit: Literal["s", "ms", "us", "ns"] | None = option(
        "The unit of numbers in --timestamp-field. Default: milliseconds.", show_default=False
    )
    topic_field: str | None = option("The field of JSON lines that names the topic to write the line to.", metavar="F")
    own_topics: bool = flag("Write each envelope to the topic that it names.")
    crlf: bool = flag(r"The lines end in \r\n: leave the \r out of the records.")
    null_value: str | None = option("Values that equal X are null: tombstones.", metavar="X")
    null_key: str | None = option("Keys that equal X are null.", metavar="X")
    partition: int | None = option("Send everything to this partition. Default: as --partitioner decides.", metavar="N")
    partitioner: str | None = option(
        "murmur2 (Java's), consistent_random (librdkafka's), crc32, murmur2_random, fnv1a, fnv1a_random, hash-ref, "
        "random, round_robin, sticky, or module:function. Default: murmur2, for records that name no partition.",
        metavar="NAME",
    )
    headers: Sequence[str] = options("A header for every record.", "--header", "-H", metavar="K=V")
    compression: Codec = option("How to compress batches.", "--compression", "--compression-codec", default="none")
    acks: Acks = option("Which acknowledgement to wait for.", "--acks", "--request-required-acks", default="all")
    batch_size: int = option(
        "The size that a batch may have before compression.", default=512 * 1024, metavar="BYTES", min=1
    )
    transactional_id: str | None = option(
        "Send everything in one transaction: all of it becomes visible, or nothing.", metavar="ID"
    )
    transaction_timeout_ms: int = option(
        "How long the transaction may stay open.", default=900_000, metavar="MS", min=1
    )
    linger: float = option("How long to wait for more input before a batch is sent.", default=0, metavar="MS", min=0)
    rate: float | None = option("At most N records a second.", metavar="N")
    tee: bool = flag("Copy the input to stdout once it is acknowledged.", "-T")
    claim_check: Path | None = option("Store values in DIR, and send references to them.", metavar="DIR")
    claim_check_above: int = option("With --claim-check: store only larger values.", default=0, metavar="BYTES")
    schema_registry: str | None = SCHEMA_REGISTRY
    schema_context: str | None = SCHEMA_CONTEXT
    schema_id: Literal["value", "header"] = option(
        "Where the id of a schema goes: in front of the value and the key, or into a header.", default="value"
    )
    key_format: str | None = KEY_FORMAT
    value_format: str | None = VALUE_FORMAT
    value_schema: str | None = option(
        "The schema of values: an id, SUBJECT[:VERSION], or a .avsc, .proto or .json file; then :Message.",
        metavar="SCHEMA",
    )
    key_schema: str | None = option("The schema of keys, likewise.", metavar="SCHEMA")
    schema_references: Sequence[str] = options(
        "What a schema's file refers to as NAME is SUBJECT of the registry.",
        "--schema-reference",
        metavar="NAME=SUBJECT[:VERSION]",
    )
    schema_json: SchemaJson | None = option(
        "JSON of a schema: tagged (Avro's unions name their branch) or plain. Default: both, if only one fits.",
        show_default=False,
    )
    chunk: int | None = option("Send larger values in slices of this size.", metavar="BYTES", min=1)
    no_create: bool = flag("Refuse a topic that does not exist, instead of creating it.")
    dry_run: bool = flag("Read and check everything, but send nothing.")
    report: Literal["table", "json", "ndjson", "csv"] | None = option(
        "Print for each partition how many records it got, and the first and last offset.", metavar="FMT"
    )

    @property
    def uses_fields(self) -> bool:
        """Returns whether fields of the input are keys, timestamps or topics."""
        return any(name is not None for name in (self.key_field, self.timestamp_field, self.topic_field))

    @property
    def names_topics(self) -> bool:
        return self.topic_field is not None or self.own_topics

    @property
    def formats(self) -> SideFormats:
        return SideFormats(
            self.schema_registry,
            self.key_format,
            self.value_format,
            self.key_schema,
            self.value_schema,
            is_written=True,
            context=self.schema_context,
            is_in_header=self.schema_id == "header",
            schema_json=self.schema_json,
            references=tuple(self.schema_references),
            is_dry_run=self.dry_run,
        )

    @property
    def has_schemas(self) -> bool:
        return self.formats.have_schemas()

    def ensure_consistent(self) -> None:
        """Raises UsageError for options that do not go together."""
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"--rate {self.rate:g}: expected a number above 0 of records a second")
        ensure_compatible(self, RULES)
        if self.topic is None and not self.names_topics:
            hint = "plog produce TOPIC, or --topic-field F, or --own-topics of envelopes"
            raise UsageError("produce needs a topic", hint=hint)
        self.formats.ensure_consistent()
        if self.claim_check_above < 0:
            raise UsageError("--claim-check-above: a number of bytes")

    def ensure_readable(self) -> None:
        """Raises AccessError for a missing or unreadable file, before anything is sent or a topic created."""
        for path in self.inputs:
            if not isinstance(path, Path):
                continue
            with accessing(path):
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if not os.access(path, os.R_OK):
                    path.stat()
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def batches(self, say: Callable[[str], None]) -> Iterator[Batch]:
        """Yields the input's records, as they come."""
        from core.pipeline.input_lines import dropping_cr, read_lines, warning_of_begin, warning_of_cr
        from core.pipeline.line_parsers import parse_lines, read_raw

        linger_s = self.linger / 1000
        if self.format == "raw":
            return read_raw(self.inputs)
        if self.format == "csv":
            from core.pipeline.json_stream import read_csv

            return read_csv(self.inputs, self.key_field, self._timestamp_field(say), self.topic_field, linger_s)
        template = _LENGTH_PREFIXED if self.format == "length-prefixed" else self.template
        if template is not None:
            from core.pipeline.input_template import Template, read_by_template

            return read_by_template(self.inputs, Template(template), linger_s)
        delimiter = unescape(self.delimiter).encode() if self.delimiter is not None else b"\n"
        if self._is_json and delimiter == b"\n":
            from core.pipeline.json_stream import read_json_values

            lines = read_json_values(self.inputs, linger_s)
        else:
            lines = read_lines(self.inputs, delimiter, linger_s)
            if self.format == "lines":
                lines = warning_of_begin(lines, say)
        if self.crlf:
            lines = dropping_cr(lines)
        elif self.format == "lines" and delimiter == b"\n":  # the other parsers skip a \r
            lines = warning_of_cr(lines, say)
        return parse_lines(lines, self._parser(say))

    @property
    def _is_json(self) -> bool:
        """Returns whether the input is JSON values: envelopes, or objects that are the records' values."""
        if self.format != "lines" or self.key_separator is not None:
            return self.format == "envelope"
        return self.uses_fields or self.value_schema is not None or self.value_format in _AS_JSON

    def _parser(self, say: Callable[[str], None]) -> Parser:
        from core.pipeline.line_parsers import envelope_parser, json_parser, lines_parser

        if self.format == "envelope":
            return envelope_parser(own_topics=self.own_topics)
        timestamp_field = self._timestamp_field(say)
        if self.uses_fields:
            return json_parser(self.key_field, timestamp_field, self.topic_field)
        separator = None if self.key_separator is None else unescape(self.key_separator).encode()
        return lines_parser(separator, self._fixed_key)

    @property
    def _fixed_key(self) -> bytes | None:
        return None if self.key is None else os.fsencode(self.key)

    def _timestamp_field(self, say: Callable[[str], None]) -> TimestampField | None:
        from core.pipeline.timestamp_field import TimestampField

        name = self.timestamp_field
        return None if name is None else TimestampField(name, self.timestamp_unit, say)

    def preparations(self, session: Session) -> list[Prepare]:
        """Returns the steps that rows go through before they are sent, in order."""
        steps: list[Prepare] = []
        if self._fixed_key is not None and self.key_separator is None:
            steps.append(partial(_with_key, self._fixed_key))
        if self.null_value is not None or self.null_key is not None:
            steps.append(self._with_nulls)
        if not self.formats.are_plain:
            from core.pipeline.key_value_text import Schemas

            schemas = Schemas(self.formats, session.find_settings())
            steps.append(schemas.encoder(self.topic, self.value_schema, self.key_schema))
        section = _header_section(self.headers)
        if section is not None:
            steps.append(lambda rows: _with_headers(rows, section))
        if self.claim_check is not None and not self.dry_run:
            from core.pipeline.large_values import ClaimCheckRoom

            steps.append(ClaimCheckRoom(self.claim_check, self.claim_check_above).leave)
        return steps

    def _with_nulls(self, rows: Rows) -> Rows:
        return rows.with_columns(
            values=_null_where(rows.values, self.null_value),
            keys=None if rows.keys is None else _null_where(rows.keys, self.null_key),
        )


RULES = (
    needs("schema_json", "has_schemas", NO_SCHEMA_JSON),
    needs("schema_references", "schema_registry", _OF_REFERENCES),
    needs("schema_references", "value_schema key_schema", _OF_REFERENCES),
    excludes("uses_fields", "key_separator", _OF_FIELDS),
    needs("uses_fields", "format=lines format=csv", _OF_FIELDS),
    needs("own_topics", "format=envelope", "--own-topics goes with --format envelope"),
    excludes("key", "key_field template", _OF_KEY),
    needs("key", "format=lines format=raw format=csv", _OF_KEY),
    needs("key_separator", "format=lines", "--key-separator goes with --format lines"),
    excludes("key_separator=", "key_separator", "--key-separator is empty"),
    needs("template", "format=lines", _OF_TEMPLATE),
    excludes("template", "uses_fields key_separator", _OF_TEMPLATE),
    excludes("template", "delimiter", "--template ends with its own delimiter"),
    excludes("delimiter=", "delimiter", "--delimiter is empty"),
    needs("delimiter", "format=lines format=envelope", "--delimiter goes with --format lines or envelope"),
    needs("timestamp_unit", "timestamp_field",
          "--timestamp-unit is the unit of --timestamp-field, and goes with it"),
    needs("crlf", "format=lines format=envelope format=csv", _OF_CRLF),
    excludes("crlf", "delimiter", _OF_CRLF),
    excludes("crlf", "template", r"--crlf goes without --template: end the template in \r\n"),
    excludes("transactional_id=", "transactional_id", "--transactional-id is empty"),
    needs("transactional_id", "acks=all", "--transactional-id goes with --acks all"),
    excludes("tee", "report", "--tee and --report both print to stdout: one of them"),
)  # fmt: skip


def unescape(text: str) -> str:
    r"""Replaces `\n \t \r \0 \\` in the text of an option."""
    return re.sub(r"\\([ntr0\\])", lambda match: _ESCAPES[match[1]], text)


def _null_where(texts: ByteStrings, text: str | None) -> ByteStrings:
    import numpy as np

    from core.records.byte_strings import ByteStrings

    if text is None:
        return texts
    wanted = unescape(text).encode()
    lengths = texts.lengths.copy()
    for row in np.flatnonzero(lengths == len(wanted)).tolist():
        start = int(texts.positions[row])
        if texts.buffer[start : start + len(wanted)] == wanted:
            lengths[row] = -1
    return ByteStrings(texts.buffer, texts.positions, lengths)


def _with_key(key: bytes, rows: Rows) -> Rows:
    from core.records.byte_strings import ByteStrings

    return rows.with_columns(keys=ByteStrings.repeat(key, len(rows)))


def _header_section(headers: Sequence[str]) -> bytes | None:
    from core.records.record import encode_headers

    pairs = []
    for header in headers:
        name, separator, value = header.partition("=")
        if not separator:
            raise UsageError(f"--header {header}: expected NAME=VALUE")
        pairs.append((name.encode(), value.encode()))
    return encode_headers(pairs) if pairs else None


def _with_headers(rows: Rows, section: bytes) -> Rows:
    from core.records.byte_strings import ByteStrings
    from core.records.record import encode_headers, read_headers

    if rows.headers is None:
        return rows.with_columns(headers=ByteStrings.repeat(section, len(rows)))
    none, more = encode_headers(()), read_headers(section, 0)[0]
    sections = [encode_headers((*read_headers(own or none, 0)[0], *more)) for own in rows.headers.to_pylist()]
    return rows.with_columns(headers=ByteStrings.of_list(sections))
